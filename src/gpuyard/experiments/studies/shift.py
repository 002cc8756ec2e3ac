"""A change of distribution: policies are trained on compute-heavy tasks and tested on low-intensity, memory-heavy ones.

What is trained before (forest, network of seconds, DQN, linear bandit) sees the same profile of compute-heavy tasks. In the test the forest
stays as it is; the others learn from each task that ends. All use the seconds that they predict in the same way.
"""

from __future__ import annotations

import typing
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType

import numpy as np

from gpuyard.arrays import Array, quantiles
from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError, GpuyardError
from gpuyard.experiments.design.spec import placed
from gpuyard.experiments.judging.curves import LEVELS, RECENT, Curve
from gpuyard.experiments.studies.offline import Offline, offline_optimum
from gpuyard.learn.devices import profile, train_devices
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.result import Result
from gpuyard.model.units import Range
from gpuyard.model.workload import Workload
from gpuyard.policies.deciders.devices import PlannedDevices
from gpuyard.policies.deciders.learning.choice import Exploration, LearnedDevice, by_prediction
from gpuyard.policies.deciders.learning.dqn import DeviceDqnConfig
from gpuyard.policies.deciders.learning.models import Profile
from gpuyard.policies.deciders.learning.strategies import DQN_EPSILON, REGRESSOR_EPSILON, DeviceModels
from gpuyard.policies.text import parse_scheduler
from gpuyard.registry import unknown_name
from gpuyard.traces.generators.tasks import tasks
from gpuyard.traces.parameters import GigabyteRange, Parameter, Seconds, resolve

OPTIMAL, ROUND_ROBIN, FOREST, ONLINE, REGRESSOR, LINEAR = "offline-optimal", "round-robin", "forest", "online", "regressor", "linucb-device"
UNTRAINED = (ROUND_ROBIN, "random-device", "greedy-device")
STRATEGIES = (OPTIMAL, *UNTRAINED, FOREST, LINEAR, REGRESSOR, ONLINE)
TRAINING_SEEDS = 1_000_000  # are added to the seed of a run: no training workload is a test workload


@dataclass(frozen=True)
class ShiftConfig:
    """The two distributions and how much of each there is, and how the agents explore."""

    jobs: int = 500
    size: Range = Range(500, 4000)  # noqa: RUF009 - frozen
    intensity: Range = Range(0.0, 0.3)  # noqa: RUF009
    memory: GigabyteRange = Range(4.0, 12.0)  # noqa: RUF009
    gap: Seconds = 1.0  # between arrivals on average, in the test
    training_jobs: int = 2000
    training_size: Range = Range(500, 4000)  # noqa: RUF009
    training_intensity: Range = Range(0.7, 1.0)  # noqa: RUF009
    training_memory: GigabyteRange = Range(0.1, 1.0)  # noqa: RUF009
    epsilon: float = DQN_EPSILON  # of the DQN, at every task
    discount: float = DeviceDqnConfig.discount  # of the DQN
    regressor_epsilon: float = REGRESSOR_EPSILON  # of the one-step regressor, at its first task
    kicks: int = 10_000  # of the search for the offline optimum
    replan: bool = True  # forest, regressor and bandit reassign and reorder waiting tasks; False: first in, first out

    def tested(self, seed: int) -> Workload:
        """Generate the tasks of the test."""
        return tasks(seed, jobs=self.jobs, size=self.size, intensity=self.intensity, memory=self.memory, gap=self.gap)

    def trained(self, seed: int) -> Workload:
        """Generate the tasks of the training."""
        ranges = {"size": self.training_size, "intensity": self.training_intensity, "memory": self.training_memory}
        return tasks(TRAINING_SEEDS + seed, jobs=self.training_jobs, **ranges)


_BOUNDS: Mapping[str, tuple[float, float]] = {
    "jobs": (1, 100_000), "training_jobs": (10, 1_000_000), "kicks": (0, 10_000_000), "epsilon": (0, 1), "discount": (0, 1),
    "regressor_epsilon": (0, 1),
}  # fmt: skip


def shift_config(settings: Mapping[str, float | str], where: str) -> ShiftConfig:
    """Read the settings of an experiment; a range is a text, `0.7:1` or `4GB:12GB`. Errors name the setting."""
    hints = typing.get_type_hints(ShiftConfig, include_extras=True)
    known = tuple(Parameter(each.name, hints[each.name], each.default) for each in fields(ShiftConfig) if each.name != "replan")
    for name in settings:
        if name not in hints or name == "replan":
            raise unknown_name(f"setting in {where}: [settings]:", name, [each.name for each in known])
    try:
        made = ShiftConfig(**resolve("[settings]", known, {name: _text(value) for name, value in settings.items()}))
        for name, (low, high) in _BOUNDS.items():
            if not low <= getattr(made, name) <= high:
                raise DataError(f"[settings]: {name} = {getattr(made, name):g} does not lie in {low:g}..{high:,g}")
        with placed("[settings]"):
            replace(made, jobs=1).tested(0)  # refuses ranges that are not sensible
        with placed("[settings]: training_…"):
            replace(made, training_jobs=1).trained(0)
    except GpuyardError as error:
        raise DataError(f"{where}: {error}", hint=error.hint) from None
    return made


def _text(value: float | str) -> str:
    return value if isinstance(value, str) else f"{value:.17g}"


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
    bound: float
    outcomes: Mapping[str, StrategyOutcome]
    trained: Profile  # the tasks of training and of the test, measured on each kind of device
    tested: Profile

    def ratio(self, name: str) -> float:
        """Total time over that of the offline optimum."""
        return self.outcomes[name].total_time / self.outcomes[OPTIMAL].total_time


def shift(seed: int, config: ShiftConfig | None = None, strategies: Iterable[str] = STRATEGIES) -> ShiftReport:
    """Train on one seed and test on another, every strategy on the same tasks; the optimum and round robin are always among them."""
    config = config or ShiftConfig()
    cluster, chosen = load_cluster("tasks"), {OPTIMAL, ROUND_ROBIN, *strategies}
    workload, trained_on = config.tested(seed), config.trained(seed)
    results, offline = {}, _offline(workload, cluster, seed, config)
    devices = _devices(cluster)
    results[OPTIMAL] = simulate(workload, cluster, PlannedDevices(dict(zip(devices, offline.queues, strict=True))), seed)
    for name in (name for name in UNTRAINED if name in chosen):
        results[name] = simulate(workload, cluster, parse_scheduler(name), seed)
    if chosen - {OPTIMAL, *UNTRAINED}:
        models = train_devices(trained_on, cluster, seed, dqn=ONLINE in chosen)
        for scheduler in learned(models, seed, config):
            if scheduler.label in chosen:
                results[scheduler.label] = simulate(workload, cluster, scheduler, seed)
    return report_of(seed, config, results, offline.bound, (profile(trained_on, cluster), profile(workload, cluster)))


def learned(models: DeviceModels, seed: int, config: ShiftConfig) -> list[LearnedDevice]:
    """Make a scheduler of each model; all were trained on the same tasks."""
    replan, first = config.replan, Exploration(config.regressor_epsilon)
    dqn = DeviceDqnConfig(epsilon=config.epsilon, discount=config.discount)
    return [
        LearnedDevice(FOREST, lambda: by_prediction(models.forest_durations(), replan=replan)),
        LearnedDevice(LINEAR, lambda: by_prediction(models.linear_durations(), replan=replan)),
        LearnedDevice(REGRESSOR, lambda: by_prediction(models.network_durations(seed), first, replan=replan)),
        LearnedDevice(ONLINE, lambda: models.dqn(dqn, seed)),
    ]


def report_of(
    seed: int, config: ShiftConfig, results: Mapping[str, Result], bound: float, profiles: tuple[Profile, Profile]
) -> ShiftReport:
    """Compute all numbers from the results alone."""
    spent = {name: _turnarounds(result) for name, result in results.items()}
    outcomes = {
        name: StrategyOutcome(
            result, float(result.table["end"].max() - result.workload.jobs.submit.min()), float(spent[name].mean()),
            float(spent[name].sum()), float(spent[ROUND_ROBIN].mean() / spent[name].mean()), np.cumsum(spent[name] - spent[OPTIMAL]),
        )
        for name, result in results.items()
    }  # fmt: skip
    return ShiftReport(seed, config, bound, MappingProxyType(outcomes), *profiles)


def curves_of(report: ShiftReport, name: str) -> dict[str, Curve]:
    """Return regret over tasks, and the time of the last tasks over that of the optimum."""
    outcome = report.outcomes[name]
    x = np.arange(1.0, len(outcome.regret) + 1)
    ratio = _running(_turnarounds(outcome.result)) / _running(_turnarounds(report.outcomes[OPTIMAL].result))
    return {"regret": Curve(x, outcome.regret), "ratio": Curve(x, ratio)}


def workload_curves(report: ShiftReport) -> dict[str, Curve]:
    """Return quantiles of what the tasks of training (`trained.FACT`) and test (`tested.FACT`) are like."""
    found: dict[str, Curve] = {}
    for part, data in (("trained", report.trained), ("tested", report.tested)):
        size, intensity, memory = data.facts.T
        cpu, gpu = data.seconds.T
        facts = {"size": 1000 * size, "intensity": intensity, "memory": memory, "cpu": cpu, "gpu": gpu, "gain": cpu / gpu}
        found |= {f"{part}.{fact}": Curve(LEVELS, quantiles(values, LEVELS)) for fact, values in facts.items()}
    return found


def _running(values: Array) -> Array:
    """Return the mean over the last RECENT tasks."""
    sums = np.concatenate([[0.0], np.cumsum(values)])
    ends = np.arange(1, len(values) + 1)
    starts = np.maximum(ends - RECENT, 0)
    mean: Array = (sums[ends] - sums[starts]) / (ends - starts)
    return mean


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
