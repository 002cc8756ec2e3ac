"""A shim runs a command, keeps its exit code, and leaves nobody behind, whatever the command does."""

from __future__ import annotations

import os
import resource
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from gpuyard.live.node.running import shim
from gpuyard.live.node.running.attempts import Fate, writable_cgroup
from support.attempts import TriedAttempt, carrying, until

CHAIN = "import os, sys\nwhile True:\n    if os.fork(): os._exit(0)\n    {each}"
DAEMON = "import os, time\nfor _ in 'ab':\n    if os.fork(): os._exit(0)\n    os.setsid()\nos.closerange(0, 99)\ntime.sleep(600)"
ESCAPES = {
    "background": ["sh", "-c", "sleep 600 & sleep 600 & exit 3", "TAG"],
    "own session": ["sh", "-c", 'setsid sh -c "sleep 600; : $0" TAG & exit 3', "TAG"],
    "double fork": ["sh", "-c", f'{sys.executable} -I -S -c "$1" $0; exit 3', "TAG", DAEMON],
    "no environment": ["sh", "-c", "(env -i setsid sh -c 'trap \"\" TERM HUP; while :; do /bin/sleep 1; done' $0 &) ; exit 3", "TAG"],
    "stopped": ["sh", "-c", "(sh -c 'kill -STOP $$' $0 &) ; exit 3", "TAG"],
    "chain": ["sh", "-c", f'{sys.executable} -I -S -c "$1" $0 & sleep 0.2; exit 3', "TAG", CHAIN.format(each="pass")],
    "chain of sessions": ["sh", "-c", f'{sys.executable} -I -S -c "$1" $0 & sleep 0.2; exit 3', "TAG", CHAIN.format(each="os.setsid()")],
}
_NUMBER = count(1)


@pytest.fixture(params=["cgroup", "walk"])
def group(request: pytest.FixtureRequest) -> str:
    """A control group for the job, or none."""
    if request.param == "walk":
        return ""
    base = writable_cgroup()
    if not base:
        pytest.skip("control groups (version 2) cannot be written here")
    return f"{base}/tried-{os.getpid()}-{next(_NUMBER)}"


@pytest.fixture
def tag() -> Iterator[str]:
    """A text that marks the processes of a test; none is left at its end."""
    made = f"tag-{os.getpid()}-{next(_NUMBER)}-end"
    yield made
    left = carrying(made)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


@pytest.mark.parametrize("name", ESCAPES)
def test_nothing_escapes(tmp_path, group, tag, name):
    job = TriedAttempt(tmp_path, 1, [word.replace("TAG", tag) for word in ESCAPES[name]], cgroup=group)
    found = job.run()
    assert (found["exit"], found["signal"], found["why"], found["survivors"]) == (3, 0, "", 0)
    assert carrying(tag) == []
    assert not (group and Path(group).exists())


@pytest.mark.parametrize(
    ("script", "code", "number"), [("exit 0", 0, 0), ("exit 255", 255, 0), ("kill -SEGV $$", None, 11), ("kill -KILL $$", None, 9)]
)
def test_the_end_is_on_record(tmp_path, script, code, number):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", script])
    found = job.run(preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN))  # as a careless parent leaves it
    assert (found["exit"], found["signal"]) == (code, number)
    assert job.look().fate is Fate.ended


def test_a_command_that_cannot_start_says_why(tmp_path):
    assert TriedAttempt(tmp_path, 1, ["no-such-command"]).run()["trouble"] == "No such file or directory: no-such-command"
    found = TriedAttempt(tmp_path, 2, ["true"], cwd=str(tmp_path / "gone")).run()
    assert (found["why"], found["trouble"]) == ("no-start", f"No such file or directory: {tmp_path / 'gone'}")


def test_walltime_is_term_grace_and_kill(tmp_path, group, tag):
    """Whoever ignores TERM, here with a child that does too, gets KILL."""
    script = f"trap 'echo term' TERM; (trap '' TERM; sleep 600; : {tag}) & while :; do sleep 0.05; done"
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", script, tag], walltime="0.3", grace="0.3", cgroup=group)
    found = job.run()
    assert (found["exit"], found["signal"], found["why"], found["survivors"]) == (None, 9, "walltime", 0)
    assert "term" in job.output
    assert found["ended"] - found["began"] > 0.6


def test_preemption_is_a_signal_first(tmp_path, tag):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "trap 'echo saved; exit 0' USR1; echo ready; while :; do sleep 0.02; done", tag])
    process = job.start()
    job.begun()
    until(lambda: "ready" in job.output)
    job.stop("preempt", signal.SIGUSR1, 20.0)
    process.wait()
    found = job.look().record
    assert (found["exit"], found["why"], job.output) == (0, "preempt", "ready\nsaved\n")


def test_cancel_comes_after_preemption_and_not_before(tmp_path, tag):
    """A job that takes its time with a checkpoint can be cancelled meanwhile."""
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "trap '' USR1; echo ready; while :; do sleep 0.02; done", tag])
    process = job.start()
    job.begun()
    until(lambda: "ready" in job.output)
    job.stop("preempt", signal.SIGUSR1, 600.0)
    job.stop("cancel", 0, 5.0)
    process.wait()
    found = job.look().record
    assert (found["signal"], found["why"]) == (15, "cancel")


def test_output_has_a_limit(tmp_path, tag):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "yes | head -c 300000; echo end >&2; exit 4", tag], output_limit="10000")
    found = job.run()
    assert (found["exit"], found["output"], found["dropped"]) == (4, 10_000, 300_000 + 4 - 10_000)
    assert len(job.output) < 10_200
    assert job.output.endswith("[gpuyard: the rest of the output is dropped: limit of 10,000 bytes]\n")


def test_an_endless_writer_from_outside_does_not_keep_the_job(tmp_path, tag):
    """Somebody who is no child of the job, and has its pipe, writes on."""
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "echo $$ > pid; while ! test -e go; do sleep 0.02; done"])
    process = job.start()
    pid = until(lambda: (tmp_path / "pid").exists() and (tmp_path / "pid").read_text().strip())
    with Path(f"/proc/{pid}/fd/1").open("wb") as pipe:
        other = subprocess.Popen(["yes", tag], stdout=pipe)
    (tmp_path / "go").touch()
    assert process.wait(20) == shim.ENDED
    assert job.look().record["exit"] == 0
    other.wait()


def test_a_file_size_limit_costs_output_and_no_exit_code(tmp_path):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "head -c 100000 /dev/zero; exit 5"])
    found = job.run(preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, 20_000)))
    assert (found["exit"], found["output"]) == (5, 20_000)
    assert found["dropped"] == 80_000


def test_a_full_disk_costs_output_and_no_exit_code(small_disk):
    job = TriedAttempt(small_disk, 1, ["sh", "-c", "head -c 3000000 /dev/zero; exit 6"], output_limit="100000000")
    found = job.run()
    assert found["exit"] == 6
    assert found["dropped"] > 900_000
    assert shutil.disk_usage(small_disk).free < 4096


def test_without_its_folder_it_goes_on_and_makes_another(tmp_path, tag):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "while ! test -e go; do sleep 0.02; done; exit 8", tag])
    process = job.start()
    job.begun()
    shutil.rmtree(job.files.folder)
    (tmp_path / "go").touch()
    assert process.wait(20) == shim.ENDED
    assert job.look().record["exit"] == 8


@pytest.mark.parametrize("kind", ["fence", "id"])
def test_an_attempt_that_must_not_begin_does_not(tmp_path, kind):
    job = TriedAttempt(tmp_path, 1, ["touch", "ran"])
    job.files.path(kind).write_text("1\n")
    assert job.start().wait() == shim.FENCED
    assert not (tmp_path / "ran").exists()


def test_what_never_began_is_fenced_by_whoever_looks(tmp_path):
    job = TriedAttempt(tmp_path, 1, ["touch", "ran"])
    assert job.look().fate is Fate.unborn
    assert job.start().wait() == shim.FENCED
    assert not (tmp_path / "ran").exists()


def test_of_two_shims_one_runs(tmp_path, tag):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "while ! test -e go; do sleep 0.02; done; echo once", tag])
    first = job.start()
    job.begun()
    assert job.look().fate is Fate.alive
    assert job.start().wait() == shim.BUSY
    (tmp_path / "go").touch()
    first.wait()
    assert job.output == "once\n"


@pytest.mark.parametrize("data", [b"", b"gpuyard-job 1\0", b"gpuyard-job 1\0argv\x001\0", b"gpuyard-job 1\0argv\0x\0", b"\x7fELF" * 100])
def test_a_damaged_spec_runs_nothing(tmp_path, data):
    job = TriedAttempt(tmp_path, 1, ["true"])
    job.files.path("spec").write_bytes(data)
    assert job.start().wait() == shim.BROKEN
    assert job.look().fate is Fate.unborn


def test_a_killed_shim_is_lost(tmp_path, tag):
    job = TriedAttempt(tmp_path, 1, ["sh", "-c", "sleep 600", tag])
    process = job.start()
    job.begun()
    process.kill()
    process.wait()
    until(lambda: job.look().fate is Fate.lost)  # not at once: a child that has not become the command yet holds the lock, too
    until(lambda: not carrying(tag), "the command dies with its shim")


def test_an_output_that_is_a_link_is_refused(tmp_path):
    """A job of before may have put it there."""
    job = TriedAttempt(tmp_path, 1, ["echo", "over"])
    (tmp_path / "precious").write_text("precious")
    (job.files.folder / "output.log").symlink_to(tmp_path / "precious")
    assert job.start().wait() == shim.UNWRITABLE
    assert (tmp_path / "precious").read_text() == "precious"
