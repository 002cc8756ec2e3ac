"""The figure of one Result: what ran where and when, the queue, the utilisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from gpuyard.experiments.judging.text import clean
from gpuyard.model.result import Result
from gpuyard.report.charts import GREY, PALETTE
from gpuyard.report.drawing import new_figure, write_figure
from gpuyard.report.gantt import gantt_of, rows_of, span_of, unit_of, window_of
from gpuyard.report.static import draw_gantt

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def save_figure(result: Result, path: Path) -> None:
    """Draw the Gantt chart (a window of it where there is much), queue length and utilisation over time."""
    rows = rows_of(result)
    height = min(max(2.2, 0.045 * rows.total), 7.0)
    figure = new_figure(11.0, height + 3.8)
    gantt, queue, use = figure.subplots(3, 1, height_ratios=[height, 1.5, 1.5])
    title = f"{result.workload.name} on {result.cluster.name} under {result.scheduler}"
    figure.suptitle(clean(title), fontsize=11, x=0.01, ha="left")
    window = window_of(result, len(rows.first))
    drawn = gantt_of(result, window)
    draw_gantt(gantt, drawn)
    jobs = len({span.job for span in drawn.spans})
    gantt.set_title(f"{jobs:,} jobs on devices by node{rows.left_out}", fontsize=9, loc="left")
    _draw_queue(queue, result)
    _draw_use(use, result)
    if window != span_of(result):
        _, size = unit_of(span_of(result))
        for axes in (queue, use):
            axes.axvspan(window[0] / size, window[1] / size, color=GREY, alpha=0.15, lw=0)
        queue.annotate("shown above", (window[0] / size, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=GREY, va="bottom")
    write_figure(figure, path)


def _draw_queue(axes: Axes, result: Result) -> None:
    bins, (_, size) = result.timeline, unit_of(span_of(result))
    time = bins["time"] / size
    axes.fill_between(time, bins["queue_max"], step="post", color=PALETTE[5], alpha=0.4, lw=0, label="most")
    axes.plot(time, bins["queue"], drawstyle="steps-post", color=PALETTE[0], lw=1.0, label="mean")
    axes.set_ylabel("jobs waiting")
    axes.set_ylim(0, max(1.0, 1.05 * float(bins["queue_max"].max(initial=0.0))))
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    _time_axis(axes, result, size)


def _draw_use(axes: Axes, result: Result) -> None:
    bins, (name, size) = result.timeline, unit_of(span_of(result))
    time = bins["time"] / size
    axes.fill_between(time, bins["busy"], step="post", color=PALETTE[2], alpha=0.6, lw=0, label="in use")
    axes.plot(time, bins["up"], drawstyle="steps-post", color=GREY, lw=1.0, ls="--", label="up")
    axes.set_ylabel("GPUs")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    _time_axis(axes, result, size)
    axes.set_xlabel(name, fontsize=8)


def _time_axis(axes: Axes, result: Result, size: float) -> None:
    low, high = span_of(result)
    axes.set_xlim(low / size, high / size)
