from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.cluster import Cluster, GpuType, Outage
from gpuyard.model.rules import Rules


def test_a_uniform_cluster() -> None:
    cluster = Cluster.uniform(3, 8, "a100")
    assert (len(cluster.nodes), cluster.gpus, cluster.name) == (3, 24, "3x8:a100")
    assert cluster.nodes.names == ("n0", "n1", "n2")
    assert cluster == Cluster.uniform(3, 8, "a100")
    assert cluster != Cluster.uniform(3, 4, "a100")


def test_a_class_in_the_speed_table_overrides_the_type() -> None:
    kind = GpuType("v100", speed=0.5)
    cluster = replace(Cluster.uniform(1, 1, kind), speed={"bert": {"v100": 0.3}})
    assert cluster.speed_of("bert", kind) == 0.3
    assert cluster.speed_of("other", kind) == 0.5


@pytest.mark.parametrize(
    "change",
    [
        {"span_nodes": 0.0},
        {"span_racks": float("nan")},
        {"types": (GpuType("x", speed=0.0),)},
        {"types": (GpuType("x", speed=float("nan")),)},
        {"types": (GpuType("x", transfer=-1.0),)},
        {"types": (GpuType("x", transfer=float("nan")),)},
        {"types": (GpuType("x", transfer=2e6),)},
        {"types": tuple(GpuType(f"t{i}") for i in range(63))},
        {"outages": (Outage(1, 0.0, 1.0),)},
        {"outages": (Outage(0, 1.0, 1.0),)},
        {"outages": (Outage(0, -1.0, 1.0),)},
        {"outages": (Outage(0, 0.0, 1.0, 0),)},
    ],
)
def test_impossible_clusters_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(DataError):
        replace(Cluster.uniform(1, 8), **change)


def test_no_nodes_and_too_many_gpus_are_refused() -> None:
    with pytest.raises(DataError, match="no nodes"):
        Cluster.uniform(0, 8)
    with pytest.raises(DataError, match="more than"):
        Cluster.uniform(2, 30_000_000)


@pytest.mark.parametrize(
    "change", [{"checkpoint": -1.0}, {"checkpoint": float("nan")}, {"restart_cost": -1.0}, {"restart_cost": float("inf")}]
)
def test_impossible_rules_are_refused(change: dict[str, float]) -> None:
    with pytest.raises(UsageError):
        Rules(**change)  # type: ignore[arg-type]
