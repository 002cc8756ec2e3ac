"""The scheduling pass: the queue in order, preemption for the head, backfilling behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import ORDERING, PREEMPTION, call_keys, call_state, inner, params_at
from gpuyard.engine.kernels.accounts import note_service
from gpuyard.engine.kernels.backfill import (
    BACKFILL_CONSERVATIVE,
    BACKFILL_EASY,
    BACKFILL_NONE,
    copy_nodes,
    find_passing,
    fits_shadow,
    forget_asks,
    keep_reservation,
    leave,
    may_pass_alike,
    next_passing,
    overdue,
    recall_reservation,
    reserve,
    sift,
)
from gpuyard.engine.kernels.nodes import holds_in
from gpuyard.engine.kernels.place import find
from gpuyard.engine.kernels.queue import before, queue_sort
from gpuyard.engine.kernels.ranks.area import waiting_area
from gpuyard.engine.kernels.runs import BAD_KEY, factor_held, key_of, overhead_of, requeue, revise_ends, start_at
from gpuyard.engine.kernels.site.limits import OVER
from gpuyard.engine.state import CLOCK_NO, CLOCK_STATE, PART_PLAN, PART_RANK, PART_SHARED
from gpuyard.model.cluster import EPS
from gpuyard.model.rules import MAY_STOP_ONCE, MUST_RUN

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State


@inner
def failed(s: State, code: Int, j: Int) -> Any:
    """Note which job a policy failed on."""
    s.control[0].error_job = j
    return code


@inner
def order_queue(s: State, p: Int) -> Any:
    """Key the whole queue by the active ordering and sort it; returns a status."""
    status = _fill_keys(s, p, 0)
    if status == 0:
        _sort(s, s.partitions[p])
    return status


@inner
def _sort(s: State, part: PartitionRow) -> None:
    queue_sort(s.queue_keys, s.queue_jobs, part.head, part.tail)
    part.sifted = 0


@inner
def update_queue(s: State, p: Int) -> Any:
    """Bring the queue into the order of the active ordering, where that may have changed; returns a status."""
    part = s.partitions[p]
    unsorted = part.unsorted
    part.unsorted = 0
    if s.slots[s.control[0].active].reads_clock != CLOCK_NO:
        return order_queue(s, p)
    if unsorted == 1:
        _sort(s, part)
    return 0


@inner
def _bring_first(s: State, p: Int, slot: SlotRow) -> Any:
    """Key the queue by an ordering that sees the whole state, and bring the job that goes first to the front; returns a status.

    The others need not be in order: after a start all keys change, and those that may pass the head are keyed anew. Only preemption,
    a depth and conservative backfilling walk on.
    """
    if slot.preemption != 0 or slot.depth > 0 or slot.backfill == BACKFILL_CONSERVATIVE or s.control[0].limits > 0:
        return order_queue(s, p)
    status = _fill_keys(s, p, 0)
    if status == 0:
        part = s.partitions[p]
        first = _lowest_key(s, part.head, part.tail)
        s.queue_jobs[part.head], s.queue_jobs[first] = s.queue_jobs[first], s.queue_jobs[part.head]  # nothing reads these keys again
        part.sifted = 0
    return status


@inner
def _lowest_key(s: State, first: Int, last: Int) -> Any:
    """Return the position of the lowest (key, job) from `first` up to `last`."""
    best = first
    for i in range(first + 1, last):
        if before(s.queue_keys[i], np.int64(s.queue_jobs[i]), s.queue_keys[best], np.int64(s.queue_jobs[best])):
            best = i
    return best


@inner
def _order_behind(s: State, p: Int, h: Int) -> Any:
    """Key and sort the queue with job h in front, whatever its key; returns a status."""
    part = s.partitions[p]
    _to_front(s, part, h)
    status = _fill_keys(s, p, part.tail - part.head - 1)
    if status == 0:
        s.queue_keys[part.head] = -math.inf
        _sort(s, part)
    return status


@inner
def _to_front(s: State, part: PartitionRow, h: Int) -> None:
    """Swap job h with the first of the queue; keys do not matter."""
    s.queue_jobs[position(s, part, h)] = s.queue_jobs[part.head]
    s.queue_jobs[part.head] = h


@inner
def _fill_keys(s: State, p: Int, behind: Int) -> Any:
    """Key the queue by the active ordering (`behind`: only so many jobs after the first, which may pass it); returns a status."""
    control = s.control[0]
    part = s.partitions[p]
    lo, hi = (part.head + 1, part.head + 1 + behind) if behind > 0 else (part.head, part.tail)
    slot = s.slots[control.active]
    if slot.reads_clock == CLOCK_STATE:
        control.asked += 1
        status = call_state(slot.ordering, s, p, behind, slot.ordering_network)
    elif slot.rank != 0:
        status = _fill_areas(s, slot, lo, hi)
    else:
        status = call_ordering(s, slot, lo, hi, control.now)
    if status != 0:
        return failed(s, BAD_KEY, np.int64(s.queue_jobs[lo + status - 1]))
    for i in range(lo, hi):
        if s.queue_keys[i] != s.queue_keys[i]:
            return failed(s, BAD_KEY, np.int64(s.queue_jobs[i]))
    return 0


@inner
def _fill_areas(s: State, slot: SlotRow, lo: Int, hi: Int) -> Any:
    """Key the queue from position lo up to hi by the areas of a rank rule; returns 0: a rule that fails gives NaN."""
    for i in range(lo, hi):
        s.queue_keys[i] = waiting_area(s, slot, np.int64(s.queue_jobs[i]))
    return 0


@inner
def call_ordering(s: State, slot: SlotRow, lo: Int, hi: Int, time: Real) -> Any:
    """Let the ordering key the queue from position lo up to hi as of a time; returns 0, or 1 + how far it came before it failed."""
    at = params_at(s.control[0].active, ORDERING)
    return call_keys(slot.ordering, s, s.queue_jobs, s.queue_keys, lo, hi - lo, time, s.params, at)


@inner
def visit(s: State, p: Int, slot: SlotRow) -> Any:
    """Make the pass over a partition, or only the part of it that can matter; returns a status.

    A partition is settled if no job that waited at the last pass can start before something is released: then only who came since
    is looked at. It takes a single one behind the head; where more came, the whole pass is hardly more work.
    """
    if slot.rank != 0:
        return call_state(s.control[0].parts, s, p, 0, PART_RANK)
    part = s.partitions[p]
    if part.shared > 0:
        return call_state(s.control[0].parts, s, p, 0, PART_SHARED)
    if part.settled == 1 and not overdue(s, part):
        if part.came == 0:
            return 0
        if part.came == 1 and part.newcomer > part.head and s.rows[s.queue_jobs[part.head]].benched == 0:
            return _admit(s, p, slot)
    return run_pass(s, p)


@inner
def _admit(s: State, p: Int, slot: SlotRow) -> Any:
    """Start the job that came behind the head of a settled queue, if it may pass; returns a status."""
    part = s.partitions[p]
    part.came = 0
    j, h = np.int64(s.queue_jobs[part.newcomer]), np.int64(s.queue_jobs[part.head])
    if s.rows[j].benched != 0 or slot.backfill == BACKFILL_NONE or (s.rows[j].gpus >= 1 and s.rows[j].gpus > part.free):
        return 0
    easy = slot.backfill == BACKFILL_EASY
    if easy and part.reserved == 1:
        recall_reservation(s, part)
    elif easy:
        revise_ends(s, p)
        reserve(s, p, h)
    count = find_passing(s, p, h, j, slot)
    if count < 0:
        return failed(s, count, j)
    if count > 0:
        start_at(s, p, part.newcomer, count)
    if easy:
        keep_reservation(s, part, slot)
    return 0


@inner
def _settles(slot: SlotRow) -> Any:
    """Whether no job that waits can start before something is released: neither keys nor what is in view depend on the clock."""
    return slot.reads_clock == CLOCK_NO and slot.preemption == 0 and slot.depth == 0 and slot.backfill != BACKFILL_CONSERVATIVE


@inner
def run_pass(s: State, p: Int) -> Any:
    """One pass over a partition, repeated without preemption if a job was preempted; returns a status."""
    control = s.control[0]
    slot = s.slots[control.active]
    preempting = slot.preemption != 0
    if control.tracking == 1:
        revise_ends(s, p)
    while True:
        part = s.partitions[p]
        part.came = part.reserved = 0
        part.settled = 1 if _settles(slot) else 0
        if part.head == part.tail:
            return 0
        status = _bring_first(s, p, slot) if slot.reads_clock == CLOCK_STATE else update_queue(s, p)
        if status < 0:
            return status
        before = control.preempted
        status = _walk(s, p, slot, preempting)
        if status < 0 or control.preempted == before:
            return status
        unbench(s, p)
        preempting = False


@inner
def _walk(s: State, p: Int, slot: SlotRow, preempting: bool) -> Any:
    """Start jobs in order up to the head that does not fit, then backfill behind it."""
    part = s.partitions[p]
    at = part.head
    while at < part.tail:
        j = np.int64(s.queue_jobs[at])
        if s.rows[j].benched != 0:
            at += 1
            continue
        count = find(s, p, j, slot)
        if count == 0 and preempting:
            count = make_room(s, p, j, slot)
            at = position(s, part, j)
        if count < 0:
            return failed(s, count, j)
        if count == 0:
            return _backfill(s, p, at, slot)
        at = start_at(s, p, at, count)
        if slot.reads_clock == CLOCK_STATE and at < part.tail:
            status = _bring_first(s, p, slot)  # the keys of the rest depend on what is left
            if status < 0:
                return status
            at = part.head
    return 0


@inner
def position(s: State, part: PartitionRow, j: Int) -> Any:
    """Return the position of job j in the queue."""
    at = part.head
    while s.queue_jobs[at] != j:
        at += 1
    return at


@inner
def unbench(s: State, p: Int) -> None:
    """Let the jobs preempted in this pass take part again."""
    part = s.partitions[p]
    for i in range(part.head, part.tail):
        s.rows[s.queue_jobs[i]].benched &= ~1


@inner
def _backfill(s: State, p: Int, head: Int, slot: SlotRow) -> Any:
    part = s.partitions[p]
    if slot.reads_clock == CLOCK_STATE and slot.backfill != BACKFILL_NONE and part.tail - head > 1:
        if slot.depth == 0 and slot.backfill != BACKFILL_CONSERVATIVE:
            return _choose_behind(s, p, np.int64(s.queue_jobs[head]), slot)
        status = _order_behind(s, p, np.int64(s.queue_jobs[head]))
        if status < 0:
            return status
        head = part.head
    if slot.backfill == BACKFILL_CONSERVATIVE:
        return call_state(s.control[0].parts, s, p, head, PART_PLAN)
    return 0 if slot.backfill == BACKFILL_NONE else _start_behind(s, p, head, slot)


# ── an ordering that sees the whole state: it keys the jobs that may pass the head, the first starts, and so on ──


@inner
def _choose_behind(s: State, p: Int, h: Int, slot: SlotRow) -> Any:
    part = s.partitions[p]
    if slot.backfill == BACKFILL_EASY:
        reserve(s, p, h)
    while True:
        found = _gather_passing(s, p, h, slot)
        if found <= 0:
            return found
        best = part.head + 1
        if found > 1:
            status = _fill_keys(s, p, found)
            if status < 0:
                return status
            best = _lowest_key(s, best, best + found)
        j = np.int64(s.queue_jobs[best])
        count = find_passing(s, p, h, j, slot)
        if count <= 0:
            return failed(s, count, j)
        start_at(s, p, best, count)


@inner
def _gather_passing(s: State, p: Int, h: Int, slot: SlotRow) -> Any:
    """Bring h to the front of the queue and the jobs that may pass it next to it; returns their number, or a failure."""
    part = s.partitions[p]
    _to_front(s, part, h)
    forget_asks(s)
    found = 0
    for i in range(part.head + 1, part.tail):
        j = np.int64(s.queue_jobs[i])
        if s.rows[j].benched != 0:
            continue
        count = may_pass_alike(s, p, h, j, slot)
        if count < 0:
            return failed(s, count, j)
        if count > 0:
            found += 1
            s.queue_jobs[i] = s.queue_jobs[part.head + found]
            s.queue_jobs[part.head + found] = j
    return found


# ── skip and EASY: jobs start behind the head ──


@inner
def _start_behind(s: State, p: Int, head: Int, slot: SlotRow) -> Any:
    """Start the jobs that may pass the head, in the order of the queue; returns a status."""
    part = s.partitions[p]
    if part.tail - head < 2:
        return 0
    if slot.depth > 0:
        return _start_within(s, p, head, slot)
    easy = slot.backfill == BACKFILL_EASY
    sift(s, part)
    at = next_passing(s, part, head + 1, False)
    if at == part.tail:
        return 0  # nothing that waits fits: no reservation need be worked out
    h = np.int64(s.queue_jobs[head])
    if easy:
        reserve(s, p, h)
        at = next_passing(s, part, at, True)
    while at < part.tail:
        j = np.int64(s.queue_jobs[at])
        count = 0 if s.rows[j].benched != 0 else find_passing(s, p, h, j, slot)
        if count < 0:
            return failed(s, count, j)
        at = start_at(s, p, at, count) if count > 0 else at + 1
        at = next_passing(s, part, at, easy)
    if easy:
        keep_reservation(s, part, slot)
    return 0


@inner
def _start_within(s: State, p: Int, head: Int, slot: SlotRow) -> Any:
    """Do the same for the first jobs behind the head only, as many as the depth says."""
    part = s.partitions[p]
    h = np.int64(s.queue_jobs[head])
    if slot.backfill == BACKFILL_EASY:
        reserve(s, p, h)
    left = slot.depth
    at = head + 1
    while at < part.tail and left > 0:
        j = np.int64(s.queue_jobs[at])
        if s.rows[j].benched != 0:
            at += 1
            continue
        left -= 1
        count = find_passing(s, p, h, j, slot)
        if count < 0:
            return failed(s, count, j)
        at = _next_behind(s, p, h, at, count, slot)
        if at < 0:
            return at
        if count > 0 and slot.reads_clock == CLOCK_STATE:
            left = slot.depth  # from the front again
    return 0


@inner
def _next_behind(s: State, p: Int, h: Int, at: Int, count: Int, slot: SlotRow) -> Any:
    """Start the job at position `at` behind the head h if nodes were picked for it; returns the position of the next, or a failure."""
    if count == 0:
        return at + 1
    following = start_at(s, p, at, count)
    if slot.reads_clock != CLOCK_STATE:
        return following
    status = _order_behind(s, p, h)
    return status if status < 0 else s.partitions[p].head + 1


# ── preemption ──


@inner
def make_room(s: State, p: Int, h: Int, slot: SlotRow) -> Any:
    """Preempt for the head if that lets it fit: the number of nodes then picked for it, 0 if not, or a failure."""
    part = s.partitions[p]
    control = s.control[0]
    if part.running == 0:
        return 0
    limit = key_of(s, slot.preemption, h, PREEMPTION)
    if limit != limit:
        return BAD_KEY
    refresh(s, part)
    lo = part.first_run
    at = params_at(control.active, PREEMPTION)
    if call_keys(slot.preemption, s, s.running_jobs, s.score, lo, part.running, control.now, s.params, at) != 0:
        return BAD_KEY
    for i in range(lo, lo + part.running):
        if s.score[i] != s.score[i]:
            return BAD_KEY
    if not _choose_victims(s, p, h, limit):
        return 0
    i = lo + part.running - 1
    while i >= part.first_run:
        j = np.int64(s.running_jobs[i])
        first = part.first_run
        if s.rows[j].benched == 2:
            status = requeue(s, j)
            if status < 0:
                return status
            s.rows[j].benched = 1 if s.rows[j].benched & OVER == 0 else 1 | OVER
            control.preempted += 1
        if part.first_run == first:  # else those before it have moved up
            i -= 1
    return find(s, p, h, slot)


@inner
def refresh(s: State, part: PartitionRow) -> None:
    """Update the visible columns of the running jobs to the present."""
    control = s.control[0]
    for i in range(part.first_run, part.first_run + part.running):
        row = s.rows[s.running_jobs[i]]
        useful = max(control.now - row.run_start - overhead_of(s, row, factor_held(s, row)), 0.0)
        row.remaining = max(row.estimate - row.done - useful * row.rate, 0.0)
        note_service(s, row, row.ran + (control.now - row.run_start))


@inner
def _choose_victims(s: State, p: Int, h: Int, limit: Real) -> Any:
    """Mark jobs for preemption, least important first, until the head fits; False (and no marks) if it never does."""
    part = s.partitions[p]
    row = s.rows[h]
    counters = row.plain == 1 and s.control[0].sharing == 0
    if not counters:
        copy_nodes(s, part)
    free = float(part.free)
    used = part.used
    while True:
        v = _least_important(s, part, row, limit)
        if v < 0:
            for i in range(part.first_run, part.first_run + part.running):
                s.rows[s.running_jobs[i]].benched = 0
            return False
        s.rows[v].benched = 2
        free, used = leave(s, v, counters, free, used)
        if used + row.gpus <= part.quota + EPS:
            if (free >= row.gpus) if counters else fits_shadow(s, part, row):
                return True


@inner
def _must_run(s: State, row: JobRow) -> Any:
    """Whether the terms of a running job say that it may not be stopped, or not again."""
    stops = s.terms[row.terms].stops
    return stops == MUST_RUN or (stops == MAY_STOP_ONCE and row.preemptions > 0)


@inner
def _least_important(s: State, part: PartitionRow, head: JobRow, limit: Real) -> Any:
    """The unmarked running job with the highest score above `limit`, the latest started of equals; -1: none.

    Where partitions share nodes, one that holds none of the nodes of the head's partition does not count.
    """
    now = s.control[0].now
    best = np.int64(-1)
    best_score = limit
    best_start = 0.0
    for i in range(part.first_run, part.first_run + part.running):
        j = np.int64(s.running_jobs[i])
        row = s.rows[j]
        score = s.score[i]
        if row.benched == 2 or row.run_start == now or _must_run(s, row) or not score > limit:
            continue
        if head.plain < 0 and not holds_in(s, head, row):
            continue
        later = row.run_start > best_start or (row.run_start == best_start and j > best)
        if best < 0 or score > best_score or (score == best_score and later):
            best, best_score, best_start = j, score, row.run_start
    return best
