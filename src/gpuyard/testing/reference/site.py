"""Partitions, limits and conditions as the reference simulator understands them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import conditions_in
from gpuyard.model.site.eligibility import parse_conditions, why_not
from gpuyard.model.site.limits import DIMENSIONS, Limit
from gpuyard.model.workload import Workload

if TYPE_CHECKING:
    from gpuyard.testing.reference.state import JobState

TOLERANCE = 1e-6
AFTER_FAILED = "a job that had to succeed first did not"


def partitions_named(label: str, cluster: Cluster) -> tuple[int, ...]:
    """Return the partitions that a label names, those of higher tiers first; any label means the only one."""
    if len(cluster.partitions) == 1:
        return (0,)
    numbers = cluster.partition_numbers
    names = [label] if label in numbers else [name.strip() for name in label.split(",")]
    found = dict.fromkeys(numbers[name] for name in names if name in numbers)
    return tuple(sorted(found, key=lambda number: -cluster.partitions[number].tier))


def members(cluster: Cluster, node: int) -> frozenset[int]:
    """Return the partitions of a node."""
    sets = cluster.nodes.member_of
    if sets is None:
        return frozenset([int(cluster.nodes.partition[node])])
    return frozenset(number for number in range(len(cluster.partitions)) if int(sets[node]) >> number & 1)


def divisions(cluster: Cluster, named: Iterable[tuple[int, ...]]) -> list[int]:
    """Return for each partition the lowest number of those that it is linked with by nodes or by jobs."""
    groups = [set(homes) for homes in named] + [set(members(cluster, node)) for node in range(len(cluster.nodes))]
    found = []
    for number in range(len(cluster.partitions)):
        reached: set[int] = set()
        more = {number}
        while more != reached:
            reached = more
            more = reached.union(*(group for group in groups if group & reached))
        found.append(min(reached))
    return found


class SiteRules:
    """When jobs may start beside resources: their own conditions, and limits on what their users, accounts … use."""

    def __init__(self, workload: Workload, cluster: Cluster, jobs: list[JobState]) -> None:
        self.workload, self.cluster, self.jobs = workload, cluster, jobs
        present = {job.id for job in jobs}
        self.conditions = {}
        for job in jobs:
            asked = parse_conditions(conditions_in(workload.jobs.term_texts[job.terms]))
            after, after_any = (tuple(each for each in ids if each in present) for ids in (asked.after, asked.after_any))
            self.conditions[job.index] = replace(asked, begin=job.submit + asked.begin, after=after, after_any=after_any, array_limit=0)
        self.array_limit: dict[int, int] = {}
        for text in workload.jobs.term_texts:
            asked = parse_conditions(conditions_in(text))
            if asked.array and asked.array_limit:
                self.array_limit[asked.array] = min(self.array_limit.get(asked.array, asked.array_limit), asked.array_limit)
        self.waited: dict[tuple[int, str], float] = {}  # (job, reason) → s

    # --- conditions ---

    def why_not_queued(self, job: JobState, now: float) -> str:
        """Return why a submitted job may not enter its queue; empty if it may."""
        succeeded = {other.id: other.status == "done" for other in self.jobs if other.status in ("done", "killed", "rejected")}
        return why_not(self.conditions[job.index], now, succeeded, {})

    def begins(self, now: float) -> list[float]:
        """Return the begin times to come of jobs that have not been rejected."""
        every = [self.conditions[job.index].begin for job in self.jobs if job.status != "rejected"]
        return [time for time, job in zip(every, (job for job in self.jobs if job.status != "rejected"), strict=True)
                if time > now and time > job.submit and not self.conditions[job.index].held]  # fmt: skip

    # --- limits ---

    def label(self, job: JobState, name: str, at: int) -> str:
        """Return what a job is in one of DIMENSIONS, in a partition."""
        jobs = self.workload.jobs
        if name == "partition":
            return self.cluster.partitions[at].name
        return {"user": jobs.users[job.user], "account": jobs.accounts[job.account], "qos": jobs.qoses[job.qos]}[name]

    def concerns(self, limit: Limit, job: JobState, at: int) -> bool:
        return all(getattr(limit, name) in ("", self.label(job, name, at)) for name in DIMENSIONS)

    def same_group(self, limit: Limit, job: JobState, at: int) -> list[JobState]:
        """Return the jobs that have been in the system and count with a job in a partition."""
        return [
            other for other in self.jobs
            if other.status not in ("pending", "rejected") and self.concerns(limit, other, other.at)
            and all(self.label(other, name, other.at) == self.label(job, name, at) for name in limit.each)
        ]  # fmt: skip

    def asked(self, job: JobState) -> float:
        """Return the GPU-seconds that a job asks for."""
        return job.gpus * (job.walltime if job.walltime < math.inf else job.estimate)

    def over(self, job: JobState, at: int) -> str:
        """Return the reason why a waiting job may not start in a partition beside what runs; empty if it may."""
        for limit in self.cluster.limits:
            if self.concerns(limit, job, at) and not self.within(limit, job, self.same_group(limit, job, at)):
                return limit.reason
        array = parse_conditions(conditions_in(self.workload.jobs.term_texts[job.terms])).array
        running = [other for other in self.jobs if other.status == "running" and array == self.conditions[other.index].array]
        return "array-limit" if array in self.array_limit and len(running) >= self.array_limit[array] else ""

    def within(self, limit: Limit, job: JobState, group: list[JobState]) -> bool:
        running = [other for other in group if other.status == "running"]
        promised = sum(self.asked(other) for other in running) + self.asked(job)
        # what was used before, in the partition where it ran
        spent = sum(other.used_in.get(at, 0.0) for other in self.jobs for at in other.used_in if self.counts(limit, other, at, job))
        return (
            len(running) + 1 <= limit.jobs
            and sum(other.gpus for other in running) + job.gpus <= limit.gpus + TOLERANCE
            and promised <= 60 * limit.running_gpu_minutes + TOLERANCE
            and spent + promised <= 60 * limit.gpu_minutes + TOLERANCE
        )

    def counts(self, limit: Limit, other: JobState, at: int, job: JobState) -> bool:
        same = all(self.label(other, name, at) == self.label(job, name, job.at) for name in limit.each)
        return same and self.concerns(limit, other, at)

    def reason(self, job: JobState) -> str:
        """Return why a waiting job may start in none of its partitions; empty if it may in one."""
        kept, reasons = job.at, []
        for job.at in job.homes:  # noqa: B020
            reasons.append(self.over(job, job.at))
        job.at = kept
        return reasons[0] if all(reasons) else ""

    def too_many(self, job: JobState) -> bool:
        """Whether a job that is submitted now is one more than may be in the system."""
        for limit in self.cluster.limits:
            for at in range(len(self.cluster.partitions)) if "partition" in limit.each or limit.partition else (job.homes or (0,))[:1]:
                if at not in job.named and ("partition" in limit.each or limit.partition):
                    continue
                if not self.concerns(limit, job, at):
                    continue
                inside = [
                    other for other in self.jobs
                    if other.status in ("gated", "waiting", "running")
                    and any(self.counted(limit, other, place, job, at) for place in other.named)
                ]  # fmt: skip
                if len(inside) + 1 > limit.submitted:
                    return True
        return False

    def counted(self, limit: Limit, other: JobState, place: int, job: JobState, at: int) -> bool:
        same = all(self.label(other, name, place) == self.label(job, name, at) for name in limit.each)
        return same and self.concerns(limit, other, place)

    def pass_time(self, seconds: float, reasons: dict[int, str]) -> None:
        """Add up how long jobs were not eligible."""
        for job, reason in reasons.items():
            self.waited[job, reason] = self.waited.get((job, reason), 0.0) + seconds


class SiteEvents(ABC):
    """When jobs enter their queues, and which are passed over; the simulation is what inherits it."""

    now: float
    site: SiteRules

    @abstractmethod
    def with_status(self, status: str, partition: int | None = None) -> list[JobState]: ...

    @abstractmethod
    def enqueue(self, job: JobState) -> None: ...

    def eligible(self) -> bool:
        """Whether any waiting job is not over a limit."""
        return any(not self.site.reason(job) for job in self.with_status("waiting"))

    def ineligible(self) -> dict[int, str]:
        """Return the reasons of the submitted jobs that may not start, by index."""
        reasons = {job.index: self.site.why_not_queued(job, self.now) for job in self.with_status("gated")}
        reasons |= {job.index: self.site.reason(job) for job in self.with_status("waiting")}
        return {job: reason for job, reason in reasons.items() if reason}

    def release(self) -> None:
        """Let jobs enter their queues whose conditions are met now."""
        for job in self.with_status("gated"):
            if not self.site.why_not_queued(job, self.now):
                self.enqueue(job)

    def reject_followers(self) -> None:
        """Reject those that can never run, because a job that had to succeed first did not, and their followers."""
        failed = [job for job in self.with_status("gated") if self.site.why_not_queued(job, self.now) == "after-failed"]
        for job in failed:
            job.status, job.reason = "rejected", AFTER_FAILED
        if failed:
            self.reject_followers()

    def offered(self, behind: list[JobState], depth: int) -> Iterator[JobState]:
        """Go through the jobs that are not over a limit when their turn comes, `depth` of them at most."""
        count = 0
        for job in behind:
            if self.site.reason(job):
                continue
            if 0 < depth <= count:
                return
            count += 1
            yield job
