"""What jobs that may be stopped wait on a real cluster, against others of their size: the accounts that simulations keep of the burden."""

from __future__ import annotations

import math

from gpuyard.engine.ranking import BURDEN_LEVELS, SLACK


class WaitAccounts:
    """What the jobs of one cluster have waited, by size, and how many they are: all of them, and those that may be stopped."""

    def __init__(self) -> None:
        self._levels = [[0.0, 0, 0.0, 0] for _ in range(BURDEN_LEVELS)]

    def add(self, delay: float, area: float, stoppable: bool) -> None:
        """Take a job into account that has ended after `delay` s off the devices; `area` is its estimate × its GPUs, in GPU-s."""
        level = min(max(math.frexp(area)[1] - 1, 0), BURDEN_LEVELS - 1) if area < math.inf else BURDEN_LEVELS - 1
        account = self._levels[level]
        account[0] += max(delay, 0.0)
        account[1] += 1
        if stoppable:
            account[2] += max(delay, 0.0)
            account[3] += 1

    @property
    def excess(self) -> float:
        """Return by what part those that may be stopped have waited longer than jobs of their size; 0.25: a quarter."""
        theirs = usual = 0.0
        for every, count, some, among in self._levels:
            if 0 < among < count:
                theirs += some
                usual += every / count * among
        if usual > 0:
            return (theirs - SLACK) / usual - 1.0
        return math.inf if theirs > SLACK else 0.0
