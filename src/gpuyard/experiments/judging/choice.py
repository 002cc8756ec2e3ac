"""Corrects the gain of the best of several schedulers for having been chosen on the very runs that judge it, and finds its peers.

The best mean of many owes part of its lead to luck. So every part of the runs, a block of time of a log or a seed, is judged by the
scheduler that is best on all other parts (cross-validation: Stone 1974). What was chosen without a part does not know its luck, so the
mean of these gains is that of a choice on nearly as many runs: right on average, or a little too small.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.statistics import FEWEST, Difference, paired_difference, time_blocks
from gpuyard.experiments.judging.summary import MINIMUM, Pivot, Standing, Summary, against, by_blocks, units
from gpuyard.metrics import resolve


def gain_of_choice(summary: Summary, candidates: Sequence[str], baseline: str) -> Difference | None:
    """The difference to the baseline of the best candidate on the first objective, chosen part by part without that part.

    None where there are no parts: fewer than five seeds, or one sample whose objective is not a mean over jobs.
    """
    sign, sample = MINIMUM[resolve(summary.table.objective)[0].better], summary.results.sample
    if sample is not None:
        if not {*candidates, baseline} <= set(sample.per_job):
            return None
        values, base = np.stack([sample.per_job[name] for name in candidates]), sample.per_job[baseline]
        parts = time_blocks(np.where(np.isnan(values).any(axis=0), np.nan, base), sample.submit, FEWEST)
        return by_blocks(chosen_elsewhere(values, parts, sign), base, sample.submit, sign).difference if parts.max() > 0 else None
    pivot = Pivot(summary.results)
    each = {name: units(pivot.values(summary.table.objective, name), windows=pivot.windows)[-1] for name in (*candidates, baseline)}
    values, base = np.stack([each[name] for name in candidates]), each[baseline]
    if len(base) < FEWEST:
        return None
    return paired_difference(chosen_elsewhere(values, np.arange(len(base)), sign), base, better="lower" if sign > 0 else "higher")


def chosen_elsewhere(values: Array, parts: Array, sign: float) -> Array:
    """(n,) of the values (candidates, n) those of the candidate with the best mean over all other parts; `parts` (n,): below 0 is none.

    `sign`: −1 where higher is better. What has no value counts in no mean.
    """
    found = np.full(values.shape[1], np.nan)
    known = np.isfinite(values) & (parts >= 0)
    for part in np.unique(parts[parts >= 0]):
        inside = parts == part
        others = known & ~inside
        count = others.sum(axis=1)
        total = np.where(others, values, 0.0).sum(axis=1)
        means = np.divide(sign * total, count, out=np.full(len(values), np.inf), where=count > 0)
        found[inside] = values[int(np.argmin(means)), inside]
    return found


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
