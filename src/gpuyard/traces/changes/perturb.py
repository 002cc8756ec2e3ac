"""Perturbations for robustness experiments, each with four severities; a given strength overrides the severity."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.units import MAX_TIME
from gpuyard.model.workload import Workload
from gpuyard.traces.changes.transform import cluster_transform, level, transform, with_times
from gpuyard.traces.generators.sampling import require, stream
from gpuyard.traces.parameters import Seconds

DAY = 86_400.0  # s
NOISE = (0.05, 0.10, 0.15, 0.20)  # shares of the mean inter-arrival time
DISTORTION = (0.1, 0.2, 0.4, 0.8)  # standard deviations of ln run time
SHIFT = (1 / 8, 1 / 4, 3 / 8, 1 / 2)  # shares of the period
AMPLIFICATION = (1.5, 2.0, 2.5, 3.0)  # × the rate in a burst
ESTIMATE_NOISE = (0.25, 0.5, 1.0, 1.5)  # standard deviations of ln estimate
DEPTH = (1 / 8, 1 / 4, 3 / 8, 1 / 2)  # shares of the GPUs


@transform("arrival-noise", title="every submit moved by normal noise, 5, 10, 15 or 20 % of the mean inter-arrival time", random=True)
def arrival_noise(workload: Workload, seed: int, *, severity: int = 2, share: float = 0.0) -> Workload:
    """Add N(0, (share × g)²) to each submit, at least 0, where g is (last − first submit) / (jobs − 1); sort again.

    `share` by severity 0.05, 0.10, 0.15, 0.20. Deadlines move along with their jobs.
    """
    share = level("transform arrival-noise", severity, NOISE, share)
    require(0 < share <= 1e3, f"transform arrival-noise: share = {share:g} does not lie in (0, 1000]")
    submit = workload.jobs.submit
    gap = _span(submit) / max(len(submit) - 1, 1)
    noise = stream(seed, "arrival-noise").standard_normal(len(submit)) * (share * gap)
    return with_times(workload, np.clip(submit + noise, 0.0, MAX_TIME))


def _span(submit: Array) -> float:
    return float(submit[-1] - submit[0])


@transform("runtime-distortion", title="hidden run times × log-normal noise of mean 1; requests and estimates stay", random=True)
def runtime_distortion(workload: Workload, seed: int, *, severity: int = 2, spread: float = 0.0) -> Workload:
    """Multiply run times by exp(N(−s²/2, s²)), which keeps the expected work; s by severity 0.1, 0.2, 0.4, 0.8.

    Estimates, walltimes and deadlines stay as they are: some are now too short.
    """
    spread = level("transform runtime-distortion", severity, DISTORTION, spread)
    require(0 < spread <= 5, f"transform runtime-distortion: spread = {spread:g} does not lie in (0, 5]")
    drawn = stream(seed, "runtime-distortion").standard_normal(len(workload))
    distorted = workload.runtime * np.exp(spread * drawn - spread**2 / 2)
    source = workload.estimates + (" before runtime-distortion" if "exact" in workload.estimates else "")
    return replace(workload, runtime=np.minimum(distorted, MAX_TIME), logged_start=None, estimate_source=source)


@transform("phase-shift", title="arrivals rotated within each day by 1/8, 1/4, 3/8 or 1/2 of it")
def phase_shift(workload: Workload, seed: int, *, severity: int = 2, shift: Seconds = 0.0, period: Seconds = 0.0) -> Workload:
    """Move a submit at kP + t, 0 ≤ t < P, to kP + (t + shift) mod P, where P is the period.

    `period` 0 is a day, or the time from 0 to just after the last submit where that is shorter; `shift` 0 is 1/8, 1/4, 3/8 or 1/2 of the
    period, by severity. Every day keeps its jobs. Deadlines move along.
    """
    require(0 <= period <= MAX_TIME, f"transform phase-shift: period = {period:g} s is not a valid time")
    submit = workload.jobs.submit
    period = period or min(DAY, float(np.nextafter(submit[-1], np.inf)))
    shift = level("transform phase-shift", severity, tuple(share * period for share in SHIFT), shift)
    require(shift % period > 0, f"transform phase-shift: a shift of {shift:g} s in a period of {period:g} s changes nothing")
    whole = np.floor(submit / period) * period
    return with_times(workload, whole + np.mod(submit - whole + shift, period))


@transform("burst", title="arrivals in the busiest quarter of the time pressed together, 1.5, 2, 2.5 or 3 times as dense")
def burst(workload: Workload, seed: int, *, severity: int = 2, factor: float = 0.0, window: Seconds = 0.0, share: float = 0.25) -> Workload:
    """Cut the time from the first submit on into windows, and press the jobs of the busiest `share` of them towards the window's begin.

    In a window that begins at a, submit t moves to a + (t − a) / factor: its jobs come `factor` × as fast, and a lull follows.
    Busiest: most jobs, the earlier window in a tie; at least one. `window` 0 is an hour, or a 24th of the span where that is shorter.
    `factor` by severity 1.5, 2, 2.5, 3. Deadlines move along.
    """
    factor = level("transform burst", severity, AMPLIFICATION, factor)
    require(1 < factor <= 1e6, f"transform burst: factor = {factor:g} does not lie in (1, 1e6]")
    require(0 < share <= 1, f"transform burst: share = {share:g} does not lie in (0, 1]")
    require(0 <= window <= MAX_TIME, f"transform burst: window = {window:g} s is not a valid time")
    submit = workload.jobs.submit
    window = window or min(3600.0, _span(submit) / 24) or 1.0
    number = np.floor((submit - submit[0]) / window)
    _, place, counts = np.unique(number, return_inverse=True, return_counts=True)
    windows = int(number[-1]) + 1  # those without jobs too
    chosen = np.argsort(-counts, kind="stable")[: max(round(share * windows), 1)]
    begin = submit[0] + number * window
    inside = np.isin(place, chosen)
    return with_times(workload, np.where(inside, begin + (submit - begin) / factor, submit))


@transform("estimate-noise", title="estimates × log-normal noise", random=True)
def estimate_noise(workload: Workload, seed: int, *, severity: int = 2, spread: float = 0.0, bias: float = 1.0) -> Workload:
    """Multiply estimates by bias × exp(N(0, s²)), s by severity 0.25, 0.5, 1, 1.5. Run times, walltimes and deadlines stay.

    It starts from the workload's estimates; the estimate source `noisy` starts from the run times.
    """
    spread = level("transform estimate-noise", severity, ESTIMATE_NOISE, spread)
    require(0 < spread <= 10, f"transform estimate-noise: spread = {spread:g} does not lie in (0, 10]")
    require(0 < bias <= 1e6, f"transform estimate-noise: bias = {bias:g} does not lie in (0, 1e6]")
    drawn = stream(seed, "estimate-noise").standard_normal(len(workload))
    noisy = workload.jobs.replace(estimate=np.minimum(workload.jobs.estimate * bias * np.exp(spread * drawn), MAX_TIME))
    return replace(workload, jobs=noisy, estimate_source=f"{workload.estimates} with noise")


@cluster_transform("capacity-dips", title="1/8, 1/4, 3/8 or 1/2 of the GPUs out of use for a while, several times", random=True)
def capacity_dips(
    cluster: Cluster, workload: Workload, seed: int, *, severity: int = 2, depth: float = 0.0, dips: int = 4, duration: Seconds = 0.0
) -> Cluster:
    """Add `dips` outages of round(`depth` × GPUs) devices, at least one, for `duration` each, while jobs arrive.

    The time from the first submit to the last is cut into `dips` equal parts; one dip begins in each, uniformly, and ends within it.
    `duration` 0 is a quarter of a part. A dip takes whole nodes in random order, and of the last one only the devices that are
    still missing. In a cluster without GPUs it takes that share of the nodes. Jobs that run there are requeued. `depth` by severity.
    """
    what = "transform capacity-dips"
    depth = level(what, severity, DEPTH, depth)
    require(0 < depth <= 1, f"{what}: depth = {depth:g} does not lie in (0, 1]")
    require(1 <= dips <= 10_000, f"{what}: {dips} dips; from 1 to 10,000")
    begin, part = float(workload.jobs.submit[0]), max(_span(workload.jobs.submit), 1.0) / dips
    duration = duration or part / 4
    require(0 < duration <= part, f"{what}: duration = {duration:g} s does not fit {dips} times into {part * dips:g} s")
    draws = stream(seed, "capacity-dips")
    found: list[Outage] = []
    for k in range(dips):
        start = begin + k * part + float(draws.random()) * (part - duration)
        found += _dip(cluster, draws.permutation(len(cluster.nodes)), depth, start, start + duration)
    return replace(cluster, outages=(*cluster.outages, *found))


def _dip(cluster: Cluster, order: Array, depth: float, start: float, end: float) -> list[Outage]:
    size = cluster.nodes.gpus.astype(np.int64) if cluster.gpus else np.ones(len(cluster.nodes), np.int64)
    missing = max(round(depth * int(size.sum())), 1)
    found = []
    for n in order[size[order] > 0].tolist():
        taken = min(missing, int(size[n]))
        found.append(Outage(int(n), start, end, None if taken == size[n] else taken))
        missing -= taken
        if missing == 0:
            break
    return found
