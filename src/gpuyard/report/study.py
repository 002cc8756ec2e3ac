"""A study: results with their summary and examples, and the figures that can be made of it by name."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import GpuyardError
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.summary import MINIMUM, Summary, summarise
from gpuyard.experiments.judging.text import metric_title, shown_unit
from gpuyard.experiments.running.examples import load_examples
from gpuyard.experiments.running.results import Results, load_results
from gpuyard.metrics import resolve
from gpuyard.model.result import Result
from gpuyard.registry import Registry
from gpuyard.report.charts import Absent, Boxes, Chart, Lines, Marks, Points, Radar, Series
from gpuyard.traces.estimates.sources import described

MOST_SHOWN = 10  # schedulers in a figure that has them all in each row
USUAL = ("objective", "versus")  # of an experiment that names no figure


class NoData(GpuyardError):
    """The experiment kept nothing that this figure could show."""


@dataclass(frozen=True, eq=False)
class Study:
    """Numbers, statistics and examples of an experiment."""

    results: Results
    summary: Summary

    @cached_property
    def examples(self) -> list[tuple[dict[str, Any], Result]]:
        """Whole results, each with its line of the index."""
        return load_examples(self.results.folder) if self.results.folder else []

    @property
    def title(self) -> str:
        """The title of the experiment; with the source of estimates where it is about one workload."""
        experiment = self.results.experiment
        return f"{experiment.title} (estimates: {described(self.summary.estimate)})" if self.summary.single else experiment.title

    @property
    def objectives(self) -> tuple[str, ...]:
        return self.results.experiment.axes.objectives

    @property
    def objective(self) -> str:
        """The first objective."""
        return self.objectives[0]

    @cached_property
    def shown(self) -> tuple[str, ...]:
        """The schedulers in figures that would be crowded by all: challengers, baselines, then the best, in the order of the axis."""
        every = self.results.schedulers
        if len(every) <= MOST_SHOWN:
            return every
        table = self.summary.table
        sign = MINIMUM[resolve(table.objective)[0].better]
        best = sorted(every, key=lambda name: _last_if_nan(sign * table.line(name).values[table.objective].mean))
        first = [*self.results.experiment.judge.challengers, *(each.baseline for each in self.summary.tables), *best]
        chosen = list(dict.fromkeys(first))[:MOST_SHOWN]
        return tuple(name for name in every if name in chosen)

    @property
    def left_out(self) -> str:
        """Return what a caption must say about schedulers that are not shown; empty if nothing."""
        more = len(self.results.schedulers) - len(self.shown)
        return f" Shown are challengers, baselines and the best; {more} more schedulers are in the tables." if more else ""

    def style(self, scheduler: str) -> int:
        """Return the number of a scheduler, those that are shown first; −1 for anything else."""
        order = list(dict.fromkeys((*self.shown, *self.results.schedulers)))
        return order.index(scheduler) if scheduler in order else -1

    def strong(self, scheduler: str) -> bool:
        return scheduler in self.results.experiment.judge.challengers

    def runs_of(self, scheduler: str) -> list[int]:
        """The numbers of a scheduler's Runs."""
        return [int(run) for run in self.results.columns["run"][self.results.columns["scheduler"] == scheduler]]


def _last_if_nan(value: float) -> float:
    return value if np.isfinite(value) else np.inf


def load_study(folder: Path) -> Study:
    """Read and sum up a completed folder."""
    results = load_results(folder)
    return Study(results, summarise(results))


Maker: TypeAlias = Callable[[Study], list[Chart]]
FIGURES: Registry[Maker] = Registry("figure")


def figure(name: str) -> Callable[[Maker], Maker]:
    """Register what makes the charts of that name."""
    return FIGURES.register(name, lambda maker: maker)


def charts_of(study: Study) -> list[Chart | Absent]:
    """Return the charts that the experiment names, in its order; an unknown name is an error, missing data is not."""
    names = study.results.experiment.figures or USUAL
    makers = [(name, FIGURES[name]) for name in names]
    found: list[Chart | Absent] = []
    for name, maker in makers:
        try:
            found += [_with_note(study, chart) for chart in maker(study)]
        except NoData as error:
            found.append(Absent(name, str(error)))
    return found


def _with_note(study: Study, chart: Chart) -> Chart:
    """Add to the caption that schedulers are left out."""
    drawn = chart.drawing
    crowded = isinstance(drawn, (Lines, Radar, Boxes)) or (isinstance(drawn, Points) and not drawn.alone)
    return replace(chart, caption=chart.caption + study.left_out) if crowded else chart


# ── what the figures share ──


def better_words(metric: str) -> str:
    """Say which direction of a metric is better."""
    words = {"lower": "lower is better", "higher": "higher is better", "neither": "neither end is better"}
    return words[resolve(metric)[0].better]


def titled(metric: str, unit: str, direction: bool = True) -> str:
    """`slowdown, lower is better`; `turnaround (JCT), h, lower is better`."""
    return ", ".join(part for part in (metric_title(metric), unit, better_words(metric) if direction else "") if part)


def scaled(metric: str, intervals: Sequence[Interval]) -> tuple[str, float]:
    """The unit that reads well for these means, and its size."""
    return shown_unit(metric, [each.mean for each in intervals if np.isfinite(each.mean)])


def marks(study: Study, scheduler: str, intervals: Sequence[Interval | None], size: float = 1.0) -> Marks:
    """Make the marks of one scheduler, one per row; None is not drawn."""
    return Marks(scheduler, study.style(scheduler), *_numbers(intervals, size), study.strong(scheduler))


def series(study: Study, scheduler: str, intervals: Sequence[Interval], x: Array | None = None, style: int | None = None) -> Series:
    """Make the line of one scheduler with its band, at `x` or at the places 0, 1, …"""
    at = np.arange(len(intervals), dtype=float) if x is None else x
    return Series(scheduler, study.style(scheduler) if style is None else style, at, *_numbers(intervals), study.strong(scheduler))


def _numbers(intervals: Sequence[Interval | None], size: float = 1.0) -> tuple[Array, Array, Array]:
    """(mean, low, high), each (intervals,)."""
    rows = [[math.nan] * 3 if each is None else [each.mean, each.low, each.high] for each in intervals]
    mean, low, high = np.array(rows, dtype=float).reshape(-1, 3).T / size
    return mean, low, high


def at_row(row: int, rows: int, interval: Interval | None) -> list[Interval | None]:
    """Put the interval in one row, and nothing in the others."""
    return [interval if k == row else None for k in range(rows)]
