"""What is seen of hosts: against numbers worked out by hand and in plain Python, in the environment and in the engine."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, simulate
from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.envs.kinds.host.kind import OpenPlacement
from gpuyard.envs.opened import Opened
from gpuyard.envs.vector import EngineEnvs
from gpuyard.features.hosts import DEPTH, HOST, LOOK
from gpuyard.model.cluster import Cluster
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import parse_slots
from gpuyard.policies.learned import network_placement
from gpuyard.testing.reference.network import random_arrays
from gpuyard.traces import load_workload

PLAIN = parse_slots("fcfs/first/none")


def envs_of(workload: Workload, cluster: Cluster, backfill: str = "none") -> EngineEnvs:
    program = parse_slots(f"fcfs/first/{backfill}").program()
    return EngineEnvs(Opened(OpenPlacement(), program), lambda seed: (workload, cluster), [0], 1, threads=1)


def jobs_at_zero(cpus: list[float], memory: list[float], runtime: float = 100.0) -> Workload:
    count = len(cpus)
    return Workload.build({"submit": np.zeros(count), "gpus": np.zeros(count), "cpus": cpus, "memory": memory}, np.full(count, runtime))


def row(seen: Observation, host: int) -> dict[str, float]:
    return dict(zip(HOST.rows, seen.rows[0, host].tolist(), strict=True))


def context(seen: Observation) -> dict[str, float]:
    return dict(zip(HOST.context, seen.context[0].tolist(), strict=True))


@pytest.fixture
def cluster() -> Cluster:
    return load_cluster("hosts:count=2,cores=8:8,memory=32:32")


def test_room_and_next_by_hand(cluster):
    envs = envs_of(jobs_at_zero([2, 4, 6], [4, 20, 24]), cluster)
    seen = envs.reset(0)
    # the means are 4 cores and 16 GB: a job of up to 8 cores and 32 GB fits on an empty host, and 6/8 · 28/32 of them after the first
    assert context(seen)["mean_cores"] == pytest.approx(4 / 8)
    assert context(seen)["mean_memory"] == pytest.approx(16 / 32)
    assert context(seen)["room"] == pytest.approx(1.0)
    assert context(seen)["next_fit"] == 1.0
    assert row(seen, 0)["room"] == pytest.approx(1.0)
    assert row(seen, 0)["room_lost"] == pytest.approx(1 - 6 / 8 * 28 / 32)
    assert row(seen, 0)["next_fit"] == 1.0
    assert row(seen, 0)["next_fit_lost"] == 0.0  # 4 cores with 20 GB and 6 with 24 GB still fit, each alone
    seen = envs.step(np.zeros(1, np.int32)).observation  # the first on host 0; the second may go to both
    assert row(seen, 0)["room"] == pytest.approx(6 / 8 * 28 / 32)
    assert row(seen, 0)["room_lost"] == pytest.approx(6 / 8 * 28 / 32 - 2 / 8 * 8 / 32)
    assert context(seen)["room"] == pytest.approx((1 + 6 / 8 * 28 / 32) / 2)
    assert [row(seen, host)["next_fit_lost"] for host in (0, 1)] == [1.0, 1.0]  # the third needs 6 cores of its host


def test_nobody_else_waits(cluster):
    seen = envs_of(jobs_at_zero([2], [4]), cluster).reset(0)
    assert context(seen)["next_fit"] == 1.0
    assert (row(seen, 0)["next_fit"], row(seen, 0)["next_fit_lost"]) == (0.0, 0.0)


def test_a_demand_that_no_job_has_does_not_bind():
    cluster = load_cluster("hosts:count=2,cores=8:8,memory=32:32")
    seen = envs_of(jobs_at_zero([2, 2], [0, 0]), cluster).reset(0)
    assert row(seen, 0)["room"] == 1.0  # memory asks nobody
    assert context(seen)["mean_memory"] == 0.0


def plain_rooms(workload: Workload, cluster: Cluster, starts: Array, nodes: Array, now: float, job: int) -> tuple[Array, Array]:
    """(hosts,) room and next_fit of hosts while `job` is to be placed, first come, first served."""
    jobs, runtime = workload.jobs, workload.runtime
    running = (starts <= now) & (starts + runtime > now) & (nodes >= 0)
    running[job:] = False
    waiting = np.flatnonzero((jobs.submit <= now) & (np.arange(len(jobs)) >= job))
    free_cpus, free_memory = cluster.nodes.cpus.astype(float), cluster.nodes.memory.astype(float)
    np.subtract.at(free_cpus, nodes[running], jobs.cpus[running])
    np.subtract.at(free_memory, nodes[running], jobs.memory[running])
    counted = np.concatenate([np.flatnonzero(running), waiting[:DEPTH]])
    cpus, memory = jobs.cpus[counted].mean(), jobs.memory[counted].mean()
    room = np.minimum(free_cpus / (2 * cpus), 1) * np.minimum(free_memory / (2 * memory), 1)
    others = waiting[1 : 1 + LOOK]
    fits = (jobs.cpus[others] <= free_cpus[:, None]) & (jobs.memory[others] <= free_memory[:, None])
    return room, fits.mean(1) if len(others) else np.zeros(len(room))


def test_room_equals_plain_python_over_a_busy_run():
    workload = load_workload("eda:jobs=120,cores=1:16,memory=1:128,arrivals=0.5:1.5", seed=3)
    cluster = load_cluster("hosts:count=9,cores=16:64,memory=128:512,seed=3")
    result = simulate(workload, cluster, PLAIN)  # first fit: the lowest legal host, in the environment too
    envs = envs_of(workload, cluster)
    seen = envs.reset(0)
    compared, waiting = 0, 0
    for _ in range(200):
        job = int(envs._states[0].control["open_job"][0])
        now = float(envs._states[0].control["now"][0])
        room, next_fit = plain_rooms(workload, cluster, result.table["start"], result.table["node"], now, job)
        np.testing.assert_allclose(seen.rows[0, :, HOST.rows.index("room")], room, atol=1e-5)
        np.testing.assert_allclose(seen.rows[0, :, HOST.rows.index("next_fit")], next_fit, atol=1e-6)
        assert context(seen)["room"] == pytest.approx(room.mean(), abs=1e-5)
        compared, waiting = compared + 1, waiting + bool(next_fit.any())
        step = envs.step(seen.mask.argmax(1).astype(np.int32))
        if step.done[0]:
            break
        seen = step.observation
    assert compared > 60 and waiting > 10


@pytest.mark.parametrize("backfill", ["none", "skip"])
@pytest.mark.parametrize("pool", ["none", "attention"])
def test_environment_and_engine_see_the_same(backfill, pool):
    workload = load_workload("eda:jobs=80,cores=1:16,memory=1:128,arrivals=0.5:1.5", seed=5)
    cluster = load_cluster("hosts:count=7,cores=16:64,memory=128:512,seed=5")
    spec = NetworkSpec(len(HOST.rows), len(HOST.context), row_layers=(8,), head_layers=(8,), pool=pool, heads=2)
    network = Network.of(spec, random_arrays(spec, np.random.default_rng(1)))
    slots = parse_slots(f"fcfs/first/{backfill}")
    result = simulate(workload, cluster, replace(slots, placement=network_placement(network, "net")))
    envs = envs_of(workload, cluster, backfill)
    seen, total = envs.reset(0), 0.0
    for _ in range(1000):
        legal = np.flatnonzero(seen.mask[0])
        best = legal[network.scores(seen.rows[0, legal], seen.context[0]).argmax()]
        step = envs.step(np.array([best], np.int32))
        seen, total = step.observation, total + float(step.reward[0])
        if step.done[0]:
            break
    assert step.done[0]
    bsld = np.maximum((result.table["end"] - workload.jobs.submit) / np.maximum(workload.runtime, 10), 1).mean()
    first = simulate(workload, cluster, slots)
    assert total == pytest.approx(-bsld, rel=1e-5)
    assert not np.array_equal(result.table["node"], first.table["node"])  # the network does choose
