"""The kinds of environments: for each open decision, everything that learning, judging and explaining need to know about it.

A kind lives in its own folder here and registers an `EnvKind`; nothing outside names it but the line in `FOLDERS`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

from gpuyard.arrays import Array
from gpuyard.engine.simulation import AnyScheduler, simulate
from gpuyard.envs.base import Envs, Instance, Observation
from gpuyard.envs.reward import OBJECTIVES
from gpuyard.errors import UsageError
from gpuyard.features.schema import Schema
from gpuyard.metrics import METRICS, is_metric, measure, resolve
from gpuyard.model.decision import Decision
from gpuyard.model.result import Result
from gpuyard.model.snapshot import Snapshot
from gpuyard.networks.export import Purpose
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Scheduler
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.recipes import Episode, EpisodeSource

_ID = re.compile(r"(?:gpuyard/)?(?P<name>.*?)(?:-v(?P<version>[0-9]{1,9}))?")
Answer: TypeAlias = tuple[Array, Sequence[Decision]]  # the order of the waiting jobs, and what is decided about them


@dataclass(frozen=True)
class Criterion:
    """A number of a whole run, and which way it should go."""

    name: str
    better: Literal["lower", "higher"]
    measure: Callable[[Result], float]


@dataclass(frozen=True)
class Demonstrator:
    """A heuristic in environments made for it; `choose` returns what it would do, (envs,) i4, in the states that they are in now."""

    envs: Envs
    choose: Callable[[Observation], Array]


@dataclass(frozen=True)
class Explaining:
    """The heuristics that `gpuyard explain` compares a policy with, and how it distinguishes choices."""

    heuristics: tuple[str, ...] = ()  # that could fill the open slot; none: there are no heuristics to compare with
    alike: Callable[[Answer, Mapping[str, Answer]], Mapping[str, tuple[float, float]]] = lambda mine, theirs: {}
    # ^ of the policy's answer and the heuristics': for each whether it is the same (0 or 1), and the rank correlation of the orders or nan
    waiting: int = 1  # jobs that wait at least in the snapshots at which heuristics are asked
    snapshots: int = 0  # at which they are asked
    labels: Callable[[Any], tuple[str, ...]] = lambda scheduler: ()  # of the choices of a scheduler, where they can be told apart
    label_feature: str = ""  # the feature of the chosen row that is the number of its label; empty: the action is the number
    situations: tuple[str, ...] = ()  # features of the context by which choices are grouped
    judged: Callable[[Scheduler, Snapshot], tuple[Array, Array, Array]] | None = None
    # ^ of a network that is asked inside the engine alone: features of the jobs and of the situation, and the jobs' areas without it


def simulated(episode: Episode, scheduler: AnyScheduler, options: Any) -> Sequence[Result]:
    """Run the episode once in the engine."""
    return [simulate(episode.workload, episode.cluster, scheduler, seed=episode.seed)]


@dataclass(frozen=True)
class EnvKind:
    """An environment by name; its id is `gpuyard/NAME-vVERSION`.

    `make(source, options, count, seed)` makes a batch whose n-th episode of environment e is
    `source.episode(episode_number(seed, e, n))`. `scheduler(spec, arrays, options)` turns a network into what chooses, in the engine, as
    the environment lets an agent choose. A checkpoint becomes a scheduler through `gpuyard.policies.learned.DECISIONS`.
    """

    name: str
    title: str
    schema: Schema
    options: type[Any]  # a frozen dataclass; all its fields have defaults
    make: Callable[[EpisodeSource, Any, int, int], Envs]
    scheduler: Callable[[NetworkSpec, Mapping[str, Array], Any], AnyScheduler]
    baselines: tuple[str, ...] | Callable[[Any], tuple[str, ...]]  # texts of schedulers that a policy must beat; may depend on options
    objective: str = "bsld"  # unless another is asked for; where `options` has a field of this name, that is set too
    objectives: Mapping[str, Callable[[Any], Criterion]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # of options; besides metrics
    metrics: tuple[str, ...] = ("wait", "turnaround", "utilization")  # that a policy is judged by besides the objective
    results: Callable[[Episode, Any, Any], Sequence[Result]] = simulated  # of (episode, scheduler, options): what is validated
    choices: Callable[[Any], Mapping[str, Any]] = lambda options: {}  # of options: what a checkpoint must know to be a scheduler
    chosen: Callable[[Mapping[str, Any]], Mapping[str, Any]] = lambda choices: choices  # the settings that made these choices
    text: Callable[[str, Any], str] = lambda name, options: name  # the scheduler with `name` in the open slot
    starts: Mapping[str, Callable[[NetworkSpec, Mapping[str, Array]], Mapping[str, Array]]] = field(
        default_factory=lambda: MappingProxyType({})
    )  # weights to start a training from, by name: of a network's spec and its arrays as they were drawn
    teachers: Callable[[Any], tuple[str, ...]] = lambda options: ()  # names of heuristics that can be imitated
    demonstrate: Callable[[EpisodeSource, Any, str, int, int], Demonstrator] | None = None  # by one of them; else as `make`
    opponents: Callable[[Any], tuple[str, ...]] = lambda options: ()  # of options: further schedulers that an evaluation compares with
    explaining: Explaining = field(default_factory=Explaining)
    version: int = 0
    aliases: tuple[str, ...] = ()
    example: str = "family:shape=base|bursty,gpus=4|8 on {gpus}"  # a workload that it can be learned on
    workload: str = ""  # that Gymnasium's environments have unless another is given; empty: the example
    unbounded: frozenset[str] = frozenset()  # features that may have any size
    entry_point: str = "gpuyard.envs.gym:SchedulingEnv"  # Gymnasium's class of one environment; empty: it cannot be stepped
    vector_entry_point: str | None = "gpuyard.envs.gym:VectorGym"  # the class of many at once

    @property
    def id(self) -> str:
        return f"gpuyard/{self.name}-v{self.version}"

    @property
    def label(self) -> str:
        """Return the name under which it is registered and recorded; the first version goes without its number."""
        return f"{self.name}-v{self.version}" if self.version else self.name

    def baselines_for(self, options: Any) -> tuple[str, ...]:
        """Return the texts of the schedulers that a policy must beat."""
        return self.baselines(options) if callable(self.baselines) else self.baselines

    def opponents_for(self, options: Any) -> tuple[str, ...]:
        """Return the texts of all schedulers that an evaluation compares a policy with, each once: its baselines and further ones."""
        return tuple(dict.fromkeys((*self.baselines_for(options), *self.opponents(options))))

    def objective_for(self, name: str, options: Any) -> Criterion:
        """Return one of its own objectives, the metric that judges an objective of rewards, or a metric such as `bsld` or `wait.p95`."""
        if name in self.objectives:
            return self.objectives[name](options)
        name = OBJECTIVES[name].metric if name in OBJECTIVES else name
        if not is_metric(name):
            raise unknown_name("objective", name, [*self.objectives, *OBJECTIVES, *METRICS])
        found, _ = resolve(name)
        if found.better == "neither":
            raise UsageError(f"objective {name!r}: neither lower nor higher is better")
        return Criterion(name, found.better, lambda result: measure(result, [name])[name])

    def purpose(self, options: Any, workloads: Sequence[str], cluster: str, source: EpisodeSource) -> Purpose:
        """Return what a network is for that was trained on these workloads, of which `source` is the part that it saw."""
        return Purpose(self.schema, self.choices(options), options.objective, tuple(workloads), cluster, source.uses)

    def demonstrator(self, source: EpisodeSource, options: Any, teacher: str, count: int, seed: int) -> Demonstrator:
        """Let a heuristic choose in `count` environments over the episodes that a training with the same seed has."""
        if self.demonstrate is None or teacher not in self.teachers(options):
            raise unknown_name(f"heuristic to imitate in {self.name}:", teacher, self.teachers(options))
        return self.demonstrate(source, options, teacher, count, seed)


ENVS: Registry[EnvKind] = Registry("environment")
FOLDERS: tuple[str, ...] = ("job", "host", "switch", "device", "rank")  # of gpuyard.envs.kinds: each has a kind.py that registers its kind


def environments() -> Registry[EnvKind]:
    """Return the registry, with all kinds that come with the package."""
    for folder in FOLDERS:
        import_module(f"gpuyard.envs.kinds.{folder}.kind")
    return ENVS


def find_env(text: str) -> EnvKind:
    """Find a kind by `PickJob`, `gpuyard/PickJob-v0`, `pick-job` or an alias; case, hyphens and underscores do not matter.

    A name without a version means the first version, so that commands and trainings that name none go on to mean the same.
    """
    match = _ID.fullmatch(text.strip())
    asked = _plain(match["name"] if match else text)
    known = [kind for _, kind in environments().items()]
    versions = {kind.version: kind for kind in known if asked in map(_plain, (kind.name, *kind.aliases))}
    if not versions:
        raise unknown_name("environment", text, list(dict.fromkeys(kind.name for kind in known)))
    version = int(match["version"]) if match and match["version"] is not None else min(versions)
    if version not in versions:
        raise UsageError(f"environment {text!r}: there is no such version", hint=f"did you mean {versions[max(versions)].id!r}?")
    return versions[version]


def kind_of(schema: Schema) -> EnvKind:
    """Find the kind in which exactly these features are seen, or else one about the same decision."""
    about = [kind for _, kind in environments().items() if kind.schema.decision == schema.decision]
    return next((kind for kind in about if kind.schema.hash == schema.hash), about[0])


def instances_of(source: EpisodeSource) -> Callable[[int], Instance]:
    """Return the function from the number of an episode to its workload and cluster."""

    def made(number: int) -> Instance:
        episode = source.episode(number)
        return episode.workload, episode.cluster

    return made


def _plain(name: str) -> str:
    return name.lower().replace("-", "").replace("_", "").replace(" ", "")
