"""When a job may enter its queue at all: holds, begin times, and jobs that must end or succeed first."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.accounts import write_result
from gpuyard.engine.kernels.runs import enqueue
from gpuyard.engine.kernels.site.limits import leave_limits
from gpuyard.engine.kernels.site.reasons import note_reason
from gpuyard.engine.state import DONE, PENDING, REJECTED
from gpuyard.model.result import WAITS_FOR

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import State

AFTER_FAILED = 6  # into gpuyard.model.result.REASONS
HELD, BEGIN, AFTER = (WAITS_FOR.index(name) for name in ("held", "begin", "after"))


@inner
def is_released(s: State, j: Int) -> Any:
    """Whether nothing keeps a submitted job from its queue."""
    return s.unmet[j] == 0 and s.release[j] <= s.control[0].now


@inner
def can_never_run(s: State, j: Int) -> Any:
    """Whether a job that had to succeed before job j did not. One that is held says so instead."""
    return s.unmet[j] < 0 and s.release[j] < math.inf


@inner
def explain(s: State, j: Int) -> None:
    """Note what keeps a submitted job from its queue."""
    note_reason(s, j, HELD if s.release[j] == math.inf else AFTER if s.unmet[j] > 0 else BEGIN)


@inner
def reject(s: State, j: Int, reason: Int) -> Any:
    """Reject a job; whoever had to wait for it is told. Returns a status."""
    s.rows[j].status = REJECTED
    write_result(s, j)
    s.result[j].reason = reason
    return tell_followers(s, j) if s.control[0].gated == 1 else 0


@inner
def tell_followers(s: State, j: Int) -> Any:
    """Job j has ended or was rejected: those that wait for it may enter their queue, or never run. Returns a status."""
    s.failing[0] = j
    left = 1
    while left > 0:
        left -= 1
        ended = np.int64(s.failing[left])
        succeeded = s.rows[ended].status == DONE
        for k in range(s.follower_at[ended], s.follower_at[ended + 1]):
            f = np.int64(s.followers[k]) >> 1
            if s.unmet[f] < 0:
                continue
            if s.followers[k] & 1 == 1 and not succeeded:
                s.unmet[f] = -1
                if f < s.control[0].next_job and s.rows[f].status == PENDING and can_never_run(s, f):
                    s.rows[f].status = REJECTED
                    write_result(s, f)
                    s.result[f].reason = AFTER_FAILED
                    note_reason(s, f, 0)
                    if s.control[0].limits > 0:
                        leave_limits(s, f)
                    s.failing[left] = f
                    left += 1
                continue
            s.unmet[f] -= 1
            if f >= s.control[0].next_job or s.rows[f].status != PENDING:
                continue
            if not is_released(s, f):
                explain(s, f)
                continue
            status = enqueue(s, f, False)
            if status < 0:
                return status
    return 0


@inner
def next_release_time(s: State) -> Any:
    """Return when the next begin time comes of a job that has not been rejected; inf: none does."""
    control = s.control[0]
    while control.next_release < len(s.releases):
        j = np.int64(s.releases[control.next_release])
        if j >= control.next_job or s.rows[j].status != REJECTED:
            return s.release[j]
        control.next_release += 1
    return math.inf


@inner
def release_due(s: State) -> Any:
    """Let the jobs whose begin time has come enter their queues; returns a status."""
    control = s.control[0]
    while control.next_release < len(s.releases):
        j = np.int64(s.releases[control.next_release])
        if s.release[j] > control.now:
            return 0
        control.next_release += 1
        if s.rows[j].status == PENDING and is_released(s, j):
            status = enqueue(s, j, False)
            if status < 0:
                return status
    return 0
