"""The reference simulator on cases small enough to work out by hand."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import PolicyError
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Outage, Partition
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies.schedulers import Meta, Scheduler, Switch
from gpuyard.policies.slots import BACKFILLS, PLACEMENTS, Backfill, Ordering, Placement, Preemption
from gpuyard.testing.conformance import compare_tables
from gpuyard.testing.reference import ReferenceResult, reference
from gpuyard.testing.reference.scores import hash01, mix
from gpuyard.testing.strategies import FEATURES, random_case

FCFS = Ordering("fcfs", "First come", lambda jobs, j, now: jobs.submit[j], (), False)
SJF = Ordering("sjf", "Shortest first", lambda jobs, j, now: jobs.remaining[j], (), False)
NO_PREEMPTION = Preemption("none", "None", None, (), 0.0)
PRIORITY = Preemption("priority", "Priority", lambda jobs, j, now: -jobs.priority[j], (), 0.0)


def scheduler(
    ordering: Ordering = FCFS, placement: str = "first", backfill: str = "none", preemption: Preemption = NO_PREEMPTION, depth: int = 0
) -> Scheduler:
    return Scheduler(ordering, PLACEMENTS[placement], replace(BACKFILLS[backfill], depth=depth), preemption)


def jobs(*rows: tuple[float, float, float], **columns: Any) -> Workload:
    """(submit, gpus, runtime) rows with exact estimates; more columns by name."""
    submit, gpus, runtime = (list(column) for column in zip(*rows, strict=True))
    labels = {name: columns.pop(name) for name in ("partitions", "classes", "gpu_types") if name in columns}
    columns.setdefault("estimate", runtime)
    return Workload.build({"submit": submit, "gpus": gpus, **columns}, runtime, **labels)


def cluster(*gpus: int, **changes: Any) -> Cluster:
    """One node per number; node columns and cluster fields by name."""
    n = len(gpus)
    columns: dict[str, Any] = {"gpu_type": [0] * n, "cpus": [np.inf] * n, "memory": [np.inf] * n, "rack": [0] * n, "partition": [0] * n}
    columns |= {name: changes.pop(name) for name in list(columns) if name in changes}
    ints = {name: np.array(columns[name], np.int32) for name in ("gpu_type", "rack", "partition")}
    floats = {name: np.array(columns[name], float) for name in ("cpus", "memory")}
    nodes = Nodes(names=tuple(f"n{i}" for i in range(n)), gpus=np.array(gpus, np.int32), **ints, **floats)
    changes.setdefault("types", (GpuType("gpu"),))
    return Cluster(nodes, **changes)


def times(result: ReferenceResult) -> list[tuple[float, float]]:
    return [(row.start, row.end) for row in result.rows]


def device_sets(result: ReferenceResult) -> dict[int, int]:
    return {segment.job: segment.devices for segment in result.segments}


def test_strict_order_waits_for_the_head() -> None:
    result = reference(jobs((0, 2, 10), (1, 2, 5), (2, 1, 3)), cluster(2), scheduler())
    assert times(result) == [(0, 10), (10, 15), (15, 18)]
    assert (result.passes, result.queue_max, result.queue_integral) == (5, 2, 9 + 8 + 5)  # none at 18 s, when nobody waits


def test_ties_go_to_the_lower_index_and_sjf_orders_by_estimate() -> None:
    work = jobs((0, 1, 10), (0, 1, 5), (0, 1, 5))
    assert times(reference(work, cluster(1), scheduler())) == [(0, 10), (10, 15), (15, 20)]
    assert times(reference(work, cluster(1), scheduler(SJF))) == [(10, 20), (0, 5), (5, 10)]


def test_skip_starts_whatever_fits_up_to_its_depth() -> None:
    work = jobs((0, 1, 10), (1, 2, 10), (1, 2, 1), (1, 1, 50))
    assert times(reference(work, cluster(2), scheduler(backfill="skip")))[3] == (1, 51)
    assert times(reference(work, cluster(2), scheduler(backfill="skip", depth=1)))[3][0] > 1


def test_easy_starts_what_ends_by_the_shadow_or_leaves_room_for_the_head() -> None:
    # shadow of job 1 is 10, when four devices are free and one of them is more than it needs
    work = jobs((0, 2, 10), (1, 3, 10), (1, 1, 100), (1, 1, 100), (1, 1, 5))
    expected = [(0, 10), (10, 20), (1, 101), (20, 120), (1, 6)]
    assert times(reference(work, cluster(4), scheduler(backfill="easy"))) == expected


def test_easy_lets_a_job_end_exactly_at_the_shadow() -> None:
    work = jobs((0, 1, 10), (1, 2, 10), (1, 1, 9))
    assert times(reference(work, cluster(2), scheduler(backfill="easy"))) == [(0, 10), (10, 20), (1, 10)]


@pytest.mark.parametrize(("last", "start"), [(2.0, 6.0), (2.5, 20.0)])
def test_easy_believes_an_overdue_job_to_take_twice_as_long(last: float, start: float) -> None:
    """The first was to end at 2; at 5 that is 4, then 8: the shadow. The last may start at 6 if it is gone by then."""
    work = jobs((0, 1, 10), (1, 2, 10), (5, 1, 1), (5, 1, last), estimate=[2, 10, 1, last])
    found = times(reference(work, cluster(2), scheduler(backfill="easy")))
    assert found == [(0, 10), (10, 20), (5, 6), (start, start + last)]


def test_conservative_keeps_every_booking_where_easy_keeps_one() -> None:
    work = jobs((0, 3, 10), (1, 2, 10), (1, 4, 10), (1, 1, 25), (1, 1, 9))
    easy = reference(work, cluster(4), scheduler(backfill="easy"))
    assert times(easy) == [(0, 10), (10, 20), (26, 36), (1, 26), (10, 19)]
    conservative = reference(work, cluster(4), scheduler(backfill="conservative"))
    assert times(conservative) == [(0, 10), (10, 20), (20, 30), (30, 55), (1, 10)]


def test_conservative_depth_counts_the_head() -> None:
    work = jobs((0, 3, 10), (1, 2, 10), (1, 4, 10), (1, 1, 9))
    assert times(reference(work, cluster(4), scheduler(backfill="conservative", depth=2)))[3][0] == 10  # with job 1, at the end of job 0
    assert times(reference(work, cluster(4), scheduler(backfill="conservative", depth=3)))[3][0] == 1


def test_conservative_lets_a_shared_job_join_sharers_that_stay_as_long() -> None:
    work = jobs((0, 0.5, 20), (1, 1, 10), (1, 0.25, 19), (1, 0.25, 20))
    result = reference(work, cluster(1), scheduler(backfill="conservative"))
    assert times(result) == [(0, 20), (20, 30), (1, 20), (30, 50)]


@pytest.mark.parametrize(("speed", "end"), [(1.0, 60 + 8 + 60), (2.0, 60 + 8 + 10)])
def test_preemption_keeps_work_up_to_the_last_checkpoint(speed: float, end: float) -> None:
    work = jobs((0, 1, 100), (50, 1, 10 * speed), priority=[0, 1], transfer=[3, 0])
    machine = cluster(1, types=(GpuType("gpu", speed=speed),))
    result = reference(work, machine, scheduler(preemption=PRIORITY), rules=Rules(checkpoint=20, restart_cost=5))
    # 47 useful seconds, 40 of them kept; the second run pays 3 + 5 s first
    assert times(result) == [(0, end), (50, 60)]
    assert (result.rows[0].ran, result.rows[0].preemptions, result.preemptions) == (50 + end - 60, 1, 1)
    assert [(s.start, s.end) for s in result.segments if s.job == 0] == [(0, 50), (60, end)]


@pytest.mark.parametrize(("checkpoint", "end"), [(0.0, 110.0), (math.inf, 160.0)])
def test_preemption_keeps_all_or_nothing_at_the_extremes(checkpoint: float, end: float) -> None:
    work = jobs((0, 1, 100), (50, 1, 10), priority=[0, 1])
    result = reference(work, cluster(1), scheduler(preemption=PRIORITY), rules=Rules(checkpoint=checkpoint))
    assert times(result) == [(0, end), (50, 60)]


def test_preemption_takes_the_least_important_and_nothing_in_vain() -> None:
    work = jobs((0, 1, 100), (0, 1, 100), (10, 1, 10), (20, 3, 10), priority=[1, 0, 2, 9])
    result = reference(work, cluster(2), scheduler(preemption=PRIORITY))
    assert [row.preemptions for row in result.rows] == [0, 1, 0, 0]
    assert result.rows[3].reason == "more GPUs than its partition has"
    stuck = jobs((0, 1, 100), (0, 1, 100), (10, 2, 10), priority=[0, 5, 3])
    assert reference(stuck, cluster(2), scheduler(preemption=PRIORITY)).preemptions == 0


def test_a_job_that_was_preempted_may_start_elsewhere_in_the_same_pass() -> None:
    # the wide job needs both devices of node 0; its one-device victim goes to node 1 at once
    work = jobs((0, 1, 100), (10, 2, 10), priority=[0, 1], chunk=[1, 2])
    result = reference(work, cluster(2, 1), scheduler(preemption=PRIORITY))
    assert times(result) == [(0, 100), (10, 20)]
    assert [(s.node, s.start, s.end) for s in result.segments if s.job == 0] == [(0, 0, 10), (1, 10, 100)]


def test_a_timer_wakes_the_preemption_rule() -> None:
    las = Preemption("las", "LAS", lambda jobs, j, now: float(jobs.attained[j] >= 30), (), 10.0)
    result = reference(jobs((0, 1, 50), (1, 1, 45)), cluster(1), scheduler(preemption=las))
    assert times(result) == [(0, 95), (30, 75)]


def test_a_whole_outage_requeues_and_a_node_comes_back() -> None:
    machine = cluster(1, 1, outages=(Outage(0, 4, 20),))
    result = reference(jobs((0, 1, 10), (5, 1, 10), (6, 1, 10)), machine, scheduler(), rules=Rules(checkpoint=math.inf))
    assert times(result) == [(0, 14), (14, 24), (20, 30)]
    assert (result.failures, result.preemptions, result.rows[0].node, result.rows[0].preemptions) == (1, 0, 1, 1)


def test_a_partial_outage_stops_the_latest_and_takes_the_highest_device() -> None:
    machine = cluster(2, outages=(Outage(0, 5, 10, gpus=1),))
    result = reference(jobs((0, 1, 20), (1, 1, 20)), machine, scheduler())
    assert times(result) == [(0, 20), (1, 26)]
    assert [segment.devices for segment in result.segments if segment.job == 1] == [2, 2]


def test_a_job_that_can_only_wait_is_left_waiting() -> None:
    machine = cluster(1, 2, outages=(Outage(1, 0, math.inf),))
    row = reference(jobs((0, 2, 5), chunk=[2]), machine, scheduler()).rows[0]
    assert row.status == "waiting" and math.isnan(row.start) and row.node == -1


def test_shares_pack_on_the_fullest_device_that_suffices() -> None:
    work = jobs((0, 0.5, 10), (0, 0.25, 10), (0, 0.5, 10), (0, 0.25, 5), (0, 1, 10))
    result = reference(work, cluster(2), scheduler())
    assert [device_sets(result)[j] for j in range(4)] == [1, 1, 2, 1]
    assert times(result)[4] == (10, 20)


def test_gangs_take_the_lowest_devices_and_pools_have_none_to_name() -> None:
    work = jobs((0, 1, 10), (0, 2, 20), (12, 2, 10))
    assert device_sets(reference(work, cluster(4), scheduler())) == {0: 1, 1: 6, 2: 9}
    assert device_sets(reference(work, cluster(65), scheduler())) == {0: 0, 1: 0, 2: 0}
    assert reference(jobs((0, 0.5, 1)), cluster(65), scheduler()).rows[0].status == "rejected"


def test_walltime_kills_count_every_run() -> None:
    work = jobs((0, 1, 100), (10, 1, 10), (0, 1, 10), priority=[0, 1, 9], walltime=[30, 10, 10])
    result = reference(work, cluster(1, 1), scheduler(preemption=PRIORITY), rules=Rules(walltime_kill=True))
    assert [row.status for row in result.rows] == ["killed", "done", "done"]
    assert (result.rows[0].end, result.rows[0].ran) == (30, 30)


def test_rate_is_the_slowest_device_times_the_locality_factor() -> None:
    kinds = (GpuType("fast", speed=2.0), GpuType("slow", speed=0.5))
    machine = cluster(
        1, 1, 1, gpu_type=[0, 0, 1], rack=[0, 0, 1], types=kinds, span_nodes=0.8, span_racks=0.5, speed={"big": {"slow": 4.0}}
    )
    assert reference(jobs((0, 2, 16)), machine, scheduler()).rows[0].end == 16 / (2.0 * 0.8)
    assert reference(jobs((0, 3, 16)), machine, scheduler()).rows[0].end == 16 / (0.5 * 0.5)
    classed = jobs((0, 3, 16), job_class=[1], classes=["", "big"])
    assert reference(classed, machine, scheduler()).rows[0].end == 16 / (2.0 * 0.5)
    wanted = jobs((0, 1, 16), gpu_type=[1], gpu_types=["", "slow|none"])
    assert reference(wanted, machine, scheduler()).rows[0].node == 2


def test_cpus_and_memory_bound_the_parts_of_a_gang() -> None:
    work = jobs((0, 4, 10), (0, 0, 10), cpus=[8, 3], memory=[0, 0])
    result = reference(work, cluster(4, 4, cpus=[5, 6]), scheduler())
    assert [(s.node, s.gpus) for s in result.segments if s.job == 0] == [(0, 2), (1, 2)]
    assert times(result)[1] == (10, 20)  # 1 and 2 cores are left


def test_partitions_block_alone_and_quotas_hold() -> None:
    parts = (Partition("red", quota=1.0), Partition("blue"))
    labels = {"partitions": ("blue", "red", "none")}
    work = jobs((0, 1, 10), (1, 1, 10), (2, 1, 10), (3, 1, 1), (4, 2, 1), partition=[1, 1, 0, 2, 1], **labels)
    result = reference(work, cluster(2, 1, partition=[0, 1], partitions=parts), scheduler())
    assert times(result)[:3] == [(0, 10), (10, 20), (2, 12)]
    assert [row.reason for row in result.rows[3:]] == ["no such partition", "over the partition's quota"]


def test_rejections_name_their_reason() -> None:
    work = jobs(
        (0, 1, 1), (0, 3, 1), (0, 2, 1), (0, 0, 1), gpu_type=[1, 0, 0, 1], gpu_types=["", "h100"], chunk=[1, 1, 2, 1], cpus=[0, 0, 0, 9]
    )
    rows = reference(work, cluster(1, 1, cpus=[4, 8]), scheduler()).rows
    assert [row.reason for row in rows] == [
        "no such GPU type", "more GPUs than its partition has", "more GPUs than its partition has", "more cpus or memory than a node has",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("placement", "nodes"),
    [("first", [0, 1]), ("best", [1, 0, 2]), ("worst", [2, 3]), ("fewest", [2, 1])],
)
def test_a_gang_that_no_node_holds_spans_nodes_as_the_placement_says(placement: str, nodes: list[int]) -> None:
    machine = cluster(3, 2, 4, 4)
    units = {"first": 5, "best": 8, "worst": 5, "fewest": 6}[placement]
    result = reference(jobs((0, units, 1)), machine, scheduler(placement=placement))
    assert [segment.node for segment in result.segments] == nodes


def test_the_hash_of_random_placement_is_splitmix64() -> None:
    assert mix(0) == 0xE220A8397B1DCDAF  # first output of splitmix64 seeded with 0
    assert 0 <= hash01(7, 1, 0, 3) < 1
    assert hash01(7, 1, 0, 3) != hash01(7, 1, 1, 3)


def test_an_own_placement_sees_nodes_as_they_are() -> None:
    least_share = Placement(
        "own", "Own", lambda nodes, n, jobs, j, weight: weight * nodes.share[n] + nodes.free[n] / 100, (("weight", 1.0),), "score"
    )
    chosen = Scheduler(FCFS, least_share, Backfill("none"), NO_PREEMPTION)
    result = reference(jobs((0, 1, 10), (1, 0.5, 10), (2, 0.5, 10)), cluster(1, 2, 1), chosen)
    assert [row.node for row in result.rows] == [0, 2, 2]


def test_a_meta_scheduler_switches_and_keys_the_queue_anew() -> None:
    late = Switch("late", "Late", lambda system, now, limit: int(now >= limit), (("limit", 10.0),))
    meta = Meta((scheduler(FCFS), scheduler(SJF)), late)
    result = reference(jobs((0, 1, 10), (1, 1, 9), (2, 1, 3)), cluster(1), meta)
    assert times(result) == [(0, 10), (13, 22), (10, 13)]


def test_a_key_that_is_nan_is_an_error_with_job_and_time() -> None:
    bad = Ordering("bad", "Bad", lambda jobs, j, now: jobs.submit[j] / 0.0 * 0.0, (), False)
    with pytest.raises(PolicyError, match=r"bad: job 0 at 3\.0 s"):
        reference(jobs((3, 1, 1)), cluster(1), scheduler(bad))


def test_policies_do_not_see_the_runtime() -> None:
    peek = Ordering("peek", "Peek", lambda jobs, j, now: jobs.runtime[j], (), False)
    with pytest.raises(PolicyError, match="runtime"):
        reference(jobs((0, 1, 1)), cluster(1), scheduler(peek))


def test_random_cases_repeat_and_cover_every_feature() -> None:
    drawn = [random_case(seed) for seed in range(150)]
    assert set().union(*(case.features for case in drawn)) == set(FEATURES)
    assert any(not case.features for case in drawn)
    again = random_case(17)
    assert again.workload == drawn[17].workload and again.cluster == drawn[17].cluster and again.rules == drawn[17].rules


def test_a_difference_names_job_column_and_values() -> None:
    table = reference(jobs((0, 1, 10), (1, 1, 5)), cluster(1), scheduler()).table
    other = table.copy()
    other["end"][1] = 16
    assert compare_tables(table, table.copy()) == []
    assert compare_tables(other, table) == ["job 1: end: simulated 16.0, reference 15.0"]
