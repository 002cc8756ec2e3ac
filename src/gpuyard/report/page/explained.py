"""The page of `explain`: what a trained policy looks at, and what it chooses when."""

from __future__ import annotations

import base64
import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from gpuyard.experiments.judging.text import count, readable, short
from gpuyard.report.page.dots import Dot, dot_chart, round_scale
from gpuyard.report.page.frame import ReportPage, document, text
from gpuyard.report.page.made import made_by
from gpuyard.report.page.parts import TableCell, TableRow, card, facts, grid, sentences, table

if TYPE_CHECKING:
    from gpuyard.experiments.studies.explaining import Explanation

MOST_SERIES = 6  # features in the chart
MOST_ROWS = 14  # features in the table on paper
MOST_BARS = 6


def explanation_page(
    explanations: Sequence[Explanation], answers: Sequence[str], pictures: Sequence[Mapping[str, bytes]], command: str
) -> str:
    """Write the page of explanations with a sentence and with figures (title → PNG) for each."""
    first = explanations[0]
    names = [readable(each.checkpoint, 60) for each in explanations]
    others = [(f"Features of {name}", feature_table(each, len(each.features))) for name, each in zip(names, explanations, strict=True)]
    figures = [
        (f"{title}: {name}", f'<div class="box picture" tabindex="0" role="region" aria-label="figure">{_image(title, data)}</div>')
        for name, found in zip(names, pictures, strict=True)
        for title, data in found.items()
    ]
    asked = names[0] if len(names) == 1 else f"{len(names)} trained policies"
    paper = f'<div class="print"><h2>Features</h2>{feature_table(first, MOST_ROWS)}</div>'
    return document(ReportPage(
        [asked, f"{first.decisions:,} decisions in {count(first.episodes, 'run')}", readable(first.workloads, 60)],
        f"What does {asked} look at?", text(readable(answers[0], 400)),
        [grid([_hero(first), _choices(first)], "hero"), _further(answers[1:]), grid([_trust(first), _next_steps()], "tell")],
        [paper], [*figures, *others], [_made(explanations, command)],
    ))  # fmt: skip


def _image(title: str, data: bytes) -> str:
    return f'<img alt="{text(title)}" src="data:image/png;base64,{base64.b64encode(data).decode()}">'


def _hero(found: Explanation) -> str:
    """How many choices change when a feature is permuted."""
    features = sorted((each for each in found.features if each.changed > 0), key=lambda each: -each.changed)[:MOST_SERIES]
    dots = [
        Dot(each.name, "of the choice" if each.of_row else "of the situation", 100 * each.changed, math.nan, math.nan, "base",
            f"{short(100 * each.changed)} %")
        for each in features
    ]  # fmt: skip
    if not dots:
        return card("No feature matters", '<p class="sub">No choice changes, whichever feature is permuted.</p>')
    title = f"{dots[0].name} matters most: {dots[0].shown} of the choices hang on it"
    left = len(found.features) - len(dots)
    sub = "Choices that become others when a feature takes values that it had in other decisions, %."
    return card(
        title, dot_chart(dots, round_scale(dots, math.nan, ""), title), sub=f"{sub} {left} more features are in the table." if left else sub
    )


def _choices(found: Explanation) -> str:
    """Show what it chooses how often, or which heuristic it is like."""
    if found.regimes:
        shares = sorted(zip(found.actions, found.regimes[0].shares, strict=True), key=lambda pair: -pair[1])[:MOST_BARS]
        return card("What it chooses", share_bars(shares), sub="Share of its choices")
    likeness = [(each.name, each.same) for each in found.likeness if each.decisions][:MOST_BARS]
    if not likeness:
        return ""
    return card("Which heuristic it is like", share_bars(likeness), sub="Share of the decisions in which both choose the same")


def share_bars(shares: Sequence[tuple[str, float]]) -> str:
    """A bar for each share."""
    parts = (
        f'<span class="name">{text(name)}</span><span class="bar" style="width:{100 * min(max(share, 0.0), 1.0):.0f}%"></span>'
        f"<span>{100 * share:.0f} %</span>"
        for name, share in shares
    )
    return f'<div class="bars">{"".join(parts)}</div>'


def _further(answers: Sequence[str]) -> str:
    return card("The others", sentences(readable(each, 300) for each in answers[:MOST_BARS])) if answers else ""


def feature_table(found: Explanation, most: int) -> str:
    """Features with what changes when they are permuted, the most important first."""
    rows = [
        TableRow(each.name, [
            TableCell("choice" if each.of_row else "situation", kind="text"), _percent(each.changed), _percent(each.worse),
            TableCell(f"{each.of}: {100 * each.curve[0]:.0f} → {100 * each.curve[-1]:.0f} %" if each.curve else "", kind="text"),
        ])
        for each in found.features[:most]
    ]  # fmt: skip
    caption = (
        f"When a feature is permuted: choices that become others, and by how much {found.objective} of whole runs gets worse. Last column:"
        " from the feature's lowest values to its highest."
    )
    return table(["feature", "of the", "choices that change", f"{found.objective} worse", "partial dependence"], rows, caption=caption)


def _percent(share: float) -> TableCell:
    return TableCell("–" if math.isnan(share) else f"{short(100 * share)} %")


def _trust(found: Explanation) -> str:
    empty = f"; {count(found.empty, 'further run')} had no choice" if found.empty else ""
    lines = [f"It rests on {found.decisions:,} decisions in {count(found.episodes, 'run')}{empty}."]
    lines += ["Features that go together share their importance: one of two alike may look as if it did not matter."]
    lines += ["It says what the policy does, not whether that is good."]
    return card("How far to trust it", sentences(lines))


def _next_steps() -> str:
    steps = [
        "See whether it is good: gpuyard evaluate CHECKPOINT.",
        "Open the parts below: all features, and what it prefers from their lowest to their highest values.",
    ]
    return card("What to do next", sentences(steps, ordered=True))


def _made(explanations: Sequence[Explanation], command: str) -> str:
    first = explanations[0]
    rows = {
        "checkpoints": text("; ".join(readable(each.checkpoint, 80) for each in explanations)), "decision": text(first.decision),
        "workloads": text(readable(first.workloads, 200)), "objective": text(first.objective),
        "importance": text("by permutation, in whole runs"),
    }  # fmt: skip
    return f"<h2>How this was made</h2>{facts(rows | made_by(command))}"
