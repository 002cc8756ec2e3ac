"""Features for a learned rank: the jobs that may be stopped, waiting or running, and the partition that they compete for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.accounts import UNITS
from gpuyard.engine.kernels.ranks.area import may_be_stopped, time_by_table
from gpuyard.engine.kernels.ranks.terms import kept_of
from gpuyard.engine.kernels.runs import factor_held, overhead_of
from gpuyard.engine.state import RUNNING
from gpuyard.features.jobs import JOB, advance_recent
from gpuyard.features.numbers import COUNT, TIME, log, share
from gpuyard.features.schema import Schema

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Real
    from gpuyard.engine.state import JobRow, SlotRow, State

RANK = Schema(
    "rank",
    1,
    rows=(
        "time",  # log2 of the seconds by which the table judges it
        "estimate",  # log2 of s
        "requested",  # log2 of the s requested; of the estimate where none are
        "gpus",  # log2, over that of the partition
        "attained",  # log2 of the s of work behind it
        "wait",  # log2 of the s since submit that it did not run
        "running",  # 1: it runs
        "elapsed",  # log2 of the s of this run
        "unsaved",  # log2 of the s of work since the last checkpoint, which a stop would lose
        "restart",  # log2 of the s that a start after a stop takes
        "stops",  # log2 of the times that it was stopped
        "user_usage",  # the user's part of all users' recent usage
        "user_held",  # GPUs that the user holds now, share of the partition's
    ),
    context=(
        *JOB.context[:5],  # as an ordering sees them
        "size",  # log2 of the partition's GPUs
        "stoppable",  # share of the partition's GPUs on which jobs run that may be stopped
    ),
)
ROWS = len(RANK.rows)


@inner
def rank_row(s: State, slot: SlotRow, row: JobRow, out: Array, at: Int, stride: Int) -> None:
    """Write the features of one job into out[at], out[at + stride] …"""
    now, total = s.control[0].now, s.partitions[row.partition].total
    given, runs = s.table[row.number], row.status == RUNNING
    elapsed, useful, unsaved = 0.0, 0.0, 0.0
    if runs:
        elapsed = now - row.run_start
        useful = max(elapsed - overhead_of(s, row, factor_held(s, row)), 0.0)
        unsaved = (useful - kept_of(s, row, useful)) * row.rate
        useful *= row.rate
    user = s.users[given.user]
    out[at] = log(max(time_by_table(s, slot, row, row.done + useful), 0.0)) * np.float32(TIME)
    out[at + stride] = log(row.estimate) * np.float32(TIME)
    out[at + 2 * stride] = log(given.walltime if given.walltime < np.inf else row.estimate) * np.float32(TIME)
    out[at + 3 * stride] = log(row.gpus) / max(log(float(total)), np.float32(1.0))
    out[at + 4 * stride] = log(row.done + useful) * np.float32(TIME)
    out[at + 5 * stride] = log(max(now - row.submit - row.ran - elapsed, 0.0)) * np.float32(TIME)
    out[at + 6 * stride] = np.float32(1.0) if runs else np.float32(0.0)
    out[at + 7 * stride] = log(elapsed) * np.float32(TIME)
    out[at + 8 * stride] = log(max(unsaved, 0.0)) * np.float32(TIME)
    out[at + 9 * stride] = log(s.terms[row.terms].restart) * np.float32(TIME)
    out[at + 10 * stride] = log(float(row.preemptions)) * np.float32(COUNT)
    out[at + 11 * stride] = np.float32(user.part)
    out[at + 12 * stride] = share(user.held / UNITS, float(total))


@inner
def rank_context(s: State, p: Int, out: Array, at: Int) -> None:
    """Write the context of partition p."""
    part, control = s.partitions[p], s.control[0]
    advance_recent(s)
    total = float(part.total)
    out[at] = share(float(part.free), total)
    out[at + 1] = log(float(part.tail - part.head)) * np.float32(COUNT)
    out[at + 2] = log(part.work / max(total, 1.0)) * np.float32(TIME)
    out[at + 3] = log(float(control.running)) * np.float32(COUNT)
    out[at + 4] = log(float(control.next_job - control.recent_job)) * np.float32(COUNT)
    out[at + 5] = log(total) * np.float32(COUNT)
    out[at + 6] = share(_stoppable(s, p), total)


@inner
def _stoppable(s: State, p: Int) -> Real:
    """Return the GPUs on which jobs run that may be stopped."""
    part, found = s.partitions[p], 0.0
    for i in range(part.first_run, part.first_run + part.running):
        row = s.rows[s.running_jobs[i]]
        if may_be_stopped(s, row):
            found += row.gpus
    return found
