"""The decider: better places, nobody passed unfairly, and what happens at the limit."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from gpuyard import Cluster, Simulation, Snapshot, Workload, simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import GpuType, Nodes
from gpuyard.model.decision import Part
from gpuyard.policies import Decider, parse_scheduler
from gpuyard.policies.capacity import Requests
from gpuyard.policies.milp.decider import reservation
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import random_case

INNER = ("fcfs/fewest/easy", "sjf/best/none", "lcfs/fastest/skip", "wfp3/worst/conservative", "saf/first/easy:depth=3", "sjf/random/easy")


def nodes_of(gpus: list[int], kinds: list[int]) -> Nodes:
    count = len(gpus)
    return Nodes(
        names=tuple(f"n{i}" for i in range(count)), gpus=np.array(gpus, np.int32), gpu_type=np.array(kinds, np.int32),
        cpus=np.full(count, np.inf), memory=np.full(count, np.inf), rack=np.zeros(count, np.int32), partition=np.zeros(count, np.int32),
    )  # fmt: skip


def fast_and_slow(gpus: list[int], kinds: list[int]) -> Cluster:
    """Type 0 is fast for class `big` (1 against 0.2) and little better for `small` (1 against 0.9)."""
    speed = {"big": MappingProxyType({"fast": 1.0, "slow": 0.2}), "small": MappingProxyType({"fast": 1.0, "slow": 0.9})}
    return Cluster(nodes_of(gpus, kinds), (GpuType("fast"), GpuType("slow", 0.5)), speed=MappingProxyType(speed))


def begin(text: str):
    made = parse_scheduler(text)
    assert isinstance(made, Decider)
    return made.begin()


def where(decisions) -> dict[int, list[tuple[int, float]]]:
    return {d.job: [(part.node, part.gpus) for part in d.parts] for d in decisions}


def test_who_gains_most_gets_the_fast_node():
    """First fit gives the fast node to the first job, which hardly gains by it."""
    cluster = fast_and_slow([4, 4], [0, 1])
    workload = Workload.build({"submit": [0.0, 0.0], "gpus": [4.0, 4.0], "job_class": [0, 1]}, [10.0, 10.0], classes=("small", "big"))
    snapshot = Simulation(workload, cluster).advance()
    assert where(parse_scheduler("fcfs/first").decide(snapshot)) == {0: [(0, 4.0)], 1: [(1, 4.0)]}
    assert where(begin("milp(fcfs/first)").decide(snapshot)) == {0: [(1, 4.0)], 1: [(0, 4.0)]}
    result = simulate(workload, cluster, parse_scheduler("milp(fcfs/first)"))
    assert result.table["end"].tolist() == [10.0 / 0.9, 10.0]


def test_a_better_packing_lets_the_head_start():
    """Worst fit puts the two small jobs on two nodes; together they leave one for the third, which needs a whole node."""
    workload = Workload.build({"submit": [0.0] * 3, "gpus": [1.0, 1.0, 2.0], "chunk": [1, 1, 2]}, [10.0] * 3)
    snapshot = Simulation(workload, Cluster.uniform(2, 2)).advance()
    assert set(where(parse_scheduler("fcfs/worst").decide(snapshot))) == {0, 1}
    found = where(begin("milp(fcfs/worst)").decide(snapshot))
    assert set(found) == {0, 1, 2}
    assert found[0] == found[1] != found[2]


def test_jobs_beyond_k_are_left_to_the_inner_scheduler():
    workload = Workload.build({"submit": [0.0] * 4, "gpus": [1.0] * 4}, [10.0] * 4)
    found = where(begin("milp:k=2(fcfs/worst)").decide(Simulation(workload, Cluster.uniform(2, 4)).advance()))
    assert set(found) == {0, 1, 2, 3}


def test_easy_keeps_the_reservation_of_the_head():
    """Node 1 (fast) is free for the head, which needs two devices on a node, from 10 s on; node 0 only from 1,000 s.

    Somebody behind the head with 500 s to run gains on the fast node, but must not have it.
    """
    cluster = fast_and_slow([2, 2], [1, 0])
    columns = {"submit": [0.0, 0.0, 1.0, 1.0], "gpus": [1.0, 1.0, 2.0, 1.0], "chunk": [1, 1, 2, 1], "job_class": [0, 0, 0, 1]}
    workload = Workload.build(columns, [900.0, 10.0, 10.0, 100.0], classes=("small", "big"))
    simulation = Simulation(workload, cluster)
    first = simulation.advance()
    simulation.apply([type(d)(d.job, parts=(Part(d.job, 1.0),)) for d in parse_scheduler("fcfs").decide(first)])
    snapshot = simulation.advance()
    assert snapshot.now == 1.0
    decider = begin("milp(fcfs/first/easy)")
    assert where(decider.decide(snapshot)) == {3: [(0, 1.0)]}
    assert decider.report()["inner_kept_for_reservation"] == 1
    assert where(begin("milp(fcfs/first/skip)").decide(snapshot)) == {3: [(1, 1.0)]}


def reservations(snapshot: Snapshot, decisions, head: int) -> float:
    requests = Requests(snapshot)
    rows = {int(index): row for row, index in enumerate(snapshot.jobs.index)}
    return reservation(snapshot, requests, requests[head], [(requests[rows[d.job]], d.parts) for d in decisions])


def test_a_reservation_is_the_first_estimated_end_at_which_the_head_fits():
    workload = Workload.build({"submit": [0.0, 0.0, 1.0], "gpus": [1.0, 1.0, 2.0], "chunk": [1, 1, 2]}, [30.0, 20.0, 10.0])
    simulation = Simulation(workload, Cluster.uniform(2, 2))
    snapshot = simulation.advance()
    simulation.apply([type(d)(d.job, parts=(Part(d.job, 1.0),)) for d in parse_scheduler("fcfs").decide(snapshot)])
    snapshot = simulation.advance()
    assert reservations(snapshot, [], 2) == 20.0


def fairness(snapshot: Snapshot, inner: str, k: int, decisions) -> None:
    """What is promised of every decision."""
    order, plain = parse_scheduler(inner).begin().decide_in_order(snapshot)
    requests = Requests(snapshot)
    started = {d.job for d in decisions}
    mine = {d.job for d in plain}
    for p in range(len(snapshot.cluster.partitions)):
        rows = [int(row) for row in order if requests.partition[row] == p]
        jobs = [int(snapshot.jobs.index[row]) for row in rows]
        waits = [job not in started for job in jobs]
        head = waits.index(True) if True in waits else len(jobs)
        before = next((i for i, job in enumerate(jobs) if job not in mine), len(jobs))
        assert head >= min(before, k), "who starts in order under the inner scheduler does so here"
        if "conservative" not in inner:
            assert {job for job in jobs[:k] if job in mine} <= started
        if inner.endswith("none"):
            assert not any(not waiting for waiting in waits[head:]), "somebody passed"
        if "easy" in inner and head == before and head < len(jobs):
            first = [d for d in decisions if d.job in jobs]
            theirs = [d for d in plain if d.job in jobs[:k]]
            assert reservations(snapshot, [d for d in first if d.job in jobs[:k]], rows[head]) <= reservations(snapshot, theirs, rows[head])


@pytest.mark.parametrize("inner", INNER)
def test_nobody_is_treated_worse_than_by_the_inner_scheduler(inner: str):
    for seed in range(640_000, 640_020):
        case = random_case(seed)
        decider = begin(f"milp:k=5,limit=10({inner})")
        simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules, segments=True)
        while (snapshot := simulation.advance()) is not None:
            decisions = decider.decide(snapshot)
            fairness(snapshot, inner, 5, decisions)
            simulation.apply(decisions)
        result = simulation.result()
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)
        report = decider.report()
        assert report["value_milp"] >= report["value_inner"] - 1e-9


@pytest.mark.parametrize("scale", ["rack", "hall"])
def test_the_laws_hold_on_many_nodes(scale: str):
    for seed in range(4):
        case = random_case(seed, scale)
        result = simulate(case.workload, case.cluster, parse_scheduler("milp:limit=10"), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)


def test_at_a_limit_that_always_strikes_the_start_stays_or_improves():
    for seed in range(650_000, 650_010):
        case = random_case(seed)
        result = simulate(case.workload, case.cluster, parse_scheduler("milp:limit=0.000001"), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)


def test_the_same_seed_gives_the_same_result():
    case = random_case(3)
    once, again = (simulate(case.workload, case.cluster, parse_scheduler("milp:limit=60"), rules=case.rules).table for _ in range(2))
    assert once.tobytes() == again.tobytes()


def test_the_report_is_in_the_manifest():
    workload = Workload.build({"submit": [0.0, 0.0, 5.0], "gpus": [1.0, 1.0, 2.0]}, [10.0] * 3)
    report = simulate(workload, Cluster.uniform(2, 2), parse_scheduler("milp(fcfs/worst)")).manifest["decider"]
    assert (report["decisions"], report["solves"], report["skipped"]) == (2, 1, 1)  # at 0 s two jobs on two nodes; at 5 s one job, one node
    assert report["solved_to_gap"] == 1
    assert report["fragmentation_inner"] == 2.0
    assert report["fragmentation_milp"] == 0.0
    assert report["room_milp"] == 2.0


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("milp(srpt/fewest/easy/srpt)", "preempts"),
        ("milp:k=0", "k = 0"),
        ("milp:k=2.5", "whole"),
        ("milp:limit=0", "limit"),
        ("milp:w_frag=-1", "weights"),
    ],
)
def test_what_cannot_be_is_refused(text: str, told: str):
    with pytest.raises(UsageError, match=told):
        begin(text)
