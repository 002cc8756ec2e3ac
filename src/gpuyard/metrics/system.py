"""Metrics of the whole run: use of the devices, energy, money, stops and the scheduler's own speed."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import busy_until, by_type, has_status, last_submit, length, ratio, total, up_until, window
from gpuyard.model.result import Result

WHOLE = "all jobs: the cluster from the first submit to the last end"
LOADED = "all jobs: the cluster from the first to the last submit; where all come at once, to the last end"
JOULES_PER_KWH = 3.6e6


@metric(
    "utilization", title="utilisation", unit="1", better="higher", kind="run", formula="busy GPU·s / up GPU·s until the last submit",
    covers=LOADED, missing="the cluster has no devices, or no time passed",
)  # fmt: skip
def utilization(result: Result) -> float:
    """Share of the device time that jobs held while jobs came: until the last submit, or the last end if all came at once. Devices out of
    order do not count as up; work that is lost later counts as busy. Every device counts alike, also one of type `cpu`."""
    until = last_submit(result)
    if np.isnan(until) or until <= window(result)[0] or until == window(result)[1]:
        return utilization_drained(result)
    return ratio(busy_until(result, until), up_until(result, until))


@metric(
    "utilization_drained", title="utilisation of the whole run", unit="1", better="higher", kind="run",
    formula="Σ busy GPU·s / Σ up GPU·s over device types", source="Feitelson & Rudolph 1998", covers=WHOLE,
    missing="the cluster has no devices, or no time passed",
)  # fmt: skip
def utilization_drained(result: Result) -> float:
    """Utilisation until the last job has ended. All schedulers do the same work, so that it says how long the run was: the longest job
    decides that more than the scheduler."""
    return ratio(float(by_type(result, "busy").sum()), float(by_type(result, "up").sum()))


@metric(
    "utilization_flops", title="utilisation by FLOPS", unit="1", better="higher", kind="run",
    formula="Σ tflops·busy GPU·s / Σ tflops·up GPU·s over device types", covers=WHOLE,
    missing="the cluster has no devices, or no time passed",
)  # fmt: skip
def utilization_flops(result: Result) -> float:
    """Utilisation of the whole run with each device weighted by its type's tflops. Equal to `utilization_drained` when all types have the
    same tflops."""
    tflops = np.array([kind.tflops for kind in result.cluster.types])
    return ratio(float(tflops @ by_type(result, "busy")), float(tflops @ by_type(result, "up")))


@metric(
    "energy", title="energy", unit="kWh", better="lower", kind="run",
    formula="(idle watts · up GPU·s + (busy − idle watts) · busy GPU·s) / 3.6e6 until the last submit", covers=LOADED,
    missing="no device type states its watts, or the run states no device time",
)  # fmt: skip
def energy(result: Result) -> float:
    """Energy of the devices while jobs came (until the last submit, or the last end if all came at once), including idle ones, without
    those out of order; nodes and cooling are not included. Watts are means over the types, weighted by their time over the whole run. Who
    does less by then also uses less: read it beside `throughput`; `energy_drained` is the energy of all the work."""
    whole, until = energy_drained(result), last_submit(result)
    busy, up = float(by_type(result, "busy").sum()), float(by_type(result, "up").sum())
    if np.isnan(whole) or not up > 0 or until == window(result)[1]:
        return whole
    idle = float(np.array([kind.idle_watts for kind in result.cluster.types]) @ by_type(result, "up")) / JOULES_PER_KWH
    extra = (whole - idle) * busy_until(result, until) / busy if busy > 0 else 0.0
    return idle * up_until(result, until) / up + extra


@metric(
    "energy_drained", title="energy of the whole run", unit="kWh", better="lower", kind="run",
    formula="Σ (idle watts · up GPU·s + (busy − idle watts) · busy GPU·s) / 3.6e6 over device types", covers=WHOLE,
    missing="no device type states its watts, or the run states no device time",
)  # fmt: skip
def energy_drained(result: Result) -> float:
    """Energy of the devices until the last job has ended, including idle ones, without those out of order. The time that devices stand
    idle beside the last long job is in it."""
    idle = np.array([kind.idle_watts for kind in result.cluster.types])
    busy = np.array([kind.busy_watts for kind in result.cluster.types])
    if not (idle.any() or busy.any()):
        return np.nan
    return float(idle @ by_type(result, "up") + (busy - idle) @ by_type(result, "busy")) / JOULES_PER_KWH


@metric(
    "energy_per_job", title="energy per job", unit="kWh", better="lower", kind="run", formula="energy_drained / jobs done",
    covers="the energy of the whole run over the jobs done; what killed and unfinished jobs used is in it",
    missing="no job was done, no device type states its watts, or the run states no device time",
)  # fmt: skip
def energy_per_job(result: Result) -> float:
    """Energy for each job done, idle devices included."""
    return ratio(energy_drained(result), float(has_status(result, "done").sum()))


@metric(
    "cost", title="cost", unit="money", better="lower", kind="run",
    formula="Σ devices · price per hour · (last end − first submit) over device types", covers=WHOLE,
    missing="no device type states a price, or no time passed",
)  # fmt: skip
def cost(result: Result) -> float:
    """Cost of the devices while the run lasts, busy or not, also when out of order; in the currency of the prices."""
    price = np.array([kind.price for kind in result.cluster.types])
    if not price.any():
        return np.nan
    nodes = result.cluster.nodes
    devices = np.bincount(nodes.gpu_type, weights=nodes.gpus, minlength=len(price))
    return float(price @ devices) * length(result) / 3600.0


@metric(
    "failures", title="stops by failures", unit="1", better="lower", kind="run", formula="times a job was requeued by an outage",
    covers=WHOLE, missing="the run does not state it",
)  # fmt: skip
def failures(result: Result) -> float:
    """Requeues caused by outages; `preemptions` counts them too."""
    return total(result, "failures")


@metric(
    "migrations", title="migrations", unit="1", better="lower", kind="run", formula="times a job was moved to other devices at once",
    covers=WHOLE, missing="the run does not state it",
)  # fmt: skip
def migrations(result: Result) -> float:
    """Moves of running jobs to other devices."""
    return total(result, "migrations")


@metric(
    "node_utilization", title="utilisation of nodes", unit="1", better="higher", kind="node",
    formula="GPU·s held on the node / (its GPUs · (last end − first submit))", covers="every job that ran, all its runs",
    missing="no time passed, a node without devices, or a run without segments in which some job spanned nodes or was stopped",
    segments=True,
)  # fmt: skip
def node_utilization(result: Result) -> Array:
    """Share of each node's device time that jobs held; outages are not subtracted. Without segments, a job's time counts on the one
    node that its row names, which is exact unless a job spanned nodes or ran more than once."""
    gpus = result.cluster.nodes.gpus.astype(np.float64)
    available = np.where(gpus > 0, gpus, np.nan) * length(result)
    return _busy_by_node(result) / available


def _busy_by_node(result: Result) -> Array:
    """Return (nodes,) GPU·s held; all nan where the rows alone do not say."""
    nodes = len(result.cluster.nodes)
    if len(result.segments):
        parts = result.segments
        return np.bincount(parts["node"], weights=parts["gpus"] * (parts["end"] - parts["start"]), minlength=nodes)
    ran = result.table[result.table["node"] >= 0]
    if (ran["nodes"] > 1).any() or (ran["preemptions"] > 0).any():
        return np.full(nodes, np.nan)
    return np.bincount(ran["node"], weights=ran["gpu_seconds"], minlength=nodes)


@metric(
    "load_imbalance", title="load imbalance", unit="1", better="lower", kind="run",
    formula="standard deviation / mean over nodes of GPU·s held per device of the node", covers="every job that ran, all its runs",
    missing="nothing ran, or a run without segments in which some job spanned nodes or was stopped", segments=True,
)  # fmt: skip
def load_imbalance(result: Result) -> float:
    """Coefficient of variation of the nodes' load, per device, so that unequal nodes can be balanced. 0: all nodes alike."""
    load = node_utilization(result)
    load = load[~np.isnan(load)]
    return ratio(float(load.std()), float(load.mean())) if len(load) else np.nan


@metric(
    "core_utilization", title="utilisation of cores", unit="1", better="higher", kind="run",
    formula="Σ over jobs cpus · ran / (Σ cpus of the nodes · (last end − first submit))", covers="every job that ran, all its runs",
    missing="no node states its cpus, or no time passed",
)  # fmt: skip
def core_utilization(result: Result) -> float:
    """Share of the cores' time that jobs held; outages are not subtracted."""
    return _held(result, result.workload.jobs.cpus, result.cluster.nodes.cpus)


@metric(
    "memory_utilization", title="utilisation of memory", unit="1", better="higher", kind="run",
    formula="Σ over jobs memory · ran / (Σ memory of the nodes · (last end − first submit))", covers="every job that ran, all its runs",
    missing="no node states its memory, or no time passed",
)  # fmt: skip
def memory_utilization(result: Result) -> float:
    """Share of the memory's time that jobs held; outages are not subtracted."""
    return _held(result, result.workload.jobs.memory, result.cluster.nodes.memory)


def _held(result: Result, asked: Array, there: Array) -> float:
    room = float(there.sum())
    if not np.isfinite(room) or room <= 0:
        return np.nan
    return ratio(float((asked * np.nan_to_num(result.table["ran"])).sum()), room * length(result))


@metric(
    "core_imbalance", title="imbalance of cores", unit="1", better="lower", kind="run",
    formula="standard deviation / mean over nodes of core·s held per core of the node", covers="every job that ran",
    missing="nothing ran, a node without cores, or some job spanned nodes or was stopped",
)  # fmt: skip
def core_imbalance(result: Result) -> float:
    """Coefficient of variation of the nodes' load, per core. 0: all nodes alike."""
    nodes, ran = result.cluster.nodes, result.table["node"] >= 0
    rows = result.table[ran]
    if not len(rows) or (rows["nodes"] > 1).any() or (rows["preemptions"] > 0).any() or not (nodes.cpus > 0).all():
        return np.nan
    held = np.bincount(rows["node"], weights=result.workload.jobs.cpus[ran] * rows["ran"], minlength=len(nodes))
    load = held / nodes.cpus
    return ratio(float(load.std()), float(load.mean()))


def entropy_of(counts: Array) -> float:
    """Return the entropy of choices that were made so often, as a share of the most: 0 always the same, 1 all alike; nan without any."""
    shares = counts / max(counts.sum(), 1)
    used = shares[shares > 0]
    if not len(used):
        return np.nan
    return float(-(used * np.log2(used)).sum() / np.log2(len(counts))) + 0.0 if len(counts) > 1 else 0.0


@metric(
    "choice_entropy", title="entropy of choices", unit="1", better="neither", kind="run",
    formula="−Σ pᵢ·log₂ pᵢ / log₂ n over the n schedulers, pᵢ = times chosen / choices",
    covers="every choice of a scheduler that switches between others", missing="the scheduler does not switch, or never had to choose",
)  # fmt: skip
def choice_entropy(result: Result) -> float:
    """How evenly a meta-scheduler, learned or a bandit, used its schedulers: 0 if it kept to one, 1 if it chose all equally often."""
    stated = result.manifest.get("chosen")
    return entropy_of(np.array(stated, dtype=float)) if isinstance(stated, list | tuple) and len(stated) else np.nan


@metric(
    "decision_latency", title="decision latency", unit="µs", better="lower", kind="run", formula="wall-clock time / scheduling passes",
    covers=WHOLE, missing="the run's manifest does not state `decision_us`", reproducible=False,
)  # fmt: skip
def decision_latency(result: Result) -> float:
    """Microseconds of real time per scheduling pass. For a decider: from a snapshot to its decisions. For a compiled scheduler: the
    whole event loop, most of which is passes. It differs from run to run and from machine to machine."""
    stated = result.manifest.get("decision_us")
    return float(stated) if isinstance(stated, int | float) else np.nan
