"""Joint placement of the first jobs of the queue by mixed-integer programming."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, fields

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.decision import Decision
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import (
    Capacity,
    JobRequest,
    Parts,
    Requests,
    Start,
    estimated_end,
    held_parts,
    with_starts,
    without_devices,
)  # fmt: skip
from gpuyard.policies.milp.joint import Candidate, Placed, Problem, Terms, Weights, evaluate
from gpuyard.policies.milp.search import Found, search
from gpuyard.policies.milp.solver import Solver
from gpuyard.policies.schedulers import Scheduler, decider
from gpuyard.policies.text import parse_slots

BETTER = 1e-9  # of the objective: less does not count as an improvement


@dataclass(frozen=True, eq=False)
class _Queue:
    """The pass of the inner scheduler in one partition."""

    partition: int
    rows: Array  # all waiting jobs, in its order
    starts: Mapping[int, Parts]  # row → where
    looked: int  # how many of the rows may take part

    @property
    def head(self) -> int:
        """The first job that it does not start; −1: none."""
        return next((int(row) for row in self.rows if int(row) not in self.starts), -1)

    def first(self, *, in_order_only: bool) -> list[int]:
        """The starts that take part: of the first jobs all, or those before the head."""
        head = self.head if in_order_only else -1
        found = []
        for row in self.rows[: self.looked].tolist():
            if row == head:
                break
            if row in self.starts:
                found.append(row)
        return found


@decider("milp", title="Joint placement of the first k jobs by a mixed-integer model", inner=parse_slots("fcfs/fewest/easy"))
class Milp:
    """The inner scheduler says who starts; HiGHS says where, jointly for the first `k` jobs of each partition's queue.

    Maximised is, in GPUs: Σ weight × gpus × rate of the jobs placed (weight 1 for the first of the queue, falling to a half for
    the k-th; a CPU job counts as 0.1 GPUs) − `w_frag` × free devices left on partly used nodes − `w_balance` × (highest −
    lowest share of devices in use, between types) + `w_room` × devices of the largest block left on one node.

    Of these k jobs every one that the inner scheduler starts is started, and a further one only if all jobs before it start too. No job is
    passed that the inner scheduler would not pass, and under EASY the head's reservation is not later than with the inner placement.
    What is left goes through one more pass of the inner scheduler; all that is behind a conservative head does.

    A gang is spread only if no node holds it whole or the inner placement spreads it, and then over nodes of one type; one that the
    inner placement spreads over several types stays there. At most 128 nodes are looked at, of each kind some.
    `limit` s per decision, `gap` relative; the inner placement is the start, and stays if nothing better is found in time.
    """

    def __init__(
        self, inner: Scheduler, *, k: float = 16, limit: float = 0.1, gap: float = 0.01, w_frag: float = 0.05, w_balance: float = 0.5,
        w_room: float = 0.05,
    ) -> None:  # fmt: skip
        if inner.preemption.stops:
            raise UsageError(f"milp places jobs and stops none, but {inner.label!r} preempts", hint="leave the fourth slot out")
        if not (1 <= k <= 1000 and k == int(k)):
            raise UsageError(f"milp: k = {k:g} is not a whole number in 1..1000")
        if not (limit > 0 and 0 <= gap < 1 and all(0 <= w < np.inf for w in (w_frag, w_balance, w_room))):
            raise UsageError("milp: limit must be above 0 s, gap in 0..1, weights not negative")
        self._inner = inner.begin()
        self._backfill = inner.backfill.name
        self._k, self._limit, self._gap = int(k), limit, gap
        self._weights = Weights(w_frag, w_balance, w_room)
        self._solver = Solver()
        self._log = _Log(self._weights)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Return the inner scheduler's decisions, or better placed ones."""
        self._log.decisions += 1
        order, inner = self._inner.decide_as_walked(snapshot)
        if not inner:
            return []
        began = time.perf_counter()
        solves = self._log.solves
        pass_ = _Pass(snapshot)
        chosen = [self._improve(pass_, queue, began) for queue in pass_.queues(order, inner, self._k)]
        if self._log.solves > solves:
            self._log.seconds.append(time.perf_counter() - began)
        if all(starts is None for starts in chosen):
            return inner
        starts = [start for starts in chosen if starts is not None for start in starts]
        made = [Decision(request.index, parts=parts, reason="placed by the solver") for request, parts in starts]
        return made + self._inner.decide(with_starts(snapshot, starts))

    def report(self) -> Mapping[str, float]:
        """Return counts over all decisions so far."""
        return self._log.report()

    def _improve(self, pass_: _Pass, queue: _Queue, began: float) -> list[Start] | None:
        """Better places for the starts of one partition, or None."""
        problem, pinned = pass_.problem(queue, in_order_only=self._backfill == "conservative")
        if not problem.jobs or _no_choice(problem):
            self._log.skipped += 1
            return None
        left = max(self._limit - (time.perf_counter() - began), 0.001)
        found = search(self._solver, problem, self._weights, limit=left, gap=self._gap)
        before = evaluate(problem, problem.greedy)
        starts = _carried_out(problem, found.placed, pinned)
        after = evaluate(problem, found.placed) if starts is not None else before
        better = starts is not None and after.value(self._weights) > before.value(self._weights) + BETTER
        safe = better and (self._backfill != "easy" or pass_.keeps_reservation(queue, problem, found.placed, pinned))
        self._log.note(found, before, after if safe else before, better=better, safe=safe)
        return starts if safe else None


class _Pass:
    """One decision: the snapshot, what is free, and the questions of its partitions."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.snapshot = snapshot
        self.requests = Requests(snapshot)
        self.capacity = Capacity.of(snapshot, self.requests)
        self._row_of = snapshot.rows()

    def queues(self, order: Array, inner: Sequence[Decision], k: int) -> list[_Queue]:
        """The partitions in which the inner scheduler starts a job."""
        starts: dict[int, dict[int, Parts]] = {}
        for decision in inner:
            row = self._row_of[decision.job]
            starts.setdefault(self.requests[row].partition, {})[row] = decision.parts
        home = self.requests.partition[order]
        return [_Queue(p, order[home == p], mine, k) for p, mine in sorted(starts.items())]

    def problem(self, queue: _Queue, *, in_order_only: bool) -> tuple[Problem, list[Start]]:
        """Return the jobs to place, and the gangs over several types, which stay where the inner scheduler puts them."""
        taking = queue.first(in_order_only=in_order_only)
        capacity = self.capacity.copy()
        pinned: list[Start] = []
        for row in taking:
            request, parts = self.requests[row], queue.starts[row]
            if len({int(capacity.cluster.nodes.gpu_type[part.node]) for part in parts}) > 1:
                capacity.take(request, parts)
                pinned.append((request, parts))
        jobs: list[Candidate] = []
        greedy: dict[int, Parts] = {}
        fixed = {request.row for request, _ in pinned}
        behind = False  # a job that cannot start: no other may go before it
        for rank, row in enumerate(queue.rows[: queue.looked].tolist()):
            must, request = row in taking, self.requests[row]
            behind = behind or not (must or capacity.fits(request))
            if row in fixed or (behind and not must):
                continue
            if must:
                greedy[len(jobs)] = queue.starts[row]
            spread = len(queue.starts[row]) > 1 if must else False
            spread = spread or (request.units > 1 and int(capacity.rooms(request).max()) < request.units)
            jobs.append(Candidate(request, 1.0 - rank / (2 * queue.looked), must, spread))
        return Problem(capacity, queue.partition, jobs, greedy), pinned

    def keeps_reservation(self, queue: _Queue, problem: Problem, placed: Placed, pinned: Sequence[Start]) -> bool:
        """EASY's promise: who passes the first job that waits does not delay it, and it is not later than with the inner placement."""
        found = {problem.jobs[k].request.row: (problem.jobs[k].request, parts) for k, parts in placed.items()}
        found |= {request.row: (request, parts) for request, parts in pinned}
        rows = queue.rows.tolist()
        at = next((i for i, row in enumerate(rows) if row not in found), len(rows))
        if at == len(rows):
            return True
        head = self.requests[rows[at]]
        before = [found[row] for row in rows[:at]]
        together = reservation(self.snapshot, self.requests, head, list(found.values()))
        if together > reservation(self.snapshot, self.requests, head, before):
            return False
        inner = [(problem.jobs[k].request, parts) for k, parts in problem.greedy.items()] + list(pinned)
        return head.row != queue.head or together <= reservation(self.snapshot, self.requests, head, inner)


def _no_choice(problem: Problem) -> bool:
    """One job, and all nodes that have room for it are alike."""
    if len(problem.jobs) > 1 or problem.jobs[0].spread:
        return False
    capacity = problem.capacity
    nodes = np.flatnonzero(capacity.rooms(problem.jobs[0].request) > 0)
    columns = (capacity.cluster.nodes.gpu_type, capacity.free, capacity.usable)
    return all(len(np.unique(column[nodes])) == 1 for column in columns) and not problem.jobs[0].request.shared


def _carried_out(problem: Problem, placed: Placed, pinned: Sequence[Start]) -> list[Start] | None:
    """The starts with their devices, as the engine will give them: shares first, whose devices are named. None: it cannot be done."""
    if any(job.must and k not in placed for k, job in enumerate(problem.jobs)):
        return None
    capacity = problem.capacity.copy()
    for request, parts in pinned:
        capacity.give(request, parts)
    wanted: list[tuple[JobRequest, Parts]] = [(problem.jobs[k].request, parts) for k, parts in placed.items()] + list(pinned)
    starts = []
    for request, parts in sorted(wanted, key=lambda start: not start[0].shared):
        if not capacity.fits_in(request, parts):
            return None
        starts.append((request, capacity.take(request, parts if request.shared else without_devices(parts))))
    return starts


class _Log:
    """Counts, times and values for the report."""

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.decisions = self.skipped = self.optimal = self.limited = self.kept = self.unsafe = 0
        self.seconds: list[float] = []
        self._gaps: list[float] = []
        self._before: list[Terms] = []
        self._after: list[Terms] = []

    @property
    def solves(self) -> int:
        return len(self._gaps)

    def note(self, found: Found, before: Terms, after: Terms, *, better: bool, safe: bool) -> None:
        """One solve: what came out, and what was used."""
        self.optimal += not found.limited
        self.limited += found.limited
        self.kept += not better
        self.unsafe += better and not safe
        self._gaps.append(found.gap)
        self._before.append(before)
        self._after.append(after)

    def report(self) -> dict[str, float]:
        gaps = [gap for gap in self._gaps if np.isfinite(gap)]
        milliseconds = [1000 * s for s in self.seconds] or [0.0]
        found: dict[str, float] = {
            "decisions": self.decisions, "solves": self.solves, "skipped": self.skipped, "solved_to_gap": self.optimal,
            "limit_struck": self.limited, "inner_kept": self.kept, "inner_kept_for_reservation": self.unsafe,
            "gap_mean": float(np.mean(gaps)) if gaps else 0.0, "gap_max": max(gaps, default=0.0), "gap_unknown": self.solves - len(gaps),
            "ms_median": float(np.median(milliseconds)), "ms_p95": float(np.percentile(milliseconds, 95)),
        }  # fmt: skip
        for label, terms in (("inner", self._before), ("milp", self._after)):
            found[f"value_{label}"] = float(np.mean([each.value(self._weights) for each in terms])) if terms else 0.0
            for each, values in zip(fields(Terms), zip(*map(astuple, terms), strict=True) if terms else [()] * 4, strict=True):
                found[f"{each.name}_{label}"] = float(np.mean(values)) if values else 0.0
        return found


def reservation(snapshot: Snapshot, requests: Requests, head: JobRequest, starts: Sequence[Start]) -> float:
    """Return the earliest estimated end at which `head` fits once all that end by then have left; now if it fits, inf if it never does.

    `starts` are jobs that start now. Shares among them need their devices named. More room is never worse, so a binary search does.
    """
    after = with_starts(snapshot, starts)
    parts = {row: held for row, held in held_parts(after).items() if requests.partition[row] == head.partition}
    ends = {row: estimated_end(snapshot, float(after.live["est_end"][row])) for row in parts}
    times = sorted({snapshot.now, *ends.values()})

    def fits(at: float) -> bool:
        capacity = Capacity(snapshot.cluster, snapshot.nodes)
        for row, held in parts.items():
            if ends[row] > at:
                capacity.take(requests[row], held)
        return capacity.fits(head)

    first = bisect_left(times, True, key=fits)
    return float(times[first]) if first < len(times) else np.inf
