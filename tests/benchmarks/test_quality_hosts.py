"""The benchmark of host picking: its stretches, its measures and its table, on a small case."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from gpuyard import Workload, load_cluster, parse_scheduler, simulate

PATH = Path(__file__).resolve().parents[2] / "benchmarks" / "quality_hosts.py"


@pytest.fixture(scope="module")
def quality() -> Iterator[ModuleType]:
    spec = importlib.util.spec_from_file_location("quality_hosts", PATH)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    yield module
    del sys.modules[spec.name]


def test_stretches_share_hosts_and_no_job(quality):
    found = list(quality.SITUATIONS[0].stretches(600_000, 4, 3))
    assert [len(workload) for workload, _ in found] == [80, 80, 80]
    assert all(workload.jobs.submit[0] == 0 for workload, _ in found)
    assert len({workload.runtime.tobytes() for workload, _ in found}) == 3
    assert len({cluster.nodes.cpus.tobytes() for _, cluster in found}) == 1


def test_measures_by_hand(quality):
    jobs = {"submit": [0, 0], "gpus": [0, 0], "cpus": [4, 2], "memory": [8, 16]}
    workload, cluster = Workload.build(jobs, [100.0, 50.0]), load_cluster("hosts:count=2,cores=8:8,memory=32:32")
    result = simulate(workload, cluster, parse_scheduler("fcfs/balance"))  # one job on each host
    assert quality.cores_used(result) == pytest.approx((4 * 100 + 2 * 50) / (16 * 100))
    assert quality.memory_used(result) == pytest.approx((8 * 100 + 16 * 50) / (64 * 100))
    load = np.array([400.0, 100.0])
    assert quality.imbalance(result) == pytest.approx(load.std() / load.mean())


def test_rules_that_do_the_same_share_a_line(quality):
    lines = quality.report("fcfs/packing", quality.SITUATIONS[0], [600_000], 6, 2)
    first = next(line for line in lines if line.startswith("| first"))
    assert first.startswith("| first, best, worst,")
    packing = next(line for line in lines if line.startswith("| fcfs/packing, packing |"))
    assert packing.count("|") == lines[4].count("|")


def test_a_change_is_told_in_percent_of_the_other(quality):
    ours, theirs = np.array([1.0, 2.0, 3.0, 4.0, 5.0]), np.array([2.0, 4.0, 6.0, 8.0, 10.0])
    assert quality.change(ours, theirs, "lower").startswith("-50.0 % [")
    assert quality.change(ours, theirs, "lower").endswith("5/5")
    assert quality.change(ours, theirs, "higher").endswith("0/5")
