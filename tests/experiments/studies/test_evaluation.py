"""Checkpoints with known choices are judged as they must be."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import simulate
from gpuyard.cli.common.tables import comparison_table
from gpuyard.envs.kinds.base import environments
from gpuyard.errors import UsageError
from gpuyard.experiments.judging.words import against_best, answer, gain_of
from gpuyard.experiments.studies.evaluation import Held, Slots, contender, evaluate, held_out
from gpuyard.experiments.studies.explaining import explain
from gpuyard.metrics import measure
from gpuyard.policies import parse_scheduler
from gpuyard.report.tables import as_data
from gpuyard.traces.recipes import Workloads
from support.checkpoints import write_linear

GANGS = "gangs:jobs=60,load=1.5 on 16"
SLOTS = {"placement": "fewest", "backfill": "none"}
ORDERINGS = ("fcfs", "lcfs", "sjf", "ljf", "saf", "smallest", "largest", "f1", "wfp3", "unicep", "multifactor")
STOPPING = ("las/fewest/none/las", "tiresias/fewest/none/tiresias", "gavel")


@pytest.fixture
def shortest(tmp_path):
    """Shortest job first, as a network."""
    uses = Workloads([GANGS]).part("train").uses
    return str(write_linear(tmp_path / "sjf.safetensors", "job", {"estimate": -1.0}, SLOTS, workloads=[GANGS], trained_on=uses))


@pytest.fixture
def longest(tmp_path):
    return str(write_linear(tmp_path / "ljf.safetensors", "job", {"estimate": 1.0}, SLOTS, workloads=[GANGS]))


def lines_of(summary):
    return {line.scheduler: line for line in summary.lines}


def samples(summary, scheduler):
    """The primary metric of each run."""
    return tuple(summary.results.columns[summary.metrics[0]][summary.results.where(scheduler=scheduler)].tolist())


def test_a_network_that_is_sjf_has_the_numbers_of_sjf(shortest):
    [found] = evaluate([contender(shortest)], Held(batches=4))
    assert samples(found, f"{shortest}/fewest/none") == samples(found, "sjf")
    assert found.seeds == (0, 1, 2, 3)
    source = Workloads([GANGS]).part("test")
    episodes = [source.episode(number) for number in range(4)]
    runs = [simulate(each.workload, each.cluster, parse_scheduler("sjf"), seed=number) for number, each in enumerate(episodes)]
    assert samples(found, "sjf") == tuple(measure(run, ["bsld"])["bsld"] for run in runs)


def test_the_baseline_is_the_best_of_those_that_are_not_learned(shortest, longest):
    contenders = [contender(shortest), contender(longest)]
    [found] = evaluate(contenders, Held(batches=6))
    labels = [each.scheduler.label for each in contenders]
    means = {label: line.values["bsld"].mean for label, line in lines_of(found).items() if label not in labels}
    assert found.table.baseline == min(ORDERINGS, key=means.get)
    assert set(means) == {*ORDERINGS, *STOPPING}
    first, second = (lines_of(found)[label] for label in labels)
    gain = gain_of(found, second)
    assert gain.high < 0
    assert gain.mean == pytest.approx(1 - second.values["bsld"].mean / means[found.table.baseline])
    assert "is worse than the best baseline" in against_best(found, second)[0]
    if first.versus is not None:
        assert gain_of(found, first).mean > gain.mean


def test_a_baseline_that_may_stop_jobs_is_marked_and_is_not_the_one_to_beat(longest):
    [found] = evaluate([contender(longest)], Held(batches=6), metrics=["bsld.p95"])
    lines = lines_of(found)
    assert {label for label, line in lines.items() if line.preempts} == set(STOPPING)
    best = min(STOPPING, key=lambda label: lines[label].values["bsld.p95"].mean)
    assert lines[best].values["bsld.p95"].mean < lines[found.table.baseline].values["bsld.p95"].mean  # stopping jobs costs nothing here
    assert found.table.baseline in ORDERINGS
    assert f"{best}, which may stop running jobs, has a " in answer(found)[-1]
    assert {each["scheduler"] for each in as_data(found)["schedulers"] if each["may_stop_jobs"]} == set(STOPPING)
    shown = comparison_table(found, found.table)
    assert {row[0].removesuffix(" †") for row in shown.rows if row[0].endswith(" †")} == set(STOPPING)
    assert "† may stop running jobs" in shown.caption


def test_where_the_checkpoint_itself_may_stop_jobs_all_baselines_are_to_be_beaten(tmp_path):
    schedulers = ["srpt/fewest/none/srpt", "ljf"]
    path = write_linear(
        tmp_path / "meta.safetensors", "switch", [{"bias": 0.0}, {"bias": 1.0}], {"schedulers": schedulers, "period": 60.0},
        workloads=[GANGS],
    )  # fmt: skip
    [found] = evaluate([contender(str(path))], Held(batches=6))
    assert found.table.baseline == "srpt/fewest/none/srpt"


def judged(found, label, share, low, high, *, p=0.01, n=6, of="seed"):
    """The summary in which that scheduler differs from fcfs, the baseline, by these shares of its mean."""
    base = replace(lines_of(found)["fcfs"], versus=None)
    mean = base.values["bsld"].mean
    versus = next(line.versus for line in found.lines if line.versus)
    difference = replace(versus.difference, mean=share * mean, low=low * mean, high=high * mean, n=n, of=of)
    line = replace(lines_of(found)[label], versus=replace(versus, difference=difference, share=share, share_low=low, share_high=high, p=p))
    return replace(found, tables=(replace(found.table, baseline="fcfs", lines=(line, base)),)), line


def test_what_is_better_is_called_better_and_what_is_the_same_is_not(shortest):
    [found] = evaluate([contender(shortest)], Held(batches=6))
    label = f"{shortest}/fewest/none"
    made, better = judged(found, label, -0.2, -0.3, -0.1)
    gain = gain_of(made, better)
    assert (gain.mean, gain.low, gain.high) == pytest.approx((0.2, 0.1, 0.3))
    first, gap = against_best(made, better)
    assert "is better than the best baseline, fcfs, by 20 % [10, 30] (bounded slowdown" in first and "; 6 runs; p = 0.01)." in first
    assert "gap to the best baseline of each run, " in gap
    made, unsure = judged(found, label, -0.2, -0.3, -0.1, p=0.4)
    assert "by 20 % [10, 30], but more runs are needed to be sure" in against_best(made, unsure)[0]
    made, chance = judged(found, label, -0.2, -0.3, 0.1)
    assert (
        "does not clearly differ from the best baseline, fcfs: 20 % better, between 10 % worse and 30 % better ("
        in against_best(made, chance)[0]
    )
    made, far = judged(found, label, 0.0375, 0.0, 17.83)
    assert "fcfs: 4 % worse, between 1,783 % worse and as good (" in against_best(made, far)[0]
    made, alone = judged(found, label, -0.2, math.nan, math.nan, n=1)
    assert "better by 20.0 %; too few values to tell" in against_best(made, alone)[0]
    made, logged = judged(found, label, -0.2, -0.3, -0.1, p=math.nan, of="job")
    assert "is better than" in against_best(made, logged)[0] and "jobs of one run, by blocks of time)." in against_best(made, logged)[0]


def test_the_gap_is_to_the_best_baseline_of_each_run(shortest):
    [found] = evaluate([contender(shortest)], Held(batches=5))
    label = f"{shortest}/fewest/none"
    others = np.array([samples(found, line.scheduler) for line in found.lines if line.scheduler in ORDERINGS])
    mine, gap = np.array(samples(found, label)), lines_of(found)[label].gap
    assert gap.mean == pytest.approx(np.mean(mine / others.min(axis=0) - 1))
    assert gap.mean >= 0  # sjf itself is among the others
    assert "gap to the best baseline of each run, +" in against_best(found, lines_of(found)[label])[1]


def test_other_slots_go_to_the_checkpoint_and_to_its_baselines(shortest):
    [found] = evaluate([contender(shortest, Slots(backfill="easy", placement="best"))], Held(batches=1), against=["edf"])
    labels = set(lines_of(found))
    assert f"{shortest}/best/easy" in labels and "sjf/best/easy" in labels and "edf" in labels
    with pytest.raises(UsageError, match="--ordering: .* decides about a job"):
        contender(shortest, Slots(ordering="sjf"))


def test_a_switch_is_compared_with_each_of_its_schedulers(tmp_path):
    schedulers = ["fcfs", "sjf"]
    path = write_linear(
        tmp_path / "meta.safetensors", "switch", [{"bias": 0.0}, {"bias": 1.0}], {"schedulers": schedulers, "period": 60.0},
        objective="balanced", workloads=["family:shape=base|bursty,gpus=4|8 on {gpus}"],
    )  # fmt: skip
    [found] = evaluate([contender(str(path))], Held())
    lines = lines_of(found)
    assert set(lines) == {str(path), *schedulers}
    assert len(found.seeds) == 10 and found.metrics[0] == "balanced"
    assert samples(found, str(path)) == pytest.approx(samples(found, "sjf"))
    with pytest.raises(UsageError, match="none of the slots"):
        contender(str(path), Slots(backfill="easy"))


def test_hosts_are_compared_with_placements_on_the_seeds_asked_for(tmp_path):
    path = write_linear(
        tmp_path / "host.safetensors", "host", {"cores_left": -1.0}, {"ordering": "fcfs", "backfill": "none"}, objective="wait",
        workloads=["eda:jobs=60"], cluster="hosts:count=6,seed={seed}",
    )  # fmt: skip
    [found] = evaluate([contender(str(path))], Held(seeds=(42, 43, 44)))
    assert len(found.seeds) == 3
    assert {"fcfs/first", "fcfs/best", "fcfs/worst"} <= set(lines_of(found))
    assert found.metrics[0] == "wait" and "utilization" not in found.metrics  # hosts without GPUs have none
    source, numbers = held_out([contender(str(path))], Held(seeds=(42, 43, 44)))[0]
    assert [source.episode(number).seed for number in numbers] == [42, 43, 44]


def test_what_was_trained_on_is_refused(shortest):
    with pytest.raises(UsageError, match=r"seeds? .*gangs.* cannot be evaluated on: the policy was trained on"):
        held_out([contender(shortest)], Held(seeds=(1_000_000,)))
    with pytest.raises(UsageError, match="was trained on"):
        held_out([contender(shortest)], Held(split="train"))


def log(path, jobs=200):
    """A small SWF file."""
    rng = np.random.default_rng(1)
    lines = ["; MaxProcs: 16"]
    for k in range(jobs):
        run = int(rng.integers(60, 4000))
        lines.append(
            f"{k + 1} {300 * k} -1 {run} {int(rng.integers(1, 9))} -1 -1 {int(rng.integers(1, 9))} {2 * run} -1 1 1 1 1 1 -1 -1 -1"
        )
    path.write_text("\n".join(lines) + "\n")
    return str(path)


def test_of_a_trace_the_later_part_is_held_out(tmp_path):
    text = f"{log(tmp_path / 'log.swf')}[jobs=20] on 16"
    workloads = Workloads([text])
    path = write_linear(
        tmp_path / "job.safetensors", "job", {"estimate": -1.0}, SLOTS, workloads=[text], trained_on=workloads.part("train").uses
    )
    made = contender(str(path))
    [found] = evaluate([made], Held(batches=3))
    assert len(found.seeds) == 3 and found.results.counts(found.lines[0].scheduler)["jobs"] == 60
    whole = text.replace("jobs=20", "jobs=all; from=0.7")
    [once] = evaluate([made], Held((whole,)))
    assert once.seeds == (0,) and once.results.counts(once.lines[0].scheduler)["jobs"] == 60
    assert once.lines[0].change is None or once.lines[0].change.of == "job"  # one run: by blocks of time
    with pytest.raises(UsageError, match="the policy was trained on"):
        evaluate([made], Held((text.replace("jobs=20", "jobs=20; from=0.5"),)))


def test_windows_have_as_many_jobs_as_asked_for(shortest):
    [found] = evaluate([contender(shortest)], Held(("gangs:jobs=80,load=1.5[estimate=exact] on 16",), jobs="25", batches=2))
    assert found.results.counts(found.lines[0].scheduler)["jobs"] == 50


def test_a_checkpoint_that_names_no_workloads_wants_some(tmp_path):
    path = write_linear(tmp_path / "a.safetensors", "job", {"estimate": -1.0}, SLOTS)
    with pytest.raises(UsageError, match="does not say which workloads"):
        held_out([contender(str(path))], Held())
    with pytest.raises(UsageError, match="given twice"):
        evaluate([contender(str(path)), contender(str(path))], Held((GANGS,), batches=1))


def test_devices_are_compared_with_device_choices(tmp_path):
    """Of weights that make it the device with the fewest waiting tasks, a GPU first: what is measured is what simulate gives."""
    path = str(write_linear(
        tmp_path / "device.safetensors", "device", {"waiting_log2": -1.0, "idle": 0.5, "gpu": 0.1}, {}, objective="turnaround",
        workloads=["tasks:jobs=30 on tasks"], trained_on=Workloads(["tasks:jobs=30 on tasks"]).part("train").uses,
    ))  # fmt: skip
    made = contender(path)
    [found] = evaluate([made], Held(batches=3))
    lines = lines_of(found)
    assert set(lines) == {path, "round-robin", "random-device", "greedy-device", "optimal-device"}
    assert found.metrics[0] == "turnaround" and found.table.baseline in ("greedy-device", "optimal-device")
    source = Workloads(["tasks:jobs=30 on tasks"]).part("test")
    runs = [simulate((each := source.episode(k)).workload, each.cluster, parse_scheduler(path), seed=k) for k in range(3)]
    assert samples(found, path) == tuple(measure(run, ["turnaround"])["turnaround"] for run in runs)
    assert gain_of(found, lines[path]).n == 3 and lines[path].gap is not None
    with pytest.raises(UsageError, match="none of the slots"):
        contender(path, Slots(backfill="easy"))
    with pytest.raises(UsageError, match="was trained on"):
        held_out([made], Held(split="train"))


def test_logs_of_a_training_that_are_not_here_are_named(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    texts = ["gangs:jobs=60 on 16", "2*one.swf.gz[until=0.7; jobs=64] on 16", "two.swf on 16"]
    path = write_linear(tmp_path / "a.safetensors", "job", {"estimate": -1.0}, SLOTS, workloads=texts)
    for ask in (lambda: held_out([contender(str(path))], Held()), lambda: explain(contender(str(path)))):
        with pytest.raises(UsageError, match=r"trained on are not here: one.swf.gz, two.swf; hint: .*your own.*--workload '.* on "):
            ask()
    assert held_out([contender(str(path))], Held((GANGS,)))
    log(tmp_path / "two.swf")
    with pytest.raises(UsageError, match=r"the log that it was trained on is not here: one.swf.gz;"):
        held_out([contender(str(path))], Held())


@pytest.mark.parametrize("kind", [kind for _, kind in environments().items()], ids=lambda kind: kind.name)
def test_the_workloads_that_are_proposed_can_be_had(kind):
    assert len(Workloads([kind.example]).part("test").episode(0).workload) > 10


def test_two_that_read_alike_are_told_apart_by_their_labels(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    slots = {"ordering": "fcfs", "backfill": "none"}
    write_linear(tmp_path / "a.safetensors", "host", {"cores_left": -1.0}, slots, objective="wait")
    [found] = evaluate([contender("a.safetensors")], Held(("eda:jobs=60 on hosts:count=6,seed=1",), batches=2), against=["fcfs/best"])
    titles = found.results.titles
    assert titles["fcfs/a.safetensors/none"] == "fcfs/a.safetensors/none"
    base, other = (lines_of(found)[name] for name in ("fcfs/first", "fcfs/best"))
    assert len({titles[line.scheduler].partition(" (")[0] for line in (base, other)}) == 1
    versus = next(line.versus for line in found.lines if line.versus)
    best = replace(other, versus=versus, values={"wait": replace(other.values["wait"], mean=0.0)})
    table = replace(found.table, baseline=base.scheduler, lines=(replace(base, versus=None), best))
    said = answer(replace(found, tables=(table,)))[0]
    assert said.startswith(f"{other.scheduler} is the best of 2: against {base.scheduler} it ")
