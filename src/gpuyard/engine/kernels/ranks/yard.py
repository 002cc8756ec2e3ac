"""The cluster as a plan would have it: tried out on the nodes themselves, so that placements see it, and put back afterwards."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import NO_DEVICES, chunk_of, describe, give_back, hold, index_add, index_remove, unit_cpus, unit_memory
from gpuyard.engine.kernels.place import within_quota
from gpuyard.engine.kernels.ranks.order import ASIDE, RUNS
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import JobRow, NodeRow, PartitionRow, PartRow, State

_ONE = np.uint64(1)


@inner
def save_nodes(s: State, part: PartitionRow) -> None:
    """Keep the nodes of a partition as they are."""
    for n in range(part.node_lo, part.node_hi):
        s.ranked_nodes[n] = s.nodes[n]
    if s.control[0].sharing == 1:
        first, last = _devices_of(s, part)
        for d in range(first, last):
            s.ranked_devices[d] = s.devices[d]


@inner
def restore_nodes(s: State, part: PartitionRow, used: float) -> None:
    """Put the nodes back as they were kept, with the partition's counters."""
    for n in range(part.node_lo, part.node_hi):
        node, kept = s.nodes[n], s.ranked_nodes[n]
        if part.index >= 0 and node.down == 0 and node.free != kept.free:
            index_remove(s.free_index, part, node)
            s.nodes[n] = kept
            index_add(s.free_index, part, s.nodes[n])
        else:
            s.nodes[n] = kept
        s.fragment[n] = -1
    part.free = 0
    for n in range(part.node_lo, part.node_hi):
        part.free += s.nodes[n].free if s.nodes[n].down == 0 else 0
    part.used = used
    if s.control[0].sharing == 1:
        first, last = _devices_of(s, part)
        for d in range(first, last):
            s.devices[d] = s.ranked_devices[d]


@inner
def _devices_of(s: State, part: PartitionRow) -> Any:
    """Return the range of the devices of a partition's nodes."""
    first, last = len(s.devices), 0
    for n in range(part.node_lo, part.node_hi):
        at = s.nodes[n].first_device
        if at >= 0:
            first = min(first, at)
            last = max(last, at + s.nodes[n].gpus)
    return first, last


@inner
def move_piece(s: State, part: PartitionRow, row: JobRow, piece: PartRow, take: bool) -> None:
    """Let a job hold a piece in the plan (`take`), or take it back from the job."""
    node = s.nodes[piece.node]
    _unlist(s, part, node)
    if take:
        hold(s, row, node, s.devices, piece)
    else:
        give_back(s, row, node, s.devices, piece)
    _list(s, part, node, piece.node)


@inner
def _unlist(s: State, part: PartitionRow, node: NodeRow) -> None:
    part.free -= node.free
    if part.index >= 0:
        index_remove(s.free_index, part, node)


@inner
def _list(s: State, part: PartitionRow, node: NodeRow, n: Int) -> None:
    part.free += node.free
    if part.index >= 0:
        index_add(s.free_index, part, node)
    s.fragment[n] = -1


@inner
def set_aside(s: State, part: PartitionRow, i: Int) -> None:
    """Take the running job of entry i out of the plan for a while."""
    move_job(s, part, s.rows[s.ranked[i].job], False)
    s.ranked[i].state = ASIDE


@inner
def move_job(s: State, part: PartitionRow, row: JobRow, take: bool) -> None:
    """Let a running job hold all its parts in the plan, or none."""
    k = row.alloc
    while k >= 0:
        move_piece(s, part, row, s.parts[k], take)
        k = s.parts[k].next
    part.used += row.gpus if take else -row.gpus


@inner
def can_return(s: State, part: PartitionRow, i: Int) -> Any:
    """Whether all that the job of entry i held is still free."""
    row = s.rows[s.ranked[i].job]
    if not within_quota(part, row.gpus):
        return False
    k = row.alloc
    while k >= 0:
        if not _is_free(s, row, s.parts[k]):
            return False
        k = s.parts[k].next
    return True


@inner
def _is_free(s: State, row: JobRow, piece: PartRow) -> Any:
    """Whether a piece that the job held could be held again. The parts of a job are on different nodes."""
    node = s.nodes[piece.node]
    units = 1
    if row.gpus >= 1:
        units = piece.gpus // chunk_of(row)
        if node.free < piece.gpus or (node.first_device >= 0 and piece.mask & ~node.mask != NO_DEVICES):
            return False
    elif row.gpus > 0:
        shared = node.shared & piece.mask != NO_DEVICES
        if shared and row.gpus > s.devices[node.first_device + piece.gpu] + EPS:
            return False
        if not shared and node.mask & piece.mask == NO_DEVICES:
            return False
    return units * unit_cpus(s, row) <= node.free_cpus + EPS and units * unit_memory(s, row) <= node.free_memory + EPS


@inner
def bring_back(s: State, part: PartitionRow, i: Int) -> None:
    """Undo `set_aside`."""
    move_job(s, part, s.rows[s.ranked[i].job], True)
    s.ranked[i].state = RUNS


@inner
def take_picked(s: State, part: PartitionRow, i: Int, count: Int, at: Int) -> Any:
    """Let the waiting job of entry i hold the nodes picked; its parts are written from place `at` on; returns the next place."""
    entry = s.ranked[i]
    row = s.rows[entry.job]
    entry.alloc = at
    for k in range(count):
        piece = s.ranked_parts[at + k]
        n = s.pick_node[k]
        describe(row, s.nodes[n], s.devices, s.pick_units[k], s.pick_device[0], piece)
        piece.node = n
        piece.next = at + k + 1 if k + 1 < count else -1
        move_piece(s, part, row, piece, True)
    part.used += row.gpus
    return at + count


@inner
def drop_taken(s: State, part: PartitionRow, i: Int) -> None:
    """Take back what `take_picked` gave to entry i."""
    entry = s.ranked[i]
    row = s.rows[entry.job]
    k = entry.alloc
    while k >= 0:
        move_piece(s, part, row, s.ranked_parts[k], False)
        k = s.ranked_parts[k].next
    part.used -= row.gpus
    entry.alloc = -1


@inner
def idle_devices(s: State, row: JobRow) -> Any:
    """Count the devices that a job held and that nobody has now."""
    idle = 0
    k = row.alloc
    while k >= 0:
        piece = s.parts[k]
        node = s.nodes[piece.node]
        if node.first_device < 0:
            idle += min(piece.gpus, node.free)
        else:
            idle += _bits(piece.mask & node.mask)
        k = piece.next
    return idle


@inner
def _bits(mask: np.uint64) -> Any:
    count = 0
    while mask != NO_DEVICES:
        mask &= mask - _ONE
        count += 1
    return count
