"""A change of distribution: policies are trained on compute-heavy tasks and tested on low-intensity, memory-heavy ones.

What is trained before (forest, network, linear bandit) sees the same profile of compute-heavy tasks. In the test the forest stays as it
is; the network and the bandit learn from each task that ends. All three use the seconds that they predict in the same way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.experiments.studies.offline import Offline, offline_optimum
from gpuyard.learn.devices.choice import Exploration, LearnedDevice
from gpuyard.learn.devices.models import Profile, profile
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.result import Result
from gpuyard.model.units import Range
from gpuyard.model.workload import Workload
from gpuyard.policies.deciders.devices import PlannedDevices
from gpuyard.policies.text import parse_scheduler
from gpuyard.traces.generators.tasks import tasks

OPTIMAL, ROUND_ROBIN, FOREST, ONLINE = "offline-optimal", "round-robin", "forest", "online"
STRATEGIES = (OPTIMAL, ROUND_ROBIN, "random-device", "greedy-device", FOREST, ONLINE, "linucb")
TRAINING_SEEDS = 1_000_000  # are added to the seed of a run: no training workload is a test workload


@dataclass(frozen=True)
class ShiftConfig:
    """The two distributions and how much of each there is."""

    jobs: int = 500
    gap: float = 1.0  # s between arrivals on average, in the test
    training_jobs: int = 2000
    training_intensity: Range = Range(0.7, 1.0)  # noqa: RUF009 - frozen
    training_memory: Range = Range(0.1, 1.0)  # noqa: RUF009 - GB
    intensity: Range = Range(0.0, 0.3)  # noqa: RUF009
    memory: Range = Range(4.0, 12.0)  # noqa: RUF009 - GB
    replan: bool = True  # policies that predict seconds reassign and reorder waiting tasks; False: first in, first out
    epsilon: float = 0.02  # of the online agent, at its first task
    kicks: int = 10_000  # of the search for the offline optimum


@dataclass(frozen=True, eq=False)
class StrategyOutcome:
    """The outcome of one strategy. Times are turnarounds, from submit to end."""

    result: Result
    makespan: float  # s from the first submit to the last end
    mean_time: float  # s
    total_time: float  # s
    speedup: float  # mean time of round robin / its own
    regret: Array  # (jobs,) s more than the offline optimum has spent on the tasks submitted so far


@dataclass(frozen=True, eq=False)
class ShiftReport:
    """The outcome of one seed. `bound`: s of total time that no strategy can be below."""

    seed: int
    config: ShiftConfig
    outcomes: Mapping[str, StrategyOutcome]
    bound: float

    def ratio(self, name: str) -> float:
        """Total time over that of the offline optimum."""
        return self.outcomes[name].total_time / self.outcomes[OPTIMAL].total_time


def shift(seed: int, config: ShiftConfig | None = None) -> ShiftReport:
    """Train on one seed and test on another, every strategy on the same tasks."""
    config = config or ShiftConfig()
    cluster = load_cluster("tasks")
    trained_on = tasks(TRAINING_SEEDS + seed, jobs=config.training_jobs, intensity=config.training_intensity, memory=config.training_memory)
    workload = tasks(seed, jobs=config.jobs, intensity=config.intensity, memory=config.memory, gap=config.gap)
    results, offline = {}, _offline(workload, cluster, seed, config)
    devices = _devices(cluster)
    results[OPTIMAL] = simulate(workload, cluster, PlannedDevices(dict(zip(devices, offline.queues, strict=True))), seed)
    for name in (ROUND_ROBIN, "random-device", "greedy-device"):
        results[name] = simulate(workload, cluster, parse_scheduler(name), seed)
    for scheduler in learned(profile(trained_on, cluster), seed, config):
        results[scheduler.label] = simulate(workload, cluster, scheduler, seed)
    return report_of(seed, config, results, offline.bound)


def learned(data: Profile, seed: int, config: ShiftConfig) -> list[LearnedDevice]:
    """Train forest, online network and linear bandit on the same profile."""
    from gpuyard.learn.devices.models import DurationModel, ForestDurations, LinearDurations
    from gpuyard.learn.devices.network import NetworkDurations

    forest, network = ForestDurations.fit(data, seed), NetworkDurations.trained(data, seed)
    models: tuple[tuple[str, Callable[[], DurationModel], float], ...] = (
        (FOREST, lambda: forest, 0.0),
        (ONLINE, lambda: network.fresh(seed), config.epsilon),
        ("linucb", lambda: LinearDurations(data), 0.0),
    )
    return [LearnedDevice(name, make, Exploration(epsilon), config.replan) for name, make, epsilon in models]


def report_of(seed: int, config: ShiftConfig, results: Mapping[str, Result], bound: float) -> ShiftReport:
    """Compute all numbers from the results alone."""
    spent = {name: _turnarounds(result) for name, result in results.items()}
    outcomes = {
        name: StrategyOutcome(
            result, float(result.table["end"].max() - result.workload.jobs.submit.min()), float(spent[name].mean()),
            float(spent[name].sum()), float(spent[ROUND_ROBIN].mean() / spent[name].mean()), np.cumsum(spent[name] - spent[OPTIMAL]),
        )
        for name, result in results.items()
    }  # fmt: skip
    return ShiftReport(seed, config, MappingProxyType(outcomes), bound)


def _devices(cluster: Cluster) -> list[tuple[int, int]]:
    return [(n, d) for n, gpus in enumerate(cluster.nodes.gpus.tolist()) for d in range(gpus)]


def _offline(workload: Workload, cluster: Cluster, seed: int, config: ShiftConfig) -> Offline:
    """The offline optimum on true seconds, started from what `optimal-device` does, which knows no task before it comes."""
    devices = _devices(cluster)
    kinds = np.array([int(cluster.types[cluster.nodes.gpu_type[n]].name != "cpu") for n, _ in devices])
    seconds = profile(workload, cluster).seconds[:, kinds]
    limit = cluster.nodes.memory[[n for n, _ in devices]]
    seconds = np.where(workload.jobs.memory[:, None] <= limit[None, :], seconds, np.inf)
    rolling = simulate(workload, cluster, parse_scheduler(f"optimal-device:most={min(max(config.jobs, 1), 2000)}"), seed)
    order = np.argsort(rolling.table["start"], kind="stable")
    start = [[int(j) for j in order if rolling.table["node"][j] == n] for n, _ in devices]
    return offline_optimum(workload.jobs.submit, seconds, start, seed, kicks=config.kicks)


def _turnarounds(result: Result) -> Array:
    spent: Array = result.table["end"] - result.workload.jobs.submit
    return spent
