"""Summaries as tables on the terminal: the one table of `compare`, `evaluate` and `run`, and what goes with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gpuyard.cli.common.output import STAR, Output, Table, say, short, shown_unit, with_interval

if TYPE_CHECKING:
    from gpuyard.experiments.judging.statistics import Difference, Interval
    from gpuyard.experiments.judging.summary import Comparison, Standing, Summary

STOPS = "†"  # behind a scheduler that may stop running jobs
SEEN = "‡"  # behind one that was trained on these jobs
MOST_OTHERS = 4  # metrics beside the objective of an experiment


@dataclass(frozen=True)
class _TableColumn:
    header: str
    cells: Sequence[str]
    marked: Sequence[bool] = ()


def describe(summaries: Sequence[Summary], *, full: bool = False, most: int = 0) -> Output:
    """Describe comparisons, each of one workload on one cluster: a table and the answer for people, and everything as data.

    `full`: tables have every interval, and the answer its statistics. `most`: other rows than challengers and the baseline; 0: all.
    """
    from gpuyard.experiments.judging.words import answer
    from gpuyard.report.tables import as_data, as_record, by_place

    records = [as_record(summary, line) for summary in summaries for line in summary.lines]
    tables = [comparison_table(summary, summary.table) if full else best_first(summary, most) for summary in summaries]
    tables += [_by_estimate(group) for group in by_place(summaries)]
    tables += [_fidelity_table(summary) for summary in summaries if full and summary.log is not None and summary.results.waits is not None]
    several = len(summaries) > 1
    text = []
    for summary in summaries:
        text += ["", f"{_title(summary)}:"] if several else []
        text += _answer(summary)
        text += answer(summary) if full else []
    return Output(tables, [as_data(summary) for summary in summaries], records, text)


def _answer(summary: Summary) -> list[str]:
    """Say in everyday words who wins, by how much, how sure that is and who pays; and draw who gains and who pays."""
    from gpuyard.cli.common.bars import gains_chart
    from gpuyard.experiments.judging.answering.plain import plain_answer
    from gpuyard.experiments.judging.words import answer

    found = plain_answer(summary)
    if found is None:
        return answer(summary)
    challengers = answer(summary) if any(line.challenger for line in summary.lines) else []
    return [*gains_chart(summary, found), *challengers, *found.lines]


def _fidelity_table(summary: Summary) -> Table:
    """The log beside the simulated present, by partition and size."""
    from gpuyard.experiments.judging.answering.fidelity import HEADER, fidelity, rows_of

    rows = rows_of(fidelity(summary.results.waits, summary.table.stand_in), summary.results.device)
    title = f"How faithful: the log and simulated {summary.results.name(summary.table.stand_in)}"
    return Table(HEADER, rows, title, caption="in use: devices on average while jobs are submitted")


def best_first(summary: Summary, most: int = 0) -> Table:
    """A row per scheduler, the best first, with its name, its code below it, its change against the baseline, and the means."""
    from gpuyard.experiments.judging.answering.names import amount, plain_title
    from gpuyard.experiments.judging.answering.plain import in_order

    every, first = in_order(summary), summary.table.objective
    others = [line for line in every if not (line.challenger or line.versus is None)]
    left_out = others[most:] if most else []
    lines = [line for line in every if line not in left_out]
    titles = (_heading(plain_title(name, summary.results.device)) for name in summary.metrics)
    header = ["scheduler", f"{plain_title(first)}\nvs {_base_word(summary)}", *titles]
    rows = []
    for line in lines:
        marks = f" {STOPS}" * line.preempts + f" {SEEN}" * (line.scheduler in summary.results.seen)
        name = summary.results.name(line.scheduler) + marks
        code = "" if summary.results.name(line.scheduler) == line.scheduler or line is summary.log else f"\n{line.scheduler}"
        rows.append([name + code, _against(summary, line), *(amount(metric, line.values[metric].mean) for metric in summary.metrics)])
    marked = frozenset((r, k + 2) for r, line in enumerate(lines) for k, name in enumerate(summary.metrics) if name in line.best)
    return Table(tuple(header), rows, _title(summary), marked=marked, caption=_short_caption(summary, len(left_out)))


def _heading(title: str) -> str:
    """Break a heading after its first word, so that columns are narrow."""
    return title.replace(" ", "\n", 1)


def _base_word(summary: Summary) -> str:
    from gpuyard.experiments.judging.answering.plain import today_of

    return "the log" if summary.log is not None and today_of(summary) is summary.log else "baseline"


def _against(summary: Summary, line: Standing) -> str:
    """`51 % shorter`, and below it the interval."""
    from gpuyard.experiments.judging.answering.plain import change_cell

    return change_cell(summary, line) or ("the log" if line is summary.log else "baseline")


def _short_caption(summary: Summary, left_out: int) -> str:
    from gpuyard.experiments.judging.answering.plain import today_of
    from gpuyard.experiments.judging.statistics import FEWEST

    n = len(summary.seeds)
    few = f", and {n} seeds are too few to tell" if 1 < n < FEWEST else ""
    jobs = summary.results.counts(summary.lines[-1].scheduler)
    over = f"{n} seeds" if n > 1 else "blocks of time"
    today = today_of(summary)
    lines = [
        f"baseline: {_named(summary, today)}second lines: 95 % interval over {over}{few}; {jobs['jobs']:,} jobs",
    ]
    if any(line.preempts for line in summary.lines):
        lines.append(f"{STOPS} may stop running jobs, where these may be stopped")
    if summary.results.seen:
        lines.append(f"{SEEN} was trained on jobs of this log, so its numbers flatter it")
    if left_out:
        lines.append(f"{left_out} more schedulers are worse: --all shows them")
    return "\n".join(lines)


def _named(summary: Summary, today: Standing | None) -> str:
    if today is None:
        return ""
    simulated = ", simulated, as what happened is far from it" if summary.log is not None and today is not summary.log else ""
    return f"{summary.results.name(today.scheduler)} ({today.scheduler}){simulated}; "


def say_notes(summaries: Sequence[Summary]) -> None:
    """Say the notes of all summaries on stderr; a note that is not common to all with its workload and cluster."""
    common = set.intersection(*(set(summary.notes) for summary in summaries))
    places = [(f"{summary.workload} on {summary.cluster}: ", summary.notes) for summary in summaries]
    for text in dict.fromkeys(f"{'' if note in common else place}{note}" for place, notes in places for note in notes):
        say(f"note: {text}")


def comparison_table(summary: Summary, table: Comparison) -> Table:
    """Rows are schedulers, the best of a column is marked; for an experiment, the oracle and the bound follow."""
    columns = list(_of_one_workload(summary, table) if summary.single else _of_experiment(summary, table))
    rows = [list(row) for row in zip(*(column.cells for column in columns), strict=True)]
    if not summary.single:
        _, size = _unit(table, table.objective)
        for name, value in (("oracle of each run", table.oracle), ("bound", table.bound)):
            if value is not None:
                rows.append([name, _interval(value, size), *[""] * (len(columns) - 2)])
    marked = frozenset((r, k) for k, column in enumerate(columns) for r, best in enumerate(column.marked) if best)
    title, caption = (
        (_title(summary), _caption(summary))
        if summary.single
        else (f"{summary.results.experiment.title}: {_metric_title(table.objective)}", _experiment_caption(summary, table))
    )
    return Table(tuple(column.header for column in columns), rows, title, marked=marked, caption=caption)


def _of_one_workload(summary: Summary, table: Comparison) -> Iterable[_TableColumn]:
    """Differences in the unit of the metric, and every metric with its interval."""
    label, size = _unit(table, table.objective)
    changes = [_interval(line.change, size, "+") if line.change else "baseline" for line in table.lines]
    yield _TableColumn("scheduler", [f"{line.scheduler} {STOPS}" if line.preempts else line.scheduler for line in table.lines])
    yield _TableColumn(f"{table.objective} − baseline\n{f'({label})' if label else ' '}", changes)
    yield _wins(table)
    for name in summary.metrics:
        label, size = _unit(table, name)
        yield _means(table, name, f"{name}\n{f'({label})' if label else ' '}", size)


def _of_experiment(summary: Summary, table: Comparison) -> Iterable[_TableColumn]:
    """The objective with its statistics, and means of some other metrics."""
    name, lines = table.objective, table.lines
    label, size = _unit(table, name)
    yield _TableColumn("scheduler", [f"> {line.scheduler}" if line.challenger else line.scheduler for line in lines])
    yield _means(table, name, f"{name}{f' ({label})' if label else ''}", size)
    found = [line.versus for line in lines]
    yield _TableColumn("− baseline (%)", [_interval(each.share_interval, 0.01, "+") if each else "baseline" for each in found])
    yield _TableColumn("effect", [short(each.difference.effect, "+") if each else "" for each in found])
    yield _wins(table)
    yield _TableColumn("p", ["" if each is None or each.p != each.p else f"{each.p:.2g}" for each in found])
    if any(line.gap for line in lines):
        yield _TableColumn("gap to\noracle (%)", [_interval(line.gap, 0.01) for line in lines])
    if any(line.above_bound for line in lines):
        yield _TableColumn("above\nbound (%)", [_interval(line.above_bound, 0.01) for line in lines])
    others = [other for other in summary.metrics if other != name and other in lines[0].values][:MOST_OTHERS]
    for other in others:
        label, size = _unit(table, other)
        yield _TableColumn(f"{other}{f' ({label})' if label else ''}", [short(line.values[other].mean / size) for line in lines])


def _unit(table: Comparison, metric: str) -> tuple[str, float]:
    """The unit that is shown, and how many of the metric's own it is."""
    return shown_unit(metric, [line.values[metric].mean for line in table.lines])


def _interval(value: Interval | Difference | None, size: float, sign: str = "") -> str:
    return with_interval(value.mean / size, value.low / size, value.high / size, sign) if value else ""


def _means(table: Comparison, metric: str, header: str, size: float) -> _TableColumn:
    marked = [metric in line.best for line in table.lines]
    cells = [_interval(line.values[metric], size).partition("\n") for line in table.lines]
    stars = [first + (f" {STAR}" if best else "") + feed + rest for (first, feed, rest), best in zip(cells, marked, strict=True)]
    return _TableColumn(header, stars, marked)


def _wins(table: Comparison) -> _TableColumn:
    cells = [f"{line.versus.wins:,}–{line.versus.losses:,}" if line.versus else "" for line in table.lines]
    return _TableColumn("better–\nworse", cells)


def _metric_title(metric: str) -> str:
    from gpuyard.metrics import resolve

    return resolve(metric)[0].title


def _experiment_caption(summary: Summary, table: Comparison) -> str:
    from gpuyard.experiments.judging.statistics import FEWEST
    from gpuyard.metrics import resolve

    better = resolve(table.objective)[0].better
    direction = f"{better} is better" if better != "neither" else ""
    few = "" if table.n >= FEWEST else ", too few to tell"
    caption = (
        f"{STAR} best mean; [ ] 95 % interval over {table.n} {table.over}{'s' * (table.n != 1)}{few}; {direction}; "
        f"baseline: {table.baseline}; {table.runs:,} Runs each\n"
        f"effect: mean difference over its standard deviation; p: of no difference, corrected for {summary.comparisons} comparisons (Holm)"
    )
    gaps = any(line.gap for line in table.lines)
    caption += "\ngap: mean over Runs of the share by which each is behind the best of the oracle's schedulers" if gaps else ""
    return caption + ("\nwhat is not trained here has its intervals over seeds" if table.over == "training seed" else "")


def _title(summary: Summary) -> str:
    from gpuyard.traces.estimates.sources import described

    n = len(summary.seeds)
    seeds = f"seed {summary.seeds[0]}" if n == 1 else f"{n} seeds"
    return f"{summary.workload} on {summary.cluster}  (estimates: {described(summary.estimate)}, {seeds})"


def _caption(summary: Summary) -> str:
    from gpuyard.experiments.judging.statistics import FEWEST
    from gpuyard.metrics import resolve

    changes = [line.change for line in summary.lines if line.change]
    of = changes[0].of if changes else "seed"
    higher = ", ".join(name for name in summary.metrics if resolve(name)[0].better == "higher")
    jobs = summary.results.counts(summary.lines[-1].scheduler)
    few = of == "seed" and len(summary.seeds) < FEWEST
    interval = f"95 % interval{f' over {len(summary.seeds)} seeds, too few to tell' if few else ''}"
    lines = [
        f"{STAR} best mean; [ ] {interval}; differences are paired, to {summary.table.baseline}; better–worse counts {of}s",
        f"lower is better{f', except of {higher}' if higher else ''}; {jobs['jobs']:,} jobs, {jobs['rejected']:,} rejected",
    ]
    if changes and not few:
        clear = sum(change.clear for change in changes)
        lines.append(f"{clear or 'none'} of {len(changes)} differ from the baseline (95 % interval excludes 0)")
    if any(line.preempts for line in summary.lines):
        lines.append(f"{STOPS} may stop running jobs")
    return "\n".join(lines)


def _by_estimate(group: Sequence[Summary]) -> Table:
    """The primary metric of one workload on one cluster, with a column for each source of estimates."""
    from gpuyard.traces.estimates.sources import described

    first, name = group[0], group[0].table.objective
    label, size = _unit(first.table, name)
    columns = [_means(summary.table, name, summary.estimate, size) for summary in group]
    rows = list(zip([line.scheduler for line in first.lines], *(column.cells for column in columns), strict=True))
    marked = frozenset((r, k + 1) for k, column in enumerate(columns) for r, best in enumerate(column.marked) if best)
    about = [
        f"{summary.estimate}: median estimate {short(found['ratio'])} × the run time, agreement {short(found['agreement'])},"
        f" {found['below']:.0%} of jobs ran longer than estimated"
        for summary in group
        if (found := summary.results.accuracy)
    ]
    explained = "agreement: mean of the smaller over the larger of the two; 1 is perfect"
    if any(described(summary.estimate) != summary.estimate for summary in group):
        explained += "; predictions are made inside each simulation: means over the schedulers"
    caption = "\n".join([explained, *about])
    title = f"{first.workload} on {first.cluster}: {name}{f' ({label})' if label else ''} by source of estimates"
    return Table(("scheduler", *(column.header for column in columns)), rows, title, marked=marked, caption=caption)
