"""Perturbations for robustness experiments, each with four severities; a given strength overrides the severity."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.units import MAX_TIME, shorten
from gpuyard.model.workload import Workload
from gpuyard.traces.changes.slowing import slowed
from gpuyard.traces.changes.transform import cluster_transform, level, transform, with_copies, with_times
from gpuyard.traces.generators.sampling import require, require_jobs, stream
from gpuyard.traces.parameters import Seconds

DAY = 86_400.0  # s
NOISE = (0.05, 0.10, 0.15, 0.20)  # standard deviations of the factor on the rate
DISTORTION = (0.1, 0.2, 0.4, 0.8)  # standard deviations of ln run time
SHIFT = (1 / 8, 1 / 4, 3 / 8, 1 / 2)  # shares of the period
AMPLIFICATION = (1.5, 2.0, 2.5, 3.0)  # × the rate in a burst
ESTIMATE_NOISE = (0.25, 0.5, 1.0, 1.5)  # standard deviations of ln estimate
DEPTH = (1 / 8, 1 / 4, 3 / 8, 1 / 2)  # shares of the GPUs
SLOWDOWN = (1.25, 1.5, 2.0, 3.0)  # × the time on a slow GPU
WINDOWS = 12  # of a workload that is shorter than as many hours
MOST_FACTOR = 1000.0  # on a rate


@transform("arrival-noise", title="the rate of arrivals, hour by hour, × normal noise of 5, 10, 15 or 20 %: jobs come and go", random=True)
def arrival_noise(workload: Workload, seed: int, *, severity: int = 2, share: float = 0.0, window: Seconds = 0.0) -> Workload:
    """Multiply the number of jobs in each window of time by max(0, 1 + N(0, share²)), rounded up or down at random without a bias.

    Where that is fewer, jobs drawn at random are left out; where it is more, jobs of the window are copied, each to a time drawn
    uniformly from the window. `share` by severity 0.05, 0.10, 0.15, 0.20. `window` 0 is an hour, or a twelfth of the time from the first
    submit to the last where that is shorter. Deadlines move along.
    """
    what = "transform arrival-noise"
    share = level(what, severity, NOISE, share)
    require(0 < share <= MOST_FACTOR, f"{what}: share = {share:g} does not lie in (0, {MOST_FACTOR:g}]")
    windows = _Windows.of(workload, window, what)
    draws = stream(seed, "arrival-noise")
    factor = np.maximum(1.0 + share * draws.standard_normal(windows.count), 0.0)
    wanted = np.floor(factor * windows.jobs + draws.random(windows.count)).astype(np.int64)
    wanted[np.argmax(windows.jobs)] += not wanted.any()  # one job stays
    return _with_counts(workload, windows, wanted, draws, what)


@dataclass(frozen=True)
class _Windows:
    """Equal windows of time from the first submit on."""

    width: float  # s
    begin: Array  # (windows,) s
    place: Array  # (jobs,) the window of each job
    last: float  # s, the last submit

    @classmethod
    def of(cls, workload: Workload, width: float, what: str) -> _Windows:
        """Cut the time between the submits; `width` 0 is an hour, or a twelfth of that time where it is shorter."""
        require(0 <= width <= MAX_TIME, f"{what}: window = {width:g} s is not a valid time")
        submit = workload.jobs.submit
        width = width or min(3600.0, _span(submit) / WINDOWS) or 1.0
        require_jobs(f"{what}: windows of {width:g} s are as many as", _span(submit) / width + 1)
        count = max(int(np.ceil(_span(submit) / width)), 1)
        place = np.minimum(((submit - submit[0]) / width).astype(np.int64), count - 1)
        return cls(width, submit[0] + width * np.arange(count), place, float(submit[-1]))

    @property
    def count(self) -> int:
        return len(self.begin)

    @property
    def jobs(self) -> Array:
        """(windows,) how many jobs are submitted in each."""
        return np.bincount(self.place, minlength=self.count)


def _with_counts(workload: Workload, windows: _Windows, wanted: Array, draws: np.random.Generator, what: str) -> Workload:
    """Leave out or copy jobs until each window has as many as `wanted` (windows,); no job is copied twice before every job is once.

    With the same draws, the jobs of a smaller number are among those of a larger one.
    """
    require_jobs(what, max(int(wanted.sum()), 1))
    n, there = len(workload), windows.jobs
    order = np.lexsort((draws.random(n), windows.place))
    rank = np.empty(n, np.int64)
    rank[order] = np.arange(n) - np.repeat(np.cumsum(there) - there, there)
    each, rest = np.divmod(wanted, np.maximum(there, 1))
    times = each[windows.place] + (rank < rest[windows.place])
    rows, submit = [], []
    for k in range(1, int(times.max(initial=0))):
        copied, place = np.flatnonzero(times > k), draws.random(n)
        begin = windows.begin[windows.place[copied]]
        rows.append(copied)
        submit.append(begin + place[copied] * (np.minimum(begin + windows.width, windows.last) - begin))
    empty = np.zeros(0, np.int64)
    return with_copies(workload, np.minimum(times, 1), np.concatenate([empty, *rows]), np.concatenate([np.zeros(0), *submit]))


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


@transform("burst", title="1.5, 2, 2.5 or 3 times as many jobs in the busiest quarter of the time", random=True)
def burst(workload: Workload, seed: int, *, severity: int = 2, factor: float = 0.0, window: Seconds = 0.0, share: float = 0.25) -> Workload:
    """Multiply the number of jobs in the busiest `share` of the windows of time by `factor`.

    Jobs of such a window are copied, each to a time drawn uniformly from the window, so that its rate is `factor` times as high.
    Busiest: most jobs, the earlier window in a tie; at least one. `window` 0 is an hour, or a twelfth of the time from the first submit
    to the last where that is shorter. `factor` by severity 1.5, 2, 2.5, 3. Deadlines move along.
    """
    what = "transform burst"
    factor = level(what, severity, AMPLIFICATION, factor)
    require(1 < factor <= MOST_FACTOR, f"{what}: factor = {factor:g} does not lie in (1, {MOST_FACTOR:g}]")
    require(0 < share <= 1, f"{what}: share = {share:g} does not lie in (0, 1]")
    windows = _Windows.of(workload, window, what)
    busiest = np.argsort(-windows.jobs, kind="stable")[: max(round(share * windows.count), 1)]
    wanted = windows.jobs.astype(np.int64)
    wanted[busiest] = np.rint(factor * wanted[busiest])
    return _with_counts(workload, windows, wanted, stream(seed, "burst"), what)


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
    """Add `dips` outages of `depth` × GPUs devices for `duration` each, while jobs arrive.

    The time from the first submit to the last is cut into `dips` equal parts; one dip begins in each, uniformly, and ends within it.
    `duration` 0 is a quarter of a part. A dip takes whole nodes in random order, and of the last one only the devices that are
    still missing. Where `depth` × GPUs is not whole, it takes one device more and is shorter by as much: the device time that is lost stays
    the same. In a cluster without GPUs it takes that share of the nodes. Jobs that run there are requeued. `depth` by severity.
    """
    what = "transform capacity-dips"
    depth = level(what, severity, DEPTH, depth)
    require(0 < depth <= 1, f"{what}: depth = {depth:g} does not lie in (0, 1]")
    require(1 <= dips <= 10_000, f"{what}: {dips} dips; from 1 to 10,000")
    begin, part = float(workload.jobs.submit[0]), max(_span(workload.jobs.submit), 1.0) / dips
    duration = duration or part / 4
    require(0 < duration <= part, f"{what}: duration = {duration:g} s does not fit {dips} times into {part * dips:g} s")
    size = cluster.nodes.gpus.astype(np.int64) if cluster.gpus else np.ones(len(cluster.nodes), np.int64)
    down = max(int(np.ceil(depth * int(size.sum()) - 1e-9)), 1)
    length = duration * depth * int(size.sum()) / down
    draws = stream(seed, "capacity-dips")
    found: list[Outage] = []
    for k in range(dips):
        start = begin + k * part + float(draws.random()) * (part - length)
        for n, taken in _taken(size, draws.permutation(len(cluster.nodes)), down):
            found.append(Outage(n, start, start + length, None if taken == size[n] else taken))
    return replace(cluster, outages=(*cluster.outages, *found))


def _taken(size: Array, order: Array, devices: int) -> list[tuple[int, int]]:
    """Take so many devices from the nodes in this order; returns each node with how many of it, in the last one as many as are missing."""
    found = []
    for n in order[size[order] > 0].tolist():
        found.append((int(n), min(devices, int(size[n]))))
        devices -= found[-1][1]
        if devices == 0:
            break
    return found


@cluster_transform("slow-nodes", title="a quarter of the GPUs 1.25, 1.5, 2 or 3 times as slow", random=True)
def slow_nodes(
    cluster: Cluster, workload: Workload, seed: int, *, severity: int = 2, factor: float = 0.0, share: float = 0.25
) -> Cluster:  # fmt: skip
    """Divide the speed of round(`share` × GPUs) devices, at least one, by `factor`, for the whole run.

    They are those of whole nodes in random order; the devices that are still missing then become a node of their own, with the share of
    the cpus and memory that goes with them. Schedulers see the speeds as they see those of any device type. Devices of type `cpu` stay as
    they are. Jobs that ask for a type of GPU by name are refused: a slow device is another type. `factor` by severity 1.25, 1.5, 2, 3.
    """
    what = "transform slow-nodes"
    factor = level(what, severity, SLOWDOWN, factor)
    require(1 < factor <= 1e6, f"{what}: factor = {factor:g} does not lie in (1, 1e6]")
    require(0 < share <= 1, f"{what}: share = {share:g} does not lie in (0, 1]")
    asked = sorted({workload.jobs.gpu_types[k] for k in np.unique(workload.jobs.gpu_type)} - {""})
    if asked:
        raise DataError(f"{workload.name}: {what}: jobs ask for the GPU type {shorten(asked[0])}; a slow device would be another type")
    own = np.array([kind.name != "cpu" for kind in cluster.types])[cluster.nodes.gpu_type]
    size = np.where(own, cluster.nodes.gpus, 0).astype(np.int64)
    require(bool(size.any()), f"{what}: cluster {cluster.name} has no GPUs")
    order = stream(seed, "slow-nodes").permutation(len(cluster.nodes))
    return slowed(cluster, dict(_taken(size, order, max(round(share * int(size.sum())), 1))), factor)
