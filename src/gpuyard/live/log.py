"""A log of JSON lines that is rotated: FILE is the newest, FILE.1 the one before, and so on; the oldest go."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE_BYTES = 16_000_000
FILES = 8


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
    numbered = [file for file in path.parent.glob(f"{path.name}.*") if file.suffix[1:].isdigit()]
    files = [*sorted(numbered, key=lambda file: -int(file.suffix[1:])), path]
    found = []
    for file in (each for each in files if each.is_file()):
        for line in file.read_bytes().splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                continue
    return [each for each in found if isinstance(each, dict)]
