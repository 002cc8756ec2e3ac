"""The slow, obvious twin of the engine: plain Python, written from `docs/concepts/semantics.md` alone.

It searches lists where the engine keeps heaps, and copies the whole cluster to ask "would it fit if …?". Time grows with
the square of the jobs: 1,000 lightly queued jobs on 8 nodes took 0.7 s, 2,000 took 3 s. Its rows must equal the engine's bit for bit.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from gpuyard.errors import PolicyError
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import RECENT
from gpuyard.model.workload import Workload
from gpuyard.policies.schedulers import Meta, Scheduler
from gpuyard.policies.slots import RankRule
from gpuyard.testing.reference.estimates import make_estimates
from gpuyard.testing.reference.outages import OutageEvents, OutageState, next_multiple
from gpuyard.testing.reference.plan import BookingPlan, Placer, longest_duration, overhead_of
from gpuyard.testing.reference.ranks import LearningTables, RankPass
from gpuyard.testing.reference.result import ReferenceResult, Row, Segment
from gpuyard.testing.reference.scores import request_mix
from gpuyard.testing.reference.shared import walk_shared
from gpuyard.testing.reference.site import AFTER_FAILED, SiteEvents, SiteRules, divisions, partitions_named
from gpuyard.testing.reference.state import (
    Accounts,
    Burden,
    Holding,
    JobState,
    JobsView,
    System,
    Yard,
    device_room,
    make_jobs,
    may_use,
)

__all__ = ["ReferenceResult", "Row", "Segment", "reference"]


def reference(
    workload: Workload, cluster: Cluster, scheduler: Scheduler | Meta, seed: int = 0, rules: Rules | None = None
) -> ReferenceResult:
    """Simulate slowly and obviously. The arguments are those of `gpuyard.simulate`."""
    simulation = _Simulation(workload, cluster, scheduler, seed, rules or Rules())
    simulation.run()
    return simulation.result()


class _Simulation(OutageEvents, SiteEvents):
    """The state of one run, and the verbs of the semantics page."""

    def __init__(self, workload: Workload, cluster: Cluster, scheduler: Scheduler | Meta, seed: int, rules: Rules) -> None:
        self.cluster = cluster
        self.rules = rules
        self.jobs = make_jobs(workload, cluster, rules)
        self.visible = JobsView(self.jobs)
        self.estimates = make_estimates(workload, self.jobs)
        named = [job.homes for job in self.jobs] + [partitions_named(label, cluster) for label in workload.jobs.partitions]
        self.division = divisions(cluster, named)
        self.site = SiteRules(workload, cluster, self.jobs)
        self.yard = Yard.empty(cluster, self.division)
        mixes = [request_mix(job for job in self.jobs if job.home == p) for p in range(len(cluster.partitions))]
        self.placer = Placer(self.yard, cluster, self.visible, seed, mixes)
        self.outages = [OutageState(outage) for outage in cluster.outages]
        self.meta = scheduler if isinstance(scheduler, Meta) else None
        self.schedulers = list(scheduler.schedulers) if isinstance(scheduler, Meta) else [scheduler]
        self.active = self.schedulers[0]
        self.switch_due = 0.0
        self.stoppable = any(job.preemptible for job in self.jobs)  # else the timer of a rank rule does not fire, and nobody ages
        self.burden = Burden()
        self.tables = LearningTables(self.schedulers)
        others = [s.preemption.every for s in self.schedulers if self.stoppable or not s.preemption.rank]
        periods = [period for period in [*([self.meta.every] if self.meta else []), *others] if period > 0]
        self.timer_period = periods[0] if periods else math.inf
        self.now = -math.inf
        self.accounts = Accounts(len(workload.jobs.users), scheduler.half_life)
        self.segments: list[Segment] = []
        self.passes = self.preemptions = self.failures = self.queue_max = 0
        self.queue_integral = 0.0

    # --- time -----------------------------------------------------------------------------------------------------

    def with_status(self, status: str, partition: int | None = None) -> list[JobState]:
        """Return the jobs with a status, by index."""
        return [job for job in self.jobs if job.status == status and partition in (None, job.home)]

    def run(self) -> None:
        """Process instant after instant until nothing more can happen."""
        time = self.next_time()
        while time is not None:
            if self.with_status("waiting"):
                self.queue_integral += len(self.with_status("waiting")) * (time - self.now)
            if self.now > -math.inf:
                self.site.pass_time(time - self.now, self.ineligible())
            self.estimates.before(time)
            self.now = time
            self.end_runs()
            self.repair()
            self.fail()
            self.submit()
            self.release()
            if self.eligible():
                self.one_pass()
            self.queue_max = max(self.queue_max, len(self.with_status("waiting")))
            time = self.next_time()
        for job in self.with_status("gated"):
            job.status = "waiting"

    def next_time(self) -> float | None:
        """Return the time of the next instant; None: the simulation is over."""
        if not any(job.status in ("pending", "waiting", "running") for job in self.jobs) and not self.site.begins(self.now):
            return None
        certain = [job.run_end for job in self.with_status("running")] + [job.submit for job in self.with_status("pending")]
        certain += self.site.begins(self.now)
        certain += [state.outage.end for state in self.outages if not state.over and state.outage.end < math.inf]
        if not certain:
            return None
        others = [state.outage.start for state in self.outages if not state.begun]
        timed = self.with_status("running") or self.meta is not None or self.active.ordering.reads_clock
        if self.timer_period < math.inf and timed and self.eligible():
            others.append(next_multiple(self.timer_period, self.now))
        return min(certain + others)

    # --- the events of an instant -----------------------------------------------------------------------------------

    def end_runs(self) -> None:
        for job in self.with_status("running"):
            if job.run_end == self.now:
                self.estimates.end(job, self.now, self.work_of(job))
                self.leave(job)
                job.status = "killed" if job.killed_at_end else "done"
                job.end = self.now
                self.burden.add(job, self.now)
                self.tables.learn_from(job, self.schedulers.index(self.active))
        self.reject_followers()

    def submit(self) -> None:
        for job in self.with_status("pending"):
            if job.submit == self.now:
                self.estimates.submit(job)
                waits = self.site.why_not_queued(job, self.now)
                job.reason = AFTER_FAILED if waits == "after-failed" else self.why_never(job)
                if not job.reason and self.site.too_many(job):
                    job.reason = "over the limit on submitted jobs"
                if job.reason:
                    job.status = "rejected"
                    self.reject_followers()
                elif waits:
                    job.status = "gated"
                else:
                    self.enqueue(job)

    def why_never(self, job: JobState) -> str:
        """Return why a job does not fit even on its partition empty and healthy; empty if it does."""
        if job.home < 0:
            return "no such partition"
        if not job.is_cpu_job and not job.allowed:
            return "no such GPU type"
        reasons = [self.why_not_in(job, at) for at in job.homes]
        job.homes = tuple(at for at, reason in zip(job.homes, reasons, strict=True) if not reason)
        return "" if job.homes else reasons[0]

    def why_not_in(self, job: JobState, at: int) -> str:
        """Return why a job does not fit even on one of its partitions, empty and healthy."""
        job.at = at
        empty = Yard.empty(self.cluster, self.division)
        if not job.is_cpu_job and sum(device_room(node, job) for node in empty.nodes if may_use(node, job)) < job.units:
            return "more GPUs than its partition has"
        if sum(empty.rooms(job).values()) < job.units:
            return "more cpus or memory than a node has"
        if not empty.has_quota(job):
            return "over the partition's quota"
        return ""

    # --- the life of a job ------------------------------------------------------------------------------------------

    def enqueue(self, job: JobState) -> None:
        job.status = "waiting"
        job.queued = self.now
        job.entered = self.now if math.isnan(job.entered) else job.entered
        self.settle_writing(job)
        job.remaining = max(job.estimate - job.done, 0.0)
        if not self.active.ordering.reads_clock:
            job.key = self.key_of(job)

    def settle_writing(self, job: JobState) -> None:
        """Let a job that may be stopped write checkpoints in its next run only if the scheduler may stop it, where they cost something."""
        job.silent = job.may_be_silent and not self.active.preemption.stops

    def start(self, job: JobState, parts: list[Holding]) -> None:
        assert job.status == "waiting", f"job {job.index} at {self.now} s: started while {job.status}"
        self.yard.take(job, parts)
        self.accounts.hold(job.user, job.gpus, self.now)
        job.status = "running"
        job.parts = parts
        job.last_nodes = [part.node for part in parts]
        job.rate = self.rate_of(job, parts)
        job.overhead = self.overhead_on(job, parts)
        job.est_end = self.est_end_of(job, parts)
        job.run_start = self.now
        if job.start < 0:
            job.start = self.now
        duration = job.overhead + (job.runtime - job.done) / job.rate
        job.killed_at_end = self.rules.walltime_kill and duration > job.walltime - job.ran
        job.run_end = self.now + (max(job.walltime - job.ran, 0.0) if job.killed_at_end else duration)

    def rate_of(self, job: JobState, parts: list[Holding]) -> float:
        """Return reference seconds of work per second on these parts."""
        if job.is_cpu_job:
            return job.working_part
        nodes = [self.yard.nodes[part.node] for part in parts]
        slowest = min(job.speed[node.gpu_type] for node in nodes)
        locality = self.cluster.span_racks if len({n.rack for n in nodes}) > 1 else self.cluster.span_nodes if len(nodes) > 1 else 1.0
        return slowest * locality * job.working_part

    def overhead_on(self, job: JobState, parts: list[Holding]) -> float:
        """Return the seconds on these parts before work begins."""
        return overhead_of(job, {self.yard.nodes[part.node].gpu_type for part in parts}, self.cluster)

    def est_end_of(self, job: JobState, parts: list[Holding]) -> float:
        """Return the estimated end of a run that starts now on these parts."""
        remaining = max(job.estimate - job.done, 0.0)
        end = self.now + (self.overhead_on(job, parts) + remaining / self.rate_of(job, parts))
        if self.rules.walltime_kill:
            end = min(end, self.now + max(job.walltime - job.ran, 0.0))
        return end

    def revise_end(self, job: JobState) -> None:
        """Double the estimated length of a run that has outlived its estimated end, as often as needed."""
        if job.est_end > self.now:
            return
        while job.est_end <= self.now:
            job.est_end = job.run_start + max(2 * (job.est_end - job.run_start), 1.0)
        limit = job.run_start + max(job.walltime - job.ran, 0.0)
        if self.rules.walltime_kill and limit > self.now:
            job.est_end = min(job.est_end, limit)

    def work_of(self, job: JobState) -> float:
        """Return the work that a job has done, reference seconds, at the end of its last run."""
        if not job.killed_at_end:
            return job.runtime
        return job.done + max(self.now - job.run_start - job.overhead, 0.0) * job.rate

    def leave(self, job: JobState) -> float:
        """End the present run, for any reason; return its length."""
        elapsed = self.now - job.run_start
        job.ran += elapsed
        job.attained = job.ran * job.gpus
        job.used_in[job.at] = job.used_in.get(job.at, 0.0) + elapsed * job.gpus
        self.yard.give_back(job, job.parts)
        self.accounts.release(job.user, job.gpus, self.now)
        for part in job.parts:
            numbered = () if self.yard.nodes[part.node].is_pool else part.devices
            devices = sum(1 << device for device in numbered)
            self.segments.append(Segment(job.index, part.node, part.gpus, devices, job.run_start, self.now))
        job.parts = []
        return elapsed

    def requeue(self, job: JobState) -> None:
        """Stop a running job: keep what the last checkpoint saved, and wait again."""
        useful = max(self.leave(job) - job.overhead, 0.0)
        kept = job.kept(useful)
        job.reached = max(job.reached, float(np.float32(job.done + useful * job.rate)))
        job.done = min(job.done + kept * job.rate, job.runtime)
        job.preemptions += 1
        job.barren += kept == 0 or kept < job.overhead
        self.enqueue(job)

    # --- policies ---------------------------------------------------------------------------------------------------

    def call(self, what: str, function: Callable[..., float], params: Any, job: JobState) -> float:
        """Return a rule's number for a job now; NaN and exceptions are errors that name job and time."""
        where = f"{what}: job {job.index} at {self.now} s"
        try:
            with np.errstate(all="ignore"):
                value = float(function(self.visible, job.index, np.float64(self.now), **dict(params)))
        except (ArithmeticError, ValueError, TypeError, LookupError, AttributeError) as error:
            raise PolicyError(f"{where}: {error}") from error
        if math.isnan(value):
            raise PolicyError(f"{where}: the value is NaN")
        return value

    def key_of(self, job: JobState) -> float:
        ordering = self.active.ordering
        if ordering.function is None:
            raise PolicyError(f"ordering {ordering.name}: the reference simulator evaluates no networks")
        return self.call(f"ordering {ordering.name}", ordering.function, ordering.params, job)

    def switch(self) -> None:
        """Let the meta-scheduler's rule choose the scheduler, if a choice is due."""
        if self.meta is None or self.now < self.switch_due:
            return
        if self.meta.every > 0:
            self.switch_due = next_multiple(self.meta.every, self.now)
        if self.meta.rule.function is None:
            raise PolicyError(f"switch {self.meta.rule.name}: the reference simulator evaluates no networks")
        choice = int(self.meta.rule.function(self.system(), np.float64(self.now), **dict(self.meta.rule.params)))
        if not 0 <= choice < len(self.schedulers):
            raise PolicyError(f"switch {self.meta.rule.name} at {self.now} s: {choice} is none of {len(self.schedulers)} schedulers")
        if self.schedulers[choice] is not self.active:
            self.active = self.schedulers[choice]
            for job in self.with_status("waiting"):
                self.settle_writing(job)
                job.key = self.key_of(job)

    def system(self) -> System:
        waiting = self.with_status("waiting")
        work = 0.0
        for job in waiting:
            work += job.remaining * job.gpus
        return System(
            waiting=float(len(waiting)), running=float(len(self.with_status("running"))),
            free=float(sum(len(node.wholly_free()) for node in self.yard.nodes if not node.is_down)),
            gpus=float(sum(node.gpus for node in self.yard.nodes)), oldest=max((self.now - job.submit for job in waiting), default=0.0),
            urgent=float(sum(job.deadline - self.now - job.remaining < 0 for job in waiting)), work=work,
            recent=float(sum(self.now - RECENT < job.submit <= self.now for job in self.jobs)), schedulers=float(len(self.schedulers)),
        )  # fmt: skip

    # --- the pass ---------------------------------------------------------------------------------------------------

    def one_pass(self) -> None:
        self.passes += 1
        parts = self.accounts.parts(self.now)
        for job in self.with_status("waiting") + self.with_status("running"):
            job.usage = parts[job.user]
        self.switch()
        for partition in range(len(self.cluster.partitions)):
            for job in self.with_status("running", partition):
                self.revise_end(job)
            if isinstance(self.active.preemption, RankRule):
                RankPass(self, partition, self.active.preemption).run()
            elif self.walk(partition, may_preempt=True):
                self.walk(partition, may_preempt=False)

    def walk(self, partition: int, *, may_preempt: bool) -> bool:
        """Start jobs in order and deal with the first that does not fit; return whether a job was preempted."""
        if self.division.count(partition) > 1:
            return walk_shared(self, partition, may_preempt=may_preempt)
        queue = self.with_status("waiting", partition)
        if self.active.ordering.reads_clock:
            for job in queue:
                job.key = self.key_of(job)
        queue.sort(key=lambda job: (job.key, job.index))
        preempted = False
        for position, job in enumerate(queue):
            if self.site.reason(job):
                continue
            victims = []
            if not self.yard.fits(job):
                victims = self.victims_for(job) if may_preempt else []
                if not victims:
                    backfill = self.active.backfill
                    _BACKFILLS[backfill.name](self, job, queue[position + 1 :], backfill.depth)
                    break
            for victim in victims:
                self.preemptions += 1
                self.requeue(victim)
                preempted = True
            self.start(job, self.ordinary_parts(job))
        return preempted

    def ordinary_parts(self, job: JobState) -> list[Holding]:
        """Return the parts that the placement gives a job that fits now."""
        units = self.placer.choose(self.active.placement, job, self.yard.rooms(job))
        device = self.placer.device(self.active.placement, self.yard.nodes[units[0][0]], job)
        return self.yard.parts_of(job, units, device)

    def refreshed(self, partition: int) -> list[JobState]:
        """Return the running jobs of a partition, with what a preemption rule sees of them brought up to now."""
        running = self.with_status("running", partition)
        for job in running:
            worked = max(self.now - job.run_start - job.overhead, 0.0) * job.rate
            job.remaining = max(job.estimate - job.done - worked, 0.0)
            job.attained = (job.ran + (self.now - job.run_start)) * job.gpus
        return running

    def victims_for(self, head: JobState) -> list[JobState]:
        """Return the running jobs to stop so that the head fits; none if that is impossible."""
        rule = self.active.preemption
        if rule.function is None:
            return []
        running = self.refreshed(head.home)
        what = f"preemption {rule.name}"
        limit = self.call(what, rule.function, rule.params, head)
        score = {job.index: self.call(what, rule.function, rule.params, job) for job in running}
        eligible = [
            job
            for job in running
            if score[job.index] > limit
            and job.run_start < self.now
            and job.preemptible is not False
            and not (job.once and job.preemptions)
            and any(head.at in self.yard.nodes[part.node].partitions for part in job.parts)
        ]
        eligible.sort(key=lambda job: (score[job.index], job.run_start, job.index), reverse=True)
        for count in range(1, len(eligible) + 1):
            if self.yard.without(eligible[:count]).fits(head):
                return eligible[:count]
        return []

    # --- backfilling ------------------------------------------------------------------------------------------------

    def backfill_none(self, head: JobState, behind: list[JobState], depth: int) -> None:
        """Start nothing more."""

    def backfill_skip(self, head: JobState, behind: list[JobState], depth: int) -> None:
        """Start every later job that fits."""
        for job in self.offered(behind, depth):
            if self.yard.fits(job):
                self.start(job, self.ordinary_parts(job))

    def shadow_of(self, head: JobState) -> float | None:
        """Return the earliest expected end at which the head fits; None if there is none."""
        running = self.with_status("running", head.home)
        for time in sorted({job.expected_end(self.now) for job in running}):
            if self.yard.without(job for job in running if job.expected_end(self.now) <= time).fits(head):
                return time
        return None

    def backfill_easy(self, head: JobState, behind: list[JobState], depth: int) -> None:
        """Start a later job if it is expected to end by the shadow time, or if the head does not need what it takes."""
        shadow = self.shadow_of(head)
        if shadow is None:
            self.backfill_skip(head, behind, depth)
            return
        running = self.with_status("running", head.home)
        at_shadow = self.yard.without(job for job in running if job.expected_end(self.now) <= shadow)
        for job in self.offered(behind, depth):
            if not self.yard.fits(job):
                continue
            parts = self.ordinary_parts(job)
            if self.est_end_of(job, parts) <= shadow:
                self.start(job, parts)
                continue
            at_shadow.take(job, parts)
            if at_shadow.fits(head):
                self.start(job, parts)
            else:
                at_shadow.give_back(job, parts)

    def backfill_conservative(self, head: JobState, behind: list[JobState], depth: int) -> None:
        """Book every job, the head first; start those whose booking is now."""
        plan = BookingPlan(self.yard, head.home, self.with_status("running", head.home), self.now)
        for job in self.offered([head, *behind], depth):
            duration = longest_duration(job, self.yard, self.cluster, self.rules)
            if job.is_shared and self.joins_sharers(job, plan, duration):
                continue
            time = plan.earliest(job, duration)
            if time is None:
                continue
            if time > self.now:
                plan.book(job, time, duration)
                continue
            rooms = plan.rooms(job, plan.points(self.now, duration))
            self.start(job, self.planned_parts(job, self.placer.choose(self.active.placement, job, rooms)))
            plan.hold_started(job, duration, devices=True)

    def planned_parts(self, job: JobState, units: list[tuple[int, int]]) -> list[Holding]:
        """Return the parts of a job that starts from a plan; a shared job gets a whole device."""
        if not job.is_shared:
            return self.yard.parts_of(job, units)
        number = units[0][0]
        return [Holding(number, job.gpus, (self.yard.nodes[number].wholly_free()[0],), job.cpus, job.memory)]

    def joins_sharers(self, job: JobState, plan: BookingPlan, duration: float) -> bool:
        """Start a shared job on a device that is already shared, if its sharers are expected to stay as long."""
        parts = self.parts_beside_sharers(job, plan, duration)
        if parts is None:
            return False
        self.start(job, parts)
        plan.hold_started(job, duration, devices=False)
        return True

    def parts_beside_sharers(self, job: JobState, plan: BookingPlan, duration: float) -> list[Holding] | None:
        """Return the parts of a shared job on such a device; None: there is none."""
        if not self.yard.fits(job):
            return None
        parts = self.ordinary_parts(job)
        node = self.yard.nodes[parts[0].node]
        sharers = node.holders[parts[0].devices[0]]
        last = max((self.jobs[index].expected_end(self.now) for index in sharers), default=-math.inf)
        return None if self.now + duration > last or not plan.has_hosts(job, node, duration) else parts

    # --- the end ----------------------------------------------------------------------------------------------------

    def result(self) -> ReferenceResult:
        rows = [
            Row(
                status=job.status, reason=job.reason, start=job.start if job.start >= 0 else math.nan, end=job.end, ran=job.ran,
                gpu_seconds=job.attained, rate=job.rate, nodes=len(job.last_nodes), node=job.last_nodes[0] if job.last_nodes else -1,
                preemptions=job.preemptions,
            )
            for job in self.jobs
        ]  # fmt: skip
        totals = (self.passes, self.preemptions, self.failures, self.queue_integral, self.queue_max)
        entered = [job.entered for job in self.jobs]
        return ReferenceResult(rows, self.segments, *totals, [job.estimate for job in self.jobs], entered, self.site.waited)


_BACKFILLS: dict[str, Callable[[_Simulation, JobState, list[JobState], int], None]] = {
    "none": _Simulation.backfill_none,
    "skip": _Simulation.backfill_skip,
    "easy": _Simulation.backfill_easy,
    "conservative": _Simulation.backfill_conservative,
}
