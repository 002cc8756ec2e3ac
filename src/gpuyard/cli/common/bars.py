"""Bars in the terminal: who gains and who pays, by the length of the jobs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuyard.experiments.judging.answering.plain import PlainAnswer
    from gpuyard.experiments.judging.summary import Summary

WIDTH = 24  # columns of the longest bar
_EIGHTHS = " ▏▎▍▌▋▊▉█"


def gains_chart(summary: Summary, answer: PlainAnswer) -> list[str]:
    """A line for each class of lengths: how its mean wait changes from today to the best scheduler; none where nothing is compared."""
    from gpuyard.experiments.judging.answering.names import duration, in_sentence
    from gpuyard.experiments.judging.answering.plain import shows_gains
    from gpuyard.experiments.judging.answering.waits import LENGTH
    from gpuyard.experiments.judging.text import short

    found, waits = answer.verdict, summary.results.waits
    if found is None or waits is None or not shows_gains(summary, found):
        return []
    changes = [each for each in waits.changes(LENGTH, found.best.scheduler, found.today.scheduler) if math.isfinite(each.share.mean)]
    if not changes:
        return []
    wide = max(len(each.group) for each in changes)
    most = max(max(each.before, each.after) for each in changes) or 1.0
    before, after = (in_sentence(summary.results.name(line.scheduler)) for line in (found.today, found.best))
    lines = [f"Mean wait by length of the job: {before} (░), {after} (█)"]
    for each in changes:
        lines.append(f"  {each.group:<{wide}}  {bar(each.before / most, '░')} {duration(each.before)}")
        share = short(abs(100 * each.share.mean))
        less = "the same" if share == "0" else f"{share} % {'shorter' if each.share.mean < 0 else 'longer'}"
        lines.append(f"  {'':<{wide}}  {bar(each.after / most)} {duration(each.after)}, {less}")
    return [*lines, ""]


def bar(share: float, fill: str = "") -> str:
    """A bar of that share of the width, to an eighth of a column; or of whole columns of `fill`."""
    if fill:
        return fill * max(round(share * WIDTH), 1 if share > 0 else 0)
    eighths = round(share * WIDTH * 8)
    return "█" * (eighths // 8) + _EIGHTHS[eighths % 8].strip()
