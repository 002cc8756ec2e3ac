"""Rows of sums: of users, of bins of the timeline, of what rewards need, and of jobs that share a limit; and of heads of a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuyard.arrays import RecordRow

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i8


class UserRow(RecordRow):
    """A user's usage."""

    usage: f8  # decayed GPU-s at control.usage_at
    held: f8  # GPUs held now, in units of gpuyard.engine.kernels.accounts.UNITS
    part: f8  # of all users' usage, when the pass began
    floor: f8  # no part is less up to the horizon


class BinRow(RecordRow):
    """A bin of the timeline: integrals over its span."""

    span: f8
    queue: f8
    queue_max: f8
    busy: f8
    up: f8


SHORT = 10.0  # s: in the bounded slowdown, shorter jobs count as this long
MOST_SLOWDOWN, MOST_WAIT, MOST_QUEUE, MOST_POWER = 10.0, 3600.0, 100.0, 800.0  # caps in the balanced objective: 1, s, jobs, watts


class TallyRow(RecordRow):
    """Sums over the jobs that ended and over time so far."""

    ended: f8  # jobs
    slowdown: f8
    capped_slowdown: f8  # min(slowdown, MOST_SLOWDOWN) / MOST_SLOWDOWN
    bsld: f8
    missed: f8  # deadlines
    wait: f8  # s until the first start
    capped_wait: f8  # min(wait, MOST_WAIT) / MOST_WAIT
    turnaround: f8  # s
    queue_time: f8  # job-s in the queue
    busy_time: f8  # GPU-s held
    gpu_seconds: f8  # GPU-s offered
    idle_time: f8  # GPU-s free until the last job is submitted; until the end, where all are submitted at once
    stranded_time: f8  # GPU-s free while a job waits
    energy: f8  # watt-s


# ── sites: heads of partitions that share nodes, and groups of jobs with a limit ──


class HeadRow(RecordRow):
    """The head of one of several partitions that share nodes, in the pass under way."""

    job: i8  # -1: it has started in another partition
    home: i8  # the partition
    shadow: f8  # s


class GroupRow(RecordRow):
    """Jobs that share a limit: how much they may use, and what they use."""

    most_jobs: f8
    most_gpus: f8
    most_seconds: f8  # GPU-s in all: used, and asked for by running jobs
    most_promised: f8  # GPU-s asked for by running jobs
    most_submitted: f8
    jobs: f8  # running
    gpus: f8  # in use
    spent: f8  # GPU-s of runs that have ended
    promised: f8  # GPU-s
    submitted: f8  # jobs that have not ended
    home: i8  # the partition in which it counts; -1: any
    reason: i8  # into gpuyard.model.result.WAITS_FOR
