"""Turns axes into what is run: cells (a workload on a cluster, changed and estimated in some way), units (a cell at a seed) and Runs.

A unit is what a worker takes at a time: its workload is made once, and every scheduler runs on it. Runs are numbered in the order of the
axes: cells, then seeds, then schedulers, and an agent's training seeds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

import gpuyard
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.design.spec import MOST_RUNS, Experiment, placed
from gpuyard.experiments.design.varying import fill
from gpuyard.files import user_path
from gpuyard.model.units import shorten
from gpuyard.model.workload import Workload
from gpuyard.networks.checkpoint import find_checkpoint
from gpuyard.networks.manifest import Use
from gpuyard.policies import AnyScheduler, Decider, Meta, Scheduler, Several
from gpuyard.policies.learned import checkpoint_of, is_learned
from gpuyard.traces.changes.transform import check_transform
from gpuyard.traces.estimates.sources import ESTIMATES
from gpuyard.traces.parameters import arguments_of
from gpuyard.traces.recipes import Clusters, Episode, GeneratorSource, Recipe, Trace, TraceSource, parse_recipe
from gpuyard.traces.splits import has_seen, overlap

MOST_CELLS = 100_000
PACKAGE = Path(gpuyard.__file__).parent
RESERVED = frozenset({"run", "workload", "cluster", "change", "estimate", "seed", "scheduler", "training_seed"})


@dataclass(frozen=True)
class Cell:
    """A place on all axes but seeds and schedulers."""

    workload: str  # its short name, or its text without the cluster, and without the cell's change and estimate
    recipe: Recipe  # without alternatives
    parameters: Mapping[str, str]  # of its generator, as given; its own of the file; its place on what is varied
    change: str
    estimate: str

    @property
    def cluster(self) -> str:
        """The text of the cluster, the same at every seed; empty where it is the workload's own or guessed from the log."""
        return fill(self.recipe.cluster, self.parameters)


@dataclass(frozen=True)
class Entry:
    """A scheduler of the axis; an agent has one for each training seed."""

    name: str
    training_seed: int | None = None

    @property
    def label(self) -> str:
        return self.name if self.training_seed is None else f"{self.name}-{self.training_seed}"


def cells_of(experiment: Experiment) -> list[Cell]:
    """List the cells in the order of the axes; refuses what cannot become a workload, without reading a log."""
    axes, name = experiment.axes, experiment.name
    for key, texts, check in (("changes", axes.changes, _parts_of), ("estimates", axes.estimates, _check_estimate)):
        for text in texts:
            with placed(f"{name}: [axes] {key}"):
                check(text)
    if axes.clusters != ("",) and all(parse_recipe(text).cluster for given in axes.workloads for text in texts_of(experiment, given)):
        raise DataError(f"{name}: [axes] clusters: every workload names its own cluster", hint="leave clusters out")
    _check_size(experiment)
    places: list[tuple[str, Recipe, dict[str, str]]] = []
    for given in axes.workloads:
        with placed(f"{name}: [axes] workloads"):
            places += _places_of(experiment, given)
    return [
        Cell(workload, _changed(recipe, change, estimate), parameters, change, estimate)
        for workload, recipe, parameters in _distinct(places, name)
        for change in axes.changes
        for estimate in axes.estimates
    ]


def _check_size(experiment: Experiment) -> None:
    """Count cells and Runs from the texts, before anything is made."""
    axes, places = experiment.axes, 0
    for recipe in (parse_recipe(text) for given in axes.workloads for text in texts_of(experiment, given)):
        alternatives = [value.count("|") + 1 for value in recipe.base.split(",")] if recipe.is_generator else []
        clusters = recipe.cluster.count("|") + 1 if recipe.cluster else sum(text.count("|") + 1 for text in axes.clusters)
        places += math.prod(alternatives) * clusters
    cells = places * len(axes.changes) * len(axes.estimates)
    if cells > MOST_CELLS:
        what = f"{cells:,} combinations of workloads, clusters, changes and estimates"
        raise UsageError(f"{experiment.name}: {what}; at most {MOST_CELLS:,}", hint="make an axis shorter")
    count_runs(experiment, cells)


def texts_of(experiment: Experiment, given: str) -> list[str]:
    """Return the text of a workload of the axis at each place of what is varied; the first is that of the centre."""
    if given not in experiment.names and len(experiment.places) > 1:
        raise DataError(f"{shorten(given)}: a workload of which something is varied needs a short name", hint="put it into [names]")
    return [fill(experiment.text_of(given), place) for place in experiment.places]


def _places_of(experiment: Experiment, given: str) -> list[tuple[str, Recipe, dict[str, str]]]:
    """List the workloads that a text stands for, each on each cluster; the axis `clusters` is for workloads that name none."""
    found = []
    for text, place in zip(texts_of(experiment, given), experiment.places, strict=True):
        first = parse_recipe(text)
        if first.weight != 1:
            raise UsageError(f"{shorten(text)}: a weight is for training; here every workload is run", hint="leave it out")
        for cluster in experiment.axes.clusters if not first.cluster else ("",):
            for recipe, parameters in _alternatives(replace(first, cluster=first.cluster or cluster.strip()), experiment.axes.seeds):
                label = given if given in experiment.names else replace(recipe, cluster="").text
                found.append((label, recipe, {**parameters, **experiment.own.get(given, {}), **place}))
    return found


def _distinct(places: list[tuple[str, Recipe, dict[str, str]]], name: str) -> list[tuple[str, Recipe, dict[str, str]]]:
    seen = set()
    for label, recipe, _ in places:
        if (label, recipe) in seen:
            raise DataError(f"{name}: [axes] workloads: {shorten(recipe.text)} is there twice", hint="it would count double")
        seen.add((label, recipe))
    return places


def entries_of(experiment: Experiment) -> list[Entry]:
    """List the schedulers, agents once for each training seed."""
    return [
        Entry(name, seed)
        for name in experiment.axes.schedulers
        for seed in (experiment.agents[name].seeds if name in experiment.agents else (None,))
    ]


def count_runs(experiment: Experiment, cells: int) -> int:
    """Count the Runs; refuses more than can be kept."""
    runs = cells * len(experiment.axes.seeds) * len(entries_of(experiment))
    if runs > MOST_RUNS:
        raise UsageError(f"{experiment.name}: {runs:,} Runs; at most {MOST_RUNS:,}", hint="make an axis shorter")
    return runs


def _alternatives(recipe: Recipe, seeds: Sequence[int]) -> list[tuple[Recipe, dict[str, str]]]:
    """Make a recipe without `|` for each combination, with its parameters."""
    if not recipe.is_generator:
        return [(replace(recipe, cluster=each.strip()), {}) for each in recipe.cluster.split("|")]
    source = GeneratorSource.of(recipe, seeds[:1])
    parameters = [{name: value for name, value in each.items() if name != "cluster"} for each in source.combinations]
    return [(source.alternative(each), own) for each, own in zip(source.combinations, parameters, strict=True)]


def _changed(recipe: Recipe, change: str, estimate: str) -> Recipe:
    return replace(recipe, apply=(*recipe.apply, *_parts_of(change)), estimate=estimate or recipe.estimate)


def _parts_of(change: str) -> tuple[str, ...]:
    """Split a text such as `burst:severity=3+load:0.9` into transforms."""
    texts = tuple(text.strip() for text in change.split("+")) if change else ()
    for text in texts:
        check_transform(text)
    return texts


def _check_estimate(text: str) -> None:
    name, _, arguments = text.partition(":")
    if name:
        arguments_of(arguments, f"estimate source {name}", ESTIMATES[name].parameters)


def column(parameter: str) -> str:
    """The name of the column of a workload's parameter."""
    return f"workload_{parameter}" if parameter in RESERVED else parameter


# ── the workloads themselves ──


class Sources:
    """Workloads by cell and seed; a log is read once."""

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = tuple(seeds)
        self._at = {seed: k for k, seed in enumerate(self._seeds)}
        self._traces = lru_cache(maxsize=8)(Trace.of)
        self._parts = lru_cache(maxsize=64)(self._part)
        self._clusters = Clusters()

    def episode(self, cell: Cell, seed: int) -> Episode:
        """The workload and the cluster of a unit."""
        part = self._parts(cell.recipe)
        if isinstance(part, GeneratorSource):
            return part.episode(self._at[seed])
        return self._window(part, self._at[seed])

    def uses(self, cell: Cell) -> tuple[Use, ...]:
        """The data that the units of a cell use."""
        return self._parts(cell.recipe).uses

    def _part(self, recipe: Recipe) -> GeneratorSource | TraceSource:
        if recipe.is_generator:
            found = GeneratorSource.of(recipe, self._seeds)
            return replace(found, clusters=self._clusters)
        log = self._traces(replace(recipe, begin=recipe.begin or "0", each=()))  # which changes of its windows do not concern
        return replace(log.part("test", whole=True), recipe=recipe)  # all of it unless a range is named

    def _window(self, part: TraceSource, k: int) -> Episode:
        """Cut window `k` of as many as there are seeds; they do not overlap and are spread over the whole part."""
        there, wanted = len(part.rows) // part.jobs, len(self._seeds)
        if there < wanted:
            what = f"{there:,} windows of {part.jobs:,} jobs do not overlap, and {wanted:,} seeds ask for as many"
            raise DataError(f"{part.text}: {what}", hint="fewer seeds, or a shorter window, e.g. [jobs=128]")
        first = int(np.linspace(0, there - wanted, wanted).astype(int)[k] + k) * part.jobs
        return part.window(part.rows[first : first + part.jobs], k)


def check_unseen(scheduler: AnyScheduler, name: str, cells: Sequence[Cell], sources: Sources) -> None:
    """Refuse to judge a policy on what it was trained or validated on."""
    for text in checkpoints_in(scheduler):
        training = checkpoint_of(text).manifest.training
        for cell in cells:
            shared = overlap(training, sources.uses(cell))
            if shared is not None:
                raise UsageError(f"{name}: {shared}", hint="use other seeds, or a later range of the trace")


def saw(scheduler: AnyScheduler, log: Workload, jobs: Workload) -> bool:
    """Return whether a network of the scheduler was trained or validated on some of the jobs of a log."""
    return any(has_seen(checkpoint_of(text).manifest.training, log, jobs) for text in checkpoints_in(scheduler))


def checkpoints_in(scheduler: AnyScheduler) -> list[str]:
    """Find the texts of the checkpoints that fill slots of a scheduler."""
    found = [scheduler.rule.name] if isinstance(scheduler, Meta) and scheduler.rule.network is not None else []
    found += [scheduler.name] if isinstance(scheduler, Decider) and is_learned(scheduler.name) else []
    slots = [slot for part in parts_of(scheduler) for slot in (part.ordering, part.placement)]
    return found + [slot.name for slot in slots if slot.network is not None]


def parts_of(scheduler: AnyScheduler) -> tuple[Scheduler, ...]:
    """Return the schedulers that it is, switches between, or builds on."""
    if isinstance(scheduler, Decider):
        inner = scheduler.inner
        return inner.schedulers if isinstance(inner, Several) else (inner,) if inner is not None else ()
    return scheduler.schedulers if isinstance(scheduler, Meta) else (scheduler,)


def files_of(scheduler: AnyScheduler) -> list[Path]:
    """Return the files that a scheduler is read from, besides the package: checkpoints and the user's own programs."""
    found = [find_checkpoint(text) for text in checkpoints_in(scheduler)]
    slots: list[Any] = [slot for part in parts_of(scheduler) for slot in (part.ordering, part.placement, part.preemption)]
    slots += [scheduler.rule] if isinstance(scheduler, Meta) else []
    functions = [slot.function for slot in slots if slot.function is not None]
    functions += [scheduler.make] if isinstance(scheduler, Decider) else []
    programs = [Path(function.__code__.co_filename) for function in functions if hasattr(function, "__code__")]
    return [path for path in dict.fromkeys((*found, *programs)) if not path.is_relative_to(PACKAGE) and path.is_file()]


def exists(text: str, kind: Callable[[Path], bool] = Path.exists) -> bool:
    """Whether a text of a workload or cluster names a path that is there, of that kind."""
    try:
        return bool(text) and kind(user_path(text))
    except (OSError, ValueError, DataError):  # a name that no file can have
        return False
