"""What batches on the engine promise: nothing hidden is seen, everything is finite, states are saved and restored."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as hs

from gpuyard import Cluster, Workload, parse_scheduler, simulate
from gpuyard.envs.gym import space_of
from gpuyard.envs.kinds.base import find_env, kind_of
from gpuyard.envs.kinds.host.kind import PickHost
from gpuyard.envs.kinds.job.kind import PickJob, PickTypedJob
from gpuyard.envs.kinds.switch.kind import PickScheduler
from gpuyard.errors import NoChoiceError, UsageError
from gpuyard.model.result import STATUS
from gpuyard.testing.conformance import compare_tables
from gpuyard.testing.strategies import random_case
from gpuyard.traces import with_estimate
from gpuyard.traces.recipes import Workloads
from support.playing import at_random, one_episode, play

KINDS = {
    "PickJob": PickJob(backfill="easy", window=16),
    "PickJob-v1": PickTypedJob(backfill="skip", window=16),
    "PickHost": PickHost(backfill="skip"),
    "Switch": PickScheduler(schedulers=("fcfs", "sjf", "edf"), every=20.0),
}
WORKLOADS = {
    "PickJob": "lublin:jobs=40,nodes=16,load=1.2 on 2x8:gpu",
    "PickJob-v1": "poisson:jobs=40,gpus=96,load=0.8 on hetero-demo",
    "PickHost": "eda:jobs=60,arrivals=1:3 on hosts:count=5,seed=1",
    "Switch": "family:shape=bursty,gpus=4 on 4",
}
SEEDS = hs.integers(0, 2**32 - 1)


def batch(name: str, count: int = 5, seed: int = 0, **changes):
    options = replace(KINDS[name], **{"pool": 6, **changes})
    return find_env(name).make(Workloads([WORKLOADS[name]]).part("train"), options, count, seed)


def copy(seen) -> list[np.ndarray]:
    return [part.copy() for part in seen]


def check(envs, seen) -> None:
    """In the space, finite, with something to choose."""
    space = space_of(kind_of(envs.schema), envs.schema, envs.rows, envs.actions)
    one = {"context": seen.context[0], "mask": seen.mask[0].astype(np.int8)} | ({"rows": seen.rows[0]} if envs.rows else {})
    assert np.isfinite(seen.rows).all()
    assert np.isfinite(seen.context).all()
    assert space.contains(one)
    assert seen.mask.any()


# ── what is seen ──


@pytest.mark.parametrize("name", list(KINDS))
@given(seed=SEEDS)
@settings(max_examples=40)
def test_observations_are_finite_and_in_their_spaces(name: str, seed: int):
    case = random_case(seed)
    envs = one_episode(KINDS[name].left_open(), case.workload, case.cluster, case.rules)
    rng = np.random.default_rng(seed)

    def rule(envs, seen):
        check(envs, seen)
        return at_random(rng)(envs, seen)

    played = play(envs, rule)
    assert played is None or np.isfinite(played.rewards).all()


EXTREMES = {
    "estimate": [0.0, 1e-9, 1.0, 1e9, 1e15],
    "deadline": [np.inf, 0.0, 1e-3, 1e9, 1e300],
    "priority": [-5.0, 0.0, 1e9, -1e300, 3.0],
    "cpus": [0.0, 1.0, 1e9, 0.5, 3.0],
    "memory": [0.0, 1e12, 1.0, 0.0, 2.0],
    "gpus": [1.0, 0.25, 2.0, 0.0, 1.0],
}


@pytest.mark.parametrize("limits", ["no cpus are limited", "some are"])
@pytest.mark.parametrize("name", list(KINDS))
def test_extreme_jobs(name: str, limits: str):
    count = 200
    rng = np.random.default_rng(3)
    columns = {key: rng.choice(values, count) for key, values in EXTREMES.items()}
    columns["submit"] = np.sort(rng.choice([0.0, 5.0, 100.0, 1e9, 2e9], count))
    columns["cpus"] = np.where((columns["gpus"] == 0) & (columns["cpus"] == 0), 1.0, columns["cpus"])
    runtime = rng.choice([0.0, 1e-6, 10.0, 1e5, 1e9], count)
    cluster = Cluster.uniform(3, 2)
    if limits == "some are":
        cluster = replace(cluster, nodes=replace(cluster.nodes, cpus=np.array([4.0, np.inf, 0.5]), memory=np.array([np.inf, 1.0, 8.0])))
    options = replace(KINDS[name], every=0.0) if name == "Switch" else KINDS[name]  # a timer would ring for years
    envs = one_episode(options.left_open(), Workload.build(columns, runtime), cluster)

    def rule(envs, seen):
        check(envs, seen)
        return at_random(rng)(envs, seen)

    played = play(envs, rule)
    assert played is not None
    assert len(played.actions) > 10
    assert np.isfinite(played.rewards).all()


@pytest.mark.parametrize("estimates", ["given", "rolling"])
@pytest.mark.parametrize("name", list(KINDS))
@given(seed=SEEDS)
@settings(max_examples=25)
def test_run_times_of_jobs_that_have_not_ended_are_not_seen(name: str, estimates: str, seed: int):
    """All that was seen up to some choice is the same if waiting jobs swap their run times and running ones go on for longer."""
    case = random_case(seed)
    case = replace(case, workload=with_estimate(case.workload, estimates))
    rng = np.random.default_rng(seed)
    opened = KINDS[name].left_open()
    whole = play(one_episode(opened, case.workload, case.cluster, case.rules), at_random(rng))
    if whole is None:
        return
    upto = int(rng.integers(0, len(whole.actions)))
    envs = one_episode(opened, case.workload, case.cluster, case.rules)
    expected = seen_until(envs, whole.actions[:upto])
    state = envs.state(0)
    submitted = np.arange(len(case.workload)) < int(state.control["next_job"][0])
    status, ran_before = state.rows["status"], state.rows["ran"] > 0
    idle = ~submitted | ((status == STATUS.index("waiting")) & ~ran_before)
    runtime = case.workload.runtime.copy()
    runtime[idle] = rng.permutation(runtime[idle]) + rng.choice([0.0, 7.0])
    runtime[submitted & (status == STATUS.index("running"))] += 1000.0
    other = one_episode(opened, replace(case.workload, runtime=runtime), case.cluster, case.rules)
    found = seen_until(other, whole.actions[:upto])
    for one, two in zip(expected, found, strict=True):
        assert [part.tobytes() for part in one] == [part.tobytes() for part in two]


def test_estimates_are_made_in_environments_as_in_simulations():
    """The first in the queue, again and again, is first come first served; the next episode begins with no estimate of the last."""
    (workload, cluster), options = (lublin_with_users(), PickJob(backfill="none", ordering="fcfs"))
    envs = one_episode(options.left_open(), with_estimate(workload, "rolling"), cluster)
    expected = simulate(with_estimate(workload, "rolling"), cluster, parse_scheduler("fcfs"))
    for _ in range(2):
        played = play(envs, lambda envs, seen: int(seen.mask[0].argmax()))
        assert played is not None
        assert compare_tables(played.result.table, expected.table) == []
        assert played.result.workload.jobs.estimate.tobytes() == expected.workload.jobs.estimate.tobytes()
    assert len(np.unique(expected.workload.jobs.estimate)) > 20


def test_environments_do_not_stop_for_a_model():
    """They take one that was fitted before the first submission, and without a past there is none."""
    workload, cluster = lublin_with_users()
    with pytest.raises(UsageError, match="no job had ended by then"):
        one_episode(PickJob().left_open(), with_estimate(workload, "boosting"), cluster)


def lublin_with_users() -> tuple[Workload, Cluster]:
    episode = Workloads(["lublin:jobs=120,nodes=16,load=1.1 on 2x8:gpu"]).part("train").episode(0)
    jobs = replace(episode.workload.jobs, users=("a", "b", "c"))
    return replace(episode.workload, jobs=jobs.replace(user=np.arange(120) % 3)), episode.cluster


def seen_until(envs, actions) -> list[list[np.ndarray]]:
    seen = [copy(envs.reset(0))]
    for action in actions:
        assert len(envs.choose(np.array([action]))) == 0
        seen.append(copy(envs.observation))
    return seen


# ── batches ──


@pytest.mark.parametrize("name", list(KINDS))
def test_a_batch_is_its_environments_whatever_the_number_of_threads(name: str):
    def played(threads: int) -> bytes:
        envs = batch(name, threads=threads)
        seen, found = envs.reset(3), []
        for _ in range(150):
            step = envs.step(seen.mask.argmax(1) if len(found) % 3 else np.full(5, -1))
            seen = step.observation
            found += [part.tobytes() for part in (*seen, step.reward, step.done)]
        return b"".join(found)

    assert played(1) == played(2) == played(5)


@pytest.mark.parametrize("name", list(KINDS))
def test_saved_and_restored(name: str):
    rng = np.random.default_rng(0)
    envs = batch(name)
    seen = envs.reset(1)
    for _ in range(137):
        seen = envs.step([rng.choice(np.flatnonzero(mask)) for mask in seen.mask]).observation
    saved, kept = envs.save(), copy(seen)
    other = batch(name)
    other.reset(99)
    again = other.restore(saved)
    for _ in range(60):
        assert [part.tobytes() for part in again] == [part.tobytes() for part in kept]
        actions = [rng.choice(np.flatnonzero(mask)) for mask in kept[2]]
        step, step_again = envs.step(actions), other.step(actions)
        assert step.reward.tobytes() == step_again.reward.tobytes()
        assert step.done.tobytes() == step_again.done.tobytes()
        kept, again = copy(step.observation), step_again.observation
    with pytest.raises(UsageError, match="saved with 5 environments, not 2"):
        batch(name, 2).restore(saved)


def test_an_illegal_choice_counts_and_is_the_first_legal_one():
    envs, other = batch("PickJob", 1), batch("PickJob", 1)
    seen, again = envs.reset(0), other.reset(0)
    for wrong in (-1, 16, 10**9, -(10**9)):
        first = int(again.mask[0].argmax())
        seen, again = envs.step(np.array([wrong])).observation, other.step(np.array([first])).observation
        assert [part.tobytes() for part in seen] == [part.tobytes() for part in again]
    assert envs.counts(0)["illegal"] == 4
    assert other.counts(0)["illegal"] == 0


def test_a_recorded_environment_tells_the_same_as_one_that_is_not():
    case = random_case(11)
    recorded = one_episode(KINDS["PickJob"].left_open(), case.workload, case.cluster, case.rules)
    envs = type(recorded)(replace(recorded.opened, recorded=False), lambda _: (case.workload, case.cluster), [0], 1)
    one, two = (play(each, lambda envs, seen: int(seen.mask[0].argmax())) for each in (recorded, envs))
    assert one is not None
    assert two is not None
    assert one.rewards == two.rewards
    assert compare_tables(one.result.table, two.result.table) == []
    assert len(one.result.segments) > len(two.result.segments) == 0


def test_the_timeline_of_a_recorded_environment_is_that_of_a_simulation():
    options = PickHost()
    case = random_case(5)
    envs = one_episode(options.left_open(), case.workload, case.cluster, case.rules)
    played = play(envs, lambda envs, seen: int(seen.mask[0].argmax()))
    again = play(envs, lambda envs, seen: int(seen.mask[0].argmax()))  # the same arrays, used again
    expected = simulate(case.workload, case.cluster, parse_scheduler(options.text("first")), rules=case.rules)
    for each in (played, again):
        assert each is not None
        assert each.result.timeline.tobytes() == expected.timeline.tobytes()
        assert dict(each.result.totals) | {"passes": 0} == dict(expected.totals) | {"passes": 0}


# ── refused ──


def test_what_is_refused():
    envs = batch("PickJob")
    envs.reset(0)
    with pytest.raises(UsageError, match=r"actions have the shape \(3,\), not \(5,\)"):
        envs.step(np.zeros(3))
    with pytest.raises(UsageError, match="at least one of each"):
        batch("PickJob", 0)
    lonely = Workload.build({"submit": [0.0, 1000.0]}, [1.0, 1.0])
    with pytest.raises(NoChoiceError, match="raise its load"):
        one_episode(PickJob().left_open(), lonely, Cluster.uniform(1, 2)).reset(0)
    with pytest.raises(UsageError, match="there is no preemption"):
        replace(PickJob().left_open(), program=PickScheduler(schedulers=("fcfs", "sjf/best/none/srpt")).left_open().program)


def test_interpreted_code_is_refused():
    program = "import gymnasium as gym, gpuyard.envs.registration as r; r.register_all(); gym.make('gpuyard/PickJob-v0').reset(seed=0)"
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=False)
    assert ended.returncode == 1
    assert "environments need compiled code; hint: unset NUMBA_DISABLE_JIT" in ended.stderr.splitlines()[-1]


# ── episodes follow one another ──


@pytest.mark.parametrize("shaped", [False, True], ids=["plain", "shaped"])
@pytest.mark.parametrize("name", list(KINDS))
def test_a_step_is_a_choice_and_the_next_episode(name: str, shaped: bool):
    """A step begins the next episodes in compiled code, where their pieces of the batch are.

    Each kind is stepped with one thread and with two, and so are plain and shaped rewards.
    """
    threads = 1 + (list(KINDS).index(name) + shaped) % 2
    changes = {"shaping": 1.0, "baseline": "sjf"} if shaped else {}
    envs, other = batch(name, threads=threads, **changes), batch(name, **changes)
    same_course(envs, other, 2)


def test_a_step_leaves_out_episodes_without_a_choice():
    """Five of these episodes in six have none."""
    source = Workloads(["lublin:jobs=6,nodes=16,load=1.5 on 2x8:gpu"]).part("train")
    envs, other = (find_env("PickJob").make(source, PickJob(pool=60, window=16), 5, 0) for _ in range(2))
    ended = same_course(envs, other, 10)
    assert envs.save()["envs.episodes"].sum() > 3 * ended


def same_course(envs, other, episodes: int) -> int:
    """Take steps in one batch, and choices and beginnings in another: what is seen, paid and saved must be the same.

    It ends when each environment has come to so many ends; returns how many there were in all.
    """
    rng, seen = np.random.default_rng(0), envs.reset(4)
    ended = np.zeros(envs.count, int)
    other.reset(4)
    while ended.min() < episodes:
        actions = np.array([rng.choice(np.flatnonzero(mask)) for mask in seen.mask], np.int32)
        step, over = envs.step(actions), other.choose(actions)
        if len(over):
            other.begin_next(over)
        seen = step.observation
        assert all(a.tobytes() == b.tobytes() for a, b in zip(seen, other.observation, strict=True))
        assert step.reward.tobytes() == other.reward.tobytes()
        assert np.flatnonzero(step.done).tolist() == over.tolist()
        ended += step.done
    saved, expected = envs.save(), other.save()
    assert all(saved[key].tobytes() == expected[key].tobytes() for key in expected)
    assert [envs.counts(e) for e in range(envs.count)] == [other.counts(e) for e in range(envs.count)]
    return int(ended.sum())


# ── where there is nothing to choose ──


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("name", list(KINDS))
def test_nothing_is_chosen_after_an_end(name: str, threads: int):
    envs, first = batch(name, threads=threads), np.zeros(5, np.int32)
    with pytest.raises(UsageError, match="no episode has begun"):
        envs.choose(first)
    envs.reset(3)
    over = envs.choose(first)
    while not len(over):
        over = envs.choose(first)
    choices = [envs.counts(e)["choices"] for e in range(5)]
    for refused in (envs.choose, envs.step):
        with pytest.raises(UsageError, match=f"environment {over[0]} of 5: the episode is over"):
            refused(first)
    assert [envs.counts(e)["choices"] for e in range(5)] == choices
    envs.begin_next(over)
    envs.choose(first)
    assert [envs.counts(e)["choices"] for e in range(5)] == [1 if e in over else n + 1 for e, n in enumerate(choices)]


def test_some_that_ended_have_not_begun_again():
    envs, first = batch("Switch", count=40), np.zeros(40, np.int32)
    envs.reset(0)
    over = envs.choose(first)
    while len(over) < 2:
        envs.begin_next(over)
        over = envs.choose(first)
    envs.begin_next(over[1:])
    with pytest.raises(UsageError, match=f"environment {over[0]} of 40: the episode is over"):
        envs.choose(first)
    envs.begin_next(over[:1])
    envs.choose(first)


def test_a_state_saved_at_an_end_is_restored_there():
    envs, other, first = batch("PickJob", count=1), batch("PickJob", count=1), np.zeros(1, np.int32)
    envs.reset(0)
    while not len(envs.choose(first)):
        pass
    saved = envs.save()
    other.restore(saved)
    assert other.counts(0) == envs.counts(0)
    with pytest.raises(UsageError, match="the episode is over"):
        other.choose(first)
    saved["envs.choices"] = saved["envs.choices"] + 1
    saved["envs.trail"] = np.append(saved["envs.trail"], 0).astype(np.int32)
    with pytest.raises(UsageError, match="more choices were saved"):
        other.restore(saved)
    other.reset(1)
    other.choose(first)
