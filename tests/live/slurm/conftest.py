"""A real Slurm, for all tests of a worker; each test begins with an empty queue."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.real_slurm import RealSlurm, binaries


@pytest.fixture(scope="session")
def running_slurm() -> Iterator[RealSlurm]:
    binaries()
    base = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))  # a short path: sockets have at most 108 letters
    base.chmod(0o755)
    slurm = RealSlurm(base)
    try:
        slurm.start()
        yield slurm
    finally:
        slurm.stop()
        shutil.rmtree(base, ignore_errors=True)


@pytest.fixture
def slurm(running_slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    for name in ("SLURM_CONF", "PATH"):
        monkeypatch.setenv(name, running_slurm.environment[name])
    yield running_slurm
    running_slurm.clear()
