"""A binary tree of sums: draw from N weights, and change some, in O(log N) each, many at a time."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array


class SumTree:
    """Weights ≥ 0 of `size` items (f8). Node 1 is the root, the children of k are 2k and 2k + 1, the leaves begin at `first`."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.depth = max(1, (size - 1).bit_length())
        self.first = 1 << self.depth
        self.nodes = np.zeros(2 * self.first)  # node 0 is not used

    @staticmethod
    def bytes_for(size: int) -> int:
        """Memory of a tree over `size` items."""
        return 2 * 8 * (1 << max(1, (size - 1).bit_length()))

    @property
    def total(self) -> float:
        return float(self.nodes[1])

    @property
    def weights(self) -> Array:
        """(size,) a view of the leaves."""
        return self.nodes[self.first : self.first + self.size]

    def set(self, items: Array, weights: Array | float) -> None:
        """Give `items` new weights; of an item named twice the last weight counts."""
        self.nodes[self.first + items] = weights
        parents = self.first + items
        for _ in range(self.depth):
            parents = parents >> 1
            self.nodes[parents] = self.nodes[2 * parents] + self.nodes[2 * parents + 1]

    def find(self, values: Array) -> Array:
        """For each value in [0, total) the item in whose interval it lies, the intervals laid side by side in order."""
        at = np.ones(len(values), dtype=np.int64)
        left_over = np.array(values, dtype=np.float64)
        for _ in range(self.depth):
            left = 2 * at
            sums = self.nodes[left]
            right = (left_over >= sums) & (self.nodes[left + 1] > 0)  # rounding never leads into an empty subtree
            left_over -= np.where(right, sums, 0.0)
            at = left + right
        return at - self.first
