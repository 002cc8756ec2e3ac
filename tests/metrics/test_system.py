"""Use of devices, energy, money, imbalance: values by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpuyard import parse_scheduler, simulate
from gpuyard.metrics import METRICS, measure
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster, GpuType, Nodes
from gpuyard.model.workload import Workload

NAN = math.nan
FAST = GpuType("fast", speed=2.0, tflops=300.0, idle_watts=50.0, busy_watts=400.0, price=4.0)
SLOW = GpuType("slow", tflops=100.0, idle_watts=10.0, busy_watts=70.0, price=1.0)
TWO_TYPES = Cluster(
    Nodes(
        names=("f0", "s0", "s1"),
        gpus=np.array([4, 2, 2], np.int32),
        gpu_type=np.array([0, 1, 1], np.int32),
        cpus=np.full(3, np.inf),
        memory=np.full(3, np.inf),
        rack=np.zeros(3, np.int32),
        partition=np.zeros(3, np.int32),
    ),
    (FAST, SLOW),
)
ONE_TYPE = Cluster(replace(TWO_TYPES.nodes, gpu_type=np.zeros(3, np.int32)), (FAST,))
ONE_HOUR = {"first_submit": 0.0, "last_end": 3600.0, "busy/fast": 7200.0, "up/fast": 14400.0, "busy/slow": 3600.0, "up/slow": 14400.0}
TWO_JOBS = [(0.0, 0.0, 3600.0, 3600.0, "done"), (0.0, 0.0, 3600.0, 3600.0, "killed")]


def test_utilisation(make):
    result = make(TWO_JOBS, cluster=TWO_TYPES, totals=ONE_HOUR)
    measured = measure(result, ["utilization", "utilization_flops"])
    assert measured["utilization"] == pytest.approx(10800 / 28800)
    assert measured["utilization_flops"] == pytest.approx((300 * 7200 + 100 * 3600) / (400 * 14400))


def test_energy_and_cost(make):
    """fast: 2 of 4 busy for an hour: 2·400 + 2·50 W; slow: 1 of 4: 70 + 3·10 W."""
    result = make(TWO_JOBS, cluster=TWO_TYPES, totals=ONE_HOUR)
    measured = measure(result, ["energy", "energy_per_job", "cost"])
    assert measured["energy"] == pytest.approx(1.0)
    assert measured["energy_per_job"] == pytest.approx(1.0)  # one of the two was done
    assert measured["cost"] == pytest.approx(4 * 4.0 + 4 * 1.0)


def test_what_comes_after_the_last_submit_does_not_count(make):
    """On 8 GPUs: 4 from 0 to 100, 2 from 10 to 40, and a last job that comes at 50 and holds 1 until 1,050."""
    rows = [(0.0, 0.0, 100.0, 100.0, "done"), (10.0, 10.0, 40.0, 30.0, "done"), (50.0, 50.0, 1050.0, 1000.0, "done")]
    totals = {"first_submit": 0.0, "last_end": 1050.0, "busy/fast": 400.0 + 60.0 + 1000.0, "up/fast": 8 * 1050.0}
    result = make(rows, cluster=ONE_TYPE, columns={"gpus": [4.0, 2.0, 1.0]}, totals=totals)
    found = measure(result, ["utilization", "utilization_drained", "throughput", "throughput_drained", "energy", "energy_drained"])
    busy = 4 * 50 + 2 * 30
    assert found["utilization"] == pytest.approx(busy / (8 * 50))
    assert found["utilization_drained"] == pytest.approx(1460 / (8 * 1050))
    assert found["throughput"] == pytest.approx(1 / 50 * 3600)
    assert found["throughput_drained"] == pytest.approx(3 / 1050 * 3600)
    assert found["energy"] == pytest.approx((50 * 8 * 50 + 350 * busy) / 3.6e6)
    assert found["energy_drained"] == pytest.approx((50 * 8 * 1050 + 350 * 1460) / 3.6e6)


@pytest.mark.parametrize("preempting", [False, True])
def test_use_until_the_last_submit_tells_schedulers_apart_where_the_whole_run_does_not(preempting):
    """A job of 20,000 s on one of four GPUs outlives all others, whoever is first among them, unless it is stopped for them."""
    rng = np.random.default_rng(0)
    submit = np.concatenate([[0.0], np.sort(rng.uniform(0, 3000, 60))])
    runtime, gpus = np.concatenate([[20_000.0], rng.uniform(10, 400, 60)]), np.concatenate([[1.0], rng.integers(1, 4, 60)])
    workload, cluster = Workload.build({"submit": submit, "gpus": gpus}, runtime), Cluster.uniform(1, 4)
    names = ["fcfs/first/none", "srpt/first/none/srpt" if preempting else "smallest/first/skip"]
    runs = [simulate(workload, cluster, parse_scheduler(name)) for name in names]
    kept = [simulate(workload, cluster, parse_scheduler(name), segments=True) for name in names]
    one, two = (measure(run, ["utilization", "utilization_drained", "throughput"]) for run in runs)
    assert abs(one["utilization"] - two["utilization"]) > 1e-3
    assert preempting or one["utilization_drained"] == pytest.approx(two["utilization_drained"], rel=1e-9)
    last = submit[-1]
    for found, run in zip((one, two), kept, strict=True):
        held = run.segments["gpus"] @ np.clip(np.minimum(run.segments["end"], last) - run.segments["start"], 0.0, None)
        assert found["utilization"] == pytest.approx(held / (4 * last), rel=1e-9 if not preempting else 5e-3)
        assert found["throughput"] == pytest.approx(3600 * (run.table["end"] <= last).sum() / last)


def test_energy_and_cost_are_unknown_without_watts_and_prices(make):
    result = make(TWO_JOBS, totals={"first_submit": 0.0, "last_end": 3600.0, "busy/gpu": 1.0, "up/gpu": 2.0})
    assert all(math.isnan(value) for value in measure(result, ["energy", "energy_per_job", "cost"]).values())


def test_stops_and_latency(make):
    result = make(TWO_JOBS, totals={"failures": 3.0, "migrations": 2.0}, manifest={"decision_us": 12.5})
    assert measure(result, ["failures", "migrations", "decision_latency"]) == {"failures": 3.0, "migrations": 2.0, "decision_latency": 12.5}
    assert not METRICS["decision_latency"].reproducible
    assert math.isnan(measure(make(TWO_JOBS, manifest={"decision_us": "fast"}), ["decision_latency"])["decision_latency"])


def test_load_of_nodes_from_rows(make):
    """Node 0 (4 GPUs) 1 GPU·h of 4, node 1 (2 GPUs) 1 of 2, node 2 none."""
    result = make(TWO_JOBS, cluster=TWO_TYPES, totals=ONE_HOUR, node=[0, 1])
    assert values_of(result, METRICS["node_utilization"]).tolist() == [0.25, 0.5, 0.0]
    load = np.array([0.25, 0.5, 0.0])
    assert measure(result, ["load_imbalance", "node_utilization.max"]) == {
        "load_imbalance": pytest.approx(load.std() / load.mean()), "node_utilization.max": 0.5,
    }  # fmt: skip


@pytest.mark.parametrize("stopped", [{"nodes": [2, 1]}, {"preemptions": [0, 1]}])
def test_rows_do_not_tell_the_load_of_jobs_that_moved(make, stopped):
    result = make(TWO_JOBS, cluster=TWO_TYPES, totals=ONE_HOUR, node=[0, 1], **stopped)
    assert math.isnan(measure(result, ["load_imbalance"])["load_imbalance"])


def test_load_of_nodes_from_segments(make):
    segments = [(0, 0, 4.0, 15, 0.0, 1800.0), (0, 1, 2.0, 3, 0.0, 1800.0), (1, 2, 1.0, 1, 1800.0, 3600.0)]
    result = make(TWO_JOBS, cluster=TWO_TYPES, totals=ONE_HOUR, nodes=[2, 1], segments=segments)
    assert values_of(result, METRICS["node_utilization"]).tolist() == [0.5, 0.5, 0.25]


def test_balanced_nodes_and_no_load(make):
    assert measure(make(TWO_JOBS, node=[0, 1]), ["load_imbalance"]) == {"load_imbalance": 0.0}
    idle = make([(0.0, NAN, NAN, 1.0, "rejected")], totals={"first_submit": 0.0, "last_end": 10.0})
    assert math.isnan(measure(idle, ["load_imbalance"])["load_imbalance"])


def test_nodes_without_devices_have_no_load(make):
    nodes = replace(TWO_TYPES.nodes, gpus=np.array([4, 0, 0], np.int32))
    result = make(TWO_JOBS, cluster=replace(TWO_TYPES, nodes=nodes), totals=ONE_HOUR, node=[0, 0])
    assert measure(result, ["node_utilization", "load_imbalance"]) == {"node_utilization": 0.5, "load_imbalance": 0.0}
