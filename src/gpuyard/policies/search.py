"""The best joint placement that can be found in time: relaxation, rounding, local search, and branch and bound where that is not enough."""

from __future__ import annotations

import time
from dataclasses import dataclass

import numpy as np

from gpuyard.model.jobs import Array
from gpuyard.policies.joint import Placed, Placing, Problem, Weights
from gpuyard.policies.polish import Polish
from gpuyard.policies.rounding import rounded
from gpuyard.policies.solver import Solver

RESERVE = 0.85  # of the time left goes to the solver, which looks at the clock only now and then


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
    near = rounded(placing, relaxed.values) if relaxed.values is not None else None
    best, values = _best_start(placing, problem, weights, near or {})
    reached = float(placing.model.cost @ values)
    left = _relative(bound, reached)
    if left <= gap:
        return Found(best, left, False)
    seconds = max(limit - (time.perf_counter() - began), 0.001) * RESERVE if limit < np.inf else np.inf
    answer = solver.maximise(placing.model, start=values, limit=seconds, gap=gap)
    if answer.values is None:
        return Found(best, left, True)
    placed = placing.decode(answer.values)
    left = min(_relative(bound, float(placing.model.cost @ answer.values)), answer.gap)
    return Found(placed, left, not answer.optimal)


def _best_start(placing: Placing, problem: Problem, weights: Weights, near: Placed) -> tuple[Placed, Array]:
    """The best of the inner placement, of it improved, and of `near` improved; with its columns."""
    tried = [dict(problem.greedy), Polish(problem, weights, placing.nodes, problem.greedy).run()]
    if near:
        tried.append(Polish(problem, weights, placing.nodes, near).run())
    found = [(each, values) for each in tried if (values := placing.encode(each)) is not None]
    return max(found, key=lambda pair: float(placing.model.cost @ pair[1]))


def _relative(bound: float, value: float) -> float:
    return max(bound - value, 0.0) / max(abs(value), 1e-9)
