"""The scheduling pass: the queue in order, preemption for the head, backfilling behind it."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import ORDERING, PREEMPTION, call_keys, call_state, inner, params_at
from gpuyard.engine.kernels.nodes import describe, give_back, hold, room_on
from gpuyard.engine.kernels.place import find, within_quota
from gpuyard.engine.kernels.plan import conservative, depth_of
from gpuyard.engine.kernels.queue import before, queue_sort
from gpuyard.engine.kernels.runs import (
    BAD_KEY,
    estimated_end,
    factor_held,
    factor_picked,
    key_of,
    overhead_of,
    rate_of,
    requeue,
    revise_ends,
    start_at,
)
from gpuyard.engine.slots import BACKFILLS
from gpuyard.engine.state import CLOCK_NO, CLOCK_STATE
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.slots import BACKFILLS
from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State

BACKFILL_NONE, BACKFILL_SKIP, BACKFILL_EASY, BACKFILL_CONSERVATIVE = (BACKFILLS[name] for name in ("none", "skip", "easy", "conservative"))


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
        queue_sort(s.queue_keys, s.queue_jobs, s.partitions[p].head, s.partitions[p].tail)
    return status


@inner
def update_queue(s: State, p: Int) -> Any:
    """Bring the queue into the order of the active ordering, where that may have changed; returns a status."""
    part = s.partitions[p]
    unsorted = part.unsorted
    part.unsorted = 0
    if s.slots[s.control[0].active].reads_clock != CLOCK_NO:
        return order_queue(s, p)
    if unsorted == 1:
        queue_sort(s.queue_keys, s.queue_jobs, part.head, part.tail)
    return 0


@inner
def _order_behind(s: State, p: Int, h: Int) -> Any:
    """Key and sort the queue with job h in front, whatever its key; returns a status."""
    part = s.partitions[p]
    _to_front(s, part, h)
    status = _fill_keys(s, p, part.tail - part.head - 1)
    if status == 0:
        s.queue_keys[part.head] = -math.inf
        queue_sort(s.queue_keys, s.queue_jobs, part.head, part.tail)
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
    else:
        at = params_at(control.active, ORDERING)
        status = call_keys(slot.ordering, s.rows, s.queue_jobs, s.queue_keys, lo, hi - lo, control.now, s.params, at)
    if status != 0:
        return failed(s, BAD_KEY, np.int64(s.queue_jobs[lo + status - 1]))
    for i in range(lo, hi):
        if s.queue_keys[i] != s.queue_keys[i]:
            return failed(s, BAD_KEY, np.int64(s.queue_jobs[i]))
    return 0


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
        part.dirty = 0
        if part.head == part.tail:
            return 0
        status = update_queue(s, p)
        if status < 0:
            return status
        before = control.preempted
        status = _walk(s, p, slot, preempting)
        if status < 0 or control.preempted == before:
            return status
        _unbench(s, p)
        preempting = False


@inner
def _walk(s: State, p: Int, slot: SlotRow, preempting: bool) -> Any:
    """Start jobs in order up to the head that does not fit, then backfill behind it."""
    part = s.partitions[p]
    at = part.head
    while at < part.tail:
        j = np.int64(s.queue_jobs[at])
        if s.rows[j].benched == 1:
            at += 1
            continue
        count = find(s, p, j, slot)
        if count == 0 and preempting:
            count = _make_room(s, p, j, slot)
            at = position(s, part, j)
        if count < 0:
            return failed(s, count, j)
        if count == 0:
            return _backfill(s, p, at, slot)
        at = start_at(s, p, at, count)
        if slot.reads_clock == CLOCK_STATE and at < part.tail:
            status = order_queue(s, p)  # the keys of the rest depend on what is left
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
def _unbench(s: State, p: Int) -> None:
    """Let the jobs preempted in this pass take part again."""
    part = s.partitions[p]
    for i in range(part.head, part.tail):
        s.rows[s.queue_jobs[i]].benched = 0


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
        return conservative(s, p, head, slot)
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
            for i in range(part.head + 2, part.head + 1 + found):
                if before(s.queue_keys[i], np.int64(s.queue_jobs[i]), s.queue_keys[best], np.int64(s.queue_jobs[best])):
                    best = i
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
    found = 0
    for i in range(part.head + 1, part.tail):
        j = np.int64(s.queue_jobs[i])
        if s.rows[j].benched == 1:
            continue
        count = may_pass(s, p, h, j, slot)
        if count < 0:
            return failed(s, count, j)
        if count > 0:
            found += 1
            s.queue_jobs[i] = s.queue_jobs[part.head + found]
            s.queue_jobs[part.head + found] = j
    return found


@inner
def may_pass(s: State, p: Int, h: Int, j: Int, slot: SlotRow) -> Any:
    """Return a number above 0 if job j may start now while the head h waits, 0 if not, or a failure; takes nothing."""
    return find_behind(s, p, h, j, slot, False) if slot.backfill == BACKFILL_EASY else fits(s, p, j, slot)


@inner
def find_passing(s: State, p: Int, h: Int, j: Int, slot: SlotRow) -> Any:
    """Find nodes for a job that passes the head h; returns what `find` returns."""
    return find_behind(s, p, h, j, slot, True) if slot.backfill == BACKFILL_EASY else find(s, p, j, slot)


@inner
def fits(s: State, p: Int, j: Int, slot: SlotRow) -> Any:
    """Like `find`, but only whether the job fits, where counters suffice."""
    row = s.rows[j]
    if row.plain == 1:
        return 1 if row.gpus <= s.partitions[p].free and within_quota(s.partitions[p], row.gpus) else 0
    return find(s, p, j, slot)


# ── skip: anything that fits; EASY: what does not delay the head, which has a reservation ──


@inner
def _start_behind(s: State, p: Int, head: Int, slot: SlotRow) -> Any:
    """Start the jobs that may pass the head, in the order of the queue; returns a status."""
    part = s.partitions[p]
    if part.tail - head < 2:
        return 0
    h = np.int64(s.queue_jobs[head])
    if slot.backfill == BACKFILL_EASY:
        reserve(s, p, h)
    left = depth_of(slot, part.tail - head)
    at = head + 1
    while at < part.tail and left > 0:
        j = np.int64(s.queue_jobs[at])
        if s.rows[j].benched == 1:
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
            left = depth_of(slot, part.tail - part.head)  # from the front again
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


@inner
def reserve(s: State, p: Int, h: Int) -> None:
    """Work out when the head h is estimated to fit, and what is left over then."""
    control = s.control[0]
    control.counters = 1 if s.rows[h].plain == 1 and control.sharing == 0 else 0
    control.shadow, control.spare, control.spare_quota = _shadow(s, p, h, control.counters == 1)


@inner
def find_behind(s: State, p: Int, h: Int, j: Int, slot: SlotRow, take: bool) -> Any:
    """Find nodes for a job that must not delay the head h. `take`: what it needs of what the head leaves over is given to it."""
    control = s.control[0]
    row = s.rows[j]
    counters = control.counters == 1
    if counters and row.gpus > control.spare and estimated_end(row, control, control.fastest, control.least_transfer) > control.shadow:
        return 0
    count = find(s, p, j, slot)
    if count <= 0 or estimated_end(row, control, rate_of(s, row, count), factor_picked(s, row, count)) <= control.shadow:
        return count
    if counters:
        if row.gpus > control.spare or row.gpus > control.spare_quota + EPS:
            return 0
    elif _holds_back(s, p, h, j, count, take):
        return 0
    if take:
        control.spare -= row.gpus
        control.spare_quota -= row.gpus
    return count


@inner
def _shadow(s: State, p: Int, h: Int, counters: bool) -> Any:
    """(time at which the head is estimated to fit, devices left over then, quota left over then).

    With `counters` the numbers of devices decide; otherwise shadow_nodes holds the nodes as they will be.
    """
    part = s.partitions[p]
    now = s.control[0].now
    row = s.rows[h]
    if not counters:
        _copy_nodes(s, part)
    free = float(part.free)
    used = part.used
    first, last = part.queue_lo, part.queue_lo + part.running
    overdue = first
    while overdue < last and s.rows[s.running_jobs[overdue]].est_end <= now:
        overdue += 1
    i = overdue
    while i < last or first < overdue:
        time = s.rows[s.running_jobs[i]].est_end if i < last else now + 1.0
        if first < overdue and now + 1.0 <= time:
            time = now + 1.0
            while first < overdue:
                free, used = _leave(s, np.int64(s.running_jobs[first]), counters, free, used)
                first += 1
        while i < last and s.rows[s.running_jobs[i]].est_end <= time:
            free, used = _leave(s, np.int64(s.running_jobs[i]), counters, free, used)
            i += 1
        if used + row.gpus <= part.quota + EPS:
            if (free >= row.gpus) if counters else _fits_shadow(s, part, row):
                return time, free - row.gpus, part.quota - used - row.gpus
    return math.inf, 0.0, 0.0


@inner
def _copy_nodes(s: State, part: PartitionRow) -> None:
    for n in range(part.node_lo, part.node_hi):
        s.shadow_nodes[n] = s.nodes[n]
        first = s.nodes[n].first_device
        if first >= 0 and s.control[0].sharing == 1:
            for d in range(first, first + s.nodes[n].gpus):
                s.shadow_devices[d] = s.devices[d]


@inner
def _leave(s: State, r: Int, counters: bool, free: Real, used: Real) -> Any:
    """Take job r out of the shadow; returns the new (free, used)."""
    row = s.rows[r]
    if not counters:
        k = row.alloc
        while k >= 0:
            piece = s.parts[k]
            give_back(row, s.shadow_nodes[piece.node], s.shadow_devices, piece)
            k = piece.next
    return free + row.gpus, used - row.gpus


@inner
def _fits_shadow(s: State, part: PartitionRow, row: JobRow) -> Any:
    total = 0
    for n in range(part.node_lo, part.node_hi):
        total += room_on(row, s.shadow_nodes[n], s.allowed)
    return total >= row.units


@inner
def _holds_back(s: State, p: Int, h: Int, j: Int, count: Int, take: bool) -> Any:
    """Whether the head would no longer fit at its shadow time if job j took the nodes picked. `take`: hold them there if it still fits."""
    row = s.rows[j]
    if row.gpus > s.control[0].spare_quota + EPS:
        return True
    piece = s.parts[s.control[0].free_part]  # a free part, only to carry the description
    for i in range(count):
        n = s.pick_node[i]
        describe(row, s.nodes[n], s.devices, s.pick_units[i], s.pick_device[0], piece)
        hold(row, s.shadow_nodes[n], s.shadow_devices, piece)
    fits = _fits_shadow(s, s.partitions[p], s.rows[h])
    if not fits or not take:
        for i in range(count):
            n = s.pick_node[i]
            describe(row, s.nodes[n], s.devices, s.pick_units[i], s.pick_device[0], piece)
            give_back(row, s.shadow_nodes[n], s.shadow_devices, piece)
    return not fits


# ── preemption ──


@inner
def _make_room(s: State, p: Int, h: Int, slot: SlotRow) -> Any:
    """Preempt for the head if that lets it fit: the number of nodes then picked for it, 0 if not, or a failure."""
    part = s.partitions[p]
    control = s.control[0]
    if part.running == 0:
        return 0
    limit = key_of(s, slot.preemption, h, PREEMPTION)
    if limit != limit:
        return BAD_KEY
    _refresh(s, part)
    lo = part.queue_lo
    at = params_at(control.active, PREEMPTION)
    if call_keys(slot.preemption, s.rows, s.running_jobs, s.score, lo, part.running, control.now, s.params, at) != 0:
        return BAD_KEY
    for i in range(lo, lo + part.running):
        if s.score[i] != s.score[i]:
            return BAD_KEY
    if not _choose_victims(s, p, h, limit):
        return 0
    for i in range(lo + part.running - 1, lo - 1, -1):
        j = np.int64(s.running_jobs[i])
        if s.rows[j].benched == 2:
            status = requeue(s, j)
            if status < 0:
                return status
            s.rows[j].benched = 1
            control.preempted += 1
    return find(s, p, h, slot)


@inner
def _refresh(s: State, part: PartitionRow) -> None:
    """Update the visible columns of the running jobs to the present."""
    control = s.control[0]
    for i in range(part.queue_lo, part.queue_lo + part.running):
        row = s.rows[s.running_jobs[i]]
        useful = max(control.now - row.run_start - overhead_of(row, control, factor_held(s, row)), 0.0)
        row.remaining = max(row.estimate - row.done - useful * row.rate, 0.0)
        row.attained = (row.ran + (control.now - row.run_start)) * row.gpus


@inner
def _choose_victims(s: State, p: Int, h: Int, limit: Real) -> Any:
    """Mark jobs for preemption, least important first, until the head fits; False (and no marks) if it never does."""
    part = s.partitions[p]
    row = s.rows[h]
    counters = row.plain == 1 and s.control[0].sharing == 0
    if not counters:
        _copy_nodes(s, part)
    free = float(part.free)
    used = part.used
    while True:
        v = _least_important(s, part, limit)
        if v < 0:
            for i in range(part.queue_lo, part.queue_lo + part.running):
                s.rows[s.running_jobs[i]].benched = 0
            return False
        s.rows[v].benched = 2
        free, used = _leave(s, v, counters, free, used)
        if used + row.gpus <= part.quota + EPS:
            if (free >= row.gpus) if counters else _fits_shadow(s, part, row):
                return True


@inner
def _least_important(s: State, part: PartitionRow, limit: Real) -> Any:
    """The unmarked running job with the highest score above `limit`, the latest started of equals; -1: none."""
    now = s.control[0].now
    best = np.int64(-1)
    best_score = limit
    best_start = 0.0
    for i in range(part.queue_lo, part.queue_lo + part.running):
        j = np.int64(s.running_jobs[i])
        row = s.rows[j]
        score = s.score[i]
        if row.benched == 2 or row.run_start == now or not score > limit:
            continue
        later = row.run_start > best_start or (row.run_start == best_start and j > best)
        if best < 0 or score > best_score or (score == best_score and later):
            best, best_score, best_start = j, score, row.run_start
    return best
