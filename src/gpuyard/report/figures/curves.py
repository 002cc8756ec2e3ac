"""Figures from curves, trainings and examples: distributions over jobs, courses over time, learning curves, single runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.curves import LEVELS, RECENT, Curve
from gpuyard.experiments.judging.statistics import Interval, mean_interval
from gpuyard.experiments.judging.text import metric_title, readable, short, shown_unit
from gpuyard.model.result import Result
from gpuyard.report.charts import Axis, Box, Boxes, Chart, Lines, Series, Strip, axis_of
from gpuyard.report.gantt import gantt_of, rows_of, span_of, unit_of, window_of
from gpuyard.report.study import NoData, Study, better_words, figure, series, titled

GRID = 160  # points of a line
MOST_GROUPS = 12


def _name_of_curve(study: Study, prefix: str) -> str:
    """Find the first kept curve whose name begins so."""
    names = [name for name in study.results.experiment.curves if name.startswith(prefix)]
    if not names or not study.results.curves(names[0]):
        raise NoData(f"no curve {prefix}… was kept of the runs")
    return names[0]


# ── distributions over jobs ──


@figure("cdf_jct")
def cdf_jct(study: Study) -> list[Chart]:
    """The distribution of turnaround over all jobs of all runs, each run with the same weight."""
    name = _name_of_curve(study, "cdf.turnaround" if "cdf.turnaround" in study.results.experiment.curves else "cdf.")
    metric, curves = name.partition(".")[2], study.results.curves(name)
    every = np.concatenate([curve.y[np.isfinite(curve.y)] for curve in curves.values()])
    if not len(every):
        raise NoData(f"{metric} has no value in any run")
    log = bool((every > 0).mean() > 0.5)
    low = float(np.quantile(every[every > 0], 0.001)) if log else float(every.min())
    grid = np.geomspace(low, every.max(), GRID) if log else np.linspace(low, every.max(), GRID)
    unit, size = shown_unit(metric, every.tolist())
    lines = []
    for who in study.shown:
        mine = [curves[run] for run in study.runs_of(who) if run in curves and np.isfinite(curves[run].y).all()]
        shares = (
            np.mean([np.interp(grid, curve.y, curve.x, left=0.0, right=1.0) for curve in mine], axis=0) if mine else np.full(GRID, np.nan)
        )
        lines.append(Series(who, study.style(who), grid / size, shares, strong=study.strong(who)))
    caption = (
        f"Share of jobs whose {metric_title(metric)} is at most so long, mean of the distributions of all runs; "
        "a line further to the left and above is better."
    )
    axis = Axis(titled(metric, unit, direction=False), "log" if log else "linear")
    return [Chart("cdf_jct", _halves(metric, unit, lines), caption, Lines(axis, Axis("share of jobs", percent=True), tuple(lines)))]


def _halves(metric: str, unit: str, lines: Sequence[Series]) -> str:
    """Say where the lowest and the highest median lie."""
    medians = {line.name: float(np.interp(0.5, line.y, line.x)) for line in lines if np.isfinite(line.y).all() and line.y[0] < 0.5}
    if not medians:
        return f"Distribution of {metric_title(metric)}"
    ends = [(name, medians[name]) for name in (min(medians, key=medians.__getitem__), max(medians, key=medians.__getitem__))]
    tail = f" {unit}" if unit else ""
    first, last = (f"{short(value)}{tail} under {readable(name, 20)}" for name, value in ends)
    return f"Half of the jobs have a {metric_title(metric)} of at most {first}, {last}"


@figure("by_priority")
def by_priority(study: Study) -> list[Chart]:
    """Draw boxes by priority of jobs."""
    return [_boxes(study, "priority")]


@figure("by_user")
def by_user(study: Study) -> list[Chart]:
    """Draw boxes by user."""
    return [_boxes(study, "user")]


def _boxes(study: Study, by: str) -> Chart:
    name = _name_of_curve(study, f"box.{by}.")
    metric, curves = name.split(".", 2)[2], study.results.curves(name)
    counts = Counter(label for curve in curves.values() for label in curve.labels)
    groups = sorted(sorted(counts, key=lambda label: -counts[label])[:MOST_GROUPS], key=list(counts).index)
    if not groups:
        raise NoData(f"no job has a {by}")
    five = {who: _mean_boxes([curves[run] for run in study.runs_of(who) if run in curves], groups) for who in study.shown}
    unit, size = shown_unit(metric, [float(np.nanmedian(values)) for values in five.values() if np.isfinite(values).any()])
    boxes = tuple(Box(who, study.style(who), values / size) for who, values in five.items())
    axis = axis_of(titled(metric, unit), [box.five for box in boxes], log=True)
    order = ", from the most to the least important" if by == "priority" else ""
    caption = (
        f"{metric_title(metric).capitalize()} of jobs by {by}{order}: the box holds the middle half of the jobs, the line in it is "
        f"the median, the whiskers end at 5 and 95 %; means of these over all runs; {better_words(metric)}."
    )
    drawing = Boxes(tuple(readable(group) or "(none)" for group in groups), by, axis, boxes)
    return Chart(f"by_{by}", f"{metric_title(metric).capitalize()} by {by}", caption, drawing)


def _mean_boxes(curves: Sequence[Curve], groups: Sequence[str]) -> Array:
    """(groups, 5): means over Runs."""
    found: list[list[Array]] = [[] for _ in groups]
    at = {label: k for k, label in enumerate(groups)}
    for curve in curves:
        for label, five in zip(curve.labels, curve.y.reshape(-1, 5), strict=True):
            if label in at:
                found[at[label]].append(five)
    return np.array([np.mean(each, axis=0) if each else np.full(5, np.nan) for each in found])


# ── over time ──


@figure("queue")
def queue(study: Study) -> list[Chart]:
    """Jobs waiting over time, mean over runs."""
    curves = study.results.curves(_name_of_curve(study, "queue"))
    ends = [float(curve.x[-1]) for curve in curves.values() if len(curve.x)]
    if not ends:
        raise NoData("no run had a queue")
    name, size = unit_of((0.0, max(ends)))
    grid = np.linspace(0.0, max(ends), GRID)
    lines = []
    for who in study.shown:
        mine = [_held(curves[run], grid) for run in study.runs_of(who) if run in curves]
        mean = np.mean(mine, axis=0) if mine else np.full(GRID, np.nan)
        lines.append(Series(who, study.style(who), grid / size, mean, strong=study.strong(who)))
    caption = "Jobs that wait, mean over all runs; a run that has ended counts as an empty queue; lower is better."
    drawing = Lines(Axis(f"{name} since the start"), Axis("jobs waiting (lower is better)"), tuple(lines), steps=True)
    longest = max(lines, key=lambda line: float(np.nanmax(line.y, initial=0.0)))
    title = f"The queue is longest under {readable(longest.name, 24)}: up to {short(float(np.nanmax(longest.y)))} jobs, mean over runs"
    return [Chart("queue", title, caption, drawing)]


def _held(curve: Curve, grid: Array) -> Array:
    """The value that holds at each time of the grid; 0 outside."""
    if not len(curve.x):
        return np.zeros(len(grid))
    at = np.searchsorted(curve.x, grid, side="right") - 1
    values: Array = np.where((at < 0) | (grid > curve.x[-1]), 0.0, curve.y[np.maximum(at, 0)])
    return values


@figure("regret")
def regret(study: Study) -> list[Chart]:
    """Seconds lost against the offline optimum so far."""
    caption = (
        "Time that all tasks so far took beyond what the offline optimum spends on them, mean over seeds with 95 % bands; "
        "a flat line has stopped losing, a steep one still does."
    )
    lines, unit = _by_task(study, "regret", scale=True)
    y = axis_of(f"regret so far, {unit} (lower is better)", [line.y for line in lines])
    return [Chart("regret", "Regret over tasks", caption, Lines(Axis("tasks submitted"), y, lines))]


@figure("adaptation")
def adaptation(study: Study) -> list[Chart]:
    """Time over that of the offline optimum, over the last tasks."""
    caption = (
        f"Mean time of the last {RECENT} tasks over that of the offline optimum on the same tasks, mean over seeds with 95 % bands; "
        "1 is as good as the optimum, and a line that falls has adapted."
    )
    lines, _ = _by_task(study, "ratio", scale=False)
    every = np.concatenate([line.y for line in lines])
    known = every[np.isfinite(every)]
    far = bool(len(known) and known.min() > 0 and known.max() > 5 * known.min())
    y = axis_of("time ÷ time of the offline optimum (lower is better)", [every], log=far)
    return [Chart("adaptation", "Adaptation", caption, Lines(Axis("tasks submitted"), y, lines, level=1.0))]


@figure("tasks")
def tasks(study: Study) -> list[Chart]:
    """Draw the distribution of each fact about the tasks of training and of the test."""
    return [_fact(study, fact, *words) for fact, words in _FACTS.items()]


_FACTS = {  # axis, and the finding as title, by name of the curves
    "gain": (
        "time on a CPU ÷ time on a GPU",
        "A GPU runs the median task {trained:.2g} times as fast in training, {tested:.2g} times in the test",
    ),
    "memory": ("memory, GB", "The median task needs {trained:.2g} GB in training and {tested:.2g} GB in the test"),
    "intensity": ("compute intensity", "The median compute intensity is {trained:.2g} in training and {tested:.2g} in the test"),
    "size": ("size", "The median size is {trained:,.0f} in training and {tested:,.0f} in the test"),
}  # fmt: skip


def _fact(study: Study, fact: str, axis: str, words: str) -> Chart:
    lines, medians = [], {}
    for style, part in enumerate(("trained", "tested")):
        curves = study.results.curves(f"{part}.{fact}")
        if not curves:
            raise NoData("the tasks of training and test were not kept")
        values = np.mean([curve.y for curve in curves.values()], axis=0)
        medians[part] = float(np.interp(0.5, LEVELS, values))
        lines.append(Series(f"{part} on", style, values, LEVELS))
    caption = (
        f"Share of the tasks whose {axis.partition(',')[0]} is at most so large, for those that the models were trained on and those that "
        "they were tested on; mean over seeds."
    )
    x = axis_of(axis, [line.x for line in lines])
    return Chart(f"tasks-{fact}", words.format(**medians), caption, Lines(x, Axis("share of tasks", percent=True), tuple(lines)))


def _by_task(study: Study, name: str, *, scale: bool) -> tuple[tuple[Series, ...], str]:
    """Return a line for each scheduler; with `scale` in a unit of time that reads well, which is named."""
    curves = study.results.curves(name)
    if not curves:
        raise NoData(f"no curve {name} was kept of the runs")
    length = min(len(curve.x) for curve in curves.values())
    shown = np.unique(np.linspace(0, length - 1, min(length, 80)).astype(int))
    largest = max(float(np.nanmax(np.abs(curve.y[:length]))) for curve in curves.values())
    unit, size = unit_of((0.0, largest)) if scale else ("", 1.0)
    x, lines = next(iter(curves.values())).x[shown], []
    for who in study.shown:
        values = np.array([curves[run].y[shown] for run in study.runs_of(who) if run in curves]) / size
        lines += [series(study, who, _at_each(values), x)] if len(values) else []
    return tuple(lines), unit


def _at_each(values: Array) -> list[Interval]:
    """`values` (n, points): mean with its interval at each point."""
    return [mean_interval(column) for column in values.T]


# ── trainings ──


@figure("learning_curves")
def learning_curves(study: Study) -> list[Chart]:
    """Validation scores over steps, a chart for each objective that agents were trained for."""
    agents = study.results.agents
    curves: dict[str, dict[str, list[Any]]] = {}
    for label, record in agents.items():
        rows = [row for row in record.get("curve", []) if isinstance(row, Mapping) and row.get("score") is not None]
        rows = rows[1:] or rows  # the score of the untrained network is luck, and would set the scale
        if rows:
            curves.setdefault(str(record.get("objective")), {}).setdefault(label.rpartition("-")[0] or label, []).append(rows)
    if not curves:
        raise NoData("no agent was trained for this experiment")
    return [_learning(study, metric, found) for metric, found in curves.items()]


def _learning(study: Study, metric: str, found: Mapping[str, Sequence[Any]]) -> Chart:
    names = [name for name in study.results.schedulers if name in found] + [name for name in found if name not in study.results.schedulers]
    lines = []
    for k, name in enumerate(names):
        steps = sorted({float(row["steps"]) for rows in found[name] for row in rows})
        last = min(float(rows[-1]["steps"]) for rows in found[name])
        x = np.array([step for step in steps if step <= last])
        values = [np.interp(x, [float(r["steps"]) for r in rows], [float(r["score"]) for r in rows]) for rows in found[name]]
        style = study.style(name) if name in study.results.schedulers else len(study.results.schedulers) + k
        lines.append(series(study, name, _at_each(np.array(values)), x, style))
    counts = sorted({len(found[name]) for name in names})
    seeds = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    caption = (
        f"{metric_title(metric).capitalize()} on validation workloads while agents were trained, mean over {seeds} training seeds with "
        f"95 % bands, from the first update on; {better_words(metric)}; of each training the best checkpoint was kept."
    )
    y = axis_of(f"validation: {titled(metric, '')}", [line.y for line in lines])
    return Chart(f"learning_curves-{metric}", f"Learning curves: {metric_title(metric)}", caption, Lines(Axis("steps"), y, tuple(lines)))


# ── single runs ──


@figure("choices")
def choices(study: Study) -> list[Chart]:
    """Draw which scheduler a learned switch had chosen when."""
    found = [(line, line.get("choices"), result) for line, result in study.examples]
    switches = [(line, given, result) for line, given, result in found if isinstance(given, Mapping) and given.get("times")]
    if not switches:
        raise NoData("no example of a learned switch was kept")
    return [_choices(*each, k + 1) for k, each in enumerate(switches)]


def _choices(line: Mapping[str, Any], given: Mapping[str, Any], result: Result, number: int) -> Chart:
    times, chosen, labels = np.array(given["times"], float), np.array(given["chosen"], int), [str(label) for label in given["labels"]]
    span = span_of(result)
    name, size = unit_of(span)
    ends = np.append(times, max(span[1], float(times[-1])))
    length = np.bincount(chosen, weights=np.diff(ends), minlength=len(labels))
    shares = 100 * length / max(length.sum(), 1e-12)
    rows = tuple(f"{readable(label, 24)} ({share:.0f} %)" for label, share in zip(labels, shares, strict=True))
    who = readable(str(line["scheduler"]))
    caption = (
        f"Which scheduler {who} had chosen when, in one run of {readable(str(line['workload']))} with seed {line['seed']}: "
        f"{len(times):,} choices, from the first time that a job had to wait; in brackets the share of time."
    )
    strip = Strip(Axis(f"{name} since the start"), rows, ends / size, chosen)
    return Chart(f"choices-{number}", f"{_used(who, labels, shares)}{_changes(chosen)}", caption, strip)


def _used(who: str, labels: Sequence[str], shares: Array) -> str:
    """Say what a switch used most: `meta uses lcfs for 64 % of the time, srpt for 35 %`."""
    most = [k for k in np.argsort(-shares, kind="stable").tolist() if shares[k] >= 0.5][:2]
    first, *second = [f"{readable(labels[k], 20)} for {shares[k]:.0f} %" for k in most]
    return f"{who} uses {first} of the time{', ' + second[0] if second else ''}"


def _changes(chosen: Array) -> str:
    changes = int((chosen[1:] != chosen[:-1]).sum())
    return "" if not changes else f", and changes {'once' if changes == 1 else f'{changes:,} times'}"


@figure("gantt")
def gantt(study: Study) -> list[Chart]:
    """Draw which job held which devices when, in each example."""
    if not study.examples:
        raise NoData("no example was kept")
    return [_gantt(line, result, k + 1) for k, (line, result) in enumerate(study.examples)]


def _gantt(line: Mapping[str, Any], result: Result, number: int) -> Chart:
    rows = rows_of(result)
    window = window_of(result, len(rows.first))
    part = "" if window == span_of(result) else ", the stretch around the longest queue"
    who = readable(str(line["scheduler"]))
    run = f"in one run of {readable(str(line['workload']))} with seed {line['seed']}{part}{rows.left_out}"
    caption = f"Which job held which GPUs when under {who}, {run}: a row is a GPU, a bar is a job, white is idle."
    return Chart(f"gantt-{number}", f"GPUs over time under {who}", caption, gantt_of(result, window))
