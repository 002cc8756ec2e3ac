"""Metrics of what stopping jobs gains and costs, and of who pays. They hold for every rule that stops jobs, and where none does."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gpuyard.arrays import Array
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import accepted, once, ratio
from gpuyard.metrics.jobs import NONE_ACCEPTED, RUNTIME_COVERS, alone, turnaround
from gpuyard.model.result import Result

DELAY = "max(0, end − submit − runtime)"
OTHER_SPEEDS = "devices run jobs at another speed than 1, or gangs that span nodes or racks at another rate"
WORST = 0.1  # share of the users that are the worst off
SIZES = ("small", "medium", "large")


@metric(
    "delay", title="wait, stops included", unit="s", better="lower", formula=DELAY, covers=RUNTIME_COVERS, missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def delay(result: Result) -> Array:
    """Time beyond the run time: in the queue, and on devices for work that was lost, restarts and checkpoints. Where nothing is stopped and
    devices have speed 1 it is the `wait`; `waiting` has only the time in the queue. The runtime is the one on the reference GPU."""
    beyond: Array = np.maximum(turnaround(result) - alone(result), 0.0)
    return beyond


# ── what it costs ──


@metric(
    "gpu_hours_lost", title="GPU time lost", unit="GPU·h", better="lower", formula="max(0, ran − runtime) × gpus / 3600",
    covers=RUNTIME_COVERS, missing=OTHER_SPEEDS,
)  # fmt: skip
def gpu_hours_lost(result: Result) -> Array:
    """GPU-hours that a job held beyond its run time: work that was lost at a stop or a failure and repeated, restarts, drains, writing of
    checkpoints. The sum is that of the run."""
    if not _one_speed(result):
        return np.full(len(result), np.nan)
    lost = np.maximum(result.table["ran"] - alone(result), 0.0) * result.workload.jobs.gpus / 3600.0
    return np.where(accepted(result), lost, np.nan)


@metric(
    "lost_share", title="share of GPU time lost", unit="1", better="lower", kind="run", formula="Σ gpu_hours_lost / Σ gpu_hours",
    covers=RUNTIME_COVERS, missing=f"no job held a GPU, or {OTHER_SPEEDS}", grouped=True,
)  # fmt: skip
def lost_share(result: Result) -> float:
    """Share of the GPU-hours held by jobs that went into repeated work, restarts, drains and writing of checkpoints."""
    return ratio(float(gpu_hours_lost(result).sum(where=accepted(result))), float(result.table["gpu_seconds"].sum()) / 3600.0)


def _one_speed(result: Result) -> bool:
    """Whether every job runs at the speed of the reference GPU wherever it is."""
    cluster = result.cluster
    speeds = {kind.speed for kind in cluster.types} | {value for row in cluster.speed.values() for value in row.values()}
    return speeds == {1.0} and cluster.span_nodes == cluster.span_racks == 1.0


# ── who pays ──


def _may_stop(result: Result) -> Array:
    """Return (jobs,) bool: the job says that it may be stopped."""
    stated = result.workload.jobs.stated
    return stated["preemptible"] == 1.0 if "preemptible" in stated else np.zeros(len(result), bool)


def _third(result: Result, number: int) -> Array:
    """Return (jobs,) bool: the third of the jobs that the job is in by runtime × GPUs (for CPU jobs, cores); ties by index."""
    jobs = result.workload.jobs
    work = result.workload.runtime * np.where(jobs.gpus > 0, jobs.gpus, jobs.cpus)
    place = np.empty(len(work), np.int64)
    place[np.argsort(work, kind="stable")] = np.arange(len(work))
    third: Array = place * len(SIZES) // max(len(work), 1) == number
    return third


def _delay_of(name: str, title: str, words: str, missing: str, of: Callable[[Result], Array]) -> None:
    """Register the delay of some of the jobs."""

    def of_some(result: Result) -> Array:
        return np.where(of(result), delay(result), np.nan)

    of_some.__doc__ = f"`delay` of {words}; the other jobs have no value."
    registered = metric(
        name, title=f"wait, stops included, of {title}", unit="s", better="lower", formula=DELAY, covers=f"{words}; as for `delay`",
        missing=missing,
    )  # fmt: skip
    registered(of_some)


_delay_of(
    "delay_preemptible",
    "jobs that may be stopped",
    "the jobs that say `preemptible = yes`",
    "no job may be stopped",
    _may_stop,
)
_delay_of(
    "delay_others", "jobs that may not be stopped", "the jobs that do not say `preemptible = yes`", "every job may be stopped",
    lambda result: ~_may_stop(result),
)  # fmt: skip
_delay_of(
    "delay_small", "small jobs", "the third of the jobs with the least runtime × GPUs", "fewer than three jobs",
    lambda result: _third(result, 0),
)  # fmt: skip
_delay_of(
    "delay_medium", "medium jobs", "the middle third of the jobs by runtime × GPUs", "fewer than three jobs",
    lambda result: _third(result, 1),
)  # fmt: skip
_delay_of(
    "delay_large", "large jobs", "the third of the jobs with the most runtime × GPUs", "fewer than three jobs",
    lambda result: _third(result, 2),
)  # fmt: skip


@metric(
    "delay_worst_users", title="wait, stops included, of the worst-off users", unit="s", better="lower", kind="run",
    formula="mean over the worst-off tenth of the users, at least one, of the mean `delay` of the user's jobs", covers=RUNTIME_COVERS,
    missing=NONE_ACCEPTED, grouped=True,
)  # fmt: skip
def delay_worst_users(result: Result) -> float:
    """How long the users wait who wait longest on average, each user counting once. Which users these are depends on the scheduler."""
    keep = accepted(result)
    if not keep.any():
        return np.nan
    user = result.workload.jobs.user[keep]
    count = np.bincount(user)
    means = np.bincount(user, weights=delay(result)[keep])[count > 0] / count[count > 0]
    most = max(round(WORST * len(means)), 1)
    return float(np.sort(means)[-most:].mean())
