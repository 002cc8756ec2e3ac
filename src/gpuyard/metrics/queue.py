"""Metrics of the queue over time: its length, how a backlog is worked off, and free devices that waiting jobs cannot use."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import accepted, length, ratio, total, window
from gpuyard.model.result import Result

EXPLOSION = 200  # jobs waiting
WHOLE = "all accepted jobs"
EPSILON = 1e-6  # GPUs: shares of devices do not add up exactly


@metric(
    "queue_mean", title="queue length, mean", unit="jobs", better="lower", kind="run",
    formula="∫ jobs waiting dt / (last end − first submit)", covers=WHOLE, missing="no time passed, or the run does not state it",
)  # fmt: skip
def queue_mean(result: Result) -> float:
    """Jobs waiting, on average over time."""
    return total(result, "queue_integral") / length(result)


@metric(
    "queue_max", title="queue length, most", unit="jobs", better="lower", kind="run", formula="max over time of jobs waiting", covers=WHOLE,
    missing="the run does not state it",
)  # fmt: skip
def queue_max(result: Result) -> float:
    """The most jobs that waited at once."""
    return total(result, "queue_max")


@metric(
    "queue_explosions", title="queue explosions", unit="1", better="lower", kind="run",
    formula=f"times the queue grew past {EXPLOSION} jobs", covers=WHOLE, missing="the run does not state it",
)  # fmt: skip
def queue_explosions(result: Result) -> float:
    """How often the number of waiting jobs rose from at most 200 to more."""
    return total(result, "queue_explosions")


def backlog_level(result: Result) -> float:
    """Return the number of waiting jobs beyond which the cluster is *behind*: as many as it could run at once, at least 1.

    It is devices / mean GPUs of the accepted jobs that ask for some. It depends on the workload and the cluster only, so that all
    schedulers are held to the same level. nan without such jobs.
    """
    gpus = result.workload.jobs.gpus[accepted(result)]
    gpus = gpus[gpus > 0]
    return max(result.cluster.gpus / float(gpus.mean()), 1.0) if len(gpus) else np.nan


def _bins(result: Result) -> Array:
    return result.timeline[result.timeline["span"] > 0]


@metric(
    "recovery", title="recovery time", unit="s", better="lower", kind="run", formula="max over backlogs of (end of the backlog − its peak)",
    covers=WHOLE, missing="no accepted job asks for GPUs, or the run has no timeline",
)  # fmt: skip
def recovery(result: Result) -> float:
    """The longest time it took to work off a backlog once it had stopped growing. A backlog is a stretch of the timeline in which
    more jobs wait (mean of each bin) than the cluster could run at once: more than max(1, devices / mean GPUs of a job), a level that
    does not depend on the scheduler. Its peak is the end of the first bin with the longest queue; it ends where the first bin at or
    below the level begins, or with the timeline. 0 if there was never a backlog. The resolution is one bin."""
    bins, level = _bins(result), backlog_level(result)
    if np.isnan(level) or not len(bins):
        return np.nan
    behind = np.concatenate([[False], bins["queue"] > level, [False]])
    begins = np.flatnonzero(behind[1:] & ~behind[:-1])
    ends = np.flatnonzero(~behind[1:] & behind[:-1])  # the first bin after each backlog
    close = bins["time"] + bins["span"]
    longest = 0.0
    for begin, end in zip(begins, ends, strict=True):
        peak = begin + int(np.argmax(bins["queue"][begin:end]))
        longest = max(longest, float(close[end - 1] - close[peak]))
    return longest


def recovery_after(result: Result, instant: float, level: float | None = None) -> float:
    """Return the seconds from a known change (the end of a burst, a repair) until the queue is first at or below `level`.

    The timeline gives it with the resolution of one bin; `level` is `backlog_level(result)` unless given. 0 if the queue is not
    above it at `instant`; until the end of the timeline if it never comes down; nan if `instant` is not in the timeline.
    """
    bins = _bins(result)
    limit = backlog_level(result) if level is None else level
    close = bins["time"] + bins["span"]
    after = close > instant
    if np.isnan(limit) or not after.any() or instant < bins["time"][0]:
        return np.nan
    bins, close = bins[after], close[after]
    below = np.flatnonzero(bins["queue"] <= limit)
    recovered = bins["time"][below[0]] if len(below) else close[-1]
    return max(float(recovered) - instant, 0.0)


def phase_recoveries(result: Result) -> Array:
    """Return for each change of phase the seconds until its backlog is worked off: (phases − 1,); nan where nothing says.

    It is the time from the change until the queue is at or below `backlog_level(result)` for the rest of the phase: 0 if it never was
    above it, the whole length of the phase if it is at its end. The last phase ends with the timeline. The resolution is one bin.
    """
    bins, level = _bins(result), backlog_level(result)
    starts = [start for start, _ in result.workload.phases]
    if len(starts) < 2 or np.isnan(level) or not len(bins):
        return np.full(max(len(starts) - 1, 0), np.nan)
    close = bins["time"] + bins["span"]
    found = []
    for start, end in zip(starts[1:], [*starts[2:], float(close[-1])], strict=True):
        behind = (bins["queue"] > level) & (close > start) & (bins["time"] < end)
        found.append(min(float(close[behind].max()), end) - start if behind.any() else 0.0)
    return np.array(found)


@metric(
    "phase_recovery", title="recovery after a change of phase", unit="s", better="lower", kind="run",
    formula="mean over changes of phase of (last instant of a backlog in the phase − the change)", covers=WHOLE,
    missing="the workload has no phases, no accepted job asks for GPUs, or the run has no timeline",
)  # fmt: skip
def phase_recovery(result: Result) -> float:
    """How long the queue takes to settle when the regime of arrivals changes (`drift`): from each change until no more jobs wait than the
    cluster could run at once, for the rest of that phase. A phase that ends with a backlog counts with its whole length; the last
    one goes on until all jobs have ended."""
    found = phase_recoveries(result)
    return float(found.mean()) if len(found) else np.nan


@metric(
    "fragmentation", title="idle while jobs wait", unit="1", better="lower", kind="run",
    formula="Σ w·(up − busy) / Σ w·up over the bins of the timeline, w = span · min(1, mean queue)", covers=WHOLE,
    missing="no job ever waited, the cluster has no devices, or the run has no timeline",
)  # fmt: skip
def fragmentation(result: Result) -> float:
    """Share of the devices that are free while some job waits: because it does not fit, a reservation holds them or a quota forbids
    them. The weight is the longest part of a bin's span in which the queue can have been non-empty."""
    bins = _bins(result)
    weight = bins["span"] * np.minimum(bins["queue"], 1.0)
    return ratio(float(weight @ (bins["up"] - bins["busy"])), float(weight @ bins["up"]))


@metric(
    "node_fragmentation", title="free on partly used nodes", unit="1", better="lower", kind="run",
    formula="∫ free GPUs on nodes that are partly in use dt / ∫ free GPUs dt", covers="every job that ran, all its runs",
    missing="a run without segments, or no device was ever free", segments=True,
)  # fmt: skip
def node_fragmentation(result: Result) -> float:
    """Share of the free device time on partly used nodes, where a job that needs whole nodes cannot use it. Devices out of
    order are not free. Exact, from the segments."""
    first, last = window(result)
    if not len(result.segments) or not last > first:
        return np.nan
    node, span, used, down = _node_intervals(result, first, last)
    capacity = result.cluster.nodes.gpus[node]
    free = np.maximum(capacity - used - np.minimum(down, capacity), 0.0)
    partly = (used > EPSILON) & (free > EPSILON)
    return ratio(float((free * span)[partly].sum()), float((free * span).sum()))


def _node_intervals(result: Result, first: float, last: float) -> tuple[Array, Array, Array, Array]:
    """Return for each stretch between two changes of a node: node, seconds, GPUs in use, GPUs out of order."""
    nodes, parts, outages = result.cluster.nodes, result.segments, result.cluster.outages
    count, every = len(nodes), np.arange(len(nodes))
    lost = np.array([float(nodes.gpus[o.node] if o.gpus is None else o.gpus) for o in outages])
    none = np.zeros(len(parts))
    node = np.concatenate([parts["node"], np.array([o.node for o in outages], dtype=np.int64), every])
    start = np.concatenate([parts["start"], [o.start for o in outages], np.full(count, first)])
    end = np.concatenate([parts["end"], [o.end for o in outages], np.full(count, last)])
    used = np.concatenate([parts["gpus"], 0.0 * lost, np.zeros(count)])
    down = np.concatenate([none, lost, np.zeros(count)])
    node, used, down = np.tile(node, 2), np.concatenate([used, -used]), np.concatenate([down, -down])
    time = np.clip(np.nan_to_num(np.concatenate([start, end]), nan=last), first, last)
    order = np.lexsort((time, node))
    node, time = node[order], time[order]
    same = node[1:] == node[:-1]  # changes of a node add up to 0, so one running sum serves all nodes
    span = np.where(same, time[1:] - time[:-1], 0.0)
    return node[:-1], span, np.cumsum(used[order])[:-1], np.cumsum(down[order])[:-1]
