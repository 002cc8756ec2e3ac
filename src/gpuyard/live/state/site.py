"""Makes a snapshot of what a batch system reports: which jobs may start, what runs holds, and which nodes each job may use.

Partitions that share nodes are one partition of the cluster, and their jobs are decided together, those of a higher tier first. Where such
partitions have different nodes, nodes are of different types by the partitions that they are in (`a100@debug+long`), and a job asks for the
types that its partition has: nothing is placed where its partition does not reach.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.live.estimator import HistoryEstimator, kind_of
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.model.cluster import MAX_DEVICES, MAX_TYPES, Cluster, GpuType, Nodes, Partition
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.site.eligibility import REASONS
from gpuyard.model.snapshot import HELD, LIVE, NODE, RECENT, Snapshot

MAX_TASK = 4_194_304  # of an array: Slurm's own limit
_NO_GPU = "cpu"  # the type of a node without GPUs


@dataclass(frozen=True)
class SiteJob:
    """A job, or a task of an array. Times in s since 1970, memory in GB."""

    id: int
    array: int  # of the first job of its array; 0: none
    task: int  # -1: none, or tasks that are not told apart
    name: str  # as users see it: 17, 17_3
    waits: bool
    runs: bool  # holds nodes
    why: str | None  # the name of the reason why it may not start; empty: it may; None: the system's own reason is not known
    reason: str  # in the words of the system
    partitions: tuple[str, ...]
    user: str
    account: str
    qos: str
    title: str
    priority: float
    submit: float
    eligible: float  # nan: not yet known
    start: float  # nan: none
    limit: float  # s; inf: none
    nodes: tuple[str, ...]  # that it runs on
    node_count: int
    cpus: float
    memory: float
    gpus: int
    chunk: int  # GPUs that are on one node
    gpu_type: str
    devices: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # node → GPUs, where they are known
    lasted: float = math.nan  # s that it ran, if it has ended by itself
    ran: float = math.nan  # s that it ran, if it has ended in whatever way
    mark: str = ""  # what a hook of ours has noted on it, where the system shows this
    pinned: tuple[str, ...] = ()  # nodes that it must run on

    @property
    def base(self) -> int:
        """The number by which the whole array is known."""
        return self.array or self.id


@dataclass(frozen=True)
class SiteNode:
    """A node. Memory in GB."""

    name: str
    open: bool  # takes new jobs
    cpus: float
    memory: float
    gpus: Mapping[str, int]  # type → GPUs
    partitions: tuple[str, ...]
    used: int  # GPUs that somebody holds, as the node says


@dataclass(frozen=True)
class SitePartition:
    """A partition: jobs of a higher tier go first."""

    name: str
    tier: int = 1
    factor: float = 0.0
    up: bool = True
    limit: float = math.inf  # s


@dataclass(frozen=True)
class SiteState:
    """Holds what a batch system reports at one instant."""

    now: float  # s since 1970
    jobs: Sequence[SiteJob]
    nodes: Sequence[SiteNode]
    partitions: Sequence[SitePartition] = ()
    source: str = ""  # such as "slurm 22.05.8"
    notes: tuple[str, ...] = ()
    system_now: float = math.nan  # s since 1970 by the system's own clock; nan: not known


@dataclass
class _Notes:
    """Keeps what could not be known, each once, with how often."""

    seen: Counter[str] = field(default_factory=Counter)

    def add(self, text: str) -> None:
        self.seen[text] += 1

    def lines(self) -> tuple[str, ...]:
        return tuple(f"{text} ({count} times)" if count > 1 else text for text, count in self.seen.items())


def why_ineligible(job: SiteJob, now: float, partitions: Mapping[str, SitePartition]) -> str | None:
    """Return the name of the reason why a waiting job may not start; empty if it may, None if the system's reason is not known."""
    known = [partitions[name] for name in job.partitions if name in partitions]
    if known and not any(each.up for each in known):
        return "partition-limit"
    return "begin" if job.eligible > now else job.why


def site_snapshot(state: SiteState, estimator: HistoryEstimator | None = None) -> SavedSnapshot:
    """Make the snapshot. Estimates are what users asked for, unless `estimator` has learned more."""
    notes = _Notes()
    notes.seen.update(state.notes)
    partitions = {each.name: each for each in state.partitions}
    ground = _ground(state.nodes, partitions, notes)
    waiting, ineligible = _eligible(state, partitions, ground, notes)
    running = [job for job in state.jobs if job.runs and job.nodes]
    jobs = sorted([*waiting, *running], key=lambda job: (job.submit, job.base, job.task, job.id))
    table, labels = _table(jobs, ground, partitions, estimator or HistoryEstimator())
    live, held, nodes = _held(jobs, table, state, ground, notes)
    submitted = sum(job.submit > state.now - RECENT for job in state.jobs)
    snapshot = Snapshot(state.now, Jobs(table, **labels), live, held, nodes, ground.cluster, Rules(), seed=0, submitted=submitted)
    tiers = {name: partitions[name].tier for name in labels["partitions"] if name in partitions}
    return SavedSnapshot(
        snapshot, state.source, tuple(job.name for job in jobs), tiers,
        {job.name: REASONS[why] for job, why in ineligible}, notes.lines(),
    )  # fmt: skip


def _eligible(
    state: SiteState, partitions: Mapping[str, SitePartition], ground: _Ground, notes: _Notes
) -> tuple[list[SiteJob], list[tuple[SiteJob, str]]]:
    """Return the jobs that may start, and those that may not with the name of the reason."""
    may: list[SiteJob] = []
    may_not: list[tuple[SiteJob, str]] = []
    for job in state.jobs:
        if not job.waits:
            continue
        why = why_ineligible(job, state.now, partitions)
        if job.array and job.task < 0 and job.name != str(job.id):  # Slurm gives the number of an array to jobs that are none
            notes.add("the waiting tasks of an array are one job: squeue -r would tell them apart")
        if why is None:
            notes.add(f"reason {job.reason[:60]} is not known; the job is taken as eligible")
        why = why or ("" if any(name in ground.component for name in job.partitions) else "partition-limit")
        if why:
            may_not.append((job, why))
        else:
            may.append(job)
    return may, may_not


# ── nodes and partitions ──


@dataclass(frozen=True)
class _Ground:
    """The cluster, and what jobs need to know of it."""

    cluster: Cluster
    number: Mapping[str, int]  # node name → node number
    component: Mapping[str, str]  # the system's partition → partition of the cluster
    reach: Mapping[str, frozenset[str]]  # the system's partition → types of its nodes, where its component has others too
    plain: Mapping[str, str]  # type of the cluster → type of GPU
    states: Mapping[str, SiteNode]


def _ground(given: Sequence[SiteNode], partitions: Mapping[str, SitePartition], notes: _Notes) -> _Ground:
    nodes = [node for node in given if node.partitions and node.cpus > 0]
    if not nodes:
        raise DataError("no node of any partition was reported", hint="scontrol -d show node lists them, as bhosts does for LSF")
    component = _components(node.partitions for node in nodes)
    lists: dict[str, set[tuple[str, ...]]] = {}
    for node in nodes:
        lists.setdefault(component[node.partitions[0]], set()).add(node.partitions)
    several = {name for name in component if len(lists[component[name]]) > 1}
    kinds, plain = [], {}
    for node in nodes:
        kind = max(node.gpus, key=lambda name: (node.gpus[name], name)) if node.gpus else _NO_GPU
        if len(node.gpus) > 1:
            notes.add(f"node {node.name} has GPUs of several types; only its {kind} are seen")
        label = f"{kind}@{'+'.join(sorted(node.partitions))}" if node.partitions[0] in several else kind
        kinds.append(label)
        plain[label] = kind
    if len(plain) > MAX_TYPES:
        raise DataError(f"nodes differ in {len(plain)} ways by GPU type and partitions; at most {MAX_TYPES}")
    names, groups = list(plain), sorted(set(component.values()))
    columns = Nodes(
        names=tuple(node.name for node in nodes),
        gpus=np.array([node.gpus.get(plain[kind], 0) for node, kind in zip(nodes, kinds, strict=True)], np.int32),
        gpu_type=np.array([names.index(kind) for kind in kinds], np.int32),
        cpus=np.array([node.cpus for node in nodes]),
        memory=np.array([node.memory or np.inf for node in nodes]),
        rack=np.zeros(len(nodes), np.int32),
        partition=np.array([groups.index(component[node.partitions[0]]) for node in nodes], np.int32),
    )
    made = tuple(_partition(group, [name for name in component if component[name] == group], partitions) for group in groups)
    reach = {name: frozenset(k for node, k in zip(nodes, kinds, strict=True) if name in node.partitions) for name in several}
    cluster = Cluster(columns, tuple(GpuType(name) for name in names), made, name="site")
    return _Ground(cluster, {node.name: k for k, node in enumerate(nodes)}, component, reach, plain, {node.name: node for node in nodes})


def _components(lists: Iterable[tuple[str, ...]]) -> dict[str, str]:
    """Return for each partition the first name, in order, of those that it shares nodes with, directly or through others."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while root.setdefault(name, name) != name:
            name = root[name]
        return name

    for names in dict.fromkeys(lists):
        for name in names:
            low, high = sorted((find(names[0]), find(name)))
            root[high] = low
    return {name: find(name) for name in root}


def _partition(group: str, names: Sequence[str], partitions: Mapping[str, SitePartition]) -> Partition:
    factor = max((partitions[name].factor for name in names if name in partitions), default=0.0)
    return Partition(group, priority=factor, also=tuple(name for name in names if name != group))


# ── jobs ──


def _home(job: SiteJob, ground: _Ground, partitions: Mapping[str, SitePartition]) -> str:
    """Return the partition that a job counts for: of those that it asks for, the one of the highest tier."""
    known = [name for name in job.partitions if name in ground.component]
    return max(known, key=lambda name: partitions[name].tier if name in partitions else 0, default="")


def _wanted(job: SiteJob, home: str, ground: _Ground) -> str:
    """Return the types of nodes that a job may use, as a label: empty for any."""
    if home not in ground.reach:
        return job.gpu_type if job.gpus else ""
    own = ground.component[home]
    reached = {kind for name in job.partitions if ground.component.get(name) == own for kind in ground.reach[name]}
    fits = sorted(kind for kind in reached if not job.gpus or job.gpu_type in ("", ground.plain[kind]))
    return "|".join(fits) or job.gpu_type or "none"


def _table(
    jobs: Sequence[SiteJob], ground: _Ground, partitions: Mapping[str, SitePartition], estimator: HistoryEstimator
) -> tuple[Array, dict[str, Any]]:
    """Return the rows of JOB, and the labels."""
    homes = [_home(job, ground, partitions) for job in jobs]
    texts = {
        "user": ("users", [job.user for job in jobs]), "account": ("accounts", [job.account for job in jobs]),
        "qos": ("qoses", [job.qos for job in jobs]), "partition": ("partitions", homes),
        "gpu_type": ("gpu_types", [_wanted(job, home, ground) for job, home in zip(jobs, homes, strict=True)]),
    }  # fmt: skip
    labels: dict[str, Any] = {"term_texts": ("preemptible=no",)}
    columns: dict[str, Any] = {}
    for column, (attribute, values) in texts.items():
        distinct = sorted(set(values)) or [""]
        labels[attribute] = tuple(distinct)
        columns[column] = _numbers(values, distinct)
    limits = [min(job.limit, partitions[home].limit if home in partitions else math.inf) for job, home in zip(jobs, homes, strict=True)]
    columns |= {
        "id": [(job.base if job.task >= 0 else job.id) * 2 * MAX_TASK + job.task + 1 for job in jobs],
        "submit": [job.submit for job in jobs], "gpus": [job.gpus for job in jobs], "chunk": [max(job.chunk, 1) for job in jobs],
        "walltime": limits, "cpus": [job.cpus if job.gpus else job.cpus / job.node_count for job in jobs],
        "memory": [job.memory if job.gpus else job.memory / job.node_count for job in jobs], "priority": [job.priority for job in jobs],
        "estimate": [_estimate(job, limit, estimator) for job, limit in zip(jobs, limits, strict=True)],
    }  # fmt: skip
    made, _ = Jobs.build(columns, where="jobs", **labels)
    return made.table, made.labels


def _estimate(job: SiteJob, limit: float, estimator: HistoryEstimator) -> float:
    return estimator.estimate(job.user, kind_of("", job.title, ()), limit).expected


def _numbers(values: Sequence[str], distinct: Sequence[str]) -> list[int]:
    place = {value: k for k, value in enumerate(distinct)}
    return [place[value] for value in values]


# ── what is held ──


def _held(jobs: Sequence[SiteJob], table: Array, state: SiteState, ground: _Ground, notes: _Notes) -> tuple[Array, Array, Array]:
    """Return LIVE, HELD and NODE rows. GPUs that are in use by nobody who is listed cannot be used."""
    live = np.zeros(len(jobs), LIVE)
    live["start"] = live["run_start"] = -1.0
    live["queued"], live["rate"] = table["submit"], 1.0
    pieces: list[tuple[int, int, int, int, int]] = []
    taken = [0] * len(ground.cluster.nodes)  # bit sets
    busy = [0] * len(ground.cluster.nodes)
    for row, job in enumerate(jobs):
        if not job.runs:
            continue
        began = job.start if job.start == job.start else state.now
        live["running"][row], live["start"][row], live["run_start"][row] = True, began, min(began, state.now)
        live["est_end"][row] = live["run_start"][row] + table["estimate"][row]
        for node, count, devices in _pieces(job, ground, taken, notes):
            pieces.append((row, node, count, -1, devices))
            taken[node] |= devices
            busy[node] += count
    nodes = np.zeros(len(taken), NODE)
    for name, k in ground.number.items():
        _set_node(nodes, k, ground.states[name], int(ground.cluster.nodes.gpus[k]), taken[k], busy[k])
    return live, np.array(pieces, HELD), nodes


def _pieces(job: SiteJob, ground: _Ground, taken: Sequence[int], notes: _Notes) -> list[tuple[int, int, int]]:
    """Return (node, GPUs, bit set) for each node of a running job."""
    known = [name for name in job.nodes if name in ground.number]
    if len(known) < len(job.nodes):
        notes.add("a job runs on nodes that were not reported")
    found = []
    left = job.gpus
    for k, name in enumerate(known):
        node = ground.number[name]
        size = int(ground.cluster.nodes.gpus[node])
        count = len(job.devices[name]) if name in job.devices else -(-left // (len(known) - k))
        count = min(count, size - int(taken[node]).bit_count() if size <= MAX_DEVICES else size)
        left -= count
        found.append((node, count, _bits(job.devices.get(name, ()), count, size, taken[node])))
    return found


def _bits(devices: Sequence[int], count: int, size: int, taken: int) -> int:
    """Return the devices as a bit set: those that are named, as far as they are free, else the lowest free ones."""
    if size > MAX_DEVICES:
        return 0
    order = [*(d for d in devices if d < size), *range(size)]
    free = list(dict.fromkeys(d for d in order if not taken >> d & 1))
    return sum(1 << d for d in free[:count])


def _set_node(nodes: Array, k: int, seen: SiteNode, size: int, taken: int, busy: int) -> None:
    """Set what of a node can be used; GPUs that it says are used, and that no listed job holds, are out of reach."""
    foreign = max(min(seen.used, size) - busy, 0)
    free = [d for d in range(min(size, MAX_DEVICES)) if not taken >> d & 1]
    nodes["off"][k] = foreign
    lost = sum(1 << d for d in free[len(free) - foreign :]) if foreign else 0
    nodes["mask"][k] = (1 << size) - 1 - lost if size <= MAX_DEVICES else 0
    nodes["down"][k] = not seen.open
