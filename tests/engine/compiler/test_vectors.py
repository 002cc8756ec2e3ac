"""The two functions that networks need, against numpy's."""

from __future__ import annotations

from typing import Any

import numpy as np
from numba import types

from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.compiler.vectors import LANES, exponential, hyperbolic_tangent, largest, load, store, total

F4 = types.float32[::1]


def kernels(source: int) -> tuple[Any, Any]:
    """Compile them again whenever the vectors change: `source` is part of the cache's key."""

    @entry(types.void(F4, F4, F4))
    def both(x: Any, powers: Any, tangents: Any) -> None:
        if source == 0:  # never; what is cached is that of these sources
            return
        for i in range(0, len(x), LANES):
            store(exponential(load(x, i)), powers, i)
            store(hyperbolic_tangent(load(x, i)), tangents, i)

    @entry(types.void(F4, F4))
    def fold(x: Any, out: Any) -> None:
        if source == 0:
            return
        out[0] = total(load(x, 0))
        out[1] = largest(load(x, 0))

    return both, fold


both, fold = kernels(source_hash("gpuyard.engine.compiler.vectors"))


def evaluated(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    x = np.ascontiguousarray(np.resize(x, -(-len(x) // LANES) * LANES), np.float32)
    powers, tangents = np.empty_like(x), np.empty_like(x)
    both(x, powers, tangents)
    return powers, tangents


def test_exponential():
    x = np.linspace(-60, 88, 100_000 // LANES * LANES).astype(np.float32)
    powers, _ = evaluated(x)
    assert np.abs(powers / np.exp(x.astype(np.float64)) - 1).max() < 3e-7


def test_exponential_far_below():
    powers, _ = evaluated(np.array([-61, -1e3, -1e30, -np.inf, 0.0], np.float32))
    assert (powers[:4] < 1e-26).all()
    assert (powers[:4] >= 0).all()
    assert powers[4] == 1


def test_tangent():
    x = np.concatenate([np.linspace(-12, 12, 50_000), np.geomspace(1e-30, 1, 1_000), [0.0, -0.0, 1e30, -1e30, np.inf, -np.inf]])
    padded = np.resize(x, -(-len(x) // LANES) * LANES).astype(np.float32)
    _, tangents = evaluated(padded)
    wanted = np.tanh(padded.astype(np.float64))
    assert np.abs(tangents - wanted).max() < 4e-7
    assert (np.abs(tangents - wanted) <= 1e-6 * np.abs(wanted)).all()


def test_folds():
    x, out = np.random.default_rng(0).normal(size=LANES).astype(np.float32), np.empty(2, np.float32)
    fold(x, out)
    assert abs(out[0] - x.astype(np.float64).sum()) < 1e-5
    assert out[1] == x.max()
