"""The clusters of public traces, against what was published about them."""

from __future__ import annotations

import csv
import gzip
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.presets import PRESETS

GIGABYTE = 1e9


def rows_of(path: Path) -> list[dict[str, str]]:
    raw = path.read_bytes()
    text = gzip.decompress(raw) if path.suffix == ".gz" else raw
    return list(csv.DictReader(text.decode().splitlines()))


def shapes(cluster: Cluster) -> Counter[tuple[int, float, float, str]]:
    nodes = cluster.nodes
    names = [cluster.types[k].name for k in nodes.gpu_type]
    return Counter(zip(nodes.gpus.tolist(), nodes.cpus.tolist(), np.round(nodes.memory, 6).tolist(), names, strict=True))


@pytest.mark.parametrize(
    ("name", "nodes", "gpus"),
    [
        ("philly", 552, 3205), ("helios-venus", 128, 1022), ("helios-earth", 125, 997), ("helios-saturn", 260, 2080),
        ("helios-uranus", 265, 2119), ("openb", 1213, 6212), ("openb-all", 1523, 6212), ("pai2020", 1897, 6742),
        ("lingjun2023", 847, 6776), ("rlmetadqn", 1, 2),
    ],
)  # fmt: skip
def test_sizes(name: str, nodes: int, gpus: int) -> None:
    cluster = load_cluster(name)
    assert (len(cluster.nodes), cluster.gpus) == (nodes, gpus)
    assert all(kind.speed == 1 for kind in cluster.types)
    assert PRESETS[name].title


def test_philly_is_its_machine_list(shared: Path) -> None:
    listed = Counter(int(row["number of GPUs"]) for row in rows_of(shared / "traces" / "philly" / "philly_machine_list.csv"))
    assert Counter(load_cluster("philly").nodes.gpus.tolist()) == listed


@pytest.mark.parametrize(("name", "file"), [("openb", "gpu"), ("openb-all", "all")])
def test_openb_is_its_node_list(shared: Path, name: str, file: str) -> None:
    rows = rows_of(shared / "traces" / "alibaba" / f"openb2023_node_list_{file}_node.csv")
    listed = Counter(
        (int(r["gpu"]), int(r["cpu_milli"]) / 1000, round(int(r["memory_mib"]) * 2**20 / GIGABYTE, 6), r["model"] or "cpu") for r in rows
    )
    assert shapes(load_cluster(name)) == listed


def test_pai_is_its_machine_specification(shared: Path) -> None:
    rows = rows_of(shared / "traces" / "alibaba" / "pai2020_machine_spec.csv.gz")
    listed = Counter((int(r["cap_gpu"]), float(r["cap_cpu"]), float(r["cap_mem"]), r["gpu_type"].replace("CPU", "cpu")) for r in rows)
    assert shapes(load_cluster("pai2020")) == listed


def test_lingjun_has_the_racks_of_its_topology(shared: Path) -> None:
    rows = rows_of(shared / "traces" / "alibaba" / "lingjun2023_topo.csv")
    listed = Counter((row["PSW"], row["ASW"]) for row in rows)
    assert sorted(np.bincount(load_cluster("lingjun2023").nodes.rack).tolist()) == sorted(listed.values())


def test_helios_is_its_summary(shared: Path) -> None:
    for row in rows_of(shared / "traces" / "helios" / "helios_cluster_summary.csv"):
        if row["id"] != "total":
            assert load_cluster(f"helios-{row['id'].lower()}").gpus == int(row["gpu_num"])
