"""Parts that pages are made of: bars of gains and losses, tables, lists of sentences, facts."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuyard.experiments.judging.answering.names import duration
from gpuyard.experiments.judging.answering.waits import Change
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.text import readable
from gpuyard.report.page.frame import text

LONGEST = 24  # characters of the name of a group in a table
FULL = 1.0  # change that fills a bar


@dataclass(frozen=True)
class TableCell:
    """One cell of a table: its text, a smaller line below it, and what it is: good, bad, best, text."""

    shown: str
    small: str = ""
    kind: str = ""


@dataclass(frozen=True)
class TableRow:
    """A row: a name, its code below it, cells. Its kind: `now` (what the reader has today), best, challenger, other."""

    name: str
    cells: Sequence[TableCell]
    code: str = ""
    kind: str = ""


def card(title: str, *content: str, sub: str = "", kind: str = "") -> str:
    """A framed part with a heading."""
    below = f'<p class="sub">{text(sub)}</p>' if sub else ""
    return f'<section class="card{" " + kind if kind else ""}"><h3>{text(title)}</h3>{below}{"".join(content)}</section>'


def grid(cards: Iterable[str], kind: str = "") -> str:
    """Cards beside each other, as many as there is room for."""
    shown = [each for each in cards if each]
    return f'<div class="grid{" " + kind if kind else ""}">{"".join(shown)}</div>' if shown else ""


def sentences(lines: Iterable[str], *, ordered: bool = False) -> str:
    """A list of sentences, or of steps; what stands before the first colon of a sentence is strong."""
    kind = "ol" if ordered else "ul"
    return f"<{kind}>" + "".join(f"<li>{text(line) if ordered else led(line)}</li>" for line in lines) + f"</{kind}>"


def led(line: str, longest: int = 60) -> str:
    """Make the words before the first colon strong, where they are few."""
    head, colon, rest = line.partition(": ")
    return f"<strong>{text(head)}:</strong> {text(rest)}" if colon and len(head) <= longest else text(line)


def facts(rows: Mapping[str, str]) -> str:
    """Names and what there is to say about each; what is empty is left out. The texts are HTML."""
    return '<dl class="facts">' + "".join(f"<dt>{text(name)}</dt><dd>{shown}</dd>" for name, shown in rows.items() if shown) + "</dl>"


def table(head: Sequence[str], rows: Sequence[TableRow], *, caption: str = "", name: str = "") -> str:
    """A table in a box that scrolls where the page is narrow."""
    kinds = ["", *(cell.kind for cell in rows[0].cells)] if rows else [""] * len(head)
    heads = "".join(
        f'<th scope="col"{_class("text" if kind == "text" else "")}>{text(each)}</th>' for each, kind in zip(head, kinds, strict=True)
    )
    top = f"<caption><span>{text(caption)}</span></caption>" if caption else ""
    body = "".join(_table_row(row) for row in rows)
    label = text(name or caption or head[0])
    return (
        f'<div class="box" tabindex="0" role="region" aria-label="{label}"><table>{top}<thead><tr>{heads}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )


def _table_row(row: TableRow) -> str:
    code = f'<span class="code">{text(row.code)}</span>' if row.code else ""
    cells = "".join(
        f"<td{_class(cell.kind)}>{text(cell.shown)}{f'<small>{text(cell.small)}</small>' if cell.small else ''}</td>" for cell in row.cells
    )
    return f'<tr{_class(row.kind)}><th scope="row">{text(row.name)}{code}</th>{cells}</tr>'


def _class(name: str) -> str:
    return f' class="{name}"' if name else ""


# ── who gains and who loses ──


def changed_words(share: Interval, *, sure: bool) -> str:
    """`97 % shorter`; `perhaps 4 % longer` where it is not sure; `about the same`."""
    if not math.isfinite(share.mean):
        return "–"
    if abs(share.mean) < 0.005:
        return "about the same"
    words = f"{abs(100 * share.mean):,.0f} % {'shorter' if share.mean < 0 else 'longer'}"
    return words if sure else f"perhaps {words}"


def change_kind(change: Change) -> str:
    """The colour of a change: good, bad, or unclear."""
    return "unclear" if not change.sure else "good" if change.share.mean < 0 else "bad"


def change_bars(changes: Sequence[Change]) -> str:
    """A bar for each group: how much shorter or longer its jobs wait."""
    parts = []
    for each in changes:
        kind = change_kind(each)
        width = 100 * min(abs(each.share.mean), FULL) / FULL if math.isfinite(each.share.mean) else 0.0
        title = f"{each.jobs:,} jobs: {duration(each.before)} before, {duration(each.after)} after"
        parts.append(
            f'<span class="name" title="{text(title)}">{text(each.group)}</span><span class="bar {kind}" style="width:{width:.0f}%"></span>'
            f'<span class="{kind}">{text(changed_words(each.share, sure=each.sure))}</span>'
        )
    return f'<div class="bars">{"".join(parts)}</div>'


def level_bars(levels: Sequence[tuple[str, int, float]]) -> str:
    """A bar for each (group, jobs, mean wait in s)."""
    most = max((mean for _, _, mean in levels), default=0.0) or 1.0
    parts = (
        f'<span class="name" title="{jobs:,} jobs">{text(name)}</span><span class="bar" style="width:{100 * mean / most:.0f}%"></span>'
        f"<span>{text(duration(mean))}</span>"
        for name, jobs, mean in levels
    )
    return f'<div class="bars">{"".join(parts)}</div>'


def split_bar(parts: Sequence[tuple[str, int]]) -> str:
    """One bar that is split into (kind, number)."""
    total = sum(number for _, number in parts) or 1
    spans = (f'<span class="bar {kind}" style="flex:{number / total:.4f}"></span>' for kind, number in parts if number)
    return f'<div class="split">{"".join(spans)}</div>'


def change_table(changes: Sequence[Change], what: str) -> str:
    """Groups with their jobs and their mean waits before and after."""
    rows = [
        TableRow(readable(each.group, LONGEST), [
            TableCell(f"{each.jobs:,}"), TableCell(duration(each.before)),
            TableCell(duration(each.after), kind="good" if each.shorter else "bad" if each.longer else ""),
        ])
        for each in changes
    ]  # fmt: skip
    return table([what, "jobs", "wait today", "wait then"], rows)
