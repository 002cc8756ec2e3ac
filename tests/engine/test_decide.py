"""Deciders see and choose, from snapshots, what schedulers see and choose inside simulations."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from gpuyard import Simulation, Workload, simulate
from gpuyard.engine import simulation
from gpuyard.engine.kernels.events import PASS, PREPARE
from gpuyard.engine.snapshots import snapshot_of
from gpuyard.engine.state import VISIBLE_NAMES
from gpuyard.errors import DataError, PolicyError, UsageError
from gpuyard.features.hosts import HOST as HOST_SCHEMA
from gpuyard.features.jobs import JOB as JOB_SCHEMA
from gpuyard.features.system import SWITCH as SWITCH_SCHEMA
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Partition
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.jobs import JOB as JOB_COLUMNS
from gpuyard.model.jobs import LABELS, Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import HELD, LIVE, NODE, Snapshot
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Meta, make_ordering, parse_slots
from gpuyard.policies.learned import network_ordering, network_placement, network_switch
from gpuyard.testing.reference.network import random_arrays
from gpuyard.testing.strategies import random_case

SWITCH = NetworkSpec(0, len(SWITCH_SCHEMA.context), actions=3, context_layers=(16,), memory_layers=(8,), history=32, head_layers=(16,))
JOB = NetworkSpec(len(JOB_SCHEMA.rows), len(JOB_SCHEMA.context), head_layers=(16,))
HOST = NetworkSpec(len(HOST_SCHEMA.rows), len(HOST_SCHEMA.context), row_layers=(8,), head_layers=(16,), pool="mean")


def network(spec, seed=0):
    return Network.of(spec, random_arrays(spec, np.random.default_rng(seed)))


def switching(every=0.0, seed=0):
    schedulers = tuple(map(parse_slots, ("fcfs/first/none", "sjf/best/none", "saf/fewest/skip")))
    return Meta(schedulers, network_switch(network(SWITCH, seed), "learned"), every)


def ordering(seed=0, backfill="none"):
    return replace(parse_slots(f"fcfs/fewest/{backfill}"), ordering=network_ordering(network(JOB, seed), "learned"))


def placing(seed=0):
    return replace(parse_slots("fcfs/first/none"), placement=network_placement(network(HOST, seed), "learned"))


def snapshots_of(case, scheduler):
    """One at every decision of the scheduler's own run."""
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    while (snapshot := sim.advance()) is not None:
        yield snapshot
        sim.apply(scheduler.decide(snapshot))


def loaded(scheduler, snapshot, order):
    """The state that a new decider makes of a snapshot, after an order."""
    driver = scheduler.begin().load(snapshot)
    driver.order(PREPARE)
    if order != PREPARE:
        driver.order(order)
    return driver.state


def now_of(sim):
    return snapshot_of(sim.state, sim.workload.jobs, sim._visible_cluster, sim.rules, sim.seed, sim._mix)


CASES = [random_case(seed, scale) for seed, scale in [(s, "small") for s in range(20)] + [(s, "rack") for s in range(3)]]
ALL, SOME = range(len(CASES)), range(12)


@pytest.mark.parametrize("number", SOME)
def test_a_switch_sees_what_the_engine_sees(number):
    case = CASES[number]
    meta = switching()
    decider = meta.begin()
    for snapshot in snapshots_of(case, parse_slots("sjf/best/easy")):
        decider.load(snapshot).state.scratch[:] = 0.0  # where there is nothing to choose, no feature is written
        decider.forget()
        chosen = decider.choose_scheduler(snapshot)
        s = loaded(meta, snapshot, PASS)
        np.testing.assert_array_max_ulp(decider.state.scratch[: SWITCH.context], s.scratch[: SWITCH.context], 1)
        assert chosen == s.control["active"][0]


@pytest.mark.parametrize("number", SOME)
def test_an_ordering_sees_what_the_engine_sees(number):
    case = CASES[number]
    scheduler = ordering()
    decider = scheduler.begin()
    for snapshot in snapshots_of(case, scheduler):
        for p in range(len(case.cluster.partitions)):
            decider.choose_first(snapshot, partition=p)
        s = loaded(scheduler, snapshot, PREPARE)
        waiting = [p for p, part in enumerate(s.partitions) if part["head"] < part["tail"]]
        chosen = decider.choose_first(snapshot, partition=waiting[-1])  # the pass ordered this partition last
        np.testing.assert_array_max_ulp(decider.state.scratch[: JOB.context], s.scratch[: JOB.context], 1)
        assert chosen.job == snapshot.jobs.index[s.queue_jobs[s.partitions["head"][waiting[-1]]]]


@pytest.mark.parametrize("number", ALL)
def test_a_simulation_driven_by_first_jobs_is_that_of_the_scheduler(number):
    case = CASES[number]
    scheduler = ordering(seed=number)
    decider = scheduler.begin()
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    while (snapshot := sim.advance()) is not None:
        for p in range(len(case.cluster.partitions)):
            while (decision := decider.choose_first(snapshot, partition=p)) is not None and decision.action is Action.START:
                sim.apply([decision])
                snapshot = now_of(sim)
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    assert_same(sim.result(), expected)


@pytest.mark.parametrize("number", ALL)
def test_a_simulation_driven_by_first_hosts_is_that_of_the_scheduler(number):
    case = CASES[number]
    scheduler = placing(seed=number)
    decider = scheduler.begin()
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    numbers = case.cluster.partition_numbers
    while (snapshot := sim.advance()) is not None:
        for p in range(len(case.cluster.partitions)):
            while True:
                waiting = [row for row in snapshot.waiting if numbers.get(snapshot.jobs.partitions[snapshot.jobs.partition[row]], 0) == p]
                if not waiting or (decision := decider.choose_first(snapshot, row=int(waiting[0]))).action is Action.HOLD:
                    break
                sim.apply([decision])
                snapshot = now_of(sim)
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    assert_same(sim.result(), expected)


@pytest.mark.parametrize("every", [0.0, 7.0])
@pytest.mark.parametrize("number", SOME)
def test_a_simulation_driven_by_a_decider_that_remembers_is_that_of_the_scheduler(number, every):
    case = CASES[number]
    meta = switching(every, seed=number)
    decider = meta.begin()
    sim = Simulation(case.workload, case.cluster, rules=case.rules, every=every)
    while (snapshot := sim.advance()) is not None:
        sim.apply(decider.decide(snapshot))
    expected = simulate(case.workload, case.cluster, meta, rules=case.rules)
    assert_same(sim.result(), expected)


def assert_same(found, expected):
    for name in ("start", "end", "node", "status"):
        assert np.array_equal(found.table[name], expected.table[name], equal_nan=found.table[name].dtype.kind == "f"), name


def test_read_only_arrays_and_another_cluster_are_fine():
    decider = ordering().begin()
    for case in CASES[:3]:
        snapshot = next(snapshots_of(case, parse_slots("fcfs")), None)
        if snapshot is None:
            continue
        first = decider.choose_first(snapshot)
        snapshot.live.flags.writeable = False
        assert decider.choose_first(snapshot) == first


def test_a_score_that_is_not_a_number_is_named_in_one_line():
    case = CASES[0]
    arrays = random_arrays(JOB, np.random.default_rng(0))
    arrays["head.0.bias"][:] = 3e38
    arrays["head.1.weight"][:] = 3e38
    arrays["head.1.weight"][:, 0] = -3e38  # ∞ − ∞
    scheduler = replace(parse_slots("fcfs"), ordering=network_ordering(Network.of(JOB, arrays), "broken"))
    snapshot = next(snapshots_of(case, parse_slots("fcfs")))
    for ask in (scheduler.decide, scheduler.begin().choose_first):
        with pytest.raises(PolicyError, match=r"broken/fewest/none: .* returned NaN for job \d+ at"):
            ask(snapshot)


def test_a_partition_that_is_not_there_is_refused():
    snapshot = next(snapshots_of(CASES[0], parse_slots("fcfs")))
    for partition in (-1, len(snapshot.cluster.partitions), 10**6):
        with pytest.raises(UsageError, match="the cluster has"):
            ordering().begin().choose_first(snapshot, partition=partition)


def two_partitions(labels, number):
    """One job waits in the partition labels[number] of a cluster with a node in a and a node in b."""
    jobs, _ = Jobs.build({"submit": [0.0], "estimate": [10.0], "partition": [number]}, partitions=labels)
    return Snapshot(1.0, jobs, np.zeros(1, LIVE), np.zeros(0, HELD), np.array([(0, 0, 1)] * 2, NODE), TWO, Rules(), 0)


TWO = Cluster(
    Nodes(("a0", "b0"), *(np.array(v) for v in ([1, 1], [0, 0], [np.inf] * 2, [np.inf] * 2, [0, 0], [0, 1]))),
    (GpuType("gpu"),), (Partition("a"), Partition("b")),
)  # fmt: skip


def test_labels_may_change_from_one_snapshot_to_the_next():
    decider = ordering().begin()
    assert decider.choose_first(two_partitions(("a",), 0), partition=0).parts[0].node == 0
    assert decider.choose_first(two_partitions(("b", "a"), 0), partition=1).parts[0].node == 1
    assert decider.choose_first(two_partitions(("b", "a"), 1), partition=0).parts[0].node == 0
    assert decider.decide(two_partitions(("b", "a"), 0)) == [Decision(0, Action.START, (Part(1, 1.0, (0,)),))]


def held(**values):
    row = np.zeros(1, HELD)
    row["device"] = -1
    for name, value in values.items():
        row[name] = value
    return row


def running(snapshot):
    live = snapshot.live.copy()
    live["running"] = True
    return live


def with_column(snapshot, name, value):
    table = snapshot.jobs.table.copy()
    table[name] = value
    return snapshot.jobs.with_table(table)


def with_live(snapshot, name, value):
    live = running(snapshot)
    live[name] = value
    return live


UNSOUND = {
    "nodes missing": lambda s: {"nodes": s.nodes[:1]},
    "live missing": lambda s: {"live": s.live[:0]},
    "a device too many": lambda s: {"nodes": np.array([(0, 0, 3), (0, 0, 1)], NODE)},
    "held by a row that is not there": lambda s: {"live": running(s), "held": held(row=7)},
    "held by a job that waits": lambda s: {"held": held()},
    "held on a node that is not there": lambda s: {"live": running(s), "held": held(node=99)},
    "a share of a device that is not there": lambda s: {"live": running(s), "held": held(device=5)},
    "held devices that are not there": lambda s: {"live": running(s), "held": held(gpus=1, devices=2)},
    **{f"a {name} that is not there": lambda s, name=name: {"jobs": with_column(s, name, 9)} for name in LABELS if name != "account"},
    "devices missing that were never there": lambda s: {"nodes": np.array([(0, -2, 1), (0, 0, 1)], NODE)},
    "held twice": lambda s: {"live": running(s), "held": np.repeat(held(gpus=1, devices=1), 2)},
    "an end that is not a number": lambda s: {"live": with_live(s, "est_end", np.nan)},
    "a start before time": lambda s: {"live": with_live(s, "run_start", -1e300)},
    "no time": lambda s: {"now": np.nan},
}  # fmt: skip


@pytest.mark.parametrize("what", UNSOUND)
def test_a_snapshot_that_refers_to_nothing_is_refused(what):
    decider, snapshot = ordering().begin(), two_partitions(("a", "b"), 0)
    expected = decider.decide(snapshot)
    unsound = replace(snapshot, **UNSOUND[what](snapshot))
    for ask in (decider.decide, decider.choose_first, parse_slots("fcfs").decide):
        with pytest.raises(DataError, match="snapshot: "):
            ask(unsound)
    assert decider.decide(snapshot) == expected


def test_only_a_waiting_job_gets_a_host():
    case = CASES[0]
    snapshot = next(snapshots_of(case, parse_slots("fcfs")))
    with pytest.raises(UsageError, match="not a waiting job"):
        placing().begin().choose_first(snapshot, row=len(snapshot.jobs))


# ── one row for a job, in a simulation and from a snapshot ──


def every_column_differs():
    """Three jobs that wait: no column has a default in it, or the same value as another."""
    count, columns = 3, {}
    for k, name in enumerate(JOB_COLUMNS.names):
        columns[name] = np.array([1, 2, 3]) if name in LABELS else 10.0 * (k + 1) + np.array([0.0, 2.0, 4.0])
    columns |= {"submit": np.zeros(count), "gpus": [6, 8, 7], "chunk": [2, 4, 7], "index": np.arange(count)}
    names = {labels: tuple(f"{labels}{k}" for k in range(4)) for labels in LABELS.values()}
    names |= {
        "gpu_types": ("", "gpu", "gpu|gpu", ""),
        "partitions": ("", "p", "q", "r"),
        "term_texts": ("", "drain=1", "drain=2", "drain=3"),
    }
    jobs, _ = Jobs.build({name: values for name, values in columns.items() if name != "index"}, **names)
    partitions = tuple(Partition(name, priority=10.0 * (k + 1)) for k, name in enumerate("pqr"))
    nodes = Nodes(tuple("abc"), *(np.array(v) for v in ([8] * 3, [0] * 3, [1e4] * 3, [1e4] * 3, [0] * 3, [0, 1, 2])))
    qos = {f"qoses{k}": 1.0 + k for k in range(4)}
    return Workload(jobs, np.ones(count)), Cluster(nodes, (GpuType("gpu"),), partitions, qos=qos)


def column(state, name):
    return next(part[name] for part in (state.rows, state.table, state.factors) if name in part.dtype.names)


def test_every_column_of_a_job_has_the_same_value_in_a_simulation_and_from_a_snapshot(monkeypatch):
    monkeypatch.setattr(simulation, "_OUTSIDE", replace(simulation._OUTSIDE, factors=True))
    work, cluster = every_column_differs()
    sim = Simulation(work, cluster)
    snapshot = sim.advance()
    inside, outside, count = sim.state, parse_slots("multifactor").begin().load(snapshot).state, len(work)
    for name in VISIBLE_NAMES:
        assert np.array_equal(column(inside, name), column(outside, name)[:count]), name
    copied = [name for name in JOB_COLUMNS.names if name in VISIBLE_NAMES and name != "partition"]
    assert len(copied) == len(JOB_COLUMNS.names) - 2  # `id` is not for policies, and partitions have other numbers
    for name in copied:
        assert np.array_equal(column(outside, name)[:count], work.jobs.table[name]), name


GIVEN = tuple(name for name in VISIBLE_NAMES if name in JOB_COLUMNS.names)


@cache
def reading(columns):
    """An ordering by one of these columns, its parameter `which`. Each compilation takes half a second."""
    lines = [f"    if which == {k}:\n        return sign * jobs.{name}[j]\n" for k, name in enumerate(columns)]
    space = {}
    exec(f"def rule(jobs, j, now, sign=1.0, which=0.0):\n{''.join(lines)}    return np.nan\n", {"np": np}, space)  # noqa: S102
    return make_ordering(space["rule"], "own")


@pytest.mark.parametrize("column", VISIBLE_NAMES)
def test_an_ordering_decides_the_same_in_a_simulation_and_from_a_snapshot(column):
    work, cluster = every_column_differs()
    one = replace(cluster, partitions=(Partition("p"),), nodes=Nodes(("a",), *(np.array([v]) for v in (8, 0, 1e4, 1e4, 0, 0))))
    columns = GIVEN if column in GIVEN else (column,)  # what is kept for a policy depends on the other columns that it reads
    rule = reading(columns)
    for sign in (1.0, -1.0):
        params = (("sign", sign), ("which", float(columns.index(column))))
        scheduler = replace(parse_slots("fcfs/first/none"), ordering=replace(rule, params=params))
        result = simulate(work, one, scheduler)
        snapshot = Simulation(work, one, half_life=scheduler.half_life).advance()
        started = [decision.job for decision in scheduler.decide(snapshot)]
        assert started == [scheduler.begin().choose_first(snapshot).job] == np.flatnonzero(result.table["start"] == 0.0).tolist(), sign


# ── one scheduler, many askers ──


def test_a_scheduler_may_be_asked_by_several_threads_and_copied():
    case, scheduler = CASES[0], parse_slots("sjf/best/easy")
    seen = list(snapshots_of(case, scheduler))
    expected = [scheduler.decide(snapshot) for snapshot in seen]
    with ThreadPoolExecutor(4) as pool:
        for found in pool.map(lambda _: [scheduler.decide(snapshot) for snapshot in seen], range(8)):
            assert found == expected
    again = pickle.loads(pickle.dumps(scheduler))  # noqa: S301
    assert again == scheduler and hash(again) == hash(scheduler)
    assert [again.decide(snapshot) for snapshot in seen] == expected


def test_a_decider_knows_nothing_of_larger_snapshots_before():
    """A rule that looks beyond the jobs of its snapshot fails, whatever was in the state before."""
    big, small = snapshot_with(20), snapshot_with(2)

    def beyond(jobs, j, now):
        return jobs.submit[j + 10]

    scheduler = replace(parse_slots("fcfs"), ordering=make_ordering(beyond, "beyond"))
    decider = scheduler.begin()
    for snapshot in (big, small):
        with pytest.raises(PolicyError, match="raised an error"):
            decider.decide(snapshot)


def snapshot_with(count):
    jobs, _ = Jobs.build({"submit": np.zeros(count), "estimate": np.full(count, 10.0)})
    return Snapshot(1.0, jobs, np.zeros(count, LIVE), np.zeros(0, HELD), np.array([(0, 0, 1)] * 2, NODE), Cluster.uniform(2, 1), Rules(), 0)


def test_a_decider_follows_growth_other_rules_and_other_users():
    decider = parse_slots("multifactor/fewest/easy").begin()
    for count in (1, 3, 200, 2):
        expected = parse_slots("multifactor/fewest/easy").decide(snapshot_with(count))
        assert decider.decide(snapshot_with(count)) == expected and len(expected) == min(count, 2)
    jobs, _ = Jobs.build({"submit": [0.0, 1.0], "estimate": [5.0, 5.0], "user": [0, 4]}, users=tuple("abcde"))
    users = replace(snapshot_with(2), jobs=jobs, usage=np.array([9.0, 0, 0, 0, 1.0]), cluster=Cluster.uniform(2, 1))
    alone = replace(users, nodes=np.array([(0, 0, 1), (1, 0, 1)], NODE))
    assert [decision.job for decision in decider.decide(alone)] == [1]  # user e has used less


def test_decisions_say_why():
    jobs, _ = Jobs.build({"submit": [0.0, 1.0], "estimate": [100.0, 5.0]})
    live = np.zeros(2, LIVE)
    live[0] = (0, 0, 0, 0, 0, 1, 0, 100.0, 0, 0, 0, True, False)
    one = Snapshot(1.0, jobs, live, held(gpus=1, devices=1), np.array([(0, 0, 1)], NODE), Cluster.uniform(1, 1), Rules(), 0)
    stopped, started = parse_slots("srpt/first/none/srpt").decide(one)
    assert (stopped.action, stopped.job, started.job) == (Action.PREEMPT, 0, 1)
    assert "srpt/first/none/srpt: makes room" in stopped.reason
    holding = parse_slots("fcfs").begin().choose_first(one)
    assert (holding.action, holding.reason) == (Action.HOLD, "does not fit now")
