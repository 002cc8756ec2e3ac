"""Jobs in a pandas or polars frame, or in a dictionary of columns. Neither library is imported: their columns are read as arrays."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import cached_property
from numbers import Real
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, WrongTypeError
from gpuyard.model.units import clean
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.checks import Rows, check_count, check_ids
from gpuyard.traces.opening import DEFAULT_LIMITS
from gpuyard.traces.readers.columns import UNITS, Units, chosen_columns
from gpuyard.traces.readers.tables import YES_NO, quantities, with_devices, workload_of

_MISSING = ("NAType", "NaTType")  # of pandas, which may not be there


def read_frame(frame: object, *, columns: Mapping[str, str], unit: str, name: str) -> Workload:
    """Read the jobs of a frame, by the rules of `read_csv`; numbers must be numbers, and dates may be dates."""
    if unit not in UNITS:
        raise unknown_name("unit of time", unit, list(UNITS))
    names, given = _columns_of(frame)
    chosen = chosen_columns(name, names, columns, UNITS[unit])
    arrays = {ours: _array(given[at], ours, name) for ours, at in chosen.places.items()}
    first = "submit" if "submit" in arrays else "start"
    count = len(arrays[first])
    for ours, values in arrays.items():
        if len(values) != count:
            raise DataError(f"{name}: column {ours!r} has {len(values):,} values, {first!r} has {count:,}")
    check_count(Path(name), count, DEFAULT_LIMITS)
    table = FrameTable(Path(name), arrays, np.arange(1, count + 1), chosen.units)
    found, notes = quantities(table, chosen.units)
    found, machines, more = with_devices(found)
    return replace(workload_of(table, found, (*chosen.notes, *notes, *more), machines=machines), name=name)


def _columns_of(frame: object) -> tuple[list[str], list[object]]:
    """Return the names of the columns and the columns."""
    if isinstance(frame, Mapping):
        return [str(name) for name in frame], list(frame.values())
    if not hasattr(frame, "collect") and hasattr(frame, "columns") and hasattr(frame, "__getitem__"):
        names = list(frame.columns)
        if len({str(name) for name in names}) < len(names):  # frame[name] is then a frame itself
            twin = next(name for name in names if names.count(name) > 1)
            raise DataError(f"frame: column {str(twin)[:60]!r} occurs twice")
        return [str(name) for name in names], [frame[name] for name in names]
    hint = "call .collect() first" if hasattr(frame, "collect") else ""
    raise WrongTypeError("frame", "a pandas or polars DataFrame, or a dictionary of columns", frame, hint=hint)


def _array(column: object, ours: str, where: str) -> Array:
    """Return a column as one array; times with a zone become UTC."""
    zoned = getattr(column, "dt", None)
    if zoned is not None and getattr(zoned, "tz", None) is not None:
        column = zoned.tz_convert("UTC").dt.tz_localize(None)
    if hasattr(column, "to_numpy"):
        values = np.asarray(column.to_numpy())
    elif isinstance(column, np.ndarray):
        values = column
    elif isinstance(column, Iterable) and not isinstance(column, str | bytes | Mapping):
        listed = column if isinstance(column, Sequence) else list(column)
        values = np.array(listed, dtype=object) if any(isinstance(each, str) or each is None for each in listed) else np.asarray(listed)
    else:
        raise WrongTypeError(f"{where}: column {ours!r}", "a list, an array or a series", column)
    if values.ndim != 1:
        raise DataError(f"{where}: column {ours!r} has {values.ndim} dimensions, not 1")
    return values


def _is_missing(value: object) -> bool:
    return value is None or type(value).__name__ in _MISSING or (isinstance(value, float | np.floating) and value != value)


@dataclass(frozen=True)
class FrameTable:
    """Columns by our names, with the number of each row from 1."""

    path: Path  # the frame's name, for messages
    columns: Mapping[str, Array]
    lines: Array
    units: Units  # of numbers

    @cached_property
    def rows(self) -> Rows:
        """Say where rows are, for messages."""
        return Rows(self.path, self.lines)

    def __contains__(self, name: str) -> bool:
        return name in self.columns

    def take(self, rows: Array) -> FrameTable:
        """Return the given rows."""
        return FrameTable(self.path, {name: values[rows] for name, values in self.columns.items()}, self.lines[rows], self.units)

    def numbers(self, name: str) -> Array:
        """Return a column as float64; NaN where there is no value. A time delta becomes a number in the unit."""
        values = self.columns[name]
        if values.dtype.kind in "fiub":
            return values.astype(np.float64)
        if values.dtype.kind == "m":
            return _seconds_of(values, "timedelta64[us]") / self.units.of(name)
        return np.array([self._number(name, row, value) for row, value in enumerate(values.tolist())], dtype=np.float64)

    def _number(self, name: str, row: int, value: object) -> float:
        if _is_missing(value):
            return np.nan
        if isinstance(value, timedelta):
            return value.total_seconds() / self.units.of(name)
        if isinstance(value, Real) or type(value).__name__ == "Decimal":
            return float(value)  # type: ignore[arg-type]
        raise self._error(row, name, value, "a number")

    def seconds(self, name: str) -> Array:
        """Return a column of dates as seconds since 1970; UTC unless they say otherwise; NaN where there is none."""
        values = self.columns[name]
        if values.dtype.kind == "M":
            return _seconds_of(values, "datetime64[us]")
        return np.array([self._instant(name, row, value) for row, value in enumerate(values.tolist())], dtype=np.float64)

    def _instant(self, name: str, row: int, value: object) -> float:
        if _is_missing(value) or value == "":
            return np.nan
        try:
            when = datetime.fromisoformat(value) if isinstance(value, str) else value
            if isinstance(when, date) and not isinstance(when, datetime):
                when = datetime(when.year, when.month, when.day)
            if isinstance(when, datetime):
                return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp()
        except (ValueError, OverflowError):
            pass
        raise self._error(row, name, value, "a date")

    def flags(self, name: str) -> Array:
        """Return a column of truth values, or of yes, no and once, as 1.0, 0.0 and 2.0; NaN where there is no value."""
        values = self.columns[name]
        if values.dtype.kind == "b":
            return values.astype(np.float64)
        found = []
        for row, value in enumerate(values.tolist()):
            known = np.nan if _is_missing(value) or value == "" else YES_NO.get(str(value).lower().removesuffix(".0"))
            if known is None:
                raise self._error(row, name, value, "yes, no or once")
            found.append(known)
        return np.array(found)

    def labels(self, name: str, keep: Array) -> tuple[tuple[str, ...], Array]:
        """Return the distinct texts, sorted, and the number of each kept row's text."""
        found, numbers = np.unique(np.array([_label(value) for value in self.columns[name][keep].tolist()], dtype=str), return_inverse=True)
        return tuple(found.tolist()), numbers

    def ids(self) -> tuple[Array, tuple[str, ...]]:
        """Return the ids if they are numbers, else row numbers and a note; refuse an id that occurs twice."""
        if "id" not in self:
            return self.lines, ()
        values = self.columns["id"].tolist()
        if any(isinstance(value, str) for value in values):
            first: dict[object, int] = {}
            again = next((row for row, value in enumerate(values) if first.setdefault(value, row) != row), None)
            if again is not None:
                raise self.rows.error(again, f"id {str(values[again])[:40]!r} occurs twice")
            return self.lines, ("ids are row numbers: those of the frame are not numbers",)
        ids = self.numbers("id")
        if np.isnan(ids).any():
            raise self.rows.error(int(np.argmax(np.isnan(ids))), "no id")
        check_ids(self.rows, ids)
        return ids.astype(np.int64), ()

    def is_stamped(self, name: str) -> bool:
        """Whether the column has dates, or texts of dates, instead of numbers."""
        values = self.columns[name]
        if values.dtype.kind in "fiubm":
            return False
        first = next((value for value in values.tolist() if not _is_missing(value) and value != ""), 0.0)
        return values.dtype.kind == "M" or isinstance(first, str | date)

    def is_empty(self, name: str) -> bool:
        """Whether no row has a value."""
        return all(_is_missing(value) for value in self.columns[name].tolist())

    def _error(self, row: int, name: str, value: object, expected: str) -> DataError:
        return self.rows.error(row, f"{name} = {str(value)[:40]!r} is not {expected}")


def _seconds_of(values: Array, kind: str) -> Array:
    """Return dates or time deltas in seconds; NaN for NaT."""
    whole = values.astype(kind)
    return np.where(np.isnat(whole), np.nan, whole.astype(np.int64) / 1e6)


def _label(value: object) -> str:
    if _is_missing(value):
        return ""
    return clean(str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)).strip()
