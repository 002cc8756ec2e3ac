"""Outages: nodes and devices that fail and are repaired."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import index_add, index_remove, largest_share
from gpuyard.engine.kernels.runs import requeue

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import NodeRow, OutageRow, PartitionRow, State

REPAIR, FAILURE = range(2)


@inner
def handle_outage(s: State, at: Int) -> Any:
    """Carry out the failure or repair s.outages[at] of a node; returns a status."""
    outage = s.outages[at]
    part = s.partitions[s.nodes[outage.node].partition]
    node = s.nodes[outage.node]
    whole = outage.gpus < 0
    part.settled = 0
    if outage.kind == FAILURE:
        status = _clear_node(s, outage.node) if whole else _clear_devices(s, outage)
        if status < 0:
            return status
    _settle_up(s, node.gpu_type)
    up_before = _up(node)
    _leave_pool(s, part, node)
    if whole:
        node.down += 1 if outage.kind == FAILURE else -1
    elif outage.kind == FAILURE:
        _take_devices(node, outage)
    else:
        taken = s.outages[outage.pair]
        node.off -= taken.taken
        node.free += taken.taken
        node.mask |= taken.mask
    node.share = largest_share(node, s.devices)
    s.fragment[outage.node] = -1
    join_pool(s, part, node)
    change = _up(node) - up_before
    s.types[node.gpu_type].up += change
    s.control[0].up += change
    return 0


@inner
def _up(node: NodeRow) -> Any:
    return 0 if node.down > 0 else node.gpus - node.off


@inner
def _settle_up(s: State, kind: Int) -> None:
    """Account for the devices that were up until now."""
    line = s.types[kind]
    now = max(s.control[0].now, s.control[0].first_submit)
    line.up_seconds += line.up * (now - line.since)
    late = now - max(line.since, s.control[0].last_end)
    if late > 0:
        line.late_seconds += line.up * late
        s.control[0].late = 1
    line.since = now


@inner
def _leave_pool(s: State, part: PartitionRow, node: NodeRow) -> None:
    if node.down == 0:
        part.free -= node.free
        if part.index >= 0:
            index_remove(s.free_index, part, node)


@inner
def join_pool(s: State, part: PartitionRow, node: NodeRow) -> None:
    if node.down == 0:
        part.free += node.free
        if part.index >= 0:
            index_add(s.free_index, part, node)


@inner
def _take_devices(node: NodeRow, outage: OutageRow) -> None:
    """Take the highest-numbered wholly free devices out of use."""
    count = min(outage.gpus, node.gpus - node.off)
    outage.taken = count
    node.off += count
    node.free -= count
    if node.first_device < 0:
        return
    taken = np.uint64(0)
    for d in range(node.gpus - 1, -1, -1):
        bit = np.uint64(1) << np.uint64(d)
        if count > 0 and node.mask & bit != np.uint64(0):
            taken |= bit
            count -= 1
    node.mask ^= taken
    outage.mask = taken


@inner
def _holds_on(s: State, j: Int, n: Int, device: bool) -> Any:
    """Whether running job j has a part on node n (with `device`: one that holds a device)."""
    k = s.rows[j].alloc
    while k >= 0:
        piece = s.parts[k]
        if piece.node == n:
            return not device or s.rows[j].gpus > 0
        k = piece.next
    return False


@inner
def _stop(s: State, j: Int) -> Any:
    """Requeue job j, which a failure stops; returns 1 for no job (-1), else a status."""
    if j < 0:
        return 1
    s.control[0].failures += 1
    return requeue(s, j)


@inner
def _clear_node(s: State, n: Int) -> Any:
    """Requeue every job on node n, by index; returns a status."""
    control = s.control[0]
    after = np.int64(-1)
    while True:
        found = np.int64(-1)
        for i in range(control.heap):
            j = np.int64(s.ends[i])
            if j > after and (found < 0 or j < found) and _holds_on(s, j, n, False):
                found = j
        status = _stop(s, found)
        if status != 0:
            return min(status, 0)
        after = found


@inner
def _clear_devices(s: State, outage: OutageRow) -> Any:
    """Requeue the latest jobs on the node until enough devices are wholly free; returns a status."""
    control = s.control[0]
    node = s.nodes[outage.node]
    want = min(outage.gpus, node.gpus - node.off)
    while node.free < want:
        found = np.int64(-1)
        for i in range(control.heap):
            j = np.int64(s.ends[i])
            if _holds_on(s, j, outage.node, True):
                start = s.rows[j].run_start
                if found < 0 or start > s.rows[found].run_start or (start == s.rows[found].run_start and j > found):
                    found = j
        status = _stop(s, found)
        if status != 0:
            return min(status, 0)
    return 0
