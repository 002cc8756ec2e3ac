"""Place mode beside a real Slurm: when and where each job starts is the scheduler's, and nothing waits for it when it is dead."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest
from tests.live.slurm.test_deploy import SHAPES, assert_never_oversubscribed, ended, forty_waiting
from tests.live.slurm.test_real import until
from tests.support.real_slurm import RealSlurm, private_slurm

from gpuyard.cli.main import run
from gpuyard.errors import UsageError
from gpuyard.live.deployment.placing import MARK, PlaceSettings
from gpuyard.live.guards import GuardSettings
from gpuyard.live.slurm.commands import read_jobs, send
from gpuyard.live.slurm.dead_man import hook
from gpuyard.live.slurm.deploying import SlurmDeployment, SlurmSettings, reset
from gpuyard.live.slurm.modes import release_all
from gpuyard.policies import parse_scheduler

DEADMAN = 60.0  # s
PATIENT = 120.0  # s; the machine may be busy


@pytest.fixture(scope="module")
def placed_slurm() -> Iterator[RealSlurm]:
    with private_slurm(priority="basic", hook=hook(["gpu"], deadman=DEADMAN)) as slurm:
        yield slurm


@pytest.fixture
def slurm(placed_slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    with placed_slurm.used(monkeypatch):
        yield placed_slurm


def placing(
    scheduler: str = "sjf/fewest/easy", *, deadman: float = DEADMAN, guards: GuardSettings | None = None, **times
) -> SlurmDeployment:
    settings = SlurmSettings(
        "place", every=0.1, most=400, partitions=("gpu",), guards=guards or GuardSettings(),
        place=PlaceSettings(deadman, **({"settle": 15.0, "rest": 5.0} | times)),
    )  # fmt: skip
    made = SlurmDeployment(parse_scheduler(scheduler), settings)
    made.check()
    return made


def jobs_of(slurm: RealSlurm):
    return {job.name: job for job in read_jobs(placing=True)}


def work_until(work: SlurmDeployment, condition, seconds: float = PATIENT) -> list[dict]:
    """Let a deployment work until something is so; return the lines of its log."""
    end, found = time.monotonic() + seconds, []
    while not condition():
        assert time.monotonic() < end, found[-1]
        found.append(next(work.cycles()))
        time.sleep(0.1)
    return found


def blocked(slurm: RealSlurm) -> list[int]:
    """Fill every GPU by jobs that name their node, and so are Slurm's."""
    found = [slurm.submit("-w", name, f"--gres=gpu:{8 if name[0] == 'a' else 4}") for name in ("a1", "a2", "b1", "b2")]
    until(lambda: all(slurm.states()[job] == "RUNNING" for job in found), PATIENT)
    return found


# ── 40 jobs ──


def test_40_jobs_start_once_each_where_they_were_put(slurm: RealSlurm):
    blockers = blocked(slurm)
    jobs = forty_waiting(slurm)
    assert {job.mark for name, job in jobs_of(slurm).items() if int(name) in jobs} == {MARK}
    work = placing()
    assert next(work.cycles())["placed"] == []
    slurm.run("scancel", *map(str, blockers))
    records = work_until(work, lambda: all(slurm.states()[job] == "COMPLETED" for job in jobs))
    assert not any("error" in each for each in records)
    record = ended(slurm)
    assert {record[job]["JobState"] for job in jobs} == {"COMPLETED"}
    assert_never_oversubscribed({job: record[job] for job in jobs}, jobs)
    put = {int(name): nodes for each in records for name, nodes in each["placed"]}
    assert set(put) == set(jobs)
    from gpuyard.model.site.notation import node_names

    for job in jobs:
        assert sorted(node_names(record[job]["NodeList"])) == sorted(put[job])
        assert len(put[job]) == (2 if "-N2" in SHAPES[jobs[job][1]] else 1)


def test_a_start_is_one_update_and_others_are_left_alone_until_their_time_is_near(slurm: RealSlurm):
    blocked(slurm)
    names = [slurm.submit("--gres=gpu:1") for _ in range(5)]
    array = slurm.submit("--array=0-9", "--gres=gpu:1")
    work = placing()
    assert next(work.cycles())["updates"] == []  # more than a third of DEADMAN is left
    later = placing(deadman=600.0)  # now it is not
    sent = next(later.cycles())["updates"]
    assert sorted(sent) == sorted([(str(job), "starttime=now+600") for job in names] + [(f"{array}_[0-9]", "starttime=now+600")])
    assert f"{array}_[0-9]" in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i")  # nothing was split off
    assert next(later.cycles())["updates"] == []
    back = placing()  # and now they lie too far ahead, as after a clock was set
    assert {change for _, change in next(back.cycles())["updates"]} == {"starttime=now+60"}


def test_an_array_starts_task_by_task(slurm: RealSlurm):
    array = slurm.submit("--array=0-5", "--gres=gpu:a100:4", seconds=1)
    work = placing()
    records = work_until(work, lambda: not any(job.waits or job.runs for job in read_jobs()))
    placed = [name for each in records for name, _ in each["placed"]]
    assert sorted(placed) == [f"{array}_{k}" for k in range(6)]


# ── traps ──


def test_who_asks_for_what_is_not_seen_is_slurms(slurm: RealSlurm):
    """Nodes, features, a begin time, whole nodes, GPUs in all: no mark, no delay."""
    blocked(slurm)
    own = [
        slurm.submit("-w", "a1", "--gres=gpu:1"), slurm.submit("-C", "v100", "--gres=gpu:1"), slurm.submit("--begin=now+1hour"),
        slurm.submit("--exclusive"), slurm.submit("--gpus=2"), slurm.submit("-x", "a1", "--gres=gpu:1"),
    ]  # fmt: skip
    ours = [slurm.submit("--gres=gpu:1"), slurm.submit("-N2", "--gres=gpu:a100:2"), slurm.submit("-c2")]
    marks = {int(name): job.mark for name, job in jobs_of(slurm).items()}
    assert [marks[job] for job in own] == [""] * 6
    assert [marks[job] for job in ours] == [MARK] * 3


def test_the_owner_cannot_start_or_move_his_job_but_may_hold_and_cancel_it(slurm: RealSlurm):
    if os.getuid() != 0:
        pytest.skip("only root can submit as another user")
    blocked(slurm)
    command = ["sbatch", "--parsable", "--gres=gpu:1", "-D", "/tmp", "-o", "/dev/null", "--wrap=sleep 9"]

    def as_nobody(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, env=slurm.environment, capture_output=True, text=True, user=65534, check=False, timeout=60)

    job = as_nobody(*command).stdout.strip()
    before = jobs_of(slurm)[job]
    assert before.mark == MARK
    for change in ("starttime=now", "reqnodelist=b1", "features=a100", "partition=gpu", "gres=gpu:2", "excnodelist=a1"):
        assert as_nobody("scontrol", "update", f"jobid={job}", change).returncode == 1, change
    for change in ("nice=10", "timelimit=5"):
        assert as_nobody("scontrol", "update", f"jobid={job}", change).returncode == 0
    as_nobody("scontrol", "release", job)
    after = jobs_of(slurm)[job]
    assert (after.eligible, after.pinned, after.mark) == (before.eligible, (), MARK)
    assert as_nobody("scontrol", "hold", job).returncode == 0
    assert as_nobody("scontrol", "release", job).returncode == 0
    assert jobs_of(slurm)[job].eligible == before.eligible
    assert as_nobody("scancel", job).returncode == 0


def test_a_job_that_does_not_start_where_it_was_put_is_taken_back_and_put_elsewhere(slurm: RealSlurm):
    """Both ways to fail: nodes that can never serve it (BadConstraints), and nodes that are taken."""
    taken = slurm.submit("-w", "a1", "--gres=gpu:8")
    until(lambda: slurm.states()[taken] == "RUNNING", PATIENT)
    never, later = slurm.submit("--gres=gpu:a100:2", "-t3"), slurm.submit("--gres=gpu:a100:2", "-t5")
    slurm.run("scontrol", "update", f"jobid={never}", "reqnodelist=b1", "starttime=now")
    slurm.run("scontrol", "update", f"jobid={later}", "reqnodelist=a1", "starttime=now")
    until(lambda: jobs_of(slurm)[str(never)].reason == "BadConstraints", PATIENT)
    until(lambda: time.time() - jobs_of(slurm)[str(later)].eligible > 3.0, PATIENT)
    work = placing(settle=3.0, rest=2.0)
    records = work_until(work, lambda: slurm.states()[never] == slurm.states()[later] == "RUNNING")
    assert {str(never), str(later)} <= {name for each in records for name in each["stuck"]}
    assert {jobs_of(slurm)[str(job)].nodes for job in (never, later)} == {("a2",)}


def test_what_was_started_a_moment_ago_counts(slurm: RealSlurm):
    """Its GPUs are not given away again while Slurm has not started it yet."""
    first, second = slurm.submit("--gres=gpu:v100:4", "-t3"), slurm.submit("--gres=gpu:v100:4", "-t4")
    third = slurm.submit("--gres=gpu:v100:4", "-t5")
    for job, node in ((first, "b1"), (second, "b2")):
        slurm.run("scontrol", "update", f"jobid={job}", f"reqnodelist={node}", "starttime=now")
    work = placing()
    record = next(work.cycles())
    assert (record["running"], record["placed"]) == (2, [])
    assert str(third) in record["order"]


def test_a_requeued_job_is_unpinned_and_started_again(slurm: RealSlurm):
    job = slurm.submit("--gres=gpu:a100:2", seconds=300)
    work = placing()
    work_until(work, lambda: slurm.states()[job] == "RUNNING")
    (node,) = jobs_of(slurm)[str(job)].nodes
    slurm.run("scontrol", "update", f"nodename={node}", "state=drain", "reason=test")
    try:
        slurm.run("scontrol", "requeue", str(job))
        until(lambda: slurm.states()[job] == "PENDING", PATIENT)
        assert jobs_of(slurm)[str(job)].pinned == (node,)  # Slurm keeps the pin, on a node that takes nothing
        work_until(work, lambda: slurm.states()[job] == "RUNNING")
        assert jobs_of(slurm)[str(job)].nodes != (node,)
    finally:
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume")


def test_users_that_are_left_to_the_site_start_at_once_by_slurm(slurm: RealSlurm):
    job = slurm.submit("--gres=gpu:1")
    user = jobs_of(slurm)[str(job)].user
    record = next(placing(guards=GuardSettings(users=frozenset({user}))).cycles())
    assert record["updates"] == [(str(job), "reqnodelist= starttime=now")]
    until(lambda: slurm.states()[job] == "RUNNING", PATIENT)


def test_a_job_that_no_node_can_serve_is_left_to_slurm(slurm: RealSlurm):
    """It would be put off for ever: Slurm says what is wrong with it."""
    slurm.run("scontrol", "update", "nodename=b2", "state=drain", "reason=test")
    try:
        job = slurm.submit("-N2", "--gres=gpu:v100:4", "-c60")
        assert next(placing().cycles())["updates"] == []  # it can when the node is back
        slurm.run("scontrol", "update", f"jobid={job}", "gres=gpu:v100:8")
        until(lambda: jobs_of(slurm)[str(job)].gpus == 16, PATIENT)
        assert next(placing().cycles())["updates"] == [(str(job), "reqnodelist= starttime=now")]
    finally:
        slurm.run("scontrol", "update", "nodename=b2", "state=resume")


# ── dead or stopped ──


def test_when_it_is_dead_every_job_may_start_within_the_dead_man_time(slurm: RealSlurm, tmp_path):
    blocked(slurm)
    jobs = list(forty_waiting(slurm, count=12))
    command = [sys.executable, "-m", "gpuyard", "deploy", "slurm", "--place", "--partition", "gpu", "--deadman", "20s", "--every", "0.5s",
               "--log", str(tmp_path / "log.jsonl"), "--lock", str(tmp_path)]  # fmt: skip
    with subprocess.Popen(command, env=slurm.environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as work:
        assert work.stdout is not None
        assert work.stdout.readline().startswith(b"cycle 0")
        assert work.stdout.readline().startswith(b"cycle 1")
        work.kill()
    died = time.time()
    times = [job.eligible for name, job in jobs_of(slurm).items() if int(name) in jobs]
    assert max(times) <= died + 20.0 + 1.0
    assert not [line for line in slurm.run("squeue", "-h", "-t", "PD", "-o", "%i|%Q|%r").splitlines() if "|0|" in line or "Held" in line]
    until(lambda: all(job.eligible <= time.time() and job.why == "" for name, job in jobs_of(slurm).items() if int(name) in jobs), PATIENT)


def test_reset_and_the_kill_switch_let_all_jobs_start(slurm: RealSlurm, tmp_path):
    jobs = [slurm.submit("--gres=gpu:1") for _ in range(3)]
    assert reset()[1] == {}
    until(lambda: all(slurm.states()[job] == "RUNNING" for job in jobs), PATIENT)
    more = [slurm.submit("--gres=gpu:1") for _ in range(3)]
    stop = tmp_path / "stop"
    stop.touch()
    record = next(placing(guards=GuardSettings(stop_file=stop)).cycles())
    assert (record["acts"], record["stopped"], record["withdrawn"]) == (False, True, 3)
    until(lambda: all(slurm.states()[job] == "RUNNING" for job in more), PATIENT)
    assert release_all(30.0) == (0, {})


def test_partitions_that_share_nodes_and_a_slurm_without_the_hook_are_refused(slurm: RealSlurm):
    with pytest.raises(UsageError, match="no such partition: x"):
        SlurmDeployment(parse_scheduler("sjf"), SlurmSettings("place", partitions=("x",))).check()
    slurm.run("scontrol", "create", "partitionname=other", "nodes=b2")
    try:
        with pytest.raises(UsageError, match="node b2 is in the partitions gpu, other"):
            placing()
    finally:
        slurm.run("scontrol", "delete", "partitionname=other")
    assert run(["deploy", "slurm", "--place", "--partition", "gpu", "--deadman", "20s"]) == 2  # less than six cycles


def test_a_job_that_is_gone_by_the_time_of_its_start_is_no_error(slurm: RealSlurm, monkeypatch):
    jobs = [slurm.submit("--gres=gpu:1") for _ in range(2)]
    work = placing()

    def cancel_first(updates, patience):
        slurm.run("scancel", str(jobs[0]))
        return send(updates, patience)

    monkeypatch.setattr("gpuyard.live.slurm.deploying.send", cancel_first)
    record = next(work.cycles())
    assert (len(record["placed"]), record["failed"]) == (2, {})
    until(lambda: slurm.states()[jobs[1]] in ("RUNNING", "COMPLETED"), PATIENT)
