"""Environments of device choice against the deciders, by hand, and against themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Cluster, Result, Workload, simulate
from gpuyard.envs.kinds.device.batch import DeviceConfig, DeviceEnvs
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.features.devices import DEVICE_PHYSICS
from gpuyard.model.cluster import Outage
from gpuyard.policies import parse_scheduler
from support.device_tasks import TaskEpisodes, task_cluster

SMALL = TaskEpisodes(jobs=25, gap=0.8)
PHYSICS = DeviceConfig(physics=True)


def in_turn() -> Callable[[DeviceEnvs], int]:
    turn = [-1]

    def choose(envs: DeviceEnvs) -> int:
        suits = np.flatnonzero(envs.episodes[0].suits).tolist()
        turn[0] = next((lane for lane in suits if lane > turn[0]), suits[0])
        return turn[0]

    return choose


def ends_first() -> Callable[[DeviceEnvs], int]:
    free_in, seconds = DEVICE_PHYSICS.rows.index("free_in_log2"), DEVICE_PHYSICS.rows.index("seconds_log2")

    def choose(envs: DeviceEnvs) -> int:
        rows = envs._seen.rows[0].astype(np.float64)
        ends = 2 ** (8 * rows[:, free_in]) + 2 ** (8 * rows[:, seconds])
        return int(np.argmin(np.where(envs._seen.mask[0], ends.round(4), np.inf)))

    return choose


def play(source: Callable[[int], tuple[Workload, Cluster]], choose: Callable[[DeviceEnvs], int]) -> tuple[Result, float]:
    envs = DeviceEnvs(source, 1, PHYSICS)
    envs.reset(3)
    earned = 0.0
    while True:
        step = envs.step(np.array([choose(envs)]))
        earned += float(step.reward[0])
        if step.done[0]:
            assert envs.finished is not None
            return envs.finished, earned


@pytest.mark.parametrize(("name", "rule"), [("round-robin", in_turn), ("greedy-device", ends_first)])
def test_an_environment_driven_by_a_rule_is_the_decider_with_that_rule(name: str, rule: Callable[[], Callable[[DeviceEnvs], int]]):
    result, earned = play(SMALL, rule())
    twin = simulate(result.workload, result.cluster, parse_scheduler(name), seed=result.seed, segments=False)
    assert result.same_bytes(twin)
    assert earned == pytest.approx(-(result.table["end"] - result.workload.jobs.submit).sum(), rel=1e-5)


def test_a_device_that_fails_is_masked_and_everything_still_ends():
    broken = replace(task_cluster(), outages=(Outage(4, 5.0, 1e6), Outage(5, 5.0, 40.0), Outage(0, 10.0, 30.0)))

    def source(seed: int) -> tuple[Workload, Cluster]:
        return SMALL(seed)[0], broken

    masks: list[int] = []

    def choose(envs: DeviceEnvs) -> int:
        masks.append(int(envs._seen.mask[0].sum()))
        return in_turn()(envs)

    result, _ = play(source, choose)
    assert np.isfinite(result.table["end"]).all()
    assert min(masks) == 3
    assert len(masks) > 25  # who was on a device that failed is asked about again


def test_rewards_are_named_and_weighted():
    envs = {name: DeviceEnvs(SMALL, 1, DeviceConfig(((name, 1.0),))) for name in ("turnaround", "wait", "seconds", "slowdown")}
    both = DeviceEnvs(SMALL, 1, DeviceConfig((("wait", 2.0), ("seconds", 0.5))))
    for env in (*envs.values(), both):
        env.reset(1)
    for _ in range(20):
        got = {name: float(env.step(np.array([4])).reward[0]) for name, env in envs.items()}
        assert got["turnaround"] == pytest.approx(got["wait"] + got["seconds"])
        assert got["slowdown"] <= -1.0 + 1e-6
        assert float(both.step(np.array([4])).reward[0]) == pytest.approx(2 * got["wait"] + 0.5 * got["seconds"])
    assert got["wait"] < 0  # all on one GPU: it cannot keep up
    with pytest.raises(UnknownNameError, match="turnaround"):
        DeviceConfig((("turnarond", 1.0),))
    with pytest.raises(UsageError, match="weight"):
        DeviceConfig((("wait", float("nan")),))


def test_an_illegal_choice_is_the_first_legal_one():
    large = replace(SMALL, memory=replace(SMALL.memory, low=20.0, high=30.0))  # more than a GPU has
    envs = DeviceEnvs(large, 2)
    seen = envs.reset(0)
    assert seen.mask.tolist() == [[True] * 4 + [False] * 2] * 2
    twin = DeviceEnvs(large, 2)
    twin.reset(0)
    for illegal in ([4, 5], [-1, 99]):
        a, b = envs.step(np.array(illegal)), twin.step(np.array([0, 0]))
        assert a.reward.tolist() == b.reward.tolist()
        assert a.observation.rows.tolist() == b.observation.rows.tolist()


def trajectory(envs: DeviceEnvs, steps: int, seed: int) -> list[tuple[bytes, ...]]:
    rng = np.random.default_rng(seed)
    found = []
    for _ in range(steps):
        step = envs.step(rng.integers(0, envs.actions, envs.count))
        found.append(tuple(np.ascontiguousarray(a).tobytes() for a in (*step.observation, step.reward, step.done)))
    return found


def test_the_seed_decides_everything_and_environments_differ():
    envs = DeviceEnvs(SMALL, 2)
    first = envs.reset(5)
    assert first.rows.shape == (2, 6, 8)
    assert not np.array_equal(first.context[0], first.context[1])
    a = trajectory(envs, 40, 1)
    envs.reset(5)
    assert trajectory(envs, 40, 1) == a
    envs.reset(6)
    assert trajectory(envs, 40, 1) != a


def test_restored_goes_on_as_if_never_stopped():
    envs = DeviceEnvs(SMALL, 2)
    envs.reset(9)
    trajectory(envs, 33, 2)  # into the second episode
    saved = {name: array.copy() for name, array in envs.save().items()}
    seen = [array.copy() for array in envs._seen]
    after = trajectory(envs, 40, 3)
    other = DeviceEnvs(SMALL, 2)
    restored = other.restore(saved)
    assert all(np.array_equal(a, b) for a, b in zip(restored, seen, strict=True))
    assert trajectory(other, 40, 3) == after
    with pytest.raises(UsageError, match="2 environments cannot be restored into 1"):
        DeviceEnvs(SMALL, 1).restore(saved)


def test_true_run_times_are_not_observed():
    """Estimates stay, run times of all tasks that are unfinished at 10 s are tripled: nothing seen before differs."""
    workload, cluster = TaskEpisodes(jobs=40)(3)
    ends = simulate(workload, cluster, parse_scheduler("round-robin")).table["end"]
    slow = replace(workload, runtime=np.where(ends > 10, 3 * workload.runtime, workload.runtime))
    assert (slow.runtime != workload.runtime).any()
    seen = []
    for given in (workload, slow):
        envs = DeviceEnvs(lambda seed, given=given: (given, cluster), 1, PHYSICS)
        step, choose, taken = envs.reset(0), in_turn(), []
        while envs.episodes[0].simulation.now < 10:
            taken.append(np.concatenate([step.rows.ravel(), step.context.ravel()]))
            step = envs.step(np.array([choose(envs)])).observation
        seen.append(taken)
    assert len(seen[0]) > 5
    assert np.array_equal(*seen)


def test_what_cannot_be_chosen_for_is_refused():
    cpu_job = Workload.build({"submit": [0.0], "gpus": [0.0], "cpus": [1.0]}, [1.0])
    with pytest.raises(UsageError, match="a CPU job"):
        DeviceEnvs(lambda seed: (cpu_job, task_cluster())).reset(0)
    never = Workload.build({"submit": [0.0], "memory": [1e5]}, [1.0])
    with pytest.raises(UsageError, match="no task that a device could be chosen for"):
        DeviceEnvs(lambda seed: (never, task_cluster())).reset(0)
    with pytest.raises(UsageError, match="6 devices for 2 rows"):
        DeviceEnvs(SMALL, 1, DeviceConfig(lanes=2)).reset(0)
    with pytest.raises(UsageError, match="at least one"):
        DeviceEnvs(SMALL, 0)


def test_rows_beyond_the_devices_there_are_are_masked():
    seen = DeviceEnvs(SMALL, 1, DeviceConfig(lanes=8)).reset(0)
    assert seen.rows.shape[1] == 8
    assert not seen.mask[0, 6:].any()
    assert not seen.rows[0, 6:].any()
