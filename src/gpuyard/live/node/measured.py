"""The jobs that a node has run as a measured `Result`: for the same metrics, charts and comparisons as a simulated one."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.files import from_plain
from gpuyard.live.node.api import Message
from gpuyard.live.node.jobs import NodeJob, RunState, job_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.result import BIN, ROW, SEGMENT, STATUS, Result
from gpuyard.model.workload import Workload
from gpuyard.traces.origin import origin_note

BINS = 256  # of the timeline
_STATUS = {RunState.done: "done", RunState.failed: "done", RunState.killed: "killed", RunState.lost: "killed"}


def measured_result(answer: Message) -> Result:
    """Return the jobs of a node's answer to `history` with runs, as a result. Those that never ran are left out and counted."""
    every = [job_of(each) for each in answer["jobs"]]
    runs = _runs(answer["runs"])
    sizes = {int(each["id"]): float(each["size"]) for each in answer["jobs"]}
    jobs = sorted((job for job in every if job.id in runs), key=lambda job: (job.submit, job.id))
    if not jobs:
        raise DataError("no job has ended yet after it ran", hint="gpuyard queue")
    origin = min(job.submit for job in jobs)
    cluster = cluster_from_dict(from_plain(answer["cluster"]), where="the node's cluster")
    gpus = np.array([sizes[job.id] for job in jobs])
    workload = _workload(jobs, gpus, runs, origin, len(every) - len(jobs), cluster)
    table = _table(jobs, gpus, runs, origin, answer["places"])
    segments = _segments(jobs, gpus, runs, origin, answer["places"])
    timeline = _timeline(workload.jobs.submit, table, segments, cluster.gpus)
    manifest = {
        "kind": "measured", "scheduler": answer["scheduler"], "version": answer["version"], "from": origin, "until": float(answer["now"]),
        "states": dict(Counter(job.state.value for job in every)), "joules": sum(job.energy for job in jobs),
        "job_joules": {str(job.id): job.energy for job in jobs if job.energy},
    }  # fmt: skip
    totals = _totals(workload.jobs.submit, table, segments, cluster)
    return Result(workload, cluster, str(answer["scheduler"]), 0, table, timeline, segments, MappingProxyType(totals), manifest)


Runs = dict[int, list[tuple[float, float, tuple[str, ...]]]]  # job → begin, end and devices of each of its runs, in order


def _runs(rows: Sequence[Sequence[Any]]) -> Runs:
    found: Runs = {}
    for job, began, ended, devices in rows:
        if ended > began > 0:
            found.setdefault(int(job), []).append((float(began), float(ended), tuple(devices)))
    return {job: sorted(each) for job, each in found.items()}


def _workload(jobs: Sequence[NodeJob], gpus: Array, runs: Runs, origin: float, never: int, cluster: Cluster) -> Workload:
    """Return the jobs as they were asked for; how long one takes is how long its runs took in all."""
    users, classes = ([*dict.fromkeys(texts)] for texts in ([job.user for job in jobs], [job.asked.job_class for job in jobs]))
    on_cpus = all(kind.name == "cpu" for kind in cluster.types)
    columns: dict[str, Any] = {
        "id": [job.id for job in jobs], "submit": [job.submit - origin for job in jobs], "gpus": gpus,
        "estimate": [job.expected if job.expected > 0 else math.nan for job in jobs], "walltime": [job.asked.walltime for job in jobs],
        "deadline": [max(job.asked.deadline - origin, 0.0) for job in jobs],
        "cpus": [0.0 if on_cpus else job.asked.cpus for job in jobs], "memory": [job.asked.memory for job in jobs],
        "priority": [job.asked.priority for job in jobs], "user": [users.index(job.user) for job in jobs],
        "job_class": [classes.index(job.asked.job_class) for job in jobs], "chunk": np.maximum(gpus, 1.0),
    }  # fmt: skip
    conditional = sum(bool(job.asked.after or job.asked.after_any or job.asked.begin > job.submit or job.asked.array_limit) for job in jobs)
    notes = [origin_note(origin)]
    if conditional:
        notes.append(f"{conditional:,} jobs had to wait for others, for a time or for their array; a simulation does not know that")
    return Workload.build(
        columns, [sum(end - begin for begin, end, _ in runs[job.id]) for job in jobs], name="node", users=users, classes=classes,
        logged_start=[runs[job.id][0][0] - origin for job in jobs], dropped={"never ran": never} if never else {}, notes=notes,
    )  # fmt: skip


def _table(jobs: Sequence[NodeJob], gpus: Array, runs: Runs, origin: float, places: Mapping[str, Sequence[int]]) -> Array:
    table = np.zeros(len(jobs), ROW)
    ran = np.array([sum(end - begin for begin, end, _ in runs[job.id]) for job in jobs])
    nodes = [{places[uuid][0] for uuid in runs[job.id][-1][2] if uuid in places} or {0} for job in jobs]
    columns: dict[str, Any] = {
        "start": [runs[job.id][0][0] - origin for job in jobs], "end": [runs[job.id][-1][1] - origin for job in jobs], "ran": ran,
        "gpu_seconds": ran * gpus, "rate": 1.0, "nodes": [len(each) for each in nodes], "node": [min(each) for each in nodes],
        "preemptions": [len(runs[job.id]) - 1 for job in jobs], "status": [STATUS.index(_STATUS[job.state]) for job in jobs],
    }  # fmt: skip
    for name, values in columns.items():
        table[name] = values
    return table


def _segments(jobs: Sequence[NodeJob], gpus: Array, runs: Runs, origin: float, places: Mapping[str, Sequence[int]]) -> Array:
    """Return a row for each run on each node."""
    rows = []
    for row, job in enumerate(jobs):
        for begin, end, devices in runs[job.id]:
            found = [places[uuid] for uuid in devices if uuid in places]
            for node in sorted({node for node, _ in found}):
                mine = [device for where, device in found if where == node]
                held = min(float(gpus[row]), float(len(mine)))
                mask = sum(1 << device for device in mine) if max(mine) < 64 else 0
                rows.append((row, node, held, mask, begin - origin, end - origin))
    return np.array(rows, SEGMENT) if rows else np.zeros(0, SEGMENT)


def _timeline(submit: Array, table: Array, segments: Array, devices: float) -> Array:
    """Return waiting jobs and busy devices over time. A job that was stopped waits no second time here."""
    edges = np.linspace(0.0, float(table["end"].max()), BINS + 1)
    bins = np.zeros(BINS, BIN)
    bins["time"], bins["span"], bins["up"] = edges[:-1], np.diff(edges), devices
    width = np.maximum(bins["span"], 1e-9)
    bins["queue"] = np.diff(_covered(submit, table["start"], np.ones(len(submit)), edges)) / width
    bins["busy"] = np.diff(_covered(segments["start"], segments["end"], segments["gpus"], edges)) / width
    instants = np.concatenate([submit, table["start"]])
    order = np.argsort(instants, kind="stable")
    waiting = np.cumsum(np.repeat([1.0, -1.0], len(submit))[order])
    np.maximum.at(bins["queue_max"], np.clip(np.searchsorted(edges, instants[order], "right") - 1, 0, BINS - 1), waiting)
    bins["queue_max"] = np.maximum(bins["queue_max"], bins["queue"])
    return bins


def _covered(start: Array, end: Array, weight: Array, edges: Array) -> Array:
    """(edges,) Return the integral of the weights of all spans up to each edge."""
    return np.array([float(weight @ np.clip(edge - start, 0.0, end - start)) for edge in edges.tolist()])


def _totals(submit: Array, table: Array, segments: Array, cluster: Cluster) -> dict[str, float]:
    first, last = float(submit.min()), float(table["end"].max())
    held = segments["gpus"] * (segments["end"] - segments["start"])
    kinds = cluster.nodes.gpu_type
    totals = {"first_submit": first, "last_end": last, "failures": 0.0, "migrations": 0.0}
    for number, kind in enumerate(cluster.types):
        totals[f"busy/{kind.name}"] = float(held[kinds[segments["node"]] == number].sum())
        totals[f"up/{kind.name}"] = float(cluster.nodes.gpus[kinds == number].sum()) * (last - first)
    return totals
