"""The one summary of results: schedulers on each objective with paired statistics, oracle, bound and stand-in.

Every number of a scheduler is a mean over all Runs. Its interval rests on what is independent: seeds (each the mean over all workloads,
because one seed draws the same jobs for many of them), or logs, where there is one seed. So an interval of 8 seeds rests on 8 values,
however many Runs there are. Agents that were trained several times differ by training seed and by seed: there is an interval over each, and
the wider one is reported, of differences the one with the larger p. The interval of one sample alone, such as a log in `compare`, is over
blocks of time.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.cells import entries_of
from gpuyard.experiments.judging.curves import adaptation
from gpuyard.experiments.judging.logged import LABEL
from gpuyard.experiments.judging.phases import adaptations
from gpuyard.experiments.judging.statistics import (
    TIES,
    Difference,
    Interval,
    block_interval,
    block_ratio,
    caveat,
    holm,
    mean_interval,
    paired_difference,
    ratio_of_sums,
)
from gpuyard.experiments.running.results import PLACE, Results
from gpuyard.metrics import resolve
from gpuyard.views import Displayed

Over = Literal["seed", "training seed", "window", "workload", "time block"]
NOTHING = 1e-9  # a bound that is smaller is 0 but for rounding
MINIMUM = {"lower": 1.0, "neither": 1.0, "higher": -1.0}  # sign that makes a metric one to minimise


@dataclass(frozen=True)
class Versus:
    """A scheduler against the baseline."""

    difference: Difference  # of the values that intervals rest on
    share: float  # the sum of the differences over that of the baseline's values
    share_low: float
    share_high: float
    wins: int  # Runs (means over training seeds; jobs of one sample) that are better than the baseline's
    ties: int
    losses: int
    p: float  # corrected for all comparisons with the baseline (Holm); nan: no test, as in groups and for one sample
    lower_wins: bool

    @property
    def better(self) -> bool | None:
        """Whether it is clearly better, clearly worse, or neither (None), by the interval."""
        return self.lower_wins == (self.difference.mean < 0) if self.difference.clear else None

    @property
    def share_interval(self) -> Interval:
        """The share with its interval."""
        return Interval(self.share, self.share_low, self.share_high, self.difference.n)


@dataclass(frozen=True)
class Standing:
    """How one scheduler stands."""

    scheduler: str
    challenger: bool
    values: Mapping[str, Interval]  # metric → mean
    gap: Interval | None  # to the oracle of each run: share of it, positive is worse
    above_bound: Interval | None  # to the bound of each run: share of it, positive is worse
    versus: Versus | None  # None: the baseline
    best: frozenset[str]  # metrics of which no simulated scheduler has a better mean
    spread: float  # standard deviation of the objective over what its interval rests on
    to_stand_in: Difference | None = None  # None: there is no log, or this is the log or its stand-in
    preempts: bool = False  # may stop running jobs

    @property
    def change(self) -> Difference | None:
        """The difference to the baseline; None for the baseline itself."""
        return self.versus.difference if self.versus else None


@dataclass(frozen=True)
class Comparison(Displayed):
    """All schedulers on one objective, over all Runs or those of a group."""

    objective: str
    group: str  # "", or `shape=bursty`
    baseline: str
    lines: tuple[Standing, ...]
    runs: int  # of each scheduler
    over: Over  # what intervals rest on
    n: int  # how many of these
    oracle: Interval | None  # mean of the best of each run
    bound: Interval | None
    stand_in: str = ""  # the simulated scheduler that stands in for that of the log; empty without a log

    def line(self, scheduler: str) -> Standing:
        """Find the standing of one scheduler."""
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
class Summary(Displayed):
    """Summary of results: a comparison for each objective, by groups, under changes, and notes."""

    results: Results
    tables: tuple[Comparison, ...]  # one for each objective, over all Runs
    groups: tuple[Comparison, ...]  # of the first objective, by group
    degradations: tuple[Degradation, ...]
    comparisons: int  # that p values are corrected for
    notes: tuple[str, ...]

    @property
    def table(self) -> Comparison:
        """The comparison on the first objective."""
        return self.tables[0]

    @property
    def single(self) -> bool:
        """Whether it is about one workload on one cluster, as with `compare` and `evaluate`."""
        return self.results.folder is None

    # ── for one workload on one cluster ──

    @property
    def workload(self) -> str:
        return str(self.results.columns["workload"][0])

    @property
    def cluster(self) -> str:
        return str(self.results.columns["cluster"][0])

    @property
    def estimate(self) -> str:
        return str(self.results.columns["estimate"][0])

    @property
    def seeds(self) -> tuple[int, ...]:
        return self.results.experiment.axes.seeds

    @property
    def metrics(self) -> tuple[str, ...]:
        return self.results.experiment.metrics

    @property
    def lines(self) -> tuple[Standing, ...]:
        """Every scheduler on the first objective."""
        return self.table.lines

    @property
    def log(self) -> Standing | None:
        """Return what actually happened, where the log says so."""
        return self.lines[0] if self.lines[0].scheduler == LABEL else None

    @property
    def stand_in(self) -> Standing | None:
        """The simulated scheduler that stands in for the log's own."""
        return self.table.line(self.table.stand_in) if self.log else None


class Pivot:
    """Columns by cell, seed and scheduler. A cell is a workload on a cluster, under a change, with a source of estimates."""

    def __init__(self, results: Results, rows: Array | None = None) -> None:
        self.results = results
        self._rows = np.arange(len(results)) if rows is None else np.flatnonzero(rows)
        columns, names = results.columns, [*PLACE, *results.parameters]
        number = columns["run"][self._rows] // (len(results.experiment.axes.seeds) * len(entries_of(results.experiment)))
        _, first, self._cell = np.unique(number, return_index=True, return_inverse=True)
        rows = self._rows[first]  # one of each cell; where the cluster is drawn by the seed it has another name at every seed
        self.cells = list(zip(*(columns[name][rows].tolist() for name in names), strict=True))
        self.seeds = list(dict.fromkeys(columns["seed"][self._rows].tolist()))
        at = {seed: k for k, seed in enumerate(self.seeds)}
        self._seed = np.array([at[seed] for seed in columns["seed"][self._rows].tolist()])
        self._scheduler = columns["scheduler"][self._rows]
        self._trained = np.nan_to_num(columns["training_seed"][self._rows].astype(float), nan=-1.0)
        self.windows = results.windows
        self._means: dict[tuple[str, str], Interval] = {}
        self._places: dict[str, tuple[Array, int, tuple[Array, Array, Array]]] = {}

    def mean(self, metric: str, scheduler: str) -> Interval:
        """The mean of a metric with its interval."""
        return self._means.get((metric, scheduler)) or self._means.setdefault((metric, scheduler), self._measured(metric, scheduler))

    def _measured(self, metric: str, scheduler: str) -> Interval:
        sample = self.results.sample
        if sample is not None and metric in sample.intervals[scheduler]:
            return sample.intervals[scheduler][metric]
        values = self.values(metric, scheduler)
        return replace(self.interval(values), of=self.over(len(values))[0])

    def over(self, training_seeds: int) -> tuple[Over, int]:
        """Return what `units` treats as independent, and how many of them there are."""
        if training_seeds > 1:
            return "training seed", training_seeds
        if len(self.seeds) == 1:
            return ("workload", len(self.cells)) if self.windows else ("seed", 1)
        return "window" if self.windows else "seed", len(self.seeds)

    def interval(self, values: Array) -> Interval:
        """The interval of the mean of values (training seeds, cells, seeds)."""
        return widest([mean_interval(each) for each in units(values, windows=self.windows)])

    def bound(self, objective: str, scheduler: str) -> Array | None:
        """Bounds, shaped as `values`; None where nothing is known, or only that it is not below 0."""
        column = f"bound.{objective}"
        found = self.values(column, scheduler) if column in self.results.columns else np.zeros(1)
        found = np.where(np.abs(found) < NOTHING, 0.0, found)
        return found if (np.isfinite(found) & (found != 0)).any() else None

    def values(self, column: str, scheduler: str) -> Array:
        """(training seeds, cells, seeds); one training seed for what is not trained here."""
        rows, trained, place = self._places.get(scheduler) or self._places.setdefault(scheduler, self._placed(scheduler))
        found = np.full((trained, len(self.cells), len(self.seeds)), np.nan)
        found[place] = self.results.columns[column][rows]
        return found

    def _placed(self, scheduler: str) -> tuple[Array, int, tuple[Array, Array, Array]]:
        """(runs,) rows of a scheduler, how many training seeds it has, and where each row stands: its training seed, cell and seed."""
        mine = self._scheduler == scheduler
        trained = self._trained[mine].tolist()
        at = {seed: k for k, seed in enumerate(dict.fromkeys(trained))}
        return self._rows[mine], len(at), (np.array([at[seed] for seed in trained], dtype=int), self._cell[mine], self._seed[mine])


def units(values: Array, *, windows: bool = False) -> list[Array]:
    """List what intervals rest on, each way that there is: means by training seed, by seed, or with one seed by log.

    With one seed the workloads of a generator hold the same jobs: they are one value.
    """
    trained, cells, seeds = values.shape
    ways = [_mean(values, (1, 2))] if trained > 1 else []
    if seeds > 1:
        ways.append(_mean(_mean(values, 0), 0))
    elif windows and cells > 1 and trained == 1:
        ways.append(_finite(values[0, :, 0]))
    return ways or [np.atleast_1d(_mean(values, (0, 1, 2)))]


def widest(found: Sequence[Interval]) -> Interval:
    """Choose the widest of several intervals of one mean; one without ends only where there is no other."""
    return max(found, key=_width)


def _width(each: Interval | Difference) -> float:
    return each.high - each.low if math.isfinite(each.high - each.low) else -1.0


def _mean(values: Array, axis: int | tuple[int, ...], *, finite: bool = True) -> Array:
    """Average what is known: what is finite, or else all but nan; nan where nothing is."""
    known = np.isfinite(values) if finite else ~np.isnan(values)
    size = known.sum(axis=axis)
    total = np.where(known, values, 0.0).sum(axis=axis)
    made: Array = np.divide(total, size, out=np.full(np.shape(total), np.nan), where=size > 0)
    return made


def summarise(results: Results) -> Summary:
    """Sum up results: all objectives, groups and changes."""
    experiment = results.experiment
    whole = Pivot(results, results.along())
    tables, comparisons = _corrected([table_of(whole, objective) for objective in experiment.axes.objectives])
    first = experiment.axes.objectives[0]
    groups = []
    for name in (name for name in experiment.judge.groups if name in results.columns):
        for value in dict.fromkeys(results.columns[name].tolist()):
            if value is not None:  # a workload that has no such parameter
                table = table_of(Pivot(results, (results.columns[name] == value) & results.along(name)), first, f"{name}={value}")
                groups.append(_with_p(table, repeat(math.nan)))  # groups are not part of the correction
    notes = tuple(_notes(whole)) if results.folder else results.notes
    return Summary(results, tuple(tables), tuple(groups), tuple(_degradations(whole)), comparisons, notes)


def table_of(pivot: Pivot, objective: str, group: str = "") -> Comparison:
    """Compare every scheduler on one objective; a group sums up the objective alone."""
    results, judge = pivot.results, pivot.results.experiment.judge
    sign = MINIMUM[resolve(objective)[0].better]
    values = {name: pivot.values(objective, name) for name in results.schedulers}
    baseline = judge.baseline or _best_rival(pivot, objective)
    stand_in = _stand_in(results.schedulers) if LABEL in values else ""
    oracle = best_of(values, judge.oracle, sign) if judge.oracle else None
    bound = _bound(pivot, objective)
    shown = (objective,) if group else [name for name in results.experiment.metrics if name in results.columns]
    best = {name: best_means(pivot, name) for name in shown}
    lines = []
    for name in results.schedulers:
        mine = units(values[name], windows=pivot.windows)[0]
        lines.append(
            Standing(
                name, name in judge.challengers, {metric: pivot.mean(metric, name) for metric in shown},
                _gap(pivot, values[name], oracle, sign), _above(pivot, values[name], pivot.bound(objective, name), sign),
                None if name == baseline else _versus(pivot, objective, name, baseline),
                frozenset(metric for metric in shown if name in best[metric]),
                float(np.nanstd(mine, ddof=1)) if np.isfinite(mine).sum() > 1 else math.nan,
                _versus(pivot, objective, name, stand_in).difference if stand_in and name not in (LABEL, stand_in) else None,
                "preempts" in results.columns and bool(results.columns["preempts"][results.where(scheduler=name)].any()),
            )
        )  # fmt: skip
    what, count = _over(pivot, objective, max(len(each) for each in values.values()))
    size = len(pivot.cells) * len(pivot.seeds)
    return Comparison(
        objective, group, baseline, tuple(lines), size, what, count,
        None if oracle is None else pivot.interval(oracle[None]), None if bound is None else pivot.interval(bound[None]), stand_in,
    )  # fmt: skip


def _over(pivot: Pivot, objective: str, training_seeds: int) -> tuple[Over, int]:
    interval = pivot.mean(objective, pivot.results.schedulers[-1])
    return ("time block", interval.n) if interval.of == "block" else pivot.over(training_seeds)


def _rank(pivot: Pivot, metric: str, scheduler: str) -> float:
    """The mean that is shown, lower is better; inf where there is none, or where a Run is infinitely bad."""
    sign, mean = MINIMUM[resolve(metric)[0].better], pivot.mean(metric, scheduler).mean
    return math.inf if math.isnan(mean) or np.isposinf(sign * pivot.values(metric, scheduler)).any() else sign * mean


def _best_rival(pivot: Pivot, objective: str) -> str:
    """The baseline unless one is named: the best mean of all rivals, by default every simulated scheduler that is not a challenger."""
    judge, schedulers = pivot.results.experiment.judge, pivot.results.schedulers
    plain = judge.rivals or [name for name in schedulers if name not in (*judge.challengers, LABEL)]
    return min(plain or schedulers, key=lambda name: _rank(pivot, objective, name))


def best_means(pivot: Pivot, metric: str) -> set[str]:
    """The simulated schedulers with the best mean; what happened in a log is not a choice."""
    ranks = {name: _rank(pivot, metric, name) for name in pivot.results.schedulers if name != LABEL}
    top = min(ranks.values(), default=math.inf)
    return set() if resolve(metric)[0].better == "neither" else {name for name, rank in ranks.items() if rank == top < math.inf}


def _stand_in(schedulers: Sequence[str]) -> str:
    """Choose first come, first served with EASY, as most batch systems work, where it is among them; else the first simulated scheduler."""
    usual = [name for name in schedulers if name.startswith("fcfs/") and name.endswith("/easy")]
    return usual[0] if usual else schedulers[1]


def _finite(values: Array) -> Array:
    """Replace inf, which has no mean, by nan."""
    return np.where(np.isinf(values), np.nan, values)


def best_of(values: Mapping[str, Array], names: Sequence[str], sign: float) -> Array:
    """Return (cells, seeds): the best of each run, in hindsight; nan where none of them has a value."""
    best: Array = sign * np.fmin.reduce([sign * _mean(values[name], 0) for name in names])
    return best


def _bound(pivot: Pivot, objective: str) -> Array | None:
    """(cells, seeds): the value that no scheduler can pass, as far as it is known from some scheduler's Run."""
    each = [pivot.bound(objective, name) for name in pivot.results.schedulers]
    known = [bound for bound in each if bound is not None]
    return np.fmax.reduce([_mean(bound, 0) for bound in known]) if known else None


def _gap(pivot: Pivot, values: Array, best: Array | None, sign: float) -> Interval | None:
    """Average over Runs the share by which each is behind."""
    if best is None:
        return None
    size = np.where(best == 0, np.nan, np.abs(best))
    return pivot.interval(sign * (values - best[None]) / size[None])


def _above(pivot: Pivot, values: Array, bound: Array | None, sign: float) -> Interval | None:
    """The share by which the mean is beyond the mean of the bounds: single bounds may be 0."""
    if bound is None:
        return None
    both = np.isfinite(values) & np.isfinite(bound)
    mine, least = (units(np.where(both, each, np.nan), windows=pivot.windows) for each in (values, bound))
    return widest([ratio_of_sums(sign * (a - b), np.abs(b)) for a, b in zip(mine, least, strict=True)])


def _versus(pivot: Pivot, objective: str, name: str, baseline: str) -> Versus:
    sign, sample = MINIMUM[resolve(objective)[0].better], pivot.results.sample
    if sample is not None and name in sample.per_job and baseline in sample.per_job:
        return by_blocks(sample.per_job[name], sample.per_job[baseline], sample.submit, sign)
    return against(pivot, pivot.values(objective, name), pivot.values(objective, baseline), sign)


def by_blocks(mine: Array, other: Array, submit: Array, sign: float) -> Versus:
    """Pair job by job and sum over blocks of time; there is no test."""
    each = mine - other
    found, share = block_interval(each, submit), block_ratio(each, np.abs(other), submit)
    wins, losses, n = int((sign * each < 0).sum()), int((sign * each > 0).sum()), int((~np.isnan(each)).sum())
    ties = n - wins - losses
    difference = Difference(found.mean, found.low, found.high, math.nan, wins, ties, losses, math.nan, n, found.missing, "job")
    return Versus(difference, share.mean, share.low, share.high, wins, ties, losses, math.nan, sign > 0)


def against(pivot: Pivot, mine: Array, other: Array, sign: float) -> Versus:
    """Pair by seed, and by training seed; what is not trained is the same for all training seeds. Where one has no value, none counts."""
    first, second = _alike(mine, other)
    both = np.isfinite(first) & np.isfinite(second)
    a, b = (units(np.where(both, each, np.nan), windows=pivot.windows) for each in (first, second))
    pairs = list(zip(a, b, strict=True))
    better: Literal["lower", "higher"] = "lower" if sign > 0 else "higher"
    ways = [paired_difference(*pair, better=better) for pair in pairs]
    least_sure = max(range(len(ways)), key=lambda k: (-1.0 if math.isnan(ways[k].p) else ways[k].p, _width(ways[k])))
    difference, (x, y) = ways[least_sure], pairs[least_sure]  # its interval and its p agree
    share = ratio_of_sums(x - y, np.abs(y))
    wins, ties, losses = _counted(*(sign * _mean(each, 0, finite=False) for each in (mine, other)))  # inf is kept: it loses
    return Versus(difference, share.mean, share.low, share.high, wins, ties, losses, difference.p, sign > 0)


def _counted(mine: Array, other: Array) -> tuple[int, int, int]:
    """Count the Runs in which mine is less, both are equal (but for rounding, as in a mean of equal values), and the other is less."""
    a, b = (np.where(np.isfinite(each), each, np.nan) for each in (mine, other))
    same = (mine == other) | (np.abs(a - b) <= TIES * np.maximum(np.abs(a), np.abs(b)))
    return int((~same & (mine < other)).sum()), int(same.sum()), int((~same & (mine > other)).sum())


def _alike(mine: Array, other: Array) -> tuple[Array, Array]:
    """Repeat the one with fewer training seeds, so that both have as many."""
    count = max(len(mine), len(other))
    return tuple(np.repeat(each, count, axis=0) if len(each) == 1 and count > 1 else each for each in (mine, other))  # type: ignore[return-value]


def _with_p(table: Comparison, p: Iterator[float]) -> Comparison:
    """Replace the p value of each line that has one by the next."""
    return replace(
        table, lines=tuple(replace(line, versus=replace(line.versus, p=next(p))) if line.versus else line for line in table.lines)
    )


def _corrected(tables: Sequence[Comparison]) -> tuple[list[Comparison], int]:
    """Correct the p values over every comparison of every objective (Holm)."""
    p = [line.versus.p for table in tables for line in table.lines if line.versus is not None]
    adjusted = iter(holm(p).tolist() if p else [])
    return [_with_p(table, adjusted) for table in tables], int(np.isfinite(p).sum())


def _degradations(pivot: Pivot) -> list[Degradation]:
    """Compute ratios of means for each seed, where the axis `changes` also has the unchanged workload."""
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
                changed, clean = (units(np.where(both, each, np.nan), windows=pivot.windows) for each in (with_change, without))
                shares = [sign * (a - b) / np.where(b == 0, np.nan, np.abs(b)) for a, b in zip(changed, clean, strict=True)]
                share = widest([mean_interval(_finite(each)) for each in shares])
                found.append(Degradation(objective, change, change.partition(":")[0], scheduler, share))
    return found


def _notes(pivot: Pivot) -> list[str]:
    """Return notes for the reader: who adapted, metrics that show no difference, jobs that were left out, few seeds."""
    results, notes = pivot.results, []
    for name in (name for name in results.experiment.metrics if name in results.columns):
        each = [pivot.values(name, scheduler) for scheduler in results.schedulers]
        first = each[0][:1]
        if len(each) > 1 and all(np.array_equal(np.broadcast_to(first, other.shape), other, equal_nan=True) for other in each):
            notes.append(f"{name} is the same for every scheduler in every run: it does not distinguish them here")
    for outcome, words in (("n_rejected", "were rejected"), ("n_unfinished", "never ended"), ("n_killed", "were killed")):
        lost = int(results.columns[outcome].sum()) if outcome in results.columns else 0
        if lost:
            notes.append(f"{lost:,} of {int(results.columns['n_jobs'].sum()):,} jobs {words}, over all Runs")
    several = [len(agent.seeds) for name, agent in results.experiment.agents.items() if name in results.schedulers]
    what, n = pivot.over(max(several, default=1))
    about = f"estimates of run times: {results.estimates}" if results.estimates else ""
    return [*_statuses(results), *adaptations(results), *notes, *filter(None, [caveat(n, what), about])]


def _statuses(results: Results) -> Iterator[str]:
    """Yield a line for each strategy that was followed from task to task."""
    ratios = results.curves("ratio")
    reports = {each["run"]: each.get("decider", {}) for each in results.manifests} if ratios else {}
    for name in results.schedulers if ratios else ():
        runs = [run for run in results.columns["run"][results.where(scheduler=name)].tolist() if run in ratios]
        learned = [float(reports[run]["learned from"]) for run in runs if "learned from" in reports.get(run, {})]
        yield f"{name}: {adaptation([ratios[run].y for run in runs], learned)}"
