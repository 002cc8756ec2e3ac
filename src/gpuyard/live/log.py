"""A log of JSON lines that is rotated: FILE is the newest, FILE.1 the one before, and so on; the oldest go."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

FILE_BYTES = 16_000_000
FILES = 8
LAST_BYTES = 4_000_000  # more than the line of a cycle


class RotatedLog:
    """Appends records. `problem` says why the last could not be kept: a full disk must not stop what is logged."""

    def __init__(self, path: Path, *, each: int = FILE_BYTES, files: int = FILES) -> None:
        self.path, self.problem = path, ""
        self._each, self._files = each, files

    def add(self, record: Mapping[str, Any]) -> None:
        """Append a record as one line."""
        line = json.dumps(record, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            if self.path.exists() and self.path.stat().st_size + len(line) > self._each:
                self._rotate()
            with self.path.open("ab") as file:
                file.write(line)
            self.problem = ""
        except OSError as error:
            self.problem = f"{self.path}: cannot be written: {error.strerror or error}"

    def _rotate(self) -> None:
        for number in range(self._files - 2, -1, -1):
            old = self._numbered(number)
            if old.exists():
                old.replace(self._numbered(number + 1))

    def _numbered(self, number: int) -> Path:
        return self.path.with_name(f"{self.path.name}.{number}") if number else self.path


def read_lines(path: Path) -> list[dict[str, Any]]:
    """Return the records of a log, the oldest first; a line that was cut short is left out."""
    return list(each_line(path))


def each_line(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the records of a log, the oldest first, one line in memory at a time."""
    numbered = [file for file in path.parent.glob(f"{path.name}.*") if file.suffix[1:].isdigit()]
    files = [*sorted(numbered, key=lambda file: -int(file.suffix[1:])), path]
    for file in (each for each in files if each.is_file()):
        with file.open("rb") as lines:
            for line in lines:
                found = _record(line)
                if found is not None:
                    yield found


def last_record(path: Path) -> dict[str, Any] | None:
    """Return the newest record; None if there is none."""
    for file in (path, path.with_name(f"{path.name}.1")):
        try:
            with file.open("rb") as opened:
                size = opened.seek(0, 2)
                opened.seek(max(size - LAST_BYTES, 0))
                tail = opened.read(LAST_BYTES)
        except OSError:
            continue
        found = [record for record in map(_record, tail.split(b"\n")) if record is not None]
        if found:
            return found[-1]
    return None


def _record(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
