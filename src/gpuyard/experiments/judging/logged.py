"""Makes a Result from a log's own start times: what actually happened, in the form of a simulated one."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import BIN, ROW, SEGMENT, STATUS, Result
from gpuyard.model.workload import Workload
from gpuyard.traces.guess import peak

LABEL = "log"  # in place of a scheduler's label
BINS = 2048
ENOUGH = 0.5  # of the jobs must have a start for the log to be a line of a comparison


def has_log(workload: Workload) -> bool:
    """Whether the start of at least half of the jobs is known."""
    return len(workload) > 0 and float(np.isfinite(workload.known_start).mean()) >= ENOUGH


def logged_result(workload: Workload, cluster: Cluster) -> Result:
    """Turn a log into a Result on `cluster`, which matters for shares of its devices only.

    Nodes are not known; jobs without a start are pending.
    A log has one run of each job, at the speed that it had: what was stopped and started again in between cannot be seen.
    """
    jobs, start = workload.jobs, workload.known_start
    known = np.isfinite(start)
    table = np.zeros(len(workload), ROW)
    table["start"], table["end"] = start, start + workload.runtime
    table["ran"] = np.where(known, workload.runtime, 0.0)
    table["gpu_seconds"] = table["ran"] * jobs.gpus
    table["rate"], table["node"] = 1.0, -1
    table["status"] = np.where(known, STATUS.index("done"), STATUS.index("pending"))
    first = float(jobs.submit[known].min())
    last = float(np.nanmax(table["end"]))
    wait = start[known] - jobs.submit[known]
    totals = {
        "first_submit": first,
        "last_end": last,
        "queue_integral": float(wait.sum()),
        "queue_max": peak(jobs.submit[known], start[known], np.ones(int(known.sum()))) if (wait > 0).any() else 0.0,
    }
    totals |= _by_type(workload, cluster, table["gpu_seconds"], last - first)
    manifest = {"measured": True, "scheduler": LABEL, "workload": workload.name}
    timeline = _timeline(jobs.submit[known], table[known], jobs.gpus[known], cluster, first, last)
    return Result(
        workload, cluster, LABEL, 0, table, timeline, np.empty(0, SEGMENT), MappingProxyType(totals), MappingProxyType(manifest),
    )  # fmt: skip


def _by_type(workload: Workload, cluster: Cluster, gpu_seconds: Array, length: float) -> dict[str, float]:
    """Busy and available device-seconds by type. Work on an unknown type is spread over all types by their devices."""
    labels = np.array(workload.jobs.gpu_types)[workload.jobs.gpu_type]
    nodes = cluster.nodes
    devices = np.bincount(nodes.gpu_type, weights=nodes.gpus, minlength=len(cluster.types))
    busy = np.array([gpu_seconds[labels == kind.name].sum() for kind in cluster.types])
    busy = busy + (gpu_seconds.sum() - busy.sum()) * devices / max(devices.sum(), 1.0)
    totals = {f"busy/{kind.name}": float(value) for kind, value in zip(cluster.types, busy, strict=True)}
    return totals | {f"up/{kind.name}": float(count * length) for kind, count in zip(cluster.types, devices, strict=True)}


def _timeline(submit: Array, rows: Array, gpus: Array, cluster: Cluster, first: float, last: float) -> Array:
    if last <= first:
        return np.empty(0, BIN)
    edges = np.linspace(first, last, BINS + 1)
    bins = np.zeros(BINS, BIN)
    bins["time"], bins["span"], bins["up"] = edges[:-1], np.diff(edges), cluster.gpus
    bins["queue"] = _mean_over(submit, rows["start"], np.ones(len(submit)), edges)
    bins["queue_max"] = np.ceil(bins["queue"])
    bins["busy"] = _mean_over(rows["start"], rows["end"], gpus, edges)
    return bins


def _mean_over(start: Array, end: Array, amount: Array, edges: Array) -> Array:
    """(bins,) mean of the amounts of the intervals [start, end) (n,) over each bin."""
    total = _integral(start, amount, edges) - _integral(end, amount, edges)
    means: Array = np.diff(total) / np.diff(edges)
    return np.maximum(means, 0.0)  # rounding leaves −1e-12 where nothing is


def _integral(since: Array, amount: Array, edges: Array) -> Array:
    """(edges,) Σ amount · max(edge − since, 0)."""
    order = np.argsort(since, kind="stable")
    times = since[order] - edges[0]
    count = np.concatenate([[0.0], np.cumsum(amount[order])])
    moment = np.concatenate([[0.0], np.cumsum(amount[order] * times)])
    at = np.searchsorted(times, edges - edges[0])
    area: Array = count[at] * (edges - edges[0]) - moment[at]
    return area
