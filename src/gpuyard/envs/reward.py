"""Objectives by name: what is to be made small or large, as weights on what happens, and as the metric that judges it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.kernels import TERMS
from gpuyard.errors import UsageError
from gpuyard.registry import Registry, unknown_name


@dataclass(frozen=True)
class Objective:
    """`weights` by term of gpuyard.envs.kernels.TERMS; the reward of a choice is Σ weight · what happened until the next.

    Terms of jobs are added when a job ends, terms of time as it passes; `utilisation`, `queue` and `power` are counted once per choice.
    """

    name: str
    title: str
    weights: Mapping[str, float]
    metric: str  # as `gpuyard compare` writes it
    per_job: bool = True  # divided by the number of jobs, so that a return is about the mean

    def with_weights(self, given: Mapping[str, float]) -> Objective:
        """Return the objective with other weights for some terms."""
        for name, value in given.items():
            if name not in TERMS:
                raise unknown_name(f"term of objective {self.name!r}:", name, TERMS)
            if not np.isfinite(value):
                raise UsageError(f"objective {self.name}: the weight of {name} is {value}, not a number")
        return Objective(self.name, self.title, MappingProxyType({**self.weights, **given}), self.metric, self.per_job)

    def vector(self) -> Array:
        """(terms,) f8."""
        return np.array([self.weights.get(name, 0.0) for name in TERMS])


OBJECTIVES: Registry[Objective] = Registry("objective")
for _objective in (
    Objective("bsld", "mean bounded slowdown", {"bsld": -1.0}, "bsld"),
    Objective("slowdown", "mean slowdown", {"slowdown": -1.0}, "slowdown"),
    Objective("wait", "mean wait", {"queue_time": -1.0}, "wait"),  # as it grows, not when a job ends: the sum is the same
    Objective("turnaround", "mean turnaround", {"turnaround": -1.0}, "turnaround"),
    Objective("utilisation", "GPU-seconds in use as a share of those offered", {"busy_time": 1.0, "gpu_seconds": -1.0}, "utilization"),
    Objective(
        "balanced",
        "slowdown, deadlines, wait, use, queue and power together",
        {"capped_slowdown": -1.0, "missed": -5.0, "capped_wait": -0.5, "utilisation": 0.1, "queue": -0.1, "power": -0.05},
        "balanced",
        per_job=False,
    ),
):
    OBJECTIVES.add(_objective.name, _objective)
