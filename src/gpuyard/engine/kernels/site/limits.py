"""Limits of a site: what each group of jobs uses, and which waiting jobs would go beyond. These stay in the queue, benched."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.site.reasons import note_reason
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, State

OVER = 4  # in JobRow.benched: over a limit in all of its partitions
OVER_SUBMITTED = 7  # into gpuyard.model.result.REASONS


@inner
def asked_seconds(s: State, row: JobRow) -> Any:
    """GPU-seconds that a job asks for: to its walltime, or without one to its estimate."""
    walltime = s.table[row.number].walltime
    return row.gpus * (walltime if walltime < math.inf else row.estimate)


@inner
def _counts(s: State, k: Int, home: Int) -> Any:
    """Whether entry k of group_of names a group, and this counts in a partition."""
    return s.group_of[k] >= 0 and (s.groups[s.group_of[k]].home < 0 or s.groups[s.group_of[k]].home == home)


@inner
def over_limit(s: State, row: JobRow, home: Int) -> Any:
    """Return the number of the reason why a job may not start in a partition beside what runs; 0 if it may."""
    width = s.control[0].limits
    asked = asked_seconds(s, row)
    for k in range(row.number * width, (row.number + 1) * width):
        if not _counts(s, k, home):
            continue
        group = s.groups[s.group_of[k]]
        within = group.jobs + 1 <= group.most_jobs and group.gpus + row.gpus <= group.most_gpus + EPS
        promised = group.promised + asked
        if not within or promised > group.most_promised + EPS or group.spent + promised > group.most_seconds + EPS:
            return group.reason
    return 0


@inner
def charge_limits(s: State, row: JobRow, sign: Real, spent: Real) -> None:
    """Let a job that starts (1) or stops (-1) in its partition be counted, and the GPU-seconds that it has used."""
    width = s.control[0].limits
    home = -1 - row.plain if row.plain < 0 else row.partition
    for k in range(row.number * width, (row.number + 1) * width):
        if not _counts(s, k, home):
            continue
        group = s.groups[s.group_of[k]]
        group.jobs += sign
        group.gpus += sign * row.gpus
        group.promised += sign * asked_seconds(s, row)
        group.spent += spent
        if group.jobs == 0:
            group.gpus = group.promised = 0.0  # whatever rounding left


@inner
def submit_within_limits(s: State, j: Int) -> Any:
    """Count a job that is submitted; False if that is one too many."""
    width = s.control[0].limits
    for k in range(j * width, (j + 1) * width):
        if s.group_of[k] >= 0 and s.groups[s.group_of[k]].submitted + 1 > s.groups[s.group_of[k]].most_submitted:
            return False
    for k in range(j * width, (j + 1) * width):
        if s.group_of[k] >= 0:
            s.groups[s.group_of[k]].submitted += 1
    return True


@inner
def leave_limits(s: State, j: Int) -> None:
    """A job that was counted has ended."""
    width = s.control[0].limits
    for k in range(j * width, (j + 1) * width):
        if s.group_of[k] >= 0:
            s.groups[s.group_of[k]].submitted -= 1


@inner
def _reason_of(s: State, j: Int) -> Any:
    """Return the reason why a waiting job may start in none of its partitions: that of the first; 0 if it may in any."""
    row = s.rows[j]
    if s.partitions[row.partition].shared == 0:
        return over_limit(s, row, row.partition)
    label = s.table[j].partition
    first = 0
    for k in range(s.pair_at[label], s.pair_at[label + 1]):
        home = np.int64(s.pairs[k])
        if (s.chances[j] >> np.uint64(home)) & np.uint64(1) == np.uint64(0):
            continue
        reason = over_limit(s, row, home)
        if reason == 0:
            return 0
        first = reason if first == 0 else first
    return first


@inner
def bench_over(s: State) -> None:
    """Bench the waiting jobs that are over a limit now, and no others."""
    control = s.control[0]
    control.over = 0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            j = np.int64(s.queue_jobs[i])
            row = s.rows[j]
            reason = _reason_of(s, j)
            note_reason(s, j, reason)
            if (reason > 0) != (row.benched & OVER != 0):
                row.benched ^= OVER
                part.settled = 0  # it may start, or it is no head any more
            control.over += 1 if reason > 0 else 0
