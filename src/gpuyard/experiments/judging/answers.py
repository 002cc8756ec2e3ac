"""A comparison in words: which scheduler is better, by how much, how sure; and of a log how faithful its simulation is."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuyard.metrics import resolve
from gpuyard.model.units import format_seconds
from gpuyard.policies import AnyScheduler, Scheduler

if TYPE_CHECKING:
    from gpuyard.experiments.judging.comparison import Change, Comparison, Line

TOLERANCE = 1e-6
FEW = 100  # jobs
LEAST = 0.005  # per cent; less is 0
SPARSE = 0.1  # utilisation of a log below which its jobs hardly meet
FAITHFUL = 0.1  # relative difference of a mean up to which the simulation is called close


def answer(comparison: Comparison) -> list[str]:
    """Sentences, computed from the numbers of the table."""
    if _all_alike(comparison):
        value = _value(comparison.primary, comparison.lines[-1])
        return [
            f"All schedulers give the same {_title(comparison.primary)}, {value}: this load leaves them nothing to decide"
            " (--apply load:0.9 raises it)."
        ]
    return _of_log(comparison) if comparison.log else [_of_seeds(comparison)]


def _all_alike(comparison: Comparison) -> bool:
    """All simulated lines, two or more, have one value."""
    lines = comparison.lines[1:] if comparison.log else comparison.lines
    return len(lines) > 1 and len({line.values[comparison.primary].mean for line in lines}) == 1


def _of_log(comparison: Comparison) -> list[str]:
    """How much the answer can be trusted; against what happened; against the simulated stand-in; and what preemption would add.

    What is believed more comes first: the difference to the log only where the simulated stand-in is close to the log.
    """
    name, log = comparison.primary, comparison.lines[0]
    stand_in = next(line for line in comparison.lines if line.scheduler == comparison.stand_in)
    calm, any_ = (_best(comparison, preempting=preempting) for preempting in (False, True))
    against_log = f"The log has a {_title(name)} of {_value(name, log)}."
    if calm is not None and calm.change is not None and comparison.baseline == log.scheduler:
        rivals = sum(not line.preempts for line in comparison.lines) - 1
        chosen = f" (the best of {rivals} that stop no running job, chosen on this log)" if rivals > 1 else ""
        against_log = f"{calm.words} would have {_changed(name, calm.change, log, calm, past=True)}{chosen}."
    simulated = ""
    if calm is not None and calm.against is not None:
        simulated = (
            f"Simulation against simulation: {calm.words} instead of {stand_in.words} {_changed(name, calm.against, stand_in, calm)}."
        )
    elif calm is stand_in:
        simulated = f"Of the simulated schedulers that stop no running job, {stand_in.words} is the best."
    order = [against_log, _fidelity(comparison, log, stand_in), simulated]
    if not _close(name, log, stand_in):
        order = [simulated, order[1], f"Against the log itself: {against_log}"]
    found = [*_cautions(comparison, log), *filter(None, order)]
    if any_ is not None and any_ is not calm and any_.against is not None:
        found.append(f"With preemption: {any_.words} {_changed(name, any_.against, stand_in, any_)}.")
    return found


def _cautions(comparison: Comparison, log: Line) -> list[str]:
    """Why no answer can rest on this log."""
    found = []
    if comparison.paired < FEW:
        found.append(f"Caution: {comparison.paired:,} jobs are too few for an answer.")
    used = log.values["utilization"].mean if "utilization" in comparison.metrics else math.nan
    if used < SPARSE:
        found.append(
            f"Caution: these jobs fill {used:.1%} of this cluster. If they are a sample, or the cluster is not the one that they ran on,"
            " they waited for what is not here, and nothing below says anything about the real cluster."
        )
    return found


def _close(name: str, log: Line, stand_in: Line) -> bool:
    was = log.values[name].mean
    return abs(stand_in.values[name].mean - was) <= FAITHFUL * abs(was)


def _fidelity(comparison: Comparison, log: Line, stand_in: Line) -> str:
    """A part of every difference to the log is what the simulation leaves out: the stand-in shows how large it is."""
    name = comparison.primary
    shown = [name] + (["utilization"] if "utilization" in comparison.metrics and name != "utilization" else [])
    pairs = ", ".join(f"{_title(each)} {_value(each, stand_in)} (log: {_value(each, log)})" for each in shown)
    used = log.values["utilization"].mean if "utilization" in comparison.metrics else math.nan
    if used > 1 + TOLERANCE:
        return f"More ran at once in the log than this cluster holds (utilisation {used:.2f}): give the cluster that it ran on."
    verdict = (
        "close to the log"
        if _close(name, log, stand_in)
        else "far from the log; what is not simulated (priorities, limits, reservations, outages) may be why, and is in every difference"
        " to the log"
    )
    return f"How faithful: simulated {stand_in.words} gives {pairs}: {verdict}."


def _of_seeds(comparison: Comparison) -> str:
    name, top = comparison.primary, _best(comparison)
    if top is None:
        return f"No scheduler can be called best on {name}."
    base = next(line for line in comparison.lines if line.scheduler == comparison.baseline)
    if top.change is None:
        return f"{top.words}, the baseline, has the best {_title(name)}, {_value(name, top)}."
    mine, its = _told_apart(top, base)
    return f"{mine} is the best of {len(comparison.lines)}: against {its} it {_changed(name, top.change, base, top)}."


def _told_apart(one: Line, other: Line) -> tuple[str, str]:
    """Two schedulers in words; by their labels where the words are the same, such as of two placements."""
    words = [line.words.removesuffix(f" ({line.scheduler})") for line in (one, other)]
    return (one.words, other.words) if words[0] != words[1] else (one.scheduler, other.scheduler)


def _best(comparison: Comparison, *, preempting: bool = True) -> Line | None:
    """The best simulated scheduler on the primary metric; of those that stop no running job, unless `preempting`."""
    name = comparison.primary
    better = resolve(name)[0].better
    lines = comparison.lines[1:] if comparison.log else comparison.lines
    known = [line for line in lines if not math.isnan(line.values[name].mean) and (preempting or not line.preempts)]
    if better == "neither" or not known:
        return None
    usual = (comparison.stand_in, comparison.baseline)  # of equals, what is there already
    return min(known, key=lambda line: (line.values[name].mean * (-1 if better == "higher" else 1), line.scheduler not in usual))


_BACKFILLS = {
    "none": "without backfilling", "skip": "with whoever fits passing", "easy": "with EASY",
    "conservative": "with conservative backfilling",
}  # fmt: skip


def in_words(scheduler: AnyScheduler) -> str:
    """`shortest job first with EASY (sjf/fewest/easy)`; what is not made of four slots, or is learned, by its label."""
    if not isinstance(scheduler, Scheduler) or scheduler.ordering.network is not None or scheduler.placement.network is not None:
        return scheduler.label  # the title of a checkpoint is not its name
    stops = ", preempting," if scheduler.preemption.function is not None else ""
    return f"{scheduler.ordering.title}{stops} {_BACKFILLS[scheduler.backfill.name]} ({scheduler.label})"


def _title(name: str) -> str:
    """`mean wait`, `wait (p95)`, `utilisation`."""
    metric, aggregation = resolve(name)
    if aggregation == "mean":
        return f"mean {metric.title}"
    return f"{metric.title} ({aggregation})" if aggregation else metric.title


def _value(name: str, line: Line) -> str:
    return quantity(name, line.values[name].mean)


def quantity(name: str, value: float) -> str:
    """A value of a metric with its unit, for a sentence."""
    if math.isnan(value):
        return "not known"
    unit = resolve(name)[0].unit
    if unit == "s":
        return ("−" if value < 0 else "") + format_seconds(abs(value))
    text = f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−") + ("" if unit == "1" else f" {unit}")


def percent(share: float, sign: str = "") -> str:
    """A share in per cent, three digits or so: `0.5`, `12.3`, `1,780`; never a negative nothing. `sign="+"` shows it always."""
    value = 100 * share
    if abs(value) < LEAST:
        return "0"
    return (f"{value:{sign}.3g}" if abs(value) < 99.95 else f"{value:{sign},.0f}").replace("-", "−")


def _changed(name: str, change: Change, base: Line, top: Line, *, past: bool = False) -> str:
    """`cuts the mean wait from 2h to 1h (−50 %; difference −1h, 95 % interval −2h to −10m, by blocks of time)`."""
    verbs = ("cut", "cuts") if change.mean < 0 else ("raised", "raises")
    was = base.values[name].mean
    share = f"{change.mean / was:+z.0%}; ".replace("%", " %").replace("-", "−") if was else ""
    if change.mean == 0:
        return f"{'left' if past else 'leaves'} the {_title(name)} as it is, {_value(name, top)}"
    text = f"{verbs[0] if past else verbs[1]} the {_title(name)} from {_value(name, base)} to {_value(name, top)}"
    return f"{text} ({share}{_sure(name, change, log=base.scheduler == 'log' or top.against is not None)})"


def _sure(name: str, change: Change, *, log: bool) -> str:
    mean, low, high = (quantity(name, value) for value in (change.mean, change.low, change.high))
    if math.isnan(change.low):
        return f"difference {mean}, without an interval: one sample"
    by = "blocks of time" if change.of == "job" else f"{change.n} seeds{' of the noise alone' if log else ''}"
    chance = "" if change.clear else "; it holds 0: this may be chance"
    return f"difference {mean}, 95 % interval {low} to {high}, by {by}{chance}"
