"""EASY in a rank pass: the first job that does not fit has a reservation that jobs which may not be stopped must respect."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.backfill import copy_nodes, fits_shadow
from gpuyard.engine.kernels.nodes import describe, give_back, hold
from gpuyard.engine.kernels.queue import queue_sort
from gpuyard.engine.kernels.ranks.order import RUNS, STARTS, STOPPED, expected_end
from gpuyard.engine.kernels.runs import estimated_end, factor_picked, rate_of
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import JobRow, PartitionRow, State


@inner
def reserve_for(s: State, p: Int, head: Int) -> None:
    """Work out when entry `head` is estimated to fit once the jobs before it and those that cannot be stopped leave.

    Jobs behind it that may be stopped do not count: it may have them stopped. s.shadow_nodes holds the nodes as they will be then.
    """
    control, part = s.control[0], s.partitions[p]
    row = s.rows[s.ranked[head].job]
    copy_nodes(s, part)
    control.spare_quota = part.quota - part.used
    obstacles = _list_obstacles(s, part, head)
    queue_sort(s.rank_ends, s.rank_jobs, 0, obstacles)
    i = 0
    while i < obstacles:
        time = s.rank_ends[i]
        while i < obstacles and s.rank_ends[i] == time:
            _leave_shadow(s, s.rank_jobs[i])
            i += 1
        if row.gpus <= control.spare_quota + EPS and fits_shadow(s, part, row):
            control.shadow = time
            control.spare_quota -= row.gpus
            return
    control.shadow = math.inf


@inner
def _list_obstacles(s: State, part: PartitionRow, head: Int) -> Any:
    """List the jobs that may be in the way of an entry, with their estimated ends: j runs, -1 - k is entry k, which is to start.

    Jobs behind it that may be stopped leave the shadow at once. Returns how many are listed.
    """
    now = s.control[0].now
    k = part.last_ranked
    while k >= 0:  # marked: not an obstacle
        entry = s.ranked[k]
        if entry.state == STOPPED or (entry.state == RUNS and k > head):
            s.rows[entry.job].benched = 1
            if entry.state == RUNS:
                _leave_shadow(s, np.int64(entry.job))
        k = entry.earlier
    listed = 0
    for i in range(part.first_run, part.first_run + part.running):
        j = s.running_jobs[i]
        if s.rows[j].benched == 0:
            s.rank_ends[listed], s.rank_jobs[listed] = expected_end(s.running_ends[i], now), j
            listed += 1
        s.rows[j].benched = 0
    for k in range(head):
        if s.ranked[k].state == STARTS:
            s.rank_ends[listed], s.rank_jobs[listed] = expected_end(_planned_end(s, k), now), -1 - k
            listed += 1
    return listed


@inner
def _planned_end(s: State, k: Int) -> Any:
    """Return the estimated end of entry k, which is to start on its parts; they are put into `pick_node`."""
    row = s.rows[s.ranked[k].job]
    count, at = 0, s.ranked[k].alloc
    while at >= 0:
        s.pick_node[count] = s.ranked_parts[at].node
        count += 1
        at = s.ranked_parts[at].next
    return estimated_end(s, row, rate_of(s, row, count), factor_picked(s, row, count))


@inner
def _leave_shadow(s: State, what: Int) -> None:
    """Let a job leave the shadow: j runs, -1 - k is entry k."""
    planned = what < 0
    j = np.int64(s.ranked[-1 - what].job) if planned else np.int64(what)
    row = s.rows[j]
    at = s.ranked[-1 - what].alloc if planned else row.alloc
    while at >= 0:
        piece = s.ranked_parts[at] if planned else s.parts[at]
        give_back(s, row, s.shadow_nodes[piece.node], s.shadow_devices, piece)
        at = piece.next
    s.control[0].spare_quota += row.gpus


@inner
def may_start_behind(s: State, p: Int, head: Int, i: Int, count: Int, starts: bool) -> Any:
    """Whether entry i, which may not be stopped, leaves the reservation as it is if it starts on the nodes picked; `starts`: it does."""
    control = s.control[0]
    row = s.rows[s.ranked[i].job]
    if estimated_end(s, row, rate_of(s, row, count), factor_picked(s, row, count)) <= control.shadow:
        return True
    if row.gpus > control.spare_quota + EPS:
        return False
    _shift(s, row, count, True)
    fits = fits_shadow(s, s.partitions[p], s.rows[s.ranked[head].job])
    if fits and starts:
        control.spare_quota -= row.gpus
    else:
        _shift(s, row, count, False)
    return fits


@inner
def _shift(s: State, row: JobRow, count: Int, take: bool) -> None:
    """Hold the nodes picked in the shadow, or give them back."""
    piece = s.ranked_parts[len(s.ranked_parts) - 1]  # never in use: only to carry the description
    for k in range(count):
        n = s.pick_node[k]
        describe(row, s.nodes[n], s.devices, s.pick_units[k], s.pick_device[0], piece)
        if take:
            hold(s, row, s.shadow_nodes[n], s.shadow_devices, piece)
        else:
            give_back(s, row, s.shadow_nodes[n], s.shadow_devices, piece)
