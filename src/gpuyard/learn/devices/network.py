"""A small Q-network of the seconds that a task takes on each kind of device, which goes on learning while it decides, with replay.

The action is the kind of device, its cost the seconds that the task then takes. The target has one step, since what comes after a task
is in the queues, which are observed. The network is trained on a profile first, then on what is measured.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import pairwise
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import optax

from gpuyard.arrays import Array
from gpuyard.learn.base import Arrays
from gpuyard.learn.devices.models import KINDS, DurationModel, Profile


@dataclass(frozen=True)
class OnlineConfig:
    """Settings of the network; the first four are for training on a profile, the others for learning while it decides."""

    layers: tuple[int, ...] = (32, 32)
    updates: int = 2000
    batch_size: int = 64
    learning_rate: float = 3e-3
    learning: bool = True  # False: frozen
    online_learning_rate: float = 1e-2
    online_updates: int = 16  # after each decision at which a task has ended
    capacity: int = 256  # measured tasks that are kept, the latest ones


def inputs_of(facts: Array) -> Array:
    """Return (tasks, 4) f4: log size, intensity, memory / 8 GB and its logarithm; the scale does not depend on the tasks."""
    size, intensity, memory = np.asarray(facts, np.float64).T
    columns = (np.log(np.maximum(size, 1e-3)), 2 * intensity - 1, memory / 8, np.log2(1 + memory) / 2 - 1)
    return np.stack(columns, axis=1).astype(np.float32)


class NetworkDurations(DurationModel):
    """Log seconds by a network with tanh layers. `weights` are plain arrays."""

    def __init__(self, weights: Arrays, seed: int, config: OnlineConfig | None = None) -> None:
        self.config = config or OnlineConfig()
        self._weights = {name: jnp.asarray(value) for name, value in weights.items()}
        self._state = _optimizer(self.config.online_learning_rate).init(self._weights)
        self._rng = np.random.default_rng([seed, 4])
        self._inputs = np.zeros((self.config.capacity, 4), np.float32)
        self._kind = np.zeros(self.config.capacity, np.int32)
        self._target = np.zeros(self.config.capacity, np.float32)
        self.measured = 0  # tasks learned from

    @classmethod
    def trained(cls, data: Profile, seed: int, config: OnlineConfig | None = None) -> NetworkDurations:
        """Train a network on a profile, where every task was measured on both kinds."""
        config = config or OnlineConfig()
        rng = np.random.default_rng([seed, 3])
        weights = _initial(rng, config.layers)
        picks = rng.integers(0, len(data), (config.updates, config.batch_size))
        every = np.ones((len(data), len(KINDS)), np.float32)
        state = _optimizer(config.learning_rate).init(weights)
        weights, _ = _descend(
            config.learning_rate, weights, state, inputs_of(data.facts), np.log(data.seconds).astype(np.float32), every, picks
        )
        return cls({name: np.asarray(value) for name, value in weights.items()}, seed, config)

    def fresh(self, seed: int, **changes: Any) -> NetworkDurations:
        """Return another model with the same weights and an empty memory."""
        return NetworkDurations(self.weights, seed, replace(self.config, **changes))

    @property
    def weights(self) -> Arrays:
        """`0.weight` (out, in), `0.bias` (out,), … f4."""
        return {name: np.asarray(value) for name, value in self._weights.items()}

    def predict(self, facts: Array) -> Array:
        inputs = inputs_of(facts)
        padded = np.zeros((1 << (len(inputs) - 1).bit_length(), 4), np.float32)  # few shapes, so that little is compiled
        padded[: len(inputs)] = inputs
        return np.exp(np.clip(np.asarray(_forward(self._weights, padded), np.float64)[: len(inputs)], -9.0, 14.0))

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        """Store the tasks, and learn from what is stored."""
        if not self.config.learning:
            return False
        for row, k, target in zip(inputs_of(facts), kind.tolist(), np.log(seconds).tolist(), strict=True):
            at = self.measured % self.config.capacity
            self._inputs[at], self._kind[at], self._target[at] = row, k, target
            self.measured += 1
        stored = min(self.measured, self.config.capacity)
        picks = self._rng.integers(0, stored, (self.config.online_updates, self.config.batch_size))
        chosen = np.eye(len(KINDS), dtype=np.float32)[self._kind]
        targets = np.broadcast_to(self._target[:, None], chosen.shape)
        self._weights, self._state = _descend(
            self.config.online_learning_rate, self._weights, self._state, self._inputs, targets, chosen, picks
        )
        return True


@cache
def _optimizer(rate: float) -> Any:
    return optax.chain(optax.clip_by_global_norm(10.0), optax.adam(rate))


def _initial(rng: np.random.Generator, layers: tuple[int, ...]) -> dict[str, Any]:
    widths = (4, *layers, len(KINDS))
    weights = {}
    for i, (before, after) in enumerate(pairwise(widths)):
        weights[f"{i}.weight"] = jnp.asarray(rng.normal(0, before**-0.5, (after, before)), jnp.float32)
        weights[f"{i}.bias"] = jnp.zeros(after, jnp.float32)
    return weights


@jax.jit
def _forward(weights: dict[str, Any], x: Any) -> Any:
    depth = len(weights) // 2
    for i in range(depth):
        x = x @ weights[f"{i}.weight"].T + weights[f"{i}.bias"]
        x = jnp.tanh(x) if i < depth - 1 else x
    return x


@partial(jax.jit, static_argnums=0)
def _descend(rate: float, weights: Any, state: Any, inputs: Any, targets: Any, known: Any, picks: Any) -> tuple[Any, Any]:
    """Make one gradient step for each row of `picks` (steps, batch); `known` (samples, kinds) says which targets count."""
    optimizer = _optimizer(rate)

    def loss(weights: Any, pick: Any) -> Any:
        errors = (_forward(weights, inputs[pick]) - targets[pick]) * known[pick]
        return (errors**2).sum() / jnp.maximum(known[pick].sum(), 1.0)

    def step(carry: Any, pick: Any) -> Any:
        weights, state = carry
        updates, state = optimizer.update(jax.grad(loss)(weights, pick), state, weights)
        return (optax.apply_updates(weights, updates), state), None

    return jax.lax.scan(step, (weights, state), picks)[0]
