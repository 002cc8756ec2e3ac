"""Estimates that are made when a job is submitted: the mean of the user's last run times that have ended in this simulation."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.runs import factor_held, overhead_of
from gpuyard.model.estimator import FIRST_GUESS, SHORTEST

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import JobRow, State


@inner
def observe(s: State, j: Int) -> None:
    """Take note of the work of job j, whose last run ends now; its devices are still held."""
    control = s.control[0]
    row = s.rows[j]
    if row.overrun == 1:
        useful = control.now - row.run_start - overhead_of(row, control, factor_held(s, row))
        row.done += max(useful, 0.0) * row.rate
    else:
        row.done = row.runtime
    if control.rolling > 0:
        _remember(s, row)


@inner
def _remember(s: State, row: JobRow) -> None:
    control = s.control[0]
    control.observed += row.done
    control.observed_jobs += 1
    at = np.int64(row.user) * (1 + control.rolling)
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
    row = s.rows[j]
    at = np.int64(row.user) * (1 + control.rolling)
    count = int(s.recent_work[at])
    value = row.walltime
    if count > 0:
        total = 0.0
        for i in range(at + 1, at + count + 1):
            total += s.recent_work[i]
        value = total / count
    elif value == np.inf:
        value = control.observed / control.observed_jobs if control.observed_jobs > 0 else FIRST_GUESS
    row.estimate = max(min(value, row.walltime), SHORTEST)
    row.remaining = row.estimate
