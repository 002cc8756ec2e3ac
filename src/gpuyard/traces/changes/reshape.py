"""Transforms that cut and scale: windows, batches, thinning, filters, arrival rate, load, run times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.jobs import LABELS
from gpuyard.model.rules import FLAGS
from gpuyard.model.units import MAX_TIME
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.changes.transform import transform, with_times
from gpuyard.traces.generators.sampling import require, require_load, stream
from gpuyard.traces.guess import guess_cluster
from gpuyard.traces.parameters import Seconds


@transform("window", title="the jobs submitted from one time on and before another")
def window(workload: Workload, seed: int, *, start: Seconds = 0.0, end: Seconds = float("inf")) -> Workload:
    """Keep jobs with `start` ≤ submit < `end`, in seconds from the origin; their times stay as they are."""
    require(start < end, f"transform window: from {start:g} to {end:g} s is not an interval")
    submit = workload.jobs.submit
    return workload.take(np.flatnonzero((submit >= start) & (submit < end)))


@transform("first", title="the first jobs")
def first(workload: Workload, seed: int, *, jobs: int = 1000) -> Workload:
    """Keep the first `jobs` jobs in order of submission."""
    require(jobs >= 1, f"transform first: {jobs} jobs; at least 1")
    return workload.head(jobs)


@transform("batch", title="consecutive jobs from a random place", random=True)
def batch(workload: Workload, seed: int, *, jobs: int = 256, number: int = 0) -> Workload:
    """Keep `jobs` consecutive jobs from a place drawn uniformly; their times stay as they are.

    `number` 0, 1, 2 … are independent batches of one seed; they may overlap. A workload with fewer jobs is refused.
    """
    require(jobs >= 1, f"transform batch: {jobs} jobs; at least 1")
    if jobs > len(workload):
        raise DataError(f"{workload.name}: {len(workload):,} jobs are fewer than a batch of {jobs:,}")
    place = int(stream(seed, f"batch/{number}").integers(0, len(workload) - jobs + 1))
    return workload.take(np.arange(place, place + jobs))


@transform("thin", title="a random share of the jobs, or of the users with all their jobs", random=True)
def thin(workload: Workload, seed: int, *, keep: float = 0.5, by: Literal["job", "user"] = "job") -> Workload:
    """Keep each job (or user) with probability `keep`, at least one; with one seed, a smaller share is part of a larger one."""
    require(0 < keep <= 1, f"transform thin: keep = {keep:g} does not lie in (0, 1]")
    users = workload.jobs.user
    draws = stream(seed, f"thin/{by}").random(len(workload) if by == "job" else len(workload.jobs.users))
    drawn = draws if by == "job" else draws[users]
    return _alone(workload.take(np.flatnonzero((drawn < keep) | (drawn == drawn.min()))))


@transform("only", title="the jobs of some users, partitions, accounts or QOS")
def only(workload: Workload, seed: int, *, user: str = "", partition: str = "", account: str = "", qos: str = "") -> Workload:
    """Keep jobs that have one of the given labels (several: `user=ann|bob`) in every column that is given."""
    wanted = {"user": user, "partition": partition, "account": account, "qos": qos}
    require(any(wanted.values()), "transform only: give user, partition, account or qos")
    return _alone(workload.take(np.flatnonzero(_labelled(workload, wanted))))


def _labelled(workload: Workload, wanted: Mapping[str, str]) -> Array:
    """Return (jobs,) which jobs have one of the labels (`ann|bob`) in each of the columns; a column without labels asks for nothing."""
    jobs, found = workload.jobs, np.ones(len(workload), bool)
    for column, text in wanted.items():
        if text:
            found &= np.isin(getattr(jobs, column), _codes(workload, column, text, getattr(jobs, LABELS[column])))
    return found


def _alone(workload: Workload) -> Workload:
    """Drop the logged starts: the jobs waited for others that are no longer there."""
    return replace(workload, logged_start=None)


def _codes(workload: Workload, column: str, text: str, labels: tuple[str, ...]) -> list[int]:
    names = text.split("|")
    for name in names:
        if name not in labels:
            raise unknown_name(f"{column} of {workload.name}", name, [label for label in labels if label][:10_000])
    return [labels.index(name) for name in names]


@transform("stretch", title="inter-arrival times × a factor")
def stretch(workload: Workload, seed: int, *, factor: float = 2.0) -> Workload:
    """Multiply times from the first submit on by `factor`: 2 halves the arrival rate, 0.5 doubles it. Run times and slacks stay."""
    require(0 < factor <= 1e6, f"transform stretch: factor = {factor:g} does not lie in (0, 1e6]")
    submit = workload.jobs.submit
    return with_times(workload, submit[0] + (submit - submit[0]) * factor)


@transform("load", title="inter-arrival times scaled so that the jobs offer a chosen load")
def load(workload: Workload, seed: int, *, target: float = 0.9, gpus: int = 0, cores: float = 0.0) -> Workload:
    """Stretch arrivals to the load `target`, by the factor present load / `target`.

    The load is the GPU-seconds of all run times (speed 1) over the GPUs of the cluster × the time from the first submit to the last.
    The cluster has `gpus` GPUs or, for CPU jobs, `cores` cores; with neither given, those of the cluster that `guess_cluster` finds.
    """
    require_load("transform load", target)
    require(cores >= 0, f"transform load: cores = {cores:g} is negative")
    jobs = workload.jobs
    span = float(np.ptp(jobs.submit))
    if span == 0:
        raise DataError(f"{workload.name}: all jobs are submitted at once, so there is no load to scale")
    if not gpus and not cores:
        gpus, cores = _guessed(workload)
    work = float((jobs.gpus if gpus else jobs.cpus) @ workload.runtime)
    if work == 0:
        raise DataError(f"{workload.name}: no work on {'GPUs' if gpus else 'cores'}, so there is no load to scale")
    return stretch(workload, seed, factor=work / ((gpus or cores) * span) / target)


def _guessed(workload: Workload) -> tuple[int, float]:
    """Return the GPUs of the guessed cluster, or the cores where no job uses GPUs."""
    cluster, _ = guess_cluster(workload)
    if cluster.gpus and (workload.jobs.gpus > 0).any():
        return cluster.gpus, 0.0
    cores = float(cluster.nodes.cpus.sum())
    if not 0 < cores < np.inf:
        raise DataError(f"{workload.name}: the guessed cluster does not say how many cores it has", hint="load:target=…,cores=…")
    return 0, cores


@transform("preemptible", title="a random share of the jobs may be stopped, the others may not", random=True)
def preemptible(
    workload: Workload, seed: int, *, share: float = 0.5, checkpoint: Seconds = -1.0, cost: Seconds = -1.0, drain: Seconds = -1.0,
    restart: Seconds = -1.0, writing: float = -1.0, user: str = "", partition: str = "", account: str = "", qos: str = "",
    job_class: str = "",
) -> Workload:  # fmt: skip
    """Let each job be stopped with probability `share`; with one seed, a smaller share is part of a larger one.

    `user`, `partition`, `account`, `qos` and `job_class` (several: `qos=low|scavenger`): of the jobs that have these labels alone; what
    the others say stays as it is, so that each partition may have terms of its own.

    `checkpoint`, `cost`, `drain` and `restart` are the terms of these jobs: the time between checkpoints, that of writing one, that of a
    stop and that of a start after it. Those that are negative are left as they are, or to the rules. `writing` gives the `cost` as a share
    of `checkpoint`, which must then be given: 0.02 is 12 s every 600 s.
    """
    require(0 <= share <= 1, f"transform preemptible: share = {share:g} does not lie in 0..1")
    if writing >= 0:
        wrong = cost >= 0 or not 0 < checkpoint < np.inf or writing > 1
        require(not wrong, f"transform preemptible: writing = {writing:g} is a share up to 1 of checkpoint, in place of cost")
        cost = writing * checkpoint
    named = _labelled(workload, {"user": user, "partition": partition, "account": account, "qos": qos, "job_class": job_class})
    chosen = named & (stream(seed, "preemptible").random(len(workload)) < share)
    given = {"checkpoint": checkpoint, "checkpoint_cost": cost, "drain": drain, "restart_cost": restart}
    stated, unsaid = workload.jobs.stated, np.full(len(workload), np.nan)
    columns = {name: np.where(chosen, value, stated.get(name, unsaid)) for name, value in given.items() if value >= 0}
    flags = np.where(named, chosen.astype(np.float64), stated.get("preemptible", unsaid))
    return replace(workload, jobs=workload.jobs.with_stated(preemptible=flags, **columns))


@transform("kill-once", title="a random share of the jobs may be killed once and begun again, the others may not", random=True)
def kill_once(workload: Workload, seed: int, *, share: float = 0.5) -> Workload:
    """Let each job be killed one time with probability `share`; it writes no checkpoints, begins again, and then runs to its end."""
    require(0 <= share <= 1, f"transform kill-once: share = {share:g} does not lie in 0..1")
    chosen = stream(seed, "preemptible").random(len(workload)) < share
    return replace(workload, jobs=workload.jobs.with_stated(preemptible=np.where(chosen, FLAGS["once"], FLAGS["no"])))


@transform("pool", title="jobs as requests for a number of GPUs of one pool, without those that do not fit it")
def pool(workload: Workload, seed: int, *, gpus: int = 0) -> Workload:
    """Keep jobs that ask for whole GPUs, at most `gpus` of them (0: any number), and take time; drop what else they ask for.

    Nodes, types of GPUs, cpus and memory no longer matter, so that logs of different machines can be run on pools of devices.
    """
    jobs = workload.jobs
    fits = (jobs.gpus >= 1) & (workload.runtime > 0) & (jobs.gpus <= (gpus or np.inf))
    kept = workload.take(np.flatnonzero(fits))
    plain = replace(kept.jobs.replace(chunk=1, cpus=0.0, memory=0.0, gpu_type=0), gpu_types=("",))
    return replace(kept if fits.all() else _alone(kept), jobs=plain, machines=())


@transform("runtimes", title="run times, and with them walltimes, estimates and slacks, × a factor")
def runtimes(workload: Workload, seed: int, *, factor: float = 2.0) -> Workload:
    """Make all work `factor` × as long, known to the users: estimate, walltime and deadline − submit are scaled alike."""
    require(0 < factor <= 1e6, f"transform runtimes: factor = {factor:g} does not lie in (0, 1e6]")
    jobs = workload.jobs
    scaled = jobs.replace(
        estimate=jobs.estimate * factor, walltime=jobs.walltime * factor, deadline=jobs.submit + (jobs.deadline - jobs.submit) * factor
    )
    return replace(workload, jobs=scaled, runtime=np.minimum(workload.runtime * factor, MAX_TIME), logged_start=None)
