"""How learning rates and weights change over a training, and when to stop early."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuyard.registry import Registry

Course = Callable[[float], float]  # from progress (0 … 1) to the factor (0 … 1) of the first value
WARM_UP = 0.05  # share of the training in which a warm-up rises from 0 to 1
LOWEST = 0.01  # end of the exponential course

COURSES: Registry[Course] = Registry("learning-rate schedule")


def cosine(progress: float) -> float:
    """Fall along half a wave from 1 to 0 (Loshchilov and Hutter 2017)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def warm_up_cosine(progress: float) -> float:
    """Rise for 5 % of the training, then fall along half a wave."""
    return progress / WARM_UP if progress < WARM_UP else cosine((progress - WARM_UP) / (1.0 - WARM_UP))


COURSES.add("constant", lambda progress: 1.0)
COURSES.add("linear", lambda progress: 1.0 - progress)
COURSES.add("exponential", lambda progress: math.pow(LOWEST, progress))
COURSES.add("cosine", cosine)
COURSES.add("warm-up-cosine", warm_up_cosine)


def anneal(name: str, start: float, end: float, progress: float) -> float:
    """Go from `start` to `end` along a course; for learning rates, entropy weights, exploration. Progress beyond 1 counts as 1."""
    return end + (start - end) * COURSES[name](min(max(progress, 0.0), 1.0))


def warmed_up(rate: float, steps: int, warm_up_steps: int) -> float:
    """Return the learning rate after some steps where it rises from 0 over the first `warm_up_steps`, whatever its course; 0: at once."""
    return rate * min(1.0, steps / warm_up_steps) if warm_up_steps else rate


@dataclass(frozen=True)
class EarlyStopping:
    """Stops when `patience` scores in a row were not better than the best one by more than `threshold`. Higher is better; 0: never."""

    patience: int
    threshold: float = 0.0
    best: float = -math.inf
    waited: int = 0

    def after(self, score: float) -> EarlyStopping:
        """Take one more score into account; NaN does not count as an improvement."""
        if score > self.best + self.threshold:
            return replace(self, best=score, waited=0)
        return replace(self, waited=self.waited + 1)

    @property
    def stop(self) -> bool:
        return 0 < self.patience <= self.waited
