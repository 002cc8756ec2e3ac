"""The date of a workload's time 0, where the trace gives it; a note keeps it: `time 0 is 2017-08-14T23:27:00`."""

from __future__ import annotations

import re
from datetime import datetime, timedelta

from gpuyard.errors import UsageError
from gpuyard.model.units import parse_seconds, shorten
from gpuyard.model.workload import Workload

_NOTE = re.compile(r"time 0 is (\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d{1,6})?)")
_DATE = re.compile(r"\d{4}-\d\d-\d\d(?:[T ]\d\d:\d\d(?::\d\d(?:\.\d{1,6})?)?)?Z?")
_YEARS = 253_402_300_800.0  # s, the end of the year 9999


def origin_note(seconds: float) -> str:
    """Return the note for an origin in seconds since 1970; outside the years 1 to 9999 it holds a number."""
    try:
        return f"time 0 is {(datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()}"
    except OverflowError:
        return f"time 0 is {seconds:.0f} s after 1970"


def is_origin(seconds: float) -> bool:
    """Whether seconds since 1970 can be an origin: after 1970 itself, which logs without a date have, and before the year 10000."""
    return 0 < seconds < _YEARS


def origin_of(workload: Workload) -> datetime | None:
    """Return time 0 as a date without a zone; None where no note gives it."""
    found = next((match for note in workload.notes if (match := _NOTE.search(note))), None)
    try:
        return datetime.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def date_of(workload: Workload, seconds: float) -> datetime | None:
    """Return the date of an instant of the workload."""
    origin = origin_of(workload)
    try:
        return None if origin is None else origin + timedelta(seconds=seconds)
    except OverflowError:
        return None


def instant(text: str, workload: Workload) -> float:
    """Parse a time (`36h`) or, where the workload has an origin, a date (`2017-10-01`, `2017-10-01T08:00`) to seconds from time 0."""
    text = text.strip()
    if not _DATE.fullmatch(text):
        return parse_seconds(text)
    origin = origin_of(workload)
    if origin is None:
        raise UsageError(f"{shorten(text)}: {workload.name} does not say when its time 0 was", hint="give a time from its origin, e.g. 36h")
    try:
        return (datetime.fromisoformat(text.removesuffix("Z")) - origin).total_seconds()
    except ValueError:
        raise UsageError(f"{shorten(text)} is not a date", hint="write 2017-10-01 or 2017-10-01T08:00:00") from None
