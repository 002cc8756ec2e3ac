"""Orders to the kernels: gives them more space when they ask for it, and turns their failures into errors."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.entry import run_step
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.estimating import EstimatesOutside
from gpuyard.engine.kernels.events import BAD_SWITCH, ESTIMATE, GROW_LOG, GROW_PLAN, PAUSED
from gpuyard.engine.kernels.place import BAD_SCORE
from gpuyard.engine.kernels.runs import BAD_KEY, MOST_STOPS, STARVED
from gpuyard.engine.memory import FIELD, header_of
from gpuyard.errors import GpuyardError, PolicyError, SimulationError

MAX_PLAN = 1 << 26  # cells of a conservative plan: 2.1 GB
_FAILURES = {
    BAD_KEY: "the ordering or preemption rule raised an error or returned NaN",
    BAD_SCORE: "the placement raised an error or returned NaN",
    BAD_SWITCH: "the switch rule raised an error or named a scheduler that is not there",
}


class Driver:
    """A state and the engine that works on it. `ids` are the jobs' numbers, for messages; `estimates` are for a predictor in Python."""

    def __init__(
        self, state: st.State, label: str, ids: Array, estimates: EstimatesOutside | None = None, header: Array | None = None
    ) -> None:
        self.label = label
        self.ids = ids
        self.estimates = estimates
        self.adopt(state, header)

    def adopt(self, state: st.State, header: Array | None = None) -> None:
        """Work on other arrays from now on; `header` is theirs, where it is known."""
        self.state = state
        self.header = header_of(state) if header is None else header
        self.handle: Any = state if INTERPRETED else int(self.header.ctypes.data)  # what kernels take

    def put(self, name: str, array: Array) -> None:
        """Show the kernels this array in place of the one of that name."""
        self.state = self.state.replace(**{name: array})
        at = 2 * FIELD[name]
        self.header[at : at + 2] = array.ctypes.data, len(array)
        self.handle = self.state if INTERPRETED else int(self.header.ctypes.data)

    @property
    def now(self) -> float:
        return float(self.state.control["now"][0])

    def order(self, order: int, j: int = 0) -> int:
        """Carry out one order; returns the kernel's answer, which is not negative."""
        while True:
            status = run_step(self.handle, order, j)
            if status < 0:
                raise self.failure(status)
            if status == GROW_LOG:
                self.make_log_space()
            elif status == GROW_PLAN:
                self._grow_plan()
            elif status == ESTIMATE and self.estimates is not None:
                self.estimates.make(self.state)
            elif status != PAUSED:
                return status

    def make_log_space(self) -> None:
        """Room in the log for the end of everything that runs."""
        control = self.state.control[0]
        if len(self.state.log) - control["log"] <= control["parts_used"]:
            self._grow(log=2 * len(self.state.log) + int(control["parts_used"]))

    def _grow(self, **lengths: int) -> None:
        self.header = self.header.copy()  # the memory of the state knows the arrays that it gave by the old one
        for name, length in lengths.items():
            old = getattr(self.state, name)
            new = np.zeros(length, old.dtype)
            new[: len(old)] = old
            self.put(name, new.view(type(old)))

    def _grow_plan(self) -> None:
        s = self.state
        steps, cells = max(2 * int(s.control["steps"][0]), len(s.plan_time)), max(2 * int(s.control["cells"][0]), len(s.plan_cells))
        if cells > MAX_PLAN:
            what = f"{self.label}: the conservative plan at {self.now:g} s needs {cells:,} cells"
            raise SimulationError(what, hint="limit it, e.g. conservative:depth=100")
        self._grow(plan_time=steps, plan_used=steps, plan_free=steps, plan_cells=cells)

    def failure(self, status: int) -> GpuyardError:
        j = int(self.state.control["error_job"][0])
        if status == STARVED:
            what = (
                f"{self.label}: job {int(self.ids[j])} was stopped {MOST_STOPS:,} times by {self.now:g} s, the last time with no work kept"
            )
            return SimulationError(what, hint="checkpoint more often, or preempt by a rule that does not go round in circles")
        job = f" for job {int(self.ids[j])}" if j >= 0 else ""
        return PolicyError(f"{self.label}: {_FAILURES[status]}{job} at {self.now:g} s", hint="gpuyard check FILE tells more")
