"""The document that every report is: question, answer and what shows it on a first sheet, details for the operator on a second.

Names come from files of others: every text passes through `text`, and the page may run no script and load nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files

from gpuyard import __version__
from gpuyard.errors import GpuyardError
from gpuyard.model.units import clean

MOST_BYTES = 5_000_000
_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"


@dataclass(frozen=True)
class ReportPage:
    """Content of a page in the order in which it is read; all but the question and the places is HTML."""

    place: Sequence[str]  # what it is about: file, jobs, dates, cluster
    question: str
    answer: str  # one sentence
    manager: Sequence[str]  # sections of the first sheet
    operator: Sequence[str]  # sections of the second
    folded: Sequence[tuple[str, str]]  # (title, content), on the screen only; they stand before what was made how
    made: Sequence[str]  # sections of the second sheet that say how it was made


def document(page: ReportPage) -> str:
    """Write the whole file."""
    whole = "\n".join(_parts(page)) + "\n"
    size = len(whole.encode())
    if size > MOST_BYTES:
        raise GpuyardError(
            f"the report would be {size / 1e6:.1f} MB, more than {MOST_BYTES / 1e6:g} MB",
            hint="name fewer workloads, figures or schedulers",
        )
    return whole


def text(value: object) -> str:
    """Escape a text for HTML: names come from files that others made."""
    return escape(clean(str(value)))


def folded(title: str, content: str) -> str:
    """A part of the page that is closed until somebody opens it, and is not printed."""
    return f"<details><summary>{text(title)}</summary>{content}</details>"


def _parts(page: ReportPage) -> Iterable[str]:
    question = text(page.question)
    yield '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
    yield f'<meta name="generator" content="gpuyard {text(__version__)}">'
    yield f'<title>{question}</title>\n<link rel="icon" href="data:,">'
    yield f"<style>\n{_style()}</style>\n</head>\n<body>\n<main>"
    yield '<div class="sheet manager">'
    yield f'<header><p class="place">{" · ".join(map(text, page.place))}</p>'
    yield f'<h1>{question}</h1>\n<p class="answer">{page.answer}</p></header>'
    yield from page.manager
    yield f"{_foot('The answer', 1)}</div>"
    yield '<div class="sheet operator">'
    yield f'<p class="place print">{" · ".join(map(text, page.place))}</p>'
    yield from page.operator
    yield from (folded(title, content) for title, content in page.folded)
    yield from page.made
    yield f"{_foot('For the operator', 2)}</div>\n</main>\n</body>\n</html>"


def _foot(title: str, number: int) -> str:
    return f'<p class="foot print"><span>{title}</span><span>gpuyard {text(__version__)} · {number} of 2</span></p>'


@cache
def _style() -> str:
    return "".join(files("gpuyard.report.page").joinpath(name).read_text("utf-8") for name in ("palette.css", "page.css"))
