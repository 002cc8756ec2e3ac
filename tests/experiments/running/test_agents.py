"""Policies that an experiment trains first: the same wherever, gone on with after a kill, judged by training seed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import GpuyardError
from gpuyard.experiments.design.spec import load_experiment
from gpuyard.experiments.judging.summary import summarise
from gpuyard.experiments.running.agents import labels_of
from gpuyard.experiments.running.results import load_results
from gpuyard.experiments.running.runner import checked, run
from gpuyard.experiments.running.store import AGENTS, CURVES, RUNS
from gpuyard.experiments.running.workers import Here, Processes

pytest.importorskip("jax", reason="JAX is not installed")

TEXT = """
title = "Trained"

[axes]
workloads = ["family:shape=bursty,intensity=medium,gpus=4 on 1x4:a100"]
schedulers = ["Mine", "fcfs"]
seeds = "0-1"
objectives = ["slowdown"]

[agents.Mine]
env = "Switch"
learner = "d3qn"
workloads = ["family:shape=bursty,intensity=medium,gpus=4 on 1x4:a100"]
steps = "STEPS"
seeds = "0-1"
settings = ["training.envs=8", "env.pool=8", "training.validation_episodes=4", "training.validate_every=1000", "training.save_every=20"]

[agents.unused]
env = "Switch"
learner = "d3qn"
workloads = ["demo on 8"]
steps = "1k"
"""
LABELS = ["Mine-0", "Mine-1"]


def write(folder: Path, steps: str = "400", *changes: tuple[str, str]) -> Path:
    text = TEXT.replace("STEPS", steps)
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    path = folder / "trained.toml"
    path.write_text(text)
    return path


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("trained")
    outcome = run(load_experiment(str(write(folder))), folder / "results", Here())
    assert outcome.trained == 2
    return folder / "results"


def test_each_training_seed_is_an_entry_of_its_own(trained: Path) -> None:
    results = load_results(trained)
    assert results.columns["scheduler"].tolist() == ["Mine", "Mine", "fcfs"] * 2
    assert np.array_equal(results.columns["training_seed"], [0, 1, np.nan] * 2, equal_nan=True)
    assert sorted(results.agents) == LABELS
    assert results.agents["Mine-0"]["steps"] >= 400
    assert results.agents["Mine-0"]["curve"]
    assert sorted(path.name for path in (trained / AGENTS).iterdir()) == sorted(
        f"{x}{end}" for x in LABELS for end in (".json", ".safetensors")
    )
    table = summarise(results).table
    assert (table.over, table.n) == ("training seed", 2)
    assert labels_of(results.experiment) == [("Mine-0", "Mine", 0), ("Mine-1", "Mine", 1)]


def assert_same(found: Path, other: Path) -> None:
    for name in (RUNS, CURVES, *(f"{AGENTS}/{label}.safetensors" for label in LABELS)):
        assert (found / name).read_bytes() == (other / name).read_bytes(), name
    for label in LABELS:
        curves = [json.loads((folder / AGENTS / f"{label}.json").read_text())["curve"] for folder in (found, other)]
        assert curves[0] == curves[1]
    assert not list((found / AGENTS).glob("*.training"))


def test_two_workers_train_the_same_policies_and_what_a_killed_process_left_is_removed(trained: Path, tmp_path: Path) -> None:
    experiment, folder = load_experiment(str(write(tmp_path))), tmp_path / "results"

    def stop(what: str, done: int, total: int) -> None:
        if (what, done) == ("agents", 2):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(experiment, folder, Processes(2), progress=stop)
    (folder / AGENTS / "Mine-0.training").mkdir()  # killed after the agent was kept
    (folder / AGENTS / "Mine-1.json").unlink()  # killed between the checkpoint and what says that it is whole
    outcome = run(experiment, folder, Here())
    assert outcome.trained == 1
    assert_same(folder, trained)


def test_an_agent_is_checked_before_anything_is_written(tmp_path: Path) -> None:
    for change, message in (
        (('learner = "d3qn"\nworkloads = ["family', 'learner = "d4qn"\nworkloads = ["family'), r"\[agents.Mine\].*d4qn"),
        (('steps = "400"', 'steps = "many"'), r"\[agents.Mine\].*many"),
        (('"env.pool=8"', '"env.pol=8"'), r"\[agents.Mine\].*pol"),
        (('"env.pool=8"', '"env.pool=8", "env.schedulers=./own.py:rule,fcfs"'), r"\[agents.Mine\].*names a program"),
        (('schedulers = ["Mine", "fcfs"]', 'schedulers = ["Mine", "fcsf"]'), "scheduler 'fcsf'"),
    ):
        experiment = load_experiment(str(write(tmp_path, "400", change)))
        with pytest.raises(GpuyardError, match=message):
            checked(experiment)
        with pytest.raises(GpuyardError, match=message):
            run(experiment, tmp_path / "results", Here())
        assert not (tmp_path / "results").exists()


def test_agents_on_the_axis_have_the_same_training_seeds(tmp_path: Path) -> None:
    with pytest.raises(GpuyardError, match=r"trained.toml: \[agents.unused\]: seeds are not those of Mine"):
        load_experiment(str(write(tmp_path, "400", ('schedulers = ["Mine", "fcfs"]', 'schedulers = ["Mine", "unused"]'))))


# ── interrupted ──


def started(file: Path, folder: Path, workers: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuyard", "run", str(file), "--out", str(folder), "--workers", str(workers)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True)


def until(condition: Callable[[], bool], seconds: float = 60.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@pytest.mark.slow
@pytest.mark.parametrize(("workers", "number"), [(1, signal.SIGKILL), (2, signal.SIGKILL), (1, signal.SIGINT), (2, signal.SIGINT)])
def test_a_training_that_is_stopped_goes_on_and_ends_the_same(tmp_path: Path, workers: int, number: signal.Signals) -> None:
    file = write(tmp_path, "12000")
    with started(file, tmp_path / "whole", 2) as process:
        process.communicate()
    folder = tmp_path / "stopped"
    process = started(file, folder, workers)
    assert until(lambda: bool(list((folder / AGENTS).glob("*.training/state*"))))
    if number == signal.SIGINT:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    _, err = process.communicate()
    assert "Traceback" not in err
    assert process.returncode == (130 if number == signal.SIGINT else -9)
    assert list((folder / AGENTS).glob("*.training")), "it was too quick"
    with started(file, folder, workers) as process:
        _, err = process.communicate()
    assert process.returncode == 0, err
    assert_same(folder, tmp_path / "whole")
