"""Every example runs; the policies among them pass `gpuyard check`, the cluster files load."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from gpuyard import load_cluster
from gpuyard.cli.main import run

FOLDER = Path(__file__).resolve().parents[2] / "examples"
POLICIES = sorted(FOLDER.glob("*_policies.py"))
SCRIPTS = sorted(set(FOLDER.glob("*.py")) - set(POLICIES))
CLUSTERS = sorted(FOLDER.glob("*.toml"))


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.name)
def test_a_script_runs_and_says_something(
    script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    runpy.run_path(str(script), run_name="__main__")
    assert capsys.readouterr().out.strip()
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.parametrize("file", POLICIES, ids=lambda path: path.name)
def test_policies_pass_the_check(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["check", str(file), "-f", "md"]) == 0, capsys.readouterr().out


@pytest.mark.parametrize("file", CLUSTERS, ids=lambda path: path.name)
def test_cluster_files_load(file: Path) -> None:
    assert load_cluster(str(file)).gpus > 0
