"""How numbers change over the course of training, and when it has gone on long enough."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from gpuyard.registry import Registry

Course = Callable[[float], float]
WARM_UP = 0.05  # share of the training in which a warm-up rises from 0 to 1
LOWEST = 0.01  # where the exponential course ends

COURSES: Registry[Course] = Registry("learning-rate schedule")


def course(name: str) -> Callable[[Course], Course]:
    """Register a function of progress (0 … 1) that gives the factor (0 … 1) of the first value."""

    def register(function: Course) -> Course:
        COURSES.add(name, function)
        return function

    return register


@course("constant")
def constant(progress: float) -> float:
    return 1.0


@course("linear")
def linear(progress: float) -> float:
    return 1.0 - progress


@course("exponential")
def exponential(progress: float) -> float:
    """1 → 0.01."""
    return math.pow(LOWEST, progress)


@course("cosine")
def cosine(progress: float) -> float:
    """Half a wave from 1 to 0 (Loshchilov and Hutter 2017)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


@course("warm-up-cosine")
def warm_up_cosine(progress: float) -> float:
    """Rises for 5 % of the training, then half a wave."""
    return progress / WARM_UP if progress < WARM_UP else cosine((progress - WARM_UP) / (1.0 - WARM_UP))


def anneal(name: str, start: float, end: float, progress: float) -> float:
    """From `start` to `end` along a course; for learning rates, entropy weights, exploration. Progress beyond 1 counts as 1."""
    return end + (start - end) * COURSES[name](min(max(progress, 0.0), 1.0))


@dataclass(frozen=True)
class EarlyStopping:
    """Says when `patience` scores in a row were not better than the best one by more than `threshold`. Higher is better; 0: never."""

    patience: int
    threshold: float = 0.0
    best: float = -math.inf
    waited: int = 0

    def after(self, score: float) -> EarlyStopping:
        """This, having seen one more score; NaN is no improvement."""
        if score > self.best + self.threshold:
            return replace(self, best=score, waited=0)
        return replace(self, waited=self.waited + 1)

    @property
    def stop(self) -> bool:
        return 0 < self.patience <= self.waited
