"""Order mode where Slurm has no site factors: priority/basic, by priorities, and un-pinned again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.live.slurm.test_deploy import blocked, deployment, forty_waiting, queue_order
from tests.live.slurm.test_real import until
from tests.support.real_slurm import RealSlurm, private_slurm

from gpuyard.cli.main import run


@pytest.fixture(scope="module")
def basic_slurm() -> Iterator[RealSlurm]:
    with private_slurm(priority="basic") as slurm:
        yield slurm


@pytest.fixture
def basic(basic_slurm: RealSlurm, monkeypatch: pytest.MonkeyPatch) -> Iterator[RealSlurm]:
    with basic_slurm.used(monkeypatch):
        yield basic_slurm


def test_priorities_put_the_queue_in_order_and_the_reset_puts_it_back(basic: RealSlurm):
    blockers = blocked(basic)
    jobs = forty_waiting(basic)
    submitted = sorted(jobs)
    assert queue_order(basic) == submitted
    work = deployment(mode="order", most=400)
    assert next(work.cycles())["failed"] == {}
    wanted = sorted(jobs, key=lambda job: (jobs[job][0], job))
    assert queue_order(basic) == wanted
    assert next(work.cycles())["updates"] == []
    first = basic.submit("--gres=gpu:1", "-t1")
    record = next(work.cycles())
    assert [job for job, _ in record["updates"]] == [str(first)]  # it came last, and stands among the short ones with one update
    assert queue_order(basic).index(first) <= 2
    assert run(["deploy", "slurm", "--reset"]) == 0
    assert queue_order(basic) == [*submitted, first]
    last = basic.submit("--gres=gpu:1", "-t1")
    assert queue_order(basic)[-1] == last  # Slurm gives priorities again as before
    basic.run("scancel", *map(str, blockers))
    until(lambda: all(basic.states()[job] == "COMPLETED" for job in jobs), 120.0)


def test_a_job_that_its_owner_holds_stays_held(basic: RealSlurm):
    blocked(basic)
    held, other = basic.submit("-H", "--gres=gpu:1", "-t1"), basic.submit("--gres=gpu:1", "-t9")
    next(deployment(mode="order").cycles())
    assert run(["deploy", "slurm", "--reset"]) == 0
    lines = dict(line.split("|") for line in basic.run("squeue", "-h", "-t", "PD", "-o", "%i|%Q").splitlines())
    assert lines[str(held)] == "0"
    assert int(lines[str(other)]) > 0
