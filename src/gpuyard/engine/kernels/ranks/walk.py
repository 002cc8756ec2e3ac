"""The rank pass over a partition: a plan by the order of ranks, stops undone that leave devices idle, then the plan is carried out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, inner, params_at
from gpuyard.engine.kernels.nodes import chunk_of, room_on
from gpuyard.engine.kernels.passes import failed, order_queue, refresh, update_queue
from gpuyard.engine.kernels.place import find, within_quota
from gpuyard.engine.kernels.queue import queue_position
from gpuyard.engine.kernels.ranks.area import is_doubted, level_of, may_be_stopped, next_halving, time_by_table, waiting_time
from gpuyard.engine.kernels.ranks.network import judge_jobs
from gpuyard.engine.kernels.ranks.order import ASIDE, FIXED, RUNS, STARTS, STOPPED, WAITS, expected_end, levels_stand, order_entries
from gpuyard.engine.kernels.ranks.shadow import may_start_behind, reserve_for
from gpuyard.engine.kernels.ranks.terms import may_be_silent, settle_writing
from gpuyard.engine.kernels.ranks.yard import (
    bring_back,
    can_return,
    drop_taken,
    idle_devices,
    move_job,
    restore_nodes,
    save_nodes,
    set_aside,
    take_picked,
)  # fmt: skip
from gpuyard.engine.kernels.runs import requeue, revise_ends, start_at
from gpuyard.engine.rows.ranking import LONGEST_AT, PAY_AT, RANK_CLOCK, RANK_NETWORK, RANK_TABLE, SOON, WIDEST_AT
from gpuyard.model.rules import MAY_STOP_ONCE

CAUTION = 4.0  # by estimates, stops must gain so many times more
DEEP = 64  # jobs that wait, from which on it pays to keep what would fit when

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State


@inner
def rank_pass(s: State, p: Int) -> Any:
    """Make a rank pass over a partition; returns a status."""
    control, part = s.control[0], s.partitions[p]
    slot = s.slots[control.active]
    if part.settled == 1 and part.came == 0 and control.now < part.calm and levels_stand(s, part, slot):
        return 0  # all that a pass goes by is as it was at the last, which did nothing
    revise_ends(s, p)
    if slot.rank < RANK_TABLE:
        refresh(s, part)
    part.came = part.reserved = part.settled = part.weighed = part.passed = 0
    status = judge_jobs(s, p, slot)
    if status == 0:
        changed = slot.rank == RANK_CLOCK or slot.rank == RANK_NETWORK or control.now >= part.ageing
        status = order_queue(s, p) if changed else update_queue(s, p)
    if status < 0:
        return status
    if control.now >= part.ageing:
        part.ageing = _next_halving(s, part)
    count = order_entries(s, p, slot)
    if count < 0:
        return count
    used = part.used
    save_nodes(s, part)
    starts = _plan(s, p, slot, count)
    while starts > 0 and _fix_widest(s, part):
        restore_nodes(s, part, used)
        part.weighed = 1
        _begin_again(s, count)
        starts = _plan(s, p, slot, count)
    restore_nodes(s, part, used)
    return starts if starts < 0 else _carry_out(s, p, count, starts)


@inner
def _next_halving(s: State, part: PartitionRow) -> Any:
    """Return the time up to which no job of the queue counts for less than now."""
    time = math.inf
    for i in range(part.head, part.tail):
        time = min(time, next_halving(s, s.rows[s.queue_jobs[i]]))
    return time


@inner
def _begin_again(s: State, count: Int) -> None:
    """Forget a plan, except for the jobs that are not to be stopped."""
    for i in range(count):
        entry = s.ranked[i]
        if entry.state != FIXED:
            entry.state = RUNS if entry.running == 1 else WAITS
            entry.later = entry.later if entry.running == 1 else -1
        entry.cause, entry.alloc = 0, -1


@inner
def _plan(s: State, p: Int, slot: SlotRow, count: Int) -> Any:
    """Walk the entries in order: who fits runs; returns how many are to start, or a failure."""
    part = s.partitions[p]
    behind = _behind_all(s, part)
    s.rank_soon[LONGEST_AT] = 0.0
    head, parts, starts = -1, 0, 0
    for i in range(count):
        entry = s.ranked[i]
        if entry.state == RUNS:
            behind -= entry.need
        if entry.state != WAITS:
            continue
        hopeless = entry.need > part.free + behind
        if hopeless and head >= 0:
            continue
        picked = 0 if hopeless else _find_for(s, p, i, slot, head, parts)
        if picked < 0:
            return failed(s, picked, np.int64(entry.job))
        if picked > 0:
            parts = take_picked(s, part, i, picked, parts)
            _forget_soon(s)
            entry.state = STARTS
            starts += 1
            part.passed |= 2 if head >= 0 else 0
        behind -= _return_aside(s, part, i)
        if picked == 0 and head < 0:
            head = i
            reserve_for(s, p, head)
    return starts


@inner
def _find_for(s: State, p: Int, i: Int, slot: SlotRow, head: Int, parts: Int) -> Any:
    """Find nodes on which entry i may start, whoever has to be stopped for it; returns what `find` returns."""
    part, entry = s.partitions[p], s.ranked[i]
    row = s.rows[entry.job]
    settle_writing(s, row, (part.tail - part.head) / part.total if part.total > 0 else 0.0)
    picked = _find_with_stops(s, p, i, slot)
    if picked <= 0:
        return picked
    weighing = entry.later >= 0 and s.params[params_at(s.control[0].active, PREEMPTION) + PAY_AT] > 0
    bound = head >= 0 and _must_give_way(s, row)
    if bound and not may_start_behind(s, p, head, i, picked, not weighing):
        part.passed |= 1
        if entry.later >= 0 or may_be_silent(s, row):  # with other stops it may have other nodes; silent, another end
            part.weighed = 1
        return 0
    if weighing:
        part.weighed = 1
        if not _stops_pay(s, p, i, slot, picked, parts):
            return 0
        picked = _find_with_stops(s, p, i, slot)  # all are back in the plan
        if picked > 0 and bound:
            may_start_behind(s, p, head, i, picked, True)
    return picked


@inner
def _behind_all(s: State, part: PartitionRow) -> Any:
    """Return how many devices could be free if all that compete were stopped."""
    total = 0
    k = part.last_ranked
    while k >= 0:
        total += s.ranked[k].need if s.ranked[k].state == RUNS else 0
        k = s.ranked[k].earlier
    return total


@inner
def _must_give_way(s: State, row: JobRow) -> Any:
    """Whether a job must respect the reservation: nobody could have it stopped for the head, or jobs are judged by estimates."""
    return not may_be_stopped(s, row) or row.silent == 1 or is_doubted(s)


@inner
def _find_with_stops(s: State, p: Int, i: Int, slot: SlotRow) -> Any:
    """Find nodes for entry i, with running jobs behind it set aside, last first, until it fits; returns what `find` returns.

    `later` of the entry is the first of those set aside.
    """
    part = s.partitions[p]
    j = np.int64(s.ranked[i].job)
    picked = find(s, p, j, slot)
    k = part.last_ranked
    if picked == 0 and k > i and _would_fit_soon(s, p, i, slot):
        part.weighed = 1
        return 0
    while picked == 0 and k > i:
        if s.ranked[k].state == RUNS:
            set_aside(s, part, k)
            s.ranked[i].later = k
            picked = find(s, p, j, slot)
        k = s.ranked[k].earlier
    return picked


@inner
def _return_aside(s: State, part: PartitionRow, i: Int) -> Any:
    """Bring back the jobs set aside for entry i, first first, if what they held is free; returns what the others would have freed."""
    stopped = 0
    k = s.ranked[i].later
    while k >= 0:
        entry = s.ranked[k]
        if entry.state == ASIDE and can_return(s, part, k):
            bring_back(s, part, k)
        elif entry.state == ASIDE:
            entry.state = STOPPED
            entry.cause = i
            s.ranked[i].cause += 1
            stopped += entry.need
        k = entry.later
    return stopped


# ── whether stops pay ──


@inner
def _stops_pay(s: State, p: Int, i: Int, slot: SlotRow, picked: Int, parts: Int) -> Any:
    """Whether the stops for entry i, which has nodes picked, gain enough. All are back in the plan afterwards.

    They gain the time until the job would fit anyway, by the estimated ends. They cost those that are stopped its time and a restart each.
    """
    part = s.partitions[p]
    pay = s.params[params_at(s.control[0].active, PREEMPTION) + PAY_AT]
    take_picked(s, part, i, picked, parts)
    _return_aside(s, part, i)
    own = _expected_time(s, slot, np.int64(s.ranked[i].job))
    cost = 0.0
    k = part.last_ranked
    while k > i:
        entry = s.ranked[k]
        if entry.state == STOPPED and entry.cause == i:
            length = _expected_length(s, slot, np.int64(entry.job))
            cost += (own + _price_of_stop(s, part, s.rows[entry.job], length)) / math.sqrt(length)
        k = entry.earlier
    drop_taken(s, part, i)
    _set_back(s, part, i)
    factor = pay * CAUTION if is_doubted(s) else pay
    return cost == 0.0 or not _fits_by(s, p, i, s.control[0].now + factor * math.sqrt(own) * cost)


@inner
def _would_fit_soon(s: State, p: Int, i: Int, slot: SlotRow) -> Any:
    """Whether no stops can pay for entry i, however few and long runs it would take: with them alone it would fit soon anyway.

    What fits by when is kept by the number of devices while the plan is the same: most of a deep queue is turned down by a comparison.
    """
    part, entry = s.partitions[p], s.ranked[i]
    row = s.rows[entry.job]
    factor = s.params[params_at(s.control[0].active, PREEMPTION) + PAY_AT] * (CAUTION if is_doubted(s) else 1.0)
    if factor == 0 or row.plain == 0 or entry.need >= SOON or part.tail - part.head < DEEP:
        return False
    if s.rank_soon[LONGEST_AT] == 0:
        _measure_runs(s, part, slot)
    own = _expected_time(s, slot, np.int64(entry.job))
    stops = max(math.ceil((entry.need - part.free) / s.rank_soon[WIDEST_AT]), 1)
    time = s.control[0].now + factor * math.sqrt(own) * (stops * own / math.sqrt(s.rank_soon[LONGEST_AT])) * (1.0 - 1e-9)
    if time >= s.rank_soon[entry.need]:
        return True
    if not _fits_by(s, p, i, time):
        return False
    s.rank_soon[entry.need] = time
    return True


@inner
def _measure_runs(s: State, part: PartitionRow, slot: SlotRow) -> None:
    """Note the greatest length and number of devices of the runs that compete, and that nothing is known of what would fit when."""
    longest, widest = 1.0, 1
    k = part.last_ranked
    while k >= 0:
        longest = max(longest, _expected_length(s, slot, np.int64(s.ranked[k].job)))
        widest = max(widest, s.ranked[k].need)
        k = s.ranked[k].earlier
    s.rank_soon[LONGEST_AT], s.rank_soon[WIDEST_AT] = longest, float(widest)
    _forget_soon(s)


@inner
def _forget_soon(s: State) -> None:
    """Forget what would fit when, if that was kept: the plan has changed."""
    if s.rank_soon[LONGEST_AT] > 0:
        for k in range(SOON):
            s.rank_soon[k] = math.inf


@inner
def _price_of_stop(s: State, part: PartitionRow, row: JobRow, length: Real) -> Any:
    """Return what a stop costs (s): the restart; by estimates also the most work that it can lose, and what both keep from others."""
    terms = s.terms[row.terms]
    if not is_doubted(s):
        return terms.restart
    pressure = (part.tail - part.head) / part.total if part.total > 0 else 0.0
    return (terms.restart + min(terms.interval, length)) * (1.0 + pressure * row.gpus)


@inner
def _set_back(s: State, part: PartitionRow, i: Int) -> None:
    """Bring back all that were set aside or stopped for entry i."""
    k = s.ranked[i].later
    while k >= 0:
        entry = s.ranked[k]
        if entry.state == ASIDE or (entry.state == STOPPED and entry.cause == i):
            bring_back(s, part, k)
            entry.cause = 0
        k = entry.later
    s.ranked[i].cause = 0
    s.ranked[i].later = -1


@inner
def _expected_time(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the time (s) that a waiting job is judged to need."""
    row = s.rows[j]
    return max(waiting_time(s, slot, j) if may_be_stopped(s, row) else row.estimate - row.done, 1.0)


@inner
def _expected_length(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the length (s) that a running job was judged to have when its run began."""
    row = s.rows[j]
    if slot.rank < RANK_TABLE:
        return max(row.estimate, 1.0)
    return max(row.done + time_by_table(s, slot, row, row.done), 1.0)


@inner
def _fits_by(s: State, p: Int, i: Int, time: Real) -> Any:
    """Whether entry i fits in the plan without the running jobs that are estimated to have left by a time."""
    part = s.partitions[p]
    row = s.rows[s.ranked[i].job]
    _mark_stopped(s, part, 1)
    _move_leaving(s, part, time, False)
    units = 0
    for n in range(part.node_lo, part.node_hi):
        units += room_on(s, row, s.nodes[n])
    fits = units >= row.units and within_quota(part, row.gpus)
    _move_leaving(s, part, time, True)
    _mark_stopped(s, part, 0)
    return fits


@inner
def _move_leaving(s: State, part: PartitionRow, time: Real, take: bool) -> None:
    """Take the running jobs that are estimated to have left by a time out of the plan, or put them back (`take`)."""
    k = part.first_run
    while k < part.first_run + part.running and s.running_ends[k] <= time:
        row = s.rows[s.running_jobs[k]]
        if row.benched == 0 and expected_end(s.running_ends[k], s.control[0].now) <= time:
            move_job(s, part, row, take)
        k += 1


@inner
def _mark_stopped(s: State, part: PartitionRow, mark: Int) -> None:
    """Mark the running jobs that are to be stopped, which have left the plan."""
    k = part.last_ranked
    while k >= 0:
        if s.ranked[k].state == STOPPED:
            s.rows[s.ranked[k].job].benched = mark
        k = s.ranked[k].earlier


# ── stops that leave devices idle ──


@inner
def _fix_widest(s: State, part: PartitionRow) -> Any:
    """Fix the widest job whose stop leaves more than half of its devices idle, the last of equals; False: there is none."""
    widest, most = -1, 0.0
    i = part.last_ranked
    while i >= 0:
        row = s.rows[s.ranked[i].job]
        if s.ranked[i].state == STOPPED and row.gpus >= 1 and row.gpus > most and 2.0 * idle_devices(s, row) > row.gpus:
            widest, most = i, row.gpus
        i = s.ranked[i].earlier
    if widest >= 0:
        s.ranked[widest].state = FIXED
    return widest >= 0


# ── the plan becomes true ──


@inner
def _carry_out(s: State, p: Int, count: Int, starts: Int) -> Any:
    """Stop and start as planned: before each start the jobs that are stopped for it; returns a status."""
    settled = starts == 0 or _leaves_nothing(s, s.partitions[p], count)
    i = -1
    while starts > 0:
        i += 1
        entry = s.ranked[i]
        if entry.state != STARTS:
            continue
        starts -= 1
        if entry.cause > 0:
            status = _stop_for(s, i, count)
            if status < 0:
                return status
        j = np.int64(entry.job)
        _start(s, p, entry.key, j, entry.alloc)
        s.rank_level[j] = level_of(entry.key)
    if settled:
        _settle(s, s.partitions[p])
    return 0


@inner
def _leaves_nothing(s: State, part: PartitionRow, count: Int) -> Any:
    """Whether a pass right after this one would do nothing.

    That is so if nothing starts. It is also so if no stops were weighed, so that whoever waits could not start with as many stops as it
    liked, nobody is stopped, the reservation is what it was to whoever it turned down, and who starts is in the order where it was.
    """
    for i in range(count):
        entry = s.ranked[i]
        if entry.state != STARTS:
            continue
        row = s.rows[entry.job]
        if entry.cause > 0 or part.weighed == 1 or part.passed == 3:
            return False
        if row.barren > 0 or s.terms[row.terms].stops == MAY_STOP_ONCE:
            return False
    return True


@inner
def _settle(s: State, part: PartitionRow) -> None:
    """Note up to when another pass would do nothing either, unless a job comes or something is released."""
    part.settled = 1
    part.calm = min(part.calm, part.ageing)
    if part.running > 0:
        part.calm = min(part.calm, s.running_ends[part.first_run])


@inner
def _stop_for(s: State, i: Int, count: Int) -> Any:
    left = s.ranked[i].cause
    k = i + 1
    while left > 0 and k < count:
        other = s.ranked[k]
        if other.state == STOPPED and other.cause == i:
            left -= 1
            s.control[0].preempted += 1
            status = requeue(s, np.int64(other.job))
            if status < 0:
                return status
        k += 1
    return 0


@inner
def _start(s: State, p: Int, area: Real, j: Int, k: Int) -> None:
    """Start a waiting job of that area on the parts from place k on. Devices are the lowest that are free, as they were in the plan."""
    row = s.rows[j]
    count = 0
    s.pick_device[0] = -1
    while k >= 0:
        piece = s.ranked_parts[k]
        s.pick_node[count] = piece.node
        s.pick_units[count] = _units_in(row, piece.gpus)
        if 0 < row.gpus < 1:
            s.pick_device[0] = piece.gpu
        count += 1
        k = piece.next
    start_at(s, p, queue_position(s, s.partitions[p], area, j), count)


@inner
def _units_in(row: JobRow, gpus: Int) -> Any:
    return gpus // chunk_of(row) if row.gpus >= 1 else 1
