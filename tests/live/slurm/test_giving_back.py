"""What gives the queue back to Slurm, and until when, without one: who is let go, who stays held."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest
from tests.live.slurm.test_placing import marked

from gpuyard.live.guards import GuardSettings
from gpuyard.live.slurm import deploying, means, modes
from gpuyard.live.slurm.commands import SlurmError, scontrol_line
from gpuyard.live.slurm.deploying import SlurmDeployment, SlurmSettings
from gpuyard.live.slurm.modes import OrderMode
from gpuyard.policies import parse_scheduler


@pytest.fixture
def queue(monkeypatch):
    """Return the jobs that squeue lists, and the lines that scontrol is sent."""
    jobs, lines = [], []

    def send(updates, patience):
        lines.extend(scontrol_line(each) for each in updates)
        return {}

    for module in (means, modes):
        monkeypatch.setattr(module, "read_jobs", lambda *_, **__: list(jobs))
        monkeypatch.setattr(module, "send", send)
    return jobs, lines


def test_while_it_is_stopped_place_mode_lets_new_jobs_go_and_those_that_did_not_start(queue, monkeypatch, tmp_path):
    """The hook goes on marking jobs if it names no stop file, and a job may have been started a moment before the stop."""
    jobs, lines = queue
    monkeypatch.setattr(deploying, "read_slurm", lambda *_, **__: (_ for _ in ()).throw(SlurmError("down")))
    (tmp_path / "stop").touch()
    guards = GuardSettings(stop_file=tmp_path / "stop")
    work = SlurmDeployment(parse_scheduler("fcfs/fewest/easy"), SlurmSettings("place", 0.01, partitions=("gpu",), guards=guards))
    now = time.time()
    jobs[:] = [marked(1, now - 1.0, ("n0",), why="")]
    next(work.cycles())
    assert lines == []  # it is under way
    jobs[:] = [marked(1, now - 60.0, ("n0",), why=""), marked(2, now + 600.0)]
    next(work.cycles())
    assert lines == ["update jobid=1 reqnodelist= starttime=now", "update jobid=2 reqnodelist= starttime=now"]


def test_a_reset_lets_jobs_go_that_are_under_way_also_when_the_hook_is_gone(queue, monkeypatch):
    jobs, lines = queue
    monkeypatch.setattr(deploying, "configuration", lambda *_: {"PriorityType": "priority/other"})
    jobs[:] = [marked(1, time.time() - 1.0, ("n0",), why="")]
    assert deploying.reset() == (1, {})
    assert lines == ["update jobid=1 reqnodelist= starttime=now"]


def test_a_reset_of_priorities_releases_nobody_whom_slurm_holds(queue):
    jobs, lines = queue
    jobs[:] = [replace(marked(1, 0.0, why="impossible"), priority=0.0), replace(marked(2, 0.0, why=""), priority=5.0)]
    assert means.Priorities().reset(1.0, touches=lambda job: True) == (1, {})
    assert lines == ["release 2"]


@pytest.mark.parametrize("means_of", [means.SiteFactors, means.Priorities])
def test_a_reset_does_not_touch_whom_the_operator_has_excluded(queue, monkeypatch, means_of):
    jobs, lines = queue
    monkeypatch.setattr(means, "read_site_factors", lambda *_: {1: 5, 2: 5, 3: 5, 4: 5})
    mine = [replace(marked(number, 0.0, why=""), priority=5.0, mark="") for number in (1, 2, 3)]
    jobs[:] = [mine[0], replace(mine[1], user="guest"), replace(mine[2], partitions=("debug",))]
    guards = GuardSettings(users=frozenset({"guest"}), partitions=frozenset({"debug"}))
    mode = OrderMode(guards, 100, frozenset(), means=means_of())
    assert mode.withdraw(1.0) == (1, {})
    kind = next(name for name, each in means.MEANS.items() if each is means_of)
    monkeypatch.setattr(deploying, "configuration", lambda *_: {"PriorityType": kind})
    assert deploying.reset(1.0, GuardSettings(), frozenset({"debug"})) == (1, {})
    assert [line.split()[1].removeprefix("jobid=") for line in lines] == ["1", "3"]
