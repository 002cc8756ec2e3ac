"""Sheets for a notebook: small HTML with its own style, on any background. No script, no network; every text is escaped.

Colours are taken from the notebook: text has its colour, lines and areas are mixed from it, so that light and dark need no detection.
"""

from __future__ import annotations

from html import escape

import numpy as np

from gpuyard.model.units import clean
from gpuyard.notebook.sheets import Course, Grid, Sheet, sheet_of

WIDTH, HEIGHT = 640, 34  # of a course, in its own units
STYLE = """<style>
.gpuyard{--line:color-mix(in srgb,currentColor 16%,transparent);--soft:color-mix(in srgb,currentColor 62%,transparent);--blue:#3b8fd0;
--green:color-mix(in srgb,#1fa67a 86%,currentColor);--red:color-mix(in srgb,#de6a33 88%,currentColor);
font:13px/1.45 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif;
max-width:720px;border:1px solid var(--line);border-radius:8px;padding:10px 14px 11px;margin:4px 0;text-align:left;
font-variant-numeric:tabular-nums}
.gpuyard .t{font-size:15px;font-weight:600;line-height:1.35;overflow-wrap:anywhere}
.gpuyard .k{float:right;font-size:11px;color:var(--soft);margin-left:12px}
.gpuyard code{font:12px ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;color:var(--soft);background:none;padding:0;border:0}
.gpuyard .t code{font-weight:400;margin-left:6px}
.gpuyard .a,.gpuyard .n{color:var(--soft);overflow-wrap:anywhere}.gpuyard .n{font-size:12px;margin-top:6px}
.gpuyard .f{display:flex;flex-wrap:wrap;gap:6px 26px;margin:9px 0 3px}
.gpuyard .f b{display:block;font-size:18px;font-weight:600;line-height:1.2}.gpuyard .f span{color:var(--soft);font-size:12px}
.gpuyard .c{display:grid;grid-template-columns:auto 1fr auto;gap:5px 10px;align-items:end;margin-top:9px;font-size:12px;color:var(--soft)}
.gpuyard .c svg{display:block;width:100%;height:34px;border-bottom:1px solid var(--line)}
.gpuyard .c .e{display:flex;justify-content:space-between;grid-column:2;font-size:11px}
.gpuyard .w{overflow-x:auto;margin-top:8px}
.gpuyard table{border-collapse:collapse;margin:0;font-size:12.5px;border:0;width:auto}
.gpuyard th,.gpuyard td{padding:3px 18px 3px 0;text-align:right;border:0;border-bottom:1px solid var(--line);background:none;
vertical-align:top;font-weight:400;color:inherit;white-space:nowrap}
.gpuyard thead th{color:var(--soft);vertical-align:bottom;white-space:normal;min-width:4.2em;max-width:11em}
.gpuyard tr:last-child td{border-bottom:0}.gpuyard .l{text-align:left}
.gpuyard td small,.gpuyard th small{display:block;color:var(--soft);font-size:11px;font-weight:400}
.gpuyard .good{color:var(--green);font-weight:600}.gpuyard .bad{color:var(--red);font-weight:600}
</style>"""


def html_of(thing: object) -> str:
    """Write what a noun shows of itself as HTML."""
    return page_of(sheet_of(thing))


def page_of(sheet: Sheet) -> str:
    """Write a sheet."""
    code = f"<code>{_text(sheet.code)}</code>" if sheet.code and sheet.code != sheet.title else ""
    parts = [f'<div class="k">{_text(sheet.kind)}</div><div class="t">{_text(sheet.title)}{code}</div>']
    parts += [f'<div class="a">{_text(sheet.about)}</div>'] if sheet.about else []
    if sheet.figures:
        each = "".join(f"<div><b>{_text(value)}</b><span>{_text(what)}</span></div>" for value, what in sheet.figures)
        parts.append(f'<div class="f">{each}</div>')
    if sheet.courses:
        ends = "".join(f"<span>{_text(end)}</span>" for end in sheet.span)
        parts.append(f'<div class="c">{"".join(map(_course, sheet.courses))}<div class="e">{ends}</div></div>')
    parts += [_grid(sheet.grid)] if sheet.grid else []
    parts += [f'<div class="n">{_text(note)}</div>' for note in sheet.notes]
    return f'{STYLE}<div class="gpuyard">{"".join(parts)}</div>'


def _text(value: str) -> str:
    """Escape a text: names come from files that others made."""
    return escape(clean(value))


def _course(course: Course) -> str:
    """Draw values as steps that fill the area below them."""
    heights = HEIGHT * (1.0 - np.clip(np.nan_to_num(course.values) / course.most, 0.0, 1.0) * 0.94)
    step = WIDTH / max(len(heights), 1)
    steps = " ".join(f"H{k * step:.1f}V{y:.1f}" for k, y in enumerate(heights.tolist()))
    colour = "var(--blue)" if course.strong else "var(--green)"
    title = f"{course.title}, {course.note}"
    box = f'viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none"'
    return (
        f'<span>{_text(course.title)}</span><svg {box} role="img" aria-label="{_text(title)}">'
        f'<path d="M0 {HEIGHT}{steps}H{WIDTH}V{HEIGHT}Z" style="fill:{colour};fill-opacity:.75"/></svg><span>{_text(course.note)}</span>'
    )


def _grid(grid: Grid) -> str:
    head = "".join(f"<th{_left(grid, k)}>{_cell(cell)}</th>" for k, cell in enumerate(grid.header))
    rows = "".join(
        f"<tr>{''.join(f'<td{_left(grid, k, grid.tones.get((r, k), str()))}>{_cell(cell)}</td>' for k, cell in enumerate(row))}</tr>"
        for r, row in enumerate(grid.rows)
    )
    more = f'<div class="n">{_text(grid.more)}</div>' if grid.more else ""
    return f'<div class="w"><table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>{more}'


def _left(grid: Grid, column: int, tone: str = "") -> str:
    names = " ".join(filter(None, ["l" if column < grid.left else "", tone]))
    return f' class="{names}"' if names else ""


def _cell(cell: str) -> str:
    first, feed, rest = cell.partition("\n")
    return _text(first) + (f"<small>{_text(rest)}</small>" if feed and rest else "")
