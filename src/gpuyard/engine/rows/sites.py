"""Rows of a site beyond its nodes: heads of partitions that share nodes, and groups of jobs with a limit."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuyard.arrays import RecordRow

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i8


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
