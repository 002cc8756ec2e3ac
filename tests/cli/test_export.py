"""Test environments as files: hosts and jobs come back, and schedulers do the same with them."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import numpy as np
import pytest

from gpuyard import Cluster, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.cli.main import run as gpuyard
from gpuyard.files import toml_text
from gpuyard.model.cluster_file import save_cluster
from gpuyard.model.presets import PRESETS

TEXT = "eda:jobs=60,arrivals=1:3 on hosts:count=8,seed={seed}"


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("exported") / "tests"
    assert gpuyard(["trace", "export", TEXT, str(folder), "--seeds", "42-44"]) == 0
    return folder


@pytest.mark.parametrize("seed", [42, 43, 44])
def test_hosts_and_jobs_come_back(seed: int, exported: Path) -> None:
    made, cluster = load_workload("eda:jobs=60,arrivals=1:3", seed), load_cluster(f"hosts:count=8,seed={seed}")
    read, hosts = load_workload(str(exported / str(seed) / "jobs.csv")), load_cluster(str(exported / str(seed) / "cluster.toml"))
    for column in ("gpus", "cpus", "memory", "names"):
        assert np.array_equal(getattr(hosts.nodes, column), getattr(cluster.nodes, column))
    for text in ("fcfs/first", "sjf/balance/skip", "learned:hosts"):
        first, again = (simulate(*each, parse_scheduler(text)).table for each in ((made, cluster), (read, hosts)))
        for column in ("start", "end", "node"):
            assert np.allclose(
                first[column] - first["start"].min() * (column != "node"), again[column] - again["start"].min() * (column != "node")
            )


def test_every_command_reads_them(exported: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = exported / "42" / "jobs.csv", exported / "42" / "cluster.toml"
    assert gpuyard(["simulate", str(files[0]), "--cluster", str(files[1]), "--scheduler", "fcfs/first", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["counts"]["done"] == 60
    both = ["--scheduler", "learned:hosts", "--scheduler", "fcfs/first"]
    assert gpuyard(["compare", str(files[0]), "--cluster", str(files[1]), *both, "--metric", "wait", "--format", "json"]) == 0
    assert "learned:hosts" in capsys.readouterr().out


def test_a_log_is_not_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "log.csv").write_text("submit,runtime\n0,1\n")
    assert gpuyard(["trace", "export", str(tmp_path / "log.csv"), str(tmp_path / "out")]) == 2
    assert "only generated environments" in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", list(PRESETS))
def test_every_preset_is_saved_and_read_again(name: str, tmp_path: Path) -> None:
    cluster = load_cluster(name)
    save_cluster(cluster, tmp_path / "c.toml")
    again = load_cluster(str(tmp_path / "c.toml"))
    assert again.name == cluster.name and len(again.nodes) == len(cluster.nodes)
    for column in ("gpus", "cpus", "memory", "rack"):
        assert np.array_equal(getattr(again.nodes, column), getattr(cluster.nodes, column))
    assert [kinds(again, n) for n in range(len(again.nodes))] == [kinds(cluster, n) for n in range(len(cluster.nodes))]


def kinds(cluster: Cluster, node: int) -> object:
    return cluster.types[cluster.nodes.gpu_type[node]]


def test_texts_that_toml_could_misread_come_back() -> None:
    table = {
        "a b": 'say "no" \\ \n\t\x7f é',
        "list": [1, 2.5, "x]"],
        "flag": True,
        "in": {"x.y": {"z": -1.0}},
        "rows": [{"k": 1}, {"k": 2, "d": {"e": 3}}],
    }
    assert tomllib.loads(toml_text(table)) == table
