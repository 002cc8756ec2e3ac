"""Tables of everything that an experiment measured: objectives with their statistics, further metrics, groups, changes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

import numpy as np

from gpuyard.experiments.design.spec import USUAL
from gpuyard.experiments.judging.deltas import deltas, hardships
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Standing, Summary
from gpuyard.experiments.judging.text import count, metric_title, p_text, percent, readable, shown_unit, value_text
from gpuyard.experiments.judging.words import signed_share, verdict
from gpuyard.metrics import resolve
from gpuyard.report.page.parts import TableCell, TableRow, table
from gpuyard.report.study import better_words
from gpuyard.report.tables import group_label

MOST_ROWS = 12  # of the table on paper
MOST_COLUMNS = 8  # values of a parameter beside each other
_EMPTY = TableCell("")


def every_table(summary: Summary) -> list[tuple[str, str]]:
    """List (title, table) of all that was measured."""
    found = [(_capital(metric_title(each.objective)), objective_table(each)) for each in summary.tables]
    further = (("Other metrics", _further_metrics(summary)), ("Differences in the units of the metrics", _deltas(summary)))
    groups = ("By groups of workloads", "".join(_groups(summary)))
    changes = (("Under all changes", _hardships(summary)), ("Under each change", "".join(_degradations(summary))))
    return [*found, *((title, made) for title, made in (*further, groups, *changes) if made)]


def objective_table(found: Comparison, *, short: bool = False) -> str:
    """Schedulers on one objective with the statistics of their differences to the baseline; `short`: the best, without statistics."""
    unit, size = shown_unit(found.objective, [line.values[found.objective].mean for line in found.lines])
    has_gap, has_bound = found.oracle is not None and not short, found.bound is not None and not short
    tested = not short and any(line.versus and math.isfinite(line.versus.p) for line in found.lines)  # one sample has no test
    head = ["scheduler", f"mean{f', {unit}' if unit else ''}", f"difference to {readable(found.baseline, 24)}"]
    head += ["better / equal / worse"] * (not short) + ["effect size", "p, corrected"] * tested
    head += ["gap to the oracle"] * has_gap + ["distance to the bound"] * has_bound
    lines = _best_lines(found) if short else found.lines
    rows = [_standing(found, line, size, (tested, has_gap, has_bound), short=short) for line in lines]
    for name, value in (("oracle: best of each run", found.oracle), ("bound: no scheduler can pass it", found.bound)):
        if value is not None:
            rows.append(TableRow(name, [_cell(value_text(value, size)), *[_EMPTY] * (len(head) - 2)], kind="other"))
    marks = " ◆ marks the challengers;" if any(line.challenger for line in found.lines) else ""
    title = _capital(metric_title(found.objective))
    caption = (
        f"{title}, {better_words(found.objective)}: {count(found.runs, 'run')} of each scheduler, intervals over {found.n} {found.over}s;"
        f"{marks} the best mean is shaded, a difference that is sure is coloured."
    )
    return table(head, rows, caption=caption, name=title)


def _best_lines(found: Comparison) -> list[Standing]:
    """Challengers, the baseline and the best of the others, as many as a sheet has room for."""
    sign = MINIMUM[resolve(found.objective)[0].better]
    order = sorted(found.lines, key=lambda line: sign * line.values[found.objective].mean)
    first = [line for line in order if line.challenger or line.versus is None]
    chosen = [*first, *(line for line in order if line not in first)][:MOST_ROWS]
    return [line for line in order if line in chosen]


def _standing(found: Comparison, line: Standing, size: float, more: tuple[bool, bool, bool], *, short: bool) -> TableRow:
    versus, (tested, has_gap, has_bound) = line.versus, more
    cells = [_value(line, found.objective, size)]
    if versus is None:
        cells += [TableCell("baseline"), *[_EMPTY] * ((not short) + 2 * tested)]
    else:
        kind = {"wins": "good", "loses": "bad"}.get(verdict(versus), "")
        effect = versus.difference.effect
        shown = "–" if math.isnan(effect) else f"{effect:+.1f}" if math.isfinite(effect) else ("+∞" if effect > 0 else "−∞")
        cells += [_cell(signed_share(versus), kind)]
        cells += [TableCell(f"{versus.wins:,} / {versus.ties:,} / {versus.losses:,}")] * (not short)
        cells += [TableCell(shown), TableCell(p_text(versus.p))] * tested
    cells += [_gap(line.gap)] * has_gap + [_gap(line.above_bound)] * has_bound
    kinds = ["best"] * (found.objective in line.best) + ["challenger"] * line.challenger
    return TableRow(line.scheduler, cells, kind=" ".join(kinds))


def _cell(shown: str, kind: str = "") -> TableCell:
    """A cell of a text with an interval after a blank and a bracket."""
    first, bracket, rest = shown.partition(" [")
    return TableCell(first, f"[{rest}" if bracket else "", kind)


def _value(line: Standing, metric: str, size: float) -> TableCell:
    return _cell(value_text(line.values[metric], size), "best" if metric in line.best else "")


def _gap(gap: Interval | None) -> TableCell:
    return _EMPTY if gap is None else _cell(percent(gap))


def _row(line: Standing, cells: Sequence[TableCell]) -> TableRow:
    return TableRow(line.scheduler, cells, kind="challenger" if line.challenger else "")


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _further_metrics(summary: Summary) -> str:
    """Means of all other metrics, with intervals."""
    lines, experiment = summary.table.lines, summary.results.experiment
    names = [name for name in experiment.metrics if name not in experiment.axes.objectives and all(name in line.values for line in lines)]
    if not names:
        return ""
    sizes = {name: shown_unit(name, [line.values[name].mean for line in lines]) for name in names}
    head = ["scheduler", *(metric_title(name) + (f", {sizes[name][0]}" if sizes[name][0] else "") for name in names)]
    rows = [_row(line, [_value(line, name, sizes[name][1]) for name in names]) for line in lines]
    return table(head, rows, caption="Other metrics: mean of all runs with its interval; the best mean of a column is bold.")


def _deltas(summary: Summary) -> str:
    """Paired differences to the baseline in the usual metrics, in their own units."""
    found = deltas(summary)
    if not found:
        return ""
    names = list(next(iter(found.values())))
    sizes = {name: shown_unit(USUAL[name], [each[name].mean for each in found.values()]) for name in names}
    head = ["scheduler", *(f"Δ {metric_title(USUAL[name])}" + (f", {sizes[name][0]}" if sizes[name][0] else "") for name in names)]
    rows = []
    for who, each in found.items():
        shown = [Interval(each[name].mean, each[name].low, each[name].high, each[name].n) for name in names]
        rows.append(TableRow(who, [_cell(value_text(value, sizes[name][1])) for name, value in zip(names, shown, strict=True)]))
    caption = f"Difference to {readable(summary.table.baseline)} on the same runs, in the units of the metrics, with its interval."
    return table(head, rows, caption=caption)


def _hardships(summary: Summary) -> str:
    """Draw up what all changes together do to each scheduler."""
    found, rows = hardships(summary), []
    for who in summary.results.schedulers if found else ():
        mine = [each for each in found if each.scheduler == who]
        values = [[each.delta.mean, each.variance, each.variance_unchanged, each.queue_explosions, each.recovery / 60] for each in mine]
        rows.append(TableRow(who, [TableCell(f"{value:.3g}") for value in np.mean(values, axis=0).tolist()]))
    head = ["scheduler", "Δ slowdown", "variance over seeds", "without change", "queue explosions per run", "recovery, min"]
    caption = "Means over all changes: slowdown against the same runs without it, its variance over seeds; robustness.csv has each."
    return table(head, rows, caption=caption) if rows else ""


def _groups(summary: Summary) -> Iterable[str]:
    """Yield a table for each parameter: schedulers down, its values across."""
    for name in dict.fromkeys(each.group.partition("=")[0] for each in summary.groups):
        tables = [each for each in summary.groups if each.group.partition("=")[0] == name]
        metric = tables[0].objective
        unit, size = shown_unit(metric, [line.values[metric].mean for each in tables for line in each.lines])
        caption = f"Mean {metric_title(metric)}{f' ({unit})' if unit else ''} by {name}, {better_words(metric)}; the best is bold."
        yield (
            by_scheduler(tables, [*map(group_label, tables)], size, caption)
            if len(tables) <= MOST_COLUMNS
            else _by_value(tables, size, caption)
        )


def by_scheduler(tables: Sequence[Comparison], names: Sequence[str], size: float, caption: str) -> str:
    """Schedulers down, groups across."""
    rows = [_row(line, [_value(each.line(line.scheduler), each.objective, size) for each in tables]) for line in tables[0].lines]
    return table(["scheduler", *names], rows, caption=caption)


def _by_value(tables: Sequence[Comparison], size: float, caption: str) -> str:
    """Values of the parameter down, schedulers across."""
    rows = [TableRow(group_label(each), [_value(line, each.objective, size) for line in each.lines]) for each in tables]
    return table(["", *(readable(line.scheduler) for line in tables[0].lines)], rows, caption=caption)


def _degradations(summary: Summary) -> Iterable[str]:
    """Yield a table for each objective: changes down, schedulers across."""
    for objective in dict.fromkeys(each.objective for each in summary.degradations):
        found = {(each.change, each.scheduler): each.share for each in summary.degradations if each.objective == objective}
        rows = []
        for change in dict.fromkeys(change for change, _ in found):
            shares = [found[change, who] for who in summary.results.schedulers]
            rows.append(TableRow(change, [_cell(percent(share, "+"), _hurt(share)) for share in shares]))
        caption = (
            f"How much worse {metric_title(objective)} gets under each change, as a share of its value without; what is clear is coloured."
        )
        yield table(["change", *map(readable, summary.results.schedulers)], rows, caption=caption)


def _hurt(share: Interval) -> str:
    return "bad" if share.low > 0 else "good" if share.high < 0 else ""
