"""What an experiment says: tables of schedulers with paired statistics, oracle and bound, and the answer in words.

Every number of a scheduler is a mean over all Runs. What is resampled are the independent things: seeds (each the mean over
all workloads, because one seed draws the same jobs for many of them), or, where agents were trained several times, training seeds. So an
interval of 8 seeds rests on 8 values, however many Runs there are.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpuyard.envs.episodes import parse_recipe
from gpuyard.experiments.cells import entries_of
from gpuyard.experiments.results import PLACE, Results
from gpuyard.experiments.statistics import (
    FEWEST,
    TIES,
    Difference,
    Interval,
    bootstrap_mean,
    holm,
    paired_difference,
    paired_t_test,
    ratio_of_sums,
)
from gpuyard.metrics import resolve
from gpuyard.model.jobs import Array

Resampled = Literal["seed", "training seed", "window", "workload"]
MINIMUM = {"lower": 1.0, "neither": 1.0, "higher": -1.0}  # sign that makes a metric one of which less is better


@dataclass(frozen=True)
class Versus:
    """A scheduler against the baseline."""

    difference: Difference  # of the values that are resampled
    share: float  # the sum of the differences over that of the baseline's values
    share_low: float
    share_high: float
    wins: int  # Runs, or means over training seeds of them, that are better than the baseline's
    ties: int
    losses: int
    p: float  # paired t-test (of logarithms where all are positive), corrected for all comparisons (Holm); nan: no test, as in groups
    lower_wins: bool

    @property
    def better(self) -> bool | None:
        """Whether it is clearly better, clearly worse, or neither (None), by the interval."""
        return self.lower_wins == (self.difference.mean < 0) if self.difference.clear else None


@dataclass(frozen=True)
class Line:
    """One scheduler."""

    scheduler: str
    challenger: bool
    values: Mapping[str, Interval]  # metric → mean
    gap: Interval | None  # to the oracle of each run: share of it, positive is worse
    above_bound: Interval | None  # to the bound of each run: share of it, positive is worse
    versus: Versus | None  # None: the baseline
    best: bool  # no other has a better mean of the objective
    spread: float  # standard deviation over what is resampled, of the objective


@dataclass(frozen=True)
class Table:
    """All schedulers on one objective, over all Runs or those of a group."""

    objective: str
    group: str  # "", or `shape=bursty`
    baseline: str
    lines: tuple[Line, ...]
    runs: int  # of each scheduler
    resampled: Resampled
    n: int  # how many of these
    oracle: Interval | None  # mean of the best of each run
    bound: Interval | None

    def line(self, scheduler: str) -> Line:
        return next(line for line in self.lines if line.scheduler == scheduler)


@dataclass(frozen=True)
class Degradation:
    """How much worse an objective gets under a change, as a share of its value without; positive is worse."""

    objective: str
    change: str
    kind: str  # of change, without its parameters
    scheduler: str
    share: Interval


@dataclass(frozen=True)
class Summary:
    """All of it."""

    results: Results
    tables: tuple[Table, ...]  # one for each objective, over all Runs
    groups: tuple[Table, ...]  # of the first objective, by group
    degradations: tuple[Degradation, ...]
    comparisons: int  # that p values are corrected for
    notes: tuple[str, ...]

    @property
    def table(self) -> Table:
        """That of the first objective."""
        return self.tables[0]


class Pivot:
    """The values of a metric as (schedulers, cells, seeds), agents' training seeds apart."""

    def __init__(self, results: Results, chosen: Array | None = None) -> None:
        self.results = results
        columns, chosen = results.columns, np.ones(len(results), bool) if chosen is None else chosen
        self._rows = np.flatnonzero(chosen)
        names = [*PLACE, *results.parameters]
        number = columns["run"][self._rows] // (len(results.experiment.axes.seeds) * len(entries_of(results.experiment)))
        _, first, self._cell = np.unique(number, return_index=True, return_inverse=True)
        rows = self._rows[first]  # of each cell one; where the cluster is drawn by the seed it has another name at every seed
        self.cells = list(zip(*(columns[name][rows].tolist() for name in names), strict=True))
        self.seeds = list(dict.fromkeys(columns["seed"][self._rows].tolist()))
        at = {seed: k for k, seed in enumerate(self.seeds)}
        self._seed = np.array([at[seed] for seed in columns["seed"][self._rows].tolist()])
        self._scheduler = columns["scheduler"][self._rows]
        trained = columns["training_seed"][self._rows].astype(float)
        self._trained = np.where(np.isnan(trained), -1, trained)

    def values(self, column: str, scheduler: str) -> Array:
        """(training seeds, cells, seeds); one training seed for what is not trained here."""
        mine = self._scheduler == scheduler
        seeds = list(dict.fromkeys(self._trained[mine].tolist()))
        found = np.full((len(seeds), len(self.cells), len(self.seeds)), np.nan)
        at = np.array([seeds.index(seed) for seed in self._trained[mine].tolist()], dtype=int)
        found[at, self._cell[mine], self._seed[mine]] = self.results.columns[column][self._rows][mine]
        return found


def units(values: Array) -> Array:
    """What is resampled: means for each training seed where there are several, else for each seed."""
    if len(values) > 1:
        return _mean(values, (1, 2))
    return _mean(values[0], 0) if values.shape[2] > 1 else _finite(values[0, :, 0])


def _mean(values: Array, axis: int | tuple[int, ...]) -> Array:
    known = np.isfinite(values)
    size = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    made: Array = np.divide(total, size, out=np.full(np.shape(total), np.nan), where=size > 0)
    return made


def summarise(results: Results) -> Summary:
    """All tables."""
    experiment = results.experiment
    whole = Pivot(results)
    tables = [table_of(whole, objective) for objective in experiment.axes.objectives]
    tables, comparisons = _corrected(tables)
    first = experiment.axes.objectives[0]
    groups = []
    for name in (name for name in experiment.judge.groups if name in results.columns):
        for value in dict.fromkeys(results.columns[name].tolist()):
            if value is not None:  # a workload that has no such parameter
                groups.append(_untested(table_of(Pivot(results, results.columns[name] == value), first, f"{name}={value}")))
    return Summary(results, tuple(tables), tuple(groups), tuple(_degradations(whole)), comparisons, tuple(_notes(whole)))


def table_of(pivot: Pivot, objective: str, group: str = "") -> Table:
    """Every scheduler on one objective; of a group the objective alone is summed up."""
    results, judge = pivot.results, pivot.results.experiment.judge
    sign = MINIMUM[resolve(objective)[0].better]
    values = {name: pivot.values(objective, name) for name in results.schedulers}
    means = {name: _rank(each, sign) for name, each in values.items()}
    plain = judge.rivals or [name for name in results.schedulers if name not in judge.challengers]
    baseline = judge.baseline or min(plain or list(results.schedulers), key=lambda name: means[name])
    oracle = _best_of(values, judge.oracle, sign) if judge.oracle else None
    bound = _bound(pivot, objective, results.schedulers[0])
    top = min(means.values())
    lines = []
    for name in results.schedulers:
        mine = units(values[name])
        shown = (objective,) if group else results.experiment.metrics
        lines.append(
            Line(
                name, name in judge.challengers, _intervals(pivot, name, shown), _gap(values[name], oracle, sign),
                _gap(values[name], bound, sign), None if name == baseline else _versus(values[name], values[baseline], sign),
                means[name] == top < math.inf, float(np.nanstd(mine, ddof=1)) if np.isfinite(mine).sum() > 1 else math.nan,
            )
        )  # fmt: skip
    what, count = _resampled(pivot, max(len(each) for each in values.values()))
    size = len(pivot.cells) * len(pivot.seeds)
    return Table(
        objective, group, baseline, tuple(lines), size, what, count,
        None if oracle is None else bootstrap_mean(units(oracle[None])), None if bound is None else bootstrap_mean(units(bound[None])),
    )  # fmt: skip


def _resampled(pivot: Pivot, training_seeds: int) -> tuple[Resampled, int]:
    """What `units` takes as independent, and how many there are."""
    if training_seeds > 1:
        return "training seed", training_seeds
    if len(pivot.seeds) == 1:
        return "workload", len(pivot.cells)
    experiment = pivot.results.experiment
    logs = experiment.axes.workloads and not any(
        parse_recipe(experiment.scheduler(text)).is_generator for text in experiment.axes.workloads
    )
    return "window" if logs else "seed", len(pivot.seeds)


def _intervals(pivot: Pivot, scheduler: str, metrics: Sequence[str]) -> dict[str, Interval]:
    names = [name for name in metrics if name in pivot.results.columns]
    values = {name: pivot.values(name, scheduler) for name in names}
    return {name: replace(bootstrap_mean(units(each)), of=_resampled(pivot, len(each))[0]) for name, each in values.items()}


def _rank(values: Array, sign: float) -> float:
    """The mean that is shown, less is better; inf where there is none, or where a Run is infinitely bad."""
    mean = sign * float(np.nanmean(each)) if np.isfinite(each := units(values)).any() else math.inf
    return math.inf if np.isposinf(sign * values).any() else mean


def _finite(values: Array) -> Array:
    """inf has no mean: it counts as missing."""
    return np.where(np.isinf(values), np.nan, values)


def _best_of(values: Mapping[str, Array], names: Sequence[str], sign: float) -> Array:
    """(cells, seeds): the best of each run, in hindsight; nan where none of them has a value."""
    best: Array = sign * np.fmin.reduce([sign * _mean(values[name], 0) for name in names])
    return best


def _bound(pivot: Pivot, objective: str, scheduler: str) -> Array | None:
    """(cells, seeds): what no scheduler can pass; it is the same whoever is asked."""
    column = f"bound.{objective}"
    if column not in pivot.results.columns:
        return None
    found: Array = pivot.values(column, scheduler)[0]
    return found if (np.isfinite(found) & (found != 0)).any() else None  # 0 says nothing


def _gap(values: Array, best: Array | None, sign: float) -> Interval | None:
    if best is None:
        return None
    size = np.where(best == 0, np.nan, np.abs(best))
    return bootstrap_mean(units(sign * (values - best[None]) / size[None]))


def _versus(mine: Array, other: Array, sign: float) -> Versus:
    """Paired by seed, or by training seed; what is not trained is the same for all training seeds. Where one has no value, none counts."""
    first, second = _alike(mine, other)
    both = np.isfinite(first) & np.isfinite(second)
    a, b = (units(np.where(both, each, np.nan)) for each in (first, second))
    difference = paired_difference(a, b, better="lower" if sign > 0 else "higher")
    share = ratio_of_sums(a - b, np.abs(b))
    better, equal, worse = _counted(sign * _per_run(mine), sign * _per_run(other))
    known = np.isfinite(a)
    positive = bool((a[known] > 0).all() and (b[known] > 0).all())  # then ratios are what is alike at every seed: times are skewed
    p = paired_t_test(np.log(a) - np.log(b) if positive else a - b)
    return Versus(
        difference, share.mean, share.low, share.high, better, equal, worse, p, sign > 0,
    )  # fmt: skip


def _per_run(values: Array) -> Array:
    """(cells, seeds): the mean over training seeds, inf kept; nan where there is no value."""
    known = ~np.isnan(values)
    total, size = np.where(known, values, 0.0).sum(axis=0), known.sum(axis=0)
    made: Array = np.divide(total, size, out=np.full(total.shape, np.nan), where=size > 0)
    return made


def _counted(mine: Array, other: Array) -> tuple[int, int, int]:
    """Runs in which less is mine, both are the same (but for rounding, as of a mean of equal values), and less is the other's."""
    a, b = (np.where(np.isfinite(each), each, np.nan) for each in (mine, other))
    same = (mine == other) | (np.abs(a - b) <= TIES * np.maximum(np.abs(a), np.abs(b)))
    return int((~same & (mine < other)).sum()), int(same.sum()), int((~same & (mine > other)).sum())


def _alike(mine: Array, other: Array) -> tuple[Array, Array]:
    """Both with as many training seeds as the one that has more."""
    count = max(len(mine), len(other))
    return tuple(np.repeat(each, count, axis=0) if len(each) == 1 and count > 1 else each for each in (mine, other))  # type: ignore[return-value]


def _untested(table: Table) -> Table:
    """Without p values: those of groups are no part of what is corrected for."""
    lines = tuple(replace(line, versus=replace(line.versus, p=math.nan)) if line.versus else line for line in table.lines)
    return replace(table, lines=lines)


def _corrected(tables: Sequence[Table]) -> tuple[list[Table], int]:
    """Holm over every comparison of every objective."""
    p = [line.versus.p for table in tables for line in table.lines if line.versus is not None]
    adjusted = iter(holm(p).tolist() if p else [])
    made = []
    for table in tables:
        lines = tuple(replace(line, versus=replace(line.versus, p=next(adjusted))) if line.versus else line for line in table.lines)
        made.append(replace(table, lines=lines))
    return made, int(np.isfinite(p).sum())


def _degradations(pivot: Pivot) -> list[Degradation]:
    """Where the axis `changes` has what is unchanged too: ratios of means for each seed."""
    results = pivot.results
    changes = results.experiment.axes.changes
    if "" not in changes or len(changes) < 2:
        return []
    found = []
    place = PLACE.index("change")
    at = {change: [k for k, cell in enumerate(pivot.cells) if cell[place] == change] for change in changes}
    for objective in results.experiment.axes.objectives:
        sign = MINIMUM[resolve(objective)[0].better]
        for scheduler in results.schedulers:
            values = pivot.values(objective, scheduler)
            for change in (change for change in changes if change):
                with_change, without = values[:, at[change]], values[:, at[""]]
                both = np.isfinite(with_change) & np.isfinite(without)
                changed, clean = (units(np.where(both, each, np.nan)) for each in (with_change, without))
                share = sign * (changed - clean) / np.where(clean == 0, np.nan, np.abs(clean))
                found.append(Degradation(objective, change, change.partition(":")[0], scheduler, bootstrap_mean(_finite(share))))
    return found


def _notes(pivot: Pivot) -> list[str]:
    """What a reader must know: metrics that tell nothing apart, jobs that were left out, few seeds."""
    results, notes = pivot.results, []
    for name in results.experiment.metrics:
        if name not in results.columns:
            continue
        each = [pivot.values(name, scheduler) for scheduler in results.schedulers]
        first = each[0][:1]
        if len(each) > 1 and all(np.array_equal(np.broadcast_to(first, other.shape), other, equal_nan=True) for other in each):
            notes.append(f"{name} is the same for every scheduler in every run: it tells nothing about them here")
    for outcome, words in (("n_rejected", "were rejected"), ("n_unfinished", "never ended"), ("n_killed", "were killed")):
        lost = int(results.columns[outcome].sum()) if outcome in results.columns else 0
        if lost:
            notes.append(f"{lost:,} of {int(results.columns['n_jobs'].sum()):,} jobs {words}, over all Runs")
    several = [len(agent.seeds) for name, agent in results.experiment.agents.items() if name in results.schedulers]
    what, n = _resampled(pivot, max(several, default=1))
    if n == 1:
        notes.append(f"one {what} only: there is no interval, and nothing can be said of another {what}")
    if 1 < n < FEWEST:
        notes.append(f"{n} {what}s are too few for a 95 % interval: what is shown is their range, which covers less")
    return notes
