"""Free capacity of every node, for schedulers that place jobs in Python, by the rules of the engine's semantics."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.mix import are_shared, partition_numbers, type_set
from gpuyard.engine.site import has_limits
from gpuyard.errors import UsageError
from gpuyard.model.cluster import EPS, MAX_DEVICES, Cluster
from gpuyard.model.decision import Part
from gpuyard.model.rules import MAY_STOP_ONCE, MUST_RUN, terms_table
from gpuyard.model.snapshot import HELD, Snapshot

Parts = tuple[Part, ...]


@dataclass(frozen=True, eq=False)
class JobRequest:
    """The request of a job, as placement counts it."""

    row: int  # of the snapshot
    index: int
    gpus: float
    chunk: int
    units: int
    cpus: float  # of one unit
    memory: float  # GB, of one unit
    partition: int  # of the cluster
    allowed: Array  # (types,) bool
    speeds: Array  # (types,)
    writing: float = 1.0  # part of its time on the devices that is work, not the writing of checkpoints

    @property
    def shared(self) -> bool:
        return 0 < self.gpus < 1

    def speed(self, cluster: Cluster, nodes: Sequence[int]) -> float:
        """Work per second on these nodes while no checkpoint is written: the slowest device counts, times the locality factor."""
        if self.gpus == 0:
            return 1.0
        used = list(nodes)
        slowest = float(self.speeds[cluster.nodes.gpu_type[used]].min())
        if len(used) == 1:
            return slowest
        return slowest * (cluster.span_racks if len(set(cluster.nodes.rack[used].tolist())) > 1 else cluster.span_nodes)

    def rate(self, cluster: Cluster, nodes: Sequence[int]) -> float:
        """Work per second on these nodes, with checkpoints."""
        return self.speed(cluster, nodes) * self.writing


_SCORES = "orderings, placements, backfill rules and scores do: fcfs/fewest/easy"


class Requests:
    """The requests of a snapshot's jobs, by row; labels are looked up once."""

    def __init__(self, snapshot: Snapshot) -> None:
        jobs, cluster = snapshot.jobs, snapshot.cluster
        self._jobs = jobs
        if are_shared(jobs, cluster):
            raise UsageError(
                f"cluster {cluster.name}: this scheduler knows no partitions that share nodes or jobs",
                hint=_SCORES,
            )
        if has_limits(jobs, cluster):
            raise UsageError(f"cluster {cluster.name}: this scheduler knows no limits", hint=_SCORES)
        self.partition = partition_numbers(jobs, cluster)[jobs.partition]  # −1: none of that name
        kinds = np.arange(len(cluster.types))
        self._allowed = [(type_set(label, cluster) >> kinds & 1).astype(bool) for label in jobs.gpu_types]
        self._speeds = [np.array([cluster.speed_of(label, kind) for kind in cluster.types]) for label in jobs.classes]
        self._writing = terms_table(jobs.term_texts, snapshot.rules)["writing"]

    def __getitem__(self, row: int) -> JobRequest:
        job = self._jobs.table[row]
        gpus, chunk = float(job["gpus"]), int(job["chunk"])
        units = int(gpus) // chunk if gpus >= 1 else 1
        return JobRequest(
            int(row), int(job["index"]), gpus, chunk, units, float(job["cpus"]) / units, float(job["memory"]) / units,
            int(self.partition[row]), self._allowed[job["gpu_type"]], self._speeds[job["job_class"]], float(self._writing[job["terms"]]),
        )  # fmt: skip


class Capacity:
    """Free devices, shares, cpus, memory and quota, kept up while jobs are placed and taken away."""

    def __init__(self, cluster: Cluster, nodes: Array) -> None:
        """`nodes` is a snapshot's; nothing is in use yet."""
        self.cluster = cluster
        self.up = nodes["down"] == 0
        self.usable = np.where(self.up, cluster.nodes.gpus - nodes["off"], 0).astype(np.int64)  # (nodes,) devices in order
        self.free = self.usable.copy()  # (nodes,) wholly free devices
        self.cpus = cluster.nodes.cpus.astype(np.float64)
        self.memory = cluster.nodes.memory.astype(np.float64)
        self.pool = cluster.nodes.gpus > MAX_DEVICES
        self.mask = [int(m) if up else 0 for m, up in zip(nodes["mask"], self.up, strict=True)]  # wholly free devices as bits
        self.shares: dict[tuple[int, int], float] = {}  # (node, device) → what is free of a shared device
        self.quota = np.array([partition.quota for partition in cluster.partitions])  # still to be used

    @classmethod
    def of(cls, snapshot: Snapshot, requests: Requests) -> Capacity:
        """Return the capacity that the running jobs leave."""
        made = cls(snapshot.cluster, snapshot.nodes)
        for row, parts in held_parts(snapshot).items():
            made.take(requests[row], parts)
        return made

    def copy(self) -> Capacity:
        """One that can be changed apart from this."""
        made = object.__new__(Capacity)
        made.__dict__.update(self.__dict__)
        for name in ("free", "cpus", "memory", "quota"):
            setattr(made, name, getattr(self, name).copy())
        made.mask, made.shares = list(self.mask), dict(self.shares)
        return made

    def rooms(self, request: JobRequest) -> Array:
        """(nodes,) how many units of the job each node can take."""
        nodes = self.cluster.nodes
        here = self.up & (nodes.partition == request.partition)
        if request.gpus > 0:
            here &= request.allowed[nodes.gpu_type]
        if request.gpus >= 1:
            units = self.free // request.chunk
        elif request.gpus == 0:
            units = np.ones(len(self.free), np.int64)
        else:
            units = ((self.free > 0) & ~self.pool).astype(np.int64)
            for (n, _), share in self.shares.items():
                if request.gpus <= share + EPS:
                    units[n] = 1
        for need, free in ((request.cpus, self.cpus), (request.memory, self.memory)):
            if need > 0:
                units = np.minimum(units, np.floor((free + EPS) / need))
        return np.where(here, np.maximum(units, 0), 0).astype(np.int64)

    def within_quota(self, request: JobRequest) -> bool:
        return bool(request.gpus <= self.quota[request.partition] + EPS)

    def fits(self, request: JobRequest) -> bool:
        """Whether the whole job can start now."""
        return self.within_quota(request) and int(self.rooms(request).sum()) >= request.units

    def fits_in(self, request: JobRequest, parts: Parts) -> bool:
        """Whether the job can start in these parts, whichever devices it gets there."""
        size = request.chunk if request.gpus >= 1 else request.gpus
        room = self.rooms(request)
        return self.within_quota(request) and all(room[part.node] > 0 and room[part.node] * size >= part.gpus - EPS for part in parts)

    def take(self, request: JobRequest, parts: Parts) -> Parts:
        """Place the job; returns the parts with the devices that the engine gives."""
        return tuple(self._take_part(request, part) for part in parts)

    def give(self, request: JobRequest, parts: Parts) -> None:
        """Undo `take`, with the parts that it returned."""
        for part in parts:
            units = self._count(request, part, -1)
            if request.gpus >= 1:
                self.free[part.node] += units * request.chunk
                self.mask[part.node] |= sum(1 << d for d in part.devices)
            elif request.shared:
                key = part.node, part.devices[0]
                self.shares[key] += request.gpus
                if self.shares[key] >= 1.0 - EPS:
                    del self.shares[key]
                    self.free[part.node] += 1
                    self.mask[part.node] |= 1 << part.devices[0]

    def _take_part(self, request: JobRequest, part: Part) -> Part:
        n = part.node
        units = self._count(request, part, 1)
        if request.gpus == 0:
            return Part(n, 0.0)
        if request.gpus >= 1:
            self.free[n] -= units * request.chunk
            devices = part.devices or _lowest(self.mask[n], units * request.chunk)
            self.mask[n] &= ~sum(1 << d for d in devices)
            return Part(n, float(units * request.chunk), devices)
        device = part.devices[0] if part.devices else self.tightest(n, request.gpus)
        if (n, device) not in self.shares:
            self.shares[n, device] = 1.0
            self.free[n] -= 1
            self.mask[n] &= ~(1 << device)
        self.shares[n, device] -= request.gpus
        return Part(n, request.gpus, (device,))

    def _count(self, request: JobRequest, part: Part, sign: int) -> int:
        """Book cpus, memory and quota of a part; returns its units."""
        units = round(part.gpus) // request.chunk if request.gpus >= 1 else 1
        self.cpus[part.node] -= sign * request.cpus * units
        self.memory[part.node] -= sign * request.memory * units
        self.quota[request.partition] -= sign * part.gpus
        return units

    def tightest(self, node: int, share: float) -> int:
        """The device that the engine gives to a share: the least free that suffices, else the first that is wholly free."""
        best, least = -1, 2.0
        for (n, device), free in sorted(self.shares.items()):
            if n == node and share <= free + EPS and free < least - EPS:
                best, least = device, free
        return best if best >= 0 else self.lowest_free(node)[0]

    def lowest_free(self, node: int) -> tuple[int, ...]:
        """The first wholly free device of a node, if it has one with a number."""
        return _lowest(self.mask[node], 1)

    def place(self, request: JobRequest, order: Array) -> Parts:
        """Parts by the rule of `fewest` over the nodes in this order (best first); empty if it does not fit. Takes nothing."""
        if not self.within_quota(request):
            return ()
        room = self.rooms(request)[order]
        whole = np.flatnonzero(room >= request.units)
        size = float(request.chunk) if request.gpus >= 1 else request.gpus
        if len(whole):
            return (Part(int(order[whole[0]]), size * request.units),)
        parts, missing = [], request.units
        for k in np.argsort(-room, kind="stable"):
            units = min(int(room[k]), missing)
            if units == 0:
                break
            parts.append(Part(int(order[k]), size * units))
            missing -= units
        return tuple(parts) if missing == 0 else ()


def without_devices(parts: Parts) -> Parts:
    """The parts with their devices left to the engine's choice."""
    return tuple(Part(part.node, part.gpus) for part in parts)


def _lowest(mask: int, count: int) -> tuple[int, ...]:
    """The `count` lowest devices of a bit set; of a pool, which has none, nothing."""
    found = [d for d in range(mask.bit_length()) if mask >> d & 1]
    return tuple(found[:count])


def held_parts(snapshot: Snapshot) -> dict[int, Parts]:
    """Row of a running job → the parts that it holds."""
    found: dict[int, list[Part]] = {}
    shares = snapshot.jobs.gpus
    for row, node, gpus, device, mask in snapshot.held.tolist():
        devices = (device,) if device >= 0 else tuple(d for d in range(mask.bit_length()) if mask >> d & 1)
        found.setdefault(row, []).append(Part(node, float(gpus) if gpus > 0 else min(float(shares[row]), 1.0), devices))
    return {row: tuple(parts) for row, parts in found.items()}


def overhead(snapshot: Snapshot, row: int, nodes: Iterable[int]) -> float:
    """Seconds on these nodes before work begins, if the job starts there now, or of the run that it is in."""
    transfer = float(snapshot.jobs.transfer[row])
    if transfer > 0 and snapshot.jobs.gpus[row] > 0:
        cluster = snapshot.cluster
        transfer *= max(cluster.types[cluster.nodes.gpu_type[node]].transfer for node in nodes)
    return transfer + (float(terms_of(snapshot, row)["restart"]) if snapshot.live["preemptions"][row] > 0 else 0.0)


def terms_of(snapshot: Snapshot, row: int) -> Any:
    """Return a record of TERMS: on what terms the job may be stopped."""
    live, label = snapshot.live[row], snapshot.jobs.term_texts[int(snapshot.jobs.terms[row])]
    found = terms_table((label,), snapshot.rules)[int(live["silent"])]
    if found["stops"] == MAY_STOP_ONCE and live["preemptions"] > 0:
        found["stops"] = MUST_RUN
    return found


def estimated_seconds(snapshot: Snapshot, request: JobRequest, nodes: Sequence[int]) -> float:
    """How long a run that starts on these nodes now is estimated to last."""
    row = request.row
    live = snapshot.live[row]
    work = max(float(snapshot.jobs.estimate[row]) - float(live["done"]), 0.0)
    seconds = overhead(snapshot, row, nodes) + work / request.rate(snapshot.cluster, nodes)
    if snapshot.rules.walltime_kill:
        seconds = min(seconds, max(float(snapshot.jobs.walltime[row]) - float(live["ran"]), 0.0))
    return seconds


def estimated_end(snapshot: Snapshot, est_end: float) -> float:
    """Return an estimated end that lies ahead: a start with an estimate of 0 ends in a second."""
    return est_end if est_end > snapshot.now else snapshot.now + 1.0


Start = tuple[JobRequest, Parts]  # with the devices that `take` returned


def with_starts(snapshot: Snapshot, starts: Iterable[Start]) -> Snapshot:
    """The snapshot as it is once these jobs have started."""
    live = snapshot.live.copy()
    held = snapshot.held.tolist()
    for request, parts in starts:
        nodes = [part.node for part in parts]
        line = live[request.row : request.row + 1]
        line["running"], line["rate"], line["run_start"] = True, request.rate(snapshot.cluster, nodes), snapshot.now
        line["start"] = np.where(line["start"] < 0, snapshot.now, line["start"])
        line["est_end"] = snapshot.now + estimated_seconds(snapshot, request, nodes)
        for part in parts:
            mask = sum(1 << d for d in part.devices)
            whole = round(part.gpus) if request.gpus >= 1 else 0
            held.append((request.row, part.node, whole, part.devices[0] if request.shared else -1, mask))
    held.sort(key=lambda piece: piece[0])
    return replace(snapshot, live=live, held=np.array(held, HELD))
