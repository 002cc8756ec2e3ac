"""The benchmark of meta-schedulers: gaps by hand, and a small run of the real thing."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "quality_meta.py"


@pytest.fixture(scope="module")
def quality() -> ModuleType:
    spec = importlib.util.spec_from_file_location("quality_meta", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["quality_meta"] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


def test_gaps_by_hand(quality: ModuleType) -> None:
    """Two heuristics and a third scheduler, one regime, two seeds."""
    values = np.zeros((3, 1, 2, 3))
    values[..., 0] = np.array([[2.0, 3.0], [4.0, 1.5], [2.2, 1.5]])[:, None, :]
    np.testing.assert_allclose(quality.gaps(values, 2)[:, 0], [[0.0, 1.0], [1.0, 0.0], [0.1, 0.0]])


def test_there_are_48_regimes(quality: ModuleType) -> None:
    assert len(set(quality.REGIMES)) == 48


def test_a_switch_among_twins_is_its_heuristic(quality: ModuleType) -> None:
    """Random switching between srpt and itself has the numbers of srpt, and no gap where srpt is the best."""
    texts = ["fcfs", "priority", "edf", "srpt", "dynamic", "meta:random(srpt, srpt)@60"]
    values = quality.measured(texts, range(100_000, 100_002), quality.REGIMES[:1])
    assert values.shape == (6, 1, 2, 3)
    np.testing.assert_array_equal(values[3], values[5])
    lines = quality.table(texts, values, 5)
    assert [line["scheduler"] for line in lines] == texts
    assert lines[3]["ours better by"] == "0.0000 [0.0000, 0.0000]"
    assert len(quality.shown(lines, "md").splitlines()) == 2 + len(texts)
