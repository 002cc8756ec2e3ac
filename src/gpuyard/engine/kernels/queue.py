"""Ordered containers: the queue of a partition, its running jobs, and the heap of ends.

The queue is a sorted array inside the partition's own region, shifted on the shorter side: walking it in order is
what backfilling does most (decision record 0008).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints, Real, Reals, Vector
    from gpuyard.engine.state import JobRow, PartitionRow


@inner
def before(key_a: Real, a: Int, key_b: Real, b: Int) -> Any:
    """Whether (key_a, a) goes before (key_b, b)."""
    return key_a < key_b or (key_a == key_b and a < b)


@inner
def _recenter(keys: Reals, jobs: Ints, part: PartitionRow) -> None:
    """Move the queue to the middle of its region, so that both sides have room."""
    head, tail = part.head, part.tail
    size = tail - head
    to = part.queue_lo + (part.queue_hi - part.queue_lo - size) // 2
    if to < head:
        for i in range(size):
            keys[to + i] = keys[head + i]
            jobs[to + i] = jobs[head + i]
    else:
        for i in range(size - 1, -1, -1):
            keys[to + i] = keys[head + i]
            jobs[to + i] = jobs[head + i]
    part.head = to
    part.tail = to + size


@inner
def queue_insert(keys: Reals, jobs: Ints, part: PartitionRow, key: Real, j: Int) -> None:
    """Put job j where (key, j) belongs."""
    if part.tail == part.queue_hi:
        _recenter(keys, jobs, part)
    lo, hi = part.head, part.tail
    if hi > lo and before(keys[hi - 1], np.int64(jobs[hi - 1]), key, j):
        lo = hi  # first come, first served lands here
    while lo < hi:
        middle = (lo + hi) >> 1
        if before(key, j, keys[middle], np.int64(jobs[middle])):
            hi = middle
        else:
            lo = middle + 1
    head, tail = part.head, part.tail
    if head > part.queue_lo and (lo - head < tail - lo or tail == part.queue_hi):
        for i in range(head, lo):
            keys[i - 1] = keys[i]
            jobs[i - 1] = jobs[i]
        part.head = head - 1
        lo -= 1
    else:
        for i in range(tail, lo, -1):
            keys[i] = keys[i - 1]
            jobs[i] = jobs[i - 1]
        part.tail = tail + 1
    keys[lo] = key
    jobs[lo] = j


@inner
def queue_append(keys: Reals, jobs: Ints, part: PartitionRow, key: Real, j: Int) -> None:
    """Put job j at the end, wherever it belongs."""
    if part.tail == part.queue_hi:
        _recenter(keys, jobs, part)
    if part.tail == part.queue_hi:  # it is full but for one place, in front
        part.head -= 1
        keys[part.head], jobs[part.head] = key, j
    else:
        keys[part.tail], jobs[part.tail] = key, j
        part.tail += 1


@inner
def queue_remove(keys: Reals, jobs: Ints, part: PartitionRow, at: Int) -> Any:
    """Take out the entry at position `at`; returns the position of the entry that followed it."""
    head, tail = part.head, part.tail
    if at - head < tail - at:
        for i in range(at, head, -1):
            keys[i] = keys[i - 1]
            jobs[i] = jobs[i - 1]
        part.head = head + 1
        return at + 1
    for i in range(at, tail - 1):
        keys[i] = keys[i + 1]
        jobs[i] = jobs[i + 1]
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


# ── running jobs of a partition, by (estimated end, index) ──


@inner
def _running_position(rows: Vector[JobRow], running: Ints, part: PartitionRow, j: Int) -> Any:
    """Where job j stands, or belongs, among the running ones."""
    lo, hi = part.queue_lo, part.queue_lo + part.running
    end = rows[j].est_end
    while lo < hi:
        middle = (lo + hi) >> 1
        other = np.int64(running[middle])
        if before(rows[other].est_end, other, end, j):
            lo = middle + 1
        else:
            hi = middle
    return lo


@inner
def running_insert(rows: Vector[JobRow], running: Ints, part: PartitionRow, j: Int) -> None:
    """Add a job that has just started."""
    at = _running_position(rows, running, part, j)
    for i in range(part.queue_lo + part.running, at, -1):
        running[i] = running[i - 1]
    running[at] = j
    part.running += 1


@inner
def running_remove(rows: Vector[JobRow], running: Ints, part: PartitionRow, j: Int) -> None:
    """Take out a job, before its est_end changes."""
    part.running -= 1
    for i in range(_running_position(rows, running, part, j), part.queue_lo + part.running):
        running[i] = running[i + 1]


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
    """Take the entry at position `at` out of a heap of `size` entries."""
    last = size - 1
    time, j = times[last], np.int64(ends[last])
    if at == last:
        return
    if at > 0 and before(time, j, times[(at - 1) >> 1], np.int64(ends[(at - 1) >> 1])):
        while at > 0 and before(time, j, times[(at - 1) >> 1], np.int64(ends[(at - 1) >> 1])):
            above = (at - 1) >> 1
            times[at], ends[at] = times[above], ends[above]
            at = above
    else:
        below = 2 * at + 1
        while below < last:
            if below + 1 < last and before(times[below + 1], np.int64(ends[below + 1]), times[below], np.int64(ends[below])):
                below += 1
            if not before(times[below], np.int64(ends[below]), time, j):
                break
            times[at], ends[at] = times[below], ends[below]
            at = below
            below = 2 * at + 1
    times[at], ends[at] = time, j
