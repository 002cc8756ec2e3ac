"""Bandits as learners: cheap opponents of learned meta-schedulers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from time import perf_counter

import numpy as np

from gpuyard.envs.base import Envs
from gpuyard.errors import UsageError
from gpuyard.learn.base import Arrays, learner
from gpuyard.learn.parts.episodes import Episodes
from gpuyard.learn.parts.saving import generator_from, generator_state, nested, part
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies.deciders import bandits
from gpuyard.policies.deciders.bandits import Bandit, draw


@dataclass(frozen=True)
class EpsilonGreedyConfig(bandits.EpsilonGreedySettings):
    """Settings of the ε-greedy learner."""

    rollout: int = 32  # steps in each environment per update


@dataclass(frozen=True)
class Exp3Config(bandits.Exp3Settings):
    """Settings of the EXP3 learner."""

    rollout: int = 32  # steps in each environment per update


@dataclass(frozen=True)
class LinUcbConfig(bandits.LinUcbSettings):
    """Settings of the LinUCB learner."""

    rollout: int = 32  # steps in each environment per update


class BanditLearner:
    """Uses one bandit for all environments: it chooses in each, then learns from their rewards in order."""

    def __init__(self, envs: Envs, bandit: Bandit, rollout: int, seed: int) -> None:
        if envs.schema.rows:
            message = f"bandits choose among a fixed number of actions, and those of a {envs.schema.decision} decision come and go"
            raise UsageError(message, hint="use ppo, dqn or sac")
        if rollout < 1:
            raise UsageError(f"bandit: rollout = {rollout} is below 1")
        self.envs, self.bandit, self.rollout = envs, bandit, rollout
        seeds = np.random.SeedSequence(seed).generate_state(2)
        self.rng = np.random.Generator(np.random.PCG64(seeds[0]))
        self._seen = envs.reset(int(seeds[1]))
        self.episodes = Episodes(envs.count)
        self.steps = 0

    def update(self) -> Mapping[str, float]:
        """Choose `rollout` times in every environment."""
        began, learning = perf_counter(), 0.0
        for t in range(self.rollout):
            context, mask = self._seen.context.copy(), self._seen.mask.copy()
            chances = [self.bandit.probabilities(context[e], mask[e]) for e in range(self.envs.count)]
            actions = np.array([draw(chance, self.rng) for chance in chances], dtype=np.int32)
            step = self.envs.step(actions)
            learn_began = perf_counter()
            for e, action in enumerate(actions):
                self.bandit.learn(context[e], int(action), float(step.reward[e]), float(chances[e][action]))
            learning += perf_counter() - learn_began
            self.episodes.add(step.reward, step.done, self.steps // self.envs.count + t)
            self._seen = step.observation
        self.steps += self.rollout * self.envs.count
        return {"return": self.episodes.mean(), "time/collect": perf_counter() - began - learning, "time/learn": learning}

    def network(self) -> tuple[NetworkSpec, Arrays]:
        """Return one linear layer, without exploration."""
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
        own = {"steps": np.array(self.steps), "rng": generator_state(self.rng)}
        return own | nested("bandit", self.bandit.save()) | nested("episodes", self.episodes.save()) | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self.steps = int(saved["steps"])
        self.rng = generator_from(saved["rng"])
        self.bandit.restore(part("bandit", saved))
        self.episodes.restore(part("episodes", saved))
        self._seen = self.envs.restore(part("envs", saved))


@learner("epsilon-greedy", title="ε-greedy bandit", config=EpsilonGreedyConfig)
def epsilon_greedy(envs: Envs, config: EpsilonGreedyConfig, seed: int) -> BanditLearner:
    """Chooses the action with the best mean so far, or with probability ε any."""
    return BanditLearner(envs, bandits.EpsilonGreedy(envs.actions, len(envs.schema.context), config), config.rollout, seed)


@learner("exp3", title="EXP3, a bandit against any opponent", config=Exp3Config)
def exp3(envs: Envs, config: Exp3Config, seed: int) -> BanditLearner:
    """Chooses with probabilities that grow exponentially with what an action has earned."""
    return BanditLearner(envs, bandits.Exp3(envs.actions, len(envs.schema.context), config), config.rollout, seed)


@learner("linucb", title="LinUCB, a bandit linear in the context", config=LinUcbConfig)
def linucb(envs: Envs, config: LinUcbConfig, seed: int) -> BanditLearner:
    """Chooses by the upper confidence bounds of linear models."""
    return BanditLearner(envs, bandits.LinUcb(envs.actions, len(envs.schema.context), config), config.rollout, seed)
