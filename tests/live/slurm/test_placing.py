"""Place mode, planned: what the scheduler is shown, who is started, pushed, taken back or let go, and what scontrol calls an array."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from tests.live.test_guards import job, site

from gpuyard.errors import DataError
from gpuyard.live.deployment.placing import MARK, PlaceSettings, as_seen
from gpuyard.live.guards import GuardSettings, Start
from gpuyard.live.slurm.commands import scontrol_line
from gpuyard.live.slurm.modes import starts_of, together, upkeep
from gpuyard.live.slurm.text import SQUEUE, KnownRows, drawn_jobs
from gpuyard.live.state.site import SiteJob

NOW = 100.0  # of site(…)
SETTINGS = PlaceSettings(deadman=600.0, settle=20.0, rest=60.0)
MARGIN = 220.0


def marked(number: int, begin: float, pinned: tuple[str, ...] = (), why: str = "begin", **more) -> SiteJob:
    return replace(job(number, **more), eligible=begin, pinned=pinned, why=why, mark=MARK)


def planned(*jobs: SiteJob, resting=(), started=(), guards=None):
    seen = as_seen(site(*jobs), SETTINGS, guards or GuardSettings(), set(resting))
    return seen, [(each.job, each.change) for each in upkeep(seen, set(started), SETTINGS, MARGIN)]


@pytest.mark.parametrize(
    ("given", "mine", "runs", "sent"),
    [
        (marked(1, 650.0), True, False, []),  # far enough ahead
        (marked(1, 300.0), True, False, [("1", "starttime=now+600")]),  # near
        (marked(1, 90.0, why=""), True, False, [("1", "starttime=now+600")]),  # its time has come while nobody was there
        (marked(1, 5000.0), True, False, [("1", "starttime=now+600")]),  # a clock was set
        (marked(1, 95.0, ("n0",), why=""), False, True, []),  # started a moment ago
        (marked(1, 70.0, ("n0",), why=""), True, False, [("1", "reqnodelist= starttime=now+600")]),  # and long ago
        (marked(1, 220.0, ("n0",)), True, False, [("1", "reqnodelist= starttime=now+600")]),  # requeued
        (marked(1, 99.0, ("n0",), why="impossible"), True, False, [("1", "reqnodelist= starttime=now+600")]),  # BadConstraints
        (marked(1, 300.0, why="held"), False, False, [("1", "starttime=now+600")]),
        (marked(1, 99.0, ("n0",), why="held"), False, False, [("1", "starttime=now+600")]),  # a held job's nodes are not touched
        (marked(1, 300.0, why="after"), False, False, [("1", "starttime=now+600")]),
        (marked(1, math.nan, why="after"), False, False, []),
        (marked(1, 650.0, gpus=9), False, False, [("1", "reqnodelist= starttime=now")]),  # no node has nine
        (marked(1, 90.0, gpus=9, why=""), False, False, []),  # it was let go before
        (replace(marked(1, 300.0), mark="someone's"), False, False, []),
        (job(1), False, False, []),
    ],
)
def test_each_job_is_what_slurm_says_of_it(given, mine, runs, sent):
    seen, updates = planned(given)
    assert (("1" in seen.ours), seen.state.jobs[0].runs) == (mine, runs)
    assert updates == sent
    assert seen.state.jobs[0].why == ("" if mine or runs else seen.state.jobs[0].why)
    if not mine and not runs:
        assert seen.state.jobs[0].why  # the scheduler is not offered it


def test_who_is_left_to_the_site_is_let_go_and_who_rests_is_not_offered():
    seen, updates = planned(marked(1, 650.0, user="eve"), marked(2, 650.0), guards=GuardSettings(users=frozenset({"eve"})), resting={"2"})
    assert set(seen.ours) == set()
    assert updates == [("1", "reqnodelist= starttime=now")]


@pytest.mark.parametrize(("where", "ours"), [(("gpu",), True), (("gpu", "long"), True), (("long",), False)])
def test_a_marked_job_of_a_partition_that_we_do_not_place_is_let_go_instead_of_put_off_for_ever(where, ours):
    """The hook names more partitions than the deployment, or the job was moved after it was marked."""
    moved = replace(marked(1, 150.0), partitions=where)
    seen = as_seen(site(moved), SETTINGS, GuardSettings(), set(), frozenset({"gpu"}))
    assert set(seen.ours) == ({"1"} if ours else set())
    assert [each.change for each in upkeep(seen, set(), SETTINGS, MARGIN)] == (
        ["starttime=now+600"] if ours else ["reqnodelist= starttime=now"]
    )


def test_a_started_job_gets_one_update_and_no_other():
    stuck = marked(1, 70.0, ("n0",), why="")
    seen, updates = planned(stuck, started={"1"})
    assert updates == []
    (update,) = starts_of([Start(0, "1", ("n1", "n2"))], seen.ours)
    assert scontrol_line(update) == "update jobid=1 reqnodelist=n1,n2 starttime=now"
    assert starts_of([Start(0, "9", ("n1",))], seen.ours) == []


def test_the_most_urgent_is_pushed_first_and_an_array_as_one():
    tasks = [replace(marked(10, 200.0), array=10, task=k, name=f"10_{k}") for k in (0, 1, 2, 5)]
    alone = replace(marked(14, 150.0), array=10, task=3, name="10_3")
    _, updates = planned(*tasks, alone, marked(3, 120.0))
    assert [name for name, _ in updates] == ["3", "10_3", "10_[0-2,5]"]
    assert together([]) == []


def test_what_squeue_prints_is_taken_apart_by_a_separator_that_nobody_knows():
    row = dict.fromkeys(SQUEUE, "") | {"JobArrayID": "7", "JobID": "7", "State": "PENDING", "Name": "x|ab|y\n8|ab|", "Partition": "gpu"}
    separator = "|ab12|"
    header = {"JobArrayID": "JOBID", "JobID": "JOBID", "State": "STATE", "Name": "NAME", "Partition": "PARTITION"}
    lines = [separator.join([header.get(name, name) for name in SQUEUE]), separator.join(row[name] for name in SQUEUE)]
    text = "".join(f"{line}{separator}\n" for line in lines)
    (found,) = drawn_jobs(text, separator)
    assert (found.id, found.title, found.partitions) == (7, "x|ab|y 8|ab|", ("gpu",))
    for broken in (text[:-10], "slurm_load_jobs error: something\n", "", text.replace(f"{separator}PENDING", "", 1)):
        with pytest.raises(DataError):
            drawn_jobs(broken, separator)


def test_a_row_that_is_as_it_was_is_not_taken_apart_again_and_one_that_has_changed_is():
    def answer(separator: str, *jobs: tuple[str, str]) -> str:
        rows = [("JOBID", "STATE"), *jobs]
        return "".join(f"{number}{separator}{state}{separator}\n" for number, state in rows)

    known: KnownRows = {}
    first = drawn_jobs(answer("|a|", ("1", "PENDING"), ("2", "PENDING")), "|a|", known=known)
    second = drawn_jobs(answer("|b|", ("2", "RUNNING"), ("1", "PENDING"), ("3", "PENDING")), "|b|", known=known)
    assert [(job.id, job.runs) for job in second] == [(2, True), (1, False), (3, False)]
    assert second[1] is first[0]
    assert len(known) == 3  # of who is gone nothing is kept
