"""Prints what a verb found: tables for people (terminal, Markdown) and the same facts as data (JSON, CSV)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from gpuyard.cli.common.messages import AT_ONCE, every_pause, progress_lines, say
from gpuyard.experiments.judging.text import csv_text, json_text, short, shown_unit, with_interval
from gpuyard.model.units import clean

__all__ = [
    "STAR", "Format", "Output", "Table",
    "clean", "csv_text", "emit", "json_text", "md_plain", "md_text", "progress_bar", "rich_parts", "say", "short", "shown_unit",
    "with_interval",
]  # fmt: skip

WIDE = 10_000  # columns when stdout is no terminal: nothing is cut there
RULE = 200  # columns of a rule, there
NARROWEST = 40  # columns, however few are asked for
NAME = 24  # columns that a column of names needs at least: names are folded
PROSE = 28  # columns that a last column of text needs at least: it is folded
STAR = "★"


class Format(StrEnum):
    """Formats of what goes to stdout."""

    table = "table"
    json = "json"
    csv = "csv"
    md = "md"


@dataclass(frozen=True)
class Table:
    """A table of texts; what follows a line feed in a cell is secondary. `marked` holds (row, column) of the best."""

    header: tuple[str, ...]
    rows: Sequence[Sequence[str]]
    title: str = ""
    left: frozenset[int] = frozenset({0})  # columns of text
    marked: frozenset[tuple[int, int]] = frozenset()
    caption: str = ""


@dataclass(frozen=True)
class Output:
    """Everything that a verb prints: `tables` and paragraphs of `text` for people, `data` for json, `records` for csv."""

    tables: Sequence[Table]
    data: Any
    records: Sequence[Mapping[str, Any]] = field(default_factory=tuple)
    text: Sequence[str] = ()


def emit(output: Output, how: Format) -> None:
    """Write to stdout. If the reader of a pipe is gone, the program ends quietly."""
    text = _WRITERS[how](output)
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        raise SystemExit(0) from None


# ── the formats ──


def md_text(tables: Iterable[Table]) -> str:
    """Return tables as Markdown, the best in bold."""
    return "\n".join(_md_table(table) for table in tables)


def _md_table(table: Table) -> str:
    lines = [f"**{_md_cell(table.title)}**", ""] if table.title else []
    lines.append("| " + " | ".join(map(_md_cell, table.header)) + " |")
    lines.append("|" + "|".join("---" if k in table.left else "---:" for k in range(len(table.header))) + "|")
    for r, row in enumerate(table.rows):
        cells = [f"**{_md_cell(cell)}**" if (r, k) in table.marked else _md_cell(cell) for k, cell in enumerate(row)]
        lines.append("| " + " | ".join(cells) + " |")
    lines += ["", *(_md_cell(line) for line in table.caption.splitlines())] if table.caption else []
    return "\n".join(lines) + "\n"


def md_plain(text: str) -> str:
    """Return a text as Markdown shows it: no HTML and no links, whatever names from outside contain."""
    return clean(text).replace("&", "&amp;").replace("<", "&lt;").replace("](", "]\\(")


def _md_cell(text: str) -> str:
    return md_plain(text).replace("\n", " ").replace("|", "\\|").strip()


def _table_text(output: Output) -> str:
    """Lay out tables and text as wide as the terminal; where stdout is none, as wide as COLUMNS says, or else as needed."""
    import io

    from rich.console import Console

    terminal = sys.stdout.isatty()
    width = Console(file=sys.stdout).width if terminal else _asked_width()
    console = Console(file=io.StringIO(), width=width, highlight=False, emoji=False, force_terminal=terminal or None)
    for part in rich_parts(output, console.width):
        console.print(part)
    text = console.file.getvalue()  # type: ignore[attr-defined]
    return text if terminal else "\n".join(map(_unpadded, text.splitlines())) + "\n"


def rich_parts(output: Output, width: int) -> Iterator[Any]:
    """Yield what is printed for people, piece by piece, as rich shows it."""
    for table in output.tables:
        if table.title:
            yield _plain_text(table.title, "bold")
        for columns in _blocks(table, width):
            yield _rich_table(table, columns)
        if table.caption:
            yield _plain_text(table.caption, "dim")
        yield ""
    for paragraph in output.text:
        yield _plain_text(paragraph)


def _asked_width() -> int:
    """The width that the environment asks for in COLUMNS."""
    asked = os.environ.get("COLUMNS", "")
    return max(int(asked[:6]), NARROWEST) if asked.isascii() and asked.isdigit() and int(asked) else WIDE


def _unpadded(line: str) -> str:
    """Strip blanks at the end; cut a rule at the width of a page."""
    return line[:RULE] if line and set(line) == {"─"} else line.rstrip()


def _plain_text(text: str, style: str = "") -> Any:
    from rich.text import Text

    return Text(clean(text), style=style)


def _blocks(table: Table, width: int) -> list[list[int]]:
    """Split columns into blocks that fit the width; the first column is repeated in every block. It and the last one may be folded."""
    widths = [
        max((len(line) for row in [table.header, *table.rows] for line in row[k].splitlines()), default=0) + 2
        for k in range(len(table.header))
    ]
    for k, least in ((0, NAME), (len(widths) - 1, PROSE)):
        widths[k] = min(widths[k], least) if k in table.left else widths[k]
    blocks = [[0]]
    for k in range(1, len(widths)):
        if len(blocks[-1]) > 1 and sum(widths[c] for c in blocks[-1]) + widths[k] > width:
            blocks.append([0])
        blocks[-1].append(k)
    return blocks


def _rich_table(table: Table, columns: Sequence[int]) -> Any:
    from rich import box
    from rich.table import Table as RichTable

    made = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, collapse_padding=True)
    for k in columns:
        made.add_column(
            _plain_text(table.header[k]), justify="left" if k in table.left else "right", no_wrap=k not in table.left, overflow="fold"
        )
    for r, row in enumerate(table.rows):
        made.add_row(*(_rich_cell(row[k], (r, k) in table.marked) for k in columns))
    return made


def _rich_cell(cell: str, marked: bool) -> Any:
    first, feed, rest = cell.partition("\n")
    text = _plain_text(first, "bold green" if marked else "")
    return text.append(feed + clean(rest), style="not bold dim default") if feed else text


_WRITERS: Mapping[Format, Callable[[Output], str]] = {
    Format.table: _table_text,
    Format.json: lambda output: json_text(output.data),
    Format.csv: lambda output: csv_text(output.records),
    Format.md: lambda output: md_text(output.tables) + "".join(f"\n{_md_cell(paragraph)}\n" for paragraph in output.text),
}


@contextmanager
def progress_bar(what: str, total: int) -> Iterator[Callable[[int], None]]:
    """Show a bar on stderr after two seconds, or a line every ten where that is no terminal; call what it yields with how much is done."""
    if not sys.stderr.isatty():
        lines, last = progress_lines(what), 0

        def tell(done: int) -> None:
            nonlocal last
            last = done
            lines(done, total)

        with every_pause(lambda: tell(last)):
            yield tell
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn(what), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    bar = Progress(*columns, console=Console(stderr=True), transient=True)
    task = bar.add_task("", total=total)
    began = time.monotonic()

    def show(done: int) -> None:
        bar.update(task, completed=done)
        if time.monotonic() - began > AT_ONCE and not bar.live.is_started:
            bar.start()

    try:
        yield show
    finally:
        if bar.live.is_started:
            bar.stop()
