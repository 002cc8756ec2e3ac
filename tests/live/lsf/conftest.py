"""An LSF that stands in for one, for each test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.support.standin_lsf import StandInLsf


@pytest.fixture
def standin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., StandInLsf]]:
    """Start one, with its commands on PATH."""
    started = []

    def start(*, dispatch: bool = True, **settings: bool) -> StandInLsf:
        folder = tmp_path / "lsf"
        folder.mkdir()
        made = StandInLsf(folder, **settings)
        for name in ("PATH", "STANDIN_LSF", "STANDIN_BIN", "STANDIN_USER"):
            monkeypatch.setenv(name, made.environment[name])
        started.append(made)
        if dispatch:
            made.start()
        return made

    yield start
    for each in started:
        each.stop()


@pytest.fixture
def lsf(standin: Callable[..., StandInLsf]) -> StandInLsf:
    return standin()
