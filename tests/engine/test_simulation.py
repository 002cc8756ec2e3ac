"""Simulations at the edges of what is allowed: nothing to do, too much at once, very large numbers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gpuyard import Result, Rules, Simulation, Workload, simulate
from gpuyard.engine import driver
from gpuyard.engine.kernels.events import BREATH, CROWD
from gpuyard.engine.state import BINS
from gpuyard.errors import SimulationError, UsageError
from gpuyard.model.cluster import MAX_DEVICES, Cluster, GpuType, Nodes, Outage, Partition
from gpuyard.model.result import REASONS, STATUS
from gpuyard.policies import BACKFILLS, Meta, make_preemption, parse_scheduler, parse_slots, parse_switch
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import Case

FCFS = parse_scheduler("fcfs")


def jobs(submit: Any, runtime: Any, **columns: Any) -> Workload:
    return Workload.build({"submit": submit, **columns}, runtime)


def nodes(gpus: list[int], **columns: Any) -> Nodes:
    n = len(gpus)
    values = {"gpu_type": [0] * n, "cpus": [np.inf] * n, "memory": [np.inf] * n, "rack": [0] * n, "partition": [0] * n, **columns}
    types = {"gpu_type": np.int32, "rack": np.int32, "partition": np.int32, "cpus": np.float64, "memory": np.float64}
    return Nodes(tuple(f"n{i}" for i in range(n)), np.array(gpus, np.int32), **{k: np.array(v, types[k]) for k, v in values.items()})


def same_as_reference(workload: Workload, cluster: Cluster, scheduler: Any, rules: Rules | None = None) -> Result:
    case = Case(workload, cluster, rules or Rules(), frozenset())
    assert compare_with_reference(case, scheduler, simulate) == []
    return simulate(workload, cluster, scheduler, rules=rules, segments=True)


def statuses(result: Result) -> list[str]:
    return [STATUS[code] for code in result.table["status"]]


# --- little ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_an_empty_workload(backfill: str):
    result = same_as_reference(jobs([], []), Cluster.uniform(2, 4), parse_scheduler(f"fcfs/best/{backfill}/srpt"))
    assert len(result) == len(result.timeline) == len(result.segments) == 0
    assert result.totals["passes"] == result.totals["last_end"] == 0


def test_an_empty_workload_stepped():
    simulation = Simulation(jobs([], []), Cluster.uniform(1, 1))
    assert simulation.advance() is None
    assert simulation.advance() is None
    assert len(simulation.result()) == 0


def test_one_job():
    result = same_as_reference(jobs([7.0], [3.0]), Cluster.uniform(1, 1), FCFS)
    assert result.table["start"].tolist() == [7.0]
    assert result.table["end"].tolist() == [10.0]
    assert result.totals["busy/gpu"] == 3.0
    assert result.totals["up/gpu"] == 3.0
    assert result.timeline["time"][0] == 7.0


def test_jobs_of_no_length_pass_one_another_at_one_instant():
    result = same_as_reference(jobs([5.0] * 50, [0.0] * 50), Cluster.uniform(1, 1), FCFS)
    assert (result.table["end"] == 5.0).all()
    assert result.totals["instants"] == 51
    assert result.totals["last_end"] == 5.0


def test_all_rejected():
    workload = Workload.build(
        {
            "submit": [0, 1, 2, 3, 4], "gpus": [9, 1, 1, 2, 3], "memory": [0, 0, 99, 0, 0],
            "partition": [0, 1, 0, 0, 0], "gpu_type": [0, 0, 0, 1, 0],
        },
        [1] * 5, partitions=("red", "nowhere"), gpu_types=("", "h100"),
    )  # fmt: skip
    cluster = Cluster(nodes([4, 4], memory=[16, 16], partition=[0, 1]), (GpuType("a100"),), (Partition("red", 2.0), Partition("green")))
    result = same_as_reference(workload, cluster, FCFS)
    assert statuses(result) == ["rejected"] * 5
    words = [REASONS[code] for code in result.table["reason"]]
    assert words == [REASONS[3], REASONS[1], REASONS[4], REASONS[2], REASONS[5]]
    assert result.totals["passes"] == 0
    assert np.isnan(result.table["start"]).all()


def test_a_node_without_devices_takes_cpu_jobs_only():
    cluster = Cluster(nodes([0, 2], cpus=[8, 8]), (GpuType("gpu"),))
    workload = jobs([0, 0, 0, 0], [10, 10, 10, 10], gpus=[0, 1, 0.5, 0], cpus=[8, 0, 0, 8])
    for placement in ("first", "best", "worst", "fewest", "random", "fastest"):
        result = same_as_reference(workload, cluster, parse_scheduler(f"fcfs/{placement}"))
        assert statuses(result) == ["done"] * 4
        assert (result.table["node"][1:3] == 1).all()


def test_a_cluster_without_any_device():
    cluster = Cluster(nodes([0, 0], cpus=[2, 2]), (GpuType("gpu"),))
    result = same_as_reference(jobs([0, 0, 1], [5, 5, 5], gpus=[0, 1, 0], cpus=[2, 0, 2]), cluster, parse_scheduler("sjf/best/easy"))
    assert statuses(result) == ["done", "rejected", "done"]


def test_a_partition_without_nodes_rejects_its_jobs():
    cluster = Cluster(nodes([2, 2]), (GpuType("gpu"),), (Partition("red"), Partition("empty")))
    columns = {"submit": [0, 0, 0], "gpus": [1, 1, 0], "cpus": [0, 0, 1], "partition": [0, 1, 1]}
    workload = Workload.build(columns, [5] * 3, partitions=("red", "empty"))
    for backfill in BACKFILLS:
        result = same_as_reference(workload, cluster, parse_scheduler(f"fcfs/best/{backfill}"))
        assert statuses(result) == ["done", "rejected", "rejected"]


# --- wide nodes -----------------------------------------------------------------------------------------------------------


def test_sixty_four_devices_on_a_node():
    """The set of all devices is a word of ones."""
    workload = jobs([0, 0, 1, 2], [10, 10, 10, 10], gpus=[64, 1, 0.5, 63])
    for backfill in BACKFILLS:
        result = same_as_reference(workload, Cluster.uniform(1, MAX_DEVICES), parse_scheduler(f"fcfs/best/{backfill}"))
        whole = result.segments[result.segments["gpus"] == 64]
        assert whole["devices"].tolist() == [2**64 - 1]


def test_sixty_four_devices_on_each_of_many_nodes():
    workload = jobs(np.arange(60.0), [100.0] * 60, gpus=[64, 63, 1, 128, 65, 2] * 10)
    for placement in ("first", "best", "worst", "fewest"):
        same_as_reference(workload, Cluster.uniform(17, MAX_DEVICES), parse_scheduler(f"fcfs/{placement}/skip"))


def test_a_pool_counts_and_is_never_shared():
    workload = jobs([0, 0, 0, 1], [10, 10, 10, 5], gpus=[65, 1, 0.5, 64])
    result = same_as_reference(workload, Cluster.uniform(1, MAX_DEVICES + 1), parse_scheduler("fcfs/best/easy"))
    assert statuses(result) == ["done", "done", "rejected", "done"]
    assert (result.segments["devices"] == 0).all()


def test_a_pool_among_many_nodes_goes_without_an_index():
    cluster = Cluster(nodes([8] * 20 + [100]), (GpuType("gpu"),))
    same_as_reference(jobs(np.arange(40.0), [30.0] * 40, gpus=[9, 100, 3, 8] * 10), cluster, parse_scheduler("fcfs/worst/skip"))


def test_a_partial_outage_of_a_pool():
    cluster = replace(Cluster.uniform(1, 70), outages=(Outage(0, 5.0, 50.0, 10), Outage(0, 8.0, 30.0, 100)))
    result = same_as_reference(jobs([0, 0, 1], [20, 20, 20], gpus=[40, 25, 5]), cluster, parse_scheduler("fcfs/best/skip"))
    assert statuses(result) == ["done"] * 3
    assert result.totals["failures"] > 0


# --- much at once ---------------------------------------------------------------------------------------------------------


AT_ONCE = {
    "fcfs": 100_000, "lcfs": 100_000, "f1/best/none": 100_000, "sjf/best/easy": 20_000, "saf/worst/skip": 20_000,
    "wfp3/fewest/easy:depth=5": 3_000, "saf/fewest/conservative:depth=5": 3_000,
}  # fmt: skip


@pytest.mark.parametrize("spec, n", AT_ONCE.items())
def test_a_hundred_thousand_jobs_at_one_instant(spec: str, n: int):
    """Fewer where the whole queue is looked at in every pass."""
    rng = np.random.default_rng(1)
    workload = jobs(np.zeros(n), rng.integers(1, 50, n), gpus=rng.integers(1, 9, n))
    result = simulate(workload, Cluster.uniform(250, 8), parse_scheduler(spec))
    assert (result.table["status"] == STATUS.index("done")).all()
    assert result.totals["queue_max"] > n / 2
    assert result.totals["queue_explosions"] == 1
    assert result.totals["busy/gpu"] == pytest.approx(float((workload.runtime * workload.jobs.gpus).sum()))


def test_the_log_of_segments_grows():
    rng = np.random.default_rng(2)
    workload = jobs(np.sort(rng.uniform(0, 5000, 5000)), rng.exponential(10, 5000), gpus=rng.integers(1, 33, 5000))
    result = simulate(workload, Cluster.uniform(16, 4), parse_scheduler("fcfs/best/easy"), segments=True)
    assert len(result.segments) > 10_000
    check_invariants(result.table, result.segments, workload, result.cluster, Rules())
    without = simulate(workload, result.cluster, parse_scheduler("fcfs/best/easy"), segments=False)
    assert np.array_equal(result.table, without.table)
    assert len(without.segments) == 0


def test_the_conservative_plan_grows():
    """It begins with no space at all and doubles as the queue does."""
    rng = np.random.default_rng(3)
    workload = jobs(np.sort(rng.uniform(0, 60, 40)), rng.uniform(10, 200, 40), gpus=rng.integers(1, 9, 40))
    result = same_as_reference(workload, Cluster.uniform(4, 4), parse_scheduler("fcfs/first/conservative"))
    assert result.totals["queue_max"] > 20


def test_a_conservative_plan_that_would_take_all_memory_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(driver, "MAX_PLAN", 1000)
    workload = jobs(np.zeros(500), np.ones(500), gpus=np.full(500, 8))
    with pytest.raises(SimulationError, match="at 0 s") as refusal:
        simulate(workload, Cluster.uniform(4, 4), parse_scheduler("fcfs/first/conservative"))
    assert "depth" in refusal.value.hint
    simulate(workload.head(20), Cluster.uniform(4, 4), parse_scheduler("fcfs/first/conservative:depth=2"))


def test_a_plan_over_several_partitions_and_a_switch_into_conservative():
    rng = np.random.default_rng(4)
    cluster = Cluster(nodes([4] * 9, partition=[0, 1, 1, 0, 1, 1, 1, 1, 0]), (GpuType("gpu"),), (Partition("red"), Partition("green")))
    workload = Workload.build(
        {"submit": np.sort(rng.uniform(0, 100, 60)), "gpus": rng.integers(1, 13, 60), "partition": rng.integers(0, 2, 60)},
        rng.uniform(1, 60, 60), partitions=("green", "red"),
    )  # fmt: skip
    schedulers = (parse_scheduler("fcfs"), parse_scheduler("sjf/best/conservative"))
    same_as_reference(workload, cluster, Meta(schedulers, parse_switch("backlog:limit=3")))  # type: ignore[arg-type]


# --- large numbers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_huge_times(backfill: str):
    workload = jobs([1e11, 1e11 + 1, 3e11, 1e12], [5.0, 1e11, 7.0, 1e11], gpus=[1, 2, 2, 1])
    result = same_as_reference(workload, Cluster.uniform(1, 2), parse_scheduler(f"fcfs/best/{backfill}"))
    assert result.table["end"].tolist() == [1e11 + 5, 2e11 + 5, 3e11 + 7, 1.1e12]
    assert len(result.timeline) <= BINS


def test_ten_years_in_two_thousand_bins():
    rng = np.random.default_rng(5)
    year = 365 * 86400.0
    workload = jobs(np.sort(rng.uniform(0, 10 * year, 300)), rng.exponential(10 * 86400.0, 300), gpus=rng.integers(1, 5, 300))
    result = same_as_reference(workload, Cluster.uniform(1, 4), parse_scheduler("fcfs/first/easy"))
    bins = result.timeline
    assert BINS / 2 <= len(bins) <= BINS
    width = np.diff(bins["time"])
    assert width == pytest.approx(2.0 ** np.round(np.log2(width[0])))
    assert (bins["span"] * bins["busy"]).sum() == pytest.approx(result.totals["busy/gpu"], rel=1e-9)
    assert (bins["span"] * bins["queue"]).sum() == pytest.approx(result.totals["queue_integral"], rel=1e-9)
    assert bins["span"].sum() == pytest.approx(result.totals["last_end"] - result.totals["first_submit"], rel=1e-12)


def test_bins_double_over_a_gap_in_which_nothing_happens():
    result = same_as_reference(jobs([0.0, 1e6], [1.0, 1.0]), Cluster.uniform(1, 1), FCFS)
    assert (result.timeline["busy"] * result.timeline["span"]).sum() == pytest.approx(2.0)


@pytest.mark.parametrize("every", [0.1, 0.7, 1 / 3, 7.3, 60.0])
def test_timers_whose_multiples_are_rounded_go_on(every: float):
    """3 × 0.7 / 0.7 is a little less than 3: a naive next multiple is the present one, for ever."""
    scheduler = parse_scheduler(f"las/fewest/none/las:threshold=20,every={every!r}")
    result = same_as_reference(jobs([0.0, 0.0, 1.0], [40.0, 30.0, 5.0], gpus=[1, 2, 1]), Cluster.uniform(1, 2), scheduler)
    assert statuses(result) == ["done"] * 3


def test_a_period_close_to_what_the_clock_resolves():
    scheduler = parse_scheduler("las/fewest/none/las:threshold=20,every=0.001")
    result = simulate(jobs([1e12 - 1, 1e12 - 1], [10.0, 10.0]), Cluster.uniform(1, 1), scheduler)
    assert statuses(result) == ["done"] * 2


# --- what never ends ------------------------------------------------------------------------------------------------------


def test_jobs_that_wait_for_a_node_that_never_comes_back_are_left_waiting():
    cluster = replace(Cluster.uniform(2, 2), outages=(Outage(0, 5.0, np.inf), Outage(1, 7.0, 30.0)))
    workload = jobs([0, 0, 6], [10, 10, 10], gpus=[4, 2, 3])
    for backfill in BACKFILLS:
        result = same_as_reference(workload, cluster, parse_scheduler(f"fcfs/best/{backfill}"))
        left = [STATUS[code] for code in result.table["status"]]
        assert left[0] == left[2] == "waiting"
        assert np.isnan(result.table["end"][[0, 2]]).all()
        assert result.table["preemptions"][0] == 1
        check_invariants(result.table, result.segments, workload, cluster, Rules())


def test_a_timer_does_not_keep_a_hopeless_simulation_alive():
    cluster = replace(Cluster.uniform(1, 1), outages=(Outage(0, 0.0, np.inf),))
    result = same_as_reference(jobs([1.0], [1.0]), cluster, parse_scheduler("fcfs/first/none/las:every=1"))
    assert statuses(result) == ["waiting"]


@pytest.mark.parametrize("backfill", BACKFILLS)
def test_a_timer_does_not_fire_while_nothing_runs_and_time_alone_changes_nothing(backfill: str):
    """The timer asked 10^10 times whether a job fits on a node that is down."""
    cluster = replace(Cluster.uniform(1, 2), outages=(Outage(0, 10.0, 1e11),))
    result = same_as_reference(
        jobs([0.0, 20.0, 30.0], [5.0, 40.0, 5.0], gpus=[1, 2, 1]), cluster, parse_scheduler(f"las/first/{backfill}/las:every=5")
    )
    assert result.table["start"].tolist() == [0.0, 1e11, 1e11 + 40.0]


@pytest.mark.parametrize("ends", [100.0, 3e9])
def test_las_is_not_asked_through_idle_time(ends: float):
    """Asked every second it would take hours, both while nothing is there and while the one that runs has nobody behind it."""
    workload = jobs([0.0, 1.0, 2e9, 2e9 + 1], [ends, 5.0, 100.0, 10.0])
    result = simulate(workload, Cluster.uniform(1, 2), parse_scheduler("las/fewest/none/las:threshold=20,every=1"))
    assert statuses(result) == ["done"] * 4
    assert result.table["end"].max() == pytest.approx(max(ends, 2e9 + 111 - 10 * (ends > 100)), abs=12)


def test_a_timer_fires_while_the_clock_may_change_the_order():
    """The second job fits but stands behind the first until it has waited longer, relative to its length."""
    cluster = replace(Cluster.uniform(2, 1), outages=(Outage(0, 0.0, 1e4),))
    workload = jobs([0.0, 10.0], [100.0, 5.0], gpus=[2, 1], estimate=[100.0, 5.0])
    result = same_as_reference(workload, cluster, parse_scheduler("wfp3/first/none/las:every=60"))
    assert 10.0 < result.table["start"][1] < 1e4


def test_the_time_up_ends_with_the_last_end():
    """A repair after the last end, which helps nobody, is no part of the accounts."""
    cluster = replace(Cluster.uniform(2, 2), outages=(Outage(0, 5.0, np.inf), Outage(1, 20.0, 100.0)))
    result = same_as_reference(jobs([0, 0], [10, 10], gpus=[1, 4], estimate=[10, 10]), cluster, parse_scheduler("smallest/first/skip"))
    assert statuses(result) == ["done", "waiting"]
    assert result.totals["last_end"] <= 20


# --- results --------------------------------------------------------------------------------------------------------------


def test_a_result_cannot_be_written_to_and_says_how_it_was_made():
    result = simulate(jobs([0, 1], [2, 3]), Cluster.uniform(1, 1), parse_scheduler("sjf/best/easy"), seed=4, segments=True)
    for array in (result.table, result.timeline, result.segments):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = array[0]
    assert result.manifest["measured"] is False
    assert result.manifest["scheduler"] == result.scheduler
    assert result.manifest["seed"] == 4


def test_a_simulation_leaves_the_workload_as_it_was():
    workload = jobs([3, 1, 2], [5, 5, 5], gpus=[1, 2, 1])
    before = workload.jobs.table.tobytes(), workload.runtime.tobytes()
    simulate(workload, Cluster.uniform(1, 2), parse_scheduler("sjf/best/easy/srpt"))
    assert (workload.jobs.table.tobytes(), workload.runtime.tobytes()) == before


def test_the_result_of_a_simulation_under_way():
    simulation = Simulation(jobs([0, 5], [10, 10]), Cluster.uniform(1, 1))
    simulation.advance()
    assert [STATUS[code] for code in simulation.result().table["status"]] == ["waiting", "pending"]


# --- crowds, circles, pauses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordering", ["sjf", "ljf", "saf", "wfp3", "lcfs"])
@pytest.mark.parametrize("count", [CROWD, CROWD + 1, 5 * CROWD])
def test_a_crowd_at_one_instant_is_ordered_like_single_arrivals(ordering: str, count: int):
    rng = np.random.default_rng(count)
    submit = np.concatenate([np.zeros(count), np.full(count, 40.0), [41.0, 42.0]])
    workload = jobs(submit, rng.integers(1, 30, len(submit)), gpus=rng.integers(1, 5, len(submit)))
    same_as_reference(workload, Cluster.uniform(2, 4), parse_scheduler(f"{ordering}/best/easy"))


def test_preemption_in_circles_is_refused_instead_of_going_on_for_ever():
    """Two jobs that stop each other every second, before either keeps anything."""

    def turns(jobs: Any, j: int, now: float) -> float:
        return jobs.ran[j] + (now - jobs.run_start[j] if jobs.status[j] == 2 else 0.0)

    scheduler = replace(parse_slots("las"), preemption=make_preemption(turns, "turns", every=1.0))
    with pytest.raises(SimulationError, match=r"job [12] was stopped 10,000 times"):
        simulate(jobs([0, 0], [100, 100]), Cluster.uniform(1, 1), scheduler, rules=Rules(checkpoint=50.0))


def test_a_run_longer_than_a_breath_is_the_same():
    rng = np.random.default_rng(8)
    workload = jobs(np.sort(rng.uniform(0, 1e5, 3 * BREATH)), rng.uniform(1, 30, 3 * BREATH))
    result = simulate(workload, Cluster.uniform(1, 2), parse_scheduler("fcfs"))
    start = np.zeros(len(workload))
    free = [0.0, 0.0]
    for j in range(len(workload)):
        start[j] = max(float(workload.jobs.submit[j]), min(free))
        free[free.index(min(free))] = start[j] + float(workload.runtime[j])
    assert result.totals["instants"] > 3 * BREATH
    np.testing.assert_array_equal(result.table["start"], start)


@pytest.mark.parametrize("seed", [-1, 2**63, 1.5])
def test_a_seed_that_is_no_seed(seed: Any):
    with pytest.raises(UsageError, match="seed"):
        simulate(jobs([0], [1]), Cluster.uniform(1, 1), parse_scheduler("fcfs"), seed)
