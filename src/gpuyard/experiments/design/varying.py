"""Vary one thing at a time, in place of a product of axes, by values for holes such as `{load}` in the texts of workloads.

A product of five axes has thousands of cells. From a centre, one axis at a time, it has as many as the axes have values.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from gpuyard.errors import DataError
from gpuyard.model.fields import Fields
from gpuyard.model.units import shorten
from gpuyard.registry import unknown_name

MOST_VALUES = 100  # of a hole
_HOLE = re.compile(r"[a-z][a-z0-9_]{0,29}")


class Varied(TypedDict):
    """The fields of an experiment that say what is varied."""

    vary: Mapping[str, tuple[str, ...]]
    also: tuple[Mapping[str, str], ...]
    own: Mapping[str, Mapping[str, str]]


def varied_of(root: Fields) -> Varied:
    """Read [vary], [[also]] and [own.WORKLOAD]."""
    table = root.table("vary")
    vary = {name: table.texts(name) for name in table.names}
    table.done()
    own = {name: _values(fields) for name, fields in root.tables("own")}
    return Varied(vary=vary, also=tuple(_values(fields) for fields in root.rows("also")), own=own)


def _values(fields: Fields) -> dict[str, str]:
    found = {name: fields.text(name, limit=100) for name in fields.names}
    fields.done()
    return found


def check_varied(
    vary: Mapping[str, Sequence[str]], also: Sequence[Mapping[str, str]], own: Mapping[str, Any], workloads: Sequence[str], where: str
) -> None:
    """Refuse names that cannot be holes or columns, values that are there twice, and places and workloads that do not exist."""
    for name, values in vary.items():
        if not _HOLE.fullmatch(name):
            raise DataError(f"{where}: [vary]: {shorten(name)} is not a valid name", hint="small letters, digits and _, up to 30")
        if not 1 <= len(values) <= MOST_VALUES or len(set(values)) < len(values):
            raise DataError(f"{where}: [vary] {name}: from 1 to {MOST_VALUES} different values", hint="the first is the centre")
    for place in also:
        for name in place:
            if name not in vary:
                raise unknown_name(f"name in {where}: [[also]]:", name, list(vary))
    for name in own:
        if name not in workloads:
            raise unknown_name(f"workload in {where}: [own]:", name, list(workloads))


def fill(text: str, values: Mapping[str, str]) -> str:
    """Replace `{name}` by its value, for every name that has one; other holes stay."""
    for name, value in values.items():
        text = text.replace(f"{{{name}}}", value)
    return text


def without_unset(table: Mapping[str, Any], known: Mapping[str, str]) -> Mapping[str, Any]:
    """Leave out the workloads of [names] whose text has a hole `${name}` for which [values] has an empty text: such as a log that is not
    given."""
    axes, names = table.get("axes"), table.get("names")
    if not isinstance(axes, dict) or not isinstance(names, dict) or not isinstance(axes.get("workloads"), list):
        return table  # refused when it is read
    holes = [f"${{{hole}}}" for hole, value in known.items() if not value]
    unset = {name for name, text in names.items() if isinstance(text, str) and any(hole in text for hole in holes)}
    left = {
        "axes": {**axes, "workloads": [each for each in axes["workloads"] if each not in unset]},
        "names": {name: text for name, text in names.items() if name not in unset},
    }
    own = table.get("own")
    if isinstance(own, dict):
        left["own"] = {name: values for name, values in own.items() if name not in unset}
    return {**table, **left}
