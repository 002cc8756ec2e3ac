"""Jobs in any table, a file of text or a frame: which columns there are, what their units are, which rows can be used."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.rules import FLAGS, STATED
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.checks import Rows, check_values, no_usable_job, usable_rows
from gpuyard.traces.origin import origin_note

INSTANTS = ("submit", "start", "end", "deadline")  # numbers from the file's origin, or ISO timestamps
SPANS = ("runtime", "estimate", "walltime", "transfer")
NUMBERS = ("gpus", "cpus", "memory", "priority", "chunk")
LABEL_COLUMNS = ("user", "partition", "job_class", "gpu_type", "qos", "account")
TERMS = ("checkpoint", "checkpoint_cost", "drain", "restart_cost")  # times on which a job may be stopped; empty: as the rules say
COLUMNS = ("id", *INSTANTS, *SPANS, *NUMBERS, *LABEL_COLUMNS, *STATED)
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}  # s
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


def chosen_columns(where: str, names: list[str], given: Mapping[str, str]) -> dict[str, int]:
    """Map our columns to positions in the table."""
    for ours in given:
        if ours not in COLUMNS:
            raise unknown_name("column", ours, COLUMNS)
    wanted = {name: name for name in COLUMNS if name in names} | dict(given)
    places = places_of(where, names, wanted)
    has_runtime = "runtime" in wanted or {"start", "end"} <= set(wanted)
    for ours, there in (("submit", "submit" in wanted), ("runtime", has_runtime)):
        if not there:
            raise DataError(f"{where}: no column for {ours!r}", hint=f"name it, {ours}=NAME; the table has: {', '.join(names)[:300]}")
    return places


def places_of(where: str, names: list[str], wanted: Mapping[str, str]) -> dict[str, int]:
    """Return where the wanted columns are; refuse one that is absent or occurs twice."""
    for ours, theirs in wanted.items():
        if theirs not in names:
            error = unknown_name("column", theirs, names)
            raise DataError(f"{where}: no column {theirs!r} (for {ours!r})", hint=error.hint)
        if names.count(theirs) > 1:
            raise DataError(f"{where}: column {theirs!r} occurs twice")
    return {ours: names.index(theirs) for ours, theirs in wanted.items()}


def quantities(table: JobTable, unit: float = 1.0) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return times in seconds, other numbers and ids by our names, and notes about them."""
    values, notes = _times(table, unit)
    values |= {name: table.numbers(name) for name in NUMBERS if name in table}
    values |= {name: table.numbers(name) * unit for name in TERMS if name in table}
    values |= {name: table.flags(name) for name in ("preemptible",) if name in table}
    ids, id_notes = table.ids()
    return values | {"id": ids}, (*notes, *id_notes)


def _times(table: JobTable, unit: float) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Return instants and spans in seconds; for timestamps, time 0 is the first submit."""
    instants = [name for name in INSTANTS if name in table]
    stamped = [name for name in instants if table.is_stamped(name)]
    notes: tuple[str, ...] = ()
    if stamped:
        for name in instants:
            if name not in stamped and not table.is_empty(name):
                raise DataError(f"{table.path}: {stamped[0]} has timestamps but {name} has numbers; their origins may differ")
        values = {name: table.seconds(name) for name in instants}
        if np.isnan(values["submit"]).all():
            raise DataError(f"{table.path}: no usable job (no submit times)")
        origin = float(np.nanmin(values["submit"]))
        values = {name: seconds - origin for name, seconds in values.items()}
        notes = (origin_note(origin),)
    else:
        values = {name: table.numbers(name) * unit for name in instants}
    values |= {name: table.numbers(name) * unit for name in SPANS if name in table}
    if "runtime" not in values and {"start", "end"} <= set(values):
        values["runtime"] = values["end"] - values["start"]
    return values, notes


def workload_of(
    table: JobTable, values: Mapping[str, Array], notes: tuple[str, ...] = (), *, unwanted: Mapping[str, Array] | None = None,
    preset: str = "",
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
    return Workload.build(
        kept, runtime, name=table.path.name, dropped=dropped, logged_start=start, notes=notes, preset=preset,
        users=labels.get("user", ("",)), partitions=labels.get("partition", ("",)),
        classes=labels.get("job_class", ("",)), gpu_types=labels.get("gpu_type", ("",)),
        qoses=labels.get("qos", ("",)), accounts=labels.get("account", ("",)),
    )  # fmt: skip


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
