"""A heuristic that demonstrates in environments is that of the schedulers: its choices give their results, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.envs.base import Observation
from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.kinds.device.batch import DeviceEnvs
from gpuyard.envs.kinds.host.kind import PickHost, next_hosts
from gpuyard.envs.kinds.job.kind import PickJob, first_legal
from gpuyard.envs.opened import Opened
from gpuyard.envs.vector import EngineEnvs
from gpuyard.testing.conformance import compare_tables
from gpuyard.testing.strategies import random_case
from gpuyard.traces.recipes import Workloads
from support.playing import Rule, one_episode, play

CASES = range(25)


def by_row(envs: EngineEnvs, seen: Observation) -> int:
    return int(first_legal(seen)[0])


def by_host(envs: EngineEnvs, seen: Observation) -> int:
    chosen = int(next_hosts(envs)[0])
    assert seen.mask[0, chosen]
    return chosen


def odd_ones(opened: Opened, rule: Rule, scheduler: str, without: str = "") -> list[int]:
    """Cases in which the choices of a rule lead elsewhere than the scheduler; some must have choices."""
    odd, choices = [], 0
    for seed in CASES:
        case = random_case(seed)
        played = play(one_episode(opened, case.workload, case.cluster, case.rules), rule) if without not in case.features else None
        if played is not None:
            choices += len(played.actions)
            expected = simulate(case.workload, case.cluster, parse_scheduler(scheduler), rules=case.rules)
            odd += [seed] if compare_tables(played.result.table, expected.table) else []
    assert choices > 50
    return odd


@pytest.mark.parametrize("backfill", ["none", "skip", "easy"])
@pytest.mark.parametrize("name", find_env("PickJob").teachers(PickJob()))
def test_an_ordering_is_that_of_the_scheduler(name: str, backfill: str) -> None:
    # A scheduler asks once in a pass whether a job holds the head back, an environment after every start: where cores decide, a job
    # that would have gone to the head's host may find that host taken, and go elsewhere.
    without = "cpu jobs" if backfill == "easy" else ""
    assert odd_ones(PickJob(ordering=name, backfill=backfill).left_open(), by_row, f"{name}/fewest/{backfill}", without) == []


@pytest.mark.parametrize("backfill", ["none", "skip"])
@pytest.mark.parametrize("name", find_env("PickHost").teachers(PickHost()))
def test_a_placement_is_that_of_the_scheduler(name: str, backfill: str) -> None:
    opened = PickHost(backfill=backfill).opened_beside(name)
    without = "shares" if name == "fgd" else ""  # it also says which device a share gets, which is not open
    assert odd_ones(opened, by_host, f"fcfs/{name}/{backfill}", without) == []


@pytest.mark.parametrize("name", ["best", "worst", "fewest"])
def test_a_placement_can_be_asked_off_its_way(name: str) -> None:
    """Whoever has chosen the hosts before: it chooses among those that are left, and as its scores have it."""
    source = Workloads(["family:shape=bursty,intensity=high,gpus=16 on 4x4:gpu"]).part("train")
    by = find_env("PickHost").demonstrator(source, PickHost(pool=4), name, 8, 1)
    random, seen, choices = np.random.default_rng(0), by.envs.reset(1), set()
    assert isinstance(by.envs, EngineEnvs)
    for _ in range(200):
        before = seen.rows.copy()
        chosen = by.choose(seen)
        assert np.array_equal(by.choose(seen), chosen)
        assert np.array_equal(seen.rows, before)
        assert seen.mask[np.arange(8), chosen].all()
        for e in range(8):
            s, n = by.envs.state(e), int(chosen[e])
            free = {int(node["number"]): int(node["free"]) for node in s.nodes}
            legal = [free[k] for k in np.flatnonzero(seen.mask[e])]
            if name != "fewest":
                assert free[n] == (min(legal) if name == "best" else max(legal))
        choices |= set(chosen.tolist())
        seen = by.envs.step(np.where(seen.mask, random.random(seen.mask.shape), -1).argmax(1).astype(np.int32)).observation
    assert len(choices) > 1


def test_one_of_the_schedulers_is_always_chosen() -> None:
    kind = find_env("Switch")
    options = kind.options(pool=2)
    by = kind.demonstrator(Workloads(["family on 4"]).part("train"), options, "srpt", 3, 0)
    assert by.choose(by.envs.reset(0)).tolist() == [options.schedulers.index("srpt")] * 3
    assert kind.teachers(options) == options.schedulers


def test_a_device_is_that_of_the_greedy_decider() -> None:
    kind = find_env("PickDevice")
    by = kind.demonstrator(Workloads(["tasks:jobs=40,gap=0.5 on tasks"]).part("train"), kind.options(), "greedy-device", 2, 0)
    assert isinstance(by.envs, DeviceEnvs)
    seen, over = by.envs.reset(5), False
    while not over:
        step = by.envs.step(by.choose(seen))
        seen, over = step.observation, bool(step.done.any())
    result = by.envs.finished
    assert result is not None
    again = simulate(result.workload, result.cluster, parse_scheduler("greedy-device"), seed=result.seed, segments=False)
    assert result.same_bytes(again)
