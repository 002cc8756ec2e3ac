"""Charts on a screen: Plotly's figures as plain dicts, with hover, zoom and a legend that hides schedulers.

Texts are escaped, because Plotly takes some HTML in labels. The colours `@ink`, `@grid`, `@muted` and `@page` are filled in by the page,
light or dark.
"""

from __future__ import annotations

import html
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.text import readable, short
from gpuyard.report.charts import PALETTE, ROW_WIDTH, Axis, Boxes, Chart, Gantt, Lines, Marks, Points, Radar, Series, Strip, style_of

INK, GRID, MUTED = "@ink", "@grid", "@muted"
PATTERNS = ("", "/", ".", "\\", "x", "-", "+", "|")


def figure_of(chart: Chart) -> dict[str, Any]:
    """Make `{"data": […], "layout": {…}}`, ready for JSON: no nan, no numpy."""
    data, layout = _MAKERS[type(chart.drawing)](chart.drawing)
    base: dict[str, Any] = {
        "paper_bgcolor": "rgba(0,0,0,0)", "plot_bgcolor": "rgba(0,0,0,0)", "font": {"color": INK, "size": 13},
        "margin": {"l": 10, "r": 10, "t": 34, "b": 10}, "hovermode": "closest", "height": 420, "dragmode": "zoom",
        "hoverlabel": {"align": "left"},
    }  # fmt: skip
    made: dict[str, Any] = _plain({"data": data, "layout": base | layout})
    return made


def _plain(value: Any) -> Any:
    """Round to six digits, which are enough for a screen."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, np.ndarray):
        return _plain(value.tolist())
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return float(f"{value:.6g}") if math.isfinite(value) else None
    return value


def _escaped(text: str, longest: int = 40) -> str:
    return html.escape(readable(text, longest))


def _broken(title: str) -> str:
    """Break a text into lines that fit a phone."""
    head, bracket, tail = title.rpartition(" (")
    parts = [head, f"({tail}"] if bracket and len(title) > 44 else [title]
    return "<br>".join(html.escape(line) for part in parts for line in textwrap.wrap(part, 44))


def _axis(axis: Axis, values: Any, **further: Any) -> dict[str, Any]:
    """Return the axis of x, y or radius; a bent scale has its values placed already, and brings its ticks."""
    made: dict[str, Any] = {
        "title": {"text": _broken(axis.title), "font": {"size": 12}, "standoff": 8}, "gridcolor": GRID, "zeroline": False,
        "linecolor": MUTED, "automargin": True,
    }  # fmt: skip
    if axis.scale == "bent":
        ticks = axis.ticks(values)
        made |= {"tickvals": [float(axis.place(np.array(tick))) for tick, _ in ticks], "ticktext": [text for _, text in ticks]}
    elif axis.scale == "log":
        made |= {"type": "log"} | _log_ticks(values)
    elif axis.percent:
        made["tickformat"] = ",.3~%"
    return made | further


def _log_ticks(values: Any) -> dict[str, Any]:
    """1, 2, 5, 10, … where few decades are shown; the library's own powers of 10 else."""
    known = values[np.isfinite(values) & (values > 0)]
    if not len(known) or known.max() > 1000 * known.min():
        return {"dtick": 1, "tickformat": ",~g"}
    decades = range(math.floor(math.log10(known.min())) - 1, math.ceil(math.log10(known.max())) + 1)
    ticks = [factor * 10.0**k for k in decades for factor in (1.0, 2.0, 5.0)]
    return {"tickvals": ticks, "ticktext": [f"{tick:,.6g}" for tick in ticks]}


def _number(axis: Axis, value: float) -> str:
    return f"{short(100 * value)} %" if axis.percent and math.isfinite(value) else short(value)


def _with_interval(axis: Axis, mean: float, low: float, high: float) -> str:
    tail = f" [{_number(axis, low)}, {_number(axis, high)}]" if math.isfinite(low) and math.isfinite(high) else ""
    return _number(axis, mean) + tail


# ── lines ──


def _lines(drawn: Lines) -> tuple[list[Any], dict[str, Any]]:
    data: list[Any] = []
    for line in drawn.lines:
        data += _band(drawn, line) if line.low is not None else []
        data.append(_line(drawn, line))
    every_x = np.concatenate([line.x for line in drawn.lines]) if drawn.lines else np.zeros(0)
    every_y = np.concatenate([line.y for line in drawn.lines]) if drawn.lines else np.zeros(0)
    x = _axis(drawn.x, every_x)
    if drawn.categories:
        x |= {"tickvals": list(range(len(drawn.categories))), "ticktext": [_escaped(each) for each in drawn.categories]}
    layout: dict[str, Any] = {"xaxis": x, "yaxis": _axis(drawn.y, every_y), "showlegend": True}
    if drawn.level is not None:
        layout["shapes"] = [_across(float(drawn.y.place(np.array(drawn.level))), "y")]
    return data, layout


def _line(drawn: Lines, line: Series) -> dict[str, Any]:
    style, name = style_of(line.style), _escaped(line.name)
    low, high = (np.full(len(line.x), np.nan) if end is None else end for end in (line.low, line.high))
    at = drawn.categories or [_number(drawn.x, value) for value in line.x.tolist()]
    text = [
        f"<b>{name}</b><br>{html.escape(drawn.x.title)}: {html.escape(str(x))}<br>{_with_interval(drawn.y, y, a, b)}"
        for x, y, a, b in zip(at, line.y.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    return {
        "type": "scatter", "mode": "lines+markers" if drawn.markers else "lines", "name": name, "legendgroup": name, "x": line.x,
        "y": drawn.y.place(line.y), "text": text, "hovertemplate": "%{text}<extra></extra>", "marker": {"symbol": style.marker, "size": 8},
        "line": {"color": style.colour, "dash": style.dash, "width": 3 if line.strong else 1.8, "shape": "hv" if drawn.steps else "linear"},
    }  # fmt: skip


def _band(drawn: Lines, line: Series) -> list[Any]:
    assert line.low is not None and line.high is not None
    known = np.isfinite(line.low) & np.isfinite(line.high)
    if not known.any():
        return []
    x = np.concatenate([line.x[known], line.x[known][::-1]])
    faint = max(0.03, min(0.16, 0.5 / len(drawn.lines)))  # many bands must not add up to one dark one
    y = drawn.y.place(np.concatenate([line.high[known], line.low[known][::-1]]))
    return [{
        "type": "scatter", "mode": "lines", "x": x, "y": y, "fill": "toself", "fillcolor": style_of(line.style).colour, "opacity": faint,
        "line": {"width": 0, "color": style_of(line.style).colour}, "hoverinfo": "skip", "showlegend": False,
        "legendgroup": _escaped(line.name), "name": _escaped(line.name),
    }]  # fmt: skip


def _across(value: float, which: str) -> dict[str, Any]:
    """A dashed line at a value of one axis, all along the other."""
    other, at = ("x", "y") if which == "y" else ("y", "x")
    return {
        "type": "line", f"{at}0": value, f"{at}1": value, f"{other}0": 0, f"{other}1": 1, f"{other}ref": "paper", "layer": "below",
        "line": {"color": MUTED, "width": 1.2, "dash": "dash"},
    }  # fmt: skip


# ── points ──


def _points(drawn: Points) -> tuple[list[Any], dict[str, Any]]:
    count, offsets = drawn.most, drawn.offsets()
    data = [_marks(drawn, mark, offsets[k], count) for k, mark in enumerate(drawn.marks)]
    height = 110 + len(drawn.rows) * (30 if count == 1 else max(15 * count + 12, 34))
    every = np.concatenate([np.concatenate([m.mean, m.low, m.high]) for m in drawn.marks])
    ticks = {"tickvals": list(range(len(drawn.rows))), "ticktext": [_escaped(row, 52) for row in drawn.rows]}
    edge = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "line": {"color": GRID, "width": 1}, "layer": "below"}
    edges = [edge | {"y0": k + 0.5, "y1": k + 0.5} for k in range(len(drawn.rows) - 1 if count > 1 else 0)]
    level = [] if drawn.level is None else [_across(float(drawn.value.place(np.array(drawn.level))), "x")]
    return data, {
        "xaxis": _axis(drawn.value, every), "height": height, "shapes": level + edges, "showlegend": True, "barmode": "overlay",
        "meta": {"alone": drawn.alone},
        "yaxis": {"range": [len(drawn.rows) - 0.5, -0.5], "showgrid": False, "zeroline": False, "automargin": True} | ticks,
    }  # fmt: skip


def _marks(drawn: Points, mark: Marks, offset: Array, count: int) -> dict[str, Any]:
    """Draw one scheduler in all rows."""
    style, name, shown = style_of(mark.style), _escaped(mark.name), np.isfinite(mark.mean)
    mean, low, high = (each[shown] for each in (mark.mean, mark.low, mark.high))
    place = drawn.value.place(mean)
    ends = [np.abs(drawn.value.place(np.where(np.isnan(end), mean, end)) - place) for end in (low, high)]
    rows = [row for row, is_shown in zip(drawn.rows, shown.tolist(), strict=True) if is_shown]
    text = [
        f"<b>{name}</b>{'' if row == mark.name else '<br>' + _escaped(row)}<br>{_with_interval(drawn.value, m, a, b)}"
        for row, m, a, b in zip(rows, mean.tolist(), low.tolist(), high.tolist(), strict=True)
    ]
    interval = {
        "type": "data", "symmetric": False, "array": ends[1], "arrayminus": ends[0], "color": INK if drawn.bars else style.colour,
        "thickness": 2.4 if mark.strong else 1.6, "width": 0,
    }  # fmt: skip
    trace = {"name": name, "legendgroup": name, "x": place, "y": np.flatnonzero(shown) + offset[shown], "text": text, "error_x": interval}
    look = _bar(mark.style, ROW_WIDTH / count if count > 1 else 0.6) if drawn.bars else _dot(mark.style, mark.strong)
    return trace | look | {"hovertemplate": "%{text}<extra></extra>"}


def _bar(number: int, width: float) -> dict[str, Any]:
    pattern = {
        "shape": PATTERNS[number % len(PATTERNS)], "solidity": 0.3, "size": 7, "fillmode": "overlay", "fgcolor": "@page", "fgopacity": 0.7,
    }  # fmt: skip
    marker = {"color": style_of(number).colour, "pattern": pattern}
    return {"type": "bar", "orientation": "h", "textposition": "none", "width": width * 0.92, "marker": marker}


def _dot(number: int, strong: bool) -> dict[str, Any]:
    style = style_of(number)
    return {"type": "scatter", "mode": "markers", "marker": {"color": style.colour, "symbol": style.marker, "size": 12 if strong else 9}}


# ── radar and boxes ──


def _radar(drawn: Radar) -> tuple[list[Any], dict[str, Any]]:
    spokes = [_escaped(each) for each in drawn.spokes]
    data: list[Any] = []
    for ring in drawn.rings:
        style, name = style_of(ring.style), _escaped(ring.name)
        values = drawn.value.place(ring.values)
        text = [
            f"<b>{name}</b><br>{spoke}: {_number(drawn.value, value)}" for spoke, value in zip(spokes, ring.values.tolist(), strict=True)
        ]
        data.append({
            "type": "scatterpolar", "mode": "lines+markers", "name": name, "r": np.append(values, values[0]), "theta": [*spokes, spokes[0]],
            "text": [*text, text[0]], "hovertemplate": "%{text}<extra></extra>", "marker": {"symbol": style.marker, "size": 7},
            "line": {"color": style.colour, "dash": style.dash, "width": 3 if ring.strong else 1.8},
        })  # fmt: skip
    every = np.concatenate([ring.values for ring in drawn.rings])
    place = drawn.value.place(every)
    low, high = float(np.nanmin(place, initial=0.0)), float(np.nanmax(place, initial=0.0))
    radial = _axis(drawn.value, every, angle=90, tickangle=90) | {"range": [low * 1.05, high * 1.05 or 1.0]}
    radial.pop("automargin")
    radial.pop("title")
    polar = {"bgcolor": "rgba(0,0,0,0)", "radialaxis": radial, "angularaxis": {"gridcolor": GRID, "linecolor": MUTED}}
    return data, {"polar": polar, "height": 480, "showlegend": True, "margin": {"l": 60, "r": 60, "t": 40, "b": 40}}


def _boxes(drawn: Boxes) -> tuple[list[Any], dict[str, Any]]:
    groups = [_escaped(group, 20) for group in drawn.groups]
    data: list[Any] = []
    for box in drawn.boxes:
        low, first, middle, third, high = box.five.T
        style, name = style_of(box.style), _escaped(box.name)
        data.append({
            "type": "box", "name": name, "x": list(range(len(groups))), "lowerfence": low, "q1": first, "median": middle, "q3": third,
            "upperfence": high, "marker": {"color": style.colour}, "line": {"color": style.colour, "width": 1.6}, "hoverinfo": "y+name",
        })  # fmt: skip
    every = np.concatenate([box.five.ravel() for box in drawn.boxes])
    x = {
        "title": {"text": html.escape(drawn.group), "font": {"size": 12}}, "tickvals": list(range(len(groups))), "ticktext": groups,
        "showgrid": False, "zeroline": False, "automargin": True,
    }  # fmt: skip
    y = _axis(drawn.value, every, hoverformat=".3~s")
    return data, {"boxmode": "group", "xaxis": x, "yaxis": y, "showlegend": True, "height": 440}


# ── single runs ──


def _gantt(drawn: Gantt) -> tuple[list[Any], dict[str, Any]]:
    spans, unit = drawn.spans, html.escape(drawn.x.title)
    bars = {
        "type": "bar", "orientation": "h", "base": [s.start for s in spans], "x": [s.end - s.start for s in spans],
        "y": [s.row + s.height / 2 for s in spans], "width": [s.height for s in spans], "showlegend": False,
        "marker": {"color": [PALETTE[s.job % len(PALETTE)] for s in spans], "line": {"color": "@page", "width": 0.6}},
        "text": [
            f"job {s.job}<br>{short(s.start)} to {short(s.end)} {unit}<br>{s.height:g} GPU{'' if s.height == 1 else 's'}" for s in spans
        ],
        "textposition": "none", "hovertemplate": "%{text}<extra></extra>",
    }  # fmt: skip
    ends = [first for first, _ in drawn.nodes[1:]] + [float(drawn.rows)]
    middles = [(first + end) / 2 for (first, _), end in zip(drawn.nodes, ends, strict=True)]
    ticks = {"tickvals": middles, "ticktext": [html.escape(name) for _, name in drawn.nodes]} if len(drawn.nodes) <= 32 else {}
    return [bars], {
        "barmode": "overlay", "bargap": 0, "height": int(min(120 + 22 * drawn.rows, 620)), "showlegend": False,
        "xaxis": _axis(drawn.x, np.zeros(0), range=list(drawn.window)),
        "yaxis": {"range": [drawn.rows, 0], "showgrid": False, "zeroline": False, "automargin": True} | ticks,
    }  # fmt: skip


def _strip(drawn: Strip) -> tuple[list[Any], dict[str, Any]]:
    stretches = drawn.stretches()
    data: list[Any] = []
    unit = html.escape(drawn.x.title)
    for k, label in enumerate(drawn.labels):
        mine = [(start, end) for choice, start, end in stretches if choice == k]
        data.append({
            "type": "bar", "orientation": "h", "name": _escaped(label), "base": [start for start, _ in mine],
            "x": [end - start for start, end in mine], "y": [k] * len(mine), "width": 0.72, "marker": {"color": style_of(k).colour},
            "text": [f"<b>{_escaped(label)}</b><br>{short(start)} to {short(end)} {unit}" for start, end in mine], "textposition": "none",
            "hovertemplate": "%{text}<extra></extra>",
        })  # fmt: skip
    ticks: Sequence[str] = [_escaped(label) for label in drawn.labels]
    return data, {
        "barmode": "overlay", "height": 120 + 34 * len(drawn.labels), "showlegend": False,
        "xaxis": _axis(drawn.x, np.zeros(0), range=[float(drawn.times[0]), float(drawn.times[-1])]),
        "yaxis": {
            "range": [len(drawn.labels) - 0.5, -0.5], "tickvals": list(range(len(ticks))), "ticktext": ticks, "showgrid": False,
            "zeroline": False, "automargin": True,
        },
    }  # fmt: skip


_MAKERS: Mapping[type, Callable[[Any], tuple[list[Any], dict[str, Any]]]] = {
    Lines: _lines, Points: _points, Radar: _radar, Boxes: _boxes, Gantt: _gantt, Strip: _strip,
}  # fmt: skip
