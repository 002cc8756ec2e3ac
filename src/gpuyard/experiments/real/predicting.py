"""Predict a replay with the simulator: the same trace, scheduler and slots, with what was measured before.

What a job takes beside its steps (process, libraries, first step, end) is the median of a calibration on the node, per kind; it is the
job's `transfer`. The engine knows no slowdown of jobs that share a device. So each job is a class of its own with a speed of its own:
the mean, over its run, of 1 / slowdown beside the jobs that run then. Who runs when depends on the speeds, and the speeds on who runs
when; the simulation is repeated until both agree. The scheduler does not see these speeds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.experiments.real.measuring import Rates
from gpuyard.experiments.real.replaying import TraceReplay
from gpuyard.experiments.real.traces import RealTrace
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict
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


def overheads(calibration: TraceReplay) -> Mapping[str, float]:
    """Return what a job of each kind takes beside its steps (s)."""
    spent: dict[str, list[float]] = {}
    for job in calibration.jobs:
        spent.setdefault(job.kind, []).append(job.end - job.start - job.loop)
    return {kind: max(float(np.median(values)), 0.0) for kind, values in spent.items()}


def workload_of(trace: RealTrace, gpus: float, beside: Mapping[str, float]) -> Workload:
    """Return the trace as a workload; each job is a class of its own."""
    jobs = trace.jobs
    columns: dict[str, Any] = {
        "submit": [job.submit for job in jobs], "gpus": [gpus] * len(jobs), "deadline": [job.deadline for job in jobs],
        "priority": [job.priority for job in jobs], "transfer": [beside.get(job.kind, 0.0) for job in jobs],
        "job_class": np.arange(len(jobs)),
    }  # fmt: skip
    return Workload.build(
        columns, [job.seconds for job in jobs], name=trace.name, classes=[f"{job.kind}-{k}" for k, job in enumerate(jobs)]
    )


def predict(trace: RealTrace, scheduler: str, slots: int, gpu: bool, rates: Rates, beside: Mapping[str, float]) -> Prediction:
    """Simulate the trace until speeds and overlaps agree."""
    workload = workload_of(trace, 1 / slots if gpu and slots > 1 else 1.0, beside)
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
        found = _mean_rates(result, kinds, [beside.get(kind, 0.0) for kind in kinds], rates)
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


def measured_result(trace: RealTrace, replay: TraceReplay, beside: Mapping[str, float]) -> Result:
    """Return a replay as a result, for the same metrics as of a simulation."""
    gpus = 1 / replay.slots if replay.gpu and replay.slots > 1 else 1.0
    workload = workload_of(trace, gpus, beside)
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
