"""Works out once, for a list of jobs on a cluster, what every state begins with, whatever scheduler works on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.kernels.outages import FAILURE, REPAIR
from gpuyard.engine.memory import FIELD, packed
from gpuyard.engine.mix import divisions, named_partitions, type_set
from gpuyard.engine.rows.ranking import ASKS
from gpuyard.model.cluster import MAX_DEVICES, MAX_SHARING, Cluster
from gpuyard.model.jobs import Jobs


@dataclass(frozen=True)
class Ground:
    """Jobs on a cluster, before the first submission."""

    jobs: int
    nodes: int
    devices: int  # 1 where no job asks for a share of one
    pool: int  # parts that runs can have at once
    sharers: int  # most partitions that share nodes; 0: none do
    table: Array  # (jobs,) JOB
    beginning: Array  # bytes of the arrays that do not begin with zeros
    lengths: tuple[int, ...]  # by the fields of State; 0: the program decides, or the array is given


_LABELLED = ("partition_of", "pair_at", "pairs", "partition_factor", "speed", "type_rank", "allowed", "qos_factor")


def ground_of(jobs: Jobs, cluster: Cluster) -> Ground:
    """Work it out, or take what was worked out for the same objects before; both are frozen."""
    known = jobs.derived.get("ground")
    if known is None or known[0] is not cluster:
        known = jobs.derived["ground"] = cluster, _worked_out(jobs, cluster)
    found: Ground = known[1]
    return found


@dataclass(frozen=True)
class _ClusterRows:
    """Holds what a cluster settles by itself; some of it is copied for each list of jobs."""

    control: Array
    nodes: Array
    partitions: Array
    types: Array
    outages: Array
    mix_at: Array
    fragment: Array
    members: Array
    total: int  # devices
    lengths: tuple[int, ...]  # by the fields of State, of the arrays that jobs do not change


def _rows_of(cluster: Cluster, homes: Array) -> _ClusterRows:
    """Work it out once for a cluster, which is frozen: for short runs it takes longer than all that the jobs settle.

    `homes` are the divisions of its partitions, which seldom depend on the jobs.
    """
    key = homes.tobytes()
    if "rows" not in cluster.derived or cluster.derived["rows"][0] != key:
        nodes = _node_rows(cluster, homes)
        partitions, words = _partitions(cluster, nodes, homes)
        arrays = {
            "control": _control(cluster),
            "nodes": nodes,
            "partitions": partitions,
            "types": _types(cluster),
            "outages": _outages(cluster, nodes),
            "mix_at": np.zeros(len(partitions) + 1, np.int64),
            "fragment": np.full(len(nodes), -1, np.int64),
            "members": _members(cluster),
        }
        lengths = {name: len(array) for name, array in arrays.items()} | _scratch(len(nodes)) | {"free_index": words}
        by_field = tuple(lengths.get(name, 0) for name in st.State._fields)
        cluster.derived["rows"] = key, _ClusterRows(**arrays, total=int(nodes["gpus"].sum()), lengths=by_field)
    found: _ClusterRows = cluster.derived["rows"][1]
    return found


def _worked_out(jobs: Jobs, cluster: Cluster) -> Ground:
    named = named_partitions(jobs, cluster)
    homes = divisions(named, cluster)
    gpus, rows, n = jobs.gpus, _rows_of(cluster, homes), len(jobs)
    small = gpus[gpus < 1]
    shared = int(np.count_nonzero(small))
    nodes, types = rows.nodes, rows.types.copy()
    types["since"] = _first_submit(jobs)
    partition_of = np.array([homes[numbers[0]] if numbers else -1 for numbers in named], np.int32)
    pool = min(rows.total, int(np.ceil(gpus.sum()))) + len(small) + 1
    contents = {
        "control": _with_jobs(rows.control, jobs, sharing=shared > 0),
        "nodes": nodes,
        "partitions": _with_queues(rows.partitions, partition_of, jobs),
        "types": types,
        "mix_at": rows.mix_at,
        "fragment": rows.fragment,
        "partition_of": partition_of,
        "outages": rows.outages,
        "members": rows.members,
        **_pairs(named, rows.partitions),
        **_by_label(jobs, cluster),
    }
    lengths = list(rows.lengths)
    for name in _LABELLED:
        lengths[FIELD[name]] = len(contents[name])
    own = {
        "queue_keys": n,
        "queue_jobs": n,
        "end_times": min(n, pool),
        "ends": min(n, pool),
        "parts": pool,
        "users": len(jobs.users),
        "terms": 2 * len(jobs.term_texts),
    }
    own |= {"rows": n, "devices": rows.total if shared else 1}  # zeros: a policy may read rows of jobs to come, always the same nothing
    for name, length in own.items():
        lengths[FIELD[name]] = length
    sharers = int(rows.partitions["shared"].max())
    return Ground(n, len(nodes), own["devices"], pool, sharers, np.ascontiguousarray(jobs.table), packed(contents), tuple(lengths))


def _pairs(named: Sequence[Sequence[int]], partitions: Array) -> dict[str, Array]:
    """Return the partitions of each label, the highest tier first, and the highest of their factors; a label of none has the first's."""
    if len(partitions) == 1:  # as it is for most short runs
        nobody = np.zeros(len(named) + 1, np.int32)
        return {"pair_at": nobody, "pairs": np.zeros(1, np.int32), "partition_factor": np.repeat(partitions["factor"], len(named))}
    ordered = [sorted(numbers, key=lambda number: int(partitions["tier"][number])) for numbers in named]
    factors = partitions["factor"].tolist()
    return {
        "pair_at": np.cumsum([0, *map(len, ordered)]).astype(np.int32),
        "pairs": np.array([number for numbers in ordered for number in numbers] or [0], np.int32),
        "partition_factor": np.array([max((factors[number] for number in numbers), default=factors[0]) for numbers in named]),
    }


def _by_label(jobs: Jobs, cluster: Cluster) -> dict[str, Array]:
    """Return the tables that labels of jobs point into; those of the last labels are kept, since most workloads have the same."""
    labels = jobs.classes, jobs.gpu_types, jobs.qoses
    known: Any = cluster.derived.get("labels")
    if known is None or known[0] != labels:
        known = cluster.derived["labels"] = (
            labels,
            {
                "speed": _speeds(jobs.classes, cluster),
                "type_rank": _type_ranks(jobs.classes, cluster),
                "allowed": np.array([type_set(label, cluster) for label in jobs.gpu_types], np.int64),
                "qos_factor": _relative([cluster.qos.get(name, 0.0) for name in jobs.qoses], max(cluster.qos.values(), default=0.0)),
            },
        )
    made: dict[str, Array] = known[1]
    return made


def _scratch(nodes: int) -> dict[str, int]:
    """Return the lengths of the arrays that are alike for all jobs: most of them last no longer than a pass."""
    small = ("recent_work", "system", "tally", "pick_device", "notes", "plan_time", "plan_used", "plan_free", "plan_cells", "legal")
    return dict.fromkeys(small, 1) | {
        "history": st.HISTORY * st.SAMPLE,
        "partial": MAX_DEVICES + 1,
        "room": nodes,
        "pick_node": nodes + 1,
        "pick_units": nodes + 1,
        "candidates": nodes,
        "outputs": st.OUTPUTS,
        "asks": ASKS,
        "busy_until": nodes,
        "host_sums": st.HOST_SUMS,
    }


def _members(cluster: Cluster) -> Array:
    """(nodes,) uint64 by node number: the bit set of its partitions; zeros where there are too many partitions to share nodes."""
    nodes = cluster.nodes
    if nodes.member_of is not None:
        return nodes.member_of.astype(np.uint64)
    if len(cluster.partitions) > MAX_SHARING:
        return np.zeros(len(nodes), np.uint64)
    return np.uint64(1) << nodes.partition.astype(np.uint64)


def _node_rows(cluster: Cluster, homes: Array) -> Array:
    nodes = cluster.nodes
    home = homes[nodes.partition]
    order = np.argsort(home, kind="stable")
    rows = np.zeros(len(nodes), st.NODE_ROW)
    rows["number"] = order
    rows["partition"] = home[order]
    for name in ("gpus", "gpu_type", "rack", "cpus", "memory"):
        rows[name] = getattr(nodes, name)[order]
    rows["free"] = rows["gpus"]
    rows["free_cpus"] = rows["cpus"]
    rows["free_memory"] = rows["memory"]
    rows["speed"] = np.array([kind.speed for kind in cluster.types])[rows["gpu_type"]]
    rows["share"] = np.where(rows["gpus"] > 0, 1.0, 0.0)
    identity = rows["gpus"] <= MAX_DEVICES
    first = np.cumsum(rows["gpus"]) - rows["gpus"]
    rows["first_device"] = np.where(identity, first, -1)
    bits = np.array([(1 << g) - 1 for g in range(MAX_DEVICES + 1)], np.uint64)
    rows["mask"] = np.where(identity, bits[np.minimum(rows["gpus"], MAX_DEVICES)], 0)
    return rows


def _partitions(cluster: Cluster, nodes: Array, homes: Array) -> tuple[Array, int]:
    """Partition rows, without queues, and how many words the index of free nodes needs.

    Partitions that share nodes have their nodes and their queue in the row of the first of them.
    """
    count = len(cluster.partitions)
    parts = np.zeros(count, st.PARTITION_ROW)
    parts["node_lo"] = np.searchsorted(nodes["partition"], np.arange(count), "left")
    parts["node_hi"] = np.searchsorted(nodes["partition"], np.arange(count), "right")
    parts["quota"] = [partition.quota for partition in cluster.partitions]
    priorities = [partition.priority for partition in cluster.partitions]
    parts["factor"] = _relative(priorities, max(priorities))
    parts["index"] = -1
    tiers = np.array([partition.tier for partition in cluster.partitions])
    for home in np.flatnonzero(np.bincount(homes) > 1).tolist():
        inside = np.flatnonzero(homes == home)
        values, place = np.unique(-tiers[inside], return_inverse=True)
        parts["tier"][inside] = place.ravel()
        parts["shared"][home], parts["tiers"][home] = len(inside), len(values)
        for number in inside.tolist():
            parts["touches"][number] = np.bitwise_or.reduce(_members(cluster)[cluster.nodes.of_partition(number)]) | np.uint64(1 << number)
    words = 0
    for p in range(count):
        lo, hi = int(parts["node_lo"][p]), int(parts["node_hi"][p])
        nodes["word"][lo:hi] = np.arange(hi - lo)
        gpus = nodes["gpus"][lo:hi]
        parts["total"][p] = gpus.sum()
        most = int(gpus.max()) if hi > lo else 0
        cpus = nodes["cpus"][lo:hi]
        parts["most_gpus"][p], parts["most_cpus"][p] = most, cpus[np.isfinite(cpus)].max(initial=0.0)
        if hi - lo >= st.INDEX_FROM and 0 < most <= MAX_DEVICES:
            size = (hi - lo + 63) // 64
            parts["index"][p], parts["words"][p], parts["levels"][p] = words, size, most
            words += most * (size + (size + 63) // 64)
    return parts, max(words, 1)


def _with_queues(partitions: Array, partition_of: Array, jobs: Jobs) -> Array:
    """Return the rows with a region of the queue for each, as long as all its jobs."""
    parts = partitions.copy()
    if len(parts) == 1:  # as it is for most short runs: the rest takes as long as all else that is worked out for the jobs
        parts["queue_hi"] = len(jobs)
        return parts
    per_label = np.bincount(jobs.partition, minlength=len(partition_of))
    per_partition = np.bincount(np.maximum(partition_of, 0), weights=per_label, minlength=len(parts)).astype(np.int64)
    parts["queue_hi"] = np.cumsum(per_partition)
    parts["queue_lo"] = parts["queue_hi"] - per_partition
    for name in ("head", "tail", "first_run"):
        parts[name] = parts["queue_lo"]
    return parts


def _relative(priorities: Sequence[float], highest: float) -> Array:
    """Priorities as parts of the highest; 0 where there are none."""
    values = np.array(priorities, np.float64)
    return values / highest if highest > 0 else np.zeros(len(values))


def _types(cluster: Cluster) -> Array:
    types = np.zeros(len(cluster.types), st.TYPE_ROW)
    types["up"] = np.bincount(cluster.nodes.gpu_type, weights=cluster.nodes.gpus, minlength=len(types))
    for name in ("transfer", "speed", "idle_watts", "busy_watts"):
        types[name] = [getattr(kind, name) for kind in cluster.types]
    return types


def _speeds(classes: Sequence[str], cluster: Cluster) -> Array:
    return np.array([[cluster.speed_of(name, kind) for kind in cluster.types] for name in classes], np.float64).ravel()


def _type_ranks(classes: Sequence[str], cluster: Cluster) -> Array:
    """For each class the types by (speed, highest first; price, lowest first); equal ones have the same rank."""
    ranks = []
    for name in classes:
        keys = [(-cluster.speed_of(name, kind), kind.price) for kind in cluster.types]
        order = sorted(set(keys))
        ranks += [order.index(key) for key in keys]
    return np.array(ranks, np.int32)


def _outages(cluster: Cluster, nodes: Array) -> Array:
    """Failures and repairs by time; at one time repairs first, then as listed."""
    where = np.empty(len(nodes), int)
    where[nodes["number"]] = np.arange(len(nodes))
    events = []
    for i, outage in enumerate(cluster.outages):
        gpus = -1 if outage.gpus is None else outage.gpus
        events.append((outage.start, FAILURE, i, where[outage.node], gpus))
        if np.isfinite(outage.end):
            events.append((outage.end, REPAIR, i, where[outage.node], gpus))
    events.sort(key=lambda e: (e[0], e[1], e[2]))
    rows = np.zeros(len(events), st.OUTAGE_ROW)
    failure_at: dict[int, int] = {}
    for k, (time, kind, i, node, gpus) in enumerate(events):
        rows[k] = (time, kind, node, gpus, 0, 0, failure_at.setdefault(i, k))
    return rows


def _first_submit(jobs: Jobs) -> float:
    return float(jobs.submit[0]) if len(jobs) else 0.0


def _control(cluster: Cluster) -> Array:
    """The numbers that exist once, as far as the cluster settles them."""
    speeds = [kind.speed for kind in cluster.types] + [x for row in cluster.speed.values() for x in row.values()] + [1.0]
    return _filled(np.zeros(1, st.CONTROL_ROW), {
        "span_nodes": cluster.span_nodes,
        "span_racks": cluster.span_racks,
        "fastest": max(speeds) * max(1.0, cluster.span_nodes, cluster.span_racks),
        "least_transfer": min([kind.transfer for kind in cluster.types] + [1.0]),
        "bin_width": 1.0,
        "up": cluster.gpus,
        "gpus": cluster.gpus,
        "next_estimate": np.inf,
        "choice": -1,
        "open_head": -1,
        "open_job": -1,
    })  # fmt: skip


def _with_jobs(control: Array, jobs: Jobs, *, sharing: bool) -> Array:
    """Return the numbers as far as jobs settle them too."""
    first = _first_submit(jobs)
    begins = dict.fromkeys(("bin_origin", "last_tick", "first_submit", "last_end"), first)
    return _filled(control.copy(), {**begins, "sharing": sharing, "hosts": bool((jobs.cpus > 0).any() or (jobs.memory > 0).any())})


def _filled(control: Array, values: Mapping[str, float]) -> Array:
    for name, value in values.items():
        control[name] = value
    return control
