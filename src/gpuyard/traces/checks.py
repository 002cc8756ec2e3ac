"""What every reader refuses, with the file and the line in the message."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.jobs import MAX_GPUS, MAX_TIME

MAX_ID = 2.0**53  # whole numbers beyond it are not exact in float64
_LIMITS = {"submit": MAX_TIME, "runtime": MAX_TIME, "transfer": MAX_TIME, "gpus": float(MAX_GPUS), "cpus": 1e9, "memory": 1e12}
_NEGATIVE_IS_WRONG = ("submit", "runtime", "gpus", "walltime", "estimate", "deadline", "cpus", "memory", "transfer")


@dataclass(frozen=True)
class Rows:
    """Which line of which file each row came from."""

    path: Path
    lines: Array  # (rows,) from 1

    def take(self, rows: Array) -> Rows:
        return Rows(self.path, self.lines[rows])

    def error(self, row: int, message: str, hint: str = "") -> DataError:
        return DataError(f"{self.path}:{int(self.lines[row])}: {message}", hint=hint)

    def refuse(self, bad: Array, name: str, values: Array, why: str) -> None:
        """Raise for the first row where `bad` holds."""
        if bad.any():
            row = int(np.argmax(bad))
            raise self.error(row, f"{name} = {values[row]:.15g} {why}")


def check_values(rows: Rows, columns: Mapping[str, Array]) -> None:
    """Refuse negative and absurd values; `runtime` is one of the columns here. NaN passes: it means "not given"."""
    for name in _NEGATIVE_IS_WRONG:
        if name in columns:
            rows.refuse(columns[name] < 0, name, columns[name], "is negative")
    for name, limit in _LIMITS.items():
        if name in columns:
            rows.refuse(columns[name] > limit, name, columns[name], f"is more than {limit:,.0f}")
    if "gpus" in columns:
        gpus = columns["gpus"]
        rows.refuse((gpus > 1) & (gpus != np.floor(gpus)), "gpus", gpus, "is neither a whole number nor a share below 1")
    if "chunk" in columns:
        chunk, gpus = columns["chunk"], columns.get("gpus", np.ones(len(rows.lines)))
        rows.refuse((chunk < 1) | (chunk > MAX_GPUS) | (chunk != np.floor(chunk)), "chunk", chunk, "is not a number of GPUs")
        rows.refuse((gpus >= 1) & (np.mod(gpus, chunk) != 0), "chunk", chunk, "does not divide gpus")
    if "priority" in columns:
        rows.refuse(np.isinf(columns["priority"]), "priority", columns["priority"], "is infinite")


def check_ids(rows: Rows, ids: Array) -> None:
    """Refuse ids that are not whole numbers and ids that occur twice."""
    rows.refuse((np.abs(ids) > MAX_ID) | (ids != np.floor(ids)), "job id", ids, "is not a whole number")
    if len(ids) == 0 or (ids[1:] > ids[:-1]).all():
        return
    order = np.argsort(ids, kind="stable")
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1]) + 1
    if len(again):
        row = int(order[again].min())
        first = int(np.argmax(ids == ids[row]))
        raise rows.error(row, f"job id {ids[row]:.15g} occurs twice, first in line {int(rows.lines[first])}")


def estimate_notes(known: Array) -> tuple[str, ...]:
    """What to say of jobs whose requested time is not known: their estimates are the run times."""
    missing = int((~known).sum())
    if missing == 0:
        return ()
    if missing == len(known):
        return ("no requested times: estimates are the run times",)
    return (f"{missing:,} of {len(known):,} jobs have no requested time: their estimates are the run times",)
