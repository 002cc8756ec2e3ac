"""Says things on stderr: notes, warnings, errors with their hints, and lines of progress."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable

from gpuyard.errors import HINT, SeveralErrors
from gpuyard.model.units import clean

PAUSE = 10.0  # s between lines of progress where stderr is not a terminal
_COLOURS = {"error": "1;31", "warning": "1;33", "hint": "36"}  # SGR codes: bold red, bold yellow, cyan


def say(text: str) -> None:
    """Print one line to stderr. What it begins with, such as `error:`, has a colour on a terminal."""
    line = clean(text).replace("\n", " ")
    kind, colon, rest = line.partition(":")
    if colon and kind in _COLOURS and _coloured():
        line = f"\x1b[{_COLOURS[kind]}m{kind}:\x1b[0m{rest}"
    sys.stderr.write(f"gpuyard: {line}\n")
    sys.stderr.flush()


def say_error(error: Exception | str) -> None:
    """Say what is wrong on one line, and what to do on the next; several errors one after another."""
    for each in error.errors if isinstance(error, SeveralErrors) else (error,):
        message, _, hint = str(each).partition(HINT)
        say(f"error: {message}")
        if hint:
            say(f"hint: {hint.replace(HINT, '; ')}")


def _coloured() -> bool:
    return sys.stderr.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


class Pace:
    """Lets something be shown at most once in so many seconds."""

    def __init__(self, pause: float = PAUSE, *, at_once: bool = False) -> None:
        self._pause = pause
        self._last = -pause if at_once else time.monotonic()

    def due(self) -> bool:
        """Return whether the pause is over; then the next one begins."""
        now = time.monotonic()
        if now - self._last < self._pause:
            return False
        self._last = now
        return True


def progress_lines(what: str) -> Callable[[int, int], None]:
    """Return a function of how much is done, of how much: it says so every ten seconds, with the time that is left."""
    from gpuyard.model.units import format_seconds

    began, pace = time.monotonic(), Pace()

    def show(done: int, total: int) -> None:
        if pace.due():
            passed = time.monotonic() - began
            left = f", {format_seconds(passed / done * (total - done))} left" if done else ""
            say(f"{what}: {done:,} of {total:,}{left}; Ctrl-C stops")

    return show
