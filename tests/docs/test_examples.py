"""Every example runs; the policies among them pass `gpuyard check`, the cluster files load."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path

import pytest

from gpuyard import load_cluster
from gpuyard.cli.main import run
from gpuyard.metrics import METRICS

FOLDER = Path(__file__).resolve().parents[2] / "examples"
POLICIES = sorted(FOLDER.glob("*_policies.py"))
AGENTS = {"agent_torch.py": "torch", "agent_baselines3.py": "stable_baselines3"}  # and what they need
SCRIPTS = sorted(path for path in set(FOLDER.glob("*.py")) - set(POLICIES) if path.name not in AGENTS)
CLUSTERS = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_runs_and_says_something(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(METRICS, "_things", dict(METRICS.items()))  # an example may register one
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.parametrize("name", AGENTS)
def test_an_agent_becomes_a_scheduler(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """After little training; each job of the episodes that it plays must start at the same instant in the engine."""
    pytest.importorskip(AGENTS[name], reason=f"{AGENTS[name]} is not installed")
    file = str(tmp_path / "mine.safetensors")
    monkeypatch.setattr(sys, "argv", [name, "--steps", "4096", "--out", file])
    runpy.run_path(str(FOLDER / name), run_name="__main__")
    assert capsys.readouterr().out.count("400 of 400 jobs start at the same instant") == 3
    assert run(["compare", "demo:jobs=100,days=0.5", "--scheduler", file, "--scheduler", "fcfs", "--seeds", "1"]) == 0


@pytest.mark.parametrize("file", POLICIES, ids=lambda path: path.name)
def test_policies_pass_the_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(file), "-f", "md"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("file", CLUSTERS, ids=lambda path: path.name)
def test_cluster_files_load(file: Path) -> None:
    assert load_cluster(str(file)).gpus > 0
