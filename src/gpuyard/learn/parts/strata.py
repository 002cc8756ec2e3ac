"""Balanced replay: experience by regime, so that rare regimes are learned from as often as common ones."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.learn.base import Arrays


class Strata:
    """Items by cells of a grid over a few observable features (load, queue): an estimate of the regime, with no label.

    The bins of a feature are of equal width between its 5 % and 95 % quantiles; bins of equal count would give plain uniform
    draws back. They are found anew whenever the number of items seen has doubled, and once per turn of a full ring.
    """

    def __init__(self, items: int, bins: int) -> None:
        self.bins = bins
        self.keys: Array = np.zeros((items, 0), dtype=np.float32)  # (items, features), made with the first ones
        self.stratum = np.full(items, -1, dtype=np.int16)  # −1: not filled
        self.edges: Array = np.zeros((0, bins - 1))  # (features, bins − 1)
        self.seen = 0
        self.next_fit = 0

    def add(self, items: Array, keys: Array) -> None:
        """Keys (items, features) of new items."""
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
        """Items: first a stratum, all that hold something alike, then an item in it, by `weights` or all alike.

        The importance weights make up for what `weights` do within a stratum, not for the balance, which is meant. O(items).
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
