"""The pass over a queue whose keys change with time but only fall: who goes next is found without keying every job.

The queue is kept in the order of the keys at a later time, the horizon. Up to then these are lower bounds. A pass works out the keys
of now in the order of the bounds, into a heap, and takes the least of the heap as soon as no bound behind is less. So it keys a
few jobs where it would key all of them: 20,000 jobs at once under `wfp3/fewest/easy` took 50 times as long as under `sjf`.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import ORDERING, inner
from gpuyard.engine.kernels.accounts import LN2, share_usage
from gpuyard.engine.kernels.backfill import BACKFILL_EASY, BACKFILL_NONE, find_passing, first_passing, next_passing, reserve, sift
from gpuyard.engine.kernels.passes import call_ordering, failed
from gpuyard.engine.kernels.place import find
from gpuyard.engine.kernels.queue import (
    before,
    ends_insert,
    ends_remove,
    freshen,
    leave_line,
    line_for,
    place_in_line,
    queue_position,
    queue_remove,
    queue_sort,
)
from gpuyard.engine.kernels.runs import BAD_KEY, bound_of, key_of, note_demand, revise_ends, start_taken

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import PartitionRow, SlotRow, State

FIRST_SPAN, LEAST_SPAN = 1.0, 1e-6  # s to the horizon, at first and at least
MARGIN = 1.0 / 1024  # of the span that bounds are worked out ahead: `exp` and the like may err in the last digit
UNSURE = 1e-9  # the same for the users' parts of all usage


# ── the bounds ──


@inner
def bounded(s: State, p: Int) -> Any:
    """Make a pass over a partition; -1: work the bounds of all partitions out again, if that is due. Returns a status."""
    slot = s.slots[s.control[0].active]
    return _renew_bounds(s, slot) if p < 0 else _bounded_pass(s, p, slot)


@inner
def _renew_bounds(s: State, slot: SlotRow) -> Any:
    """Begin a pass: work the bounds out again if the horizon is near, or if they are too low to be of use; returns a status.

    The span doubles where bounds last until the horizon; where too many keys are worked out in vain it shrinks to the time that
    they were of use. Keying an entry in a pass and bounding it take about as long, so as many keys may be wasted as queues have entries.
    """
    control = s.control[0]
    total = share_usage(s) if control.half_life > 0 else 0.0
    span = control.horizon - control.bound_at
    if control.wasted > _entries(s) + 64:
        span = control.now - control.bound_at
    elif control.now <= control.bound_until:
        return 0
    else:
        span = max(2.0 * span, FIRST_SPAN)
    span = max(span, LEAST_SPAN)
    control.bound_at, control.horizon, control.wasted = control.now, control.now + span, 0
    control.bound_until = control.now + (1.0 - MARGIN) * span
    if control.half_life > 0:
        _lay_floors(s, total, span)
    for p in range(len(s.partitions)):
        status = _bound_queue(s, s.partitions[p], slot)
        if status < 0:
            return status
    return 0


@inner
def _entries(s: State) -> Any:
    """Return how many entries all queues have."""
    count = 0
    for p in range(len(s.partitions)):
        count += s.partitions[p].tail - s.partitions[p].head
    return count


@inner
def _lay_floors(s: State, total: Real, span: Real) -> None:
    """Set the least part of all usage that each user can come down to within the span: by holding nothing while others hold all devices."""
    control = s.control[0]
    mean_life = control.half_life / LN2
    left = math.exp(-span / mean_life)
    all_then = total * left + 1.001 * control.gpus * mean_life * (1.0 - left)  # shares of devices are charged in rounded units
    for u in range(len(s.users)):
        line = s.users[u]
        line.floor = max(line.usage * left / all_then * (1.0 - UNSURE) - UNSURE, 0.0) if all_then > 0 else 0.0


@inner
def _bound_queue(s: State, part: PartitionRow, slot: SlotRow) -> Any:
    """Key the queue as of the horizon, and sort it; returns a status."""
    control = s.control[0]
    lo, hi = part.head, part.tail
    for i in range(lo, hi):
        j = np.int64(s.queue_jobs[i])
        number = line_for(s, j)
        if number >= 0:  # the first of the line is keyed for it
            j = np.int64(s.line_jobs[s.lines[number].head])
            s.queue_jobs[i] = s.lines[number].filed = j
        if control.half_life > 0:
            s.factors[j].usage = s.users[s.table[j].user].floor
    status = call_ordering(s, slot, lo, hi, control.horizon)
    if status != 0:
        return failed(s, BAD_KEY, np.int64(s.queue_jobs[lo + status - 1]))
    for i in range(lo, hi):
        if s.queue_keys[i] != s.queue_keys[i]:
            s.queue_keys[i] = -math.inf  # whether that is an error its key will tell
        number = line_for(s, np.int64(s.queue_jobs[i]))
        if number >= 0:
            s.lines[number].bound = s.queue_keys[i]
    part.unsorted = 1
    return 0


# ── the order of the queue, as far as it is asked for ──


@inner
def _begin_walk(s: State, part: PartitionRow) -> None:
    s.control[0].front, s.control[0].front_at = 0, part.head


@inner
def _look_ahead(s: State, part: PartitionRow, slot: SlotRow, sifting: bool, reserved: bool) -> Any:
    """Key jobs until the first of the heap is the next of the queue, of those that might start if `sifting`; returns a status.

    Of a line one job at a time is in the heap.
    """
    control = s.control[0]
    at = control.front_at
    while True:
        if sifting:
            at = next_passing(s, part, at, reserved)
        control.front_at = at
        if at == part.tail:
            return 0
        j = np.int64(s.queue_jobs[at])
        if control.front > 0 and before(s.front_keys[0], np.int64(s.front_jobs[0]), s.queue_keys[at], j):
            return 0
        number = line_for(s, j)
        if number < 0:
            status = _look_at(s, j, slot)
        else:
            status = _look_along(s, part, at, number, np.int64(s.lines[number].head), slot, sifting, reserved)
        if status < 0:
            return status
        at += 1


@inner
def _look_at(s: State, j: Int, slot: SlotRow) -> Any:
    """Key a job, into the heap; returns a status."""
    control = s.control[0]
    _show_part(s, j)
    key = key_of(s, slot.ordering, j, ORDERING)
    if key != key:
        return failed(s, BAD_KEY, j)
    ends_insert(s.front_keys, s.front_jobs, control.front, key, j)
    control.front += 1
    return 0


@inner
def _look_along(s: State, part: PartitionRow, entry: Int, number: Int, at: Int, slot: SlotRow, sifting: bool, reserved: bool) -> Any:
    """Key the first job of a line from position `at` on, of those that might start if `sifting`; returns a status.

    `entry`: the position of the line in the queue, if the walk comes to it; else -1.
    """
    line = s.lines[number]
    if sifting:
        at = first_passing(s, part, s.line_need, s.line_length, at, np.int64(line.tail), reserved)
    if at < line.tail:
        return _look_at(s, np.int64(s.line_jobs[at]), slot)
    if entry >= 0 and line.stale == 1:  # the walk was led here by what a job needed that has left
        freshen(s, line)
        note_demand(s, entry)
    return 0


@inner
def _show_part(s: State, j: Int) -> None:
    """Show a policy the usage of now."""
    if s.control[0].half_life > 0:
        s.factors[j].usage = s.users[s.table[j].user].part


@inner
def _next(s: State) -> Any:
    """Take the first job from the heap."""
    control = s.control[0]
    j = np.int64(s.front_jobs[0])
    ends_remove(s.front_keys, s.front_jobs, control.front, np.int64(0))
    control.front -= 1
    return j


@inner
def _go_on(s: State, p: Int, j: Int, count: Int, slot: SlotRow, sifting: bool, reserved: bool) -> Any:
    """Start job j, the first of the heap, if nodes were picked for it; the next of its line takes its place. Returns a status."""
    part = s.partitions[p]
    number = line_for(s, j)
    if number < 0:
        if count > 0:
            _take_entry(s, part, bound_of(s, j), j)
            _show_part(s, j)
            start_taken(s, p, j, count)
        return 0
    line = s.lines[number]
    at = place_in_line(s, line, j) + 1
    if count > 0:
        at = leave_line(s, line, at - 1)
        if line.head == line.tail:
            _take_entry(s, part, line.bound, np.int64(line.filed))
        start_taken(s, p, j, count)
    return _look_along(s, part, -1, number, at, slot, sifting, reserved)


@inner
def _take_entry(s: State, part: PartitionRow, bound: Real, j: Int) -> None:
    """Take the entry of a job that starts, or of a line in which nobody waits any more, out of the queue."""
    control = s.control[0]
    at = queue_position(s, part, bound, j)
    following = queue_remove(s, part, at)
    if following == at and at < control.front_at:  # those behind have moved up one place
        control.front_at -= 1
    if following > at and at >= control.front_at:  # those before it have moved back
        control.front_at += 1


# ── the pass ──


@inner
def _bounded_pass(s: State, p: Int, slot: SlotRow) -> Any:
    """Make a pass over a partition: as `run_pass`, for keys that only fall; returns a status."""
    control = s.control[0]
    part = s.partitions[p]
    if control.tracking == 1:
        revise_ends(s, p)
    if part.unsorted == 1:
        _sort(s, part)
    if slot.backfill != BACKFILL_NONE:
        sift(s, part)
        if next_passing(s, part, part.head, False) == part.tail:
            return 0  # nothing that waits fits, whatever the order
    _begin_walk(s, part)
    while True:
        status = _look_ahead(s, part, slot, False, False)
        if status < 0 or control.front == 0:
            return status
        j = _next(s)
        count = find(s, p, j, slot)
        if count < 0:
            return failed(s, count, j)
        if count == 0:
            control.wasted += control.front
            return 0 if slot.backfill == BACKFILL_NONE else _start_behind(s, p, j, slot)
        status = _go_on(s, p, j, count, slot, False, False)
        if status < 0:
            return status


@inner
def _sort(s: State, part: PartitionRow) -> None:
    queue_sort(s.queue_keys, s.queue_jobs, part.head, part.tail)
    part.unsorted = part.sifted = 0


@inner
def _start_behind(s: State, p: Int, h: Int, slot: SlotRow) -> Any:
    """Start the jobs that may pass the head h, in the order of their keys; returns a status."""
    control = s.control[0]
    part = s.partitions[p]
    if next_passing(s, part, part.head, False) == part.tail:
        return 0
    easy = slot.backfill == BACKFILL_EASY
    if easy:
        reserve(s, p, h)
    _begin_walk(s, part)
    while True:
        status = _look_ahead(s, part, slot, True, easy)
        if status < 0 or control.front == 0:
            return status
        j = _next(s)
        row = s.rows[j]
        count = 0
        if row.gpus >= 1 and row.gpus > part.free:
            control.wasted += 1
        elif j != h:
            count = find_passing(s, p, h, j, slot)
            if count < 0:
                return failed(s, count, j)
        status = _go_on(s, p, j, count, slot, True, easy)
        if status < 0:
            return status
