"""The devices of the machine as a cluster: GPUs grouped by type, or CPU slots where there is none, and what may be used of them now."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.live.node.devices import GpuReading
from gpuyard.live.node.jobs import NodeJob, Submission
from gpuyard.live.state.table import HeldDevices, nodes_up
from gpuyard.model.cluster import EPS, MAX_DEVICES, Cluster, GpuType, Nodes
from gpuyard.model.decision import Part

CPU = "cpu"


@dataclass(frozen=True)
class Group:
    """Devices of one type; a node of the cluster."""

    name: str
    devices: tuple[str, ...]  # UUIDs, or cpu0, cpu1 …
    cpus: float
    memory: float  # GB of the machine


class NodeDevices:
    """The machine's devices. `slots`: jobs that may share a GPU."""

    def __init__(self, readings: Sequence[GpuReading], cpus: int, memory: float, slots: int) -> None:
        self.slots = slots
        self.has_gpus = bool(readings)
        self.groups = (
            _gpu_groups(readings, cpus, memory) if readings else (Group(CPU, tuple(f"cpu{k}" for k in range(cpus)), math.inf, memory),)
        )
        self.place = {uuid: (node, k) for node, group in enumerate(self.groups) for k, uuid in enumerate(group.devices)}
        self.cluster = _cluster(self.groups)
        self.readings: dict[str, GpuReading] = {}
        self.blocked: dict[str, str] = {}  # device → gpu-lost or gpu-foreign
        self.strangers: dict[str, list[int]] = {}  # device → processes on it that belong to no job
        self._claimed: dict[str, float] = {}  # device → GB that our jobs may still take
        self.see(readings, lambda _: None, {})

    @property
    def devices(self) -> int:
        return len(self.place)

    def see(self, readings: Sequence[GpuReading], owner: Callable[[int], int | None], claims: Mapping[str, Mapping[int, float]]) -> bool:
        """Take in new readings; return whether what may be used has changed.

        `owner` names the job of a process, 0 if there is no such process here, None if it is a stranger's; `claims` has the GB that each
        job on a device asked for.
        """
        before = dict(self.blocked)
        self.readings = {each.uuid: each for each in readings}
        self.blocked, self.strangers, self._claimed = {}, {}, {}
        for uuid in self.place if self.has_gpus else ():
            reading = self.readings.get(uuid)
            if reading is None or reading.lost:
                self.blocked[uuid] = "gpu-lost"
                continue
            used: dict[int, float] = {}
            for process in reading.processes:
                job = owner(process.pid)
                if job is None:
                    self.blocked[uuid] = "gpu-foreign"
                    self.strangers.setdefault(uuid, []).append(process.pid)
                else:
                    used[job] = used.get(job, 0.0) + process.memory
            self._claimed[uuid] = sum(max(claim - used.get(job, 0.0), 0.0) for job, claim in claims.get(uuid, {}).items())
        return before != self.blocked

    def claim(self, devices: Sequence[str], memory: float) -> None:
        """Note that a job that has just started will take so many GB of each of these GPUs."""
        for uuid in devices:
            self._claimed[uuid] = self._claimed.get(uuid, 0.0) + memory

    def unknown(self, readings: Sequence[GpuReading]) -> bool:
        """Return whether a GPU has come that the cluster does not have."""
        return any(each.uuid not in self.place for each in readings)

    def free_memory(self, uuid: str) -> float:
        """GB of a GPU that a further job may take."""
        reading = self.readings.get(uuid)
        return reading.free - self._claimed.get(uuid, 0.0) if reading else 0.0

    def nodes(self, held: Container[str]) -> Array:
        """Return what of each node can be used, as a snapshot has it. A device that a job holds is in use, also where nobody else may."""
        off: dict[int, list[int]] = {}
        for uuid in (each for each in self.blocked if each not in held):
            node, device = self.place[uuid]
            off.setdefault(node, []).append(device)
        return nodes_up(self.cluster, off)

    # ── requests ──

    def gpus_of(self, asked: Submission) -> float:
        """Return how many devices of the cluster a job takes; a request that this machine can never fulfil is refused."""
        if not self.has_gpus:
            if asked.gpus > 0 or asked.gpu_memory:
                raise UsageError("this node has no GPU", hint="submit without --gpus and --gpu-memory: jobs run on CPU slots here")
            slots = max(math.ceil(asked.cpus - EPS), 1)
            if slots > self.devices:
                raise UsageError(f"{slots} CPU slots: this node has {self.devices}")
            return float(self._fitting(asked, slots, cpus=0.0))
        gpus = asked.gpus if asked.gpus >= 0 else self._share_for(asked.gpu_memory)
        if 0 < gpus < 1:
            if self.slots == 1:
                raise UsageError(
                    f"gpus = {gpus:g}: GPUs of this node are not shared", hint="gpuyard node start --share 4 lets 4 jobs share one"
                )
            gpus = math.ceil(gpus * self.slots - EPS) / self.slots
        return self._fitting(asked, gpus, asked.cpus)

    def _fitting(self, asked: Submission, gpus: float, cpus: float) -> float:
        """Return the devices if some group has as much of everything when nothing else runs; else say of what there is too little."""
        fits = self.groups
        largest = {each.uuid: each.memory for each in self.readings.values()}
        for need, what, have in (
            (gpus, "gpus", lambda group: len(group.devices)),
            (cpus, "cpus", lambda group: group.cpus),
            (asked.memory, "memory", lambda group: group.memory),
            (asked.gpu_memory, "gpu_memory", lambda group: max((largest.get(uuid, math.inf) for uuid in group.devices), default=0.0)),
        ):  # fmt: skip
            most = max(map(have, fits))
            fits = tuple(group for group in fits if have(group) + EPS >= need)
            if not fits:
                unit = " GB" if what.endswith("memory") else ""
                where = f"this node has {most:.4g}{unit}{' of one type' if what == 'gpus' else ''}"
                raise UsageError(f"{what} = {need:g}{unit}: {where}")
        return gpus

    def _share_for(self, memory: float) -> float:
        """Return the share of a GPU that goes with an amount of its memory."""
        whole = min((each.memory for each in self.readings.values()), default=0.0)
        if self.slots == 1 or not memory or not whole or memory > whole * (1 - 0.5 / self.slots):
            return 1.0
        return min(math.ceil(memory / whole * self.slots - EPS) / self.slots, 1.0)

    def lacking(self, gpus: float, memory: float) -> str:
        """Return the name of the reason why devices do not allow a job now, whoever else runs; empty if they do."""
        if not self.has_gpus or gpus == 0:
            return ""
        need = max(int(gpus), 1)
        usable = [[uuid for uuid in group.devices if uuid not in self.blocked] for group in self.groups]
        if max(map(len, usable)) < need:
            return "gpu-foreign" if "gpu-foreign" in self.blocked.values() else "gpu-lost"
        if memory and max(sum(self.free_memory(uuid) >= memory for uuid in group) for group in usable) < need:
            return "gpu-memory"
        return ""

    # ── placing ──

    def holdings(self, job: NodeJob, gpus: float) -> list[HeldDevices]:
        """Return what a running job holds."""
        places = [self.place[uuid] for uuid in job.devices if uuid in self.place]
        if not places:
            return [HeldDevices(job.id, 0, 0)]
        if 0 < gpus < 1:
            return [HeldDevices(job.id, places[0][0], 0, places[0][1], 1 << places[0][1])]
        found = []
        for node in sorted({node for node, _ in places}):
            mine = [device for where, device in places if where == node]
            tracked = len(self.groups[node].devices) <= MAX_DEVICES
            found.append(HeldDevices(job.id, node, len(mine), -1, sum(1 << device for device in mine) if tracked else 0))
        return found

    def choose(
        self, parts: Sequence[Part], gpus: float, memory: float, held: Mapping[str, float], leaving: Mapping[str, float]
    ) -> tuple[str, ...] | None:
        """Return the devices for a job that a policy wants to start; None if they are not free.

        `held` has the part of each device that is taken, `leaving` the part that will be free soon, and the memory with it. The policy's
        own choice is kept where memory allows it, and then devices that nobody has to leave come first.
        """
        found: list[str] = []
        for part in parts:
            group = self.groups[part.node]
            need = min(gpus, 1.0)
            count = 1 if 0 < gpus < 1 else int(part.gpus)
            free = [u for u in group.devices if u not in self.blocked and held.get(u, 0.0) + need <= 1 + EPS]
            free = [u for u in free if not memory or leaving.get(u) or self.free_memory(u) >= memory]
            named = [group.devices[k] for k in part.devices if k < len(group.devices)]
            order = [u for u in named if u in free] + sorted((u for u in free if u not in named), key=lambda u: leaving.get(u, 0.0) > 0)
            if len(order) < count:
                return None
            found += order[:count]
        return tuple(found)


def _gpu_groups(readings: Sequence[GpuReading], cpus: int, memory: float) -> tuple[Group, ...]:
    """Group GPUs by type; a node of the cluster has one type, so CPUs and memory are shared out by the number of GPUs."""
    names = list(dict.fromkeys(each.name for each in readings))
    found = []
    for name in names:
        mine = tuple(each.uuid for each in readings if each.name == name)
        part = len(mine) / len(readings)
        found.append(Group(name, mine, cpus * part, memory * part))
    return tuple(found)


def _cluster(groups: Sequence[Group]) -> Cluster:
    names = [_type_name(group.name) for group in groups]
    columns = Nodes(
        names=tuple(names),
        gpus=np.array([len(group.devices) for group in groups], np.int32),
        gpu_type=np.arange(len(groups), dtype=np.int32),
        cpus=np.array([group.cpus for group in groups], np.float64),
        memory=np.array([group.memory for group in groups], np.float64),
        rack=np.zeros(len(groups), np.int32),
        partition=np.zeros(len(groups), np.int32),
    )
    return Cluster(columns, tuple(GpuType(name) for name in names), name="node")


def _type_name(name: str) -> str:
    """Return a device's name as a name of a type: `NVIDIA A100-SXM4-80GB` is `nvidia-a100-sxm4-80gb`."""
    return "-".join("".join(letter if letter.isalnum() else " " for letter in name.lower()).split()) or "gpu"


def shares(jobs: Iterable[tuple[NodeJob, float]]) -> dict[str, float]:
    """Return the part of each device that running jobs hold; each comes with the GPUs that it takes."""
    held: dict[str, float] = {}
    for job, gpus in jobs:
        for uuid in job.devices:
            held[uuid] = held.get(uuid, 0.0) + min(gpus, 1.0)
    return held
