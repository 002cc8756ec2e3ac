"""The scores of the built-in placements and the expected fragment of a node, for the reference simulator."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from gpuyard.model.cluster import Cluster
from gpuyard.testing.reference.state import TOLERANCE, JobState, NodeState, Yard

_MASK = (1 << 64) - 1
WHOLE = 1_000_000  # a device's share, in millionths
STEP = 10_000_000_000  # a tenth of a GPU, in millionths × 1/100,000 of the jobs


def mix(x: int) -> int:
    """Apply Splitmix64's finaliser (Steele, Lea, Flood 2014), modulo 2**64."""
    x = (x + 0x9E3779B97F4A7C15) & _MASK
    x = ((x ^ (x >> 30)) * 0xBF58476D1CE4E5B9) & _MASK
    x = ((x ^ (x >> 27)) * 0x94D049BB133111EB) & _MASK
    return x ^ (x >> 31)


def hash01(seed: int, a: int, b: int, c: int) -> float:
    """Return a number in [0, 1) that depends on all four."""
    h = mix(mix(mix(mix(seed & _MASK) ^ a) ^ b) ^ c)
    return (h >> 11) / 2**53


def millionths(x: float) -> int:
    """Round to whole millionths, halves up."""
    return math.floor(x * 1e6 + 0.5)


# --- the expected fragment --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class UnitRequest:
    """The resources that one unit of a job asks for; `allowed` are device types."""

    gpus: float
    cpus: float
    memory: float
    allowed: frozenset[int]


Mix = list[tuple[UnitRequest, int]]  # requests with their weights, in 1/100,000 of the jobs they cover


def request_mix(jobs: Iterable[JobState]) -> Mix:
    """Return the most frequent requests that cover 95 % of the jobs, at most 64."""
    counts: dict[UnitRequest, int] = {}
    for job in jobs:
        request = UnitRequest(job.unit_gpus, job.unit_cpus, job.unit_memory, frozenset() if job.is_cpu_job else job.allowed)
        counts[request] = counts.get(request, 0) + 1
    total, covered = sum(counts.values()), 0
    kept: list[tuple[UnitRequest, int]] = []
    for request in sorted(counts, key=lambda request: -counts[request]):
        if covered >= 0.95 * total or len(kept) == 64:
            break
        kept.append((request, counts[request]))
        covered += counts[request]
    return [(request, count * 100_000 // covered) for request, count in kept]


@dataclass(frozen=True)
class Device:
    """A device in order: its free share in millionths, and whether nobody holds any of it."""

    free: int
    whole: bool


def fragment(devices: list[Device], kind: int, cpus: float, memory: float, requests: Mix) -> int:
    """Return the free share that a job drawn from the requests could not use: Σ weight × millionths."""
    everything = sum(device.free for device in devices)
    expected = 0
    for request, weight in requests:
        lost = everything
        fits_host = request.cpus <= cpus + TOLERANCE and request.memory <= memory + TOLERANCE
        if request.gpus > 0 and kind in request.allowed and fits_host:
            if request.gpus >= 1:
                usable = [device for device in devices if device.whole]
                wanted = int(request.gpus)
            else:
                usable = [device for device in devices if device.free >= millionths(request.gpus)]
                wanted = 1
            if len(usable) >= wanted:
                lost = everything - sum(device.free for device in usable)
        expected += weight * lost
    return expected


def devices_of(node: NodeState) -> dict[int, Device]:
    """Return the devices in order, by number."""
    return {d: Device(millionths(node.free_share[d]), not node.holders[d]) for d in range(node.gpus) if not node.out[d]}


def device_of_least_fragment(node: NodeState, job: JobState, requests: Mix) -> tuple[int, int]:
    """Return (device, fragment of the node with the share taken from it); ties: the least free share that suffices, the lowest number."""
    devices = devices_of(node)
    best: tuple[int, int] | None = None
    for d in devices:
        if job.gpus > node.free_share[d] + TOLERANCE:
            continue
        after = {**devices, d: Device(millionths(node.free_share[d] - job.gpus), False)}
        left = fragment(list(after.values()), node.gpu_type, node.free_cpus - job.cpus, node.free_memory - job.memory, requests)
        if best is None or left < best[1] or (left == best[1] and node.free_share[d] < node.free_share[best[0]] - TOLERANCE):
            best = (d, left)
    assert best is not None, f"node {node.number} has no share for job {job.index}"
    return best


def growth(node: NodeState, job: JobState, units: int, requests: Mix) -> float:
    """Return the growth of the node's expected fragment if it takes `units` of the job, in tenths of a GPU; then what stays free."""
    devices = list(devices_of(node).values())
    before = fragment(devices, node.gpu_type, node.free_cpus, node.free_memory, requests)
    left = sum(device.free for device in devices)
    if job.is_shared:
        _, after = device_of_least_fragment(node, job, requests)
        left -= millionths(job.gpus)
    else:
        taken = 0 if job.is_cpu_job else units * job.chunk
        wholly_free = [device for device in devices if device.whole]
        remaining = [device for device in devices if not device.whole] + wholly_free[taken:]
        cpus, memory = node.free_cpus - job.unit_cpus * units, node.free_memory - job.unit_memory * units
        after = fragment(remaining, node.gpu_type, cpus, memory, requests)
        left -= taken * WHOLE
    return (after - before + STEP // 2) // STEP + left / (left + WHOLE)


# --- scores -----------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Question:
    """The view that a built-in score gets: node, job, the units that the node would take, and the surroundings."""

    yard: Yard
    cluster: Cluster
    seed: int
    requests: Mix
    node: NodeState
    job: JobState
    units: int

    @property
    def free(self) -> float:
        """Return the wholly free devices, or for a CPU job the free cores in millionths."""
        if not self.job.is_cpu_job:
            return float(len(self.node.wholly_free()))
        return math.inf if math.isinf(self.node.free_cpus) else float(millionths(self.node.free_cpus))

    @property
    def free_share(self) -> int:
        return sum(device.free for device in devices_of(self.node).values())

    def random(self) -> float:
        return hash01(self.seed, self.job.index, self.job.preemptions, self.node.number)

    def type_rank(self) -> int:
        """Count the better pairs (speed, price) that the cluster's types have for this job."""
        merits = [(-self.job.speed[kind], self.cluster.types[kind].price) for kind in range(len(self.cluster.types))]
        return sum(merit < merits[self.node.gpu_type] for merit in set(merits))

    def tier(self) -> int:
        node, job = self.node, self.job
        if job.is_shared and any(node.holders[d] and job.gpus <= node.free_share[d] + TOLERANCE for d in range(node.gpus)):
            return 0
        return 2 if is_whole(node) else 1

    def load(self) -> float:
        node = self.node
        capacity = len(devices_of(node)) * WHOLE
        loads = [(capacity - self.free_share) / capacity] if capacity else []
        for all_of_it, free in ((node.cpus, node.free_cpus), (node.memory, node.free_memory)):
            if 0 < all_of_it < math.inf:
                loads.append((all_of_it - free) / all_of_it)
        return float(millionths(max(loads, default=0.0)))

    def remainder(self) -> float:
        neighbours = [node for node in self.yard.nodes if node.partition == self.node.partition]
        most_gpus = max(node.gpus for node in neighbours)
        most_cpus = max((node.cpus for node in neighbours if node.cpus < math.inf), default=0.0)
        left = self.free_share / (most_gpus * 1e6) if most_gpus else 0.0
        if most_cpus > 0 and self.node.cpus < math.inf:
            left += self.node.free_cpus / most_cpus
        return float(millionths(left))


def is_whole(node: NodeState) -> bool:
    """Whether the node has devices and nobody holds any that is in order."""
    return 0 < len(node.wholly_free()) == len(devices_of(node))


SCORES: dict[str, Callable[[Question], float]] = {
    "first": lambda q: 0.0,
    "best": lambda q: q.free,
    "worst": lambda q: -q.free,
    "fewest": lambda q: q.free,
    "tier2": lambda q: q.free,
    "lexicographic": lambda q: 64.0 * q.free + q.type_rank(),
    "defrag": lambda q: 2.0 ** (50 if q.job.is_cpu_job else 26) * q.tier() + q.free,
    "balance": Question.load,
    "packing": Question.remainder,
    "fgd": lambda q: growth(q.node, q.job, q.units, q.requests),
    "random": Question.random,
    "fastest": lambda q: -q.job.speed[q.node.gpu_type],
}


def random_device(q: Question) -> int:
    """Draw a device with enough share for this job."""
    drawn = {
        hash01(q.seed, q.job.index, q.job.preemptions, len(q.yard.nodes) + d): d
        for d in devices_of(q.node)
        if q.job.gpus <= q.node.free_share[d] + TOLERANCE
    }
    return drawn[min(drawn)]


# Placements that choose the device of a share themselves.
DEVICES: dict[str, Callable[[Question], int]] = {
    "fgd": lambda q: device_of_least_fragment(q.node, q.job, q.requests)[0],
    "random": random_device,
}
