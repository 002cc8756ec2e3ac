"""Features for the choice of the next job: the waiting jobs, and the partition they wait for."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.backfill import BACKFILL_NONE
from gpuyard.features.numbers import COUNT, TIME, log, share, squash
from gpuyard.features.schema import Schema
from gpuyard.features.types import TYPE_CONTEXT, TYPE_ROWS, measure_types, type_context, type_row
from gpuyard.model.snapshot import RECENT

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Real
    from gpuyard.engine.state import State

JOB = Schema(
    "job",
    1,
    rows=(
        "estimate",  # log2 of the estimated seconds left
        "gpus",  # log2, over that of the partition
        "wait",  # log2 of s since submit
        "stretch",  # wait / (wait + estimate)
        "fits",  # 1: as many GPUs are free
        "of_free",  # GPUs over the free ones, at most 2, halved
        "slack",  # (deadline − now − estimate) / estimate, squashed; 1: no deadline
        "priority",  # squashed
    ),
    context=(
        "free",  # share of the partition's GPUs
        "waiting",  # log2 of the jobs in the queue
        "backlog",  # log2 of the seconds that the queue would keep the partition busy
        "running",  # log2 of the jobs that run in the cluster
        "recent",  # log2 of the jobs submitted in the last 300 s
        "next_end",  # log2 of s until the first running job of the partition ends by estimate
        "behind",  # 1: a job is chosen that may pass the head
        "size",  # log2 of the partition's GPUs
        "passing",  # 1: while the head waits, others may pass it (backfilling)
    ),
)
ROWS = len(JOB.rows)
CONTEXT = len(JOB.context)
# The same and what concerns GPU types: kernels write the further features behind those of JOB where `typed` asks for them.
JOB_TYPES = Schema(JOB.decision, 1, (*JOB.rows, *TYPE_ROWS), (*JOB.context, *TYPE_CONTEXT))
TYPED_ROWS = len(JOB_TYPES.rows)
SHORTEST = 10.0  # s; shorter jobs count as this long in `stretch` and `slack`


@inner
def write_job(
    out: Array, at: Int, stride: Int, estimate: float, gpus: Real, wait: Real, slack: float, priority: float, free: Real, log_total: Real
) -> None:
    """Write the features of one job into out[at], out[at + stride] … `slack` in s; `log_total` of the partition's GPUs, by `log`."""
    length = max(estimate, SHORTEST)
    out[at] = log(estimate) * np.float32(TIME)
    out[at + stride] = log(gpus) / max(log_total, np.float32(1.0))
    out[at + 2 * stride] = log(wait) * np.float32(TIME)
    out[at + 3 * stride] = np.float32(wait / (wait + length))
    out[at + 4 * stride] = np.float32(1.0) if gpus <= free else np.float32(0.0)
    out[at + 5 * stride] = np.float32(0.5 * min(gpus / max(free, 1.0), 2.0))
    out[at + 6 * stride] = np.float32(1.0) if slack == np.inf else squash(slack / length)  # most have no deadline: no division
    out[at + 7 * stride] = np.float32(0.0) if priority == 0 else squash(priority)


@inner
def write_queue(
    out: Array,
    at: Int,
    free: Real,
    total: Real,
    waiting: Real,
    work: Real,
    running: Real,
    recent: Real,
    next_end: Real,
    behind: Real,
    passing: Real,
) -> None:
    """Write the context of a queue into out[at …]: `work` in GPU-s, `next_end` in s from now."""
    out[at] = share(free, total)
    out[at + 1] = log(float(waiting)) * np.float32(COUNT)
    out[at + 2] = log(work / max(total, 1.0)) * np.float32(TIME)
    out[at + 3] = log(float(running)) * np.float32(COUNT)
    out[at + 4] = log(float(recent)) * np.float32(COUNT)
    out[at + 5] = log(max(next_end, 0.0)) * np.float32(TIME)
    out[at + 6] = np.float32(behind)
    out[at + 7] = log(float(total)) * np.float32(COUNT)
    out[at + 8] = np.float32(passing)


@inner
def job_rows(s: State, p: Int, first: Int, count: Int, typed: bool, out: Array, at: Int, row_stride: Int, stride: Int) -> None:
    """Write the jobs at first … first + count in the queue of partition p; feature f of row r to out[at + r·row_stride + f·stride].

    `typed`: the features of JOB_TYPES, for which `queue_context` must have been called before.
    """
    part = s.partitions[p]
    now = s.control[0].now
    free = float(part.free)
    log_total = log(float(part.total))
    for r in range(count):
        j = s.queue_jobs[first + r]
        row, priority = s.rows[j], s.table[j].priority
        slack = row.deadline - now - row.remaining
        write_job(out, at + r * row_stride, stride, row.remaining, row.gpus, now - row.submit, slack, priority, free, log_total)
        if typed:
            type_row(s, row, out, at + r * row_stride + ROWS * stride, stride)


@inner
def queue_context(s: State, p: Int, behind: Real, typed: bool, out: Array, at: Int) -> None:
    """Write the context of partition p's queue, by JOB or, `typed`, by JOB_TYPES. Running jobs must be tracked."""
    part = s.partitions[p]
    control = s.control[0]
    advance_recent(s)
    next_end = 0.0
    if part.running > 0:
        next_end = s.running_ends[part.first_run] - control.now
    recent = control.next_job - control.recent_job
    passing = 0.0 if s.slots[control.active].backfill == BACKFILL_NONE else 1.0
    waiting = part.tail - part.head
    write_queue(out, at, float(part.free), float(part.total), waiting, part.work, control.running, recent, next_end, behind, passing)
    if typed:
        measure_types(s, p)
        type_context(s, out, at + CONTEXT)


@inner
def advance_recent(s: State) -> None:
    """Let control.recent_job be the first job submitted in the last RECENT seconds (a snapshot says how many there were)."""
    control = s.control[0]
    if control.noting == 0:
        while control.recent_job < control.next_job and s.rows[control.recent_job].submit <= control.now - RECENT:
            control.recent_job += 1
