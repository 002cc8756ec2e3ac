"""Readers of LSF's job lists: `bjobs -json`, and `bjobs -o "… delimiter='|'"` as text."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from gpuyard.errors import DataError
from gpuyard.model.site.lsf_notation import DATE, MONTHS, GpusPer, gpus_asked, host_slots, lsf_seconds, slots_of
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import check_count
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits
from gpuyard.traces.readers.batch.records import JobRecord, collect, lines_of
from gpuyard.traces.readers.batch.table import Layout, header_layout, split
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of
from gpuyard.traces.readers.json_text import JSON_LIMITS, JsonText, table, text

_OBJECT = re.compile(r"^[ \t]*(?=\{)", re.M)
_ASSUMED_YEAR = 2000  # of the latest date, where dates have no year; a leap year
_COLUMNS = frozenset(
    {
        "jobid", "stat", "user", "queue", "proj", "proj_name", "from_host", "exec_host", "job_name", "submit_time", "start_time",
        "finish_time", "run_time", "cpu_used", "mem", "slots", "nexec_host", "nalloc_slot", "nreq_slot", "runtimelimit", "time_left",
        "gpu_num", "effective_resreq", "swap", "idle_factor", "%complete", "exit_code",
    }
)  # fmt: skip
_Dates = dict[str, float]


def _is_text(head: Head) -> Layout | None:
    layout = header_layout(head.lines, _COLUMNS)
    return layout if layout is not None and {"jobid", "stat"} <= set(layout.names) and layout.delimiter in "|;\t," else None


def _is_json(head: Head) -> bool:
    start = "\n".join(head.lines)
    return re.search(r'"COMMAND"\s*:\s*"bjobs"', start) is not None or ('"RECORDS"' in start and '"STAT"' in start)


@reader("bjobs-json", glob="*bjobs*.json", title="LSF's job list, bjobs -json", sniff=_is_json)
def read_bjobs_json(
    path: Path, *, count: Count = "auto", gangs: Gangs = "free", gpus_per: GpusPer = "host", year: int = 0, limits: Limits = JSON_LIMITS
) -> Workload:
    """Read the ended jobs that `bjobs -a -json -o …` lists; needs jobid, stat, submit_time, start_time, and finish_time or run_time.

    `count`: whether a device is a GPU, a slot (`cpus`) or a whole host (`nodes`). `gangs`: `as-run` keeps a job's GPUs on a host together.
    `gpus_per`: whether the resource requirement counts GPUs per host, per task or per job. `year`: the year of the latest date, where
    dates have none (2000 otherwise; only differences matter). Lines around the JSON, such as warnings, are ignored.
    """
    document = JsonText(path, limits)
    rows = [(document.line(at), {key.lower(): text(value) for key, value in table(record).items()}) for record, at in _objects(document)]
    return _workload(path, rows, gpus_per, year, count, gangs)


@reader("bjobs", glob="*bjobs*.txt", title="LSF's job list, bjobs -o with a delimiter", sniff=lambda head: _is_text(head) is not None)
def read_bjobs(
    path: Path, *, count: Count = "auto", gangs: Gangs = "free", gpus_per: GpusPer = "host", year: int = 0, limits: Limits = DEFAULT_LIMITS
) -> Workload:
    """Read the ended jobs that `bjobs -a -o "jobid stat … delimiter='|'"` lists, with a header line; parameters as for `bjobs-json`."""
    rows: list[tuple[int, dict[str, str]]] = []
    layout: Layout | None = None
    for number, line in lines_of(path, limits):
        if layout is None:
            layout = header_layout([line], _COLUMNS)
            if layout is None or "jobid" not in layout.names:
                raise DataError(f"{path}:{number}: no header line with JOBID")
            continue
        values = split(line, layout.delimiter)
        if len(values) != len(layout.names):
            raise DataError(f"{path}:{number}: {len(values)} fields instead of {len(layout.names)}", hint="the header names the fields")
        rows.append((number, {key: "" if value == "-" else value for key, value in zip(layout.names, values, strict=True)}))
        check_count(path, len(rows), limits)
    return _workload(path, rows, gpus_per, year, count, gangs)


def _objects(document: JsonText) -> Iterator[tuple[object, int]]:
    """Yield the records of each JSON object that begins a line; ignore text between objects."""
    at = 0
    while match := _OBJECT.search(document.text, at):
        for key, element, place in document.members(match.end(), "RECORDS"):
            if key == "RECORDS":
                if not isinstance(element, dict):
                    raise document.error(place, "a record is not a JSON object")
                yield element, place
            elif key == "":
                at = place


def _workload(path: Path, rows: list[tuple[int, dict[str, str]]], gpus_per: GpusPer, year: int, count: Count, gangs: Gangs) -> Workload:
    dates, notes = _dates(path, rows, year)
    found = [_record(path, line, row, dates, gpus_per) for line, row in rows]
    return workload_of(collect(path, found, notes=notes), count=count, gangs=gangs)


def _dates(path: Path, rows: list[tuple[int, dict[str, str]]], year: int) -> tuple[_Dates, tuple[str, ...]]:
    """Map every date to seconds since 1970. Where years are missing, the new year falls into the longest gap between dates."""
    given: _Dates = {}
    bare: dict[str, tuple[int, ...]] = {}
    for line, row in rows:
        for name in ("submit_time", "start_time", "finish_time"):
            value = row.get(name, "")
            match = DATE.fullmatch(value.strip())
            if not value.strip() or value in given or value in bare:
                continue
            if not match or match[1].lower() not in MONTHS:
                raise DataError(f"{path}:{line}: {name} = {value[:40]!r} is not a date such as Dec 28 19:56")
            parts = (MONTHS[match[1].lower()], *(int(part or 0) for part in match.groups()[1:5]))
            if match[6]:
                given[value] = _seconds(path, line, value, int(match[6]), parts)
            else:
                bare[value] = parts
                _seconds(path, line, value, _ASSUMED_YEAR, parts)
    if not bare:
        return given, ()
    order = sorted(set(bare.values()))
    place = [_seconds(path, 0, "", _ASSUMED_YEAR, parts) for parts in order]
    gaps = [b - a for a, b in zip(place, [*place[1:], place[0] + 366 * 86400.0], strict=True)]
    last = order[max(range(len(gaps)), key=lambda k: (gaps[k], k))]
    latest = year or _ASSUMED_YEAR
    for value, parts in bare.items():
        given[value] = _seconds(path, 0, value, latest if parts <= last else latest - 1, parts)
    return given, () if year else (f"dates have no year: the latest is assumed to be in {latest}",)


def _seconds(path: Path, line: int, value: str, year: int, parts: tuple[int, ...]) -> float:
    try:
        month, day, hour, minute, second = parts
        return datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
    except ValueError:
        raise DataError(f"{path}{f':{line}' if line else ''}: {value[:40]!r} is not a date in {year}") from None


def _record(path: Path, line: int, row: dict[str, str], dates: _Dates, gpus_per: GpusPer) -> JobRecord:
    match = re.fullmatch(r"(\d{1,15})(?:\[(\d{1,9})\])?", row.get("jobid", "").strip())
    if not match:
        raise DataError(f"{path}:{line}: jobid = {row.get('jobid', '')[:40]!r} is not a job id")
    try:
        elapsed, limit = lsf_seconds(row.get("run_time", ""), 1.0), lsf_seconds(row.get("runtimelimit", ""), 60.0)
        slots = next((slots_of(row[name]) for name in ("nalloc_slot", "slots", "nreq_slot") if row.get(name, "").strip()), math.nan)
        asked = slots_of(row["gpu_num"]) if row.get("gpu_num", "").strip() else math.nan
    except ValueError as error:
        raise DataError(f"{path}:{line}: {error}") from None
    hosts: Counter[str] = host_slots([host for host in row.get("exec_host", "").split(":") if host.strip()])
    start = dates.get(row.get("start_time", ""), math.nan)
    slots = slots if slots > 0 else float(sum(hosts.values()))
    gpus, kind = gpus_asked([row.get("effective_resreq", "")], len(hosts), int(slots), gpus_per)
    return JobRecord(
        line, match[0], int(match[1]), state=row.get("stat", ""), submit=dates.get(row.get("submit_time", ""), math.nan), start=start,
        end=start + elapsed if elapsed > 0 else dates.get(row.get("finish_time", ""), math.nan), elapsed=elapsed,
        walltime=limit if limit > 0 else math.inf, gpus=asked if asked > 0 else gpus, cpus=slots, nodes=float(len(hosts)),
        user=row.get("user", ""), partition=row.get("queue", ""), account=row.get("proj_name", "") or row.get("proj", ""), asked_type=kind,
        ran_type=kind, node_list=",".join(hosts), unassigned=not hosts,
    )  # fmt: skip
