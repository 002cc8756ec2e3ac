"""Checks that all readers share; a message names the file and the line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.units import MAX_TIME
from gpuyard.traces.opening import Limits

MAX_ID = 2.0**53  # whole numbers beyond it are not exact in float64
_LIMITS = {"submit": MAX_TIME, "runtime": MAX_TIME, "transfer": MAX_TIME, "gpus": float(MAX_GPUS), "cpus": 1e9, "memory": 1e12}
_NEGATIVE_IS_WRONG = ("submit", "runtime", "gpus", "walltime", "estimate", "deadline", "cpus", "memory", "transfer",
                      "checkpoint", "checkpoint_cost", "drain", "restart_cost")  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """The file and the line from which each row came."""

    path: Path
    lines: Array  # (rows,) from 1

    def take(self, rows: Array) -> Rows:
        return Rows(self.path, self.lines[rows])

    def error(self, row: int, message: str, hint: str = "") -> DataError:
        return DataError(f"{self.path}:{int(self.lines[row])}: {message}", hint=hint)

    def refuse(self, bad: Array, name: str, values: Array, why: str) -> None:
        """Raise an error for the first row where `bad` holds."""
        if bad.any():
            row = int(np.argmax(bad))
            raise self.error(row, f"{name} = {values[row]:.15g} {why}")


def check_count(path: Path, count: int, limits: Limits, what: str = "jobs") -> None:
    """Refuse a file with more rows than the limit."""
    if count > limits.rows:
        raise DataError(f"{path}: more than {limits.rows:,} {what}", hint="raise the row limit if the file is meant to be that large")


def usable_rows(count: int, reasons: Mapping[str, Array]) -> tuple[Array, dict[str, int]]:
    """Return the rows to keep, and how many are dropped for each reason; a row counts for the first reason that holds."""
    kept = np.ones(count, bool)
    dropped: dict[str, int] = {}
    for reason, bad in reasons.items():
        lost = int((kept & bad).sum())
        if lost:
            dropped[reason] = lost
        kept &= ~bad
    return np.flatnonzero(kept), dropped


def no_usable_job(path: Path, dropped: Mapping[str, int], joint: str = " with") -> DataError:
    """Return the error for a file whose rows were all dropped; it counts the reasons."""
    counts = ", ".join(f"{number:,}{joint} {reason}" for reason, number in dropped.items())
    return DataError(f"{path}: no usable job" + (f" ({counts})" if counts else ""))


def check_values(rows: Rows, columns: Mapping[str, Array]) -> None:
    """Refuse negative and absurd values, also of `runtime`. NaN means "not given" and passes."""
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
