"""Bandits as schedulers: what a job is worth by hand, that they learn within a simulation, and how they are written."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import Cluster, Workload, load_cluster, simulate
from gpuyard.errors import UsageError
from gpuyard.policies import DECIDERS, Decider, Several, parse_scheduler
from gpuyard.policies.deciders.online import HEURISTICS, worth
from gpuyard.traces.generators.family import family

BANDITS = ("epsilon-greedy", "exp3", "linucb")


def test_the_worth_of_a_job_by_hand() -> None:
    assert worth(0.0, 0.0, 100.0, 200.0) == pytest.approx(-0.1)
    assert worth(0.0, 300.0, 400.0, 200.0) == pytest.approx(-0.4 - 5.0 - 0.5 * 300 / 3600)
    assert worth(0.0, 7200.0, 7210.0, np.inf) == pytest.approx(-1.0 - 0.5)
    assert worth(0.0, 0.0, 100.0, 200.0, killed=True) == pytest.approx(-5.1)


@pytest.mark.parametrize("name", BANDITS)
def test_written_with_the_schedulers_to_choose_from(name: str) -> None:
    found = parse_scheduler(f"{name}:every=30(fcfs, sjf/best/easy:depth=9)")
    assert isinstance(found, Decider) and isinstance(found.inner, Several)
    assert [scheduler.label for scheduler in found.inner.schedulers] == ["fcfs", "sjf/best/easy:depth=9"]
    assert found.every == 30.0
    assert found.label == f"{name}:every=30(fcfs, sjf/best/easy:depth=9)"
    assert parse_scheduler(found.label) == found


def test_chooses_from_the_five_heuristics_unless_told() -> None:
    assert parse_scheduler("exp3").label == f"exp3({', '.join(HEURISTICS)})"
    assert DECIDERS["exp3"].every == 60.0


def test_one_scheduler_is_no_choice() -> None:
    with pytest.raises(UsageError, match="1 schedulers to choose from"):
        parse_scheduler("exp3(fcfs)")


@pytest.mark.parametrize("name", BANDITS)
def test_twins_change_nothing(name: str) -> None:
    """Whatever is chosen among equals, the result is theirs."""
    workload = family(100_000, intensity="low", gpus=2)
    plain = simulate(workload, load_cluster("2"), parse_scheduler("srpt"))
    switched = simulate(workload, load_cluster("2"), parse_scheduler(f"{name}:every=10(srpt, srpt)"))
    np.testing.assert_array_equal(plain.table["start"], switched.table["start"])


def two_kinds(pairs: int) -> Workload:
    """Every 200 s a long job, and before it ends a short one and a long one: who goes first decides about the short one's deadline."""
    at = np.arange(pairs) * 200.0
    submit = np.concatenate([at, at + 1.0, at + 2.0])
    runtime = np.concatenate([np.full(pairs, 50.0), np.full(pairs, 80.0), np.full(pairs, 10.0)])
    deadline = submit + np.concatenate([np.full(pairs, 60.0), np.full(pairs, 190.0), np.full(pairs, 70.0)])
    order = np.argsort(submit)
    return Workload.build({"submit": submit[order], "deadline": deadline[order]}, runtime[order])


@pytest.mark.parametrize("name", BANDITS)
def test_learns_which_scheduler_meets_deadlines(name: str) -> None:
    """The longest first always misses the short job's deadline, the shortest first never does."""
    result = simulate(two_kinds(200), Cluster.uniform(1, 1), parse_scheduler(f"{name}:every=200(ljf, sjf)"), seed=3)
    deadline = result.workload.jobs.deadline
    met = result.table["end"] <= deadline
    early, late = met[:150].mean(), met[-150:].mean()
    assert late > early
    assert late > 0.9


def test_the_same_seed_gives_the_same_choices() -> None:
    workload, cluster, scheduler = family(100_001, intensity="low", gpus=2), load_cluster("2"), parse_scheduler("exp3")
    starts = [simulate(workload, cluster, scheduler, seed=seed).table["start"].tolist() for seed in (1, 1, 2)]
    assert starts[0] == starts[1]
    assert starts[0] != starts[2]
