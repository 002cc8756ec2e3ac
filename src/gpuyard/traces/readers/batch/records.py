"""Records of a batch system by column, before it is decided which of them are jobs to simulate."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.traces.checks import Rows
from gpuyard.traces.opening import Limits, blocks

PENDING, RUNNING, ENDED = 0, 1, 2
_PENDING_STATES = {"PENDING", "PD", "REQUEUE_FED", "REQUEUE_HOLD", "SPECIAL_EXIT", "RESV_DEL_HOLD"}  # REQUEUED is a run that is over
_PENDING_STATES |= {"PEND", "PSUSP", "WAIT", "FWD_PEND", "PROV"}  # LSF
_RUNNING_STATES = {"RUNNING", "R", "CONFIGURING", "CF", "SUSPENDED", "S", "COMPLETING", "CG"}
_RUNNING_STATES |= {"RESIZING", "STOPPED", "STAGE_OUT", "SIGNALING"}
_RUNNING_STATES |= {"RUN", "USUSP", "SSUSP", "UNKWN", "UNKNOWN"}  # LSF


def lines_of(path: Path, limits: Limits) -> Iterator[tuple[int, str]]:
    """Yield the number and the text of every line that is not blank."""
    for block in blocks(path, limits):
        for number, line in enumerate(block.text.decode("utf-8").split("\n"), block.first_line):
            if line.strip():
                yield number, line


def phase(state: str) -> int:
    """Return PENDING, RUNNING or ENDED for a state such as `CANCELLED by 123`; an unknown state counts as ended."""
    word = state.split()[0].upper() if state.split() else ""
    return PENDING if word in _PENDING_STATES else RUNNING if word in _RUNNING_STATES else ENDED


def first_positive(*columns: Array) -> Array:
    """Return the first value above 0 among several columns, row by row."""
    found = columns[-1]
    for column in reversed(columns[:-1]):
        found = np.where(column > 0, column, found)
    return found


@dataclass(frozen=True)
class Coded:
    """A column of texts: the distinct labels, and a code for each row."""

    labels: tuple[str, ...]
    codes: Array  # (rows,) i4

    @classmethod
    def of(cls, texts: Sequence[str]) -> Coded:
        number: dict[str, int] = {}
        codes = np.fromiter((number.setdefault(text, len(number)) for text in texts), np.int32, len(texts))
        return cls(tuple(number) or ("",), codes).merged()

    @classmethod
    def constant(cls, rows: int, label: str = "") -> Coded:
        return cls((label,), np.zeros(rows, np.int32))

    def merged(self) -> Coded:
        """Return the column with each label once, sorted."""
        distinct = sorted(set(self.labels))
        place = {label: k for k, label in enumerate(distinct)}
        return Coded(tuple(distinct), np.array([place[label] for label in self.labels], np.int32)[self.codes])

    def take(self, rows: Array) -> Coded:
        """Return some rows, with only the labels that occur in them."""
        used, codes = np.unique(self.codes[rows], return_inverse=True)
        return Coded(tuple(self.labels[k] for k in used) or ("",), codes.astype(np.int32))

    @property
    def filled(self) -> Array:
        """Return (rows,) bool: whether the label is not empty."""
        found: Array = np.array([bool(label) for label in self.labels])[self.codes]
        return found

    def over(self, other: Coded) -> Coded:
        """Return these labels, or the other's where these are empty."""
        codes = np.where(self.filled, self.codes, other.codes + len(self.labels)).astype(np.int32)
        return Coded((*self.labels, *other.labels), codes).merged()

    def __getitem__(self, row: int) -> str:
        return self.labels[int(self.codes[row])]


@dataclass(frozen=True)
class Records:
    """One row per record of the file, in its order. Times are seconds since 1970, nan where not set."""

    rows: Rows
    key: Array  # (rows,) of text: the job's id as written, `123_4`
    number: Array  # (rows,) the id as a number, the same for all tasks of an array where the log has no other
    step: Array  # (rows,) bool: a step of a job
    phase: Array  # (rows,) PENDING, RUNNING or ENDED
    submit: Array
    start: Array
    end: Array
    elapsed: Array  # s; nan: not said
    walltime: Array  # s; inf: none
    gpus: Array  # nan: not said, here and below
    cpus: Array
    nodes: Array
    memory: Array  # GB in all
    priority: Array
    user: Coded
    partition: Coded
    qos: Coded
    account: Coded
    asked_type: Coded  # the GPU type that the job asked for
    ran_type: Coded  # the one that it got
    node_list: Coded
    unassigned: Array  # (rows,) bool: the log says that the job had no node
    dropped: dict[str, int] = field(default_factory=dict)  # lines that are not records
    notes: tuple[str, ...] = ()
    waits_known: bool = True  # False: the start times stand in for the submit times

    def __len__(self) -> int:
        return len(self.key)


@dataclass(frozen=True)
class JobRecord:
    """One record, for readers that go line by line."""

    line: int
    key: str
    number: int
    submit: float = math.nan
    start: float = math.nan
    end: float = math.nan
    elapsed: float = math.nan
    walltime: float = math.inf
    gpus: float = math.nan
    cpus: float = math.nan
    nodes: float = math.nan
    memory: float = math.nan
    priority: float = math.nan
    user: str = ""
    partition: str = ""
    qos: str = ""
    account: str = ""
    asked_type: str = ""
    ran_type: str = ""
    node_list: str = ""
    state: str = ""
    unassigned: bool = False


_NUMBERS = ("submit", "start", "end", "elapsed", "walltime", "gpus", "cpus", "nodes", "memory", "priority")
_TEXTS = ("user", "partition", "qos", "account", "asked_type", "ran_type", "node_list")


def collect(path: Path, found: Sequence[JobRecord], *, dropped: dict[str, int] | None = None, notes: tuple[str, ...] = ()) -> Records:
    """Collect records into columns; refuse a file without any."""
    if not found:
        counts = ", ".join(f"{count:,} {reason}" for reason, count in (dropped or {}).items())
        raise DataError(f"{path}: no job records" + (f" ({counts})" if counts else ""))
    columns: dict[str, Any] = {name: np.array([getattr(each, name) for each in found], np.float64) for name in _NUMBERS}
    columns |= {name: Coded.of([getattr(each, name) for each in found]) for name in _TEXTS}
    return Records(
        rows=Rows(path, np.array([each.line for each in found])),
        key=np.array([each.key for each in found], object),
        number=np.array([each.number for each in found], np.float64),
        step=np.zeros(len(found), bool),
        phase=np.array([phase(each.state) for each in found]),
        unassigned=np.array([each.unassigned for each in found]),
        dropped=dict(dropped or {}), notes=notes, **columns,
    )  # fmt: skip
