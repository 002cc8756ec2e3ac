"""SenseTime Helios (Hu et al., SC'21): the published `cluster_log.csv`, and the four-column form in which it is passed on."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.model.presets import PRESETS
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, head_of
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.tables import quantities, workload_of

SERVICE_HEADER = ("job_id", "arrival_s", "service_sec", "gpu_count")
LOG_HEADER = (
    "job_id", "user", "gpu_num", "cpu_num", "node_num", "state", "submit_time", "start_time", "end_time", "duration", "queue", "vc",
)  # fmt: skip
_SERVICE = Form({"submit": "arrival_s", "runtime": "service_sec", "gpus": "gpu_count"})
_LOG = Form(
    {
        "submit": "submit_time", "start": "start_time", "runtime": "duration", "gpus": "gpu_num", "cpus": "cpu_num",
        "user": "user", "partition": "vc",
    },
    also=("node_num",),
)  # fmt: skip


def is_service_table(head: Head) -> bool:
    """Whether the file has the four-column form in which Helios and PAI 2020 are passed on."""
    return head.fields() == SERVICE_HEADER


def read_service_table(path: Path, limits: Limits, preset: str, *notes: str) -> Workload:
    """Read the four-column form. Its ids are texts, so jobs are numbered by row."""
    table = open_table(path, _SERVICE, limits)
    values, more = quantities(table)
    return workload_of(table, values, (*notes, *more), preset=preset)


def _sniff(head: Head) -> bool:
    rows = head.lines[1:]
    service = is_service_table(head) and not (rows and rows[0].startswith("ali-"))
    return service or head.fields()[: len(LOG_HEADER)] == LOG_HEADER


@reader("helios", title="SenseTime Helios 2020: cluster_log.csv, or its GPU jobs in four columns", sniff=_sniff)
def read_helios(path: Path, *, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read GPU and CPU jobs with users, virtual clusters (as partitions) and logged starts where the log has them.

    Jobs are numbered by row, because Slurm's ids repeat. A job that had equally many GPUs on each node keeps them together (`chunk`).
    The folder of a `cluster_log.csv` names its cluster (`Venus/cluster_log.csv`); otherwise it is guessed from what ran at once.
    """
    head = head_of(path)
    if head is None or is_service_table(head):
        capped = "run times are cut at 48 h (172,800 s) in this form, and it has GPU jobs only"
        return read_service_table(path, limits, "helios-venus", capped)
    table = open_table(path, _LOG, limits)
    values, notes = quantities(table)
    values["chunk"] = _chunk(table, values["gpus"])
    folder = f"helios-{path.absolute().parent.name.lower()}"
    return workload_of(table, values, notes, preset=folder if folder in PRESETS else "")


def _chunk(table: TextTable, gpus: np.ndarray) -> np.ndarray:
    """Return the GPUs on each node where the job had equally many on all, else 1."""
    nodes = table.numbers("node_num")
    with np.errstate(divide="ignore", invalid="ignore"):
        each = gpus / nodes
    return np.where((each >= 1) & (each == np.floor(each)), each, 1.0)
