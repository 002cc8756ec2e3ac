"""The joint model against brute force over the same placements, with an objective written down a second time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

import numpy as np
import pytest

from gpuyard import Simulation
from gpuyard.model.decision import Part
from gpuyard.policies import parse_scheduler
from gpuyard.policies.milp.decider import _Pass
from gpuyard.policies.milp.joint import Candidate, Problem, Terms, Weights, evaluate
from gpuyard.policies.milp.placing import Placing
from gpuyard.policies.milp.search import search
from gpuyard.policies.milp.solver import Solver
from gpuyard.testing.strategies import random_case

SOLVER = Solver()
MOST = 4000  # combinations that are gone through for one problem
INNER = ("fcfs/fewest/none", "sjf/best/skip", "lcfs/worst/easy", "fcfs/random/skip", "saf/fastest/none")
WEIGHTS = (Weights(0.1, 1.0, 0.1), Weights(0.0, 0.0, 0.0), Weights(0.5, 0.2, 0.0), Weights(0.0, 3.0, 0.7), Weights(1.5, 0.0, 1.0))


def compositions(total: int, rooms: list[int]) -> Iterator[tuple[int, ...]]:
    """All ways to write `total` as a sum with a summand in 0..room for each room."""
    if not rooms:
        if total == 0:
            yield ()
        return
    for first in range(min(total, rooms[0]) + 1):
        for rest in compositions(total - first, rooms[1:]):
            yield (first, *rest)


def options(problem: Problem, job: Candidate, opened: dict[int, int]) -> Iterator[tuple[Part, ...]]:
    """Every placement of one job that the model is documented to allow."""
    capacity, request = problem.capacity, job.request
    cluster = capacity.cluster
    rooms = capacity.rooms(request)
    for n in np.flatnonzero(rooms).tolist():
        if request.shared:
            for (node, device), free in capacity.shares.items():
                if node == n and free + 1e-6 >= request.gpus:
                    yield (Part(n, request.gpus, (device,)),)
            devices = [d for d in range(64) if capacity.mask[n] >> d & 1 and not capacity.pool[n]]
            for device in devices[: max(1, opened.get(n, 0))]:
                yield (Part(n, request.gpus, (device,)),)
        elif rooms[n] >= request.units:
            yield (Part(n, request.gpus),)
    if job.spread:
        for kind in range(len(cluster.types)):
            nodes = [int(n) for n in np.flatnonzero(rooms) if cluster.nodes.gpu_type[n] == kind]
            for units in compositions(request.units, [int(rooms[n]) for n in nodes]):
                parts = tuple(Part(n, float(u * request.chunk)) for n, u in zip(nodes, units, strict=True) if u)
                if len(parts) > 1:
                    yield parts


def feasible(problem: Problem, placed: dict[int, tuple[Part, ...]]) -> bool:
    """Sums over the jobs stay within what is free; jobs that need not start do so in order."""
    capacity = problem.capacity
    extra = [k in placed for k, job in enumerate(problem.jobs) if not job.must]
    if extra != sorted(extra, reverse=True):
        return False
    devices, cpus, memory, quota = np.zeros((4, len(capacity.free)))
    shares: dict[tuple[int, int], float] = {}
    for k, parts in placed.items():
        request = problem.jobs[k].request
        for part in parts:
            units = part.gpus / request.chunk if request.gpus >= 1 else 1
            cpus[part.node] += request.cpus * units
            memory[part.node] += request.memory * units
            quota[0] += part.gpus
            if request.gpus >= 1:
                devices[part.node] += part.gpus
            elif request.shared:
                key = part.node, part.devices[0]
                shares[key] = shares.get(key, 0.0) + part.gpus
    for key, share in shares.items():
        devices[key[0]] += key not in capacity.shares
        if share > capacity.shares.get(key, 1.0) + 1e-6:
            return False
    return bool(
        (devices <= capacity.free).all() and (cpus <= capacity.cpus + 1e-6).all() and (memory <= capacity.memory + 1e-6).all()
        and quota[0] <= capacity.quota[problem.partition] + 1e-6
    )  # fmt: skip


def worth(problem: Problem, placed: dict[int, tuple[Part, ...]], weights: Weights) -> float:
    """The objective, from its definition in the documentation."""
    capacity, table = problem.capacity, problem.capacity.cluster.nodes
    left = {int(n): int(capacity.free[n]) for n in np.flatnonzero(table.partition == problem.partition)}
    total, opened = 0.0, set()
    for k, parts in placed.items():
        request = problem.jobs[k].request
        rate = 1.0
        if request.gpus > 0:
            rate = min(float(request.speeds[table.gpu_type[part.node]]) for part in parts)
            if len({int(table.rack[part.node]) for part in parts}) > 1:
                rate *= capacity.cluster.span_racks
            elif len(parts) > 1:
                rate *= capacity.cluster.span_nodes
        total += problem.jobs[k].weight * (request.gpus if request.gpus > 0 else 0.1) * rate
        for part in parts:
            if request.gpus >= 1:
                left[part.node] -= int(part.gpus)
            elif request.shared and (part.node, part.devices[0]) not in capacity.shares:
                opened.add((part.node, part.devices[0]))
    for node, _ in opened:
        left[node] -= 1
    fragments = sum(free for n, free in left.items() if free < capacity.usable[n])
    used: dict[int, list[int]] = {}
    for n, free in left.items():
        kind = used.setdefault(int(table.gpu_type[n]), [0, 0])
        kind[0] += int(capacity.usable[n]) - free
        kind[1] += int(capacity.usable[n])
    loads = [busy / all_ for busy, all_ in used.values() if all_]
    spread = max(loads) - min(loads) if loads else 0.0
    return total - weights.frag * fragments - weights.balance * spread + weights.room * max(left.values(), default=0)


def brute_force(problem: Problem, weights: Weights) -> float | None:
    """The best value there is; None: too many combinations."""
    opened: dict[int, set[int]] = {}
    for k, parts in problem.greedy.items():
        if problem.jobs[k].request.shared and (parts[0].node, parts[0].devices[0]) not in problem.capacity.shares:
            opened.setdefault(parts[0].node, set()).add(parts[0].devices[0])
    counts = {n: len(devices) for n, devices in opened.items()}
    choices: list[list[tuple[Part, ...] | None]] = []
    size = 1
    for job in problem.jobs:
        found: list[tuple[Part, ...] | None] = [] if job.must else [None]
        for option in options(problem, job, counts):
            found.append(option)
            if size * len(found) > MOST:
                return None
        size *= len(found)
        choices.append(found)
    best = -np.inf
    for choice in product(*choices):
        placed = {k: parts for k, parts in enumerate(choice) if parts is not None}
        if feasible(problem, placed):
            best = max(best, worth(problem, placed, weights))
    return float(best)


def problems(seed: int) -> Iterator[Problem]:
    """The questions that come up in a random case."""
    case = random_case(seed)
    scheduler = parse_scheduler(INNER[seed % len(INNER)])
    simulation = Simulation(case.workload, case.cluster, seed=seed, rules=case.rules)
    while (snapshot := simulation.advance()) is not None:
        order, decisions = scheduler.begin().decide_in_order(snapshot)
        if decisions:
            for queue in _Pass(snapshot).queues(order, decisions, 4):
                yield _Pass(snapshot).problem(queue, in_order_only=seed % 7 == 0)[0]
        simulation.apply(decisions)


def check(seed: int) -> tuple[int, int]:
    """Compare all problems of a case; returns how many there were and in how many the inner placement was not the best."""
    count = improved = 0
    for number, problem in enumerate(problems(seed)):
        weights = WEIGHTS[(seed + number) % len(WEIGHTS)]
        best = brute_force(problem, weights) if problem.jobs else None
        if best is None:
            continue
        placing = Placing(problem, weights)
        start = placing.encode(problem.greedy)
        assert start is not None
        answer = SOLVER.maximise(placing.model, start=start)
        assert answer.optimal
        placed = placing.decode(answer.values)
        assert evaluate(problem, search(SOLVER, problem, weights, limit=np.inf, gap=0.0).placed).value(weights) == pytest.approx(
            best, abs=1e-6
        )
        assert feasible(problem, placed), (seed, number)
        found, greedy = (evaluate(problem, each).value(weights) for each in (placed, problem.greedy))
        assert found == pytest.approx(worth(problem, placed, weights), abs=1e-9)
        assert found == pytest.approx(best, abs=1e-6), (seed, number)
        assert greedy <= best + 1e-9
        # the model's own objective is the value, up to what no placement changes
        shift = float(placing.model.cost @ start) - greedy
        assert float(placing.model.cost @ answer.values) - shift == pytest.approx(found, abs=1e-5)
        count += 1
        improved += best > greedy + 1e-6
    return count, improved


@pytest.mark.parametrize("part", [0, 1, *(pytest.param(part, marks=pytest.mark.slow) for part in (2, 3))])
def test_the_optimum_is_that_of_brute_force(part: int):
    counts = np.array([check(seed) for seed in range(500_000 + 30 * part, 500_030 + 30 * part)]).sum(axis=0)
    assert counts[0] > 50
    assert counts[1] > 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(10))
def test_the_optimum_is_that_of_brute_force_in_more_cases(part: int):
    for seed in range(510_000 + 100 * part, 510_100 + 100 * part):
        check(seed)


def test_terms_are_weighed():
    assert Terms(10.0, 4.0, 0.5, 8.0).value(Weights(0.25, 2.0, 0.5)) == 10.0 - 1.0 - 1.0 + 4.0
