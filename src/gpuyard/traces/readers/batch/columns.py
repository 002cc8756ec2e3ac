"""Columns that several readers share: resources, the first filled value, missing nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.traces.readers.batch.fields import Resources
from gpuyard.traces.readers.batch.records import Coded
from gpuyard.traces.readers.batch.table import LogTable


@dataclass(frozen=True)
class ResourceColumns:
    """Resources that jobs asked for or got, row by row; nan where the log says nothing."""

    cpus: Array
    memory: Array  # GB
    nodes: Array
    gpus: Array
    gpu_type: Coded

    def over(self, other: ResourceColumns) -> ResourceColumns:
        """Return these values, or the other's where these are missing."""
        return ResourceColumns(
            first_positive(self.cpus, other.cpus), first_positive(self.memory, other.memory), first_positive(self.nodes, other.nodes),
            first_positive(self.gpus, other.gpus), first_label(self.gpu_type, other.gpu_type),
        )  # fmt: skip


def resource_columns(table: LogTable, name: str, parse: Callable[[str], Resources]) -> ResourceColumns:
    """Parse a column; `parse` is called once for each distinct text."""
    column = table.coded(name)
    found = []
    for code, text in enumerate(column.labels):
        try:
            found.append(parse(text))
        except ValueError as error:
            raise table.rows.error(int(np.argmax(column.codes == code)), f"{name} = {text[:60]!r} {error}") from None
    cpus, memory, nodes, gpus = (
        np.array([getattr(each, part) for each in found])[column.codes] for part in ("cpus", "memory", "nodes", "gpus")
    )
    return ResourceColumns(cpus, memory, nodes, gpus, Coded(tuple(each.gpu_type for each in found), column.codes).merged())


def binding_type(asked: ResourceColumns, ran_type: Coded) -> Coded:
    """Return the type that a job needs: the one it ran on, but none where it asked for untyped GPUs."""
    free = (asked.gpus > 0) & ~has_label(asked.gpu_type)
    codes = np.where(free, len(ran_type.labels), ran_type.codes).astype(np.int32)
    return Coded((*ran_type.labels, ""), codes).merged()


def first_positive(*columns: Array) -> Array:
    """Return the first value above 0 among several columns, row by row."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        found = np.where(column > 0, column, found)
    return found


def first_label(*columns: Coded) -> Coded:
    """Return the first label that is not empty among several columns, row by row."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        codes = np.where(has_label(column), column.codes, found.codes + len(column.labels)).astype(np.int32)
        found = Coded((*column.labels, *found.labels), codes)
    return found.merged()


def has_label(column: Coded) -> Array:
    """Return (rows,) bool: whether the label is not empty."""
    found: Array = np.array([bool(label) for label in column.labels])[column.codes]
    return found


def without_nodes(table: LogTable) -> Array:
    """Return (rows,) bool: the log names nodes, but none for this job."""
    missing = np.zeros(len(table), bool) if "nodelist" not in table else table.frame["nodelist"].is_null().to_numpy()
    return np.zeros(len(table), bool) if missing.all() else missing
