"""How long each job was not eligible, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuyard.engine.compiler.jit import inner
from gpuyard.model.result import WAITS_FOR

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import State

_COUNT = len(WAITS_FOR)


@inner
def note_reason(s: State, j: Int, reason: Int) -> None:
    """Note that from now on a job is not eligible for the reason of that number; 0: it is, or it runs."""
    control = s.control[0]
    if control.explaining == 1 and s.why[j] != reason:
        if s.why[j] > 0:
            s.why_total[j * _COUNT + s.why[j]] += control.now - s.why_since[j]
        s.why[j] = reason
        s.why_since[j] = control.now
