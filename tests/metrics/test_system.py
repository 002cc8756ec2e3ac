"""Use of devices, energy, money, imbalance: values by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.metrics import METRICS, measure
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster, GpuType, Nodes

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
