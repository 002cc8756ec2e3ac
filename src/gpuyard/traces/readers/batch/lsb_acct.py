"""Reader of LSF's `lsb.acct` (LSF 7 to 10.1, OpenLava): a JOB_FINISH record per line, in which lists shift the fields after them."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path

from gpuyard.errors import DataError
from gpuyard.model.site.lsf_notation import GpusPer, gpus_asked, host_slots
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import check_count
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.batch.records import JobRecord, collect, lines_of
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of

_FIELD = re.compile(r'"([^"]*(?:""[^"]*)*)"|([^\s"]+)')
_ASKED_HOSTS = 22  # place of the number of asked hosts
_RESOURCE_USE = 19  # numbers of rusage
_OPTIONS = 30  # fields from there to the number of submission options, each a key and a value
_HOST_USE = 6  # fields about each host with its resource usage; after them run limit, flags, mean memory, effective requirement


def _sniff(head: Head) -> bool:
    lines = [line for line in head.lines if not line.startswith("#")]
    begins = lines and re.match(r'"[A-Z_0-9]+" "[\d.]+" \d+ ', lines[0])
    return bool(begins) and any(line.startswith('"JOB_FINISH"') for line in lines)


@reader("lsb-acct", glob=("*lsb.acct*", "*lsb_acct*"), title="LSF accounting, lsb.acct", sniff=_sniff)
def read_lsb_acct(
    path: Path, *, count: Count = "auto", gangs: Gangs = "free", gpus_per: GpusPer = "host", limits: Limits = DEFAULT_LIMITS
) -> Workload:
    """Read the jobs of JOB_FINISH records; a slot is a core. Other records and comments are counted as dropped.

    `count`: whether a device is a GPU, a slot (`cpus`) or a whole host (`nodes`). `gangs`: `as-run` keeps a job's GPUs on a host together.
    `gpus_per`: whether GPUs are asked for per host, per task or per job, where the record does not say; LSF counts per host unless
    RESOURCE_RESERVE_PER_TASK is set.
    """
    found: list[JobRecord] = []
    dropped: Counter[str] = Counter()
    for number, line in lines_of(path, limits):
        if not line.startswith('"JOB_FINISH" '):
            dropped["comment" if line.startswith("#") else "record other than JOB_FINISH"] += 1
            continue
        found.append(_record(path, number, line, gpus_per))
        check_count(path, len(found), limits)
    return workload_of(collect(path, found, dropped=dict(dropped)), count=count, gangs=gangs)


class _Fields:
    """The fields of a line by position, without their quotes."""

    def __init__(self, path: Path, line: int, text: str) -> None:
        self.place = f"{path}:{line}"
        found = list(_FIELD.finditer(text))
        covered = sum(match.end() - match.start() for match in found)
        if covered != len(text) - sum(letter in " \t\r" for letter in _FIELD.sub("", text)):
            raise DataError(f"{self.place}: a quoted field is never closed")
        self.values = [match[2] if match[1] is None else match[1].replace('""', '"') for match in found]
        self.quoted = [match[1] is not None for match in found]

    def text(self, at: int) -> str:
        if not 0 <= at < len(self.values):
            raise DataError(
                f"{self.place}: the record breaks off after {len(self.values)} fields", hint="was the file copied while it was written?"
            )
        return self.values[at]

    def whole(self, at: int, name: str) -> int:
        value = self.text(at)
        if self.quoted[at] or not re.fullmatch(r"-?\d{1,15}", value):
            raise DataError(f"{self.place}: field {at + 1} ({name}) = {value[:40]!r} is not a whole number")
        return int(value)

    def length(self, at: int, name: str) -> int:
        """Return the number of fields in the list that follows."""
        count = self.whole(at, name)
        if not 0 <= count <= len(self.values) - at:
            raise DataError(f"{self.place}: field {at + 1} ({name}) = {count}, but {len(self.values) - at - 1} fields follow")
        return count


def _record(path: Path, line: int, text: str, gpus_per: GpusPer) -> JobRecord:
    fields = _Fields(path, line, text)
    end, job, processors, submit = (
        fields.whole(k, name) for k, name in ((2, "event time"), (3, "job id"), (6, "processors"), (7, "submit"))
    )
    start = fields.whole(10, "start")
    asked = fields.length(_ASKED_HOSTS, "asked hosts")
    at = _ASKED_HOSTS + 1 + asked
    listed = fields.length(at, "execution hosts")
    hosts = host_slots(fields.values[at + 1 : at + 1 + listed])
    after = at + 1 + listed + 4 + _RESOURCE_USE  # status, host factor, name, command, rusage
    project = fields.text(after + 1)
    index, limit, requirement = _tail(fields, after)
    slots = sum(hosts.values()) or processors
    gpus, kind = gpus_asked([fields.text(13), requirement, *_options(fields, after)], len(hosts), slots, gpus_per)
    return JobRecord(
        line, f"{job}[{index}]" if index else str(job), job,
        state="EXIT" if fields.whole(at + 1 + listed, "status") & 32 else "DONE",
        submit=float(submit) if submit > 0 else math.nan, start=float(start) if start > 0 else math.nan, end=float(end),
        walltime=float(limit) if limit > 0 else math.inf, gpus=gpus, cpus=float(slots), nodes=float(len(hosts)), user=fields.text(11),
        partition=fields.text(12), account=project, asked_type=kind, ran_type=kind, node_list=",".join(hosts), unassigned=not hosts,
    )  # fmt: skip


def _tail(fields: _Fields, after: int) -> tuple[int, int, str]:
    """Return the index in a job array, the run limit in s (0: none) and the effective requirement; older records end before those."""
    if len(fields.values) <= after + _OPTIONS:
        return _index(fields, after + 5), 0, ""  # OpenLava: no field for the time event
    at = after + _OPTIONS
    at += 1 + 2 * fields.length(at, "submission options")
    used = fields.length(at, "hosts with resource usage") if at < len(fields.values) else 0
    limit = at + 1 + _HOST_USE * used
    known = limit + 3 < len(fields.values) and fields.quoted[limit + 3]
    return _index(fields, after + 6), fields.whole(limit, "run limit") if known else 0, fields.values[limit + 3] if known else ""


def _index(fields: _Fields, at: int) -> int:
    value = fields.values[at] if at < len(fields.values) else "0"
    return int(value) if re.fullmatch(r"\d{1,9}", value) else 0


def _options(fields: _Fields, after: int) -> list[str]:
    """Return the GPU requirements among the later fields, such as `num=2:mode=shared`."""
    return [value for value, quoted in zip(fields.values[after:], fields.quoted[after:], strict=True) if quoted and "num=" in value]
