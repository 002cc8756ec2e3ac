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


def test_what_is_refused():
    with pytest.raises(UnknownNameError, match="did you mean 'deadline'"):
        resolve("balanced:deadlines=2")
    with pytest.raises(UsageError, match="deadline=many is not a finite number"):
        resolve("balanced:deadline=many")
    with pytest.raises(UnknownNameError, match="unknown parameter of metric 'wait'"):
        resolve("wait.p95:deadline=2")
