"""The page of several comparisons: which scheduler is best on each workload, cluster or source of estimates."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

from gpuyard.experiments.judging.answering.names import amount, in_sentence, plain_title
from gpuyard.experiments.judging.answering.plain import PlainAnswer, headline, plain_answer
from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.judging.text import count, readable
from gpuyard.report.page.compared import compared, comparison_page, question
from gpuyard.report.page.dots import Dot, Kind, change_scale, dot_chart
from gpuyard.report.page.frame import ReportPage, document, text
from gpuyard.report.page.made import made_parts, provenance_facts
from gpuyard.report.page.parts import TableCell, TableRow, card, changed_words, facts, grid, sentences, table

MOST_SERIES = 6  # comparisons in the chart
MOST_TRUST = 3  # comparisons of which it is said how far to trust them
MOST_ROWS = 10  # of the table on paper


def comparisons_page(summaries: Sequence[Summary]) -> str:
    """Write the page of comparisons, each of one workload on one cluster."""
    return comparison_page(summaries[0]) if len(summaries) == 1 else document(overview(summaries))


def overview(summaries: Sequence[Summary]) -> ReportPage:
    """Lay out an overview of several comparisons, with each of them folded below it."""
    names = titles_of(summaries)
    answers = [plain_answer(summary) for summary in summaries]
    inside = [(f"{name}: {headline(each)}", _inside(each)) for name, each in zip(names, summaries, strict=True)]
    trust = [f"{name}: {each.confidence or each.sentence}" for name, each in zip(names, answers, strict=True) if each][:MOST_TRUST]
    return ReportPage(
        [count(len(summaries), "comparison"), *(_these(summaries, name) for name in ("workload", "cluster", "estimate"))],
        "Which scheduler serves these jobs best?", text(_answer(summaries, answers)),
        [
            grid([_hero(summaries, names, answers), card("How far to trust it", sentences(trust))], "hero"),
            f'<div class="screen"><h2>Each by itself</h2>{_table(summaries, names, answers, len(summaries))}</div>',
        ],
        [f'<div class="print"><h2>Each by itself</h2>{_table(summaries, names, answers, MOST_ROWS)}</div>'],
        inside,
        [*(f'<div class="print"><h3>{text(name)}</h3>{facts(provenance_facts(each))}</div>' for name, each in _first(names, summaries)),
         *made_parts(summaries)],
    )  # fmt: skip


def titles_of(summaries: Sequence[Summary]) -> list[str]:
    """Name each comparison by what the others have not: workload, cluster, source of estimates."""
    parts = ("workload", "cluster", "estimate")
    told = [part for part in parts if len({getattr(each, part) for each in summaries}) > 1] or ["workload"]
    return [readable("; ".join(f"{getattr(each, part)}{' estimates' * (part == 'estimate')}" for part in told), 60) for each in summaries]


def _first(names: Sequence[str], summaries: Sequence[Summary]) -> list[tuple[str, Summary]]:
    """The first comparison of each workload, as many as there is room for."""
    seen: dict[str, tuple[str, Summary]] = {}
    for name, summary in zip(names, summaries, strict=True):
        seen.setdefault(summary.workload, (name, summary))
    return list(seen.values())[:2]


def _these(summaries: Sequence[Summary], part: str) -> str:
    values = list(dict.fromkeys(str(getattr(each, part)) for each in summaries))
    named = {"estimate": "source of estimates"}.get(part, part)
    return readable(values[0], 40) if len(values) == 1 else f"{len(values)} {'sources of estimates' if part == 'estimate' else f'{named}s'}"


def _answer(summaries: Sequence[Summary], answers: Sequence[PlainAnswer | None]) -> str:
    """One sentence: who is best how often, and in how many this is sure."""
    found = [
        summary.results.name(answer.verdict.best.scheduler)
        for summary, answer in zip(summaries, answers, strict=True)
        if answer is not None and answer.verdict is not None
    ]
    if not found:
        return "There is nothing to compare with."
    (best, times), sure = Counter(found).most_common(1)[0], sum(each is not None and each.word == "Yes" for each in answers)
    if not sure:
        return (
            f"In none of {len(found)} comparisons is anything surely better than today's; {in_sentence(best)} has the best mean in {times}."
        )
    return f"{best} has the best mean in {times} of {len(found)} comparisons; in {sure} of them something is surely better than today's."


def _hero(summaries: Sequence[Summary], names: Sequence[str], answers: Sequence[PlainAnswer | None]) -> str:
    """How much the best scheduler changes the first metric in each comparison."""
    dots = []
    for summary, name, answer in zip(summaries, names, answers, strict=True):
        if answer is None or answer.verdict is None:
            continue
        found = answer.verdict
        kind: Kind = "good" if found.better else "bad" if found.better is False else "unclear"
        share, same = found.share, found.best.scheduler == found.today.scheduler
        mean = 0.0 if same else share.mean
        shown = "no change" if same else changed_words(share, sure=True)
        who = in_sentence(summary.results.name(found.best.scheduler))
        dots.append(
            Dot(name, who, mean, math.nan if same else share.low, math.nan if same else share.high, "base" if same else kind, shown)
        )
    if not dots:
        return ""
    what = plain_title(summaries[0].metrics[0])
    shown_dots = dots[:MOST_SERIES]
    sure = sum(dot.kind == "good" for dot in dots)
    title = f"The best scheduler surely improves the {what} in {sure} of {count(len(dots), 'comparison')}"
    more = f" {len(dots) - MOST_SERIES} more are in the table." if len(dots) > MOST_SERIES else ""
    sub = f"Change of the {what} under the best scheduler, which is named below, with its 95 % range. Ring: not sure.{more}"
    return card(title, dot_chart(shown_dots, change_scale(shown_dots, "today"), title), sub=sub)


def _table(summaries: Sequence[Summary], names: Sequence[str], answers: Sequence[PlainAnswer | None], most: int) -> str:
    """A row for each comparison: today, the best, its change."""
    what, rows = plain_title(summaries[0].metrics[0]), []
    for summary, name, answer in list(zip(summaries, names, answers, strict=True))[:most]:
        found = answer.verdict if answer is not None else None
        if answer is None or found is None:
            continue
        metric = summary.metrics[0]
        best, now = found.best, found.today
        change = "–" if best is now else changed_words(found.share, sure=found.better is not None)
        kind = "" if best is now or found.better is None else "good" if found.better else "bad"
        values = [TableCell(amount(metric, line.values[metric].mean)) for line in (now, best)]
        rows.append(
            TableRow(name, [TableCell(summary.results.name(best.scheduler), best.scheduler, "text"), *values, TableCell(change, kind=kind)])
        )
    left = len(summaries) - most
    caption = f"{left} more comparisons are in the file." if left > 0 else ""
    return table(["comparison", "best", f"{what} today", f"{what} then", "change"], rows, caption=caption, name="all comparisons")


def _inside(summary: Summary) -> str:
    """Everything about one comparison, as on a page of its own."""
    page = compared(summary)
    made = f"<h3>Where these jobs come from</h3>{facts(provenance_facts(summary))}"
    return f"<h3>{text(question(summary))}</h3>" + "".join([*page.manager, page.folded[0][1], page.folded[1][1], made])
