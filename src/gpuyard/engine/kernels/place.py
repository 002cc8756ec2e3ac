"""Placement: which nodes a job gets. Fills pick_node and pick_units, changes nothing else."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PLACEMENT, call_scores, call_state, inner, params_at, trailing_zeros
from gpuyard.engine.kernels.nodes import NO_DEVICES, chunk_of, index_add, index_first, index_remove, index_word, room_on
from gpuyard.engine.kernels.scores import (
    SCORE_FIRST,
    SCORE_FREE,
    SCORE_MINUS_FREE,
    SCORE_NETWORK,
    SCORE_OWN,
    device_for,
    fill_builtin,
    is_whole,
)
from gpuyard.engine.slots import SPANS
from gpuyard.engine.state import PART_PICK
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State

SPAN_SCORE, SPAN_FEWEST, SPAN_TIER2 = (SPANS[name] for name in ("score", "fewest", "tier2"))
BAD_SCORE = -2


@inner
def within_quota(part: PartitionRow, gpus: Real) -> Any:
    return part.used + gpus <= part.quota + EPS


@inner
def fill_rooms(s: State, p: Int, j: Int) -> Any:
    """room[n] for every node of the partition; returns whether the units fit."""
    part = s.partitions[p]
    row = s.rows[j]
    total = 0
    for n in range(part.node_lo, part.node_hi):
        room = room_on(s, row, s.nodes[n])
        s.room[n] = room
        total += room
    return total >= row.units


@inner
def find(s: State, p: Int, j: Int, slot: SlotRow) -> Any:
    """Where job j would go now: the number of nodes picked, 0 if it does not fit, BAD_SCORE if the placement failed."""
    part = s.partitions[p]
    row = s.rows[j]
    s.pick_device[0] = -1
    if not within_quota(part, row.gpus):
        return 0
    if row.gpus >= 1 and row.gpus > part.free:
        return 0
    if row.plain == 1 and part.index >= 0:
        if slot.score == SCORE_FIRST or slot.score == SCORE_FREE or slot.score == SCORE_MINUS_FREE:
            count = _find_by_index(s, part, int(row.gpus), slot)
            if slot.span != SPAN_TIER2 or not _breaks_open(s, count, row):
                return count
        if slot.score == SCORE_OWN and slot.span != SPAN_TIER2 and _index_single(s, part, int(row.gpus), np.int64(SCORE_FREE)) >= 0:
            return _find_whole_by_own(s, part, j, slot)
        return _choose_among(s, _gather_by_index(s, part, int(row.gpus), slot), j)
    if not fill_rooms(s, p, j):
        return 0
    return choose(s, p, j, slot)


@inner
def choose(s: State, p: Int, j: Int, slot: SlotRow) -> Any:
    """Pick nodes by the rooms in s.room, which suffice, and the placement's scores."""
    part = s.partitions[p]
    units = s.rows[j].units
    whole = 0  # nodes with room for all units come first in `candidates`, and if there are any, only they count
    count = 0
    every = slot.span == SPAN_TIER2  # … except where a job may be spread although a node could take it
    for n in range(part.node_lo, part.node_hi):
        if s.room[n] >= units and not every:
            s.candidates[whole] = n
            whole += 1
        elif s.room[n] > 0 and whole == 0:
            s.candidates[count] = n
        count = whole if whole > 0 else count + (1 if s.room[n] > 0 else 0)
    return _choose_among(s, count, j)


@inner
def _choose_among(s: State, count: Int, j: Int) -> Any:
    """Let `pick_among` pick from the nodes in candidates[:count]."""
    return call_state(s.control[0].parts, s, count, j, PART_PICK)


@inner
def pick_among(s: State, count: Int, j: Int) -> Any:
    """Pick from the nodes in candidates[:count]: one with room for all units, or several if no node has."""
    row, slot = s.rows[j], s.slots[s.control[0].active]
    if count > 1 and not _fill_scores(s, count, j, slot):
        return BAD_SCORE
    picked = _pick(s, count, row, slot.span)
    if picked > 1 and slot.score == SCORE_NETWORK:
        picked = _span_by_network(s, count, j, slot)
    if slot.span == SPAN_TIER2 and _breaks_open(s, picked, row):
        picked = _spare_whole_nodes(s, count, row, picked)
    if 0 < row.gpus < 1:
        s.pick_device[0] = device_for(s, slot.score, row, s.nodes[s.pick_node[0]])
    return picked


@inner
def _fill_scores(s: State, count: Int, j: Int, slot: SlotRow) -> Any:
    """score[i] of candidates[i]; False if the user's placement or a network raised an error or gave NaN."""
    if slot.score != SCORE_OWN and slot.score != SCORE_NETWORK:
        fill_builtin(s, count, s.rows[j], slot.score)
        return True
    if slot.score == SCORE_NETWORK:
        s.control[0].asked += 1
        status = call_state(slot.placement, s, j, count, slot.placement_network)
    else:
        at = params_at(s.control[0].active, PLACEMENT)
        status = call_scores(slot.placement, s, s.candidates, s.score, count, j, s.params, at)
    for i in range(count):
        if s.score[i] != s.score[i]:
            status = 1
    return status == 0


@inner
def _pick(s: State, count: Int, row: JobRow, span: int) -> Any:
    """The lowest-scored candidate that can take the whole job, or several; returns their number."""
    units = np.int64(row.units)
    best = _lowest(s, count, units)
    if best >= 0:
        s.pick_node[0] = s.candidates[best]
        s.pick_units[0] = units
        return 1
    return _span(s, count, units, span != SPAN_SCORE)


@inner
def _lowest(s: State, count: Int, units: Int) -> Any:
    """The lowest-scored candidate with room for `units`, by position, or -1."""
    best = -1
    for i in range(count):
        if s.room[s.candidates[i]] >= units and (best < 0 or s.score[i] < s.score[best]):
            best = i
    return best


@inner
def _span(s: State, count: Int, units: Int, fewest: bool) -> Any:
    """Several of the candidates, by score or as few as possible. The room of those that are picked is negated."""
    picked = 0
    missing = units
    while missing > 0:
        best = _lowest(s, count, missing) if fewest else -1
        if best < 0:
            best = _next_of_span(s, count, fewest)
        missing -= _take(s, s.candidates[best], picked, missing)
        picked += 1
    return picked


@inner
def _take(s: State, n: Int, place: Int, missing: Int) -> Any:
    """Let node n take as many of the missing units as it has room for, and negate its room; returns how many."""
    given = min(np.int64(s.room[n]), missing)
    s.pick_node[place] = n
    s.pick_units[place] = given
    s.room[n] = -s.room[n]
    return given


@inner
def _span_by_network(s: State, count: Int, j: Int, slot: SlotRow) -> Any:
    """Several of the candidates, whose scores are known. After each pick the others are scored again: a network may look at all of them."""
    picked = 0
    missing = np.int64(s.rows[j].units)
    _restore_rooms(s, count)
    while missing > 0:
        best = 0
        for i in range(1, count):
            if s.score[i] < s.score[best]:
                best = i
        missing -= _take(s, s.candidates[best], picked, missing)
        picked += 1
        count -= 1
        for i in range(best, count):
            s.candidates[i] = s.candidates[i + 1]
            s.score[i] = s.score[i + 1]
        if missing > 0 and count > 1 and not _fill_scores(s, count, j, slot):
            return BAD_SCORE
    return picked


@inner
def _next_of_span(s: State, count: Int, fewest: bool) -> Any:
    best = -1
    most = 0
    for i in range(count):
        room = s.room[s.candidates[i]]
        if room <= 0:
            continue
        if best < 0 or (fewest and room > most) or ((not fewest or room == most) and s.score[i] < s.score[best]):
            best, most = i, room
    return best


@inner
def next_node(s: State, p: Int, j: Int, slot: SlotRow, missing: Int) -> Any:
    """Return the node with room in s.room that the placement gives the next of the missing units to, or BAD_SCORE.

    It is the node that `_span` would take next; for a job that some nodes can take whole, only these may have room.
    """
    part = s.partitions[p]
    count = 0
    for n in range(part.node_lo, part.node_hi):
        if s.room[n] > 0:
            s.candidates[count] = n
            count += 1
    if not _fill_scores(s, count, j, slot):
        return BAD_SCORE
    fewest = slot.span != SPAN_SCORE
    best = _lowest(s, count, missing) if fewest else -1
    if best < 0:
        best = _next_of_span(s, count, fewest)
    return np.int64(s.candidates[best])


# ── tier 2: one more node than the fewest, if that breaks open no whole node ──


@inner
def _breaks_open(s: State, picked: Int, row: JobRow) -> Any:
    """Whether the nodes picked include a whole one of which a gang takes only a part."""
    if row.gpus < 1:
        return False
    for i in range(picked):
        node = s.nodes[s.pick_node[i]]
        if is_whole(node) and np.int64(s.pick_units[i]) * chunk_of(row) < node.free:
            return True
    return False


@inner
def _spare_whole_nodes(s: State, count: Int, row: JobRow, fewest: bool) -> Any:
    """Up to fewest + 1 nodes of which none is broken open; where there are none, the fewest as before."""
    _restore_rooms(s, count)
    picked = 0
    missing = np.int64(row.units)
    while missing > 0 and picked <= fewest:
        best = _next_sparing(s, count, row, missing)
        if best < 0:
            break
        missing -= _take(s, s.candidates[best], picked, missing)
        picked += 1
    if missing == 0:
        return picked
    _restore_rooms(s, count)
    return _pick(s, count, row, SPAN_FEWEST)


@inner
def _restore_rooms(s: State, count: Int) -> None:
    for i in range(count):
        n = s.candidates[i]
        s.room[n] = abs(s.room[n])


@inner
def _next_sparing(s: State, count: Int, row: JobRow, missing: Int) -> Any:
    """The lowest-scored node that can take all that is missing, else the one with the largest room; none is broken open."""
    best = -1
    best_given: Int = np.int64(0)
    for i in range(count):
        n = s.candidates[i]
        given = min(np.int64(s.room[n]), missing)
        if given <= 0 or (is_whole(s.nodes[n]) and given * chunk_of(row) < s.nodes[n].free):
            continue
        if best < 0 or given > best_given or (given == best_given and s.score[i] < s.score[best]):
            best, best_given = i, given
    return best


# ── plain gangs on many nodes: the same choices from the index of free nodes ──


@inner
def _find_by_index(s: State, part: PartitionRow, gpus: Int, slot: SlotRow) -> Any:
    n = _index_single(s, part, gpus, slot.score)
    if n >= 0:
        s.pick_node[0] = n
        s.pick_units[0] = gpus
        return 1
    count = 0
    missing = gpus
    while missing > 0:
        n = _index_single(s, part, missing, slot.score) if slot.span != SPAN_SCORE else -1
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
def _index_single(s: State, part: PartitionRow, gpus: Int, score: Int) -> Any:
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
def _index_next(s: State, part: PartitionRow, slot: SlotRow) -> Any:
    """The next node of a span: by score, or the one with the most free devices."""
    score = slot.score
    if slot.span != SPAN_SCORE:
        score = SCORE_MINUS_FREE
    return _index_single(s, part, np.int64(1), score)


@inner
def _gather_by_index(s: State, part: PartitionRow, gpus: Int, slot: SlotRow) -> Any:
    """The nodes that may take a plain gang, in order, with their rooms: those that can take all of it, or else all that have any free.

    Returns their number. On a busy cluster they are few: to look them up beats looking at every node.
    """
    least = gpus
    if slot.span == SPAN_TIER2 or _index_single(s, part, gpus, np.int64(SCORE_FREE)) < 0:
        least = 1
    count = _gather(s, part, least)
    for i in range(count):
        n = s.candidates[i]
        s.room[n] = s.nodes[n].free
    return count


@inner
def _gather(s: State, part: PartitionRow, least: Int) -> Any:
    """Fill candidates with the nodes that have at least `least` free devices, in order; returns their number."""
    count = 0
    for block in range((part.words + 63) // 64):
        words = index_word(s.free_index, part, least, part.words + block)  # of the summary: the words that are not empty
        while words != NO_DEVICES:
            word = (block << 6) + trailing_zeros(words)
            found = index_word(s.free_index, part, least, word)
            while found != NO_DEVICES:
                s.candidates[count] = part.node_lo + (word << 6) + trailing_zeros(found)
                count += 1
                found &= found - np.uint64(1)
            words &= words - np.uint64(1)
    return count


@inner
def _find_whole_by_own(s: State, part: PartitionRow, j: Int, slot: SlotRow) -> Any:
    """The node to which a user's placement gives a plain gang that some node can take whole: rooms are not asked for again."""
    gpus = int(s.rows[j].gpus)
    count = _gather(s, part, gpus)
    best = 0
    if count > 1:
        at = params_at(s.control[0].active, PLACEMENT)
        status = call_scores(slot.placement, s, s.candidates, s.score, count, j, s.params, at)
        best = _lowest_number(s, count)
        if status != 0 or best < 0:
            return BAD_SCORE
    s.pick_node[0] = s.candidates[best]
    s.pick_units[0] = gpus
    return 1


@inner
def _lowest_number(s: State, count: Int) -> Any:
    """The first of the lowest scores, or -1 if one of them is NaN."""
    best = 0
    lowest = s.score[0]
    if lowest != lowest:
        return -1
    for i in range(1, count):
        score = s.score[i]
        if not score >= lowest:  # also true of NaN
            if score != score:
                return -1
            lowest = score
            best = i
    return best
