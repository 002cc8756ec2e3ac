"""Names from outside files can be anything: no format lets them control a terminal, a spreadsheet or a page."""

from __future__ import annotations

import csv
import io
import json

import pytest

from gpuyard.cli.common.output import Format, Output, Table, csv_text, emit, json_text, md_text

NAMES = [
    "=cmd|' /C calc'!A0",
    "+1",
    "-1.5",
    "-x",
    "@SUM(A1)",
    "\x1b]0;title\x07",
    "\x9b2J",
    "<script>alert(1)</script>",
    "[a](javascript:1)",
]


def test_csv_has_no_formulas_and_numbers_stay_numbers():
    rows = list(csv.DictReader(io.StringIO(csv_text([{"name": name, "value": -2.5, "count": -3} for name in NAMES]))))
    assert [row["name"] for row in rows][:5] == ["'=cmd|' /C calc'!A0", "+1", "-1.5", "'-x", "'@SUM(A1)"]
    assert {(row["value"], row["count"]) for row in rows} == {("-2.5", "-3")}
    assert csv_text([{"=1+1": 2}]).startswith("'=1+1\n")


@pytest.mark.parametrize("how", Format)
def test_no_format_writes_control_characters(how: Format, capsys: pytest.CaptureFixture[str]):
    table = Table(("name",), [(name,) for name in NAMES], title=NAMES[5])
    records = [{"name": name} for name in NAMES]
    emit(Output([table], records, records, NAMES), how)
    out = capsys.readouterr().out
    assert all(c.isprintable() or c == "\n" for c in out)


def test_json_keeps_every_character():
    names = [*NAMES, "\u202ereversed", "astral \U000e0001", "π"]
    text = json_text(names)
    assert json.loads(text) == names
    assert "π" in text


def test_markdown_has_no_html_and_no_links():
    text = md_text([Table(("name", "a<b"), [(name, "1") for name in NAMES], title="<b>title</b>", caption="<i>caption</i>")])
    assert "<" not in text
    assert "&lt;script>" in text
    assert "](" not in text
