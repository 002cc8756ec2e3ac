"""`gpuyard/PickDevice-v0`: the device of each task is left open, as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuyard.envs.base import Observation
from gpuyard.envs.gym import OneEnv, options_of, source_of
from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.kinds.device.batch import DeviceConfig, DeviceEnvs, Source
from gpuyard.envs.kinds.device.kind import runs_of
from gpuyard.errors import UsageError
from gpuyard.metrics import measure


class PickDevice(OneEnv):
    """One of `gpuyard.envs.kinds.device.batch.DeviceEnvs`: put each task into the queue of a device.

    Episodes come from `workload`, `cluster` and `split` as in the other environments, or from a `source` of one's own; `settings` are the
    options of the kind (see `gpuyard.envs.kinds.device.kind`), or all of them and more are in a `config`. At the end
    `info["episode_facts"]` has `turnaround`, the tasks' mean in s, and `jobs`.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        source: Source | None = None,
        config: DeviceConfig | None = None,
        workload: str | Sequence[str] = "",
        cluster: str = "",
        split: str = "train",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        kind = find_env("PickDevice")
        if render_mode is not None:
            raise UsageError(f"{kind.id} has no pictures", hint="leave render_mode out")
        if source is not None and (workload or cluster or split != "train"):
            raise UsageError(f"{kind.id}: a source, and a workload, cluster or split too", hint="give one or the other")
        if config is not None and settings:
            raise UsageError(f"{kind.id}: a config, and {', '.join(settings)} too", hint="give one or the other")
        options = options_of(kind, settings)
        self._envs = DeviceEnvs(source or runs_of(source_of(kind, workload, cluster, split)), 1, config or options.config())
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
