"""Figures of experiments about stopping jobs: what it gains wherever something is varied, who pays, and the longest waits."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.stopping import (
    CLASSES,
    DELAY,
    LONGEST,
    SHARE,
    TAIL,
    effect,
    in_words,
    is_about_stopping,
    moved,
    places,
    rows_at,
    stopping,
)
from gpuyard.experiments.judging.text import metric_title, readable
from gpuyard.report.charts import Axis, Chart, Marks, Points, share_axis
from gpuyard.report.study import NoData, Study, figure, marks, titled

CENTRE = "nothing is varied"
MOST = 6  # series in one figure
PAIRED = (
    "means over workloads that count alike, paired by seed or window; lines are 95 % intervals, and those that cross 0 show no clear "
    "difference"
)


def _require(study: Study) -> str:
    """Return the baseline of an experiment about stopping."""
    if not is_about_stopping(study.results):
        raise NoData("the experiment does not vary the share of jobs that may be stopped, or names no baseline and challenger")
    return study.results.experiment.judge.baseline


def _share(study: Study, metric: str, scheduler: str, rows: np.ndarray) -> Interval | None:
    found = effect(study.results, metric, scheduler, rows)
    return None if found is None else found.share


def _axis(metric: str, baseline: str, drawn: Sequence[Marks]) -> Axis:
    return share_axis(f"{metric_title(metric)}: change against {readable(baseline, 24)} (left of 0: better)", [each.mean for each in drawn])


@figure("stops_change")
def stops_change(study: Study) -> list[Chart]:
    """Draw the change of each objective against the baseline at every place: the centre, and what is varied."""
    baseline = _require(study)
    found = places(study.results)
    rows = [CENTRE, *(in_words(place) for place in found[1:])]
    return [_change(study, metric, baseline, rows, found) for metric in study.objectives]


def _change(study: Study, metric: str, baseline: str, labels: Sequence[str], found: Sequence[dict[str, str]]) -> Chart:
    results = study.results
    names = [name for name in stopping(results) if name != baseline][:MOST]
    drawn = tuple(marks(study, name, [_share(study, metric, name, rows_at(results, place)) for place in found]) for name in names)
    first = next((each for each in drawn if each.strong), drawn[0] if drawn else None)
    title = f"Change of {metric_title(metric)} where something is varied"
    if first is not None:
        clear = int((first.high < 0).sum())
        title = f"{readable(first.name, 24)} lowers {metric_title(metric)} clearly at {clear} of {len(found)} places"
    caption = (
        f"Change of mean {metric_title(metric)} against {readable(baseline)} on the same runs. Where nothing is varied, "
        f"{in_words(results.experiment.centre)}: {PAIRED}."
    )
    return Chart(f"stops_change-{metric}", title, caption, Points(tuple(labels), _axis(metric, baseline, drawn), drawn))


@figure("who_pays")
def who_pays(study: Study) -> list[Chart]:
    """Draw how the wait of each class of jobs changes with the first challenger, by the share of jobs that may be stopped."""
    baseline, results = _require(study), study.results
    challengers = results.experiment.judge.challengers
    shares = sorted((value for value in results.experiment.vary[SHARE] if float(value) > 0), key=float)[:MOST]
    metrics = [DELAY, *(name for name in CLASSES if name in results.columns)]
    drawn = []
    for k, value in enumerate(shares):
        rows = rows_at(results, {SHARE: value})
        found = [_share(study, metric, challengers[0], rows) for metric in metrics]
        made = marks(study, f"{100 * float(value):g} % stoppable", found)
        drawn.append(Marks(made.name, k, made.mean, made.low, made.high, value == results.experiment.centre[SHARE]))
    labels = tuple("all jobs" if metric == DELAY else CLASSES[metric] for metric in metrics)
    caption = (
        f"Change of the mean wait, stops included, with {readable(challengers[0])} against {readable(baseline)}, for classes of the same "
        f"jobs; sizes are thirds of the jobs by run time × GPUs; the worst-off users are a tenth of them, not the same "
        f"ones with each scheduler: {PAIRED}."
    )
    axis = share_axis("change of mean wait (left of 0: shorter)", [each.mean for each in drawn])
    return [Chart("who_pays", _payers(study, challengers[0]), caption, Points(labels, axis, tuple(drawn)))]


def _payers(study: Study, name: str) -> str:
    """Say what happens to those who may be stopped and to the others, at the centre."""
    theirs, others = (_briefly(_share(study, metric, name, rows_at(study.results, {}))) for metric in ("delay_preemptible", "delay_others"))
    if theirs and others:
        return f"Jobs that may be stopped wait {theirs}, the others {others}"
    if theirs:
        return f"Jobs that may be stopped wait {theirs}; for the others no clear change"
    if others:
        return f"Jobs that may not be stopped wait {others}; for those that may no clear change"
    return "Neither jobs that may be stopped nor the others clearly wait longer or less"


def _briefly(share: Interval | None) -> str:
    """`19 % less`; empty where nothing is clear."""
    if share is None or share.n < FEWEST or not (share.low > 0 or share.high < 0):
        return ""
    return f"{abs(100 * share.mean):.0f} % {'less' if share.mean < 0 else 'longer'}"


@figure("longest_waits")
def longest_waits(study: Study) -> list[Chart]:
    """Draw the change of the 99th percentile and of the longest wait against the baseline, workload by workload at the centre."""
    baseline = _require(study)
    metrics = [metric for metric in (TAIL, LONGEST) if metric in study.results.columns]
    if not metrics:
        raise NoData("the experiment measures neither delay.p99 nor delay.max")
    return [_by_workload(study, f"longest_waits-{metric}", metric, baseline) for metric in metrics]


@figure("stops_by_workload")
def stops_by_workload(study: Study) -> list[Chart]:
    """Draw the change of each objective against the baseline, workload by workload at the centre."""
    baseline = _require(study)
    return [_by_workload(study, f"stops_by_workload-{metric}", metric, baseline) for metric in study.objectives]


def _by_workload(study: Study, name: str, metric: str, baseline: str) -> Chart:
    results = study.results
    workloads = list(dict.fromkeys(results.columns["workload"].tolist()))
    where = [rows_at(results, {}), *(rows_at(results, {}, each) for each in workloads)] if len(workloads) > 1 else [rows_at(results, {})]
    labels = ["all, counting alike", *map(str, workloads)] if len(workloads) > 1 else list(map(str, workloads))
    names = [each for each in study.shown if each != baseline][:MOST]
    drawn = tuple(marks(study, each, [_share(study, metric, each, rows) for rows in where]) for each in names)
    first = next((each for each in drawn if each.strong), drawn[0])
    overall = moved(effect(results, metric, first.name, where[0]))
    title = f"{readable(first.name, 24)}: {metric_title(metric)} {overall}"
    caption = (
        f"Change of {titled(metric, '')}, against {readable(baseline)} where {in_words(results.experiment.centre)}, "
        f"workload by workload: {PAIRED}."
    )
    return Chart(name, title, caption, Points(tuple(labels), _axis(metric, baseline, drawn), drawn))
