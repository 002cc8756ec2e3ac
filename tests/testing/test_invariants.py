"""The invariants hold of the reference on random cases, and each of them notices a result that breaks it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from hypothesis import given

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Outage, Partition
from gpuyard.model.result import ROW, SEGMENT, STATUS
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies.schedulers import Scheduler
from gpuyard.policies.slots import BACKFILLS, PLACEMENTS, Ordering, Preemption
from gpuyard.testing.conformance import compare_segments, compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.reference import reference
from gpuyard.testing.strategies import Case, cases, random_case

FCFS = Ordering("fcfs", "First come", lambda jobs, j, now: jobs.submit[j], (), False)
SJF = Ordering("sjf", "Shortest first", lambda jobs, j, now: jobs.remaining[j], (), False)
AGING = Ordering("aging", "Slowdown", lambda jobs, j, now: -(now - jobs.submit[j]) / (jobs.estimate[j] + 1.0), (), True)
NONE = Preemption("none", "None", None, (), 0.0)
SRPT = Preemption("srpt", "SRPT", lambda jobs, j, now: jobs.remaining[j], (), 0.0)
PRIORITY = Preemption("priority", "Priority", lambda jobs, j, now: -jobs.priority[j], (), 7.0)


def scheduler(ordering: Ordering, placement: str, backfill: str, preemption: Preemption) -> Scheduler:
    return Scheduler(ordering, PLACEMENTS[placement], BACKFILLS[backfill], preemption)


SCHEDULERS = {
    "fcfs/first/conservative": scheduler(FCFS, "first", "conservative", NONE),
    "sjf/fewest/easy/srpt": scheduler(SJF, "fewest", "easy", SRPT),
    "aging/random/skip/priority": scheduler(AGING, "random", "skip", PRIORITY),
}


@pytest.mark.parametrize("seeds", [range(100), pytest.param(range(100, 300), marks=pytest.mark.slow)], ids=["", "more"])
@pytest.mark.parametrize("name", SCHEDULERS)
def test_the_reference_keeps_the_invariants(name: str, seeds: range) -> None:
    for seed in seeds:
        case = random_case(seed)
        result = reference(case.workload, case.cluster, SCHEDULERS[name], seed, case.rules)
        try:
            check_invariants(result.table, result.segment_table, case.workload, case.cluster, case.rules)
        except AssertionError as error:
            pytest.fail(f"case {seed} ({', '.join(sorted(case.features))}): {error}")


@given(case=cases())
def test_hypothesis_draws_cases_that_keep_the_invariants(case: Case) -> None:
    result = reference(case.workload, case.cluster, SCHEDULERS["sjf/fewest/easy/srpt"], 0, case.rules)
    check_invariants(result.table, result.segment_table, case.workload, case.cluster, case.rules)


# --- broken results -------------------------------------------------------------------------------------------------


def small_case(rules: Rules) -> Case:
    """Six jobs on four nodes in two partitions: a pool's job, a gang over two nodes, two sharers, a CPU job, and one that is too wide."""
    nodes = Nodes(
        names=("a", "b", "c", "d"),
        gpus=np.array([2, 2, 70, 1], np.int32),
        gpu_type=np.array([0, 1, 0, 0], np.int32),
        cpus=np.array([4.0, 4.0, 100.0, 4.0]),
        memory=np.array([8.0, 8.0, 100.0, 8.0]),
        rack=np.zeros(4, np.int32),
        partition=np.array([0, 0, 0, 1], np.int32),
    )
    machine = Cluster(
        nodes, (GpuType("x"), GpuType("y")), (Partition("p", quota=76.0), Partition("q", quota=1.0)),
        outages=(Outage(3, 200, 210), Outage(2, 100, 150, gpus=60)),
    )  # fmt: skip
    work = Workload.build(
        {
            "submit": [0, 0, 0, 0, 0, 5],
            "gpus": [70, 4, 0.5, 0.5, 0, 9],
            "chunk": [70, 2, 1, 1, 1, 9],
            "cpus": [0, 4, 1, 1, 4, 0],
            "memory": [0, 4, 1, 1, 1, 0],
            "gpu_type": [0, 0, 1, 1, 0, 0],
            "partition": [0, 0, 0, 0, 1, 1],
            "walltime": [40, 40, 40, 40, 40, 40],
        },
        [20, 30, 10, 10, 10, 10],
        partitions=("p", "q"),
        gpu_types=("", "y"),
    )
    return Case(work, machine, rules, frozenset())


@dataclass
class Broken:
    """A result to be broken."""

    table: Array
    segments: Array

    def move(self, job: int, start: float, end: float) -> None:
        """Another time for a job's only run, told alike in row and segments."""
        mine = self.segments["job"] == job
        self.segments["start"][mine], self.segments["end"][mine] = start, end
        row = self.table[job]
        row["start"], row["end"], row["ran"] = start, end, end - start
        row["gpu_seconds"] = (end - start) * self.segments["gpus"][mine].sum()

    def set(self, job: int, column: str, value: Any) -> None:
        """Another value in the first segment of a job."""
        self.segments[column][np.flatnonzero(self.segments["job"] == job)[0]] = value


def made(rules: Rules) -> tuple[Case, Broken]:
    case = small_case(rules)
    result = reference(case.workload, case.cluster, SCHEDULERS["fcfs/first/conservative"], 0, case.rules)
    return case, Broken(result.table, result.segment_table)


def second_run(b: Broken) -> None:
    """Job 2 gets a second run that begins within its first."""
    extra = b.segments[b.segments["job"] == 2].copy()
    extra["start"], extra["end"] = extra["start"] + 5, extra["end"] + 5
    b.segments = np.concatenate([b.segments, extra])
    b.table["preemptions"][2] = 1


def drop_part(b: Broken) -> None:
    b.segments = np.delete(b.segments, np.flatnonzero(b.segments["job"] == 1)[0])


def odd_chunks(b: Broken) -> None:
    mine = np.flatnonzero(b.segments["job"] == 1)
    b.segments["gpus"][mine], b.segments["devices"][mine] = [1, 3], [1, 0]
    b.segments["node"][mine] = [0, 2]


BREAKS: dict[str, tuple[Callable[[Broken], None], str]] = {
    "a device given twice": (lambda b: b.move(2, 5, 15), r"job [0-9] at .*(GPUs: node 1|device [01]: node 1)"),
    "a pool given too often": (lambda b: b.move(0, 110, 130), r"at 110\.0 s: GPUs: node 2"),
    "a device beyond the node": (lambda b: b.set(2, "devices", 4), "job 2 .*device set 0x4"),
    "two devices for a share": (lambda b: b.set(2, "devices", 3), "job 2 .*device set 0x3"),
    "a job before its submit": (lambda b: b.move(2, -1, 9), r"job 2 at -1\.0 s: started before"),
    "a node of another partition": (lambda b: b.set(2, "node", 3), "job 2 .*partition 1"),
    "a node of another type": (lambda b: b.set(2, "node", 0), "job 2 .*has x, the job asked for y"),
    "a node that does not exist": (lambda b: b.set(2, "node", 9), "job 2 .*node 9"),
    "an incomplete gang": (drop_part, "job 1 .*incomplete"),
    "a broken chunk": (odd_chunks, "job 1 .*chunks of 2"),
    "runs that overlap": (second_run, "job 2 .*earlier run"),
    "a run that ends before it starts": (lambda b: b.move(2, 50, 40), "job 2 .*before it started"),
    "parts of different length": (lambda b: b.set(1, "end", 31), "job 1 .*parts of one run"),
    "too little work": (lambda b: b.move(2, 50, 55), r"job 2 at 55\.0 s: ended, but"),
    "too much work": (lambda b: b.move(2, 50, 65), r"job 2 at 65\.0 s: ended, but"),
    "a node in use while it is down": (lambda b: b.move(4, 195, 205), "job 4 .*down from 200"),
    "a wrong rate": (lambda b: b.table["rate"].__setitem__(2, 2.0), "job 2 .*rate = 2"),
    "a wrong ran": (lambda b: b.table["ran"].__setitem__(2, 9.0), "job 2 .*ran = 9"),
    "wrong gpu_seconds": (lambda b: b.table["gpu_seconds"].__setitem__(2, 9.0), "job 2 .*gpu_seconds = 9"),
    "a wrong start": (lambda b: b.table["start"].__setitem__(2, 33.0), r"job 2 .*start = 33"),
    "a wrong end": (lambda b: b.table["end"].__setitem__(2, 33.0), r"job 2 .*end = 33"),
    "a wrong count of nodes": (lambda b: b.table["nodes"].__setitem__(2, 2), "job 2 .*nodes = 2"),
    "a wrong node": (lambda b: b.table["node"].__setitem__(2, 0), "job 2 .*node = 0"),
    "a wrong count of stops": (lambda b: b.table["preemptions"].__setitem__(2, 1), "job 2 .*stopped 1 times"),
    "a rejected job that ran": (lambda b: b.table["status"].__setitem__(2, STATUS.index("rejected")), "job 2 .*rejected"),
    "a job left running": (lambda b: b.table["status"].__setitem__(2, STATUS.index("running")), "job 2 .*left running"),
    "a kill where nothing kills": (
        lambda b: b.table["status"].__setitem__(2, STATUS.index("killed")),
        "job 2 .*although walltime_kill is off",
    ),
}


def check(case: Case, broken: Broken) -> None:
    check_invariants(broken.table, broken.segments, case.workload, case.cluster, case.rules)


def test_the_small_case_is_whole() -> None:
    case, result = made(Rules())
    check(case, result)
    assert [STATUS[s] for s in result.table["status"]] == ["done"] * 5 + ["rejected"]


@pytest.mark.parametrize("name", BREAKS)
def test_a_broken_result_is_noticed(name: str) -> None:
    case, result = made(Rules())
    spoil, message = BREAKS[name]
    spoil(result)
    with pytest.raises(AssertionError, match=message):
        check(case, result)


def run_once(node: int, gpus: float, devices: int, runs: dict[int, tuple[float, float]]) -> Broken:
    """Rows and segments of jobs that ran once each on one node at rate 1."""
    table, segments = np.zeros(len(runs), ROW), np.zeros(len(runs), SEGMENT)
    for job, (start, end) in runs.items():
        segments[job] = (job, node, gpus, devices, start, end)
        table[job] = (start, end, end - start, (end - start) * gpus, 1.0, 1, node, 0, STATUS.index("done"), 0)
    return Broken(table, segments)


@pytest.mark.parametrize(
    ("gpus", "columns", "changes", "message"),
    [
        (0.0, {"cpus": [3, 3]}, {}, "cpus: node 0"),
        (0.0, {"memory": [5, 5]}, {}, "memory: node 0"),
        (0.75, {}, {}, "(GPUs|device 0): node 0"),
        (0.5, {}, {"partitions": (Partition("all", quota=0.75),)}, "quota: partition 0"),
    ],
)
@pytest.mark.parametrize("inner", [(4.0, 14.0), (4.0, 4.0)])
def test_what_two_jobs_share_must_suffice(
    gpus: float, columns: dict[str, Any], changes: dict[str, Any], message: str, inner: tuple[float, float]
) -> None:
    base = Cluster.uniform(1, 1)
    nodes = Nodes(("n",), base.nodes.gpus, base.nodes.gpu_type, np.array([4.0]), np.array([8.0]), base.nodes.rack, base.nodes.partition)
    work = Workload.build({"submit": [0, 0], "gpus": [gpus, gpus], **columns}, [10, inner[1] - inner[0]])
    result = run_once(0, gpus, 1 if gpus else 0, {0: (0, 10), 1: inner})
    with pytest.raises(AssertionError, match=rf"job 1 at 4\.0 s: {message}"):
        check(Case(work, Cluster(nodes, base.types, **changes), Rules(), frozenset()), result)
    apart = run_once(0, gpus, 1 if gpus else 0, {0: (0, 10), 1: (10, 10 + inner[1] - inner[0])})
    check(Case(work, Cluster(nodes, base.types, **changes), Rules(), frozenset()), apart)


def test_one_device_does_not_serve_two_though_the_node_has_two() -> None:
    case = Case(Workload.build({"submit": [0, 0]}, [10, 10]), Cluster.uniform(1, 2), Rules(), frozenset())
    with pytest.raises(AssertionError, match=r"job 1 at 5\.0 s: device 0: node 0"):
        check(case, run_once(0, 1.0, 1, {0: (0, 10), 1: (5, 15)}))


@pytest.mark.parametrize(
    ("second", "rules", "message"),
    [
        ((20, 24), Rules(), "is done with 8.0 s of work of 10.0"),
        ((20, 30), Rules(), "has done 14.0 s of work of 10.0 though nothing was lost"),
        ((20, 36), Rules(checkpoint=100, walltime_kill=True), "its walltime is 15"),
    ],
)
def test_work_is_conserved_over_several_runs(second: tuple[float, float], rules: Rules, message: str) -> None:
    work = Workload.build({"submit": [0], "walltime": [15]}, [10])
    result = run_once(0, 1.0, 1, {0: (0, 4)})
    result.segments = np.concatenate([result.segments, result.segments])
    result.segments["start"][1], result.segments["end"][1] = second
    ran = 4 + second[1] - second[0]
    for name, value in (("end", second[1]), ("ran", ran), ("gpu_seconds", ran), ("preemptions", 1)):
        result.table[name][0] = value
    with pytest.raises(AssertionError, match=message):
        check(Case(work, Cluster.uniform(1, 1), rules, frozenset()), result)


def test_a_kill_must_come_at_the_walltime() -> None:
    work = Workload.build({"submit": [0], "walltime": [5]}, [10])
    for end, good in ((5.0, True), (7.0, False)):
        result = run_once(0, 1.0, 1, {0: (0, end)})
        result.table["status"] = STATUS.index("killed")
        case = Case(work, Cluster.uniform(1, 1), Rules(walltime_kill=True), frozenset())
        if good:
            check(case, result)
        else:
            with pytest.raises(AssertionError, match="with 5.0 s of its walltime left"):
                check(case, result)


# --- conformance ------------------------------------------------------------------------------------------------------


def slow_simulate(workload: Workload, cluster: Cluster, chosen: Scheduler, *, seed: int, rules: Rules, segments: bool) -> Broken:
    result = reference(workload, cluster, chosen, seed, rules)
    return Broken(result.table, result.segment_table[::-1])


def test_a_simulator_that_agrees_has_no_differences() -> None:
    chosen = SCHEDULERS["aging/random/skip/priority"]
    assert compare_with_reference(random_case(3), chosen, slow_simulate, seed=5) == []


def test_a_simulator_that_differs_is_told_where() -> None:
    def other(*args: Any, **options: Any) -> Broken:
        result = slow_simulate(*args, **options)
        result.table["end"][0] += 1
        return result

    case = small_case(Rules())
    [line] = compare_with_reference(case, SCHEDULERS["sjf/fewest/easy/srpt"], other)
    assert line.startswith("job 0: end: simulated ")


def test_an_error_on_one_side_is_a_difference() -> None:
    bad = scheduler(Ordering("bad", "Bad", lambda jobs, j, now: np.nan, (), False), "fewest", "none", NONE)
    good = SCHEDULERS["sjf/fewest/easy/srpt"]

    def careless(workload: Workload, cluster: Cluster, chosen: Scheduler, **options: Any) -> Broken:
        return slow_simulate(workload, cluster, good, **options)

    [line] = compare_with_reference(small_case(Rules()), bad, careless)
    assert "NaN" in line and "simulated: no error" in line
    assert compare_with_reference(small_case(Rules()), bad, slow_simulate) == []


def test_segments_are_compared_in_any_order() -> None:
    _, result = made(Rules())
    assert compare_segments(result.segments[::-1], result.segments) == []
    other = result.segments.copy()
    other["devices"][0] ^= np.uint64(1)
    assert len(compare_segments(other, result.segments)) == 1
