"""Folders of small experiments, each run once."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gpuyard.experiments.design.spec import load_experiment, parse_experiment
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.report.studies import Study, load_study
from gpuyard.report.writing import write_report

CHANGED = """
title = "Changes"
question = "What breaks?"
curves = ["queue", "box.user.wait", "box.priority.slowdown", "cdf.turnaround"]
figures = ["robustness_radar", "degradation"]
[axes]
workloads = ["family:shape=bursty,intensity=low,gpus=2 on 2"]
changes = ["", "burst:severity=1", "burst:severity=4", "arrival-noise:severity=4", "runtime-distortion:severity=4"]
schedulers = ["fcfs", "srpt", "edf"]
seeds = "0-2"
objectives = ["slowdown", "turnaround"]
[judge]
challengers = ["edf"]
oracle = ["fcfs", "srpt"]
"""
SHIFT = """
title = "Shift"
kind = "shift"
figures = ["regret", "adaptation", "speedup", "makespan", "tasks"]
[axes]
schedulers = ["offline-optimal", "round-robin", "greedy-device"]
seeds = "0-1"
objectives = ["turnaround"]
[judge]
baseline = "round-robin"
metrics = ["makespan"]
[settings]
jobs = 20
training_jobs = 60
kicks = 20
"""


@pytest.fixture(scope="session")
def core_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The quick form of `core`, as it is shipped."""
    folder = tmp_path_factory.mktemp("core")
    run(load_experiment("core", quick=True), folder, backend_of("local", 1), command="gpuyard run core --quick")
    return folder


@pytest.fixture(scope="session")
def core_report(core_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The HTML file of its report, in a folder of its own; to draw all its figures takes seconds."""
    return write_report(core_folder, tmp_path_factory.mktemp("report"))


@pytest.fixture(scope="session")
def changed_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three kinds of changes; two agents' learning curves are put beside it, as a training writes them."""
    folder = tmp_path_factory.mktemp("changed")
    run(parse_experiment(CHANGED, "changed.toml"), folder, backend_of("local", 1))
    (folder / "agents").mkdir()
    for seed in range(2):
        curve = [{"update": k, "steps": 1000 * k, "return": 0.0, "score": 20.0 - k - seed} for k in range(5)]
        record = {"label": f"agent-{seed}", "objective": "slowdown", "steps": 4000, "wall_s": 1.5, "curve": curve}
        (folder / "agents" / f"agent-{seed}.json").write_text(json.dumps(record))
    return folder


@pytest.fixture(scope="session")
def shift_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A change of distribution, with few tasks."""
    pytest.importorskip("sklearn")
    folder = tmp_path_factory.mktemp("shift")
    run(parse_experiment(SHIFT, "shift.toml"), folder, backend_of("local", 1))
    return folder


@pytest.fixture(scope="session")
def core(core_folder: Path) -> Study:
    return load_study(core_folder)


@pytest.fixture(scope="session")
def changed(changed_folder: Path) -> Study:
    return load_study(changed_folder)


@pytest.fixture(scope="session")
def shifted(shift_folder: Path) -> Study:
    return load_study(shift_folder)


@pytest.fixture(scope="session")
def drifting(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The quick form of `drift`, whose workloads have phases."""
    folder = tmp_path_factory.mktemp("drifting")
    run(load_experiment("drift", quick=True), folder, backend_of("local", 1))
    return load_study(folder)


@pytest.fixture(scope="session")
def switching(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The quick form of `switching`, without the scheduler that takes long."""
    folder = tmp_path_factory.mktemp("switching")
    quick = load_experiment("switching", quick=True)
    slow = ("linucb",)
    axes = replace(quick.axes, schedulers=tuple(name for name in quick.axes.schedulers if name not in slow))
    judge = replace(quick.judge, challengers=tuple(name for name in quick.judge.challengers if name not in slow))
    sets = tuple(replace(each, switches=tuple(name for name in each.switches if name not in slow)) for each in quick.sets)
    run(replace(quick, axes=axes, judge=judge, sets=sets), folder, backend_of("local", 1))
    return load_study(folder)


@pytest.fixture(scope="session")
def stopping(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """The quick form of `preemption`."""
    folder = tmp_path_factory.mktemp("stopping")
    run(load_experiment("preemption", quick=True), folder, backend_of("local", 1))
    return load_study(folder)
