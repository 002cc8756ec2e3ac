"""Backfilling: which jobs may pass the head of the queue. Skip lets any that fits; under EASY the head's reservation must stand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import describe, give_back, hold, room_on
from gpuyard.engine.kernels.place import find, within_quota
from gpuyard.engine.kernels.runs import estimated_end, factor_picked, note_demand, rate_of
from gpuyard.engine.kernels.scores import SCORE_NETWORK, SCORE_OWN, SCORE_RANDOM
from gpuyard.engine.rows.ranking import ASKS
from gpuyard.engine.slots import BACKFILLS
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State

BACKFILL_NONE, BACKFILL_SKIP, BACKFILL_EASY, BACKFILL_CONSERVATIVE = (BACKFILLS[name] for name in ("none", "skip", "easy", "conservative"))
BLOCK = 64  # entries of the queue that are looked at together


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


# ── the same question for many jobs: who asks for the same gets the same nodes, as long as nobody starts ──


@inner
def may_pass_alike(s: State, p: Int, h: Int, j: Int, slot: SlotRow) -> Any:
    """Do the same as `may_pass`; what was found for a job with the same request since `forget_asks` is not looked for again.

    Of 5,000 jobs on 1,000 nodes few requests differ, and to look at every node for each of them took 50 ms.
    """
    control, row = s.control[0], s.rows[j]
    easy = slot.backfill == BACKFILL_EASY
    if slot.score == SCORE_OWN or slot.score == SCORE_NETWORK or slot.score == SCORE_RANDOM:  # nodes may differ for jobs that ask alike
        return may_pass(s, p, h, j, slot)
    if row.plain == 1 and (not easy or control.counters == 1):
        return may_pass(s, p, h, j, slot)
    ask = s.asks[_ask_at(s, row)]
    if ask.job < 0 or not _asks_alike(s, row, s.rows[ask.job]):
        ask.job, ask.holds = j, -1
        ask.count = find(s, p, j, slot)
        if ask.count > 0:
            ask.rate, ask.factor = rate_of(s, row, ask.count), factor_picked(s, row, ask.count)
    if ask.count == 0 or not easy or estimated_end(s, row, ask.rate, ask.factor) <= control.shadow:
        return ask.count
    if control.counters == 1:
        return 0 if row.gpus > control.spare or row.gpus > control.spare_quota + EPS else ask.count
    if ask.holds < 0:
        find(s, p, j, slot)  # the nodes picked may be those of another by now
        ask.holds = 1 if holds_back(s, p, h, j, ask.count, False) else 0
    return 0 if ask.holds == 1 else ask.count


@inner
def forget_asks(s: State) -> None:
    """Begin a new search: a job has started since the last one."""
    for k in range(ASKS):
        s.asks[k].job = -1


@inner
def _ask_at(s: State, row: JobRow) -> Any:
    """Return where what was found for such a request is kept."""
    job = s.table[row.number]
    return np.int64(min(row.gpus * 131.0 + job.cpus * 31.0 + job.memory * 7.0 + job.gpu_type * 17.0, 1e15)) % ASKS


@inner
def _asks_alike(s: State, a: JobRow, b: JobRow) -> Any:
    """Whether two jobs get the same nodes, and run on them as fast."""
    if a.gpus != b.gpus or a.units != b.units or a.hosted != b.hosted or a.moved != b.moved or a.job_class != b.job_class:
        return False
    x, y = s.table[a.number], s.table[b.number]
    same = x.cpus == y.cpus and x.memory == y.memory and x.gpu_type == y.gpu_type
    return same and a.terms == b.terms and a.silent == b.silent and a.plain == b.plain


# ── the sieve: two columns beside the queue tell of most jobs that they cannot start, a block of jobs at a time ──


@inner
def sift(s: State, part: PartitionRow) -> None:
    """Fill the columns again if the queue was sorted since."""
    if part.sifted == 0:
        for i in range(part.head, part.tail):
            note_demand(s, i)
        part.sifted = 1


@inner
def next_passing(s: State, part: PartitionRow, at: Int, reserved: bool) -> Any:
    """Return the first position from `at` on whose job might start now, by the numbers of devices and the least time that it takes.

    `reserved`: the head has a reservation that must stand. Jobs that are not returned cannot start, whatever nodes they were given.
    """
    return first_passing(s, part, s.queue_need, s.queue_length, at, part.tail, reserved)


@inner
def first_passing(s: State, part: PartitionRow, need: Reals, length: Reals, at: Int, end: Int, reserved: bool) -> Any:
    """Do the same for any two columns of single precision, from `at` up to `end`."""
    control = s.control[0]
    free = np.float32(min(float(part.free), part.quota - part.used + 2.0 * EPS))
    spare, limit = np.float32(math.inf), np.float32(math.inf)
    if reserved and control.counters == 1:
        spare = np.float32(control.spare)
        if control.shadow < math.inf:  # whoever is near the limit is looked at
            limit = np.float32((control.shadow - control.now + 1e-15 * control.shadow) * (1.0 + 1e-6))
    while at + BLOCK <= end and not _any_passes(need, length, at, free, spare, limit):
        at += BLOCK
    while at < end and not _passes(need, length, at, free, spare, limit):
        at += 1
    return at


@inner
def _passes(need: Reals, length: Reals, i: Int, free: Real, spare: Real, limit: Real) -> Any:
    return (need[i] <= free) & ((need[i] <= spare) | (length[i] <= limit))


@inner
def _any_passes(need: Reals, length: Reals, at: Int, free: Real, spare: Real, limit: Real) -> Any:
    """Whether any of a block passes. No early exit and unsigned positions: so the compiler compares eight at once, 0.1 ns a job."""
    found = False
    for k in range(BLOCK):
        found |= _passes(need, length, np.uint64(at) + np.uint64(k), free, spare, limit)
    return found


# ── EASY: one reservation, for the head ──


@inner
def reserve(s: State, p: Int, h: Int) -> None:
    """Work out when the head h is estimated to fit, and what is left over then."""
    control = s.control[0]
    control.counters = 1 if s.rows[h].plain == 1 and control.sharing == 0 else 0
    control.doubt = 0
    control.shadow, control.spare, control.spare_quota = _shadow(s, p, h, control.counters == 1)


@inner
def keep_reservation(s: State, part: PartitionRow, slot: SlotRow) -> None:
    """Keep the head's reservation until something is released. Where it may not stand so long, the queue is not settled.

    It stands if numbers of devices decide and no job was turned down for the nodes that it would have got: other nodes may be left
    for it next time. A user's placement or a network may also change its mind.
    """
    control = s.control[0]
    fixed = slot.score != SCORE_OWN and slot.score != SCORE_NETWORK
    stands = fixed and control.counters == 1 and control.doubt == 0 and control.shadow < math.inf and part.quota == math.inf
    part.reserved = part.settled = 1 if stands and part.settled == 1 else 0
    part.shadow, part.spare = control.shadow, control.spare


@inner
def recall_reservation(s: State, part: PartitionRow) -> None:
    """Go on with the reservation that was kept."""
    control = s.control[0]
    control.counters, control.doubt = 1, 0
    control.shadow, control.spare, control.spare_quota = part.shadow, part.spare, math.inf


@inner
def overdue(s: State, part: PartitionRow) -> Any:
    """Whether a reservation was kept and rests on an end that should have come by now."""
    return part.reserved == 1 and s.running_ends[part.first_run] <= s.control[0].now


@inner
def find_behind(s: State, p: Int, h: Int, j: Int, slot: SlotRow, take: bool) -> Any:
    """Find nodes for a job that must not delay the head h. `take`: what it needs of what the head leaves over is given to it."""
    control = s.control[0]
    row = s.rows[j]
    counters = control.counters == 1
    if counters and row.gpus > control.spare and estimated_end(s, row, control.fastest, control.least_transfer) > control.shadow:
        return 0
    count = find(s, p, j, slot)
    if count <= 0 or estimated_end(s, row, rate_of(s, row, count), factor_picked(s, row, count)) <= control.shadow:
        return count
    if counters:
        if row.gpus > control.spare or row.gpus > control.spare_quota + EPS:
            control.doubt = 1
            return 0
    elif holds_back(s, p, h, j, count, take):
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
        copy_nodes(s, part)
    free = float(part.free)
    used = part.used
    first, last = part.first_run, part.first_run + part.running
    passed = first
    while passed < last and s.running_ends[passed] <= now:
        passed += 1
    i = passed
    while i < last or first < passed:
        time = s.running_ends[i] if i < last else now + 1.0
        if first < passed and now + 1.0 <= time:
            time = now + 1.0
            while first < passed:
                free, used = leave(s, np.int64(s.running_jobs[first]), counters, free, used)
                first += 1
        while i < last and s.running_ends[i] <= time:
            free, used = leave(s, np.int64(s.running_jobs[i]), counters, free, used)
            i += 1
        if used + row.gpus <= part.quota + EPS:
            if (free >= row.gpus) if counters else fits_shadow(s, part, row):
                return time, free - row.gpus, part.quota - used - row.gpus
    return math.inf, 0.0, 0.0


@inner
def copy_nodes(s: State, part: PartitionRow) -> None:
    for n in range(part.node_lo, part.node_hi):
        s.shadow_nodes[n] = s.nodes[n]
        first = s.nodes[n].first_device
        if first >= 0 and s.control[0].sharing == 1:
            for d in range(first, first + s.nodes[n].gpus):
                s.shadow_devices[d] = s.devices[d]


@inner
def leave(s: State, r: Int, counters: bool, free: Real, used: Real) -> Any:
    """Take job r out of the shadow; returns the new (free, used)."""
    row = s.rows[r]
    if not counters:
        k = row.alloc
        while k >= 0:
            piece = s.parts[k]
            give_back(s, row, s.shadow_nodes[piece.node], s.shadow_devices, piece)
            k = piece.next
    return free + row.gpus, used - row.gpus


@inner
def fits_shadow(s: State, part: PartitionRow, row: JobRow) -> Any:
    total = 0
    for n in range(part.node_lo, part.node_hi):
        total += room_on(s, row, s.shadow_nodes[n])
    return total >= row.units


@inner
def holds_back(s: State, p: Int, h: Int, j: Int, count: Int, take: bool) -> Any:
    """Whether the head would no longer fit at its shadow time if job j took the nodes picked. `take`: hold them there if it still fits."""
    row = s.rows[j]
    if row.gpus > s.control[0].spare_quota + EPS:
        return True
    piece = s.parts[s.control[0].free_part]  # a free part, only to carry the description
    for i in range(count):
        n = s.pick_node[i]
        describe(row, s.nodes[n], s.devices, s.pick_units[i], s.pick_device[0], piece)
        hold(s, row, s.shadow_nodes[n], s.shadow_devices, piece)
    fits = fits_shadow(s, s.partitions[p], s.rows[h])
    if not fits or not take:
        for i in range(count):
            n = s.pick_node[i]
            describe(row, s.nodes[n], s.devices, s.pick_units[i], s.pick_device[0], piece)
            give_back(s, row, s.shadow_nodes[n], s.shadow_devices, piece)
    return not fits
