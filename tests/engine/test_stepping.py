"""Stopped at every decision, a simulation is the same simulation; decisions from outside are carried out or refused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest

from gpuyard import Action, Decision, Part, Result, Rules, Simulation, Snapshot, Workload, simulate
from gpuyard.errors import SimulationError
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Outage, Partition
from gpuyard.model.jobs import COLUMNS
from gpuyard.model.result import STATUS
from gpuyard.policies import Meta, Preemption, Scheduler, make_switch, parse_scheduler
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import Case, random_case
from support.schedulers import Fixed, every_policy, random_scheduler

POLICIES = list(every_policy())


def without_timer(scheduler: Scheduler | Meta) -> Scheduler | Meta:
    """Who decides from outside has no timer: a decision falls due with an event."""
    if isinstance(scheduler, Meta):
        return replace(scheduler, schedulers=tuple(without_timer(s) for s in scheduler.schedulers), every=0.0)  # type: ignore[misc]
    return replace(scheduler, preemption=replace(scheduler.preemption, every=0.0))


def stepped(case: Case, scheduler: Scheduler | Meta, seed: int) -> Result:
    simulation = Simulation(
        case.workload, case.cluster, label=scheduler.label, seed=seed, rules=case.rules, segments=True, half_life=scheduler.half_life
    )
    while (snapshot := simulation.advance()) is not None:
        simulation.apply(scheduler.decide(snapshot))
    return simulation.result()


@pytest.mark.parametrize("fixed", POLICIES, ids=lambda fixed: f"{fixed.slot} {fixed.policy.label}")
def test_stepping_gives_the_same_bytes_as_running(fixed: Fixed):
    if isinstance(fixed.policy, Preemption):
        fixed = Fixed(fixed.slot, replace(fixed.policy, every=0.0))
    first = 777_000 + 100 * POLICIES.index(fixed) if fixed in POLICIES else 776_000
    for seed in range(first, first + 6):
        case, scheduler = random_case(seed), without_timer(random_scheduler(seed, fixed))
        whole = simulate(case.workload, case.cluster, scheduler, seed=seed, rules=case.rules, segments=True)
        assert whole.same_bytes(stepped(case, scheduler, seed)), f"case {seed}, {scheduler.label}"


@pytest.mark.parametrize("seed", range(4))
def test_stepping_on_many_nodes(seed: int):
    case, scheduler = random_case(seed, "rack"), without_timer(random_scheduler(seed))
    whole = simulate(case.workload, case.cluster, scheduler, seed=seed, rules=case.rules, segments=True)
    assert whole.same_bytes(stepped(case, scheduler, seed))


def arrivals(system: Any, now: float) -> Any:
    return 1 if system.recent >= 3 else 0


def test_jobs_that_came_and_went_count_as_recent():
    """At 1000 s four jobs have come within 300 s; two of them have ended, and two older jobs are still there."""
    columns = {
        "submit": [0.0, 0.0, 900.0, 950.0, 1000.0, 1000.0],
        "gpus": [2, 3, 1, 1, 2, 1],
        "estimate": [3000.0, 5.0, 5.0, 5.0, 5.0, 5.0],
    }
    workload = Workload.build(columns, [3000.0, 5.0, 5.0, 5.0, 5.0, 5.0])
    schedulers = (parse_scheduler("fcfs/first/skip"), parse_scheduler("smallest/first/skip"))
    meta = Meta(schedulers, make_switch(arrivals, "arrivals"))  # type: ignore[arg-type]
    case = Case(workload, Cluster.uniform(1, 4), Rules(), frozenset())
    whole = simulate(workload, case.cluster, meta, segments=True)
    assert whole.same_bytes(stepped(case, meta, 0))
    assert whole.table["start"][4:].tolist() == [1005.0, 1000.0]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_stepping_gives_the_same_bytes_on_more_cases(part: int):
    for seed in range(200_000 + 100 * part, 200_000 + 100 * part + 100):
        case, scheduler = random_case(seed), without_timer(random_scheduler(seed))
        whole = simulate(case.workload, case.cluster, scheduler, seed=seed, rules=case.rules, segments=True)
        assert whole.same_bytes(stepped(case, scheduler, seed)), f"case {seed}, {scheduler.label}"


# --- schedulers written as a class ------------------------------------------------------------------------------------


class FirstFit:
    """First come, first served on the first node with enough free GPUs, from the snapshot alone. Gangs sit on one node."""

    label = "first fit"

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        free = snapshot.free_gpus()
        decisions = []
        for row in snapshot.waiting:
            gpus = int(snapshot.jobs.gpus[row])
            roomy = np.flatnonzero(free >= gpus)
            if len(roomy) == 0:
                break
            free[roomy[0]] -= gpus
            decisions.append(Decision(int(snapshot.jobs.index[row]), Action.START, (Part(int(roomy[0]), gpus),)))
        return decisions


class AsPlaced:
    """First come, first served, the nodes left to the engine."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        free = int(snapshot.free_gpus().sum())
        decisions = []
        for row in snapshot.waiting:
            free -= int(snapshot.jobs.gpus[row])
            if free < 0:
                break
            decisions.append(Decision(int(snapshot.jobs.index[row])))
        return decisions


def on_one_node_each(seed: int) -> tuple[Workload, Cluster]:
    rng = np.random.default_rng(seed)
    n = 200
    gpus = rng.integers(1, 5, n)
    columns = {"submit": np.cumsum(rng.exponential(5, n)), "gpus": gpus, "chunk": gpus}
    return Workload.build(columns, rng.exponential(60, n)), Cluster.uniform(5, 4)


def test_a_class_that_decides_equals_the_compiled_policy():
    workload, cluster = on_one_node_each(1)
    ours = simulate(workload, cluster, FirstFit(), segments=True)
    compiled = simulate(workload, cluster, parse_scheduler("fcfs/first"), segments=True)
    assert ours.scheduler == "first fit"
    assert np.array_equal(ours.table, compiled.table)
    assert np.array_equal(ours.segments, compiled.segments)


def test_a_decision_without_parts_is_placed_on_the_fewest_nodes():
    rng = np.random.default_rng(2)
    workload = Workload.build({"submit": np.sort(rng.uniform(0, 500, 150)), "gpus": rng.integers(1, 12, 150)}, rng.exponential(60, 150))
    cluster = Cluster.uniform(4, 4)
    ours = simulate(workload, cluster, AsPlaced(), segments=True)
    compiled = simulate(workload, cluster, parse_scheduler("fcfs/fewest"), segments=True)
    assert np.array_equal(ours.table, compiled.table)
    assert np.array_equal(ours.segments, compiled.segments)


# --- what a snapshot shows --------------------------------------------------------------------------------------------


def reachable(thing: Any, path: str = "snapshot", depth: int = 6) -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Every array that can be reached from a thing, by attributes, items and views' bases."""
    if isinstance(thing, np.ndarray):
        yield path, thing
        if isinstance(thing.base, np.ndarray):
            yield from reachable(thing.base, path + ".base", depth - 1)
    elif depth > 0 and isinstance(thing, dict):
        for key, value in thing.items():
            yield from reachable(value, f"{path}[{key!r}]", depth - 1)
    elif depth > 0 and isinstance(thing, (list, tuple)):
        for i, value in enumerate(thing):
            yield from reachable(value, f"{path}[{i}]", depth - 1)
    elif depth > 0 and is_dataclass(thing):
        for field in fields(thing):
            yield from reachable(getattr(thing, field.name), f"{path}.{field.name}", depth - 1)
        for name, value in vars(thing).items():
            yield from reachable(value, f"{path}.{name}", depth - 1)


def test_no_array_reachable_from_a_snapshot_holds_a_run_time_or_a_job_to_come():
    rng = np.random.default_rng(3)
    n = 60
    runtime = 1000 + rng.random(n)  # values that occur nowhere else
    submit = np.sort(rng.uniform(0, 2000, n)) + 0.123
    columns = {"submit": submit, "gpus": rng.integers(1, 5, n), "estimate": np.full(n, 777.0)}
    simulation = Simulation(Workload.build(columns, runtime), Cluster.uniform(4, 4))
    scheduler = parse_scheduler("fcfs/first/easy")
    seen = 0
    while (snapshot := simulation.advance()) is not None:
        for path, array in reachable(snapshot):
            columns_of = [array[name] for name in array.dtype.names] if array.dtype.names else [array]
            for values in columns_of:
                if values.dtype.kind == "f":
                    assert not np.isin(values, runtime).any(), f"{path} holds hidden run times"
                    assert not np.isin(values, submit[submit > snapshot.now]).any(), f"{path} tells of jobs to come"
            seen += 1
        simulation.apply(scheduler.decide(snapshot))
    assert seen > 100


def test_a_snapshot_does_not_tell_of_outages_to_come():
    cluster = replace(Cluster.uniform(2, 4), outages=(Outage(0, 50.0, 60.0), Outage(1, 5.0, 1000.0, 2)))
    simulation = Simulation(Workload.build({"submit": [0, 10]}, [100, 10]), cluster)
    while (snapshot := simulation.advance()) is not None:
        assert all(outage.start <= snapshot.now for outage in snapshot.cluster.outages)
        assert all(outage.end > 1e300 or outage.end <= snapshot.now for outage in snapshot.cluster.outages)
        simulation.apply([Decision(int(snapshot.jobs.index[row])) for row in snapshot.waiting])


def test_permuting_the_run_times_of_waiting_jobs_changes_no_decision():
    rng = np.random.default_rng(4)
    columns = {"submit": np.zeros(40), "gpus": rng.integers(1, 5, 40), "estimate": rng.uniform(1, 9, 40)}
    runtime = rng.uniform(1, 9, 40)
    scheduler = parse_scheduler("sjf/best/conservative/srpt")
    made = []
    for truth in (runtime, runtime[::-1]):
        simulation = Simulation(Workload.build(columns, truth), Cluster.uniform(2, 4))
        snapshot = simulation.advance()
        assert snapshot is not None
        made.append(scheduler.decide(snapshot))
    assert made[0] == made[1]
    assert made[0]


def test_the_columns_of_a_snapshots_jobs_are_those_submitted():
    case = random_case(17)
    simulation = Simulation(case.workload, case.cluster, rules=case.rules)
    snapshot = simulation.advance()
    assert snapshot is not None
    for name in COLUMNS:
        assert np.array_equal(getattr(snapshot.jobs, name), getattr(case.workload.jobs, name)[snapshot.jobs.index])


# --- decisions that are refused, and the less usual ones ------------------------------------------------------------------


def two_partitions(**columns: Any) -> tuple[Workload, Cluster]:
    """Nodes 0 and 1 (4 GPUs each) are red, node 2 is green; four jobs at 10 s: 2 GPUs, a pair in chunks of 2, a half, a CPU job."""
    nodes = Nodes(
        ("a", "b", "c"), np.array([4, 4, 4], np.int32), np.zeros(3, np.int32), np.full(3, 16.0), np.full(3, 64.0),
        np.zeros(3, np.int32), np.array([0, 0, 1], np.int32),
    )  # fmt: skip
    cluster = Cluster(nodes, (GpuType("gpu"),), (Partition("red"), Partition("green")))
    rows = {
        "submit": [10.0] * 4 + [500.0], "gpus": [2, 4, 0.5, 0, 1], "chunk": [1, 2, 1, 1, 1], "cpus": [0, 0, 0, 2, 0],
        "partition": [0] * 5, **columns,
    }  # fmt: skip
    return Workload.build(rows, [100.0] * 5, partitions=("red",)), cluster


def at_the_first_decision() -> Simulation:
    simulation = Simulation(*two_partitions(), segments=True)
    assert simulation.advance() is not None
    return simulation


REFUSED = {
    "unknown job": (Decision(99), "the job does not exist"),
    "negative job": (Decision(-1), "the job does not exist"),
    "not submitted": (Decision(4), "not waiting"),
    "node of another partition": (Decision(0, parts=(Part(2, 2),)), "node 2 is not of its partition"),
    "no such node": (Decision(0, parts=(Part(7, 2),)), "node 7"),
    "negative node": (Decision(0, parts=(Part(-1, 2),)), "node -1"),
    "too few GPUs": (Decision(0, parts=(Part(0, 1),)), "asks for 2"),
    "too many GPUs": (Decision(0, parts=(Part(0, 3),)), "asks for 2"),
    "a node twice": (Decision(0, parts=(Part(0, 1), Part(0, 1))), "twice"),
    "half a device for a gang": (Decision(0, parts=(Part(0, 1.5), Part(1, 0.5))), "chunk"),
    "no GPUs on a node": (Decision(0, parts=(Part(0, 2), Part(1, 0))), "chunk"),
    "negative GPUs": (Decision(0, parts=(Part(0, 3), Part(1, -1))), "chunk"),
    "against the chunk": (Decision(1, parts=(Part(0, 3), Part(1, 1))), "chunk"),
    "a share in two parts": (Decision(2, parts=(Part(0, 0.25), Part(1, 0.25))), "2 parts"),
    "a CPU job in two parts": (Decision(3, parts=(Part(0, 0), Part(1, 0))), "2 parts"),
    "no such device": (Decision(2, parts=(Part(0, 0.5, (4,)),)), "device 4"),
    "negative device": (Decision(2, parts=(Part(0, 0.5, (-1,)),)), "device -1"),
    "far device": (Decision(2, parts=(Part(0, 0.5, (1 << 40,)),)), "device"),
    "preempt what waits": (Decision(0, Action.PREEMPT), "not running"),
    "migrate what waits": (Decision(0, Action.MIGRATE), "not running"),
    "hold what is not there": (Decision(50, Action.HOLD), "the job does not exist"),
}


@pytest.mark.parametrize("decision, words", REFUSED.values(), ids=REFUSED.keys())
def test_a_decision_that_cannot_be_carried_out_names_job_and_time(decision: Decision, words: str):
    simulation = at_the_first_decision()
    with pytest.raises(SimulationError) as refusal:
        simulation.apply([decision])
    assert f"job {decision.job} at 10 s" in str(refusal.value)
    assert words in str(refusal.value)


def test_what_does_not_fit_is_refused():
    simulation = at_the_first_decision()
    simulation.apply([Decision(1, parts=(Part(0, 4),)), Decision(0, parts=(Part(1, 2),))])
    with pytest.raises(SimulationError, match="cannot start job 2 at 10 s: it does not fit now"):
        simulation.apply([Decision(2, parts=(Part(0, 0.5),))])
    with pytest.raises(SimulationError, match="cannot start job 0 at 10 s: it is not waiting"):
        simulation.apply([Decision(0)])


def test_a_refused_decision_changes_nothing():
    simulation = at_the_first_decision()
    with pytest.raises(SimulationError):
        simulation.apply([Decision(0, parts=(Part(0, 1),))])
    simulation.apply([Decision(0), Decision(1), Decision(2), Decision(3)])
    while (snapshot := simulation.advance()) is not None:
        simulation.apply([Decision(int(snapshot.jobs.index[row])) for row in snapshot.waiting])
    result = simulation.result()
    assert result.table["start"].tolist() == [10.0, 10.0, 10.0, 10.0, 500.0]
    check_invariants(result.table, result.segments, result.workload, result.cluster, Rules())


def test_the_quota_binds_decisions_from_outside():
    cluster = Cluster.uniform(2, 4)
    cluster = replace(cluster, partitions=(Partition("all", 3.0),))
    simulation = Simulation(Workload.build({"submit": [0, 0], "gpus": [2, 2]}, [5, 5]), cluster)
    simulation.advance()
    with pytest.raises(SimulationError, match="job 1"):
        simulation.apply([Decision(0, parts=(Part(0, 2),)), Decision(1, parts=(Part(1, 2),))])


def test_a_share_goes_to_the_device_named():
    workload = Workload.build({"submit": [0, 0, 0], "gpus": [0.5, 0.25, 0.5]}, [9, 9, 9])
    simulation = Simulation(workload, Cluster.uniform(1, 4), segments=True)
    assert simulation.advance() is not None
    for job, part in enumerate((Part(0, 0.5, (3,)), Part(0, 0.25, (1,)), Part(0, 0.5, (3,)))):
        simulation.apply([Decision(job, parts=(part,))])
    assert simulation.advance() is None
    assert simulation.result().segments["devices"].tolist() == [8, 2, 8]


def test_whole_devices_are_interchangeable():
    simulation = at_the_first_decision()
    simulation.apply([Decision(0, parts=(Part(0, 2, (2, 3)),)), Decision(1), Decision(2), Decision(3)])
    while (snapshot := simulation.advance()) is not None:
        simulation.apply([Decision(int(snapshot.jobs.index[row])) for row in snapshot.waiting])
    segments = simulation.result().segments
    assert segments["devices"][segments["job"] == 0].tolist() == [0b11]


def test_a_device_that_is_taken_is_refused_for_a_share():
    simulation = Simulation(Workload.build({"submit": [0, 0, 0], "gpus": [1, 0.75, 0.5]}, [9, 9, 9]), Cluster.uniform(1, 4))
    simulation.advance()
    simulation.apply([Decision(0), Decision(1, parts=(Part(0, 0.75, (2,)),))])
    for device in (0, 2):
        with pytest.raises(SimulationError, match=f"job 2 at 0 s: device {device} of node 0"):
            simulation.apply([Decision(2, parts=(Part(0, 0.5, (device,)),))])


def test_holding_leaves_a_job_where_it_is():
    simulation = at_the_first_decision()
    simulation.apply([Decision(0, Action.HOLD), Decision(1), Decision(2), Decision(3)])
    snapshot = simulation.advance()
    assert snapshot is not None
    assert snapshot.now == 110.0  # nothing happens before the others end
    assert snapshot.jobs.index[snapshot.waiting].tolist() == [0]


def test_migration_costs_a_restart_and_keeps_what_the_checkpoint_kept():
    workload = Workload.build({"submit": [0.0, 30.0], "gpus": [1, 1]}, [100.0, 1.0])
    rules = Rules(checkpoint=20.0, restart_cost=7.0)
    simulation = Simulation(workload, Cluster.uniform(2, 1), rules=rules, segments=True)
    simulation.advance()
    simulation.apply([Decision(0, parts=(Part(0, 1),))])
    snapshot = simulation.advance()
    assert snapshot is not None
    assert snapshot.now == 30.0
    simulation.apply([Decision(0, Action.MIGRATE, (Part(1, 1),)), Decision(1, parts=(Part(0, 1),))])
    assert simulation.advance() is None
    result = simulation.result()
    assert result.totals["migrations"] == 1
    assert result.table["end"].tolist() == [30.0 + 7.0 + 80.0, 31.0]  # of 30 s of work 20 were kept
    assert result.table["preemptions"].tolist() == [1, 0]
    assert result.table["node"].tolist() == [1, 0]
    check_invariants(result.table, result.segments, workload, result.cluster, rules)


def test_stopping_and_starting_at_one_instant_thousands_of_times_is_logged_in_full():
    """The log grows in the middle of a set of decisions, too."""
    simulation = Simulation(Workload.build({"submit": [0.0], "gpus": [1]}, [10.0]), Cluster.uniform(1, 1), segments=True)
    simulation.advance()
    simulation.apply([Decision(0), Decision(0, Action.PREEMPT)] * 5000 + [Decision(0)])
    assert simulation.advance() is None
    result = simulation.result()
    assert len(result.segments) == 5001
    assert result.table["end"].tolist() == [10.0]
    assert result.table["preemptions"].tolist() == [5000]


def test_preemption_from_outside_puts_a_job_back():
    simulation = Simulation(Workload.build({"submit": [0.0, 5.0], "gpus": [1, 1]}, [10.0, 3.0]), Cluster.uniform(1, 1), segments=True)
    simulation.advance()
    simulation.apply([Decision(0)])
    simulation.advance()
    simulation.apply([Decision(0, Action.PREEMPT), Decision(1)])
    snapshot = simulation.advance()
    assert snapshot is not None
    assert snapshot.live["done"].tolist() == [5.0]
    simulation.apply([Decision(0)])
    assert simulation.advance() is None
    assert simulation.result().table["end"].tolist() == [13.0, 8.0]
    assert simulation.result().totals["preemptions"] == 1


# --- the two ways are not mixed ---------------------------------------------------------------------------------------


def test_a_simulation_with_a_scheduler_is_run_and_one_without_is_stepped():
    workload, cluster = two_partitions()
    with pytest.raises(SimulationError, match="run"):
        Simulation(workload, cluster, parse_scheduler("fcfs").program()).advance()
    with pytest.raises(SimulationError, match="advance"):
        Simulation(workload, cluster).run()


def test_decide_leaves_the_snapshot_as_it_was():
    case = random_case(5)
    simulation = Simulation(case.workload, case.cluster, rules=case.rules)
    snapshot = simulation.advance()
    assert snapshot is not None
    scheduler = random_scheduler(5)
    arrays = (snapshot.jobs.table, snapshot.live, snapshot.held, snapshot.nodes)
    before = [array.tobytes() for array in arrays]
    assert scheduler.decide(snapshot) == scheduler.decide(snapshot)
    assert [array.tobytes() for array in arrays] == before


def test_the_reference_agrees_with_stepping():
    """Three ways, one answer: the comparison of stepped simulations with the reference itself."""
    for seed in range(20):
        scheduler = without_timer(random_scheduler(seed))

        def by_steps(workload: Workload, cluster: Cluster, given: Any, *, seed: int, rules: Rules, segments: bool) -> Result:
            return stepped(Case(workload, cluster, rules, frozenset()), given, seed)

        assert compare_with_reference(random_case(seed), scheduler, by_steps, seed=seed) == []


def test_a_result_taken_on_the_way_does_not_change_when_the_simulation_goes_on():
    case = random_case(3)
    scheduler = parse_scheduler("fcfs")
    simulation = Simulation(case.workload, case.cluster, rules=case.rules)
    snapshot = simulation.advance()
    assert snapshot is not None
    early = simulation.result()
    kept = early.table.tobytes()
    while snapshot is not None:
        simulation.apply(scheduler.decide(snapshot))
        snapshot = simulation.advance()
    assert early.table.tobytes() == kept
    assert simulation.result().table.tobytes() != kept


@pytest.mark.parametrize("seed", range(630_000, 630_012))
def test_every_end_before_the_last_decision_is_told_of_once_as_it_was(seed: int):
    case = random_case(seed)
    simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules)
    scheduler = parse_scheduler("sjf/first/skip")
    told: list[Any] = []
    last = 0.0
    while (snapshot := simulation.advance()) is not None:
        assert not np.isin(snapshot.ended["job"], snapshot.jobs.index).any()
        assert (snapshot.ended["end"] <= snapshot.now).all()
        told += snapshot.ended.tolist()
        last = snapshot.now
        simulation.apply(scheduler.decide(snapshot))
    table = simulation.result().table
    over = np.isin(table["status"], [STATUS.index("done"), STATUS.index("killed")])
    expected = np.flatnonzero(over & (table["end"] < last)).tolist()
    jobs = [line[0] for line in told]
    assert len(set(jobs)) == len(jobs)
    assert set(expected) <= set(jobs) <= set(np.flatnonzero(over & (table["end"] <= last)).tolist())
    for job, node, start, end, killed in told:
        assert end == table["end"][job]
        assert node == table["node"][job]
        assert killed == (table["status"][job] == STATUS.index("killed"))
        if table["preemptions"][job] == 0:
            assert start == table["start"][job]
