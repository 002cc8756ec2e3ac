"""Fits the table of run times by which `gittins` ranks jobs: no network, only counting over the training part of workloads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.errors import UsageError
from gpuyard.policies import parse_scheduler
from gpuyard.policies.ranks import CLASSES, COUNT, RunTimesTable, fit_run_times
from gpuyard.traces.recipes import Workloads
from gpuyard.traces.recipes.sources import Episode, EpisodeSource, Mix, TraceSource

EPISODES = 8  # of a generator
SCHEDULER = "saf/fewest/easy"  # under which a predictor makes estimates as a scheduler would see them


@dataclass(frozen=True)
class RankFit:
    """The settings of a fit: texts of workloads, the cluster of those that name none, classes of jobs and quantiles of each."""

    workloads: tuple[str, ...]
    cluster: str = ""
    classes: int = CLASSES
    quantiles: int = COUNT
    by: str = ""  # walltime or estimate; empty: walltime where most jobs request a time

    def fit(self, command: str = "") -> RunTimesTable:
        """Count the run times of the training part."""
        if self.by not in ("", "walltime", "estimate"):
            raise UsageError(f"by = {self.by!r}: classes go by walltime or by estimate")
        source = Workloads(self.workloads, self.cluster).part("train")
        episodes = list(_episodes(source))
        asked = np.concatenate([np.isfinite(each.workload.jobs.walltime) for each in episodes])
        by_walltime = bool(self.by == "walltime" or (self.by == "" and asked.mean() > 0.5))
        keys = [each.workload.jobs.walltime if by_walltime else _estimates(each) for each in episodes]
        about = {"workloads": list(self.workloads), "part": "train", "estimates": episodes[0].workload.estimates, "command": command}
        runtime = np.concatenate([each.workload.runtime for each in episodes])
        return fit_run_times(
            np.concatenate(keys), runtime, by_walltime=by_walltime, classes=self.classes, count=self.quantiles, about=about,
        )  # fmt: skip


def _episodes(source: EpisodeSource) -> Iterator[Episode]:
    """Yield all training jobs of a log at once, and some episodes of a generator."""
    members: Sequence[EpisodeSource] = source.members if isinstance(source, Mix) else (source,)
    for member in members:
        if isinstance(member, TraceSource):
            yield member.window(member.rows, 0)
        else:
            yield from (member.episode(number) for number in range(EPISODES))


def _estimates(episode: Episode) -> Array:
    """Return the estimates as a scheduler sees them."""
    if episode.workload.predictor is None:
        return episode.workload.jobs.estimate
    return simulate(episode.workload, episode.cluster, parse_scheduler(SCHEDULER)).workload.jobs.estimate
