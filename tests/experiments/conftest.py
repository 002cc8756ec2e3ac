"""A small experiment for tests: quick to run, and with a bit of everything in it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SMALL = """
title = "Small"
question = "Which is it?"
curves = ["cdf.wait", "box.user.slowdown", "queue"]

[axes]
workloads = ["family:shape=base|bursty,intensity=high,gpus=4 on 1x{gpus}:a100", "busy"]
schedulers = ["fcfs", "shortest", "switch"]
seeds = "0-2"
objectives = ["slowdown", "balanced"]

[names]
busy = "demo:jobs=40 on 1x8:a100"
shortest = "sjf/first/easy"
switch = "meta:random(fcfs, sjf)@60"

[judge]
challengers = ["shortest"]
oracle = ["fcfs", "shortest"]
metrics = ["wait", "utilization"]
groups = ["shape"]

[[examples]]
workload = "family:shape=bursty,intensity=high,gpus=4 on 1x4:a100"
schedulers = ["shortest"]

[quick.axes]
seeds = "0"
"""


@pytest.fixture(scope="session")
def small() -> str:
    """The text of its file."""
    return SMALL


@pytest.fixture
def small_file(tmp_path: Path) -> Callable[..., Path]:
    """Write it, with some texts in place of others."""

    def write(*changes: tuple[str, str], name: str = "small.toml") -> Path:
        text = SMALL
        for old, new in changes:
            assert text.count(old) == 1, old
            text = text.replace(old, new)
        path = tmp_path / name
        path.write_text(text)
        return path

    return write
