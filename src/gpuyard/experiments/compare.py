"""Compare schedulers: all combinations of workloads, clusters and estimates, with every scheduler on the same seeds.

A seed makes the workload, the noise of its estimates and the engine's own draws, so that schedulers differ in nothing else and their
differences may be taken pair by pair. A log is one sample whatever the seed; its intervals come from blocks of time. Where it says when
its jobs started, the first line is what actually happened, and it is the baseline unless another is named.
"""

from __future__ import annotations

import platform
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, replace
from itertools import groupby
from typing import cast

import numpy as np

from gpuyard import __version__
from gpuyard.arrays import Array
from gpuyard.engine.batch import batches
from gpuyard.engine.compiler.entry import engine
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.simulation import simulate, simulate_many
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.design.cells import parts_of, saw
from gpuyard.experiments.design.spec import Axes, Experiment, Judging, RulesText
from gpuyard.experiments.hypothesis import what_if
from gpuyard.experiments.judging.answering.names import LOG_NAME, in_words, is_wait, people_name
from gpuyard.experiments.judging.answering.plain import nobody_waits, verdict_of
from gpuyard.experiments.judging.answering.provenance import provenance_of
from gpuyard.experiments.judging.answering.waits import Groups, Waits, WaitSums, groups_of, pieces_of, wait_sums
from gpuyard.experiments.judging.logged import LABEL, has_log, logged_result
from gpuyard.experiments.judging.statistics import Interval, block_interval, caveat
from gpuyard.experiments.judging.summary import Summary, summarise
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.questions.calibration import SiteFit
from gpuyard.experiments.questions.stability import stability
from gpuyard.experiments.running.results import PLACE, OneSample, Results
from gpuyard.experiments.usual import TODAY, WAIT
from gpuyard.metrics import aggregate, counts, rejections, resolve
from gpuyard.metrics.base import values_of
from gpuyard.metrics.facts import stacked
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules, terms_table
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler, Decider, parse_scheduler
from gpuyard.registry import unknown_name
from gpuyard.traces import accuracy, is_random, with_estimate
from gpuyard.traces.guess import is_sure

AHEAD = 4  # tasks per thread that are prepared before the oldest is waited for: bounds the workloads in memory


@dataclass(frozen=True)
class Source:
    """A workload and the clusters to run it on. `seeded`: a generator, which makes another sample at every seed; else a log."""

    name: str
    load: Callable[[int], Workload]
    seeded: bool
    clusters: tuple[Cluster, ...]
    change: Callable[[Cluster, Workload, int], Cluster] | None = None  # changes a cluster at a seed
    why: str = ""  # where the clusters were guessed from; empty: they were asked for
    pseudonyms: bool = False  # the users have them instead of their names
    log: Workload | None = None  # as it was read, before any change; None: as it is loaded
    calibrations: tuple[SiteFit, ...] = ()  # of each cluster; empty: nothing was to be fitted


@dataclass(frozen=True)
class Plan:
    """A comparison to make. The first metric is the primary one, whose differences to the baseline are taken."""

    sources: tuple[Source, ...]
    schedulers: tuple[AnyScheduler, ...]
    metrics: tuple[str, ...]
    seeds: tuple[int, ...] = tuple(range(8))
    estimates: tuple[str | None, ...] = (None,)  # None: the workload's own
    baseline: str = ""  # a scheduler's label; empty: the log, or else what sites run today (FCFS + EASY), or else the first scheduler
    challengers: tuple[str, ...] = ()  # labels; where some are named, the baseline is the best of the rivals
    rules: Rules = field(default_factory=Rules)
    stable: bool = True  # of a log, the winner is run again at other loads, sizes and estimates

    def seeds_of(self, source: Source, estimate: str | None) -> tuple[int, ...]:
        """A log without noise is one sample: simulating it again gives the same numbers."""
        return self.seeds if source.seeded or (estimate is not None and is_random(estimate)) else self.seeds[:1]

    @property
    def labels(self) -> list[str]:
        return [scheduler.label for scheduler in self.schedulers]

    @property
    def wait(self) -> str:
        """The metric by which it is said who waits longer: the first one if it is a wait."""
        first = self.metrics[0].partition(".")[0]
        return first if is_wait(first) else WAIT

    @property
    def rivals(self) -> tuple[str, ...]:
        """List the labels of those that are not challengers; unless a challenger may stop running jobs, of those that may not."""
        others = [scheduler for scheduler in self.schedulers if scheduler.label not in self.challengers]
        may_stop = any(preempts(scheduler) for scheduler in self.schedulers if scheduler.label in self.challengers)
        alike = [scheduler for scheduler in others if may_stop or not preempts(scheduler)]
        return tuple(scheduler.label for scheduler in alike or others)

    def cells(self) -> int:
        """Count the simulations."""
        pairs = [(source, estimate) for source in self.sources for estimate in self.estimates]
        return sum(len(self.seeds_of(*pair)) * len(pair[0].clusters) * len(self.schedulers) for pair in pairs)


@dataclass(frozen=True)
class _Measured:
    """The values that are kept from one simulation."""

    values: Mapping[str, float]
    intervals: Mapping[str, Interval]  # by blocks of time, of metrics that are means over jobs, where there is one sample
    counts: Mapping[str, int]
    reasons: Mapping[str, int]
    per_job: Array | None  # (jobs,) of the primary metric, where it is a mean over jobs and there is one sample
    simulated: bool
    preempted: bool  # some job was stopped, and not by an outage
    limited: int  # times that a decider reached its time limit
    accuracy: Mapping[str, float]  # of the estimates
    waits: WaitSums


@dataclass
class _Pending:
    """A comparison whose simulations are under way."""

    source: Source
    cluster: Cluster
    seeds: tuple[int, ...]
    estimate: str | None
    calibration: SiteFit | None = None
    workload: Workload | None = None  # the first seed's: its notes and submits
    counted: Array | None = None  # (jobs,) bool, of a log: with a start and not rejected, so that every line is about the same jobs

    @property
    def log(self) -> bool:
        """Whether the first cell of each row is what actually happened."""
        return self.counted is not None

    cells: list[list[_Measured]] = field(default_factory=list)  # by seed, by scheduler


def compare(plan: Plan, *, threads: int = 2, progress: Callable[[int], None] | None = None) -> list[Summary]:
    """Simulate every cell and sum up each workload on each cluster; `progress` is called with the number of finished simulations.

    The numbers do not depend on the number of threads, unless a decider reaches its time limit: a note then says so.
    """
    prepare(plan)
    pool = ThreadPoolExecutor(max(1, threads))
    try:
        tables = _simulate_all(plan, pool, threads, progress or (lambda _: None))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        raise
    pool.shutdown()
    return [_with_stability(plan, table, summarise(_results(plan, table))) for table in tables]


def _with_stability(plan: Plan, table: _Pending, summary: Summary) -> Summary:
    """Add how the winner on a log fares elsewhere, if it was asked for and something else is used today."""
    if not plan.stable or table.source.seeded or plan.challengers or table.workload is None:
        return summary
    found = verdict_of(summary)
    today = summary.stand_in if found is not None and found.today is summary.log else found.today if found is not None else None
    if found is None or today is None or found.best.scheduler == today.scheduler:
        return summary
    if found.better is False or nobody_waits(summary, found):  # no winner, or nothing to win
        return summary
    pair = [each for label in (found.best.scheduler, today.scheduler) for each in plan.schedulers if each.label == label]
    if len(pair) < 2 or any(isinstance(each, Decider) for each in pair):
        return summary
    guessed = bool(table.source.why) and not is_sure(table.workload)
    rerun = stability(table.workload, table.cluster, pair[0], pair[1], plan.metrics[0], plan.rules, table.counted, guessed=guessed)
    return replace(summary, results=replace(summary.results, stability=rerun))


def prepare(plan: Plan) -> None:
    """Check a plan and compile what it needs: an error comes before any simulation, and threads do not compile twice."""
    _check(plan)
    for scheduler in plan.schedulers:
        if not isinstance(scheduler, Decider):
            scheduler.program()
    if not INTERPRETED:
        engine()


def _check(plan: Plan) -> None:
    labels = plan.labels
    if not (plan.sources and labels and plan.metrics and plan.seeds and plan.estimates):
        raise UsageError("nothing to compare", hint="give a workload, schedulers, metrics and seeds")
    twins = [label for label in labels if labels.count(label) > 1]
    if twins:
        raise UsageError(f"scheduler {twins[0]!r} is given twice")
    for label in plan.challengers:
        if label not in labels:
            raise unknown_name("challenger", label, labels)
    if plan.challengers and set(plan.challengers) >= set(labels):
        raise UsageError("no scheduler to compare with", hint="name one that is not learned")
    if plan.baseline and plan.baseline not in (LABEL, *labels):
        raise unknown_name("baseline", plan.baseline, [LABEL, *labels])
    for name in plan.metrics:
        resolve(name)


def _simulate_all(plan: Plan, pool: ThreadPoolExecutor, threads: int, progress: Callable[[int], None]) -> list[_Pending]:
    tables: list[_Pending] = []
    waiting: deque[tuple[list[_Measured], Future[list[_Measured]]]] = deque()
    done = 0
    for row, job in _jobs(plan, tables):
        waiting.append((row, pool.submit(job)))
        while len(waiting) > AHEAD * threads:
            done = _collect(waiting, done, progress)
    while waiting:
        done = _collect(waiting, done, progress)
    return tables


def _collect(waiting: deque[tuple[list[_Measured], Future[list[_Measured]]]], done: int, progress: Callable[[int], None]) -> int:
    row, future = waiting.popleft()
    for cell in future.result():  # in the order of submission, whichever thread is first
        row.append(cell)
        done += cell.simulated
        progress(done)
    return done


def _jobs(plan: Plan, tables: list[_Pending]) -> Iterator[tuple[list[_Measured], Callable[[], list[_Measured]]]]:
    """Yield where cells belong and the call that computes them; fills `tables` in the order in which they are shown."""
    for source in plan.sources:
        log = None if source.seeded else source.load(plan.seeds[0])
        made = {
            (k, estimate): _Pending(
                source, cluster, plan.seeds_of(source, estimate), estimate, source.calibrations[k] if source.calibrations else None
            )
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
                    if not source.seeded and has_log(workload) and table.counted is None:
                        table.counted = _counted(workload, table.cluster)
                    table.cells.append([])
                    for schedulers in ([()] if table.log else []) + _batches(plan.schedulers, len(workload)):
                        yield table.cells[-1], _call(plan, table, workload, schedulers, seed)


def _batches(schedulers: Sequence[AnyScheduler], jobs: int) -> list[Sequence[AnyScheduler]]:
    """Split schedulers into those that one thread runs together; a decider, which may take seconds, is alone."""
    found: list[Sequence[AnyScheduler]] = []
    for decides, group in groupby(schedulers, lambda each: isinstance(each, Decider)):
        neighbours = list(group)
        found += [[each] for each in neighbours] if decides else batches(neighbours, jobs)
    return found


def _counted(workload: Workload, cluster: Cluster) -> Array:
    """(jobs,) bool: the log has a start and the cluster has room, which depends on neither scheduler nor run time."""
    idle = simulate(replace(workload, runtime=np.zeros(len(workload)), predictor=None), cluster, parse_scheduler("fcfs"))
    counted: Array = np.isfinite(workload.known_start) & (idle.table["reason"] == 0)
    return counted


def _call(plan: Plan, table: _Pending, workload: Workload, schedulers: Sequence[AnyScheduler], seed: int) -> Callable[[], list[_Measured]]:
    """Return the call that measures some lines; without schedulers, that of the log."""
    lone = len(table.seeds) == 1
    if not schedulers:
        return lambda: [_measured(logged_result(workload, table.cluster), plan, lone, table.counted, *_grouped(workload, lone))]
    segments = any(resolve(name)[0].segments for name in plan.metrics)
    cluster = table.source.change(table.cluster, workload, seed) if table.source.change else table.cluster

    def measured() -> list[_Measured]:
        results = simulate_many(workload, cluster, schedulers, seed, rules=plan.rules, segments=segments)
        stacked(results)  # so that what their metrics share is worked out for all of them at once
        return [_measured(result, plan, lone, table.counted, *_grouped(workload, lone)) for result in results]

    return measured


def _grouped(workload: Workload, lone: bool) -> tuple[Groups, Array]:
    """Return the groups by which waits are summed, and (jobs,) the stretch of time of each job; of many seeds each is one unit."""
    return groups_of(workload), pieces_of(workload) if lone else np.zeros(len(workload), np.int64)


def _measured(result: Result, plan: Plan, lone: bool, counted: Array | None, groups: Groups, unit: Array) -> _Measured:
    metrics = plan.metrics
    values: dict[str, float] = {}
    intervals: dict[str, Interval] = {}
    per_job = None
    for name in metrics:
        found, aggregation = resolve(name)
        every = values_of(result, found)
        if counted is not None and found.kind == "job":
            every = np.where(counted, every, np.nan)
        values[name] = aggregate(every, aggregation) if aggregation else float(every)
        if lone and found.kind == "job" and aggregation == "mean":
            intervals[name] = block_interval(every, result.workload.jobs.submit)
            per_job = every if name == metrics[0] else per_job
    stops = int(result.table["preemptions"].sum()) - result.totals.get("failures", 0.0)
    limited = int(result.manifest.get("decider", {}).get("limit_struck", 0))
    return _Measured(
        values, intervals, counts(result), rejections(result), per_job, not result.manifest.get("measured"), stops > 0, limited,
        accuracy(result.workload), wait_sums(result, plan.wait, groups, unit, counted),
    )  # fmt: skip


# ── from cells to results ──


def _results(plan: Plan, table: _Pending) -> Results:
    workload = cast(Workload, table.workload)
    _refuse_all_rejected(table, workload)
    labels = (LABEL, *plan.labels) if table.log else tuple(plan.labels)
    rivals = plan.rivals if plan.challengers else ()
    baseline = "" if plan.challengers else plan.baseline if plan.baseline in labels else _today(labels)
    experiment = Experiment(
        "comparison", f"{table.source.name} on {table.cluster.name}", "", "simulations",
        Axes((table.source.name,), (table.cluster.name,), ("",), (workload.estimates,), labels, table.seeds, plan.metrics[:1]),
        judge=Judging(baseline, plan.challengers, rivals, plan.metrics[1:], rivals=rivals),
        rules=RulesText(**asdict(plan.rules)),
    )  # fmt: skip
    return Results(
        None, experiment, {"gpuyard": __version__, "python": platform.python_version(), "platform": platform.platform()},
        _columns(plan, table, experiment.axes), sample=_sample(table, labels, workload) if len(table.seeds) == 1 else None,
        names={LABEL: LOG_NAME} | {scheduler.label: people_name(scheduler) for scheduler in plan.schedulers},
        waits=Waits.joined(labels, [[cell.waits for cell in row] for row in table.cells], by_time=len(table.seeds) == 1),
        titles={LABEL: "the log"} | {scheduler.label: in_words(scheduler) for scheduler in plan.schedulers}, accuracy=_accuracy(table),
        seen=_seen(plan, table, workload), calibration=table.calibration,
        paired=int(len(workload) if table.counted is None else table.counted.sum()), notes=_notes(plan, table, workload),
        what_if=None if table.counted is None else what_if(workload, table.cluster, plan.rules, table.counted),
        provenance=provenance_of(
            workload, table.cluster, table.source.why, generated=table.source.seeded, pseudonyms=table.source.pseudonyms
        ),
    )  # fmt: skip


def _seen(plan: Plan, table: _Pending, workload: Workload) -> frozenset[str]:
    """Return the labels of schedulers whose networks know some of these jobs."""
    if table.source.seeded:
        return frozenset()  # seeds of a comparison belong to the test part of a generator
    return frozenset(each.label for each in plan.schedulers if saw(each, table.source.log or workload, workload))


def _today(labels: Sequence[str]) -> str:
    """Choose what happened, or else what sites run today, or else the first scheduler."""
    return labels[0] if LABEL in labels or TODAY not in labels else TODAY


def _accuracy(table: _Pending) -> dict[str, float]:
    """Return how good the estimates of the first seed are: the mean over the schedulers, which differ where simulations make estimates."""
    simulated = [cell.accuracy for cell in table.cells[0] if cell.simulated]
    return {name: float(np.mean([each[name] for each in simulated])) for name in simulated[0]}


def _refuse_all_rejected(table: _Pending, workload: Workload) -> None:
    last = table.cells[0][-1]
    if last.counts["jobs"] and last.counts["rejected"] == last.counts["jobs"]:
        kinds = ", ".join(label for label in workload.jobs.gpu_types if label)
        hint = f"jobs ask for {kinds}; the cluster has {', '.join(kind.name for kind in table.cluster.types)}" if kinds else ""
        raise DataError(f"{table.source.name} on {table.cluster.name}: all jobs are rejected: {next(iter(last.reasons))}", hint=hint)


def _columns(plan: Plan, table: _Pending, axes: Axes) -> dict[str, Array]:
    """Make the columns, a row per Run: seeds, then schedulers."""
    cells = [cell for row in table.cells for cell in row]
    preempting = {scheduler.label: preempts(scheduler) for scheduler in plan.schedulers}
    names = list(axes.schedulers) * len(table.seeds)
    place = (axes.workloads[0], axes.clusters[0], "", axes.estimates[0])
    columns: dict[str, Array] = {"run": np.arange(len(cells))}
    columns |= {name: np.array([text] * len(cells), object) for name, text in zip(PLACE, place, strict=True)}
    columns |= {"seed": np.repeat(np.array(table.seeds), len(axes.schedulers)), "scheduler": np.array(names, object)}
    columns["training_seed"] = np.full(len(cells), np.nan)
    columns |= {name: np.array([cell.values[name] for cell in cells]) for name in plan.metrics}
    columns |= {f"n_{name}": np.array([cell.counts[name] for cell in cells]) for name in cells[0].counts}
    columns["preempts"] = np.array([cell.preempted or preempting.get(name, False) for name, cell in zip(names, cells, strict=True)])
    return columns


def _sample(table: _Pending, labels: Sequence[str], workload: Workload) -> OneSample:
    cells = dict(zip(labels, table.cells[0], strict=True))
    per_job = {label: cell.per_job for label, cell in cells.items() if cell.per_job is not None}
    return OneSample(workload.jobs.submit, {label: cell.intervals for label, cell in cells.items()}, per_job)


def _notes(plan: Plan, table: _Pending, workload: Workload) -> tuple[str, ...]:
    notes = [*workload.all_notes, *(f"{count:,} row{'s' * (count != 1)} dropped: {reason}" for reason, count in workload.dropped.items())]
    seeds, seeded = len(table.seeds), table.source.seeded
    if seeds == 1:
        sample = "one seed" if seeded else "a log is one sample"
        notes.append(f"{sample}: only means over jobs have intervals, by blocks of time; pairs are jobs")
    elif not seeded:
        notes.append(f"{seeds} seeds vary the noise of the estimates only: the jobs are one log")
    notes += filter(None, [caveat(seeds, "seed") if seeds > 1 else ""])
    stopping = any(cell.preempted for row in table.cells for cell in row) or any(map(preempts, plan.schedulers))
    terms = terms_table(workload.jobs.term_texts, plan.rules)
    if stopping and not (terms["interval"] > 0).any() and not (terms["restart"] > 0).any():
        notes.append("preempted jobs lose nothing here: no work since a checkpoint, no time to restart")
    if table.log:
        unknown = table.cells[0][0].counts["unfinished"]
        notes += [f"{count(unknown, 'job')} without a start in the log: simulated, but counted in no line"] if unknown else []
    first = table.cells[0][-1]  # which jobs are rejected does not depend on the scheduler
    notes += [f"{count:,} of {first.counts['jobs']:,} jobs rejected: {reason}" for reason, count in first.reasons.items()]
    simulated = table.cells[0][1:] if table.log else table.cells[0]
    left = {label: cell.counts["unfinished"] for label, cell in zip(plan.labels, simulated, strict=True)}
    notes += [f"{label}: {count:,} jobs never ended" for label, count in left.items() if count]
    struck = {label: sum(row[k - len(plan.labels)].limited for row in table.cells) for k, label in enumerate(plan.labels)}
    notes += [f"{label}: it reached its time limit {n:,} times, so its numbers depend on the machine" for label, n in struck.items() if n]
    notes += [
        f"{label}: it was trained on jobs of this log, so its numbers flatter it, and it is not called the best"
        for label in plan.labels
        if label in _seen(plan, table, workload)
    ]
    return tuple(notes)


def preempts(scheduler: AnyScheduler) -> bool:
    """Whether a scheduler may stop running jobs, as far as that is known before it decides; of a decider, its class may say `stops`."""
    own = isinstance(scheduler, Decider) and bool(getattr(scheduler.make, "stops", False))
    return own or any(part.preemption.stops for part in parts_of(scheduler))
