"""`gpuyard/PickDevice-v0`: the device of each task is left open, as a Gymnasium environment."""

from __future__ import annotations

from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from gpuyard.envs.base import Observation
from gpuyard.envs.device import DeviceConfig, DeviceEnvs, Source, TaskEpisodes
from gpuyard.model.jobs import Array

Seen = dict[str, Array]


class PickDevice(gym.Env[Seen, np.int64]):
    """One of `gpuyard.envs.device.DeviceEnvs`. `info["action_mask"]` (devices,) int8 says what may be chosen, as `mask` does.

    An action that may not be chosen counts as the first that may; `info["illegal"]` then is true. After a reset without a seed the
    next episode of the last seed begins.
    """

    metadata = {"render_modes": []}

    def __init__(self, source: Source | None = None, config: DeviceConfig | None = None) -> None:
        self._envs = DeviceEnvs(source or TaskEpisodes(), 1, config)
        rows, context = len(self._envs.schema.rows), len(self._envs.schema.context)
        lanes = self._envs.actions
        self.action_space = spaces.Discrete(lanes)
        self.observation_space: gym.Space[Any] = spaces.Dict(
            {
                "rows": spaces.Box(-8.0, 8.0, (lanes, rows), np.float32),
                "context": spaces.Box(-8.0, 8.0, (context,), np.float32),
                "mask": spaces.MultiBinary(lanes),
            }
        )
        self._fresh = False  # an episode has begun in which nothing was chosen yet
        self._begun = False
        self._seen: Observation

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Seen, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if seed is not None or not self._begun:
            drawn = int(self.np_random.integers(2**31)) if seed is None else seed
            self._seen = self._envs.reset(drawn)
        elif not self._fresh:
            self._seen = self._envs.skip()
        self._begun = self._fresh = True
        return self._copy(), self._info()

    def step(self, action: np.int64) -> tuple[Seen, float, bool, bool, dict[str, Any]]:
        """Put the task into the queue of device `action`."""
        illegal = not bool(self._seen.mask[0, int(action)])
        last = self._copy()
        step = self._envs.step(np.array([action]))
        self._seen, done = step.observation, bool(step.done[0])
        self._fresh = done
        info = self._info() | {"illegal": illegal}
        if done:  # nothing is open any more: the last task's observation stands, and nothing need be chosen
            return last, float(step.reward[0]), True, False, info | {"action_mask": last["mask"].copy()}
        return self._copy(), float(step.reward[0]), False, False, info

    def action_masks(self) -> Array:
        """(devices,) bool, as sb3-contrib's maskable learners ask for it."""
        mask: Array = self._seen.mask[0].copy()
        return mask

    @property
    def envs(self) -> DeviceEnvs:
        """What it stands on."""
        return self._envs

    def _copy(self) -> Seen:
        seen = self._seen
        return {"rows": seen.rows[0].copy(), "context": seen.context[0].copy(), "mask": seen.mask[0].astype(np.int8)}

    def _info(self) -> dict[str, Any]:
        return {"action_mask": self._seen.mask[0].astype(np.int8)}
