"""Charts as data: a chart on paper and one on a screen are made from the same data.

Arrays are float64; nan is what is missing and is not drawn. `style` is the number of a scheduler among all: its colour, dash and marker are
the same in every chart.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np

from gpuyard.arrays import Array

# Okabe and Ito (2008): distinct with any kind of colour vision; their yellow is too pale for lines; a
# dark grey and a wine red (Tol 2021) take its place.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#3C3C3C", "#882255")
GREY = "#767676"
DASHES = ("solid", "dash", "dashdot", "dot", "longdash")
MARKERS = ("circle", "square", "diamond", "triangle-up", "triangle-down", "cross", "x", "star", "pentagon")
FAR = 30.0  # largest share over the usual one from which a scale is bent
ROW_WIDTH = 0.82  # share of a row that its marks take
LOG_FROM = 8.0  # largest over smallest value from which a scale is logarithmic


@dataclass(frozen=True)
class Style:
    """The look of a scheduler in every chart. It differs from others not by colour alone, but by dash and marker too."""

    colour: str
    dash: str
    marker: str


def style_of(number: int) -> Style:
    """Return the style of a scheduler by its number; 8 differ in colour, 40 in colour or dash. −1: not a scheduler."""
    if number < 0:
        return Style(GREY, "dot", "circle")
    lap, place = divmod(number, len(PALETTE))
    return Style(PALETTE[place], DASHES[(place + lap) % len(DASHES)], MARKERS[number % len(MARKERS)])


@dataclass(frozen=True)
class Axis:
    """A title with its unit, and a scale. `bent`: logarithmic on both sides of 0 beyond `linear_to`."""

    title: str
    scale: Literal["linear", "log", "bent"] = "linear"
    linear_to: float = 1.0
    percent: bool = False  # values are shares, shown as percent

    def place(self, values: Array) -> Array:
        """Compute where a value lies on a bent scale; other scales are left to the library."""
        if self.scale != "bent":
            return values
        with np.errstate(divide="ignore", invalid="ignore"):
            size = np.abs(values) / self.linear_to
            return np.sign(values) * np.where(size <= 1.0, size, 1.0 + np.log10(np.maximum(size, 1.0)))

    def ticks(self, values: Array) -> list[tuple[float, str]]:
        """(value, text) of the ticks of a bent scale that holds these values."""
        low, high = (float(end(values, initial=0.0)) for end in (np.nanmin, np.nanmax))
        decades = int(np.ceil(np.log10(max(abs(low), abs(high), self.linear_to) / self.linear_to))) + 1
        factors = (1.0,) if decades > 3 else (1.0, 3.0)
        steps = [self.linear_to * factor * 10.0**k for k in range(decades) for factor in factors]
        found = [0.0] + [sign * step for step in steps for sign in (-1.0, 1.0)]
        return [(tick, self.text(tick)) for tick in sorted(found) if low * 1.05 - 1e-12 <= tick <= high * 1.05 + 1e-12]

    def text(self, value: float) -> str:
        return f"{100 * value:,.6g} %" if self.percent else f"{value:,.6g}"


def axis_of(title: str, values: Sequence[Array], *, log: bool | None = None) -> Axis:
    """Make an axis of quantities: logarithmic where all are positive and lie far apart, or as `log` says."""
    known = _known(values)
    far = len(known) and known.min() > 0 and (known.max() > LOG_FROM * known.min() if log is None else log)
    return Axis(title, "log" if far else "linear")


def share_axis(title: str, values: Sequence[Array], focus: Sequence[Array] = (), least: float = 0.001) -> Axis:
    """Make an axis of shares in percent: bent where those in focus (or most) are far smaller than the largest, `least` at least."""
    sizes, watched = (np.abs(each[each != 0]) for each in (_known(values), _known(focus or values)))
    if not len(sizes) or not len(watched):
        return Axis(title, percent=True)
    usual, most = max(float(np.median(watched)), least), float(sizes.max())
    if most <= FAR * usual:
        return Axis(title, percent=True)
    return Axis(title, "bent", 10.0 ** round(math.log10(max(usual, most / 300.0))), True)


def _known(values: Sequence[Array]) -> Array:
    every = np.concatenate([np.ravel(each) for each in values]) if values else np.zeros(0)
    known: Array = every[np.isfinite(every)]
    return known


@dataclass(frozen=True)
class Series:
    """A line, with a band where `low` and `high` are given."""

    name: str
    style: int
    x: Array
    y: Array
    low: Array | None = None
    high: Array | None = None
    strong: bool = False


@dataclass(frozen=True)
class Lines:
    """Lines over a common axis. `categories` name the places 0, 1, … on x; `steps`: a value holds until the next."""

    x: Axis
    y: Axis
    lines: tuple[Series, ...]
    steps: bool = False
    markers: bool = False
    categories: tuple[str, ...] = ()
    level: float | None = None  # a horizontal line


@dataclass(frozen=True)
class Marks:
    """Values with intervals of one scheduler, one for each row."""

    name: str
    style: int
    mean: Array
    low: Array
    high: Array
    strong: bool = False


@dataclass(frozen=True)
class Points:
    """A row per category, a mark per scheduler in it; `bars` grow from 0."""

    rows: tuple[str, ...]
    value: Axis
    marks: tuple[Marks, ...]
    bars: bool = False
    level: float | None = 0.0  # a line across all rows

    @property
    def most(self) -> int:
        """Return how many marks the fullest row has, at least 1."""
        return max(int(self._shown.sum(axis=0).max(initial=0)), 1)

    @property
    def alone(self) -> bool:
        """Whether no row has two marks: then the rows say all that a legend would."""
        return self.most == 1

    def offsets(self) -> Array:
        """Return (marks, rows): where each mark lies in its row, around 0; one that a row does not have leaves no gap there."""
        shown = self._shown
        place = np.cumsum(shown, axis=0) - 1 - (shown.sum(axis=0) - 1) / 2
        spread: Array = place * (ROW_WIDTH / self.most)
        return spread

    @property
    def _shown(self) -> Array:
        """(marks, rows) bool."""
        shown: Array = np.isfinite(np.array([each.mean for each in self.marks])).reshape(len(self.marks), len(self.rows))
        return shown


@dataclass(frozen=True)
class Ring:
    """A scheduler around a radar; one value per spoke."""

    name: str
    style: int
    values: Array
    strong: bool = False


@dataclass(frozen=True)
class Radar:
    """Values around a centre; outwards is more."""

    spokes: tuple[str, ...]
    value: Axis
    rings: tuple[Ring, ...]


@dataclass(frozen=True)
class Box:
    """Five numbers for each group of one scheduler: (groups, 5), whisker, quartile, median, quartile, whisker."""

    name: str
    style: int
    five: Array


@dataclass(frozen=True)
class Boxes:
    """Groups side by side, a box per scheduler in each."""

    groups: tuple[str, ...]
    group: str  # what they are groups of
    value: Axis
    boxes: tuple[Box, ...]


@dataclass(frozen=True)
class Span:
    """A part of a job on neighbouring devices; times in the unit of the axis."""

    job: int
    row: float  # the lowest device, from the top
    height: float
    start: float
    end: float


@dataclass(frozen=True)
class Gantt:
    """A Gantt chart: which job held which devices when."""

    x: Axis
    window: tuple[float, float]
    spans: tuple[Span, ...]
    rows: int
    nodes: tuple[tuple[float, str], ...]  # where a node begins, and its name


@dataclass(frozen=True)
class Strip:
    """Choices over time: `chosen[k]` holds from `times[k]` to `times[k + 1]`, of which there is one more."""

    x: Axis
    labels: tuple[str, ...]
    times: Array  # (choices + 1,)
    chosen: Array  # (choices,) int

    def stretches(self) -> list[tuple[int, float, float]]:
        """(choice, from, to), equal neighbours as one."""
        found: list[tuple[int, float, float]] = []
        for k, start, end in zip(self.chosen.tolist(), self.times[:-1].tolist(), self.times[1:].tolist(), strict=True):
            if found and found[-1][0] == k:
                found[-1] = (k, found[-1][1], end)
            else:
                found.append((int(k), start, end))
        return found


Drawing: TypeAlias = Lines | Points | Radar | Boxes | Gantt | Strip


@dataclass(frozen=True)
class Chart:
    """A drawing with what a reader needs to know. `name` is that of its files."""

    name: str
    title: str
    caption: str
    drawing: Drawing


@dataclass(frozen=True)
class Absent:
    """A requested figure that has no data."""

    name: str
    reason: str
