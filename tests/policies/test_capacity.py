"""The books kept in Python against the engine's own, on snapshots of generated simulations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np
import pytest

from gpuyard import Simulation, Snapshot
from gpuyard.engine.snapshots import snapshot_of
from gpuyard.model.decision import Action, Decision
from gpuyard.model.rules import MUST_RUN
from gpuyard.model.snapshot import LIVE
from gpuyard.policies import parse_scheduler
from gpuyard.policies.capacity import Capacity, JobRequest, Requests, Start, estimated_end, held_parts, with_starts
from gpuyard.policies.milp.decider import reservation
from gpuyard.testing.strategies import random_case

SEEDS = range(50)
DECISIONS = 6  # looked at, of each case
EASY = parse_scheduler("fcfs/fewest/easy")
FIRST = parse_scheduler("fcfs/first/none")
FEWEST = parse_scheduler("fcfs/fewest/none")
BOOKS = ("free", "cpus", "memory", "mask", "quota", "shares")
MOST_UNITS = 12  # that rooms are told apart up to


@dataclass(frozen=True, eq=False)
class Step:
    """One decision: what was seen and what was free before it, what was decided, what was seen after it at the same instant."""

    snapshot: Snapshot
    free: dict[str, Any]
    decisions: Sequence[Decision]
    after: Snapshot


@cache
def steps(seed: int) -> list[Step]:
    """The first decisions of a simulation under EASY in which now and then a job is stopped."""
    case, rng = random_case(seed), np.random.default_rng(seed)
    simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules)
    found: list[Step] = []
    while len(found) < DECISIONS and (snapshot := simulation.advance()) is not None:
        free = engine_books(simulation)
        decisions = [replace(decision, silent=False) for decision in EASY.decide(snapshot)]  # as deciders start jobs
        simulation.apply(decisions)
        after = snapshot_of(simulation.state, case.workload.jobs, snapshot.cluster, case.rules, seed, simulation._mix)
        found.append(Step(snapshot, free, decisions, after))
        stops = snapshot.terms["stops"][snapshot.running]
        running = snapshot.jobs.index[snapshot.running][stops != MUST_RUN].tolist()
        if running and rng.random() < 0.3:
            simulation.apply([Decision(int(rng.choice(running)), Action.PREEMPT)])
    return found


def starts_of(snapshot: Snapshot, requests: Requests, decisions: Sequence[Decision]) -> list[Start]:
    rows = {int(index): row for row, index in enumerate(snapshot.jobs.index)}
    return [(requests[rows[decision.job]], decision.parts) for decision in decisions]


def narrowed(snapshot: Snapshot, keep: np.ndarray) -> Snapshot:
    """The snapshot with these rows only."""
    held = snapshot.held[keep[snapshot.held["row"]]].copy()
    held["row"] = (np.cumsum(keep) - 1)[held["row"]]
    return replace(snapshot, jobs=snapshot.jobs.with_table(snapshot.jobs.table[keep]), live=snapshot.live[keep], held=held)


def waiting_only(snapshot: Snapshot, *rows: int) -> Snapshot:
    """The running jobs, and of the waiting ones these."""
    keep = snapshot.live["running"].copy()
    keep[list(rows)] = True
    return narrowed(snapshot, keep)


def books(capacity: Capacity, *, every: bool = False) -> dict[str, Any]:
    """What is free, of the nodes that are up or of all, to compare with; sums need not be equal to the last digit."""
    up = capacity.up | every
    mask = [bits for bits, shown in zip(capacity.mask, up, strict=True) if shown]
    numbers = {name: pytest.approx(getattr(capacity, name)[up]) for name in ("free", "cpus", "memory")}
    return {**numbers, "mask": mask, "quota": pytest.approx(capacity.quota), "shares": pytest.approx(capacity.shares)}


def engine_books(simulation: Simulation) -> dict[str, Any]:
    """The same by the kernels' account, of the nodes that are up."""
    s = simulation.state
    order = np.argsort(s.nodes["number"])
    nodes = s.nodes[order][s.nodes["down"][order] == 0]
    return {
        "free": nodes["free"].copy(), "mask": nodes["mask"].tolist(), "cpus": nodes["free_cpus"].copy(),
        "memory": nodes["free_memory"].copy(),
        "quota": s.partitions["quota"] - s.partitions["used"],
        "shares": {
            (int(node["number"]), d): float(s.devices[node["first_device"] + d])
            for node in nodes for d in range(int(node["shared"]).bit_length()) if int(node["shared"]) >> d & 1
        },
    }  # fmt: skip


def test_the_cases_have_what_the_books_must_get_right():
    """Shares, quotas, nodes and devices out of order, jobs that outlive their estimates, and starts after a stop that has a cost."""
    every = [step for seed in SEEDS for step in steps(seed)]
    assert sum((step.snapshot.held["device"] >= 0).any() for step in every) > 20
    assert sum(bool(np.isfinite(step.free["quota"]).any()) for step in every) > 20
    assert sum((step.snapshot.nodes["down"] > 0).any() for step in every) > 3
    assert sum((step.snapshot.nodes["off"] > 0).any() for step in every) > 3
    assert sum(overdue(step.snapshot) for step in every) > 3
    again = [(step.after.live["preemptions"][step.after.running] > 0).any() for step in every if step.snapshot.rules.restart_cost > 0]
    assert sum(again) > 3


def overdue(snapshot: Snapshot) -> bool:
    """Whether a running job has had more time than its estimate, the costs of its start included."""
    jobs, live = snapshot.jobs, snapshot.live
    expected = jobs.transfer + snapshot.rules.restart_cost + (jobs.estimate - live["done"]) / np.where(live["running"], live["rate"], 1.0)
    return bool((live["running"] & (snapshot.now - live["run_start"] > expected)).any())


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_free_is_what_the_engine_has_free(seed: int):
    for step in steps(seed):
        requests = Requests(step.snapshot)
        capacity = Capacity.of(step.snapshot, requests)
        assert step.free == books(capacity)
        for request, parts in starts_of(step.snapshot, requests, step.decisions):
            assert capacity.fits(request)
            assert capacity.take(request, tuple(replace(part, devices=()) for part in parts)) == parts  # the devices that the engine gives


@pytest.mark.parametrize("seed", SEEDS)
def test_giving_back_undoes_taking(seed: int):
    rng = np.random.default_rng(seed)
    for step in steps(seed):
        requests = Requests(step.snapshot)
        capacity = Capacity.of(step.snapshot, requests)
        held = [(requests[row], parts) for row, parts in held_parts(step.snapshot).items()]
        held += [(request, capacity.take(request, parts)) for request, parts in starts_of(step.snapshot, requests, step.decisions)]
        for k in rng.permutation(len(held)):
            capacity.give(*held[k])
        untouched = Capacity(step.snapshot.cluster, step.snapshot.nodes)
        assert {name: getattr(capacity, name) for name in BOOKS} == books(untouched, every=True)


def room_of_engine(snapshot: Snapshot, request: JobRequest, node: int) -> int:
    """Units by the largest job of this kind that the engine starts with all other nodes down; at most MOST_UNITS."""
    partitions = tuple(replace(partition, quota=np.inf) for partition in snapshot.cluster.partitions)
    alone = waiting_only(replace(snapshot, cluster=replace(snapshot.cluster, partitions=partitions)), request.row)
    at = int(np.flatnonzero(alone.jobs.index == request.index)[0])
    nodes, table = alone.nodes.copy(), alone.jobs.table.copy()
    nodes["down"] += np.arange(len(nodes)) != node
    for units in range(1, (MOST_UNITS if request.gpus >= 1 else 1) + 1):
        if request.gpus >= 1:
            table["gpus"][at] = units * request.chunk
            table["cpus"][at], table["memory"][at] = units * request.cpus, units * request.memory
        if not FIRST.decide(replace(alone, nodes=nodes, jobs=alone.jobs.with_table(table.copy()))):
            return units - 1
    return MOST_UNITS if request.gpus >= 1 else 1


@pytest.mark.parametrize("seed", SEEDS[:15])
def test_rooms_are_those_of_the_engine(seed: int):
    rng = np.random.default_rng(seed)
    for snapshot in (step.snapshot for step in steps(seed)):
        requests = Requests(snapshot)
        capacity = Capacity.of(snapshot, requests)
        request, node = requests[int(rng.choice(snapshot.waiting))], int(rng.integers(len(snapshot.nodes)))
        assert min(int(capacity.rooms(request)[node]), MOST_UNITS) == room_of_engine(snapshot, request, node)
        for row in snapshot.waiting[:6].tolist():
            assert capacity.fits(requests[row]) == bool(FIRST.decide(waiting_only(snapshot, row)))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_snapshot_with_starts_is_the_one_after_them(seed: int):
    for step in steps(seed):
        made = with_starts(step.snapshot, starts_of(step.snapshot, Requests(step.snapshot), step.decisions))
        assert made.held.tolist() == step.after.held.tolist()
        for name in set(LIVE.names or ()) - {"est_end"}:
            assert made.live[name].tolist() == step.after.live[name].tolist(), name
        ends, seen, now = made.live["est_end"], step.after.live["est_end"], step.snapshot.now
        ahead = ends > now
        assert ends[ahead].tolist() == seen[ahead].tolist()
        at_once = made.live["running"] & ~ahead  # starts of no believed length
        assert ((seen[at_once] > now) & (seen[at_once] <= now + 1.0)).all()


@dataclass(frozen=True, eq=False)
class Head:
    """The first job of a partition's queue that EASY does not start, and the starts before it."""

    request: JobRequest
    before: list[Start]
    behind: list[int]  # rows


def heads(snapshot: Snapshot, requests: Requests) -> list[Head]:
    order, decisions = EASY.begin().decide_in_order(snapshot)
    starts = {start[0].row: start for start in starts_of(snapshot, requests, decisions)}
    found = []
    for p in range(len(snapshot.cluster.partitions)):
        rows = order[requests.partition[order] == p].tolist()
        at = next((i for i, row in enumerate(rows) if row not in starts), None)
        if at is not None:
            found.append(Head(requests[rows[at]], [starts[row] for row in rows[:at]], rows[at + 1 :]))
    return found


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_a_reservation_is_the_first_estimated_end_at_which_the_engine_starts_the_head(seed: int):
    for snapshot in (step.snapshot for step in steps(seed)):
        requests = Requests(snapshot)
        for head in heads(snapshot, requests):
            after = with_starts(snapshot, head.before)
            ends = np.array([estimated_end(snapshot, end) for end in after.live["est_end"].tolist()])
            first = np.inf
            for time in np.unique(ends[after.live["running"]]):
                keep = after.live["running"] & (ends > time)
                keep[head.request.row] = True
                if FIRST.decide(narrowed(after, keep)):
                    first = float(time)
                    break
            assert reservation(snapshot, requests, head.request, head.before) == first


@pytest.mark.parametrize("seed", SEEDS[:12])
def test_easy_lets_pass_who_leaves_the_reservation_where_it_is(seed: int):
    for snapshot in (step.snapshot for step in steps(seed)):
        requests = Requests(snapshot)
        for head in heads(snapshot, requests):
            promised = reservation(snapshot, requests, head.request, head.before)
            after = with_starts(snapshot, head.before)
            for row in head.behind[:4]:
                passing = EASY.decide(waiting_only(after, head.request.row, row))
                placed = starts_of(snapshot, requests, FEWEST.decide(waiting_only(after, row)))
                assert bool(passing) == any(
                    with_starts(snapshot, [(request, parts)]).live["est_end"][row] <= snapshot.now  # of no believed length
                    or reservation(snapshot, requests, head.request, [*head.before, (request, parts)]) <= promised
                    for request, parts in placed
                )
