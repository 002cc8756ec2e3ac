"""Guesses a cluster for a trace without one: from the nodes that it names, a preset, the use that it sustained, or its load."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict, load_cluster
from gpuyard.model.storage import is_saved
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces.pools import Pool, Pools, find_pools

NODE_GPUS = 8  # GPUs of a guessed node
TARGET_LOAD = 0.7  # load of a cluster that is guessed from the work alone
STARTS = 0.5  # of the jobs must have a start for use over time to be known
_FILLED = "which the work of {} fills to about 70 %; the trace says neither what it ran on nor when"
_PLAIN = re.compile(r"[A-Za-z0-9_.,@+:-]+")  # what a shell and the short form of a cluster take


def guess_cluster(workload: Workload) -> tuple[Cluster, str]:
    """Return a cluster on which the workload may have run, and a sentence that says where it comes from.

    Guessed types have speed 1: a logged run time is what the job took there. Partitions that share a node become one.
    """
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs to guess a cluster from")
    known = bool(np.isfinite(workload.known_start).mean() >= STARTS)
    if counts_processors(workload):
        return _from_processors(workload, known=known)
    if workload.machines:
        return _from_machines(workload)
    if workload.preset:
        what = "the cluster of" if is_saved(Path(workload.preset)) else "the preset"
        return load_cluster(workload.preset), f"{what} {workload.preset}, which goes with {workload.name}"
    return _from_use(workload) if known else _from_load(workload)


def counts_processors(workload: Workload) -> bool:
    """Whether a log names no nodes but counts processors, of which it may say how many there are."""
    return len(workload.machines) == 1 and workload.machines[0].gpu_type == "cpu" and workload.machines[0].cpus == 0


def is_sure(workload: Workload) -> bool:
    """Whether a log says on which nodes, or on how many devices, it ran: the guess is then no guess."""
    return bool(workload.preset) or (bool(workload.machines) and not (counts_processors(workload) and workload.machines[0].gpus == 0))


def _from_processors(workload: Workload, *, known: bool) -> tuple[Cluster, str]:
    """Make pools of processors: as many as the log states, apart where its partitions are pools."""
    stated = workload.machines[0].gpus
    found = find_pools(workload, stated) if known else None
    if found is not None and found.apart:
        text = "+".join(_pool_text(pool) for pool in found.pools)
        cluster = cluster_from_dict(_pool_table(found), where=f"cluster guessed from {workload.name}")
        sizes = " + ".join(f"{pool.size:,}" for pool in found.pools)
        whole = f", of {stated:,} as {workload.name} says" if stated else ""
        other = _otherwise(text, stated or found.whole)
        return cluster, f"{len(found.pools)} pools of {sizes} processors{whole}: {_told(found)}. Otherwise: {other}"
    if stated:
        doubt = f" ({found.why})" if found is not None and found.why else ""
        return load_cluster(str(stated)), f"one pool of {stated:,} processors, as {workload.name} says{doubt}"
    if found is None:
        size = max(math.ceil(_even_load(workload)), int(workload.jobs.gpus.max()))
        return load_cluster(str(size)), f"one pool of {size:,} processors, {_FILLED.format(workload.name)}"
    size = found.pools[0].size
    why = f" ({found.why})" if found.why else ""
    return load_cluster(str(size)), f"one pool of processors: {found.pools[0].evidence}{why}. Otherwise: --cluster N"


def _pool_text(pool: Pool) -> str:
    return f"{pool.size}@{','.join((pool.name, *pool.also))}"


def _pool_table(found: Pools) -> dict[str, Any]:
    """Return pools of processors as a table in the form of a cluster file."""
    nodes = [{"gpus": pool.size, "type": "cpu", "partition": pool.name} for pool in found.pools]
    partitions = {pool.name: {"also": list(pool.also)} for pool in found.pools}
    return {"name": "+".join(_pool_text(pool) for pool in found.pools)[:200], "nodes": nodes, "partitions": partitions}


def _told(found: Pools) -> str:
    return "; ".join([found.why, *(pool.evidence for pool in found.pools)])


def _otherwise(text: str, whole: int) -> str:
    """Say how the guess is overridden in one line."""
    pools = f"--cluster {text}, with other numbers" if _PLAIN.fullmatch(text) else "a cluster file"
    return f"{pools}; as one pool: --cluster {whole}"


def _from_machines(workload: Workload) -> tuple[Cluster, str]:
    machines = workload.machines
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
    device = "processors" if {kind.name for kind in cluster.types} == {"cpu"} else "GPUs"
    return cluster, (
        f"{len(nodes):,} nodes that {workload.name} names, each as large as the most that ran there at once:"
        f" {cluster.gpus:,} {device}{merged}"
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


def _from_use(workload: Workload) -> tuple[Cluster, str]:
    """Make nodes for what ran at once, apart where the partitions of the log are pools."""
    jobs, start = workload.jobs, workload.known_start
    known = np.isfinite(start)
    if not (jobs.gpus[known] > 0).any():
        cores = math.ceil(peak(start[known], (start + workload.runtime)[known], jobs.cpus[known]))
        table = {"name": f"{cores} cores", "nodes": [{"gpus": 0, "cpus": cores}]}
        return cluster_from_dict(table), f"one node of {cores:,} cores, the most that ran at once in {workload.name}"
    found = find_pools(workload)
    cluster = _of_size(workload, found.pools)
    nodes = f"in nodes of at most {NODE_GPUS}"
    if found.apart:
        pools = [p.name for p in cluster.partitions]
        sizes = " + ".join(f"{int(cluster.nodes.gpus[cluster.nodes.partition == k].sum()):,}" for k in range(len(pools)))
        return cluster, f"{len(pools)} pools of {sizes} GPUs {nodes}: {_told(found)}. Otherwise: {_otherwise(cluster.name, found.whole)}"
    why = f" ({found.why})" if found.why else ""
    return cluster, f"{cluster.gpus:,} GPUs {nodes}: {found.pools[0].evidence}{why}. Otherwise: --cluster {cluster.name} with other numbers"


def _even_load(workload: Workload) -> float:
    """Return how many GPUs the work fills to the target load."""
    span = max(float(np.ptp(workload.jobs.submit)), float(workload.runtime.max()), 1.0)
    return float(workload.jobs.gpus @ workload.runtime) / span / TARGET_LOAD


def _from_load(workload: Workload) -> tuple[Cluster, str]:
    jobs = workload.jobs
    wanted = _even_load(workload)
    if wanted == 0:
        span = max(float(np.ptp(jobs.submit)), float(workload.runtime.max()), 1.0)
        cores = math.ceil(max(float(jobs.cpus @ workload.runtime) / span / TARGET_LOAD, float(jobs.cpus.max()), 1.0))
        table = {"name": f"{cores} cores", "nodes": [{"gpus": 0, "cpus": cores}]}
        return cluster_from_dict(table), f"one node of {cores:,} cores, which the work of {workload.name} fills to {TARGET_LOAD:.0%}"
    cluster = _of_size(workload, (Pool("", (), math.ceil(wanted), len(workload), 0, 0.0, "", 0),))
    return cluster, f"{cluster.gpus:,} GPUs in nodes of at most {NODE_GPUS}, {_FILLED.format(workload.name)}"


def _of_size(workload: Workload, pools: Sequence[Pool]) -> Cluster:
    """Return nodes of 8 for each pool, split by the types that its jobs ask for and large enough for the largest job of each."""
    apart, code = len(pools) > 1, np.zeros(len(workload), np.int64)
    if apart:
        place = {name: k for k, pool in enumerate(pools) for name in (pool.name, *pool.also)}
        code = np.array([place.get(label, 0) for label in workload.jobs.partitions])[workload.jobs.partition]
    nodes: list[dict[str, Any]] = []
    for k, pool in enumerate(pools):
        suffix = {"partition": pool.name} if apart else {}
        nodes += [node | suffix for node in _nodes_for(workload, pool.size, code == k)]
    names = [f"@{','.join((pool.name, *pool.also))}" if apart else "" for pool in pools]
    at = {pool.name: name for pool, name in zip(pools, names, strict=True)}
    label = "+".join(f"{node['count']}x{node['gpus']}:{node['type']}{at.get(node.get('partition', ''), '')}" for node in nodes)
    table: dict[str, Any] = {"name": label[:200], "nodes": nodes, "types": _types(node["type"] for node in nodes)}
    table |= {"partitions": {pool.name: {"also": list(pool.also)} for pool in pools}} if apart else {}
    return cluster_from_dict(table, where=f"cluster guessed from {workload.name}")


def _nodes_for(workload: Workload, gpus: float, rows: Array) -> list[dict[str, Any]]:
    """Return groups of nodes for some of the jobs, (jobs,) bool."""
    jobs = workload.jobs
    count, gpu_type, runtime = jobs.gpus[rows], jobs.gpu_type[rows], workload.runtime[rows]
    kind = np.array([label.split("|")[0] for label in jobs.gpu_types])[gpu_type]
    area = count * np.maximum(runtime, 1.0)
    asked = {str(name): float(area[kind == name].sum()) for name in np.unique(kind[(count > 0) & (kind != "")])} or {"gpu": 1.0}
    chunk = int(jobs.chunk[rows].max(initial=1))
    size = max(NODE_GPUS, chunk) if gpus > NODE_GPUS else max(math.ceil(gpus), chunk, math.ceil(float(count.max(initial=0))))
    total = sum(asked.values())
    made = []
    for name, part in asked.items():
        most = float(count[(kind == name) | (kind == "")].max(initial=1.0))
        made.append({"count": math.ceil(max(gpus * part / total, most) / size), "gpus": size, "type": name})
    return made


def peak(start: Array, end: Array, amount: Array) -> float:
    """Return the most that intervals [start, end) (n,) hold at once; one that ends as another begins does not overlap it."""
    used = (amount > 0) & (end > start)
    times = np.concatenate([end[used], start[used]])
    change = np.concatenate([-amount[used], amount[used]])
    order = np.lexsort((change, times))
    return float(np.cumsum(change[order]).max(initial=float(amount.max(initial=0.0))))
