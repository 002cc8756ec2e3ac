"""One deployment for each cluster, also of users who cannot write where the others' locks lie."""

from __future__ import annotations

import pytest

from gpuyard.errors import UsageError
from gpuyard.files import locked
from gpuyard.live import leader


@pytest.fixture
def foreign(monkeypatch, tmp_path):
    """Return the system's folder, where this user may not write."""
    monkeypatch.setattr(leader, "SYSTEM", tmp_path / "run")
    monkeypatch.setattr(leader.os, "access", lambda *_: False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return tmp_path / "run"


def test_a_cluster_that_another_user_leads_has_no_second_deployment(foreign):
    with locked(foreign / "slurm-tiger"):
        with pytest.raises(UsageError, match="slurm-tiger: has a deployment already"), leader.leading("slurm-tiger"):
            raise AssertionError("there are two")
        with leader.leading("slurm-lion"):
            pass


def test_a_lock_can_be_held_by_its_owner_alone(foreign):
    """Who may read a file may hold a lock on it, and so keep the owner out."""
    with locked(foreign / "slurm-tiger"):
        assert (foreign / "slurm-tiger" / "lock").stat().st_mode & 0o777 == 0o600
    with leader.leading("slurm-tiger"):
        pass  # it was led from there before, and is no more
