"""A real Slurm, for all tests of a worker; each test begins with an empty queue."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.real_slurm import RealSlurm, private_slurm


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[RealSlurm]:
    with private_slurm() as slurm:
        yield slurm


@pytest.fixture
def slurm(running_slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    with running_slurm.used(monkeypatch):
        yield running_slurm
