"""The order of a rank pass: waiting jobs, which the queue has in order already, merged with the running ones that may be stopped."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from gpuyard.engine.compiler.jit import PREEMPTION, call_keys, inner, params_at
from gpuyard.engine.kernels.queue import before
from gpuyard.engine.kernels.ranks.area import (
    HIGHEST,
    LOWEST,
    credit_of,
    level_of,
    may_be_stopped,
    quantiles_of,
    time_by_table,
)  # fmt: skip
from gpuyard.engine.kernels.ranks.network import judged_time
from gpuyard.engine.kernels.ranks.terms import is_burdened, kept_of, terms_at
from gpuyard.engine.kernels.runs import BAD_KEY, factor_held, overhead_of
from gpuyard.engine.rows.ranking import HYSTERESIS_AT, RANK_TABLE, WIDTH_AT
from gpuyard.model.rules import MAY_STOP_ONCE, ONCE_WITHIN

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Reals
    from gpuyard.engine.rows.ranking import RankedRow
    from gpuyard.engine.state import JobRow, PartitionRow, SlotRow, State

WAITS, RUNS, ASIDE, STOPPED, STARTS, FIXED = range(6)  # what the plan has in store for an entry


@inner
def order_entries(s: State, p: Int, slot: SlotRow) -> Any:
    """Fill s.ranked with the jobs of a partition in order; returns how many there are, or a failure.

    Jobs that could not fit if all behind them were stopped are left out, but for the first of them.
    """
    part = s.partitions[p]
    first = part.tail - part.head  # behind the places that the waiting jobs may need
    runners = _gather_runners(s, part, slot, first)
    if runners < 0:
        return runners
    _sort_runners(s, first, runners)
    return _merge(s, part, first, runners)


@inner
def _gather_runners(s: State, part: PartitionRow, slot: SlotRow, first: Int) -> Any:
    """Put the running jobs that may be stopped now into s.ranked, from place `first` on; returns how many there are, or a failure."""
    control = s.control[0]
    at = params_at(control.active, PREEMPTION)
    lo = part.first_run
    part.calm = math.inf if slot.rank == RANK_TABLE else control.now
    if is_burdened(s):
        return 0
    if slot.rank < RANK_TABLE:
        if call_keys(slot.preemption, s, s.running_jobs, s.score, lo, part.running, control.now, s.params, at) != 0:
            return BAD_KEY
    count = 0
    for i in range(lo, lo + part.running):
        j = np.int64(s.running_jobs[i])
        row = s.rows[j]
        s.rank_calm[j] = -math.inf
        if not may_be_stopped(s, row) or row.silent == 1:
            continue
        if row.run_start == control.now:  # it has begun in an earlier pass of this instant, and competes from the next on
            part.calm = control.now
            continue
        if s.terms[row.terms].stops == MAY_STOP_ONCE:
            if control.now - row.run_start > ONCE_WITHIN:
                continue
            part.calm = min(part.calm, row.run_start + ONCE_WITHIN - 1e-6)
        if row.barren > 0 and control.now - row.run_start < _shield_of(s, row):
            part.calm = min(part.calm, row.run_start + _shield_of(s, row) - 1e-6)
            continue
        if control.now >= s.rank_until[j]:
            given = s.score[i] if slot.rank < RANK_TABLE else 0.0
            if given != given:
                control.error_job = j
                return BAD_KEY
            weighed = _weigh(s, part, slot, j, given)
            s.rank_level[j] = weighed.level
            s.rank_until[j] = _stays_until(s, slot, j, weighed, weighed.level, weighed.level)
        s.rank_calm[j] = s.rank_until[j]
        _list_run(s, first + count, j)
        count += 1
    return count


@inner
def _list_run(s: State, place: Int, j: Int) -> None:
    """Write the entry of a running job that competes."""
    entry, row = s.ranked[place], s.rows[j]
    entry.key, entry.level, entry.job, entry.need = row.run_start, s.rank_level[j], j, math.ceil(row.gpus)
    entry.state, entry.running = RUNS, 1


@inner
def _shield_of(s: State, row: JobRow) -> Any:
    """Return how long (s) a run is protected after stops that kept too little."""
    return overhead_of(s, row, factor_held(s, row)) + 2.0**row.barren


@inner
def levels_stand(s: State, part: PartitionRow, slot: SlotRow) -> Any:
    """Whether the runs that compete are where they were in the order, as far as it matters, since the last pass did nothing.

    If it weighed stops, the runs must all be in their levels. If not, no job could start with as many stops as it liked: then a run may
    give way to fewer jobs than it did. But it may not go behind a job that waits, nor before the first, which has the reservation.
    """
    now = s.control[0].now
    if is_burdened(s):
        return True
    for i in range(part.first_run, part.first_run + part.running):
        j = np.int64(s.running_jobs[i])
        if now < s.rank_calm[j] or not _competes(s, s.rows[j]):
            continue
        was = s.rank_level[j]
        weighed = _weigh(s, part, slot, j, 0.0)
        low, high = was, was
        if part.weighed == 0:
            low, high = _limits(s, part, was)
        if not low <= weighed.level <= high:
            return False
        s.rank_calm[j] = _stays_until(s, slot, j, weighed, low, high)
    return True


@inner
def _limits(s: State, part: PartitionRow, level: Int) -> Any:
    """Return the lowest and the highest level of a run that was at `level` with which no job can start, if none could before."""
    first = level_of(s.queue_keys[part.head])
    low = first + 1 if level > first else LOWEST
    at = _first_from(s, part, 2.0**level) if LOWEST < level < HIGHEST else part.head
    return low, level_of(s.queue_keys[at]) if at < part.tail else HIGHEST


@inner
def _first_from(s: State, part: PartitionRow, area: Real) -> Any:
    """Return the position of the first job of the queue with at least that area."""
    first, behind = part.head, part.tail
    while first < behind:
        middle = (first + behind) // 2
        if s.queue_keys[middle] < area:
            first = middle + 1
        else:
            behind = middle
    return first


@inner
def quiet_until(s: State, part: PartitionRow) -> Any:
    """Return a time before which a pass would neither do anything nor work out a level again, if nothing happens."""
    if part.head == part.tail:
        return math.inf
    if part.settled == 0 or part.came > 0:
        return -math.inf
    time = part.calm
    if not is_burdened(s):
        for i in range(part.first_run, part.first_run + part.running):
            j = np.int64(s.running_jobs[i])
            if s.rank_calm[j] < time and _competes(s, s.rows[j]):
                time = s.rank_calm[j]
    return time


@inner
def _competes(s: State, row: JobRow) -> Any:
    """Whether a run that has not just begun may be stopped, as far as it does not change before `calm`."""
    if not may_be_stopped(s, row) or row.silent == 1:
        return False
    return row.barren == 0 or s.control[0].now - row.run_start >= _shield_of(s, row)


class Weighed(NamedTuple):
    """The level of a run as it is now, and what it was worked out from."""

    level: Int
    useful: Real  # s of the run that go into work
    age: Real  # s of work behind it
    lost: Real  # s of work that a stop would lose
    factor: Real  # on its time, for the area


@inner
def _weigh(s: State, part: PartitionRow, slot: SlotRow, j: Int, given: Real) -> Any:
    """Work out the level of a run, by the time that the rule has given or by the table."""
    control = s.control[0]
    row = s.rows[j]
    at = params_at(control.active, PREEMPTION)
    useful = max(control.now - row.run_start - overhead_of(s, row, factor_held(s, row)), 0.0)
    lost = (useful - kept_of(s, row, useful)) * row.rate
    restart = s.terms[row.terms].restart
    share = row.gpus / part.total if part.total > 0 else 0.0
    divisor = s.params[at + HYSTERESIS_AT] * (1.0 + s.params[at + WIDTH_AT] * share * share)
    age = row.done + useful * row.rate
    time = judged_time(s, slot, j, time_by_table(s, slot, row, age)) if slot.rank >= RANK_TABLE else given
    factor = row.gpus * credit_of(s, row, row.run_start) / divisor
    return Weighed(level_of(max(time - restart - lost, 0.01 * time) * factor), useful, age, lost, factor)


@inner
def _stays_until(s: State, slot: SlotRow, j: Int, weighed: Weighed, lowest: Int, highest: Int) -> Any:
    """Return a time up to which a run certainly stays within levels; now, if nothing is certain."""
    now = s.control[0].now
    row = s.rows[j]
    if slot.rank != RANK_TABLE or weighed.useful == 0 or not LOWEST < weighed.level < HIGHEST:
        return now
    low = 2.0**lowest / weighed.factor if lowest > LOWEST else 0.0
    high = 2.0 * 2.0**highest / weighed.factor if highest < HIGHEST else math.inf
    interval = s.terms[terms_at(s, row)].interval
    renewed = math.inf if interval == 0 or np.isinf(interval) else (interval - weighed.useful % interval) * row.rate
    first, quantiles = quantiles_of(s, slot, row)
    known = max(weighed.age, row.reached)
    work = steady_work(
        s.rank_table, first, quantiles, weighed.age, known, s.terms[row.terms].restart, weighed.lost, low, high, renewed
    )  # fmt: skip
    return now + work / row.rate * (1.0 - 1e-9) - 1e-6


@inner
def steady_work(
    table: Reals, first: Int, count: Int, age: Real, known: Real, restart: Real, lost: Real, low: Real, high: Real, renewed: Real
) -> Any:
    """Return the work (s) for which max(T − restart − lost, T / 100) certainly stays from `low` up to `high`; 0: nothing is certain.

    T falls between two quantiles, and so does what is left after the loss, which grows until the next checkpoint, `renewed` s away.
    From 0 on nothing is too low.
    """
    if low == 0 and high == math.inf:
        return math.inf
    if known >= table[first + count - 1]:  # T is the age, and grows
        return max(high + restart - age, 0.0) if age >= known else 0.0
    begin = 0
    while table[first + begin] <= known:
        begin += 1
    beyond = count - begin
    least: Real = math.inf
    total: Real = 0.0
    fall: Real = math.inf
    floor: Real = math.inf
    dearth = restart + lost + low
    for k in range(begin, count):
        left = table[first + k] - age
        total += left
        ended = k - begin + 1
        time = total + (count - 1 - k) * left  # × those that end
        least = min(least, time / ended)
        fall = min(fall, (time - dearth * ended) / (beyond + ended))  # T falls by `beyond` / `ended` for each second of work
        floor = min(floor, time - 100.0 * low * ended)
    steady = table[first + begin] - age
    if low > 0:
        steady = min(steady, max(fall, floor / beyond, 0.0))
    return steady if least - restart < high else min(steady, renewed)


@inner
def _goes_before(a: RankedRow, b: RankedRow) -> Any:
    """Whether the run of entry a goes before that of entry b: by level, start, index."""
    if a.level != b.level:
        return a.level < b.level
    return before(a.key, a.job, b.key, b.job)


@inner
def _sort_runners(s: State, first: Int, count: Int) -> None:
    """Sort the running jobs, which come in the order of their estimated ends, by Shell's sort."""
    gap = 1
    while gap < count // 3:
        gap = 3 * gap + 1
    while gap > 0:
        for i in range(first + gap, first + count):
            k = i
            while k >= first + gap and _goes_before(s.ranked[k], s.ranked[k - gap]):
                _swap(s, k, k - gap)
                k -= gap
        gap //= 3


@inner
def _swap(s: State, a: Int, b: Int) -> None:
    x, y = s.ranked[a], s.ranked[b]
    x.key, y.key = y.key, x.key
    x.level, y.level = y.level, x.level
    x.job, y.job = y.job, x.job
    x.need, y.need = y.need, x.need


@inner
def _merge(s: State, part: PartitionRow, first: Int, runners: Int) -> Any:
    """Merge the queue with the running jobs, which stand from place `first` on; returns how many entries there are.

    A job that waits needs no more than what is free and what all runs could free that are behind the first that waits.
    """
    at, tail = part.head, part.tail
    limit = _most_room(s, part, first, runners)
    count, last, lacking = 0, -1, False
    for k in range(first, first + runners + 1):
        edge = _least_area(s.ranked[k].level) if k < first + runners else math.inf
        while at < tail and (s.queue_keys[at] < edge or k == first + runners):  # within a level running ones go first
            need = int(s.queue_need[at]) if part.sifted == 1 else int(s.rows[s.queue_jobs[at]].gpus)  # 0 for a share
            if need <= limit or not lacking:
                lacking = lacking or need > limit
                entry = s.ranked[count]
                entry.key, entry.job, entry.need, entry.state = s.queue_keys[at], s.queue_jobs[at], need, WAITS
                entry.running, entry.cause, entry.alloc, entry.earlier, entry.later = 0, 0, -1, -1, -1
                count += 1
            at += 1
        if k < first + runners:
            entry = s.ranked[count]
            _copy(s.ranked[k], entry)
            entry.cause, entry.alloc, entry.earlier, entry.later = 0, -1, last, -1
            if last >= 0:
                s.ranked[last].later = count
            last = count
            count += 1
    part.last_ranked = last
    return count


@inner
def _most_room(s: State, part: PartitionRow, first: Int, runners: Int) -> Any:
    """Return the devices that could be free if all runs were stopped that are behind the first job of the queue."""
    area = s.queue_keys[part.head]
    room = part.free
    for k in range(first + runners - 1, first - 1, -1):
        if not area < _least_area(s.ranked[k].level):
            break
        room += s.ranked[k].need
    return room


@inner
def _least_area(level: Int) -> Any:
    """Return the area from which on a job is of that level or a higher one."""
    if not LOWEST < level < HIGHEST:
        return math.inf if level >= HIGHEST else -math.inf
    return 2.0**level


@inner
def _copy(a: RankedRow, b: RankedRow) -> None:
    b.key, b.level, b.job, b.state, b.running, b.need = a.key, a.level, a.job, a.state, a.running, a.need


@inner
def expected_end(end: Real, now: Real) -> Any:
    """Return an estimated end that lies ahead."""
    return end if end > now else now + 1.0
