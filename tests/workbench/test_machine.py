"""A measured machine is a cluster: what was measured decides how fast tasks are, and a damaged profile is refused."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gpuyard.cli.main import run
from gpuyard.errors import DataError, UsageError
from gpuyard.files import read_toml, toml_text
from gpuyard.model.cluster_file import cluster_from_dict, load_cluster
from gpuyard.workbench.machine import device_type, machine_table, speed
from gpuyard.workbench.speed import DeviceSpeed, Effort, measure_machine

CPU = DeviceSpeed("cpu", "A Processor 9000", "numpy 2", memory=64.0, products=(1.0, 0.0), bandwidth=100.0, watts=(24.0, 70.4))
GPU = DeviceSpeed(
    "gpu", "NVIDIA H200", "torch 2.11", count=2, memory=141.0, products=(50.0, 700.0), bandwidth=4000.0, transfer=(32.0, 30.0),
    watts=(116.0, 650.0),
)  # fmt: skip


@pytest.mark.parametrize(
    ("title", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA A100-SXM4-40GB", "a100-40gb"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA GeForce RTX 4090", "rtx4090"),
        ("NVIDIA L40S", "l40s"),
        ("Some (New) Card", "some-new-card"),
        ("???", "gpu"),
    ],
)
def test_a_known_gpu_gets_its_known_name(title: str, name: str) -> None:
    assert device_type(DeviceSpeed("gpu", title, "x")) == name


def test_the_cluster_holds_what_was_measured(tmp_path: Path) -> None:
    path = tmp_path / "machine.toml"
    path.write_text(toml_text(machine_table([CPU, GPU], now=0.0)))
    cluster = load_cluster(str(path))
    assert [(kind.name, kind.memory, kind.tflops, kind.idle_watts, kind.busy_watts) for kind in cluster.types] == [
        ("cpu", 0.0, 1.0, 24.0, 70.4),
        ("h200", 141.0, 700.0, 116.0, 650.0),
    ]
    assert cluster.nodes.memory.tolist() == [64.0, 141.0, 141.0]
    assert [kind.transfer for kind in cluster.types] == [0.0, 0.5]  # 32 GB/s is twice what the generator assumes
    assert cluster.speed["c1.00"]["h200"] == 50.0
    assert cluster.speed["c0.00"]["h200"] == 40.0
    assert 40.0 < cluster.speed["c0.50"]["h200"] < 50.0
    assert {row["cpu"] for row in cluster.speed.values()} == {1.0}
    assert read_toml(path, "a file")["profile"]["made"] == "1970-01-01T00:00:00Z"


def test_intensity_weighs_arithmetic_against_memory() -> None:
    faster_products = DeviceSpeed("gpu", "x", "x", products=(100.0, 0.0), bandwidth=100.0)
    assert speed(0.0, faster_products, CPU) == 1.0
    assert speed(1.0, faster_products, CPU) == 100.0
    assert speed(0.5, faster_products, CPU) == pytest.approx(1 / (0.5 / 100 + 0.5), abs=1e-4)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "version = 2 is not 1"),
        ({"surprise": 1}, "unknown key 'surprise'"),
        ({"devices": [{"kind": "cpu", "title": "x"}]}, "library is missing"),
        ({"devices": [{"kind": "cpu", "title": "x", "library": "y", "tflops": -1.0}]}, "tflops = -1.0 is below 0"),
        ({"devices": 3}, "is not an array of tables"),
    ],
)
def test_a_damaged_profile_is_refused(change: dict[str, Any], message: str) -> None:
    table = machine_table([CPU])
    table["profile"] |= change
    with pytest.raises(DataError, match=message):
        cluster_from_dict(table)


def test_the_verb_measures_this_machine_and_simulates_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "machine.toml"
    assert run(["profile", "--quick", "--out", str(path), "--library", "numba", "-f", "json"]) == 0
    said = capsys.readouterr()
    (found,) = json.loads(said.out)
    assert found["tflops"] > 0
    assert found["bandwidth"] > 0
    assert "no GPU found" in said.err
    assert load_cluster(str(path)).gpus == 1
    assert run(["profile", "--quick", "--out", str(path), "--library", "numba"]) == 0
    assert "█" in capsys.readouterr().out
    assert run(["profile", "--out", "machine.json"]) == 2


def test_an_unknown_library_is_refused() -> None:
    with pytest.raises(UsageError, match="unknown library"):
        measure_machine(Effort(64, 64, 1, 1), library="cupy")
