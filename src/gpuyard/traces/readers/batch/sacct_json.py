"""Reader of `sacct --json`, from the schema of 21.08 to those with `{set, infinite, number}` objects."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError
from gpuyard.model.site.notation import NO_LIMIT, Resources, resources, type_label
from gpuyard.model.units import MIB
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import Head, Limits
from gpuyard.traces.readers.batch.records import JobRecord, collect
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of
from gpuyard.traces.readers.json_text import JSON_LIMITS, JsonText, number, table, text


def _sniff(head: Head) -> bool:
    start = "\n".join(head.lines)[:65536]
    about = '"slurm"' in start.lower() or '"association"' in start or '"allocation_nodes"' in start
    listed = '"jobs"' in start and ('"submission"' in start or "openapi\\/db" in start or "sacct" in start)
    return start.lstrip().startswith("{") and about and listed


@reader("sacct-json", glob="*sacct*.json", title="Slurm accounting, sacct --json", sniff=_sniff)
def read_sacct_json(path: Path, *, count: Count = "auto", gangs: Gangs = "free", limits: Limits = JSON_LIMITS) -> Workload:
    """Read the jobs of `sacct --json`; each run of a requeued job (several records of one id) counts as a job.

    `count`: whether a device is a GPU, a CPU core or a whole node. `gangs`: `as-run` keeps a job's GPUs on a node together.
    """
    document = JsonText(path, limits)
    found = []
    for key, job, at in document.members(0, "jobs"):
        if key == "jobs":
            if not isinstance(job, dict):
                raise document.error(at, "a job is not a JSON object")
            found.append(_record(document, job, at))
    if not found:
        raise DataError(f"{path}: no jobs in the file")
    return workload_of(collect(path, found), count=count, gangs=gangs)


def _record(document: JsonText, job: dict[str, Any], at: int) -> JobRecord:
    job_id = number(job.get("job_id"), math.nan)
    if not 0 <= job_id < 2**53:
        raise document.error(at, "a job without a job_id")
    times, tres = table(job.get("time")), table(job.get("tres"))
    got, asked = _tres(tres.get("allocated")), _tres(tres.get("requested"))
    limit = number(times.get("limit"), 0.0)
    nodes = text(job.get("nodes"))
    unassigned = nodes in ("", "None assigned", "None")
    ran_type = got.gpu_type or asked.gpu_type
    try:
        cpus = _positive(got.cpus, asked.cpus, number(table(job.get("required")).get("CPUs"), 0.0))
        return JobRecord(
            document.line(at), _key(job, int(job_id)), int(job_id), state=_state(job.get("state")),
            submit=_instant(times.get("submission")),
            start=_instant(times.get("start")), end=_instant(times.get("end")), elapsed=number(times.get("elapsed"), math.nan),
            walltime=60.0 * limit if 0 < limit < NO_LIMIT else math.inf, gpus=_positive(got.gpus, asked.gpus), cpus=cpus,
            nodes=_positive(got.nodes, number(job.get("allocation_nodes"), 0.0), asked.nodes), memory=_positive(got.memory, asked.memory),
            priority=number(job.get("priority"), math.nan), user=text(job.get("user")) or text(table(job.get("association")).get("user")),
            partition=text(job.get("partition")), qos=text(job.get("qos")), account=text(job.get("account")),
            asked_type="" if asked.gpus > 0 and not asked.gpu_type else ran_type, ran_type=ran_type,
            node_list="" if unassigned else nodes, unassigned=unassigned,
        )  # fmt: skip
    except ValueError as error:
        raise document.error(at, f"job {int(job_id)} {error}") from None


def _key(job: dict[str, Any], job_id: int) -> str:
    """Return the id as sacct writes it, with the task of an array or the part of a heterogeneous job."""
    array, het = table(job.get("array")), table(job.get("het"))
    task, first = number(array.get("task_id"), math.nan), number(array.get("job_id"), 0.0)
    if first > 0 and not math.isnan(task):
        return f"{int(first)}_{int(task)}/{job_id}"
    lead, offset = number(het.get("job_id"), 0.0), number(het.get("job_offset"), math.nan)
    return f"{int(lead)}+{int(offset)}" if lead > 0 and not math.isnan(offset) else str(job_id)


def _state(value: object) -> str:
    """Read `state.current`: a text, or from 23.02 on a list of texts."""
    current = value.get("current") if isinstance(value, dict) else value
    first = current[0] if isinstance(current, list) and current else current
    return text(first)


def _instant(value: object) -> float:
    found = number(value, 0.0)
    return found if 0 < found < NO_LIMIT else math.nan


def _tres(value: object) -> Resources:
    amount: dict[str, float] = {}
    typed: dict[str, float] = {}
    for each in value if isinstance(value, list) else []:
        kind, name, count = text(table(each).get("type")), text(table(each).get("name")), number(table(each).get("count"), 0.0)
        if kind == "gres" and name.startswith("gpu:"):
            typed[type_label(name[4:])] = typed.get(type_label(name[4:]), 0.0) + count
        elif kind == "gres" and name == "gpu":
            amount["gpu"] = count
        elif kind in ("cpu", "mem", "node"):
            amount[kind] = count
    memory = amount["mem"] * MIB if "mem" in amount else None
    return resources(amount.get("cpu"), memory, amount.get("node"), amount.get("gpu"), typed)


def _positive(*values: float) -> float:
    """Return the first value above 0, else 0."""
    return next((value for value in values if value > 0), 0.0)
