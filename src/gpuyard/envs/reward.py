"""Objectives by name: each is a set of weights on what happens between choices, and the metric that judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array, quantiles
from gpuyard.engine.state import TALLY_ROW, State
from gpuyard.envs.kernels import TERMS, WEIGHT_ROW
from gpuyard.errors import UsageError
from gpuyard.metrics.objective import BalancedWeights
from gpuyard.registry import Registry, unknown_name


@dataclass(frozen=True)
class Objective:
    """A reward: the sum, over the terms of gpuyard.envs.kernels.WeightRow, of weight × what happened from one choice to the next.

    Terms of jobs are added when a job ends, terms of time as it passes; `utilisation`, `queue`, `power`, `watts`, `cores` and `imbalance`
    are counted once per choice.
    """

    name: str
    title: str
    weights: Mapping[str, float]
    metric: str  # as `gpuyard compare` writes it
    per_job: bool = True  # divided by the number of jobs, so that a return is about the mean
    tail: float = 0.0  # a quantile of the jobs' time in the queue instead of a sum: known only when a whole episode has ended

    def with_weights(self, given: Mapping[str, float]) -> Objective:
        """Return the objective with other weights for some terms."""
        for name, value in given.items():
            if name not in TERMS:
                raise unknown_name(f"term of objective {self.name!r}:", name, TERMS)
            if not np.isfinite(value):
                raise UsageError(f"objective {self.name}: the weight of {name} is {value}, not a number")
        return replace(self, weights=MappingProxyType({**self.weights, **given}))

    def earned(self, s: State) -> float:
        """Return what a simulation that has ended earned, without terms that are counted per choice."""
        if self.tail:
            came = int(s.control["next_job"][0])
            line = s.result[:came]
            waited = (line["end"] - s.rows["submit"][:came] - line["ran"])[np.isfinite(line["end"])]
            return -float(quantiles(np.maximum(waited, 0.0), np.array([self.tail]))[0]) if len(waited) else 0.0
        sums = s.tally[0]
        return sum(self.weights.get(name, 0.0) * float(sums[name]) for name in TALLY_ROW.names or ())

    def row(self) -> Array:
        """Return the weights as compiled code reads them: (1,) WEIGHT_ROW."""
        row = np.zeros(1, WEIGHT_ROW)
        for name, weight in self.weights.items():
            row[name] = weight
        return row


MIX_SECONDS = 360.0  # of turnaround that count as much as a bounded slowdown of 1
OBJECTIVES: Registry[Objective] = Registry("objective")
for _objective in (
    Objective("bsld", "mean bounded slowdown", {"bsld": -1.0}, "bsld"),
    Objective("slowdown", "mean slowdown", {"slowdown": -1.0}, "slowdown"),
    Objective("wait", "mean wait", {"queue_time": -1.0}, "wait"),  # as it grows, not when a job ends: the sum is the same
    Objective("turnaround", "mean turnaround", {"turnaround": -1.0}, "turnaround"),
    Objective(
        "mix",
        "mean bounded slowdown and mean turnaround in tenths of an hour, added up",
        {"bsld": -1.0, "turnaround": -1 / MIX_SECONDS},
        "bsld",
    ),
    Objective("p99", "the 99th percentile of the time in the queue", {}, "waiting.p99", per_job=False, tail=0.99),
    Objective("utilisation", "GPU-seconds in use as a share of those offered", {"idle_time": -1.0}, "utilization"),
    Objective("fragmentation", "GPU-seconds free while a job waits", {"stranded_time": -1.0}, "fragmentation"),
    Objective(
        "hosts",
        "completion, use of cores, wait and load balance of hosts together",
        {"ended": 1.0, "cores": 0.5, "capped_wait": -1.0, "imbalance": -0.5},
        "wait",
    ),
    Objective(
        "balanced",
        "slowdown, deadlines, wait, use, queue and power together",
        BalancedWeights().terms(),
        "balanced",
        per_job=False,
    ),
):
    OBJECTIVES.add(_objective.name, _objective)
