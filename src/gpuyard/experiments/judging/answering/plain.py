"""The answer in everyday words: who is best, by how much, how sure that is, and who pays for it. No codes and no p values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.experiments.judging.answering.fidelity import farthest, fidelity
from gpuyard.experiments.judging.answering.names import (
    MAY_STOP,
    NOTHING,
    amount,
    duration,
    in_sentence,
    is_learned,
    is_wait,
    plain_title,
)
from gpuyard.experiments.judging.answering.waits import LENGTH, PARTITION, SIZE, USER, Change, size_words
from gpuyard.experiments.judging.choice import gain_of_choice, peers_of
from gpuyard.experiments.judging.statistics import FEWEST, Interval
from gpuyard.experiments.judging.summary import MINIMUM, Standing, Summary
from gpuyard.experiments.judging.text import change_in_words, count, rounded, short
from gpuyard.experiments.judging.words import NO_WAIT, best_of, candidates, cautions, is_close, overfull
from gpuyard.metrics import resolve

NEAR = 0.02  # of the reference: a change below it is called about the same
_SURE = "How sure: "
_NO_GAIN = 5e-4  # of today's mean: what would be written as 0 %
_TIMES = 1000.0  # %: an increase from which it is said how many times as much it is
_MOST_PEERS = 3  # that are named
_LONGEST_CHANGE = 0.1  # of the longest wait, from which it is said to have changed


@dataclass(frozen=True)
class Verdict:
    """One scheduler against the one that is used today, on the first metric."""

    best: Standing
    today: Standing  # the log where its simulation is faithful, else what stands in for it; without a log the baseline
    share: Interval  # the change as a share of today's mean, corrected for the choice of the best; below 0 is less
    chosen_from: int  # schedulers that the best was chosen from, with today's

    @property
    def better(self) -> bool | None:
        """Whether it is surely better, surely worse, or neither."""
        if self.share.n < FEWEST or not (self.share.low > 0 or self.share.high < 0):
            return None
        return (self.share.mean < 0) == self.lower_wins

    lower_wins: bool = True
    several: bool = False  # others than today's

    @property
    def untested(self) -> bool:
        """Whether there are too few values to say how sure it is."""
        return self.share.n < FEWEST or not math.isfinite(self.share.low)

    @property
    def chosen(self) -> bool:
        """Whether the best was chosen among several, for which its interval allows; one other than today's is no choice."""
        return self.several and not self.best.challenger


@dataclass(frozen=True)
class PlainAnswer:
    """The answer for a reader in a hurry: one word, one sentence, who pays, how sure, what to do next."""

    word: str  # Yes, Perhaps, No
    sentence: str
    sure: str
    peers: tuple[str, ...]  # who may be as good as the best
    pays: tuple[str, ...]
    trust: tuple[str, ...]  # how faithful the simulation is, cautions
    stable: tuple[str, ...]  # whether the winner is one at other loads, sizes and estimates too
    stops: tuple[str, ...]  # what rules that may stop jobs would do
    next: str
    verdict: Verdict | None

    @property
    def confidence(self) -> str:
        """How sure it is, as a sentence by itself."""
        told = self.sure.removeprefix(_SURE)
        return told[:1].upper() + told[1:]

    @property
    def lines(self) -> list[str]:
        """The answer as the last lines of a table."""
        first = " ".join(filter(None, (self.sentence, self.sure, *self.peers)))
        return [first, *self.pays, *self.stable, *self.trust, *self.stops]


def plain_answer(summary: Summary) -> PlainAnswer | None:
    """PlainAnswer for one workload on one cluster; None where nothing can be compared."""
    found = verdict_of(summary)
    if found is None:
        return None
    trust = tuple(_trust(summary, summary.log)) if summary.log is not None else ()
    stable = (summary.results.stability.words,) if summary.results.stability is not None else ()
    stops = _stops(summary, found)
    if nobody_waits(summary, found):
        return PlainAnswer("No", _no_waits(summary, found), "", (), (), (*trust, _ELSEWHERE), stable, stops, _BUSIER, found)
    if found.best.scheduler == found.today.scheduler:
        return PlainAnswer("No", _nothing_better(summary, found), "", (), (), trust, stable, stops, _next(summary, found, ()), found)
    word = {True: "Yes", False: "No", None: "Perhaps"}[found.better]
    known = candidates(summary, preempting=False)
    peers = peers_of(summary, found.best, [line for line in known if line is not found.today]) if found.chosen and found.better else ()
    pays = tuple(_pays(summary, found)) if found.better is not False else _consolation(summary, found)
    told = (_sentence(summary, found), _sure(summary, found), tuple(peers_sentence(summary, peers)), pays, trust, stable, stops)
    return PlainAnswer(word, *told, _next(summary, found, peers), found)


def verdict_of(summary: Summary, *, preempting: bool = False) -> Verdict | None:
    """Choose the best scheduler and judge it against today's; a rule that stops running jobs only if `preempting`."""
    challengers = [line for line in summary.lines if line.challenger]
    known = challengers or candidates(summary, preempting=preempting)
    best = best_of(summary, known)
    today = today_of(summary)
    if best is None or today is None:
        return None
    others = [line for line in known if line is not today]
    if best is today and len(known) == 2 and len(others) == 1:
        best = others[0]  # who asks about one scheduler wants to know how that one does
    return _judged(summary, best, today, known)


def today_of(summary: Summary) -> Standing | None:
    """Find what the reader has today: of a log what happened if simulating it is faithful, else its stand-in; else the baseline."""
    log, stand_in = summary.log, summary.stand_in
    if log is not None and stand_in is not None and summary.table.baseline == log.scheduler:
        return log if is_close(summary.metrics[0], log, stand_in) else stand_in
    return summary.table.line(summary.table.baseline)


def in_order(summary: Summary) -> list[Standing]:
    """The lines of the first objective, the best mean first; what has no mean comes last."""
    sign = MINIMUM[resolve(summary.table.objective)[0].better]

    def rank(line: Standing) -> float:
        mean = sign * line.values[summary.table.objective].mean
        return math.inf if math.isnan(mean) else mean

    return sorted(summary.lines, key=rank)


def against_today(summary: Summary, line: Standing) -> Interval | None:
    """The change of the first metric from today's mean, as a share of it; None for today's line itself and for the log."""
    today = today_of(summary)
    if today is None or line is today or line is summary.log:
        return None
    if today.scheduler == summary.table.baseline:
        return line.versus.share_interval if line.versus is not None else None
    found, was = line.to_stand_in, abs(today.values[summary.metrics[0]].mean)
    if found is None or not was > 0:
        return None
    return Interval(found.mean / was, max(found.low / was, -1.0), found.high / was, found.n if found.of == "seed" else FEWEST)


def change_cell(summary: Summary, line: Standing) -> str:
    """`51 % shorter` than today, and in a second line the interval, `40 to 60 %`; empty for today's line and the log."""
    share, today = against_today(summary, line), today_of(summary)
    if share is not None and math.isfinite(share.mean):
        return share_cell(share, summary.table.objective)
    if today is None or line is today or line is summary.log:
        return ""
    mine, theirs = (each.values[summary.metrics[0]].mean for each in (line, today))  # of nothing there is no share
    return "the same" if mine == theirs else comparatives(summary.metrics[0])[mine > theirs] if math.isfinite(mine - theirs) else "–"


def share_cell(share: Interval, metric: str) -> str:
    """Write a change as `change_cell` does."""
    less, more = comparatives(metric)
    if not math.isfinite(share.mean):
        return "–"
    width = 100 * (share.high - share.low)
    if not math.isfinite(width):
        return f"{short(abs(100 * share.mean))} % {less if share.mean < 0 else more}"
    if share.mean == 0 and width == 0:
        return "the same"
    if share.low > 0 or share.high < 0:
        mean = f"{rounded(abs(100 * share.mean), width, most=0)} % {less if share.mean < 0 else more}"
        return mean + f"\n{' to '.join(rounded(each, width, most=0) for each in sorted((abs(100 * share.low), abs(100 * share.high))))} %"
    ends = " to ".join(rounded(100 * end, width, "+", most=0).replace("-", "−") for end in (share.low, share.high))
    return f"unclear\n{ends} %"


def comparatives(metric: str) -> tuple[str, str]:
    """The words for less and more of a metric."""
    return ("shorter", "longer") if is_wait(metric) else ("lower", "higher")


def _judged(summary: Summary, best: Standing, today: Standing, known: Sequence[Standing]) -> Verdict:
    metric = summary.metrics[0]
    lower = MINIMUM[resolve(metric)[0].better] > 0
    plain = best.change if today.scheduler == summary.table.baseline else best.to_stand_in
    several = sum(line.scheduler != today.scheduler for line in known) > 1
    corrected = gain_of_choice(summary, [line.scheduler for line in known], today.scheduler) if several and not best.challenger else None
    change, was = corrected or plain, abs(today.values[metric].mean)
    if change is None or not was > 0:
        return Verdict(best, today, Interval(math.nan, math.nan, math.nan, 0), len(known), lower, several)
    n = change.n if change.of == "seed" else max(best.values[metric].n, FEWEST if math.isfinite(change.low) else 0)
    least = -1.0 if today.values[metric].low >= 0 else -math.inf  # nothing can fall by more than all of it
    low, high = (max(end / was, least) if math.isfinite(end) else math.nan for end in (change.low, change.high))
    return Verdict(best, today, Interval(change.mean / was, low, high, n), len(known), lower, several)


# ── sentences ──


def _subject(summary: Summary, line: Standing) -> str:
    """A scheduler's name at the beginning of a sentence."""
    name = summary.results.name(line.scheduler)
    return f"The {in_sentence(name).removeprefix('the ')}" if is_learned(name) else name


def by_how_much(share: Interval, metric: str) -> str:
    """`between 45 and 60 % less`, or `it may be 3 % more or 12 % less`."""
    less, more = comparatives(metric)
    low, high = 100 * share.low, 100 * share.high
    if not (math.isfinite(low) and math.isfinite(high)):
        return f"{short(abs(100 * share.mean))} % {less if share.mean < 0 else more}"
    width = high - low
    if low > 0 or high < 0:
        least, most = (rounded(each, width, most=0) for each in sorted((abs(low), abs(high))))
        span = f"{most} %" if least == most else f"between {least} and {most} %"
        return f"{span} {less if share.mean < 0 else more}"
    most = (
        f"{1 + high / 100:,.0f} times as {'long' if is_wait(metric) else 'high'}"
        if high >= _TIMES
        else f"{rounded(high, width, most=0)} % {more}"
    )
    return f"between {rounded(-low, width, most=0)} % {less} and {most}"


def _sentence(summary: Summary, found: Verdict) -> str:
    metric, name = summary.metrics[0], summary.results.name
    best, today = _subject(summary, found.best), in_sentence(name(found.today.scheduler))
    before, after = (amount(metric, line.values[metric].mean) for line in (found.today, found.best))
    what, log = plain_title(metric), summary.log is not None
    among = f", the best of {count(found.chosen_from, 'scheduler')} that stop no job," if found.chosen else ""
    if found.better is True:
        verb = "would have cut" if log else "cuts"
        verb = verb if found.lower_wins else ("would have raised" if log else "raises")
        by = by_how_much(found.share, metric)
        against = f" under {today}" if found.today is not summary.log else ""
        return f"{best}{among} {verb} the {what} from {before}{against} to {after} ({by})."
    if found.better is False:
        return f"{best} gives a {what} of {after}, {today} gives {before}: it is surely worse ({by_how_much(found.share, metric)})."
    return f"Nothing is surely better than {today}, with a {what} of {before}. {best}{among} gives {after}."


def headline(summary: Summary) -> str:
    """The whole answer as one sentence: yes, perhaps or no, by how much, and who pays."""
    answer, metric, name = plain_answer(summary), summary.metrics[0], summary.results.name
    what = plain_title(metric)
    if answer is None or answer.verdict is None:
        line = summary.lines[-1]
        return f"{name(line.scheduler)} gives a {what} of {amount(metric, line.values[metric].mean)}."
    found = answer.verdict
    best, today = in_sentence(name(found.best.scheduler)), in_sentence(name(found.today.scheduler))
    before, after = (amount(metric, line.values[metric].mean) for line in (found.today, found.best))
    if nobody_waits(summary, found):
        return f"No: {in_sentence(_no_waits(summary, found))}"
    if found.best.scheduler == found.today.scheduler:
        told = _nothing_better(summary, found)
        return f"No: {in_sentence(told)}"
    if found.better is None:
        verbs = ("would have given", "gave" if found.today is summary.log else "would have given") if summary.log else ("gives", "gives")
        return f"Perhaps: {best} {verbs[0]} a {what} of {after} where {today} {verbs[1]} {before}, but this may be chance."
    if found.better is False:
        return f"No: {best} gives a {what} of {after} where {today} gives {before} ({by_how_much(found.share, metric)})."
    verb = ("would have cut" if summary.log else "cuts") if found.lower_wins else ("would have raised" if summary.log else "raises")
    return f"Yes: {best} {verb} the {what} from {before} to {after} ({by_how_much(found.share, metric)}){_at_whose_cost(summary, found)}."


def _at_whose_cost(summary: Summary, found: Verdict) -> str:
    waits, pair = summary.results.waits, (found.best.scheduler, found.today.scheduler)
    if waits is None:
        return ""
    groups, device = (LENGTH, SIZE, PARTITION), summary.results.device
    losers = [who_of(each, change, device) for each in groups for change in waits.changes(each, *pair) if _surely_pays(change)]
    if losers:
        return f", and {' and '.join(losers[:2])} pay for it"
    users = waits.changes(USER, *pair)
    losing = sum(each.longer for each in users)
    return f", and {losing:,} of {count(len(users), 'user')} {'wait' if losing != 1 else 'waits'} longer" if losing else ""


def _surely_pays(change: Change) -> bool:
    return change.longer and change.sure


def _nothing_better(summary: Summary, found: Verdict) -> str:
    metric = summary.metrics[0]
    value = amount(metric, found.best.values[metric].mean)
    others = f" of {count(found.chosen_from, 'scheduler')} that stop no job" if found.chosen_from > 1 else ""
    waits, who = summary.results.waits, found.best.scheduler
    tail = f"; 99 % of the jobs wait less than {duration(waits.most[who])}, the longest {duration(waits.longest[who])}" if waits else ""
    if len({line.values[metric].mean for line in candidates(summary, preempting=False)}) == 1 < found.chosen_from:
        return f"The {count(found.chosen_from, 'scheduler')} that stop no job are level: {plain_title(metric)} {value}{tail}."
    return f"{_subject(summary, found.best)}, as today, is the best{others}: {plain_title(metric)} {value}{tail}."


def _sure(summary: Summary, found: Verdict) -> str:
    n, over = found.share.n, "seeds" if summary.results.sample is None else "blocks of time"
    chosen = f", allowing for the choice among {found.chosen_from}" if found.chosen else ""
    if found.untested:
        return f"{_SURE}there is too little to tell; take it as a hint."
    if found.better is None and found.chosen and max(abs(found.share.low), abs(found.share.high)) < _NO_GAIN:
        told = "who is best on the rest of the jobs gains nothing on any part of them: this may be chance."
        return f"{_SURE}{told}{_taken_alone(summary, found)}"
    if found.better is None:
        by = by_how_much(found.share, summary.metrics[0])
        return f"{_SURE}the true change may be {by} (95 % interval{chosen}): this may be chance.{_taken_alone(summary, found)}"
    versus, alone = found.best.versus, against_today(summary, found.best)
    wins = ""
    if versus is not None and found.today.scheduler == summary.table.baseline and summary.results.sample is None:
        wins = f" It is better in {versus.wins} of {versus.wins + versus.ties + versus.losses} seeds."
    wider = chosen and alone is not None and alone.high - alone.low < found.share.high - found.share.low
    return f"{_SURE}the range is a 95 % interval over {n} {over}{chosen}{', so wider than in the table' if wider else ''}.{wins}"


def _taken_alone(summary: Summary, found: Verdict) -> str:
    """Explain why the best is called unsure although its own interval, as tables show it, excludes 0."""
    alone = against_today(summary, found.best)
    if alone is None or not found.chosen or alone.n < FEWEST or not (alone.low > 0 or alone.high < 0):
        return ""
    return f" Taken alone it is {by_how_much(alone, summary.metrics[0])}, but it was picked as the best on these very jobs."


def peers_sentence(summary: Summary, found: Sequence[Standing]) -> list[str]:
    """`Not surely worse: smallest area first + EASY (33.6 min) and shortest job first + EASY (33.6 min).`; empty where there are none."""
    if not found:
        return []
    metric, name = summary.metrics[0], summary.results.name
    told = [f"{in_sentence(name(line.scheduler))} ({amount(metric, line.values[metric].mean)})" for line in found[:_MOST_PEERS]]
    told += [f"{len(found) - _MOST_PEERS} more"] * (len(found) > _MOST_PEERS)
    return [f"Not surely worse: {', '.join(told[:-1])}{' and ' if len(told) > 1 else ''}{told[-1]}."]


def _pays(summary: Summary, found: Verdict) -> list[str]:
    waits = summary.results.waits
    if waits is None:
        return []
    mine, base = found.best.scheduler, found.today.scheduler
    parts = []
    for grouping in (LENGTH, SIZE, PARTITION):
        losers = [each for each in waits.changes(grouping, mine, base) if _surely_pays(each)]
        parts += [f"{who_of(grouping, each, summary.results.device)} wait {by_how_much(each.share, 'wait')}" for each in losers[:2]]
    perhaps = [who_of(LENGTH, each, summary.results.device) for each in waits.changes(LENGTH, mine, base) if each.longer and not each.sure]
    parts += [f"perhaps {perhaps[-1]}"] if perhaps else []
    users = waits.changes(USER, mine, base)
    if users:
        losing = [each for each in users if each.longer]
        worst = max(losing, key=lambda each: each.after - each.before, default=None)
        most = f", {'the most ' * (len(losing) > 1)}by {duration(worst.after - worst.before)}" if worst is not None else ""
        verb = "wait" if len(losing) > 1 else "waits"
        parts.append(f"{f'{len(losing):,}' if losing else 'none'} of {count(len(users), 'user')} {verb} longer on average{most}")
    before, after = waits.longest[base], waits.longest[mine]
    if abs(after - before) > _LONGEST_CHANGE * before:
        verb = "grows" if after > before else "falls"
        parts.append(f"the longest wait {verb} from {duration(before)} to {duration(after)}")
    else:
        parts.append(f"the longest wait stays about the same, {duration(after)}")
    parts.append(f"99 % of the jobs wait less than {duration(waits.most[mine])} ({duration(waits.most[base])} as today)")
    text = "; ".join(parts)
    return [f"Who pays: {text}."]


def _consolation(summary: Summary, found: Verdict) -> tuple[str, ...]:
    """Say that the longest wait falls although the mean does not."""
    waits = summary.results.waits
    before, after = (waits.longest[line.scheduler] if waits else 0.0 for line in (found.today, found.best))
    fell = before - after > _LONGEST_CHANGE * before
    return (f"In return the longest wait falls from {duration(before)} to {duration(after)}.",) if fell else ()


def who_of(grouping: str, change: Change, device: str) -> str:
    """`jobs over 12 h`, `jobs on 2 to 8 GPUs`, `jobs in partition gpu`."""
    words = {
        LENGTH: f"jobs of {change.group}",
        SIZE: f"jobs on {size_words(change.group, device)}",
        PARTITION: f"jobs in partition {change.group}",
    }
    return words[grouping].replace("jobs of under", "jobs under").replace("jobs of over", "jobs over")


def _stops(summary: Summary, found: Verdict) -> tuple[str, ...]:
    lines = []
    stopping = [line for line in candidates(summary) if line.preempts and not line.challenger]
    top = best_of(summary, stopping)
    if top is not None and not found.best.preempts:
        lines.append(_with_stops(summary, _judged(summary, top, found.today, stopping), found.best))
    if summary.results.what_if is not None:
        lines.append(_supposed(summary))
    return tuple(lines)


def _trust(summary: Summary, log: Standing) -> list[str]:
    """Say how near the simulation of what sites run is to what happened, and what speaks against any answer."""
    metric, stand_in = summary.metrics[0], summary.stand_in
    assert stand_in is not None
    simulated, happened = (amount(metric, line.values[metric].mean) for line in (stand_in, log))
    close = is_close(metric, log, stand_in)
    fit = summary.results.calibration
    missing = (
        "priorities, limits and reservations"
        if fit is not None and fit.simulates_outages
        else "priorities, limits, reservations and outages"
    )
    far = "" if close else f", so the answer compares simulations; {missing} are not simulated"
    name = in_sentence(summary.results.name(stand_in.scheduler))
    text = f"How faithful: simulating {name} gives a {plain_title(metric)} of {simulated}, the log says {happened}"
    if "utilization" in log.values and not overfull(log):
        busy = [amount("utilization", line.values["utilization"].mean) for line in (stand_in, log)]
        text += f", with {busy[0]} of the {summary.results.device} busy (log: {busy[1]})"
    groups = farthest(fidelity(summary.results.waits, stand_in.scheduler), summary.results.device) if is_wait(metric) else ""
    calibrated = [fit.words] if fit is not None else []
    return [*cautions(summary, log), f"{text}: {'close' if close else 'far apart'}{far}. {groups}".strip(), *calibrated]


def _with_stops(summary: Summary, found: Verdict, other: Standing) -> str:
    metric, name = summary.metrics[0], summary.results.name
    value, today = amount(metric, found.best.values[metric].mean), in_sentence(name(found.today.scheduler))
    by = by_how_much(found.share, metric)
    sure = f"{by} than under {today}" if found.better is not None else f"not surely different from {today}"
    best = amount(metric, other.values[metric].mean)
    longest = summary.results.waits.longest[found.best.scheduler] if summary.results.waits else math.nan
    tail = f"; the longest wait is {duration(longest)}" if math.isfinite(longest) else ""
    who = in_sentence(name(found.best.scheduler)).removesuffix(MAY_STOP)
    return f"Where jobs may be stopped: {who} gives a {plain_title(metric)} of {value} (without stops {best}), {sure}{tail}."


def _supposed(summary: Summary) -> str:
    found = summary.results.what_if
    assert found is not None
    before, after = map(duration, found.wait)
    change = change_in_words(found.change)
    if found.change.low < 0 < found.change.high and "between" in change:
        change = f"does not clearly change ({by_how_much(found.change, 'wait')})"
    return (
        "If half of the jobs could be stopped, which this log does not say (checkpoints every 10 min, 1 min to restart): ranked by what"
        f" is probably left of them, the mean wait under smallest area first + EASY {change}, from {before} to {after}."
    )


def _next(summary: Summary, found: Verdict, peers: Sequence[Standing]) -> str:
    name = summary.results.name
    if found.best.scheduler == found.today.scheduler or found.better is False:
        return "Keep what you have; try a longer log, a higher load or rules that may stop jobs before changing anything."
    best = in_sentence(name(found.best.scheduler))
    stable = summary.results.stability
    if stable is not None and stable.reversed:
        return f"Do not switch for good: {best} loses elsewhere, see above. Try it in the shadow at the load that you expect."
    if found.better is None:
        alone = f" Or compare {best} alone with today's on another stretch of time." if _taken_alone(summary, found) else ""
        return f"Do not change anything on this evidence. A longer log, or several, would tell.{alone}"
    rules = [line for line in peers if not is_learned(name(line.scheduler))]
    if is_learned(name(found.best.scheduler)) and rules:
        rule = in_sentence(name(rules[0].scheduler))
        return f"Try {rule} first, which is simpler and not surely worse: on another stretch of time, with your limits, then in the shadow."
    return f"Check {best} on another stretch of time and with your limits and priorities, then run it in the shadow."


# ── where nobody waits ──

_ELSEWHERE = "Where people did wait, it was for something that is not simulated here: a smaller cluster, partitions, limits or quotas."
_BUSIER = "Give the cluster and its partitions as they were (--cluster FILE), or ask what happens when it fills up (--apply load:0.9)."


def nobody_waits(summary: Summary, found: Verdict) -> bool:
    """Whether waits are too short for any scheduler to matter, and none is surely better."""
    metric = summary.metrics[0]
    return is_wait(metric) and resolve(metric)[1] == "mean" and found.today.values[metric].mean < NO_WAIT and not found.better


def shows_gains(summary: Summary, found: Verdict) -> bool:
    """Whether it is worth showing who gains and who loses: the best is another than today's, and somebody waits."""
    return found.best.scheduler != found.today.scheduler and not nobody_waits(summary, found)


def _no_waits(summary: Summary, found: Verdict) -> str:
    metric, today = summary.metrics[0], found.today.values
    busy = (
        f", with {amount('utilization', today['utilization'].mean)} of the {summary.results.device} busy" if "utilization" in today else ""
    )
    if summary.log is not None and found.today is not summary.log and summary.log.values[metric].mean >= NO_WAIT:
        logged = amount(metric, summary.log.values[metric].mean)
        few, much = ("no job waits", "") if today[metric].mean < NOTHING else ("hardly any job waits", "much ")
        reasons = f"the {plain_title(metric)} of {logged} in the log had other reasons"
        return f"Simulated, {few}{busy}, so no scheduler can be {much}better; {reasons}."
    if today[metric].mean < NOTHING:
        return f"No job waits{busy}. There is nothing to gain."
    name = in_sentence(summary.results.name(found.today.scheduler))
    under = "" if found.today is summary.log else f" under {name}"
    wait = f"{plain_title(metric)} is {amount(metric, today[metric].mean)}{under}"
    return f"Hardly any job waits{busy}. The {wait}, so there is next to nothing to gain."
