"""A batch of environments that is watched: rewards must be numbers, and the time its steps take is kept."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.envs.base import Envs, Observation, Step
from gpuyard.errors import SimulationError
from gpuyard.features.schema import Schema


class Checked:
    """Steps as the batch inside does. `seconds` adds up over its steps."""

    def __init__(self, inner: Envs) -> None:
        self.inner = inner
        self.seconds = 0.0

    @property
    def count(self) -> int:
        return self.inner.count

    @property
    def actions(self) -> int:
        return self.inner.actions

    @property
    def schema(self) -> Schema:
        return self.inner.schema

    def reset(self, seed: int) -> Observation:
        return self.inner.reset(seed)

    def step(self, actions: Array) -> Step:
        began = time.perf_counter()
        step = self.inner.step(actions)
        self.seconds += time.perf_counter() - began
        if not np.isfinite(step.reward).all():
            env = int(np.argmin(np.isfinite(step.reward)))
            raise SimulationError(f"environment {env} of {self.count}: the reward of a step is {step.reward[env]}, not a finite number")
        return step

    def save(self) -> dict[str, Array]:
        return self.inner.save()

    def restore(self, saved: dict[str, Array]) -> Observation:
        return self.inner.restore(saved)

    def __getattr__(self, name: str) -> Any:
        """What only some batches have."""
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)
