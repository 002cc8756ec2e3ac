"""The forest as arrays is scikit-learn's forest; files of others do no harm."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from sklearn.ensemble import RandomForestRegressor

from gpuyard.errors import DataError
from gpuyard.learn.devices import ForestConfig, fit_forest
from gpuyard.policies.deciders.learning.forest import Forest


def data(seed: int, samples: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    x = rng.uniform(0, 4, (samples, 3))
    return x, np.stack([x[:, 0] ** 1.5 / (x[:, 1] + 0.5), x[:, 2] * x[:, 0]], axis=1)


@pytest.mark.parametrize("seed", range(3))
def test_predictions_are_those_of_scikit_learn(seed: int):
    x, y = data(seed)
    model = RandomForestRegressor(20, max_depth=8, random_state=seed).fit(x, y)
    inside, outside = data(seed + 100)[0], np.random.default_rng(seed).uniform(-5, 20, (200, 3))
    for points in (x, inside, outside):
        assert Forest.of(model).predict(points) == pytest.approx(model.predict(points), rel=1e-12)


def test_fitted_by_seed_and_saved_without_loss(tmp_path: Path):
    x, y = data(1)
    forest = fit_forest(x, y, 4, ForestConfig(trees=10))
    assert np.abs(forest.predict(x) - y).mean() < 0.2 * np.abs(y - y.mean(axis=0)).mean()
    assert np.array_equal(fit_forest(x, y, 4, ForestConfig(trees=10)).predict(x), forest.predict(x))
    assert not np.array_equal(fit_forest(x, y, 5, ForestConfig(trees=10)).predict(x), forest.predict(x))
    forest.save(tmp_path / "f.safetensors")
    again = Forest.load(tmp_path / "f.safetensors")
    assert np.array_equal(again.predict(x), forest.predict(x))
    assert again.features == 3


def hostile(arrays: dict[str, np.ndarray], name: str) -> dict[str, np.ndarray]:
    changed = {key: value.copy() for key, value in arrays.items()}
    inner = int(np.flatnonzero(changed["left"] >= 0)[-1])
    if name == "loop":
        changed["left"][inner] = 0
    if name == "beyond":
        changed["right"][inner] = len(changed["left"])
    if name == "feature":
        changed["feature"][inner] = 3
    if name == "root":
        changed["roots"][0] = -1
    if name == "value":
        changed["value"][0] = np.nan
    if name == "shape":
        changed["threshold"] = changed["threshold"][:-1]
    if name == "type":
        changed["left"] = changed["left"].astype(np.float64)
    if name == "missing":
        del changed["right"]
    return changed


@pytest.mark.parametrize("name", ["loop", "beyond", "feature", "root", "value", "shape", "type", "missing"])
def test_broken_files_are_refused(tmp_path: Path, name: str):
    x, y = data(2, 60)
    path = tmp_path / "f.safetensors"
    fit_forest(x, y, 0, ForestConfig(trees=2)).save(path)
    save_file(hostile(load_file(path), name), path, metadata={"form": "gpuyard-forest-1", "features": "3"})
    with pytest.raises(DataError, match=r"f\.safetensors: "):
        Forest.load(path)


def test_other_files_are_refused(tmp_path: Path):
    path = tmp_path / "f.safetensors"
    with pytest.raises(DataError, match="f.safetensors: cannot be read"):
        Forest.load(path)
    path.write_bytes(b"\x08\0\0\0\0\0\0\0not json")
    with pytest.raises(DataError, match="f.safetensors: header: not JSON"):
        Forest.load(path)
    save_file({"a": np.zeros(3)}, path)
    with pytest.raises(DataError, match="is not a forest"):
        Forest.load(path)
