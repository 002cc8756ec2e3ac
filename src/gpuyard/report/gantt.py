"""Draws which job held which devices when, as a Gantt chart: a row per device, spans over neighbouring ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.text import readable
from gpuyard.model.result import Result
from gpuyard.model.units import clean
from gpuyard.report.charts import GREY, PALETTE, Axis, Gantt, Span
from gpuyard.report.drawing import new_figure, write_figure
from gpuyard.report.static import draw_gantt

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MOST_PARTS = 400  # spans that a reader can still tell apart
MOST_ROWS = 256  # devices in it
_UNITS = (("days", 86400.0, 3 * 86400.0), ("hours", 3600.0, 3 * 3600.0), ("minutes", 60.0, 180.0), ("seconds", 1.0, 0.0))


def span_of(result: Result) -> tuple[float, float]:
    """First and last time of a result, in s; never empty."""
    bins = result.timeline
    if not len(bins):
        return 0.0, 1.0
    first, last = float(bins["time"][0]), float(bins["time"][-1] + max(bins["span"][-1], 0.0))
    return first, last if last > first else first + 1.0


def unit_of(span: tuple[float, float]) -> tuple[str, float]:
    """The unit in which a time axis of that span reads well, and its length in s."""
    length = span[1] - span[0]
    return next((name, size) for name, size, least in _UNITS if length >= least)


def window_of(result: Result, nodes: int) -> tuple[float, float]:
    """Choose what to show: everything, or, where that is too much, the stretch around the longest queue in which few enough parts start."""
    span = span_of(result)
    starts = result.segments["start"][result.segments["node"] < nodes]
    if len(starts) <= MOST_PARTS:
        return span
    middle = float(result.timeline["time"][int(np.argmax(result.timeline["queue"]))])
    half = (span[1] - span[0]) / 2
    while half > 1.0:
        low = min(max(middle - half, span[0]), span[1] - 2 * half)
        inside = (starts >= low) & (starts < low + 2 * half)
        if int(inside.sum()) <= MOST_PARTS:
            break
        half *= 0.8
    low = max(middle - half, span[0])
    return low, min(low + 2 * half, span[1])


@dataclass(frozen=True)
class DeviceRows:
    """Where nodes begin in the chart, one row per device; nodes beyond `MOST_ROWS` devices are left out."""

    first: Array  # (shown nodes,)
    size: Array  # (shown nodes,) rows
    total: int
    devices: int  # of the whole cluster

    @property
    def left_out(self) -> str:
        """Say how many devices are shown, where not all are; begins with a blank."""
        return "" if self.total >= self.devices else f" (the first {self.total:,} of {self.devices:,})"


def rows_of(result: Result) -> DeviceRows:
    """Lay out the first nodes of the cluster, one below the other."""
    size = np.maximum(result.cluster.nodes.gpus.astype(np.int64), 1)
    ends = np.cumsum(size)
    shown = max(int((ends <= MOST_ROWS).sum()), 1)
    return DeviceRows(ends[:shown] - size[:shown], size[:shown], int(ends[shown - 1]), int(result.cluster.gpus))


def gantt_of(result: Result, window: tuple[float, float] | None = None) -> Gantt:
    """Chart which job held which devices when, in the window or in the one that `window_of` chooses."""
    rows = rows_of(result)
    window = window or window_of(result, len(rows.first))
    unit, size = unit_of(span_of(result))
    parts = result.segments
    parts = parts[(parts["start"] < window[1]) & (parts["end"] > window[0]) & (parts["node"] < len(rows.first)) & (parts["gpus"] > 0)]
    names = result.cluster.nodes.names[: len(rows.first)]
    nodes = tuple((float(first), readable(str(node), 20)) for first, node in zip(rows.first, names, strict=True))
    spans = tuple(replace(span, start=span.start / size, end=span.end / size) for span in _spans(parts, rows))
    return Gantt(Axis(unit), (window[0] / size, window[1] / size), spans, rows.total, nodes)


def _spans(parts: Array, rows: DeviceRows) -> list[Span]:
    """Neighbouring devices of one part make one span; pools and shared devices get rows as they are free. Times are in seconds."""
    spans: list[Span] = []
    pooled: dict[int, list[Any]] = {}
    shared: dict[int, list[Any]] = {}
    for part in parts:
        node, mask = int(part["node"]), int(part["devices"])
        first = int(rows.first[node])
        if mask == 0:
            pooled.setdefault(node, []).append(part)
        elif part["gpus"] < 1:
            shared.setdefault(first + mask.bit_length() - 1, []).append(part)
        else:
            devices = [d for d in range(mask.bit_length()) if mask >> d & 1]
            spans += [_span(part, first + low, count) for low, count in _runs(devices)]
    for node, group in pooled.items():
        spans += _pooled(group, int(rows.first[node]), int(rows.size[node]))
    for row, group in shared.items():
        spans += _shared(group, row)
    return spans


def _span(part: Any, row: float, height: float) -> Span:
    return Span(int(part["job"]), row, height, float(part["start"]), float(part["end"]))


def _runs(devices: Sequence[int]) -> list[tuple[int, int]]:
    """(first, how many) of neighbours in a sorted list."""
    runs: list[tuple[int, int]] = []
    for d in devices:
        if runs and runs[-1][0] + runs[-1][1] == d:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((d, 1))
    return runs


def _pooled(group: Sequence[Any], first: int, size: int) -> list[Span]:
    """A pool has no device numbers: a part takes the lowest rows that are free when it starts."""
    free = list(range(size))
    busy: list[tuple[float, int, list[int]]] = []
    spans: list[Span] = []
    for k, part in enumerate(sorted(group, key=lambda p: (float(p["start"]), int(p["job"])))):
        while busy and busy[0][0] <= part["start"]:
            for row in heapq.heappop(busy)[2]:
                heapq.heappush(free, row)
        taken = sorted(heapq.heappop(free) for _ in range(min(int(part["gpus"]), len(free))))
        heapq.heappush(busy, (float(part["end"]), k, taken))
        spans += [_span(part, first + low, count) for low, count in _runs(taken)]
    return spans


def _shared(group: Sequence[Any], row: int) -> list[Span]:
    """Shares of one device, each at the lowest place that is free."""
    spans: list[Span] = []
    for part in sorted(group, key=lambda p: (float(p["start"]), int(p["job"]))):
        place = float(row)
        for other in sorted((each for each in spans if each.end > part["start"]), key=lambda each: each.row):
            if place + float(part["gpus"]) <= other.row + 1e-9:
                break
            place = max(place, other.row + other.height)
        spans.append(_span(part, place, float(part["gpus"])))
    return spans


# ── the figure of one result ──


def save_figure(result: Result, path: Path) -> None:
    """Draw the Gantt chart (a window of it where there is much), queue length and utilisation over time."""
    write_figure(draw_result(result), path)


def draw_result(result: Result, window: tuple[float, float] | None = None) -> Figure:
    """Draw the Gantt chart of a window, or of the one that `window_of` chooses, with queue and use over the whole time below."""
    rows = rows_of(result)
    height = min(max(2.2, 0.045 * rows.total), 7.0)
    figure = new_figure(11.0, height + 3.8)
    gantt, queue, use = figure.subplots(3, 1, height_ratios=[height, 1.5, 1.5])
    _name(figure, result)
    window = window or window_of(result, len(rows.first))
    drawn = gantt_of(result, window)
    draw_gantt(gantt, drawn)
    jobs = len({span.job for span in drawn.spans})
    gantt.set_title(f"{jobs:,} jobs on devices by node{rows.left_out}", fontsize=9, loc="left")
    _draw_courses(queue, use, result)
    if window != span_of(result):
        _, size = unit_of(span_of(result))
        for axes in (queue, use):
            axes.axvspan(window[0] / size, window[1] / size, color=GREY, alpha=0.15, lw=0)
        queue.annotate("shown above", (window[0] / size, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=GREY, va="bottom")
    return figure


def draw_queue(result: Result) -> Figure:
    """Draw queue length and utilisation over time."""
    figure = new_figure(11.0, 3.8)
    queue, use = figure.subplots(2, 1)
    _name(figure, result)
    _draw_courses(queue, use, result)
    return figure


def _name(figure: Figure, result: Result) -> None:
    title = f"{result.workload.name} on {result.cluster.name} under {result.scheduler}"
    figure.suptitle(clean(title), fontsize=11, x=0.01, ha="left")


def _draw_courses(queue: Axes, use: Axes, result: Result) -> None:
    _draw_course(queue, result, "jobs waiting", ("queue_max", PALETTE[5], 0.4, "most"), ("queue", PALETTE[0], "-", "mean"))
    _draw_course(use, result, "GPUs", ("busy", PALETTE[2], 0.6, "in use"), ("up", GREY, "--", "up"))
    queue.set_ylim(0, max(1.0, 1.05 * float(result.timeline["queue_max"].max(initial=0.0))))
    use.set_ylim(bottom=0)
    use.set_xlabel(unit_of(span_of(result))[0], fontsize=8)


def _draw_course(axes: Axes, result: Result, title: str, area: tuple[str, str, float, str], line: tuple[str, str, str, str]) -> None:
    """Draw two columns of the timeline: an area (column, colour, opacity, label) and a line (column, colour, dash, label)."""
    bins, span, (_, size) = result.timeline, span_of(result), unit_of(span_of(result))
    time = bins["time"] / size
    axes.fill_between(time, bins[area[0]], step="post", color=area[1], alpha=area[2], lw=0, label=area[3])
    axes.plot(time, bins[line[0]], drawstyle="steps-post", color=line[1], lw=1.0, ls=line[2], label=line[3])
    axes.set_ylabel(title)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    axes.set_xlim(span[0] / size, span[1] / size)
