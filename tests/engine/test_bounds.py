"""Orderings whose keys only fall start the same jobs at the same times as if every job were keyed at every pass."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Cluster, Simulation, Workload, load_cluster, parse_scheduler, simulate
from gpuyard.engine import build
from gpuyard.engine.build import groups_of
from gpuyard.engine.state import CLOCK_YES
from gpuyard.model.cluster import Outage
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.strategies import random_case

ORDERINGS = ("wfp3", "unicep", "dynamic", "multifactor", "multifactor:age=100000,half_life=3600,max_age=7200")
SCHEDULERS = [f"{ordering}/fewest/{backfill}" for ordering in ORDERINGS for backfill in ("none", "skip", "easy")]


@pytest.fixture
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the small cases have bounds too."""
    monkeypatch.setattr(build, "BOUNDS_FROM", 2)


@pytest.fixture
def small_groups(bounds: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Group their jobs as well."""
    monkeypatch.setattr(build, "LEAST_GROUP", 2)


def differences(spec: str, seeds: range, scale: str) -> list[str]:
    scheduler = parse_scheduler(spec)
    assert scheduler.program().bounds_keys
    return [line for seed in seeds for line in compare_with_reference(random_case(seed, scale), scheduler, simulate, seed=seed)]


@pytest.mark.parametrize("spec", SCHEDULERS)
@pytest.mark.usefixtures("small_groups")
def test_same_as_the_reference(spec: str):
    assert differences(spec, range(700, 720), "small") == []


@pytest.mark.parametrize("spec", SCHEDULERS)
@pytest.mark.usefixtures("small_groups")
def test_deep_queues_same_as_the_reference(spec: str):
    assert differences(spec, range(2), "deep") == []


@pytest.mark.usefixtures("bounds")
def test_deep_queues_without_groups():
    assert [line for spec in SCHEDULERS for line in differences(spec, range(3, 4), "deep")] == []


def crowd(jobs: int, users: int, spread: float, seed: int, *, rounded: bool) -> Workload:
    """Jobs that come within `spread` seconds; with `rounded` estimates many of them are alike."""
    rng = np.random.default_rng(seed)
    runtime = np.round(rng.lognormal(6.0, 1.2, jobs)) + 1.0
    estimate = runtime * rng.choice([1.0, 1.5, 5.0], jobs)
    columns = {
        "submit": np.sort(np.round(rng.uniform(0, spread, jobs))),
        "gpus": rng.choice([1, 2, 4, 8, 32], jobs, p=[0.4, 0.2, 0.2, 0.15, 0.05]),
        "estimate": np.ceil(estimate / 900) * 900 if rounded else estimate, "priority": rng.integers(0, 4, jobs),
        "deadline": np.where(rng.random(jobs) < 0.5, np.inf, rng.uniform(0, 1e5, jobs)), "user": rng.integers(0, users, jobs),
    }  # fmt: skip
    return Workload.build(columns, runtime, name="crowd", users=[f"u{i}" for i in range(users)])


def starts(workload: Workload, cluster: Cluster, spec: str, *, bounded: bool) -> bytes:
    program = parse_scheduler(spec).program()
    if not bounded:
        program = replace(program, slots=(replace(program.slots[0], reads_clock=CLOCK_YES),))
    assert program.bounds_keys == bounded
    simulation = Simulation(workload, cluster, program)
    simulation.run()
    return simulation.result().table["start"].tobytes()


CROWDS = {"at once": (1, 0.0, True), "five users": (5, 200.0, True), "many": (40, 20_000.0, False), "steady": (200, 1e5, True)}


@pytest.mark.parametrize("spec", SCHEDULERS)
@pytest.mark.parametrize("name", CROWDS)
def test_thousands_of_jobs_start_as_if_all_were_keyed_at_every_pass(spec: str, name: str):
    users, spread, rounded = CROWDS[name]
    workload, cluster = crowd(1500, users, spread, len(name), rounded=rounded), load_cluster("16x8:gpu")
    assert starts(workload, cluster, spec, bounded=True) == starts(workload, cluster, spec, bounded=False)


@pytest.mark.parametrize("spec", SCHEDULERS)
def test_jobs_that_come_back_wait_apart_from_those_that_were_like_them(spec: str):
    whole = load_cluster("16x8:gpu")
    rng = np.random.default_rng(5)
    outages = tuple(Outage(int(rng.integers(16)), start, start + 600.0) for start in np.sort(rng.uniform(1.0, 30_000.0, 80)))
    cluster, workload = replace(whole, outages=outages), crowd(1500, 3, 2000.0, 5, rounded=True)
    assert starts(workload, cluster, spec, bounded=True) == starts(workload, cluster, spec, bounded=False)


@pytest.mark.parametrize("spec", ["wfp3/fewest/easy:depth=3", "wfp3/fewest/conservative", "wfp3/fewest/none/priority", "tiresias", "sjf"])
def test_what_needs_the_whole_order_or_no_bounds(spec: str):
    assert not parse_scheduler(spec).program().bounds_keys


def test_groups_are_jobs_alike_in_what_an_ordering_reads():
    count = 1000
    gpus = np.repeat([4.0, 1.0, 2.0], [1, count - 41, 40])
    columns = {"submit": np.arange(count), "gpus": gpus, "estimate": np.arange(count) % 3 + 1.0}
    jobs = Workload.build(columns, np.ones(count)).jobs
    by_size = groups_of(jobs, {"size_factor", "fair_share", "attained"}, estimated=True)
    assert by_size[0] == -1  # nobody is like it
    assert set(by_size[1:-40]) | set(by_size[-40:]) == {0, 1}
    assert by_size[1] != by_size[-1]
    assert len(set(groups_of(jobs, {"gpus", "remaining"}, estimated=True)) - {-1}) == 3  # of 13 jobs with 2 GPUs few are alike
    assert len(groups_of(jobs, {"gpus", "remaining"}, estimated=False)) == 0
    assert len(groups_of(jobs, {"index"}, estimated=True)) == 0
    assert len(groups_of(jobs, None, estimated=True)) == 0
