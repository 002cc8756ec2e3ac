"""Device choice on cases worked out by hand, and the optimum against brute force."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from types import MappingProxyType

import numpy as np
import pytest

from gpuyard import Cluster, Workload, simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import GpuType, Nodes
from gpuyard.model.result import STATUS
from gpuyard.policies import parse_scheduler
from gpuyard.policies.deciders.devices import optimal_queues
from gpuyard.testing.invariants import check_invariants
from gpuyard.testing.strategies import random_case

CHOICES = ("round-robin", "random-device", "greedy-device", "optimal-device")


def workers(cpu: int = 1, gpu: int = 1) -> Cluster:
    """One node with `cpu` processors (speed 1), one with `gpu` GPUs (speed 4; 0.5 for class `serial`)."""
    nodes = Nodes(
        names=("c", "g"), gpus=np.array([cpu, gpu], np.int32), gpu_type=np.array([0, 1], np.int32), cpus=np.full(2, np.inf),
        memory=np.full(2, np.inf), rack=np.zeros(2, np.int32), partition=np.zeros(2, np.int32),
    )  # fmt: skip
    speed = MappingProxyType({"serial": MappingProxyType({"gpu": 0.5})})
    return Cluster(nodes, (GpuType("cpu", 1.0), GpuType("gpu", 4.0)), speed=speed)


def tasks(runtime: list[float], submit: list[float] | None = None, **columns: list[float]) -> Workload:
    made = {"submit": submit or [0.0] * len(runtime), **columns}
    return Workload.build(made, np.array(runtime), classes=("", "serial"))


def run(choice: str, workload: Workload, cluster: Cluster, seed: int = 0):
    return simulate(workload, cluster, parse_scheduler(choice), seed=seed, segments=True)


def test_round_robin_takes_every_device_in_turn_and_a_task_waits_for_its_own():
    result = run("round-robin", tasks([8.0, 8.0, 8.0, 8.0]), workers())
    assert result.table["end"].tolist() == [8.0, 2.0, 16.0, 4.0]  # the third waits for the processor though the GPU is free at 4


def test_greedy_counts_queue_speed_and_transfer():
    # GPU: 2, then 4; the third would end there at 6 and on the processor at 8; the fourth at 8 on either: lower number first.
    result = run("greedy-device", tasks([8.0, 8.0, 8.0, 8.0]), workers())
    assert result.table["end"].tolist() == [2.0, 4.0, 6.0, 8.0]
    assert result.table["node"].tolist() == [1, 1, 1, 0]
    # 8 s of transfer are paid on either device: 8 + 8 on the processor, 8 + 2 on the GPU, then 20 there against 16
    result = run("greedy-device", tasks([8.0, 8.0], transfer=[8.0, 8.0]), workers())
    assert result.table["end"].tolist() == [10.0, 16.0]
    # a processor that takes no transfer: 8 there against 8 + 2 on the GPU, then 16 against 10
    free = workers()
    free = replace(free, types=(replace(free.types[0], transfer=0.0), free.types[1]))
    for choice in ("greedy-device", "optimal-device"):
        result = run(choice, tasks([8.0, 8.0], transfer=[8.0, 8.0]), free)
        assert result.table["end"].tolist() == [8.0, 10.0]
    # class serial: 8 s on the processor, 16 on the GPU
    result = run("greedy-device", tasks([8.0, 8.0], job_class=[1, 1]), workers())
    assert result.table["end"].tolist() == [8.0, 16.0]


def test_greedy_goes_by_what_is_left_of_a_running_task():
    # The GPU is believed busy until 10 when the second comes at 8: it would end there at 12, on the processor at 16.
    result = run("greedy-device", tasks([40.0, 8.0], submit=[0.0, 8.0]), workers())
    assert result.table["end"].tolist() == [10.0, 12.0]


def test_random_choice_is_by_seed():
    workload = tasks([8.0] * 20)
    first, again, other = (run("random-device", workload, workers(2, 2), seed).table["node"].tolist() for seed in (1, 1, 2))
    assert first == again
    assert first != other
    assert set(first) == {0, 1}


def test_the_optimum_puts_short_tasks_first_and_serial_ones_on_the_processor():
    # GPU: 1 s (4/4) then 3 s (12/4): ends 1, 4; serial 6 s on the processor
    result = run("optimal-device", tasks([12.0, 6.0, 4.0], job_class=[0, 1, 0]), workers())
    assert result.table["end"].tolist() == [4.0, 6.0, 1.0]


def brute_force(seconds: np.ndarray, waits: np.ndarray) -> float:
    """The least sum of ends over all assignments and orders."""
    best = np.inf
    for choice in product(range(seconds.shape[1]), repeat=len(seconds)):
        total = 0.0
        for device in set(choice):
            mine = [k for k, d in enumerate(choice) if d == device]
            total += min(_ends([seconds[k, device] for k in order], waits[device]) for order in permutations(mine))
        best = min(best, total)
    return float(best)


def _ends(lengths: list[float], at: float) -> float:
    return float((at + np.cumsum(lengths)).sum())


@pytest.mark.parametrize("seed", range(40))
def test_the_optimum_is_that_of_brute_force(seed: int):
    rng = np.random.default_rng(seed)
    count, devices = int(rng.integers(1, 6)), int(rng.integers(1, 4))
    seconds = rng.integers(1, 30, (count, devices)).astype(float)
    seconds[rng.random((count, devices)) < 0.15] = np.inf
    seconds[:, 0] = np.where(np.isfinite(seconds).any(axis=1), seconds[:, 0], 7.0)
    waits = rng.integers(0, 20, devices).astype(float)
    queues = optimal_queues(seconds, waits)
    assert sorted(task for _, queue in queues for task in queue) == list(range(count))
    found = sum(_ends([seconds[k, device] for k in queue], waits[device]) for device, queue in queues)
    assert found == brute_force(seconds, waits)


def test_a_device_with_a_long_queue_gets_it():
    """Nine tasks that are far better off on one of three devices: more of them in a row than an even share and two."""
    seconds = np.full((9, 3), 1e6)
    seconds[:, 1] = np.arange(9.0, 0.0, -1.0)
    assert optimal_queues(seconds, np.zeros(3)) == [(1, list(range(8, -1, -1)))]


@pytest.mark.parametrize("seed", range(8))
def test_a_batch_ends_as_the_optimum_says(seed: int):
    rng = np.random.default_rng([seed, 1])
    count = int(rng.integers(2, 6))
    runtime, kind = rng.integers(1, 40, count).astype(float), rng.integers(0, 2, count)
    result = run("optimal-device", tasks(runtime.tolist(), job_class=kind.tolist()), workers(1, 2))
    speed = np.array([[1.0, 4.0, 4.0], [1.0, 0.5, 0.5]])[kind]
    assert result.table["end"].sum() == pytest.approx(brute_force(runtime[:, None] / speed, np.zeros(3)))
    for other in CHOICES:
        assert (
            result.table["end"].sum()
            <= run(other, tasks(runtime.tolist(), job_class=kind.tolist()), workers(1, 2)).table["end"].sum() + 1e-9
        )


@pytest.mark.parametrize("choice", CHOICES)
def test_gangs_are_refused(choice: str):
    with pytest.raises(UsageError, match="job 2 asks for 2 GPUs"):
        run(choice, tasks([1.0, 1.0], gpus=[1.0, 2.0]), workers(1, 2))


def test_bad_parameters_are_refused():
    with pytest.raises(UsageError, match="most"):
        run("optimal-device:most=0", tasks([1.0]), workers())


@pytest.mark.parametrize("choice", CHOICES)
def test_the_laws_hold_and_everybody_ends(choice: str):
    ends = {STATUS.index("done"), STATUS.index("killed"), STATUS.index("rejected")}
    for seed in range(620_000, 620_040):
        case = random_case(seed)
        jobs = case.workload.jobs
        kept = np.flatnonzero(jobs.gpus <= 1)
        columns = {name: jobs.table[name][kept] for name in jobs.table.dtype.names if name not in ("id", "index")}
        workload = Workload.build(columns, case.workload.runtime[kept], **jobs.labels)
        result = simulate(workload, case.cluster, parse_scheduler(choice), seed=seed, rules=case.rules, segments=True)
        check_invariants(result.table, result.segments, workload, case.cluster, case.rules)
        plain = simulate(workload, case.cluster, parse_scheduler("fcfs/fewest/skip"), seed=seed, rules=case.rules)
        left = [sum(int(s) not in ends for s in each.table["status"]) for each in (result, plain)]
        assert left[0] == left[1], seed  # who waits for ever waits under any scheduler
