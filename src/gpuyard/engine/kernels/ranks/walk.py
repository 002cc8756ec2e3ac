"""The rank pass over a partition: a plan by the order of ranks, stops undone that leave devices idle, then the plan is carried out."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.passes import failed, order_queue, refresh, update_queue
from gpuyard.engine.kernels.place import find
from gpuyard.engine.kernels.queue import queue_position
from gpuyard.engine.kernels.ranks.network import judge_jobs
from gpuyard.engine.kernels.ranks.order import ASIDE, FIXED, RUNS, STARTS, STOPPED, WAITS, order_entries
from gpuyard.engine.kernels.ranks.shadow import may_start_behind, reserve_for
from gpuyard.engine.kernels.ranks.yard import bring_back, can_return, idle_devices, restore_nodes, save_nodes, set_aside, take_picked
from gpuyard.engine.kernels.runs import requeue, revise_ends, start_at
from gpuyard.engine.ranking import RANK_CLOCK, RANK_NETWORK
from gpuyard.model.rules import MAY_STOP

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State


@inner
def rank_pass(s: State, p: Int) -> Any:
    """Make a rank pass over a partition; returns a status."""
    control, part = s.control[0], s.partitions[p]
    slot = s.slots[control.active]
    revise_ends(s, p)
    refresh(s, part)
    part.came = part.reserved = part.settled = 0
    status = judge_jobs(s, p, slot)
    if status == 0:
        status = order_queue(s, p) if slot.rank == RANK_CLOCK or slot.rank == RANK_NETWORK else update_queue(s, p)
    if status < 0:
        return status
    count = order_entries(s, p, slot)
    if count < 0:
        return count
    used = part.used
    save_nodes(s, part)
    status = _plan(s, p, slot, count)
    while status == 0 and _fix_widest(s, count):
        restore_nodes(s, part, used)
        _begin_again(s, count)
        status = _plan(s, p, slot, count)
    restore_nodes(s, part, used)
    return status if status < 0 else _carry_out(s, p, count)


@inner
def _begin_again(s: State, count: Int) -> None:
    """Forget a plan, except for the jobs that are not to be stopped."""
    for i in range(count):
        entry = s.ranked[i]
        if entry.state != FIXED:
            entry.state = RUNS if entry.running == 1 else WAITS
        entry.cause, entry.alloc = 0, -1


@inner
def _plan(s: State, p: Int, slot: SlotRow, count: Int) -> Any:
    """Walk the entries in order: who fits runs; returns a status."""
    part = s.partitions[p]
    last, behind = _link_runners(s, count)
    head, parts = -1, 0
    for i in range(count):
        entry = s.ranked[i]
        row = s.rows[entry.job]
        if entry.state == RUNS:
            behind -= _most_freed(row)
        if entry.state != WAITS:
            continue
        hopeless = row.gpus >= 1 and row.gpus > part.free + behind
        if hopeless and head >= 0:
            continue
        picked = 0 if hopeless else _find_with_stops(s, p, i, slot, last)
        if picked < 0:
            return failed(s, picked, np.int64(entry.job))
        if picked > 0 and head >= 0 and s.terms[row.terms].stops != MAY_STOP and not may_start_behind(s, p, head, i, picked):
            picked = 0
        if picked > 0:
            parts = take_picked(s, part, i, picked, parts)
            entry.state = STARTS
        behind -= _return_aside(s, part, i)
        if picked == 0 and head < 0:
            head = i
            reserve_for(s, p, head, count)
    return 0


@inner
def _most_freed(row: JobRow) -> Any:
    """Return how many devices may become wholly free if a job leaves."""
    return math.ceil(row.gpus)


@inner
def _link_runners(s: State, count: Int) -> Any:
    """Link the running jobs that may be stopped; returns the last entry of them, -1 if there is none, and what all of them may free."""
    last, behind = -1, 0
    for i in range(count):
        entry = s.ranked[i]
        entry.earlier = entry.later = -1
        if entry.state == RUNS:
            entry.earlier = last
            if last >= 0:
                s.ranked[last].later = i
            last = i
            behind += _most_freed(s.rows[entry.job])
    return last, behind


@inner
def _find_with_stops(s: State, p: Int, i: Int, slot: SlotRow, last: Int) -> Any:
    """Find nodes for entry i, with running jobs behind it set aside, last first, until it fits; returns what `find` returns.

    `later` of the entry is the first of those set aside.
    """
    part = s.partitions[p]
    j = np.int64(s.ranked[i].job)
    picked = find(s, p, j, slot)
    k = last
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
            stopped += _most_freed(s.rows[entry.job])
        k = entry.later
    return stopped


@inner
def _fix_widest(s: State, count: Int) -> Any:
    """Fix the widest job whose stop leaves more than half of its devices idle, the last of equals; False: there is none."""
    widest, most = -1, 0.0
    for i in range(count):
        row = s.rows[s.ranked[i].job]
        if s.ranked[i].state == STOPPED and row.gpus >= 1 and row.gpus >= most and 2.0 * idle_devices(s, row) > row.gpus:
            widest, most = i, row.gpus
    if widest >= 0:
        s.ranked[widest].state = FIXED
    return widest >= 0


# ── the plan becomes true ──


@inner
def _carry_out(s: State, p: Int, count: Int) -> Any:
    """Stop and start as planned: before each start the jobs that are stopped for it; returns a status."""
    for i in range(count):
        entry = s.ranked[i]
        if entry.state != STARTS:
            continue
        if entry.cause > 0:
            status = _stop_for(s, i, count)
            if status < 0:
                return status
        _start(s, p, entry.area, np.int64(entry.job), entry.alloc)
    return 0


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
    return gpus // row.chunk if row.gpus >= 1 else 1
