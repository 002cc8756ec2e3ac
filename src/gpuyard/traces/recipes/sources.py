"""Sources that make an episode of each number."""

from __future__ import annotations

import hashlib
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.estimator import EndedLog
from gpuyard.model.units import parse_assignments, shorten
from gpuyard.model.workload import Workload
from gpuyard.networks.manifest import Use
from gpuyard.registry import unknown_name
from gpuyard.traces import GENERATORS, guess_cluster, with_estimate
from gpuyard.traces.base import Generator
from gpuyard.traces.generators.sampling import stream
from gpuyard.traces.origin import instant
from gpuyard.traces.parameters import resolve
from gpuyard.traces.recipes.text import Recipe, parse_recipe
from gpuyard.traces.splits import SEEDS, SHARES, SHARES_OF_RANGE, Split, content_of, use_of_times, uses_of_seeds

WINDOW = 256  # jobs of a window of a trace
MOST_COMBINATIONS = 100_000
_SHARE = re.compile(r"[01]|[01]?\.[0-9]+")
_HOLE = re.compile(r"\{(\w*)\}")


@dataclass(frozen=True)
class Episode:
    """A workload to be run once on a cluster; `text` names both, `seed` is that of the generator, or the number of the window."""

    workload: Workload
    cluster: Cluster
    text: str
    seed: int


class EpisodeSource(Protocol):
    """Makes episodes from numbers."""

    @property
    def text(self) -> str: ...
    @property
    def size(self) -> int:
        """Return how many different numbers there are; larger ones repeat them."""

    @property
    def uses(self) -> tuple[Use, ...]:
        """Return all the data that episodes may come from."""

    def episode(self, number: int) -> Episode:
        """Make the episode of that number: the same bytes in any process."""


def episode_number(seed: int, env: int, episode: int) -> int:
    """Return a random number in 0 … 2⁶² − 1 for the n-th episode of an environment in a run with this seed."""
    digest = hashlib.blake2b(f"{seed}/{env}/{episode}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 2


# ── what the sources share ──


class Clusters:
    """Load clusters by text; the last few are kept."""

    def __init__(self) -> None:
        self._load = lru_cache(maxsize=256)(load_cluster)

    def fill(self, template: str, values: Mapping[str, object]) -> Cluster:
        """Load the cluster that the template names, its holes filled."""

        def value(hole: re.Match[str]) -> str:
            if hole[1] not in values:
                raise unknown_name(f"name in cluster {shorten(template)}:", hole[1], list(values))
            return str(values[hole[1]])

        return self._load(_HOLE.sub(value, template))


def _window(workload: Workload, rows: Array, ended: EndedLog | None = None) -> Workload:
    """Return some of the jobs, with the first submitted at 0. Of those `ended` before, a predictor knows the run times."""
    cut = workload.take(rows)
    origin = float(cut.jobs.table["submit"][0])
    if ended is not None and cut.predictor is not None:
        cut = replace(cut, predictor=cut.predictor.after(ended.before(origin)))
    cut.jobs.table["submit"] -= origin  # the table was copied by `take` and nobody has it yet
    cut.jobs.table["deadline"] -= origin
    return replace(cut, logged_start=None)


def _place(number: int, jobs: int, wanted: int) -> Array:
    begin = int(stream(number, "window").integers(0, jobs - wanted + 1))
    return np.arange(begin, begin + wanted)


# ── the sources ──


@dataclass(frozen=True)
class GeneratorSource:
    """Makes a new workload for each number."""

    recipe: Recipe
    generator: Generator
    combinations: tuple[Mapping[str, str], ...]  # parameter → text; "cluster" → template
    seeds: Sequence[int]
    clusters: Clusters = field(default_factory=Clusters, compare=False)

    @classmethod
    def of(cls, recipe: Recipe, seeds: Sequence[int]) -> GeneratorSource:
        """Make the source; refuse a recipe that no episode could be made of."""
        name, _, arguments = recipe.base.partition(":")
        given = {key: value.split("|") for key, value in parse_assignments(arguments, f"generator {name}").items()}
        templates = [template.strip() for template in recipe.cluster.split("|")]
        if np.prod([len(values) for values in given.values()], dtype=float) * len(templates) > MOST_COMBINATIONS:
            raise UsageError(f"workload {shorten(recipe.base)}: more than {MOST_COMBINATIONS:,} combinations")
        names = (*given, "cluster")
        combinations = tuple(
            dict(zip(names, values, strict=True)) for values in itertools.product(*given.values(), templates)
        )  # the cluster varies fastest
        made = cls(recipe, GENERATORS[name], combinations, seeds)
        for combination in combinations:
            made._resolved(combination)
        made.episode(0)
        return made

    @property
    def text(self) -> str:
        return self.recipe.text

    @property
    def size(self) -> int:
        return len(self.combinations) * len(self.seeds)

    @property
    def uses(self) -> tuple[Use, ...]:
        return uses_of_seeds(self.recipe.text, self.seeds)

    def alternative(self, combination: Mapping[str, str]) -> Recipe:
        """Return the recipe of one combination, without alternatives."""
        arguments = ",".join(f"{key}={value}" for key, value in combination.items() if key != "cluster")
        base = f"{self.generator.name}:{arguments}" if arguments else self.generator.name
        return replace(self.recipe, base=base, cluster=combination["cluster"])

    def _resolved(self, combination: Mapping[str, str]) -> dict[str, object]:
        what = f"generator {self.generator.name}"
        return resolve(what, self.generator.parameters, {key: value for key, value in combination.items() if key != "cluster"})

    def episode(self, number: int) -> Episode:
        """Make the episode of that number; its seed lies in the part's range."""
        combination = self.combinations[number % len(self.combinations)]
        seed = int(self.seeds[number // len(self.combinations) % len(self.seeds)])
        values = self._resolved(combination)
        recipe = self.alternative(combination)
        workload = replace(self.generator.function(seed, **values), name=recipe.base)
        cluster = self._cluster(combination["cluster"], values, workload, seed)
        workload = recipe.reading.changed(workload, seed)
        if recipe.estimate:
            workload = with_estimate(workload, recipe.estimate, seed)
        if recipe.jobs:
            if recipe.jobs > len(workload):
                raise DataError(f"{recipe.base}: {len(workload):,} jobs are fewer than a window of {recipe.jobs:,}")
            rows = _place(seed, len(workload), recipe.jobs)
            workload = _window(workload, rows, EndedLog.of(workload) if workload.predictor is not None else None)
        workload, cluster = recipe.windowed(workload, cluster, seed)
        return Episode(workload, cluster, replace(recipe, cluster=cluster.name).text, seed)

    def _cluster(self, template: str, values: Mapping[str, object], workload: Workload, seed: int) -> Cluster:
        if not template and not workload.preset:
            raise UsageError(f"{workload.name}: no cluster to run it on", hint="give --cluster 16x8:a100, or write `… on 8`")
        defaults = {parameter.name: parameter.default for parameter in self.generator.parameters}
        return self.clusters.fill(template or workload.preset, {**defaults, **values, "seed": seed})


@dataclass(frozen=True)
class TraceSource:
    """Makes windows of consecutive jobs, all submitted in a range of times of the log."""

    recipe: Recipe
    workload: Workload  # after what is applied, whole
    rows: Array  # those of its jobs that the log has in the range
    jobs: int  # of a window
    templates: tuple[str, ...]
    guessed: Cluster | None
    use: Use
    ended: EndedLog | None = None  # the workload's jobs in the order of their ends, for a predictor
    clusters: Clusters = field(default_factory=Clusters, compare=False)

    @property
    def text(self) -> str:
        return self.recipe.text

    @property
    def size(self) -> int:
        return 2**62 if len(self.rows) > self.jobs else len(self.templates)

    @property
    def uses(self) -> tuple[Use, ...]:
        return (self.use,)

    def episode(self, number: int) -> Episode:
        """Draw a place evenly from those at which a whole window lies in the range."""
        return self.window(self.rows[_place(number, len(self.rows), self.jobs)], number)

    def window(self, rows: Array, number: int) -> Episode:
        """Return some of the jobs, as an episode with that number."""
        workload = _window(self.workload, rows, self.ended)
        template = self.templates[number % len(self.templates)]
        cluster = self.guessed if self.guessed is not None else self.clusters.fill(template, {"seed": number})
        workload, cluster = self.recipe.windowed(workload, cluster, number)
        return Episode(workload, cluster, replace(self.recipe, cluster=cluster.name).text, number)


@dataclass(frozen=True)
class Trace:
    """A log, read and prepared once; each part of it is a source."""

    recipe: Recipe
    log: Workload
    prepared: Workload
    guessed: Cluster | None
    name: str  # a hash of what is in it

    @classmethod
    def of(cls, recipe: Recipe) -> Trace:
        """Read the log, apply the changes, and estimate."""
        log = recipe.reading.read(recipe.base)
        if not len(log):
            raise DataError(f"{recipe.base}: no jobs")
        prepared = recipe.reading.changed(log, 0)
        if recipe.estimate:
            prepared = with_estimate(prepared, recipe.estimate, 0)
        return cls(recipe, log, prepared, None if recipe.cluster else guess_cluster(log)[0], content_of(log))

    def part(self, split: Split, *, whole: bool = False) -> TraceSource:
        """Return windows in the times that belong to the part; `whole`: in all of a range that the text names."""
        ranged = bool(self.recipe.begin or self.recipe.until)
        begin, end = self._instant(self.recipe.begin or "0"), self._instant(self.recipe.until or "1")
        if not begin < end:
            raise UsageError(f"{self.recipe.text}: from {begin:g} s until {end:g} s is not an interval")
        low, high = (0.0, 1.0) if ranged and whole else (SHARES_OF_RANGE if ranged else SHARES)[split]
        begin, end = begin + low * (end - begin), begin + high * (end - begin)
        submit = self.log.jobs.submit
        ids = self.log.jobs.id[(submit >= begin) & (submit < end)]
        jobs = self.prepared.jobs
        added = ~np.isin(jobs.id, self.log.jobs.id) & (jobs.submit >= begin) & (jobs.submit < end)  # by a change: the log has them nowhere
        rows = np.flatnonzero(np.isin(jobs.id, ids) | added)
        size = WINDOW if self.recipe.jobs is None else self.recipe.jobs or len(rows)
        if len(rows) < max(size, 1):
            hint = "make the range larger, or give fewer jobs, e.g. [jobs=64]"
            raise DataError(f"{self.recipe.text}: {len(rows):,} jobs for {split} are fewer than a window of {size:,}", hint=hint)
        use = use_of_times(self.recipe.text, self.name, begin, end)
        templates = tuple(template.strip() for template in self.recipe.cluster.split("|"))
        return TraceSource(self.recipe, self.prepared, rows, size, templates, self.guessed, use, self.ended)

    @cached_property
    def ended(self) -> EndedLog | None:
        """Return the prepared jobs in the order of their ends, where a predictor needs them."""
        return None if self.prepared.predictor is None else EndedLog.of(self.prepared)

    def _instant(self, text: str) -> float:
        """Return s from the origin of the log; a share of 1 is the first instant after all jobs."""
        submit = self.log.jobs.submit
        if not _SHARE.fullmatch(text.strip()):
            return instant(text, self.log)
        end = float(np.nextafter(submit[-1], np.inf))
        return float(submit[0]) + float(text) * (end - float(submit[0]))


@dataclass(frozen=True)
class Mix:
    """Takes episodes from several sources in turn, from each as often as its weight says."""

    members: tuple[EpisodeSource, ...]
    weights: tuple[int, ...]

    @property
    def text(self) -> str:
        return " + ".join(f"{weight}*{member.text}" for weight, member in zip(self.weights, self.members, strict=True))

    @property
    def size(self) -> int:
        rounds = max(-(-member.size // weight) for weight, member in zip(self.weights, self.members, strict=True))
        return rounds * sum(self.weights)

    @property
    def uses(self) -> tuple[Use, ...]:
        return tuple(use for member in self.members for use in member.uses)

    def episode(self, number: int) -> Episode:
        """Choose a source by weight: with 3 and 1, numbers 0, 1, 2 come from the first, 3 from the second, and so on."""
        turn, slot = divmod(number, sum(self.weights))
        for member, weight in zip(self.members, self.weights, strict=True):
            if slot < weight:
                return member.episode(turn * weight + slot)
            slot -= weight
        raise AssertionError("a slot lies within the sum of the weights")


class Workloads:
    """Reads texts once, and gives every part of them."""

    def __init__(self, texts: Sequence[str], cluster: str = "") -> None:
        if not texts:
            raise UsageError("no workload to learn from", hint="e.g. --workload family:shape=base|bursty,gpus=8 --cluster 8")
        self.texts = tuple(texts)
        self.cluster = cluster
        self._recipes = tuple(parse_recipe(text, cluster) for text in texts)
        self._traces = {recipe: self._read(recipe) for recipe in self._recipes if not recipe.is_generator}

    @staticmethod
    def _read(recipe: Recipe) -> Trace:
        try:
            return Trace.of(recipe)
        except MemoryError:
            raise GpuyardError(f"{recipe.base}: not enough memory to read it") from None

    def part(self, split: Split, seeds: Sequence[int] | None = None, *, whole: bool = False) -> EpisodeSource:
        """Return the source of training, validation or test episodes; `seeds` replace those of the part, for generators.

        `whole`: where a text names a range of times, that range is the part; the caller has other texts for the other parts.
        """
        chosen = SEEDS[split] if seeds is None else seeds
        members = tuple(
            GeneratorSource.of(recipe, chosen) if recipe.is_generator else self._traces[recipe].part(split, whole=whole)
            for recipe in self._recipes
        )
        return members[0] if len(members) == 1 else Mix(members, tuple(recipe.weight for recipe in self._recipes))
