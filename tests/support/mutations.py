"""Damages real lines to test readers of outside files, which must return a result or raise one clear error."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

_HUGE = (
    "9" * 30, "9" * 400, "-1", "0", "1e308", "1e400", "1e13", "NaN", "inf", "-inf", "-0", "0.5", "4294967294", "18446744073709551615",
    "99999999999", "1e-400", "0x10", "1_000", "٣", "1" + "0" * 15, "9999-12-31 23:59:59", "0001-01-01 00:00:00", "2017-13-01 00:00:00",
    "2017-01-01T00:00:00+99:99",
)  # fmt: skip
_ODD = (
    "☃", "\u0000", "\ufeff", "é", "\u202e", "\x1f", "\x7f", '"', '""', "'", "\\", "[", "]", "{", "}", "(", "#", "+", "8+", "%s", "None",
    "null", "Unknown", "Pending", "Terminated", "n[0-999999999]", "\r", "\n",
)  # fmt: skip
_DELIMITERS = ("|", ",", ";", "\t", " ", "|#", ":", "=")


def mutated(lines: Sequence[str], rng: random.Random) -> str:
    """Damage each line in one to three ways and join them to a text. The same `rng` state gives the same text."""
    return "\n".join(_damaged(line, rng) for line in lines) + ("\n" if rng.random() < 0.8 else "")


def _damaged(line: str, rng: random.Random) -> str:
    for _ in range(rng.randint(1, 3)):
        line = rng.choice(_WAYS)(line, rng)
    return line


def _place(line: str, rng: random.Random) -> tuple[int, int]:
    begin = rng.randint(0, len(line))
    return begin, min(len(line), begin + rng.choice((1, 1, 1, 2, 5, 40)))


def _delete(line: str, rng: random.Random) -> str:
    begin, end = _place(line, rng)
    return line[:begin] + line[end:]


def _repeat(line: str, rng: random.Random) -> str:
    begin, end = _place(line, rng)
    return line[:end] + line[begin:end] * rng.choice((1, 1, 2, 50)) + line[end:]


def _insert(line: str, rng: random.Random) -> str:
    begin, _ = _place(line, rng)
    return line[:begin] + rng.choice(_ODD) + line[begin:]


def _replace(line: str, rng: random.Random) -> str:
    begin, end = _place(line, rng)
    return line[:begin] + "".join(chr(rng.randint(1, 126)) for _ in range(begin, end)) + line[end:]


def _field(line: str, rng: random.Random) -> str:
    """Put another value into one field, whatever the delimiter."""
    mark = rng.choice([each for each in _DELIMITERS if each in line] or [" "])
    fields = line.split(mark)
    k = rng.randrange(len(fields))
    ways = (lambda: rng.choice(_HUGE), lambda: "", lambda: rng.choice(_ODD), lambda: rng.choice(fields), lambda: fields[k] * 2)
    fields[k] = rng.choice(ways)()
    return mark.join(fields)


def _swap_delimiter(line: str, rng: random.Random) -> str:
    found = [each for each in _DELIMITERS if each in line]
    return line.replace(rng.choice(found), rng.choice(_DELIMITERS), rng.choice((1, -1))) if found else line


def _cut(line: str, rng: random.Random) -> str:
    return line[: rng.randint(0, len(line))]


def _digit(line: str, rng: random.Random) -> str:
    """Put in another digit, or many; most such lines can still be read."""
    places = [k for k, letter in enumerate(line) if letter.isdigit()]
    if not places:
        return line
    k = rng.choice(places)
    return line[:k] + rng.choice((str(rng.randint(0, 9)), "9" * rng.randint(2, 25))) + line[k + 1 :]


_WAYS: tuple[Callable[[str, random.Random], str], ...] = (
    _delete, _repeat, _insert, _replace, _field, _field, _swap_delimiter, _cut, _digit, _digit,
)  # fmt: skip
