"""Figures of workloads whose regime changes while they run: regret over time, adaptation and recovery after each change."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.curves import PARTS
from gpuyard.experiments.judging.phases import gaps_by_part, metric_of_phases, phase_sums, regrets
from gpuyard.experiments.judging.statistics import Interval, mean_interval
from gpuyard.experiments.judging.text import metric_title, readable
from gpuyard.report.charts import Axis, Chart, Lines, Points, axis_of, share_axis
from gpuyard.report.gantt import unit_of
from gpuyard.report.study import NoData, Study, figure, marks, scaled, series

GRID = 73  # times of a line


@figure("drift_regret")
def drift_regret(study: Study) -> list[Chart]:
    """Draw what each scheduler lost so far against the fixed one that was best in the whole run."""
    metric = _metric(study)
    end = max(float(2 * unit.begin[-1] - unit.begin[-2]) for unit in phase_sums(study.results))
    grid = np.linspace(0.0, end, GRID)
    found = regrets(study.results, grid)
    name, size = unit_of((0.0, end))
    lines = tuple(series(study, who, _intervals(found[who]), grid / size) for who in study.shown if who in found)
    last = {who: float(found[who][:, -1].mean()) for who in study.shown if who in found}
    rivals = {who: lost for who, lost in last.items() if study.strong(who)} or last
    least, most = min(rivals, key=rivals.__getitem__), max(rivals, key=rivals.__getitem__)
    sums = f"{last[least]:.3g} in {metric_title(metric)}, summed over jobs, and {readable(most, 24)} {last[most]:.3g}"
    title = f"By the end {readable(least, 24)} has lost {sums}"
    caption = (
        f"{metric_title(metric).capitalize()}, summed over the jobs that had come by then, beyond that of the fixed scheduler which was "
        "best in the same run in hindsight; mean over runs, 95 % bands over seeds; a flat line has stopped losing, below 0 it is better."
    )
    y = axis_of(f"{metric_title(metric)} lost so far, sum over jobs", [line.y for line in lines])
    return [Chart("drift_regret", title, caption, Lines(Axis(f"{name} since the start"), y, lines, level=0.0))]


@figure("drift_adaptation")
def drift_adaptation(study: Study) -> list[Chart]:
    """Draw how far behind the best fixed scheduler of the phase each one is, as the phase goes on."""
    metric, found = _metric(study), gaps_by_part(study.results)
    lines = tuple(series(study, who, _intervals(found[who])) for who in study.shown if who in found)
    better = [who for who in found if study.strong(who) and found[who][:, -1].mean() < found[who][:, 0].mean()]
    challengers = [who for who in found if study.strong(who)]
    title = f"{len(better)} of {len(challengers)} challengers are closer to the best late in a phase than early in it"
    caption = (
        f"{metric_title(metric).capitalize()} of the jobs that came in each sixth of a phase, against the fixed scheduler that was best in "
        "that phase; all phases but the first, mean over runs with 95 % bands over seeds; a line that falls has adapted to the change."
    )
    y = share_axis(f"{metric_title(metric)} behind the best of the phase", [line.y for line in lines], least=0.01)
    parts = tuple(f"{k + 1}/{PARTS}" for k in range(PARTS))
    return [
        Chart("drift_adaptation", title, caption, Lines(Axis("part of the phase"), y, lines, markers=True, categories=parts, level=0.0))
    ]


@figure("drift_recovery")
def drift_recovery(study: Study) -> list[Chart]:
    """Draw the time until the queue had settled after each change of phase."""
    rows = _recoveries(study)
    if not rows:
        raise NoData("no curve recovery was kept of runs whose workload has phases")
    values = {who: [rows[row].get(who) for row in rows] for who in study.shown}
    unit, size = scaled("phase_recovery", [each for column in values.values() for each in column if each is not None])
    drawn = tuple(marks(study, who, column, size) for who, column in values.items())
    slowest = max(rows, key=lambda row: max(each.mean for each in rows[row].values()))
    title = f"The queue takes longest to settle in {readable(slowest, 60)}"
    caption = (
        "Time from a change of phase until no more jobs wait than the cluster could run at once, for the rest of the phase; the length of "
        "the phase where it ends with a backlog; mean over runs, lines are 95 % intervals over seeds; lower is better."
    )
    axis = axis_of(f"time until the queue has settled, {unit} (lower is better)", [each.mean for each in drawn], log=False)
    return [Chart("drift_recovery", title, caption, Points(tuple(map(readable, rows)), axis, drawn, level=None))]


def _recoveries(study: Study) -> dict[str, dict[str, Interval]]:
    """Return for each change of phase and scheduler the mean; changes that differ from seed to seed are one row for each workload."""
    columns, curves = study.results.columns, study.results.curves("recovery")
    course = columns.get("course", columns["workload"])
    names: dict[tuple[str, int], set[str]] = {}
    values: dict[tuple[str, int], dict[str, dict[int, list[float]]]] = {}
    for run, curve in curves.items():
        for k, (label, y) in enumerate(zip(curve.labels, curve.y.tolist(), strict=True)):
            key = str(course[run]), k
            names.setdefault(key, set()).add(label)
            values.setdefault(key, {}).setdefault(str(columns["scheduler"][run]), {}).setdefault(int(columns["seed"][run]), []).append(y)
    found: dict[str, dict[str, dict[int, list[float]]]] = {}
    for key, by_scheduler in values.items():
        labels = names[key]
        row = f"{key[0]}: to {next(iter(labels))}" if len(labels) == 1 else f"{key[0]}: each change"
        for who, seeds in by_scheduler.items():
            for seed, each in seeds.items():
                found.setdefault(row, {}).setdefault(who, {}).setdefault(seed, []).extend(each)
    return {
        row: {who: mean_interval(np.array([np.mean(each) for each in seeds.values()])) for who, seeds in columns_.items()}
        for row, columns_ in found.items()
    }


def _metric(study: Study) -> str:
    metric = metric_of_phases(study.results)
    if not metric:
        raise NoData("no curve phases.METRIC was kept of runs whose workload has phases")
    return metric


def _intervals(values: Array) -> list[Any]:
    """`values` (seeds, points): mean with its interval at each point."""
    return [mean_interval(column) for column in values.T]
