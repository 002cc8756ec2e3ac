"""Schedulers that may be as good as the best: who reads that one wins should know which others are not surely behind it."""

from __future__ import annotations

from collections.abc import Sequence

from gpuyard.experiments.judging.answering.names import amount, in_sentence
from gpuyard.experiments.judging.summary import MINIMUM, Pivot, Standing, Summary, against, by_blocks
from gpuyard.metrics import resolve

MOST = 3  # that are named


def peers_of(summary: Summary, best: Standing, known: Sequence[Standing]) -> list[Standing]:
    """The others of `known` that are not surely worse than the best on the first metric, the best mean first.

    The best is paired with each by seed or by blocks of time. It was chosen for its mean, so luck speaks for it: who is listed may well
    be as good, who is not listed may be, too.
    """
    sign = MINIMUM[resolve(summary.metrics[0])[0].better]
    alike = [line for line in known if line is not best and not _surely_worse(summary, line.scheduler, best.scheduler, sign)]
    return sorted(alike, key=lambda line: sign * line.values[summary.metrics[0]].mean)


def _surely_worse(summary: Summary, who: str, best: str, sign: float) -> bool:
    metric, sample = summary.metrics[0], summary.results.sample
    if sample is None:
        pivot = Pivot(summary.results)
        return against(pivot, pivot.values(metric, who), pivot.values(metric, best), sign).better is False
    if not {who, best} <= set(sample.per_job):
        return True  # not a mean over jobs: nothing can be said
    return by_blocks(sample.per_job[who], sample.per_job[best], sample.submit, sign).better is False


def peers_sentence(summary: Summary, found: Sequence[Standing]) -> list[str]:
    """`Not surely worse: smallest area first + EASY (33.6 min) and shortest job first + EASY (33.6 min).`; empty where there are none."""
    if not found:
        return []
    metric, name = summary.metrics[0], summary.results.name
    told = [f"{in_sentence(name(line.scheduler))} ({amount(metric, line.values[metric].mean)})" for line in found[:MOST]]
    told += [f"{len(found) - MOST} more"] * (len(found) > MOST)
    return [f"Not surely worse: {', '.join(told[:-1])}{' and ' if len(told) > 1 else ''}{told[-1]}."]
