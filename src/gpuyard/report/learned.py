"""Figures of learned policies: how good they are beside the baselines, and what they look at."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.report.comparison import numbers
from gpuyard.report.drawing import COLOURS, GREY, new_figure, scale_differences_to, scale_to, write_figure
from gpuyard.report.text import clean, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from gpuyard.experiments.judging.comparison import Comparison
    from gpuyard.experiments.studies.explaining import Explanation

LONGEST = 34  # characters of a label
MOST_FEATURES = 16
MOST_CHOICES = 240  # of a run, that can still be told apart
LEARNED, OTHERS = COLOURS[5], COLOURS[0]


def _short_label(text: str) -> str:
    """A label that fits; of a path the end tells more."""
    shown = clean(text)
    return shown if len(shown) <= LONGEST else "…" + shown[-(LONGEST - 1) :]


def save_evaluation(comparison: Comparison, challengers: Sequence[str], paths: Sequence[Path]) -> None:
    """Left: the mean of the primary metric of each scheduler with its interval; right: the paired difference to the best baseline."""
    from gpuyard.experiments.judging.statistics import FEWEST
    from gpuyard.metrics import resolve

    lines = comparison.lines
    colours = [LEARNED if line.scheduler in challengers else OTHERS for line in lines]
    values = numbers(comparison, comparison.primary)
    found, _ = resolve(comparison.primary)
    figure = new_figure(9.5, 1.7 + 0.3 * len(lines))
    means, differences = figure.subplots(1, 2, sharey=True)
    _intervals(means, values["mean"], values["low"], values["high"], colours)
    scale_to(means, np.array([values[key] for key in ("mean", "low", "high")], dtype=float))
    means.set_xlabel(f"{values['label']}, {found.better} is better", fontsize=8)
    base = next(line for line in lines if line.scheduler == comparison.baseline)
    size = abs(base.values[comparison.primary].mean) or 1.0
    changes = [line.change for line in lines]
    parts = [[100 * getattr(c, name) / size if c else 0.0 for c in changes] for name in ("mean", "low", "high")]
    _intervals(differences, parts[0], parts[1], parts[2], colours)
    differences.axvline(0.0, color=GREY, lw=0.8, ls="--", zorder=0)
    beyond = scale_differences_to(differences, np.array(parts, dtype=float))
    scale = f"; logarithmic beyond ±{beyond:,g}" if beyond else ""
    differences.set_xlabel(f"% of {_short_label(comparison.baseline)}, the best baseline{scale}", fontsize=8)
    means.set_title("mean", fontsize=9)
    differences.set_title("paired difference", fontsize=9)
    means.set_yticks(range(len(lines)), [_short_label(line.scheduler) for line in lines])
    means.set_ylim(len(lines) - 0.5, -0.5)
    sure = "95 % intervals" if len(comparison.seeds) >= FEWEST else "with their ranges"
    title = f"{comparison.workload} on {comparison.cluster}: {len(comparison.seeds)} runs, {sure}"
    figure.suptitle(clean(title if len(title) < 110 else title[:109] + "…"), fontsize=10, x=0.01, ha="left")
    for path in paths:
        write_figure(figure, path)


def _intervals(axes: Axes, mean: Sequence[float], low: Sequence[float], high: Sequence[float], colours: Sequence[str]) -> None:
    rows, middle = np.arange(len(mean)), np.array(mean, dtype=float)
    ends = [np.where(np.isnan(np.array(end, dtype=float)), middle, np.array(end, dtype=float)) for end in (low, high)]
    axes.hlines(rows, ends[0], ends[1], colors=list(colours), lw=1.8)
    axes.scatter(middle, rows, c=list(colours), s=26, zorder=3)
    axes.grid(axis="y", color="#eeeeee")
    axes.tick_params(axis="x", labelsize=7)
    axes.tick_params(axis="y", length=0, labelsize=8)


# ── what a policy looks at ──


def has_values_over_time(explanation: Explanation) -> bool:
    """Whether there is a second figure."""
    return bool(explanation.actions and explanation.over_time)


def over_time_name(name: str) -> str:
    """Of the second figure, without its suffix."""
    return f"{name}-over-time"


def save_explanation(explanation: Explanation, paths: Sequence[Path]) -> None:
    """Importance of features, their partial dependence, and choices by regime or likeness to heuristics; a second figure has Q-values."""
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
    axes.set_yticks(rows, [f.name for f in features])
    axes.set_ylim(len(features) - 0.5, -0.5)
    axes.axvline(0.0, color=GREY, lw=0.6)
    axes.set_xlabel("% when the feature is permuted", fontsize=8)
    axes.set_title("importance", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="lower right")
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(axis="x", labelsize=7)


def _draw_dependence(axes: Axes, explanation: Explanation) -> None:
    shown = [f for f in explanation.features if len(f.curve)][: len(COLOURS) - 1]
    for colour, feature in zip(COLOURS, shown, strict=False):
        place = np.linspace(0, 100, len(feature.curve))
        axes.plot(place, 100 * np.array(feature.curve), color=colour, lw=1.6, marker="o", ms=2.5, label=f"{feature.name}: {feature.of}")
    axes.set_xlabel("the feature's percentile", fontsize=8)
    axes.set_ylabel("%", fontsize=8)
    axes.set_ylim(-3, 103)
    axes.set_title("partial dependence", fontsize=9)
    axes.legend(fontsize=6.5, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    axes.tick_params(labelsize=7)


def _draw_regimes(axes: Axes, explanation: Explanation) -> None:
    regimes = explanation.regimes
    left = np.zeros(len(regimes))
    rows = np.arange(len(regimes))
    for k, action in enumerate(explanation.actions):
        part = np.array([100 * regime.shares[k] for regime in regimes])
        axes.barh(rows, part, left=left, color=(*COLOURS, GREY)[k % 8], label=action, height=0.75)
        left += part
    axes.set_yticks(rows, [f"{_short_label(regime.name)}" for regime in regimes])
    axes.set_ylim(len(regimes) - 0.5, -0.5)
    axes.set_xlim(0, 100)
    axes.set_xlabel("% of choices", fontsize=8)
    axes.set_title("choices by regime", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=3)
    axes.tick_params(axis="y", length=0, labelsize=7)
    axes.tick_params(axis="x", labelsize=7)


def _draw_likeness(axes: Axes, explanation: Explanation) -> None:
    rows = np.arange(len(explanation.likeness))
    same = [100 * each.same for each in explanation.likeness]
    rank = [100 * each.rank for each in explanation.likeness]
    ranked = bool(np.isfinite(rank).any())
    axes.barh(rows - (0.19 if ranked else 0.0), same, height=0.38 if ranked else 0.6, color=OTHERS, label="same choice, %")
    if ranked:
        axes.barh(rows + 0.19, rank, height=0.38, color=COLOURS[1], label="rank correlation × 100")
    axes.set_yticks(rows, [each.name for each in explanation.likeness])
    axes.set_ylim(len(rows) - 0.5, -0.5)
    axes.axvline(0.0, color=GREY, lw=0.6)
    axes.set_title("like which heuristic", fontsize=9)
    axes.legend(fontsize=7, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12), ncols=2)
    axes.tick_params(axis="y", length=0, labelsize=8)
    axes.tick_params(axis="x", labelsize=7)


def _draw_over_time(figure: Any, explanation: Explanation) -> None:
    """Scores of each scheduler over one run, and below which one was in use."""
    scores, use = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1.2])
    values = np.array(explanation.over_time)[:MOST_CHOICES]  # (decisions, actions)
    hours = np.array(explanation.times)[:MOST_CHOICES] / 3600.0
    for k, action in enumerate(explanation.actions):
        above = values[:, k] - values.mean(axis=1)  # the level, common to all, would hide what tells them apart
        scores.plot(hours, above, color=(*COLOURS, GREY)[k % 8], lw=1.0, label=action)
    chosen = values.argmax(axis=1)
    use.scatter(hours, chosen, c=[(*COLOURS, GREY)[k % 8] for k in chosen], s=9, marker="s")
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
