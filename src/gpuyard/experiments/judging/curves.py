"""The curves that are kept from a Run: distributions over its jobs, and values over time.

Names: `cdf.METRIC`, quantiles of a metric over jobs; `box.GROUP.METRIC`, five quantiles for each group of jobs; `queue`, jobs waiting over
time; `phases.METRIC`, sums of a metric over the jobs that come in each sixth of each phase of a drift; `recovery`, seconds until the queue
has settled after each change of phase.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array, quantiles
from gpuyard.errors import UsageError
from gpuyard.experiments.judging.statistics import paired_difference
from gpuyard.metrics.base import METRICS, values_of
from gpuyard.metrics.groups import GROUPINGS
from gpuyard.metrics.queue import phase_recoveries
from gpuyard.model.result import Result
from gpuyard.registry import unknown_name

LEVELS = np.linspace(0.0, 1.0, 101)  # of a distribution over jobs
BOX = np.array([0.05, 0.25, 0.5, 0.75, 0.95])  # whiskers, box and median
MOST_GROUPS = 12  # those with most jobs
BINS = 120  # of time
PARTS = 6  # of a phase of a drift
RECENT = 50  # tasks that a ratio to the optimum looks back on


@dataclass(frozen=True)
class Curve:
    """Pairs of numbers; `labels` name the x values where these are not quantities."""

    x: Array
    y: Array
    labels: tuple[str, ...] = ()


def curve_of(name: str, result: Result) -> Curve:
    """Compute the curve of that name."""
    kind, _, rest = name.partition(".")
    return _MAKERS[kind](rest, result)


def check_curve(name: str) -> None:
    """Refuse an unknown name."""
    kind, _, rest = name.partition(".")
    if kind not in _MAKERS:
        raise unknown_name("curve", kind, list(_MAKERS))
    if kind in _WHOLE:
        if name != kind:
            raise UsageError(f"curve {name!r}: {kind} is the whole name")
        return
    if kind == "box":
        group, _, rest = rest.partition(".")
        if group not in GROUPINGS:
            raise unknown_name(f"grouping in curve {name!r}:", group, list(GROUPINGS))
    if METRICS[rest].kind != "job":
        raise UsageError(f"curve {name!r}: {rest} has no value for each job")


def _cdf(metric: str, result: Result) -> Curve:
    values = values_of(result, METRICS[metric])
    known = values[np.isfinite(values)]
    return Curve(LEVELS, quantiles(known, LEVELS) if len(known) else np.full(len(LEVELS), np.nan))


def _box(text: str, result: Result) -> Curve:
    """x is the number of the group, five times; the largest groups, in the order of the grouping."""
    by, _, metric = text.partition(".")
    values = values_of(result, METRICS[metric])
    known = np.isfinite(values)
    jobs = result.workload.jobs
    if known.all():  # the groups are those of the workload: they take as long to find as all the rest
        key = f"box {by}"
        if key not in jobs.derived:
            jobs.derived[key] = _largest(*GROUPINGS[by](jobs), known)
        rows, labels = jobs.derived[key]
    else:
        rows, labels = _largest(*GROUPINGS[by](jobs), known)
    y = [quantiles(values[each], BOX) for each in rows]
    x = np.repeat(np.arange(len(rows), dtype=float), len(BOX))
    return Curve(x, np.concatenate(y) if y else np.zeros(0), labels)


def _largest(group: Array, label: Callable[[Array], str], known: Array) -> tuple[list[Array], tuple[str, ...]]:
    """Return the jobs of each of the largest groups among those known, (jobs,) bool, and the labels of these groups."""
    found, sizes = np.unique(group[known], return_counts=True)
    shown = found[np.sort(np.argsort(-sizes, kind="stable")[:MOST_GROUPS])]
    return [known & (group == each) for each in shown], tuple(label(each) for each in shown)


def _queue(text: str, result: Result) -> Curve:
    """The mean queue over each of `BINS` stretches of time, from the first submit to the last end."""
    bins = result.timeline
    if not len(bins):
        return Curve(np.zeros(0), np.zeros(0))
    step = -(-len(bins) // BINS)
    starts = np.arange(0, len(bins), step)
    span = np.add.reduceat(bins["span"], starts)
    held = np.add.reduceat(bins["queue"] * bins["span"], starts)
    return Curve(bins["time"][starts], np.divide(held, span, out=np.zeros(len(starts)), where=span > 0))


def _phases(metric: str, result: Result) -> Curve:
    """x is the begin of each part of each phase, y the sum over the jobs submitted in it; labels name the regimes, once for each phase."""
    values, submit = values_of(result, METRICS[metric]), result.workload.jobs.submit
    starts, labels = [start for start, _ in result.workload.phases], tuple(name for _, name in result.workload.phases)
    if not starts or not len(submit):
        return Curve(np.zeros(0), np.zeros(0))
    ends = [*starts[1:], max(float(submit[-1]), starts[-1])]
    x = np.concatenate([np.linspace(start, end, PARTS, endpoint=False) for start, end in zip(starts, ends, strict=True)])
    part = np.maximum(np.searchsorted(x, submit, side="right") - 1, 0)
    return Curve(x, np.bincount(part, weights=np.nan_to_num(values), minlength=len(x)), labels)


def _recovery(text: str, result: Result) -> Curve:
    """x is when the phase changed, y the seconds until the queue had settled; labels name the new regimes."""
    later = result.workload.phases[1:]
    return Curve(np.array([start for start, _ in later], dtype=float), phase_recoveries(result), tuple(name for _, name in later))


_WHOLE = ("queue", "recovery")  # names without a metric
_MAKERS: Mapping[str, Callable[[str, Result], Curve]] = {
    "cdf": _cdf, "box": _box, "queue": _queue, "phases": _phases, "recovery": _recovery,
}  # fmt: skip


def adaptation(ratios: Sequence[Array], learned: Sequence[float]) -> str:
    """Say whether a strategy adapted: by its time over that of the optimum from task to task in each Run, and by the tasks it learned from.

    `adapted, 1.62 → 1.10 times the optimum's time from the first 50 tasks to the last 50; went on learning, from 486 tasks a run`
    """
    width = min(RECENT, *(len(ratio) for ratio in ratios))
    early, late = (np.array([ratio[at] for ratio in ratios]) for at in (width - 1, -1))
    if np.allclose(early, 1.0) and np.allclose(late, 1.0):
        return "the optimum that the others are compared with"
    change = paired_difference(late, early)
    word = ("adapted" if change.mean < 0 else "fell behind") if change.clear else "no clear change"
    text = f"{word}, {early.mean():.3g} → {late.mean():.3g} times the optimum's time from the first {width} tasks to the last {width}"
    if not learned:
        return text
    mean = np.mean(learned)
    return f"{text}; " + (f"went on learning, from {mean:,.0f} tasks a run" if mean else "stayed as it was trained")
