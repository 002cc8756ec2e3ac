"""The pass over partitions that share nodes, for the reference simulator: pairs (job, partition), and a head for each partition."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.testing.reference.plan import BookingPlan, longest_duration
from gpuyard.testing.reference.state import Holding, JobState, Yard

if TYPE_CHECKING:
    from gpuyard.testing.reference.simulator import _Simulation

Pair = tuple[JobState, int]  # a job, and the partition in which it is looked at


@dataclass(eq=False)
class PartitionHead:
    """The first job of a partition that could not start, and its reservation."""

    job: JobState
    at: int  # the partition
    shadow: float | None  # s; None: no reservation
    yard: Yard | None  # as it will be then


class SharedPass:
    """One walk over a division. `simulation` is that of `gpuyard.testing.reference.simulator`."""

    def __init__(self, simulation: _Simulation, division: int, *, may_preempt: bool) -> None:
        self.sim = simulation
        self.division = division
        self.may_preempt = may_preempt
        self.heads: list[PartitionHead] = []
        self.plan: BookingPlan | None = None
        self.preempted = False
        depth = simulation.active.backfill.depth
        self.left = depth if depth > 0 else None

    def run(self) -> bool:
        """Walk over the pairs; return whether a job was preempted."""
        for job, at in self.pairs():
            if self.left == 0:
                break
            if job.status != "waiting" or job.benched:
                continue
            job.at = at
            if self.sim.site.over(job, at):
                continue
            if self.heads and self.left is not None:
                self.left -= 1
            parts = self.parts_for(job)
            if parts is None and all(head.at != at for head in self.heads):
                parts = self.add_head(job)
            if parts is not None:
                job.at = at
                self.sim.start(job, parts)
                if self.plan is not None:
                    self.claim(job)
        return self.preempted

    def pairs(self) -> list[Pair]:
        """Return the pairs by tier, highest first, key, index, and the order in which the job names them."""
        queue = self.sim.with_status("waiting", self.division)
        tiers = [partition.tier for partition in self.sim.cluster.partitions]
        every = [(-tiers[at], job.key, job.index, place, job, at) for job in queue for place, at in enumerate(job.homes)]
        return [(job, at) for *_, job, at in sorted(every, key=lambda each: each[:4])]

    def parts_for(self, job: JobState) -> list[Holding] | None:
        """Return what the job gets if it may start now; None: it may not."""
        if not self.heads:
            if self.sim.yard.fits(job):
                return self.ordinary(job)
            victims = self.sim.victims_for(job) if self.may_preempt else []
            for victim in victims:
                self.sim.preemptions += 1
                self.sim.requeue(victim)
                victim.benched = True
                self.preempted = True
            return self.ordinary(job) if victims else None
        return _BEHIND[self.sim.active.backfill.name](self, job)

    def ordinary(self, job: JobState) -> list[Holding]:
        parts: list[Holding] = self.sim.ordinary_parts(job)
        return parts

    def add_head(self, job: JobState) -> list[Holding] | None:
        """Make the job the head of its partition; the first head of a conservative pass is booked, and may start."""
        rule = self.sim.active.backfill.name
        head = PartitionHead(job, job.at, None, None)
        first = not self.heads
        self.heads.append(head)
        if rule == "easy":
            head.shadow = self.sim.shadow_of(job)
            if head.shadow is not None:
                running = self.sim.with_status("running", self.division)
                head.yard = self.sim.yard.without(each for each in running if each.expected_end(self.sim.now) <= head.shadow)
        if rule == "conservative" and first:
            self.plan = BookingPlan(self.sim.yard, self.division, self.sim.with_status("running", self.division), self.sim.now)
            if self.left is not None:
                self.left -= 1
            return self.booked(job)
        return None

    # --- behind a head ---

    def with_none(self, job: JobState) -> list[Holding] | None:
        """Return its parts if it fits and no head's partition shares a node with its own."""
        nodes = self.sim.yard.nodes
        if any(job.at == head.at or any({job.at, head.at} <= node.partitions for node in nodes) for head in self.heads):
            return None
        return self.with_skip(job)

    def with_skip(self, job: JobState) -> list[Holding] | None:
        return self.ordinary(job) if self.sim.yard.fits(job) else None

    def with_easy(self, job: JobState) -> list[Holding] | None:
        """Return its parts if it fits and all reservations stand; if so, it takes them there too."""
        if not self.sim.yard.fits(job):
            return None
        parts, at = self.ordinary(job), job.at
        end = self.sim.est_end_of(job, parts)
        concerned = [head for head in self.heads if head.job.status == "waiting" and head.job is not job]
        yards = [(head, head.yard) for head in concerned if head.yard is not None and head.shadow is not None and end > head.shadow]
        for head, yard in yards:
            head.job.at = head.at
            yard.take(job, parts)
            stands = yard.fits(head.job)
            yard.give_back(job, parts)
            if not stands:
                return None
        for _, yard in yards:
            yard.take(job, parts)
        job.at = at
        return parts

    def booked(self, job: JobState) -> list[Holding] | None:
        """Book the job; return its parts if it is booked for now."""
        sim, plan = self.sim, self.plan
        assert plan is not None
        self.devices = True
        self.duration = duration = longest_duration(job, sim.yard, sim.cluster, sim.rules)
        if job.is_shared:
            parts: list[Holding] | None = sim.parts_beside_sharers(job, plan, duration)
            if parts is not None:
                self.devices = False
                return parts
        time = plan.earliest(job, duration)
        if time is None:
            return None
        if time > sim.now:
            plan.book(job, time, duration)
            return None
        rooms = plan.rooms(job, plan.points(sim.now, duration))
        planned: list[Holding] = sim.planned_parts(job, sim.placer.choose(sim.active.placement, job, rooms))
        return planned

    def claim(self, job: JobState) -> None:
        """Take what a job that was booked and started has out of the plan."""
        assert self.plan is not None
        self.plan.hold_started(job, self.duration, devices=self.devices)


_BEHIND: dict[str, Callable[[SharedPass, JobState], list[Holding] | None]] = {
    "none": SharedPass.with_none,
    "skip": SharedPass.with_skip,
    "easy": SharedPass.with_easy,
    "conservative": SharedPass.booked,
}


def walk_shared(simulation: _Simulation, division: int, *, may_preempt: bool) -> bool:
    """Walk over a division of several partitions; return whether a job was preempted."""
    for job in simulation.with_status("waiting", division):
        job.benched = False
        if simulation.active.ordering.reads_clock:
            job.key = simulation.key_of(job)
    return SharedPass(simulation, division, may_preempt=may_preempt).run()
