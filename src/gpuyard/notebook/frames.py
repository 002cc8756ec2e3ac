"""Frames of results by polars or pandas, with names instead of numbers; and the way from a frame to a workload."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.experiments.judging.text import metric_title
from gpuyard.files import replacing
from gpuyard.metrics import measure, measure_by, resolve
from gpuyard.model.jobs import LABELS
from gpuyard.model.result import REASONS, STATUS, WAITS_FOR, Result
from gpuyard.model.units import csv_label
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name
from gpuyard.traces.readers.frames import read_frame

KINDS = ("polars", "pandas")
METRICS = ("waiting", "waiting.p95", "wait.max", "turnaround", "bsld", "bsld.p95", "utilization", "queue_max", "makespan")
SUFFIXES = (".csv", ".parquet")
_ASKED = ("gpus", "cpus", "memory", "chunk", "priority", "submit", "walltime", "deadline", "estimate")
_USUAL = {"cpus": 0.0, "memory": 0.0, "chunk": 1.0, "priority": 0.0, "walltime": np.inf, "deadline": np.inf}


def workload_from(frame: object, columns: Mapping[str, str], unit: str, name: str) -> Workload:
    """Read a workload from a frame."""
    return read_frame(frame, columns=columns, unit=unit, name=name)


def jobs_of(result: Result, kind: str) -> Any:
    """Return a row per job."""
    return frame_of(job_columns(result), kind)


def summary_of(result: Result, metrics: Sequence[str] | str, by: str, kind: str) -> Any:
    """Return a row per metric, or per group of jobs."""
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    if by:
        rows = measure_by(result, names or ("waiting", "waiting.p95", "bsld"), by)
        return frame_of({name: [row[name] for row in rows] for name in rows[0]} if rows else {by: []}, kind)
    measured = measure(result, names or METRICS)
    found = [resolve(name)[0] for name in measured]
    columns: dict[str, Array | list[Any]] = {
        "metric": list(measured), "value": list(measured.values()),
        "unit": ["" if each.unit == "1" else each.unit for each in found], "better": [each.better for each in found],
        "meaning": [metric_title(name) for name in measured],
    }  # fmt: skip
    return frame_of(columns, kind)


def job_columns(result: Result) -> dict[str, Array | list[str]]:
    """Return the columns of the jobs of a result: what was asked for, then what happened. Columns that say nothing are left out."""
    jobs, table, nodes = result.workload.jobs, result.table, result.cluster.nodes.names
    columns: dict[str, Array | list[str]] = {"id": jobs.id}
    for name, labelled in LABELS.items():
        labels = getattr(jobs, labelled)
        if any(labels) and name != "terms":
            columns[name] = _named(labels, getattr(jobs, name))
    for name in _ASKED:
        values = getattr(jobs, name)
        if name not in _USUAL or (values != _USUAL[name]).any():
            columns[name] = values
    columns |= {"runtime": result.workload.runtime, "start": table["start"], "end": table["end"]}
    columns |= {"wait": table["start"] - jobs.submit, "turnaround": table["end"] - jobs.submit, "ran": table["ran"]}
    columns |= {"nodes": table["nodes"], "node": _named((*nodes, ""), table["node"])}  # -1 is the last: it never started
    columns |= {"preemptions": table["preemptions"], "status": _named(STATUS, table["status"])}
    if table["reason"].any():
        columns["reason"] = _named(REASONS, table["reason"])
    if len(result.ineligible):
        columns |= _waits(result)
    return columns


def _waits(result: Result) -> dict[str, Array | list[str]]:
    """Return for how long each job could not have started whatever was free, and why: the reasons, the first that holds first."""
    reasons: list[list[str]] = [[] for _ in range(len(result))]
    seconds = np.zeros(len(result))
    for row in result.ineligible:
        reasons[row["job"]].append(WAITS_FOR[row["reason"]])
        seconds[row["job"]] += row["seconds"]
    return {"not_eligible": seconds, "waited_for": [" ".join(names) for names in reasons]}


def _named(labels: Sequence[str], numbers: Array) -> list[str]:
    return [labels[number] for number in numbers.tolist()]


def frame_of(columns: Mapping[str, Array | list[Any]], kind: str) -> Any:
    """Make a frame of that library."""
    if kind not in KINDS:
        raise unknown_name("kind of frame", str(kind), list(KINDS))
    try:
        library = import_module(kind)
    except ImportError:
        raise UsageError(f"{kind} is not installed", hint=f"pip install {kind}, or ask for {KINDS[kind == KINDS[0]]!r}") from None
    return library.DataFrame({name: np.array(values) if isinstance(values, np.ndarray) else values for name, values in columns.items()})


def check_jobs_file(path: Path) -> None:
    """Refuse a file that `write_jobs` cannot write, before anything is simulated."""
    if path.suffix.lower() not in SUFFIXES:
        raise UsageError(f"{path}: unknown kind of table", hint=f"end the name with {' or '.join(SUFFIXES)}")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: no such folder: {path.parent}")


def write_jobs(result: Result, path: Path) -> None:
    """Write the log of jobs as CSV or Parquet, whole or not at all. In CSV no text is taken for a formula by a spreadsheet."""
    check_jobs_file(path)
    columns = job_columns(result)
    plain = path.suffix.lower() == ".csv"
    if plain:
        columns = {name: [csv_label(each) for each in values] if isinstance(values, list) else values for name, values in columns.items()}
    frame = frame_of(columns, "polars").fill_nan(None)
    with replacing(path) as stream:
        if plain:
            frame.write_csv(stream)
        else:
            frame.write_parquet(stream)
