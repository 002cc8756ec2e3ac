"""What was seen and done, kept for learning: rings of preallocated arrays, each observation stored once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.errors import DataError, LearningError
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts import memory
from gpuyard.learn.parts.saving import nested, part
from gpuyard.learn.parts.strata import Strata
from gpuyard.learn.parts.sum_tree import SumTree

_WHAT, _HINT = "the replay buffer", "lower learner.capacity, or the rows that are seen (env.window)"


@dataclass(frozen=True)
class ReplayConfig:
    """How experience is kept and drawn."""

    capacity: int = 100_000  # choices kept, over all environments
    n_step: int = 1  # rewards summed before the value of what was reached is taken
    discount: float = 0.99
    prioritised: bool = False  # by the size of the last error (Schaul et al. 2016)
    alpha: float = 0.6  # 0: all alike, 1: in proportion to the error
    balance: tuple[int, ...] = ()  # context features that make the strata of balanced replay; none: not balanced
    bins: int = 4  # strata along each of them


Data = Any  # an array of numpy as it is drawn, of JAX within an update


class Batch(NamedTuple):
    """Transitions of n steps, for a leading shape of (updates, batch)."""

    rows: Data
    context: Data
    mask: Data
    action: Data  # i4
    returns: Data  # f4: Σ discount^k · reward over the n steps, or up to the end of the episode
    discount: Data  # f4: what the value of the next observation counts; 0 where the episode ended
    next_rows: Data
    next_context: Data
    next_mask: Data
    weight: Data  # f4: importance weights, at most 1


class Replay:
    """A ring of `capacity` / envs steps of all environments.

    An item is one choice of one environment; its number is slot × envs + environment. The observation it led to is that of the
    next slot. The newest `n_step` slots cannot be drawn yet: what they led to is not there.
    """

    def __init__(self, first: Observation, config: ReplayConfig) -> None:
        self.config = config
        self.envs = len(first.context)
        self.slots = max(config.capacity // self.envs, config.n_step + 1)
        self.items = self.slots * self.envs
        self.added = 0  # steps of all environments ever added
        self.highest = 1.0  # priority of what was not yet learned from
        shapes = _shapes(first)
        size = self._bytes(sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in shapes.values()))
        memory.refuse_if_too_large(_WHAT, size, _HINT)
        try:
            self.columns = {name: np.zeros((self.slots, *shape), dtype=kind) for name, (shape, kind) in shapes.items()}
            self.tree = SumTree(self.items) if config.prioritised else None
            self.strata = Strata(self.items, config.bins) if config.balance else None
        except MemoryError:
            raise memory.too_large(_WHAT, size, _HINT) from None

    def _bytes(self, of_slot: int) -> int:
        return of_slot * self.slots + (SumTree.bytes_for(self.items) if self.config.prioritised else 0)

    @property
    def ready(self) -> int:
        """Items that can be drawn."""
        return max(0, min(self.added, self.slots) - self.config.n_step) * self.envs

    def add(self, seen: Observation, action: Array, reward: Array, done: Array) -> None:
        """One step of all environments: what was seen before it, what was chosen, what came of it."""
        slot = self.added % self.slots
        for name, values in zip(_COLUMNS, (*seen, action, reward, done), strict=True):
            self.columns[name][slot] = values
        self.added += 1
        if self.strata is not None:
            self.strata.add(self._items_of(slot), self.columns["context"][slot][:, list(self.config.balance)])
        if self.tree is not None:
            self.tree.set(self._items_of(slot), 0.0)
            if self.added > self.config.n_step:  # with this step an earlier one can be drawn
                ripe = (slot - self.config.n_step) % self.slots
                self.tree.set(self._items_of(ripe), self.highest**self.config.alpha)

    def newest(self, steps: int) -> tuple[Array, Array, Array]:
        """Rows, context and mask (steps, envs, …) of the last steps, as many as there are."""
        slots = np.arange(self.added - min(steps, self.slots), self.added) % self.slots
        rows, context, mask = (self.columns[name][slots] for name in _SEEN)
        return rows, context, mask

    def _items_of(self, slot: int) -> Array:
        return np.arange(slot * self.envs, (slot + 1) * self.envs)

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Array, Array]:
        """Numbers of `count` items, with replacement, and their importance weights raised to `beta`, unscaled."""
        if self.ready == 0:
            raise LearningError("nothing can be drawn from an empty replay buffer", hint="collect more steps before learning")
        if self.strata is not None:
            weights = self.tree.weights if self.tree is not None else None
            return self.strata.draw(count, self._drawable(), weights, rng, beta)
        if self.tree is not None:
            spread = (np.arange(count) + rng.random(count)) * (self.tree.total / count)  # one from each of `count` equal parts
            items = self.tree.find(rng.permutation(spread))
            chance = self.tree.weights[items] / self.tree.total
            return items, (self.ready * chance) ** -beta
        steps = self.ready // self.envs
        slots = (self._oldest() + rng.integers(0, steps, size=count)) % self.slots
        return slots * self.envs + rng.integers(0, self.envs, size=count), np.ones(count)

    def _oldest(self) -> int:
        return max(0, self.added - self.slots) % self.slots

    def _drawable(self) -> Array:
        """(items,) bool."""
        able = np.zeros((self.slots, self.envs), dtype=bool)
        able[(self._oldest() + np.arange(self.ready // self.envs)) % self.slots] = True
        return able.reshape(-1)

    def sample(self, updates: int, batch: int, rng: np.random.Generator, beta: float = 1.0) -> tuple[Batch, Array]:
        """`updates` batches and the numbers of their items (updates, batch). Weights are scaled to at most 1 in each batch."""
        items, weights = self.draw(updates * batch, rng, beta)
        weights = weights.reshape(updates, batch)
        weights = (weights / weights.max(axis=1, keepdims=True)).astype(np.float32)
        shape = (updates, batch)
        slots, envs = np.divmod(items.reshape(shape), self.envs)
        returns, discount = self._returns(slots, envs)
        after = (slots + self.config.n_step) % self.slots
        rows, context, mask = (self.columns[name][slots, envs] for name in _SEEN)
        next_rows, next_context, next_mask = (self.columns[name][after, envs] for name in _SEEN)
        action = self.columns["action"][slots, envs]
        found = Batch(rows, context, mask, action, returns, discount, next_rows, next_context, next_mask, weights)
        return found, items.reshape(shape)

    def _returns(self, slots: Array, envs: Array) -> tuple[Array, Array]:
        """Discounted sum of n rewards, no further than the end of the episode; discount of what follows."""
        total = np.zeros(slots.shape)
        factor = np.ones(slots.shape)
        for k in range(self.config.n_step):
            at = (slots + k) % self.slots
            total += factor * self.columns["reward"][at, envs]
            factor *= self.config.discount * ~self.columns["done"][at, envs]
        return total.astype(np.float32), factor.astype(np.float32)

    def learned(self, items: Array, errors: Array) -> None:
        """The sizes of the errors of items just learned from become their priorities; of an item named twice the last counts."""
        if self.tree is None:
            return
        priority = np.abs(errors.reshape(-1).astype(np.float64)) + 1e-6
        self.highest = max(self.highest, float(priority.max()))
        self.tree.set(items.reshape(-1), priority**self.config.alpha)

    def save(self) -> Arrays:
        """Filled slots only."""
        filled = min(self.added, self.slots)
        saved = {f"columns/{name}": values[:filled].copy() for name, values in self.columns.items()}
        saved["added"] = np.array(self.added)
        saved["highest"] = np.array(self.highest)
        if self.tree is not None:
            saved["tree"] = self.tree.nodes.copy()
        return saved | (nested("strata", self.strata.save()) if self.strata is not None else {})

    def restore(self, saved: Arrays) -> None:
        """Go on from there; what another capacity or observation was saved from is refused."""
        self.added = int(saved["added"])
        filled = min(self.added, self.slots)
        for name, column in self.columns.items():
            values = saved.get(f"columns/{name}")
            if values is None or values.shape != (filled, *column.shape[1:]):
                raise DataError(f"the saved replay buffer does not fit ({name})", hint="resume with the settings it was saved with")
            column[:filled] = values
        self.highest = float(saved["highest"])
        if self.tree is not None:
            self.tree.nodes[:] = saved["tree"]
        if self.strata is not None:
            self.strata.restore(part("strata", saved))


_SEEN = ("rows", "context", "mask")
_COLUMNS = (*_SEEN, "action", "reward", "done")


def _shapes(first: Observation) -> dict[str, tuple[tuple[int, ...], str]]:
    envs = (len(first.context),)
    return {
        "rows": (first.rows.shape, "f4"),
        "context": (first.context.shape, "f4"),
        "mask": (first.mask.shape, "?"),
        "action": (envs, "i4"),
        "reward": (envs, "f4"),
        "done": (envs, "?"),
    }
