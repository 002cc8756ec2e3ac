"""Says things on stderr: notes, warnings, errors with their hints, and lines of progress."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from gpuyard.errors import HINT, SeveralErrors
from gpuyard.model.units import clean

if TYPE_CHECKING:
    from pathlib import Path

PAUSE = 10.0  # s between lines of progress where stderr is not a terminal
AT_ONCE = 2.0  # s after which a terminal shows that something is under way
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

    def __init__(self, pause: float | None = None, *, at_once: bool = False) -> None:
        self._pause = PAUSE if pause is None else pause
        self._last = -self._pause if at_once else time.monotonic()

    def due(self) -> bool:
        """Return whether the pause is over; then the next one begins."""
        now = time.monotonic()
        if now - self._last < self._pause:
            return False
        self._last = now
        return True


@contextmanager
def every_pause(call: Callable[[], object], *, first: float | None = None) -> Iterator[None]:
    """Call a function every ten seconds while the block runs, from a thread: one piece of the work may take minutes."""
    over = threading.Event()

    def beat() -> None:
        pause = PAUSE if first is None else first
        while not over.wait(pause):
            call()
            pause = PAUSE

    thread = threading.Thread(target=beat, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


@contextmanager
def time_so_far(what: str) -> Iterator[None]:
    """Say how long a piece of work that cannot be counted takes: every ten seconds, on a terminal first after two."""
    from gpuyard.model.units import format_seconds

    began = time.monotonic()
    with every_pause(
        lambda: say(f"{what}: {format_seconds(round(time.monotonic() - began))} so far; Ctrl-C stops"),
        first=AT_ONCE if sys.stderr.isatty() else None,
    ):
        yield


def progress_lines(what: str) -> Callable[[int, int], None]:
    """Return a function of how much is done, of how much: it says so every ten seconds, with the time that is left.

    The first piece, with which the engine may have been compiled, is not taken for the others.
    """
    from gpuyard.model.units import format_seconds

    pace = Pace()
    first: tuple[float, int] | None = None

    def show(done: int, total: int) -> None:
        nonlocal first
        now = time.monotonic()
        if done and first is None:
            first = now, done
        if pace.due():
            since = (now - first[0], done - first[1]) if first else (0.0, 0)
            left = f", {format_seconds(since[0] / since[1] * (total - done))} left" if since[1] else ""
            say(f"{what}: {done:,} of {total:,}{left}; Ctrl-C stops")

    return show


def say_report(path: Path) -> None:
    """Say where a report is and how to open it."""
    say(f"report: {path}")
    say(f"open it in a browser: {path.resolve().as_uri()}")
