"""Turns an order of jobs into the fewest changes of their site factors. Pure: nothing is read or sent here.

A job's priority is its base, which Slurm works out, plus its site factor, and never below 1. Jobs that already stand in the right order,
with room between them for the others, keep what they have: they are the longest such subsequence, so no smaller set of updates does.
"""

from __future__ import annotations

import itertools
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass

LOWEST = 1  # priority; 0 would hold a job
HIGHEST = 4_294_967_000  # priority; Slurm gives the numbers from 4,294,967,294 a meaning of their own
GAP = 100  # between neighbours, where there is room: those that come later find a place


@dataclass(frozen=True)
class QueuedJob:
    """A job, or a whole array, and where it stands now."""

    job: int
    priority: int
    site: int = 0

    @property
    def base(self) -> int:
        """The priority that Slurm gives it by itself."""
        return self.priority - self.site


def plan_offsets(order: Sequence[QueuedJob], within: int, gap: int = GAP) -> list[tuple[int, int]]:
    """Return (job, site factor) for the jobs that must change so that priorities fall along `order`, in the order of sending.

    Factors stay in ±`within`: what would need more gets as much as is allowed. Falls are sent from the end, rises from the front, so that
    the order is never worse on the way than before.
    """
    if not order:
        return []
    step = max(1, min(gap, within // len(order)))
    targets = _targets(order, _kept(order, within), step)
    if any(abs(target - each.base) > within for target, each in zip(targets, order, strict=True)):
        targets = _targets(order, [], step)  # offsets have grown: number all of them again, from the lowest
    changes = []
    for position, (target, each) in enumerate(zip(targets, order, strict=True)):
        site = min(max(target - each.base, -within), within)
        if site != each.site:
            changes.append((site > each.site, position if site > each.site else -position, each.job, site))
    return [(job, site) for _, _, job, site in sorted(changes)]


def plan_priorities(order: Sequence[QueuedJob], gap: int = GAP) -> list[tuple[int, int]]:
    """Return (job, priority) for the jobs that must change, where a site has no site factors; in the order of sending, as above."""
    if not order:
        return []
    plain = [QueuedJob(each.job, each.priority) for each in order]
    targets = _targets(plain, _kept(plain, 0), gap)
    if targets[0] > HIGHEST:
        lowest = max(LOWEST, min(each.priority for each in plain))
        targets = _targets(plain, [], max(1, min(gap, (HIGHEST - lowest) // len(plain))))
    changes = []
    for position, (target, each) in enumerate(zip(targets, plain, strict=True)):
        if target != each.priority:
            rises = target > each.priority
            changes.append((rises, position if rises else -position, each.job, target))
    return [(job, priority) for _, _, job, priority in sorted(changes)]


def out_of_order(order: Sequence[QueuedJob]) -> int:
    """Return how many jobs would have to move, at least, for priorities to fall along `order`."""
    return len(order) - len(_longest([each.priority + k for k, each in enumerate(order)]))


def _kept(order: Sequence[QueuedJob], within: int) -> list[int]:
    """Return the positions that keep their factor: between two of them, and below the last, there is room for all others.

    Between positions a < b that is priority(a) − priority(b) ≥ b − a: priority + position never rises. So it is a longest subsequence.
    """
    size = len(order)
    may = [k for k, each in enumerate(order) if abs(each.site) <= within and each.priority - (size - 1 - k) >= LOWEST]
    return [may[k] for k in _longest([order[k].priority + k for k in may])]


def _longest(values: Sequence[int]) -> list[int]:
    """Return the positions of a longest subsequence that never rises, by patience sorting."""
    tops: list[int] = []  # the negated last value of the best subsequence of each length
    at: list[int] = []
    before: list[int] = []
    for k, value in enumerate(values):
        length = bisect_right(tops, -value)
        before.append(at[length - 1] if length else -1)
        if length == len(tops):
            tops.append(-value)
            at.append(k)
        else:
            tops[length], at[length] = -value, k
    found = []
    k = at[-1] if at else -1
    while k >= 0:
        found.append(k)
        k = before[k]
    return found[::-1]


def _targets(order: Sequence[QueuedJob], kept: Sequence[int], step: int) -> list[int]:
    """Return the priorities aimed at: those of the kept, and strictly falling ones for the others."""
    size = len(order)
    if not kept:
        lowest = max(LOWEST, min(each.base for each in order))
        return [lowest + step * (size - 1 - k) for k in range(size)]
    targets = [each.priority for each in order]
    for k in range(kept[0]):
        targets[k] = order[kept[0]].priority + step * (kept[0] - k)
    for upper, lower in itertools.pairwise(kept):
        high, room = order[upper].priority, order[upper].priority - order[lower].priority
        for k in range(upper + 1, lower):
            targets[k] = high - room * (k - upper) // (lower - upper)
    last = kept[-1]
    below = size - 1 - last
    fall = min(step, (order[last].priority - LOWEST) // below) if below else 0
    for k in range(last + 1, size):
        targets[k] = order[last].priority - fall * (k - last)
    return targets
