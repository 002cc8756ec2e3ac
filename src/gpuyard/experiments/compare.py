"""Schedulers side by side: the cross of workloads, clusters and estimates, every scheduler on the same seeds.

A seed makes the workload, the noise of its estimates and the engine's own draws, so that schedulers differ in nothing else and their
differences may be taken pair by pair. A log is one sample whatever the seed; its intervals come from blocks of time.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import numpy as np

from gpuyard.engine.entry import engine
from gpuyard.engine.jit import INTERPRETED
from gpuyard.engine.simulation import simulate
from gpuyard.errors import UsageError
from gpuyard.experiments.statistics import Interval, block_bootstrap, bootstrap_mean, holm, paired_difference
from gpuyard.metrics import aggregate, counts, resolve
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Array
from gpuyard.model.result import REASONS, Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler, Decider, Meta, Scheduler
from gpuyard.registry import unknown_name
from gpuyard.traces import is_random, with_estimate

AHEAD = 4  # cells per thread that are prepared before the oldest is waited for: bounds the workloads in memory


@dataclass(frozen=True)
class Source:
    """A workload to be, on some clusters. `seeded`: a generator, another sample at every seed; else a log."""

    name: str
    load: Callable[[int], Workload]
    seeded: bool
    clusters: tuple[Cluster, ...]
    change: Callable[[Cluster, Workload, int], Cluster] | None = None  # what becomes of a cluster at a seed


@dataclass(frozen=True)
class Plan:
    """What to compare. The first metric is the primary one: differences to the baseline are taken of it."""

    sources: tuple[Source, ...]
    schedulers: tuple[AnyScheduler, ...]
    metrics: tuple[str, ...]
    seeds: tuple[int, ...] = tuple(range(8))
    estimates: tuple[str | None, ...] = (None,)  # None: as the workload has them
    baseline: str = ""  # a scheduler's label; the first unless given
    rules: Rules = field(default_factory=Rules)

    @property
    def primary(self) -> str:
        return self.metrics[0]

    def seeds_of(self, source: Source, estimate: str | None) -> tuple[int, ...]:
        """A log without noise is one sample: simulating it again gives the same numbers."""
        return self.seeds if source.seeded or (estimate is not None and is_random(estimate)) else self.seeds[:1]

    def cells(self) -> int:
        """Simulations in all."""
        pairs = [(source, estimate) for source in self.sources for estimate in self.estimates]
        return sum(len(self.seeds_of(*pair)) * len(pair[0].clusters) * len(self.schedulers) for pair in pairs)


@dataclass(frozen=True)
class Change:
    """The primary metric minus the baseline's; nan where there is no interval or no test."""

    mean: float
    low: float
    high: float
    wins: int  # pairs that are better than the baseline's
    ties: int
    losses: int
    p: float  # two-sided sign-flip test, corrected for the number of schedulers (Holm)
    n: int
    of: Literal["seed", "job"]  # what is paired

    @property
    def clear(self) -> bool:
        """The interval does not hold 0."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True)
class Line:
    """One scheduler of a comparison."""

    scheduler: str
    values: Mapping[str, Interval]  # by metric
    best: frozenset[str]  # the metrics of which no scheduler has a better mean
    change: Change | None  # None: this is the baseline
    counts: Mapping[str, int]  # jobs, done, killed, rejected, unfinished, over all seeds


@dataclass(frozen=True)
class Comparison:
    """One table: every scheduler on one workload, cluster and source of estimates."""

    workload: str
    cluster: str
    estimate: str
    seeds: tuple[int, ...]
    baseline: str
    metrics: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]

    @property
    def primary(self) -> str:
        return self.metrics[0]


@dataclass(frozen=True)
class _Cell:
    """What is kept of one simulation."""

    values: Mapping[str, Interval]  # over blocks of time where it is a mean over jobs, else without an interval
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    per_job: Array | None  # (jobs,) of the primary metric, where it is a mean over jobs and there is one sample


@dataclass
class _Table:
    """The cells of one comparison while they come in."""

    source: Source
    cluster: Cluster
    seeds: tuple[int, ...]
    estimate: str | None
    workload: Workload | None = None  # the first seed's: its notes and submits
    cells: list[list[_Cell]] = field(default_factory=list)  # by seed, by scheduler


def compare(plan: Plan, *, threads: int = 2, progress: Callable[[int], None] | None = None) -> list[Comparison]:
    """Simulate every cell and compare. The same bytes on any number of threads; `progress` hears how many cells are done."""
    _check(plan)
    for scheduler in plan.schedulers:  # compiled here: an error comes before any simulation, and threads do not compile twice
        if not isinstance(scheduler, Decider):
            scheduler.program()
    if not INTERPRETED:
        engine()
    pool = ThreadPoolExecutor(max(1, threads))
    try:
        tables = _simulate_all(plan, pool, threads, progress or (lambda _: None))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [_compared(plan, table) for table in tables]


def _check(plan: Plan) -> None:
    labels = [scheduler.label for scheduler in plan.schedulers]
    if not (plan.sources and labels and plan.metrics and plan.seeds and plan.estimates):
        raise UsageError("nothing to compare", hint="give a workload, schedulers, metrics and seeds")
    twins = [label for label in labels if labels.count(label) > 1]
    if twins:
        raise UsageError(f"scheduler {twins[0]!r} is given twice")
    if plan.baseline and plan.baseline not in labels:
        raise unknown_name("baseline", plan.baseline, labels)
    for name in plan.metrics:
        resolve(name)


def _simulate_all(plan: Plan, pool: ThreadPoolExecutor, threads: int, progress: Callable[[int], None]) -> list[_Table]:
    tables: list[_Table] = []
    waiting: deque[tuple[list[_Cell], Future[_Cell]]] = deque()
    done = 0
    for row, job in _jobs(plan, tables):
        waiting.append((row, pool.submit(job)))
        while len(waiting) > AHEAD * threads:
            done = _collect(waiting, done, progress)
    while waiting:
        done = _collect(waiting, done, progress)
    return tables


def _collect(waiting: deque[tuple[list[_Cell], Future[_Cell]]], done: int, progress: Callable[[int], None]) -> int:
    row, future = waiting.popleft()
    row.append(future.result())  # in the order of submission, whichever thread is first
    progress(done + 1)
    return done + 1


def _jobs(plan: Plan, tables: list[_Table]) -> Iterator[tuple[list[_Cell], Callable[[], _Cell]]]:
    """Where each cell belongs, and the call that computes it; fills `tables` in the order in which they are shown."""
    for source in plan.sources:
        log = None if source.seeded else source.load(plan.seeds[0])
        made = {
            (k, estimate): _Table(source, cluster, plan.seeds_of(source, estimate), estimate)
            for k, cluster in enumerate(source.clusters)
            for estimate in plan.estimates
        }
        tables.extend(made.values())
        for estimate in plan.estimates:
            for seed in plan.seeds_of(source, estimate):
                workload = log if log is not None else source.load(seed)
                if estimate is not None:
                    workload = with_estimate(workload, estimate, seed)
                for k in range(len(source.clusters)):
                    table = made[k, estimate]
                    table.workload = workload if table.workload is None else table.workload
                    table.cells.append([])
                    for scheduler in plan.schedulers:
                        yield table.cells[-1], _call(plan, table, workload, scheduler, seed)


def _call(plan: Plan, table: _Table, workload: Workload, scheduler: AnyScheduler, seed: int) -> Callable[[], _Cell]:
    lone = len(table.seeds) == 1
    segments = any(resolve(name)[0].segments for name in plan.metrics)
    cluster = table.source.change(table.cluster, workload, seed) if table.source.change else table.cluster
    return lambda: _measured(simulate(workload, cluster, scheduler, seed, rules=plan.rules, segments=segments), plan.metrics, lone)


def _measured(result: Result, metrics: tuple[str, ...], lone: bool) -> _Cell:
    values: dict[str, Interval] = {}
    per_job = None
    for name in metrics:
        found, aggregation = resolve(name)
        every = values_of(result, found)
        value = aggregate(every, aggregation) if aggregation else float(every)
        values[name] = Interval(value, np.nan, np.nan, 1)
        if lone and found.kind == "job" and aggregation == "mean":
            values[name] = block_bootstrap(every, result.workload.jobs.submit)
            per_job = every if name == metrics[0] else per_job
    codes, sizes = np.unique(result.table["reason"], return_counts=True)
    reasons = {REASONS[code]: int(size) for code, size in zip(codes, sizes, strict=True) if code}
    return _Cell(values, counts(result), reasons, per_job)


# ── from cells to a comparison ──


def _compared(plan: Plan, table: _Table) -> Comparison:
    workload = cast(Workload, table.workload)
    labels = [scheduler.label for scheduler in plan.schedulers]
    base = labels.index(plan.baseline) if plan.baseline else 0
    columns = [[row[k] for row in table.cells] for k in range(len(labels))]
    values = [{name: _interval(column, name) for name in plan.metrics} for column in columns]
    changes = _corrected(
        [None if k == base else _change(plan.primary, column, columns[base], workload) for k, column in enumerate(columns)]
    )
    best = {name: _best(name, [line[name].mean for line in values]) for name in plan.metrics}
    lines = tuple(
        Line(label, values[k], frozenset(name for name in plan.metrics if k in best[name]), changes[k], _sums(columns[k]))
        for k, label in enumerate(labels)
    )
    return Comparison(
        table.source.name, table.cluster.name, workload.estimate_source, table.seeds, labels[base], plan.metrics, lines,
        _notes(plan, table, workload),
    )  # fmt: skip


def _interval(column: list[_Cell], name: str) -> Interval:
    """Over seeds; of one sample over its blocks of time, where that was possible."""
    if len(column) == 1:
        return column[0].values[name]
    return bootstrap_mean(_finite([cell.values[name].mean for cell in column]))


def _finite(values: list[float]) -> Array:
    """inf (a metric of the user's own may give it) has no mean: it counts as missing."""
    given = np.array(values)
    return np.where(np.isinf(given), np.nan, given)


def _change(primary: str, column: list[_Cell], base: list[_Cell], workload: Workload) -> Change:
    better: Literal["lower", "higher"] = "higher" if resolve(primary)[0].better == "higher" else "lower"
    mine, other = column[0].per_job, base[0].per_job
    if mine is not None and other is not None:
        each = mine - other
        found = block_bootstrap(each, workload.jobs.submit)
        sign = 1 if better == "higher" else -1
        wins, losses = int((sign * each > 0).sum()), int((sign * each < 0).sum())
        n = int((~np.isnan(each)).sum())
        return Change(found.mean, found.low, found.high, wins, n - wins - losses, losses, np.nan, n, "job")
    a, b = (_finite([cell.values[primary].mean for cell in cells]) for cells in (column, base))
    d = paired_difference(a, b, better=better)
    return Change(d.mean, d.low, d.high, d.wins, d.ties, d.losses, d.p if d.n > 1 else np.nan, d.n, "seed")


def _corrected(changes: list[Change | None]) -> list[Change | None]:
    given = [change for change in changes if change is not None]
    adjusted = iter(holm([change.p for change in given]).tolist() if given else [])
    return [change and Change(**{**vars(change), "p": next(adjusted)}) for change in changes]


def _best(name: str, means: list[float]) -> set[int]:
    better = resolve(name)[0].better
    known = [mean for mean in means if not np.isnan(mean)]
    if better == "neither" or not known:
        return set()
    top = max(known) if better == "higher" else min(known)
    return {k for k, mean in enumerate(means) if mean == top}


def _sums(column: list[_Cell]) -> dict[str, int]:
    return {key: sum(cell.counts[key] for cell in column) for key in column[0].counts}


def _notes(plan: Plan, table: _Table, workload: Workload) -> tuple[str, ...]:
    notes = [*workload.notes, *(f"{count:,} rows dropped: {reason}" for reason, count in workload.dropped.items())]
    one = len(table.seeds) == 1
    if not table.source.seeded:
        if one:
            notes.append("a log is one sample: intervals are by blocks of time, of means over jobs only; pairs are jobs")
        else:
            notes.append(f"{len(table.seeds)} seeds vary the noise of the estimates only: the jobs are one log")
    elif one:
        notes.append("one seed: intervals are by blocks of time, of means over jobs only; pairs are jobs")
    if 1 < len(table.seeds) < 5:
        notes.append(Interval(0, 0, 0, len(table.seeds)).note)
    if any(map(_preempts, plan.schedulers)) and plan.rules.checkpoint == 0 and plan.rules.restart_cost == 0:
        notes.append("preempted jobs lose nothing here: no work since a checkpoint, no time to restart")
    first = table.cells[0][0]  # which jobs are rejected does not depend on the scheduler
    notes += [f"{count:,} of {first.counts['jobs']:,} jobs rejected: {reason}" for reason, count in first.reasons.items()]
    left = {scheduler.label: cell.counts["unfinished"] for scheduler, cell in zip(plan.schedulers, table.cells[0], strict=True)}
    notes += [f"{label}: {count:,} jobs never ended" for label, count in left.items() if count]
    return tuple(notes)


def _preempts(scheduler: AnyScheduler) -> bool:
    if isinstance(scheduler, Decider):
        return False  # not known before it is asked
    parts: tuple[Scheduler, ...] = scheduler.schedulers if isinstance(scheduler, Meta) else (scheduler,)
    return any(part.preemption.function is not None for part in parts)


def as_record(comparison: Comparison, line: Line) -> dict[str, Any]:
    """The line as one flat row, for csv; units are those of the metrics."""
    row: dict[str, Any] = {
        "workload": comparison.workload, "cluster": comparison.cluster, "estimate": comparison.estimate,
        "seeds": len(comparison.seeds), "scheduler": line.scheduler,
    }  # fmt: skip
    for name, value in line.values.items():
        row |= {name: value.mean, f"{name}_low": value.low, f"{name}_high": value.high, f"{name}_best": name in line.best}
    names = {"difference": "mean", "difference_low": "low", "difference_high": "high"} | {k: k for k in ("wins", "ties", "losses", "p")}
    row |= {"baseline": comparison.baseline, "difference_of": comparison.primary}
    row |= {ours: getattr(line.change, theirs) if line.change else None for ours, theirs in names.items()}
    return row | dict(line.counts)


def as_data(comparison: Comparison) -> dict[str, Any]:
    """The whole table as plain values, for json."""
    return {
        "workload": comparison.workload, "cluster": comparison.cluster, "estimate": comparison.estimate,
        "seeds": list(comparison.seeds), "primary": comparison.primary, "baseline": comparison.baseline,
        "units": {name: resolve(name)[0].unit for name in comparison.metrics},
        "better": {name: resolve(name)[0].better for name in comparison.metrics},
        "notes": list(comparison.notes),
        "schedulers": [
            {
                "scheduler": line.scheduler,
                "metrics": {
                    name: {"mean": v.mean, "low": v.low, "high": v.high, "n": v.n, "of": v.of, "best": name in line.best}
                    for name, v in line.values.items()
                },
                "difference": vars(line.change) if line.change else None,
                "counts": dict(line.counts),
            }
            for line in comparison.lines
        ],
    }  # fmt: skip
