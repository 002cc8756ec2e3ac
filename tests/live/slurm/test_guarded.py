"""Guards beside a real Slurm in order mode: who is left alone, how far the order may differ, and what ends it."""

from __future__ import annotations

from dataclasses import replace

from tests.live.slurm.test_deploy import blocked, deployment, forty, queue_order
from tests.support.real_slurm import RealSlurm

from gpuyard.cli.main import run
from gpuyard.live.guards import GuardSettings
from gpuyard.live.slurm.commands import read_jobs
from gpuyard.live.slurm.means import read_site_factors


def test_no_job_stands_further_behind_than_allowed(slurm: RealSlurm):
    blocked(slurm)
    jobs = forty(slurm)
    own = sorted(jobs)
    next(deployment(mode="order", guards=GuardSettings(behind=5)).cycles())
    found = queue_order(slurm)
    assert found != own
    assert max(found.index(job) - own.index(job) for job in own) == 5


def test_users_that_are_left_to_the_site_are_not_touched_and_are_put_back(slurm: RealSlurm):
    blocked(slurm)
    forty(slurm)
    next(deployment(mode="order").cycles())
    assert any(read_site_factors().values())
    user = read_jobs()[0].user
    work = deployment(mode="order", guards=GuardSettings(users=frozenset({user})))
    assert next(work.cycles())["out_of_order"] == 0
    assert set(read_site_factors().values()) == {0}
    assert next(work.cycles())["updates"] == []


def test_the_kill_switch_brings_slurms_order_back_and_its_removal_ours(slurm: RealSlurm, tmp_path):
    blocked(slurm)
    jobs = forty(slurm)
    stop = tmp_path / "stop"
    work = deployment(mode="order", guards=GuardSettings(stop_file=stop))
    assert next(work.cycles())["acts"]
    ordered = queue_order(slurm)
    stop.touch()
    record = next(work.cycles())
    assert (record["acts"], record["stopped"]) == (False, True)
    assert record["withdrawn"] > 0
    assert queue_order(slurm) == sorted(jobs)
    assert "withdrawn" not in next(work.cycles())  # once is enough
    stop.unlink()
    work.mode.reread(30.0)
    assert next(work.cycles())["acts"]
    assert queue_order(slurm) == ordered


def test_waits_that_grow_bring_slurms_order_back_for_good(slurm: RealSlurm):
    blocked(slurm)
    jobs = forty(slurm)
    work = deployment(mode="order", guards=GuardSettings(usual_wait=10.0, least=3))
    next(work.cycles())
    work.watch.see({"started": [[str(k), 100.0] for k in range(5)]})
    record = next(work.cycles())
    assert record["tripped"].startswith("jobs waited 100 s on average")
    assert queue_order(slurm) == sorted(jobs)
    assert not next(work.cycles())["acts"]


def test_a_decision_on_an_old_snapshot_is_not_sent(slurm: RealSlurm):
    blocked(slurm)
    forty(slurm)
    work = deployment(mode="order", guards=replace(GuardSettings(), fresh=0.0))
    record = next(work.cycles())
    assert (record["acts"], record["failed"]) == (False, {})
    assert set(read_site_factors().values()) == {0}


def test_a_dry_run_shows_what_would_be_sent_and_sends_nothing(slurm: RealSlurm, capsys):
    blocked(slurm)
    forty(slurm)
    assert run(["deploy", "slurm", "--order", "--dry-run"]) == 0
    told = capsys.readouterr().out
    assert "39 updates would be sent beside 40 waiting jobs; nothing was sent." in told
    assert "sitefactor=" in told
    assert set(read_site_factors().values()) == {0}
