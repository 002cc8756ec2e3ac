"""SWF with 19 columns: the Standard Workload Format for GPU clusters, with a virtual cluster and a GPU type at the end."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, blocks, check_comments
from gpuyard.traces.readers.csv import Form, TextTable, table_in
from gpuyard.traces.readers.tables import quantities, workload_of

if TYPE_CHECKING:
    import polars as pl

FIELDS = (
    "id", "submit", "wait", "run", "gpus", "cpu_time", "memory", "req_cpus", "req_time", "req_memory", "status", "user", "group",
    "executable", "queue", "partition", "preceding", "vc", "gpu_type",
)  # fmt: skip
_FORM = Form(
    {
        "id": "id", "submit": "submit", "runtime": "run", "gpus": "gpus", "cpus": "req_cpus", "walltime": "req_time", "user": "user",
        "account": "group", "partition": "vc", "gpu_type": "gpu_type",
    },
    also=("wait",),
    names=FIELDS,
)  # fmt: skip
_COMMENT = re.compile(rb"^[ \t]*;.*$", re.M)
_FILLED = re.compile(rb"^[ \t]*[^\s].*$", re.M)
_BLANKS = re.compile(rb"[ \t]+")
_NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]*)?")
GPU_TYPES = "t4|other|p100|v100-16gb|v100"  # the types that the numbers 0, 1, … of the last column stand for; v100 has 32 GB


def _cut(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")] if "," in line else line.split()


def _is_row(line: str) -> bool:
    fields = _cut(line)
    return len(fields) == len(FIELDS) and all(_NUMBER.fullmatch(field) for field in fields[1:5])  # an id may be a name


def _is_header(line: str) -> bool:
    """Whether a first line names the columns: a row with a mistake still has numbers, and is not to be lost."""
    return not any(_NUMBER.fullmatch(field) for field in _cut(line)[:5])


def _sniff(head: Head) -> bool:
    body = [line for line in head.lines if not line.lstrip().startswith(";")]
    if not body or _is_row(body[0]):
        return bool(body)
    named = all(word in body[0].lower() for word in ("vc", "type"))  # other tables may have 19 columns too
    return named and len(body) > 1 and _is_row(body[1])


@reader("swf19", glob="*.swf19", title="SWF with 19 columns: also virtual cluster and GPU type", sniff=_sniff)
def read_swf19(path: Path, *, types: str = GPU_TYPES, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs with GPUs, CPUs, requested time, user, group (as account), virtual cluster (as partition) and GPU type.

    Fields are separated by blanks or by commas; `;` begins a comment; a header line may come first; −1 is "not known". Rows without
    submit time, run time or GPUs are dropped; 0 GPUs with CPUs is a CPU job. Memory is not read: its unit is not settled.
    A GPU type may be a name or a number; `types` names the types of the numbers 0, 1, … in turn, divided by `|`.
    """
    table = table_in(path, _plain(path, limits), _FORM, limits)
    for name in ("user", "account", "partition", "gpu_type"):
        table = table.having(name, table.frame[name].replace("-1", None))
    table = table.having("gpu_type", _typed(table, types))
    values, notes = quantities(table)
    wait = _known(table.numbers("wait"))
    values |= {name: _known(values[name]) for name in ("submit", "runtime", "gpus", "cpus", "walltime")}
    values["walltime"] = np.where(values["walltime"] > 0, values["walltime"], np.nan)
    values["start"] = values["submit"] + wait
    return workload_of(table, values, notes)


def _typed(table: TextTable, types: str) -> pl.Series:
    """Return the GPU types by name; refuse a number that stands for none."""
    names = {str(number): name.strip() for number, name in enumerate(types.split("|"))}
    given = table.frame["gpu_type"]
    strange = (given.str.contains(r"^[0-9]+$") & ~given.is_in(list(names))).fill_null(False).arg_true()
    if len(strange):
        number = given[int(strange[0])]
        hint = "name the types of 0, 1, … in turn, e.g. --with 'types=t4|p100|v100'"
        raise table.rows.error(int(strange[0]), f"GPU type {number[:40]} stands for none of {types}", hint=hint)
    return given.replace(names)


def _known(values: Array) -> Array:
    return np.where(values == -1, np.nan, values)


def _plain(path: Path, limits: Limits) -> io.BytesIO:
    """Return the rows with commas between fields, each on its line of the file; comments and the header line become blank.

    It works block by block: split all at once, a file of line feeds would take a hundred times its size.
    """
    plain, blanks, barren = io.BytesIO(), None, 0
    for block in blocks(path, limits):
        text = _COMMENT.sub(b"", block.text)
        barren = 0 if text.strip() else check_comments(path, barren + len(block.text), limits)
        if blanks is None and (first := _FILLED.search(text)):
            blanks = b"," not in first[0]
            if _is_header(first[0].decode(errors="replace")):
                text = text[: first.start()] + text[first.end() :]
        plain.write(b"\n".join(_BLANKS.sub(b",", line.strip()) for line in text.split(b"\n")) if blanks else text)
    if blanks is None:
        raise DataError(f"{path}: no jobs")
    return plain
