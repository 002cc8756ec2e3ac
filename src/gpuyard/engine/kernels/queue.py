"""Ordered containers: the queue of a partition, its lines, its running jobs, and the heap of ends.

The queue is a sorted array inside the partition's own region, shifted on the shorter side: walking it in order is
what backfilling does most (decision record 0008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints, Real, Reals
    from gpuyard.engine.state import LineRow, PartitionRow, State

_ONE = np.uint64(1)


@inner
def before(key_a: Real, a: Int, key_b: Real, b: Int) -> Any:
    """Whether (key_a, a) goes before (key_b, b)."""
    return key_a < key_b or (key_a == key_b and a < b)


# One column at a time, by unsigned positions: then the compiler moves eight values at once, 0.1–0.2 ns each. By signed ones, which
# might count from the end, it takes 0.6–0.9 ns.


@inner
def move_up(values: Ints | Reals, first: Int, last: Int) -> None:
    """Move values[first:last] one place up."""
    i, end = np.uint64(last), np.uint64(first)
    while i > end:
        values[i] = values[i - _ONE]
        i -= _ONE


@inner
def move_down(values: Ints | Reals, first: Int, last: Int) -> None:
    """Move values[first:last] one place down."""
    for i in range(np.uint64(first), np.uint64(last)):
        values[i - _ONE] = values[i]


@inner
def _entries_up(s: State, first: Int, last: Int) -> None:
    """Move the entries of the queue from `first` up to `last` one place up."""
    move_up(s.queue_keys, first, last)
    move_up(s.queue_jobs, first, last)
    if len(s.queue_need) > 1:
        move_up(s.queue_need, first, last)
        move_up(s.queue_length, first, last)


@inner
def _entries_down(s: State, first: Int, last: Int) -> None:
    """Move the entries of the queue from `first` up to `last` one place down."""
    move_down(s.queue_keys, first, last)
    move_down(s.queue_jobs, first, last)
    if len(s.queue_need) > 1:
        move_down(s.queue_need, first, last)
        move_down(s.queue_length, first, last)


@inner
def _copy_entry(s: State, to: Int, at: Int) -> None:
    s.queue_keys[to] = s.queue_keys[at]
    s.queue_jobs[to] = s.queue_jobs[at]
    if len(s.queue_need) > 1:
        s.queue_need[to] = s.queue_need[at]
        s.queue_length[to] = s.queue_length[at]


@inner
def _recenter(s: State, part: PartitionRow) -> None:
    """Move the queue to the middle of its region, so that both sides have room."""
    head, tail = part.head, part.tail
    size = tail - head
    to = part.queue_lo + (part.queue_hi - part.queue_lo - size) // 2
    if to < head:
        for i in range(size):
            _copy_entry(s, to + i, head + i)
    else:
        for i in range(size - 1, -1, -1):
            _copy_entry(s, to + i, head + i)
    part.head = to
    part.tail = to + size


@inner
def queue_position(s: State, part: PartitionRow, key: Real, j: Int) -> Any:
    """Return the position where (key, j) stands in the queue, or belongs."""
    lo, hi = part.head, part.tail
    while lo < hi:
        middle = (lo + hi) >> 1
        if before(s.queue_keys[middle], np.int64(s.queue_jobs[middle]), key, j):
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def queue_insert(s: State, part: PartitionRow, key: Real, j: Int) -> Any:
    """Put job j where (key, j) belongs; returns its position."""
    if part.tail == part.queue_hi:
        _recenter(s, part)
    head, tail = part.head, part.tail
    last = tail - 1
    ends = tail > head and before(s.queue_keys[last], np.int64(s.queue_jobs[last]), key, j)
    lo = tail if ends else queue_position(s, part, key, j)  # first come, first served lands at the end
    if head > part.queue_lo and (lo - head < tail - lo or tail == part.queue_hi):
        _entries_down(s, head, lo)
        part.head = head - 1
        lo -= 1
    else:
        if lo < tail:
            _entries_up(s, lo, tail)
        part.tail = tail + 1
    s.queue_keys[lo] = key
    s.queue_jobs[lo] = j
    return lo


@inner
def queue_append(s: State, part: PartitionRow, key: Real, j: Int) -> Any:
    """Put job j at the end, wherever it belongs; returns its position."""
    if part.tail == part.queue_hi:
        _recenter(s, part)
    if part.tail == part.queue_hi:  # it is full but for one place, in front
        part.head -= 1
        at = part.head
    else:
        at = part.tail
        part.tail += 1
    s.queue_keys[at], s.queue_jobs[at] = key, j
    return at


@inner
def queue_remove(s: State, part: PartitionRow, at: Int) -> Any:
    """Take out the entry at position `at`; returns the position of the entry that followed it."""
    head, tail = part.head, part.tail
    if at - head < tail - at:
        if head < at:
            _entries_up(s, head, at)
        part.head = head + 1
        return at + 1
    _entries_down(s, at + 1, tail)
    part.tail = tail - 1
    return at


@inner
def queue_sort(keys: Reals, jobs: Ints, lo: Int, hi: Int) -> None:
    """Sort by (key, job). Keys drift slowly between passes, so insertion comes first; Shell's sort if that gets long."""
    budget = 8 * (hi - lo) + 64
    for i in range(lo + 1, hi):
        key, job = keys[i], np.int64(jobs[i])
        k = i
        while k > lo and before(key, job, keys[k - 1], np.int64(jobs[k - 1])):
            keys[k] = keys[k - 1]
            jobs[k] = jobs[k - 1]
            k -= 1
        keys[k] = key
        jobs[k] = job
        budget -= i - k
        if budget < 0:
            _shell_sort(keys, jobs, lo, hi)
            return


@inner
def _shell_sort(keys: Reals, jobs: Ints, lo: Int, hi: Int) -> None:
    gap = 1
    while gap < (hi - lo) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(lo + gap, hi):
            key, job = keys[i], np.int64(jobs[i])
            k = i
            while k >= lo + gap and before(key, job, keys[k - gap], np.int64(jobs[k - gap])):
                keys[k] = keys[k - gap]
                jobs[k] = jobs[k - gap]
                k -= gap
            keys[k] = key
            jobs[k] = job
        gap //= 3


# ── lines: waiting jobs that are alike in all that an ordering reads, in the order in which they came. Where keys only fall, the first
# of a line goes before the others whatever the time, and the queue has one entry for all of them (decision record 0027) ──


@inner
def line_for(s: State, j: Int) -> Any:
    """Return the number of the line in which job j waits; -1: none. Who has run before is not like the others."""
    return np.int64(s.line_of[j]) if len(s.line_of) > 1 and s.rows[j].preemptions == 0 else np.int64(-1)


@inner
def join_line(s: State, line: LineRow, j: Int, need: Real, length: Real) -> None:
    """Put job j at the end; it needs at least so many devices, and seconds."""
    at = line.tail
    s.line_jobs[at] = j
    if len(s.line_need) > 1:
        s.line_need[at], s.line_length[at] = need, length
        if line.head == at:
            line.need, line.length, line.stale = s.line_need[at], s.line_length[at], 0
        else:
            line.need, line.length = min(line.need, s.line_need[at]), min(line.length, s.line_length[at])
    line.tail = at + 1


@inner
def leave_line(s: State, line: LineRow, at: Int) -> Any:
    """Take out the job at position `at`; returns the position of the job that followed it."""
    head, tail = line.head, line.tail
    sifted = len(s.line_need) > 1
    if sifted and (s.line_need[at] == line.need or s.line_length[at] == line.length):
        line.stale = 1
    if at - head < tail - at:
        move_up(s.line_jobs, head, at)
        if sifted:
            move_up(s.line_need, head, at)
            move_up(s.line_length, head, at)
        line.head = head + 1
        return at + 1
    move_down(s.line_jobs, at + 1, tail)
    if sifted:
        move_down(s.line_need, at + 1, tail)
        move_down(s.line_length, at + 1, tail)
    line.tail = tail - 1
    return at


@inner
def place_in_line(s: State, line: LineRow, j: Int) -> Any:
    """Return the position of job j, which waits in the line: who came first has the lower number."""
    lo, hi = line.head, line.tail
    while lo < hi:
        middle = (lo + hi) >> 1
        if s.line_jobs[middle] < j:
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def freshen(s: State, line: LineRow) -> None:
    """Work out again what the jobs of the line need at least."""
    need, length = s.line_need[line.head], s.line_length[line.head]
    for i in range(line.head + 1, line.tail):
        need, length = min(need, s.line_need[i]), min(length, s.line_length[i])
    line.need, line.length, line.stale = need, length, 0


# ── running jobs of a partition, by (estimated end, index); the shorter side is moved here too ──


@inner
def _running_position(s: State, part: PartitionRow, end: Real, j: Int) -> Any:
    """Where job j, which is estimated to end at `end`, stands or belongs among the running ones."""
    lo, hi = part.first_run, part.first_run + part.running
    while lo < hi:
        middle = (lo + hi) >> 1
        if before(s.running_ends[middle], np.int64(s.running_jobs[middle]), end, j):
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def running_insert(s: State, part: PartitionRow, j: Int) -> None:
    """Add a job that has just started."""
    end = s.rows[j].est_end
    first, last = part.first_run, part.first_run + part.running
    if last == part.queue_hi and first > part.queue_lo:
        to = part.queue_lo + (part.queue_hi - part.queue_lo - part.running) // 2
        for i in range(part.running):
            s.running_ends[to + i], s.running_jobs[to + i] = s.running_ends[first + i], s.running_jobs[first + i]
        part.first_run, first, last = to, to, to + part.running
    at = _running_position(s, part, end, j)
    if first > part.queue_lo and (at - first < last - at or last == part.queue_hi):
        move_down(s.running_ends, first, at)
        move_down(s.running_jobs, first, at)
        part.first_run = first - 1
        at -= 1
    else:
        move_up(s.running_ends, at, last)
        move_up(s.running_jobs, at, last)
    s.running_ends[at] = end
    s.running_jobs[at] = j
    part.running += 1


@inner
def running_remove(s: State, part: PartitionRow, j: Int) -> None:
    """Take out a job, before its est_end changes."""
    first, last = part.first_run, part.first_run + part.running
    at = _running_position(s, part, s.rows[j].est_end, j)
    if at - first < last - at:
        move_up(s.running_ends, first, at)
        move_up(s.running_jobs, first, at)
        part.first_run = first + 1
    else:
        move_down(s.running_ends, at + 1, last)
        move_down(s.running_jobs, at + 1, last)
    part.running -= 1


# ── all ends: a binary heap by (end, index), in two small arrays that stay in the cache ──


@inner
def ends_insert(times: Reals, ends: Ints, size: Int, time: Real, j: Int) -> None:
    """Add job j, which ends at `time`, to a heap of `size` entries."""
    at = size
    while at > 0:
        above = (at - 1) >> 1
        if not before(time, j, times[above], np.int64(ends[above])):
            break
        times[at], ends[at] = times[above], ends[above]
        at = above
    times[at], ends[at] = time, j


@inner
def ends_remove(times: Reals, ends: Ints, size: Int, at: Int) -> None:
    """Take the entry at position `at` out of a heap of `size` entries.

    The hole sinks to the bottom, the smaller child moving up each time, and the last entry rises from there. It came from the bottom
    and seldom rises far; to sink it from `at` would compare it on every level, with a guess that the processor gets wrong.
    """
    last = size - 1
    time, j = times[last], np.int64(ends[last])
    if at == last:
        return
    end, hole = np.uint64(last), np.uint64(at)
    below = hole + hole + _ONE
    while below + _ONE < end:
        left, right = times[below], times[below + _ONE]
        below += np.uint64((right < left) | ((right == left) & (ends[below + _ONE] < ends[below])))
        times[hole], ends[hole] = min(left, right), ends[below]
        hole = below
        below = hole + hole + _ONE
    if below < end:
        times[hole], ends[hole] = times[below], ends[below]
        hole = below
    ends_insert(times, ends, np.int64(hole), time, j)
