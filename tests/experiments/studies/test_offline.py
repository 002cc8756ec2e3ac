"""The enclosure of the offline optimum: against brute force, and as the simulator plays it."""

from __future__ import annotations

from itertools import permutations, product

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.experiments.studies.offline import lower_bound, offline_optimum


def brute_force(arrival: np.ndarray, seconds: np.ndarray) -> float:
    """The least sum of turnarounds over all assignments and orders."""
    tasks, devices = seconds.shape
    best = {}
    for device in range(devices):
        for size in range(tasks + 1):
            for order in permutations(range(tasks), size):
                now, total = 0.0, 0.0
                for task in order:
                    now = max(now, arrival[task]) + seconds[task, device]
                    total += now - arrival[task]
                key = device, frozenset(order)
                best[key] = min(best.get(key, np.inf), total)
    return min(
        sum(best[device, frozenset(np.flatnonzero(np.array(choice) == device).tolist())] for device in range(devices))
        for choice in product(range(devices), repeat=tasks)
    )


@pytest.mark.parametrize("seed", range(12))
def test_the_optimum_lies_between_and_is_found_where_it_is_small(seed: int):
    rng = np.random.default_rng(seed)
    arrival, seconds = np.sort(rng.uniform(0, 8, 5)), rng.uniform(0.5, 9, (5, 2))
    if seed % 2:
        seconds[1, 0] = np.inf
    true = brute_force(arrival, seconds)
    found = offline_optimum(arrival, seconds, [[], [0, 1, 2, 3, 4]], kicks=200)
    assert found.bound <= true + 1e-6
    assert found.total == pytest.approx(true)
    assert found.total == pytest.approx((found.end - arrival).sum())


def test_the_bound_is_exact_without_contention_and_above_it_with():
    arrival, seconds = np.array([0.3, 100.0, 200.5]), np.array([[4.0, 2.5], [3.0, 8.0], [1.2, 1.2]])
    assert lower_bound(arrival, seconds) == pytest.approx(2.5 + 3.0 + 1.2, abs=1e-6)
    together = np.zeros(8)
    assert lower_bound(together, np.full((8, 1), 2.0)) > 0.8 * 2.0 * 36


def test_queues_to_start_from_must_be_whole():
    with pytest.raises(UsageError, match="each of the 2 tasks once"):
        offline_optimum(np.zeros(2), np.ones((2, 1)), [[0]])
