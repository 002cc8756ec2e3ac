"""The balanced objective has one set of weights, for judging and for rewards."""

from __future__ import annotations

from dataclasses import fields

import pytest

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.envs.kernels import TERMS
from gpuyard.envs.reward import OBJECTIVES
from gpuyard.errors import UnknownNameError, UsageError
from gpuyard.metrics import measure, resolve
from gpuyard.metrics.objective import BalancedWeights
from gpuyard.model.workload import Workload


@pytest.fixture(scope="module")
def result():
    return simulate(load_workload("family:shape=bursty,gpus=4", 3), load_cluster("4"), parse_scheduler("fcfs"))


def test_rewards_have_the_weights_of_the_metric():
    assert OBJECTIVES["balanced"].weights == BalancedWeights().terms()
    assert set(BalancedWeights().terms()) <= set(TERMS)


def test_the_default_weights_can_be_written_out(result):
    written = "balanced:" + ",".join(f"{each.name}={each.default:g}" for each in fields(BalancedWeights))
    found = measure(result, ["balanced", written])
    assert found["balanced"] == found[written]


def test_each_weight_counts(result):
    plain = measure(result, ["balanced"])["balanced"]
    parts = {each.name: f"balanced:{each.name}=0" for each in fields(BalancedWeights)}
    without = measure(result, parts.values())
    assert sum(without.values()) == pytest.approx((len(parts) - 1) * plain)
    assert without[parts["utilisation"]] < plain
    assert all(without[parts[name]] > plain for name in ("slowdown", "wait", "queue", "power"))


@pytest.mark.parametrize("nodes", [1, 16])
def test_power_counts_as_a_share_of_what_the_cluster_can_draw(nodes):
    """One job holds half of the devices for an hour. 16 nodes draw more than 800 W even when idle."""
    cluster = load_cluster(f"{nodes}x2:a100")
    watts = cluster.types[0]
    workload = Workload.build({"submit": [0.0], "gpus": [float(nodes)]}, [3600.0])
    found = measure(simulate(workload, cluster, parse_scheduler("fcfs")), ["balanced", "balanced:power=0", "balanced:power=0,watts=0.05"])
    share = (watts.idle_watts + watts.busy_watts) / (2 * watts.busy_watts)
    assert found["balanced:power=0"] - found["balanced"] == pytest.approx(0.05 * 60 * share)
    published = min(nodes * (watts.idle_watts + watts.busy_watts), 800.0) / 800.0
    assert found["balanced:power=0"] - found["balanced:power=0,watts=0.05"] == pytest.approx(0.05 * 60 * published)


def test_what_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'deadline'"):
        resolve("balanced:deadlines=2")
    with pytest.raises(UsageError, match="deadline=many is not a finite number"):
        resolve("balanced:deadline=many")
    with pytest.raises(UnknownNameError, match="unknown parameter of metric 'wait'"):
        resolve("wait.p95:deadline=2")
