"""Reads bjobs, bhosts, lshosts, lsload and bqueues: JSON (`-o … -json`), tables with a delimiter, and tables in columns.

What LSF prints around them (banners, "Cannot connect to LSF. Please wait ...") is skipped. Every value is a text, dates have no year
unless LSB_DISPLAY_YEAR=Y, and a host has a line for each of its GPUs.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from gpuyard.errors import DataError
from gpuyard.live.lsf.marks import HELD, mark_of
from gpuyard.live.state.site import SiteJob, SiteNode, SitePartition, SiteState
from gpuyard.model.site.lsf_notation import DATE, MONTHS, gpus_asked, host_slots, lsf_seconds, slots_of
from gpuyard.model.site.notation import gigabytes_of, type_label

Fields = dict[str, str]
_SAYS_NOTHING = frozenset({"", "-", "n/a"})
_WAITS, _RUNS = {"PEND", "PSUSP", "WAIT", "FWD_PEND"}, {"RUN", "USUSP", "SSUSP", "PROV", "UNKWN"}
_CLOSED = ("closed_adm", "closed_lock", "closed_wind", "closed_rc", "closed_clouds", "unavail", "unreach", "unlicensed", "closed_cu")
_WHY = {  # what a pending reason contains → ours
    "never satisfied": "after-failed", "dependency": "after", "start time": "begin", "array limit": "array-limit", "reserv": "reservation",
    "limit": "account-limit", "licen": "licence", "queue is": "partition-limit", "queue has": "partition-limit",
}  # fmt: skip
_PTILE = re.compile(r"span\s*\[\s*ptile\s*=\s*([1-9]\d{0,5})\s*\]")
_ENDED = {"DONE", "EXIT"}
_DAY = 86_400.0
MAX_ROWS = 1_000_000


@dataclass
class LsfTables:
    """Merges what the outputs say: jobs and queues by row, hosts by name, GPUs by host."""

    jobs: list[tuple[str, Fields]] = field(default_factory=list)  # with the place
    hosts: dict[str, Fields] = field(default_factory=dict)
    gpus: dict[str, Counter[str]] = field(default_factory=dict)  # host → type → GPUs
    queues: dict[str, Fields] = field(default_factory=dict)

    def add(self, text: str, where: str) -> bool:
        """Add the output of a command; return False if it is none of LSF's."""
        found = False
        for place, row in _rows(text, where):
            found = found or "jobid" in row or "queue_name" in row or "host_name" in row
            if "jobid" in row and "stat" in row:
                self.jobs.append((place, row))
            elif "queue_name" in row:
                self.queues[row["queue_name"]] = row
            elif "gpu_model" in row or ("model" in row and "gpu_id" in row):
                kinds = self.gpus.setdefault(row["host_name"], Counter())
                kinds[type_label(row.get("gpu_model") or row["model"])] += 1
            elif "host_name" in row:
                self.hosts.setdefault(row["host_name"], {}).update(row)
            if len(self.jobs) > MAX_ROWS or len(self.hosts) > MAX_ROWS:
                raise DataError(f"{where}: more than {MAX_ROWS:,} rows")
        return found


# ── rows ──


def _rows(text: str, where: str) -> Iterator[tuple[str, Fields]]:
    """Yield place and fields, by lower-case names, of each row of whatever LSF printed."""
    begin = re.search(r"^\s*\{", text, re.M)
    if begin is not None:
        yield from _json_rows(text, begin.end() - 1, where)
        return
    header: list[str] = []
    mark: str | None = None
    host = ""
    for number, line in enumerate(text.splitlines(), 1):
        words = line.replace("|", " ").split()
        if words and words[0] in ("JOBID", "HOST_NAME", "QUEUE_NAME") and len(words) > 1:
            mark = "|" if "|" in line else None
            header = [name.strip().lower() for name in line.split(mark)]
        elif header and words:
            values = [value.strip() for value in line.split(mark)]
            if mark is None and line[0].isspace() and len(values) == len(header) - 1:  # a further GPU of the host above
                values = [host, *values]
            if len(values) == len(header):  # anything else is a banner
                host = values[0]
                yield f"{where}:{number}", dict(zip(header, values, strict=True))


def _json_rows(text: str, begin: int, where: str) -> Iterator[tuple[str, Fields]]:
    """Yield the records of the JSON that begins there; text after it is ignored."""
    if text.count("{") + text.count("[") > MAX_ROWS:
        raise DataError(f"{where}: more than {MAX_ROWS:,} tables and lists")
    try:
        found, _ = json.JSONDecoder().raw_decode(text, begin)
    except (ValueError, RecursionError) as error:
        raise DataError(f"{where}: not JSON: {str(error)[:100] or 'nested too deeply'}") from None
    records = found.get("RECORDS")
    if not isinstance(records, list) or not all(isinstance(each, dict) for each in records):
        raise DataError(f"{where}: has no list 'RECORDS'", hint="bjobs -o '…' -json writes one")
    for number, record in enumerate(records, 1):
        yield f"{where}: RECORDS[{number}]", {name.lower(): "" if value is None else str(value) for name, value in record.items()}


# ── the state ──


def lsf_state(tables: LsfTables, now: float | None, today: float) -> SiteState:
    """Make the state. `now` in s since 1970, or None for the latest time in the tables; dates without a year lie before `today`."""
    when = today if now is None else now
    jobs = [_job(row, place, when) for place, row in tables.jobs]
    known = [job for job in jobs if job is not None]
    alive = [job for job in known if job.waits or job.runs]
    times = [time for job in alive for time in (job.submit, job.start) if time == time]
    names = {name for job in alive for name in job.partitions} | set(tables.queues)
    nodes = [_node(name, row, tables.gpus.get(name), tuple(sorted(names)) or ("lsf",)) for name, row in tables.hosts.items()]
    partitions = [_partition(row) for row in tables.queues.values()]
    notes = ("which hosts a queue may use is not read: every queue is taken to use all of them",) if len(names) > 1 else ()
    return SiteState(max(times, default=when) if now is None else now, known, nodes, partitions, "lsf", notes)


def _job(row: Mapping[str, str], where: str, now: float) -> SiteJob | None:
    """Make a job; None for one that is in no state of interest."""
    match = re.fullmatch(r"(\d{1,10})(?:\[(\d{1,7})\])?", row["jobid"].strip())
    if match is None:
        raise DataError(f"{where}: JOBID = {row['jobid'][:40]!r} is not the number of a job")
    stat = row["stat"].strip().upper()
    if stat not in _WAITS | _RUNS | _ENDED:
        return None
    number, task = int(match[1]), int(match[2] or _said(row, "jobindex") or 0)
    try:
        hosts = host_slots([host for host in _said(row, "exec_host").split(":") if host])
        slots = slots_of(_said(row, "slots", "nalloc_slot", "nreq_slot") or "1")
        limit = lsf_seconds(_said(row, "runtimelimit"), 60.0)
        texts = [_said(row, "effective_resreq", "combined_resreq"), _said(row, "gpu_combined")]
        tiles = _tiles(texts[0], int(slots)) if not hosts else len(hosts)
        asked, kind = gpus_asked(texts, tiles, int(slots), "host")
        given = _said(row, "gpu_num")
        gpus = int(slots_of(given)) if given else 0 if math.isnan(asked) else int(asked)
        submit, start = (_date(_said(row, name), now) for name in ("submit_time", "start_time"))
        ran = lsf_seconds(_said(row, "run_time"), 1.0) if stat in _ENDED else math.nan
    except ValueError as error:
        raise DataError(f"{where}: {error}") from None
    mark, chunk = mark_of(_said(row, "job_description")), gpus // tiles if gpus and gpus % tiles == 0 else 1
    return SiteJob(
        number, number if task else 0, task or -1, f"{number}[{task}]" if task else match[1], stat in _WAITS, stat in _RUNS,
        "begin" if mark.held and stat == "PSUSP" else _why(stat, row), HELD if mark.held else _said(row, "pend_reason") or stat,
        (_said(row, "queue") or "lsf",), _said(row, "user"), _said(row, "proj_name", "project"), "", _said(row, "job_name"), 0.0,
        0.0 if math.isnan(submit) else submit, mark.begin, start, limit if limit > 0 else math.inf, tuple(hosts), tiles, slots, 0.0,
        gpus, chunk, kind, lasted=ran if stat == "DONE" else math.nan, ran=ran, mark=mark.text, pinned=mark.hosts,
    )  # fmt: skip


def _tiles(resreq: str, slots: int) -> int:
    """Return on how many hosts a job is to run, as far as it says so by `span[ptile=…]`."""
    match = _PTILE.search(resreq)
    return max(-(-slots // int(match[1])), 1) if match else 1


def _why(stat: str, row: Mapping[str, str]) -> str:
    """Return the name of the reason why a job may not start: LSF says IPEND of those that may not, and why."""
    if stat == "PSUSP":
        return "held"
    if _said(row, "pendstate").upper() != "IPEND":
        return ""
    reason = _said(row, "pend_reason").lower()
    return next((ours for words, ours in _WHY.items() if words in reason), "site")


def _node(name: str, row: Mapping[str, str], gpus: Counter[str] | None, queues: tuple[str, ...]) -> SiteNode:
    try:
        cpus = slots_of(_said(row, "max", "ncpus") or "0")
        count = int(slots_of(_said(row, "ngpus") or "0"))
        used = int(slots_of(_said(row, "ngpus_alloc") or "0"))
        memory = gigabytes_of(_said(row, "maxmem"))[0] if _said(row, "maxmem") else 0.0
    except ValueError as error:
        raise DataError(f"host {name[:60]}: {error}") from None
    kinds = dict(gpus) if gpus else {"gpu": count} if count else {}
    return SiteNode(name, not _said(row, "status").lower().startswith(_CLOSED), cpus, memory, kinds, queues, used)


def _partition(row: Mapping[str, str]) -> SitePartition:
    priority = _said(row, "prio", "priority")
    if not re.fullmatch(r"\d{0,9}", priority):
        raise DataError(f"queue {row['queue_name'][:60]}: PRIO = {priority[:20]!r} is not a number")
    status = _said(row, "status").lower()
    return SitePartition(row["queue_name"], int(priority or 0), float(priority or 0), not status or status == "open:active")


def _said(row: Mapping[str, str], *names: str) -> str:
    return next((value for name in names if (value := row.get(name, "").strip()).lower() not in _SAYS_NOTHING), "")


def _date(text: str, now: float) -> float:
    """Return `May 28 12:45 L` or `May 28 12:45:10 2026`, in this machine's time zone, as s since 1970; nan where it is empty."""
    if not text:
        return math.nan
    match = DATE.fullmatch(text)
    if match is None or match[1].lower() not in MONTHS:
        raise ValueError(f"{text[:40]!r} is not a date such as May 28 12:45")
    day, hour, minute, second = (int(part or 0) for part in match.groups()[1:5])
    years = [int(match[6])] if match[6] else range(datetime.fromtimestamp(now + _DAY).year, 1970, -1)
    for year in years:
        try:
            found = datetime(year, MONTHS[match[1].lower()], day, hour, minute, second).timestamp()
        except ValueError:  # such as 29 February
            continue
        if match[6] or found <= now + _DAY:
            return found
    raise ValueError(f"{text[:40]!r} is not a date")
