"""`gpuyard compare`: many schedulers, side by side, on the same seeds."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from gpuyard.cli.common import inputs, options
from gpuyard.cli.common.output import STAR, Format, Output, Table, emit, progress_bar, say, short, shown_unit, with_interval
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.experiments.compare import Source
    from gpuyard.experiments.judging.comparison import Comparison, Line
    from gpuyard.model.workload import Workload

DEFAULT_METRICS = ("bsld", "bsld.p95", "waiting", "turnaround", "turnaround.p95", "utilization", "fairness_users", "deadline_met")
LOG_METRICS = ("waiting", "waiting.p95", "bsld", "turnaround", "utilization", "queue_max", "fairness_users")  # of a log with start times
DEFAULT_SEEDS = 8
MAX_SEEDS = 10_000
MAX_THREADS = 64


def compare(
    workload: Annotated[list[str], typer.Argument(help="Files or generators, as for `simulate`.", show_default=False)],
    cluster: Annotated[list[str] | None, typer.Option(metavar="C", help="16x8:a100, 256, a preset, a .toml file; repeatable.")] = None,
    scheduler: options.SchedulerList = None,
    ordering: options.SlotList = None,
    placement: options.SlotList = None,
    backfill: options.SlotList = None,
    preemption: options.SlotList = None,
    baseline: Annotated[
        str | None,
        typer.Option(metavar="S", help="What differences are taken to; the log itself, or else the first scheduler, unless given."),
    ] = None,
    seeds: Annotated[int | None, typer.Option(metavar="N", help=f"Seeds 0 … N−1; {DEFAULT_SEEDS} unless given.")] = None,
    seed: Annotated[list[int] | None, typer.Option(metavar="K", help="A seed; repeatable, instead of --seeds.")] = None,
    estimate: Annotated[
        list[str] | None, typer.Option(metavar="SOURCE", help="requested, exact, noisy:0.3, rolling, boosting; repeatable.")
    ] = None,
    checkpoint: options.Checkpoint = "0",
    restart_cost: options.RestartCost = "0",
    walltime_kill: options.WalltimeKill = False,
    speeds: options.SpeedsOption = None,
    jobs: options.Jobs = None,
    reader: options.Reader = None,
    column: options.Columns = None,
    with_: options.With = None,
    apply: options.Apply = None,
    metric: options.Metrics = None,
    learned: Annotated[bool, typer.Option("--learned", help="Also the trained policies that come with the package.")] = False,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Simulations at a time; the numbers do not depend on it.")] = None,
    report: options.Report = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Compare schedulers on the same workloads: means with 95 % intervals, and paired differences to a baseline.

    Every repeatable option is an axis, and all combinations are run. The first metric is the one whose differences are taken.
    Of a log that says when its jobs started, what really happened is the first line.
    """
    from gpuyard.cli.common.schedulers import several_schedulers
    from gpuyard.experiments.compare import Plan
    from gpuyard.experiments.compare import compare as compared
    from gpuyard.experiments.judging.logged import LABEL
    from gpuyard.policies import parse_scheduler

    count, chosen = thread_count(threads), _seeds(seeds, seed)
    _check_names(scheduler or (), estimate or (), metric or ())
    if baseline and baseline != LABEL and scheduler and baseline not in scheduler:
        scheduler = [*scheduler, baseline]
    reading, measured = inputs.Reading.of(reader, column, with_, jobs, apply), inputs.Measured.of(speeds)
    firsts = {text: reading.read(text, chosen[0]) for text in workload}
    plan = Plan(
        sources=tuple(_source(text, first, cluster, reading, measured) for text, first in firsts.items()),
        schedulers=tuple(
            several_schedulers(scheduler or (), (ordering, placement, backfill, preemption), list(firsts.values()), learned=learned)
        ),
        metrics=tuple(dict.fromkeys(metric or _default_metrics(list(firsts.values())))),
        seeds=chosen,
        estimates=tuple(dict.fromkeys(estimate)) if estimate else (None,),
        baseline=parse_scheduler(baseline).label if baseline and baseline != LABEL else baseline or "",
        rules=inputs.rules_of(checkpoint, restart_cost, walltime_kill),
    )
    with progress_bar("simulating", plan.cells()) as progress:
        comparisons = compared(plan, threads=count, progress=progress)
    several = len({(comparison.workload, comparison.cluster) for comparison in comparisons}) > 1
    for text in dict.fromkeys(
        f"{f'{comparison.workload} on {comparison.cluster}: ' if several else ''}{note}"
        for comparison in comparisons
        for note in comparison.notes
    ):
        say(f"note: {text}")
    if report is not None:
        from gpuyard.cli.report import write_report

        write_report(comparisons, report)
        say(f"report written in {report}")
    emit(describe(comparisons), how)


def _check_names(schedulers: Sequence[str], estimates: Sequence[str], metrics: Sequence[str]) -> None:
    """What is misspelt is told before a log is read."""
    from gpuyard.metrics import resolve
    from gpuyard.policies import parse_scheduler
    from gpuyard.traces import is_random

    for text in schedulers:
        parse_scheduler(text)
    for text in estimates:
        is_random(text)
    for text in metrics:
        resolve(text)


def _default_metrics(workloads: Sequence[Workload]) -> tuple[str, ...]:
    from gpuyard.experiments.judging.logged import has_log

    return LOG_METRICS if all(map(has_log, workloads)) else DEFAULT_METRICS


def _source(text: str, first: Workload, clusters: Sequence[str] | None, reading: inputs.Reading, measured: inputs.Measured) -> Source:
    from gpuyard.experiments.compare import Source

    generated = reading.is_generator(text)
    machines = measured.clusters(inputs.clusters_for(first, clusters, generated=generated), first)

    def load(seed: int) -> Workload:
        """A log is read once: it is the same whatever the seed, unless what is applied to it is not."""
        return measured.workload(reading.perturbed(reading.read(text, seed) if generated else first, seed), machines)

    return Source(reading.named(text), load, generated or reading.is_random(), machines, reading.dipped if reading.apply else None)


def _seeds(count: int | None, given: Sequence[int] | None) -> tuple[int, ...]:
    if given and count is not None:
        raise UsageError("--seeds and --seed both say which seeds", hint="use one of them")
    if given:
        return tuple(dict.fromkeys(inputs.check_seed(seed) for seed in given))
    number = DEFAULT_SEEDS if count is None else count
    if not 1 <= number <= MAX_SEEDS:
        raise UsageError(f"--seeds {number} does not lie in 1..{MAX_SEEDS:,}")
    return tuple(range(number))


def thread_count(count: int | None) -> int:
    number = min(os.cpu_count() or 1, 8) if count is None else count
    if not 1 <= number <= MAX_THREADS:
        raise UsageError(f"--threads {number} does not lie in 1..{MAX_THREADS}")
    return number


# ── the tables ──


def describe(comparisons: Sequence[Comparison]) -> Output:
    """A table for each comparison, for people and as data."""
    from gpuyard.experiments.judging.answers import answer
    from gpuyard.experiments.judging.comparison import as_data, as_record

    records = [as_record(comparison, line) for comparison in comparisons for line in comparison.lines]
    tables = [table_of(comparison) for comparison in comparisons] + side_by_side(comparisons)
    several = len(comparisons) > 1
    text = [sentence for comparison in comparisons for sentence in ([f"{_title(comparison)}:"] if several else []) + answer(comparison)]
    return Output(tables, [as_data(comparison) for comparison in comparisons], records, text)


def side_by_side(comparisons: Sequence[Comparison]) -> list[Table]:
    """Where several sources of estimates were tried: a table with a column for each, of the primary metric."""
    groups: dict[tuple[str, str], list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault((comparison.workload, comparison.cluster), []).append(comparison)
    return [_beside(group) for group in groups.values() if len(group) > 1]


def _beside(group: Sequence[Comparison]) -> Table:
    name = group[0].primary
    label, size = _unit(group[0], name)
    columns = [{line.scheduler: line for line in comparison.lines} for comparison in group]
    rows = [(line.scheduler, *(_cell(column[line.scheduler], name, size) for column in columns)) for line in group[0].lines]
    marked = {
        (r, k + 1) for k, column in enumerate(columns) for r, line in enumerate(group[0].lines) if name in column[line.scheduler].best
    }
    about = "\n".join(
        f"{c.estimate}: median estimate {short(c.accuracy['ratio'])} × the run time, agreement {short(c.accuracy['agreement'])},"
        f" {c.accuracy['below']:.0%} of jobs ran longer than estimated"
        for c in group
    )
    header = ("scheduler", *(comparison.estimate for comparison in group))
    title = f"{group[0].workload} on {group[0].cluster}: {name}{f' ({label})' if label else ''} by source of estimates"
    return Table(
        header,
        rows,
        title,
        marked=frozenset(marked),
        caption=f"agreement: mean of the smaller over the larger of the two; 1 is perfect\n{about}",
    )


def table_of(comparison: Comparison) -> Table:
    """Rows are schedulers, columns metrics; the best of each column is marked."""

    units = {name: _unit(comparison, name) for name in comparison.metrics}
    shown = {name: f"\n({label})" if label else "\n " for name, (label, _) in units.items()}
    primary = comparison.primary
    header = ("scheduler", f"{primary} − baseline{shown[primary]}", "better–\nworse", *(name + shown[name] for name in comparison.metrics))
    rows, marked = [], set()
    for r, line in enumerate(comparison.lines):
        cells = [_cell(line, name, units[name][1]) for name in comparison.metrics]
        rows.append((line.scheduler, *_change(line, units[primary][1]), *cells))
        marked |= {(r, k + 3) for k, name in enumerate(comparison.metrics) if name in line.best}
    return Table(header, rows, _title(comparison), marked=frozenset(marked), caption=_caption(comparison))


def _unit(comparison: Comparison, name: str) -> tuple[str, float]:
    """The unit that is shown, and how many of the metric's own it is."""
    return shown_unit(name, [line.values[name].mean for line in comparison.lines])


def _cell(line: Line, name: str, size: float) -> str:
    value = line.values[name]
    text = with_interval(value.mean / size, value.low / size, value.high / size)
    first, feed, rest = text.partition("\n")
    return first + (f" {STAR}" if name in line.best else "") + feed + rest


def _change(line: Line, size: float) -> tuple[str, str]:
    change = line.change
    if change is None:
        return "baseline", ""
    return with_interval(change.mean / size, change.low / size, change.high / size, "+"), f"{change.wins:,}–{change.losses:,}"


def _title(comparison: Comparison) -> str:
    n = len(comparison.seeds)
    seeds = f"seed {comparison.seeds[0]}" if n == 1 else f"{n} seeds"
    return f"{comparison.workload} on {comparison.cluster}  (estimates: {comparison.estimate}, {seeds})"


def _caption(comparison: Comparison) -> str:
    from gpuyard.experiments.judging.statistics import FEWEST
    from gpuyard.metrics import resolve

    of = next((line.change.of for line in comparison.lines if line.change), "seed")
    arrows = {name: resolve(name)[0].better for name in comparison.metrics}
    higher = ", ".join(name for name, better in arrows.items() if better == "higher")
    jobs = comparison.lines[-1].counts
    few = of == "seed" and len(comparison.seeds) < FEWEST
    interval = "range over the seeds, too few for a 95 % interval" if few else "95 % interval"
    lines = [
        f"{STAR} best mean; [ ] {interval}; differences are paired, to {comparison.baseline}; better–worse counts {of}s",
        f"lower is better{f', except of {higher}' if higher else ''}; {jobs['jobs']:,} jobs, {jobs['rejected']:,} rejected",
    ]
    clear = [line for line in comparison.lines if line.change and line.change.clear]
    if any(line.change for line in comparison.lines) and not few:
        lines.append(_clear_words(len(clear), len(comparison.lines) - 1))
    return "\n".join(lines)


def _clear_words(clear: int, others: int) -> str:
    if not clear:
        return f"none of {others} can be told from the baseline: the interval of each difference holds 0"
    return f"{clear} of {others} can be told from the baseline: the interval of the difference does not hold 0"
