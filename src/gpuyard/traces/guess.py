"""Guesses a cluster for a trace without one: from the nodes that it names, a preset, what ran at once, or its load."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict, load_cluster
from gpuyard.model.storage import is_saved
from gpuyard.model.workload import Machine, Workload

NODE_GPUS = 8  # GPUs of a guessed node
TARGET_LOAD = 0.7  # load of a cluster that is guessed from the work alone


def guess_cluster(workload: Workload) -> tuple[Cluster, str]:
    """Return a cluster on which the workload may have run, and a sentence that says where it comes from.

    Guessed types have speed 1: a logged run time is what the job took there. Partitions that share a node become one.
    """
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs to guess a cluster from")
    if workload.machines:
        return _from_machines(workload)
    if workload.preset:
        what = "the cluster of" if is_saved(Path(workload.preset)) else "the preset"
        return load_cluster(workload.preset), f"{what} {workload.preset}, which goes with {workload.name}"
    start = workload.known_start
    if np.isfinite(start).mean() >= 0.5:
        return _from_peak(workload, np.where(np.isfinite(start), start, workload.jobs.submit))
    return _from_load(workload)


def _from_machines(workload: Workload) -> tuple[Cluster, str]:
    machines = workload.machines
    if len(machines) == 1 and machines[0].gpus > 0 and machines[0].cpus == 0:
        return load_cluster(str(machines[0].gpus)), f"one pool of {machines[0].gpus:,} processors, as {workload.name} says"
    group = _partition_groups(machines)
    named = {first: sorted(name for name, root in group.items() if root == first) for first in set(group.values())}
    partitions = {first: {"also": [name for name in names if name != first]} for first, names in sorted(named.items())}
    nodes = [_node(machine, group, single=len(partitions) < 2) for machine in machines]
    table: dict[str, Any] = {"name": "a guessed cluster", "nodes": nodes, "types": _types(node["type"] for node in nodes)}
    if len(partitions) > 1:
        table["partitions"] = partitions
    cluster = cluster_from_dict(table, where=f"cluster guessed from {workload.name}")
    joined = [" + ".join(names) for names in named.values() if len(names) > 1]
    merged = f"; partitions that share nodes are one: {', '.join(sorted(joined))}" if joined and len(partitions) > 1 else ""
    return cluster, (
        f"{len(nodes):,} nodes that {workload.name} names, each as large as the most that ran there at once:"
        f" {cluster.gpus:,} GPUs or processors{merged}"
    )


def _node(machine: Machine, group: Mapping[str, str], *, single: bool) -> dict[str, Any]:
    node: dict[str, Any] = {"name": machine.name, "gpus": machine.gpus, "type": machine.gpu_type or ("gpu" if machine.gpus else "cpu")}
    node |= {"cpus": machine.cpus} if machine.cpus else {}
    node |= {"memory": machine.memory} if machine.memory else {}
    return node if single or not machine.partitions else node | {"partition": group[machine.partitions[0]]}


def _types(names: Iterable[str]) -> dict[str, dict[str, float]]:
    return {name: {"speed": 1.0} for name in dict.fromkeys(names)}


def _partition_groups(machines: Iterable[Machine]) -> dict[str, str]:
    """Map each partition to the first name among those with which it shares nodes, directly or through others."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root[name] != name:
            root[name] = root[root[name]]
            name = root[name]
        return name

    for machine in machines:
        for name in machine.partitions:
            root.setdefault(name, name)
            ends = sorted((find(name), find(machine.partitions[0])))
            root[ends[1]] = ends[0]
    return {name: find(name) for name in root}


def _from_peak(workload: Workload, start: Array) -> tuple[Cluster, str]:
    jobs, end = workload.jobs, start + workload.runtime
    gpus, cpus = peak(start, end, jobs.gpus), peak(start, end, jobs.cpus)
    if gpus == 0:
        table = {"name": f"{math.ceil(cpus)} cores", "nodes": [{"gpus": 0, "cpus": math.ceil(cpus)}]}
        return cluster_from_dict(table), f"one node of {math.ceil(cpus):,} cores, the most that ran at once in {workload.name}"
    cluster = _of_size(workload, gpus)
    return cluster, f"{cluster.gpus:,} GPUs, the most that ran at once in {workload.name}, in nodes of at most {NODE_GPUS}"


def _from_load(workload: Workload) -> tuple[Cluster, str]:
    jobs = workload.jobs
    span = max(float(np.ptp(jobs.submit)), float(workload.runtime.max()), 1.0)
    work = float(jobs.gpus @ workload.runtime)
    if work == 0:
        cores = max(float(jobs.cpus @ workload.runtime) / span / TARGET_LOAD, float(jobs.cpus.max()), 1.0)
        table = {"name": f"{math.ceil(cores)} cores", "nodes": [{"gpus": 0, "cpus": math.ceil(cores)}]}
        return cluster_from_dict(
            table
        ), f"one node of {math.ceil(cores):,} cores, which the work of {workload.name} fills to {TARGET_LOAD:.0%}"
    cluster = _of_size(workload, work / span / TARGET_LOAD)
    return cluster, (
        f"{cluster.gpus:,} GPUs in nodes of at most {NODE_GPUS}, which the work of {workload.name} fills to about {TARGET_LOAD:.0%};"
        " the trace says neither what it ran on nor when"
    )


def _of_size(workload: Workload, gpus: float) -> Cluster:
    """Return nodes of 8 for that many GPUs, split by the types that jobs ask for and large enough for the largest job of each."""
    jobs = workload.jobs
    kind = np.array([label.split("|")[0] for label in jobs.gpu_types])[jobs.gpu_type]
    area = jobs.gpus * np.maximum(workload.runtime, 1.0)
    asked = {str(name): float(area[kind == name].sum()) for name in np.unique(kind[(jobs.gpus > 0) & (kind != "")])} or {"gpu": 1.0}
    chunk = int(jobs.chunk.max(initial=1))
    size = max(NODE_GPUS, chunk) if gpus > NODE_GPUS else max(math.ceil(gpus), chunk, math.ceil(float(jobs.gpus.max())))
    most = {name: float(jobs.gpus[(kind == name) | (kind == "")].max(initial=1.0)) for name in asked}
    total = sum(asked.values())
    nodes = []
    for name, part in asked.items():
        count = math.ceil(max(gpus * part / total, most[name]) / size)
        nodes.append({"count": count, "gpus": size, "type": name})
    label = "+".join(f"{node['count']}x{node['gpus']}:{node['type']}" for node in nodes)
    return cluster_from_dict({"name": label[:200], "nodes": nodes, "types": _types(asked)}, where=f"cluster guessed from {workload.name}")


def peak(start: Array, end: Array, amount: Array) -> float:
    """Return the most that intervals [start, end) (n,) hold at once; one that ends as another begins does not overlap it."""
    used = (amount > 0) & (end > start)
    times = np.concatenate([end[used], start[used]])
    change = np.concatenate([-amount[used], amount[used]])
    order = np.lexsort((change, times))
    return float(np.cumsum(change[order]).max(initial=float(amount.max(initial=0.0))))
