"""Episodes of small tasks, for tests of the choice of a device."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from gpuyard.envs.base import Instance
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.units import Range
from gpuyard.traces.generators.tasks import tasks


@dataclass(frozen=True)
class TaskEpisodes:
    """Episodes of the generator `tasks` on the cluster preset `tasks`."""

    jobs: int = 64
    size: Range = Range(500, 4000)  # noqa: RUF009 - frozen
    intensity: Range = Range(0, 1)  # noqa: RUF009
    memory: Range = Range(0.1, 8)  # noqa: RUF009 - GB
    gap: float = 1.0

    def __call__(self, seed: int) -> Instance:
        made = tasks(seed, jobs=self.jobs, size=self.size, intensity=self.intensity, memory=self.memory, gap=self.gap)
        return made, task_cluster()


@cache
def task_cluster() -> Cluster:
    """Return the preset of 4 CPUs and 2 GPUs."""
    return load_cluster("tasks")
