"""What may happen to a deployment, to Slurm and to the machine: no job is lost, held for ever, or started twice."""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.live.slurm.test_deploy import assert_never_oversubscribed, blocked, ended, forty_waiting
from tests.live.slurm.test_place import PATIENT, jobs_of, placing, work_until
from tests.live.slurm.test_real import until
from tests.support.real_slurm import RealSlurm, binaries

from gpuyard.errors import UsageError
from gpuyard.live.guards import GuardSettings
from gpuyard.live.leader import leading
from gpuyard.live.slurm.commands import cluster_name, read_jobs
from gpuyard.live.slurm.dead_man import hook
from gpuyard.live.slurm.deploying import SlurmSettings

DEADMAN = 30.0
MOMENTS = 20


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    """A Slurm of its own for each test: some of them break it."""
    binaries()
    base = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    base.chmod(0o755)
    made = RealSlurm(base, hook=hook(["gpu"], deadman=DEADMAN), more="SlurmdTimeout=20")
    try:
        made.start()
        for name in ("SLURM_CONF", "PATH"):
            monkeypatch.setenv(name, made.environment[name])
        yield made
    finally:
        made.stop()
        shutil.rmtree(base, ignore_errors=True)


def assert_each_once(slurm: RealSlurm, jobs: dict[int, tuple[int, int]]) -> None:
    """By Slurm's own record: every job completed, none twice, no GPU held twice."""
    record = ended(slurm)
    assert {job: record[job]["JobState"] for job in jobs} == dict.fromkeys(jobs, "COMPLETED")
    assert_never_oversubscribed({job: record[job] for job in jobs}, jobs)


def all_done(slurm: RealSlurm, jobs) -> bool:
    states = slurm.states()
    return all(states[job] == "COMPLETED" for job in jobs)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["order", "place"])
def test_killed_at_20_moments_and_started_again(slurm: RealSlurm, tmp_path, mode: str):
    draw = random.Random(7)
    blockers = blocked(slurm)
    jobs = forty_waiting(slurm, seconds=1.0)
    command = [sys.executable, "-m", "gpuyard", "deploy", "slurm", f"--{mode}", "--partition", "gpu", "--every", "0.2s", "--deadman", "30s",
               "--log", str(tmp_path / "log.jsonl"), "--lock", str(tmp_path)]  # fmt: skip
    slurm.run("scancel", *map(str, blockers))
    for _ in range(MOMENTS):
        with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as work:
            assert work.stdout is not None
            for _ in range(draw.randrange(3)):
                work.stdout.readline()
            time.sleep(draw.uniform(0.0, 0.4))
            work.kill()
        held = [line for line in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i|%Q|%r").splitlines() if "|0|" in line or "Held" in line]
        assert held == []
        ahead = [job.eligible - time.time() for job in jobs_of(slurm).values() if job.waits]
        assert max(ahead, default=0.0) <= DEADMAN + 1.0
    until(lambda: all_done(slurm, jobs), PATIENT + DEADMAN)  # with nobody left but Slurm
    assert_each_once(slurm, jobs)


def test_slurmctld_is_killed_and_comes_back(slurm: RealSlurm):
    blockers = blocked(slurm)
    jobs = forty_waiting(slurm, count=12, seconds=1.0)
    work = placing(guards=GuardSettings(strikes=1000))
    next(work.cycles())
    submitted, saved = time.time(), slurm.base / "state" / "job_state"
    until(lambda: saved.exists() and saved.stat().st_mtime > submitted, PATIENT)  # else Slurm itself forgets the last jobs
    slurm.kill("slurmctld")
    work.settings = SlurmSettings("place", every=0.1, most=400, partitions=("gpu",), patience=0.5, guards=work.settings.guards)
    assert "error" in next(work.cycles())
    slurm.restart("slurmctld")
    work.settings = SlurmSettings("place", every=0.1, most=400, partitions=("gpu",), guards=work.settings.guards)
    until(lambda: set(jobs) <= set(slurm.states()), PATIENT)
    slurm.run("scancel", *map(str, blockers))
    work_until(work, lambda: all_done(slurm, jobs))
    assert_each_once(slurm, jobs)


def test_slurmd_is_killed_under_jobs_that_are_being_placed(slurm: RealSlurm):
    """What was put on its node is taken back, or started again by Slurm, and runs elsewhere."""
    slurm.kill("slurmd-a1")
    jobs = [slurm.submit("--gres=gpu:a100:4", f"-t{k + 1}", seconds=0.5) for k in range(4)]
    work = placing(settle=4.0, rest=30.0)
    work_until(work, lambda: all_done(slurm, jobs), 3 * PATIENT)
    lines = (slurm.base / "log" / "jobcomp.log").read_text().splitlines()
    rows = [dict(part.partition("=")[::2] for part in line.split(" ") if "=" in part) for line in lines]
    done = [(int(row["JobId"]), row["NodeList"]) for row in rows if row["JobState"] == "COMPLETED"]  # what did not start has a row too
    assert sorted(done) == [(job, "a2") for job in jobs]


def test_a_node_is_drained_between_the_snapshot_and_the_start(slurm: RealSlurm, monkeypatch):
    from gpuyard.live.slurm import deploying

    job = slurm.submit("--gres=gpu:v100:4")
    work, real = placing(settle=3.0, rest=5.0), deploying.send
    drained: list[str] = []

    def drain_first(updates, patience):
        if not drained:
            drained.extend(change.partition("=")[2].split()[0] for change in (each.change for each in updates))
            slurm.run("scontrol", "update", f"nodename={drained[0]}", "state=drain", "reason=test")
        return real(updates, patience)

    monkeypatch.setattr(deploying, "send", drain_first)
    work_until(work, lambda: slurm.states()[job] == "RUNNING")
    assert jobs_of(slurm)[str(job)].nodes[0] not in drained


def test_scontrol_hangs_and_answers_nonsense(slurm: RealSlurm, tmp_path, monkeypatch):
    jobs = forty_waiting(slurm, count=6)
    work = placing(guards=GuardSettings(strikes=1000))
    fake = tmp_path / "scontrol"
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{slurm.environment['PATH']}")
        for script, complaint in (
            ("exec sleep 60", "scontrol: no answer within 0.5 s"), ("echo '{\"jobs\": [{]}'", "no node of any partition"),
            ("echo 'NodeName=a1 CPUTot=x Gres=gpu:8 Partitions=gpu State=IDLE'", "is not a number"), ("exit 1", "exit code 1"),
        ):  # fmt: skip
            fake.write_text(f"#!/bin/sh\n{script}\n")
            fake.chmod(0o755)
            work.settings = SlurmSettings("place", every=0.1, patience=0.5, guards=work.settings.guards)
            assert complaint in next(work.cycles())["error"]
    work.settings = SlurmSettings("place", every=0.1, most=400, partitions=("gpu",), guards=work.settings.guards)
    work_until(work, lambda: all_done(slurm, jobs))
    assert_each_once(slurm, jobs)


def test_a_clock_is_set(slurm: RealSlurm):
    """Begin times would come at the wrong moment: nothing is sent while the clocks differ, and all is well when they do not."""
    jobs = forty_waiting(slurm, count=6)
    work = placing(guards=GuardSettings(strikes=1000))
    for jump in (3600.0, -3600.0):
        work.clock = lambda jump=jump: time.time() + jump
        assert "clock is" in next(work.cycles())["error"]
        work.clock = time.time
        assert "error" not in next(work.cycles())
    work_until(work, lambda: all_done(slurm, jobs))
    assert_each_once(slurm, jobs)


def test_limits_give_the_queue_back_to_slurm_by_themselves(slurm: RealSlurm, tmp_path, monkeypatch):
    """Slurm's commands fail for three cycles in a row: from then on all is Slurm's, although they work again."""
    jobs = forty_waiting(slurm, count=6)
    work = placing(guards=GuardSettings(strikes=3))
    (tmp_path / "squeue").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "squeue").chmod(0o755)
    with monkeypatch.context() as patch:
        patch.setenv("PATH", f"{tmp_path}:{slurm.environment['PATH']}")
        records = [next(work.cycles()) for _ in range(3)]
    assert [bool(each["tripped"]) for each in records] == [False, False, True]
    assert "withdrawn_error" in records[-1]  # squeue still fails
    record = next(work.cycles())
    assert (record["acts"], record["withdrawn"]) == (False, 6)
    until(lambda: all_done(slurm, jobs), PATIENT)
    assert_each_once(slurm, jobs)


def test_one_deployment_leads_a_cluster(slurm: RealSlurm, tmp_path):
    name = cluster_name()
    with leading(name, tmp_path), pytest.raises(UsageError, match="has a deployment already"):
        command = [
            sys.executable,
            "-m",
            "gpuyard",
            "deploy",
            "slurm",
            "--order",
            "--log",
            str(tmp_path / "other.jsonl"),
            "--lock",
            str(tmp_path),
        ]
        done = subprocess.run(command, env=slurm.environment, capture_output=True, text=True, timeout=PATIENT, check=False)
        assert done.returncode == 2
        assert "has a deployment already" in done.stderr
        with leading(name, tmp_path):
            pass


def test_names_and_accounts_with_line_breaks_pass_for_nothing_else(slurm: RealSlurm):
    """A user may write what looks like another job, and does not get one."""
    blocked(slurm)
    job = slurm.submit("--gres=gpu:1", "-Jx\n9999|9999|0|RUNNING|None|0", "-A", "a|b\nc")
    found = {each.name: each for each in read_jobs(placing=True)}
    assert len(found) == 5
    assert found[str(job)].partitions == ("gpu",)
    assert found[str(job)].account == "a|b c"
