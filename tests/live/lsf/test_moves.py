"""Orders become the fewest commands."""

from __future__ import annotations

import itertools
import random

import pytest

from gpuyard.live.deployment.placing import MARK
from gpuyard.live.lsf.marks import JobMark, mark_of
from gpuyard.live.lsf.moves import aps_values, moves, out_of_place, target_of


def moved(queue, commands):
    """What `btop` makes of a queue."""
    now = list(queue)
    for job, position in commands:
        now.remove(job)
        now.insert(position - 1, job)
    return now


@pytest.mark.parametrize("seed", range(40))
def test_moves_put_a_queue_in_order_by_the_fewest(seed):
    rng = random.Random(seed)
    queue = [str(k) for k in range(rng.randint(0, 30))]
    target = rng.sample(queue, len(queue))
    commands = moves(queue, target, len(queue))
    assert moved(queue, commands) == target
    assert len(commands) == out_of_place(queue, target) == len({job for job, _ in commands})


def test_no_smaller_number_would_do():
    queue = list("abcde")
    for target in itertools.permutations(queue):
        needed = len(moves(queue, target, 5))
        reach, seen = {tuple(queue)}, 0
        while tuple(target) not in reach:
            reach |= {tuple(moved(q, [(job, k)])) for q in reach for job in queue for k in range(1, 6)}
            seen += 1
        assert needed == seen


def test_cut_off_after_some_the_head_stands_right():
    queue = [str(k) for k in range(20)]
    target = queue[::-1]
    assert moved(queue, moves(queue, target, 5))[:5] == target[:5]


def test_jobs_that_are_not_ours_stay_where_they_are():
    assert target_of(["a", "x", "b", "y", "c"], ["c", "a", "b"]) == ["c", "x", "a", "y", "b"]


def test_system_values_fall_along_the_order_and_only_some_change():
    first = dict(aps_values(list("abcd"), {}))
    assert sorted(first, key=lambda job: -first[job]) == list("abcd")
    assert aps_values(list("abcd"), first) == []
    changes = dict(aps_values(list("adbc"), first))
    assert set(changes) == {"d"}
    now = first | changes
    assert sorted(now, key=lambda job: -now[job]) == list("adbc")
    assert min(now.values()) > 0


@pytest.mark.parametrize("mark", [JobMark(MARK, 60.0), JobMark(MARK, 1794736355.0, ("h1", "h2.site.org")), JobMark(MARK, held=True)])
def test_a_mark_is_read_as_it_was_written(mark):
    found = mark_of(str(mark))
    assert (found.text, found.hosts, found.held) == (MARK, mark.hosts, mark.held)
    assert found.begin == mark.begin or mark.begin != mark.begin


@pytest.mark.parametrize(
    "text", ["", "gpuyard", "my gpuyard b=1", "gpuyard b=x", "gpuyard b=1 h=", "gpuyard b=1 h=a;b", "gpuyard b=1 h=a h=b"]
)
def test_what_users_write_is_no_mark(text):
    assert mark_of(text) == JobMark()
