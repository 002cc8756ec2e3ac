"""Placement: which nodes a job gets. Fills pick_node and pick_units, changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.engine.jit import PLACEMENT, call_scores, hash01, inner, params_at
from gpuyard.engine.kernels.nodes import index_add, index_first, index_remove, room_on
from gpuyard.model.tolerance import EPS

# Built-in scores; the order is that of gpuyard.engine.slots.SCORES.
SCORE_FIRST, SCORE_FREE, SCORE_MINUS_FREE, SCORE_RANDOM, SCORE_FASTEST, SCORE_OWN = range(6)

BAD_SCORE = -2


@inner
def within_quota(part: Any, gpus: Any) -> Any:
    return part.used + gpus <= part.quota + EPS


@inner
def fill_rooms(s: Any, p: Any, j: Any) -> Any:
    """room[n] for every node of the partition; returns whether the units fit."""
    part = s.partitions[p]
    row = s.rows[j]
    total = 0
    for n in range(part.node_lo, part.node_hi):
        room = room_on(row, s.nodes[n], s.allowed)
        s.room[n] = room
        total += room
    return total >= row.units


@inner
def find(s: Any, p: Any, j: Any, slot: Any) -> Any:
    """Where job j would go now: the number of nodes picked, 0 if it does not fit, BAD_SCORE if the placement failed."""
    part = s.partitions[p]
    row = s.rows[j]
    s.pick_device[0] = -1
    if not within_quota(part, row.gpus):
        return 0
    if row.plain == 1:
        if row.gpus > part.free:
            return 0
        if part.index >= 0 and slot.score <= SCORE_MINUS_FREE:
            return _find_by_index(s, part, int(row.gpus), slot)
    elif row.gpus >= 1 and row.gpus > part.free:
        return 0
    if not fill_rooms(s, p, j):
        return 0
    return choose(s, p, j, slot)


@inner
def choose(s: Any, p: Any, j: Any, slot: Any) -> Any:
    """Pick nodes by the rooms in s.room, which suffice, and the placement's scores."""
    part = s.partitions[p]
    row = s.rows[j]
    lo, hi = part.node_lo, part.node_hi
    if hi - lo == 1:
        s.pick_node[0] = lo
        s.pick_units[0] = row.units
        return 1
    if not _fill_scores(s, part, j, slot):
        return BAD_SCORE
    units = np.int64(row.units)
    best = _lowest(s, lo, hi, units)
    if best >= 0:
        s.pick_node[0] = best
        s.pick_units[0] = row.units
        return 1
    return _span(s, lo, hi, units, slot.fewest == 1)


@inner
def _fill_scores(s: Any, part: Any, j: Any, slot: Any) -> Any:
    """score[n] for every node with room; False if the user's placement raised or gave NaN."""
    row = s.rows[j]
    if slot.score == SCORE_OWN:
        count = 0
        for n in range(part.node_lo, part.node_hi):
            if s.room[n] > 0:
                s.candidates[count] = n
                count += 1
        # The scores come back packed; spread them from the end, so that none is overwritten before it is read.
        status = call_scores(
            slot.placement, s.nodes, s.candidates, s.score, count, s.rows, j, s.params, params_at(s.control[0].active, PLACEMENT)
        )
        for i in range(count - 1, -1, -1):
            if s.score[i] != s.score[i]:
                status = 1
            s.score[s.candidates[i]] = s.score[i]
        return status == 0
    for n in range(part.node_lo, part.node_hi):
        if s.room[n] == 0:
            continue
        node = s.nodes[n]
        if slot.score == SCORE_FREE:
            s.score[n] = node.free
        elif slot.score == SCORE_MINUS_FREE:
            s.score[n] = -node.free
        elif slot.score == SCORE_RANDOM:
            s.score[n] = hash01(s.control[0].seed, row.index, row.preemptions, node.number)
        elif slot.score == SCORE_FASTEST:
            s.score[n] = -s.speed[row.job_class * len(s.types) + node.gpu_type]
        else:
            s.score[n] = 0.0
    return True


@inner
def _lowest(s: Any, lo: Any, hi: Any, units: Any) -> Any:
    """The lowest-scored node with room for `units`, or -1."""
    best = -1
    for n in range(lo, hi):
        if s.room[n] >= units and (best < 0 or s.score[n] < s.score[best]):
            best = n
    return best


@inner
def _span(s: Any, lo: Any, hi: Any, units: Any, fewest: Any) -> Any:
    """Several nodes, by score or as few as possible. Uses up s.room."""
    count = 0
    missing = units
    while missing > 0:
        best = _lowest(s, lo, hi, missing) if fewest else -1
        if best < 0:
            best = _next_of_span(s, lo, hi, fewest)
        given = min(s.room[best], missing)
        s.pick_node[count] = best
        s.pick_units[count] = given
        count += 1
        missing -= given
        s.room[best] = 0
    return count


@inner
def _next_of_span(s: Any, lo: Any, hi: Any, fewest: Any) -> Any:
    best = -1
    for n in range(lo, hi):
        if s.room[n] == 0:
            continue
        if best < 0:
            best = n
        elif fewest and s.room[n] != s.room[best]:
            if s.room[n] > s.room[best]:
                best = n
        elif s.score[n] < s.score[best]:
            best = n
    return best


# ── plain gangs on many nodes: the same choices from the index of free nodes ──


@inner
def _find_by_index(s: Any, part: Any, gpus: Any, slot: Any) -> Any:
    n = _index_single(s, part, gpus, slot.score)
    if n >= 0:
        s.pick_node[0] = n
        s.pick_units[0] = gpus
        return 1
    count = 0
    missing = gpus
    while missing > 0:
        n = _index_single(s, part, missing, slot.score) if slot.fewest == 1 else -1
        if n < 0:
            n = _index_next(s, part, slot)
        node = s.nodes[n]
        given = min(int(node.free), missing)
        s.pick_node[count] = n
        s.pick_units[count] = given
        count += 1
        missing -= given
        index_remove(s.free_index, part, node)  # not to be picked twice; put back below
    for i in range(count):
        index_add(s.free_index, part, s.nodes[s.pick_node[i]])
    return count


@inner
def _index_single(s: Any, part: Any, gpus: Any, score: Any) -> Any:
    """The lowest-scored node with at least `gpus` free devices, or -1."""
    best = -1
    for i in range(part.levels - gpus + 1):
        level = part.levels - i if score == SCORE_MINUS_FREE else gpus + i
        n = index_first(s.free_index, part, level)
        if n >= 0:
            if score != SCORE_FIRST:
                return n
            if best < 0 or n < best:
                best = n
    return best


@inner
def _index_next(s: Any, part: Any, slot: Any) -> Any:
    """The next node of a span: by score, or the one with the most free devices."""
    score = slot.score
    if slot.fewest == 1:
        score = SCORE_MINUS_FREE
    return _index_single(s, part, np.int64(1), score)
