"""What a run takes before its work begins: the job's transfer, times the factor of its device types. Cases worked out by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuyard import Rules, Workload, simulate
from gpuyard.model.cluster import Cluster, GpuType, Nodes
from gpuyard.policies import parse_scheduler
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.strategies import Case


def yard(*factors: float, speed: float = 1.0) -> Cluster:
    """A node of one device for each factor, each of a type of its own: t0, t1 …"""
    n = len(factors)
    nodes = Nodes(
        names=tuple(f"n{i}" for i in range(n)), gpus=np.ones(n, np.int32), gpu_type=np.arange(n, dtype=np.int32), cpus=np.full(n, np.inf),
        memory=np.full(n, np.inf), rack=np.zeros(n, np.int32), partition=np.zeros(n, np.int32),
    )  # fmt: skip
    return Cluster(nodes, tuple(GpuType(f"t{i}", speed, transfer=f) for i, f in enumerate(factors)))


def runs(workload: Workload, cluster: Cluster, scheduler: str, rules: Rules | None = None) -> list[tuple[float, float]]:
    """(start, end) of each job, once the reference has said the same."""
    rules, chosen = rules or Rules(), parse_scheduler(scheduler)
    assert compare_with_reference(Case(workload, cluster, rules, frozenset()), chosen, simulate) == []
    table = simulate(workload, cluster, chosen, rules=rules).table
    return [(float(row["start"]), float(row["end"])) for row in table]


def jobs(*rows: tuple[float, float, float], **columns: Any) -> Workload:
    """Jobs of (submit, gpus, runtime)."""
    submit, gpus, runtime = zip(*rows, strict=True)
    return Workload.build({"submit": submit, "gpus": gpus, **columns}, runtime, gpu_types=("", "t0", "t1"))


def test_a_task_on_a_processor_and_on_a_gpu():
    """D = 1 s, c = 0.1, 8 GB at 16 GB/s: 1 s on a processor; on a GPU of speed 1.3, 1/1.3 + 0.5 s."""
    task = jobs((0, 1, 1), transfer=[0.5])
    assert runs(task, yard(0.0), "fcfs") == [(0.0, 1.0)]
    assert runs(task, yard(1.0, speed=1.3), "fcfs") == [(0.0, 0.5 + 1 / 1.3)]


@pytest.mark.parametrize(("factors", "end"), [((0, 0), 10), ((0, 0.5), 12), ((2, 0.5), 18), ((0.5, 2), 18)])
def test_a_gang_waits_for_the_slowest_move(factors: tuple[float, float], end: float):
    assert runs(jobs((0, 2, 10), transfer=[4]), yard(*factors), "fcfs") == [(0.0, end)]


def test_a_cpu_job_uses_no_device_and_takes_its_transfer_as_it_is():
    assert runs(jobs((0, 0, 10), cpus=[1], transfer=[4]), yard(0.0), "fcfs") == [(0.0, 14.0)]
    assert runs(jobs((0, 0.5, 10), transfer=[4]), yard(0.5), "fcfs") == [(0.0, 12.0)]


@pytest.mark.parametrize(("factor", "end"), [(0.0, 60 + 5 + 50), (0.5, 60 + 2 + 5 + 52), (2.0, 60 + 8 + 5 + 58)])
def test_a_preempted_run_has_done_what_came_after_its_transfer(factor: float, end: float):
    work = jobs((0, 1, 100), (50, 1, 10), priority=[0, 1], transfer=[4, 0])
    assert runs(work, yard(factor), "priority/best/none/priority", Rules(restart_cost=5)) == [(0.0, end), (50.0, 60.0)]


@pytest.mark.parametrize("backfill", ["easy", "conservative"])
@pytest.mark.parametrize(("factor", "run"), [(0.0, (1.0, 6.0)), (0.5, (1.0, 9.0)), (1.0, (20.0, 31.0))])
def test_backfilling_counts_what_the_devices_take(backfill: str, factor: float, run: tuple[float, float]):
    """The hole is 9 s long; 5 s of work follow a transfer of 6 s × the factor."""
    work = jobs((0, 1, 10), (1, 2, 10), (1, 1, 5), transfer=[0, 0, 6])
    assert runs(work, yard(factor, factor), f"fcfs/best/{backfill}") == [(0.0, 10.0), (10.0, 20.0), run]


@pytest.mark.parametrize(
    ("backfill", "wanted", "run"), [("easy", 0, (1.0, 6.0)), ("conservative", 0, (20.0, 31.0)), ("conservative", 2, (1.0, 6.0))]
)
def test_conservative_books_the_longest_transfer_of_the_types_allowed(backfill: str, wanted: int, run: tuple[float, float]):
    """The free node takes no transfer, the other all 6 s: easy knows where the job goes, a booking does not."""
    work = jobs((0, 1, 10), (1, 2, 10), (1, 1, 5), transfer=[0, 0, 6], gpu_type=[0, 0, wanted])
    assert runs(work, yard(1.0, 0.0), f"fcfs/best/{backfill}")[2] == run
