"""Placement: which nodes a job gets. Fills pick_node and pick_units, changes nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.engine.jit import PLACEMENT, call_scores, hash01, inner, params_at, trailing_zeros
from gpuyard.engine.kernels.nodes import NO_DEVICES, index_add, index_first, index_remove, index_word, room_on
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
    if row.gpus >= 1 and row.gpus > part.free:
        return 0
    if row.plain == 1 and part.index >= 0:
        if slot.score <= SCORE_MINUS_FREE:
            return _find_by_index(s, part, int(row.gpus), slot)
        return _choose_among(s, _gather_by_index(s, part, int(row.gpus)), j, slot)
    if not fill_rooms(s, p, j):
        return 0
    return choose(s, p, j, slot)


@inner
def choose(s: Any, p: Any, j: Any, slot: Any) -> Any:
    """Pick nodes by the rooms in s.room, which suffice, and the placement's scores."""
    part = s.partitions[p]
    units = s.rows[j].units
    whole = 0  # nodes with room for all units come first in `candidates`, and if there are any, only they count
    count = 0
    for n in range(part.node_lo, part.node_hi):
        if s.room[n] >= units:
            s.candidates[whole] = n
            whole += 1
        elif s.room[n] > 0 and whole == 0:
            s.candidates[count] = n
        count = whole if whole > 0 else count + (1 if s.room[n] > 0 else 0)
    return _choose_among(s, count, j, slot)


@inner
def _choose_among(s: Any, count: Any, j: Any, slot: Any) -> Any:
    """Pick from the nodes in candidates[:count]: one with room for all units, or several if there is none."""
    units = np.int64(s.rows[j].units)
    if count > 1 and not _fill_scores(s, count, j, slot):
        return BAD_SCORE
    best = _lowest(s, count, units)
    if best >= 0:
        s.pick_node[0] = s.candidates[best]
        s.pick_units[0] = units
        return 1
    return _span(s, count, units, slot.fewest == 1)


@inner
def _fill_scores(s: Any, count: Any, j: Any, slot: Any) -> Any:
    """score[i] of candidates[i]; False if the user's placement raised an error or gave NaN."""
    row = s.rows[j]
    if slot.score == SCORE_OWN:
        at = params_at(s.control[0].active, PLACEMENT)
        status = call_scores(slot.placement, s.nodes, s.candidates, s.score, count, s.rows, j, s.params, at)
        for i in range(count):
            if s.score[i] != s.score[i]:
                status = 1
        return status == 0
    for i in range(count):
        node = s.nodes[s.candidates[i]]
        if slot.score == SCORE_FREE:
            s.score[i] = node.free
        elif slot.score == SCORE_MINUS_FREE:
            s.score[i] = -node.free
        elif slot.score == SCORE_RANDOM:
            s.score[i] = hash01(s.control[0].seed, row.index, row.preemptions, node.number)
        elif slot.score == SCORE_FASTEST:
            s.score[i] = -s.speed[row.job_class * len(s.types) + node.gpu_type]
        else:
            s.score[i] = 0.0
    return True


@inner
def _lowest(s: Any, count: Any, units: Any) -> Any:
    """The lowest-scored candidate with room for `units`, by position, or -1."""
    best = -1
    for i in range(count):
        if s.room[s.candidates[i]] >= units and (best < 0 or s.score[i] < s.score[best]):
            best = i
    return best


@inner
def _span(s: Any, count: Any, units: Any, fewest: Any) -> Any:
    """Several of the candidates, by score or as few as possible. Uses up s.room."""
    picked = 0
    missing = units
    while missing > 0:
        best = _lowest(s, count, missing) if fewest else -1
        if best < 0:
            best = _next_of_span(s, count, fewest)
        n = s.candidates[best]
        given = min(np.int64(s.room[n]), missing)
        s.pick_node[picked] = n
        s.pick_units[picked] = given
        picked += 1
        missing -= given
        s.room[n] = 0
    return picked


@inner
def _next_of_span(s: Any, count: Any, fewest: Any) -> Any:
    best = -1
    most = 0
    for i in range(count):
        room = s.room[s.candidates[i]]
        if room == 0:
            continue
        if best < 0 or (fewest and room > most) or ((not fewest or room == most) and s.score[i] < s.score[best]):
            best, most = i, room
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


@inner
def _gather_by_index(s: Any, part: Any, gpus: Any) -> Any:
    """The nodes that may take a plain gang, in order, with their rooms: those that can take all of it, or else all that have any free.

    Returns their number. On a busy cluster they are few: to look them up beats looking at every node.
    """
    least = gpus
    if _index_single(s, part, gpus, np.int64(SCORE_FREE)) < 0:
        least = 1
    count = 0
    for word in range(part.words):
        found = index_word(s.free_index, part, least, word)
        while found != NO_DEVICES:
            n = part.node_lo + (word << 6) + trailing_zeros(found)
            s.candidates[count] = n
            s.room[n] = s.nodes[n].free
            count += 1
            found &= found - np.uint64(1)
    return count
