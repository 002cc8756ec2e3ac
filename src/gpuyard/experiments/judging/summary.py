"""What an experiment says: tables of schedulers with paired statistics, oracle and bound, and the answer in words.

Every number of a scheduler is a mean over all Runs. What is resampled are the independent things: seeds (each the mean over
all workloads, because one seed draws the same jobs for many of them), or logs, where there is one seed. So an interval of 8 seeds rests on
8 values, however many Runs there are. Agents that were trained several times differ by training seed and by seed: both are resampled, one
at a time, and the wider interval and the larger p are what is said.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.cells import entries_of
from gpuyard.experiments.judging.statistics import (
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
from gpuyard.experiments.running.results import PLACE, Results
from gpuyard.metrics import resolve
from gpuyard.traces.recipes import parse_recipe

Resampled = Literal["seed", "training seed", "window", "workload"]
NOTHING = 1e-9  # a bound that is smaller is 0 but for rounding
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
        texts = [results.experiment.text_of(text) for text in results.experiment.axes.workloads]
        self.logs = bool(texts) and not any(parse_recipe(text).is_generator for text in texts)

    def interval(self, values: Array) -> Interval:
        """Of the mean of (training seeds, cells, seeds)."""
        return widest([bootstrap_mean(each) for each in units(values, logs=self.logs)])

    def bound(self, objective: str, scheduler: str) -> Array | None:
        """As `values`; None where nothing is known, or only that it is not below 0."""
        column = f"bound.{objective}"
        found = self.values(column, scheduler) if column in self.results.columns else np.zeros(1)
        found = np.where(np.abs(found) < NOTHING, 0.0, found)
        return found if (np.isfinite(found) & (found != 0)).any() else None

    def values(self, column: str, scheduler: str) -> Array:
        """(training seeds, cells, seeds); one training seed for what is not trained here."""
        mine = self._scheduler == scheduler
        seeds = list(dict.fromkeys(self._trained[mine].tolist()))
        found = np.full((len(seeds), len(self.cells), len(self.seeds)), np.nan)
        at = np.array([seeds.index(seed) for seed in self._trained[mine].tolist()], dtype=int)
        found[at, self._cell[mine], self._seed[mine]] = self.results.columns[column][self._rows][mine]
        return found


def units(values: Array, *, logs: bool = False) -> list[Array]:
    """What is resampled, each way that there is: means for each training seed, for each seed, or with one seed for each of several logs.

    With one seed the workloads of a generator hold the same jobs: they are one value.
    """
    trained, cells, seeds = values.shape
    ways = [_mean(values, (1, 2))] if trained > 1 else []
    if seeds > 1:
        ways.append(_mean(_mean(values, 0), 0))
    elif logs and cells > 1 and trained == 1:
        ways.append(_finite(values[0, :, 0]))
    return ways or [np.atleast_1d(_mean(values, (0, 1, 2)))]


def widest(found: Sequence[Interval]) -> Interval:
    """Of several intervals of one mean; one without an end is no interval, unless there is no other."""
    return max(found, key=lambda each: each.high - each.low if math.isfinite(each.high - each.low) else -1.0)


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
    bound = _bound(pivot, objective)
    top = min(means.values())
    lines = []
    for name in results.schedulers:
        mine = units(values[name], logs=pivot.logs)[0]
        shown = (objective,) if group else results.experiment.metrics
        lines.append(
            Line(
                name, name in judge.challengers, _intervals(pivot, name, shown), _gap(pivot, values[name], oracle, sign),
                _above(pivot, values[name], pivot.bound(objective, name), sign),
                None if name == baseline else against(pivot, values[name], values[baseline], sign),
                means[name] == top < math.inf, float(np.nanstd(mine, ddof=1)) if np.isfinite(mine).sum() > 1 else math.nan,
            )
        )  # fmt: skip
    what, count = _resampled(pivot, max(len(each) for each in values.values()))
    size = len(pivot.cells) * len(pivot.seeds)
    return Table(
        objective, group, baseline, tuple(lines), size, what, count,
        None if oracle is None else pivot.interval(oracle[None]), None if bound is None else pivot.interval(bound[None]),
    )  # fmt: skip


def _resampled(pivot: Pivot, training_seeds: int) -> tuple[Resampled, int]:
    """What `units` takes as independent, first of all, and how many there are."""
    if training_seeds > 1:
        return "training seed", training_seeds
    if len(pivot.seeds) == 1:
        return ("workload", len(pivot.cells)) if pivot.logs else ("seed", 1)
    return "window" if pivot.logs else "seed", len(pivot.seeds)


def _intervals(pivot: Pivot, scheduler: str, metrics: Sequence[str]) -> dict[str, Interval]:
    names = [name for name in metrics if name in pivot.results.columns]
    values = {name: pivot.values(name, scheduler) for name in names}
    return {name: replace(pivot.interval(each), of=_resampled(pivot, len(each))[0]) for name, each in values.items()}


def _rank(values: Array, sign: float) -> float:
    """The mean that is shown, less is better; inf where there is none, or where a Run is infinitely bad."""
    mean = sign * float(np.nanmean(each)) if np.isfinite(each := units(values)[0]).any() else math.inf
    return math.inf if np.isposinf(sign * values).any() else mean


def _finite(values: Array) -> Array:
    """inf has no mean: it counts as missing."""
    return np.where(np.isinf(values), np.nan, values)


def _best_of(values: Mapping[str, Array], names: Sequence[str], sign: float) -> Array:
    """(cells, seeds): the best of each run, in hindsight; nan where none of them has a value."""
    best: Array = sign * np.fmin.reduce([sign * _mean(values[name], 0) for name in names])
    return best


def _bound(pivot: Pivot, objective: str) -> Array | None:
    """(cells, seeds): what no scheduler can pass, as far as some scheduler's Run tells."""
    each = [pivot.bound(objective, name) for name in pivot.results.schedulers]
    known = [bound for bound in each if bound is not None]
    return np.fmax.reduce([_mean(bound, 0) for bound in known]) if known else None


def _gap(pivot: Pivot, values: Array, best: Array | None, sign: float) -> Interval | None:
    """The mean over Runs of the share by which each is behind."""
    if best is None:
        return None
    size = np.where(best == 0, np.nan, np.abs(best))
    return pivot.interval(sign * (values - best[None]) / size[None])


def _above(pivot: Pivot, values: Array, bound: Array | None, sign: float) -> Interval | None:
    """The share by which the mean is beyond the mean of the bounds: single bounds may be 0."""
    if bound is None:
        return None
    both = np.isfinite(values) & np.isfinite(bound)
    mine, least = (units(np.where(both, each, np.nan), logs=pivot.logs) for each in (values, bound))
    return widest([ratio_of_sums(sign * (a - b), np.abs(b)) for a, b in zip(mine, least, strict=True)])


def against(pivot: Pivot, mine: Array, other: Array, sign: float) -> Versus:
    """Paired by seed, and by training seed; what is not trained is the same for all training seeds. Where one has no value, none counts."""
    first, second = _alike(mine, other)
    both = np.isfinite(first) & np.isfinite(second)
    a, b = (units(np.where(both, each, np.nan), logs=pivot.logs) for each in (first, second))
    pairs = list(zip(a, b, strict=True))
    better: Literal["lower", "higher"] = "lower" if sign > 0 else "higher"
    ways = [paired_difference(*pair, better=better) for pair in pairs]
    difference = max(ways, key=lambda each: each.high - each.low if math.isfinite(each.high - each.low) else -1.0)
    share = widest([ratio_of_sums(x - y, np.abs(y)) for x, y in pairs])
    p = [_p(x, y) for x, y in pairs]
    wins, ties, losses = _counted(sign * _per_run(mine), sign * _per_run(other))
    return Versus(difference, share.mean, share.low, share.high, wins, ties, losses, float(np.max(p)), sign > 0)


def _p(a: Array, b: Array) -> float:
    """Of logarithms where all are positive, for then ratios are what is alike: times are skewed. 1 where they point the other way."""
    known = np.isfinite(a) & np.isfinite(b)
    a, b = a[known], b[known]
    if not ((a > 0).all() and (b > 0).all()):
        return paired_t_test(a - b)
    ratio = np.log(a) - np.log(b)
    return paired_t_test(ratio) if float(ratio.sum()) * float((a - b).sum()) >= 0 else 1.0


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
                changed, clean = (units(np.where(both, each, np.nan), logs=pivot.logs) for each in (with_change, without))
                shares = [sign * (a - b) / np.where(b == 0, np.nan, np.abs(b)) for a, b in zip(changed, clean, strict=True)]
                share = widest([bootstrap_mean(_finite(each)) for each in shares])
                found.append(Degradation(objective, change, change.partition(":")[0], scheduler, share))
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
