"""Philly's own `cluster_job_log`: a JSON list of jobs with their attempts."""

from __future__ import annotations

from collections import Counter
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
from gpuyard.traces.checks import no_usable_job
from gpuyard.traces.opening import Head, Limits
from gpuyard.traces.origin import origin_note
from gpuyard.traces.readers.json_text import JsonText

MAX_BYTES = 1 << 29  # of JSON; the published log has some 100 MB
_EPOCH = datetime(1970, 1, 1)
_NOTE = "a run time is the sum over all attempts; a job's GPUs are those of its largest attempt"


def is_log(head: Head) -> bool:
    """Whether the first lines are those of `cluster_job_log`."""
    text = "\n".join(head.lines)[:20_000]
    return text.lstrip().startswith("[") and all(f'"{key}"' in text for key in ("vc", "jobid", "attempts", "submitted_time"))


@dataclass(frozen=True)
class _Job:
    submit: float  # s since 1970; nan: not given
    start: float  # of the first attempt with both times
    runtime: float  # of all such attempts; nan: no such attempt
    gpus: int  # of the largest of them
    chunk: int
    user: str
    vc: str
    backward: int  # attempts that end before they start; they are left out

    @property
    def fault(self) -> str:
        """Return why the job cannot be used; empty if it can."""
        wrong = {
            "no submit time": np.isnan(self.submit),
            "end before start": np.isnan(self.runtime) and self.backward > 0,
            "no run time": np.isnan(self.runtime),
            "start before submit": self.start < self.submit,
            "no GPU count": self.gpus == 0,
        }
        return next((reason for reason, bad in wrong.items() if bad), "")


def read(path: Path, limits: Limits) -> Workload:
    """Read the log. An attempt with a start and a later end counts; jobs without one, or that start before their submit, are dropped."""
    document = JsonText(path, replace(limits, size=min(limits.size, MAX_BYTES)))
    every = {number: _job(row, f"{path}: job {number}") for number, (row, _) in enumerate(document.listed(), 1)}
    kept = {number: job for number, job in every.items() if not job.fault}
    dropped = dict(Counter(job.fault for job in every.values() if job.fault))
    if not kept:
        raise no_usable_job(path, dropped)
    return _workload(path.name, kept, dropped)


def _job(row: object, where: str) -> _Job:
    if not isinstance(row, dict):
        raise DataError(f"{where}: is not an object")
    attempts = row.get("attempts") or []
    if not isinstance(attempts, list) or not all(isinstance(attempt, dict) for attempt in attempts):
        raise DataError(f"{where}: attempts is not a list of objects")
    starts, spent, shapes, backward = [], 0.0, [], 0
    for attempt in attempts:
        start, end = _instant(attempt, "start_time", where), _instant(attempt, "end_time", where)
        if np.isnan(start) or np.isnan(end):
            continue
        if end < start:
            backward += 1
            continue
        starts.append(start)
        spent += end - start
        shapes.append(_machines(attempt, where))
    largest = max(shapes, key=sum, default=[])
    return _Job(
        _instant(row, "submitted_time", where), min(starts, default=np.nan), spent if starts else np.nan, sum(largest),
        largest[0] if len(set(largest)) == 1 else 1, _text(row, "user"), _text(row, "vc"), backward,
    )  # fmt: skip


def _machines(attempt: Mapping[str, Any], where: str) -> list[int]:
    """Return the GPUs on each machine."""
    detail = attempt.get("detail") or []
    if not isinstance(detail, list) or not all(isinstance(part, dict) and isinstance(part.get("gpus", []), list) for part in detail):
        raise DataError(f"{where}: detail is not a list of machines with gpus")
    counts = [len(part.get("gpus", [])) for part in detail]
    if sum(counts) > MAX_GPUS:
        raise DataError(f"{where}: {sum(counts):,} GPUs; at most {MAX_GPUS:,}")
    return [count for count in counts if count]


def _instant(row: Mapping[str, Any], key: str, where: str) -> float:
    """Return seconds since 1970; nan where nothing is given."""
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
    backward = sum(job.backward for job in jobs)
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
        notes=(
            origin_note(round(origin)), _NOTE,
            *([f"{backward:,} attempts end before they start: they are left out"] if backward else []),
        ),
    )  # fmt: skip


def _labels(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    found = sorted(set(texts))
    number = {text: k for k, text in enumerate(found)}
    return found, [number[text] for text in texts]
