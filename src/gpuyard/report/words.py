"""The answer in plain words, computed from the numbers.

Nothing is claimed where the interval holds 0 or the corrected test does not agree.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.summary import Degradation, Line, Summary, Table, Versus
from gpuyard.metrics import resolve
from gpuyard.report.text import metric_title, readable, rounded, short, shown_unit

MOST_TOLD = 2  # challengers that the first paragraph has a sentence for
SURE = 0.05  # p values below it, after correction
Verdict = Literal["wins", "loses", "equal", "unclear", "unsure", "untested"]


def verdict(versus: Versus) -> Verdict:
    """Of a scheduler against the baseline.

    `equal`: nothing that is resampled differs; `unclear`: the interval holds 0; `unsure`: it does not, but the corrected test disagrees;
    `untested`: there is no interval.
    """
    if not (math.isfinite(versus.difference.low) and math.isfinite(versus.difference.high)):
        return "untested"
    if versus.difference.low == versus.difference.high == 0:
        return "equal"
    if versus.better is None or versus.share_low <= 0 <= versus.share_high:  # that of the share is the one that is shown
        return "unclear"
    if not versus.p < SURE:
        return "unsure"
    return "wins" if versus.better else "loses"


def lead(summary: Summary) -> str:
    """The first paragraph: what was run, and what came out of it."""
    results, table = summary.results, summary.table
    seeds = len(set(results.columns["seed"].tolist()))
    changes = len(results.experiment.axes.changes)
    forms = f" in {changes} forms each, as they are and changed," if changes > 1 else ""
    workloads = _count(table.runs // max(seeds, 1) // changes, "workload")
    place = f"{workloads}{forms} with {_count(seeds, 'window' if table.resampled == 'window' else 'seed')}"
    what = f"{_count(len(results.schedulers), 'scheduler')} ran on {place}: {_count(len(results), 'run')} in all."
    shown = results.experiment.judge.challengers
    if len(shown) > MOST_TOLD:
        sentences = [_overview(table) for table in summary.tables]
    else:
        sentences = [_record(summary, name) for name in shown] if shown else [_leaders(summary)]
    few = (
        f" With {table.n} {table.resampled}s only, intervals are the range of the values, and nothing here is more than a hint."
        if table.n < FEWEST
        else ""
    )
    return f"{what} {' '.join(sentences)}{few}"


def _count(number: int, what: str) -> str:
    return f"{number:,} {what}{'' if number == 1 else 's'}"


def _record(summary: Summary, name: str) -> str:
    """One challenger over all objectives."""
    found: dict[Verdict, dict[str, list[str]]] = {}  # verdict → baseline → objectives
    for table in summary.tables:
        line = table.line(name)
        if line.versus is not None:
            told = f"on {metric_title(table.objective)} ({signed_share(line.versus)})"
            found.setdefault(verdict(line.versus), {}).setdefault(readable(table.baseline), []).append(told)
    parts = [
        f"{words} {_and([f'{base} {_and(told)}' for base, told in found[key].items()])}" for key, words in _RECORD.items() if key in found
    ]
    return f"{readable(name)} {'; it '.join(parts)}." if parts else f"{readable(name)} is what the others are compared with."


_RECORD: dict[Verdict, str] = {
    "wins": "beats",
    "loses": "loses to",
    "equal": "is exactly as good as",
    "unclear": "cannot be told apart from",
    "unsure": "is not surely different, after correction for many comparisons, from",
    "untested": "has too few values for any claim against",
}


def _overview(table: Table) -> str:
    """Many challengers on one objective: who does what against the baseline."""
    found: dict[Verdict, list[str]] = {}
    for line in table.lines:
        if line.challenger and line.versus is not None:
            found.setdefault(verdict(line.versus), []).append(f"{readable(line.scheduler)} ({signed_share(line.versus)})")
    parts = [f"{words}: {_and(found[key])}" for key, words in _OVERVIEW.items() if key in found]
    return f"On {metric_title(table.objective)}, against {readable(table.baseline)}, {'; '.join(parts) or 'there is nothing to compare'}."


_OVERVIEW: dict[Verdict, str] = {
    "wins": "better",
    "loses": "worse",
    "equal": "exactly as good",
    "unclear": "not told apart",
    "unsure": "not sure after correction for many comparisons",
    "untested": "too few values for any claim",
}


def signed_share(versus: Versus) -> str:
    """`+0.46 % [+0.28, +0.68]` of the baseline."""
    return percent(Interval(versus.share, versus.share_low, versus.share_high, versus.difference.n), sign="+")


def percent(interval: Interval, sign: Literal["", "+"] = "") -> str:
    """A share with its interval, as percent."""
    low, high = 100 * interval.low, 100 * interval.high
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{short(100 * interval.mean, sign)} %" if math.isfinite(interval.mean) else "–"
    mean, low_text, high_text = (rounded(100 * each, high - low, sign, most=3) for each in (interval.mean, interval.low, interval.high))
    return f"{mean} % [{low_text}, {high_text}]"


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _leaders(summary: Summary) -> str:
    best = [f"{_names([line for line in table.lines if line.best])} on {metric_title(table.objective)}" for table in summary.tables]
    return f"The best mean has {_and(best)}."


def _names(lines: Sequence[Line]) -> str:
    return _and([readable(line.scheduler) for line in lines]) if lines else "nobody"


# ── one sentence or two for each objective ──


def findings(summary: Summary) -> list[str]:
    """What each table says, in words; then what changes did."""
    return [_objective(summary, table) for table in summary.tables] + _changes(summary)


def _objective(summary: Summary, table: Table) -> str:
    better = resolve(table.objective)[0].better
    best = [line for line in table.lines if line.best]
    words = {"lower": "lowest", "higher": "highest", "neither": "lowest"}[better]
    title = metric_title(table.objective)
    sentences = []
    if best:
        unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
        shown = value_text(best[0].values[table.objective], size, unit)
        verb = "has" if len(best) == 1 else "have"
        sentences.append(f"{title[:1].upper()}{title[1:]}: {_names(best)} {verb} the {words} mean, {shown}{_sure(table, best[0])}.")
    judge = summary.results.experiment.judge
    role = "baseline" if judge.baseline else "best of its rivals" if judge.rivals else "best of the others"
    sentences += [_challenger(table, line, role) for line in table.lines if line.challenger and line.versus is not None]
    sentences += _oracle(summary, table)
    sentences += _bound(table, best)
    return " ".join(sentences)


def value_text(interval: Interval, size: float = 1.0, unit: str = "") -> str:
    """A mean with its interval in a unit of that size, with the digits that mean something."""
    tail = f" {unit}" if unit else ""
    if not (math.isfinite(interval.low) and math.isfinite(interval.high)):
        return short(interval.mean / size) + tail
    mean, low, high = (rounded(each / size, (interval.high - interval.low) / size) for each in (interval.mean, interval.low, interval.high))
    return f"{mean} [{low}, {high}]{tail}"


def _sure(table: Table, best: Line) -> str:
    """Whether the best is known to be better than the baseline."""
    if best.versus is None or best.challenger:
        return ""
    sure = verdict(best.versus) == "wins"
    return f", {'clearly better than' if sure else 'which is not surely better than'} {readable(table.baseline)}"


_CHALLENGER: dict[Verdict, str] = {
    "wins": "{name} is better than {base}, the {role}: {share}; {runs} (p {p} after correction).",
    "loses": "{name} is worse than {base}, the {role}: {share}; {runs} (p {p} after correction).",
    "equal": "{name} is exactly as good as {base}, the {role}.",
    "unclear": "{name} cannot be told apart from {base}, the {role}: {share}.",
    "unsure": "{name} against {base}, the {role}: {share}; the interval does not hold 0, but the corrected test is not sure (p {p}).",
    "untested": "{name} against {base}, the {role}: {share}; one value gives no interval, so nothing can be claimed.",
}


def _challenger(table: Table, line: Line, role: str) -> str:
    found = line.versus
    assert found is not None
    runs = f"better in {found.wins:,} and worse in {found.losses:,} of {found.wins + found.ties + found.losses:,} runs"
    return _CHALLENGER[verdict(found)].format(
        name=readable(line.scheduler),
        base=readable(table.baseline),
        role=role,
        share=signed_share(found),
        runs=runs,
        p=p_text(found.p, equals="= "),
    )


def p_text(p: float, equals: str = "") -> str:
    """`< 0.001`, or two digits."""
    if not math.isfinite(p):
        return "–"
    return "< 0.001" if p < 0.001 else f"{equals}{p:.2g}" if p < 0.995 else f"{equals}1"


def _oracle(summary: Summary, table: Table) -> list[str]:
    if table.oracle is None:
        return []
    of = summary.results.experiment.judge.oracle
    oracle = f"the best of {len(of)} for each run in hindsight" if len(of) > 1 else f"here {readable(of[0])}"
    challengers = [line for line in table.lines if line.challenger and line.gap is not None]
    shown = challengers or [line for line in table.lines if line.best and line.gap is not None]
    gaps = [f"{readable(line.scheduler)} {percent(line.gap)}" for line in shown if line.gap is not None]
    ahead = " (negative: ahead of it)" if any(line.gap is not None and line.gap.mean < 0 for line in shown) else ""
    return [f"Behind the oracle, {oracle}, lie {_and(gaps)}{ahead}."] if gaps else []


def _bound(table: Table, best: Sequence[Line]) -> list[str]:
    if table.bound is None or not best or best[0].above_bound is None:
        return []
    unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
    word = "below" if resolve(table.objective)[0].better != "higher" else "above"
    return [
        f"No scheduler at all can have a mean {word} {short(table.bound.mean / size)}{f' {unit}' if unit else ''}; "
        f"{readable(best[0].scheduler)} lies {percent(best[0].above_bound)} from that bound, which may be out of reach."
    ]


def _changes(summary: Summary) -> list[str]:
    """For the challengers and the baseline, what hurt most on the first objective."""
    table = summary.table
    names = [line.scheduler for line in table.lines if line.challenger] + [table.baseline]
    sentences = []
    for name in dict.fromkeys(names):
        mine = [each for each in summary.degradations if each.scheduler == name and each.objective == table.objective]
        if mine:
            sentences.append(_worst(name, mine))
    return [f"Under changes of the workload, {metric_title(table.objective)}: {' '.join(sentences)}"] if sentences else []


def _worst(name: str, mine: Sequence[Degradation]) -> str:
    known = [each for each in mine if math.isfinite(each.share.mean)]
    if not known:
        return f"{readable(name)} has no value."
    clear = [each for each in known if each.share.low > 0]
    worst = max(known, key=lambda each: each.share.mean)
    hurt = (
        f"most under {readable(worst.change)} ({percent(worst.share, '+')})"
        if worst.share.low > 0
        else f"nothing surely; the largest change was under {readable(worst.change)} ({percent(worst.share, '+')})"
    )
    return f"{readable(name)} got worse under {len(clear)} of {len(known)} changes, by their intervals and without a correction, {hurt}."
