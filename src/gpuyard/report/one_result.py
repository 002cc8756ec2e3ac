"""The figure of one Result: what ran where and when, the queue, the utilisation."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.experiments.judging.text import clean
from gpuyard.model.result import Result
from gpuyard.report.charts import GREY, PALETTE
from gpuyard.report.drawing import new_figure, write_figure
from gpuyard.report.lanes import Lanes, bars_of, lanes_of, span_of, unit_of, window_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def save_figure(result: Result, path: Path) -> None:
    """Gantt chart (of a window where there is much), queue length and utilisation over time."""
    lanes = lanes_of(result)
    height = min(max(2.2, 0.045 * lanes.total), 7.0)
    figure = new_figure(11.0, height + 3.8)
    gantt, queue, use = figure.subplots(3, 1, height_ratios=[height, 1.5, 1.5])
    title = f"{result.workload.name} on {result.cluster.name} under {result.scheduler}"
    figure.suptitle(clean(title), fontsize=11, x=0.01, ha="left")
    window = window_of(result, len(lanes.first))
    _draw_gantt(gantt, result, lanes, window)
    _draw_queue(queue, result)
    _draw_use(use, result)
    if window != span_of(result):
        _, size = unit_of(span_of(result))
        for axes in (queue, use):
            axes.axvspan(window[0] / size, window[1] / size, color=GREY, alpha=0.15, lw=0)
        queue.annotate("shown above", (window[0] / size, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=GREY, va="bottom")
    write_figure(figure, path)


def _draw_gantt(axes: Axes, result: Result, lanes: Lanes, window: tuple[float, float]) -> None:
    from matplotlib.collections import PolyCollection

    parts = result.segments
    parts = parts[(parts["start"] < window[1]) & (parts["end"] > window[0]) & (parts["node"] < len(lanes.first)) & (parts["gpus"] > 0)]
    name, size = unit_of(span_of(result))
    bars = bars_of(parts, lanes)
    corners = [
        [(b.start / size, b.lane), (b.end / size, b.lane), (b.end / size, b.lane + b.height), (b.start / size, b.lane + b.height)]
        for b in bars
    ]
    colours = [PALETTE[b.job % len(PALETTE)] for b in bars]
    axes.add_collection(PolyCollection(corners, facecolors=colours, edgecolors="white", linewidths=0.4))
    axes.set_xlim(window[0] / size, window[1] / size)
    axes.set_ylim(lanes.total, 0)
    step = max(1, -(-len(lanes.first) // 32))
    axes.set_yticks(
        (lanes.first + lanes.size / 2)[::step], [clean(n)[:20] for n in result.cluster.nodes.names[: len(lanes.first)][::step]], fontsize=7
    )
    axes.tick_params(axis="y", length=0)
    for line in lanes.first[1:] if len(lanes.first) <= 64 else ():
        axes.axhline(line, color="#555555", lw=0.5, zorder=2)
    shown = "" if lanes.total >= lanes.devices else f" (the first {lanes.total:,} of {lanes.devices:,})"
    jobs = len(np.unique(parts["job"]))
    axes.set_title(f"{jobs:,} jobs on devices by node{shown}", fontsize=9, loc="left")
    axes.set_xlabel(name, fontsize=8)


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
