"""Listings for people, in columns of fixed width below a line of dashes, as `sacct` prints without `--parsable2`."""

from __future__ import annotations

import io
import re
from collections.abc import Collection, Sequence
from pathlib import Path

from gpuyard.errors import DataError

MARK = "\x1f"  # between fields, once they are cut apart: it is in no name
_RULER = re.compile(r"-+( -+)*\s*")


def is_ruled(lines: Sequence[str]) -> bool:
    """Whether the second line is a ruler."""
    return len(lines) > 1 and bool(_RULER.fullmatch(lines[1].rstrip("\r\n")))


def cut_fields(line: str, ruler: str) -> list[str]:
    """Return the fields of a line, without blanks around them."""
    return [line[each.start() : each.end()].strip() for each in re.finditer("-+", ruler)]


def delimited(path: Path, text: io.BytesIO, free: Collection[str]) -> io.BytesIO:
    """Return the text with `MARK` between fields, the ruler blank. Values that were cut off (`gpu+`) are refused but in `free` columns."""
    lines = text.getvalue().decode("utf-8").split("\n")
    ruler = lines[1].rstrip("\r")
    names = [name.lower() for name in cut_fields(lines[0], ruler)]
    parts = [MARK.join(names), ""]
    for number, line in enumerate(lines[2:], 3):
        fields = cut_fields(line, ruler) if line.strip() else []
        if len(line.rstrip()) > len(ruler):
            raise DataError(f"{path}:{number}: the line is wider than the ruler in line 2", hint="print it with --parsable2")
        for name, value in zip(names, fields, strict=False):
            if value.endswith("+") and name not in free:
                raise DataError(f"{path}:{number}: {name} = {value[:40]!r} is cut off", hint="print it with --parsable2")
        parts.append(MARK.join(fields))
    return io.BytesIO("\n".join(parts).encode())
