"""Returns of the episodes that end while a learner collects."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import LearningError
from gpuyard.learn.base import Arrays


class Episodes:
    """Sums of rewards of the running episodes, and of those that ended since `mean` was last asked."""

    def __init__(self, envs: int) -> None:
        self.running = np.zeros(envs)
        self.ended: list[float] = []

    def add(self, reward: Array, done: Array) -> None:
        """One step of all environments; a reward that is not a number is an error."""
        if not np.isfinite(reward).all():
            env = int(np.flatnonzero(~np.isfinite(reward))[0])
            hint = "look at the weights of the objective and at the workload"
            raise LearningError(f"the reward in environment {env} is {reward[env]}", hint=hint)
        self.running += reward
        if done.any():
            self.ended += [float(total) for total in self.running[done]]
            self.running[done] = 0.0

    def mean(self) -> float:
        """Mean return of the episodes that ended since the last call; NaN if none did."""
        mean = float(np.mean(self.ended)) if self.ended else float("nan")
        self.ended = []
        return mean

    def save(self) -> Arrays:
        return {"running": self.running.copy(), "ended": np.array(self.ended)}

    def restore(self, saved: Arrays) -> None:
        self.running = np.array(saved["running"])
        self.ended = [float(total) for total in saved["ended"]]
