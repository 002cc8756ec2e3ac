"""The rank pass of the reference simulator: it plans on a copy of the cluster, as often as stops have to be undone, and then acts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from gpuyard.errors import PolicyError
from gpuyard.model.rules import ONCE_WITHIN
from gpuyard.policies.slots import RankRule
from gpuyard.testing.reference.state import TOLERANCE, Holding, JobState, Yard

if TYPE_CHECKING:
    from gpuyard.policies.ranks import RunTimesTable

GOLDEN = 0.6180339887498949
MOST_BARREN = 60
MOST_HALVINGS = 60
OCTAVES = 32
RATIO_FROM = -24
SETTLING = 25  # jobs that count as if table and estimates had told as much about them
CAUTION = 4.0  # by estimates, stops must gain so many times more


class LearningTable:
    """A table of run times, which learns from jobs that end if its rule says so."""

    def __init__(self, table: RunTimesTable) -> None:
        self.table = table
        self.rows = [[float(x) for x in row] for row in table.quantiles]
        self.otherwise = LearningTable(table.otherwise) if table.otherwise is not None else None

    def of(self, job: JobState) -> list[float]:
        """Return the quantiles of the class of a job."""
        if self.otherwise is not None and job.walltime == math.inf:
            return self.otherwise.of(job)
        key = job.walltime if self.table.by_walltime and job.walltime < math.inf else job.estimate
        return self.rows[sum(edge <= key for edge in self.table.edges.tolist())]

    def learn(self, job: JobState, turn: int) -> None:
        """Let the run time of a job take the place of a quantile of its class."""
        row = self.of(job)
        place = turn * GOLDEN
        del row[int((place - math.floor(place)) * len(row))]
        row.append(job.runtime)
        row.sort()


class Doubt:
    """How much better estimates have told the run times of jobs that are done than a table did, in bits a job."""

    def __init__(self) -> None:
        self.ratios: list[int] = []  # ⌊log₂ run time / estimate⌋ of the jobs so far
        self.evidence = 0.0
        self.bits = 0.0

    def add(self, job: JobState, quantiles: list[float]) -> None:
        """Take a job that is done into account: what its class in the table and what the ratios so far gave for its run time."""
        octave = _octave(job.runtime, 0, OCTAVES - 1)
        ratio = _octave(job.runtime / max(job.estimate, 1.0), RATIO_FROM, RATIO_FROM + OCTAVES - 1)
        by_table = (sum(_octave(x, 0, OCTAVES - 1) == octave for x in quantiles) + 0.5) / (len(quantiles) + OCTAVES / 2)
        by_estimate = (self.ratios.count(ratio) + 0.25) / (len(self.ratios) + OCTAVES / 4)
        self.ratios.append(ratio)
        self.evidence += _bits(by_estimate) - _bits(by_table)
        self.bits = self.evidence / (len(self.ratios) + SETTLING)


def _octave(x: float, least: int, most: int) -> int:
    """Return ⌊log₂ x⌋, from `least` to `most`."""
    return min(max(math.frexp(x)[1] - 1, least), most) if x > 0 else least


def _bits(x: float) -> float:
    """Return log₂ x, with straight lines between powers of two."""
    mantissa, exponent = math.frexp(x)
    return exponent - 1 + (2.0 * mantissa - 1.0)


class LearningTables:
    """The tables of several schedulers; that of the active one is tested on jobs that are done, and may learn from them."""

    def __init__(self, schedulers: Sequence[Any]) -> None:
        self.rules = [scheduler.preemption for scheduler in schedulers]
        self.tables = [LearningTable(rule.table) if getattr(rule, "table", None) is not None else None for rule in self.rules]
        self.learned = 0
        self.doubt = Doubt()

    def learn_from(self, job: JobState, active: int) -> None:
        """Take a job that has ended into account, if it is its turn."""
        table, every = self.tables[active], getattr(self.rules[active], "online", 0)
        if table is None or job.status != "done":
            return
        if self.rules[active].trust < math.inf:
            self.doubt.add(job, table.of(job))
        if every == 0:
            return
        self.learned += 1
        if self.learned % every == 0:
            table.learn(job, self.learned // int(every))


def gittins_time(quantiles: list[float], job: JobState, age: float) -> float:
    """Return the least expected time per completion of a job of this age, over all times at which one might give up on it.

    What a stop loses has to be done again, but that the job takes longer than it had run by then stays known.
    """
    known = max(age, job.reached)
    beyond = [x - age for x in quantiles if x > known]
    if not beyond:
        return 2.0 * known - age
    costs = []
    total = 0.0
    for ended, left in enumerate(beyond, start=1):
        total += left
        costs.append((total + (len(beyond) - ended) * left) / ended)
    return min(costs)


@dataclass
class RankPlan:
    """A plan under way: the cluster as it would be, who starts where, and who is stopped for whom."""

    yard: Yard
    held: dict[int, list[Holding]]  # what running jobs hold in it; in a pool only the numbers of devices count
    starts: list[tuple[JobState, list[Holding], list[JobState]]] = field(default_factory=list)
    stopped: list[JobState] = field(default_factory=list)


class RankPass:
    """One rank pass over one partition."""

    def __init__(self, simulation: Any, partition: int, rule: RankRule) -> None:
        self.simulation = simulation
        self.partition = partition
        self.rule = rule
        self.now: float = simulation.now
        self.at_shadow: Yard = simulation.yard
        self.devices = sum(node.gpus for node in simulation.yard.nodes if node.partition == partition)

    def run(self) -> None:
        """Plan until no stop has to be undone, then stop and start as planned."""
        running = self.simulation.refreshed(self.partition)
        waiting = self.simulation.with_status("waiting", self.partition)
        self.pressure = len(waiting) / self.devices if self.devices > 0 else 0.0
        self.by_estimate = self.simulation.tables.doubt.bits > self.rule.trust
        self.order = self.ordered(running)
        fixed: set[int] = set()
        while True:
            plan = self.plan(fixed)
            idle = [job for job in plan.stopped if self.leaves_idle(job, plan.yard)]
            if not idle:
                break
            fixed.add(max(idle, key=lambda job: (job.gpus, self.order.index(job))).index)
        for job, parts, stopped in plan.starts:
            for victim in stopped:
                self.simulation.preemptions += 1
                self.simulation.requeue(victim)
            self.simulation.start(job, _numbered(self.simulation.yard, parts))

    # --- the order --------------------------------------------------------------------------------------------------

    def competes(self, job: JobState) -> bool:
        """Whether a running job may be stopped now: it may be at all, keeps something, has not just started, and made good barren stops."""
        if job.silent or self.simulation.burden.excess > self.rule.burden:
            return False
        elapsed = self.now - job.run_start
        if job.once and elapsed > ONCE_WITHIN:
            return False
        protected = job.barren > 0 and elapsed < job.overhead + 2.0 ** min(job.barren, MOST_BARREN)
        return job.may_be_stopped and job.run_start < self.now and not protected

    def time_of(self, job: JobState, age: float) -> float:
        """Return the rule's time for a job that has done so much work."""
        if self.rule.table is not None:
            table = self.simulation.tables.tables[self.simulation.schedulers.index(self.simulation.active)]
            return gittins_time([max(job.estimate, 1.0)] if self.by_estimate else table.of(job), job, age)
        if self.rule.function is None:
            raise PolicyError(f"preemption {self.rule.name}: neither a function nor a table")
        time: float = self.simulation.call(f"preemption {self.rule.name}", self.rule.function, self.rule.params, job)
        return time

    def credit(self, job: JobState, until: float) -> float:
        """Return the factor by which a job counts less for what it has waited."""
        if self.rule.ageing <= 0 or not self.simulation.stoppable or self.by_estimate:
            return 1.0
        period = max(self.rule.ageing * 3600.0, self.rule.stretch * job.estimate)
        return float(2.0 ** -min(max(math.floor((until - job.submit - job.ran) / period), 0), MOST_HALVINGS))

    def area(self, job: JobState) -> float:
        """Return the GPU-seconds by which a job is ranked."""
        if job.status == "waiting":
            gpus = job.gpus * self.credit(job, self.now)
            if not job.may_be_stopped:
                return job.estimate * gpus
            return (self.time_of(job, job.done) + (job.restart if job.preemptions > 0 else 0.0)) * gpus
        useful = max(self.now - job.run_start - job.overhead, 0.0)
        time = self.time_of(job, job.done + useful * job.rate)
        lost = (useful - job.kept(useful)) * job.rate
        share = job.gpus / self.devices if self.devices > 0 else 0.0
        divisor = self.rule.hysteresis * (1.0 + self.rule.width * share * share)
        return max(time - job.restart - lost, 0.01 * time) * (job.gpus * self.credit(job, job.run_start) / divisor)

    def ordered(self, running: list[JobState]) -> list[JobState]:
        """Return the waiting jobs and the running ones that compete, by (level, running before waiting, area or start, index)."""
        waiting = self.simulation.with_status("waiting", self.partition)
        area = {job.index: self.area(job) for job in [*waiting, *filter(self.competes, running)]}

        def level(job: JobState) -> float:
            value = area[job.index]
            if value <= 0 or math.isinf(value):
                return -math.inf if value <= 0 else math.inf
            return math.frexp(value)[1]

        def key(job: JobState) -> tuple[float, bool, float, int]:
            return level(job), job.status == "waiting", area[job.index] if job.status == "waiting" else job.run_start, job.index

        return sorted((self.simulation.jobs[index] for index in area), key=key)

    # --- the plan ---------------------------------------------------------------------------------------------------

    def plan(self, fixed: set[int]) -> RankPlan:
        """Walk the order; jobs whose indices are in `fixed` stay."""
        running = self.simulation.with_status("running", self.partition)
        plan = RankPlan(self.simulation.yard.without([]), {job.index: job.parts for job in running})
        head: JobState | None = None
        for place, job in enumerate(self.order):
            if job.status == "running":
                continue
            movable = [j for j in self.order[place + 1 :] if j.status == "running" and j.index not in fixed and j not in plan.stopped]
            self.settle_writing(job)
            before = RankPlan(plan.yard.without([]), dict(plan.held), list(plan.starts), list(plan.stopped))
            shadow = self.at_shadow.without([])
            parts, aside = self.find(job, plan, list(movable))
            bound = not job.may_be_stopped or job.silent or self.by_estimate
            if parts and head is not None and bound and not self.leaves_reservation(job, parts, head):
                parts = []
            if parts:
                plan.yard.take(job, parts)
            stopped = [each for each in aside if not self.returns(each, plan)]
            if parts and stopped and not self.pays(job, stopped, before):
                plan, parts = before, []
                self.at_shadow = shadow
            if parts:
                plan.starts.append((job, parts, stopped))
                plan.stopped += stopped
            elif head is None:
                head = job
                self.reserve(head, plan, movable)
        return plan

    def settle_writing(self, job: JobState) -> None:
        """Let a job write checkpoints in the run that may begin now, if that is worth what it costs."""
        if not job.may_be_silent:
            return
        if self.by_estimate:
            job.silent = True
            return
        price = self.pressure * job.gpus
        cost = (1.0 / job.said_working_part - 1.0) * (1.0 + price)
        job.silent = not (self.rule.writing == math.inf or self.rule.writing * price > cost)

    def pays(self, job: JobState, stopped: list[JobState], plan: RankPlan) -> bool:
        """Whether stopping these jobs for one that waits gains enough: it would not fit soon anyway, in the plan as it was."""
        if self.rule.pay == 0:
            return True
        own = max(self.time_of(job, job.done) if job.may_be_stopped else job.estimate - job.done, 1.0)
        cost = 0.0
        for each in reversed([other for other in self.order if other in stopped]):
            length = self.length_of(each)
            price = each.restart
            if self.by_estimate:
                price = (each.restart + min(each.checkpoint, length)) * (1.0 + self.pressure * each.gpus)
            cost += (own + price) / math.sqrt(length)
        time = self.now + self.rule.pay * (CAUTION if self.by_estimate else 1.0) * math.sqrt(own) * cost
        running = self.simulation.with_status("running", self.partition)
        gone = [each for each in running if each not in plan.stopped and each.expected_end(self.now) <= time]
        later = plan.yard.without([])
        for each in gone:
            later.give_back(each, plan.held[each.index])
        return not later.fits(job)

    def length_of(self, job: JobState) -> float:
        """Return the length that a running job was judged to have when its run began."""
        return max(job.estimate if self.rule.table is None else job.done + self.time_of(job, job.done), 1.0)

    def find(self, job: JobState, plan: RankPlan, movable: list[JobState]) -> tuple[list[Holding], list[JobState]]:
        """Return the parts of a job, empty if it does not fit, and the running jobs set aside for it, in order. They have left the yard."""
        aside: list[JobState] = []
        yard = plan.yard
        while not yard.fits(job):
            if not movable:
                return [], aside
            aside.insert(0, movable.pop())
            yard.give_back(aside[0], plan.held[aside[0].index])
        placer, placement = replace(self.simulation.placer, yard=yard), self.simulation.active.placement
        units = placer.choose(placement, job, yard.rooms(job))
        return yard.parts_of(job, units, placer.device(placement, yard.nodes[units[0][0]], job)), aside

    def returns(self, job: JobState, plan: RankPlan) -> bool:
        """Let a job that was set aside take again what it held, if that is free."""
        if not plan.yard.has_quota(job) or not all(_is_free(plan.yard, part, job) for part in job.parts):
            return False
        plan.held[job.index] = _numbered(plan.yard, job.parts)
        plan.yard.take(job, plan.held[job.index])
        return True

    def reserve(self, head: JobState, plan: RankPlan, behind: list[JobState]) -> None:
        """Work out when the head fits if all jobs leave at their expected ends; those behind it that may be stopped do not count."""
        simulation = self.simulation
        running = [job for job in simulation.with_status("running", self.partition) if job not in plan.stopped and job not in behind]
        ends = [(job.expected_end(self.now), job, plan.held[job.index]) for job in running]
        for job, parts, _ in plan.starts:
            end = simulation.est_end_of(job, parts)
            ends.append((end if end > self.now else self.now + 1, job, parts))
        self.shadow = math.inf
        self.at_shadow = plan.yard.without([])
        for job in behind:
            self.at_shadow.give_back(job, plan.held[job.index])
        for time in sorted({end for end, _, _ in ends}):
            for end, job, parts in ends:
                if end == time:
                    self.at_shadow.give_back(job, parts)
            if self.at_shadow.fits(head):
                self.shadow = time
                return

    def leaves_reservation(self, job: JobState, parts: list[Holding], head: JobState) -> bool:
        """Whether a job that may not be stopped is expected to be gone at the shadow time, or takes what the head does not need."""
        if self.simulation.est_end_of(job, parts) <= self.shadow:
            return True
        parts = _numbered(self.at_shadow, parts)
        self.at_shadow.take(job, parts)
        if self.at_shadow.fits(head):
            return True
        self.at_shadow.give_back(job, parts)
        return False

    def leaves_idle(self, job: JobState, yard: Yard) -> bool:
        """Whether more than half of the devices of a job that is stopped would be idle."""
        if job.gpus < 1:
            return False
        idle = 0
        for part in job.parts:
            free = yard.nodes[part.node].wholly_free()
            idle += min(len(part.devices), len(free)) if yard.nodes[part.node].is_pool else len(set(part.devices) & set(free))
        return 2 * idle > job.gpus


def _is_free(yard: Yard, part: Holding, job: JobState) -> bool:
    """Whether a part that a job held could be held again. Devices of a pool are only counted."""
    node = yard.nodes[part.node]
    if part.cpus > node.free_cpus + TOLERANCE or part.memory > node.free_memory + TOLERANCE:
        return False
    if job.is_shared:
        return job.gpus <= node.free_share[part.devices[0]] + TOLERANCE
    free = node.wholly_free()
    return len(part.devices) <= len(free) if node.is_pool else set(part.devices) <= set(free)


def _numbered(yard: Yard, parts: list[Holding]) -> list[Holding]:
    """Return the parts with the lowest free devices in pools, where devices have no numbers of their own."""
    pools = [yard.nodes[part.node].is_pool for part in parts]
    free = [yard.nodes[part.node].wholly_free() for part in parts]
    return [
        replace(part, devices=tuple(free[k][: len(part.devices)])) if pools[k] else part for k, part in enumerate(parts)
    ]  # fmt: skip
