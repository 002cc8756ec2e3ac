"""The expected fragment of a node (Weng et al. 2023): the GPU share that a job drawn from the workload's requests could not use.

Shares are whole millionths of a GPU and weights whole numbers, so that sums are exact in whatever order they are taken.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner, trailing_zeros
from gpuyard.engine.kernels.nodes import NO_DEVICES, unit_cpus, unit_memory
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.state import JobRow, NodeRow, State

_ONE = np.uint64(1)
SHARE = np.int64(1_000_000)  # of a whole device
STEP = np.int64(10_000_000_000)  # a tenth of a GPU: SHARE × the sum of weights / 10


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
    cpus, memory = node.free_cpus - row.cpus, node.free_memory - row.memory
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
            free -= np.int64(units) * row.chunk
            left -= np.int64(units) * row.chunk * SHARE
        cpus, memory = node.free_cpus - unit_cpus(row) * units, node.free_memory - unit_memory(row) * units
        after = _expected(s, node, free, _list_partial(s, node), cpus, memory)
    steps = (after - before + STEP // 2) // STEP
    return steps + left / (left + SHARE)


@inner
def same_node(a: NodeRow, b: NodeRow) -> Any:
    """Whether two nodes without shared devices are in the same state, so that they have the same score."""
    if a.shared != NO_DEVICES or b.shared != NO_DEVICES:
        return False
    return a.gpu_type == b.gpu_type and a.free == b.free and a.free_cpus == b.free_cpus and a.free_memory == b.free_memory
