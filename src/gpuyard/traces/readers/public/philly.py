"""Microsoft Philly (Jeon et al., ATC'19) as it is passed on, in the tables of Pollux and of RFold; `philly_log` reads the log itself."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, head_of
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.public import philly_log
from gpuyard.traces.readers.tables import quantities, workload_of

VC_HEADER = ("timestamp", "duration", "num_gpus", "gpu_time", "cluster")
SHAPE_HEADER = ("#job id", "arrival time (sec)", "topology", "shape", "size", "duration (sec)")
MACHINE = 8  # GPUs of the largest machine of Philly, and of every host of Lingjun
_VC = Form({"submit": "timestamp", "runtime": "duration", "gpus": "num_gpus", "partition": "cluster"})
_SHAPES = Form({"id": "#job id", "submit": "arrival time (sec)", "runtime": "duration (sec)", "gpus": "size"}, also=("shape",))


def _sniff(head: Head) -> bool:
    return head.fields() in (VC_HEADER, SHAPE_HEADER) or philly_log.is_log(head)


@reader("philly", title="Microsoft Philly 2017 (the JSON log, or as a table); Alibaba Lingjun 2023 in the same form", sniff=_sniff)
def read_philly(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read the jobs of Philly: `cluster_job_log` (JSON), the table with virtual clusters, or the one with shapes (`8+8`).

    A shape lists the GPUs on each machine: where all are equal, that many stay together (`chunk`). A single number above 8 fits
    no machine: such a table comes from Lingjun, whose splits are unknown, and those jobs may be spread freely.
    """
    head = head_of(path)
    if head is not None and philly_log.is_log(head):
        return philly_log.read(path, limits)
    if head is not None and head.fields() == SHAPE_HEADER:
        return _read_shapes(path, limits)
    table = open_table(path, _VC, limits)
    values, notes = quantities(table)
    return workload_of(table, values, notes, preset="philly")


def _read_shapes(path: Path, limits: Limits) -> Workload:
    table = open_table(path, _SHAPES, limits)
    values, notes = quantities(table)
    chunk = _equal_parts(table, values["gpus"])
    whole = chunk > MACHINE
    values["chunk"] = np.where(whole, 1.0, chunk)
    if whole.any():
        notes = (*notes, f"{int(whole.sum()):,} jobs are larger than a host and their split is unknown: they may be spread freely")
    return workload_of(table, values, notes, preset="lingjun2023" if whole.any() else "philly")


def _equal_parts(table: TextTable, gpus: Array) -> Array:
    """Return the GPUs on each machine where the shape has equal parts, else 1; refuse a shape that does not add up to the size."""
    shapes = table.frame["shape"].fill_null("")
    distinct = shapes.unique()
    parts = {shape: _parts(shape) for shape in distinct.to_list()}
    total = shapes.replace_strict(distinct, [float(sum(parts[s])) for s in distinct.to_list()]).to_numpy()
    wrong = (total != gpus) & ~np.isnan(gpus)
    if wrong.any():
        row = int(np.argmax(wrong))
        raise table.rows.error(row, f"shape = {shapes[row][:40]!r} does not add up to size = {gpus[row]:g}")
    each = shapes.replace_strict(distinct, [float(parts[s][0]) if len(set(parts[s])) == 1 else 1.0 for s in distinct.to_list()])
    found: Array = np.maximum(each.to_numpy(), 1.0)
    return found


def _parts(shape: str) -> list[int]:
    return [int(part) if part.isdecimal() and part.isascii() and len(part) < 8 else -1 for part in shape.split("+")]
