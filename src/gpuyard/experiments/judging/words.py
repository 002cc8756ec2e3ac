"""The answer in plain words, computed from the numbers of a summary.

Nothing is claimed where the interval includes 0 or the corrected test does not agree. `lead` and `findings` are the sentences of a report;
`answer` has those of one workload on one cluster (`compare`, `evaluate`), which for a log also say how faithful its simulation is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

from gpuyard.experiments.judging.answering.names import is_wait
from gpuyard.experiments.judging.choice import gain_of_choice
from gpuyard.experiments.judging.statistics import FEWEST, Difference, Interval
from gpuyard.experiments.judging.stopping import is_about_stopping, stopping_findings, stopping_lead
from gpuyard.experiments.judging.summary import MINIMUM, Comparison, Degradation, Standing, Summary, Versus
from gpuyard.experiments.judging.switching import switch_findings
from gpuyard.experiments.judging.text import count, metric_title, p_text, percent, readable, rounded, short, shown_unit, value_text
from gpuyard.metrics import resolve
from gpuyard.model.units import format_seconds

MOST_NAMED = 2  # challengers that the first paragraph has a sentence for
SURE = 0.05  # p values below it, after correction
TOLERANCE = 1e-6
FEW = 100  # jobs
SPARSE = 0.1  # utilisation of a log below which its jobs hardly meet
FAITHFUL = 0.1  # relative difference of a mean, and difference in utilisation, up to which the simulation is called close
LOADED, NO_WAIT = 0.6, 30.0  # utilisation of a log above which some jobs must wait, and a mean wait, s, below which none did
Verdict = Literal["wins", "loses", "equal", "unclear", "unsure", "untested"]


def verdict(versus: Versus) -> Verdict:
    """Judge a scheduler against the baseline.

    `equal`: nothing differs; `unclear`: the interval includes 0; `unsure`: it does not, but the corrected test disagrees;
    `untested`: there is no interval, or it rests on too few values to tell. One sample has no test: there the interval decides.
    """
    if versus.difference.n < FEWEST or not (math.isfinite(versus.difference.low) and math.isfinite(versus.difference.high)):
        return "untested"
    if versus.difference.low == versus.difference.high == 0:
        return "equal"
    if versus.better is None or versus.share_low <= 0 <= versus.share_high:  # that of the share is the one that is shown
        return "unclear"
    if not versus.p < SURE and versus.difference.of == "seed":
        return "unsure"
    return "wins" if versus.better else "loses"


def lead(summary: Summary) -> str:
    """Write the first paragraph: what was run, and what came out of it."""
    results, table = summary.results, summary.table
    seeds = len(set(results.columns["seed"].tolist()))
    if summary.single:
        place = f"{readable(summary.workload)} on {readable(summary.cluster)} with {count(seeds, 'seed')}"
        return f"{count(len([line for line in summary.lines if line != summary.log]), 'scheduler')} ran on {place}. {answer(summary)[0]}"
    changes = len(results.experiment.axes.changes)
    forms = f" in {changes} forms each, as they are and changed," if changes > 1 else ""
    workloads = count(table.runs // max(seeds, 1) // changes, "workload")
    place = f"{workloads}{forms} with {count(seeds, 'window' if table.over == 'window' else 'seed')}"
    what = f"{count(len(results.schedulers), 'scheduler')} ran on {place}: {count(len(results), 'run')} in all."
    shown = results.experiment.judge.challengers
    if results.experiment.sets:
        sentences = switch_findings(summary)
    elif is_about_stopping(results):
        sentences = stopping_lead(summary)
    elif len(shown) > MOST_NAMED:
        sentences = [_overview(table) for table in summary.tables]
    else:
        sentences = [_record(summary, name) for name in shown] if shown else [_leaders(summary)]
    few = (
        f" {count(table.n, table.over)} {'is' if table.n == 1 else 'are'} too few to tell: nothing here is more than a hint."
        if table.n < FEWEST
        else ""
    )
    return f"{what} {' '.join(sentences)}{few}"


def _record(summary: Summary, name: str) -> str:
    """Describe one challenger over all objectives."""
    found: dict[Verdict, dict[str, list[str]]] = {}  # verdict → baseline → objectives
    for table in summary.tables:
        line = table.line(name)
        if line.versus is not None:
            place = f"on {metric_title(table.objective)} ({signed_share(line.versus)})"
            found.setdefault(verdict(line.versus), {}).setdefault(readable(table.baseline), []).append(place)
    parts = [
        f"{words} {_and([f'{base} {_and(places)}' for base, places in found[key].items()])}"
        for key, words in _RECORD.items()
        if key in found
    ]
    return f"{readable(name)} {'; it '.join(parts)}." if parts else f"{readable(name)} is what the others are compared with."


_RECORD: dict[Verdict, str] = {
    "wins": "beats",
    "loses": "loses to",
    "equal": "is exactly as good as",
    "unclear": "does not clearly differ from",
    "unsure": "is not surely different, after correction for many comparisons, from",
    "untested": "has too few values for a comparison with",
}


def _overview(table: Comparison) -> str:
    """Sort many challengers on one objective by how they do against the baseline."""
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
    "unclear": "no clear difference",
    "unsure": "not sure after correction for many comparisons",
    "untested": "too few values to tell",
}


def signed_share(versus: Versus) -> str:
    """`+0.46 % [+0.28, +0.68]` of the baseline."""
    return percent(versus.share_interval, sign="+")


def _and(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else ", ".join(parts[:-1]) + " and " + parts[-1]


def _leaders(summary: Summary) -> str:
    best = [f"{_names(_best_lines(table))} on {metric_title(table.objective)}" for table in summary.tables]
    return f"The best mean has {_and(best)}."


def _best_lines(table: Comparison) -> list[Standing]:
    return [line for line in table.lines if table.objective in line.best]


def _names(lines: Sequence[Standing]) -> str:
    return _and([readable(line.scheduler) for line in lines]) if lines else "no scheduler"


# ── one sentence or two for each objective ──


def findings(summary: Summary) -> list[str]:
    """Say what each table shows, then what changes did."""
    if summary.single:
        return answer(summary)[1:]
    if is_about_stopping(summary.results):
        return stopping_findings(summary)
    return [_objective(summary, table) for table in summary.tables] + _changes(summary)


def _objective(summary: Summary, table: Comparison) -> str:
    better = resolve(table.objective)[0].better
    best = _best_lines(table)
    words = {"lower": "lowest", "higher": "highest", "neither": "lowest"}[better]
    title = metric_title(table.objective)
    sentences = []
    if best:
        unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
        shown = value_text(best[0].values[table.objective], size, unit)
        verb = "has" if len(best) == 1 else "have"
        sentences.append(f"{title[:1].upper()}{title[1:]}: {_names(best)} {verb} the {words} mean, {shown}{_surely(table, best[0])}.")
    judge = summary.results.experiment.judge
    role = "baseline" if judge.baseline else "best of its rivals" if judge.rivals else "best of the others"
    sentences += [_challenger(table, line, role) for line in table.lines if line.challenger and line.versus is not None]
    sentences += _oracle(summary, table)
    sentences += _bound(table, best)
    return " ".join(sentences)


def _surely(table: Comparison, best: Standing) -> str:
    """Whether the best is known to be better than the baseline."""
    if best.versus is None or best.challenger:
        return ""
    sure = verdict(best.versus) == "wins"
    return f", {'clearly better than' if sure else 'which is not surely better than'} {readable(table.baseline)}"


_CHALLENGER: dict[Verdict, str] = {
    "wins": "{name} is better than {base}, the {role}: {share}; {runs} (p {p} after correction).",
    "loses": "{name} is worse than {base}, the {role}: {share}; {runs} (p {p} after correction).",
    "equal": "{name} is exactly as good as {base}, the {role}.",
    "unclear": "{name} does not clearly differ from {base}, the {role}: {share}.",
    "unsure": "{name} against {base}, the {role}: {share}; the interval excludes 0, but the corrected test is not sure (p {p}).",
    "untested": "{name} against {base}, the {role}: {share}; too few values to tell.",
}


def _challenger(table: Comparison, line: Standing, role: str) -> str:
    found = line.versus
    assert found is not None
    runs = f"better in {found.wins:,} and worse in {found.losses:,} of {found.wins + found.ties + found.losses:,} runs"
    names = {"name": readable(line.scheduler), "base": readable(table.baseline), "role": role}
    return _CHALLENGER[verdict(found)].format(**names, share=signed_share(found), runs=runs, p=p_text(found.p, equals="= "))


def _oracle(summary: Summary, table: Comparison) -> list[str]:
    if table.oracle is None:
        return []
    of = summary.results.experiment.judge.oracle
    oracle = f"the best of {len(of)} for each run in hindsight" if len(of) > 1 else f"here {readable(of[0])}"
    challengers = [line for line in table.lines if line.challenger and line.gap is not None]
    shown = challengers or [line for line in _best_lines(table) if line.gap is not None]
    gaps = [f"{readable(line.scheduler)} {percent(line.gap)}" for line in shown if line.gap is not None]
    ahead = " (negative: ahead of it)" if any(line.gap is not None and line.gap.mean < 0 for line in shown) else ""
    return [f"Behind the oracle, {oracle}, lie {_and(gaps)}{ahead}."] if gaps else []


def _bound(table: Comparison, best: Sequence[Standing]) -> list[str]:
    if table.bound is None or not best or best[0].above_bound is None:
        return []
    unit, size = shown_unit(table.objective, [line.values[table.objective].mean for line in table.lines])
    word = "below" if resolve(table.objective)[0].better != "higher" else "above"
    return [
        f"No scheduler at all can have a mean {word} {short(table.bound.mean / size)}{f' {unit}' if unit else ''}; "
        f"{readable(best[0].scheduler)} lies {percent(best[0].above_bound)} from that bound, which may be out of reach."
    ]


def _changes(summary: Summary) -> list[str]:
    """Say what hurt the challengers and the baseline most on the first objective."""
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


# ── one workload on one cluster ──


def answer(summary: Summary) -> list[str]:
    """Answer which scheduler is better, by how much and how surely, on one workload and cluster."""
    lines = [line for line in summary.lines if line is not summary.log]
    if len(lines) > 1 and len({line.values[summary.metrics[0]].mean for line in lines}) == 1:
        value = _value(summary, lines[0])
        return [
            f"All schedulers give the same {_title(summary.metrics[0])}, {value}: this load leaves them nothing to decide"
            " (--apply load:0.9 raises it).",
            *([_fidelity(summary, summary.log, summary.stand_in)] if summary.log is not None and summary.stand_in is not None else []),
        ]
    judged = [line for line in lines if line.challenger]
    if judged:
        return [sentence for line in judged for sentence in against_best(summary, line)] + _stopping(summary)
    return _of_log(summary, summary.log) if summary.log else [_of_seeds(summary)]


def against_best(summary: Summary, line: Standing) -> list[str]:
    """Compare a challenger with the best baseline, and with the best baseline of each run."""
    metric, found, base = summary.metrics[0], line.versus, summary.table.line(summary.table.baseline)
    assert found is not None
    gain = gain_of(summary, line)
    pairs = f"{found.difference.n:,} {'runs' if found.difference.of == 'seed' else 'jobs of one run, by blocks of time'}"
    values = f"{resolve(metric)[0].title} {_value(summary, line)} against {_value(summary, base)}; {pairs}"
    p = "" if math.isnan(found.p) else f"; p {p_text(found.p, equals='= ')}"
    word = "better" if gain.mean > 0 else "worse"
    mean, low, high = (_better_by(share, gain) for share in (gain.mean, gain.low, gain.high))
    text = _AGAINST_BEST[verdict(found)].format(
        name=line.scheduler, base=base.scheduler, word=word, size=percent(_upwards(gain)), span=f"{mean}, between {low} and {high}"
    )
    sentences = [f"{text} ({values}{p})."]
    if line.gap is not None and len(summary.seeds) > 1:
        title = resolve(metric)[0].title
        sentences.append(
            f"{line.scheduler}: gap to the best baseline of each run, {percent(line.gap, '+')} of its {title} (below 0: better)."
        )
    return sentences


def _stopping(summary: Summary) -> list[str]:
    """Name the best of all where it may stop running jobs, and the best baseline may not."""
    top, base = best_of(summary, candidates(summary)), summary.table.line(summary.table.baseline)
    found = [top] if top is not None and top.preempts and not (top.challenger or base.preempts) else []
    return [f"{one.scheduler}, which may stop running jobs, has a {_title(summary.metrics[0])} of {_value(summary, one)}." for one in found]


_AGAINST_BEST: dict[Verdict, str] = {
    "wins": "{name} is {word} than the best baseline, {base}, by {size}",
    "loses": "{name} is {word} than the best baseline, {base}, by {size}",
    "equal": "{name} is exactly as good as the best baseline, {base}",
    "unclear": "{name} does not clearly differ from the best baseline, {base}: {span}",
    "unsure": "{name} is {word} than the best baseline, {base}, by {size}, but more runs are needed to be sure",
    "untested": "{name} against the best baseline, {base}: {word} by {size}; too few values to tell",
}


def gain_of(summary: Summary, line: Standing) -> Interval:
    """The difference to the baseline as a share of its mean; positive: better."""
    metric, change = summary.metrics[0], line.change
    assert change is not None
    size = -MINIMUM[resolve(metric)[0].better] * abs(summary.table.line(summary.table.baseline).values[metric].mean) or math.nan
    low, high = sorted((change.low / size, change.high / size))
    return Interval(change.mean / size, low, high, change.n)


def _upwards(gain: Interval) -> Interval:
    """Turn a loss around, so that its size is positive."""
    return gain if gain.mean > 0 else Interval(-gain.mean, -gain.high, -gain.low, gain.n)


def _better_by(share: float, gain: Interval) -> str:
    """`3.8 % worse`: the sign as a word."""
    text = rounded(100 * abs(share), 100 * (gain.high - gain.low), most=3)
    return f"{text} % {'better' if share > 0 else 'worse'}" if text.strip("0.") else "as good"


def _of_log(summary: Summary, log: Standing) -> list[str]:
    """Say how far the answer can be trusted, compare with what happened and with the simulated stand-in, then add preemption.

    What can be trusted more comes first: the difference to the log only where the simulated stand-in is close to the log.
    """
    metric, stand_in, title = summary.metrics[0], summary.stand_in, summary.results.title
    assert stand_in is not None
    patients, all_ = (candidates(summary, preempting=preempting) for preempting in (False, True))
    patient, any_ = best_of(summary, patients), best_of(summary, all_)
    against_log = f"The log has a {_title(metric)} of {_value(summary, log)}."
    if patient is not None and patient.change is not None and summary.table.baseline == log.scheduler:
        chosen = f", the best of {len(patients)} that stop no running job," if len(patients) > 1 else ""
        against_log = f"{title(patient.scheduler)}{chosen} would have {_changed(summary, patients, log, patient, past=True)}."
    simulated = ""
    if patient is not None and patient.to_stand_in is not None:
        instead = f"{title(patient.scheduler)} instead of {title(stand_in.scheduler)}"
        simulated = f"Simulation against simulation: {instead} {_changed(summary, patients, stand_in, patient)}."
    elif patient is stand_in:
        simulated = f"Of the simulated schedulers that stop no running job, {title(stand_in.scheduler)} is the best."
    order = [against_log, _fidelity(summary, log, stand_in), simulated]
    if not is_close(metric, log, stand_in):
        order = [simulated, order[1], f"Against the log itself: {against_log}"]
    found = [*cautions(summary, log), *filter(None, order)]
    if any_ is not None and any_ is not patient and any_.to_stand_in is not None:
        found.append(f"With preemption: {title(any_.scheduler)} {_changed(summary, all_, stand_in, any_)}.")
    return found + ([summary.results.what_if.words] if summary.results.what_if is not None else [])


def cautions(summary: Summary, log: Standing) -> list[str]:
    """Say why no answer can rest on this log."""
    found = []
    if summary.results.paired < FEW:
        found.append(f"Caution: {summary.results.paired:,} jobs are too few for an answer.")
    used = log.values["utilization"].mean if "utilization" in summary.metrics else math.nan
    if overfull(log):
        found.append(
            f"Caution: more ran at once in the log than this cluster holds (utilisation {used:.2f}): give the cluster that it ran on."
        )
    if used < SPARSE:
        found.append(
            f"Caution: these jobs fill {used:.1%} of this cluster. If they are a sample, or the cluster is not the one that they ran on,"
            " they waited for something that is not here, and nothing below says anything about the real cluster."
        )
    metric = summary.metrics[0]
    if is_wait(metric) and LOADED < used <= 1 + TOLERANCE and log.values[metric].mean < NO_WAIT:
        found.append(
            f"Caution: by the log hardly anybody waited ({_value(summary, log)} on average) with {used:.0%} in use: its submit times may be"
            " start times, and then it says nothing about waits."
        )
    return found


def overfull(log: Standing) -> bool:
    """Whether the log shows that the cluster given is too small."""
    return "utilization" in log.values and log.values["utilization"].mean > 1 + TOLERANCE


def is_close(metric: str, log: Standing, stand_in: Standing) -> bool:
    """Whether simulating what a site runs gives about what its log says."""
    was = log.values[metric].mean
    return abs(stand_in.values[metric].mean - was) <= FAITHFUL * abs(was) and not busy_apart(log, stand_in)


def busy_apart(log: Standing, stand_in: Standing) -> bool:
    """Whether the simulated cluster is so much busier or idler than the real one was that equal waits are chance."""
    simulated, was = (line.values["utilization"].mean if "utilization" in line.values else math.nan for line in (stand_in, log))
    return abs(simulated - was) > FAITHFUL


def _fidelity(summary: Summary, log: Standing, stand_in: Standing) -> str:
    """Say how far the simulated stand-in is from the log: so much of every difference to the log is due to what is not simulated."""
    metric = summary.metrics[0]
    shown = [metric] + (["utilization"] if "utilization" in summary.metrics and metric != "utilization" else [])
    pairs = ", ".join(f"{_title(each)} {_value(summary, stand_in, each)} (log: {_value(summary, log, each)})" for each in shown)
    close = (
        "close to the log"
        if is_close(metric, log, stand_in)
        else "far from the log; what is not simulated (priorities, limits, reservations, outages) may be why, and is in every difference"
        " to the log"
    )
    return f"How faithful: simulated {summary.results.title(stand_in.scheduler)} gives {pairs}: {close}."


def _of_seeds(summary: Summary) -> str:
    metric, top = summary.metrics[0], best_of(summary, candidates(summary))
    if top is None:
        return f"No scheduler can be called best on {metric}."
    base = summary.table.line(summary.table.baseline)
    if top.change is None:
        return f"{summary.results.title(top.scheduler)}, the baseline, has the best {_title(metric)}, {_value(summary, top)}."
    mine, other = (summary.results.title(line.scheduler) for line in (top, base))
    if mine.removesuffix(f" ({top.scheduler})") == other.removesuffix(f" ({base.scheduler})"):  # such as two placements
        mine, other = top.scheduler, base.scheduler
    return f"{mine} is the best of {len(summary.lines)}: against {other} it {_changed(summary, candidates(summary), base, top)}."


def best_of(summary: Summary, known: Sequence[Standing]) -> Standing | None:
    """Choose the best mean on the first metric; of equals, the one in use today."""
    metric, table = summary.metrics[0], summary.table
    better = resolve(metric)[0].better
    if better == "neither" or not known:
        return None
    usual = (table.stand_in, table.baseline)
    return min(known, key=lambda line: (MINIMUM[better] * line.values[metric].mean, line.scheduler not in usual))


def candidates(summary: Summary, *, preempting: bool = True) -> list[Standing]:
    """The simulated schedulers that have a mean and know none of the jobs; of those that stop no running job, unless `preempting`."""
    metric, not_these = summary.metrics[0], {*summary.results.seen} | ({summary.log.scheduler} if summary.log else set())
    lines = [line for line in summary.lines if line.scheduler not in not_these and not math.isnan(line.values[metric].mean)]
    return [line for line in lines if preempting or not line.preempts]


def _title(metric: str) -> str:
    """`mean wait`, `95th percentile of wait`, `utilisation`."""
    return f"{'mean ' if resolve(metric)[1] == 'mean' else ''}{metric_title(metric)}"


def _value(summary: Summary, line: Standing, metric: str = "") -> str:
    metric = metric or summary.metrics[0]
    return quantity(metric, line.values[metric].mean)


def quantity(metric: str, value: float) -> str:
    """A value of a metric with its unit, for a sentence."""
    if math.isnan(value):
        return "not known"
    unit = resolve(metric)[0].unit
    if unit == "s":
        return ("−" if value < 0 else "") + format_seconds(abs(value))
    text = f"{value:,.3g}" if abs(value) < 1000 else f"{value:,.0f}"
    return text.replace("-", "−") + ("" if unit == "1" else f" {unit}")


def _changed(summary: Summary, chosen_from: Sequence[Standing], base: Standing, top: Standing, *, past: bool = False) -> str:
    """`cuts the mean wait from 2h to 1h (corrected for the choice among 17: −45 %; difference −54m, 95 % interval −2h to −9m, by …)`."""
    metric, plain = summary.metrics[0], top.change if base.scheduler == summary.table.baseline else top.to_stand_in
    assert plain is not None
    if plain.mean == 0:
        return f"{'left' if past else 'leaves'} the {_title(metric)} as it is, {_value(summary, top)}"
    verbs = ("cut", "cuts") if plain.mean < 0 else ("raised", "raises")
    several = sum(line is not base for line in chosen_from) > 1
    corrected = gain_of_choice(summary, [line.scheduler for line in chosen_from], base.scheduler) if several else None
    how = f"{'' if corrected else 'not '}corrected for the choice among {len(chosen_from)}: " if several else ""
    change, was = corrected or plain, base.values[metric].mean
    share = f"{change.mean / was:+z.0%}; ".replace("%", " %").replace("-", "−") if was else ""
    text = f"{verbs[0] if past else verbs[1]} the {_title(metric)} from {_value(summary, base)} to {_value(summary, top)}"
    return f"{text} ({how}{share}{_sure(summary, change)})"


def _sure(summary: Summary, change: Difference) -> str:
    mean, low, high = (quantity(summary.metrics[0], value) for value in (change.mean, change.low, change.high))
    if math.isnan(change.low):
        return f"difference {mean}, without an interval: one sample"
    by = "blocks of time" if change.of == "job" else f"{change.n} seeds{' of the noise alone' if summary.log else ''}"
    chance = "" if change.clear else "; it includes 0: this may be chance"
    return f"difference {mean}, 95 % interval {low} to {high}, by {by}{chance}"
