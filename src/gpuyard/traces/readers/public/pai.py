"""Alibaba PAI 2020 (Weng et al., NSDI'22): the published task table, and the four-column sample of it that is passed on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, head_of
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.public.helios import is_service_table, read_service_table
from gpuyard.traces.readers.tables import quantities, workload_of

TASK_COLUMNS = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu", "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip
STATUSES = ("Terminated", "Failed", "Running", "Waiting", "Interrupted")
_TASKS = {
    "submit": "start_time", "start": "start_time", "end": "end_time", "gpus": "plan_gpu", "cpus": "plan_cpu", "memory": "plan_mem",
    "gpu_type": "gpu_type", "job_class": "task_name",
}  # fmt: skip


def _sniff(head: Head) -> bool:
    if is_service_table(head):
        return len(head.lines) > 1 and head.lines[1].startswith("ali-")
    fields = head.fields()
    return fields == TASK_COLUMNS or (len(fields) == len(TASK_COLUMNS) and fields[3] in STATUSES)


@reader("pai2020", title="Alibaba PAI 2020: pai_task_table.csv, or a sample of it in four columns", sniff=_sniff)
def read_pai(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read the tasks of PAI; each instance has a plan such as 50 % of a GPU and 600 % of a core.

    The table has no submit times: a task counts as submitted when it started. The whole GPUs of all instances form one gang, with each
    instance on one node (`chunk`); a plan of 150 % counts as 2 GPUs. Each instance that shares a GPU (below 100 %) becomes a job.
    """
    head = head_of(path)
    if head is None or is_service_table(head):
        note = "submit times are start times, run times are cut at 48 h, shares of a GPU count as 1: the sample was made so"
        return read_service_table(path, limits, "pai2020", note)
    table = open_table(path, Form(_TASKS, also=("inst_num",), names=() if head.fields() == TASK_COLUMNS else TASK_COLUMNS), limits)
    rows = len(table.lines)
    table, instances = _split_shares(table, limits)
    values, notes = quantities(table)
    del values["start"]  # equals the submit time here: the log's own waits are unknown
    each = np.nan_to_num(values["gpus"]) / 100
    whole = np.where(each > 1, np.ceil(each), each)
    values |= {
        "gpus": whole * instances, "cpus": values["cpus"] / 100 * instances, "memory": values["memory"] * instances,
        "chunk": np.maximum(np.floor(whole), 1.0),
    }  # fmt: skip
    notes = ("submit times are start times: the table has no others", *notes)
    if len(table.lines) > rows:
        notes = (*notes, f"{len(table.lines) - rows:,} jobs more than rows: instances that share a GPU are separate jobs")
    return workload_of(table, values, notes, preset="pai2020")


def _split_shares(table: TextTable, limits: Limits) -> tuple[TextTable, Array]:
    """Give each instance with a share of a GPU or none a row, and each gang one; return the table and the instances per row."""
    count, gpus = table.numbers("inst_num"), table.numbers("gpus")
    count = np.where(np.isnan(count), 1.0, count)
    table.rows.refuse((count < 1) | (count != np.floor(count)), "inst_num", count, "is not a number of instances")
    gang = gpus >= 100
    times = np.where(gang, 1.0, count)
    total = float(times.sum())
    if total > limits.rows:
        raise DataError(f"{table.path}: {total:,.0f} instances that share a GPU; at most {limits.rows:,} jobs", hint="raise the row limit")
    rows = np.repeat(np.arange(len(count)), times.astype(np.int64))
    return table.take(rows), np.where(gang, count, 1.0)[rows]
