"""Convert text such as `2h`, `1-00:00:00`, `80GB` or `1k` to numbers, and numbers to short text.

Inside gpuyard a time is float seconds, memory is float GB (10⁹ bytes) and a count is an int; text occurs at the edges only.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal

from gpuyard.errors import UsageError

SECONDS = {"w": 604_800.0, "d": 86_400.0, "h": 3_600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6}
_SECOND_NAMES = {
    "weeks": "w", "week": "w", "days": "d", "day": "d", "hours": "h", "hour": "h", "hr": "h",
    "minutes": "m", "minute": "m", "min": "m", "seconds": "s", "second": "s", "sec": "s", "µs": "us", "μs": "us",
}  # fmt: skip
_BYTES = {
    "": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12, "p": 10**15,
    "ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40, "pi": 2**50,
}  # fmt: skip
_COUNTS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9}
MIB, GIB = 2**20 / 1e9, 2**30 / 1e9  # in GB
MAX_TIME = 1e12  # s, some 31,000 years; beyond it float64 seconds lose the millisecond
MAX_GIGABYTES = 1e9  # an exabyte; more is a typing error
MAX_COUNT = 2**53

_NUMBER = r"[0-9]+(?:\.[0-9]+)?|\.[0-9]+"
_PLAIN = re.compile(rf"(?:{_NUMBER})(?:e[+-]?[0-9]{{1,3}})?", re.I)
_PART = re.compile(rf"\s*({_NUMBER})\s*([a-zµμ]+)")
_CLOCK = re.compile(r"(?:([0-9]{1,9})-)?([0-9]{1,9})(?::([0-9]{1,2})(?::([0-9]{1,2}(?:\.[0-9]+)?))?)?")
_SIZE = re.compile(rf"({_NUMBER})\s*([kmgtp]i?)?(b)?", re.I)
_COUNT = re.compile(rf"({_NUMBER})\s*([kmgb]?)", re.I)
_TIME_HINT = "write 90, 90s, 2h, 1d12h, 1:30:00 or 1-00:00:00"
_SIZE_HINT = "write 80GB, 80GiB, 512MB or 2TB; a plain number is GB"
_COUNT_HINT = "write 256, 1k or 2M"


def parse_seconds(text: str) -> float:
    """Parse `90`, `30s`, `2h`, `1d12h`, `1:30:00`, `30:00` (minutes), `1-00:00:00` (days-hours) or `inf` as seconds.

    Units: w d h m s ms us, the larger first. At most 10¹² s.
    """
    cleaned = text.strip().lower()
    if cleaned == "inf":
        return math.inf
    if _PLAIN.fullmatch(cleaned):
        seconds = float(cleaned)
    elif ":" in cleaned or "-" in cleaned:
        seconds = _clock(cleaned, text)
    else:
        seconds = _compound(cleaned, text)
    if seconds > MAX_TIME:
        raise UsageError(f"{shorten(text)} is more than {MAX_TIME:g} s")
    return seconds


def _clock(cleaned: str, text: str) -> float:
    """Parse `days-hours[:minutes[:seconds]]`, `hours:minutes:seconds` or `minutes:seconds`; after a colon numbers are below 60."""
    match = _CLOCK.fullmatch(cleaned)
    if match is None:
        raise UsageError(f"{shorten(text)} is not a time", hint=_TIME_HINT)
    days, first, second, third = match.groups()
    if any(float(part) >= 60 for part in (second, third) if part):
        raise UsageError(f"{shorten(text)} is not a time: after a colon numbers must be below 60", hint=_TIME_HINT)
    minutes_only = days is None and third is None
    if minutes_only:
        return int(first) * 60.0 + float(second or 0)
    return int(days or 0) * 86_400.0 + int(first) * 3_600.0 + int(second or 0) * 60.0 + float(third or 0)


def _compound(cleaned: str, text: str) -> float:
    total, at, last = 0.0, 0, math.inf
    while at < len(cleaned):
        match = _PART.match(cleaned, at)
        unit = SECONDS.get(_SECOND_NAMES.get(match[2], match[2])) if match else None
        if match is None or unit is None or unit >= last:
            raise UsageError(f"{shorten(text)} is not a time", hint=_TIME_HINT)
        total += float(match[1]) * unit
        at, last = match.end(), unit
    if at == 0:
        raise UsageError(f"{shorten(text)} is not a time", hint=_TIME_HINT)
    return total


def parse_gigabytes(text: str) -> float:
    """Parse `80GB`, `80GiB`, `512MB`, `2TB`, `80G` or a plain number of GB as GB (10⁹ bytes)."""
    cleaned = text.strip()
    if _PLAIN.fullmatch(cleaned):
        gigabytes = float(cleaned)
    else:
        match = _SIZE.fullmatch(cleaned)
        if match is None:
            raise UsageError(f"{shorten(text)} is not an amount of memory", hint=_SIZE_HINT)
        gigabytes = float(Decimal(match[1]) * _BYTES[(match[2] or "").lower()] / 10**9)
    if gigabytes > MAX_GIGABYTES:
        raise UsageError(f"{shorten(text)} is more than {MAX_GIGABYTES:g} GB", hint=_SIZE_HINT)
    return gigabytes


def parse_count(text: str) -> int:
    """Parse `256`, `1_000`, `1k`, `1.5k`, `2M` or `1G` as a whole number."""
    match = _COUNT.fullmatch(re.sub(r"(?<=[0-9])_(?=[0-9])", "", text.strip()))
    if match is None:
        raise UsageError(f"{shorten(text)} is not a count", hint=_COUNT_HINT)
    value = Decimal(match[1]) * _COUNTS[match[2].lower()]
    if value > MAX_COUNT:
        raise UsageError(f"{shorten(text)} is more than {MAX_COUNT:,}", hint=_COUNT_HINT)
    if value != int(value):
        raise UsageError(f"{shorten(text)} is not a whole number", hint=_COUNT_HINT)
    return int(value)


@dataclass(frozen=True)
class Range:
    """The range from `low` to `high`, both included; written `LOW:HIGH`, or as one number if they are equal."""

    low: float
    high: float

    def __str__(self) -> str:
        ends = [str(int(end)) if end == int(end) else repr(end) for end in dict.fromkeys((self.low, self.high))]
        return ":".join(ends)


def parse_range(text: str, parse: Callable[[str], float]) -> Range:
    """Parse `1:8`, or `4` for 4 to 4; `parse` reads each end, which cannot be a clock time such as `1:30:00`."""
    ends = text.split(":")
    if len(ends) > 2 or not all(end.strip() for end in ends):
        raise UsageError(f"{shorten(text)} is not a range", hint="write LOW:HIGH, e.g. 1:8")
    low, high = parse(ends[0]), parse(ends[-1])
    if not low <= high < math.inf:
        raise UsageError(f"{shorten(text)} is not a range: it must go from the lower to the higher end, both finite")
    return Range(low, high)


def parse_assignments(text: str | Sequence[str], what: str) -> dict[str, str]:
    """Split `a=1,b=two`, or texts such as `a=1`, into names and values; `what` begins the message about a wrong one."""
    found: dict[str, str] = {}
    for part in filter(None, (p.strip() for p in text.split(","))) if isinstance(text, str) else text:
        name, equals, value = (p.strip() for p in part.partition("="))
        if not equals or not name or not value:
            raise UsageError(f"{what}: {part!r} is not NAME=VALUE")
        if name in found:
            raise UsageError(f"{what}: {name!r} is given twice")
        found[name] = value
    return found


def clean(text: str) -> str:
    """Replace control characters: names come from outside files and must not control the terminal. Line feeds stay."""
    return "".join(c if c.isprintable() or c == "\n" else "�" for c in text)


_FORMULA = re.compile(r"'*[=+\-@]")  # what a spreadsheet would run begins so
ESCAPED = r"^'('*[=+\-@])"  # what `csv_label` has written so that it does not


def csv_label(text: str) -> str:
    """Write a name into a cell: without control characters, and with an apostrophe before `=`, `+`, `-` or `@`, unless it is a number.

    Our reader takes the apostrophe off again; a spreadsheet shows the text instead of running it.
    """
    shown = clean(text)
    return f"'{shown}" if _FORMULA.match(shown) and not _is_number(shown) else shown


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def shorten(text: str, length: int = 60) -> str:
    """Quote a text for an error message; a long one is cut."""
    return repr(text if len(text) <= length else text[: length - 1] + "…")


_PAIRS = ((86_400, 3_600, "d", "h"), (3_600, 60, "h", "m"), (60, 1, "m", "s"))


def format_seconds(seconds: float) -> str:
    """Write a time in at most two units: `1h 24m`, `2d 3h`, `45s`, `4.2s`, `320ms`, `12us`, `nan`, `inf`."""
    if not math.isfinite(seconds):
        return str(float(seconds))
    if seconds < 0:
        return "-" + format_seconds(-seconds)
    for large, small, large_name, small_name in _PAIRS:
        steps = round(seconds / small)
        if steps * small >= large:
            whole, rest = divmod(steps, large // small)
            return f"{whole}{large_name} {rest}{small_name}" if rest else f"{whole}{large_name}"
    for unit, name in ((1.0, "s"), (1e-3, "ms"), (1e-6, "us")):
        if seconds >= unit * 0.9995:  # what rounds to three digits of the larger unit belongs to it
            return f"{seconds / unit:.3g}{name}"
    return "0s" if seconds < 5e-10 else f"{seconds / 1e-6:.3f}us"


def format_bytes(count: float) -> str:
    """Write a number of bytes with three digits and a decimal unit: `512 MB`, `1.54 TB`."""
    if not math.isfinite(count):
        return str(float(count))
    sizes = {"": 1.0, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
    prefix = [name for name, size in sizes.items() if size == 1 or abs(count) >= size * 0.9995][-1]
    scaled = count / sizes[prefix]
    return f"{scaled:.3g} {prefix}B" if abs(scaled) < 999.5 else f"{scaled:.0f} {prefix}B"


def format_gigabytes(gigabytes: float) -> str:
    """Write an amount in GB as `format_bytes` does."""
    return format_bytes(gigabytes * 1e9)
