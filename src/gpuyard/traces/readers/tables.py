"""Jobs in any table, a file of text or a frame: from columns to quantities, and which rows can be used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.rules import FLAGS
from gpuyard.model.site.eligibility import parse_conditions
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces.checks import Rows, check_values, no_usable_job, usable_rows
from gpuyard.traces.origin import origin_note
from gpuyard.traces.readers.columns import INSTANTS, LABEL_COLUMNS, NUMBERS, SPANS, TERMS, Units

SECONDS = Units()
YES_NO = {**FLAGS, "true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0}
_DEFAULTS = {"walltime": np.inf, "deadline": np.inf, "transfer": 0.0, "cpus": 0.0, "memory": 0.0, "priority": 0.0, "chunk": 1.0}


class JobTable(Protocol):
    """A table of jobs whose columns have our names."""

    @property
    def rows(self) -> Rows: ...
    def __contains__(self, name: str) -> bool: ...
    @property
    def path(self) -> Path: ...
    def take(self, rows: Array) -> JobTable: ...
    @property
    def lines(self) -> Array: ...
    def numbers(self, name: str) -> Array: ...
    def seconds(self, name: str) -> Array: ...
    def flags(self, name: str) -> Array: ...
    def labels(self, name: str, keep: Array) -> tuple[tuple[str, ...], Array]: ...
    def ids(self) -> tuple[Array, tuple[str, ...]]: ...
    def is_stamped(self, name: str) -> bool: ...
    def is_empty(self, name: str) -> bool: ...


def quantities(table: JobTable, units: Units = SECONDS) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return times in seconds, other numbers and ids by our names, and notes about them."""
    values, notes = _times(table, units)
    values |= {name: table.numbers(name) * units.of(name) for name in (*NUMBERS, *TERMS) if name in table}
    values |= {name: table.flags(name) for name in ("preemptible",) if name in table}
    ids, id_notes = table.ids()
    return values | {"id": ids}, (*notes, *id_notes)


def with_devices(values: dict[str, Array]) -> tuple[dict[str, Array], tuple[Machine, ...], tuple[str, ...]]:
    """Let CPU cores be the devices where a table has cores, in whole numbers, and no GPUs; return the nodes to guess from, and a note.

    Otherwise each job would have a GPU. Memory is left out then: it goes with the nodes, which nothing describes.
    """
    cores = values.get("cpus", np.zeros(1))
    if "gpus" in values or not (cores > 0).any() or (cores != np.floor(cores))[~np.isnan(cores)].any():
        return values, (), ()
    kept = {name: column for name, column in values.items() if name not in ("cpus", "memory")}
    return kept | {"gpus": cores}, (Machine("pool", 0, gpu_type="cpu"),), ("a device is a CPU core: the table has no column of GPUs",)


def _times(table: JobTable, units: Units) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return instants and spans in seconds; for timestamps, time 0 is the first submit."""
    instants = [name for name in INSTANTS if name in table]
    stamped = [name for name in instants if table.is_stamped(name)]
    notes: tuple[str, ...] = ()
    if stamped:
        for name in instants:
            if name not in stamped and not table.is_empty(name):
                raise DataError(f"{table.path}: {stamped[0]} has timestamps but {name} has numbers; their origins may differ")
        values = {name: table.seconds(name) for name in instants}
        first = values["submit" if "submit" in values else "start"]
        if np.isnan(first).all():
            raise DataError(f"{table.path}: no usable job (no submit times)")
        origin = float(np.nanmin(first))
        values = {name: seconds - origin for name, seconds in values.items()}
        notes = (origin_note(origin),)
    else:
        values = {name: table.numbers(name) * units.of(name) for name in instants}
    values |= {name: table.numbers(name) * units.of(name) for name in SPANS if name in table}
    wait = values.pop("wait", None)
    if wait is not None and "submit" not in values:
        values["submit"] = values["start"] - wait
    elif wait is not None and "start" not in values:
        values["start"] = values["submit"] + wait
    if "runtime" not in values and {"start", "end"} <= set(values):
        values["runtime"] = values["end"] - values["start"]
    return values, notes


def workload_of(
    table: JobTable, values: Mapping[str, Array], notes: tuple[str, ...] = (), *, unwanted: Mapping[str, Array] | None = None,
    preset: str = "", machines: Sequence[Machine] = (),
) -> Workload:  # fmt: skip
    """Build the workload from the rows that can be used. `unwanted` maps a reason to a mask of rows that are dropped unchecked."""
    values = {name: np.where(np.isnan(v), _DEFAULTS[name], v) if name in _DEFAULTS else v for name, v in values.items()}
    first, lost = usable_rows(len(table.lines), unwanted or {})
    if lost:
        table, values = table.take(first), {name: v[first] for name, v in values.items()}
    check_values(table.rows, values)
    keep, dropped = _usable(values)
    dropped = lost | dropped
    if len(keep) == 0:
        raise no_usable_job(table.path, dropped)
    kept = {name: column[keep] for name, column in values.items()}
    runtime, start = kept.pop("runtime"), kept.pop("start", None)
    kept.pop("end", None)
    labels: dict[str, tuple[str, ...]] = {}
    for name in LABEL_COLUMNS:
        if name in table:
            labels[name], kept[name] = table.labels(name, keep)
    conditions = table.labels("conditions", keep) if "conditions" in table else None
    made = Workload.build(
        kept, runtime, name=table.path.name, dropped=dropped, logged_start=start, notes=notes, preset=preset, machines=machines,
        users=labels.get("user", ("",)), partitions=labels.get("partition", ("",)),
        classes=labels.get("job_class", ("",)), gpu_types=labels.get("gpu_type", ("",)),
        qoses=labels.get("qos", ("",)), accounts=labels.get("account", ("",)),
    )  # fmt: skip
    if conditions is None:
        return made
    texts, code = conditions
    for number, text in enumerate(texts):
        try:
            parse_conditions(text)
        except DataError as error:
            raise table.rows.error(int(keep[np.argmax(code == number)]), str(error)) from None
    ordered = code[np.argsort(kept["submit"], kind="stable")]  # as `made` is
    return replace(made, jobs=made.jobs.with_conditions([texts[number] for number in ordered.tolist()]))


def _usable(values: Mapping[str, Array]) -> tuple[Array, dict[str, int]]:
    """Return the rows to keep, and how many are dropped for each reason."""
    count = len(values["submit"])
    gpus = values.get("gpus", np.ones(count))
    nothing = (gpus == 0) & (values.get("cpus", np.zeros(count)) == 0) & (values.get("memory", np.zeros(count)) == 0)
    reasons = {
        "no submit time": np.isnan(values["submit"]), "no run time": np.isnan(values["runtime"]),
        "no GPU count": np.isnan(gpus), "no GPU, CPU or memory asked for": nothing,
    }  # fmt: skip
    return usable_rows(count, reasons)
