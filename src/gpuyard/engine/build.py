"""Workload, cluster and program → the state that the kernels work on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.estimating import with_estimates
from gpuyard.engine.kernels.backfill import BACKFILL_CONSERVATIVE, BACKFILL_EASY, BACKFILL_SKIP
from gpuyard.engine.kernels.outages import FAILURE, REPAIR
from gpuyard.engine.mix import partition_numbers, request_mix, type_set
from gpuyard.engine.slots import Program
from gpuyard.model.cluster import MAX_DEVICES, Cluster
from gpuyard.model.estimator import Predictor
from gpuyard.model.jobs import Jobs
from gpuyard.model.result import ROW
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import MIX


def build_state(
    jobs: Jobs, runtime: Array, cluster: Cluster, program: Program, seed: int, rules: Rules, *, segments: bool, mix: Array | None = None,
    predictor: Predictor | None = None,
) -> st.State:  # fmt: skip
    """Allocate everything; no job is submitted yet, and the kernel still needs the order to PREPARE.

    `mix` is what jobs ask for, where that is known already; else it is counted from `jobs`, if a placement reads it.
    """
    gpus = jobs.gpus
    shared = int(np.count_nonzero((gpus > 0) & (gpus < 1)))
    tracking = any(slot.tracks_running for slot in program.slots)
    nodes = _node_rows(cluster)
    partition_of = partition_numbers(jobs, cluster)
    partitions, index = _partitions(cluster, nodes, partition_of, jobs)
    n, m = len(jobs), len(nodes)
    sifted = n if any(slot.backfill in (BACKFILL_SKIP, BACKFILL_EASY) for slot in program.slots) else 1
    total = int(nodes["gpus"].sum())
    pool = min(total, int(np.ceil(gpus.sum()))) + shared + int(np.count_nonzero(gpus == 0)) + 1
    if mix is None:
        mix = request_mix(jobs, cluster) if any(slot.reads_mix for slot in program.slots) else np.zeros(0, MIX)
    made = st.State.of(
        control=_control(jobs, cluster, program, seed, rules, tracking=tracking, sharing=shared > 0, segments=segments),
        table=np.ascontiguousarray(jobs.table),
        runtime=np.ascontiguousarray(runtime),
        rows=np.zeros(n, st.JOB_ROW),  # a policy may read rows of jobs to come: always the same nothing
        result=np.zeros(n, ROW),
        nodes=nodes,
        partitions=partitions,
        queue_keys=np.empty(n),
        queue_jobs=np.empty(n, np.int32),
        queue_need=np.empty(sifted, np.float32),
        queue_length=np.empty(sifted, np.float32),
        running_jobs=np.empty(n if tracking else 1, np.int32),
        running_ends=np.empty(n if tracking else 1),
        end_times=np.empty(min(n, pool)),
        ends=np.empty(min(n, pool), np.int32),
        parts=_part_pool(pool),
        devices=np.zeros(total if shared else 1),
        types=_types(cluster, jobs),
        speed=_speeds(jobs.classes, cluster),
        type_rank=_type_ranks(jobs.classes, cluster),
        allowed=np.array([type_set(label, cluster) for label in jobs.gpu_types], np.int64),
        mix=mix,
        mix_at=np.searchsorted(mix["partition"], np.arange(len(cluster.partitions) + 1)),
        fragment=np.full(m, -1, np.int64),
        partition_of=partition_of,
        qos_factor=_relative([cluster.qos.get(name, 0.0) for name in jobs.qoses], max(cluster.qos.values(), default=0.0)),
        users=np.zeros(len(jobs.users), st.USER_ROW),
        recent_work=np.zeros(1),
        outages=_outages(cluster, nodes),
        slots=_slots(program),
        params=_params(program),
        free_index=index,
        bins=np.zeros(st.BINS, st.BIN_ROW),
        log=np.zeros(1024 if segments else 1, st.LOG_ROW),
        system=np.zeros(1, st.SYSTEM_ROW),
        tally=np.zeros(1, st.TALLY_ROW),
        history=np.zeros(st.HISTORY * st.SAMPLE),
        **_scratch(n, m, total if shared else 1, program, tracking=tracking),
    )
    return as_seen_by_kernels(made if predictor is None else with_estimates(made, jobs, predictor))


def _scratch(n: int, m: int, devices: int, program: Program, *, tracking: bool) -> dict[str, Array]:
    """Allocate what lasts no longer than a pass, for n jobs, m nodes and so many devices that are shared."""
    scored = n if any(slot.preemption for slot in program.slots) else 1
    planning = m if any(slot.backfill == BACKFILL_CONSERVATIVE for slot in program.slots) else 1
    return {
        "partial": np.zeros(MAX_DEVICES + 1, np.int64),
        "room": np.zeros(m, np.int32),
        "score": np.zeros(max(m, scored)),
        "pick_node": np.zeros(m + 1, np.int32),
        "pick_units": np.zeros(m + 1, np.int32),
        "pick_device": np.full(1, -1, np.int64),
        "candidates": np.zeros(m, np.int32),
        "shadow_nodes": np.zeros(m if tracking else 1, st.NODE_ROW),
        "shadow_devices": np.zeros(devices if tracking else 1),
        "notes": np.zeros(1, np.int32),
        "plan_time": np.zeros(1),
        "plan_used": np.zeros(1),
        "plan_free": np.zeros(1, np.int32),
        "plan_cpus": np.zeros(1),
        "plan_memory": np.zeros(1),
        "least_cpus": np.zeros(planning),
        "least_memory": np.zeros(planning),
        "least_free": np.zeros(planning, np.int32),
        "legal": np.zeros(1, np.int32),
        "scratch": np.zeros(max(program.scratch, 1), np.float32),
        "outputs": np.zeros(st.OUTPUTS),
        "busy_until": np.zeros(m),
        "host_sums": np.zeros(st.HOST_SUMS),
    }


def as_seen_by_kernels(s: st.State) -> st.State:
    """Records with attributes where kernels run as plain Python; nothing to do where they are compiled."""
    return st.State._make(a.view(np.recarray) if a.dtype.names else a for a in s) if INTERPRETED else s


def _node_rows(cluster: Cluster) -> Array:
    nodes = cluster.nodes
    order = np.argsort(nodes.partition, kind="stable")
    rows = np.zeros(len(nodes), st.NODE_ROW)
    rows["number"] = order
    for name in ("gpus", "gpu_type", "rack", "partition", "cpus", "memory"):
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


def _partitions(cluster: Cluster, nodes: Array, partition_of: Array, jobs: Jobs) -> tuple[Array, Array]:
    """Partition rows, and the words of the index of free nodes."""
    count = len(cluster.partitions)
    parts = np.zeros(count, st.PARTITION_ROW)
    parts["node_lo"] = np.searchsorted(nodes["partition"], np.arange(count), "left")
    parts["node_hi"] = np.searchsorted(nodes["partition"], np.arange(count), "right")
    per_label = np.bincount(jobs.partition, minlength=len(partition_of))
    per_partition = np.bincount(np.maximum(partition_of, 0), weights=per_label, minlength=count).astype(np.int64)
    parts["queue_hi"] = np.cumsum(per_partition)
    parts["queue_lo"] = parts["queue_hi"] - per_partition
    parts["head"] = parts["queue_lo"]
    parts["tail"] = parts["queue_lo"]
    parts["first_run"] = parts["queue_lo"]
    parts["quota"] = [partition.quota for partition in cluster.partitions]
    priorities = [partition.priority for partition in cluster.partitions]
    parts["factor"] = _relative(priorities, max(priorities))
    parts["index"] = -1
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
    return parts, np.zeros(max(words, 1), np.uint64)


def _relative(priorities: Sequence[float], highest: float) -> Array:
    """Priorities as parts of the highest; 0 where there are none."""
    values = np.array(priorities, np.float64)
    return values / highest if highest > 0 else np.zeros(len(values))


def _part_pool(size: int) -> Array:
    parts = np.zeros(size, st.PART_ROW)
    parts["next"] = np.arange(1, size + 1)
    parts["next"][-1] = -1
    return parts


def _types(cluster: Cluster, jobs: Jobs) -> Array:
    types = np.zeros(len(cluster.types), st.TYPE_ROW)
    types["up"] = np.bincount(cluster.nodes.gpu_type, weights=cluster.nodes.gpus, minlength=len(types))
    types["since"] = _first_submit(jobs)
    for name in ("transfer", "idle_watts", "busy_watts"):
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


def _slots(program: Program) -> Array:
    slots = np.zeros(len(program.slots), st.SLOT_ROW)
    for name in st.SLOT_ROW.names or ():
        slots[name] = [int(getattr(slot, name)) for slot in program.slots]
    return slots


def _params(program: Program) -> Array:
    params = np.zeros((len(program.slots), 4, st.PARAMS))
    for i, slot in enumerate(program.slots):
        for k, values in enumerate((slot.ordering_params, slot.placement_params, slot.preemption_params)):
            params[i, k, : len(values)] = values
    params[0, 3, : len(program.switch_params)] = program.switch_params
    return params.ravel()


def _first_submit(jobs: Jobs) -> float:
    return float(jobs.submit[0]) if len(jobs) else 0.0


def _control(
    jobs: Jobs, cluster: Cluster, program: Program, seed: int, rules: Rules, *, tracking: bool, sharing: bool, segments: bool
) -> Array:
    control = np.zeros(1, st.CONTROL_ROW)
    first = _first_submit(jobs)
    speeds = [kind.speed for kind in cluster.types] + [x for row in cluster.speed.values() for x in row.values()] + [1.0]
    values = {
        "checkpoint": rules.checkpoint,
        "restart_cost": rules.restart_cost,
        "kills": rules.walltime_kill,
        "span_nodes": cluster.span_nodes,
        "span_racks": cluster.span_racks,
        "fastest": max(speeds) * max(1.0, cluster.span_nodes, cluster.span_racks),
        "least_transfer": min([kind.transfer for kind in cluster.types] + [1.0]),
        "timer": program.timer,
        "switch": program.switch,
        "switch_every": program.switch_every,
        "bin_width": 1.0,
        "bin_origin": first,
        "last_tick": first,
        "first_submit": first,
        "last_end": first,
        "up": cluster.gpus,
        "gpus": cluster.gpus,
        "half_life": program.half_life,
        "seed": seed,
        "logging": segments,
        "tracking": tracking,
        "sharing": sharing,
        "timeline": True,
        "network": program.network,
        "next_estimate": np.inf,
        "choice": -1,
        "open_head": -1,
        "open_job": -1,
        "hosts": bool((jobs.cpus > 0).any() or (jobs.memory > 0).any()),
    }
    for name, value in values.items():
        control[name] = value
    return control
