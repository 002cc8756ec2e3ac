"""The tree of sums against plain cumulative sums."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuyard.learn.parts.replay import SumTree


@settings(max_examples=60, deadline=None)
@given(size=st.integers(1, 70), seed=st.integers(0, 2**32 - 1))
def test_as_cumulative_sums(size: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    tree = SumTree(size)
    slow = np.zeros(size)
    for _ in range(4):
        items = rng.integers(0, size, size=rng.integers(1, 2 * size + 1))
        weights = rng.integers(0, 8, size=len(items)).astype(float)  # whole numbers: sums are exact in any order
        tree.set(items, weights)
        for item, weight in zip(items, weights, strict=True):
            slow[item] = weight
    assert np.array_equal(tree.weights, slow)
    assert tree.total == slow.sum()
    if slow.sum() > 0:
        values = rng.random(50) * slow.sum()
        assert np.array_equal(tree.find(values), np.searchsorted(np.cumsum(slow), values, side="right"))


def test_draws_in_proportion_and_never_what_has_no_weight() -> None:
    tree = SumTree(5)
    tree.set(np.arange(5), np.array([1.0, 0.0, 3.0, 0.0, 4.0]))
    drawn = np.bincount(tree.find(np.random.default_rng(0).random(40_000) * tree.total), minlength=5) / 40_000
    assert drawn == pytest.approx([1 / 8, 0, 3 / 8, 0, 4 / 8], abs=0.01)
    assert drawn[1] == drawn[3] == 0.0


def test_rounding_at_the_end_stays_on_an_item_with_weight() -> None:
    tree = SumTree(3)
    tree.set(np.arange(3), np.array([0.1, 0.2, 0.0]))
    assert tree.find(np.array([tree.total, np.nextafter(tree.total, 1.0)])).tolist() == [1, 1]
