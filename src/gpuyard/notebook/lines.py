"""Sheets for a terminal: `>>> result` shows a few lines."""

from __future__ import annotations

from gpuyard.model.units import clean
from gpuyard.notebook.sheets import Grid, Sheet, sheet_of


def text_of(thing: object) -> str:
    """Write what a noun shows of itself as plain text; never raises, because debuggers and error messages ask for it too."""
    try:
        return clean(_text(sheet_of(thing)))
    except Exception as error:
        return f"<{type(thing).__name__}: {type(error).__name__} when shown>"


def _text(sheet: Sheet) -> str:
    name = sheet.code or sheet.title
    if sheet.short:
        return f"{sheet.kind}({name!r}{': ' + sheet.about if sheet.about and not sheet.code else ''})"
    lines = [sheet.title + (f"  ({sheet.code})" if sheet.code else ""), *filter(None, [sheet.about])]
    wide = max((len(value) for value, _ in sheet.figures), default=0)
    lines += [f"  {value:>{wide}}  {what}" for value, what in sheet.figures]
    lines += _grid(sheet.grid) if sheet.grid else []
    return "\n".join([*lines, *(f"  {note}" for note in sheet.notes)])


def _grid(grid: Grid) -> list[str]:
    """Lay out the first lines of all cells in columns; the code of a scheduler takes the place of its name."""
    rows = [[cell.replace("\n", " ") for cell in grid.header]]
    rows += [[row[0].rpartition("\n")[2], *(cell.partition("\n")[0] for cell in row[1:])] for row in grid.rows]
    widths = [max(len(row[k]) for row in rows) for k in range(len(grid.header))]
    return ["  " + "  ".join(f"{cell:{'<' if k < grid.left else '>'}{widths[k]}}" for k, cell in enumerate(row)).rstrip() for row in rows]
