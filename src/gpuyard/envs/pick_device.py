"""`gpuyard/PickDevice-v0`: the device of each task is left open, as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.envs.base import Observation
from gpuyard.envs.device import DeviceConfig, DeviceEnvs, Source, TaskEpisodes
from gpuyard.envs.gym import OneEnv
from gpuyard.metrics import measure


class PickDevice(OneEnv):
    """One of `gpuyard.envs.device.DeviceEnvs`: put each task into the queue of a device.

    At the end `info["episode_facts"]` has `turnaround`, the tasks' mean in s, and `jobs`.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, source: Source | None = None, config: DeviceConfig | None = None) -> None:
        self._envs = DeviceEnvs(source or TaskEpisodes(), 1, config)
        self._fresh = False  # an episode has begun in which nothing was chosen yet
        super().__init__(self._envs.schema, self._envs.actions, self._envs.actions)

    @property
    def envs(self) -> DeviceEnvs:
        """What it stands on."""
        return self._envs

    def _first(self, seed: int) -> Observation:
        self._fresh = True
        return self._envs.reset(seed)

    def _next(self) -> Observation:
        seen = self._shown() if self._fresh else self._envs.skip()
        self._fresh = True
        return seen

    def _choose(self, action: int) -> tuple[float, dict[str, Any]]:
        step = self._envs.step(np.array([action]))
        self._seen, self._fresh = step.observation, bool(step.done[0])
        result = self._envs.finished
        if not self._fresh or result is None:
            return float(step.reward[0]), {}
        return float(step.reward[0]), {"turnaround": measure(result, ["turnaround"])["turnaround"], "jobs": len(result.table)}
