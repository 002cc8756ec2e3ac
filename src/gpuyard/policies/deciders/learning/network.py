"""Small networks that go on learning while they decide, in plain numpy: tanh layers, Adam, clipped gradients.

At this size (about 1,400 weights) a step on 128 samples takes 0.13 ms of processor time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.policies.deciders.learning.models import KINDS, DurationModel, Profile, seconds_of

INPUTS = 4  # of a task
_NORM = 10.0  # largest gradient
_BETA1, _BETA2, _TINY = 0.9, 0.999, 1e-8  # of Adam (Kingma and Ba 2015)


class SmallNetwork:
    """A network with tanh layers and a linear end. All weights lie in one vector, so that a step of Adam is a few operations."""

    def __init__(self, widths: tuple[int, ...], flat: Array) -> None:
        self.widths = widths
        self.flat: Array = np.array(flat, np.float64)  # a copy
        self._layers = _views(self.flat, widths)
        self._gradient = np.zeros_like(self.flat)
        self._slopes = _views(self._gradient, widths)
        self._first, self._second, self.steps = np.zeros_like(self.flat), np.zeros_like(self.flat), 0

    @classmethod
    def drawn(cls, rng: np.random.Generator, widths: tuple[int, ...], last: float = 1.0) -> SmallNetwork:
        """Draw weights with standard deviation 1/√inputs, those of the last layer times `last`; biases are 0."""
        flat = np.zeros(sum((before + 1) * after for before, after in pairwise(widths)))
        layers = _views(flat, widths)
        for k, (weights, _) in enumerate(layers):
            size = last if k == len(layers) - 1 else 1.0
            weights[:] = rng.normal(0, size * len(weights) ** -0.5, weights.shape)
        return cls(widths, flat)

    def copy(self) -> SmallNetwork:
        """Return a network with the same weights and no past."""
        return SmallNetwork(self.widths, self.flat)

    def __call__(self, x: Array) -> Array:
        """Return (samples, outputs) for x (samples, inputs)."""
        return self._forward(x)[-1]

    def _forward(self, x: Array) -> list[Array]:
        seen = [x]
        for k, (weights, bias) in enumerate(self._layers):
            x = x @ weights + bias
            x = np.tanh(x) if k < len(self._layers) - 1 else x
            seen.append(x)
        return seen

    def step(self, x: Array, action: Array, target: Array, rate: float) -> float:
        """Make one step towards outputs `target` (samples,) of the actions (samples,) at x; return the mean squared error before it."""
        seen, rows = self._forward(x), np.arange(len(x))
        error = seen[-1][rows, action] - target
        slope = np.zeros_like(seen[-1])
        slope[rows, action] = 2.0 * error / len(x)
        for k in range(len(self._layers) - 1, -1, -1):
            self._slopes[k][0][:] = seen[k].T @ slope
            self._slopes[k][1][:] = slope.sum(axis=0)
            if k:
                slope = (slope @ self._layers[k][0].T) * (1.0 - seen[k] ** 2)
        self._descend(rate)
        return float((error**2).mean())

    def _descend(self, rate: float) -> None:
        gradient = self._gradient
        norm = float(np.sqrt(gradient @ gradient))
        if norm > _NORM:
            gradient *= _NORM / norm
        self.steps += 1
        self._first += (1 - _BETA1) * (gradient - self._first)
        self._second += (1 - _BETA2) * (gradient**2 - self._second)
        size = rate * np.sqrt(1 - _BETA2**self.steps) / (1 - _BETA1**self.steps)
        self.flat -= size * self._first / (np.sqrt(self._second) + _TINY)


def _views(flat: Array, widths: tuple[int, ...]) -> list[tuple[Array, Array]]:
    """Return weights (inputs, outputs) and bias (outputs,) of each layer, as parts of one vector."""
    found, at = [], 0
    for before, after in pairwise(widths):
        found.append((flat[at : at + before * after].reshape(before, after), flat[at + before * after : at + (before + 1) * after]))
        at += (before + 1) * after
    return found


class LatestSamples:
    """The latest samples, as columns; when it is full the oldest go."""

    def __init__(self, capacity: int, **columns: tuple[tuple[int, ...], str]) -> None:
        self.capacity, self.added = capacity, 0
        self._columns = {name: np.zeros((capacity, *shape), kind) for name, (shape, kind) in columns.items()}

    def __len__(self) -> int:
        return min(self.added, self.capacity)

    def __getitem__(self, name: str) -> Array:
        return self._columns[name]

    def add(self, **values: Any) -> None:
        for name, value in values.items():
            self._columns[name][self.added % self.capacity] = value
        self.added += 1


@dataclass(frozen=True)
class OnlineConfig:
    """Settings of the network of seconds; the first four are for training on a profile, the others for learning while it decides."""

    layers: tuple[int, ...] = (32, 32)
    updates: int = 2000
    batch_size: int = 64
    learning_rate: float = 3e-3
    learning: bool = True  # False: frozen
    online_learning_rate: float = 1e-2
    online_updates: int = 16  # after each decision at which a task has ended
    capacity: int = 256  # measured tasks that are kept, the latest ones


def inputs_of(facts: Array) -> Array:
    """Return (tasks, 4): log size, intensity, memory / 8 GB and its logarithm; the scale does not depend on the tasks."""
    size, intensity, memory = np.asarray(facts, np.float64).T
    columns = (np.log(np.maximum(size, 1e-3)), 2 * intensity - 1, memory / 8, np.log2(1 + memory) / 2 - 1)
    return np.stack(columns, axis=1)


class NetworkDurations(DurationModel):
    """Log seconds by a network, which learns with replay from each task that was measured, on the kind of device that it ran on."""

    def __init__(self, network: SmallNetwork, seed: int, config: OnlineConfig | None = None) -> None:
        self.config = config or OnlineConfig()
        self.network = network.copy()
        self._rng = np.random.default_rng([seed, 4])
        self._measured = LatestSamples(self.config.capacity, inputs=((INPUTS,), "f8"), kind=((), "i8"), target=((), "f8"))

    @classmethod
    def trained(cls, data: Profile, seed: int, config: OnlineConfig | None = None) -> NetworkDurations:
        """Train a network on a profile, where every task was measured on both kinds."""
        config = config or OnlineConfig()
        rng = np.random.default_rng([seed, 3])
        network = SmallNetwork.drawn(rng, (INPUTS, *config.layers, len(KINDS)))
        inputs, targets = inputs_of(data.facts), np.log(data.seconds)
        both = np.repeat(np.arange(len(KINDS)), config.batch_size)
        for pick in rng.integers(0, len(data), (config.updates, config.batch_size)):
            twice = np.tile(pick, len(KINDS))
            network.step(inputs[twice], both, targets[twice, both], config.learning_rate)
        return cls(network, seed, config)

    def fresh(self, seed: int, **changes: Any) -> NetworkDurations:
        """Return another model with the same weights and an empty memory."""
        return NetworkDurations(self.network, seed, replace(self.config, **changes))

    @property
    def measured(self) -> int:
        """Tasks learned from."""
        return self._measured.added

    def predict(self, facts: Array) -> Array:
        return seconds_of(self.network(inputs_of(facts)))

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        """Store the tasks, and learn from what is stored."""
        if not self.config.learning:
            return False
        memory = self._measured
        for row, k, target in zip(inputs_of(facts), kind.tolist(), np.log(seconds).tolist(), strict=True):
            memory.add(inputs=row, kind=k, target=target)
        for pick in self._rng.integers(0, len(memory), (self.config.online_updates, self.config.batch_size)):
            self.network.step(memory["inputs"][pick], memory["kind"][pick], memory["target"][pick], self.config.online_learning_rate)
        return True


def network_of(arrays: Mapping[str, Array], name: str, inputs: int, where: str) -> SmallNetwork:
    """Read `NAME.flat` and `NAME.widths` as a network of that many inputs and an output for each kind of device; others are refused."""
    flat, widths = arrays.get(f"{name}.flat"), arrays.get(f"{name}.widths")
    if flat is None or widths is None or flat.dtype != np.float64 or widths.dtype != np.int64 or flat.ndim != 1 or widths.ndim != 1:
        raise DataError(f"{where}: has no network {name!r}")
    shape = tuple(widths.tolist())
    fits = 2 <= len(shape) <= 8 and all(0 < width <= 4096 for width in shape) and (shape[0], shape[-1]) == (inputs, len(KINDS))
    if not fits or len(flat) != sum((before + 1) * after for before, after in pairwise(shape)) or not np.isfinite(flat).all():
        raise DataError(f"{where}: the network {name!r} is broken")
    return SmallNetwork(shape, flat)
