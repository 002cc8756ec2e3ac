"""Courses over time as areas, one below the other, as SVG: once for wide pages, and once drawn anew for narrow ones."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.report.page.dots import NARROW, WIDE
from gpuyard.report.page.frame import text

PIECES = {WIDE: 220, NARROW: 110}  # steps of a course that a page shows
_HEIGHT = 84.0  # of one course
_LEFT = 52.0


@dataclass(frozen=True)
class AreaCourse:
    """A quantity over time: means over bins (bins,), and the value at the top of its axis with its words."""

    title: str
    values: Array
    most: float
    most_words: str
    kind: str  # class of its colour


def course_chart(edges: Array, courses: Sequence[AreaCourse], ticks: Sequence[tuple[float, str]], label: str) -> str:
    """Draw courses over bins between the edges (bins + 1,), with ticks below the last, in both widths."""
    return _drawn(WIDE, edges, courses, ticks, label) + _drawn(NARROW, edges, courses, ticks, label)


def _drawn(width: float, edges: Array, courses: Sequence[AreaCourse], ticks: Sequence[tuple[float, str]], label: str) -> str:
    parts: list[str] = []
    for k, course in enumerate(courses):
        parts += _area(width, edges, course, k * (_HEIGHT + 30.0) + 22.0)
    bottom = len(courses) * (_HEIGHT + 30.0) - 8.0
    for at, shown in ticks:
        x = _place(width, at, edges)
        anchor = "start" if x < _LEFT + 20 else "end" if x > width - 24 else "middle"
        parts.append(f'<text class="m" x="{x:.1f}" y="{bottom + 18:g}" text-anchor="{anchor}">{text(shown)}</text>')
    box = f'viewBox="0 0 {width:g} {bottom + 26:g}" role="img" aria-label="{text(label)}"'
    return f'<svg class="{"wide" if width == WIDE else "narrow"}" {box}>{"".join(parts)}</svg>'


def _place(width: float, at: float, edges: Array) -> float:
    return _LEFT + float((at - edges[0]) / (edges[-1] - edges[0])) * (width - _LEFT - 4.0)


def _area(width: float, edges: Array, course: AreaCourse, top: float) -> Iterator[str]:
    """Yield the title, the axis and the area of one course."""
    grid = np.linspace(edges[0], edges[-1], PIECES[width] + 1)
    total = np.concatenate([[0.0], np.cumsum(course.values * np.diff(edges))])
    means = np.diff(np.interp(grid, edges, total)) / np.diff(grid)
    base = top + _HEIGHT
    height = np.clip(means / course.most if course.most > 0 else np.zeros_like(means), 0.0, 1.0) * _HEIGHT
    steps = "".join(f"V{base - h:.1f}H{_place(width, end, edges):.1f}" for h, end in zip(height.tolist(), grid[1:].tolist(), strict=True))
    yield f'<text class="m" x="{_LEFT:g}" y="{top - 8:g}">{text(course.title)}</text>'
    yield f'<line class="grid-line" x1="{_LEFT}" y1="{top:g}" x2="{width:g}" y2="{top:g}"/>'
    yield f'<path class="area {course.kind}" d="M{_LEFT} {base:g}{steps}V{base:g}z"/>'
    yield f'<line class="grid-line" x1="{_LEFT}" y1="{base:g}" x2="{width:g}" y2="{base:g}"/>'
    for y, shown in ((top + 4.0, course.most_words), (base, "0")):
        yield f'<text class="m" x="{_LEFT - 7:g}" y="{y:g}" text-anchor="end">{text(shown)}</text>'
