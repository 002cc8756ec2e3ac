"""Choosers see and choose, from snapshots, what learned schedulers see and choose inside simulations."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Simulation, simulate
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import PASS, PREPARE
from gpuyard.engine.snapshots import snapshot_of, state_of
from gpuyard.errors import DataError, PolicyError, UsageError
from gpuyard.features.hosts import HOST as HOST_SCHEMA
from gpuyard.features.jobs import JOB as JOB_SCHEMA
from gpuyard.features.system import SWITCH as SWITCH_SCHEMA
from gpuyard.model.cluster import Cluster, GpuType, Nodes, Partition
from gpuyard.model.decision import Action
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import HELD, LIVE, NODE, Snapshot
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Meta, parse_slots
from gpuyard.policies.deciding import HostChooser, JobChooser, SwitchChooser
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
    """The state that the slow way makes of a snapshot, after an order."""
    driver = Driver(state_of(snapshot, scheduler.program()), scheduler.label, snapshot.jobs.id)
    driver.order(PREPARE)
    if order != PREPARE:
        driver.order(order)
    return driver.state


def now_of(sim):
    return snapshot_of(sim._state, sim.workload.jobs, sim._visible_cluster, sim.rules, sim.seed, sim._mix)


CASES = [random_case(seed, scale) for seed, scale in [(s, "small") for s in range(20)] + [(s, "rack") for s in range(3)]]
ALL, SOME = range(len(CASES)), range(12)


@pytest.mark.parametrize("number", SOME)
def test_a_switch_sees_what_the_engine_sees(number):
    case = CASES[number]
    meta = switching()
    chooser = SwitchChooser(meta)
    for snapshot in snapshots_of(case, parse_slots("sjf/best/easy")):
        chooser.begin()
        chosen = chooser.choose(snapshot)
        s = loaded(meta, snapshot, PASS)
        np.testing.assert_array_max_ulp(chooser.features, s.scratch[: SWITCH.context], 1)
        assert chosen == s.control["active"][0]


@pytest.mark.parametrize("number", SOME)
def test_an_ordering_sees_what_the_engine_sees(number):
    case = CASES[number]
    scheduler = ordering()
    chooser = JobChooser(scheduler)
    for snapshot in snapshots_of(case, scheduler):
        for p in range(len(case.cluster.partitions)):
            chooser.choose(snapshot, p)
        s = loaded(scheduler, snapshot, PREPARE)
        waiting = [p for p, part in enumerate(s.partitions) if part["head"] < part["tail"]]
        chosen = chooser.choose(snapshot, waiting[-1])  # the slow way ordered this partition last
        np.testing.assert_array_max_ulp(chooser.features, s.scratch[: JOB.context], 1)
        assert chosen.job == snapshot.jobs.index[s.queue_jobs[s.partitions["head"][waiting[-1]]]]


@pytest.mark.parametrize("number", ALL)
def test_a_simulation_driven_by_a_job_chooser_is_that_of_the_scheduler(number):
    case = CASES[number]
    scheduler = ordering(seed=number)
    chooser = JobChooser(scheduler)
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    while (snapshot := sim.advance()) is not None:
        for p in range(len(case.cluster.partitions)):
            while (decision := chooser.choose(snapshot, p)) is not None and decision.action is Action.START:
                sim.apply([decision])
                snapshot = now_of(sim)
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    assert_same(sim.result(), expected)


@pytest.mark.parametrize("number", ALL)
def test_a_simulation_driven_by_a_host_chooser_is_that_of_the_scheduler(number):
    case = CASES[number]
    scheduler = placing(seed=number)
    chooser = HostChooser(scheduler)
    sim = Simulation(case.workload, case.cluster, rules=case.rules)
    numbers = case.cluster.partition_numbers
    while (snapshot := sim.advance()) is not None:
        for p in range(len(case.cluster.partitions)):
            while True:
                waiting = [row for row in snapshot.waiting if numbers.get(snapshot.jobs.partitions[snapshot.jobs.partition[row]], 0) == p]
                if not waiting or (decision := chooser.choose(snapshot, int(waiting[0]))).action is Action.HOLD:
                    break
                sim.apply([decision])
                snapshot = now_of(sim)
    expected = simulate(case.workload, case.cluster, scheduler, rules=case.rules)
    assert_same(sim.result(), expected)


@pytest.mark.parametrize("every", [0.0, 7.0])
@pytest.mark.parametrize("number", SOME)
def test_a_simulation_driven_by_a_switch_chooser_is_that_of_the_scheduler(number, every):
    case = CASES[number]
    meta = switching(every, seed=number)
    chooser = SwitchChooser(meta)
    sim = Simulation(case.workload, case.cluster, rules=case.rules, every=every)
    while (snapshot := sim.advance()) is not None:
        sim.apply(meta.schedulers[chooser.choose(snapshot)].decide(snapshot))
    expected = simulate(case.workload, case.cluster, meta, rules=case.rules)
    assert_same(sim.result(), expected)


def assert_same(found, expected):
    for name in ("start", "end", "node", "status"):
        assert np.array_equal(found.table[name], expected.table[name], equal_nan=found.table[name].dtype.kind == "f"), name


def test_read_only_arrays_and_another_cluster_are_no_obstacle():
    chooser = JobChooser(ordering())
    for case in CASES[:3]:
        snapshot = next(snapshots_of(case, parse_slots("fcfs")), None)
        if snapshot is None:
            continue
        first = chooser.choose(snapshot)
        snapshot.live.flags.writeable = False
        assert chooser.choose(snapshot) == first


def test_what_is_no_number_is_told_in_one_line():
    case = CASES[0]
    arrays = random_arrays(JOB, np.random.default_rng(0))
    arrays["head.0.bias"][:] = 3e38
    arrays["head.1.weight"][:] = 3e38
    arrays["head.1.weight"][:, 0] = -3e38  # ∞ − ∞
    chooser = JobChooser(replace(parse_slots("fcfs"), ordering=network_ordering(Network.of(JOB, arrays), "broken")))
    snapshot = next(snapshots_of(case, parse_slots("fcfs")))
    with pytest.raises(PolicyError, match="a score is not a number"):
        chooser.choose(snapshot)


def test_a_scheduler_without_a_network_is_refused():
    with pytest.raises(UsageError, match="no learned ordering"):
        JobChooser("sjf")
    with pytest.raises(UsageError, match="no learned placement"):
        HostChooser(ordering())
    with pytest.raises(UsageError, match="no learned switch"):
        SwitchChooser("fcfs")


def test_a_partition_that_is_not_there_is_refused():
    snapshot = next(snapshots_of(CASES[0], parse_slots("fcfs")))
    for partition in (-1, len(snapshot.cluster.partitions), 10**6):
        with pytest.raises(UsageError, match="the cluster has"):
            JobChooser(ordering()).choose(snapshot, partition)


def two_partitions(labels, number):
    """One job waits in the partition labels[number] of a cluster with a node in a and a node in b."""
    jobs, _ = Jobs.build({"submit": [0.0], "estimate": [10.0], "partition": [number]}, partitions=labels)
    return Snapshot(1.0, jobs, np.zeros(1, LIVE), np.zeros(0, HELD), np.array([(0, 0, 1)] * 2, NODE), TWO, Rules(), 0)


TWO = Cluster(
    Nodes(("a0", "b0"), *(np.array(v) for v in ([1, 1], [0, 0], [np.inf] * 2, [np.inf] * 2, [0, 0], [0, 1]))),
    (GpuType("gpu"),), (Partition("a"), Partition("b")),
)  # fmt: skip


def test_labels_may_change_from_one_snapshot_to_the_next():
    chooser = JobChooser(ordering())
    assert chooser.choose(two_partitions(("a",), 0), 0).parts[0].node == 0
    assert chooser.choose(two_partitions(("b", "a"), 0), 1).parts[0].node == 1
    assert chooser.choose(two_partitions(("b", "a"), 1), 0).parts[0].node == 0


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


def relabelled(table):
    found = table.copy()
    found["partition"] = 9
    return found


UNSOUND = {
    "nodes missing": lambda s: {"nodes": s.nodes[:1]},
    "live missing": lambda s: {"live": s.live[:0]},
    "a device too many": lambda s: {"nodes": np.array([(0, 0, 3), (0, 0, 1)], NODE)},
    "held by a row that is not there": lambda s: {"live": running(s), "held": held(row=7)},
    "held by a job that waits": lambda s: {"held": held()},
    "held on a node that is not there": lambda s: {"live": running(s), "held": held(node=99)},
    "a share of a device that is not there": lambda s: {"live": running(s), "held": held(device=5)},
    "held devices that are not there": lambda s: {"live": running(s), "held": held(gpus=1, devices=2)},
    "a label that is not there": lambda s: {"jobs": s.jobs.with_table(relabelled(s.jobs.table))},
}  # fmt: skip


@pytest.mark.parametrize("what", UNSOUND)
def test_a_snapshot_that_refers_to_nothing_is_refused(what):
    chooser, snapshot = JobChooser(ordering()), two_partitions(("a", "b"), 0)
    expected = chooser.choose(snapshot)
    with pytest.raises(DataError, match="snapshot: "):
        chooser.choose(replace(snapshot, **UNSOUND[what](snapshot)))
    assert chooser.choose(snapshot) == expected


def test_only_a_waiting_job_gets_a_host():
    case = CASES[0]
    snapshot = next(snapshots_of(case, parse_slots("fcfs")))
    with pytest.raises(UsageError, match="no waiting job"):
        HostChooser(placing()).choose(snapshot, len(snapshot.jobs))
