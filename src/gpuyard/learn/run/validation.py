"""Validation: the engine runs a network as a scheduler on workloads that were not trained on, beside the baselines."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any, Literal, Protocol

from gpuyard.engine.simulation import AnyScheduler
from gpuyard.envs.kinds.base import EnvKind
from gpuyard.envs.threads import map_on_threads
from gpuyard.errors import SimulationError
from gpuyard.learn.base import Arrays
from gpuyard.metrics import measure
from gpuyard.model.estimator import fitted_before
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import parse_scheduler
from gpuyard.traces.recipes import Episode

THREADS = min(4, os.cpu_count() or 1)
_SCORE = ""  # the objective, among the means of metrics


class Validator(Protocol):
    """Gives a network a score. A protocol, so that networks that are not schedulers can be validated too."""

    @property
    def objective(self) -> str: ...
    @property
    def better(self) -> Literal["lower", "higher"]: ...
    @property
    def baselines(self) -> Mapping[str, float]:
        """Scores of the baselines, computed once."""

    @property
    def facts(self) -> Mapping[str, float]:
        """Return what else is shown of the last network and, as `METRIC/BASELINE`, of the baselines."""

    def __call__(self, spec: NetworkSpec, arrays: Arrays) -> float: ...


class EngineValidation:
    """The mean of an objective over some episodes, each simulated by the engine from beginning to end.

    Estimates are those of the environments: a model that would stop every simulation to learn again is fitted once, before the episode.
    With refits a validation on 96 windows of Philly and Helios took minutes.
    """

    def __init__(self, kind: EnvKind, options: Any, objective: str, episodes: Sequence[Episode]) -> None:
        self._kind = kind
        self._options = options
        found = kind.objective_for(objective, options)
        self.objective, self.better, self._measure = found.name, found.better, found.measure
        self._episodes = tuple(replace(episode, workload=fitted_before(episode.workload)) for episode in episodes)
        self._last: Mapping[str, float] = {}

    @cached_property
    def baselines(self) -> Mapping[str, float]:
        """Text of the scheduler → mean of the objective."""
        return {text: means[_SCORE] for text, means in self._of_baselines.items()}

    @property
    def facts(self) -> Mapping[str, float]:
        """Means of the metrics that the environment is judged by: of the last network, and as `METRIC/BASELINE` of the baselines."""
        of_baselines = {f"{name}/{text}": means[name] for name in self._last for text, means in self._of_baselines.items()}
        return {**self._last, **of_baselines}

    @cached_property
    def _of_baselines(self) -> Mapping[str, Mapping[str, float]]:
        return {text: self._means(parse_scheduler(text)) for text in self._kind.baselines_for(self._options)}

    def __call__(self, spec: NetworkSpec, arrays: Arrays) -> float:
        means = self._means(self._kind.scheduler(spec, arrays, self._options))
        self._last = {name: mean for name, mean in means.items() if name != _SCORE}
        return means[_SCORE]

    def _means(self, scheduler: AnyScheduler) -> dict[str, float]:
        """Return means over the episodes, whatever the number of threads. A scheduler that decides in Python gains nothing from them.

        A metric that some episode has no value of, such as the use of GPUs where there are none, is not finite.
        """
        compile_it = getattr(scheduler, "program", None)
        threads = 1 if compile_it is None else THREADS
        if compile_it is not None:
            compile_it()  # here, so that threads do not compile twice
        values = map_on_threads(lambda episode: self._values(episode, scheduler), self._episodes, threads)
        return {name: math.fsum(each[name] for each in values) / len(values) for name in values[0]}

    def _values(self, episode: Episode, scheduler: AnyScheduler) -> dict[str, float]:
        results = self._kind.results(episode, scheduler, self._options)
        value = math.fsum(float(self._measure(result)) for result in results) / len(results)
        if not math.isfinite(value):
            raise SimulationError(f"validation: {self.objective} of {episode.text} with seed {episode.seed} is {value}")
        each = [measure(result, self._kind.metrics) for result in results]
        return {_SCORE: value, **{name: math.fsum(found[name] for found in each) / len(each) for name in self._kind.metrics}}
