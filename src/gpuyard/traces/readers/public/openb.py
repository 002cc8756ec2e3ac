"""Alibaba openb 2023 (Weng et al., ATC'23): lists of pods that share GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.units import MIB
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, head_of
from gpuyard.traces.parameters import Seconds
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.tables import quantities, workload_of

HEADER = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "pod_phase",
    "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
UNTIMED = HEADER[:5]  # of the list `multigpu50`
_SIZES = {"gpus": "num_gpu", "cpus": "cpu_milli", "memory": "memory_mib"}
_TIMES = {"submit": "creation_time", "start": "scheduled_time", "end": "deletion_time"}
_TIMED = Form({**_SIZES, **_TIMES, "gpu_type": "gpu_spec", "qos": "qos"}, also=("gpu_milli", "pod_phase"))


def _sniff(head: Head) -> bool:
    return head.fields() in (HEADER, UNTIMED)


@reader("openb", title="Alibaba openb 2023: a list of pods (openb_pod_list_*.csv)", sniff=_sniff)
def read_openb(path: Path, *, arrivals: Seconds = 0.0, runtime: Seconds = 0.0, limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read pods with shares of GPUs, GPU types, CPUs, memory and QOS; the run time is deletion − scheduling (or creation).

    A pod's GPUs are on one node (`chunk`). Pods that were never scheduled (`Pending`) are dropped. A list without times (`multigpu50`)
    is refused unless `arrivals` (the time from one pod to the next) and `runtime` (of every pod) are given; any list accepts them.
    """
    head = head_of(path)
    timed = head is None or head.fields() != UNTIMED
    invented = arrivals > 0 or runtime > 0
    if (invented or not timed) and not (arrivals > 0 and runtime > 0):
        why = "only one of arrivals and runtime is given" if invented else "this list of pods has no times"
        raise DataError(f"{path}: {why}", hint="give --with arrivals=60s (between pods) and --with runtime=1h (of each)")
    form = _TIMED if timed else Form(_SIZES, also=("gpu_milli",))
    table = open_table(path, form, limits)
    unwanted: dict[str, Array] = {}
    if invented:
        values, notes = _invented(table, arrivals, runtime)
    else:
        unwanted = {"never scheduled (Pending)": table.equals("pod_phase", "Pending")}
        values, notes = _logged(table, unwanted["never scheduled (Pending)"])
    values |= _sizes(table, values["gpus"])
    return workload_of(table, values, notes, unwanted=unwanted, preset="openb")


def _logged(table: TextTable, pending: Array) -> tuple[dict[str, Array], tuple[str, ...]]:
    values, notes = quantities(table)
    begin = np.where(np.isnan(values["start"]), values["submit"], values["start"])
    values["runtime"] = np.where(pending, np.nan, values["end"] - begin)
    return values, notes


def _invented(table: TextTable, arrivals: float, runtime: float) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Space the pods evenly in the order of the list, all equally long."""
    number = np.arange(len(table.lines))
    values = {name: table.numbers(name) for name in _SIZES}
    values |= {"id": number + 1, "submit": number * arrivals, "runtime": np.full(len(number), runtime)}
    return values, (f"times are made up: a pod every {arrivals:g} s, each {runtime:g} s long",)


def _sizes(table: TextTable, count: Array) -> dict[str, Array]:
    milli = table.numbers("gpu_milli")
    table.rows.refuse((count == 1) & ~((milli >= 1) & (milli <= 1000)), "gpu_milli", milli, "is not a share of 1 to 1,000")
    gpus = np.where((count == 1) & (milli < 1000), milli / 1000, count)
    cpus, memory = table.numbers("cpus") / 1000, table.numbers("memory") * MIB
    return {"gpus": gpus, "cpus": cpus, "memory": memory, "chunk": np.where(count >= 1, count, 1.0)}
