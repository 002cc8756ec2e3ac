"""Settings in three layers: the defaults of frozen dataclasses, a TOML file, and `name=value` texts. Later layers win.

The file has one table per dataclass, such as `[training]`, `[env]` and `[learner]`. A text names a field, `learning_rate=1e-3`, with
its table where several dataclasses have that field, `env.window=64`. Fields of a nested dataclass are written `outer.inner`.
"""

from __future__ import annotations

import dataclasses
import math
import re
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from gpuyard.errors import DataError, GpuyardError, UsageError
from gpuyard.files import MAX_TOML_DEPTH, read_toml
from gpuyard.model.units import parse_count, parse_seconds, shorten
from gpuyard.registry import unknown_name

# Settings by their earlier names, which old trainings, TOML files and --set texts still use.
RENAMED: Mapping[str, str] = {
    "gamma": "discount", "max_gradient": "max_grad_norm", "gradient_clip": "max_grad_norm", "rate": "schedule", "batch": "batch_size",
    "normalise": "normalise_observations", "epsilon_first": "epsilon", "epsilon_last": "epsilon_end", "round_steps": "rollout",
}  # fmt: skip
_WHOLE = re.compile(r"[+-]?[0-9](_?[0-9]){0,29}")
_BOOLS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}


def read_file(path: Path, sections: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Read the tables of a TOML file, one per section; unknown tables are refused."""
    table = read_toml(path, "a configuration")
    for name, value in table.items():
        if name not in sections:
            raise unknown_name(f"table of {path}", name, list(sections))
        if not isinstance(value, dict):
            raise DataError(f"{path}: {name} is not a table", hint=f"write [{name}]")
    return table


def assign(kinds: Mapping[str, type[Any]], texts: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Turn `name=value` and `section.name=value` texts into tables of the sections."""
    tables: dict[str, dict[str, Any]] = {section: {} for section in kinds}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not equals or not name:
            raise UsageError(f"--set {shorten(text)} is not NAME=VALUE")
        section, path = _where(kinds, name)
        path[0] = present_name(kinds[section], path[0])
        table: Any = tables[section]
        for outer in path[:-1]:
            table = table.setdefault(outer, {}) if isinstance(table, dict) else table
        if not isinstance(table, dict) or len(path) > MAX_TOML_DEPTH:
            raise UsageError(f"--set {shorten(text)}: {path[0]} has no settings of its own")
        if path[-1] in table:
            raise UsageError(f"--set: {name!r} is given twice")
        table[path[-1]] = value
    return tables


def _where(kinds: Mapping[str, type[Any]], name: str) -> tuple[str, list[str]]:
    first, _, rest = name.partition(".")
    if first in kinds and rest:
        return first, rest.split(".")
    having = [section for section, kind in kinds.items() if present_name(kind, first) in names_of(kind)]
    if not having:
        raise unknown_name("setting", first, [field for kind in kinds.values() for field in names_of(kind)])
    if len(having) > 1:
        raise UsageError(f"--set {name}: several tables have this setting", hint=" or ".join(f"{section}.{name}" for section in having))
    return having[0], name.split(".")


def names_of(kind: type[Any]) -> list[str]:
    """Return the settings that a dataclass has."""
    return [field.name for field in dataclasses.fields(kind)]


def present_name(kind: type[Any], name: str) -> str:
    """Return what a setting of this dataclass is called now."""
    known, new = names_of(kind), RENAMED.get(name, name)
    return new if name not in known and new in known else name


def present_names(section: str, kind: type[Any], table: Mapping[str, Any]) -> dict[str, Any]:
    """Return the table with earlier names replaced by present ones."""
    found: dict[str, Any] = {}
    for name, value in table.items():
        new = present_name(kind, name)
        if new in found:
            raise UsageError(f"{section}.{new} is given twice", hint=f"once by an earlier name; leave out {name!r}")
        found[new] = value
    return found


def build(section: str, kind: type[Any], table: Mapping[str, Any]) -> Any:
    """Make the dataclass from a table; unknown names and values of the wrong type are refused."""
    hints, table = typing.get_type_hints(kind, include_extras=True), present_names(section, kind, table)
    for name in table:
        if name not in names_of(kind):
            raise unknown_name(f"{section} setting", name, names_of(kind))
    values = {name: convert(f"{section}.{name}", hints[name], value) for name, value in table.items()}
    try:
        return kind(**values)
    except GpuyardError:
        raise
    except (ValueError, TypeError) as error:
        raise UsageError(f"{section}: {error}") from None


# ── values ──


def convert(label: str, hint: Any, value: Any) -> Any:
    """Convert a text, or a value from TOML or JSON, to the type that annotates the field."""
    if dataclasses.is_dataclass(hint) and isinstance(hint, type):
        if not isinstance(value, Mapping):
            raise _wrong(label, value, "a table")
        return build(label, hint, value)
    origin = get_origin(hint)
    if origin is Annotated and "seconds" in get_args(hint):
        return _seconds(label, value)
    for kinds, converter in _GENERIC:
        if origin in kinds:
            return converter(label, hint, value)
    if hint not in _PLAIN:
        raise UsageError(f"{label} cannot be set as text")
    return _PLAIN[hint](label, value)


def _wrong(label: str, value: object, wanted: str) -> UsageError:
    return UsageError(f"{label} = {shorten(str(value))} is not {wanted}")


def _union(label: str, hint: Any, value: Any) -> Any:
    if value is None or (isinstance(value, str) and value.lower() == "none"):
        if type(None) in get_args(hint):
            return None
    failures: list[UsageError] = []
    for option in get_args(hint):
        if option is type(None):
            continue
        try:
            return convert(label, option, value)
        except UsageError as error:
            failures.append(error)
    raise failures[0] if failures else _wrong(label, value, "a value")


def _choice(label: str, hint: Any, value: Any) -> Any:
    if value not in get_args(hint):
        raise unknown_name(f"value of {label}", str(value), [str(each) for each in get_args(hint)])
    return value


def _tuple(label: str, hint: Any, value: Any) -> Any:
    kinds = get_args(hint)
    between = r"[,\s]+" if str in kinds else r"[,\sx]+"  # 64x32 are two numbers
    parts = [part for part in re.split(between, value.strip("()[] ")) if part] if isinstance(value, str) else value
    if not isinstance(parts, (list, tuple)):
        raise _wrong(label, value, "a list")
    if len(kinds) == 2 and kinds[1] is Ellipsis:
        return tuple(convert(label, kinds[0], part) for part in parts)
    if len(kinds) != len(parts):
        raise _wrong(label, value, f"a list of {len(kinds)}")
    return tuple(convert(label, kind, part) for kind, part in zip(kinds, parts, strict=True))


def _annotated(label: str, hint: Any, value: Any) -> Any:
    return convert(label, get_args(hint)[0], value)


def _seconds(label: str, value: Any) -> float:
    try:
        return parse_seconds(str(value))
    except UsageError as error:
        raise UsageError(f"{label}: {error}") from None


def _int(label: str, value: Any) -> int:
    if isinstance(value, str):
        if _WHOLE.fullmatch(value.strip()):
            return int(value)
        try:
            return parse_count(value)
        except UsageError:
            raise _wrong(label, value, "a whole number") from None
    if isinstance(value, bool) or not isinstance(value, int):
        raise _wrong(label, value, "a whole number")
    return value


def _float(label: str, value: Any) -> float:
    try:
        number = float(value) if not isinstance(value, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise _wrong(label, value, "a finite number")
    return number


def _bool(label: str, value: Any) -> bool:
    if isinstance(value, str) and value.lower() in _BOOLS:
        return _BOOLS[value.lower()]
    if not isinstance(value, bool):
        raise _wrong(label, value, "true or false")
    return value


def _str(label: str, value: Any) -> str:
    if not isinstance(value, str):
        raise _wrong(label, value, "a text")
    return value


_PLAIN: Mapping[Any, Callable[[str, Any], Any]] = {int: _int, float: _float, bool: _bool, str: _str}
_GENERIC: Sequence[tuple[tuple[Any, ...], Callable[[str, Any, Any], Any]]] = (
    ((Union, types.UnionType), _union),
    ((Literal,), _choice),
    ((tuple,), _tuple),
    ((Annotated,), _annotated),
)
