"""Passes with one decision left open: they stop where there is a choice, and go on with what was chosen.

A choice among one is made at once; so is a pass in which no job fits. The state of a pass that waits is in `control`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.accounts import show_usage
from gpuyard.engine.kernels.backfill import BACKFILL_EASY, BACKFILL_NONE, find_passing, fits, may_pass, reserve
from gpuyard.engine.kernels.passes import failed, position, update_queue
from gpuyard.engine.kernels.place import fill_rooms, find, within_quota
from gpuyard.engine.kernels.runs import revise_ends, start_at

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import State

CHOOSE = 1  # what an open pass comes back with if there is a choice; 0: it is over
LEGAL, FITS = 1, 2  # of a job in the window: it may be chosen; it would start at once


@inner
def _begin(s: State) -> None:
    control = s.control[0]
    control.stage = 1
    control.passes += 1
    if control.half_life > 0:
        show_usage(s)
    control.open_part = -1
    _next_partition(s)


@inner
def _next_partition(s: State) -> None:
    """Go to the next partition with jobs in its queue; beyond the last if no other has any."""
    control = s.control[0]
    control.open_head = -1
    control.open_job = -1
    p = control.open_part + 1
    while p < len(s.partitions) and s.partitions[p].head == s.partitions[p].tail:
        p += 1
    control.open_part = p
    if p < len(s.partitions):
        control.open_at = s.partitions[p].head
        if control.tracking == 1:
            revise_ends(s, p)


# ── which job next ──


@inner
def open_ordering(s: State) -> Any:
    """Go on to the next choice among the first jobs of a queue: CHOOSE, 0 at the end of the pass, or a failure."""
    control = s.control[0]
    if control.stage == 0:
        _begin(s)
    while control.open_part < len(s.partitions):
        p = control.open_part
        status = _carry_out(s, p) if control.choice >= 0 else update_queue(s, p)
        if status < 0:
            return status
        if control.open_part != p:
            continue
        found = _mark(s, p)
        if found < 0:
            return found
        if found > 1:
            return CHOOSE
        if found == 0:
            _next_partition(s)
    control.stage = 0
    return 0


@inner
def _carry_out(s: State, p: Int) -> Any:
    """Start the job that was chosen, or make it the head if it does not fit; returns a status."""
    control = s.control[0]
    part = s.partitions[p]
    slot = s.slots[control.active]
    j = control.choice
    control.choice = -1
    count = find_passing(s, p, control.open_head, j, slot) if control.open_head >= 0 else find(s, p, j, slot)
    if count < 0:
        return failed(s, count, j)
    if count > 0:
        start_at(s, p, position(s, part, j), count)
        if part.head == part.tail:
            _next_partition(s)
    elif slot.backfill == BACKFILL_NONE or part.tail - part.head < 2:
        _next_partition(s)
    else:
        control.open_head = j
        if slot.backfill == BACKFILL_EASY:
            reserve(s, p, j)
    return 0


@inner
def _mark(s: State, p: Int) -> Any:
    """Fill `legal` for the jobs of the window: returns how many may be chosen (the only one is put into `choice`), or a failure."""
    control = s.control[0]
    part = s.partitions[p]
    slot = s.slots[control.active]
    size = min(part.tail - part.head, control.window)
    found = 0
    fitting = 0
    for i in range(size):
        j = np.int64(s.queue_jobs[part.head + i])
        mark = 0
        if control.open_head < 0:
            count = fits(s, p, j, slot)
            mark = LEGAL | FITS if count > 0 else LEGAL
        elif j == control.open_head:
            count = 0
        else:
            count = may_pass(s, p, control.open_head, j, slot)
            mark = LEGAL | FITS if count > 0 else 0
        if count < 0:
            return failed(s, count, j)
        s.legal[i] = mark
        if mark != 0:
            found += 1
            control.choice = j
        if mark & FITS:
            fitting += 1
    if fitting == 0:
        found = 0
    if found != 1:
        control.choice = -1
    return found


# ── which node ──


@inner
def open_placement(s: State) -> Any:
    """Go on to the next choice of a node, in `room` those with any: CHOOSE, 0 at the end of the pass, or a failure.

    A job that some node can take whole goes to one of those; else it is spread, node by node.
    """
    control = s.control[0]
    if control.stage == 0:
        _begin(s)
        status = _update_open_queue(s)
        if status < 0:
            return status
    while control.open_part < len(s.partitions):
        if control.choice >= 0:
            _take(s)
        if control.open_job < 0 and not _next_job(s):
            _next_partition(s)
            status = _update_open_queue(s)
            if status < 0:
                return status
            continue
        if _nodes_to_choose(s) > 1:
            return CHOOSE
    control.stage = 0
    return 0


@inner
def _update_open_queue(s: State) -> Any:
    p = s.control[0].open_part
    return update_queue(s, p) if p < len(s.partitions) else 0


@inner
def _next_job(s: State) -> Any:
    """Find the next job of the queue that fits somewhere, and the rooms for it; False if no job fits."""
    control = s.control[0]
    p = control.open_part
    part = s.partitions[p]
    while control.open_at < part.tail:
        j = np.int64(s.queue_jobs[control.open_at])
        row = s.rows[j]
        if within_quota(part, row.gpus) and (row.gpus < 1 or row.gpus <= part.free) and fill_rooms(s, p, j):
            control.open_job = j
            control.missing = row.units
            control.picked = 0
            return True
        if s.slots[control.active].backfill == BACKFILL_NONE:
            return False
        control.open_at += 1
    return False


@inner
def _nodes_to_choose(s: State) -> Any:
    """Return how many nodes may be chosen; a single one is put into `choice`. The room of the others becomes 0."""
    control = s.control[0]
    part = s.partitions[control.open_part]
    found, whole = 0, 0
    for n in range(part.node_lo, part.node_hi):
        found += 1 if s.room[n] > 0 else 0
        whole += 1 if s.room[n] >= control.missing else 0
    if control.picked == 0 and whole > 0:
        for n in range(part.node_lo, part.node_hi):
            if s.room[n] < control.missing:
                s.room[n] = 0
        found = whole
    if found == 1:
        for n in range(part.node_lo, part.node_hi):
            if s.room[n] > 0:
                control.choice = n
    return found


@inner
def _take(s: State) -> None:
    """Give the chosen node to the job; start it if it has all it needs."""
    control = s.control[0]
    n = control.choice
    control.choice = -1
    given: Any = min(np.int64(s.room[n]), control.missing)
    s.pick_node[control.picked] = n
    s.pick_units[control.picked] = given
    s.room[n] = 0
    control.picked += 1
    control.missing -= given
    if control.missing == 0:
        s.pick_device[0] = -1
        control.open_at = start_at(s, control.open_part, control.open_at, control.picked)
        control.open_job = -1
