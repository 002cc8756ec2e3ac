"""Differences to the baseline in the usual metrics and their own units, and the cost of each change of workload or cluster."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.kinds import PLACE
from gpuyard.experiments.design.spec import USUAL
from gpuyard.experiments.judging.statistics import Difference
from gpuyard.experiments.judging.summary import MINIMUM, Pivot, Summary, against, units
from gpuyard.experiments.running.results import Results
from gpuyard.metrics import resolve

SLOWDOWN = "slowdown"
FURTHER = ("queue_explosions", "recovery")  # means that stand beside it


@dataclass(frozen=True)
class Hardship:
    """How one scheduler fares under one change of the workload or the cluster. What was not measured is nan."""

    delta: Difference  # of the slowdown, to the same runs without the change
    change: str
    scheduler: str
    slowdown: float  # mean
    variance: float  # of the slowdown over seeds
    variance_unchanged: float
    queue_explosions: float  # per Run
    recovery: float  # s


def deltas(summary: Summary) -> dict[str, dict[str, Difference]]:
    """Return scheduler → usual name → paired difference to the baseline of the first objective; without the baseline itself."""
    results, baseline = summary.results, summary.table.baseline
    if not results.folder:
        return {}
    pivot = Pivot(results, results.along())
    names = {usual: metric for usual, metric in USUAL.items() if metric in results.columns}
    found: dict[str, dict[str, Difference]] = {}
    for scheduler in (name for name in results.schedulers if name != baseline):
        row = found.setdefault(scheduler, {})
        for usual, metric in names.items():
            sign = MINIMUM[resolve(metric)[0].better]
            row[usual] = against(pivot, pivot.values(metric, scheduler), pivot.values(metric, baseline), sign).difference
    return found


def hardships(summary: Summary) -> list[Hardship]:
    """List every change under every scheduler, where the axis `changes` also has the unchanged workload."""
    results = summary.results
    changes = results.experiment.axes.changes
    if not results.folder or "" not in changes or len(changes) < 2 or SLOWDOWN not in results.columns:
        return []
    pivot, place = Pivot(results), PLACE.index("change")
    at = {change: [k for k, cell in enumerate(pivot.cells) if cell[place] == change] for change in changes}
    found = []
    for scheduler in results.schedulers:
        values = pivot.values(SLOWDOWN, scheduler)
        clean = values[:, at[""]]
        for change in (change for change in changes if change):
            changed = values[:, at[change]]
            further = [_mean(results, scheduler, change, metric) for metric in FURTHER]
            delta = against(pivot, changed, clean, 1.0).difference
            spread = [_variance(each, windows=pivot.windows) for each in (changed, clean)]
            found.append(Hardship(delta, change, scheduler, float(np.nanmean(changed)), *spread, *further))
    return sorted(found, key=lambda each: changes.index(each.change))


def _variance(values: Array, *, windows: bool) -> float:
    """The variance over what intervals rest on, each the mean over its workloads."""
    each = units(values, windows=windows)[-1]
    each = each[np.isfinite(each)]
    return float(each.var(ddof=1)) if len(each) > 1 else math.nan


def _mean(results: Results, scheduler: str, change: str, metric: str) -> float:
    if metric not in results.columns:
        return math.nan
    values = results.columns[metric][results.where(scheduler=scheduler, change=change)].astype(float)
    known = values[np.isfinite(values)]
    return float(known.mean()) if len(known) else math.nan
