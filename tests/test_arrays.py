"""Array helpers agree with numpy, to the bit."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.arrays import MANY, quantiles


@pytest.mark.parametrize("size", [1, 2, 3, 7, 150, MANY + 1])
def test_quantiles_are_those_of_numpy(size: int) -> None:
    rng = np.random.default_rng(size)
    levels = np.concatenate([np.linspace(0.0, 1.0, 101), [0.05, 0.95, 0.99]])
    for values in (rng.lognormal(0.0, 3.0, size), np.round(rng.exponential(3.0, size))):
        assert quantiles(values, levels).tobytes() == np.quantile(values, levels).tobytes()
        assert quantiles(values, np.array([0.99]))[0] == np.percentile(values, 99)
