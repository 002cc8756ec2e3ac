"""The mix of requests, and the expected fragment that is computed from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpuyard import Simulation, Snapshot, Workload, parse_scheduler
from gpuyard.engine.decide import SnapshotDecider
from gpuyard.engine.kernels.events import PASS, PREPARE
from gpuyard.engine.mix import request_mix
from gpuyard.model.cluster import Cluster
from gpuyard.testing.reference import scores as reference_scores
from gpuyard.testing.reference.scores import Device, UnitRequest, fragment
from gpuyard.testing.reference.state import make_jobs
from gpuyard.testing.strategies import random_case


def workload_of(gpus: list[float], **columns: Any) -> Workload:
    return Workload.build({"submit": np.zeros(len(gpus)), "gpus": gpus, **columns}, np.ones(len(gpus)))


def test_rare_requests_are_left_out():
    """60 + 30 jobs are less than 95 of 100, 60 + 30 + 6 are not."""
    mix = request_mix(workload_of([0.5] * 60 + [1] * 30 + [0.25] * 6 + [0.125] * 4).jobs, Cluster.uniform(2, 8))
    assert mix["gpus"].tolist() == [0.5, 1.0, 0.25]
    assert mix["weight"].tolist() == [62_500, 31_250, 6_250]


def test_at_most_64_requests_count():
    mix = request_mix(workload_of([1.0] * 200, cpus=np.arange(1.0, 201.0)).jobs, Cluster.uniform(2, 8))
    assert mix["cpus"].tolist() == list(range(1, 65))
    assert set(mix["weight"].tolist()) == {1562}


def test_a_request_is_that_of_one_unit():
    mix = request_mix(workload_of([8, 0], chunk=[4, 1], cpus=[16, 3], memory=[64, 5]).jobs, Cluster.uniform(2, 8))
    assert mix[["gpus", "cpus", "memory", "allowed"]].tolist() == [(4.0, 8.0, 32.0, 1), (0.0, 3.0, 5.0, 0)]


def test_no_jobs_no_mix():
    assert len(request_mix(workload_of([]).jobs, Cluster.uniform(2, 8))) == 0


def test_fragment_by_hand():
    """0.3 and 1 are free, with 3 cpus. Half a device: 0.3 is too small. A whole device: there is one, but not the 4 cpus: 1.3 are lost.
    A CPU job cannot use any of the 1.3. Two whole devices: there are not two."""
    half, one, host, two = (UnitRequest(gpus, cpus, 0.0, frozenset({0})) for gpus, cpus in ((0.5, 1.0), (1.0, 4.0), (0.0, 1.0), (2.0, 1.0)))
    devices = [Device(300_000, False), Device(1_000_000, True)]
    assert fragment(devices, 0, 3.0, np.inf, [(half, 1)]) == 300_000
    assert fragment(devices, 0, 3.0, np.inf, [(one, 1)]) == 1_300_000
    assert fragment(devices, 0, 4.0, np.inf, [(one, 1)]) == 300_000
    assert fragment(devices, 0, 3.0, np.inf, [(host, 1)]) == 1_300_000
    assert fragment(devices, 0, 3.0, np.inf, [(two, 1)]) == 1_300_000
    assert fragment(devices, 1, 3.0, np.inf, [(half, 1)]) == 1_300_000
    assert fragment(devices, 0, 3.0, np.inf, [(half, 50_000), (one, 25_000), (host, 25_000)]) == 80_000_000_000


@pytest.mark.parametrize("part", range(4))
def test_the_mix_is_that_of_the_reference(part: int):
    for seed in range(100 * part, 100 * part + 100):
        case = random_case(seed)
        ours, states = request_mix(case.workload.jobs, case.cluster), make_jobs(case.workload, case.cluster, case.rules)
        for p in range(len(case.cluster.partitions)):
            expected = reference_scores.request_mix(job for job in states if job.home == p)
            assert [as_reference(row) for row in ours[ours["partition"] == p]] == expected


def as_reference(row: Any) -> tuple[UnitRequest, int]:
    allowed = frozenset(k for k in range(62) if int(row["allowed"]) >> k & 1)
    return UnitRequest(float(row["gpus"]), float(row["cpus"]), float(row["memory"]), allowed), int(row["weight"])


def fragments_known(snapshot: Snapshot) -> tuple[Any, dict[int, int]]:
    """The state before a pass by FGD, and the fragments that the pass computed of nodes that it did not touch."""
    program = parse_scheduler("fcfs/fgd/skip").program()
    before = SnapshotDecider(program).load(snapshot)
    before.order(PREPARE)
    after = SnapshotDecider(program).load(snapshot)
    after.order(PREPARE)
    after.order(PASS)
    found = after.state.fragment
    same = [n for n in range(len(found)) if found[n] >= 0 and before.state.nodes[n].tobytes() == after.state.nodes[n].tobytes()]
    return before.state, {n: int(found[n]) for n in same}


def slow_fragment(state: Any, n: int, mix: list[tuple[UnitRequest, int]]) -> int:
    node = state.nodes[n]
    devices = [Device(1_000_000, True)] * int(node["free"])
    for d in range(64):
        if int(node["shared"]) >> d & 1:
            devices.append(Device(round(float(state.devices[node["first_device"] + d]) * 1e6), False))
    return fragment(devices, int(node["gpu_type"]), float(node["free_cpus"]), float(node["free_memory"]), mix)


def test_the_engine_computes_the_fragment_of_the_definition():
    compared = 0
    for seed in range(30):
        case = random_case(seed, "rack" if seed % 3 == 0 else "small")
        scheduler = parse_scheduler("fcfs/fgd/skip")
        simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules)
        while (snapshot := simulation.advance()) is not None:
            state, known = fragments_known(snapshot)
            assert snapshot.mix is not None
            for n, value in known.items():
                mine = snapshot.mix[snapshot.mix["partition"] == state.nodes[n]["partition"]]
                assert value == slow_fragment(state, n, [as_reference(row) for row in mine]), f"case {seed}, {snapshot.now} s, node {n}"
            compared += sum(value > 0 for value in known.values())
            simulation.apply(scheduler.decide(snapshot))
    assert compared > 200
