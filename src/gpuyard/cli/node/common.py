"""Shared by the verbs of a node: the folder, numbers of jobs, times in words, tables of jobs."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from gpuyard.cli.common.output import Table
from gpuyard.live.node.jobs import NodeJob, RunState
from gpuyard.model.units import clean, format_seconds

Folder = Annotated[
    Path | None, typer.Option(metavar="DIR", help="The folder of the node; $GPUYARD_NODE, or ~/.local/state/gpuyard/node unless given.")
]
Ids = Annotated[list[str], typer.Argument(metavar="ID", help="Numbers of jobs: 12, 12-20 or 12,15.", show_default=False)]
SomeIds = Annotated[list[str] | None, typer.Argument(metavar="ID", help="Numbers of jobs: 12, 12-20 or 12,15.", show_default=False)]
Job = Mapping[str, Any]
Column = tuple[str, Callable[[NodeJob, float], str], bool]  # header, text at a time, whether it is text
LONG = 40  # characters of a command in a table


def command_text(job: NodeJob, length: int = LONG) -> str:
    """Return the job's name, or else the beginning of its command."""
    text = job.asked.name or " ".join(job.asked.command)
    text = " ".join(clean(text).split())
    number = f" [{job.array[1]}]" if job.array[0] else ""
    return (text if len(text) <= length else f"{text[: length - 1]}…") + number


def devices_text(job: NodeJob) -> str:
    """Say what a job asks for."""
    if job.asked.gpus > 0:
        return f"{job.asked.gpus:g} GPU"
    if job.asked.gpus < 0 and job.devices and not job.devices[0].startswith("cpu"):
        return f"{len(job.devices)} GPU"
    return f"{job.asked.cpus:g} CPU"


def waited(job: NodeJob, now: float) -> float:
    """Return for how many s the job has waited, before its present or last run and the ones before that."""
    began = job.start if job.start and job.state is not RunState.pending else job.end if job.state.ended else now
    return max(began - job.submit, 0.0)


def ran(job: NodeJob, now: float) -> float:
    """Return for how many s the job has run."""
    if job.state is RunState.pending or not job.start:
        return job.ran
    return job.ran + max((job.end or now) - job.start, 0.0)


def span(seconds: float) -> str:
    """Write a span for people; whole seconds are enough."""
    if not 0 < seconds < 1:
        return format_seconds(round(seconds) if seconds < math.inf else seconds)
    return "<1s"


def clock(at: float, now: float) -> str:
    """Write an instant for people: the time of day, with the date if that is another day."""
    there, here = time.localtime(at), time.localtime(now)
    return time.strftime("%H:%M:%S" if there[:3] == here[:3] else "%Y-%m-%d %H:%M", there)


def record(job: NodeJob, now: float) -> dict[str, Any]:
    """Return a job for machines: times in s since 1970, spans in s; None where there is none."""
    asked = job.asked
    return {
        "id": job.id, "name": asked.name, "state": job.state.value, "reason": job.reason, "user": job.user, "submit": job.submit,
        "start": job.start or None, "end": job.end or None, "wait": waited(job, now), "ran": ran(job, now),
        "expected": job.expected or None, "gpus": asked.gpus if asked.gpus >= 0 else None, "gpu_memory": asked.gpu_memory or None,
        "cpus": asked.cpus, "memory": asked.memory or None, "walltime": asked.walltime if asked.walltime < math.inf else None,
        "deadline": asked.deadline if asked.deadline < math.inf else None, "priority": asked.priority, "class": asked.job_class,
        "exit_code": job.exit_code, "signal": job.signal or None, "devices": " ".join(job.devices), "energy": job.energy,
        "attempts": job.attempt, "preemptions": job.preemptions, "array": job.array[0] or None,
        "array_index": job.array[1] if job.array[0] else None, "held": job.held, "command": " ".join(asked.command), "cwd": asked.cwd,
    }  # fmt: skip


def jobs_table(jobs: Sequence[NodeJob], columns: Sequence[Column], now: float, caption: str = "") -> Table:
    """Lay jobs out with a row each."""
    rows = [tuple(text(job, now) for _, text, _ in columns) for job in jobs]
    return Table(tuple(name for name, _, _ in columns), rows, left=frozenset(k for k, column in enumerate(columns) if column[2]),
                 caption=caption)  # fmt: skip
