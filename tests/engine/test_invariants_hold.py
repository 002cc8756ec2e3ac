"""The laws of the model hold at every decision of a simulation, and of every result."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard import Simulation, Snapshot, Workload, simulate
from gpuyard.model.cluster import MAX_DEVICES
from gpuyard.policies import ORDERINGS, PREEMPTIONS, parse_scheduler
from gpuyard.testing.invariants import check_invariants, home_partitions
from gpuyard.testing.strategies import Case, random_case
from support.schedulers import random_scheduler, suit

EPS = 1e-6


def bits(words: np.ndarray) -> np.ndarray:
    return np.array([int(word).bit_count() for word in words], int)


def check_snapshot(snapshot: Snapshot, case: Case) -> None:
    """What is visible at one instant breaks no law."""
    jobs, live, held = snapshot.jobs, snapshot.live, snapshot.held
    assert (jobs.submit <= snapshot.now).all()
    assert (live["run_start"][snapshot.running] >= jobs.submit[snapshot.running]).all()
    assert (live["run_start"][snapshot.running] <= snapshot.now).all()
    assert set(held["row"].tolist()) == set(snapshot.running.tolist())
    check_devices(snapshot)
    check_shares_and_hosts(snapshot)
    home = home_partitions(case.workload, case.cluster)[jobs.index]
    for number, partition in enumerate(case.cluster.partitions):
        mine = snapshot.running[home[snapshot.running] == number]
        assert jobs.gpus[mine].sum() <= partition.quota + EPS
    for row in snapshot.running:
        parts = held[held["row"] == row]
        assert (case.cluster.nodes.partition[parts["node"]] == home[row]).all()
        if jobs.gpus[row] >= 1:
            assert parts["gpus"].sum() == jobs.gpus[row], "an incomplete gang"
            assert (parts["gpus"] % jobs.chunk[row] == 0).all()
            assert len(set(parts["node"].tolist())) == len(parts)
        else:
            assert len(parts) == 1


def check_devices(snapshot: Snapshot) -> None:
    """Free + held + out of order = all devices of a node; no device is in two sets."""
    nodes, held = snapshot.cluster.nodes, snapshot.held
    free = snapshot.free_gpus()
    for n in range(len(nodes)):
        here = held[held["node"] == n]
        shared = {int(piece["device"]) for piece in here if piece["device"] >= 0}
        whole = int(here["gpus"].sum())
        if snapshot.nodes["down"][n] > 0:
            assert len(here) == 0, "a node that is down is in use"
            assert free[n] == 0
            continue
        assert free[n] + whole + len(shared) + snapshot.nodes["off"][n] == nodes.gpus[n]
        if nodes.gpus[n] > MAX_DEVICES:
            continue
        gangs = here[here["gpus"] > 0]
        assert (bits(gangs["devices"]) == gangs["gpus"]).all()
        taken = [d for piece in gangs for d in range(MAX_DEVICES) if int(piece["devices"]) >> d & 1]
        assert len(taken) == len(set(taken)), "a device is given twice"
        assert not shared & set(taken), "a shared device is given whole"
        usable = {d for d in range(MAX_DEVICES) if int(snapshot.nodes["mask"][n]) >> d & 1}
        assert shared | set(taken) <= usable
        assert len(usable) == nodes.gpus[n] - snapshot.nodes["off"][n]


def check_shares_and_hosts(snapshot: Snapshot) -> None:
    nodes, held, jobs = snapshot.cluster.nodes, snapshot.held, snapshot.jobs
    shares: dict[tuple[int, int], float] = {}
    cpus, memory = np.zeros(len(nodes)), np.zeros(len(nodes))
    for piece in held:
        row, n = int(piece["row"]), int(piece["node"])
        if piece["device"] >= 0:
            key = n, int(piece["device"])
            shares[key] = shares.get(key, 0.0) + float(jobs.gpus[row])
        fraction = piece["gpus"] / jobs.gpus[row] if jobs.gpus[row] >= 1 else 1.0
        cpus[n] += jobs.cpus[row] * fraction
        memory[n] += jobs.memory[row] * fraction
    assert all(total <= 1 + EPS for total in shares.values())
    assert (cpus <= nodes.cpus + 1e-5).all()
    assert (memory <= nodes.memory + 1e-5).all()


def check_every_decision(case: Case, seed: int) -> int:
    """Step through a case under a random scheduler; returns how many decisions there were."""
    scheduler = random_scheduler(seed, own=False)
    simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules, segments=True, half_life=scheduler.half_life)
    count = 0
    before = -np.inf
    while (snapshot := simulation.advance()) is not None:
        assert snapshot.now >= before, "time went back"
        assert len(snapshot.waiting) > 0
        before = snapshot.now
        check_snapshot(snapshot, case)
        simulation.apply(scheduler.decide(snapshot))
        count += 1
    result = simulation.result()
    check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)
    return count


@pytest.mark.parametrize("part", range(4))
def test_at_every_decision(part: int):
    seeds = range(300_000 + 25 * part, 300_025 + 25 * part)
    assert sum(check_every_decision(random_case(seed), seed) for seed in seeds) > 300


def test_at_every_decision_on_many_nodes():
    assert sum(check_every_decision(random_case(seed, "rack"), seed) for seed in range(4)) > 20


@pytest.mark.slow
@pytest.mark.parametrize("part", range(20))
def test_at_every_decision_of_more_cases(part: int):
    for seed in range(310_000 + 50 * part, 310_050 + 50 * part):
        check_every_decision(random_case(seed), seed)


@pytest.mark.parametrize("part", range(4))
def test_of_results(part: int):
    """With timers and policies of a user's own, which stepping does not have."""
    for seed in range(320_000 + 100 * part, 320_100 + 100 * part):
        case = random_case(seed)
        result = simulate(case.workload, case.cluster, random_scheduler(seed), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, case.workload, case.cluster, case.rules)


@pytest.mark.parametrize("preemption", PREEMPTIONS)
def test_of_a_busy_cluster_of_many_nodes(preemption: str):
    """A thousand jobs, too many for the reference, in overload."""
    case = random_case(11, "hall")
    rng = np.random.default_rng(5)
    rows = np.sort(rng.integers(0, len(case.workload), 1000))
    table = case.workload.jobs.table[rows].copy()
    columns = {name: table[name] for name in table.dtype.names if name not in ("id", "index")}
    columns["submit"] = np.sort(rng.uniform(0, 2000, len(rows)))
    jobs = case.workload.jobs
    workload = Workload.build(columns, rng.exponential(80, len(rows)), **jobs.labels)
    first = 2 * list(PREEMPTIONS).index(preemption)
    some = [list(ORDERINGS)[(first + k) % len(ORDERINGS)] for k in range(2)]
    for ordering in [name for name in [*some, "saf"] if suit(name, "easy", preemption)]:
        scheduler = parse_scheduler(f"{ordering}/best/easy/{preemption}")
        result = simulate(workload, case.cluster, scheduler, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, workload, case.cluster, case.rules)
