"""`gpuyard/PickDevice-v0`: the device of each task is left open, as a Gymnasium environment."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gpuyard.envs.base import Observation
from gpuyard.envs.gym import OneEnv, options_of, source_of, texts_of
from gpuyard.envs.kinds.base import find_env, instances_of
from gpuyard.envs.kinds.device.batch import DeviceConfig, DeviceEnvs, MakeInstance
from gpuyard.errors import UsageError
from gpuyard.metrics import measure


class PickDeviceEnv(OneEnv):
    """One of `gpuyard.envs.kinds.device.batch.DeviceEnvs`: put each task into the queue of a device.

    Episodes come from `workload`, `cluster` and `split` as in the other environments, or from a `source` of your own; `settings` are the
    options of the kind (see `gpuyard.envs.kinds.device.kind`), or all of them and more are in a `config`. At the end
    `info["episode_facts"]` has `turnaround`, the tasks' mean in s, and `jobs`. Without a `source` there is a `purpose`, as elsewhere.
    """

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(
        self,
        source: MakeInstance | None = None,
        config: DeviceConfig | None = None,
        workload: str | Sequence[str] = "",
        cluster: str = "",
        split: str = "train",
        render_mode: str | None = None,
        kind: str = "PickDevice",
        **settings: Any,
    ) -> None:
        self.kind = find_env(kind)
        if render_mode is not None:
            raise UsageError(f"{self.kind.id} has no pictures", hint="leave render_mode out")
        if source is not None and (workload or cluster or split != "train"):
            raise UsageError(f"{self.kind.id}: a source, and a workload, cluster or split too", hint="give one or the other")
        if config is not None and settings:
            raise UsageError(f"{self.kind.id}: a config, and {', '.join(settings)} too", hint="give one or the other")
        options = options_of(self.kind, settings)
        if source is None:
            known = source_of(self.kind, workload, cluster, split)
            self.purpose = self.kind.purpose(options, texts_of(self.kind, workload), cluster, known)
            source = instances_of(known)
        self.envs = DeviceEnvs(source, 1, config or options.config())
        self._fresh = False  # an episode has begun in which nothing was chosen yet
        super().__init__(self.kind, self.envs.schema, self.envs.actions, self.envs.actions)

    def _first(self, seed: int) -> Observation:
        self._fresh = True
        return self.envs.reset(seed)

    def _next(self) -> Observation:
        seen = self._shown() if self._fresh else self.envs.skip()
        self._fresh = True
        return seen

    def _choose(self, action: int) -> tuple[float, dict[str, Any]]:
        step = self.envs.step(np.array([action]))
        self._seen, self._fresh = step.observation, bool(step.done[0])
        result = self.envs.finished
        if not self._fresh or result is None:
            return float(step.reward[0]), {}
        return float(step.reward[0]), {"turnaround": measure(result, ["turnaround"])["turnaround"], "jobs": len(result.table)}
