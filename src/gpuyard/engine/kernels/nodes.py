"""Nodes: how much room a job finds, taking and giving back devices, and the index of free nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner, trailing_zeros
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals, Words
    from gpuyard.engine.state import JobRow, NodeRow, PartitionRow, PartRow, State

_ONE = np.uint64(1)
NO_DEVICES = np.uint64(0)


@inner
def unit_cpus(s: State, row: JobRow) -> Any:
    """Cores that one unit of a job needs."""
    return _per_unit(row, s.table[row.number].cpus) if row.hosted == 1 else 0.0


@inner
def unit_memory(s: State, row: JobRow) -> Any:
    """GB that one unit of a job needs."""
    return _per_unit(row, s.table[row.number].memory) if row.hosted == 1 else 0.0


@inner
def _per_unit(row: JobRow, amount: Real) -> Any:
    return amount * chunk_of(row) / row.gpus if row.gpus >= 1 else amount


@inner
def chunk_of(row: JobRow) -> Any:
    """Devices of one unit of a job of whole GPUs."""
    return np.int64(row.gpus) // row.units


@inner
def takes(s: State, row: JobRow, kind: Int) -> Any:
    """Whether a job with GPUs may run on devices of a type."""
    return (s.allowed[s.table[row.number].gpu_type] >> kind) & 1 == 1


@inner
def admits(s: State, row: JobRow, node: NodeRow) -> Any:
    """Whether the node is in the partition in which the job is looked at, where partitions share nodes."""
    return row.plain >= 0 or (s.members[node.number] >> np.uint64(-1 - row.plain)) & _ONE == _ONE


@inner
def holds_in(s: State, head: JobRow, row: JobRow) -> Any:
    """Whether a running job holds a node of the partition in which the head is looked at."""
    k = row.alloc
    while k >= 0:
        if admits(s, head, s.nodes[s.parts[k].node]):
            return True
        k = s.parts[k].next
    return False


@inner
def allows(s: State, row: JobRow, node: NodeRow) -> Any:
    """Whether the node is up, of a device type that the job takes, and of its partition."""
    if node.down > 0 or (row.plain < 0 and not admits(s, row, node)):
        return False
    return row.gpus == 0 or takes(s, row, node.gpu_type)


@inner
def limited(s: State, units: Real, cpus: Real, memory: Real, row: JobRow) -> Any:
    """`units`, or fewer if cpus or memory do not reach that far."""
    need = unit_cpus(s, row)
    if need > 0:
        units = min(units, np.floor((cpus + EPS) / need))
    need = unit_memory(s, row)
    if need > 0:
        units = min(units, np.floor((memory + EPS) / need))
    return units


@inner
def room_on(s: State, row: JobRow, node: NodeRow) -> Any:
    """Units of the job that the node can take now."""
    if not allows(s, row, node):
        return 0
    if row.gpus >= 1:
        units = node.free // chunk_of(row)
    elif row.gpus == 0:
        units = 1
    else:
        units = 1 if row.gpus <= node.share + EPS and node.first_device >= 0 else 0
    if units == 0 or row.hosted == 0:
        return units
    return int(limited(s, float(units), node.free_cpus, node.free_memory, row))


@inner
def largest_share(node: NodeRow, devices: Reals) -> Any:
    """The largest free share on one device of the node."""
    if node.mask != NO_DEVICES or (node.first_device < 0 and node.free > 0):
        return 1.0
    best = 0.0
    shared = node.shared
    while shared != NO_DEVICES:
        share = devices[node.first_device + trailing_zeros(shared)]
        if share > best:
            best = share
        shared &= shared - _ONE
    return best


@inner
def lowest_devices(mask: np.uint64, count: Int) -> Any:
    """The `count` lowest bits of a bit set."""
    rest = mask
    for _ in range(count):
        rest &= rest - _ONE
    return mask ^ rest


@inner
def tightest_device(node: NodeRow, devices: Reals, share: Real) -> Any:
    """The device for a share: the least free that suffices, lowest number first."""
    best = -1
    best_free = 2.0
    shared = node.shared
    while shared != NO_DEVICES:
        d = trailing_zeros(shared)
        free = devices[node.first_device + d]
        if share <= free + EPS and free < best_free - EPS:
            best, best_free = d, free
        shared &= shared - _ONE
    if best < 0:
        best = trailing_zeros(node.mask)
    return best


@inner
def describe(row: JobRow, node: NodeRow, devices: Reals, units: Int, device: Int, piece: PartRow) -> None:
    """Write into `piece` which devices the job gets for `units` on the node (device -1: the node's own rule for a share)."""
    piece.gpus = 0
    piece.mask = NO_DEVICES
    piece.gpu = -1
    if row.gpus >= 1:
        piece.gpus = units * chunk_of(row)
        if node.first_device >= 0:
            piece.mask = lowest_devices(node.mask, piece.gpus)
    elif row.gpus > 0:
        piece.gpu = device if device >= 0 else tightest_device(node, devices, row.gpus)
        piece.mask = _ONE << np.uint64(piece.gpu)


@inner
def _units_of(row: JobRow, piece: PartRow) -> Any:
    return piece.gpus // chunk_of(row) if row.gpus >= 1 else 1


@inner
def hold(s: State, row: JobRow, node: NodeRow, devices: Reals, piece: PartRow) -> None:
    """Take what the piece describes."""
    if row.gpus >= 1:
        node.free -= piece.gpus
        node.mask &= ~piece.mask
    elif row.gpus > 0:
        at = node.first_device + piece.gpu
        if node.mask & piece.mask != NO_DEVICES:
            node.mask ^= piece.mask
            node.shared |= piece.mask
            node.free -= 1
            devices[at] = 1.0
        devices[at] -= row.gpus
    if row.hosted == 1:
        node.free_cpus -= unit_cpus(s, row) * _units_of(row, piece)
        node.free_memory -= unit_memory(s, row) * _units_of(row, piece)
    if node.free == 0:
        node.share = largest_share(node, devices)


@inner
def give_back(s: State, row: JobRow, node: NodeRow, devices: Reals, piece: PartRow) -> None:
    """Undo `hold`."""
    if row.gpus >= 1:
        node.free += piece.gpus
        node.mask |= piece.mask
    elif row.gpus > 0:
        at = node.first_device + piece.gpu
        devices[at] += row.gpus
        if devices[at] >= 1.0 - EPS:
            node.shared ^= piece.mask
            node.mask |= piece.mask
            node.free += 1
    if row.hosted == 1:
        node.free_cpus += unit_cpus(s, row) * _units_of(row, piece)
        node.free_memory += unit_memory(s, row) * _units_of(row, piece)
    if node.share < 1.0:
        node.share = largest_share(node, devices)


# ── the index: for every number of free devices, a bit set of the nodes that have it, with a summary ──
# A level of a partition is `words` words, followed by its summary words.


@inner
def _level_at(part: PartitionRow, free: Int) -> Any:
    """Return where the level of nodes with `free` free devices begins."""
    return part.index + (free - 1) * (part.words + (part.words + 63) // 64)


@inner
def _index_place(part: PartitionRow, node: NodeRow) -> Any:
    """Return the word and the bit of a node in the index, and those of its word in the summary."""
    base = _level_at(part, node.free)
    word = node.word >> 6
    return base + word, _ONE << np.uint64(node.word & 63), base + part.words + (word >> 6), _ONE << np.uint64(word & 63)


@inner
def index_add(index: Words, part: PartitionRow, node: NodeRow) -> None:
    """Enter a node that is up under its number of free devices."""
    if node.free > 0:
        at, bit, summary, summary_bit = _index_place(part, node)
        index[at] |= bit
        index[summary] |= summary_bit


@inner
def index_remove(index: Words, part: PartitionRow, node: NodeRow) -> None:
    """Take a node out; its number of free devices is still the one under which it was entered."""
    if node.free > 0:
        at, bit, summary, summary_bit = _index_place(part, node)
        index[at] &= ~bit
        if index[at] == NO_DEVICES:
            index[summary] &= ~summary_bit


@inner
def index_first(index: Words, part: PartitionRow, free: Int) -> Any:
    """The lowest node with exactly `free` free devices, or -1."""
    base = _level_at(part, free)
    summary = base + part.words
    for i in range((part.words + 63) // 64):
        if index[summary + i] != NO_DEVICES:
            word = (i << 6) + trailing_zeros(index[summary + i])
            return part.node_lo + (word << 6) + trailing_zeros(index[base + word])
    return -1


@inner
def index_word(index: Words, part: PartitionRow, least: Int, word: Int) -> Any:
    """Word `word` of the bit set of nodes with `least` or more free devices."""
    found = NO_DEVICES
    for free in range(least, part.levels + 1):
        found |= index[_level_at(part, free) + word]
    return found
