"""Reads JSON from outside piece by piece, one job at a time, within limits of size and depth."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError
from gpuyard.traces.opening import Limits, read_document

JSON_LIMITS = Limits(size=512 << 20)  # some 100,000 jobs at the 5 kB that Slurm writes for each
_WINDOWS = (1 << 20, 32 << 20)  # characters of one value; 32 MiB of empty objects take 0.8 GB decoded
_BLANK = re.compile(r"[ \t\r\n]*")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is not a number")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)


class JsonText:
    """The text of a JSON file, decoded value by value."""

    def __init__(self, path: Path, limits: Limits) -> None:
        self.path = path
        self.limits = limits
        self.text = read_document(path, limits).decode("utf-8")
        self._counted, self._line = 0, 1
        self._window, self._begin = "", 0  # the part that is decoded: a decoder reads to the end of its text

    def line(self, at: int) -> int:
        """Return the line of a place; ask for places in ascending order."""
        self._line += self.text.count("\n", self._counted, at)
        self._counted = max(at, self._counted)
        return self._line

    def error(self, at: int, message: str) -> DataError:
        return DataError(f"{self.path}:{self.line(at)}: {message}")

    def skip(self, at: int) -> int:
        """Return the next place that is not blank."""
        match = _BLANK.match(self.text, at)
        return match.end() if match else at

    def value(self, at: int) -> tuple[Any, int]:
        """Return the value that begins here and where it ends; refuse one that is too large to be a job."""
        if not self._begin <= at < self._begin + len(self._window):
            self._move(at, _WINDOWS[0])
        for size in _WINDOWS:
            value = self._in_window(at)
            if value is not None:
                return value
            self._move(at, size)
        value = self._in_window(at)
        if value is None:
            raise self.error(at, f"not JSON, or a value of more than {_WINDOWS[-1]:,} characters")
        return value

    def _move(self, at: int, size: int) -> None:
        self._window, self._begin = self.text[at : at + size], at

    def _in_window(self, at: int) -> tuple[Any, int] | None:
        """Return the value that begins here and where it ends, or None where the window may cut it off."""
        end = self._begin + len(self._window)
        cut = end < len(self.text)
        try:
            value, stop = _DECODER.raw_decode(self._window, at - self._begin)
        except RecursionError:
            raise self.error(at, "JSON nested too deeply") from None
        except json.JSONDecodeError as error:
            if cut:
                return None
            raise self.error(min(self._begin + error.pos, end), f"not JSON: {error.msg}") from None
        except (ValueError, StopIteration) as error:
            raise self.error(at, f"not JSON: {str(error)[:80]}") from None
        return None if cut and self._begin + stop == end else (value, self._begin + stop)

    def listed(self) -> Iterator[tuple[Any, int]]:
        """Yield the elements of the list that makes up the text, and where each begins."""
        for element, begin, end in self._elements(0):
            if end >= 0:
                yield element, begin
            elif self.skip(begin) < len(self.text):
                raise self.error(begin, "not JSON: text after the end of the list")

    def members(self, at: int, name: str) -> Iterator[tuple[str, Any, int]]:
        """Yield the members of the object that begins here, the elements of the list `name` one by one; end with ("", None, end)."""
        at = self._expect(at, "{")
        if self.text[at : at + 1] == "}":
            yield "", None, at + 1
            return
        while True:
            key, after = self.value(at)
            if not isinstance(key, str):
                raise self.error(at, "not JSON: a key is not a string")
            at = self._expect(after, ":")
            if key == name and self.text[at : at + 1] == "[":
                for element, begin, end in self._elements(at):
                    if end < 0:
                        at = begin
                    else:
                        yield key, element, begin
            else:
                element, end = self.value(at)
                yield key, element, at
                at = end
            at = self.skip(at)
            if self.text[at : at + 1] == "}":
                yield "", None, at + 1
                return
            at = self._expect(at, ",")

    def _elements(self, at: int) -> Iterator[tuple[Any, int, int]]:
        """Yield the elements of the list that begins here with begin and end; finally (None, where it ends, −1)."""
        at, count = self._expect(at, "["), 0
        while self.text[at : at + 1] != "]":
            element, end = self.value(at)
            count += 1
            if count > self.limits.rows:
                raise self.error(at, f"more than {self.limits.rows:,} jobs")
            yield element, at, end
            at = self.skip(end)
            if self.text[at : at + 1] != "]":
                at = self._expect(at, ",")
        yield None, at + 1, -1

    def _expect(self, at: int, mark: str) -> int:
        at = self.skip(at)
        if self.text[at : at + 1] != mark:
            raise self.error(at, f"not JSON: {mark!r} expected" + ("" if at < len(self.text) else ", the text breaks off"))
        return self.skip(at + 1)


def number(value: object, default: float) -> float:
    """Return a number, or the number in one of Slurm's `{set, infinite, number}` objects, else the default."""
    if isinstance(value, dict):
        if value.get("infinite") or not value.get("set", True):
            return default
        value = value.get("number")
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return default
    return float(value) if abs(value) < 1e300 else default


def text(value: object) -> str:
    """Return a text, or a whole number as text, else the empty text."""
    return value if isinstance(value, str) else str(value) if isinstance(value, int) and not isinstance(value, bool) else ""


def table(value: object) -> dict[str, Any]:
    """Return an object, else an empty one."""
    return value if isinstance(value, dict) else {}
