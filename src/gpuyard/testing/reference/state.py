"""The state of the reference simulator at one instant: jobs, nodes with their devices, and what policies may see of both."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

import numpy as np

from gpuyard.model.cluster import MAX_DEVICES, Cluster
from gpuyard.model.jobs import COLUMNS
from gpuyard.model.result import STATUS
from gpuyard.model.rules import Rules, StopTerms, parse_terms
from gpuyard.model.workload import Workload
from gpuyard.testing.reference.site import divisions, members, partitions_named

BURDEN_LEVELS = 64  # of areas, by which waits are compared
SLACK = 600.0  # s by which jobs that may be stopped, all together, may have waited longer in any case
TOLERANCE = 1e-6  # for cpus, GB, shares and quotas
USAGE_UNIT = Fraction(1, 2**20)  # of a GPU: what users hold is rounded to it, half a unit upwards
UNLIMITED = 1 << 60  # units: more than any job has
LIVE = ("attained", "ran", "remaining", "queued", "start", "run_start", "rate", "est_end", "done", "preemptions")
FACTORS = ("usage", "fair_share", "size_factor", "partition_factor", "qos_factor")
NODE_COLUMNS = (
    "gpus", "free", "cpus", "free_cpus", "memory", "free_memory", "gpu_type", "rack", "partition", "speed", "share",
)  # fmt: skip


@dataclass(frozen=True)
class System:
    """The view of the whole cluster that a switch rule gets."""

    waiting: float  # jobs
    running: float  # jobs
    free: float  # wholly free GPUs on nodes that are up
    gpus: float  # all GPUs
    oldest: float  # s since the submit of the job that waits longest
    urgent: float  # waiting jobs expected to miss their deadline even if started now
    work: float  # estimated reference GPU-seconds that wait
    recent: float  # jobs submitted in the last RECENT seconds
    schedulers: float  # to choose from


@dataclass(frozen=True)
class Holding:
    """The part of a run on one node. `gpus` is a number of whole devices or a share of one; `devices` are their numbers."""

    node: int
    gpus: float
    devices: tuple[int, ...]
    cpus: float
    memory: float


@dataclass(eq=False)
class JobState:
    """One job: its columns, what it needs, and its live state. Names as in the semantics page."""

    index: int
    submit: float
    gpus: float
    estimate: float
    walltime: float
    deadline: float
    cpus: float
    memory: float
    transfer: float
    priority: float
    user: int
    partition: int
    job_class: int
    chunk: int
    gpu_type: int
    qos: int
    account: int
    terms: int
    id: int
    runtime: float  # hidden from policies
    preemptible: bool | None = None  # None: the job does not say
    once: bool = False  # it may be stopped one time only
    silent: bool = False  # its present or next run writes no checkpoints, although they cost something
    checkpoint: float = 0.0  # s of work between checkpoints
    checkpoint_cost: float = 0.0  # s to write one
    restart: float = 0.0  # s of restart cost and drain
    home: int = -1  # the division: the lowest number of its partitions and of those that are linked with them; -1: none
    homes: tuple[int, ...] = ()  # its partitions, those of higher tiers first
    at: int = -1  # the one in which it is looked at, or runs
    entered: float = math.nan  # s, when it first entered its queue
    named: tuple[int, ...] = ()  # all partitions that it names
    used_in: dict[int, float] = field(default_factory=dict)  # partition → GPU-s of runs that have ended
    benched: bool = False  # preempted in the walk under way
    allowed: frozenset[int] = frozenset()  # device types
    speed: tuple[float, ...] = ()  # by device type, for the job's class
    status: str = "pending"
    reason: str = ""
    done: float = 0.0
    ran: float = 0.0
    attained: float = 0.0
    preemptions: int = 0
    start: float = -1.0
    end: float = math.nan
    queued: float = -1.0
    remaining: float = 0.0
    key: float = math.nan
    run_start: float = -1.0
    run_end: float = math.inf
    rate: float = 0.0
    overhead: float = 0.0
    est_end: float = -1.0
    killed_at_end: bool = False
    reached: float = 0.0
    barren: int = 0
    usage: float = 0.0
    fair_share: float = 1.0
    size_factor: float = 0.0
    partition_factor: float = 0.0
    qos_factor: float = 0.0
    parts: list[Holding] = field(default_factory=list)
    last_nodes: list[int] = field(default_factory=list)

    @property
    def is_cpu_job(self) -> bool:
        return self.gpus == 0

    @property
    def is_shared(self) -> bool:
        return 0 < self.gpus < 1

    @property
    def units(self) -> int:
        return 1 if self.gpus < 1 else int(self.gpus) // self.chunk

    @property
    def unit_gpus(self) -> float:
        return self.gpus if self.gpus < 1 else float(self.chunk)

    @property
    def unit_cpus(self) -> float:
        return self.cpus if self.gpus < 1 else self.cpus * self.chunk / self.gpus

    @property
    def unit_memory(self) -> float:
        return self.memory if self.gpus < 1 else self.memory * self.chunk / self.gpus

    @property
    def may_be_stopped(self) -> bool:
        """Whether it says that it may be stopped, as often as it has been already."""
        return self.preemptible is True and not (self.once and self.preemptions > 0)

    @property
    def may_be_silent(self) -> bool:
        """Whether its runs need not write checkpoints."""
        return self.preemptible is True and not self.once and self.checkpoint_cost > 0

    @property
    def said_working_part(self) -> float:
        """The part of its time on the devices that is work, if it writes checkpoints."""
        return self.checkpoint / (self.checkpoint + self.checkpoint_cost) if self.checkpoint_cost > 0 else 1.0

    @property
    def working_part(self) -> float:
        """The part of its time on the devices that is work; the rest goes into writing checkpoints."""
        return 1.0 if self.silent else self.said_working_part

    def kept(self, useful: float) -> float:
        """Return the seconds that a stop keeps of so many useful ones."""
        if self.silent:
            return 0.0
        if self.checkpoint == 0:
            return useful
        if math.isinf(self.checkpoint):
            return 0.0
        period = self.checkpoint + self.checkpoint_cost
        return math.floor(useful / period) * period

    def expected_end(self, now: float) -> float:
        """Return the estimated end of the present run, always after `now`."""
        return self.est_end if self.est_end > now else now + 1


def make_jobs(workload: Workload, cluster: Cluster, rules: Rules) -> list[JobState]:
    """Make the jobs of a workload, with labels resolved against the cluster, and terms against the rules."""
    jobs = workload.jobs
    homes = [partitions_named(label, cluster) for label in jobs.partitions]
    division = divisions(cluster, homes)
    states = []
    for row, runtime in zip(jobs.table, workload.runtime, strict=True):
        job = JobState(**{name: row[name].item() for name in COLUMNS}, runtime=float(runtime))
        job.homes = job.named = homes[job.partition]
        job.home, job.at = (division[job.homes[0]], job.homes[0]) if job.homes else (-1, -1)
        wanted = jobs.gpu_types[job.gpu_type]
        names = wanted.split("|") if wanted else [kind.name for kind in cluster.types]
        job.allowed = frozenset(number for number, kind in enumerate(cluster.types) if kind.name in names)
        job.speed = tuple(cluster.speed_of(jobs.classes[job.job_class], kind) for kind in cluster.types)
        set_factors(job, workload, cluster)
        set_terms(job, parse_terms(jobs.term_texts[job.terms]), rules)
        states.append(job)
    return states


def set_terms(job: JobState, said: StopTerms, rules: Rules) -> None:
    """Set on what terms a job may be stopped; cost and drain of the rules hold for jobs that say they may be stopped."""
    job.preemptible, job.once = said.preemptible, said.once
    usual = math.inf if said.once else rules.checkpoint
    job.checkpoint = usual if math.isnan(said.checkpoint) else said.checkpoint
    usual_cost, usual_drain = (rules.checkpoint_cost, rules.drain) if said.preemptible else (0.0, 0.0)
    if 0 < job.checkpoint < math.inf:
        job.checkpoint_cost = usual_cost if math.isnan(said.checkpoint_cost) else said.checkpoint_cost
    job.restart = rules.restart_cost if math.isnan(said.restart_cost) else said.restart_cost
    job.restart += usual_drain if math.isnan(said.drain) else said.drain


def set_factors(job: JobState, workload: Workload, cluster: Cluster) -> None:
    """Set a job's factors relative to the whole cluster; a job without a partition has the first one's."""
    priorities = [partition.priority for partition in cluster.partitions]
    job.fair_share = 1.0 / len(workload.jobs.users)
    job.size_factor = job.gpus / cluster.gpus if cluster.gpus > 0 else 0.0
    highest = max(priorities[home] for home in job.homes or (0,))
    job.partition_factor = highest / max(priorities) if max(priorities) > 0 else 0.0
    highest = max(cluster.qos.values(), default=0.0)
    job.qos_factor = cluster.qos.get(workload.jobs.qoses[job.qos], 0.0) / highest if highest > 0 else 0.0


@dataclass(eq=False)
class NodeState:
    """One node. Every device has a set of holders (job indices) and a free share; a pool is kept the same way but shows no numbers."""

    number: int
    gpu_type: int
    rack: int
    partition: int  # the division
    partitions: frozenset[int]
    cpus: float
    memory: float
    free_cpus: float
    free_memory: float
    holders: list[set[int]]
    free_share: list[float]
    out: list[bool]  # taken by a partial outage
    whole_outages: int = 0

    @property
    def gpus(self) -> int:
        return len(self.holders)

    @property
    def is_pool(self) -> bool:
        return self.gpus > MAX_DEVICES

    @property
    def is_down(self) -> bool:
        return self.whole_outages > 0

    def wholly_free(self) -> list[int]:
        """Return the numbers of the devices that no job holds and no outage has taken."""
        return [d for d in range(self.gpus) if not self.holders[d] and not self.out[d]]

    def largest_share(self) -> float:
        """Return the largest free share on one device."""
        return max((self.free_share[d] for d in range(self.gpus) if not self.out[d]), default=0.0)

    def device_for_share(self, share: float) -> int | None:
        """Return the device with the least free share that suffices; shares closer than the tolerance are equal."""
        if self.is_pool:
            return None
        best = None
        for d in range(self.gpus):
            if self.out[d] or share > self.free_share[d] + TOLERANCE:
                continue
            if best is None or self.free_share[d] < self.free_share[best] - TOLERANCE:
                best = d
        return best

    def take(self, job: int, part: Holding) -> None:
        """Give `part` to job `job`."""
        self.free_cpus -= part.cpus
        self.free_memory -= part.memory
        for device in part.devices:
            self.holders[device].add(job)
            self.free_share[device] -= min(part.gpus, 1.0)

    def give_back(self, job: int, part: Holding) -> None:
        """Take `part` back from job `job`. A device that no job holds is whole again, whatever rounding left."""
        self.free_cpus += part.cpus
        self.free_memory += part.memory
        for device in part.devices:
            self.holders[device].remove(job)
            self.free_share[device] = self.free_share[device] + min(part.gpus, 1.0) if self.holders[device] else 1.0

    def copy(self) -> NodeState:
        """Return a copy that may be changed without changing this node."""
        return NodeState(
            self.number, self.gpu_type, self.rack, self.partition, self.partitions, self.cpus, self.memory, self.free_cpus,
            self.free_memory,
            [set(holders) for holders in self.holders], list(self.free_share), list(self.out), self.whole_outages,
        )  # fmt: skip


def units_within(free: float, need: float) -> int:
    """Return how many times `need` goes into `free`, with the tolerance."""
    if need <= 0 or math.isinf(free):
        return UNLIMITED
    return math.floor((free + TOLERANCE) / need)


def may_use(node: NodeState, job: JobState) -> bool:
    """Whether partition and device type of the node suit the job."""
    return job.at in node.partitions and (job.is_cpu_job or node.gpu_type in job.allowed)


def device_room(node: NodeState, job: JobState) -> int:
    """Return the units that the node's devices alone could take."""
    if job.is_cpu_job:
        return UNLIMITED
    if job.is_shared:
        return 0 if node.device_for_share(job.gpus) is None else 1
    return len(node.wholly_free()) // job.chunk


def room(node: NodeState, job: JobState) -> int:
    """Return the units of the job that the node can take now."""
    if node.is_down or not may_use(node, job):
        return 0
    by_host = min(units_within(node.free_cpus, job.unit_cpus), units_within(node.free_memory, job.unit_memory))
    return max(min(device_room(node, job), by_host), 0)


@dataclass(eq=False)
class Yard:
    """All nodes, and for each partition the GPUs in use and its quota."""

    nodes: list[NodeState]
    used: list[float]
    quota: list[float]

    @classmethod
    def empty(cls, cluster: Cluster, division: Sequence[int]) -> Yard:
        """Return the cluster idle and healthy; `division` is that of each partition."""
        columns = cluster.nodes
        nodes = []
        for n in range(len(columns)):
            gpus, cpus, memory = int(columns.gpus[n]), float(columns.cpus[n]), float(columns.memory[n])
            kind, rack, partition = int(columns.gpu_type[n]), int(columns.rack[n]), division[int(columns.partition[n])]
            own = members(cluster, n)
            devices: list[set[int]] = [set() for _ in range(gpus)]
            nodes.append(NodeState(n, kind, rack, partition, own, cpus, memory, cpus, memory, devices, [1.0] * gpus, [False] * gpus))
        return cls(nodes, [0.0] * len(cluster.partitions), [float(partition.quota) for partition in cluster.partitions])

    def rooms(self, job: JobState) -> dict[int, int]:
        """Map node numbers to units of the job, for the nodes that can take any."""
        every = {node.number: room(node, job) for node in self.nodes}
        return {number: units for number, units in every.items() if units >= 1}

    def has_quota(self, job: JobState) -> bool:
        return self.used[job.home] + job.gpus <= self.quota[job.home] + TOLERANCE

    def fits(self, job: JobState) -> bool:
        """Whether the job could start now."""
        return sum(self.rooms(job).values()) >= job.units and self.has_quota(job)

    def parts_of(self, job: JobState, units: list[tuple[int, int]], device: int | None = None) -> list[Holding]:
        """Return the parts of a job for (node, units) pairs, with the devices that each node's rule gives, or `device` for a share."""
        parts = []
        for number, count in units:
            node = self.nodes[number]
            devices: tuple[int, ...] = ()
            if job.is_shared:
                device = node.device_for_share(job.gpus) if device is None else device
                assert device is not None, f"job {job.index} was given node {number}, which has no such share"
                devices = (device,)
            elif not job.is_cpu_job:
                devices = tuple(node.wholly_free()[: count * job.chunk])
            parts.append(Holding(number, count * job.unit_gpus, devices, count * job.unit_cpus, count * job.unit_memory))
        return parts

    def take(self, job: JobState, parts: Iterable[Holding]) -> None:
        self.used[job.home] += job.gpus
        for part in parts:
            self.nodes[part.node].take(job.index, part)

    def give_back(self, job: JobState, parts: Iterable[Holding]) -> None:
        self.used[job.home] -= job.gpus
        for part in parts:
            self.nodes[part.node].give_back(job.index, part)

    def without(self, jobs: Iterable[JobState]) -> Yard:
        """Return a copy as it would be without these running jobs."""
        later = Yard([node.copy() for node in self.nodes], list(self.used), self.quota)
        for job in jobs:
            later.give_back(job, job.parts)
        return later


class Column:
    """One column as policies see it: `column[i]` is a numpy scalar, so that division by zero gives inf as in compiled code."""

    def __init__(self, read: Callable[[int], float | int], length: int) -> None:
        self._read = read
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, i: int) -> Any:
        value = self._read(int(i))
        return np.float64(value) if isinstance(value, float) else np.int64(value)


class JobsView:
    """The visible columns of all jobs; `runtime` is not among them."""

    def __init__(self, states: list[JobState]) -> None:
        for name in COLUMNS + LIVE + FACTORS:
            setattr(self, name, Column(lambda j, name=name: getattr(states[j], name), len(states)))  # type: ignore[misc]
        self.status = Column(lambda j: STATUS.index(states[j].status), len(states))


class NodesView:
    """The columns of the nodes as they are now, for placements that a user wrote."""

    def __init__(self, yard: Yard, cluster: Cluster) -> None:
        read: dict[str, Callable[[NodeState], float | int]] = {
            "free": lambda node: len(node.wholly_free()),
            "speed": lambda node: float(cluster.types[node.gpu_type].speed),
            "share": lambda node: node.largest_share(),
        }
        for name in NODE_COLUMNS:
            of_node = read.get(name, lambda node, name=name: getattr(node, name))
            setattr(self, name, Column(lambda n, of_node=of_node: of_node(yard.nodes[n]), len(yard.nodes)))  # type: ignore[misc]


class Accounts:
    """One account per user, in the order of their labels: recent usage, which decays with a half-life."""

    def __init__(self, users: int, half_life: float) -> None:
        self.mean_life = half_life / math.log(2.0)
        self.usage = [0.0] * users  # GPU-s
        self.held = [Fraction(0)] * users  # GPUs
        self.up_to = 0.0  # s

    def age(self, now: float) -> None:
        """Advance to now: usage decays and grows by what is held."""
        if now > self.up_to:
            lost = math.expm1(-(now - self.up_to) / self.mean_life)
            for user, held in enumerate(self.held):
                self.usage[user] += lost * (self.usage[user] - float(held) * self.mean_life)
            self.up_to = now

    def hold(self, user: int, gpus: float, now: float) -> None:
        """Give GPUs to the user."""
        self.age(now)
        self.held[user] += self._rounded(gpus)

    def release(self, user: int, gpus: float, now: float) -> None:
        """Take GPUs back from the user."""
        self.age(now)
        self.held[user] -= self._rounded(gpus)

    def parts(self, now: float) -> list[float]:
        """Return each user's part of all usage, now."""
        self.age(now)
        total = 0.0
        for usage in self.usage:
            total += usage
        return [usage / total if total > 0 else 0.0 for usage in self.usage]

    @staticmethod
    def _rounded(gpus: float) -> Fraction:
        return math.floor(Fraction(gpus) / USAGE_UNIT + Fraction(1, 2)) * USAGE_UNIT


@dataclass(eq=False)
class Burden:
    """The accounts of what jobs have waited, by size: all of them, and those that may be stopped."""

    everybody: dict[int, list[float]] = field(default_factory=dict)
    stoppable: dict[int, list[float]] = field(default_factory=dict)
    excess: float = 0.0  # by what part the latter have waited longer

    def add(self, job: JobState, now: float) -> None:
        """Take a job into account that ends now."""
        area = job.estimate * job.gpus
        level = 0 if area <= 0 else BURDEN_LEVELS - 1 if math.isinf(area) else min(max(math.frexp(area)[1] - 1, 0), BURDEN_LEVELS - 1)
        delay = max(now - job.submit - min(job.runtime, job.ran), 0.0)
        self.everybody.setdefault(level, []).append(delay)
        if job.preemptions > 0 or job.may_be_stopped:
            self.stoppable.setdefault(level, []).append(delay)
        theirs = usual = 0.0
        for level in sorted(self.stoppable):
            some, every = self.stoppable[level], self.everybody[level]
            if len(some) < len(every):
                theirs += in_turn(some)
                usual += in_turn(every) / len(every) * len(some)
        self.excess = (theirs - SLACK) / usual - 1.0 if usual > 0 else math.inf if theirs > SLACK else 0.0


def in_turn(values: list[float]) -> float:
    """Return the sum, added up one by one."""
    total = 0.0
    for value in values:
        total += value
    return total
