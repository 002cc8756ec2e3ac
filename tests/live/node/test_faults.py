"""What may happen to a machine: shims are killed, it goes down, disks fill or cannot be written, folders vanish, clocks jump."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuyard.live.node.client import NodeClient, NodeError
from gpuyard.live.node.clock import NodeClock
from support.attempts import carrying
from support.nodes import TriedNode, until

WAIT = "while ! test -e $FOLDER/go; do sleep 0.02; done"
ESCAPED = "(setsid sh -c 'trap \"\" TERM HUP; while :; do sleep 0.1; done' {tag} &) ; sleep 600"  # one process in a session of its own


def shim_of(node: TriedNode, number: int, attempt: int = 1) -> int:
    """Wait until a job runs, and return the pid of its shim."""
    until(lambda: node.state(number) == "RUNNING" and node.job(number).attempt >= attempt)
    files = node.folder / "jobs" / str(number) / f"{attempt}.id"
    return int(files.read_text().split('"pid": ')[1].split(",")[0])


def go(node: TriedNode) -> None:
    (node.folder / "go").touch()


@pytest.mark.parametrize("cgroup", [True, False])
def test_a_killed_shim_leaves_nobody_and_is_lost(stopped, cgroup):
    node = stopped.start(cgroup=cgroup)
    tag = f"tag-{os.getpid()}-{cgroup}-end"
    number = node.shell(ESCAPED.format(tag=tag))
    shim = shim_of(node, number)
    until(lambda: carrying(tag), "the process that escapes runs")
    os.kill(shim, signal.SIGKILL)
    job = node.ends(number)[0]
    assert (job.state.value, job.exit_code, job.reason) == ("LOST", None, "its shim was killed")
    until(lambda: not carrying(tag), "what it left is killed")
    assert node.job(number).attempt == 1


@pytest.mark.parametrize("blow", [signal.SIGKILL, signal.SIGTERM])
def test_it_runs_again_only_by_rule(node, blow):
    """After KILL the job is LOST. TERM, as a machine sends it that goes down, lets the shim end it in order: KILLED."""
    plain, retried, requeued = (
        node.shell(f"echo $GPUYARD_ATTEMPT; test $GPUYARD_ATTEMPT = 2 || {{ {WAIT}; }}", **rule)
        for rule in ({}, {"retry": 1}, {"requeue_lost": True})
    )
    for number in (plain, retried, requeued):
        os.kill(shim_of(node, number), blow)
    first, *others = node.ends(plain, retried, requeued)
    assert first.state.value == ("LOST" if blow == signal.SIGKILL else "KILLED")
    for job in others:
        assert (job.state.value, job.exit_code, job.attempt) == ("DONE", 0, 2)
        assert node.output(job.id).endswith("2\n")
        assert job.history[0].startswith(f"1: {first.state.value}: its shim was")


def test_who_is_lost_again_and_again_gives_up(node):
    number = node.shell(WAIT, requeue_lost=True)
    for attempt in range(1, 5):
        os.kill(shim_of(node, number, attempt), signal.SIGKILL)
        until(lambda: node.state(number) == "LOST" or node.job(number).attempt > attempt)  # noqa: B023
    assert node.state(number) == "LOST"


def test_after_the_machine_went_down_jobs_are_lost_and_requeued_by_rule(stopped):
    node = stopped.start()
    jobs = [node.shell(f"test $GPUYARD_ATTEMPT = 2 || {{ {WAIT}; }}", requeue_lost=rule) for rule in (False, True)]
    waiting = node.shell("exit 3", held=True)
    shims = [shim_of(node, number) for number in jobs]
    node.kill()
    for pid in shims:
        os.kill(pid, signal.SIGKILL)
    node.start(boot="another")
    lost, again = node.ends(*jobs)
    assert (lost.state.value, lost.reason) == ("LOST", "the machine went down")
    assert (again.state.value, again.attempt, again.history) == ("DONE", 2, ("1: LOST: the machine went down",))
    assert node.state(waiting) == "PENDING"


def test_a_database_that_lost_its_last_second_gives_no_number_twice(stopped):
    """A power failure may cost the last commits: the folders of jobs say what had begun."""
    node = stopped.start()
    node.ends(node.shell("true"))
    node.client.call("stop")
    node.gone()
    kept = {path.name: path.read_bytes() for path in node.folder.glob("node.db*")}
    node.start()
    second = node.shell("exit 7")
    held = node.shell("true", held=True)
    node.ends(second)
    node.kill()
    for path in node.folder.glob("node.db*"):
        path.unlink()
    for name, data in kept.items():
        (node.folder / name).write_bytes(data)
    node.start(boot="another")
    third = node.shell("exit 0")
    assert third > second
    assert third <= held + 1
    assert node.ends(third)[0].exit_code == 0


# ── folders ──


@pytest.mark.parametrize("restarted", [True, False])
def test_a_job_whose_folder_vanishes_goes_on(stopped, restarted):
    node = stopped.start()
    number = node.shell(f"{WAIT}; echo once >> $FOLDER/ran; exit 5")
    shim_of(node, number)
    shutil.rmtree(node.folder / "jobs" / str(number))
    if restarted:
        node.kill()
        node.start()
        assert node.state(number) == "RUNNING"
    go(node)
    job = node.ends(number)[0]
    assert (job.state.value, job.exit_code, job.attempt) == ("FAILED", 5, 1)
    assert (node.folder / "ran").read_text() == "once\n"


def test_a_job_without_folder_and_shim_is_lost(stopped):
    node = stopped.start()
    number = node.shell(WAIT)
    shim = shim_of(node, number)
    node.kill()
    os.kill(shim, signal.SIGKILL)
    shutil.rmtree(node.folder / "jobs")
    node.start()
    assert node.ends(number)[0].state.value == "LOST"
    assert node.ends(node.shell("true"))[0].state.value == "DONE"


def test_a_folder_of_a_job_that_leads_elsewhere_is_refused(stopped, tmp_path):
    """Nothing is written through a link; the job waits, and says why."""
    (stopped.folder / "jobs").mkdir(parents=True)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    node = stopped.start()
    (node.folder / "jobs" / "1").symlink_to(elsewhere)
    number = node.shell("true")
    until(lambda: "not a folder of this node" in str(node.client.call("why", id=number)["reason"]))
    assert list(elsewhere.iterdir()) == []
    (node.folder / "jobs" / "1").unlink()
    assert node.ends(number)[0].state.value == "DONE"


def test_a_stale_socket_is_replaced(stopped):
    stopped.folder.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(stopped.folder / "node.sock"))
    with pytest.raises(NodeError, match="no node runs"):
        stopped.client.jobs()
    node = stopped.start()
    assert node.ends(node.shell("true"))[0].state.value == "DONE"


def test_a_second_daemon_is_refused_and_harms_nothing(stopped):
    node = stopped.start()
    first = node.pid
    node.start(wait=False)
    node.gone()
    node.pid = first
    assert node.ends(node.shell("true"))[0].state.value == "DONE"
    assert f"error: a node runs in {node.folder} already; hint: gpuyard node status" in node.close()


@pytest.fixture
def read_only(tmp_path: Path) -> Iterator[Path]:
    """A folder in which nobody can write."""
    folder = tmp_path / "locked"
    (folder / "node").mkdir(parents=True, mode=0o700)
    folder.chmod(0o500)
    mounted = not os.geteuid() and not subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "ro,size=1m", "tmpfs", str(folder)], capture_output=True, check=False
    ).returncode  # fmt: skip
    if not (mounted or os.geteuid()):
        pytest.skip("root writes everywhere, and cannot mount here: a read-only folder is NOT tested")
    yield folder / "node"
    if mounted:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)
    folder.chmod(0o700)


def test_a_folder_that_cannot_be_written_is_refused_in_a_line(read_only):
    command = [sys.executable, "-m", "gpuyard", "node", "start", "--scheduler", "plain", "--folder", str(read_only)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith(f"gpuyard: error: {read_only}: cannot be used: ")
    assert "hint: give a folder on a local disk that you can write" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_full_disk_refuses_what_is_new_and_loses_nothing(small_disk):
    node = TriedNode(small_disk / "node")
    try:
        node.start()
        runs = node.shell(f"echo begun; {WAIT}; exit 6")
        shim_of(node, runs)
        until(lambda: "begun" in node.output(runs))
        filler = small_disk / "filler"
        with filler.open("wb") as file:
            while shutil.disk_usage(small_disk).free:
                file.write(b"\0" * shutil.disk_usage(small_disk).free)
                file.flush()
        with pytest.raises(NodeError, match="cannot be written: .*full"):
            for _ in range(1000):  # the log of the database has room left for some
                node.shell("true", name="x" * 200)
        accepted = [job.id for job in node.client.jobs() if job.id != runs]
        node.kill()
        subprocess.run(["mount", "-o", "remount,size=8m", str(small_disk)], check=True)
        (small_disk / "node" / "go").touch()
        subprocess.run(["mount", "-o", "remount,size=2m", str(small_disk)], check=False)
        filler.unlink()
        node.start()
        ended = node.ends(runs, *accepted)
        assert (ended[0].state.value, ended[0].exit_code) == ("FAILED", 6)
        assert {job.state.value for job in ended[1:]} <= {"DONE"}
    finally:
        assert "Traceback" not in node.close()


# ── clocks ──


def test_the_clock_of_a_node_never_goes_back_and_passes_while_the_machine_sleeps(monkeypatch):
    clock = NodeClock(0.0)
    before = clock.now()
    assert before == pytest.approx(time.time(), abs=5)
    assert clock.at(time.monotonic() - 7.0) == pytest.approx(clock.now() - 7.0, abs=0.1)
    wall, since_boot = time.time, time.clock_gettime
    monkeypatch.setattr(time, "time", lambda: wall() - 86_400)
    assert clock.now() >= before
    assert NodeClock(before).now() >= before
    monkeypatch.setattr(time, "clock_gettime", lambda which: since_boot(which) + 3600)
    assert clock.now() >= before + 3600


@pytest.mark.parametrize("ahead", [-86_400.0, 86_400.0])
def test_a_clock_that_jumps_spoils_no_job(stopped, ahead):
    node = stopped.start()
    first, runs = node.shell("true"), node.shell(f"{WAIT}; exit 4", walltime=3600.0)
    before = node.ends(first)[0]
    shim_of(node, runs)
    node.kill()
    node.start(clock=ahead)
    go(node)
    after, later = node.ends(runs, node.shell("true"))
    assert (after.state.value, after.exit_code) == ("FAILED", 4)
    assert before.end <= later.submit <= later.start <= later.end
    assert after.end - after.start < 60


def test_a_daemon_that_was_stopped_for_long_is_asked_in_vain_and_goes_on(node):
    """SIGSTOP, as a debugger sends it: the client gives up, nothing is lost."""
    number = node.shell("exit 2")
    os.kill(node.pid, signal.SIGSTOP)
    with pytest.raises(NodeError, match="does not answer"), NodeClient(node.folder, patience=0.2) as client:
        client.jobs()
    os.kill(node.pid, signal.SIGCONT)
    assert node.ends(number)[0].exit_code == 2
