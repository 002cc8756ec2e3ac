"""Bandits: cheap opponents of learned meta-schedulers. They need numpy alone and can be used outside environments as well."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

import numpy as np

from gpuyard.envs.base import Envs
from gpuyard.errors import LearningError, UsageError
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.episodes import Episodes
from gpuyard.learn.saving import generator_from, generator_state, nested, part
from gpuyard.model.jobs import Array
from gpuyard.policies.network_spec import NetworkSpec


@dataclass(frozen=True)
class EpsilonGreedyConfig:
    """Of `EpsilonGreedy`."""

    epsilon: float = 0.1
    step: float = 0.0  # of the mean reward towards the newest; 0: the plain mean
    round_steps: int = 32  # choices in each environment per update


@dataclass(frozen=True)
class Exp3Config:
    """Of `Exp3`."""

    gamma: float = 0.1  # share of uniform choices, and the learning rate
    round_steps: int = 32


@dataclass(frozen=True)
class LinUcbConfig:
    """Of `LinUcb`."""

    alpha: float = 1.0  # size of the bonus, in units of the reward
    ridge: float = 1.0
    round_steps: int = 32


class Bandit(Protocol):
    """A choice among a fixed number of actions that is judged at once by a reward."""

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        """(actions,) how likely each action is to be chosen; 0 where `mask` (actions,) is false."""

    def choose(self, context: Array, rng: np.random.Generator, mask: Array | None = None) -> int:
        """An action, for what is known (features,)."""

    def learn(self, context: Array, action: int, reward: float, probability: float | None = None) -> None:
        """What came of it. `probability` is that with which `action` was chosen; None: as in the last `choose`."""

    def scores(self) -> tuple[Array, Array]:
        """(actions, features) and (actions,): the highest of weight · context + bias is the best known action."""

    def save(self) -> Arrays: ...
    def restore(self, saved: Arrays) -> None: ...


class _Drawn:
    """Draws from `probabilities` and remembers with which probability."""

    last: float = 1.0

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        raise NotImplementedError

    def choose(self, context: Array, rng: np.random.Generator, mask: Array | None = None) -> int:
        chances = self.probabilities(context, mask)
        sums = np.cumsum(chances)
        action = int(np.searchsorted(sums, rng.random() * sums[-1], side="right"))
        self.last = float(chances[action])
        return action


class EpsilonGreedy(_Drawn):
    """The action with the highest mean reward, or with probability ε any one (Sutton & Barto, §2.2). What was never tried goes first."""

    def __init__(self, actions: int, features: int, config: EpsilonGreedyConfig) -> None:
        self.config, self.features = config, features
        self.mean = np.zeros(actions)
        self.count = np.zeros(actions)

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        legal = _legal(mask, len(self.mean))
        hopes = np.where(self.count == 0, np.inf, self.mean)
        best = int(np.argmax(np.where(legal, hopes, -np.inf)))
        chances = np.where(legal, self.config.epsilon / legal.sum(), 0.0)
        chances[best] += 1.0 - self.config.epsilon
        return chances

    def learn(self, context: Array, action: int, reward: float, probability: float | None = None) -> None:
        self.count[action] += 1
        rate = self.config.step or 1.0 / self.count[action]
        self.mean[action] += (finite(reward) - self.mean[action]) * (1.0 if self.count[action] == 1 else rate)

    def scores(self) -> tuple[Array, Array]:
        untried = self.mean.min(initial=np.inf, where=self.count > 0) if self.count.any() else 0.0
        return np.zeros((len(self.mean), self.features)), np.where(self.count > 0, self.mean, untried)

    def save(self) -> Arrays:
        return {"mean": self.mean.copy(), "count": self.count.copy(), "last": np.array(self.last)}

    def restore(self, saved: Arrays) -> None:
        self.mean, self.count, self.last = saved["mean"].copy(), saved["count"].copy(), float(saved["last"])


class Exp3(_Drawn):
    """Weights that grow exponentially with reward ÷ probability (Auer et al. 2002): no assumption on how rewards come about.

    Rewards are put into [0, 1] by the lowest and highest seen so far.
    """

    def __init__(self, actions: int, features: int, config: Exp3Config) -> None:
        self.config, self.features = config, features
        self.log_weights = np.zeros(actions)
        self.range = np.array([np.inf, -np.inf])

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        legal = _legal(mask, len(self.log_weights))
        weights = np.where(legal, np.exp(self.log_weights - self.log_weights[legal].max()), 0.0)
        chances: Array = (1 - self.config.gamma) * weights / weights.sum() + self.config.gamma * legal / legal.sum()
        return chances

    def learn(self, context: Array, action: int, reward: float, probability: float | None = None) -> None:
        self.range = np.array([min(self.range[0], finite(reward)), max(self.range[1], reward)])
        width = self.range[1] - self.range[0]
        gain = (reward - self.range[0]) / width if width > 0 else 0.5
        chance = self.last if probability is None else probability
        self.log_weights[action] += self.config.gamma * gain / chance / len(self.log_weights)
        self.log_weights -= self.log_weights.max()

    def scores(self) -> tuple[Array, Array]:
        return np.zeros((len(self.log_weights), self.features)), self.log_weights.copy()

    def save(self) -> Arrays:
        return {"log_weights": self.log_weights.copy(), "range": self.range.copy(), "last": np.array(self.last)}

    def restore(self, saved: Arrays) -> None:
        self.log_weights, self.range, self.last = saved["log_weights"].copy(), saved["range"].copy(), float(saved["last"])


class LinUcb(_Drawn):
    """Ridge regression of the reward on the context for each action, plus a bonus for what is uncertain (Li et al. 2010, disjoint)."""

    def __init__(self, actions: int, features: int, config: LinUcbConfig) -> None:
        self.config = config
        size = features + 1  # the last one is the intercept
        self.inverse = np.tile(np.eye(size) / config.ridge, (actions, 1, 1))
        self.moment = np.zeros((actions, size))
        self.theta = np.zeros((actions, size))

    def probabilities(self, context: Array, mask: Array | None = None) -> Array:
        x = np.append(np.asarray(context, dtype=np.float64), 1.0)
        spread = np.sqrt(np.maximum(np.einsum("i,aij,j->a", x, self.inverse, x), 0.0))
        bounds = np.where(_legal(mask, len(self.theta)), self.theta @ x + self.config.alpha * spread, -np.inf)
        chances: Array = (np.arange(len(bounds)) == np.argmax(bounds)).astype(np.float64)
        return chances

    def learn(self, context: Array, action: int, reward: float, probability: float | None = None) -> None:
        x = np.append(np.asarray(context, dtype=np.float64), 1.0)
        side = self.inverse[action] @ x
        self.inverse[action] -= np.outer(side, side) / (1.0 + x @ side)  # Sherman & Morrison
        self.moment[action] += finite(reward) * x
        self.theta[action] = self.inverse[action] @ self.moment[action]

    def scores(self) -> tuple[Array, Array]:
        return self.theta[:, :-1].copy(), self.theta[:, -1].copy()

    def save(self) -> Arrays:
        return {"inverse": self.inverse.copy(), "moment": self.moment.copy(), "theta": self.theta.copy(), "last": np.array(self.last)}

    def restore(self, saved: Arrays) -> None:
        self.inverse, self.moment, self.theta = (saved[name].copy() for name in ("inverse", "moment", "theta"))
        self.last = float(saved["last"])


def finite(reward: float) -> float:
    """The reward, if it is a number."""
    if not np.isfinite(reward):
        raise LearningError(f"a reward is {reward}", hint="look at the weights of the objective and at the workload")
    return reward


def _legal(mask: Array | None, actions: int) -> Array:
    return np.ones(actions, dtype=bool) if mask is None else mask


class BanditLearner:
    """One bandit for all environments: it chooses in each, then learns from what all got, in order."""

    def __init__(self, envs: Envs, bandit: Bandit, round_steps: int, seed: int) -> None:
        if envs.schema.rows:
            message = f"bandits choose among a fixed number of actions, and those of a {envs.schema.decision} decision come and go"
            raise UsageError(message, hint="use ppo, dqn or sac")
        self.envs, self.bandit, self.round_steps = envs, bandit, round_steps
        seeds = np.random.SeedSequence(seed).generate_state(2)
        self.rng = np.random.Generator(np.random.PCG64(seeds[0]))
        self._seen = envs.reset(int(seeds[1]))
        self.episodes = Episodes(envs.count)
        self._steps = 0

    @property
    def steps(self) -> int:
        return self._steps

    def update(self) -> Mapping[str, float]:
        """`round_steps` choices in every environment."""
        began, learning = perf_counter(), 0.0
        for _ in range(self.round_steps):
            context, mask = self._seen.context.copy(), self._seen.mask.copy()
            chances = [self.bandit.probabilities(context[e], mask[e]) for e in range(self.envs.count)]
            actions = np.array([self._draw(chance) for chance in chances], dtype=np.int32)
            step = self.envs.step(actions)
            learn_began = perf_counter()
            for e, action in enumerate(actions):
                self.bandit.learn(context[e], int(action), float(step.reward[e]), float(chances[e][action]))
            learning += perf_counter() - learn_began
            self.episodes.add(step.reward, step.done)
            self._seen = step.observation
        self._steps += self.round_steps * self.envs.count
        return {"return": self.episodes.mean(), "time/collect": perf_counter() - began - learning, "time/learn": learning}

    def _draw(self, chances: Array) -> int:
        sums = np.cumsum(chances)
        return int(np.searchsorted(sums, self.rng.random() * sums[-1], side="right"))

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """One linear layer; exploration is left out."""
        weight, bias = self.bandit.scores()
        features = len(self.envs.schema.context)
        spec = NetworkSpec(rows=0, context=features, actions=self.envs.actions, head_layers=(), value_layers=())
        arrays = {
            "context.mean": np.zeros(features, dtype=np.float32),
            "context.scale": np.ones(features, dtype=np.float32),
            "head.0.weight": weight.astype(np.float32),
            "head.0.bias": bias.astype(np.float32),
        }
        return spec, arrays

    def save(self) -> Arrays:
        own = {"steps": np.array(self._steps), "rng": generator_state(self.rng)}
        return own | nested("bandit", self.bandit.save()) | nested("episodes", self.episodes.save()) | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self._steps = int(saved["steps"])
        self.rng = generator_from(saved["rng"])
        self.bandit.restore(part("bandit", saved))
        self.episodes.restore(part("episodes", saved))
        self._seen = self.envs.restore(part("envs", saved))


@learner("epsilon-greedy", title="ε-greedy bandit", config=EpsilonGreedyConfig)
def epsilon_greedy(envs: Envs, config: EpsilonGreedyConfig, seed: int) -> BanditLearner:
    """The best mean so far, or with probability ε any action."""
    return BanditLearner(envs, EpsilonGreedy(envs.actions, len(envs.schema.context), config), config.round_steps, seed)


@learner("exp3", title="EXP3, a bandit against any opponent", config=Exp3Config)
def exp3(envs: Envs, config: Exp3Config, seed: int) -> BanditLearner:
    """Exponential weights."""
    return BanditLearner(envs, Exp3(envs.actions, len(envs.schema.context), config), config.round_steps, seed)


@learner("linucb", title="LinUCB, a bandit linear in the context", config=LinUcbConfig)
def linucb(envs: Envs, config: LinUcbConfig, seed: int) -> BanditLearner:
    """Upper confidence bounds of linear models."""
    return BanditLearner(envs, LinUcb(envs.actions, len(envs.schema.context), config), config.round_steps, seed)
