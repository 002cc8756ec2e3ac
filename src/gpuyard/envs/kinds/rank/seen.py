"""Work out what a learned rank sees at a snapshot."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.events import PREPARE
from gpuyard.engine.kernels.ranks.area import credit_of, may_be_stopped, time_by_table
from gpuyard.features.ranks import RANK, rank_context, rank_row
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies import Scheduler

if TYPE_CHECKING:
    from gpuyard.arrays import Int


def judged_at(scheduler: Scheduler, snapshot: Snapshot) -> tuple[Array, Array, Array]:
    """Return the features of the jobs that may be stopped, those of their partition, and the jobs' areas by the table.

    The partition is that of the first job that waits. Areas are those of waiting jobs, also for those that run.
    """
    driver = scheduler.begin().load(snapshot)
    driver.order(PREPARE)
    count, waiting = len(snapshot.jobs), snapshot.waiting
    rows, context = np.zeros((count, len(RANK.rows)), np.float32), np.zeros(len(RANK.context), np.float32)
    areas = np.zeros(count)
    p = int(driver.state.rows["partition"][waiting[0]]) if len(waiting) else 0
    found = _write_judged()(int(driver.header.ctypes.data), p, rows.ravel(), context, areas)
    return rows[:found], context, areas[:found]


@lru_cache(maxsize=1)
def _write_judged() -> Callable[..., int]:
    """Compile the question; the result is cached on disk."""
    source = source_hash(__name__)

    @entry(types.int64(types.int64, types.int64, types.float32[::1], types.float32[::1], types.float64[::1]))
    def write_judged(header: Int, p: Int, rows: Any, context: Any, areas: Any) -> Any:
        s, found = state_at(header), 0
        part, slot = s.partitions[p], s.slots[s.control[0].active]
        rank_context(s, p, context, 0)
        for i in range(part.tail - part.head + part.running if source != 0 else 0):  # never 0; part of the cache's key
            waits = part.head + i < part.tail
            j = s.queue_jobs[part.head + i] if waits else s.running_jobs[part.first_run + i - (part.tail - part.head)]
            row = s.rows[j]
            if may_be_stopped(s, row):
                rank_row(s, slot, row, rows, found * (len(rows) // len(areas)), 1)
                areas[found] = max(time_by_table(s, slot, row, row.done) * row.gpus * credit_of(s, row, s.control[0].now), 1e-9)
                found += 1
        return found

    made: Callable[..., int] = write_judged
    return made
