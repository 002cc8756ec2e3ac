"""The script that runs all studies, and the page of their results."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from argparse import Namespace
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import typer

from gpuyard.cli.verbs import app
from gpuyard.experiments.design.spec import load_experiment, parse_experiment, shipped
from gpuyard.experiments.running.runner import backend_of, run

ROOT = Path(__file__).resolve().parents[2]
READ = {"traces": {"philly", "helios", "pai"}, "months": {"philly", "helios", "pai"}, "hetero-traces": {"google", "alibaba"},
        "preemption": {"kth", "sdsc", "ctc", "hpc2n", "philly", "helios", "pai"}}  # fmt: skip
SMALL = """
title = "Small"
question = "Which?"
figures = ["versus", "objective"]
[axes]
workloads = ["family:shape=base|bursty,intensity=medium,gpus=4 on 1x4:a100"]
schedulers = ["fcfs", "srpt", "edf"]
seeds = "0-4"
objectives = ["slowdown", "balanced"]
[judge]
challengers = ["edf"]
"""


def script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "benchmarks" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def options(folder: Path, **more: Any) -> Namespace:
    return Namespace(**{"out": folder, "traces": None, "train": False, "quick": False, "workers": None} | more)


def test_every_study_is_run_with_a_command_that_exists(tmp_path: Path) -> None:
    studies = script("studies")
    assert set(studies.studies()) == set(shipped()) and next(iter(studies.studies())) == "core"
    found: Any = typer.main.get_command(app)
    for name in studies.studies():
        python, _, package, verb, *words = studies.command(name, options(tmp_path, traces=Path("traces"), workers=2))
        assert (python, package, verb, words[0]) == (sys.executable, "gpuyard", "run", name)
        given = found.commands["run"].make_context("run", list(words)).params
        assert given["out"] == tmp_path / name
        values = dict(text.split("=") for text in given["set_"] or ())
        load_experiment(name, values=values)  # refuses a value that the study does not have
        assert set(values) == READ.get(name, set())


def test_what_is_complete_or_trains_is_left_out_and_failures_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    studies = script("studies")
    (tmp_path / "core").mkdir()
    (tmp_path / "core" / "complete.json").write_text("{}")
    called = []

    def pretend(command: list[str], **_: Any) -> SimpleNamespace:
        called.append(command[4])
        return SimpleNamespace(returncode=1 if command[4] == "drift" else 0)

    monkeypatch.setattr(studies.subprocess, "run", pretend)
    taken, failed = studies.run_all(options(tmp_path))
    assert set(called) == set(shipped()) - {"core", "ablation"} and list(taken) == called
    assert failed == ["drift"]
    called.clear()
    studies.run_all(options(tmp_path, train=True))
    assert "ablation" in called


def test_results_have_a_page_for_each_folder_with_figures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    pages = importlib.import_module("results_page")
    folder, images, page = tmp_path / "small", tmp_path / "images", tmp_path / "results.md"
    run(parse_experiment(SMALL, "small.toml"), folder, backend_of("local", 1), command="gpuyard run small.toml")
    images.mkdir()
    (images / "small-old.png").write_bytes(b"")
    for name, value in (("ROOT", tmp_path), ("IMAGES", images), ("PAGE", page), ("FOLDER", tmp_path / "results")):
        monkeypatch.setattr(pages, name, value)
    monkeypatch.setattr(sys, "argv", ["results_page.py", str(folder)])
    pages.main()
    assert "| [small](results/small.md) | Small |" in page.read_text("utf-8")
    text = (tmp_path / "results" / "small.md").read_text("utf-8")
    assert "| edf | slowdown | srpt |" in text and "\n## Tables\n" in text
    assert sorted(path.name for path in images.iterdir()) == ["small-objective-slowdown.png", "small-versus-slowdown.png"]
    assert all(f"![small-{name}](../../images/small-{name}.png)" in text for name in ("versus-slowdown", "objective-slowdown"))
    assert "`gpuyard run small.toml`" in text
