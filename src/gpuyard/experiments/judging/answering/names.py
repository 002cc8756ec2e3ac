"""Names for people: of schedulers, metrics and amounts. Codes such as `sjf/fewest/easy` stand beside them, never in their place."""

from __future__ import annotations

import math
import re

from gpuyard.experiments.judging.text import metric_title, readable, short
from gpuyard.metrics import resolve
from gpuyard.networks.checkpoint import PREFIX
from gpuyard.policies import AnyScheduler, Meta, Ordering, Scheduler
from gpuyard.policies.slots import RankRule

LOG_NAME = "What actually happened"
PLAIN_TITLES = {"wait": "wait", "waiting": "wait", "delay": "wait", "bsld": "slowdown"}
MAY_STOP = ", may stop jobs"
WAITS = ("wait", "waiting", "delay")  # metrics that people call a wait
_BACKFILLS = {"none": ", no backfilling", "skip": " + whoever fits", "easy": " + EASY", "conservative": " + conservative backfilling"}
_AGGREGATIONS = {"mean": "mean", "p50": "median", "max": "largest", "min": "smallest"}
_SHARES = ("utilization", "utilization_drained", "deadline_met", "completed", "killed", "rejected", "unfinished")
NOTHING = 5e-4  # s; rounding leaves 1e-12 where nobody waits
_TIMES = ((86400.0, "d", 3600.0, "h"), (3600.0, "h", 60.0, "min"))


def people_name(scheduler: AnyScheduler) -> str:
    """`Shortest job first + EASY`; what is neither made of four slots nor switches between such by its label."""
    if isinstance(scheduler, Meta):
        return _learned(scheduler.rule.name, scheduler.rule.title) if scheduler.rule.network else f"Switch ({scheduler.rule.title})"
    if not isinstance(scheduler, Scheduler):
        return scheduler.label
    stops, backfill = scheduler.preemption, _BACKFILLS[scheduler.backfill.name]
    for part in (scheduler.ordering, scheduler.placement, stops):
        if part.network is not None:
            return f"{_learned(part.name, part.title)}{backfill}{MAY_STOP if stops.stops else ''}"
    if isinstance(stops, RankRule):
        return f"{_first_words(stops.title)}{backfill}{MAY_STOP}"
    return f"{_title(scheduler.ordering)}{backfill}{MAY_STOP if stops.stops else ''}"


def _title(rule: Ordering) -> str:
    """A rule of the package by its title, without what is in brackets; one of the user by its file and name."""
    return _capital(re.sub(r" \(.*\)", "", rule.title)) if rule.builtin else readable(rule.label)


_LEARNED = "Learned policy "
_SITES = {"GPU": "GPUs"}


def is_learned(name: str) -> bool:
    """Whether a name for people is that of a trained policy."""
    return name.startswith(_LEARNED)


def _learned(name: str, title: str) -> str:
    found = re.search(r"\bfor ([^,]+) clusters", title) if name.startswith(PREFIX) else None
    return f"{_LEARNED}{f'for {_SITES.get(found[1], found[1])}' if found else name.removeprefix(PREFIX)}"


def _first_words(title: str) -> str:
    return _capital(re.split(r" by |[:,]", title)[0])


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def in_sentence(name: str) -> str:
    """Begin a name with a small letter, unless it begins with a name: `shortest job first + EASY`, `EDF`."""
    if name == LOG_NAME:
        return "what actually happened"
    if is_learned(name):
        return f"the l{name[1:]}"
    return name if name[:2].isupper() or "'" in name.partition(" ")[0] or name.startswith("Gittins") else name[:1].lower() + name[1:]


def in_words(scheduler: AnyScheduler) -> str:
    """`shortest job first with EASY (sjf/fewest/easy)`; what is not made of four slots, or is learned, by its label."""
    if not isinstance(scheduler, Scheduler) or scheduler.ordering.network is not None or scheduler.placement.network is not None:
        return scheduler.label  # the title of a checkpoint is not its name
    stops = ", preempting," if scheduler.preemption.stops else ""
    return f"{scheduler.ordering.title}{stops} {scheduler.backfill.words} ({scheduler.label})"


def is_wait(metric: str) -> bool:
    """Whether people call this metric a wait."""
    return metric.partition(".")[0] in WAITS


def plain_title(metric: str, device: str = "GPUs") -> str:
    """`mean wait`, `longest wait`, `slowdown`, `GPUs busy`: a heading of a few common words."""
    found, aggregation = resolve(metric)
    base = f"{device} busy" if found.name == "utilization" else PLAIN_TITLES.get(found.name, found.title)
    if found.kind == "run" or not aggregation:
        return base
    if aggregation == "mean" and found.unit == "1":
        return base
    if aggregation == "max" and found.unit == "s":
        return f"longest {base}"
    if aggregation in _AGGREGATIONS:
        return f"{_AGGREGATIONS[aggregation]} {base}"
    return metric_title(metric).replace(found.title, base)


def amount(metric: str, value: float) -> str:
    """A value with its unit, three digits at most: `1 h 8 min`, `81 %`, `1.42`."""
    if not math.isfinite(value):
        return "not known" if math.isnan(value) else "endless"
    unit = resolve(metric)[0].unit
    if unit == "s":
        return duration(value)
    if is_share(metric):
        return f"{short(100 * value)} %"
    return short(value) + ("" if unit == "1" else f" {unit}")


def is_share(metric: str) -> bool:
    """Whether the metric is a share that is better read in percent."""
    return metric.partition(".")[0] in _SHARES


def duration(seconds: float) -> str:
    """`45 s`, `33.6 min`, `1 h 8 min`, `3 d 2 h`."""
    sign, size = ("−" if seconds < 0 else ""), abs(seconds)
    if size < NOTHING:
        return "0 s"
    for large, large_name, small, small_name in _TIMES:
        steps = round(size / small)
        if steps * small >= large:
            whole, rest = divmod(steps, round(large / small))
            if whole >= 10:
                return f"{sign}{short(size / large)} {large_name}"
            return f"{sign}{whole} {large_name} {rest} {small_name}" if rest else f"{sign}{whole} {large_name}"
    return f"{sign}{short(size / 60)} min" if size >= 99.5 else f"{sign}{short(size)} s"
