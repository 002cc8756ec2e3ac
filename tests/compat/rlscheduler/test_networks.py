"""Networks in the compatibility mode."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.compat.rlscheduler.networks import learned_chooser
from gpuyard.compat.rlscheduler.rules import rlscheduler
from gpuyard.features.jobs import JOB
from gpuyard.learn.evolution import initial
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.traces.generators.lublin import lublin

SPEC = NetworkSpec(len(JOB.rows), len(JOB.context), head_layers=())


def index(**weights: float) -> Network:
    """A network whose score is Σ weight · feature."""
    arrays = dict(initial(SPEC, 0))
    head = np.zeros((1, SPEC.rows + SPEC.context), np.float32)
    for name, weight in weights.items():
        head[0, JOB.rows.index(name)] = weight
    arrays["head.0.weight"] = head
    return Network.of(SPEC, arrays)


@pytest.mark.parametrize("backfill", [False, True])
def test_the_longest_wait_first_is_first_come_first_served(backfill: bool) -> None:
    workload = lublin(3, jobs=400, nodes=256)
    ours = rlscheduler(workload, 256, learned_chooser(index(wait=1.0)), backfill=backfill)
    assert np.array_equal(ours.table["start"], rlscheduler(workload, 256, "fcfs", backfill=backfill).table["start"])


@pytest.mark.parametrize("backfill", [False, True])
def test_the_shortest_estimate_first_is_sjf_where_no_two_are_alike(backfill: bool) -> None:
    workload = lublin(4, jobs=300, nodes=64)
    lengths = np.random.default_rng(0).permutation(np.geomspace(10.0, 1e5, 300))
    workload = replace(workload, runtime=lengths, jobs=workload.jobs.replace(estimate=lengths))
    ours = rlscheduler(workload, 64, learned_chooser(index(estimate=-1.0)), backfill=backfill)
    assert np.array_equal(ours.table["start"], rlscheduler(workload, 64, "sjf", backfill=backfill).table["start"])


def test_jobs_that_fit_can_be_preferred() -> None:
    """Without backfilling a committed head that does not fit blocks the machine: preferring those that fit must shorten the waits."""
    workload = lublin(5, jobs=400, nodes=256)
    plain, fitting = (rlscheduler(workload, 256, learned_chooser(index(wait=1.0, fits=fits))).table["start"].mean() for fits in (0.0, 10.0))
    assert fitting < plain


def test_the_network_sees_whether_others_may_pass() -> None:
    """A score that goes by the wait with backfilling and by the estimate without it."""
    spec = NetworkSpec(len(JOB.rows), len(JOB.context), head_layers=(2,))
    arrays = {name: np.zeros_like(array) for name, array in initial(spec, 0).items()}
    arrays["rows.scale"] += 1
    arrays["context.scale"] += 1
    hidden = arrays["head.0.weight"]
    passing = SPEC.rows + JOB.context.index("passing")
    hidden[0, JOB.rows.index("wait")], hidden[0, passing], arrays["head.0.bias"][0] = 1.0, 100.0, -100.0
    hidden[1, JOB.rows.index("estimate")], hidden[1, passing], arrays["head.0.bias"][1] = 1.0, -100.0, 0.0
    arrays["head.1.weight"][0] = 1.0, -1.0
    network, workload = Network.of(spec, arrays), lublin(6, jobs=200, nodes=256)
    for backfill, same in ((True, index(wait=1.0)), (False, index(estimate=-1.0))):
        runs = [rlscheduler(workload, 256, learned_chooser(each), backfill=backfill).table["start"] for each in (network, same)]
        assert np.mean(runs[0] == runs[1]) > 0.9  # float32: some of nearly equal scores tie with the large constant added
