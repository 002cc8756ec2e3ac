"""Findings in one line, as titles of charts. They say what the chart shows, with its numbers; nothing unclear is called a difference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from gpuyard.experiments.judging.summary import Comparison, Degradation, Standing
from gpuyard.experiments.judging.text import count, metric_title, readable, short, shown_unit
from gpuyard.experiments.judging.words import verdict
from gpuyard.metrics import resolve

NAME = 24  # letters of a scheduler's name


def best_mean(table: Comparison) -> str:
    """`srpt has the lowest mean slowdown, 8.48`."""
    best = [line for line in table.lines if table.objective in line.best]
    title = metric_title(table.objective)
    if not best:
        return f"Mean {title} of each scheduler"
    word = "highest" if resolve(table.objective)[0].better == "higher" else "lowest"
    unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
    value = f"{short(best[0].values[table.objective].mean / size)}{f' {unit}' if unit else ''}"
    names = readable(best[0].scheduler, NAME) if len(best) == 1 else f"{len(best)} schedulers"
    return f"{names} {'has' if len(best) == 1 else 'have'} the {word} mean {title}, {value}"


def against_baseline(table: Comparison) -> str:
    """`Slowdown: none of 7 is clearly better than srpt, 7 are clearly worse`."""
    verdicts = [verdict(line.versus) for line in table.lines if line.versus is not None]
    better, worse = verdicts.count("wins"), verdicts.count("loses")
    first = f"{better or 'none'} of {len(verdicts)} {'are' if better > 1 else 'is'} clearly better than {readable(table.baseline, NAME)}"
    title = metric_title(table.objective)
    return f"{title[:1].upper()}{title[1:]}: {first}, {worse or 'none'} {'are' if worse > 1 else 'is'} clearly worse"


def oracle_distance(table: Comparison) -> str:
    """`meta is 1.5 % behind the best fixed choice of each run on slowdown`: the closest challenger, or the closest scheduler."""
    known = [line for line in table.lines if line.gap is not None and math.isfinite(line.gap.mean)]
    if not known:
        return "Gap to the oracle"
    line = min([line for line in known if line.challenger] or known, key=_gap)
    place = "behind" if _gap(line) >= 0 else "ahead of"
    share = short(100 * abs(_gap(line)))
    return f"{readable(line.scheduler, NAME)} is {share} % {place} the best fixed choice of each run on {metric_title(table.objective)}"


def _gap(line: Standing) -> float:
    return math.inf if line.gap is None else line.gap.mean


def worth_of_parts(lines: Sequence[Standing]) -> str:
    """`1 of 6 parts makes a clear difference: no-deadline-penalty`."""
    clear = [line.scheduler for line in lines if line.versus is not None and verdict(line.versus) in ("wins", "loses")]
    if not clear:
        return f"None of {count(len(lines), 'part')} makes a clear difference"
    return f"{len(clear)} of {count(len(lines), 'part')} {'makes' if len(clear) == 1 else 'make'} a clear difference: {', '.join(clear)}"


def worst_kind(found: Sequence[Degradation], objective: str) -> str:
    """`burst hurts slowdown most: 74 % worse, mean over schedulers`."""
    by_kind: dict[str, list[float]] = {}
    for each in found:
        if math.isfinite(each.share.mean):
            by_kind.setdefault(each.kind, []).append(each.share.mean)
    if not by_kind:
        return "Degradation by kind of change"
    means = {kind: float(np.mean(shares)) for kind, shares in by_kind.items()}
    worst = max(means, key=means.__getitem__)
    return f"{readable(worst)} hurts {metric_title(objective)} most: {short(100 * means[worst])} % worse, mean over schedulers"


def under_change(found: Sequence[Degradation], kind: str, objective: str) -> str:
    """`burst: slowdown gets 60 to 84 % worse at its strongest, by scheduler`; changes whose intervals hold 0 are not counted."""
    worst: dict[str, float] = {}
    for each in found:
        if each.share.low > 0:
            worst[each.scheduler] = max(worst.get(each.scheduler, -math.inf), each.share.mean)
    schedulers = {each.scheduler for each in found}
    if not worst:
        return f"{readable(kind)}: {metric_title(objective)} does not get clearly worse for any scheduler"
    low, high = (short(100 * end(worst.values())) for end in (min, max))
    amount = f"{low} %" if low == high else f"{low} to {high} %"
    who = "" if len(worst) == len(schedulers) else f", clearly for {len(worst)} of {len(schedulers)} schedulers"
    return f"{readable(kind)}: {metric_title(objective)} gets {amount} worse at its strongest{who}"


def best_in_groups(tables: Sequence[Comparison], name: str) -> str:
    """`srpt has the best mean in 4 of 4 groups by shape`."""
    firsts = [line.scheduler for table in tables for line in table.lines if table.objective in line.best]
    if not firsts:
        return f"By {readable(name)}"
    top = max(dict.fromkeys(firsts), key=firsts.count)
    return f"{readable(top, NAME)} has the best mean in {firsts.count(top)} of {count(len(tables), 'group')} by {readable(name)}"


def between_ends(what: str, means: Mapping[str, float], unit: str = "") -> str:
    """`Utilisation is 98 % on 2 GPUs and 61 % on 16`: the first and the last of some values in order."""
    (first, a), (last, b) = next(iter(means.items())), list(means.items())[-1]
    return f"{what} is {short(100 * a)} % on {first}{unit} and {short(100 * b)} % on {last}"
