"""When time 0 of a workload was, where the trace says so: kept as a note, `time 0 is 2017-08-14T23:27:00`."""

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
    """The note for an origin in seconds since 1970; one that is no date of the years 1 to 9999 is told as a number."""
    try:
        return f"time 0 is {(datetime(1970, 1, 1) + timedelta(seconds=seconds)).isoformat()}"
    except OverflowError:
        return f"time 0 is {seconds:.0f} s after 1970"


def is_origin(seconds: float) -> bool:
    """Whether a number of seconds since 1970 can be an origin: after 1970 itself, which logs without a date give, and before 10000."""
    return 0 < seconds < _YEARS


def origin_of(workload: Workload) -> datetime | None:
    """Time 0 as a date without a zone; None where no note says it."""
    found = next((match for note in workload.notes if (match := _NOTE.search(note))), None)
    try:
        return datetime.fromisoformat(found[1]) if found else None
    except ValueError:
        return None


def date_of(workload: Workload, seconds: float) -> datetime | None:
    """The date of an instant of the workload."""
    origin = origin_of(workload)
    try:
        return None if origin is None else origin + timedelta(seconds=seconds)
    except OverflowError:
        return None


def instant(text: str, workload: Workload) -> float:
    """Seconds from time 0 in a time (`36h`) or a date (`2017-10-01`, `2017-10-01T08:00`), where the workload has an origin."""
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
