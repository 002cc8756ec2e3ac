"""The replay buffer: rings of preallocated arrays in which each observation is stored once."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Observation
from gpuyard.errors import DataError, LearningError
from gpuyard.learn.base import Arrays
from gpuyard.learn.parts.backend import refuse_if_too_large, too_large
from gpuyard.learn.parts.saving import nested, part

_WHAT, _HINT = "the replay buffer", "lower learner.capacity, or the rows that are seen (env.window)"


@dataclass(frozen=True)
class ReplayConfig:
    """Settings of the replay buffer."""

    capacity: int = 100_000  # choices kept, over all environments
    n_step: int = 1  # rewards summed before the value of the observation reached
    discount: float = 0.99
    prioritised: bool = False  # by the size of the last error (Schaul et al. 2016)
    alpha: float = 0.6  # 0: uniformly, 1: in proportion to the error
    balance: tuple[int, ...] = ()  # context features that make the strata of balanced replay; empty: not balanced
    bins: int = 4  # strata along each of them


Data = Any  # a numpy array when drawn, a JAX array within an update


class Batch(NamedTuple):
    """Transitions over n steps, with leading axes (updates, batch)."""

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

    @property
    def seen(self) -> Observation:
        return Observation(self.rows, self.context, self.mask)

    @property
    def next_seen(self) -> Observation:
        return Observation(self.next_rows, self.next_context, self.next_mask)


class Replay:
    """A ring of `capacity` / envs steps of all environments.

    An item is one choice in one environment; its number is slot × envs + environment. The observation it led to is in the next
    slot. The newest `n_step` slots cannot be drawn yet, because the observation they led to is missing.
    """

    def __init__(self, first: Observation, config: ReplayConfig) -> None:
        self.config = config
        self.envs = len(first.context)
        self.slots = max(config.capacity // self.envs, config.n_step + 1)
        self.items = self.slots * self.envs
        self.added = 0  # steps of all environments ever added
        self.highest = 1.0  # priority of items not yet learned from
        made = self.layout(first)
        size = self.slots * sum(math.prod(shape) * np.dtype(kind).itemsize for shape, kind in made.values())
        size += SumTree.bytes_for(self.items) if config.prioritised else 0
        refuse_if_too_large(_WHAT, size, _HINT)
        try:
            self.columns = {name: np.zeros((self.slots, *shape), kind) for name, (shape, kind) in made.items()}
            self.tree = SumTree(self.items) if config.prioritised else None
            self.strata = Strata(self.items, config.bins) if config.balance else None
        except MemoryError:
            raise too_large(_WHAT, size, _HINT) from None

    def layout(self, first: Observation) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return the columns: of each the shape of a step of all environments, and the dtype."""
        seen = {name: (getattr(first, name).shape, kind) for name, kind in _SEEN.items()}
        return seen | {name: ((self.envs,), kind) for name, kind in (("action", "i4"), ("reward", "f4"), ("done", "?"))}

    @property
    def ready(self) -> int:
        """Items that can be drawn."""
        return max(0, min(self.added, self.slots) - self.config.n_step) * self.envs

    def add(self, seen: Observation, *rest: Array) -> None:
        """Add one step of all environments: the observation before it, the choice, its reward and end."""
        slot = self.added % self.slots
        for column, values in zip(self.columns.values(), (*seen, *rest), strict=True):
            column[slot] = values
        self.added += 1
        if self.strata is not None:
            self.strata.add(self._items_of(slot), self.columns["context"][slot][:, list(self.config.balance)])
        if self.tree is not None:
            self.tree.set(self._items_of(slot), 0.0)
            if self.added > self.config.n_step:  # with this step an earlier one can be drawn
                ripe = (slot - self.config.n_step) % self.slots
                self.tree.set(self._items_of(ripe), self.highest**self.config.alpha)

    def newest(self, steps: int) -> tuple[Array, Array, Array]:
        """Return rows, context and mask (steps, envs, …) of the last steps, at most as many as are stored."""
        slots = np.arange(self.added - min(steps, self.slots), self.added) % self.slots
        rows, context, mask = (self.columns[name][slots] for name in _SEEN)
        return rows, context, mask

    def _items_of(self, slot: int) -> Array:
        return np.arange(slot * self.envs, (slot + 1) * self.envs)

    def draw(self, count: int, rng: np.random.Generator, beta: float) -> tuple[Array, Array]:
        """Draw `count` items with replacement: their numbers, and their importance weights raised to `beta`, unscaled."""
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
        """Return the discounted sum of n rewards, up to the end of the episode, and the discount of what follows."""
        total = np.zeros(slots.shape)
        factor = np.ones(slots.shape)
        for k in range(self.config.n_step):
            at = (slots + k) % self.slots
            total += factor * self.columns["reward"][at, envs]
            factor *= self.config.discount * ~self.columns["done"][at, envs]
        return total.astype(np.float32), factor.astype(np.float32)

    def learned(self, items: Array, errors: Array) -> None:
        """Set the priorities of items just learned from to the sizes of their errors; for an item named twice the last counts."""
        if self.tree is None:
            return
        priority = np.abs(errors.reshape(-1).astype(np.float64)) + 1e-6
        self.highest = max(self.highest, float(priority.max()))
        self.tree.set(items.reshape(-1), priority**self.config.alpha)

    def save(self) -> Arrays:
        """Return the filled slots only."""
        filled = min(self.added, self.slots)
        saved = {f"columns/{name}": values[:filled].copy() for name, values in self.columns.items()}
        saved["added"] = np.array(self.added)
        saved["highest"] = np.array(self.highest)
        if self.tree is not None:
            saved["tree"] = self.tree.nodes.copy()
        return saved | (nested("strata", self.strata.save()) if self.strata is not None else {})

    def restore(self, saved: Arrays) -> None:
        """Continue from a saved state; refuse one with another capacity or observation."""
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


_SEEN = {"rows": "f4", "context": "f4", "mask": "?"}


class TriedReplay(Replay):
    """A ring of situations in which every choice was tried. An item is one situation, with the return of each choice and where it led."""

    def layout(self, first: Observation) -> dict[str, tuple[tuple[int, ...], str]]:
        tried = first.mask.shape
        seen = {name: (getattr(first, name).shape, kind) for name, kind in _SEEN.items()}
        led = {f"next_{name}": ((*tried, *shape[1:]), kind) for name, (shape, kind) in seen.items()}
        return seen | {"returns": (tried, "f4"), "discount": (tried, "f4")} | led

    def sample(self, updates: int, batch: int, rng: np.random.Generator, beta: float = 1.0) -> tuple[Batch, Array]:
        """`updates` batches and the numbers of their items; `returns`, `discount` and what came next have an axis of choices at the end."""
        items, weights = self.draw(updates * batch, rng, beta)
        items, weights = items.reshape(updates, batch), weights.reshape(updates, batch)
        slots, envs = np.divmod(items, self.envs)
        found = {name: column[slots, envs] for name, column in self.columns.items()}
        scaled = (weights / weights.max(axis=1, keepdims=True)).astype(np.float32)
        return Batch(action=np.zeros((updates, 0), np.int32), weight=scaled, **found), items


class SumTree:
    """A binary tree of sums over weights ≥ 0 of `size` items (f8): drawing and changing cost O(log size) each. Node 1 is the root, the
    children of k are 2k and 2k + 1, the leaves begin at `first`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.depth = max(1, (size - 1).bit_length())
        self.first = 1 << self.depth
        self.nodes = np.zeros(2 * self.first)  # node 0 is not used

    @staticmethod
    def bytes_for(size: int) -> int:
        """Return the memory of a tree over `size` items."""
        return 2 * 8 * (1 << max(1, (size - 1).bit_length()))

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    @property
    def weights(self) -> Array:
        """A view of the leaves (size,)."""
        return self.nodes[self.first : self.first + self.size]

    def set(self, items: Array, weights: Array | float) -> None:
        """Give `items` new weights; of an item named twice the last weight counts."""
        self.nodes[self.first + items] = weights
        parents = self.first + items
        for _ in range(self.depth):
            parents = parents >> 1
            self.nodes[parents] = self.nodes[2 * parents] + self.nodes[2 * parents + 1]

    def find(self, values: Array) -> Array:
        """Return for each value in [0, total) the item in whose interval it lies; the intervals lie side by side in order."""
        at = np.ones(len(values), dtype=np.int64)
        left_over = np.array(values, dtype=np.float64)
        for _ in range(self.depth):
            left = 2 * at
            sums = self.nodes[left]
            right = (left_over >= sums) & (self.nodes[left + 1] > 0)  # rounding never leads into an empty subtree
            left_over -= np.where(right, sums, 0.0)
            at = left + right
        return at - self.first


class Strata:
    """Balanced replay: rare regimes are learned from as often as common ones. Items lie in cells of a grid over a few observable
    features (load, queue), an estimate of the regime without labels.

    The bins of a feature are of equal width between its 5 % and 95 % quantiles; bins of equal count would give plain uniform
    draws back. They are found again whenever the number of items seen has doubled, and once per turn of a full ring.
    """

    def __init__(self, items: int, bins: int) -> None:
        self.bins = bins
        self.keys: Array = np.zeros((items, 0), dtype=np.float32)  # (items, features), made with the first ones
        self.stratum = np.full(items, -1, dtype=np.int16)  # −1: not filled
        self.edges: Array = np.zeros((0, bins - 1))  # (features, bins − 1)
        self.seen = 0
        self.next_fit = 0

    def add(self, items: Array, keys: Array) -> None:
        """Add new items with their keys (items, features)."""
        if self.keys.shape[1] == 0:
            self.keys = np.zeros((len(self.stratum), keys.shape[1]), dtype=np.float32)
        self.keys[items] = keys
        self.stratum[items] = 0
        self.seen += len(items)
        if self.seen >= self.next_fit:
            self._fit()
        else:
            self.stratum[items] = self._cells(keys)

    def _fit(self) -> None:
        filled = self.stratum >= 0
        low, high = np.quantile(self.keys[filled], [0.05, 0.95], axis=0)
        shares = np.arange(1, self.bins) / self.bins
        self.edges = low[:, None] + (high - low)[:, None] * shares
        self.stratum[filled] = self._cells(self.keys[filled])
        self.next_fit = self.seen + min(self.seen, len(self.stratum))

    def _cells(self, keys: Array) -> Array:
        cell = np.zeros(len(keys), dtype=np.int64)
        for feature, edges in enumerate(self.edges):
            cell = cell * self.bins + np.searchsorted(edges, keys[:, feature], side="right")
        return cell.astype(np.int16)

    def draw(self, count: int, drawable: Array, weights: Array | None, rng: np.random.Generator, beta: float) -> tuple[Array, Array]:
        """Draw first a stratum, each that holds something equally often, then an item in it, by `weights` or uniformly.

        The importance weights make up for what `weights` do within a stratum, not for the balance, which is intended. O(items).
        """
        candidates = np.flatnonzero(drawable)
        order = candidates[np.argsort(self.stratum[candidates], kind="stable")]
        labels = self.stratum[order]
        starts = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
        ends = np.r_[starts[1:], len(order)]
        chosen = rng.integers(0, len(starts), size=count)
        sums = np.r_[0.0, np.cumsum(np.ones(len(order)) if weights is None else weights[order])]
        low, mass = sums[starts[chosen]], (sums[ends] - sums[starts])[chosen]
        at = np.searchsorted(sums, low + rng.random(count) * mass, side="right") - 1
        at = np.clip(at, starts[chosen], ends[chosen] - 1)
        if weights is None:
            return order[at], np.ones(count)
        return order[at], ((ends - starts)[chosen] * weights[order[at]] / mass) ** -beta

    def save(self) -> Arrays:
        counts = np.array([self.seen, self.next_fit])
        return {"keys": self.keys.copy(), "stratum": self.stratum.copy(), "edges": self.edges.copy(), "counts": counts}

    def restore(self, saved: Arrays) -> None:
        self.keys, self.stratum, self.edges = saved["keys"].copy(), saved["stratum"].copy(), saved["edges"].copy()
        self.seen, self.next_fit = (int(count) for count in saved["counts"])
