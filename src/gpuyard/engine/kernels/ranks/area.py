"""Ranks: how long a job is judged to hold devices before it ends, and the area and level that follow."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, call_keys, inner, params_at
from gpuyard.engine.kernels.ranks.network import judged_time
from gpuyard.engine.rows.ranking import AGEING_AT, BY_EITHER, BY_ESTIMATE, RANK_TABLE, STRETCH_AT, TABLE_HEAD, TRUST_AT
from gpuyard.model.rules import MAY_STOP, MAY_STOP_ONCE

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.state import JobRow, SlotRow, State

LOWEST, HIGHEST = -5000, 5000  # levels of areas that are not positive, and of infinite ones
MOST_HALVINGS = 60
HOUR = 3600.0  # s


@inner
def may_be_stopped(s: State, row: JobRow) -> Any:
    """Whether a job says that it may be stopped, as often as it has been already."""
    stops = s.terms[row.terms].stops
    return stops == MAY_STOP or (stops == MAY_STOP_ONCE and row.preemptions == 0)


@inner
def gittins_time(table: Reals, first: Int, count: Int, age: Real, known: Real) -> Any:
    """Return 1 / Gittins index (s) of a job with `age` s of work behind it that takes longer than `known` s.

    The `count` quantiles of its class are in `table` from place `first` on.

    It is the least expected time per completion: with the quantiles x of the class beyond what is known, the minimum over k of the mean
    of min(x, x_k) − age over the share up to x_k. Beyond the last quantile a job is taken to need as long again as it is known to.
    """
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
def class_of(s: State, slot: SlotRow, row: JobRow) -> Any:
    """Return where the quantiles of a job's class begin in the tables, and how many there are.

    Classes go by the requested time, where the table says so and the job has one, or by the estimate.
    """
    table, at = s.rank_table, slot.table
    asked = s.table[row.number].walltime
    key = asked if table[at] != BY_ESTIMATE and asked < math.inf else row.estimate
    classes, count = int(table[at + 1]), int(table[at + 2])
    if table[at] == BY_EITHER and asked == math.inf:
        at += TABLE_HEAD + classes - 1 + classes * count
        classes, count = int(table[at + 1]), int(table[at + 2])
    lo = at + TABLE_HEAD
    kind = 0
    while kind < classes - 1 and table[lo + kind] <= key:
        kind += 1
    return lo + classes - 1 + kind * count, count


@inner
def is_doubted(s: State) -> Any:
    """Whether estimates have told so much more about run times than the table that jobs are judged by them."""
    control = s.control[0]
    return control.misfit > s.params[params_at(control.active, PREEMPTION) + TRUST_AT]


@inner
def quantiles_of(s: State, slot: SlotRow, row: JobRow) -> Any:
    """Return where the quantiles begin by which a job is judged, and how many there are: those of its class, or its estimate alone."""
    if not is_doubted(s):
        return class_of(s, slot, row)
    place = len(s.rank_table) - 1
    s.rank_table[place] = max(row.estimate, 1.0)
    return place, 1


@inner
def time_by_table(s: State, slot: SlotRow, row: JobRow, age: Real) -> Any:
    """Return the time (s) by which the table judges a job of an age: all that is known of it is that it takes longer than ever seen."""
    first, count = quantiles_of(s, slot, row)
    return gittins_time(s.rank_table, first, count, age, max(age, row.reached))


@inner
def waiting_time(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the time (s) by which the rule judges a job that waits and may be stopped; NaN: the rule failed."""
    row = s.rows[j]
    if slot.rank >= RANK_TABLE:
        return judged_time(s, slot, j, time_by_table(s, slot, row, row.done))
    control = s.control[0]
    s.candidates[0] = j
    if call_keys(slot.preemption, s, s.candidates, s.score, 0, 1, control.now, s.params, params_at(control.active, PREEMPTION)) != 0:
        return np.nan
    return s.score[0]


@inner
def waiting_area(s: State, slot: SlotRow, j: Int) -> Any:
    """Return the area of a waiting job: by its estimate if it may not be stopped, else by the rule; NaN: the rule failed."""
    row = s.rows[j]
    gpus = row.gpus * credit_of(s, row, s.control[0].now)
    if not may_be_stopped(s, row):
        return row.estimate * gpus
    time = waiting_time(s, slot, j)
    return (time + (s.terms[row.terms].restart if row.preemptions > 0 else 0.0)) * gpus


@inner
def level_of(area: Real) -> Any:
    """Return ⌊log₂ area⌋."""
    if not area > 0:
        return LOWEST
    if area == math.inf:
        return HIGHEST
    return math.frexp(area)[1] - 1


# ── ageing ──


@inner
def _period_of(s: State, row: JobRow) -> Any:
    """Return the time (s) of waiting after which a job counts for half as much; inf: it does not age."""
    at = params_at(s.control[0].active, PREEMPTION)
    hours = s.params[at + AGEING_AT]
    if hours <= 0 or s.control[0].stoppable == 0 or is_doubted(s):
        return math.inf
    return max(hours * HOUR, s.params[at + STRETCH_AT] * row.estimate)


@inner
def _halvings(row: JobRow, until: Real, period: Real) -> Any:
    return min(max(math.floor((until - row.submit - row.ran) / period), 0.0), float(MOST_HALVINGS))


@inner
def credit_of(s: State, row: JobRow, until: Real) -> Any:
    """Return the factor by which a job counts less for what it has waited up to some time."""
    period = _period_of(s, row)
    return 1.0 if period == math.inf else 2.0 ** -_halvings(row, until, period)


@inner
def next_halving(s: State, row: JobRow) -> Any:
    """Return a time up to which a waiting job's credit does not change, short of it by as much as could be a matter of rounding."""
    period = _period_of(s, row)
    halvings = _halvings(row, s.control[0].now, period)
    if period == math.inf or halvings >= MOST_HALVINGS:
        return math.inf
    return row.submit + row.ran + (halvings + 1.0 - 1e-6) * period
