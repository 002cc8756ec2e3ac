"""The environments by name: how a batch of them is made, and what turns a trained network into a scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal

from gpuyard.arrays import Array
from gpuyard.engine.simulation import AnyScheduler, simulate
from gpuyard.envs.base import Envs
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.metrics import METRICS, measure, resolve
from gpuyard.model.result import Result
from gpuyard.networks.spec import NetworkSpec
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.recipes import Episode, Source

_ID = re.compile(r"(?:gpuyard/)?(?P<name>.*?)(?:-v(?P<version>[0-9]{1,9}))?")


@dataclass(frozen=True)
class Objective:
    """A number of a whole run, and which way it should go."""

    name: str
    better: Literal["lower", "higher"]
    measure: Callable[[Result], float]


@dataclass(frozen=True)
class EnvKind:
    """An environment by name; its id is `gpuyard/NAME-vVERSION`.

    `make(source, options, count, seed)` makes a batch whose n-th episode of environment e is
    `source.episode(episode_number(seed, e, n))`. `scheduler(spec, arrays, options)` makes of a network what chooses, in the engine, as
    the environment lets an agent choose. `baselines` are texts of schedulers, or a function of the options that gives them.
    """

    name: str
    title: str
    schema: Schema
    options: type[Any]  # a frozen dataclass; all its fields have defaults
    make: Callable[[Source, Any, int, int], Envs]
    scheduler: Callable[[NetworkSpec, Mapping[str, Array], Any], AnyScheduler]
    baselines: tuple[str, ...] | Callable[[Any], tuple[str, ...]]
    objective: str = "bsld"  # unless another is asked for; where `options` has a field of this name, that is set too
    objectives: Mapping[str, Callable[[Any], Objective]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of options; besides metrics
    results: Callable[[Episode, Any, Any], Sequence[Result]] | None = None  # of (episode, scheduler, options); None: the engine's
    choices: Callable[[Any], Mapping[str, Any]] = lambda options: {}  # of options: what a checkpoint must know to be a scheduler
    version: int = 0
    aliases: tuple[str, ...] = ()
    example: str = "family:shape=base|bursty,gpus=4|8 on {gpus}"  # a workload that it can be learned on

    @property
    def id(self) -> str:
        return f"gpuyard/{self.name}-v{self.version}"

    def baselines_for(self, options: Any) -> tuple[str, ...]:
        """Texts of the schedulers that a policy must beat."""
        return self.baselines(options) if callable(self.baselines) else self.baselines

    def results_of(self, episode: Episode, scheduler: AnyScheduler, options: Any) -> Sequence[Result]:
        """The episode run from beginning to end, by each of the rules that the options name."""
        if self.results is not None and bool(getattr(options, "rules", None)):
            return self.results(episode, scheduler, options)
        return [simulate(episode.workload, episode.cluster, scheduler, seed=episode.seed)]

    def objective_for(self, name: str, options: Any) -> Objective:
        """One of its own objectives, or a metric such as `bsld` or `wait.p95`."""
        if name in self.objectives:
            return self.objectives[name](options)
        if name.partition(".")[0] not in METRICS:
            raise unknown_name("objective", name, [*self.objectives, *METRICS])
        found, _ = resolve(name)
        if found.better == "neither":
            raise UsageError(f"objective {name!r}: neither lower nor higher is better")
        return Objective(name, found.better, lambda result: measure(result, [name])[name])


ENVS: Registry[EnvKind] = Registry("environment")
MODULES: tuple[str, ...] = ("scheduling", "device.kind")  # of gpuyard.envs.kinds: each registers its kinds when it is imported


def environments() -> Registry[EnvKind]:
    """The registry, with all that come with the package."""
    for module in MODULES:
        import_module(f"gpuyard.envs.kinds.{module}")
    return ENVS


def find_env(text: str) -> EnvKind:
    """`PickJob`, `gpuyard/PickJob-v0`, `pick-job`, or an alias; case, hyphens and underscores do not matter."""
    environments()
    match = _ID.fullmatch(text.strip())
    asked = _plain(match["name"] if match else text)
    for _, kind in ENVS.items():
        if asked in map(_plain, (kind.name, *kind.aliases)):
            if match and match["version"] is not None and int(match["version"]) != kind.version:
                raise UsageError(f"environment {text!r}: there is no such version", hint=f"did you mean {kind.id!r}?")
            return kind
    raise unknown_name("environment", text, [kind.name for _, kind in ENVS.items()])


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
