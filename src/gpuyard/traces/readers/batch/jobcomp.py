"""Reader of Slurm's jobcomp/filetxt log, one line for each job that ended: `JobId=… UserId=… Name=…`."""

from __future__ import annotations

import math
import re
from pathlib import Path

from gpuyard.errors import DataError
from gpuyard.model.site.notation import instant_of, minutes_of, tres_of
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import check_count
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.batch.records import JobRecord, collect, lines_of
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of

_KEYS = (
    "JobId", "UserId", "GroupId", "Name", "JobState", "Partition", "TimeLimit", "StartTime", "EndTime", "NodeList", "NodeCnt", "ProcCnt",
    "WorkDir", "ReservationName", "Tres", "Gres", "Account", "QOS", "WcKey", "Cluster", "SubmitTime", "EligibleTime",
    "ArrayJobId", "ArrayTaskId", "HetJobId", "HetJobOffset", "DerivedExitCode", "ExitCode",
)  # fmt: skip
_PAIR = re.compile(rf"(?:^| )({'|'.join(_KEYS)})=")
_NEEDED = ("JobState", "StartTime", "EndTime")


def _sniff(head: Head) -> bool:
    first = head.lines[0] if head.lines else ""
    return first.startswith("JobId=") and all(f" {key}=" in first for key in _NEEDED) and " ProcCnt=" in first


@reader("jobcomp", glob=("*jobcomp*.txt*", "*jobcomp*.log*"), title="Slurm's jobcomp/filetxt log", sniff=_sniff)
def read_jobcomp(path: Path, *, count: Count = "auto", gangs: Gangs = "free", limits: Limits = DEFAULT_LIMITS) -> Workload:
    """Read the jobs of a jobcomp/filetxt log. Its `Tres` holds GPUs only where accounting goes to slurmdbd.

    `count`: whether a device is a GPU, a CPU core or a whole node. `gangs`: `as-run` keeps a job's GPUs on a node together.
    """
    found: list[JobRecord] = []
    for number, line in lines_of(path, limits):
        found.append(_record(path, number, line))
        check_count(path, len(found), limits)
    return workload_of(collect(path, found), count=count, gangs=gangs)


def _pairs(line: str) -> dict[str, str]:
    """Return the values of the known keys, each where it occurs first: a job's name may hold anything."""
    marks = list(_PAIR.finditer(line))
    found: dict[str, str] = {}
    for k, mark in enumerate(marks):
        end = marks[k + 1].start() if k + 1 < len(marks) else len(line)
        found.setdefault(mark[1], line[mark.end() : end].strip())
    return found


def _record(path: Path, line: int, text: str) -> JobRecord:
    pair = _pairs(text)
    if not re.fullmatch(r"\d{1,15}", pair.get("JobId", "")):
        raise DataError(f"{path}:{line}: no JobId=NUMBER")
    key = "JobId"
    try:
        values = {}
        for key, parse in (("SubmitTime", instant_of), ("StartTime", instant_of), ("EndTime", instant_of), ("TimeLimit", minutes_of)):
            values[key] = parse(pair[key]) if pair.get(key) else math.nan
        key = "Tres"
        got = tres_of(pair.get("Tres", ""))
        key = "ProcCnt"
        cpus, nodes = (_count(pair.get(name, "")) for name in ("ProcCnt", "NodeCnt"))
    except ValueError as error:
        raise DataError(f"{path}:{line}: {key} = {pair.get(key, '')[:40]!r} {error}") from None
    nodes_named = "" if pair.get("NodeList", "") in ("", "(null)", "None", "None assigned") else pair["NodeList"]
    return JobRecord(
        line, pair["JobId"], int(pair["JobId"]), state=pair.get("JobState", ""), submit=values["SubmitTime"], start=values["StartTime"],
        end=values["EndTime"], walltime=math.inf if math.isnan(values["TimeLimit"]) else values["TimeLimit"], gpus=got.gpus,
        cpus=cpus if cpus > 0 else got.cpus, nodes=nodes, memory=got.memory, user=pair.get("UserId", "").partition("(")[0],
        partition=pair.get("Partition", ""), qos=pair.get("QOS", ""), account=pair.get("Account", ""), asked_type=got.gpu_type,
        ran_type=got.gpu_type, node_list=nodes_named, unassigned=not nodes_named,
    )  # fmt: skip


def _count(text: str) -> float:
    if text and not re.fullmatch(r"\d{1,9}", text):
        raise ValueError("is not a count")
    return float(text or math.nan)
