"""Accounts: recent usage by user, GPU-seconds that decay with a half-life; their last run times; what has ended; and the timeline."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.rows.sums import MOST_SLOWDOWN, MOST_WAIT, SHORT
from gpuyard.engine.state import BINS
from gpuyard.model.estimator import FIRST_GUESS, SHORTEST

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, PartRow, State

UNITS = 1048576.0  # of a GPU, in which held GPUs are counted: whole numbers add up to the same in any order, and back to 0
LN2 = math.log(2.0)


@inner
def age_usage(s: State) -> None:
    """Bring all accounts up to now. This is exact after any time: what a user holds has not changed since the last call."""
    control = s.control[0]
    passed = control.now - control.usage_at
    if passed > 0:
        mean_life = control.half_life / LN2
        lost = math.expm1(-passed / mean_life)
        for u in range(len(s.users)):
            line = s.users[u]
            line.usage += lost * (line.usage - line.held / UNITS * mean_life)
    control.usage_at = control.now


@inner
def charge(s: State, row: JobRow, sign: Real) -> None:
    """Let the user of a job hold its GPUs from now on (sign 1), or stop holding them (-1)."""
    age_usage(s)
    s.users[s.table[row.number].user].held += sign * np.floor(row.gpus * UNITS + 0.5)


@inner
def share_usage(s: State) -> Any:
    """Work out the users' shares of all usage, which hold for the whole instant; returns all usage."""
    age_usage(s)
    total = 0.0
    for u in range(len(s.users)):
        total += s.users[u].usage
    for u in range(len(s.users)):
        s.users[u].part = s.users[u].usage / total if total > 0 else 0.0
    return total


@inner
def show_usage(s: State) -> None:
    """Set `usage` of the waiting and the running jobs to their users' shares of all usage."""
    share_usage(s)
    if len(s.factors) == 0:
        return
    for i in range(s.control[0].heap):
        j = s.ends[i]
        s.factors[j].usage = s.users[s.table[j].user].part
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            j = s.queue_jobs[i]
            s.factors[j].usage = s.users[s.table[j].user].part


# ── estimates that are made when a job is submitted: the mean of the user's last run times that have ended in this simulation ──


@inner
def observe(s: State, j: Int, overhead: Real) -> None:
    """Take note of the work of job j, whose last run, with so many seconds of overhead, ends now."""
    control = s.control[0]
    row = s.rows[j]
    if row.overrun == 1:
        row.done += max(control.now - row.run_start - overhead, 0.0) * row.rate
    else:
        row.done = row.runtime
    if control.rolling > 0:
        _remember(s, row)


@inner
def _remember(s: State, row: JobRow) -> None:
    control = s.control[0]
    control.observed += row.done
    control.observed_jobs += 1
    at = np.int64(s.table[row.number].user) * (1 + control.rolling)
    count = int(s.recent_work[at])
    if count < control.rolling:
        count += 1
        s.recent_work[at] = count
    else:
        for i in range(at + 1, at + count):
            s.recent_work[i] = s.recent_work[i + 1]
    s.recent_work[at + count] = row.done


@inner
def estimate(s: State, j: Int) -> None:
    """Estimate job j, which is submitted now."""
    control = s.control[0]
    row, walltime = s.rows[j], s.table[j].walltime
    at = np.int64(s.table[j].user) * (1 + control.rolling)
    count = int(s.recent_work[at])
    value = walltime
    if count > 0:
        total = 0.0
        for i in range(at + 1, at + count + 1):
            total += s.recent_work[i]
        value = total / count
    elif value == np.inf:
        value = control.observed / control.observed_jobs if control.observed_jobs > 0 else FIRST_GUESS
    row.estimate = max(min(value, walltime), SHORTEST)
    row.remaining = row.estimate


@inner
def note_service(s: State, row: JobRow, ran: Real) -> None:
    """Show policies that read it the GPU-seconds of a job that has run for so long."""
    if len(s.factors) > 0:
        s.factors[row.number].attained = ran * row.gpus


# ── what has ended: results, sums for rewards, segments ──


@inner
def write_result(s: State, j: Int) -> None:
    """Write what is known about a job that was submitted, except for its end."""
    row = s.rows[j]
    line = s.result[j]
    line.start = row.start if row.start >= 0 else np.nan
    line.end = np.nan
    line.ran = row.ran
    line.gpu_seconds = row.ran * row.gpus
    line.preemptions = row.preemptions
    line.status = row.status


@inner
def tally_end(s: State, row: JobRow) -> None:
    """Add a job that has ended to the sums for rewards; the terms are those of the metrics of the same names."""
    sums = s.tally[0]
    end = s.control[0].now
    turnaround = end - row.submit
    alone = min(row.runtime, row.ran) if row.overrun == 1 else row.runtime
    zero = 1.0 if alone == 0 else 0.0
    slowdown = (turnaround + zero) / (alone + zero)
    wait = row.start - row.submit
    sums.ended += 1.0
    sums.slowdown += slowdown
    sums.capped_slowdown += min(slowdown, MOST_SLOWDOWN) / MOST_SLOWDOWN
    sums.bsld += max(turnaround / max(alone, SHORT), 1.0)
    late = end > row.deadline or row.overrun == 1
    sums.missed += 1.0 if late and row.deadline < np.inf else 0.0
    sums.wait += wait
    sums.capped_wait += min(wait, MOST_WAIT) / MOST_WAIT
    sums.turnaround += turnaround


@inner
def log_segment(s: State, j: Int, piece: PartRow, number: Int, amount: Real, begin: Real) -> None:
    """Write down what a run that ends now held on one node."""
    control = s.control[0]
    line = s.log[control.log]
    line.job = s.table[j].index
    line.node = number
    line.gpus = amount
    line.devices = piece.mask
    line.start = begin
    line.end = control.now
    control.log += 1


# ── the timeline: time integrals in bins whose width doubles when they are used up ──


@inner
def tick(s: State, until: Real) -> None:
    """Account for the time from the last tick until `until`, in which nothing changed."""
    control = s.control[0]
    at: Real = control.last_tick
    if control.tallying == 1 and until > at:
        sums = s.tally[0]
        sums.queue_time += (until - at) * control.waiting
        sums.busy_time += (until - at) * control.busy
        sums.gpu_seconds += (until - at) * control.up
        free = (until - at) * (control.up - control.busy)
        if control.next_job < len(s.table) or s.table[0].submit == s.table[len(s.table) - 1].submit:
            sums.idle_time += free
        if control.waiting > 0:
            sums.stranded_time += free
        sums.energy += (until - at) * power(s)
    if control.timeline == 0:
        control.last_tick = max(at, until)
        return
    if at < until:
        _fill_bins(s, at, until)
    control.last_tick = max(at, until)


@inner
def _fill_bins(s: State, at: Real, until: Real) -> None:
    """Add what holds from `at` until `until` to the bins of the timeline. A short run spends most of its time here."""
    control = s.control[0]
    waiting, busy, up = float(control.waiting), control.busy, control.up
    origin, width, used = control.bin_origin, control.bin_width, control.bins
    b = _bin_of(at, origin, width)
    while at < until:
        if b >= BINS:
            _double(s)
            width, used = 2.0 * width, used // 2
            b = _bin_of(at, origin, width)
            continue
        line = s.bins[b]
        if b >= used:  # time leaves no bin out, so that those behind need not hold zeros
            line.span, line.queue, line.busy, line.up, line.queue_max = 0.0, 0.0, 0.0, 0.0, 0.0
            used = b + 1
        to = min(until, origin + (b + 1) * width)
        line.span += to - at
        line.queue += (to - at) * waiting
        line.busy += (to - at) * busy
        line.up += (to - at) * up
        line.queue_max = max(line.queue_max, waiting)
        at = to
        b += 1
    control.bin_width, control.bins = width, used


@inner
def _bin_of(at: Real, origin: Real, width: Real) -> Any:
    """Return the bin that holds the instant `at`."""
    b = int((at - origin) / width)
    return b + 1 if origin + (b + 1) * width <= at else b  # the quotient may be rounded down across an edge


@inner
def power(s: State) -> Any:
    """Watts of all devices in order now."""
    watts = 0.0
    for t in range(len(s.types)):
        kind = s.types[t]
        watts += kind.up * kind.idle_watts + kind.held * (kind.busy_watts - kind.idle_watts)
    return watts


@inner
def _double(s: State) -> None:
    """Merge all bins in pairs."""
    for i in range(BINS // 2):
        a, b, to = s.bins[2 * i], s.bins[2 * i + 1], s.bins[i]
        span, queue, busy, up = a.span + b.span, a.queue + b.queue, a.busy + b.busy, a.up + b.up
        highest = max(a.queue_max, b.queue_max)
        to.span, to.queue, to.busy, to.up, to.queue_max = span, queue, busy, up, highest


@inner
def write_timeline(s: State) -> None:
    """Show the integrals of the bins in use as means."""
    control = s.control[0]
    for b in range(control.bins):
        line, row = s.bins[b], s.timeline[b]
        span = line.span if line.span > 0 else 1.0
        row.time = control.bin_origin + control.bin_width * b
        row.span, row.queue_max = line.span, line.queue_max
        row.queue, row.busy, row.up = line.queue / span, line.busy / span, line.up / span
