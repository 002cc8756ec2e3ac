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
    _draw_course(queue, result, "jobs waiting", ("queue_max", PALETTE[5], 0.4, "most"), ("queue", PALETTE[0], "-", "mean"))
    _draw_course(use, result, "GPUs", ("busy", PALETTE[2], 0.6, "in use"), ("up", GREY, "--", "up"))
    queue.set_ylim(0, max(1.0, 1.05 * float(result.timeline["queue_max"].max(initial=0.0))))
    use.set_ylim(bottom=0)
    use.set_xlabel(unit_of(span_of(result))[0], fontsize=8)
    if window != span_of(result):
        _, size = unit_of(span_of(result))
        for axes in (queue, use):
            axes.axvspan(window[0] / size, window[1] / size, color=GREY, alpha=0.15, lw=0)
        queue.annotate("shown above", (window[0] / size, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=GREY, va="bottom")
    write_figure(figure, path)


def _draw_course(axes: Axes, result: Result, title: str, area: tuple[str, str, float, str], line: tuple[str, str, str, str]) -> None:
    """Draw two columns of the timeline: an area (column, colour, opacity, label) and a line (column, colour, dash, label)."""
    bins, span, (_, size) = result.timeline, span_of(result), unit_of(span_of(result))
    time = bins["time"] / size
    axes.fill_between(time, bins[area[0]], step="post", color=area[1], alpha=area[2], lw=0, label=area[3])
    axes.plot(time, bins[line[0]], drawstyle="steps-post", color=line[1], lw=1.0, ls=line[2], label=line[3])
    axes.set_ylabel(title)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    axes.set_xlim(span[0] / size, span[1] / size)
