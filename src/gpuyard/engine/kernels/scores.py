"""The scores of the built-in placements; docs/concepts/semantics.md has the table. Lower is better."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import hash01, inner, trailing_zeros
from gpuyard.engine.kernels.nodes import NO_DEVICES, chunk_of, unit_cpus, unit_memory
from gpuyard.engine.slots import SCORES
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.state import JobRow, NodeRow, State

(
    SCORE_FIRST, SCORE_FREE, SCORE_MINUS_FREE, SCORE_RANDOM, SCORE_FASTEST, SCORE_LEXICOGRAPHIC, SCORE_WHOLE_LAST, SCORE_LOAD,
    SCORE_REMAINDER, SCORE_FRAGMENTS, SCORE_OWN, SCORE_NETWORK,
) = (
    SCORES[name] for name in (
        "first", "free", "minus-free", "random", "fastest", "lexicographic", "whole-last", "load", "remainder", "fragments", "own",
        "network",
    )
)  # fmt: skip
_ONE = np.uint64(1)
_TIER = 67_108_864.0  # 2^26: more devices than a node can have
_CPU_TIER = 1_125_899_906_842_624.0  # 2^50: more millionths of a core than a node can have
_TYPES = 64.0  # more than there can be
SHARE = np.int64(1_000_000)  # of a whole device
STEP = np.int64(10_000_000_000)  # a tenth of a GPU: SHARE × the sum of weights / 10


@inner
def _free(row: JobRow, node: NodeRow) -> Any:
    """Wholly free devices of the node; for a job without GPUs, free cores in millionths (rounded: equal amounts must be equal)."""
    return float(node.free) if row.gpus > 0 else np.floor(node.free_cpus * 1e6 + 0.5)


@inner
def _simple_score(s: State, code: Int, row: JobRow, node: NodeRow) -> Any:
    """Scores of a node by one column. Apart from the others: in one chain with them the fastest type took 1.1 times as long to find."""
    if code == SCORE_FREE:
        return _free(row, node)
    if code == SCORE_MINUS_FREE:
        return -_free(row, node)
    if code == SCORE_RANDOM:
        return hash01(s.control[0].seed, s.table[row.number].index, row.preemptions, node.number)
    if code == SCORE_FASTEST:
        return -s.speed[row.job_class * len(s.types) + node.gpu_type]
    return 0.0


@inner
def _composed_score(s: State, code: Int, row: JobRow, node: NodeRow) -> Any:
    """Scores of a node by several columns."""
    if code == SCORE_LEXICOGRAPHIC:
        return _free(row, node) * _TYPES + s.type_rank[row.job_class * len(s.types) + node.gpu_type]
    if code == SCORE_WHOLE_LAST:
        return _tier(s, row, node) * (_TIER if row.gpus > 0 else _CPU_TIER) + _free(row, node)
    if code == SCORE_LOAD:
        return _load(s, node)
    return _remainder(s, node)


@inner
def is_whole(node: NodeRow) -> Any:
    """Whether the node has devices and all that are in order are wholly free."""
    return node.free > 0 and node.free == node.gpus - node.off


@inner
def _tier(s: State, row: JobRow, node: NodeRow) -> Any:
    """0: the job fits on a device that is shared already; 1: the node is in use; 2: it is whole."""
    if 0 < row.gpus < 1:
        shared = node.shared
        while shared != NO_DEVICES:
            if row.gpus <= s.devices[node.first_device + trailing_zeros(shared)] + EPS:
                return 0.0
            shared &= shared - _ONE
    return 2.0 if is_whole(node) else 1.0


@inner
def _load(s: State, node: NodeRow) -> Any:
    """The share in use of what is most in use, in millionths."""
    load = 0.0
    devices = np.int64(node.gpus - node.off) * SHARE
    if devices > 0:
        load = (devices - free_units(node, s.devices)) / devices
    if 0 < node.cpus < np.inf:
        load = max(load, (node.cpus - node.free_cpus) / node.cpus)
    if 0 < node.memory < np.inf:
        load = max(load, (node.memory - node.free_memory) / node.memory)
    return np.floor(load * 1e6 + 0.5)


@inner
def _remainder(s: State, node: NodeRow) -> Any:
    """Free GPU share and free cpus, each as a part of what the largest node has, in millionths."""
    part = s.partitions[node.partition]
    left = 0.0
    if part.most_gpus > 0:
        left = free_units(node, s.devices) / (part.most_gpus * 1e6)
    if part.most_cpus > 0 and node.cpus < np.inf:
        left += node.free_cpus / part.most_cpus
    return np.floor(left * 1e6 + 0.5)


@inner
def fill_builtin(s: State, count: Int, row: JobRow, code: Int) -> None:
    """score[i] of candidates[i], by the rooms in s.room."""
    if code == SCORE_FRAGMENTS:
        _fill_fragment_scores(s, count, row)
    elif code in (SCORE_LEXICOGRAPHIC, SCORE_WHOLE_LAST, SCORE_LOAD, SCORE_REMAINDER):
        for i in range(count):
            s.score[i] = _composed_score(s, code, row, s.nodes[s.candidates[i]])
    else:
        for i in range(count):
            s.score[i] = _simple_score(s, code, row, s.nodes[s.candidates[i]])


@inner
def _fill_fragment_scores(s: State, count: Int, row: JobRow) -> None:
    for i in range(count):
        n, last = s.candidates[i], s.candidates[max(i - 1, 0)]
        if i > 0 and s.room[n] == s.room[last] and same_node(s.nodes[n], s.nodes[last]):
            s.score[i] = s.score[i - 1]
        else:
            s.score[i] = fragment_score(s, row, n, min(np.int64(s.room[n]), np.int64(row.units)))


@inner
def device_for(s: State, code: Int, row: JobRow, node: NodeRow) -> Any:
    """The device that the placement chooses for a share on the node; -1: the ordinary rule chooses."""
    if code == SCORE_FRAGMENTS:
        return least_fragment_device(s, row, node)
    if code == SCORE_RANDOM:
        return _random_device(s, row, node)
    return np.int64(-1)


@inner
def _random_device(s: State, row: JobRow, node: NodeRow) -> Any:
    best, lowest = np.int64(-1), 2.0
    rest = node.mask | node.shared
    while rest != NO_DEVICES:
        d = trailing_zeros(rest)
        free = 1.0 if node.mask >> np.uint64(d) & _ONE == _ONE else s.devices[node.first_device + d]
        if row.gpus <= free + EPS:
            drawn = hash01(s.control[0].seed, s.table[row.number].index, row.preemptions, len(s.nodes) + d)
            if drawn < lowest:
                best, lowest = np.int64(d), drawn
        rest &= rest - _ONE
    return best


# ── the expected fragment of a node (Weng et al. 2023): the GPU share that a job drawn from the workload's requests could not use ──
# Shares are whole millionths of a GPU and weights whole numbers, so that sums are exact in whatever order they are taken.


@inner
def share_units(share: Real) -> Any:
    """A share in millionths, rounded."""
    return np.int64(np.floor(share * 1e6 + 0.5))


@inner
def free_units(node: NodeRow, devices: Reals) -> Any:
    """The free GPU share of a node, in millionths."""
    total = np.int64(node.free) * SHARE
    shared = node.shared
    while shared != NO_DEVICES:
        total += share_units(devices[node.first_device + trailing_zeros(shared)])
        shared &= shared - _ONE
    return total


@inner
def _list_partial(s: State, node: NodeRow) -> Any:
    """Write the free shares of the devices in shared use into s.partial, by number; returns how many there are."""
    count = 0
    shared = node.shared
    while shared != NO_DEVICES:
        s.partial[count] = share_units(s.devices[node.first_device + trailing_zeros(shared)])
        count += 1
        shared &= shared - _ONE
    return count


@inner
def _expected(s: State, node: NodeRow, free: Int, count: Int, cpus: Real, memory: Real) -> Any:
    """The fragment of the node if it had `free` devices wholly free, the shares in s.partial[:count], `cpus` and `memory`."""
    total = np.int64(free) * SHARE
    largest: Any = SHARE if free > 0 else np.int64(0)
    for i in range(count):
        total += s.partial[i]
        largest = max(largest, s.partial[i])
    loose = total - np.int64(free) * SHARE
    expected = np.int64(0)
    for k in range(s.mix_at[node.partition], s.mix_at[node.partition + 1]):
        request = s.mix[k]
        lost = total
        if (request.allowed >> node.gpu_type) & 1 == 1 and request.cpus <= cpus + EPS and request.memory <= memory + EPS:
            if request.gpus >= 1:
                if request.gpus <= free:
                    lost = loose
            else:
                need = share_units(request.gpus)
                if need <= largest:
                    lost = np.int64(0)
                    for i in range(count):
                        if s.partial[i] < need:
                            lost += s.partial[i]
        expected += request.weight * lost
    return expected


@inner
def _now(s: State, n: Int) -> Any:
    """The fragment of node n as it is."""
    if s.fragment[n] < 0:
        node = s.nodes[n]
        s.fragment[n] = _expected(s, node, np.int64(node.free), _list_partial(s, node), node.free_cpus, node.free_memory)
    return s.fragment[n]


@inner
def _best_device(s: State, row: JobRow, node: NodeRow) -> Any:
    """Return (the device for a share that leaves the least fragment, that fragment); ties go as in the ordinary rule."""
    count = _list_partial(s, node)
    cpus, memory = node.free_cpus - s.table[row.number].cpus, node.free_memory - s.table[row.number].memory
    best, best_free, least = np.int64(-1), 2.0, np.int64(0)
    shared = node.shared
    i = 0
    while shared != NO_DEVICES:
        d = trailing_zeros(shared)
        free = s.devices[node.first_device + d]
        if row.gpus <= free + EPS:
            before = s.partial[i]
            s.partial[i] = share_units(free - row.gpus)
            left = _expected(s, node, np.int64(node.free), count, cpus, memory)
            s.partial[i] = before
            if best < 0 or left < least or (left == least and free < best_free - EPS):
                best, best_free, least = np.int64(d), free, left
        shared &= shared - _ONE
        i += 1
    if node.mask != NO_DEVICES:
        s.partial[count] = share_units(1.0 - row.gpus)
        left = _expected(s, node, np.int64(node.free) - 1, count + 1, cpus, memory)
        if best < 0 or left < least:
            best, least = np.int64(trailing_zeros(node.mask)), left
    return best, least


@inner
def least_fragment_device(s: State, row: JobRow, node: NodeRow) -> Any:
    """The device for a share under this placement."""
    device, _ = _best_device(s, row, node)
    return device


@inner
def fragment_score(s: State, row: JobRow, n: Int, units: Int) -> Any:
    """Score node n: the growth of its fragment if it takes `units` of the job, in tenths of a GPU; then the free share that remains."""
    node = s.nodes[n]
    before = _now(s, n)
    left = free_units(node, s.devices)
    if 0 < row.gpus < 1:
        _, after = _best_device(s, row, node)
        left -= share_units(row.gpus)
    else:
        free = np.int64(node.free)
        if row.gpus >= 1:
            free -= np.int64(units) * chunk_of(row)
            left -= np.int64(units) * chunk_of(row) * SHARE
        cpus, memory = node.free_cpus - unit_cpus(s, row) * units, node.free_memory - unit_memory(s, row) * units
        after = _expected(s, node, free, _list_partial(s, node), cpus, memory)
    steps = (after - before + STEP // 2) // STEP
    return steps + left / (left + SHARE)


@inner
def same_node(a: NodeRow, b: NodeRow) -> Any:
    """Whether two nodes without shared devices are in the same state, so that they have the same score."""
    if a.shared != NO_DEVICES or b.shared != NO_DEVICES:
        return False
    return a.gpu_type == b.gpu_type and a.free == b.free and a.free_cpus == b.free_cpus and a.free_memory == b.free_memory
