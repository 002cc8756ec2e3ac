"""Philly's own `cluster_job_log`: a JSON list of jobs with their attempts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.errors import DataError
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.units import shorten
from gpuyard.model.workload import Workload
from gpuyard.traces.opening import Head, Limits, read_text
from gpuyard.traces.origin import origin_note

MAX_BYTES = 1 << 29  # of JSON; the published log has some 100 MB
_EPOCH = datetime(1970, 1, 1)
_NOTE = "a run time is that of all attempts together, a job's GPUs are those of its largest attempt"


def is_log(head: Head) -> bool:
    """Whether the first lines are those of `cluster_job_log`."""
    text = "\n".join(head.lines)[:20_000]
    return text.lstrip().startswith("[") and all(f'"{key}"' in text for key in ("vc", "jobid", "attempts", "submitted_time"))


@dataclass(frozen=True)
class _Job:
    submit: float  # s since 1970; nan: not given
    start: float  # of the first attempt with both times
    runtime: float  # of all such attempts; nan: there is none
    gpus: int  # of the largest of them
    chunk: int
    user: str
    vc: str

    @property
    def fault(self) -> str:
        """Why the job cannot be used; empty where it can."""
        missing = {"no submit time": np.isnan(self.submit), "no run time": np.isnan(self.runtime), "no GPU count": self.gpus == 0}
        return next((reason for reason, bad in missing.items() if bad), "")


def read(path: Path, limits: Limits) -> Workload:
    """Every attempt with a start and an end counts; a job without one has no run time and is dropped."""
    bounds = replace(limits, size=min(limits.size, MAX_BYTES), line=min(limits.size, MAX_BYTES))
    try:
        rows = json.loads(read_text(path, bounds).getvalue())
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {str(error)[:120] or 'nested too deeply'}") from None
    if not isinstance(rows, list) or len(rows) > limits.rows:
        raise DataError(f"{path}: is no list of at most {limits.rows:,} jobs")
    jobs = [_job(row, f"{path}: job {number}") for number, row in enumerate(rows, 1)]
    dropped: dict[str, int] = {}
    for job in jobs:
        if job.fault:
            dropped[job.fault] = dropped.get(job.fault, 0) + 1
    kept = {number: job for number, job in enumerate(jobs, 1) if not job.fault}
    if not kept:
        raise DataError(f"{path}: no usable job")
    return _workload(path.name, kept, dropped)


def _job(row: object, where: str) -> _Job:
    if not isinstance(row, dict):
        raise DataError(f"{where}: is no table")
    attempts = row.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise DataError(f"{where}: attempts are no list of tables")
    starts, spent, shapes = [], 0.0, []
    for attempt in attempts:
        start, end = _instant(attempt, "start_time", where), _instant(attempt, "end_time", where)
        if np.isnan(start) or np.isnan(end):
            continue
        if end < start:
            raise DataError(f"{where}: an attempt ends {start - end:,.0f} s before it starts")
        starts.append(start)
        spent += end - start
        shapes.append(_machines(attempt, where))
    largest = max(shapes, key=sum, default=[])
    gpus, submit = sum(largest), _instant(row, "submitted_time", where)
    if starts and min(starts) < submit:
        raise DataError(f"{where}: starts {submit - min(starts):,.0f} s before it is submitted")
    return _Job(
        submit, min(starts, default=np.nan), spent if starts else np.nan, gpus, largest[0] if len(set(largest)) == 1 else 1,
        _text(row, "user"), _text(row, "vc"),
    )  # fmt: skip


def _machines(attempt: Mapping[str, Any], where: str) -> list[int]:
    """GPUs on each machine."""
    detail = attempt.get("detail") or []
    if not isinstance(detail, list) or not all(isinstance(part, dict) and isinstance(part.get("gpus", []), list) for part in detail):
        raise DataError(f"{where}: detail is no list of machines with gpus")
    counts = [len(part.get("gpus", [])) for part in detail]
    if sum(counts) > MAX_GPUS:
        raise DataError(f"{where}: {sum(counts):,} GPUs; at most {MAX_GPUS:,}")
    return [count for count in counts if count]


def _instant(row: Mapping[str, Any], key: str, where: str) -> float:
    """Seconds since 1970; nan where nothing is given."""
    value = row.get(key)
    if value is None or value in ("", "None"):
        return np.nan
    try:
        when = datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise DataError(f"{where}: {key} = {shorten(str(value))} is not a timestamp") from None
    if when.tzinfo is not None or when < _EPOCH:
        raise DataError(f"{where}: {key} = {shorten(str(value))} is not a local time after 1970")
    return (when - _EPOCH).total_seconds()


def _text(row: Mapping[str, Any], key: str) -> str:
    value = row.get(key)
    return value if isinstance(value, str) else ""


def _workload(name: str, kept: Mapping[int, _Job], dropped: Mapping[str, int]) -> Workload:
    jobs = list(kept.values())
    origin = min(job.submit for job in jobs)
    users, user = _labels([job.user for job in jobs])
    vcs, vc = _labels([job.vc for job in jobs])
    columns: dict[str, list[int] | list[float]] = {
        "id": list(kept), "submit": [job.submit - origin for job in jobs], "gpus": [job.gpus for job in jobs],
        "chunk": [job.chunk for job in jobs], "user": user, "partition": vc,
    }  # fmt: skip
    return Workload.build(
        columns, [job.runtime for job in jobs], name=name, users=users, partitions=vcs, dropped=dropped, preset="philly",
        logged_start=[job.start - origin for job in jobs],
        notes=(origin_note(round(origin)), _NOTE),
    )  # fmt: skip


def _labels(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    found = sorted(set(texts))
    number = {text: k for k, text in enumerate(found)}
    return found, [number[text] for text in texts]
