"""SWF with 19 columns: the Standard Workload Format for GPU clusters, with a virtual cluster and a GPU type at the end."""

from __future__ import annotations

import io
import re
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, blocks
from gpuyard.traces.readers.csv import Form, quantities, table_in, workload_of

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


def _cut(line: str) -> list[str]:
    return [field.strip() for field in line.split(",")] if "," in line else line.split()


def _is_row(line: str) -> bool:
    fields = _cut(line)
    return len(fields) == len(FIELDS) and all(_NUMBER.fullmatch(field) for field in fields[:5])


def _sniff(head: Head) -> bool:
    body = [line for line in head.lines if not line.lstrip().startswith(";")]
    if not body or _is_row(body[0]):
        return bool(body)
    named = all(word in body[0].lower() for word in ("vc", "type"))  # other tables may have 19 columns too
    return named and len(body) > 1 and _is_row(body[1])


@reader("swf19", glob=("*.swf19", "*.swf19.gz"), title="SWF with 19 columns: also virtual cluster and GPU type", sniff=_sniff)
def read_swf19(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read jobs with GPUs, CPUs, requested time, user, group (as account), virtual cluster (as partition) and GPU type.

    Fields are separated by blanks or by commas; `;` begins a comment; a header line may come first; −1 is "not known". Rows without
    submit time, run time or GPUs are dropped; 0 GPUs with CPUs is a CPU job. Memory is not read: its unit is not settled.
    """
    table = table_in(path, _plain(path, limits), _FORM, limits)
    for name in ("user", "account", "partition", "gpu_type"):
        table = table.having(name, table.frame[name].replace("-1", None))
    values, notes = quantities(table)
    wait = _known(table.numbers("wait"))
    values |= {name: _known(values[name]) for name in ("submit", "runtime", "gpus", "cpus", "walltime")}
    values["walltime"] = np.where(values["walltime"] > 0, values["walltime"], np.nan)
    values["start"] = values["submit"] + wait
    return workload_of(table, values, notes)


def _known(values: Array) -> Array:
    return np.where(values == -1, np.nan, values)


def _plain(path: Path, limits: Limits) -> io.BytesIO:
    """Return the rows with commas between fields, each on its line of the file; comments and the header line become blank.

    It works block by block: split all at once, a file of line feeds would take a hundred times its size.
    """
    plain, blanks = io.BytesIO(), None
    for block in blocks(path, limits):
        text = _COMMENT.sub(b"", block.text)
        if blanks is None and (first := _FILLED.search(text)):
            blanks = b"," not in first[0]
            if _NUMBER.match(first[0].decode(errors="replace").strip()) is None:
                text = text[: first.start()] + text[first.end() :]
        plain.write(b"\n".join(_BLANKS.sub(b",", line.strip()) for line in text.split(b"\n")) if blanks else text)
    if blanks is None:
        raise DataError(f"{path}: no jobs")
    return plain
