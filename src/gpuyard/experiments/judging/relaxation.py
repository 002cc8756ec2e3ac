"""A workload and a cluster reduced to what no scheduler can change: the least seconds on devices, and how much there is of each resource.

Whoever decides, preempts or knows the future: job j is accepted or rejected by the same rule, it holds its g_j devices for at least d_j
seconds after its submit r_j, and jobs that run at once do not hold more devices, cpus or memory than there are. All else is given up: which
devices, which nodes, outages, restarts, lost work. What is least under the relaxed rules is a bound on what is least under the real ones.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import entry, inner
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.queue import ends_insert, ends_remove
from gpuyard.engine.mix import partition_numbers, type_set
from gpuyard.model.cluster import EPS, MAX_DEVICES, Cluster
from gpuyard.model.rules import Rules, terms_table
from gpuyard.model.workload import Workload


@dataclass(frozen=True, eq=False)
class Relaxation:
    """The accepted jobs, by submit, and the devices of their partitions.

    `least`: s on devices, min over the types t that job j may use of D_jt = transfer·factor_t + runtime / speed_jt; a gang of several types
    is as slow as on the slowest, so no faster than on any one of them. A job that is stopped pays the transfer again, hence seconds h_t on
    types t end it only if Σ h_t / D_jt ≥ 1: seconds on type t are worth d_j / D_jt ≤ 1 seconds on the best one.
    `speed`: of a partition, Σ over its devices of the most that any of its jobs gets out of them, in these seconds.
    """

    rows: Array  # (accepted,) positions in the workload
    submit: Array  # (accepted,) s
    gpus: Array  # (accepted,)
    least: Array  # (accepted,) s on devices, at least
    most: Array  # (accepted,) s on devices of a run that is never stopped, at most
    alone: Array  # (accepted,) s, the runtime that the metrics divide by, at most
    partition: Array  # (accepted,) of the cluster
    devices: Array  # (partitions,) that may be held at once
    speed: Array  # (partitions,) s of the best devices, per second
    others: tuple[tuple[Array, Array], ...] = ()  # cpus, memory: (accepted,) needed and (partitions,) there, where they are limited

    def parts(self) -> Iterator[tuple[int, Array]]:
        """Each partition with the positions of its jobs that hold something for some time. The others never wait."""
        holds = np.logical_or.reduce([self.gpus > 0, *(need > 0 for need, _ in self.others)])
        takes = holds & (self.least > 0)
        for p in np.unique(self.partition[takes]).tolist():
            yield p, np.flatnonzero(takes & (self.partition == p))


def relax(workload: Workload, cluster: Cluster, rules: Rules) -> Relaxation:
    """Reduce a workload; with `rules.walltime_kill` a job ends after its walltime on devices, if that is earlier."""
    rows = np.flatnonzero(accepted_jobs(workload, cluster))
    jobs, runtime = workload.jobs.table[rows], workload.runtime[rows]
    partition = np.maximum(partition_numbers(workload.jobs, cluster), 0)[jobs["partition"]]
    seconds, slowest = _device_seconds(workload, cluster, jobs, runtime, partition)
    limit = jobs["walltime"] if rules.walltime_kill else np.full(len(jobs), np.inf)
    surely_killed = seconds.min(axis=1) > limit
    seconds = np.minimum(seconds, np.where(np.isfinite(seconds), limit[:, None], np.inf))
    least = seconds.min(axis=1)
    devices, speed = _capacity(cluster, jobs, partition, seconds, least)
    alone = np.where(surely_killed, np.minimum(runtime, limit), runtime)
    most = np.minimum(slowest / terms_table(workload.jobs.term_texts, rules)["writing"][jobs["terms"]], limit)
    others = tuple((jobs[name], _room(cluster, name)) for name in ("cpus", "memory") if (jobs[name] > 0).any())
    return Relaxation(rows, jobs["submit"], jobs["gpus"], least, most, alone, partition, devices, speed, others)


def _room(cluster: Cluster, resource: str) -> Array:
    """(partitions,) cpus or memory of all nodes, with the tolerance of comparisons; inf where some node has no limit."""
    there = getattr(cluster.nodes, resource) + EPS
    room: Array = np.bincount(cluster.nodes.partition, weights=there, minlength=len(cluster.partitions))
    return room


def _device_seconds(workload: Workload, cluster: Cluster, jobs: Array, runtime: Array, partition: Array) -> tuple[Array, Array]:
    """(jobs, types) s on devices of each type, inf where there are none for the job; and (jobs,) the most that it can take."""
    kinds = cluster.types
    here = _device_counts(cluster) > 0
    allowed = np.array([[type_set(label, cluster) >> t & 1 for t in range(len(kinds))] for label in workload.jobs.gpu_types], bool)
    usable = allowed[jobs["gpu_type"]] & here[partition]
    speed = np.array([[cluster.speed_of(name, kind) for kind in kinds] for name in workload.jobs.classes])[jobs["job_class"]]
    factor = np.array([kind.transfer for kind in kinds])
    spans = (1.0, cluster.span_nodes, cluster.span_racks)
    gang, transfer = jobs["gpus"] > 1, jobs["transfer"]
    highest, lowest = np.where(gang, max(spans), 1.0), np.where(gang, min(spans), 1.0)
    seconds = np.where(usable, transfer[:, None] * factor + runtime[:, None] / (speed * highest[:, None]), np.inf)
    most = transfer * np.where(usable, factor, 0.0).max(axis=1) + runtime / (np.where(usable, speed, np.inf).min(axis=1) * lowest)
    on_cpus = jobs["gpus"] == 0
    seconds[on_cpus] = (transfer + runtime)[on_cpus, None]
    return seconds, np.where(on_cpus, transfer + runtime, most)


def _device_counts(cluster: Cluster) -> Array:
    """(partitions, types) devices."""
    counts = np.zeros((len(cluster.partitions), len(cluster.types)))
    np.add.at(counts, (cluster.nodes.partition, cluster.nodes.gpu_type), cluster.nodes.gpus)
    return counts


def _capacity(cluster: Cluster, jobs: Array, partition: Array, seconds: Array, least: Array) -> tuple[Array, Array]:
    """(partitions,) devices that may be held at once, and their speed. Shares may exceed a device by the tolerance of comparisons."""
    counts = _device_counts(cluster)
    counts[np.unique(partition[jobs["gpus"] % 1 > 0])] *= 1.0 + EPS
    quota = np.array([part.quota for part in cluster.partitions]) + EPS
    worth = np.zeros(counts.shape)
    takes = (jobs["gpus"] > 0) & (least > 0)
    for p in np.unique(partition[takes]).tolist():
        mine = takes & (partition == p)
        worth[p] = (least[mine, None] / seconds[mine]).max(axis=0)
    devices = np.minimum(np.where(worth > 0, counts, 0.0).sum(axis=1), quota)
    return devices, np.minimum((worth * counts).sum(axis=1), devices)


def accepted_jobs(workload: Workload, cluster: Cluster) -> Array:
    """(jobs,) bool: not rejected at submit, as the engine decides, whatever the scheduler."""
    jobs = workload.jobs
    number = partition_numbers(jobs, cluster)[jobs.partition]
    part = np.maximum(number, 0)
    types_of = np.array([type_set(label, cluster) for label in jobs.gpu_types], np.int64)[jobs.gpu_type]
    everything = (1 << len(cluster.types)) - 1
    plain = (jobs.gpus >= 1) & (jobs.cpus == 0) & (jobs.memory == 0) & (jobs.chunk == 1) & (types_of == everything)
    quota = np.array([partition.quota for partition in cluster.partitions])[part]
    accepted: Array = (number >= 0) & ((jobs.gpus == 0) | (types_of != 0)) & (jobs.gpus <= quota + EPS)
    accepted &= ~plain | (jobs.gpus <= _device_counts(cluster).sum(axis=1)[part])
    open_rows = np.flatnonzero(accepted & ~plain)
    if len(open_rows) == 0:
        return accepted
    columns = (part, types_of, *(jobs.table[name] for name in ("gpus", "chunk", "cpus", "memory")))
    asked = np.stack([column[open_rows].astype(np.float64) for column in columns], axis=1)
    requests, which = np.unique(asked, axis=0, return_inverse=True)
    fits = np.array([_fits_when_empty(cluster, *request) for request in requests.tolist()], bool)
    accepted[open_rows] = fits[which.ravel()]
    return accepted


def _fits_when_empty(cluster: Cluster, part: float, allowed: float, gpus: float, chunk: float, cpus: float, memory: float) -> bool:
    """Whether the healthy, empty partition has room for all units of a job."""
    nodes = cluster.nodes
    mine = nodes.partition == part
    if gpus > 0:
        mine = mine & ((int(allowed) >> nodes.gpu_type.astype(np.int64)) & 1 == 1)
    room, unit = np.ones(len(nodes)), 1.0
    if gpus >= 1:
        room, unit = nodes.gpus // chunk, chunk / gpus
    elif gpus > 0:
        room = ((nodes.gpus > 0) & (nodes.gpus <= MAX_DEVICES)).astype(np.float64)
    for need, there in ((cpus * unit, nodes.cpus), (memory * unit, nodes.memory)):
        if need > 0:
            room = np.minimum(room, np.floor((there + EPS) / need))
    return float(room[mine].sum()) >= (gpus // chunk if gpus >= 1 else 1.0)


# ── one machine on which work can be stopped and resumed at will ──


def one_machine(submit: Array, work: Array, speed: float, key: Array | None) -> tuple[Array, Array]:
    """(jobs,) s: the ends, and the mean of the instants at which each job is worked on; both from its submit.

    At every instant the machine works on the submitted job with the lowest `key`; None: the least work left, that is SRPT.
    Jobs by submit; `work` > 0 in units of which the machine does `speed` per second. O(n log n).
    """
    n = len(submit)
    end, busy = np.zeros(n), np.zeros(n)
    order = work if key is None else key
    columns = (np.ascontiguousarray(column, np.float64) for column in (submit, work, order))
    _machine()(*columns, speed, key is None, end, busy, np.empty(n), np.empty(n, np.int32), np.empty(n))
    return end, busy


@cache
def _machine() -> Any:
    """Compile the kernel when it is first used."""
    column, source = types.float64[::1], source_hash(__name__)

    @entry(types.void(column, column, column, types.float64, types.boolean, column, column, column, types.int32[::1], column))
    def work_off(
        submit: Any, work: Any, key: Any, speed: Any, shortest: Any, end: Any, busy: Any, heap_keys: Any, heap_jobs: Any, left: Any
    ) -> None:
        if source != 0:  # never 0; part of the cache's key
            _work_off(submit, work, key, speed, shortest, end, busy, heap_keys, heap_jobs, left)

    return work_off


@inner
def _work_off(
    submit: Any, work: Any, key: Any, speed: Any, shortest: Any, end: Any, busy: Any, heap_keys: Any, heap_jobs: Any, left: Any
) -> None:
    """Fill `end` and `busy`; the last three arguments are scratch space."""
    n, size, coming, now = len(submit), 0, 0, 0.0
    while coming < n or size > 0:
        if size == 0:
            now = max(now, submit[coming])
        while coming < n and submit[coming] <= now:
            left[coming] = work[coming]
            ends_insert(heap_keys, heap_jobs, size, key[coming], coming)
            size += 1
            coming += 1
        j = np.int64(heap_jobs[0])
        until = now + left[j] / speed
        if coming < n and submit[coming] < until:
            until = submit[coming]
            done = min((until - now) * speed, left[j])
            left[j] -= done
            if shortest:
                heap_keys[0] = left[j]  # lower than before: it stays on top
        else:
            done = left[j]
            end[j] = until - submit[j]
            ends_remove(heap_keys, heap_jobs, size, 0)
            size -= 1
        busy[j] += done / work[j] * ((now + until) / 2.0 - submit[j])
        now = until


def most_on_time(batch: Array, begin: Array, deadline: Array, work: Array, speed: float) -> int:
    """Count the most jobs that can end by their deadlines if each batch has one machine for itself and its jobs are all there at `begin`.

    Jobs by batch, then by deadline. J. M. Moore, Management Science 15 (1968): take jobs by deadline, and whenever one would be late leave
    out the longest so far. A deadline may be missed by a rounding error.
    """
    columns = (np.ascontiguousarray(column, np.float64) for column in (begin, deadline, work))
    return int(_moore()(np.ascontiguousarray(batch, np.int64), *columns, speed, np.empty(len(begin)), np.empty(len(begin), np.int32)))


@cache
def _moore() -> Any:
    """Compile the kernel when it is first used."""
    column, source = types.float64[::1], source_hash(__name__)

    @entry(types.int64(types.int64[::1], column, column, column, types.float64, column, types.int32[::1]))
    def on_time(batch: Any, begin: Any, deadline: Any, work: Any, speed: Any, heap_keys: Any, heap_jobs: Any) -> Any:
        return _leave_out_the_longest(batch, begin, deadline, work, speed, heap_keys, heap_jobs) if source != 0 else -1

    return on_time


@inner
def _leave_out_the_longest(batch: Any, begin: Any, deadline: Any, work: Any, speed: Any, heap_keys: Any, heap_jobs: Any) -> Any:
    taken, size, total = 0, 0, 0.0
    for j in range(len(batch)):
        if j > 0 and batch[j] != batch[j - 1]:
            taken += size
            size, total = 0, 0.0
        ends_insert(heap_keys, heap_jobs, size, -work[j], j)
        size += 1
        total += work[j]
        if total > (deadline[j] - begin[j]) * speed * (1.0 + 1e-12) + 1e-9:
            total += heap_keys[0]
            ends_remove(heap_keys, heap_jobs, size, 0)
            size -= 1
    return taken + size
