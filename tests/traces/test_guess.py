"""Clusters guessed from traces."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError
from gpuyard.metrics import counts
from gpuyard.model.workload import Machine, Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import guess_cluster, load_workload
from gpuyard.traces.guess import peak


def test_a_pool_that_the_trace_states() -> None:
    work = Workload.build({"submit": [0.0]}, [1.0], machines=[Machine("SP2", 100, gpu_type="cpu")])
    cluster, origin = guess_cluster(work)
    assert (cluster.name, cluster.gpus, len(cluster.nodes)) == ("100", 100, 1)
    assert "100 processors" in origin


def test_machines_with_partitions_that_share_nodes() -> None:
    """p and q share n2, q and r share n3: one partition with three names; s has its own node."""
    machines = [
        Machine("n1", 4, 16, 64, "a100", ("p",)), Machine("n2", 4, 16, 64, "a100", ("p", "q")),
        Machine("n3", 8, 32, 0, "v100", ("q", "r")), Machine("n4", 0, 24, 0, "", ("s",)),
    ]  # fmt: skip
    work = Workload.build(
        {"submit": [0.0] * 4, "gpus": [16, 8, 4, 0], "cpus": [0, 0, 0, 24], "partition": [0, 1, 2, 3]}, [10.0] * 4,
        partitions=("p", "r", "q", "s"), machines=machines,
    )  # fmt: skip
    cluster, origin = guess_cluster(work)
    assert [(p.name, p.also) for p in cluster.partitions] == [("p", ("q", "r")), ("s", ())]
    assert cluster.nodes.names == ("n1", "n2", "n3", "n4")
    assert [cluster.types[k].name for k in cluster.nodes.gpu_type] == ["a100", "a100", "v100", "cpu"]
    assert {kind.speed for kind in cluster.types} == {1.0}
    assert cluster.nodes.cpus.tolist() == [16, 16, 32, 24]
    assert np.isinf(cluster.nodes.memory[2])
    assert "p + q + r" in origin
    assert counts(simulate(work, cluster, parse_scheduler("fcfs")))["done"] == 4


def test_a_preset_that_belongs_to_the_trace() -> None:
    work = Workload.build({"submit": [0.0]}, [1.0], preset="node8")
    cluster, origin = guess_cluster(work)
    assert cluster.name == "node8"
    assert "preset node8" in origin


def test_what_ran_at_once() -> None:
    work = Workload.build({"submit": [0.0, 0.0, 5.0], "gpus": [6, 7, 9]}, [10.0, 5.0, 10.0], logged_start=[0.0, 0.0, 5.0])
    cluster, origin = guess_cluster(work)
    assert cluster.gpus == 16  # 15 at once from 5 s on, in nodes of 8
    assert "at once" in origin


def test_from_the_work_alone() -> None:
    n = 1000
    work = Workload.build({"submit": np.arange(n) * 10.0, "gpus": np.full(n, 2)}, np.full(n, 140.0))
    cluster, origin = guess_cluster(work)
    assert cluster.gpus == 48  # 28 GPUs on average, 40 at 70 %, in whole nodes of 8: 40.04 → 48
    assert "neither" in origin
    assert counts(simulate(work, cluster, parse_scheduler("fcfs")))["rejected"] == 0


def test_types_that_jobs_ask_for() -> None:
    work = Workload.build(
        {"submit": [0.0, 0.0, 0.0], "gpus": [8, 16, 1], "gpu_type": [1, 2, 0]}, [10.0] * 3, gpu_types=("", "a100", "t4|v100")
    )
    cluster, _ = guess_cluster(work)
    assert {kind.name for kind in cluster.types} == {"a100", "t4"}
    assert counts(simulate(work, cluster, parse_scheduler("fcfs")))["done"] == 3


def test_cores_only() -> None:
    work = Workload.build({"submit": [0.0, 0.0], "gpus": [0, 0], "cpus": [4, 8]}, [10.0, 10.0], logged_start=[0.0, 0.0])
    cluster, _ = guess_cluster(work)
    assert cluster.nodes.cpus.tolist() == [12]
    assert cluster.gpus == 0


def test_nothing_to_guess_from() -> None:
    with pytest.raises(DataError, match="no jobs"):
        guess_cluster(load_workload("demo:jobs=5").head(0))


def test_peak_does_not_count_one_that_ends_as_another_begins() -> None:
    assert peak(np.array([0.0, 5.0]), np.array([5.0, 9.0]), np.array([2.0, 3.0])) == 3.0
    assert peak(np.array([0.0, 4.0]), np.array([5.0, 9.0]), np.array([2.0, 3.0])) == 5.0
