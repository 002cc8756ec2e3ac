"""Ordered containers: the queue of a partition, its running jobs, and the heap of ends.

The queue is a sorted array inside the partition's own region, shifted on the shorter side: walking it in order is
what backfilling does most, and a shift of a thousand entries costs less than a third of a microsecond.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.engine.jit import inner


@inner
def before(key_a: Any, a: Any, key_b: Any, b: Any) -> Any:
    """Whether (key_a, a) goes before (key_b, b)."""
    return key_a < key_b or (key_a == key_b and a < b)


@inner
def _recenter(keys: Any, jobs: Any, part: Any) -> None:
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
def queue_insert(keys: Any, jobs: Any, part: Any, key: Any, j: Any) -> None:
    """Put job j where (key, j) belongs."""
    if part.tail == part.queue_hi or part.head == part.queue_lo:
        if part.tail == part.queue_hi:
            _recenter(keys, jobs, part)
    lo, hi = part.head, part.tail
    if hi > lo and before(keys[hi - 1], jobs[hi - 1], key, j):
        lo = hi  # first come, first served lands here
    while lo < hi:
        middle = (lo + hi) >> 1
        if before(key, j, keys[middle], jobs[middle]):
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
def queue_remove(keys: Any, jobs: Any, part: Any, at: Any) -> Any:
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
def queue_sort(keys: Any, jobs: Any, lo: Any, hi: Any) -> None:
    """Sort by (key, job). Keys drift slowly between passes, so insertion comes first; Shell's sort if that gets long."""
    budget = 8 * (hi - lo) + 64
    for i in range(lo + 1, hi):
        key, job = keys[i], np.int64(jobs[i])
        k = i
        while k > lo and before(key, job, keys[k - 1], jobs[k - 1]):
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
def _shell_sort(keys: Any, jobs: Any, lo: Any, hi: Any) -> None:
    gap = 1
    while gap < (hi - lo) // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(lo + gap, hi):
            key, job = keys[i], np.int64(jobs[i])
            k = i
            while k >= lo + gap and before(key, job, keys[k - gap], jobs[k - gap]):
                keys[k] = keys[k - gap]
                jobs[k] = jobs[k - gap]
                k -= gap
            keys[k] = key
            jobs[k] = job
        gap //= 3


# ── running jobs of a partition, by (believed end, index) ──


@inner
def running_insert(rows: Any, running: Any, part: Any, j: Any) -> None:
    """Add a job that has just started."""
    lo = part.queue_lo
    at = lo + part.running
    end = rows[j].est_end
    while at > lo and before(end, j, rows[running[at - 1]].est_end, running[at - 1]):
        running[at] = running[at - 1]
        at -= 1
    running[at] = j
    part.running += 1


@inner
def running_remove(rows: Any, running: Any, part: Any, j: Any) -> None:
    """Take out a job, before its est_end changes."""
    lo, hi = part.queue_lo, part.queue_lo + part.running
    last = hi - 1
    end = rows[j].est_end
    while lo < hi:
        middle = (lo + hi) >> 1
        if before(rows[running[middle]].est_end, running[middle], end, j):
            lo = middle + 1
        else:
            hi = middle
    for i in range(lo, last):
        running[i] = running[i + 1]
    part.running -= 1


# ── all ends, a binary heap by (end, index) that knows where each job sits ──


@inner
def _sooner(rows: Any, a: Any, b: Any) -> Any:
    return before(rows[a].end, a, rows[b].end, b)


@inner
def _sift_up(rows: Any, ends: Any, at: Any) -> None:
    j = np.int64(ends[at])
    while at > 0:
        above = (at - 1) >> 1
        if not _sooner(rows, j, ends[above]):
            break
        ends[at] = ends[above]
        rows[ends[at]].heap = at
        at = above
    ends[at] = j
    rows[j].heap = at


@inner
def _sift_down(rows: Any, ends: Any, at: Any, size: Any) -> None:
    j = np.int64(ends[at])
    while True:
        below = 2 * at + 1
        if below >= size:
            break
        if below + 1 < size and _sooner(rows, ends[below + 1], ends[below]):
            below += 1
        if not _sooner(rows, ends[below], j):
            break
        ends[at] = ends[below]
        rows[ends[at]].heap = at
        at = below
    ends[at] = j
    rows[j].heap = at


@inner
def ends_insert(rows: Any, ends: Any, size: Any, j: Any) -> None:
    """Add job j to a heap of `size` entries."""
    ends[size] = j
    _sift_up(rows, ends, size)


@inner
def ends_remove(rows: Any, ends: Any, size: Any, j: Any) -> None:
    """Take job j out of a heap of `size` entries."""
    at = np.int64(rows[j].heap)
    last = np.int64(ends[size - 1])
    if last == j:
        return
    ends[at] = last
    rows[last].heap = at
    if _sooner(rows, last, j):
        _sift_up(rows, ends, at)
    else:
        _sift_down(rows, ends, at, size - 1)
