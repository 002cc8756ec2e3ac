"""The smallest cluster that meets a target, against a search through every size."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.experiments.questions.service import served
from gpuyard.experiments.questions.sites import added
from gpuyard.experiments.questions.sizing import Goal, Target, money, size
from gpuyard.model.cluster import Cluster, GpuType
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler

EASY = parse_scheduler("fcfs/fewest/easy")


def _jobs(n: int = 300) -> Workload:
    draws = np.random.default_rng(3)
    submit, run = np.sort(draws.uniform(0, 20_000, n)), draws.uniform(100, 1500, n)
    return Workload.build({"submit": submit, "gpus": draws.integers(1, 9, n), "deadline": submit + 2 * run}, run)


@pytest.mark.parametrize(
    ("goal", "value"), [("wait", 600.0), ("wait", 30.0), ("p95", 900.0), ("deadlines", 0.95)]
)  # fmt: skip
def test_the_smallest_is_that_of_a_search_through_every_size(goal: Goal, value: float) -> None:
    work, cluster, target = _jobs(), load_cluster("8x8:a100"), Target(goal, value)
    found = size(work, cluster, target)
    meets = [target.met(served(work, added(cluster, n - 8, ""), EASY, Rules())) for n in range(2, 17)]
    assert found.smallest == 2 + meets.index(True)
    assert found.sure is None or found.sure >= found.smallest
    assert len(found.tried) <= 16
    assert f"{found.smallest} nodes" in found.sentences[0]
    assert any("last node buys" in line for line in found.sentences)
    assert len(found.shown) <= 5


def test_processors_of_a_pool_are_counted_one_by_one() -> None:
    found = size(_jobs(), load_cluster("64"), Target("wait", 120.0))
    assert found.unit == "processors"
    assert found.smallest is not None
    assert found.tried[found.smallest].mean <= 120 < found.tried[found.smallest - 1].mean


def test_money() -> None:
    priced = Cluster.uniform(4, 8, GpuType("a100", price=2.0))
    work = _jobs()
    found = size(work, priced, Target("wait", 300.0))
    assert any("costs" in line and "a month" in line for line in found.sentences)
    now = found.tried[4].cost
    cheap = size(work, priced, Target("cost", 1.5 * now))
    assert cheap.smallest is not None
    assert cheap.tried[cheap.smallest].cost <= 1.5 * now
    never = size(work, priced, Target("cost", 0.01 * now))
    assert never.sentences == [
        "Not met: the cheapest size that was tried and takes every job that fits now,"
        f" {'1 node' if never.cheapest == 1 else f'{never.cheapest} nodes'}, costs {money(never.tried[never.cheapest].cost)}."
    ]
    assert never.cheapest in never.shown
    assert [money(value) for value in (2.5, 999.0, 259_200.4)] == ["2.5", "999", "259,200"]


def test_a_target_that_no_size_meets() -> None:
    work = Workload.build({"submit": np.zeros(5), "gpus": [8] * 5, "deadline": np.ones(5)}, np.full(5, 100.0))
    found = size(work, load_cluster("1x8:a100"), Target("deadlines", 0.9))
    assert found.smallest is None
    assert found.sentences[0].startswith("Not met")


@pytest.mark.parametrize(
    ("target", "words"),
    [(Target("wait", 0.0), "not positive"), (Target("deadlines", 95.0), "share"), (Target("cost", 5.0), "no prices")],
)
def test_targets_that_cannot_be(target: Target, words: str) -> None:
    with pytest.raises(GpuyardError, match=words):
        size(_jobs(), load_cluster("1x8:nonesuch"), target)
