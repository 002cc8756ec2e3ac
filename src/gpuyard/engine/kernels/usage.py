"""Recent usage by user: GPU-seconds that decay with a half-life, and the shares that orderings see."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.engine.compiler.jit import inner

if TYPE_CHECKING:
    from gpuyard.arrays import Real
    from gpuyard.engine.state import JobRow, State

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
    s.users[row.user].held += sign * np.floor(row.gpus * UNITS + 0.5)


@inner
def show_usage(s: State) -> None:
    """Set `usage` of the waiting and the running jobs to their users' shares of all usage. It holds for the whole instant."""
    age_usage(s)
    total = 0.0
    for u in range(len(s.users)):
        total += s.users[u].usage
    for u in range(len(s.users)):
        s.users[u].part = s.users[u].usage / total if total > 0 else 0.0
    for i in range(s.control[0].heap):
        row = s.rows[s.ends[i]]
        row.usage = s.users[row.user].part
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            row = s.rows[s.queue_jobs[i]]
            row.usage = s.users[row.user].part
