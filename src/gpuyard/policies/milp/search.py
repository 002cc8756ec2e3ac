"""The best joint placement that can be found in time: relaxation, rounding, local search, and branch and bound where that is not enough."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.policies.milp.joint import Placed, Problem, Weights
from gpuyard.policies.milp.placing import Placing
from gpuyard.policies.milp.polish import Polish
from gpuyard.policies.milp.rounding import rounded
from gpuyard.policies.milp.solver import Solver

RESERVE = 0.75  # of the time left goes to the solver, which looks at the clock only now and then


@dataclass(frozen=True, eq=False)
class Found:
    """A placement, how far its objective is at most from the optimum (relative, constants left out), and whether time ran out."""

    placed: Placed
    gap: float
    limited: bool


def search(solver: Solver, problem: Problem, weights: Weights, *, limit: float, gap: float) -> Found:
    """Start from the inner placement; stop at the gap or at the limit in seconds."""
    began = time.perf_counter()
    placing = Placing(problem, weights)
    relaxed = solver.relaxed(placing.model, limit=limit)
    bound = float(placing.model.cost @ relaxed.values) if relaxed.optimal and relaxed.values is not None else np.inf
    best, values, left = problem.greedy, np.zeros(0), np.inf
    for start in _starts(placing, relaxed.values):
        columns = placing.encode(start)
        if columns is None:
            continue
        reached = _relative(bound, float(placing.model.cost @ columns))
        if not len(values) or placing.model.cost @ columns > placing.model.cost @ values:
            best, values, left = start, columns, reached
        if left <= gap:
            return Found(best, left, False)
    seconds = max(limit - (time.perf_counter() - began), 0.001) * RESERVE if limit < np.inf else np.inf
    answer = solver.maximise(placing.model, start=values, limit=seconds, gap=gap)
    if answer.values is None:
        return Found(best, left, True)
    left = min(_relative(bound, float(placing.model.cost @ answer.values)), answer.gap)
    return Found(placing.decode(answer.values), left, not answer.optimal)


def _starts(placing: Placing, values: Array | None) -> Iterator[Placed]:
    """The inner placement, the relaxation's rounded and improved, the inner placement improved."""
    problem = placing.problem
    yield problem.greedy
    near = rounded(placing, values) if values is not None else None
    for each in (near, problem.greedy):
        if each is not None:
            yield Polish(problem, placing.weights, placing.nodes, each).run()


def _relative(bound: float, value: float) -> float:
    return max(bound - value, 0.0) / max(abs(value), 1e-9)
