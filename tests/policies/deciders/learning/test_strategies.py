"""Strategies that learn, by name, anywhere a scheduler is; and the file of their models."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from gpuyard import load_cluster, parse_scheduler, simulate
from gpuyard.cli.main import run as gpuyard
from gpuyard.errors import DataError, UsageError
from gpuyard.model.units import Range
from gpuyard.policies.deciders.learning.strategies import SHIPPED, DeviceModels, shipped_models
from gpuyard.traces.generators.tasks import tasks

NAMES = ("forest", "regressor", "linucb-device", "online")
LIGHT = "tasks:jobs=80,intensity=0:0.3,memory=4GB:12GB"


@pytest.mark.parametrize("name", NAMES)
def test_simulate_takes_it_and_says_what_it_did(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert gpuyard(["simulate", LIGHT, "--scheduler", name, "--format", "json", "--metric", "turnaround"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["counts"]["done"] == 80
    assert said["decider"]["assigned"] == 80
    assert (said["decider"]["learned from"] > 0) == (name != "forest")


def test_compare_takes_all_of_them(capsys: pytest.CaptureFixture[str]) -> None:
    flags = [flag for name in ("round-robin", *NAMES) for flag in ("--scheduler", name)]
    assert gpuyard(["compare", LIGHT, *flags, "--seeds", "2", "--metric", "turnaround", "--format", "json"]) == 0
    text = capsys.readouterr().out
    assert all(name in text for name in NAMES)


def test_parameters_have_an_effect() -> None:
    workload, cluster = tasks(5, jobs=100, intensity=Range(0, 0.3), memory=Range(4, 12)), load_cluster("tasks")
    texts = ("forest", "forest:replan=0", "online", "online:epsilon=0.5", "online:discount=0", "online:updates=0", "regressor:epsilon=1")
    found = {text: simulate(workload, cluster, parse_scheduler(text)).table["end"].tobytes() for text in texts}
    assert len(set(found.values())) == len(texts)


@pytest.mark.parametrize(
    "text", ["online:epsilon=1.5", "online:updates=0.5", "online:sync=0", "online:learning_rate=0", "regressor:half=0"]
)
def test_values_that_make_no_sense_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        simulate(tasks(5, jobs=5), load_cluster("tasks"), parse_scheduler(text))


def test_models_are_saved_without_loss(tmp_path: Path) -> None:
    shipped_models().save(tmp_path / "m.safetensors")
    again = DeviceModels.load(tmp_path / "m.safetensors")
    facts = np.array([[1.0, 0.8, 0.5], [3.0, 0.1, 9.0]])
    for make in (DeviceModels.forest_durations, DeviceModels.linear_durations, lambda models: models.network_durations(0)):
        assert np.array_equal(make(again).predict(facts), make(shipped_models()).predict(facts))
    assert np.array_equal(again.values.flat, shipped_models().values.flat)


BREAKS = {
    "forest": ("forest.left", lambda a: a.astype(np.float32)),
    "network": ("seconds.flat", lambda a: a[:-1]),
    "numbers": ("values.flat", lambda a: np.full_like(a, np.nan)),
    "widths": ("values.widths", lambda a: np.array([1 << 40, 2])),
    "linear": ("linear.products", lambda a: a[:3]),
    "missing": ("seconds.widths", None),
}


@pytest.mark.parametrize("name", BREAKS)
def test_broken_files_are_refused(name: str, tmp_path: Path) -> None:
    arrays, (key, change) = load_file(SHIPPED), BREAKS[name]
    arrays = {k: (change(a) if change else a) if k == key else a for k, a in arrays.items() if k != key or change}
    save_file(arrays, tmp_path / "m.safetensors", metadata={"form": "gpuyard-devices-1"})
    with pytest.raises(DataError, match=r"m\.safetensors: "):
        DeviceModels.load(tmp_path / "m.safetensors")
    save_file(arrays, tmp_path / "other.safetensors")
    with pytest.raises(DataError, match="does not hold models"):
        DeviceModels.load(tmp_path / "other.safetensors")


def test_the_models_were_trained_on_compute_heavy_tasks() -> None:
    """They know those well, and low-intensity, memory-heavy ones badly: what `online` has to learn."""
    from gpuyard.learn.devices import profile

    cluster = load_cluster("tasks")
    heavy = profile(tasks(7, jobs=200, intensity=Range(0.7, 1), memory=Range(0.1, 1)), cluster)
    light = profile(tasks(7, jobs=200, intensity=Range(0, 0.3), memory=Range(4, 12)), cluster)
    for model in (shipped_models().forest_durations(), shipped_models().network_durations(0), shipped_models().linear_durations()):
        known, unknown = (np.abs(np.log(model.predict(data.facts) / data.seconds)).mean() for data in (heavy, light))
        assert known < 0.1 < 0.3 < unknown
