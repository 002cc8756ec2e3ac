"""The daemon is killed with -9, at random moments and at every point of the protocol: no job is lost or runs twice, no exit code is wrong.

The same workload under the design that many tools have, direct children and a pid on record, fails: the harness sees what it claims to see.
"""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

from gpuyard.live.node.jobs import NodeJob, RunState
from support.nodes import TriedNode, until

JOBS = 60
NOTE = "echo $GPUYARD_ATTEMPT >> $FOLDER/ran.{k}; sleep {pause}; exit {code}"
DIRECT = Path(__file__).resolve().parents[2] / "support" / "direct_node.py"


def code_of(k: int) -> int:
    """Every job has an exit code that tells it from its neighbours."""
    return (k * 7) % 5


def submit_all(node: TriedNode, pause: float = 0.03) -> dict[int, int]:
    """Submit the workload, and return the number that each job has in it."""
    return {node.shell(NOTE.format(k=k, pause=pause, code=code_of(k))): k for k in range(JOBS)}


def times_run(folder: Path, k: int) -> int:
    note = folder / f"ran.{k}"
    return len(note.read_text().split()) if note.exists() else 0


def assert_nothing_went_wrong(node: TriedNode, jobs: dict[int, int]) -> None:
    ended: list[NodeJob] = list(node.ends(*jobs))
    lost = [job.id for job in ended if job.state not in (RunState.done, RunState.failed)]
    wrong = [job.id for job in ended if job.exit_code != code_of(jobs[job.id])]
    runs = Counter(times_run(node.folder, k) for k in jobs.values())
    assert (lost, wrong, runs) == ([], [], Counter({1: JOBS}))


def kill_at_random(node: TriedNode, kills: int, seed: int) -> None:
    dice = random.Random(seed)
    for _ in range(kills):
        time.sleep(dice.uniform(0.0, 0.12))
        node.kill()
        node.start(wait=False)


def test_twenty_kills_at_random_moments(node):
    jobs = submit_all(node)
    kill_at_random(node, 20, seed=1)
    assert_nothing_went_wrong(node, jobs)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(10))
def test_two_hundred_kills_at_random_moments(node, seed):
    jobs = submit_all(node, pause=0.1)
    kill_at_random(node, 20, seed=100 + seed)
    assert_nothing_went_wrong(node, jobs)


@pytest.mark.parametrize("cgroup", [True, False])
def test_a_kill_at_each_point_of_the_protocol(stopped, cgroup):
    """The daemon dies at a point of its own, or while a shim is at one; a shim that comes late finds a fence."""
    node = stopped.start(cgroup=cgroup)
    jobs = submit_all(node, pause=0.0)
    for point in ("commit", "fork"):
        node.kill()
        node.start(wait=False, die=point, cgroup=cgroup)
        node.gone()
    paused = node.folder / "paused"
    for point in ("begin", "lock", "identity", "exec", "exit-record"):
        node.start(wait=False, pause=point, cgroup=cgroup, cpus=1)
        until(paused.exists, f"a shim is at {point}")
        node.kill()
        node.start(cgroup=cgroup)
        time.sleep(0.05)  # time enough to do something wrong
        paused.unlink()
        node.kill()
    node.start(cgroup=cgroup)
    assert_nothing_went_wrong(node, jobs)


def test_kills_while_jobs_are_submitted(stopped):
    """A submission that was answered is there; one that was not is repeated, and is there once."""
    node = stopped.start()
    jobs = {}
    for k in range(JOBS):
        if k % 12 == 5:
            node.kill()
            node.start(wait=False)
            until(node.answers)
        jobs[node.shell(NOTE.format(k=k, pause=0, code=code_of(k)))] = k
    assert sorted(jobs) == list(range(1, JOBS + 1))
    assert_nothing_went_wrong(node, jobs)


def test_direct_children_do_not_survive_the_same(tmp_path):
    """Exit codes are lost and jobs run twice: the harness notices."""
    folder = tmp_path
    database = sqlite3.connect(folder / "direct.db", isolation_level=None)
    database.execute("PRAGMA journal_mode = WAL")
    database.execute("CREATE TABLE jobs (id INTEGER PRIMARY KEY, command TEXT, state TEXT, pid INTEGER, code INTEGER)")
    commands = [(k, NOTE.format(k=k, pause=0.1, code=code_of(k)), "PENDING") for k in range(JOBS)]
    database.executemany("INSERT INTO jobs (id, command, state) VALUES (?, ?, ?)", commands)
    dice = random.Random(1)
    command, env = [sys.executable, str(DIRECT), str(folder)], os.environ | {"FOLDER": str(folder)}

    def started() -> int:
        return int(database.execute("SELECT count(*) FROM jobs WHERE state != 'PENDING'").fetchone()[0])

    for _ in range(8):
        before = started()
        with subprocess.Popen(command, env=env) as daemon:
            until(lambda: started() > before)  # noqa: B023
            time.sleep(dice.uniform(0.0, 0.12))
            daemon.send_signal(signal.SIGKILL)
    subprocess.run(command, env=env, check=True)
    codes = dict(database.execute("SELECT id, code FROM jobs WHERE state = 'ENDED'").fetchall())
    lost = [k for k in range(JOBS) if codes.get(k) != code_of(k)]
    twice = [k for k in range(JOBS) if times_run(folder, k) > 1]
    assert len(lost) + len(twice) >= 3
