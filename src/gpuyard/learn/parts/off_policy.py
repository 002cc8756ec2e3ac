"""The base of learners with a replay buffer: collecting, drawing, learning, saving."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation, Step
from gpuyard.errors import LearningError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts.backend import compiled, pack, setup, unpack
from gpuyard.learn.parts.episodes import Episodes
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.normalise import merge_observations, no_statistics, normalised_params
from gpuyard.learn.parts.replay import Batch, Data, Replay, ReplayConfig
from gpuyard.learn.parts.saving import generator_from, generator_state, nested, part
from gpuyard.learn.parts.schedules import COURSES, anneal, warmed_up
from gpuyard.model.fields import ANY, MOST, check_limits
from gpuyard.networks.shapes import NORMALISATION
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import unknown_name

_LOAD_WORDS = ("queue", "load", "arrival", "util", "wait", "demand")  # in names of features that tell regimes apart
_MOST_STRATA = 4096
_LIMITS: Mapping[str, tuple[float, float]] = {
    "discount": (0, 1), "learning_rate": (0, ANY), "steps": (1, MOST), "max_grad_norm": (0, ANY), "batch_size": (1, 1_000_000),
    "steps_per_update": (1, MOST), "updates_per_round": (1, 100_000), "warmup": (0, MOST), "capacity": (1, MOST), "n_step": (1, 1_000),
    "alpha": (0, 10), "beta": (0, 1), "bins": (1, _MOST_STRATA), "warm_up_steps": (0, MOST),
}  # fmt: skip


@dataclass(frozen=True)
class OffPolicyConfig:
    """Settings of every learner with a replay buffer. Steps are choices, counted over all environments."""

    network: str = ""  # see gpuyard.learn.parts.presets; empty: the usual one for the decision
    width: int = 64
    history: int = 0  # how many of the last context features are history and get a regime embedding; 0: no embedding
    hidden: tuple[str, ...] = ()  # context features that the network does not see: it sees 0 in their place
    normalise_observations: bool = True  # to mean 0 and spread 1, by running statistics
    reward_scale: float = 1.0  # factor of rewards in learning: values of about 1 to 100 suit Adam and the Huber loss
    discount: float = 0.99
    learning_rate: float = 5e-4
    schedule: str = "constant"  # how the learning rate falls: constant, linear, exponential, cosine, warm-up-cosine
    warm_up_steps: int = 0  # over which the learning rate rises from 0, whatever the schedule
    steps: int = 1_000_000  # length of the whole training; the learning rate and `beta` change over it
    max_grad_norm: float = 10.0
    batch_size: int = 64
    steps_per_update: int = 4
    updates_per_round: int = 32  # about; the choices of a round are made before its updates
    warmup: int = 1_000  # steps before learning begins
    capacity: int = 100_000
    n_step: int = 1
    prioritised: bool = False
    alpha: float = 0.6
    beta: float = 0.4  # power of the importance weights, rising to 1
    balanced: bool = False  # draw from all observable regimes equally
    balance_by: tuple[str, ...] = ()  # context features; empty: the first two whose names are about load
    bins: int = 4
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_limits("learner", self, _LIMITS, above=("max_grad_norm",))
        COURSES[self.schedule]  # refuses an unknown name


class OffPolicy(ABC):
    """A round chooses in all environments `round_steps` times, then makes all updates that are due in one compiled call.

    Batches of a round are drawn before its first update, so with `prioritised` priorities are refreshed once per round.
    """

    spec: NetworkSpec
    state: Any  # everything that learning changes, as a tree of arrays

    def __init__(self, envs: Envs, config: OffPolicyConfig, seed: int) -> None:
        self.envs, self.config, self.device = envs, config, setup(config.device)
        sequence = np.random.SeedSequence(seed).generate_state(3)
        self.rng = np.random.Generator(np.random.PCG64(int(sequence[0])))
        self.key = jax.random.key(int(sequence[1]))
        self._seen = envs.reset(int(sequence[2]))
        self.replay = self.make_replay(self._seen, _replay_config(config, envs.schema))
        self.episodes = Episodes(envs.count)
        self.normalisation = jax.device_put(no_statistics(len(envs.schema.rows), len(envs.schema.context)), self.device)
        self._visible = visible(envs.schema, config.hidden)
        self.round_steps = max(1, -(-config.updates_per_round * config.steps_per_update // self.choices))
        self.updates = max(1, self.round_steps * self.choices // config.steps_per_update)
        self.steps = 0

    @property
    def choices(self) -> int:
        """Choices that a step of `collect` makes."""
        return self.envs.count

    def make_replay(self, first: Observation, config: ReplayConfig) -> Replay:
        """Make the empty replay buffer."""
        return Replay(first, config)

    # ── what a learner adds ──

    @abstractmethod
    def choose(self, seen: Observation, scaling: Params) -> Array:
        """Choose legal actions (envs,) i4, with exploration. `scaling` holds the normalisation arrays of the network."""

    @abstractmethod
    def improve(
        self, state: Any, scaling: Params, batch: Batch, noise: jax.Array, rate: jax.Array
    ) -> tuple[Any, tuple[jax.Array, dict[str, jax.Array]]]:
        """Make one update, compiled: the state after it, the errors (batch,) and what is shown."""

    @abstractmethod
    def facts(self) -> dict[str, float]:
        """Return what is shown besides."""

    def draw(self) -> Array:
        """Draw the random numbers (updates, …) of a round's updates."""
        return np.zeros((self.updates, 0), np.float32)

    # ── a round ──

    def update(self) -> Mapping[str, float]:
        """Run one round."""
        began = perf_counter()
        self.collect()
        collected = perf_counter()
        shown = self._learn_if_ready()
        times = {"time/collect": collected - began, "time/learn": perf_counter() - collected}
        return {"return": self.episodes.mean(), **shown, **times}

    def collect(self) -> None:
        """Step all environments `round_steps` times, into the replay buffer."""
        scaling = self.scaling()  # the same for a whole round
        for _ in range(self.round_steps):
            kept, actions, step = self.go_on(scaling)
            self.replay.add(kept, actions, step.reward * np.float32(self.config.reward_scale), step.done)
        self.see_newest()

    def go_on(self, scaling: Params) -> tuple[Observation, Array, Step]:
        """Step all environments once: what was seen before, what was chosen, and what came of it."""
        kept = Observation(*(np.array(each) for each in self._seen))  # the step writes over it
        actions = self.choose(kept, scaling)
        step = self.envs.step(actions)
        self.episodes.add(step.reward, step.done, self.steps // self.envs.count)
        self._seen = step.observation
        self.steps += self.envs.count
        return kept, actions, step

    def see_newest(self) -> None:
        """Let what was seen in this round count in the normalisation of observations."""
        if self.config.normalise_observations:  # all rounds count equally, since what was seen in all of them is learned from
            self.normalisation = _merged(self.normalisation, *self.replay.newest(self.round_steps), memory=np.inf)

    def _learn_if_ready(self) -> Mapping[str, float]:
        config = self.config
        if self.steps < config.warmup or self.replay.ready == 0:
            return {}
        beta = anneal("linear", config.beta, 1.0, self.steps / config.steps)
        batches, items = self.replay.sample(self.updates, config.batch_size, self.rng, beta)
        rate = warmed_up(anneal(config.schedule, config.learning_rate, 0.0, self.steps / config.steps), self.steps, config.warm_up_steps)
        self.state, errors, found = self.learn(self.state, self.scaling(), batches, self.draw(), np.float32(rate))
        shown = {name: float(value) for name, value in found.items()} | self.facts()
        if not all(np.isfinite(value) for value in shown.values()):
            raise LearningError(f"learning diverged after {self.steps} steps", hint="lower the learning rate")
        self.replay.learned(items, np.asarray(errors))
        return shown

    @compiled
    def learn(self, state: Any, scaling: Params, batches: Batch, noise: Data, rate: Data) -> tuple[Any, jax.Array, dict[str, jax.Array]]:
        """Make one update after the other: the state after them, the errors (updates, batch) and means of what is shown."""

        def one(state: Any, given: tuple[Batch, jax.Array]) -> tuple[Any, tuple[jax.Array, dict[str, jax.Array]]]:
            return self.improve(state, scaling, *given, rate)

        state, (errors, shown) = jax.lax.scan(one, state, (batches, noise))
        return state, errors, {name: each.mean() for name, each in shown.items()}

    # ── the network and the state ──

    def scaling(self) -> Params:
        """Return the current normalisation arrays of the network."""
        names = [name for name in NORMALISATION if self.envs.schema.rows or name.startswith("context.")]
        found = normalised_params(dict.fromkeys(names, jnp.zeros(0)), self.normalisation)
        return {**found, "context.scale": found["context.scale"] * self._visible}

    def exported(self, arrays: Mapping[str, Any]) -> Arrays:
        """Return plain arrays of trained parameters with the normalisation."""
        return {name: np.asarray(each) for name, each in {**arrays, **self.scaling()}.items()}

    def save(self) -> Arrays:
        """Return the state; the replay buffer is most of its size."""
        own = {"steps": np.array(self.steps), "rng": generator_state(self.rng), "key": np.asarray(jax.random.key_data(self.key))}
        own |= pack("state", self.state) | pack("normalisation", self.normalisation)
        own |= nested("replay", self.replay.save()) | nested("episodes", self.episodes.save())
        return own | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self.steps = int(saved["steps"])
        self.rng = generator_from(saved["rng"])
        self.key = jax.random.wrap_key_data(jnp.asarray(saved["key"]))
        self.state = unpack("state", self.state, saved, self.device)
        self.normalisation = unpack("normalisation", self.normalisation, saved, self.device)
        self.replay.restore(part("replay", saved))
        self.episodes.restore(part("episodes", saved))
        self._seen = self.envs.restore(part("envs", saved))


_merged = jax.jit(merge_observations, static_argnames="memory")


def visible(schema: Schema, hidden: Sequence[str]) -> Array:
    """Return (context,) f4: 0 for the features that the network must not see, else 1."""
    for name in hidden:
        if name not in schema.context:
            raise unknown_name(f"feature of a {schema.decision} decision:", name, schema.context)
    return np.array([name not in hidden for name in schema.context], dtype=np.float32)


def _replay_config(config: OffPolicyConfig, schema: Schema) -> ReplayConfig:
    balance = _balance_features(config, schema) if config.balanced else ()
    return ReplayConfig(config.capacity, config.n_step, config.discount, config.prioritised, config.alpha, balance, config.bins)


def _balance_features(config: OffPolicyConfig, schema: Schema) -> tuple[int, ...]:
    missing = [name for name in config.balance_by if name not in schema.context]
    if missing:
        raise UsageError(f"balanced replay by {missing[0]!r}, which is not observed", hint=f"observed: {', '.join(schema.context)}")
    about_load = tuple(name for name in schema.context if any(word in name for word in _LOAD_WORDS))[:2]
    names = config.balance_by or about_load or schema.context[:2]
    if config.bins ** len(names) > _MOST_STRATA:
        raise UsageError(f"balanced replay with {config.bins} bins of {len(names)} features", hint="use fewer features or bins")
    return tuple(schema.context.index(name) for name in names)
