"""Models of how long a task takes on a CPU and on a GPU, from its size, intensity and memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.policies.deciders.learning.forest import Forest

KINDS = ("cpu", "gpu")
TERMS = 10  # products of at most two of three facts


@dataclass(frozen=True, eq=False)
class Profile:
    """Tasks measured on each kind of device, on which a model is trained before it decides anything."""

    facts: Array  # (tasks, 3) of gpuyard.features.devices.TaskFacts
    seconds: Array  # (tasks, 2) on a CPU, on a GPU

    def __len__(self) -> int:
        return len(self.facts)


class DurationModel(ABC):
    """Predicts seconds on each kind of device."""

    @abstractmethod
    def predict(self, facts: Array) -> Array:
        """Return (tasks, 2) s for tasks with `facts` (tasks, 3)."""

    def hope(self, facts: Array) -> Array:
        """Return (tasks, 2) s as a choice should see them: less than predicted where little is known."""
        return self.predict(facts)

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        """Learn that tasks with `facts` (n, 3) took `seconds` (n,) on a CPU (`kind` 0) or GPU (1); return whether predictions changed."""
        return False


class ForestDurations(DurationModel):
    """A random forest, trained beforehand and frozen."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest

    def predict(self, facts: Array) -> Array:
        return self.forest.predict(facts)


@dataclass(frozen=True)
class LinearConfig:
    """Settings of LinUCB for costs (Li et al. 2010): a ridge regression of log seconds for each kind, and its lower confidence bound."""

    alpha: float = 0.1  # width of the bound, in standard deviations of log seconds
    prior: float = 10.0  # tasks that the offline data counts as
    ridge: float = 0.01


@dataclass(frozen=True, eq=False)
class LinearPrior:
    """A profile as a ridge regression sees it: how often which products of facts occur together, and what they say."""

    tasks: int
    products: Array  # (terms, terms): sum over tasks
    weights: Array  # (kinds, terms)

    @classmethod
    def of(cls, data: Profile) -> LinearPrior:
        """Fit log seconds on each kind."""
        basis = _quadratic(data.facts)
        products = basis.T @ basis + 1e-3 * np.eye(TERMS)
        return cls(len(data), products, np.linalg.solve(products, basis.T @ np.log(data.seconds)).T)


class LinearDurations(DurationModel):
    """Log seconds as a quadratic function of log size, intensity and memory; it learns from each measured task at once."""

    def __init__(self, prior: LinearPrior, config: LinearConfig | None = None) -> None:
        self.config = config or LinearConfig()
        start = prior.products * self.config.prior / max(prior.tasks, 1) + self.config.ridge * np.eye(TERMS)
        self._gram = np.repeat(start[None], len(KINDS), axis=0)
        self._sums = np.einsum("kij,kj->ki", self._gram, prior.weights)
        self._solve()

    def predict(self, facts: Array) -> Array:
        return seconds_of(_quadratic(facts) @ self.weights.T)

    def hope(self, facts: Array) -> Array:
        basis = _quadratic(facts)
        spread = np.sqrt(np.einsum("ni,kij,nj->nk", basis, self._inverse, basis))
        return seconds_of(basis @ self.weights.T - self.config.alpha * spread)

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        for row, k, target in zip(_quadratic(facts), kind.tolist(), np.log(seconds).tolist(), strict=True):
            self._gram[k] += np.outer(row, row)
            self._sums[k] += row * target
        self._solve()
        return True

    def _solve(self) -> None:
        self._inverse = np.linalg.inv(self._gram)
        self.weights: Array = np.einsum("kij,kj->ki", self._inverse, self._sums)  # (kinds, terms)


def _quadratic(facts: Array) -> Array:
    """Return (tasks, 10): all products of at most two of log size, intensity and memory / 8 GB."""
    size, intensity, memory = facts.T
    terms = np.stack([np.ones(len(facts)), np.log(np.maximum(size, 1e-3)), intensity, memory / 8], axis=1)
    a, b = np.triu_indices(4)
    products: Array = terms[:, a] * terms[:, b]
    return products


def seconds_of(logs: Array) -> Array:
    """Turn log seconds into seconds, kept within 1e-4 s and 1e6 s."""
    seconds: Array = np.exp(np.clip(logs, -9.0, 14.0))
    return seconds
