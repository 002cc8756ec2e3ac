"""Returns of the episodes that end while a learner collects."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import LearningError
from gpuyard.learn.base import Arrays


class Episodes:
    """Sums of rewards of the running episodes, and of those that ended since the last call of `take_ended`."""

    def __init__(self, envs: int) -> None:
        self.running = np.zeros(envs)
        self.ended: list[float] = []

    def add(self, reward: Array, done: Array, step: int) -> None:
        """Add one step of all environments; refuse a reward that is not finite. `step` is its number in each environment."""
        if not np.isfinite(reward).all():
            env = int(np.flatnonzero(~np.isfinite(reward))[0])
            hint = "check the weights of the objective, and the workload"
            raise LearningError(f"the reward of environment {env} at its step {step} is {reward[env]}", hint=hint)
        self.running += reward
        if done.any():
            self.ended += [float(total) for total in self.running[done]]
            self.running[done] = 0.0

    def take_ended(self) -> list[float]:
        """Return the returns of the episodes that ended since the last call."""
        ended, self.ended = self.ended, []
        return ended

    def mean(self) -> float:
        """Return the mean return of the episodes that ended since the last call; NaN if none did."""
        ended = self.take_ended()
        return float(np.mean(ended)) if ended else float("nan")

    def save(self) -> Arrays:
        return {"running": self.running.copy(), "ended": np.array(self.ended)}

    def restore(self, saved: Arrays) -> None:
        self.running = np.array(saved["running"])
        self.ended = [float(total) for total in saved["ended"]]
