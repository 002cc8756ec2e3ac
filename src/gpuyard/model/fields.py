"""A strict reader of tables from outside (TOML, JSON): every value is typed and bounded, and unknown keys are refused.

Errors name the file and the key path: `lab.toml: [[nodes]] #2: gpus = -1 is below 0`.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.model.units import MAX_GIGABYTES, MAX_TIME, parse_gigabytes, parse_seconds, shorten

MAX_TEXT = 1_000  # characters of a name or note
ANY = math.inf  # no upper limit
MOST = 10**15  # of anything that is counted
_REQUIRED: Any = object()


class Fields:
    """One table. Take every key with a typed method, then call `done`, which refuses keys that were not taken."""

    def __init__(self, data: object, where: str, path: str = "") -> None:
        self.where = where
        self.path = path
        if not isinstance(data, Mapping):
            raise DataError(f"{where}: {path or 'the file'} is not a table")
        self._data: Mapping[str, Any] = data
        self._taken: set[str] = set()

    def __contains__(self, key: str) -> bool:
        return key in self._data

    def peek(self, key: str) -> object:
        """Return the value as it is, for a key that may be of several kinds."""
        return self._data[key]

    def value(self, key: str, default: object = _REQUIRED) -> Any:
        """Take a value of any kind; the caller checks it."""
        return self._take(key, default)

    def mapping(self, key: str) -> Mapping[str, Any]:
        """Take a table as it is, for a reader of its own."""
        return self.table(key)._data

    def error(self, key: str, why: str, *, hint: str = "") -> DataError:
        """Make the error for `key`: file, key path, what is wrong."""
        place = f"{self.where}: {self.path}: " if self.path else f"{self.where}: "
        shown = _show(self._data[key]) if key in self._data else ""
        return DataError(f"{place}{key}{shown} {why}", hint=hint)

    def text(self, key: str, default: str = _REQUIRED, *, limit: int = MAX_TEXT) -> str:
        """Take a string of at most `limit` characters, without control characters."""
        value = self._take(key, default)
        if not isinstance(value, str):
            raise self.error(key, "is not a text", hint=f'write {key} = "…"')
        if len(value) > limit:
            raise self.error(key, f"is longer than {limit} characters")
        if any(ord(letter) < 32 for letter in value):
            raise self.error(key, "has a control character")
        return value

    def whole(self, key: str, default: int = _REQUIRED, *, low: int = 0, high: int = 2**53) -> int:
        """Take an integer in low..high."""
        value = self._take(key, default)
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.error(key, "is not a whole number")
        self._bound(key, value, low, high)
        return value

    def flag(self, key: str, default: bool = _REQUIRED) -> bool:
        """Take true or false."""
        value = self._take(key, default)
        if not isinstance(value, bool):
            raise self.error(key, "is not true or false")
        return value

    def number(self, key: str, default: float = _REQUIRED, *, low: float = 0.0, high: float = 1e12, above: float | None = None) -> float:
        """Take a finite number in low..high (and strictly above `above`), or the default as it is."""
        return self._number(key, default, low, high, above, None)

    def seconds(self, key: str, default: float = _REQUIRED) -> float:
        """Take a finite time: a number of seconds or a text such as `2h`."""
        return self._number(key, default, 0.0, MAX_TIME, None, parse_seconds)

    def gigabytes(self, key: str, default: float = _REQUIRED) -> float:
        """Take an amount of memory: a number of GB or a text such as `512MB`."""
        return self._number(key, default, 0.0, MAX_GIGABYTES, None, parse_gigabytes)

    def texts(self, key: str, default: tuple[str, ...] = _REQUIRED) -> tuple[str, ...]:
        """Take a list of strings."""
        value = self._take(key, default)
        if not isinstance(value, list | tuple) or not all(isinstance(item, str) for item in value):
            raise self.error(key, "is not a list of texts")
        return tuple(value)

    def numbers(self, key: str, *, whole: bool = False) -> tuple[float, ...]:
        """Take a list of finite numbers up to 2^64, or only of integers."""
        value = self._take(key, _REQUIRED)
        kinds = int if whole else int | float
        if not isinstance(value, list | tuple) or not all(isinstance(item, kinds) and not isinstance(item, bool) for item in value):
            raise self.error(key, f"is not a list of {'whole ' if whole else ''}numbers")
        if not all(-(2**64) <= item <= 2**64 for item in value):
            raise self.error(key, "has numbers that are not finite or beyond 2^64")
        return tuple(value)

    def table(self, key: str) -> Fields:
        """Take the table below this one; empty if the key is absent."""
        return Fields(self._take(key, {}), self.where, self._below(f"[{key}]"))

    def tables(self, key: str) -> Iterator[tuple[str, Fields]]:
        """Yield the named tables below `key`, in order: `[types.a100]` …"""
        outer = self.table(key)
        for name in outer._data:
            yield name, Fields(outer._data[name], self.where, self._below(f"[{key}.{shorten(name)[1:-1]}]"))

    def rows(self, key: str) -> list[Fields]:
        """Take the tables of an array, `[[nodes]]` …; empty if the key is absent."""
        value = self._take(key, [])
        if not isinstance(value, list | tuple):
            raise self.error(key, "is not an array of tables", hint=f"write [[{key}]]")
        return [Fields(item, self.where, self._below(f"[[{key}]] #{i + 1}")) for i, item in enumerate(value)]

    @property
    def names(self) -> tuple[str, ...]:
        """All keys, for tables whose keys are names that the user chose."""
        return tuple(self._data)

    def done(self) -> None:
        """Refuse the first key that was not taken, and suggest the nearest known one."""
        for key in self._data:
            if key not in self._taken:
                near = difflib.get_close_matches(key.lower(), sorted(self._taken), n=1, cutoff=0.5)
                hint = f"did you mean {near[0]!r}?" if near else "known: " + ", ".join(sorted(self._taken))
                place = f"{self.where}: {self.path}: " if self.path else f"{self.where}: "
                raise DataError(f"{place}unknown key {shorten(key)}", hint=hint)

    def _take(self, key: str, default: Any) -> Any:
        self._taken.add(key)
        if key in self._data:
            return self._data[key]
        if default is _REQUIRED:
            raise self.error(key, "is missing")
        return default

    def _number(
        self, key: str, default: float, low: float, high: float, above: float | None, parse: Callable[[str], float] | None
    ) -> float:
        value = self._take(key, default)
        if key not in self._data:
            return float(value)
        if parse is not None and isinstance(value, str):
            try:
                value = parse(value)
            except UsageError as error:
                raise self.error(key, f"cannot be read: {error}") from None
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.error(key, "is not a number")
        if not isinstance(value, int) and not math.isfinite(value):
            raise self.error(key, "is not a finite number")
        self._bound(key, value, low, high)
        if above is not None and not value > above:
            raise self.error(key, f"is not above {above:g}")
        return float(value)

    def _bound(self, key: str, value: float, low: float, high: float) -> None:
        if value < low:
            raise self.error(key, f"is below {low:g}")
        if value > high:
            raise self.error(key, f"is more than {high:,.15g}")

    def _below(self, step: str) -> str:
        return f"{self.path} {step}".strip()


def _show(value: object) -> str:
    """Return ` = value` for a scalar, cut where it is long, else nothing."""
    if isinstance(value, str):
        return f" = {shorten(value)}"
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**30:
        return " (a very large number)"
    if isinstance(value, bool):
        return f" = {str(value).lower()}"
    if isinstance(value, int | float):
        return f" = {value}"
    return ""


def check_limits(what: str, config: Any, limits: Mapping[str, tuple[float, float]], *, above: tuple[str, ...] = ()) -> None:
    """Refuse a field of `config` outside its (lowest, highest); fields named in `above` must exceed the lowest."""
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if low < value <= high or (value == low and name not in above):
            continue
        problem = f"above {high:g}" if value > high else f"not above {low:g}" if name in above else f"below {low:g}"
        raise UsageError(f"{what}: {name} = {str(value)[:40]} is {problem}")
