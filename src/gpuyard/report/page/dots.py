"""A dot for each scheduler with its range, as SVG: once for wide pages, and once drawn anew for narrow ones."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from gpuyard.experiments.judging.answering.names import amount, duration, is_share
from gpuyard.experiments.judging.statistics import Interval
from gpuyard.experiments.judging.text import readable, short
from gpuyard.metrics import resolve
from gpuyard.report.page.frame import text

Kind = Literal["good", "bad", "base", "unclear"]
WIDE, NARROW = 660.0, 350.0
_STEPS = (1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600, 43200, 86400, 172800, 432000)  # s
_MOST_TICKS = 6
_BEYOND = 1.6  # times the largest mean that the axis reaches; what goes further ends in an arrow


@dataclass(frozen=True)
class Dot:
    """One row: a name, its code, a mean and the ends of its range (nan: not known), and the mean in words."""

    name: str
    code: str
    mean: float
    low: float
    high: float
    kind: Kind
    shown: str
    span: str = ""  # the range in words


@dataclass(frozen=True)
class DotScale:
    """A linear axis, its ticks, and a line through all rows with its name; nan: there is none."""

    low: float
    high: float
    ticks: Sequence[tuple[float, str]]
    line: float = math.nan
    line_name: str = "today"


@dataclass(frozen=True)
class _Frame:
    """Where things are in a drawing of one width."""

    width: float
    left: float  # of the axis
    right: float
    top: float
    row: float  # height
    wide: bool
    scale: DotScale

    def place(self, value: float) -> float:
        """Where a value lies; beyond the axis it lies at its end."""
        size = self.scale.high - self.scale.low
        share = min(max((value - self.scale.low) / size, 0.0), 1.0) if size > 0 else 0.0
        return self.left + share * (self.right - self.left)


def metric_dot(name: str, code: str, metric: str, value: Interval, kind: Kind) -> Dot:
    """A row for the mean of a metric."""
    span = f"{amount(metric, value.low)} to {amount(metric, value.high)}" if math.isfinite(value.high - value.low) else ""
    return Dot(name, code, value.mean, value.low, value.high, kind, amount(metric, value.mean), span)


def metric_scale(dots: Sequence[Dot], metric: str, today: float, name: str) -> DotScale:
    """An axis from 0 that ends after all means, and after most ranges."""
    if is_share(metric):
        return DotScale(0.0, 1.0, [(k / 4, f"{25 * k} %") for k in range(5)], today, name)
    most = max((value for value in (today, *(dot.mean for dot in dots)) if math.isfinite(value)), default=1.0) or 1.0
    ranges = max((dot.high for dot in dots if math.isfinite(dot.high)), default=0.0)
    end = max(most * 1.04, min(ranges, _BEYOND * most))
    return DotScale(0.0, end, [(tick, _tick_text(metric, tick)) for tick in _ticks(metric, end)], today, name)


def round_scale(dots: Sequence[Dot], line: float, name: str) -> DotScale:
    """An axis of plain numbers: from 0, or from a round number near them where all are far from 0 or some are below."""
    known = [each for dot in dots for each in (dot.mean, dot.low, dot.high) if math.isfinite(each)] or [0.0, 1.0]
    means = [dot.mean for dot in dots if math.isfinite(dot.mean)] or [0.0]
    width = max(means) - min(means) or abs(means[0]) or 1.0
    low, high = max(min(known), min(means) - width), min(max(known), max(means) + width)
    low = 0.0 if 0 <= low < 2 * (high - low) else low
    step = _round_step((high - low) / (_MOST_TICKS - 1))
    first, last = math.floor(low / step + 1e-9), math.ceil(high / step - 1e-9)
    return DotScale(first * step, last * step, [(k * step, _plain_number(k * step)) for k in range(first, last + 1)], line, name)


def _round_step(least: float) -> float:
    size = 10.0 ** math.floor(math.log10(least)) if least > 0 else 1.0
    return next((size * factor for factor in (1, 2, 5) if size * factor >= least), 10 * size)


def _plain_number(value: float) -> str:
    return f"{value:,.6g}".replace("-", "−")


def change_scale(dots: Sequence[Dot], line_name: str) -> DotScale:
    """An axis of changes in percent on both sides of 0, where the line is."""
    means = [dot.mean for dot in dots if math.isfinite(dot.mean)]
    low, high = min([*means, 0.0]), max([*means, 0.0])
    low = max(min([dot.low for dot in dots if math.isfinite(dot.low)], default=low), low * _BEYOND, -1.0) if low < 0 else low
    high = min(max([dot.high for dot in dots if math.isfinite(dot.high)], default=high), max(high * _BEYOND, 0.2))
    low, high = min(low, 0.0), max(high, 0.1)
    step = next((each for each in (0.05, 0.1, 0.2, 0.25, 0.5, 1.0, 2.0, 5.0) if (high - low) / each <= _MOST_TICKS), 10.0)
    ticks = [step * k for k in range(math.ceil(low / step - 1e-9), int(high / step + 1e-9) + 1)]
    return DotScale(low, high, [(tick, f"{100 * tick:+.0f} %".replace("-", "−") if tick else "0") for tick in ticks], 0.0, line_name)


def dot_chart(dots: Sequence[Dot], scale: DotScale, label: str) -> str:
    """Draw the rows in both widths."""
    top = 24.0 if math.isfinite(scale.line) else 8.0
    wide = _Frame(WIDE, 262.0, WIDE - 92.0, top, 37.0, True, scale)
    narrow = _Frame(NARROW, 8.0, NARROW - 8.0, top, 46.0, False, scale)
    return _drawn(wide, dots, label) + _drawn(narrow, dots, label)


def _drawn(frame: _Frame, dots: Sequence[Dot], label: str) -> str:
    bottom = frame.top + frame.row * len(dots)
    parts = [*_axis(frame, bottom)]
    for k, dot in enumerate(dots):
        parts += _row(frame, dot, frame.top + frame.row * k)
    box = f'viewBox="0 0 {frame.width:g} {bottom + 24:g}" role="img" aria-label="{text(label)}"'
    return f'<svg class="{"wide" if frame.wide else "narrow"}" {box}>{"".join(parts)}</svg>'


def _axis(frame: _Frame, bottom: float) -> Iterator[str]:
    """Yield the ticks and the line."""
    for tick, shown in frame.scale.ticks:
        x = frame.place(tick)
        anchor = "middle" if frame.wide or frame.left + 20 < x < frame.right - 20 else "start" if x < frame.width / 2 else "end"
        yield f'<line class="grid-line" x1="{x:.1f}" y1="{frame.top - 4:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield f'<text class="m" x="{x:.1f}" y="{bottom + 17:g}" text-anchor="{anchor}">{text(shown)}</text>'
    if math.isfinite(frame.scale.line):
        x = frame.place(frame.scale.line)
        before = x > frame.left + 0.6 * (frame.right - frame.left)
        at = f'x="{x + (-5 if before else 5):.1f}" y="{frame.top - 10:g}" text-anchor="{"end" if before else "start"}"'
        yield f'<line class="today" x1="{x:.1f}" y1="{frame.top - 18:g}" x2="{x:.1f}" y2="{bottom:g}"/>'
        yield f'<text class="m" {at}>{text(frame.scale.line_name)}</text>'


def _row(frame: _Frame, dot: Dot, top: float) -> Iterator[str]:
    """Yield the marks of one row; on a narrow page the name stands above them."""
    y = top + (frame.row / 2 if frame.wide else 32.0)
    words = y + 4.5 if frame.wide else top + 16  # the line of the value, and of the name where no code stands below it
    yield f"<g><title>{text(dot.name)}: {text(dot.shown)}{text(f' ({dot.span})' if dot.span else '')}</title>"
    yield f'<text x="0" y="{y - 2 if frame.wide and dot.code else words:g}">{text(readable(dot.name, 35))}</text>'
    if frame.wide and dot.code:
        yield f'<text class="c" x="0" y="{y + 12:g}">{text(readable(dot.code, 36))}</text>'
    yield f'<text x="{frame.width:g}" y="{words:g}" text-anchor="end">{text(dot.shown)}</text>'
    if math.isfinite(dot.low) and math.isfinite(dot.high):
        low, high = frame.place(dot.low), frame.place(dot.high)
        yield f'<line class="range {dot.kind}" x1="{low:.1f}" y1="{y:g}" x2="{high:.1f}" y2="{y:g}"/>'
        if dot.high > frame.scale.high:
            yield f'<path class="{dot.kind}" d="M{high:.1f} {y - 5:g}l6 5l-6 5z"/>'
    if math.isfinite(dot.mean):
        yield _mark(dot.kind, frame.place(dot.mean), y)
    yield "</g>"


def _mark(kind: Kind, x: float, y: float) -> str:
    """A disc; a diamond where it is worse and a ring where it is unclear, so that colour is not needed."""
    if kind == "bad":
        return f'<path class="bad" d="M{x:.1f} {y - 7:g}l7 7l-7 7l-7 -7z"/>'
    return f'<circle class="{kind}" cx="{x:.1f}" cy="{y:g}" r="{5.5 if kind == "unclear" else 6}"/>'


def _ticks(metric: str, end: float) -> list[float]:
    """Round values from 0 to the end."""
    if resolve(metric)[0].unit == "s":
        steps = [*map(float, _STEPS), *(86400.0 * factor * 10**k for k in range(1, 9) for factor in (1, 2, 5))]
    else:
        steps = [_round_step(end / (_MOST_TICKS - 1))]
    step = next((each for each in steps if end / each <= _MOST_TICKS - 1), steps[-1])
    return [step * k for k in range(int(end / step + 1e-9) + 1)]


def _tick_text(metric: str, value: float) -> str:
    if value == 0:
        return "0"
    return re.sub(r"\.0+(?= |$)", "", duration(value) if resolve(metric)[0].unit == "s" else short(value))
