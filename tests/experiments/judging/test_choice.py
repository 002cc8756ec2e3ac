"""What is said of the best of many holds for the next log too."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuyard.experiments.judging.choice import chosen_elsewhere


def test_each_part_is_judged_by_the_best_of_the_others():
    """Part 0: the second is best on 5, 9 against 4, 2. Part 1: the first on 1, 1 against 6, 6. A job in no part has no value."""
    values = np.array([[1.0, 1.0, 5.0, 9.0, 0.0], [6.0, 6.0, 4.0, 2.0, 0.0]])
    parts = np.array([0, 0, 1, 1, -1])
    assert chosen_elsewhere(values, parts, 1.0).tolist()[:4] == [6.0, 6.0, 5.0, 9.0]
    assert chosen_elsewhere(values, parts, -1.0).tolist()[:4] == [1.0, 1.0, 4.0, 2.0]
    assert math.isnan(chosen_elsewhere(values, parts, 1.0)[4])


def test_what_has_no_value_is_not_chosen():
    values = np.array([[math.nan] * 4, [3.0, 4.0, 5.0, 6.0]])
    assert chosen_elsewhere(values, np.array([0, 0, 1, 1]), 1.0).tolist() == [3.0, 4.0, 5.0, 6.0]


@pytest.mark.parametrize("spread", [0.0, 0.5])
def test_the_corrected_gain_of_the_best_of_17_is_not_too_large(spread: float):
    """Seventeen schedulers on logs of 40 stretches, whose true gains are known: the plain gain of the best is too large, the corrected
    one is at most the true gain of what was chosen. Standard errors are below 0.02."""
    rng, plain, corrected, true = np.random.default_rng(5), [], [], []
    parts = np.arange(40) // 8
    for _ in range(400):
        means = rng.normal(0.0, spread, 17)
        values = means[:, None] + rng.normal(0.0, 2.0, (17, 40))
        best = int(np.argmin(values.mean(axis=1)))
        plain.append(-values[best].mean())
        corrected.append(-chosen_elsewhere(values, parts, 1.0).mean())
        true.append(-means[best])
    assert np.mean(plain) > np.mean(true) + 0.2
    assert np.mean(true) - 0.25 < np.mean(corrected) < np.mean(true) + 0.04
