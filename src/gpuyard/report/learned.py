"""Figures of what learned policies look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.experiments.judging.text import short
from gpuyard.model.units import clean
from gpuyard.report.charts import GREY, PALETTE
from gpuyard.report.drawing import new_figure, write_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpuyard.experiments.studies.explaining import Explanation

LONGEST = 34  # characters of a label
MOST_FEATURES = 16
MOST_CURVES = 6
MOST_CHOICES = 240  # of a run that a reader can still distinguish
LEARNED, OTHERS = PALETTE[1], PALETTE[0]


def _short_label(text: str) -> str:
    """Cut a label to fit; the end of a path says more than its beginning."""
    shown = clean(text)
    return shown if len(shown) <= LONGEST else "…" + shown[-(LONGEST - 1) :]


def has_values_over_time(explanation: Explanation) -> bool:
    """Whether there is a second figure."""
    return bool(explanation.actions and explanation.over_time)


def over_time_name(name: str) -> str:
    """Return the name of the second figure, without its suffix."""
    return f"{name}-over-time"


def save_explanation(explanation: Explanation, paths: Sequence[Path]) -> None:
    """Draw importance and partial dependence of features, and choices by regime or likeness to heuristics; a second figure has Q-values."""
    features = explanation.features[:MOST_FEATURES]
    count = len(features)
    figure = new_figure(12.5, 2.2 + 0.26 * max(count, 10))
    importance, dependence, choices = figure.subplots(1, 3, width_ratios=[1.15, 1.0, 1.1])
    _draw_importance(importance, features)
    _draw_dependence(dependence, explanation)
    if explanation.actions:
        _draw_regimes(choices, explanation)
    else:
        _draw_likeness(choices, explanation)
    title = f"{explanation.checkpoint}: {explanation.decisions:,} decisions on {explanation.workloads}"
    figure.suptitle(clean(title if len(title) < 130 else title[:129] + "…"), fontsize=10, x=0.01, ha="left")
    for path in paths:
        write_figure(figure, path)
    if has_values_over_time(explanation):
        over_time = new_figure(10.0, 4.6)
        _draw_over_time(over_time, explanation)
        for path in paths:
            write_figure(over_time, path.with_name(over_time_name(path.stem) + path.suffix))


def _draw_importance(axes: Axes, features: Sequence[Any]) -> None:
    rows = np.arange(len(features))
    axes.barh(rows - 0.19, [100 * f.changed for f in features], height=0.38, color=OTHERS, label="choices that change")
    worse = np.array([100 * f.worse for f in features])
    axes.barh(rows + 0.19, np.clip(worse, -100, 100), height=0.38, color=LEARNED, label="objective worse by")
    for row, value in zip(rows, worse, strict=True):
        if abs(value) > 100:
            axes.text(np.sign(value) * 100, row + 0.19, f" {short(value)} %", fontsize=6, va="center", color=LEARNED)
    axes.axvline(0.0, color=GREY, lw=0.6)
    axes.set_xlabel("% when the feature is permuted", fontsize=8)
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    _name_rows(axes, "importance", [f.name for f in features])


def _name_rows(axes: Axes, title: str, names: Sequence[str], size: int = 8) -> None:
    """Write the title, and a name at each row of bars, the first on top."""
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_title(title, fontsize=9)
    axes.tick_params(axis="y", length=0, labelsize=size)
    axes.tick_params(axis="x", labelsize=7)


def _legend_below(axes: Axes, columns: int, size: float = 7) -> None:
    axes.legend(fontsize=size, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=columns)


def _draw_dependence(axes: Axes, explanation: Explanation) -> None:
    shown = [f for f in explanation.features if len(f.curve)][:MOST_CURVES]
    for colour, feature in zip(PALETTE, shown, strict=False):
        place = np.linspace(0, 100, len(feature.curve))
        axes.plot(place, 100 * np.array(feature.curve), color=colour, lw=1.6, marker="o", ms=2.5, label=f"{feature.name}: {feature.of}")
    axes.set_xlabel("the feature's percentile", fontsize=8)
    axes.set_ylabel("%", fontsize=8)
    axes.set_ylim(-3, 103)
    axes.set_title("partial dependence", fontsize=9)
    _legend_below(axes, 2, 6.5)
    axes.tick_params(labelsize=7)


def _draw_regimes(axes: Axes, explanation: Explanation) -> None:
    regimes = explanation.regimes
    left = np.zeros(len(regimes))
    rows = np.arange(len(regimes))
    for k, action in enumerate(explanation.actions):
        part = np.array([100 * regime.shares[k] for regime in regimes])
        axes.barh(rows, part, left=left, color=PALETTE[k % len(PALETTE)], label=action, height=0.75)
        left += part
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of choices", fontsize=8)
    _legend_below(axes, 3)
    _name_rows(axes, "choices by regime", [_short_label(regime.name) for regime in regimes], 7)


def _draw_likeness(axes: Axes, explanation: Explanation) -> None:
    rows = np.arange(len(explanation.likeness))
    same = [100 * each.same for each in explanation.likeness]
    rank = [100 * each.rank for each in explanation.likeness]
    ranked = bool(np.isfinite(rank).any())
    axes.barh(rows - (0.19 if ranked else 0.0), same, height=0.38 if ranked else 0.6, color=OTHERS, label="same choice, %")
    if ranked:
        axes.barh(rows + 0.19, rank, height=0.38, color=PALETTE[4], label="rank correlation × 100")
    axes.axvline(0.0, color=GREY, lw=0.6)
    _legend_below(axes, 2)
    _name_rows(axes, "like which heuristic", [each.name for each in explanation.likeness])


def _draw_over_time(figure: Any, explanation: Explanation) -> None:
    """Draw the scores of each scheduler over one run, and below which one was in use."""
    scores, use = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.2])
    values = np.array(explanation.over_time)[:MOST_CHOICES]  # (decisions, actions)
    hours = np.array(explanation.times)[:MOST_CHOICES] / 3600.0
    for k, action in enumerate(explanation.actions):
        above = values[:, k] - values.mean(axis=1)  # the level, common to all, would hide what tells them apart
        scores.plot(hours, above, color=PALETTE[k % len(PALETTE)], lw=1.0, label=action)
    chosen = values.argmax(axis=1)
    use.scatter(hours, chosen, c=[PALETTE[k % len(PALETTE)] for k in chosen], s=9, marker="s")
    use.set_yticks(range(len(explanation.actions)), explanation.actions)
    use.set_ylim(len(explanation.actions) - 0.5, -0.5)
    use.set_xlabel("hours", fontsize=8)
    use.tick_params(labelsize=7, length=0)
    scores.set_ylabel("value above the mean\nof all choices", fontsize=8)
    scores.axhline(0.0, color=GREY, lw=0.6)
    scores.tick_params(labelsize=7)
    scores.legend(fontsize=7, frameon=False, ncols=min(len(explanation.actions), 6), loc="upper center", bbox_to_anchor=(0.5, 1.14))
    count = len(explanation.times)
    shown = f"the first {MOST_CHOICES} of {count:,} choices" if count > MOST_CHOICES else f"{count:,} choices"
    figure.suptitle(clean(f"values of the choices over one run, {shown}: {explanation.run}"), fontsize=9, x=0.01, ha="left")
