"""Targets that were missed, and ratios that were lost since an earlier run on the same machine.

A ratio compares what was measured side by side in one run, so that a busy machine changes it little; it is written as a bare
number ("0.77") or with a sign of multiplication ("34 ×"), and more is better.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from gpuyard.errors import DataError
from gpuyard.files import json_bytes, parse_json, read_bytes, write_bytes

LOSS = 0.15  # of a ratio; more is a failure
MAX_BYTES = 10_000_000
FORMAT = "gpuyard-bench"
_COMPARE: Mapping[str, Callable[[float, float], bool]] = {"<": operator.lt, "≤": operator.le, "≥": operator.ge, ">": operator.gt}
_NUMBER = r"(?<![\w.,])(\d[\d,]*(?:\.\d+)?)"
_GOAL = re.compile(rf"([<≤≥>]) {_NUMBER}")
_RATIO = re.compile(rf"{_NUMBER}(?: ×)?")


class Measured(Protocol):
    """A row of the table."""

    @property
    def what(self) -> str: ...
    @property
    def measured(self) -> str: ...
    @property
    def target(self) -> str: ...


class Line(NamedTuple):
    """A row of a page of targets."""

    what: str
    measured: str
    target: str = ""
    note: str = ""


def target_table(lines: Sequence[Line], facts: str) -> str:
    """Return what such a page begins with: how many targets are met, on which machine, and the table."""
    verdict = {True: "met", False: "**missed**", None: ""}
    rows = [f"| {each.what} | {each.measured} | {each.target} | {verdict[is_met(each)]} | {each.note} |" for each in lines]
    met, all_of = sum(is_met(each) is True for each in lines), sum(is_met(each) is not None for each in lines)
    head = f"{met} of {all_of} targets are met. Measured on: {facts}."
    return "\n".join((head, "", "| what | measured | target | | |", "|---|---:|---|---|---|", *rows))


def told(lines: Iterable[Line]) -> list[Line]:
    """Print each row as soon as it is measured; return all of them."""
    found = []
    for line in lines:
        print(f"{line.what}: {line.measured} {line.target} ({line.note})", flush=True)
        found.append(line)
    return found


def is_met(line: Measured) -> bool | None:
    """Return whether the measured numbers meet the target's, in their order; None where there is no target or nothing was measured."""
    goals = _GOAL.findall(line.target)
    found = [_value(text) for text in re.findall(_NUMBER, line.measured)]
    if not goals or not found:
        return None
    return all(_COMPARE[sign](value, _value(goal)) for value, (sign, goal) in zip(found, goals, strict=False))


def ratio_of(line: Measured) -> float | None:
    """Return the ratio that a row shows; None for other rows."""
    match = _RATIO.fullmatch(line.measured)
    return _value(match[1]) if match else None


def _value(text: str) -> float:
    return float(text.replace(",", ""))


def save(path: Path, facts: str, lines: Sequence[Measured]) -> None:
    """Keep a run, to compare later ones with."""
    rows = [{"what": x.what, "measured": x.measured, "target": x.target, "met": is_met(x), "ratio": ratio_of(x)} for x in lines]
    write_bytes(path, json_bytes({"format": FORMAT, "machine": facts, "lines": rows}))


def load(path: Path) -> dict[str, float]:
    """Return the ratios of a run that `save` wrote."""
    found = parse_json(read_bytes(path, MAX_BYTES, "a benchmark"), str(path))
    rows = found.get("lines") if isinstance(found, dict) and found.get("format") == FORMAT else None
    if not isinstance(rows, list) or not all(isinstance(row, dict) and isinstance(row.get("what"), str) for row in rows):
        raise DataError(f"{path}: not a saved benchmark", hint="make one with gpuyard bench --out FILE")
    return {row["what"]: float(row["ratio"]) for row in rows if isinstance(row.get("ratio"), int | float)}


def losses(before: Mapping[str, float], lines: Sequence[Measured]) -> list[str]:
    """Name the ratios that are lower by more than LOSS than before."""
    now = {line.what: ratio for line in lines if (ratio := ratio_of(line)) is not None}
    return [
        f"{what}: {now[what]:g} after {old:g}, {1 - now[what] / old:.0%} less"
        for what, old in before.items()
        if what in now and now[what] < (1 - LOSS) * old
    ]
