from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of

NEVER = 2**63 - 1
EVENTS = (
    "0,,1,0,u=,3,n,l", "0,,1,1,u=,3,n,l", "5000000,,1,4,u=,3,n,l",  # there before the trace
    "1000000,,7,0,a=,2,n,l", "3000000,,7,1,a=,2,n,l", "4500000,,7,4,a=,2,n,l",
    "2000000,,5,0,b=,0,n,l", "2500000,,5,1,b=,0,n,l", "3000000,,5,3,b=,0,n,l",
    "4000000,,5,0,b=,0,n,l", "6000000,,5,1,b=,0,n,l", "9000000,,5,5,b=,0,n,l",  # fails, comes again, is killed
    "2000000,,6,0,b=,1,n,l",  # never scheduled
    "2000000,,8,0,b=,1,n,l", "2000000,,8,1,b=,1,n,l", f"{NEVER},,8,4,b=,1,n,l",  # ends after the trace
    "2000000,,9,0,b=,1,n,l", "2000000,,9,1,b=,1,n,l", "2600000,,9,8,b=,1,n,l",  # was updated, runs on
)  # fmt: skip


def test_events_become_jobs(write: Callable[..., str]) -> None:
    path = write(*EVENTS)
    assert reader_of(Path(path)).name == "google2011"
    work = load_workload(path)
    assert work.jobs.id.tolist() == [7, 5]
    assert work.jobs.submit.tolist() == [1, 2]
    assert work.runtime.tolist() == [1.5, 6.5]  # from the first start to the last end
    assert work.jobs.priority.tolist() == [2, 0]
    assert work.jobs.gpus.tolist() == [1, 1]
    assert [work.jobs.users[k] for k in work.jobs.user] == ["a=", "b="]
    assert work.logged_start is not None
    assert work.logged_start.tolist() == [3, 2.5]
    assert work.dropped == {"there before the trace": 1, "never scheduled": 1, "does not end inside the slice": 2}
    assert work.notes[0].startswith("18 events of 6 jobs")


def test_the_order_of_lines_does_not_matter(write: Callable[..., str]) -> None:
    forward, backward = load_workload(write(*EVENTS)), load_workload(write(*reversed(EVENTS), name="b.txt"))
    assert forward.jobs.id.tolist() == backward.jobs.id.tolist()
    assert forward.runtime.tolist() == backward.runtime.tolist()


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,,7,9,a=,2,n,l", "event = 9 is not one of the types"),
        ("-1,,7,0,a=,2,n,l", "time = -1 is not a number from 0"),
        (",,7,0,a=,2,n,l", "time = nan is not a number from 0"),
        ("x,,7,0,a=,2,n,l", "submit = 'x' is not a number"),
        ("1,,7,0,a=,2,n", "7 columns instead of 8"),
    ],
)
def test_a_wrong_row_is_named(write: Callable[..., str], row: str, says: str) -> None:
    with pytest.raises(DataError, match=rf"trace\.txt:{len(EVENTS) + 1}: {says}"):
        load_workload(write(*EVENTS, row))
