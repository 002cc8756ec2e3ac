"""What is seen while a training runs: a live panel on a terminal, else a line every ten seconds; both on stderr."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from gpuyard.cli.common.output import clean, say, short

if TYPE_CHECKING:
    from gpuyard.learn.run.training import Trainer

PAUSE = 10.0  # s between lines
REFRESH = 0.25  # s between pictures


@contextmanager
def view() -> Iterator[Callable[[Trainer], None]]:
    """Give the trainer to what it yields after each update."""
    if not sys.stderr.isatty():
        yield _Lines().show
        return
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as live:
        yield _Panel(live).show


class _Lines:
    def __init__(self) -> None:
        self._last = time.monotonic()

    def show(self, trainer: Trainer) -> None:
        if time.monotonic() - self._last >= PAUSE:
            self._last = time.monotonic()
            say(", ".join(f"{name} {value}" for name, value in facts(trainer, nearest=True)))


class _Panel:
    def __init__(self, live: Any) -> None:
        self._live = live
        self._last = 0.0

    def show(self, trainer: Trainer) -> None:
        if time.monotonic() - self._last >= REFRESH:
            self._last = time.monotonic()
            self._live.update(_grid(trainer), refresh=True)


def _grid(trainer: Trainer) -> Any:
    from rich.table import Table
    from rich.text import Text

    grid = Table.grid(padding=(0, 2))
    for name, value in facts(trainer):
        grid.add_row(Text(clean(name), style="dim"), Text(clean(value)))
    return grid


def facts(trainer: Trainer, *, nearest: bool = False) -> list[tuple[str, str]]:
    """Name and text of what is to be seen; beside all baselines, or only the nearest: the one that is hardest to beat."""
    at, plan = trainer.progress, trainer.plan
    found = [
        ("update", f"{at.update:,}" + (f" of {limit:,}" if (limit := plan.training.update_limit) else "")),
        ("steps", f"{at.steps:,} of {plan.training.steps:,}"),
        ("steps/s", short(at.steps_per_second)),
        ("return", short(at.metrics.get("return", math.nan))),
        (trainer.validator.objective, _scores(trainer, nearest)),
        ("time", _times(trainer)),
    ]
    return [*found, ("left", _left(trainer))]


def _scores(trainer: Trainer, nearest: bool) -> str:
    at, by = trainer.progress, trainer.validator
    shown = {name: value for name, value in by.baselines.items() if value}
    if nearest and shown:
        top = (min if by.better == "lower" else max)(shown, key=lambda name: shown[name])
        shown = {top: shown[top]}
    against = "; ".join(f"{100 * (at.best - value) / abs(value):+z.1f} % to {name}" for name, value in shown.items())
    return f"{short(at.curve[-1]['score'])} (best {short(at.best)} at update {at.best_update:,}" + (f": {against})" if against else ")")


def _times(trainer: Trainer) -> str:
    whole = trainer.progress.elapsed or 1.0
    return " ".join(f"{name} {100 * seconds / whole:.0f} %" for name, seconds in trainer.progress.seconds.items())


def _left(trainer: Trainer) -> str:
    from gpuyard.model.units import format_seconds

    at, training = trainer.progress, trainer.plan.training
    left = max(training.steps - at.steps, 0)
    if training.update_limit and at.update:
        left = min(left, (training.update_limit - at.update) * at.steps // at.update)
    busy = sum(at.seconds[name] for name in ("env", "act", "learn"))
    besides = at.elapsed / busy if busy > 0 else 1.0  # validation and saving
    return format_seconds(left / at.steps_per_second * besides) if at.steps_per_second > 0 else "–"
