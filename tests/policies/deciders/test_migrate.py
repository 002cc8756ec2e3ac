"""Jobs are moved together where only fragments keep a gang waiting: cases by hand, what forbids a move, and the laws."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuyard import Cluster, Workload, load_cluster, load_workload, simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import GpuType, Nodes
from gpuyard.model.result import STATUS, Result
from gpuyard.model.rules import Rules
from gpuyard.policies import parse_scheduler
from gpuyard.testing.conformance import compare_tables
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import random_case


def in_halves(*, late: float = 1000.0, length: float = 5000.0) -> Workload:
    """Two nodes of four GPUs are filled by pairs; at 900 s one of each node ends. A gang that needs a node whole comes at `late`."""
    columns = {"submit": [0.0, 0.0, 0.0, 0.0, late], "gpus": [2.0, 2.0, 2.0, 2.0, 4.0], "chunk": [2, 2, 2, 2, 4]}
    return Workload.build(columns, [length, 900.0, length, 900.0, 1000.0])


def run(workload: Workload, text: str = "migrate(fcfs/best/easy)", cluster: Cluster | None = None, **rules: float) -> Result:
    return simulate(workload, cluster or Cluster.uniform(2, 4), parse_scheduler(text), rules=Rules(**rules), segments=True)


def test_a_job_is_moved_to_free_a_node_and_the_restart_is_paid_for():
    plain, moved = (run(in_halves(), text, restart_cost=60.0) for text in ("fcfs/best/easy", "migrate(fcfs/best/easy)"))
    assert plain.table["start"][4] == 5000.0
    assert moved.table["start"][4] == 1000.0
    assert sorted(moved.table["end"][[0, 2]].tolist()) == [5000.0, 5060.0]
    assert (moved.totals["migrations"], moved.totals["preemptions"]) == (1.0, 1.0)
    assert moved.manifest["decider"] == {"asked": 1, "gangs": 1, "moves": 1, "no_way": 0, "too_dear": 0}
    moved_job = int(np.argmax(moved.table["preemptions"]))
    nodes = [int(piece["node"]) for piece in moved.segments if piece["job"] == moved_job]
    assert len(nodes) == 2 and nodes[0] != nodes[1]


def test_work_since_the_last_checkpoint_is_done_again():
    """At 1000 s the last checkpoint was at 900 s."""
    moved = run(in_halves(), checkpoint=450.0)
    assert sorted(moved.table["end"][[0, 2]].tolist()) == [5000.0, 5100.0]


@pytest.mark.parametrize(
    "text, late, rules, why",
    [
        ("migrate(fcfs/best/easy)", 1000.0, {"checkpoint": math.inf}, "no_way"),  # all work would be lost
        ("migrate(fcfs/best/easy)", 1000.0, {"checkpoint": 1500.0}, "no_way"),  # the same: there is no checkpoint yet
        ("migrate:rest=2000(fcfs/best/easy)", 1000.0, {}, "no_way"),  # they have only just begun
        ("migrate(fcfs/best/easy)", 1000.0, {"restart_cost": 8000.0}, "too_dear"),  # 2 × 8000 GPU-s; the gang waits 4 × 4000
        ("migrate(fcfs/best/easy)", 4990.0, {"restart_cost": 60.0}, "too_dear"),  # it waits for ten seconds
    ],
)
def test_what_forbids_a_move(text: str, late: float, rules: dict[str, float], why: str):
    found = run(in_halves(late=late), text, **rules)
    assert found.totals["migrations"] == 0
    assert found.table["start"][4] == 5000.0
    assert found.manifest["decider"][why] > 0


def test_no_job_is_moved_to_slower_devices():
    nodes = Nodes(
        names=("a", "b"), gpus=np.full(2, 4, np.int32), gpu_type=np.array([0, 1], np.int32), cpus=np.full(2, np.inf),
        memory=np.full(2, np.inf), rack=np.zeros(2, np.int32), partition=np.zeros(2, np.int32),
    )  # fmt: skip
    cluster = Cluster(nodes, (GpuType("fast", speed=2.0), GpuType("slow", speed=1.0)))
    columns = {"submit": [0.0, 0.0, 0.0, 0.0, 1000.0], "gpus": [2.0, 2.0, 2.0, 2.0, 4.0], "chunk": [2, 2, 2, 2, 4]}
    found = run(Workload.build(columns, [8000.0, 800.0, 8000.0, 800.0, 1000.0]), cluster=cluster)
    assert found.totals["migrations"] == 1
    moved = int(np.argmax(found.table["preemptions"]))
    assert [int(piece["node"]) for piece in found.segments if piece["job"] == moved] == [1, 0]  # from the slow node to the fast one


def test_at_most_so_many_jobs_are_moved():
    """Two nodes of four, on each of which two of four jobs have ended: two must leave a node for the gang."""
    columns = {"submit": [0.0] * 8 + [1000.0], "gpus": [1.0] * 8 + [4.0], "chunk": [1] * 8 + [4]}
    runtime = [5000.0, 5000.0, 900.0, 900.0, 5000.0, 5000.0, 900.0, 900.0, 100.0]
    workload = Workload.build(columns, runtime)
    assert run(workload, "migrate:most=1(fcfs/best/easy)").totals["migrations"] == 0
    both = run(workload, "migrate:most=2(fcfs/best/easy)")
    assert both.totals["migrations"] == 2
    assert both.table["start"][8] == 1000.0


def test_where_anybody_may_pass_it_is_the_largest_gang_that_is_helped():
    """The head asks for more GPUs than are free; behind it wait gangs of three and of four."""
    columns = {
        "submit": [0.0, 0.0, 0.0, 0.0, 1000.0, 1000.0, 1000.0], "gpus": [2.0, 2.0, 2.0, 2.0, 8.0, 3.0, 4.0], "chunk": [2, 2, 2, 2, 4, 3, 4],
    }  # fmt: skip
    workload = Workload.build(columns, [5000.0, 900.0, 5000.0, 900.0, 1000.0, 1000.0, 1000.0])
    assert run(workload, "migrate(fcfs/best/skip)").table["start"][4:].tolist() == [5000.0, 2000.0, 1000.0]
    assert run(workload, "migrate(fcfs/best/none)").totals["migrations"] == 0  # nobody passes the head


def test_where_nothing_is_held_up_it_is_the_inner_scheduler():
    workload, cluster = load_workload("lublin:jobs=200,nodes=64,load=1.1", seed=4), load_cluster("8x8:gpu")
    plain, same = (simulate(workload, cluster, parse_scheduler(text)) for text in ("sjf/fewest/easy", "migrate(sjf/fewest/easy)"))
    assert compare_tables(plain.table, same.table) == []


@pytest.mark.parametrize("text", ["migrate:most=0", "migrate:most=1.5", "migrate:rest=-1", "migrate(fcfs/best/easy/srpt)"])
def test_bad_parameters_are_refused(text: str):
    with pytest.raises(UsageError):
        run(in_halves(), text)


@pytest.mark.parametrize(
    "text", ["migrate:rest=0(fcfs/worst/skip)", "migrate:rest=0(largest/fewest/easy)", "migrate:rest=0(sjf/random/none)"]
)
def test_the_laws_hold_and_everybody_ends(text: str):
    ends, moves = {STATUS.index(name) for name in ("done", "killed", "rejected")}, 0.0
    for seed in range(640_000, 640_060):
        case = random_case(seed)
        result = simulate(case.workload, case.cluster, parse_scheduler(text), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)
        assert set(result.table["status"].tolist()) <= ends | {STATUS.index("waiting")}
        moves += result.totals["migrations"]
    assert moves > 0
