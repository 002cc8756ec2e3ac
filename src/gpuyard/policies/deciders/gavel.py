"""Heterogeneity-aware max-min fairness in rounds (Narayanan et al., OSDI 2020)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.decision import Action, Decision
from gpuyard.model.rules import MUST_RUN
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import Capacity, JobRequest, Parts, Requests, held_parts, overhead, terms_of, without_devices
from gpuyard.policies.milp.solver import LinearModel, Solver
from gpuyard.policies.schedulers import decider

SLACK = 1e-6  # of the least share, left to the second objective so that rounding does not make it infeasible


def fair_fractions(speeds: Array, gpus: Array, devices: Array, quota: float, solver: Solver) -> Array:
    """(jobs, types) fractions of time: the least normalised throughput is as high as it can be, then the sum of all.

    Normalised: gpus × Σ fraction × speed / the job's speed on an average device. `speeds` (jobs, types) is 0 where a job may not go.
    """
    jobs, types = np.nonzero(speeds)
    usable = speeds > 0
    average = (speeds * devices).sum(axis=1) / (usable * devices).sum(axis=1)
    value = speeds[jobs, types] / average[jobs]
    model = LinearModel()
    fraction = model.columns(len(jobs), 0.0, 1.0, integer=False)
    least = model.columns(1, 1.0, np.inf, integer=False)
    model.entries(model.rows(len(speeds), -np.inf, 1.0)[jobs], fraction, 1.0)
    model.entries(model.rows(len(devices), -np.inf, devices)[types], fraction, gpus[jobs])
    if gpus.sum() > quota:
        model.entries(model.rows(1, -np.inf, quota), fraction, gpus[jobs])
    share = model.rows(len(speeds), 0.0, np.inf)
    model.entries(share[jobs], fraction, gpus[jobs] * value)
    model.entries(share, least, -1.0)
    found = np.zeros(speeds.shape)
    answer = solver.relaxed(model)
    if answer.values is None:
        return found
    model.entries(model.rows(1, float(answer.values[-1]) * (1.0 - SLACK), np.inf), least, 1.0)
    model.add_cost(np.concatenate([fraction, least]), np.concatenate([value, [-1.0]]))  # the least no longer counts by itself
    second = solver.relaxed(model)
    found[jobs, types] = (second.values if second.values is not None else answer.values)[: len(jobs)]
    return found


@decider("gavel", title="Max-min fair shares of time on every device type, in rounds")
class Gavel:
    """Every `every` s each job's share of time on each device type is set so that the worst-off job is as well off as it can be.

    A linear program over (job, type) maximises the least gpus × throughput / (throughput on an average device), then the sum. In a round,
    pairs go by target share / share received so far, highest first, after those never served, in order of submission: nobody starves.
    Running jobs that are behind are stopped, and may change type. Between rounds free devices are filled, least served first.

    At most `most` jobs per partition are in the program: the least served. CPU jobs start when they fit and are not stopped, nor is a run
    that would lose all of its work (no checkpoint yet). A gang runs on one type if it can. No round begins while no job waits.
    """

    stops = True  # running jobs

    def __init__(self, *, every: float = 360.0, most: float = 512) -> None:
        if not every > 0:
            raise UsageError(f"gavel: every = {every:g} is not a period above 0 s")
        if not (1 <= most <= 100_000 and most == int(most)):
            raise UsageError(f"gavel: most = {most:g} is not a whole number in 1..100,000")
        self._every, self._most = every, int(most)
        self._solver = Solver()
        self._round = -1
        self._last = 0.0
        self._received: dict[int, Array] = {}  # job → (types + 1,) s; the last is over several types
        self._since: dict[int, float] = {}
        self._counts = {"rounds": 0, "programs": 0, "left_out": 0, "stopped": 0, "moved": 0}

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """A new round if one is due, else the free devices."""
        yard = _Yard(snapshot)
        self._account(snapshot, yard)
        if snapshot.now // self._every > self._round:
            self._round = int(snapshot.now // self._every)
            self._counts["rounds"] += 1
            return self._rearrange(yard)
        starts = yard.fill(self._by_service(yard, snapshot.waiting.tolist()))
        return [Decision(request.index, parts=parts) for request, parts in starts]

    def report(self) -> Mapping[str, float]:
        """Rounds, programs solved, jobs left out of them, and how often a job was stopped, or stopped and started elsewhere."""
        return dict(self._counts)

    def _account(self, snapshot: Snapshot, yard: _Yard) -> None:
        """Book the time since the last decision; forget who has left."""
        present = snapshot.jobs.index.tolist()
        known = set(present)
        self._received = {index: time for index, time in self._received.items() if index in known}
        self._since = {index: time for index, time in self._since.items() if index in known}
        for row, index in enumerate(present):
            if index not in self._since:
                self._since[index] = float(snapshot.jobs.submit[row])
                self._received[index] = np.zeros(len(snapshot.cluster.types) + 1)
        for row, parts in yard.held.items():
            began = max(float(snapshot.live["run_start"][row]), self._last)
            self._received[present[row]][yard.kind_of(parts)] += max(snapshot.now - began, 0.0)
        self._last = snapshot.now

    def _served(self, index: int, now: float) -> Array:
        """(types + 1,) the fractions of its time in the system that a job has had."""
        return self._received[index] / max(now - self._since[index], 1e-9)

    def _by_service(self, yard: _Yard, rows: Sequence[int]) -> list[JobRequest]:
        found = [yard.requests[row] for row in rows]
        return sorted(found, key=lambda r: (float(self._served(r.index, yard.snapshot.now).sum()), r.index))

    def _rearrange(self, yard: _Yard) -> list[Decision]:
        """Pairs of job and type by priority; what is not in the way goes on running."""
        everyone = self._by_service(yard, range(len(yard.snapshot.jobs)))
        pairs: list[_Pair] = []
        for p in range(len(yard.snapshot.cluster.partitions)):
            pairs += self._pairs(yard, [r for r in everyone if r.gpus > 0 and r.partition == p])
        pairs.sort(key=lambda pair: pair.order)
        place = _Round(yard, {pair.request.row: k for k, pair in reversed(list(enumerate(pairs)))})
        for pair in pairs:
            place.serve(pair.request, pair.kind)
        decisions = place.finish(everyone)
        stopped = sum(decision.action is Action.PREEMPT for decision in decisions)
        again = {d.job for d in decisions if d.action is Action.START} & {d.job for d in decisions if d.action is Action.PREEMPT}
        self._counts["stopped"] += stopped
        self._counts["moved"] += len(again)
        return decisions

    def _pairs(self, yard: _Yard, jobs: list[JobRequest]) -> list[_Pair]:
        """The pairs that have a target."""
        ways = [yard.ways(request) for request in jobs]
        narrow = [i for i, way in enumerate(ways) if way.any()]
        self._counts["left_out"] += max(len(narrow) - self._most, 0)
        narrow = narrow[: self._most]
        found = []
        total = float(sum(yard.devices(jobs[0].partition))) if jobs else 0.0
        for i, request in enumerate(jobs):
            if not ways[i].any() and int(yard.empty.rooms(request).sum()) >= request.units:
                found.append((request, -1, min(total / (len(jobs) * request.gpus), 1.0)))
        if narrow:
            self._counts["programs"] += 1
            chosen = [jobs[i] for i in narrow]
            speeds = np.array([request.speeds for request in chosen]) * np.array([ways[i] for i in narrow])
            quota = yard.snapshot.cluster.partitions[chosen[0].partition].quota
            devices = yard.devices(chosen[0].partition)
            targets = fair_fractions(speeds, np.array([r.gpus for r in chosen]), devices, quota, self._solver)
            found += [(chosen[i], int(t), float(targets[i, t])) for i, t in np.argwhere(targets > 1e-6)]
        return [_Pair(request, kind, self._order(request, kind, target, yard.snapshot.now)) for request, kind, target in found]

    def _order(self, request: JobRequest, kind: int, target: float, now: float) -> tuple[float, ...]:
        """Lower first: never served, by submission; then by target share / share received."""
        served = self._served(request.index, now)
        if not served.any():
            return 0.0, float(request.index), -target
        return 1.0, -target / max(float(served[kind]), 1e-12), float(request.index)


@dataclass(frozen=True, eq=False)
class _Pair:
    """A job and a type (−1: over several) that it is to have time on."""

    request: JobRequest
    kind: int
    order: tuple[float, ...]


class _Yard:
    """A decision's snapshot with what is derived from it."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.cluster: Cluster = snapshot.cluster
        self.requests = Requests(snapshot)
        self.held = held_parts(snapshot)
        self.empty = Capacity(snapshot.cluster, snapshot.nodes)  # without the GPU jobs
        for row, parts in self.held.items():
            if snapshot.jobs.gpus[row] == 0:
                self.empty.take(self.requests[row], parts)
        self._nodes = [np.flatnonzero(self.cluster.nodes.gpu_type == t) for t in range(len(self.cluster.types))]

    def kind_of(self, parts: Parts) -> int:
        """The type that a job runs on; −1: several."""
        kinds = {int(self.cluster.nodes.gpu_type[part.node]) for part in parts}
        return kinds.pop() if len(kinds) == 1 else -1

    def keeps_work(self, row: int) -> bool:
        """Whether a running job may be stopped and would keep some work of this run if it were stopped now."""
        snapshot, terms = self.snapshot, terms_of(self.snapshot, row)
        before = overhead(snapshot, row, [part.node for part in self.held[row]])
        useful = snapshot.now - float(snapshot.live["run_start"][row]) - before
        return bool(terms["stops"] != MUST_RUN and useful > 0 and useful >= terms["interval"])

    def ways(self, request: JobRequest) -> Array:
        """(types,) whether the job fits on that type alone when no other GPU job runs."""
        room = np.bincount(self.cluster.nodes.gpu_type, self.empty.rooms(request), len(self.cluster.types))
        return (room >= request.units) & request.allowed

    def devices(self, partition: int) -> Array:
        """(types,) devices of a partition that are in order."""
        here = self.cluster.nodes.partition == partition
        return np.bincount(self.cluster.nodes.gpu_type[here], self.empty.usable[here], len(self.cluster.types))

    def place(self, capacity: Capacity, request: JobRequest, kind: int) -> Parts:
        """On nodes of one type (−1: of any), fewest nodes and fullest first."""
        nodes = self._nodes[kind] if kind >= 0 else np.arange(len(self.cluster.nodes))
        return capacity.place(request, nodes[np.argsort(capacity.free[nodes], kind="stable")])

    def anywhere(self, capacity: Capacity, request: JobRequest) -> Parts:
        """On the fastest type that has room, else over several."""
        if request.gpus > 0:
            for kind in np.argsort(-request.speeds, kind="stable").tolist():
                if request.allowed[kind] and (parts := self.place(capacity, request, kind)):
                    return parts
        return self.place(capacity, request, -1)

    def fill(self, jobs: Sequence[JobRequest], capacity: Capacity | None = None) -> list[tuple[JobRequest, Parts]]:
        """Start who fits, in order."""
        capacity = capacity or Capacity.of(self.snapshot, self.requests)
        starts = []
        refused: set[tuple[object, ...]] = set()  # what did not fit does not fit later: the free devices only become fewer
        for request in jobs:
            asked = (request.gpus, request.chunk, request.cpus, request.memory, request.partition, request.allowed.tobytes())
            if asked in refused:
                continue
            if capacity.fits(request):
                starts.append((request, capacity.take(request, without_devices(self.anywhere(capacity, request)))))
            else:
                refused.add(asked)
        return starts


@dataclass
class _Round:
    """Assigns devices for the new round. Running jobs not considered yet keep theirs until a job before them needs them."""

    yard: _Yard
    rank: Mapping[int, int]  # row → its best position among the pairs
    settled: dict[int, Parts | None] = field(default_factory=dict)  # row → new parts; None: stays where it is

    def __post_init__(self) -> None:
        self.capacity = Capacity.of(self.yard.snapshot, self.yard.requests)
        gpus = self.yard.snapshot.jobs.gpus
        running = [row for row in self.yard.held if gpus[row] > 0 and self.yard.keeps_work(row)]
        self.settled |= {row: None for row in self.yard.held if row not in running}
        self.undecided = sorted(running, key=lambda row: -self.rank.get(row, len(self.rank)))  # the last in order first
        self.displaced: set[int] = set()

    def serve(self, request: JobRequest, kind: int) -> None:
        """Give the job a place on the type, unless it has one already."""
        row = request.row
        if row in self.settled:
            return
        runs = row in self.yard.held and row not in self.displaced
        if runs and self.yard.kind_of(self.yard.held[row]) == kind:
            self.settled[row] = None
            self.undecided.remove(row)
            return
        if runs:
            self.capacity.give(request, self.yard.held[row])
        parts = self._make_room(request, kind)
        if parts:
            self.settled[row] = self.capacity.take(request, without_devices(parts))
            if runs:
                self.displaced.add(row)
                self.undecided.remove(row)
        elif runs:
            self.capacity.take(request, self.yard.held[row])

    def _make_room(self, request: JobRequest, kind: int) -> Parts:
        """Where the job fits once as few as possible of those behind it are stopped, the last first; empty if not even so."""
        parts = self.yard.place(self.capacity, request, kind)
        if parts:
            return parts
        stopped: list[int] = []
        rank = self.rank[request.row]
        for row in self._victims(request, kind, rank):
            self.capacity.give(self.yard.requests[row], self.yard.held[row])
            stopped.append(row)
            parts = self.yard.place(self.capacity, request, kind)
            if parts:
                self.displaced |= set(stopped)
                self.undecided = [row for row in self.undecided if row not in self.displaced]
                return parts
        for row in reversed(stopped):
            self.capacity.take(self.yard.requests[row], self.yard.held[row])
        return ()

    def _victims(self, request: JobRequest, kind: int, rank: int) -> list[int]:
        """Jobs of the same partition behind this one that hold devices of the type, if they hold enough."""
        home, nodes = self.yard.requests.partition, self.yard.cluster.nodes
        found, devices = [], 0.0
        for row in self.undecided:
            kinds = nodes.gpu_type[[part.node for part in self.yard.held[row]]]
            if home[row] == request.partition and self.rank.get(row, len(self.rank)) > rank and (kind < 0 or (kinds == kind).any()):
                found.append(row)
                devices += self.yard.requests[row].gpus
        here = (nodes.partition == request.partition) & ((nodes.gpu_type == kind) | (kind < 0))
        return found if devices + self.capacity.free[here].sum() + 1e-6 >= request.gpus or request.shared else []

    def finish(self, order: Sequence[JobRequest]) -> list[Decision]:
        """Stops, then starts: the settled ones, and whoever else fits, those that lost their place first."""
        for row in sorted(self.displaced, key=lambda row: self.rank.get(row, len(self.rank))):
            request = self.yard.requests[row]
            if row not in self.settled and (parts := self.yard.anywhere(self.capacity, request)):
                self.settled[row] = self.capacity.take(request, without_devices(parts))
        exact = self.yard.empty.copy()
        for row, parts in self.yard.held.items():
            if row not in self.displaced and self.yard.snapshot.jobs.gpus[row] > 0:
                exact.take(self.yard.requests[row], parts)
        decisions = [Decision(self.yard.requests[row].index, Action.PREEMPT) for row in sorted(self.displaced)]
        begun = set(self.yard.held) - self.displaced
        for row, settled in self.settled.items():
            # devices are numbered again when jobs start, and shares may then be packed otherwise
            if settled is not None and exact.fits_in(self.yard.requests[row], settled):
                decisions.append(
                    Decision(self.yard.requests[row].index, parts=exact.take(self.yard.requests[row], without_devices(settled)))
                )
                begun.add(row)
        rest = [request for request in order if request.row not in begun]
        return decisions + [Decision(request.index, parts=parts) for request, parts in self.yard.fill(rest, exact)]
