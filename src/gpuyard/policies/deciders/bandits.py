"""Bandits: a choice among a fixed number of arms, judged at once by a payoff. They need numpy alone."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import LearningError
from gpuyard.model.fields import ANY, check_limits

Arrays = dict[str, Array]


@dataclass(frozen=True)
class EpsilonGreedySettings:
    """Settings of the `EpsilonGreedy` bandit."""

    epsilon: float = 0.1
    step: float = 0.0  # of the mean payoff towards the newest; 0: the plain mean

    def __post_init__(self) -> None:
        check_limits("epsilon-greedy", self, {"epsilon": (0, 1), "step": (0, 1)})


@dataclass(frozen=True)
class Exp3Settings:
    """Settings of the `Exp3` bandit."""

    gamma: float = 0.1  # share of uniform choices, and the learning rate

    def __post_init__(self) -> None:
        check_limits("exp3", self, {"gamma": (0, 1)}, above=("gamma",))


@dataclass(frozen=True)
class LinUcbSettings:
    """Settings of the `LinUcb` bandit."""

    alpha: float = 1.0  # size of the bonus, in units of the payoff
    ridge: float = 1.0

    def __post_init__(self) -> None:
        check_limits("linucb", self, {"alpha": (0, ANY), "ridge": (0, ANY)}, above=("ridge",))


class Bandit(ABC):
    """A choice among a fixed number of arms that is judged at once by a payoff."""

    last: float = 1.0  # the probability with which the last arm was chosen
    kept: ClassVar[tuple[str, ...]]  # names of the arrays that it learns

    @abstractmethod
    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        """(arms,) how likely each arm is to be chosen; 0 where `mask` (arms,) is false."""

    @abstractmethod
    def learn(self, context: Array, arm: int, payoff: float, probability: float | None = None) -> None:
        """Learn from the outcome. `probability` is the one with which `arm` was chosen; None: as in the last `choose`."""

    @abstractmethod
    def scores(self) -> tuple[Array, Array]:
        """(arms, features) and (arms,): the highest of weight · context + bias is the best known arm."""

    def choose(self, context: Array, rng: np.random.Generator, mask: Array | None = None) -> int:
        """Draw an arm, for what is known (features,), and remember its probability."""
        chances = self.probabilities(context, mask)
        arm = draw(chances, rng)
        self.last = float(chances[arm])
        return arm

    def save(self) -> Arrays:
        """Return copies of what was learned."""
        return {name: getattr(self, name).copy() for name in self.kept} | {"last": np.array(self.last)}

    def restore(self, saved: Arrays) -> None:
        """Take back what `save` returned."""
        for name in self.kept:
            setattr(self, name, saved[name].copy())
        self.last = float(saved["last"])


class EpsilonGreedy(Bandit):
    """The arm with the highest mean payoff, or with probability ε any one (Sutton & Barto, §2.2). What was never tried goes first."""

    kept = ("mean", "count")

    def __init__(self, arms: int, features: int, config: EpsilonGreedySettings) -> None:
        self.config, self.features = config, features
        self.mean = np.zeros(arms)
        self.count = np.zeros(arms)

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        legal = _legal(mask, len(self.mean))
        hopes = np.where(self.count == 0, np.inf, self.mean)
        best = int(np.argmax(np.where(legal, hopes, -np.inf)))
        chances = np.where(legal, self.config.epsilon / legal.sum(), 0.0)
        chances[best] += 1.0 - self.config.epsilon
        return chances

    def learn(self, context: Array, arm: int, payoff: float, probability: float | None = None) -> None:
        self.count[arm] += 1
        rate = self.config.step or 1.0 / self.count[arm]
        self.mean[arm] += (finite(payoff) - self.mean[arm]) * (1.0 if self.count[arm] == 1 else rate)

    def scores(self) -> tuple[Array, Array]:
        untried = self.mean.min(initial=np.inf, where=self.count > 0) if self.count.any() else 0.0
        return np.zeros((len(self.mean), self.features)), np.where(self.count > 0, self.mean, untried)


class Exp3(Bandit):
    """Weights that grow exponentially with payoff ÷ probability (Auer et al. 2002): no assumption on how payoffs come about.

    Payoffs are put into [0, 1] by the lowest and highest seen so far.
    """

    kept = ("log_weights", "range")

    def __init__(self, arms: int, features: int, config: Exp3Settings) -> None:
        self.config, self.features = config, features
        self.log_weights = np.zeros(arms)
        self.range = np.array([np.inf, -np.inf])

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        legal = _legal(mask, len(self.log_weights))
        weights = np.where(legal, np.exp(self.log_weights - self.log_weights[legal].max()), 0.0)
        chances: Array = (1 - self.config.gamma) * weights / weights.sum() + self.config.gamma * legal / legal.sum()
        return chances

    def learn(self, context: Array, arm: int, payoff: float, probability: float | None = None) -> None:
        self.range = np.array([min(self.range[0], finite(payoff)), max(self.range[1], payoff)])
        width = self.range[1] - self.range[0]
        gain = (payoff - self.range[0]) / width if width > 0 else 0.5
        chance = self.last if probability is None else probability
        self.log_weights[arm] += self.config.gamma * gain / chance / len(self.log_weights)
        self.log_weights -= self.log_weights.max()

    def scores(self) -> tuple[Array, Array]:
        return np.zeros((len(self.log_weights), self.features)), self.log_weights.copy()


class LinUcb(Bandit):
    """Ridge regression of the payoff on the context for each arm, plus a bonus for what is uncertain (Li et al. 2010, disjoint)."""

    kept = ("inverse", "moment", "theta")

    def __init__(self, arms: int, features: int, config: LinUcbSettings) -> None:
        self.config = config
        size = features + 1  # the last one is the intercept
        self.inverse = np.tile(np.eye(size) / config.ridge, (arms, 1, 1))
        self.moment = np.zeros((arms, size))
        self.theta = np.zeros((arms, size))

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        x = np.append(np.asarray(context, dtype=np.float64), 1.0)
        spread = np.sqrt(np.maximum(np.einsum("i,aij,j->a", x, self.inverse, x), 0.0))
        bounds = np.where(_legal(mask, len(self.theta)), self.theta @ x + self.config.alpha * spread, -np.inf)
        chances: Array = (np.arange(len(bounds)) == np.argmax(bounds)).astype(np.float64)
        return chances

    def learn(self, context: Array, arm: int, payoff: float, probability: float | None = None) -> None:
        x = np.append(np.asarray(context, dtype=np.float64), 1.0)
        side = self.inverse[arm] @ x
        self.inverse[arm] -= np.outer(side, side) / (1.0 + x @ side)  # Sherman & Morrison
        self.moment[arm] += finite(payoff) * x
        self.theta[arm] = self.inverse[arm] @ self.moment[arm]

    def scores(self) -> tuple[Array, Array]:
        return self.theta[:, :-1].copy(), self.theta[:, -1].copy()


def draw(chances: Array, rng: np.random.Generator) -> int:
    """An arm, each as likely as `chances` (arms,) say."""
    sums = np.cumsum(chances)
    return int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))


def finite(payoff: float) -> float:
    """The payoff, if it is a number."""
    if not np.isfinite(payoff):
        raise LearningError(f"a reward is {payoff}", hint="look at the weights of the objective and at the workload")
    return payoff


def _legal(mask: Array | None, arms: int) -> Array:
    return np.ones(arms, dtype=bool) if mask is None else mask
