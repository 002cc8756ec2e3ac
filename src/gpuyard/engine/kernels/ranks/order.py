"""The order of a rank pass: waiting jobs, which the queue has in order already, merged with the running ones that may be stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, call_keys, inner, params_at
from gpuyard.engine.kernels.queue import before
from gpuyard.engine.kernels.ranks.area import LOWEST, level_of, table_time
from gpuyard.engine.kernels.ranks.network import judged_time
from gpuyard.engine.kernels.runs import BAD_KEY, factor_held, kept_of, overhead_of
from gpuyard.engine.ranking import HYSTERESIS_AT, RANK_TABLE
from gpuyard.model.rules import MAY_STOP

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.ranking import RankedRow
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State

WAITS, RUNS, ASIDE, STOPPED, STARTS, FIXED = range(6)  # what the plan has in store for an entry


@inner
def order_entries(s: State, p: Int, slot: SlotRow) -> Any:
    """Fill s.ranked with the jobs of a partition in order; returns how many there are, or a failure."""
    part = s.partitions[p]
    waiting = part.tail - part.head
    runners = _gather_runners(s, part, slot)
    if runners < 0:
        return runners
    _sort_runners(s, runners)
    _merge(s, part, waiting, runners)
    return waiting + runners


@inner
def _gather_runners(s: State, part: PartitionRow, slot: SlotRow) -> Any:
    """Put the running jobs that may be stopped now into s.ranked; returns how many there are, or a failure."""
    control = s.control[0]
    at = params_at(control.active, PREEMPTION)
    lo = part.first_run
    if slot.rank < RANK_TABLE:
        if call_keys(slot.preemption, s, s.running_jobs, s.score, lo, part.running, control.now, s.params, at) != 0:
            return BAD_KEY
    count = 0
    for i in range(lo, lo + part.running):
        j = np.int64(s.running_jobs[i])
        row = s.rows[j]
        if s.terms[row.terms].stops != MAY_STOP or row.run_start == control.now:
            continue
        overhead = overhead_of(s, row, factor_held(s, row))
        elapsed = control.now - row.run_start
        if row.barren > 0 and elapsed < overhead + 2.0**row.barren:
            continue
        useful = max(elapsed - overhead, 0.0)
        if slot.rank >= RANK_TABLE:
            time = judged_time(s, slot, j, table_time(s, slot, row, row.done + useful * row.rate))
        else:
            time = s.score[i]
        if time != time:
            control.error_job = j
            return BAD_KEY
        entry = s.ranked[count]
        entry.area = _running_area(s, row, time, useful, s.params[at + HYSTERESIS_AT])
        entry.level = level_of(entry.area)
        entry.job = j
        entry.state = RUNS
        entry.running = 1
        count += 1
    return count


@inner
def _running_area(s: State, row: JobRow, time: Real, useful: Real, hysteresis: Real) -> Any:
    """Return the area of a running job: what a stop would cost counts for it, and so does that it runs."""
    lost = (useful - kept_of(s, row, useful)) * row.rate
    return max(time - s.terms[row.terms].restart - lost, 0.01 * time) / hysteresis * row.gpus


@inner
def _goes_before(a: RankedRow, b: RankedRow) -> Any:
    """Whether entry a goes before entry b: by level, running first, area, index."""
    if a.level != b.level:
        return a.level < b.level
    if a.running != b.running:
        return a.running > b.running
    return before(a.area, a.job, b.area, b.job)


@inner
def _sort_runners(s: State, count: Int) -> None:
    """Sort the running jobs, which come in the order of their estimated ends, by Shell's sort."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(gap, count):
            k = i
            while k >= gap and _goes_before(s.ranked[k], s.ranked[k - gap]):
                _swap(s, k, k - gap)
                k -= gap
        gap //= 3


@inner
def _swap(s: State, a: Int, b: Int) -> None:
    x, y = s.ranked[a], s.ranked[b]
    x.area, y.area = y.area, x.area
    x.level, y.level = y.level, x.level
    x.job, y.job = y.job, x.job


@inner
def _merge(s: State, part: PartitionRow, waiting: Int, runners: Int) -> None:
    """Merge the queue with the running jobs, which stand at the front of s.ranked, from the back: no entry is written before it is read."""
    k = waiting + runners - 1
    while k >= 0:
        entry = s.ranked[k]
        area, level = 0.0, LOWEST - 1
        if waiting > 0:
            area = s.queue_keys[part.head + waiting - 1]
            level = level_of(area)
        if runners > 0 and s.ranked[runners - 1].level > level:  # within a level running ones go first
            runners -= 1
            _copy(s.ranked[runners], entry)
        else:
            waiting -= 1
            entry.area, entry.level, entry.job = area, level, s.queue_jobs[part.head + waiting]
            entry.state, entry.running = WAITS, 0
        entry.cause, entry.alloc = 0, -1
        k -= 1


@inner
def _copy(a: RankedRow, b: RankedRow) -> None:
    b.area, b.level, b.job, b.state, b.running = a.area, a.level, a.job, a.state, a.running


@inner
def expected_end(end: Real, now: Real) -> Any:
    """Return an estimated end that lies ahead."""
    return end if end > now else now + 1.0
