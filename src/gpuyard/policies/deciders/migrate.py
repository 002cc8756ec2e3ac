"""Migration: running jobs are moved closer together where that makes room for a gang that only fragments keep waiting."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.cluster import EPS
from gpuyard.model.decision import Action, Decision
from gpuyard.model.rules import MUST_RUN
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import Capacity, JobRequest, Parts, Requests, Start, held_parts, overhead, terms_of, without_devices
from gpuyard.policies.milp.decider import reservation
from gpuyard.policies.schedulers import Scheduler, decider
from gpuyard.policies.text import parse_slots

TRIES = 8  # nodes that are tried as the first to clear


@decider("migrate", title="Moves running jobs together where only fragments keep a gang waiting", inner=parse_slots("fcfs/fewest/easy"))
class Migrate:
    """The inner scheduler decides first. Then, in each partition, a gang that still waits although enough GPUs are free may be helped.

    It is the first job of the queue; where the inner backfilling lets anybody pass (`skip`), the largest gang of the queue. Nodes are
    cleared for it, those first on which a unit of it costs least, and the jobs on them go on elsewhere at once, none at a lower rate.
    Nothing is moved unless all of them find a place, at most `most` jobs are moved, each has run for `rest` seconds and keeps work of this
    run, and the GPU-seconds lost (work since the last checkpoint, restart, transfer) are fewer than those that the gang would wait.
    """

    stops = True  # running jobs, to start them again elsewhere

    def __init__(self, inner: Scheduler, *, most: float = 8, rest: float = 600.0) -> None:
        if inner.preemption.stops:
            raise UsageError(f"migrate moves jobs and stops none for good, but {inner.label!r} preempts", hint="leave the fourth slot out")
        if not (1 <= most <= 1000 and most == int(most)):
            raise UsageError(f"migrate: most = {most:g} is not a whole number in 1..1000")
        if not 0 <= rest < np.inf:
            raise UsageError(f"migrate: rest = {rest:g} is not a time in seconds")
        self._inner = inner.begin()
        self._anybody_passes = inner.backfill.name == "skip"
        self._most, self._rest = int(most), rest
        self._counts = {"asked": 0, "gangs": 0, "moves": 0, "no_way": 0, "too_dear": 0}

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Return what the inner scheduler does, and moves with the gangs that start in the room they make."""
        order, decisions = self._inner.decide_in_order(snapshot)
        yard = _FloorPlan.of(snapshot, decisions)
        for p in range(len(snapshot.cluster.partitions)):
            waiting = [row for row in order.tolist() if yard.requests.partition[row] == p and row not in yard.started]
            gang = yard.held_up(waiting if self._anybody_passes else waiting[:1])
            if gang is not None:
                decisions = decisions + self._help(yard, gang)
        return decisions

    def report(self) -> Mapping[str, float]:
        """Return how many gangs were held up and started so, the moves, and why others were not helped."""
        return dict(self._counts)

    def _help(self, yard: _FloorPlan, gang: JobRequest) -> list[Decision]:
        """Return the moves that let the gang start, and its start; nothing if they cannot be made or cost more than they gain."""
        self._counts["asked"] += 1
        movable = yard.movable(gang.partition, self._rest)
        cleared, found = yard.way(gang, movable, self._most)
        if not found:
            self._counts["no_way"] += 1
            return []
        cost = sum(movable[row] for row in cleared)
        wait = reservation(yard.snapshot, yard.requests, gang, yard.starts) - yard.snapshot.now
        if cost >= gang.gpus * wait:
            self._counts["too_dear"] += 1
            return []
        self._counts["gangs"] += 1
        self._counts["moves"] += len(found) - 1
        return found


@dataclass
class _FloorPlan:
    """A snapshot, what is free once the inner scheduler's starts are made, and who holds what."""

    snapshot: Snapshot
    requests: Requests
    held: Mapping[int, Parts]
    capacity: Capacity
    starts: list[Start] = field(default_factory=list)  # of the inner scheduler

    @classmethod
    def of(cls, snapshot: Snapshot, decisions: Sequence[Decision]) -> _FloorPlan:
        requests, row_of = Requests(snapshot), snapshot.rows()
        made = cls(snapshot, requests, held_parts(snapshot), Capacity.of(snapshot, requests))
        for decision in decisions:
            request = requests[row_of[decision.job]]
            made.starts.append((request, made.capacity.take(request, decision.parts)))
        return made

    @property
    def started(self) -> set[int]:
        return {request.row for request, _ in self.starts}

    def held_up(self, rows: Sequence[int]) -> JobRequest | None:
        """Return the largest gang, the first of equals, that does not fit although as many GPUs as it needs are free where it may go."""
        nodes, capacity = self.snapshot.cluster.nodes, self.capacity
        found = [self.requests[row] for row in rows if self.snapshot.jobs.gpus[row] >= 1]
        free = {gang.row: capacity.free[(nodes.partition == gang.partition) & gang.allowed[nodes.gpu_type]].sum() for gang in found}
        held_up = [g for g in found if free[g.row] >= g.gpus and capacity.within_quota(g) and not capacity.fits(g)]
        return max(held_up, key=lambda gang: gang.gpus, default=None)

    def movable(self, partition: int, rest: float) -> dict[int, float]:
        """Return, for each job of the partition that may be moved, the GPU-seconds that moving it costs."""
        snapshot, found = self.snapshot, {}
        for row, parts in self.held.items():
            gpus, elapsed = float(snapshot.jobs.gpus[row]), snapshot.now - float(snapshot.live["run_start"][row])
            terms = terms_of(snapshot, row)
            useful = elapsed - overhead(snapshot, row, [part.node for part in parts])
            if (
                self.requests.partition[row] != partition
                or gpus == 0
                or elapsed < max(rest, EPS)
                or useful <= 0
                or useful < terms["interval"]
                or terms["stops"] == MUST_RUN
            ):
                continue
            lost = useful % terms["interval"] if terms["interval"] > 0 else 0.0
            found[row] = float(gpus * (lost + terms["restart"] + snapshot.jobs.transfer[row]))
        return found

    def way(self, gang: JobRequest, movable: Mapping[int, float], most: int) -> tuple[list[int], list[Decision]]:
        """Return who must leave and what is to be done, or nothing. Where those who leave find no place, other nodes are tried first."""
        on_node: dict[int, list[int]] = {}
        for row in sorted(movable, key=lambda row: (movable[row] / self.requests[row].gpus, row)):
            for part in self.held[row]:
                on_node.setdefault(part.node, []).append(row)
        for _ in range(TRIES):
            cleared, first = self._clear(gang, movable, on_node, most)
            if not cleared:
                break
            if found := self._rearranged(gang, cleared):
                return cleared, found
            del on_node[first]
        return [], []

    def _clear(
        self, gang: JobRequest, movable: Mapping[int, float], on_node: Mapping[int, Sequence[int]], most: int
    ) -> tuple[list[int], int]:
        """Return the jobs without which the gang fits, at most `most`, and the first node that they leave.

        Nodes are cleared one after the other, always the one on which room for one more unit of the gang costs least.
        """
        capacity, gone, first = self.capacity.copy(), list[int](), -1
        while not capacity.fits(gang):
            steps = {node: self._step(capacity, gang, node, [row for row in rows if row not in gone]) for node, rows in on_node.items()}
            ways = {node: step for node, step in steps.items() if step and len(step) + len(gone) <= most}
            if not ways:
                return [], first
            node = min(ways, key=lambda node: (sum(movable[row] for row in ways[node]), len(ways[node]), node))
            first = node if first < 0 else first
            for row in ways[node]:
                capacity.give(self.requests[row], self.held[row])
                gone.append(row)
        return gone, first

    def _step(self, capacity: Capacity, gang: JobRequest, node: int, rows: Sequence[int]) -> list[int]:
        """Return the first of the jobs on a node that must leave for one more unit of the gang, if any do; the capacity stays as it was."""
        before, gone, enough = capacity.rooms(gang)[node], list[int](), False
        for row in rows:
            capacity.give(self.requests[row], self.held[row])
            gone.append(row)
            enough = bool(capacity.rooms(gang)[node] > before)
            if enough:
                break
        for row in reversed(gone):
            capacity.take(self.requests[row], self.held[row])
        return gone if enough else []

    def _rearranged(self, gang: JobRequest, cleared: Sequence[int]) -> list[Decision]:
        """Return the moves, in an order in which each can be made, and the gang's start; nothing if some job finds no place."""
        trial = self.capacity.copy()
        for row in cleared:
            trial.give(self.requests[row], self.held[row])
        place = trial.place(gang, _fullest(trial))
        trial.take(gang, place)
        targets: dict[int, Parts] = {}
        for row in sorted(cleared, key=lambda row: (-self.requests[row].gpus, row)):
            request, rate = self.requests[row], float(self.snapshot.live["rate"][row])
            nodes = _fullest(trial)
            parts = trial.place(request, nodes[request.speeds[trial.cluster.nodes.gpu_type[nodes]] >= rate - EPS])
            if not parts or request.rate(trial.cluster, [part.node for part in parts]) < rate - EPS:
                return []
            targets[row] = trial.take(request, parts)
        moves = self._in_turn({row: parts for row, parts in targets.items() if _where(parts) != _where(self.held[row])})
        return [*moves, Decision(gang.index, parts=place, reason="room made by moving jobs")] if moves else []

    def _in_turn(self, targets: Mapping[int, Parts]) -> list[Decision]:
        """Return the moves one after the other, each to what is free by then; nothing if they stand in each other's way."""
        now, left, moves = self.capacity.copy(), dict(targets), list[Decision]()
        while left:
            for row, parts in left.items():
                request = self.requests[row]
                now.give(request, self.held[row])
                if now.fits_in(request, parts):
                    moves.append(Decision(request.index, Action.MIGRATE, now.take(request, without_devices(parts)), "to make room"))
                    del left[row]
                    break
                now.take(request, self.held[row])
            else:
                return []
        return moves


def _fullest(capacity: Capacity) -> Array:
    """(nodes,) their numbers, those with fewest free devices first."""
    return np.argsort(capacity.free, kind="stable")


def _where(parts: Parts) -> list[tuple[int, float]]:
    return sorted((part.node, part.gpus) for part in parts)
