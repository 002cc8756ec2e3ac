"""Figures of schedulers' numbers: means, differences and gaps, by groups and under changes."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.headlines import (
    against_baseline,
    best_in_groups,
    best_mean,
    between_ends,
    oracle_distance,
    under_change,
    worst_kind,
    worth_of_parts,
)
from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.summary import Comparison, Pivot, against
from gpuyard.experiments.judging.switching import ORACLE, Gain, fixed_gaps, gains
from gpuyard.experiments.judging.text import count, metric_title, readable, short, telling_parts
from gpuyard.experiments.running.results import Results
from gpuyard.report.charts import Axis, Chart, Lines, Marks, Points, Radar, Ring, Series, axis_of, share_axis
from gpuyard.report.study import MOST_SHOWN, NoData, Study, at_row, better_words, figure, marks, scaled, series, titled
from gpuyard.report.tables import LATENCY, group_label, regimes, stated

MOST_ROWS = 40  # workloads in one figure
LATENCY_GROUPS = 8  # of runs, by their queue
UNDISTURBED = 0.25  # quantile of the wall-clock times of a group
SMALL_GAIN = 0.03  # share up to which the scale of gains is linear
FLAT = 1.25  # times as long a decision may take and still not be said to grow: repeated runs of one machine differ as much
BOUND = "bound"
INTERVALS = f"lines are 95 % intervals (fewer than {FEWEST} values are too few to tell)"


@figure("objective")
def objective(study: Study) -> list[Chart]:
    """The mean of each scheduler on each objective."""
    return [_objective(study, table) for table in study.summary.tables]


def _objective(study: Study, table: Comparison) -> Chart:
    further = [(name, each) for name, each in ((ORACLE, table.oracle), (BOUND, table.bound)) if each is not None]
    found = _in_order([(line.scheduler, line.values[table.objective]) for line in table.lines]) + further
    rows, values = [name for name, _ in found], [each for _, each in found]
    unit, size = scaled(table.objective, values)
    drawn = tuple(marks(study, name, at_row(k, len(rows), value), size) for k, (name, value) in enumerate(zip(rows, values, strict=True)))
    axis = axis_of(titled(table.objective, unit), [each.mean for each in drawn])
    title, words = metric_title(table.objective), better_words(table.objective)
    caption = f"Mean {title} of each scheduler over {count(table.runs, 'run')} each; {words}; {INTERVALS}."
    return Chart(f"objective-{table.objective}", best_mean(table), caption, Points(tuple(rows), axis, drawn, level=None))


@figure("makespan")
def makespan(study: Study) -> list[Chart]:
    """The time until the last job has ended, of each scheduler."""
    if "makespan" not in study.results.columns:
        raise NoData("makespan was not measured: name it in [judge] metrics")
    values = _column_means(study, "makespan")
    unit, size = scaled("makespan", [each for _, each in values])
    best = min(values, key=lambda row: row[1].mean)
    title = f"{readable(best[0], 30)} has done all tasks first, after {best[1].mean / size:.3g} {unit} on average"
    return [_means(study, "makespan", title, titled("makespan", unit), values, size)]


@figure("speedup")
def speedup(study: Study) -> list[Chart]:
    """How many times as fast as round robin each strategy is, by mean turnaround."""
    if "speedup" not in study.results.columns:
        raise NoData("speed-up is measured in experiments of kind shift")
    values = _column_means(study, "speedup")
    rivals = [row for row in values if row[0] not in study.results.experiment.judge.oracle]
    best = max(rivals or values, key=lambda row: row[1].mean)
    title = f"{readable(best[0], 30)} is {best[1].mean:.3g} times as fast as round robin on average"
    return [_means(study, "speedup", title, "mean time of round robin ÷ own (higher is better)", values, 1.0, level=1.0)]


def _column_means(study: Study, column: str) -> list[tuple[str, Interval]]:
    pivot = Pivot(study.results)
    return _in_order([(name, pivot.mean(column, name)) for name in study.results.schedulers])


def _means(
    study: Study, name: str, title: str, axis: str, values: Sequence[tuple[str, Interval]], size: float, level: float | None = None
) -> Chart:
    drawn = tuple(marks(study, who, at_row(k, len(values), value), size) for k, (who, value) in enumerate(values))
    caption = f"Means of each scheduler; {INTERVALS}."
    points = Points(tuple(who for who, _ in values), axis_of(axis, [each.mean for each in drawn]), drawn, level=level)
    return Chart(name, title, caption, points)


def _in_order(rows: list[tuple[str, Interval]]) -> list[tuple[str, Interval]]:
    """Few rows in the order of the axis, many by their value."""
    return rows if len(rows) <= MOST_SHOWN else sorted(rows, key=lambda row: row[1].mean if np.isfinite(row[1].mean) else np.inf)


@figure("versus")
def versus(study: Study) -> list[Chart]:
    """Paired differences to the baseline, on each objective."""
    return [_versus(study, table) for table in study.summary.tables if len(table.lines) > 1]


def _versus(study: Study, table: Comparison) -> Chart:
    lines = _in_order([(line.scheduler, line.versus.share_interval) for line in table.lines if line.versus is not None])
    drawn = tuple(marks(study, name, at_row(k, len(lines), share)) for k, (name, share) in enumerate(lines))
    axis = _difference_axis(table.objective, table.baseline, drawn)
    caption = (
        f"Difference in {metric_title(table.objective)} to {readable(table.baseline)} on the same runs, as a share of its mean; "
        f"{better_words(table.objective)}; an interval that crosses 0 shows no clear difference."
    )
    rows = tuple(name for name, _ in lines)
    return Chart(
        f"versus-{table.objective}", against_baseline(table), caption,
        Points(rows, axis, drawn),
    )  # fmt: skip


def _difference_axis(metric: str, baseline: str, drawn: tuple[Marks, ...]) -> Axis:
    title = f"{metric_title(metric)}: difference to {readable(baseline, 24)} ({better_words(metric)})"
    return _shares(title, drawn)


def _shares(title: str, drawn: Sequence[Marks]) -> Axis:
    """Challengers, where there are some, decide how fine the scale is."""
    return share_axis(title, [each.mean for each in drawn], [each.mean for each in drawn if each.strong])


@figure("oracle_gap")
def oracle_gap(study: Study) -> list[Chart]:
    """Gap to the best fixed choice of each run, on each objective."""
    tables = [table for table in study.summary.tables if table.oracle is not None]
    if not tables:
        raise NoData("the experiment names no oracle")
    drawn = tuple(marks(study, name, [table.line(name).gap for table in tables]) for name in study.shown)
    axis = _shares("gap to the oracle (0 is as good)", drawn)
    of = study.results.experiment.judge.oracle
    caption = (
        f"How far each scheduler lies behind the best of {len(of)} fixed ones ({', '.join(map(readable, of))}), chosen for each "
        f"run in hindsight: mean of the gaps of all runs; {INTERVALS}; the scale is logarithmic where values lie far apart."
    )
    rows = tuple(metric_title(table.objective) for table in tables)
    return [Chart("oracle_gap", oracle_distance(tables[0]), caption, Points(rows, axis, drawn, bars=True))]


@figure("ablation_bar")
def ablation_bar(study: Study) -> list[Chart]:
    """Draw what is lost when a part is removed: paired difference to the full agent."""
    table, agents = study.summary.table, study.results.experiment.agents
    lines = [line for line in table.lines if line.versus and (line.scheduler in agents or table.baseline not in agents)]
    if not lines:
        raise NoData("there is nothing to compare with the full agent")
    drawn = tuple(
        marks(study, line.scheduler, at_row(k, len(lines), line.versus.share_interval)) for k, line in enumerate(lines) if line.versus
    )
    axis = _difference_axis(table.objective, table.baseline, drawn)
    caption = (
        f"What removing a part does to {metric_title(table.objective)}: difference to {readable(table.baseline)} as a share of its "
        f"mean, over {table.n} {table.over}s; {better_words(table.objective)}; where the interval crosses 0 "
        "the part makes no clear difference."
    )
    rows = tuple(line.scheduler for line in lines)
    return [Chart("ablation_bar", worth_of_parts(lines), caption, Points(rows, axis, drawn, bars=True))]


# ── switching ──


@figure("switch_gain")
def switch_gain(study: Study) -> list[Chart]:
    """Draw what each switch gains over the best fixed scheduler of its set on every workload, a chart for each objective."""
    found = gains(study.results)
    if not found:
        raise NoData("the experiment names no [[sets]] of schedulers and switches")
    return [_switch_gain(study, objective, [each for each in found if each.objective == objective]) for objective in study.objectives]


def _switch_gain(study: Study, objective: str, found: Sequence[Gain]) -> Chart:
    rows = list(dict.fromkeys((each.workload, each.among) for each in found))
    best = {(each.workload, each.among): each.best for each in found}
    drawn = []
    for name in dict.fromkeys(each.switch for each in found):
        mine = {(each.workload, each.among): each.share for each in found if each.switch == name}
        drawn.append(marks(study, name, [mine.get(row) for row in rows]))
    won = len({(each.workload, each.among) for each in found if each.clear})
    title = f"{metric_title(objective).capitalize()}: a switch clearly beats the best single heuristic in {won} of {len(rows)} cases"
    caption = (
        f"Gain in {metric_title(objective)} over the best fixed heuristic of the set on that workload, which the row names and which was "
        "chosen in hindsight; to the right of 0 the switch is better. Oracle: the best fixed heuristic of each run, in hindsight. Lines "
        "are 95 % intervals over seeds; the title counts what also passes a test that is corrected for all comparisons. The scale is "
        "logarithmic beyond 3 %."
    )
    labels = tuple(f"{readable(workload, 20)}, {readable(among, 20)}: {readable(best[workload, among], 24)}" for workload, among in rows)
    return Chart(
        f"switch_gain-{objective}",
        title,
        caption,
        Points(labels, _near_zero("gain over the best fixed heuristic (right of 0: better)", drawn), tuple(drawn)),
    )


def _near_zero(title: str, drawn: Sequence[Marks]) -> Axis:
    """Make an axis of shares that is bent where some are large, so that gains of a few percent can be seen."""
    largest = max(float(np.nanmax(np.abs(each.mean), initial=0.0)) for each in drawn)
    return Axis(title, "bent", SMALL_GAIN, True) if largest > 3 * SMALL_GAIN else Axis(title, percent=True)


@figure("best_fixed")
def best_fixed(study: Study) -> list[Chart]:
    """Draw how far each fixed scheduler is behind the best of them, on every workload and objective."""
    found = fixed_gaps(study.results)
    if not found:
        raise NoData("the experiment names no [[sets]] that are compared on all workloads")
    rows = list(dict.fromkeys((each.workload, each.objective) for each in found))
    firsts = [next(each.scheduler for each in found if (each.workload, each.objective) == row and each.share == 0) for row in rows]
    counts = sorted({name: firsts.count(name) for name in firsts}.items(), key=lambda item: -item[1])
    drawn = []
    for name, _ in counts:
        mine = {(each.workload, each.objective): each.share for each in found if each.scheduler == name}
        drawn.append(marks(study, name, [Interval(mine[row], np.nan, np.nan, 0) for row in rows]))
    times = ", ".join(f"{readable(name, 24)} in {number}" for name, number in counts)
    title = (
        f"No heuristic is best everywhere: {times} of {len(rows)}" if len(counts) > 1 else f"{readable(firsts[0], 24)} is best everywhere"
    )
    caption = (
        f"How far the mean of a heuristic lies behind the best one of its row, for {len(rows)} pairs of workload and objective; 0 is the "
        "best. Heuristics that are best nowhere are left out; all means, with intervals, are in the tables. The scale is logarithmic "
        "beyond 3 %."
    )
    labels = tuple(f"{readable(workload, 24)}: {metric_title(objective)}" for workload, objective in rows)
    return [
        Chart(
            "best_fixed", title, caption, Points(labels, _near_zero("behind the best heuristic (0: it is the best)", drawn), tuple(drawn))
        )
    ]


# ── by groups ──


@figure("by_group")
def by_group(study: Study) -> list[Chart]:
    """The first objective by the values of each parameter that the experiment groups by."""
    names = list(dict.fromkeys(table.group.partition("=")[0] for table in study.summary.groups))
    if not names:
        raise NoData("the experiment groups by no parameter")
    return [_by_group(study, name) for name in names]


def _by_group(study: Study, name: str) -> Chart:
    tables = [table for table in study.summary.groups if table.group.partition("=")[0] == name]
    metric = study.objective
    every = [line.values[metric] for table in tables for line in table.lines]
    unit, size = scaled(metric, every)
    drawn = tuple(marks(study, who, [table.line(who).values[metric] for table in tables], size) for who in study.shown)
    axis = axis_of(titled(metric, unit), [each.mean for each in drawn])
    caption = f"Mean {metric_title(metric)} by {readable(name)} of the workload; {better_words(metric)}; {INTERVALS}."
    rows = tuple(group_label(table) for table in tables)
    return Chart(f"by_group-{name}", best_in_groups(tables, name), caption, Points(rows, axis, drawn, level=None))


@figure("by_workload")
def by_workload(study: Study) -> list[Chart]:
    """The first objective relative to the baseline, workload by workload."""
    results, metric, baseline = study.results, study.objective, study.summary.table.baseline
    keys = regimes(results).tolist()
    cells = list(dict.fromkeys(keys))
    if len(cells) > MOST_ROWS:
        raise NoData(f"{len(cells):,} workloads are too many for one figure; by_group sums them up")
    others = [name for name in study.shown if name != baseline]
    if not others:
        raise NoData("there is one scheduler only")
    shares: dict[str, list[Interval | None]] = {name: [] for name in others}
    for cell in cells:
        pivot = Pivot(results, np.array([key == cell for key in keys]))
        base = pivot.values(metric, baseline)
        for name in others:
            found = against(pivot, pivot.values(metric, name), base, 1.0)
            shares[name].append(found.share_interval)
    drawn = tuple(marks(study, name, shares[name]) for name in others)
    caption = (
        f"Difference in {metric_title(metric)} to {readable(baseline)} on each workload, as a share of its mean there; "
        f"{better_words(metric)}; {INTERVALS}, and those that cross 0 show no clear difference."
    )
    rows = tuple(readable(row, 52) for row in telling_parts(cells))
    return [
        Chart("by_workload", f"Workload by workload, against {readable(baseline, 30)}", caption,
              Points(rows, _difference_axis(metric, baseline, drawn), drawn))
    ]  # fmt: skip


@figure("util_vs_gpus")
def util_vs_gpus(study: Study) -> list[Chart]:
    """Utilisation over the number of GPUs."""
    results = study.results
    if "utilization" not in results.columns:
        raise NoData("the experiment does not measure utilization")
    gpus = results.columns["gpus" if "gpus" in results.columns else "cluster"]
    sizes = sorted({str(value) for value in gpus.tolist()}, key=lambda text: (float(text) if _is_number(text) else np.inf, text))
    if len(sizes) < 2 or not all(map(_is_number, sizes)):
        raise NoData("the number of GPUs does not vary")
    pivots = [Pivot(results, np.array([str(value) == size for value in gpus.tolist()])) for size in sizes]
    lines = [series(study, name, [pivot.interval(pivot.values("utilization", name)) for pivot in pivots]) for name in study.shown]
    y = Axis("utilisation (higher is better)", percent=True)
    caption = (
        "Share of GPU time in use over the number of GPUs, mean over all runs of that size; bands are 95 % intervals over seeds; "
        "lines close together mean that schedulers decide which jobs wait rather than how much is used."
    )
    drawing = Lines(Axis("GPUs"), y, tuple(lines), markers=True, categories=tuple(sizes))
    means = {size: float(np.nanmean([line.y[k] for line in lines])) for k, size in enumerate(sizes)}
    return [Chart("util_vs_gpus", between_ends("Utilisation", means, " GPUs"), caption, drawing)]


@figure("latency")
def latency(study: Study) -> list[Chart]:
    """Draw how long a decision takes over the length of the queue, from the mean of each in every run."""
    queue, taken = latencies(study.results, study.shown)
    lines = [Series(who, study.style(who), queue, taken[who], strong=study.strong(who)) for who in study.shown]
    caption = (
        f"Real time per scheduling pass over the mean number of waiting jobs, in {len(queue)} groups of equally many runs by their queue: "
        "the lower quartile of each group, which other work on the machine disturbs least. A flat line does not depend on the queue."
    )
    drawing = Lines(
        Axis("jobs waiting, mean over the run"),
        axis_of("µs per decision (lower is better)", [line.y for line in lines]),
        tuple(lines),
        markers=True,
    )
    return [Chart("latency", _growth(lines), caption, drawing)]


def latencies(results: Results, schedulers: Sequence[str]) -> tuple[Array, dict[str, Array]]:
    """Return (groups,) jobs waiting, and for each scheduler (groups,) µs per scheduling pass, of runs in groups by their mean queue."""
    taken = np.array([stated(manifest, LATENCY) for manifest in results.manifests])
    if "queue_mean" not in results.columns or not np.isfinite(taken).any():
        raise NoData("the runs state no decision latency, or no mean queue")
    queue = results.columns["queue_mean"].astype(float)
    edges = np.unique(np.quantile(queue[np.isfinite(queue)], np.linspace(0, 1, LATENCY_GROUPS + 1)))
    if len(edges) < 3:
        raise NoData("the mean queue is the same in nearly all runs")
    group = np.clip(np.searchsorted(edges, queue, side="right") - 1, 0, len(edges) - 2)
    groups = range(len(edges) - 1)
    middle = np.array([float(np.median(queue[group == k])) if (group == k).any() else np.nan for k in groups])
    found = {}
    for who in schedulers:
        mine = (results.columns["scheduler"] == who) & np.isfinite(taken)
        values = [taken[mine & (group == k)] for k in groups]
        found[who] = np.array([float(np.quantile(each, UNDISTURBED)) if len(each) else np.nan for each in values])
    return middle, found


def _growth(lines: Sequence[Series]) -> str:
    """Say how long a decision takes with the shortest and the longest queues, for the first challenger, or for the first scheduler."""
    line = next((each for each in lines if each.strong), lines[0])
    known = np.flatnonzero(np.isfinite(line.y))
    first, last = (int(known[k]) for k in (0, -1))
    flat = "flat" if line.y[last] <= FLAT * line.y[first] else "not flat"
    ends = [f"{short(line.y[k])} µs{words} with {short(line.x[k])}" for k, words in ((first, " a decision"), (last, ""))]
    return f"{readable(line.name, 16)} takes {ends[0]} jobs waiting, {ends[1]}: {flat}"


def _is_number(text: str) -> bool:
    try:
        return bool(np.isfinite(float(text)))
    except ValueError:
        return False


# ── under changes ──


@figure("robustness_radar")
def robustness_radar(study: Study) -> list[Chart]:
    """Degradation by kind of change, its severities averaged."""
    found = [each for each in study.summary.degradations if each.objective == study.objective]
    kinds = list(dict.fromkeys(each.kind for each in found))
    if len(kinds) < 3:
        raise NoData(f"a radar needs three kinds of changes; there are {len(kinds)}")
    rings = []
    for name in study.shown:
        shares = [np.array([each.share.mean for each in found if each.kind == kind and each.scheduler == name]) for kind in kinds]
        values = np.array([float(np.nanmean(each)) if np.isfinite(each).any() else np.nan for each in shares])
        rings.append(Ring(name, study.style(name), values, study.strong(name)))
    axis = share_axis(f"{metric_title(study.objective)}: change for the worse", [ring.values for ring in rings], least=0.01)
    caption = (
        f"How much worse {metric_title(study.objective)} gets under each kind of change, against the same runs without it, "
        "mean over severities; further out is worse, below 0 it got better."
    )
    return [Chart("robustness_radar", worst_kind(found, study.objective), caption, Radar(tuple(kinds), axis, tuple(rings)))]


@figure("degradation")
def degradation(study: Study) -> list[Chart]:
    """Degradation by severity, a chart for each kind of change."""
    found = [each for each in study.summary.degradations if each.objective == study.objective]
    if not found:
        raise NoData("the axis changes has nothing to compare with what is unchanged")
    kinds: dict[str, list[str]] = {}
    for each in found:
        if each.change not in kinds.setdefault(each.kind, []):
            kinds[each.kind].append(each.change)
    charts = [_degradation(study, kind) for kind, changes in kinds.items() if len(changes) > 1]
    single = [changes[0] for changes in kinds.values() if len(changes) == 1]
    return charts + ([_single_changes(study, single)] if single else [])


def _single_changes(study: Study, changes: Sequence[str]) -> Chart:
    """Draw the changes that have only one strength."""
    shares = {(each.change, each.scheduler): each.share for each in study.summary.degradations if each.objective == study.objective}
    drawn = tuple(marks(study, name, [shares[change, name] for change in changes]) for name in study.shown)
    axis = _shares(f"{metric_title(study.objective)}: change for the worse", drawn)
    caption = (
        f"How much worse {metric_title(study.objective)} gets under each change, against the same runs without it; to the right is worse; "
        f"{INTERVALS}."
    )
    return Chart("degradation", "Under changes", caption, Points(tuple(map(readable, changes)), axis, drawn))


def _degradation(study: Study, kind: str) -> Chart:
    found = [each for each in study.summary.degradations if each.objective == study.objective and each.kind == kind]
    changes = list(dict.fromkeys(each.change for each in found))
    lines = []
    for name in study.shown:
        mine = {each.change: each.share for each in found if each.scheduler == name}
        lines.append(series(study, name, [mine[change] for change in changes]))
    y = share_axis(f"{metric_title(study.objective)}: change for the worse", [line.y for line in lines], least=0.01)
    caption = (
        f"How much worse {metric_title(study.objective)} gets under {readable(kind)}, by its strength, against the same runs without it; "
        "bands are 95 % intervals over seeds; at 0 nothing changed."
    )
    labels = tuple(readable(change.partition(":")[2] or change, 30) for change in changes)
    drawing = Lines(Axis(readable(kind)), y, tuple(lines), markers=True, categories=labels, level=0.0)
    return Chart(f"degradation-{kind}", under_change(found, kind, study.objective), caption, drawing)
