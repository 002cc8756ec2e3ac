"""Ranks: how long a job is judged to hold devices before it ends, and the area and level that follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, call_keys, inner, params_at
from gpuyard.engine.kernels.ranks.network import judged_time
from gpuyard.engine.ranking import RANK_TABLE, TABLE_HEAD
from gpuyard.model.rules import MAY_STOP

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.state import JobRow, SlotRow, State

LOWEST, HIGHEST = -5000, 5000  # levels of areas that are not positive, and of infinite ones


@inner
def gittins_time(table: Reals, at: Int, key: Real, age: Real, known: Real) -> Any:
    """Return 1 / Gittins index (s) of a job of the class of `key`, with `age` s of work behind it, that takes longer than `known` s.

    It is the least expected time per completion: with the quantiles x of the class beyond what is known, the minimum over k of the mean
    of min(x, x_k) − age over the share up to x_k. Beyond the last quantile a job is taken to need as long again as it is known to.
    """
    classes, count = int(table[at + 1]), int(table[at + 2])
    lo = at + TABLE_HEAD
    kind = 0
    while kind < classes - 1 and table[lo + kind] <= key:
        kind += 1
    first = lo + classes - 1 + kind * count
    if known >= table[first + count - 1]:
        return 2.0 * known - age
    begin = 0
    while table[first + begin] <= known:
        begin += 1
    best: Real = math.inf
    total: Real = 0.0
    for k in range(begin, count):
        left = table[first + k] - age
        total += left
        best = min(best, (total + (count - 1 - k) * left) / (k - begin + 1))
    return best


@inner
def class_key(s: State, slot: SlotRow, row: JobRow) -> Any:
    """Return the key of a job's class: the requested time, where the table goes by it and the job has one, or the estimate."""
    asked = s.table[row.number].walltime
    return asked if s.rank_table[slot.table] > 0 and asked < math.inf else row.estimate


@inner
def table_time(s: State, slot: SlotRow, row: JobRow, age: Real) -> Any:
    """Return the time (s) by which the slot's table judges a job with `age` s of work behind it."""
    return gittins_time(s.rank_table, slot.table, class_key(s, slot, row), age, max(age, row.reached))


@inner
def waiting_time(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the time (s) by which the rule judges a job that waits and may be stopped; NaN: the rule failed."""
    row = s.rows[j]
    if slot.rank >= RANK_TABLE:
        return judged_time(s, slot, j, table_time(s, slot, row, row.done))
    control = s.control[0]
    s.candidates[0] = j
    if call_keys(slot.preemption, s, s.candidates, s.score, 0, 1, control.now, s.params, params_at(control.active, PREEMPTION)) != 0:
        return np.nan
    return s.score[0]


@inner
def waiting_area(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the area of a waiting job: by its estimate if it may not be stopped, else by the rule; NaN: the rule failed."""
    row = s.rows[j]
    terms = s.terms[row.terms]
    if terms.stops != MAY_STOP:
        return row.estimate * row.gpus
    time = waiting_time(s, slot, j)
    return (time + (terms.restart if row.preemptions > 0 else 0.0)) * row.gpus


@inner
def level_of(area: Real) -> Any:
    """Return ⌊log₂ area⌋."""
    if not area > 0:
        return LOWEST
    if area == math.inf:
        return HIGHEST
    return math.frexp(area)[1] - 1
