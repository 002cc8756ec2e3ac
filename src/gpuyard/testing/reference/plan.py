"""Where a job goes and when it might: placement, and the plan of conservative backfilling, for the reference simulator."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuyard.errors import PolicyError
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.policies.slots import Placement
from gpuyard.testing.reference.scores import DEVICES, SCORES, Mix, Question, is_whole
from gpuyard.testing.reference.state import (
    TOLERANCE,
    UNLIMITED,
    Holding,
    JobState,
    JobsView,
    NodeState,
    NodesView,
    Yard,
    may_use,
    units_within,
)


@dataclass(frozen=True)
class Placer:
    """Chooses nodes for jobs, with everything a placement may look at."""

    yard: Yard
    cluster: Cluster
    jobs: JobsView
    seed: int
    mixes: list[Mix]  # by partition

    def question(self, node: NodeState, job: JobState, units: int) -> Question:
        return Question(self.yard, self.cluster, self.seed, self.mixes[node.partition], node, job, units)

    def score(self, placement: Placement, node: NodeState, job: JobState, units: int) -> float:
        """Return the placement's score of a node that would take `units` of the job; lower is better."""
        if placement.function is None:
            return SCORES[placement.name](self.question(node, job, units))
        nodes = NodesView(self.yard, self.cluster)
        try:
            with np.errstate(all="ignore"):
                score = float(placement.function(nodes, node.number, self.jobs, job.index, **dict(placement.params)))
        except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise PolicyError(f"placement {placement.name}: job {job.index}, node {node.number}: {error}") from error
        if math.isnan(score):
            raise PolicyError(f"placement {placement.name}: job {job.index}, node {node.number}: the score is NaN")
        return score

    def choose(self, placement: Placement, job: JobState, rooms: dict[int, int]) -> list[tuple[int, int]]:
        """Return (node, units) pairs for the job, out of rooms that suffice for it."""
        scores = {n: self.score(placement, self.yard.nodes[n], job, min(rooms[n], job.units)) for n in rooms}
        whole = [n for n in rooms if rooms[n] >= job.units]
        if whole:
            chosen = [(min(whole, key=lambda n: (scores[n], n)), job.units)]
        else:
            chosen = _SPANS[placement.span](rooms, scores, job.units)
        if placement.span == "tier2" and any(self.breaks_open(n, units, job) for n, units in chosen):
            return self.sparing(rooms, scores, job, len(chosen) + 1) or chosen
        return chosen

    def device(self, placement: Placement, node: NodeState, job: JobState) -> int | None:
        """Return the device for a share where the placement chooses it; None: the ordinary rule does."""
        if not job.is_shared or placement.function is not None or placement.name not in DEVICES:
            return None
        return DEVICES[placement.name](self.question(node, job, 1))

    def breaks_open(self, number: int, units: int, job: JobState) -> bool:
        """Whether a gang that takes these units takes a part of a whole node."""
        node = self.yard.nodes[number]
        return job.gpus >= 1 and is_whole(node) and units * job.chunk < len(node.wholly_free())

    def sparing(self, rooms: dict[int, int], scores: dict[int, float], job: JobState, most: int) -> list[tuple[int, int]]:
        """Return as few nodes as possible without breaking one open; empty if that takes more than `most` or they do not suffice."""
        chosen: list[tuple[int, int]] = []
        unused = set(rooms)
        missing = job.units
        while missing > 0 and len(chosen) < most:
            offers = {n: min(rooms[n], missing) for n in unused}
            offers = {n: units for n, units in offers.items() if not self.breaks_open(n, units, job)}
            if not offers:
                return []
            best = min(offers, key=lambda n: (-offers[n], scores[n], n))
            chosen.append((best, offers[best]))
            unused.remove(best)
            missing -= offers[best]
        return [] if missing else chosen


def _span_by_score(rooms: dict[int, int], scores: dict[int, float], units: int) -> list[tuple[int, int]]:
    return take_in_turn(sorted(rooms, key=lambda n: (scores[n], n)), rooms, units)


def _span_fewest(rooms: dict[int, int], scores: dict[int, float], units: int) -> list[tuple[int, int]]:
    chosen: list[tuple[int, int]] = []
    unused = set(rooms)
    missing = units
    while True:
        whole = [n for n in unused if rooms[n] >= missing]
        if whole:
            return [*chosen, (min(whole, key=lambda n: (scores[n], n)), missing)]
        widest = min(unused, key=lambda n: (-rooms[n], scores[n], n))
        chosen.append((widest, rooms[widest]))
        unused.remove(widest)
        missing -= rooms[widest]


_SPANS: dict[str, Callable[[dict[int, int], dict[int, float], int], list[tuple[int, int]]]] = {
    "score": _span_by_score,
    "fewest": _span_fewest,
    "tier2": _span_fewest,
}


def take_in_turn(order: list[int], rooms: dict[int, int], units: int) -> list[tuple[int, int]]:
    """Each node in turn gives all its room until the units are complete."""
    chosen = []
    missing = units
    for n in order:
        given = min(rooms[n], missing)
        chosen.append((n, given))
        missing -= given
        if missing == 0:
            break
    return chosen


def longest_duration(job: JobState, yard: Yard, cluster: Cluster, rules: Rules) -> float:
    """Return the longest estimated time (s) for which a waiting job holds its devices: on the slowest it may get."""
    rate = 1.0
    if not job.is_cpu_job:
        rate = min(job.speed[node.gpu_type] for node in yard.nodes if may_use(node, job))
        if job.units > 1:
            rate = rate * min(1.0, cluster.span_nodes, cluster.span_racks)
    rate = rate * job.working_part
    kinds = {node.gpu_type for node in yard.nodes if may_use(node, job)}
    duration = overhead_of(job, kinds, cluster) + job.remaining / rate
    if rules.walltime_kill:
        duration = min(duration, max(job.walltime - job.ran, 0.0))
    return duration


def overhead_of(job: JobState, kinds: set[int], cluster: Cluster) -> float:
    """Return the seconds on the devices before work begins, if the job started now on devices of these types."""
    transfer = job.transfer if job.is_cpu_job else max(job.transfer * cluster.types[kind].transfer for kind in kinds)
    return transfer + (job.restart if job.preemptions > 0 else 0.0)


@dataclass(frozen=True)
class Claim:
    """Something taken from a node (None: only from the partition's quota) over [start, end)."""

    node: int | None
    devices: int
    cpus: float
    memory: float
    quota: float
    start: float
    end: float


class BookingPlan:
    """The free capacity of one partition's nodes from now on: capacity minus the claims that hold at a time."""

    def __init__(self, yard: Yard, partition: int, running: list[JobState], now: float) -> None:
        self.yard = yard
        self.partition = partition
        self.now = now
        self.claims: list[Claim] = []
        ends = {job.index: job.expected_end(now) for job in running}
        for job in running:
            self.add_hosts(job, job.parts, now, ends[job.index])
            if not job.is_shared:
                self.add_devices([(part.node, len(part.devices)) for part in job.parts], now, ends[job.index])
        shared = {job.index for job in running if job.is_shared}
        for node in yard.nodes:
            for sharers in node.holders:
                if sharers & shared:
                    self.add_devices([(node.number, 1)], now, max(ends[index] for index in sharers))

    def add_hosts(self, job: JobState, parts: list[Holding], start: float, end: float) -> None:
        """Claim the cpus, memory and quota of a job."""
        self.claims.append(Claim(None, 0, 0.0, 0.0, job.gpus, start, end))
        for part in parts:
            self.claims.append(Claim(part.node, 0, part.cpus, part.memory, 0.0, start, end))

    def add_devices(self, counts: list[tuple[int, int]], start: float, end: float) -> None:
        """Claim whole devices."""
        for number, count in counts:
            self.claims.append(Claim(number, count, 0.0, 0.0, 0.0, start, end))

    def changes(self) -> list[float]:
        """Return now, and every later time at which something leaves or a booking begins or ends."""
        times = {time for claim in self.claims for time in (claim.start, claim.end)}
        return [self.now, *sorted(time for time in times if self.now < time < math.inf)]

    def points(self, start: float, duration: float, changes: list[float] | None = None) -> list[float]:
        """Return the times in [start, start + duration) at which the least free amounts can occur; always `start`.

        `changes`: those of the plan, where they are known.
        """
        return [start, *(time for time in changes or self.changes() if start < time < start + duration)]

    def room(self, node: NodeState, job: JobState, points: list[float]) -> int:
        """Return the units that the node can take at all the points; a shared job needs a wholly free device."""
        if node.is_down or not may_use(node, job) or (job.is_shared and node.is_pool):
            return 0
        here = [claim for claim in self.claims if claim.node == node.number]
        held = [[claim for claim in here if claim.start <= at < claim.end] for at in points]
        healthy = node.gpus - sum(node.out)
        devices = min(healthy - sum(claim.devices for claim in claims) for claims in held)
        cpus = min(node.cpus - sum(claim.cpus for claim in claims) for claims in held)
        memory = min(node.memory - sum(claim.memory for claim in claims) for claims in held)
        by_host = min(units_within(cpus, job.unit_cpus), units_within(memory, job.unit_memory))
        if job.is_cpu_job:
            by_device = UNLIMITED
        elif job.is_shared:
            by_device = min(devices, 1)
        else:
            by_device = devices // job.chunk
        return max(min(by_device, by_host), 0)

    def rooms(self, job: JobState, points: list[float]) -> dict[int, int]:
        """Map node numbers to units, for the nodes that can take any at all the points."""
        every = {node.number: self.room(node, job, points) for node in self.yard.nodes}
        return {number: units for number, units in every.items() if units >= 1}

    def has_quota(self, job: JobState, points: list[float]) -> bool:
        """Whether the quota allows the job at all the points."""
        used = max(sum(claim.quota for claim in self.claims if claim.start <= at < claim.end) for at in points)
        return used + job.gpus <= self.yard.quota[self.partition] + TOLERANCE

    def has_hosts(self, job: JobState, node: NodeState, duration: float) -> bool:
        """Whether the node's cpus and memory and the quota allow the job from now on, devices aside."""
        points = self.points(self.now, duration)
        for at in points:
            claims = [claim for claim in self.claims if claim.node == node.number and claim.start <= at < claim.end]
            cpus = node.cpus - sum(claim.cpus for claim in claims)
            memory = node.memory - sum(claim.memory for claim in claims)
            if units_within(cpus, job.unit_cpus) < 1 or units_within(memory, job.unit_memory) < 1:
                return False
        return self.has_quota(job, points)

    def earliest(self, job: JobState, duration: float) -> float | None:
        """Return the first time at which the job fits for its whole duration; None: never."""
        changes = self.changes()
        for time in changes:
            points = self.points(time, duration, changes)
            if sum(self.rooms(job, points).values()) >= job.units and self.has_quota(job, points):
                return time
        return None

    def book(self, job: JobState, start: float, duration: float) -> None:
        """Hold units for a job that must wait until `start`, on nodes in order of their number."""
        rooms = self.rooms(job, self.points(start, duration))
        whole = [n for n in sorted(rooms) if rooms[n] >= job.units]
        units = [(whole[0], job.units)] if whole else take_in_turn(sorted(rooms), rooms, job.units)
        end = start + duration
        parts = [Holding(n, k * job.unit_gpus, (), k * job.unit_cpus, k * job.unit_memory) for n, k in units]
        self.add_hosts(job, parts, start, end)
        if not job.is_cpu_job:
            self.add_devices([(n, 1 if job.is_shared else k * job.chunk) for n, k in units], start, end)

    def hold_started(self, job: JobState, duration: float, *, devices: bool) -> None:
        """Claim what a job that has just started took. No run is expected to end at once, not even one of length 0."""
        end = self.now + duration if self.now + duration > self.now else self.now + 1
        self.add_hosts(job, job.parts, self.now, end)
        if devices and not job.is_cpu_job:
            self.add_devices([(part.node, len(part.devices)) for part in job.parts], self.now, end)
