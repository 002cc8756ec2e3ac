"""Figures: what ran where and when, the queue, the utilisation; and schedulers side by side."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.cli.output import clean
from gpuyard.errors import DataError
from gpuyard.model.jobs import Array
from gpuyard.model.result import Result

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from gpuyard.experiments.comparison import Comparison

# Okabe and Ito (2008): told apart with any kind of colour vision. Black is left out.
COLOURS = ("#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#F0E442")
GREY = "#666666"
MOST_PARTS = 400  # bars of a Gantt chart that can still be told apart
MOST_LANES = 256  # devices in it
LOG_FROM = 8.0  # largest over smallest from which the scale is logarithmic
_UNITS = (("days", 86400.0, 3 * 86400.0), ("hours", 3600.0, 3 * 3600.0), ("minutes", 60.0, 180.0), ("seconds", 1.0, 0.0))


@dataclass(frozen=True)
class _Bar:
    """A part of a job on neighbouring devices."""

    job: int
    lane: float  # the lowest device, from the top
    height: float  # devices
    start: float
    end: float


def new_figure(width: float, height: float) -> Figure:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib.figure import Figure

    matplotlib.rcParams.update({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False, "svg.hashsalt": "gpuyard"})
    return Figure(figsize=(width, height), layout="constrained")


def write_figure(figure: Figure, path: Path) -> None:
    """Without dates inside, so that the same run gives the same bytes."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    FigureCanvasAgg(figure)
    dates = {".pdf": {"CreationDate": None}, ".svg": {"Date": None}}
    try:
        figure.savefig(path, dpi=150, metadata=dates.get(path.suffix.lower()))
    except OSError as error:
        raise DataError(f"{path}: the figure cannot be written: {error.strerror or error}") from None


# ── one result ──


def save_figure(result: Result, path: Path) -> None:
    """Gantt chart (of a window where there is much), queue length and utilisation over time."""
    lanes = _lanes(result)
    height = min(max(2.2, 0.045 * lanes.total), 7.0)
    figure = new_figure(11.0, height + 3.8)
    gantt, queue, use = figure.subplots(3, 1, height_ratios=[height, 1.5, 1.5])
    title = f"{result.workload.name} on {result.cluster.name} under {result.scheduler}"
    figure.suptitle(clean(title), fontsize=11, x=0.01, ha="left")
    window = _window(result, len(lanes.first))
    _draw_gantt(gantt, result, lanes, window)
    _draw_queue(queue, result)
    _draw_use(use, result)
    if window != _span(result):
        _, size = _unit(_span(result))
        for axes in (queue, use):
            axes.axvspan(window[0] / size, window[1] / size, color=GREY, alpha=0.15, lw=0)
        queue.annotate("shown above", (window[0] / size, 1.0), xycoords=("data", "axes fraction"), fontsize=7, color=GREY, va="bottom")
    write_figure(figure, path)


def _span(result: Result) -> tuple[float, float]:
    bins = result.timeline
    if not len(bins):
        return 0.0, 1.0
    first, last = float(bins["time"][0]), float(bins["time"][-1] + max(bins["span"][-1], 0.0))
    return first, last if last > first else first + 1.0


def _unit(span: tuple[float, float]) -> tuple[str, float]:
    length = span[1] - span[0]
    return next((name, size) for name, size, least in _UNITS if length >= least)


def _window(result: Result, nodes: int) -> tuple[float, float]:
    """All of the time, or, of many parts on the nodes shown, the stretch around the longest queue in which few enough start."""
    span = _span(result)
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
class _Lanes:
    """Where nodes begin in the chart; nodes beyond `MOST_LANES` devices are left out."""

    first: Array  # (shown nodes,)
    size: Array  # (shown nodes,) lanes
    total: int
    devices: int  # of the whole cluster


def _lanes(result: Result) -> _Lanes:
    size = np.maximum(result.cluster.nodes.gpus.astype(np.int64), 1)
    ends = np.cumsum(size)
    shown = max(int((ends <= MOST_LANES).sum()), 1)
    return _Lanes(ends[:shown] - size[:shown], size[:shown], int(ends[shown - 1]), int(result.cluster.gpus))


def _draw_gantt(axes: Axes, result: Result, lanes: _Lanes, window: tuple[float, float]) -> None:
    from matplotlib.collections import PolyCollection

    parts = result.segments
    parts = parts[(parts["start"] < window[1]) & (parts["end"] > window[0]) & (parts["node"] < len(lanes.first)) & (parts["gpus"] > 0)]
    name, size = _unit(_span(result))
    bars = _bars(parts, lanes)
    corners = [
        [(b.start / size, b.lane), (b.end / size, b.lane), (b.end / size, b.lane + b.height), (b.start / size, b.lane + b.height)]
        for b in bars
    ]
    colours = [COLOURS[b.job % len(COLOURS)] for b in bars]
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


def _bars(parts: Array, lanes: _Lanes) -> list[_Bar]:
    """Neighbouring devices of one part make one bar; pools and shared devices get lanes as they are free."""
    bars: list[_Bar] = []
    pooled: dict[int, list[Any]] = {}
    shared: dict[int, list[Any]] = {}
    for part in parts:
        node, mask = int(part["node"]), int(part["devices"])
        first = int(lanes.first[node])
        if mask == 0:
            pooled.setdefault(node, []).append(part)
        elif part["gpus"] < 1:
            shared.setdefault(first + mask.bit_length() - 1, []).append(part)
        else:
            devices = [d for d in range(mask.bit_length()) if mask >> d & 1]
            bars += [_bar(part, first + low, count) for low, count in _runs(devices)]
    for node, group in pooled.items():
        bars += _pool_bars(group, int(lanes.first[node]), int(lanes.size[node]))
    for lane, group in shared.items():
        bars += _shared_bars(group, lane)
    return bars


def _bar(part: Any, lane: float, height: float) -> _Bar:
    return _Bar(int(part["job"]), lane, height, float(part["start"]), float(part["end"]))


def _runs(devices: Sequence[int]) -> list[tuple[int, int]]:
    """(first, how many) of neighbours in a sorted list."""
    runs: list[tuple[int, int]] = []
    for d in devices:
        if runs and runs[-1][0] + runs[-1][1] == d:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((d, 1))
    return runs


def _pool_bars(group: Sequence[Any], first: int, size: int) -> list[_Bar]:
    """A pool has no device numbers: a part takes the lowest lanes that are free when it starts."""
    free = list(range(size))
    busy: list[tuple[float, int, list[int]]] = []
    bars: list[_Bar] = []
    for k, part in enumerate(sorted(group, key=lambda p: (float(p["start"]), int(p["job"])))):
        while busy and busy[0][0] <= part["start"]:
            for lane in heapq.heappop(busy)[2]:
                heapq.heappush(free, lane)
        taken = sorted(heapq.heappop(free) for _ in range(min(int(part["gpus"]), len(free))))
        heapq.heappush(busy, (float(part["end"]), k, taken))
        bars += [_bar(part, first + low, count) for low, count in _runs(taken)]
    return bars


def _shared_bars(group: Sequence[Any], lane: int) -> list[_Bar]:
    """Shares of one device, each at the lowest place that no present one holds."""
    bars: list[_Bar] = []
    for part in sorted(group, key=lambda p: (float(p["start"]), int(p["job"]))):
        place = float(lane)
        for other in sorted((b for b in bars if b.end > part["start"]), key=lambda b: b.lane):
            if place + float(part["gpus"]) <= other.lane + 1e-9:
                break
            place = max(place, other.lane + other.height)
        bars.append(_bar(part, place, float(part["gpus"])))
    return bars


def _draw_queue(axes: Axes, result: Result) -> None:
    bins, (_, size) = result.timeline, _unit(_span(result))
    time = bins["time"] / size
    axes.fill_between(time, bins["queue_max"], step="post", color=COLOURS[4], alpha=0.4, lw=0, label="most")
    axes.plot(time, bins["queue"], drawstyle="steps-post", color=COLOURS[0], lw=1.0, label="mean")
    axes.set_ylabel("jobs waiting")
    axes.set_ylim(0, max(1.0, 1.05 * float(bins["queue_max"].max(initial=0.0))))
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    _time_axis(axes, result, size)


def _draw_use(axes: Axes, result: Result) -> None:
    bins, (name, size) = result.timeline, _unit(_span(result))
    time = bins["time"] / size
    axes.fill_between(time, bins["busy"], step="post", color=COLOURS[2], alpha=0.6, lw=0, label="in use")
    axes.plot(time, bins["up"], drawstyle="steps-post", color=GREY, lw=1.0, ls="--", label="up")
    axes.set_ylabel("GPUs")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize=7, frameon=False, ncols=2, loc="upper right", bbox_to_anchor=(1.0, 1.2))
    _time_axis(axes, result, size)
    axes.set_xlabel(name, fontsize=8)


def _time_axis(axes: Axes, result: Result, size: float) -> None:
    low, high = _span(result)
    axes.set_xlim(low / size, high / size)


# ── many schedulers ──


def save_comparison(comparison: Comparison, path: Path) -> None:
    """Means with their intervals: a row per scheduler, a column per metric; the dashed line is the baseline."""
    from gpuyard.cli.compare import numbers

    labels = [clean(line.scheduler) for line in comparison.lines]
    labels = [label if len(label) <= 34 else label[:33] + "…" for label in labels]
    base = [line.scheduler for line in comparison.lines].index(comparison.baseline)
    metrics = comparison.metrics[:8]
    figure = new_figure(2.4 + 1.9 * len(metrics), 1.4 + 0.27 * len(labels))
    panels = figure.subplots(1, len(metrics), sharey=True, squeeze=False)[0]
    for axes, name in zip(panels, metrics, strict=True):
        _draw_metric(axes, numbers(comparison, name), [name in line.best for line in comparison.lines], base)
    panels[0].set_yticks(range(len(labels)), labels)
    panels[0].set_ylim(len(labels) - 0.5, -0.5)
    title = f"{Path(comparison.workload).name} on {comparison.cluster} (estimates: {comparison.estimate}, seeds: {len(comparison.seeds)})"
    figure.suptitle(clean(title), fontsize=11, x=0.01, ha="left")
    write_figure(figure, path)


def _draw_metric(axes: Axes, values: dict[str, Any], best: Sequence[bool], base: int) -> None:
    mean, low, high = (np.array(values[key], dtype=float) for key in ("mean", "low", "high"))
    rows = np.arange(len(mean))
    colours = [COLOURS[5] if b else COLOURS[0] for b in best]
    if np.isfinite(mean[base]):
        axes.axvline(mean[base], color=GREY, lw=0.8, ls="--", zorder=0)
    axes.hlines(rows, np.where(np.isnan(low), mean, low), np.where(np.isnan(high), mean, high), colors=colours, lw=1.6)
    axes.scatter(mean, rows, c=colours, s=[46 if b else 20 for b in best], marker="o", zorder=3)
    scale_to(axes, np.concatenate([low, mean, high]))
    axes.set_title(values["label"], fontsize=9)
    axes.grid(axis="y", color="#eeeeee")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0)


def scale_to(axes: Axes, values: Array) -> None:
    """A logarithmic scale where all values are positive and lie far apart."""
    from matplotlib.ticker import LogLocator

    shown = values[np.isfinite(values)]
    if len(shown) and shown.min() > 0 and shown.max() > LOG_FROM * shown.min():
        axes.set_xscale("log")
        axes.xaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0), numticks=6))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_formatter("")


def scale_differences_to(axes: Axes, values: Array) -> float:
    """A scale on both sides of 0 that is logarithmic beyond where most values lie, if some lie far from them; returns from where, or 0."""
    from matplotlib.ticker import FixedLocator, NullLocator

    sizes = np.abs(values[np.isfinite(values) & (values != 0)])
    if not len(sizes):
        return 0.0
    usual = 10.0 ** np.floor(np.log10(np.median(sizes)))
    if sizes.max() <= LOG_FROM * usual:
        return 0.0
    axes.set_xscale("symlog", linthresh=usual, linscale=1.0)
    steps = [usual / 2] + [usual * factor * 10.0**k for k in range(int(np.log10(sizes.max() / usual)) + 1) for factor in (1.0, 3.0)]
    low, high = (float(end) for end in (np.nanmin(values), np.nanmax(values)))
    ticks = [tick for tick in (*(-step for step in steps[::-1]), 0.0, *steps) if min(low, 0.0) <= tick <= max(high, 0.0)]
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter("{x:,g}")
    return float(usual)
