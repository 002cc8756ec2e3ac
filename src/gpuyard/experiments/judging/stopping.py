"""Judge what it is worth to stop running jobs: effects against the baseline at every place that is varied, who pays, and the words.

An effect is a mean over workloads that all count alike: each one's values are divided by the baseline's mean there, or the workload with
the longest waits would decide. Intervals are over seeds (of logs: windows), paired. A study is about stopping if it varies `share`, that
of the jobs that may be stopped.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.design.cells import column
from gpuyard.experiments.judging.statistics import FEWEST, Interval, holm
from gpuyard.experiments.judging.summary import MINIMUM, Pivot, Summary, against
from gpuyard.experiments.judging.text import change_in_words, metric_title, rounded
from gpuyard.experiments.running.results import Results
from gpuyard.metrics import resolve

SHARE = "share"
MOST_NAMED = 3  # places where a scheduler is worse
SURE = 0.05  # p values below it, after correction
DELAY, SLOWDOWN, STOPS, MOST_STOPS, LONGEST, TAIL, LOST = (
    "delay", "bsld", "preemptions", "preemptions.max", "delay.max", "delay.p99", "lost_share",
)  # fmt: skip
CLASSES: Mapping[str, str] = {  # metric → whose wait it is
    "delay_preemptible": "jobs that may be stopped", "delay_others": "the others", "delay_small": "small jobs",
    "delay_medium": "medium jobs", "delay_large": "large jobs", "delay_worst_users": "worst-off users",
}  # fmt: skip


@dataclass(frozen=True)
class Effect:
    """A scheduler against the baseline on some Runs."""

    share: Interval  # of the baseline's value; below 0: less
    p: float  # not corrected


def is_about_stopping(results: Results) -> bool:
    """Whether the experiment varies how many jobs may be stopped, names a baseline and a challenger, and measures what is compared here."""
    experiment = results.experiment
    shares = [_number(value) for value in experiment.vary.get(SHARE, ())]
    named = bool(experiment.judge.baseline and experiment.judge.challengers)
    return bool(shares) and None not in shares and named and {DELAY, SLOWDOWN} <= set(results.columns)


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def places(results: Results) -> list[dict[str, str]]:
    """List the places of the experiment as what differs from the centre; the centre is empty."""
    centre = results.experiment.centre
    return [{name: value for name, value in place.items() if value != centre[name]} for place in results.experiment.places]


def rows_at(results: Results, place: Mapping[str, str], workload: str = "") -> Array:
    """(runs,) bool: the Runs at a place, given as what differs from the centre; of one workload or of all."""
    wanted = {column(name): value for name, value in {**results.experiment.centre, **place}.items()}
    return results.where(**wanted, **({"workload": workload} if workload else {}))


def effect(results: Results, metric: str, scheduler: str, rows: Array) -> Effect | None:
    """Compare a scheduler with the baseline on some Runs; None where there is nothing to compare, such as the wait of no jobs."""
    if metric not in results.columns:
        return None
    pivot, baseline = Pivot(results, rows), results.experiment.judge.baseline
    mine, base = pivot.values(metric, scheduler), pivot.values(metric, baseline)
    size = _means(base)
    if not np.isfinite(size).any():
        return None
    found = against(pivot, mine / size, base / size, MINIMUM[resolve(metric)[0].better])
    return None if math.isnan(found.share) else Effect(found.share_interval, found.difference.p)


def _means(values: Array) -> Array:
    """Return (1, cells, 1): the mean of each workload over seeds; nan where none is above 0."""
    known = np.where(np.isfinite(values), values, 0.0).sum(axis=(0, 2), keepdims=True)
    count = np.isfinite(values).sum(axis=(0, 2), keepdims=True)
    made: Array = np.divide(known, count, out=np.full(known.shape, np.nan), where=(count > 0) & (known > 0))
    return made


def level(results: Results, metric: str, scheduler: str, rows: Array) -> float:
    """Return the mean of a metric over some Runs; nan where it is not measured."""
    if metric not in results.columns:
        return math.nan
    chosen = results.columns[metric][rows & results.where(scheduler=scheduler)].astype(float)
    chosen = chosen[np.isfinite(chosen)]
    return float(chosen.mean()) if len(chosen) else math.nan


def stopping(results: Results) -> list[str]:
    """List the schedulers that stopped some job."""
    stops = results.columns[STOPS] if STOPS in results.columns else np.zeros(len(results))
    return [name for name in results.schedulers if (stops[results.where(scheduler=name)] > 0).any()]


# ── in words ──


def _of_share(share: float) -> str:
    words = {0.0: "no job may be stopped", 1.0: "all jobs may be stopped"}
    return words.get(share, f"{100 * share:g} % of the jobs may be stopped")


_AS_PLACE: Mapping[str, Callable[[float], str]] = {
    SHARE: _of_share,
    "restart": lambda seconds: f"a restart takes {seconds:g} s" if seconds else "a restart takes no time",
    "interval": lambda seconds: f"checkpoints are written every {seconds / 60:g} min",
    "cost": lambda share: f"checkpoints cost {100 * share:g} % of the time" if share else "checkpoints cost nothing",
    "load": lambda load: f"the load is {load:.1f}",
}


def in_words(place: Mapping[str, str]) -> str:
    """`20 % of the jobs may be stopped, a restart takes 300 s`; what has no words of its own, or is not a number, as it is written."""
    numbers = {name: _number(value) for name, value in place.items() if name in _AS_PLACE}
    told = {name: _AS_PLACE[name](number) for name, number in numbers.items() if number is not None}
    return ", ".join(told.get(name, f"{name} = {value}") for name, value in place.items())


def stopping_lead(summary: Summary) -> list[str]:
    """Answer an operator at the centre: what each challenger gains, and what it costs."""
    results = summary.results
    return [_answer(results, name) for name in results.experiment.judge.challengers]


def _answer(results: Results, name: str) -> str:
    rows, judge = rows_at(results, {}), results.experiment.judge
    found = {metric: effect(results, metric, name, rows) for metric in (DELAY, SLOWDOWN, LONGEST)}
    classes = ((words, effect(results, metric, name, rows)) for metric, words in list(CLASSES.items())[:2])
    parts = [f"mean wait {moved(found[DELAY])}", f"mean bounded slowdown {moved(found[SLOWDOWN])}"]
    parts += [f"the mean wait of {words} {moved(each)}" for words, each in classes if each is not None]
    parts += [f"the longest wait {moved(found[LONGEST])}"] if found[LONGEST] is not None else []
    place = in_words(results.experiment.centre)
    return f"If {place}: with {name} instead of {judge.baseline}, {'; '.join(parts)}.{_price(results, name, rows)}"


def _price(results: Results, name: str, rows: Array) -> str:
    """Say how often jobs are stopped and what is lost, as far as the experiment measures it."""
    stops, lost = level(results, STOPS, name, rows), level(results, LOST, name, rows)
    told = []
    if math.isfinite(stops):
        told = [f"a job is stopped {rounded(stops, 1.0, most=2)} times on average"]
        if MOST_STOPS in results.columns:
            told[0] += f", the most stopped one {_largest(results, MOST_STOPS, name, rows):,.0f} times"
    if math.isfinite(lost):
        told.append(f"{rounded(100 * lost, 1.0, most=1)} % of the GPU time held is lost")
    text = "; ".join(told)
    return f" {text[0].upper()}{text[1:]}." if text else ""


def _largest(results: Results, metric: str, scheduler: str, rows: Array) -> float:
    values = results.columns[metric][rows & results.where(scheduler=scheduler)]
    return float(np.nanmax(values, initial=0.0))


def moved(found: Effect | None) -> str:
    """`falls by 41 % (between 30 and 52 %)`, or that nothing is clear."""
    return "is not known" if found is None else change_in_words(found.share)


def stopping_findings(summary: Summary) -> list[str]:
    """Say who pays, what every place does to the gain, and where a challenger is clearly worse than the baseline."""
    results = summary.results
    found = []
    for name in results.experiment.judge.challengers:
        found += [_who(results, name), *_places(results, name), _harm(results, name)]
    return found


def _who(results: Results, name: str) -> str:
    rows = rows_at(results, {})
    parts = [(words, effect(results, metric, name, rows)) for metric, words in CLASSES.items()]
    told = [f"that of {words} {moved(each)}" for words, each in parts if each is not None]
    every = moved(effect(results, DELAY, name, rows))
    tail = moved(effect(results, TAIL, name, rows))
    return f"Who pays with {name}: the mean wait of all jobs {every}; {'; '.join(told)}. The 99th percentile of wait {tail}."


def _places(results: Results, name: str) -> Iterator[str]:
    for place in places(results)[1:]:
        wait, slowdown = (effect(results, metric, name, rows_at(results, place)) for metric in (DELAY, SLOWDOWN))
        yield f"Where {in_words(place)}, with {name} mean wait {moved(wait)}, mean bounded slowdown {moved(slowdown)}."


@dataclass(frozen=True)
class Harm:
    """A place and a workload where a scheduler is worse than the baseline in wait or slowdown."""

    place: str
    workload: str
    metric: str
    share: Interval
    p: float  # after Holm's correction for all places, workloads and both metrics


def harms(results: Results, name: str) -> tuple[list[Harm], int]:
    """Return where the interval of a change for the worse excludes 0, and out of how many comparisons."""
    places_of = [(in_words(place) or "nothing is varied", place) for place in places(results)]
    workloads = list(dict.fromkeys(results.columns["workload"].tolist()))
    every: list[tuple[Harm, Effect]] = []
    for (words, place), workload, metric in itertools.product(places_of, workloads, (DELAY, SLOWDOWN)):
        found = effect(results, metric, name, rows_at(results, place, workload))
        if found is not None:
            every.append((Harm(words, workload, metric, found.share, math.nan), found))
    corrected = holm([each.p for _, each in every]) if every else ()
    worse = [replace(harm, p=float(p)) for (harm, _), p in zip(every, corrected, strict=True) if harm.share.low > 0]
    return [each for each in worse if each.share.n >= FEWEST], len(every)


def _harm(results: Results, name: str) -> str:
    worse, count = harms(results, name)
    baseline = results.experiment.judge.baseline
    sure = [each for each in worse if each.p < SURE]
    first = (
        f"Of {count} comparisons (each place, workload, wait and slowdown) {name} is worse than {baseline} in {len(worse)} by the interval"
    )
    if not worse:
        return f"{first}."
    told = "; ".join(
        f"{each.workload}, {each.place}: {metric_title(each.metric)} {change_in_words(each.share)}"
        for each in sorted(sure or worse, key=lambda each: -each.share.mean)[:MOST_NAMED]
    )
    return f"{first}, in {len(sure)} after correction for their number (Holm); the worst: {told}."
