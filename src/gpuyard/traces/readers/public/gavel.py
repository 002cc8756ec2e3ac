"""Traces of Gavel (Narayanan et al., OSDI'20): job types with steps instead of run times, seven tab-separated columns."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.files import user_path
from gpuyard.model.speeds import class_name, load_throughputs
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.csv import Form, TextTable, open_table
from gpuyard.traces.readers.tables import quantities, workload_of

COLUMNS = ("job_type", "command", "steps_argument", "needs_data", "steps", "arrival", "gpus")
_FORM = Form({"submit": "arrival", "gpus": "gpus", "job_class": "job_type"}, also=("steps",), names=COLUMNS, delimiter="\t")
# Steps/s with which Gavel turned run times into steps in its `msr` traces, for any number of GPUs. Found by comparing the steps of
# gavel/scheduler/traces/msr/seed=0/103959.trace with the run times that Philly logged for the same jobs; 720 of 728 agree.
REFERENCE_STEPS = {
    "A3C": 8.233034, "CycleGAN": 4.918494, "LM (batch size 10)": 143.360513, "LM (batch size 20)": 107.950872,
    "LM (batch size 40)": 71.723036, "LM (batch size 5)": 167.122857, "LM (batch size 80)": 43.903610,
    "Recommendation (batch size 1024)": 0.479979, "Recommendation (batch size 2048)": 0.567531,
    "Recommendation (batch size 4096)": 0.624408, "Recommendation (batch size 512)": 0.331481,
    "Recommendation (batch size 8192)": 0.602355, "ResNet-18 (batch size 128)": 30.287505, "ResNet-18 (batch size 16)": 77.317373,
    "ResNet-18 (batch size 256)": 16.987371, "ResNet-18 (batch size 32)": 65.805407, "ResNet-18 (batch size 64)": 48.884181,
    "ResNet-50 (batch size 128)": 2.845980, "ResNet-50 (batch size 16)": 17.374390, "ResNet-50 (batch size 32)": 9.920583,
    "ResNet-50 (batch size 64)": 5.457599, "Transformer (batch size 128)": 5.771211, "Transformer (batch size 16)": 12.845652,
    "Transformer (batch size 256)": 1.707030, "Transformer (batch size 32)": 12.475278, "Transformer (batch size 64)": 9.568023,
}  # fmt: skip


def _sniff(head: Head) -> bool:
    fields = head.fields("\t")
    return len(fields) == len(COLUMNS) and fields[3] in ("0", "1") and fields[4].isdecimal() and fields[6].isdecimal()


@reader("gavel", title="Gavel trace: job types with steps (*.trace)", sniff=_sniff)
def read_gavel(path: Path, *, speeds: str = "", reference: str = "v100", limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read a Gavel trace; a run time is steps / throughput.

    The throughput is the one with which Gavel made its traces from Philly, unless `speeds` names one of Gavel's tables: then it is
    that of a job alone on the `reference` type, for its number of GPUs, or for one GPU where the table has no other. The class is the
    job type, followed by `, 4 GPUs` and the like where the table distinguishes numbers of GPUs.
    """
    table = open_table(path, _FORM, limits)
    values, notes = quantities(table)
    steps = table.numbers("steps")
    if speeds:
        table, rate = _measured(table, values["gpus"], user_path(speeds), reference)
        notes = (*notes, f"run times are steps / throughput on one {reference}, measured in {Path(speeds).name}")
    else:
        rate = _rates(table, REFERENCE_STEPS)
        notes = (*notes, "run times are steps / the throughputs with which Gavel made its traces from Philly")
    values["runtime"] = np.where(rate > 0, steps / np.maximum(rate, 1e-12), np.nan)
    return workload_of(table, values, notes)


def _rates(table: TextTable, known: Mapping[str, float]) -> Array:
    """Return (rows,) steps/s by the job type of each row; refuse an unknown type."""
    types = table.frame["job_class"].fill_null("")
    found = types.unique().to_list()
    for name in found:
        if name not in known:
            row = int((types == name).arg_max() or 0)
            hint = "give a table of throughputs, speeds=FILE (gavel's simulation_throughputs.json)"
            raise table.rows.error(row, f"no throughput is known for job type {name[:60]!r}", hint=hint)
    return types.replace_strict(found, [known[name] for name in found]).to_numpy()


def _measured(table: TextTable, gpus: Array, path: Path, reference: str) -> tuple[TextTable, Array]:
    """Return the table with classes by number of GPUs, and the throughput of each row on the reference type."""
    throughputs = load_throughputs(path)
    if reference not in throughputs:
        raise DataError(f"{path}: {unknown_name('reference type', reference, list(throughputs))}")
    rates = throughputs[reference]
    types = table.frame["job_class"].fill_null("").to_list()
    counts = np.nan_to_num(gpus, nan=1.0).tolist()
    names = [class_name(name, int(count)) if (name, int(count)) in rates else name for name, count in zip(types, counts, strict=True)]
    table = table.having("job_class", names)
    return table, _rates(table, {class_name(*key): rate for key, rate in rates.items()})
