"""Predict a replay with the simulator: the same trace, scheduler and slots, with what was measured before.

What a job takes beside its steps is that of a calibration on the node; it is the job's `transfer`. The engine knows no slowdown of jobs
that share a device. So each job is a class of its own with a speed of its own: the mean, over its run, of 1 / slowdown beside the jobs
that run then. Who runs when depends on the speeds, and the speeds on who runs when; the simulation is repeated until both agree. The
scheduler does not see these speeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.experiments.real.measuring import Rates
from gpuyard.experiments.real.replaying import TraceReplay
from gpuyard.experiments.real.traces import RealJob, RealTrace
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.estimator import SHORTEST
from gpuyard.model.result import ROW, Result
from gpuyard.model.result import STATUS as STATUSES
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler

MOST_ROUNDS = 40
AGREED = 0.002  # part of the makespan by which no end moves any more
DEVICE = "device"


@dataclass(frozen=True)
class Prediction:
    """The simulation of a trace that stands for its replay."""

    result: Result
    rounds: int
    agreed: bool  # whether the rounds came to rest


@dataclass(frozen=True)
class Calibration:
    """Costs of jobs on a node, as some of known length showed: one of `s` planned seconds holds its slot for change + fixed + pace · s."""

    change: float = 0.0  # s between the end of a job and the start of the next in its slot: its record, a decision, a supervisor
    fixed: Mapping[str, float] = field(default_factory=dict)  # kind → s of process, libraries, first step and end
    pace: Mapping[str, float] = field(default_factory=dict)  # kind → s that a planned second of steps takes alone; near 1

    def beside(self, kind: str) -> float:
        """Return what a job of a kind takes beside its steps (s)."""
        return self.change + self.fixed.get(kind, 0.0)

    def work(self, job: RealJob) -> float:
        """Return how long the steps of a job take alone (s)."""
        return self.pace.get(job.kind, 1.0) * job.seconds


def calibrated(seen: TraceReplay, alone: Calibration | None = None) -> Calibration:
    """Return what a calibration showed. Where slots share a device only the steps alone tell the pace: that is of the other calibration."""
    fixed, pace = {}, dict(alone.pace) if alone else {}
    for kind in dict.fromkeys(job.kind for job in seen.jobs):
        mine = [job for job in seen.jobs if job.kind == kind]
        if alone is None:
            pace[kind] = _slope([job.work for job in mine], [job.end - job.start for job in mine])
        steps = [job.loop if alone else pace[kind] * job.work for job in mine]
        spent = [job.end - job.start - each for job, each in zip(mine, steps, strict=True)]
        fixed[kind] = max(float(np.median(spent)), 0.0)
    ends = np.sort([job.end for job in seen.jobs])
    changes = [job.start - ends[before - 1] for job in seen.jobs if (before := int(np.searchsorted(ends, job.start, "right")))]
    return Calibration(float(np.mean(changes)) if changes else 0.0, fixed, pace)  # the mean: in a queue they add up


def _slope(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the median slope between points of different x (Theil and Sen); 1 where there are none."""
    found = [(y[b] - y[a]) / (x[b] - x[a]) for a in range(len(x)) for b in range(len(x)) if x[b] > x[a]]
    return max(float(np.median(found)), 0.01) if found else 1.0


def workload_of(trace: RealTrace, gpus: float, costs: Calibration) -> Workload:
    """Return the trace as a workload; each job is a class of its own, with the estimate that the node's scheduler is told."""
    jobs = trace.jobs
    columns: dict[str, Any] = {
        "submit": [job.submit for job in jobs], "gpus": [gpus] * len(jobs), "deadline": [job.deadline for job in jobs],
        "priority": [job.priority for job in jobs], "transfer": [costs.beside(job.kind) for job in jobs],
        "estimate": [max(job.seconds, SHORTEST) for job in jobs], "job_class": np.arange(len(jobs)),
    }  # fmt: skip
    return Workload.build(
        columns, [costs.work(job) for job in jobs], name=trace.name, classes=[f"{job.kind}-{k}" for k, job in enumerate(jobs)]
    )


def predict(trace: RealTrace, scheduler: str, slots: int, gpu: bool, rates: Rates, costs: Calibration) -> Prediction:
    """Simulate the trace until speeds and overlaps agree."""
    workload = workload_of(trace, 1 / slots if gpu and slots > 1 else 1.0, costs)
    kinds = [job.kind for job in trace.jobs]
    count = 1 if gpu else slots
    speeds = np.ones(len(kinds))
    before: Array | None = None
    for number in range(1, MOST_ROUNDS + 1):
        result = simulate(workload, _cluster(count, workload.jobs.classes, speeds), parse_scheduler(scheduler))
        ends = result.table["end"]
        moved = np.inf if before is None else float(np.abs(ends - before).max())
        if slots == 1 or moved <= AGREED * float(ends.max()):
            return Prediction(result, number, True)
        before = ends.copy()
        found = _mean_rates(result, kinds, [costs.beside(kind) for kind in kinds], rates)
        speeds = found if number == 1 else speeds + (found - speeds) * (0.7 if number < 10 else 3.0 / number)  # smaller steps end cycles
    return Prediction(result, MOST_ROUNDS, False)


def _cluster(count: int, classes: Sequence[str], speeds: Array) -> Cluster:
    table = {label: {DEVICE: max(float(speed), 1e-6)} for label, speed in zip(classes, speeds, strict=True)}
    return cluster_from_dict({"name": "machine", "nodes": [{"gpus": count, "type": DEVICE}], "speed": table})


def _mean_rates(result: Result, kinds: Sequence[str], beside: Sequence[float], rates: Rates) -> Array:
    """Return the mean of 1 / slowdown over the steps of each job, given who ran when."""
    start, end = result.table["start"] + np.array(beside), result.table["end"]
    found = np.ones(len(kinds))
    for k, kind in enumerate(kinds):
        others = np.flatnonzero((start < end[k]) & (end > start[k]) & (np.arange(len(kinds)) != k))
        marks = np.unique(np.clip(np.concatenate([[start[k], end[k]], start[others], end[others]]), start[k], end[k]))
        if len(marks) < 2:
            continue
        middles, spans = (marks[1:] + marks[:-1]) / 2, np.diff(marks)
        present = [[kinds[j] for j in others.tolist() if start[j] <= at < end[j]] for at in middles.tolist()]
        found[k] = float(np.dot(spans, [1 / rates.slowdown(kind, each) for each in present]) / spans.sum())
    return found


# ── what was measured ──


def measured_result(trace: RealTrace, replay: TraceReplay, costs: Calibration) -> Result:
    """Return a replay as a result, for the same metrics as of a simulation."""
    gpus = 1 / replay.slots if replay.gpu and replay.slots > 1 else 1.0
    workload = workload_of(trace, gpus, costs)
    table = np.zeros(len(trace.jobs), ROW)
    ran = [job.end - job.start for job in replay.jobs]
    columns = {
        "start": [job.start for job in replay.jobs], "end": [job.end for job in replay.jobs], "ran": ran,
        "gpu_seconds": [gpus * each for each in ran], "rate": 1.0, "nodes": 1,
        "status": [STATUSES.index("done" if job.state == "DONE" else "killed") for job in replay.jobs],
    }  # fmt: skip
    for name, values in columns.items():
        table[name] = values
    cluster = _cluster(1 if replay.gpu else replay.slots, workload.jobs.classes, np.ones(len(trace.jobs)))
    empty = simulate(workload.head(1), cluster, parse_scheduler("fcfs"))
    manifest = {"kind": "measured", "device": replay.device_name, "made": replay.made}
    return Result(workload, cluster, replay.scheduler, 0, table, empty.timeline[:0], empty.segments[:0], {}, manifest)


def errors(measured: Result, predicted: Result) -> Array:
    """Return |predicted − measured| / measured of the turnaround of each job."""
    submit = measured.workload.jobs.submit
    real, guess = measured.table["end"] - submit, predicted.table["end"] - submit
    wrong: Array = np.abs(guess - real) / np.maximum(real, 1e-9)
    return wrong
