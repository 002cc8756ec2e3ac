"""Linear models built in bulk and solved by HiGHS. The solver is loaded when it is first used: 0.15 s."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gpuyard.arrays import Array
from gpuyard.extras import needing_extras

Numbers = npt.ArrayLike
# One thread and one seed: the same model gives the same answer. The rest is for models that take milliseconds and come with a good start:
# without presolve, restarts and some heuristics, and with few cuts kept, a joint placement takes about half as long.
OPTIONS: dict[str, bool | int | float | str] = {
    "output_flag": False, "threads": 1, "random_seed": 1, "mip_feasibility_tolerance": 1e-7,
    "presolve": "off", "mip_allow_restart": False, "mip_heuristic_run_feasibility_jump": False,
    "mip_heuristic_run_root_reduced_cost": False, "mip_pool_soft_limit": 50, "mip_pool_age_limit": 5, "mip_lp_age_limit": 3,
}  # fmt: skip


class LinearModel:
    """Columns, rows and entries, gathered as arrays; every column is at least 0. The objective is maximised."""

    def __init__(self) -> None:
        self.column_count = 0
        self.row_count = 0
        self._cost: list[Array] = []
        self._more_cost: list[tuple[Array, Array]] = []
        self._upper: list[Array] = []
        self._integer: list[Array] = []
        self._row_lower: list[Array] = []
        self._row_upper: list[Array] = []
        self._entries: list[tuple[Array, Array, Array]] = []

    def columns(self, count: int, cost: Numbers = 0.0, upper: Numbers = 1.0, *, integer: bool = True) -> Array:
        """New columns; returns their numbers."""
        self._cost.append(_filled(count, cost))
        self._upper.append(_filled(count, upper))
        self._integer.append(_filled(count, integer))
        self.column_count += count
        return np.arange(self.column_count - count, self.column_count)

    def rows(self, count: int, lower: Numbers, upper: Numbers) -> Array:
        """New rows with their bounds; returns their numbers."""
        self._row_lower.append(_filled(count, lower))
        self._row_upper.append(_filled(count, upper))
        self.row_count += count
        return np.arange(self.row_count - count, self.row_count)

    def entries(self, rows: Numbers, columns: Numbers, values: Numbers) -> None:
        """Coefficients; each of the three is one for all, or one for each."""
        sizes = [np.size(each) for each in (rows, columns, values)]
        count = max(sizes) if min(sizes) > 0 else 0
        self._entries.append((_filled(count, rows), _filled(count, columns), _filled(count, values)))

    def add_cost(self, columns: Array, values: Numbers) -> None:
        """Add to the cost of columns; a column may come more than once."""
        self._more_cost.append((columns, _filled(len(columns), values)))

    def upper(self, columns: Array) -> Array:
        """Upper bounds of columns."""
        return _joined(self._upper)[columns]

    @property
    def cost(self) -> Array:
        """(columns,) of the objective."""
        cost = _joined(self._cost)
        for columns, values in self._more_cost:
            np.add.at(cost, columns, values)
        return cost

    def arrays(self) -> tuple[Any, ...]:
        """Cost, column bounds, row bounds, matrix by rows (starts, columns, values), integrality."""
        row, column, value = (_joined([entry[k] for entry in self._entries]) for k in range(3))
        order = np.lexsort((column, row))
        starts = np.searchsorted(row[order], np.arange(self.row_count)).astype(np.int32)
        return (
            self.cost, np.zeros(self.column_count), _joined(self._upper), _joined(self._row_lower), _joined(self._row_upper), starts,
            column[order].astype(np.int32), value[order], _joined(self._integer).astype(np.int32),
        )  # fmt: skip


def _filled(count: int, values: Numbers) -> Array:
    """(count,) floats; several times as fast as to broadcast."""
    made = np.empty(count)
    if count:
        made[:] = values
    return made


def _joined(pieces: list[Array]) -> Array:
    return np.concatenate([np.zeros(0), *pieces])


@dataclass(frozen=True, eq=False)
class Answer:
    """The solver's answer: a value per column (None: nothing), whether it is optimal to the gap asked for, and the gap left."""

    values: Array | None
    optimal: bool
    gap: float  # of the objective; inf: nothing is known


class Solver:
    """One HiGHS object, used again and again: to make one takes longer than a small model."""

    def __init__(self) -> None:
        self._highs: Any = None

    def relaxed(self, model: LinearModel, *, limit: float = np.inf) -> Answer:
        """The optimum without integrality: its objective bounds that of the model from above."""
        return self._run(model, None, limit, 0.0, relax=True)

    def maximise(self, model: LinearModel, *, start: Array | None = None, limit: float = np.inf, gap: float = 0.0) -> Answer:
        """Solve within `limit` seconds to the relative gap. `start` is a feasible value per column."""
        return self._run(model, start, limit, gap, relax=False)

    def _run(self, model: LinearModel, start: Array | None, limit: float, gap: float, *, relax: bool) -> Answer:
        highs = self._ready()
        import highspy

        cost, *rest, integer = model.arrays()
        if relax:
            integer = np.zeros_like(integer)
        highs.clearSolver()
        highs.passModel(
            model.column_count, model.row_count, len(rest[-1]), int(highspy.MatrixFormat.kRowwise), int(highspy.ObjSense.kMaximize),
            0.0, cost, *rest, integer,
        )  # fmt: skip
        highs.setOptionValue("mip_rel_gap", gap)
        used = highs.getRunTime() if relax else 0.0  # for linear programs the limit counts from when the object was made
        highs.setOptionValue("time_limit", used + limit if limit < np.inf else highspy.kHighsInf)
        if start is not None:
            solution = highspy.HighsSolution()
            solution.col_value = start.tolist()
            highs.setSolution(solution)
        highs.run()
        return self._answer(highspy, is_mip=bool(integer.any()))

    def _answer(self, highspy: Any, *, is_mip: bool) -> Answer:
        status, info = self._highs.getModelStatus(), self._highs.getInfo()
        optimal = status == highspy.HighsModelStatus.kOptimal
        if info.primal_solution_status != int(highspy.SolutionStatus.kSolutionStatusFeasible):
            return Answer(None, False, np.inf)
        gap = float(info.mip_gap) if is_mip else 0.0
        return Answer(np.array(self._highs.getSolution().col_value), optimal, gap)

    def _ready(self) -> Any:
        if self._highs is None:
            with needing_extras():
                import highspy
            self._highs = highspy.Highs()  # type: ignore[no-untyped-call]
            for name, value in OPTIONS.items():
                self._highs.setOptionValue(name, value)
        return self._highs
