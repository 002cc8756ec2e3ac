"""The pass over partitions that share nodes, or that one job names together: one queue of pairs (job, partition), and a head for each.

Without such partitions nothing here runs. It looks at every pair in every pass; rooms are counted node by node.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.backfill import BACKFILL_CONSERVATIVE, BACKFILL_EASY, BACKFILL_NONE, holds_back, reserve
from gpuyard.engine.kernels.nodes import NO_DEVICES
from gpuyard.engine.kernels.passes import failed, make_room, position, unbench, update_queue
from gpuyard.engine.kernels.place import find
from gpuyard.engine.kernels.plan import begin_plan, book
from gpuyard.engine.kernels.runs import estimated_end, factor_picked, rate_of, revise_ends, start_at
from gpuyard.engine.kernels.site.limits import over_limit

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import SlotRow, State

_ONE = np.uint64(1)


@inner
def shared_pass(s: State, p: Int) -> Any:
    """Make one pass over a division, repeated without preemption if a job was preempted; returns a status."""
    control, part = s.control[0], s.partitions[p]
    if control.tracking == 1:
        revise_ends(s, p)
    part.came = part.reserved = part.settled = 0
    before = control.preempted
    status = _order_and_walk(s, p, s.slots[control.active].preemption != 0)
    if status < 0 or control.preempted == before:
        return status
    unbench(s, p)
    return _order_and_walk(s, p, False)


@inner
def _order_and_walk(s: State, p: Int, preempting: bool) -> Any:
    status = update_queue(s, p)
    return status if status < 0 else _walk(s, p, s.slots[s.control[0].active], preempting)


@inner
def _walk(s: State, p: Int, slot: SlotRow, preempting: bool) -> Any:
    """Look at the pairs by tier, then in the order of the queue; returns a status."""
    control, part = s.control[0], s.partitions[p]
    control.heads, control.headed, control.blocked = 0, NO_DEVICES, NO_DEVICES
    control.left = slot.depth if slot.depth > 0 else np.int64(1) << 60
    for tier in range(part.tiers):
        at = part.head
        while at < part.tail and control.left > 0:
            j = np.int64(s.queue_jobs[at])
            count = 0 if s.rows[j].benched != 0 else _look_at(s, p, j, tier, slot, preempting)
            if count < 0:
                return failed(s, count, j)
            if count == 0:
                at += 1
                continue
            if preempting and control.heads == 0:
                at = position(s, part, j)  # those that were stopped have joined the queue
            at = start_at(s, p, at, count)
            _lift_heads(s, j)
    return 0


@inner
def _look_at(s: State, p: Int, j: Int, tier: Int, slot: SlotRow, preempting: bool) -> Any:
    """Look at a job in its partitions of a tier: the number of nodes picked in the first in which it may start, 0 if none, or a failure."""
    control = s.control[0]
    label = s.table[j].partition
    for k in range(s.pair_at[label], s.pair_at[label + 1]):
        home = np.int64(s.pairs[k])
        if s.partitions[home].tier != tier or control.left == 0 or (s.chances[j] >> np.uint64(home)) & _ONE == NO_DEVICES:
            continue
        if control.limits > 0 and over_limit(s, s.rows[j], home) > 0:
            continue
        s.rows[j].plain = -1 - home
        if control.heads > 0:
            control.left -= 1
        count = _find(s, p, j, home, slot, preempting)
        if count != 0:
            return count
        if (control.headed >> np.uint64(home)) & _ONE == NO_DEVICES:
            count = _become_head(s, p, j, home, slot)
            if count != 0:
                return count
    return 0


@inner
def _find(s: State, p: Int, j: Int, home: Int, slot: SlotRow, preempting: bool) -> Any:
    """Find nodes for a pair that may start now; returns what `find` returns."""
    control = s.control[0]
    if control.heads > 0:
        if slot.backfill == BACKFILL_CONSERVATIVE:
            return book(s, p, j, slot)
        if slot.backfill == BACKFILL_NONE and (control.blocked >> np.uint64(home)) & _ONE == _ONE:
            return 0
    count = find(s, p, j, slot)
    if control.heads == 0:
        return make_room(s, p, j, slot) if count == 0 and preempting else count
    return 0 if count > 0 and slot.backfill == BACKFILL_EASY and not _respects_heads(s, p, j, count) else count


@inner
def _become_head(s: State, p: Int, j: Int, home: Int, slot: SlotRow) -> Any:
    """Let a job that may not start be the head of its partition; returns what `find` returns: the first may be booked for now."""
    control = s.control[0]
    k = control.heads
    head = s.heads[k]
    head.job, head.home, head.shadow = j, home, math.inf
    control.heads += 1
    control.headed |= _ONE << np.uint64(home)
    control.blocked |= s.partitions[home].touches
    if slot.backfill == BACKFILL_EASY:
        reserve(s, p, j)
        head.shadow = control.shadow
        _keep(s, k)
    if slot.backfill == BACKFILL_CONSERVATIVE and k == 0:
        begin_plan(s, s.partitions[p])
        control.left -= 1
        return book(s, p, j, slot)
    return 0


@inner
def _respects_heads(s: State, p: Int, j: Int, count: Int) -> Any:
    """Whether every head with a reservation still has it if job j takes the nodes picked; if so, they are taken there too."""
    row, control = s.rows[j], s.control[0]
    end = estimated_end(s, row, rate_of(s, row, count), factor_picked(s, row, count))
    control.spare_quota = math.inf
    for k in range(control.heads):
        if _concerns(s, k, j) and end > s.heads[k].shadow:
            _recall(s, k)
            if holds_back(s, p, s.heads[k].job, j, count, False):
                return False
    for k in range(control.heads):
        if _concerns(s, k, j) and end > s.heads[k].shadow:
            _recall(s, k)
            holds_back(s, p, s.heads[k].job, j, count, True)
            _keep(s, k)
    return True


@inner
def _concerns(s: State, k: Int, j: Int) -> Any:
    """Whether the k-th head still waits, and is not job j itself."""
    return s.heads[k].job >= 0 and s.heads[k].job != j


@inner
def _lift_heads(s: State, j: Int) -> None:
    """Job j has started: it is no head any more."""
    for k in range(s.control[0].heads):
        if s.heads[k].job == j:
            s.heads[k].job = -1


@inner
def _keep(s: State, k: Int) -> None:
    """Keep the nodes as they will be when the k-th head is estimated to fit."""
    nodes, devices = len(s.shadow_nodes), len(s.shadow_devices)
    for n in range(nodes):
        s.head_nodes[k * nodes + n] = s.shadow_nodes[n]
    if s.control[0].sharing == 1:
        for d in range(devices):
            s.head_devices[k * devices + d] = s.shadow_devices[d]


@inner
def _recall(s: State, k: Int) -> None:
    """Show the nodes as they will be then, and look at the head in its partition."""
    nodes, devices = len(s.shadow_nodes), len(s.shadow_devices)
    for n in range(nodes):
        s.shadow_nodes[n] = s.head_nodes[k * nodes + n]
    if s.control[0].sharing == 1:
        for d in range(devices):
            s.shadow_devices[d] = s.head_devices[k * devices + d]
    s.rows[s.heads[k].job].plain = -1 - s.heads[k].home
