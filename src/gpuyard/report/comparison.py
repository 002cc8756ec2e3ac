"""Schedulers side by side, as `gpuyard compare` has them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.report.drawing import COLOURS, GREY, new_figure, scale_to, write_figure
from gpuyard.report.text import clean, short, shown_unit

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpuyard.experiments.judging.comparison import Comparison


def numbers(comparison: Comparison, name: str) -> dict[str, Any]:
    """Means and intervals of one metric in the unit that is shown."""
    values = [line.values[name] for line in comparison.lines]
    label, size = shown_unit(name, [value.mean for value in values])
    return {
        "label": f"{name} ({label})" if label else name,
        "mean": [v.mean / size for v in values], "low": [v.low / size for v in values], "high": [v.high / size for v in values],
        "text": [short(v.mean / size) for v in values],
    }  # fmt: skip


def save_comparison(comparison: Comparison, path: Path) -> None:
    """Means with their intervals: a row per scheduler, a column per metric; the dashed line is the baseline."""
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
