"""Every script in `benchmarks/` says what it does when asked; a stray % in a help text would crash it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "benchmarks"
SCRIPTS = sorted(path.name for path in FOLDER.glob("*.py") if "ArgumentParser(" in path.read_text(encoding="utf-8"))
NEEDS = {"baselines3.py": "stable_baselines3"}


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_says_what_it_does(script: str) -> None:
    if script in NEEDS:
        pytest.importorskip(NEEDS[script])
    done = subprocess.run([sys.executable, str(FOLDER / script), "--help"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    assert done.stdout.startswith("usage: ")
