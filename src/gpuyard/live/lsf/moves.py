"""Turns an order of jobs into the fewest commands: `btop` moves, or values of an APS queue. Pure: nothing is read or sent here."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

from gpuyard.live.deployment.modes import Update
from gpuyard.live.deployment.ordering import QueuedJob, plan_offsets
from gpuyard.live.lsf.commands import lsf_update

MOST_VALUE = 1_000_000  # of an APS system value


def target_of(queue: Sequence[str], wanted: Sequence[str]) -> list[str]:
    """Return the queue with the wanted jobs in their order, in the places that they have; all others stay where they are."""
    ours, order = set(wanted), iter(wanted)
    return [next(order) if job in ours else job for job in queue]


def moves(queue: Sequence[str], target: Sequence[str], most: int) -> list[tuple[str, int]]:
    """Return (job, position from 1) for the jobs to move, in the order of sending, so that `queue` becomes `target`.

    From the front on: cut off after `most` moves, the head of the queue stands right. No smaller number of moves would do.
    """
    place = {job: k for k, job in enumerate(queue)}
    kept = _longest_rising([place[job] for job in target])
    now, found = list(queue), list[tuple[str, int]]()
    for k, job in enumerate(target):
        if k in kept:
            continue
        if len(found) == most:
            break
        now.remove(job)
        at = now.index(target[k - 1]) + 1 if k else 0
        now.insert(at, job)
        found.append((job, at + 1))
    return found


def out_of_place(queue: Sequence[str], target: Sequence[str]) -> int:
    """Return how many jobs have to move, at least."""
    place = {job: k for k, job in enumerate(queue)}
    return len(target) - len(_longest_rising([place[job] for job in target]))


def move_updates(queue: Sequence[str], target: Sequence[str], most: int) -> list[Update]:
    """Return the moves as commands."""
    return [lsf_update("btop", job, str(at)) for job, at in moves(queue, target, most)]


def aps_values(wanted: Sequence[str], given: Mapping[str, int]) -> list[tuple[str, int]]:
    """Return (job, system value) for the jobs of an APS queue whose values must change, so that values fall along `wanted`."""
    order = [QueuedJob(k, given.get(job, 0), given.get(job, 0)) for k, job in enumerate(wanted)]
    return [(wanted[k], value) for k, value in plan_offsets(order, MOST_VALUE) if value > 0]


def _longest_rising(values: Sequence[int]) -> set[int]:
    """Return the positions of a longest subsequence that rises."""
    tops: list[int] = []
    at: list[int] = []
    before: list[int] = []
    for k, value in enumerate(values):
        length = bisect_left(tops, value)
        before.append(at[length - 1] if length else -1)
        tops[length : length + 1] = [value]
        at[length : length + 1] = [k]
    found = set[int]()
    k = at[-1] if at else -1
    while k >= 0:
        found.add(k)
        k = before[k]
    return found
