"""Facts about a workload in numbers, as `gpuyard trace info` prints them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import LABELS
from gpuyard.model.workload import Workload
from gpuyard.traces.guess import peak
from gpuyard.traces.origin import date_of

DAY = 86_400.0  # s
NOTHING = float("nan")


@dataclass(frozen=True)
class Spread:
    """How values are spread: their number, mean, 5th, 50th and 95th percentile, and the largest."""

    count: int = 0
    mean: float = NOTHING
    p5: float = NOTHING
    p50: float = NOTHING
    p95: float = NOTHING
    largest: float = NOTHING


@dataclass(frozen=True)
class WorkloadSummary:
    """Facts about a workload; times in seconds, `nan` and "" where there is nothing to say."""

    name: str
    jobs: int
    rows: int  # kept and dropped
    dropped: Mapping[str, int]
    first: str  # date of the first submit
    last: str
    span: float  # s from the first submit to the last
    jobs_per_day: float
    gpu_hours: float
    core_hours: float
    mean_gpus: float  # in use on average if no job waited: the offered load
    peak_gpus: float  # in use at once, by the logged starts
    sizes: Mapping[str, int]  # GPUs → jobs, ascending
    shared_jobs: int  # with less than a GPU
    cpu_jobs: int
    run: Spread
    wait: Spread  # in the log
    estimate: Spread  # estimate / run time of jobs that ran
    estimates: str  # what they are: requested, exact …
    too_short: float  # share of jobs whose estimate is below the run time
    requested: int  # jobs with a walltime
    deadlines: int
    priorities: tuple[float, ...]
    labels: Mapping[str, tuple[str, ...]]  # users, partitions … that occur, most jobs first
    busiest_user: float = NOTHING  # share of the jobs
    device: str = "GPU"  # what the jobs count: GPU, processor, node
    missing: tuple[str, ...] = ()
    notes: tuple[str, ...] = field(default_factory=tuple)


def summarise(workload: Workload) -> WorkloadSummary:
    """Summarise a workload in one pass over its columns."""
    jobs, run = workload.jobs, workload.runtime
    span = float(np.ptp(jobs.submit)) if len(workload) else 0.0
    work = float(jobs.gpus @ run)
    ran = run > 0
    labels, busiest = _labels(workload)
    ends = [date_of(workload, float(t)) for t in ((jobs.submit[0], jobs.submit[-1]) if len(workload) else ())]
    first, last = (date.isoformat(" ", "seconds") if date else "" for date in (*ends, None, None)[:2])
    sizes, counts = np.unique(jobs.gpus, return_counts=True)
    return WorkloadSummary(
        name=workload.name, jobs=len(workload), rows=len(workload) + sum(workload.dropped.values()), dropped=dict(workload.dropped),
        first=first, last=last, span=span, jobs_per_day=len(workload) / span * DAY if span else NOTHING,
        gpu_hours=work / 3600, core_hours=float(jobs.cpus @ run) / 3600, mean_gpus=work / span if span else NOTHING,
        peak_gpus=_peak(workload), sizes={f"{size:g}": int(n) for size, n in zip(sizes, counts, strict=True)},
        shared_jobs=int(((jobs.gpus > 0) & (jobs.gpus < 1)).sum()), cpu_jobs=int((jobs.gpus == 0).sum()),
        run=_spread(run), wait=_waits(workload), estimate=_spread(jobs.estimate[ran] / run[ran]), estimates=workload.estimates,
        too_short=float((jobs.estimate < run).mean()) if len(workload) else NOTHING, requested=int(np.isfinite(jobs.walltime).sum()),
        deadlines=int(np.isfinite(jobs.deadline).sum()), priorities=tuple(np.unique(jobs.priority).tolist()),
        labels=labels, busiest_user=busiest, device=device_of_log(workload), missing=_missing(workload, labels), notes=workload.all_notes,
    )  # fmt: skip


def device_of_log(workload: Workload) -> str:
    """Name what the jobs of a log count, by the nodes that it shows: GPUs unless these have other devices."""
    kinds = {machine.gpu_type for machine in workload.machines}
    return {frozenset({"cpu"}): "processor", frozenset({"node"}): "node"}.get(frozenset(kinds), "GPU")


def _spread(values: Array) -> Spread:
    if len(values) == 0:
        return Spread()
    low, middle, high = np.percentile(values, [5, 50, 95]).tolist()
    return Spread(len(values), float(values.mean()), low, middle, high, float(values.max()))


def _waits(workload: Workload) -> Spread:
    """Return the waits of the jobs whose start the log has."""
    if workload.logged_start is None:
        return Spread()
    wait = workload.logged_start - workload.jobs.submit
    return _spread(wait[np.isfinite(wait)])


def _peak(workload: Workload) -> float:
    start = workload.logged_start
    if start is None or not np.isfinite(start).any():
        return NOTHING
    known = np.isfinite(start)
    return peak(start[known], start[known] + workload.runtime[known], workload.jobs.gpus[known])


def _labels(workload: Workload) -> tuple[dict[str, tuple[str, ...]], float]:
    """Return the labels that occur in each column, and the share of jobs of the busiest user."""
    found: dict[str, tuple[str, ...]] = {}
    busiest = NOTHING
    for column, kind in LABELS.items():
        names = getattr(workload.jobs, kind)
        counts = np.bincount(getattr(workload.jobs, column), minlength=len(names))
        order = np.argsort(-counts, kind="stable")
        found[kind] = tuple(names[k] for k in order.tolist() if counts[k] and names[k])
        if column == "user" and found[kind]:
            busiest = float(max(counts[k] for k, name in enumerate(names) if name)) / len(workload)
    return found, busiest


def _missing(workload: Workload, labels: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Name what the workload lacks."""
    start, asked = workload.logged_start, np.isfinite(workload.jobs.walltime)
    gpus = device_of_log(workload) == "GPU"  # processors have no types, and no processors
    lacks = {
        "requested times": not asked.any(),
        f"requested times of {int((~asked).sum()):,} jobs": asked.any() and not asked.all(),
        "logged starts": start is None or not np.isfinite(start).any(),
        f"logged starts of {0 if start is None else int(np.isnan(start).sum()):,} jobs":
            start is not None and np.isfinite(start).any() and not np.isfinite(start).all(),
        "dates": date_of(workload, 0.0) is None,
        "users": not labels["users"], "partitions": not labels["partitions"], "GPU types": gpus and not labels["gpu_types"],
        "CPUs": gpus and not workload.jobs.cpus.any(), "memory": not workload.jobs.memory.any(),
        "nodes": not workload.machines and not workload.preset,
    }  # fmt: skip
    return tuple(name for name, absent in lacks.items() if absent)
