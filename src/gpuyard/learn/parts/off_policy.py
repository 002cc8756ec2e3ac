"""What learners that learn from a replay buffer have in common: collecting, drawing, saving."""

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
from gpuyard.envs.base import Envs, Observation
from gpuyard.errors import LearningError, UsageError
from gpuyard.features.schema import Schema
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts.episodes import Episodes
from gpuyard.learn.parts.jax_setup import setup
from gpuyard.learn.parts.networks import Params
from gpuyard.learn.parts.normalise import Seen, merge, normalised_params, nothing_seen
from gpuyard.learn.parts.replay import Batch, Replay, ReplayConfig
from gpuyard.learn.parts.saving import generator_from, generator_state, nested, part
from gpuyard.learn.parts.schedules import COURSES, anneal
from gpuyard.learn.parts.state import pack, unpack
from gpuyard.model.fields import ANY, MOST, check_limits
from gpuyard.networks.shapes import NORMALISATION
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import unknown_name

_LOAD_WORDS = ("queue", "load", "arrival", "util", "wait", "demand")  # in names of features that tell a regime
_MOST_STRATA = 4096
_LIMITS: Mapping[str, tuple[float, float]] = {
    "discount": (0, 1), "learning_rate": (0, ANY), "steps": (1, MOST), "gradient_clip": (0, ANY), "batch": (1, 1_000_000),
    "steps_per_update": (1, MOST), "updates_per_round": (1, 100_000), "warmup": (0, MOST), "capacity": (1, MOST), "n_step": (1, 1_000),
    "alpha": (0, 10), "beta": (0, 1), "bins": (1, _MOST_STRATA),
}  # fmt: skip


@dataclass(frozen=True)
class OffPolicyConfig:
    """Of every learner with a replay buffer. Steps are choices, counted over all environments."""

    network: str = ""  # a preset of gpuyard.learn.parts.networks; none: the usual one for the decision
    width: int = 64
    history: int = 0  # the last features of the context that are history and get a regime embedding; 0: no embedding
    hidden: tuple[str, ...] = ()  # context features that are kept from the network, which sees 0 in their place
    normalise: bool = True  # observations to mean 0 and spread 1, by running statistics
    reward_scale: float = 1.0  # rewards are learned from multiplied by it: values of about 1 to 100 suit Adam and the Huber loss
    discount: float = 0.99
    learning_rate: float = 5e-4
    rate: str = "constant"  # how it falls: constant, linear, exponential, cosine, warm-up-cosine
    steps: int = 1_000_000  # of the whole training; decides the courses of the learning rate and of `beta`
    gradient_clip: float = 10.0  # largest norm
    batch: int = 64
    steps_per_update: int = 4
    updates_per_round: int = 32  # about; the choices of a round are made before its updates
    warmup: int = 1_000  # steps before learning begins
    capacity: int = 100_000
    n_step: int = 1
    prioritised: bool = False
    alpha: float = 0.6
    beta: float = 0.4  # power of the importance weights, rising to 1
    balanced: bool = False  # draw from all observable regimes alike
    balance_by: tuple[str, ...] = ()  # context features; none: the first two whose names speak of load
    bins: int = 4
    device: str = "cpu"

    def __post_init__(self) -> None:
        check_limits("learner", self, _LIMITS, above=("gradient_clip",))
        COURSES[self.rate]  # refuses an unknown name

    @property
    def discounting(self) -> float:
        """What the next step's value counts."""
        return self.discount


class OffPolicy(ABC):
    """A round is: choose in all environments `round_steps` times, then make all updates that are due in one compiled call.

    Batches of a round are drawn before its first update, so with `prioritised` priorities are refreshed once per round.
    """

    spec: NetworkSpec

    def __init__(self, envs: Envs, config: OffPolicyConfig, seed: int) -> None:
        self.envs, self.base, self.device = envs, config, setup(config.device)
        sequence = np.random.SeedSequence(seed).generate_state(3)
        self.rng = np.random.Generator(np.random.PCG64(int(sequence[0])))
        self.key = jax.random.key(int(sequence[1]))
        self._seen = envs.reset(int(sequence[2]))
        self.replay = Replay(self._seen, _replay_config(config, envs.schema))
        self.episodes = Episodes(envs.count)
        self.normalisation = jax.device_put(nothing_seen(len(envs.schema.rows), len(envs.schema.context)), self.device)
        self._visible = visible(envs.schema, config.hidden)
        self.round_steps = max(1, -(-config.updates_per_round * config.steps_per_update // envs.count))
        self.updates = max(1, self.round_steps * envs.count // config.steps_per_update)
        self._steps = 0

    @property
    def steps(self) -> int:
        return self._steps

    @abstractmethod
    def choose(self, seen: Observation, scaling: Params) -> Array:
        """Legal actions (envs,) i4, with exploration. `scaling` holds the normalisation arrays of the network."""

    @abstractmethod
    def learn(self, batches: Batch, scaling: Params, rate: float) -> tuple[Array, Mapping[str, float]]:
        """One update for each of the batches, at this learning rate; errors (updates, batch) and what to show."""

    @property
    @abstractmethod
    def state(self) -> Any:
        """All that learning changes, as a tree of arrays."""

    @state.setter
    @abstractmethod
    def state(self, state: Any) -> None: ...

    def update(self) -> Mapping[str, float]:
        """One round."""
        began = perf_counter()
        self._collect()
        collected = perf_counter()
        shown = self._learn_if_ready()
        times = {"time/collect": collected - began, "time/learn": perf_counter() - collected}
        return {"return": self.episodes.mean(), **shown, **times}

    def scaling(self) -> Params:
        """The normalisation arrays of the network, as they are now."""
        names = [name for name in NORMALISATION if self.envs.schema.rows or name.startswith("context.")]
        found = normalised_params(dict.fromkeys(names, jnp.zeros(0)), self.normalisation)
        return {**found, "context.scale": found["context.scale"] * self._visible}

    def _collect(self) -> None:
        scaling = self.scaling()  # the same for a whole round
        for _ in range(self.round_steps):
            kept = Observation(*(np.array(each) for each in self._seen))  # the step writes over it
            actions = self.choose(kept, scaling)
            step = self.envs.step(actions)
            self.episodes.add(step.reward, step.done)
            self.replay.add(kept, actions, step.reward * np.float32(self.base.reward_scale), step.done)
            self._seen = step.observation
            self._steps += self.envs.count
        if self.base.normalise:
            self.normalisation = _counted_in(self.normalisation, *self.replay.newest(self.round_steps))

    def _learn_if_ready(self) -> Mapping[str, float]:
        if self._steps < self.base.warmup or self.replay.ready == 0:
            return {}
        beta = anneal("linear", self.base.beta, 1.0, self._steps / self.base.steps)
        batches, items = self.replay.sample(self.updates, self.base.batch, self.rng, beta)
        rate = anneal(self.base.rate, self.base.learning_rate, 0.0, self._steps / self.base.steps)
        errors, shown = self.learn(batches, self.scaling(), rate)
        if not all(np.isfinite(value) for value in shown.values()):
            raise LearningError(f"learning diverged after {self._steps} steps", hint="lower the learning rate")
        self.replay.learned(items, errors)
        return shown

    def save(self) -> Arrays:
        """Replay buffer included: it is most of the size."""
        own = {"steps": np.array(self._steps), "rng": generator_state(self.rng), "key": np.asarray(jax.random.key_data(self.key))}
        own |= pack("state", self.state) | pack("normalisation", self.normalisation)
        own |= nested("replay", self.replay.save()) | nested("episodes", self.episodes.save())
        return own | nested("envs", self.envs.save())

    def restore(self, saved: Arrays) -> None:
        self._steps = int(saved["steps"])
        self.rng = generator_from(saved["rng"])
        self.key = jax.random.wrap_key_data(jnp.asarray(saved["key"]))
        self.state = unpack("state", self.state, saved, self.device)
        self.normalisation = unpack("normalisation", self.normalisation, saved, self.device)
        self.replay.restore(part("replay", saved))
        self.episodes.restore(part("episodes", saved))
        self._seen = self.envs.restore(part("envs", saved))


@jax.jit
def _counted_in(seen: Seen, rows: jax.Array, context: jax.Array, mask: jax.Array) -> Seen:
    """Statistics with one more round: all rounds count alike, as what was seen in all of them is learned from."""
    seen = seen._replace(context=merge(seen.context, context, memory=np.inf))
    return seen._replace(rows=merge(seen.rows, rows, mask, memory=np.inf)) if rows.size else seen


def visible(schema: Schema, hidden: Sequence[str]) -> Array:
    """(context,) f4: 0 for the features that are kept from the network, else 1."""
    for name in hidden:
        if name not in schema.context:
            raise unknown_name(f"feature of a {schema.decision} decision:", name, schema.context)
    return np.array([name not in hidden for name in schema.context], dtype=np.float32)


def merged(params: Params, scaling: Params) -> Params:
    """Trained parameters and normalisation: what gpuyard.learn.parts.networks evaluates."""
    return {**params, **scaling}


def _replay_config(config: OffPolicyConfig, schema: Schema) -> ReplayConfig:
    balance = _balance_features(config, schema) if config.balanced else ()
    return ReplayConfig(config.capacity, config.n_step, config.discount, config.prioritised, config.alpha, balance, config.bins)


def _balance_features(config: OffPolicyConfig, schema: Schema) -> tuple[int, ...]:
    missing = [name for name in config.balance_by if name not in schema.context]
    if missing:
        raise UsageError(f"balanced replay by {missing[0]!r}, which is not observed", hint=f"observed: {', '.join(schema.context)}")
    speaking = tuple(name for name in schema.context if any(word in name for word in _LOAD_WORDS))[:2]
    names = config.balance_by or speaking or schema.context[:2]
    if config.bins ** len(names) > _MOST_STRATA:
        raise UsageError(f"balanced replay with {config.bins} bins of {len(names)} features", hint="use fewer features or bins")
    return tuple(schema.context.index(name) for name in names)
