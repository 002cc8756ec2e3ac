"""Missed targets and lost ratios are found in what the benchmark prints."""

from __future__ import annotations

import importlib.util
import json
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

from gpuyard.errors import DataError

SCRIPT = Path(__file__).resolve().parents[2] / "benchmarks" / "targets.py"


@dataclass(frozen=True)
class Row:
    """A row as the benchmark has it."""

    what: str
    measured: str
    target: str = ""


@pytest.fixture(scope="module")
def targets() -> ModuleType:
    spec = importlib.util.spec_from_file_location("targets", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(
    ("measured", "target", "met"),
    [
        ("2,145,524 jobs/s", "≥ 1,000,000 jobs/s", True),
        ("297,740 jobs/s", "≥ 1,000,000 jobs/s", False),
        ("31.31 s", "≤ 15 s", False),
        ("15 s", "≤ 15 s", True),
        ("14.6 ms", "< 25 ms at a gap ≤ 1 %", True),
        ("p50 8.1 µs, p99 2.2 × that", "p50 < 8 µs, p99 ≤ 3 × that", False),
        ("p50 7.9 µs, p99 3.2 × that", "p50 < 8 µs, p99 ≤ 3 × that", False),
        ("p50 7.9 µs, p99 2.2 × that", "p50 < 8 µs, p99 ≤ 3 × that", True),
        ("0.49", "≥ 0.5", False),
        ("1.20 ×", "≥ 1 ×", True),
        ("62,977 jobs/s", "", None),
        ("not measured", "≤ 350 bytes a job", None),
    ],
)
def test_a_target_is_met_or_missed(targets: ModuleType, measured: str, target: str, met: bool | None) -> None:
    assert targets.is_met(Row("x", measured, target)) is met


def test_a_ratio_that_is_more_than_15_percent_lower_is_a_loss(targets: ModuleType, tmp_path: Path) -> None:
    before = [Row("a : b", "34 ×"), Row("c : d", "1.00"), Row("speed", "1,000 jobs/s"), Row("gone", "2 ×")]
    targets.save(tmp_path / "before.json", "2 cores", before)
    known = targets.load(tmp_path / "before.json")
    assert known == {"a : b": 34.0, "c : d": 1.0, "gone": 2.0}
    assert targets.losses(known, [Row("a : b", "29 ×"), Row("c : d", "0.86"), Row("speed", "10 jobs/s"), Row("new", "1 ×")]) == []
    assert targets.losses(known, [Row("a : b", "28 ×"), Row("c : d", "0.5")]) == [
        "a : b: 28 after 34, 18% less", "c : d: 0.5 after 1, 50% less",
    ]  # fmt: skip


@pytest.mark.parametrize("text", ["{}", "[]", '{"format": "gpuyard-bench", "lines": [1]}', "{"])
def test_another_file_is_refused(targets: ModuleType, tmp_path: Path, text: str) -> None:
    path = tmp_path / "other.json"
    path.write_text(text)
    with pytest.raises(DataError, match="other.json"):
        targets.load(path)


def test_a_saved_run_says_what_was_missed(targets: ModuleType, tmp_path: Path) -> None:
    targets.save(tmp_path / "run.json", "2 cores", [Row("slow", "3 s", "< 2 s")])
    assert json.loads((tmp_path / "run.json").read_text())["lines"] == [
        {"what": "slow", "measured": "3 s", "target": "< 2 s", "met": False, "ratio": None}
    ]
