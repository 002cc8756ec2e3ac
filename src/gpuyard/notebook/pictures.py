"""Figures of a result, by matplotlib; they show themselves in a notebook without a backend."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.model.result import Result
from gpuyard.report.gantt import draw_queue, draw_result, span_of


def gantt(result: Result, start: float | None = None, end: float | None = None) -> Any:
    """Draw the Gantt chart with queue and use below it."""
    if not len(result.segments):
        raise DataError("this result does not say which job held which GPUs", hint="simulate it again with segments=True")
    low, high = span_of(result)
    window = None
    if start is not None or end is not None:
        window = (low if start is None else start, high if end is None else end)
        if not window[0] < window[1]:
            raise UsageError(f"gantt: the window from {window[0]:g} to {window[1]:g} s is empty")
    with _own_style():
        return draw_result(result, window)


def queue(result: Result) -> Any:
    """Draw queue and use alone."""
    with _own_style():
        return draw_queue(result)


def _own_style() -> AbstractContextManager[None]:
    """Leave the settings of the caller's own figures as they are."""
    from matplotlib import rc_context

    return rc_context()
