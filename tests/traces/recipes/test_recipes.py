"""Episodes: deterministic, from the part that was asked for, windows within their times; every bad text in one line."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload, write_swf
from gpuyard.traces.recipes import Workloads, episode_number, parse_recipe
from gpuyard.traces.splits import SEEDS, SPLITS, data_of

DAY = 86400.0


@pytest.fixture(scope="module")
def log(tmp_path_factory):
    """1,000 jobs of ten users over ten days."""
    draws = np.random.default_rng(5)
    submit = np.sort(draws.uniform(0, 10 * DAY, 1000))
    runtime = draws.uniform(60, 7200, 1000).round()
    columns = {"submit": submit.round(), "gpus": draws.integers(1, 9, 1000), "walltime": runtime * 2, "user": draws.integers(0, 10, 1000)}
    path = tmp_path_factory.mktemp("log") / "log.swf"
    write_swf(Workload.build(columns, runtime, users=[f"u{k}" for k in range(10)]), path)
    return path


TEXTS = (
    "family:shape=base|bursty|diurnal,intensity=low|high,gpus=2|4 on {gpus}",
    "lublin:jobs=500[jobs=64; apply=load:0.9; estimate=noisy:0.3] on 256",
    "eda:jobs=20 on hosts:count=5,seed={seed}|hosts:count=3",
    "demo:jobs=50",
)


def same(a, b):
    return a.workload == b.workload and a.cluster.name == b.cluster.name and (a.text, a.seed) == (b.text, b.seed)


@pytest.mark.parametrize("text", TEXTS)
@pytest.mark.parametrize("split", SPLITS)
def test_a_generator_gives_the_same_episode_for_the_same_number_with_seeds_of_its_part(text, split):
    one, other = Workloads([text]).part(split), Workloads([text]).part(split)
    for number in (0, 1, 7, 2**62 + 12345):
        episode = one.episode(number)
        assert same(episode, other.episode(number))
        assert episode.seed in SEEDS[split]


def test_numbers_go_through_every_combination_then_the_next_seed():
    source = Workloads(["family:shape=base|bursty,gpus=2|4|8 on {gpus}"]).part("test", seeds=(42, 43))
    assert source.size == 12
    found = [source.episode(number) for number in range(12)]
    assert len({episode.text for episode in found}) == 6
    assert [episode.seed for episode in found] == [42] * 6 + [43] * 6
    assert all(episode.cluster.gpus == int(episode.text.rpartition(" on ")[2]) for episode in found)
    assert same(source.episode(12), found[0])
    assert found[0].workload.jobs == load_workload("family:shape=base,gpus=2", 42).jobs


def test_random_numbers_draw_combinations_evenly():
    source = Workloads(["family:shape=base|bursty,horizon=120 on 2|4"]).part("train")
    drawn = [source.episode(episode_number(0, env, 0)).text for env in range(400)]
    counts = [drawn.count(text) for text in sorted(set(drawn))]
    assert len(counts) == 4
    assert min(counts) > 70


def test_a_seed_in_the_cluster_gives_other_hosts():
    source = Workloads(["eda:jobs=5 on hosts:count=8,seed={seed}"]).part("train")
    a, b = source.episode(0).cluster, source.episode(1).cluster
    assert (a.nodes.cpus != b.nodes.cpus).any()


def test_windows_of_a_trace_lie_in_the_times_of_their_part(log):
    workloads = Workloads([f"{log}[jobs=50] on 64"])
    raw = load_workload(str(log))
    submit_of = dict(zip(raw.jobs.id.tolist(), raw.jobs.submit.tolist(), strict=True))
    last = None
    for split in SPLITS:
        source = workloads.part(split)
        begin, end = source.uses[0].times
        assert last is None or begin >= last
        last = end
        for number in range(30):
            workload = source.episode(number).workload
            times = np.array([submit_of[k] for k in workload.jobs.id.tolist()])
            assert len(workload) == 50
            assert begin <= times.min()
            assert times.max() < end
            assert workload.jobs.submit[0] == 0
            assert np.allclose(workload.jobs.submit, times - times[0])
    assert last > raw.jobs.submit[-1]


def test_a_named_range_is_cut_into_training_and_validation_and_its_outside_is_left(log):
    workloads = Workloads([f"{log}[jobs=20; from=2d; until=6d] on 64"])
    assert workloads.part("train").uses[0].times == (2 * DAY, 5 * DAY)
    assert workloads.part("validation").uses[0].times == (5 * DAY, 6 * DAY)
    assert workloads.part("test").uses[0].times == (2 * DAY, 6 * DAY)


def test_ranges_are_those_of_the_log_whatever_is_applied(log):
    plain = Workloads([f"{log}[jobs=20; until=0.5] on 64"]).part("train")
    pressed = Workloads([f"{log}[jobs=20; until=0.5; apply=load:target=3,gpus=64] on 64"]).part("train")
    assert plain.uses[0].times == pressed.uses[0].times
    assert data_of(plain.uses[0]) == data_of(pressed.uses[0])
    a, b = plain.episode(3).workload, pressed.episode(3).workload
    assert a.jobs.id.tolist() == b.jobs.id.tolist()
    assert b.jobs.submit[-1] < a.jobs.submit[-1]


def test_jobs_that_a_change_adds_belong_to_the_range_in_which_they_are_submitted(log):
    plain, more = (
        Workloads([f"{log}[jobs=all; until=0.5{text}] on 64"]).part("train").episode(0).workload for text in ("", "; apply=burst:4")
    )
    added = ~np.isin(more.jobs.id, plain.jobs.id)
    assert len(more) == len(plain) + added.sum()
    assert added.sum() > len(plain) / 4
    assert plain.jobs.submit[0] <= more.jobs.submit[added].min()
    assert more.jobs.submit[added].max() - plain.jobs.submit[-1] < np.ptp(plain.jobs.submit) / 6  # within the window of their originals


def test_a_predictor_knows_what_had_ended_in_the_log_before_a_window(log):
    whole = load_workload(str(log))
    cut = Workloads([f"{log}[jobs=20; from=0.5; estimate=rolling] on 64"]).part("test").episode(1).workload
    first = int(np.flatnonzero(whole.jobs.id == cut.jobs.id[0])[0])
    end = np.where(np.isfinite(whole.known_start), whole.known_start, whole.jobs.submit) + whole.runtime
    known = [j for j in np.argsort(end, kind="stable").tolist() if end[j] <= whole.jobs.submit[first]]
    assert cut.estimate_source == "rolling"
    assert cut.predictor.past.count == len(known) > 0
    for name in cut.jobs.users:
        mine = [whole.runtime[j] for j in known if whole.jobs.users[whole.jobs.user[j]] == name]
        assert cut.predictor.past.last_of(name, 2).tolist() == mine[-2:]


def test_each_window_is_changed_by_itself(log):
    """The load is that of every window, not of the log, and windows draw different jobs."""
    text = f"{log}[jobs=64; each=load:target=1.5,gpus=16+preemptible:0.5] on 16"
    source = Workloads([text]).part("train")
    found = [source.episode(number) for number in range(3)]
    for episode in found:
        jobs = episode.workload.jobs
        assert len(jobs) == 64
        assert float(jobs.gpus @ episode.workload.runtime) / (16 * np.ptp(jobs.submit)) == pytest.approx(1.5)
    assert len({tuple(episode.workload.jobs.terms.tolist()) for episode in found}) == 3
    again = Workloads([parse_recipe(text).text]).part("train").episode(0)
    assert again.workload.jobs == found[0].workload.jobs


def test_all_of_a_range_is_one_episode(log):
    source = Workloads([f"{log}[jobs=all; from=8d] on 64"]).part("test")
    raw = load_workload(str(log))
    assert source.size == 1
    assert len(source.episode(0).workload) == int((raw.jobs.submit >= 8 * DAY).sum())


def test_a_trace_without_a_cluster_gets_the_guessed_one(log):
    assert Workloads([f"{log}[jobs=20]"]).part("train").episode(0).cluster.gpus > 0


def test_a_mix_takes_turns_by_weight(log):
    source = Workloads(["3*demo:jobs=30", f"{log}[jobs=20] on 64", "family:horizon=60 on 8"]).part("validation")
    assert [len(source.episode(n).workload) for n in range(4)] == [30, 30, 30, 20]
    assert source.episode(4).text == "family:horizon=60 on 8"
    assert [source.episode(n).seed for n in (0, 1, 2, 5)] == [500_000, 500_001, 500_002, 500_003]
    assert [use.times is None for use in source.uses] == [True, False, True]


def test_a_recipe_reads_back_from_its_text():
    text = "log.swf[jobs=64; from=0.2; until=30d; apply=load:0.9+thin:0.5; each=load:1.1; estimate=rolling:last=2; reader=swf] on 4x8:v100"
    recipe = parse_recipe(text)
    assert recipe.text == text
    assert parse_recipe(recipe.text) == recipe
    assert parse_recipe("3*demo", "16x8:a100").cluster == "16x8:a100"
    assert parse_recipe("demo on 8", "16x8:a100").cluster == "8"


BAD = {
    "famly on 8": "did you mean 'family'",
    "family:shap=base on 8": "did you mean 'shape'",
    "family:shape=base|bursti on 8": "did you mean 'bursty'",
    "family": "no cluster to run it on",
    "family on {gpu}": "did you mean 'gpus'",
    "family on 0x": "is not COUNTxGPUS:TYPE",
    "family[job=3] on 8": "did you mean 'jobs'",
    "family[jobs=0] on 8": "at least 1",
    "family[jobs=100000] on 8": "fewer than a window",
    "family[from=0.2] on 8": "from and until are for traces",
    "family[apply=lod:0.9] on 8": "did you mean 'load'",
    "family[each=lod:0.9] on 8": "did you mean 'load'",
    "family[estimate=nosy] on 8": "did you mean 'noisy'",
    "family[jobs] on 8": "is not NAME=VALUE",
    "0*family on 8": "does not lie in 1..",
    "family[jobs=3 on 8": "is not [WEIGHT*]WORKLOAD",
    "nowhere.swf[jobs=3]": "no such file",
    "LOG[until=0.001] on 64": "fewer than a window of 256",
    "LOG[from=0.5; until=0.2] on 64": "is not an interval",
    "LOG[from=2020-13-01] on 64": "does not say when its time 0 was",
    "LOG[reader=swff] on 64": "did you mean 'swf'",
}


@pytest.mark.parametrize("text", list(BAD))
def test_a_bad_text_is_one_clear_line(text, log):
    with pytest.raises(GpuyardError) as caught:
        Workloads([text.replace("LOG", str(log))]).part("train").episode(0)
    assert BAD[text] in str(caught.value)
    assert "\n" not in str(caught.value)


def test_no_text_at_all():
    with pytest.raises(GpuyardError, match="no workload to learn from"):
        Workloads([])


@pytest.mark.parametrize("text", ["9" * 5000 + "*demo", "a" + " " * 1_000_000 + "b[["])
def test_an_absurd_text_is_refused_at_once(text):
    with pytest.raises(GpuyardError):
        Workloads([text], "4")
