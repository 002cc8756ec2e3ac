"""Terms of jobs: whether their runs write checkpoints; and what a job that ends tells about waits and run times."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, inner, params_at
from gpuyard.engine.kernels.ranks.area import class_of, is_doubted, level_of, may_be_stopped
from gpuyard.engine.rows.ranking import (
    BURDEN_AT,
    BURDEN_LEVELS,
    BURDEN_ROW,
    OCTAVES,
    ONLINE_AT,
    RANK_TABLE,
    RATIOS_AT,
    SLACK,
    TRUST_AT,
    WRITING_AT,
)

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, State

GOLDEN = 0.6180339887498949  # the places that multiples of it name are spread evenly
RATIO_FROM = -24  # the first octave of run times over estimates
SETTLING = 25.0  # jobs that count as if table and estimates had told as much about them


@inner
def terms_at(s: State, row: JobRow) -> Any:
    """Return the place of the terms that hold for a job's present or next run."""
    return row.terms + len(s.terms) // 2 if row.silent == 1 else row.terms


@inner
def kept_of(s: State, row: JobRow, useful: Real) -> Any:
    """Seconds that a run keeps of so many useful ones if it is stopped."""
    interval = s.terms[terms_at(s, row)].interval
    if interval == 0:
        return useful
    return 0.0 if np.isinf(interval) else np.floor(useful / interval) * interval


@inner
def begin_terms(s: State, row: JobRow) -> None:
    """Let a job that waits write checkpoints in its next run only if the active scheduler may stop it, where writing costs something."""
    slot = s.slots[s.control[0].active]
    never = s.control[0].external == 0 and slot.preemption == 0 and slot.rank == 0
    row.silent = 1 if never and may_be_silent(s, row) else 0


@inner
def may_be_silent(s: State, row: JobRow) -> Any:
    """Whether it makes a difference that a run writes no checkpoints."""
    return s.terms[row.terms].writing != s.terms[row.terms + len(s.terms) // 2].writing


@inner
def settle_writing(s: State, row: JobRow, pressure: Real) -> None:
    """Let a job that may be stopped write checkpoints in its next run if that is worth it, with so many jobs waiting for each device."""
    if not may_be_silent(s, row):
        return
    if is_doubted(s):
        row.silent = 1
        return
    share = s.params[params_at(s.control[0].active, PREEMPTION) + WRITING_AT]
    price = pressure * row.gpus  # jobs that wait for each second that the job holds its devices
    cost = (1.0 / s.terms[row.terms].writing - 1.0) * (1.0 + price)
    row.silent = 0 if share == math.inf or share * price > cost else 1


@inner
def share_burden(s: State, row: JobRow) -> None:
    """Add what a job that has ended waited to the account of its level, and see whether those that may be stopped wait too long."""
    control = s.control[0]
    delay = max(control.now - row.submit - min(row.runtime, row.ran), 0.0)
    at = min(max(level_of(row.estimate * row.gpus), 0), BURDEN_LEVELS - 1) * BURDEN_ROW
    stoppable = row.preemptions > 0 or may_be_stopped(s, row)  # who was stopped could be
    s.burden[at] += delay
    s.burden[at + 1] += 1.0
    if stoppable:
        s.burden[at + 2] += delay
        s.burden[at + 3] += 1.0
    theirs: Real = 0.0
    usual: Real = 0.0
    for k in range(0, BURDEN_LEVELS * BURDEN_ROW, BURDEN_ROW):
        if 0.0 < s.burden[k + 3] < s.burden[k + 1]:
            theirs += s.burden[k + 2]
            usual += s.burden[k] / s.burden[k + 1] * s.burden[k + 3]
    was = is_burdened(s)
    control.excess = (theirs - SLACK) / usual - 1.0 if usual > 0 else (math.inf if theirs > SLACK else 0.0)
    if is_burdened(s) != was:
        for p in range(len(s.partitions)):
            s.partitions[p].settled = 0


@inner
def test_table(s: State, row: JobRow) -> None:
    """Compare what the table gave for the run time of a job that is done with what estimates did, by their ratios so far."""
    control = s.control[0]
    slot = s.slots[control.active]
    if slot.rank < RANK_TABLE or row.overrun == 1 or s.params[params_at(control.active, PREEMPTION) + TRUST_AT] == math.inf:
        return
    first, count = class_of(s, slot, row)
    octave = _octave(row.runtime, 0)
    alike = 0
    for k in range(first, first + count):
        alike += 1 if _octave(s.rank_table[k], 0) == octave else 0
    at = RATIOS_AT + _octave(row.runtime / max(row.estimate, 1.0), RATIO_FROM) - RATIO_FROM
    by_table = (alike + 0.5) / (count + OCTAVES / 2)
    by_estimate = (s.burden[at] + 0.25) / (control.tested + OCTAVES / 4)
    s.burden[at] += 1.0
    was = is_doubted(s)
    control.tested += 1
    control.evidence += _bits(by_estimate) - _bits(by_table)
    control.misfit = control.evidence / (control.tested + SETTLING)
    if is_doubted(s) != was:
        _judge_again(s)


@inner
def _octave(x: Real, least: Int) -> Any:
    """Return ⌊log₂ x⌋, from `least` on, of OCTAVES."""
    return min(max(level_of(x), least), least + OCTAVES - 1)


@inner
def _bits(x: Real) -> Any:
    """Return log₂ x, with straight lines between powers of two: the same bytes everywhere."""
    mantissa, exponent = math.frexp(x)
    return exponent - 1 + (2.0 * mantissa - 1.0)


@inner
def _judge_again(s: State) -> None:
    """Let nothing count that was worked out from the table."""
    for j in range(s.control[0].next_job):
        s.rank_until[j] = -math.inf
    for p in range(len(s.partitions)):
        s.partitions[p].settled = 0
        s.partitions[p].ageing = 0.0


@inner
def learn_run_time(s: State, row: JobRow) -> None:
    """Let the run time of a job that is done take the place of a quantile of its class, if the table learns and it is its turn."""
    control = s.control[0]
    slot = s.slots[control.active]
    every = int(s.params[params_at(control.active, PREEMPTION) + ONLINE_AT])
    if slot.rank < RANK_TABLE or every == 0 or row.overrun == 1:
        return
    control.learned += 1
    if control.learned % every != 0:
        return
    first, count = class_of(s, slot, row)
    turn = control.learned // every * GOLDEN
    k = first + int((turn - math.floor(turn)) * count)
    while k + 1 < first + count and s.rank_table[k + 1] < row.runtime:
        s.rank_table[k] = s.rank_table[k + 1]
        k += 1
    while k > first and s.rank_table[k - 1] > row.runtime:
        s.rank_table[k] = s.rank_table[k - 1]
        k -= 1
    s.rank_table[k] = row.runtime
    _judge_again(s)


@inner
def is_burdened(s: State) -> Any:
    """Whether jobs that may be stopped have waited too much longer than others of their size, so that nobody is stopped."""
    control = s.control[0]
    return control.excess > s.params[params_at(control.active, PREEMPTION) + BURDEN_AT]
