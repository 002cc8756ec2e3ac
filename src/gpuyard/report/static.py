"""Charts on paper: vector PDF and PNG by matplotlib, the same bytes for the same data, readable without colour."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.experiments.judging.text import readable
from gpuyard.report.charts import GREY, PALETTE, ROW_WIDTH, Axis, Box, Boxes, Chart, Gantt, Lines, Marks, Points, Radar, Strip, style_of
from gpuyard.report.drawing import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

WIDTH = 7.2  # inches
DASHES: Mapping[str, Any] = {
    "solid": "-",
    "dash": (0, (5, 2)),
    "dashdot": (0, (5, 2, 1, 2)),
    "dot": (0, (1.2, 1.6)),
    "longdash": (0, (9, 3)),
}
MARKERS = {
    "circle": "o", "square": "s", "diamond": "D", "triangle-up": "^", "triangle-down": "v",
    "cross": "P", "x": "X", "star": "*", "pentagon": "p",
}  # fmt: skip
HATCHES = ("", "////", "....", "\\\\\\\\", "xxxx", "----", "oo", "++", "||||")
LEGEND = 24  # characters of a name


def draw(chart: Chart) -> Figure:
    """Draw a chart; write the figure with `drawing.write_figure`."""
    figure = _DRAWERS[type(chart.drawing)](chart.drawing)
    figure.suptitle(chart.title if len(chart.title) < 90 else chart.title[:89] + "…", fontsize=10, x=0.01, ha="left")
    return figure


def _plain(axes: Axes) -> None:
    axes.grid(color="#e4e4e4", lw=0.6, zorder=0)
    axes.set_axisbelow(True)
    axes.tick_params(labelsize=8)


def _legend(figure: Figure, axes: Axes, count: int) -> None:
    """Put the legend outside, on the right where there are many names."""
    handles, labels = axes.get_legend_handles_labels()
    if not handles:
        return
    if count > 4:
        figure.legend(handles, labels, loc="outside right center", fontsize=8, frameon=False, handlelength=3.2)
    else:
        figure.legend(handles, labels, loc="outside lower center", fontsize=8, frameon=False, ncols=count, handlelength=3.2)


def _scale(axes: Axes, axis: Axis, which: str, values: Any) -> None:
    """Set title, scale and ticks of x or y."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

    target = getattr(axes, f"{which}axis")
    getattr(axes, f"set_{which}label")(axis.title, fontsize=8)
    if axis.scale == "bent":
        ticks = axis.ticks(values)
        target.set_major_locator(FixedLocator([float(axis.place(np.array(tick))) for tick, _ in ticks]))
        target.set_minor_locator(NullLocator())
        target.set_ticklabels([text for _, text in ticks])
        return
    if axis.scale == "log":
        getattr(axes, f"set_{which}scale")("log")
        known = values[np.isfinite(values) & (values > 0)]
        wide = len(known) and known.max() / known.min() > 1000
        target.set_major_locator(LogLocator(subs=(1.0,) if wide else (1.0, 2.0, 5.0), numticks=12))
        target.set_minor_formatter(NullFormatter())
    target.set_major_formatter(FuncFormatter(lambda value, _: axis.text(round(value, 12))))


# ── lines ──


def _draw_lines(drawn: Lines) -> Figure:
    figure = new_figure(WIDTH, 3.6)
    axes = figure.subplots()
    _plain(axes)
    faint = max(0.04, min(0.16, 0.5 / max(len(drawn.lines), 1)))  # many bands must not add up to one dark one
    for line in drawn.lines:
        style = style_of(line.style)
        y = drawn.y.place(line.y)
        axes.plot(
            line.x, y, color=style.colour, ls=DASHES[style.dash], lw=2.2 if line.strong else 1.4, label=readable(line.name, LEGEND),
            drawstyle="steps-post" if drawn.steps else "default", marker=MARKERS[style.marker], ms=4.5,
            markevery=1 if drawn.markers else (line.style * 2 % 16 if len(line.x) > 32 else 0, max(len(line.x) // 6, 1)), zorder=3,
        )  # fmt: skip
        if line.low is not None and line.high is not None:
            axes.fill_between(line.x, drawn.y.place(line.low), drawn.y.place(line.high), color=style.colour, alpha=faint, lw=0)
    if drawn.level is not None:
        axes.axhline(float(drawn.y.place(np.array(drawn.level))), color=GREY, lw=0.9, ls="--", zorder=1)
    every = np.concatenate([line.y for line in drawn.lines]) if drawn.lines else np.zeros(0)
    _scale(axes, drawn.y, "y", every)
    if drawn.categories:
        axes.set_xticks(range(len(drawn.categories)), drawn.categories, rotation=0 if len(drawn.categories) <= 6 else 30)
        axes.set_xlabel(drawn.x.title, fontsize=8)
    else:
        _scale(axes, drawn.x, "x", np.concatenate([line.x for line in drawn.lines]) if drawn.lines else np.zeros(0))
    _legend(figure, axes, len(drawn.lines))
    return figure


# ── points ──


def _draw_points(drawn: Points) -> Figure:
    count, offsets = drawn.most, drawn.offsets()
    step = 0.26 if count == 1 else max(0.15 * count + 0.12, 0.3)
    figure = new_figure(WIDTH, min(1.3 + step * len(drawn.rows), 14.0))
    axes = figure.subplots()
    _plain(axes)
    axes.grid(visible=False, axis="y")
    for k, mark in enumerate(drawn.marks):
        _draw_marks(axes, drawn, mark, np.arange(len(drawn.rows)) + offsets[k], 0.62 if count == 1 else ROW_WIDTH / count)
    if drawn.level is not None:
        axes.axvline(float(drawn.value.place(np.array(drawn.level))), color=GREY, lw=0.9, ls="--", zorder=1)
    for edge in range(1, len(drawn.rows) if count > 1 else 0):
        axes.axhline(edge - 0.5, color="#d0d0d0", lw=0.6, zorder=0)
    _scale(axes, drawn.value, "x", np.concatenate([np.concatenate([m.mean, m.low, m.high]) for m in drawn.marks]))
    axes.set_yticks(range(len(drawn.rows)), [readable(row, 52) for row in drawn.rows])
    axes.set_ylim(len(drawn.rows) - 0.5, -0.5)
    axes.tick_params(axis="y", length=0)
    if count > 1:
        _legend(figure, axes, 9)
    return figure


def _draw_marks(axes: Axes, drawn: Points, mark: Marks, y: Any, height: float) -> None:
    style, axis = style_of(mark.style), drawn.value
    mean = axis.place(mark.mean)
    low, high = (axis.place(np.where(np.isnan(end), mark.mean, end)) for end in (mark.low, mark.high))
    label = readable(mark.name, LEGEND)
    if drawn.bars:
        axes.barh(
            y, mean, height=height * 0.92, color=style.colour, alpha=0.75, hatch=HATCHES[mark.style % len(HATCHES)], edgecolor="white",
            lw=0.3, label=label, zorder=2,
        )  # fmt: skip
        axes.hlines(y, low, high, colors="#222222", lw=1.1, zorder=4)
        return
    axes.hlines(y, low, high, colors=style.colour, lw=2.0 if mark.strong else 1.3, zorder=3)
    axes.plot(mean, y, ls="", marker=MARKERS[style.marker], color=style.colour, ms=6.5 if mark.strong else 4.8, label=label, zorder=4)


# ── radar ──


def _draw_radar(drawn: Radar) -> Figure:
    from matplotlib.ticker import MaxNLocator

    figure = new_figure(WIDTH, 4.6)
    axes = figure.add_subplot(projection="polar")
    angles = np.linspace(0, 2 * np.pi, len(drawn.spokes), endpoint=False)
    values = np.concatenate([ring.values for ring in drawn.rings])
    for ring in drawn.rings:
        style, r = style_of(ring.style), drawn.value.place(ring.values)
        axes.plot(
            np.append(angles, angles[0]), np.append(r, r[0]), color=style.colour, ls=DASHES[style.dash], lw=2.2 if ring.strong else 1.4,
            marker=MARKERS[style.marker], ms=4, label=readable(ring.name, LEGEND),
        )  # fmt: skip
    axes.set_xticks(angles, [readable(spoke, 24) for spoke in drawn.spokes], fontsize=8)
    _scale(axes, drawn.value, "y", values)
    if drawn.value.scale == "linear":
        axes.yaxis.set_major_locator(MaxNLocator(4))
    axes.set_ylabel("")
    axes.tick_params(axis="y", labelsize=7)
    for label, angle in zip(axes.get_xticklabels(), angles, strict=True):  # away from the circle
        label.set_horizontalalignment("left" if np.cos(angle) > 0.1 else "right" if np.cos(angle) < -0.1 else "center")
    low = float(np.nanmin(drawn.value.place(values), initial=0.0))
    axes.set_ylim(bottom=low - (0.05 * abs(low) if low < 0 else 0.0))
    axes.set_title(drawn.value.title, fontsize=8, color=GREY)
    if low < 0:
        axes.plot(np.linspace(0, 2 * np.pi, 100), np.zeros(100), color=GREY, lw=1.0, ls="--")
    _legend(figure, axes, 9)
    return figure


# ── boxes ──


def _draw_boxes(drawn: Boxes) -> Figure:
    figure = new_figure(WIDTH, 3.8)
    axes = figure.subplots()
    _plain(axes)
    axes.grid(visible=False, axis="x")
    count = len(drawn.boxes)
    for k, box in enumerate(drawn.boxes):
        at = np.arange(len(drawn.groups)) + ((k + 0.5) / count - 0.5) * 0.84
        _draw_box(axes, box, at, 0.84 / count * 0.8)
    for edge in range(1, len(drawn.groups)):
        axes.axvline(edge - 0.5, color="#d0d0d0", lw=0.6, zorder=0)
    axes.set_xticks(range(len(drawn.groups)), [readable(group, 16) for group in drawn.groups])
    axes.set_xlim(-0.5, len(drawn.groups) - 0.5)
    axes.tick_params(axis="x", length=0)
    axes.set_xlabel(drawn.group, fontsize=8)
    _scale(axes, drawn.value, "y", np.concatenate([box.five.ravel() for box in drawn.boxes]))
    _legend(figure, axes, 9)
    return figure


def _draw_box(axes: Axes, box: Box, at: Any, width: float) -> None:
    style = style_of(box.style)
    low, first, middle, third, high = box.five.T
    axes.vlines(at, low, high, colors=style.colour, lw=1.1, zorder=2)
    axes.bar(
        at, third - first, width, bottom=first, color=style.colour, alpha=0.8, hatch=HATCHES[box.style % len(HATCHES)], edgecolor="white",
        lw=0.3, label=readable(box.name, LEGEND), zorder=3,
    )  # fmt: skip
    axes.hlines(middle, at - width / 2, at + width / 2, colors="#111111", lw=1.6, zorder=4)


# ── single runs ──


def _draw_gantt(drawn: Gantt) -> Figure:
    figure = new_figure(WIDTH, min(1.5 + 0.16 * drawn.rows, 7.0))
    draw_gantt(figure.subplots(), drawn)
    return figure


def draw_gantt(axes: Axes, drawn: Gantt) -> None:
    """Draw a Gantt chart on these axes."""
    from matplotlib.collections import PolyCollection

    for colour in range(len(PALETTE)):
        spans = [span for span in drawn.spans if span.job % len(PALETTE) == colour]
        corners = [
            [(s.start, s.row), (s.end, s.row), (s.end, s.row + s.height), (s.start, s.row + s.height)] for s in spans if s.end > s.start
        ]
        axes.add_collection(PolyCollection(corners, facecolors=PALETTE[colour], edgecolors="white", linewidths=0.5))
    axes.set_xlim(*drawn.window)
    axes.set_ylim(drawn.rows, 0)
    step = max(1, -(-len(drawn.nodes) // 24))
    ends = [first for first, _ in drawn.nodes[1:]] + [float(drawn.rows)]
    middles = [(first + end) / 2 for (first, _), end in zip(drawn.nodes, ends, strict=True)]
    axes.set_yticks(middles[::step], [name for _, name in drawn.nodes][::step], fontsize=8)
    axes.tick_params(axis="y", length=0)
    for first, _ in drawn.nodes[1:] if len(drawn.nodes) <= 64 else ():
        axes.axhline(first, color="#555555", lw=0.5, zorder=2)
    axes.set_xlabel(drawn.x.title, fontsize=8)
    axes.tick_params(axis="x", labelsize=8)


def _draw_strip(drawn: Strip) -> Figure:
    figure = new_figure(WIDTH, 1.2 + 0.26 * len(drawn.labels))
    axes = figure.subplots()
    for k in range(len(drawn.labels)):
        parts = [(start, end - start) for choice, start, end in drawn.stretches() if choice == k]
        axes.broken_barh(parts, (k - 0.36, 0.72), facecolors=style_of(k).colour, lw=0)
    axes.set_yticks(range(len(drawn.labels)), drawn.labels, fontsize=8)
    axes.set_ylim(len(drawn.labels) - 0.5, -0.5)
    axes.set_xlim(float(drawn.times[0]), float(drawn.times[-1]))
    axes.tick_params(axis="y", length=0)
    axes.tick_params(axis="x", labelsize=8)
    axes.grid(axis="y", color="#eeeeee")
    axes.set_axisbelow(True)
    axes.set_xlabel(drawn.x.title, fontsize=8)
    return figure


_DRAWERS: Mapping[type, Callable[[Any], Figure]] = {
    Lines: _draw_lines, Points: _draw_points, Radar: _draw_radar, Boxes: _draw_boxes, Gantt: _draw_gantt, Strip: _draw_strip,
}  # fmt: skip
