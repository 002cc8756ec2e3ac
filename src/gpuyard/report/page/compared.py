"""The page of `compare` and `evaluate`: would another scheduler serve these jobs better, whom, and how sure is that?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from gpuyard.experiments.judging.answering.fidelity import FARTHEST, HEADER, GroupFidelity, farthest, fidelity, rows_of
from gpuyard.experiments.judging.answering.names import amount, duration, in_sentence, is_wait, plain_title
from gpuyard.experiments.judging.answering.plain import (
    Verdict,
    against_today,
    headline,
    in_order,
    plain_answer,
    share_cell,
    shows_gains,
    today_of,
)
from gpuyard.experiments.judging.answering.waits import LENGTH, PARTITION, SIZE, USER, Change, Waits
from gpuyard.experiments.judging.statistics import FEWEST
from gpuyard.experiments.judging.summary import Standing, Summary
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.judging.words import answer
from gpuyard.report.page.dots import Kind, dot_chart, metric_dot, metric_scale
from gpuyard.report.page.frame import ReportPage, document, text
from gpuyard.report.page.made import made_parts, places_of
from gpuyard.report.page.parts import (
    TableCell,
    TableRow,
    card,
    change_bars,
    change_table,
    grid,
    level_bars,
    sentences,
    split_bar,
    table,
)

MOST_SERIES = 6  # in a chart that nobody has opened
MOST_ROWS = 5  # of the table of schedulers on paper
MOST_GROUPS = 6
MOST_USERS = 3  # who lose or gain most
MOST_TRUST = 5  # sentences on how far to trust it


def comparison_page(summary: Summary) -> str:
    """Write the page of one workload on one cluster."""
    return document(compared(summary))


def compared(summary: Summary) -> ReportPage:
    """Lay out the page of one workload on one cluster."""
    found, told = plain_answer(summary), headline(summary)
    verdict = _shown_verdict(summary, found.verdict if found else None)
    bold, colon, rest = told.partition(": ")
    return ReportPage(
        places_of(summary), question(summary), f"<b>{text(bold)}{colon.strip()}</b> {text(rest)}" if colon else text(told),
        [
            grid([_hero(summary), _gains_card(summary, verdict)], "hero"),
            _what_happened(summary),
            _groups(summary, verdict),
            grid([_trust(summary), _next_steps(summary)], "tell"),
        ],
        [_paper_table(summary), _users(summary, verdict), grid([_not_simulated(summary), _undo(summary)], "tell"),
         grid([_elsewhere(summary), _stops(summary)], "tell")],
        [
            ("All schedulers, all numbers", schedulers_table(summary, every=True)),
            ("Charts of the other numbers", "".join(_further_charts(summary))),
            ("The answer with its statistics", sentences(answer(summary))),
            *([("How faithful, by partition and size", faithful)] if (faithful := _faithful(summary)) else []),
        ],
        made_parts([summary]),
    )  # fmt: skip


def question(summary: Summary) -> str:
    """Return the question that the comparison answers."""
    challengers = [line for line in summary.lines if line.challenger]
    if len(summary.lines) == 1:
        return f"How does {in_sentence(summary.results.name(summary.lines[0].scheduler))} serve these jobs?"
    if len(challengers) == 1:
        return f"Is {in_sentence(summary.results.name(challengers[0].scheduler))} better than what there is?"
    if challengers:
        return "Is one of these learned schedulers better than what there is?"
    log = summary.log is not None
    return f"Would another scheduler {'have served these users' if log else 'serve these jobs'} better?"


def _shown_verdict(summary: Summary, found: Verdict | None) -> Verdict | None:
    """The verdict whose gains and losses are shown; None where there are none."""
    return found if found is not None and summary.results.waits is not None and shows_gains(summary, found) else None


# ── the chart ──


def _hero(summary: Summary) -> str:
    metric = summary.metrics[0]
    lines = _main_lines(summary)
    left = len(summary.lines) - len(lines)
    more = f" {left} more schedulers are in the tables." if left else ""
    return card(_finding(summary), metric_chart(summary, metric, lines), sub=_chart_words(summary, metric) + more)


def metric_chart(summary: Summary, metric: str, lines: Sequence[Standing]) -> str:
    """Draw the means of a metric; only those of the first metric have colours, because only these are compared."""
    first, today = metric == summary.metrics[0], today_of(summary)
    dots = []
    for line in lines:
        value, name = line.values[metric], summary.results.name(line.scheduler)
        code = "" if line is summary.log or name == line.scheduler else line.scheduler
        kind = _kind(summary, line) if first else "base" if line is today or line is summary.log else "unclear"
        dots.append(metric_dot(name, code, metric, value, kind))
    now = today.values[metric].mean if today is not None and len(lines) > 1 else math.nan
    name = "today, simulated" if summary.log is not None and today is not summary.log else "today"
    return dot_chart(dots, metric_scale(dots, metric, now, name), f"{plain_title(metric)} of {count(len(lines), 'scheduler')}")


def _main_lines(summary: Summary) -> list[Standing]:
    """Choose what is shown unless more is asked for, the best first: challengers, today's, the log, then the best."""
    every, today = in_order(summary), today_of(summary)
    first = [line for line in every if line.challenger or line is today or line is summary.log]
    chosen = [*first, *(line for line in every if line not in first)][:MOST_SERIES]
    return [line for line in every if line in chosen]


def _kind(summary: Summary, line: Standing) -> Kind:
    """How a scheduler stands against today's: surely better, surely worse, or neither.

    Where the best of all is not surely better, allowing for its choice, no other that stops no job is said to be.
    """
    change, found = against_today(summary, line), plain_answer(summary)
    if change is None:
        return "base"
    if change.n < FEWEST or not (change.low > 0 or change.high < 0):
        return "unclear"
    lower_wins = line.versus is None or line.versus.lower_wins
    if (change.mean < 0) != lower_wins:
        return "bad"
    doubted = found is not None and found.verdict is not None and found.verdict.better is not True
    return "unclear" if doubted and not line.preempts else "good"


def _finding(summary: Summary) -> str:
    """Say in the chart's title what it shows."""
    today, title = today_of(summary), _capital(plain_title(summary.metrics[0]))
    if today is None or len(summary.lines) == 1:
        return title
    kinds = [_kind(summary, line) for line in summary.lines if line is not today and line is not summary.log]
    better = kinds.count("good")
    if not kinds:
        return f"{title}, simulated and as it was"
    if not better:
        return "No scheduler is surely better than today's"
    among = "the other one" if len(kinds) == 1 else f"all {better} others" if better == len(kinds) else f"{better} of {len(kinds)} others"
    verb = "Jobs wait clearly less" if is_wait(summary.metrics[0]) else f"{title} is clearly better"
    return f"{verb} under {among} than under today's"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _chart_words(summary: Summary, metric: str) -> str:
    title = plain_title(metric)
    return f"{_capital(title)} and its 95 % range. Disc: surely better than today; ring: not sure; diamond: surely worse."


def _further_charts(summary: Summary) -> Iterable[str]:
    """Yield a chart for each metric: every scheduler."""
    for metric in summary.metrics[0 if len(summary.lines) > MOST_SERIES else 1 :]:
        title = plain_title(metric)
        lines = [line for line in in_order(summary) if math.isfinite(line.values[metric].mean)]
        yield f"<figure><h3>{text(_capital(title))}</h3>{metric_chart(summary, metric, lines)}</figure>"


# ── who gains and who loses ──


def _gains_card(summary: Summary, found: Verdict | None) -> str:
    if found is None:
        return _levels_card(summary)
    waits = summary.results.waits
    assert waits is not None
    name = summary.results.name
    changes = waits.changes(LENGTH, found.best.scheduler, found.today.scheduler)
    pairs = f"{name(found.best.scheduler)} against {in_sentence(name(found.today.scheduler))}"
    bars = f'<div><p class="sub">Change of the wait by length of the job</p>{change_bars(changes)}</div>'
    return card("Who gains, who pays", f'<div class="duo">{_big(summary, found)}{bars}</div>', sub=pairs)


def _levels_card(summary: Summary) -> str:
    """How long jobs wait today by length, where there is no change to show."""
    waits, today = summary.results.waits, today_of(summary)
    if waits is None or today is None:
        return ""
    found = waits.changes(LENGTH, today.scheduler, today.scheduler)
    name = in_sentence(summary.results.name(today.scheduler))
    return card(
        "Who waits how long",
        level_bars([(each.group, each.jobs, each.after) for each in found]),
        sub=f"Mean wait under {name}, by length of the job",
    )


def _big(summary: Summary, found: Verdict) -> str:
    """Two large numbers: all jobs, and those who pay most."""
    waits = summary.results.waits
    assert waits is not None
    shown = []
    metric = summary.metrics[0]
    before, after = (line.values[metric].mean for line in (found.today, found.best))
    if is_wait(metric) and before > 0:
        kind = "unclear" if found.better is None else "good" if found.better else "bad"
        words = ("shorter" if after < before else "longer") + ("" if found.better is not None else ", perhaps")
        shown.append(f'<div><b class="{kind}">{abs(100 * (after / before - 1)):.0f} %</b><span>{words}: all jobs</span></div>')
    users = waits.changes(USER, found.best.scheduler, found.today.scheduler)
    if users:
        losing = sum(each.longer for each in users)
        shown.append(
            f'<div><b class="{"bad" if losing else "good"}">{losing:,}</b><span>of {count(len(users), "user")} '
            f"{'waits' if losing == 1 else 'wait'} longer</span></div>"
        )
    before, after = (waits.longest[line.scheduler] for line in (found.today, found.best))
    shown.append(
        f'<div><b class="{"bad" if after > before * 1.1 else "good" if after < before * 0.9 else ""}">{text(duration(after))}</b>'
        f"<span>longest wait (today {text(duration(before))})</span></div>"
    )
    return f'<div class="big">{"".join(shown)}</div>'


def _groups(summary: Summary, found: Verdict | None) -> str:
    """Show changes by size, partition and user."""
    if found is None:
        return ""
    waits = summary.results.waits
    assert waits is not None
    pair = (found.best.scheduler, found.today.scheduler)
    cards = []
    for grouping, title, sub in (
        (SIZE, "By size of the job", summary.results.device),
        (PARTITION, "By partition", f"the {MOST_GROUPS} with most jobs"),
    ):
        changes = sorted(waits.changes(grouping, *pair), key=lambda each: -each.jobs)[:MOST_GROUPS]
        shown = [each for each in waits.changes(grouping, *pair) if each in changes]
        if len(shown) > 1:
            cards.append(
                card(title, change_bars(shown), sub=sub if grouping == SIZE or len(changes) == MOST_GROUPS else "change of the wait")
            )
    cards.append(_user_card(waits, pair))
    return f"<h2>Who gains and who loses</h2>{grid(cards)}"


def _user_card(waits: Waits, pair: tuple[str, str]) -> str:
    users = waits.changes(USER, *pair)
    if not users:
        return ""
    losing, gaining = ([each for each in users if getattr(each, name)] for name in ("longer", "shorter"))
    same = len(users) - len(losing) - len(gaining)
    bar = split_bar([("good", len(gaining)), ("", same), ("bad", len(losing))])
    worst = max(losing, key=_loss, default=None)
    most = f", the most by {duration(_loss(worst))} on average" if worst is not None else ""
    words = (
        f'<p><b class="good">{len(gaining):,}</b> of {count(len(users), "user")} wait less, <b>{same:,}</b> about as long as today, '
        f'<b class="{"bad" if losing else ""}">{len(losing):,}</b> longer{most}.</p>'
    )
    return card("By user", bar, words, sub="longer: by a minute and 5 % at least")


def _loss(change: Change) -> float:
    return change.after - change.before


def _users(summary: Summary, found: Verdict | None) -> str:
    """List who loses and who gains most, for the operator who will be asked."""
    if found is None:
        return ""
    waits = summary.results.waits
    assert waits is not None
    users = sorted(waits.changes(USER, found.best.scheduler, found.today.scheduler), key=lambda each: each.jobs * _loss(each))
    losing = [each for each in reversed(users) if each.longer][:MOST_USERS]
    gaining = [each for each in users if each.shorter][:MOST_USERS]
    if not (losing or gaining):
        return ""
    cards = [card(title, change_table(rows, "user")) for title, rows in (("Who loses most", losing), ("Who gains most", gaining)) if rows]
    return f"<h2>Users who will ask</h2>{grid(cards)}"


# ── what happened, how sure, what next ──


def _what_happened(summary: Summary) -> str:
    """Say in a line what the log says, or what today's scheduler would do."""
    line = summary.log or today_of(summary)
    if line is None:
        return ""
    values = ((plain_title(metric, summary.results.device), amount(metric, line.values[metric].mean)) for metric in summary.metrics[:4])
    shown = "".join(f"<div><b>{text(value)}</b><span>{text(name)}</span></div>" for name, value in values)
    happened = summary.log is not None
    who = "as the log says" if happened else "simulated"
    return card("What happened" if happened else "What happens today", f'<div class="figures">{shown}</div>', sub=who, kind="strip")


def _trust(summary: Summary) -> str:
    found, title = plain_answer(summary), "How far to trust it"
    if found is None:
        return card(title, sentences(["There is nothing to compare with."]))
    told = [each for each in (found.confidence, *found.peers, *found.trust) if each][:MOST_TRUST]
    lines = [each.partition(f" {FARTHEST}")[0] for each in told]  # the operator's sheet says where
    return card(title, sentences(lines or ["Nothing here is better than today's, so there is nothing to doubt."]))


def _stops(summary: Summary) -> str:
    """Say what could be gained where jobs may be stopped, for the operator."""
    found = plain_answer(summary)
    lines = [_capital(line.removeprefix("Where jobs may be stopped: ")) for line in found.stops] if found else []
    return card("If jobs may be stopped", *(f"<p>{text(line)}</p>" for line in lines)) if lines else ""


def _elsewhere(summary: Summary) -> str:
    """Say whether the winner is one elsewhere too, and where the simulation is farthest from the log, for the operator."""
    found = plain_answer(summary)
    lines = list(found.stable) if found else []
    far = farthest(_fidelity_of(summary), summary.results.device)
    return card("How firm it is", sentences([*lines, *([far] if far else [])])) if lines or far else ""


def _faithful(summary: Summary) -> str:
    """The log beside the simulated present, by partition and size; empty without a log."""
    device = summary.results.device
    rows = [TableRow(name, [TableCell(cell) for cell in cells]) for name, *cells in rows_of(_fidelity_of(summary), device)]
    caption = f"In use: {device} on average while jobs are submitted."
    return table(list(HEADER), rows, caption=caption, name="how faithful") if rows else ""


def _fidelity_of(summary: Summary) -> list[GroupFidelity]:
    return fidelity(summary.results.waits, summary.table.stand_in)


def _not_simulated(summary: Summary) -> str:
    """Say what a real site has that no number on this page knows."""
    lines = [
        "Users react: with shorter waits they submit more.",
        "Limits, reservations and outages that no cluster file states.",
    ]
    return card("What is not simulated", sentences(lines))


def _undo(summary: Summary) -> str:
    """Say what to try first, and how to take it back."""
    found = plain_answer(summary)
    if found is None or found.verdict is None or found.verdict.best is found.verdict.today:
        return ""
    code = found.verdict.best.scheduler
    lines = [
        "Note today's waits, and the one at which you go back.",
        f"gpuyard deploy slurm --scheduler {code} --shadow only watches. To undo: stop it.",
        "Then only their order: --order. To undo: --reset.",
    ]
    return card("What to try first, and how to undo it", sentences(lines, ordered=True))


def _next_steps(summary: Summary) -> str:
    found = plain_answer(summary)
    steps = [found.next] if found else ["Compare it with others: `gpuyard compare`."]
    if found and found.verdict and found.verdict.better:
        steps += ["See whether it still holds when jobs come 10 % faster: add --apply stretch:0.91 to the command below."]
    if summary.log is not None:
        steps += ["Simulate your own priorities, limits and reservations: give them in a cluster file."]
    return card("What to do next", sentences(steps, ordered=True))


# ── tables ──


def _paper_table(summary: Summary) -> str:
    """The table of schedulers as it is printed; on the screen it is folded, with every number."""
    return f'<div class="print"><h2>All schedulers</h2>{schedulers_table(summary)}</div>'


def schedulers_table(summary: Summary, *, every: bool = False) -> str:
    """Schedulers, the best first: change against the baseline, and means; the range of each mean if `every`."""
    metric, today = summary.metrics[0], today_of(summary)
    metrics = summary.metrics if every else summary.metrics[:4]
    lines = in_order(summary) if every else in_order(summary)[:MOST_ROWS]
    head = ["scheduler", *([f"{plain_title(metric)} against today's"] if len(summary.lines) > 1 else [])]
    head += [plain_title(name, summary.results.device) for name in metrics]
    rows = []
    for line in lines:
        name = summary.results.name(line.scheduler)
        share = against_today(summary, line)
        change, _, ends = (share_cell(share, metric) if share else "today" if line is today else "").partition("\n")
        cells = [TableCell(change, ends, _kind(summary, line))] if len(summary.lines) > 1 else []
        for each in metrics:
            value = line.values[each]
            known = every and math.isfinite(value.high - value.low)
            ends = f"{amount(each, value.low)} to {amount(each, value.high)}" if known else ""
            cells.append(TableCell(amount(each, value.mean), ends, "best" if each in line.best else ""))
        code = "" if line is summary.log or name == line.scheduler else line.scheduler
        rows.append(
            TableRow(
                f"{name}{' †' * line.preempts}{' ‡' * (line.scheduler in summary.results.seen)}",
                cells,
                code,
                "now" if line is today else "",
            )
        )
    left = len(summary.lines) - len(lines)
    stops = "† may stop running jobs, where these may be stopped." if any(line.preempts for line in lines) else ""
    flattered = "‡ was trained on jobs of this log, so its numbers flatter it." if summary.results.seen else ""
    more = f"{left} more are worse." if left else ""
    caption = " ".join(filter(None, ["Today's is shaded, the best mean of a column bold; smaller: 95 % range.", stops, flattered, more]))
    return table(head, rows, caption=caption, name="schedulers")
