"""Reader of listings by `sacct`: any fields in any order with a header line, or a known order without one."""

from __future__ import annotations

import io
import re
from pathlib import Path
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.model.site.notation import gigabytes_of, gres_of, instant_of, minutes_of, seconds_of, tres_of
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, read_text
from gpuyard.traces.readers.batch.records import Records, first_positive, phase
from gpuyard.traces.readers.batch.table import (
    DELIMITERS,
    RULED,
    Broken,
    Layout,
    LogTable,
    check_delimiter,
    cut_fields,
    delimited,
    header_layout,
    is_ruled,
    read_table,
    split,
)  # fmt: skip
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of

Arrival = Literal["submit", "eligible"]

WANTED = (
    "jobid", "jobidraw", "state", "submit", "eligible", "start", "end", "elapsed", "elapsedraw", "timelimit", "timelimitraw",
    "user", "uid", "account", "qos", "partition", "priority", "nnodes", "allocnodes", "ncpus", "alloccpus", "reqcpus", "reqmem",
    "reqtres", "alloctres", "reqgres", "allocgres", "nodelist",
)  # fmt: skip
OTHERS = (
    "jobname", "cluster", "group", "gid", "exitcode", "ntasks", "totalcpu", "cputime", "cputimeraw", "usercpu", "systemcpu", "maxrss",
    "avecpu", "averss", "maxvmsize", "avevmsize", "maxdiskread", "maxdiskwrite", "avediskread", "avediskwrite", "comment", "admincomment",
    "reason", "suspended", "reserved", "planned", "workdir", "derivedexitcode", "constraints", "flags", "submitline", "reservation",
    "wckey", "qosraw", "associd", "blockid", "layout", "reqnodes", "restarts", "consumedenergy", "consumedenergyraw", "dbindex",
    "systemcomment",
)  # fmt: skip
KNOWN = frozenset(WANTED + OTHERS)
_TIMES = {"submit", "start", "end", "elapsed", "elapsedraw"}
_OWN = {"alloctres", "reqtres", "allocgres", "reqgres", "elapsedraw", "timelimitraw", "alloccpus", "reqcpus", "nnodes", "ncpus"}
_ASK = (
    "sacct --parsable2 --allocations --format JobID,User,Account,Partition,State,Submit,Start,End,Elapsed,Timelimit,NNodes,NCPUS,ReqTRES,"
    "AllocTRES,NodeList"
)
_LABELS = {"jobname", "user", "account", "partition", "qos", "state", "group", "cluster", "comment"}  # may be cut off in a table for people
LAYOUTS = {  # orders in which tools ask for the fields when they leave out the header
    "Open XDMoD": (
        "jobid jobidraw cluster partition qos account group gid user uid submit eligible start end elapsed exitcode state nnodes ncpus"
        " reqcpus reqmem reqtres alloctres timelimit nodelist jobname"
    ),
    "hb-jobinfo": (
        "jobid jobname user partition nodelist nnodes ncpus ntasks state submit start end timelimit elapsed totalcpu cputime usercpu"
        " systemcpu reqmem maxrss maxvmsize reqtres alloctres tresusageinmax tresusageintot tresusageouttot maxdiskread maxdiskwrite"
        " maxrssnode maxrsstask maxvmsizenode maxvmsizetask maxdiskreadnode maxdiskreadtask maxdiskwritenode maxdiskwritetask comment"
    ),
    "Datadog": (
        "jobid jobname partition account alloccpus alloctres elapsed cputimeraw maxrss maxvmsize avecpu averss state exitcode start end"
        " nodelist avediskread maxdiskread"
    ),
}
_JOB_ID = r"^\d{1,15}(?:_(?:\d{1,10}|\[[^\]]*\]?))?(?:\+\d{1,9})?(?:\..+)?$"
_STATE = re.compile(r"(?:[A-Z_]{2,20})(?:\+| by \S+)?")


def _sniff(head: Head) -> bool:
    if is_ruled(head.lines):
        return "jobid" in (name.lower() for name in cut_fields(head.lines[0], head.lines[1]))
    return _header(head.lines) is not None or _headerless(head.lines) is not None


@reader("sacct", glob=("*sacct.txt", "*.sacct"), title="Slurm accounting, sacct", sniff=_sniff)
def read_sacct(
    path: Path, *, count: Count = "auto", gangs: Gangs = "free", arrival: Arrival = "submit", fields: str = "", delimiter: str = "",
    broken: Broken = "refuse", shards: int = 0, limits: Limits = DEFAULT_LIMITS,
) -> Workload:  # fmt: skip
    """Read a listing by `sacct`; steps are folded into their jobs, each run of a requeued job is a job.

    `count`: whether a device is a GPU, a CPU core or a whole node. `gangs`: `as-run` keeps a job's GPUs on a node together. `arrival`:
    whether a job arrives when it is submitted or when it is eligible (dependencies met, begin time reached). `fields`: the fields
    of a listing without a header, as given to `sacct --format`. `broken`: refuse or drop lines with too many or too few fields.
    `shards`: how many `gres/shard` make a GPU; without it a job that has shards only counts as one without GPUs.
    """
    text = read_text(path, limits)
    if is_ruled(_first_lines(text, limits)):
        text, delimiter = delimited(path, text, _LABELS), RULED
    layout = _layout(path, [line for line in _first_lines(text, limits) if line.strip()], fields, check_delimiter(delimiter))
    table = read_table(path, text, layout, _wanted(layout, arrival), limits, broken)
    return workload_of(records_of(table, arrival, shards), count=count, gangs=gangs)


def _first_lines(text: io.BytesIO, limits: Limits) -> list[str]:
    return [line.decode("utf-8", errors="replace") for line in text.getvalue()[: limits.line].splitlines()[:3]]


def _wanted(layout: Layout, arrival: Arrival) -> set[str]:
    """Return the columns to read; each costs a tenth of a second per million rows."""
    has = set(layout.names)
    unread = {"uid"} if "user" in has else set()
    return set(WANTED) - (unread | {"eligible"} if arrival == "submit" and "submit" in has else unread)


def _header(lines: tuple[str, ...] | list[str], delimiter: str = "") -> Layout | None:
    layout = header_layout(lines, KNOWN, delimiter)
    if layout is None:
        return None
    names = [name for name in layout.names if name]
    known = sum(name in KNOWN or name.startswith(("tres", "max", "ave", "min", "req")) for name in names)
    has = set(names)
    named = has & {"jobid", "jobidraw"} or (has & _OWN and {"submit", "start", "end"} <= has)
    return layout if named and (has & _TIMES or layout.delimiter == RULED) and known >= max(3, 0.7 * len(names)) else None


def _headerless(lines: tuple[str, ...] | list[str], delimiter: str = "") -> Layout | None:
    """Find the known order that fits the first line: the number of fields, a job id and a state where they belong."""
    for mark in [delimiter] if delimiter else DELIMITERS:
        values = split(lines[0], mark) if lines else ()
        for order in LAYOUTS.values():
            names = tuple(order.split())
            if len(values) == len(names) + 1 and not values[-1]:
                names = (*names, "")
            fits = len(values) == len(names) or (len(values) > len(names) and names[-1] == "jobname")
            if fits and re.match(_JOB_ID, values[0]) and _STATE.fullmatch(values[names.index("state")]):
                return Layout(mark, names, header=False)
    return None


def _layout(path: Path, lines: list[str], fields: str, delimiter: str) -> Layout:
    if fields:
        return _given(path, lines, fields, delimiter)
    found = _header(lines, delimiter) or _headerless(lines, delimiter)
    if found is None:
        orders = ", ".join(f"{len(order.split())} fields ({name})" for name, order in LAYOUTS.items())
        raise DataError(
            f"{path}:1: neither a header line with JobID and times, nor a known order of fields",
            hint=f"name them, --with fields=JobID,State,Submit,…; orders known without a header: {orders}",
        )
    return found


def _given(path: Path, lines: list[str], fields: str, delimiter: str) -> Layout:
    """Lay out the fields that the user names, with the delimiter that splits the first line into as many."""
    names = tuple(name.strip().partition("%")[0].lower() for name in fields.split(","))
    if "jobid" not in names and "jobidraw" not in names:
        raise UsageError("fields: JobID is missing")
    for mark in [delimiter] if delimiter else DELIMITERS:
        values = split(lines[0], mark) if lines else ()
        if len(values) == len(names) + 1 and not values[-1]:
            names = (*names, "")
        if len(values) == len(names):
            return Layout(mark, names, header="jobid" in (value.lower() for value in values))
    raise DataError(f"{path}:1: the line does not have the {len(names)} fields that are named", hint="give the delimiter too")


def records_of(table: LogTable, arrival: Arrival = "submit", shards: int = 0) -> Records:
    """Make records from a table with sacct's columns; `shards` make a GPU."""
    table = _without_headers(table)
    key, number, step, id_notes = _identity(table)
    start, end, elapsed = _runs(table)
    submit, waits_known, notes = _arrivals(table, start, arrival)
    got = table.resources("alloctres", tres_of).over(table.resources("allocgres", gres_of))
    asked = table.resources("reqtres", tres_of).over(table.resources("reqgres", gres_of))
    ran_type = got.gpu_type.over(asked.gpu_type)
    counts = {each: table.values(each, _count) for each in ("ncpus", "alloccpus", "reqcpus", "nnodes", "allocnodes")}
    cpus = first_positive(counts["ncpus"], counts["alloccpus"], got.cpus, counts["reqcpus"], asked.cpus)
    nodes = first_positive(got.nodes, counts["nnodes"], counts["allocnodes"], asked.nodes)
    limits = table.values("timelimitraw", minutes_of, np.inf)
    gpus, shard_notes = _with_shards(first_positive(got.gpus, asked.gpus), first_positive(got.shards, asked.shards), shards)
    phases, state = table.parsed("state", phase)
    return Records(
        rows=table.rows, key=key, number=number, step=step, phase=np.array(phases)[state], submit=submit, start=start, end=end,
        elapsed=elapsed,
        walltime=np.where(np.isfinite(limits), limits, table.values("timelimit", seconds_of, np.inf)),
        gpus=gpus, cpus=cpus, nodes=nodes,
        memory=first_positive(got.memory, asked.memory, _memory(table, cpus, nodes)), priority=table.values("priority", _number),
        user=table.coded("user" if "user" in table else "uid"), partition=table.coded("partition"), qos=table.coded("qos"),
        account=table.coded("account"), asked_type=asked.binding_type(ran_type), ran_type=ran_type, node_list=table.coded("nodelist"),
        unassigned=table.without_nodes(), dropped=table.dropped, notes=(*notes, *id_notes, *shard_notes), waits_known=waits_known,
    )  # fmt: skip


def _runs(table: LogTable) -> tuple[Array, Array, Array]:
    """Return start, end and elapsed seconds; the start is worked out where the listing has no column for it."""
    has = {name for name in ("start", "end", "elapsed", "elapsedraw") if name in table}
    if not (has & {"start", "end"} and len(has) > 1):
        raise DataError(
            f"{table.path}:1: no columns Start and End (or one of them and Elapsed): when jobs ran is not known",
            hint=f"ask for them: {_ASK}",
        )
    start, end = table.instants("start", instant_of), table.instants("end", instant_of)
    spans = table.values("elapsed", seconds_of)
    elapsed = first_positive(table.values("elapsedraw", _number), np.where(np.isinf(spans), np.nan, spans))
    return start if "start" in has else end - elapsed, end, elapsed


def _with_shards(gpus: Array, shards: Array, each: int) -> tuple[Array, tuple[str, ...]]:
    """Return GPUs with those that jobs had as shards, and a note where their number is not known."""
    only = (shards > 0) & ~(gpus > 0)
    if not only.any():
        return gpus, ()
    if each > 0:
        return np.where(only, shards / each, gpus), ()
    told = "--with shards=N says how many make a GPU"
    return gpus, (f"{int(only.sum()):,} records have shards of GPUs (gres/shard) and count as jobs without GPUs; {told}",)


def _without_headers(table: LogTable) -> LogTable:
    """Drop header lines that come again where listings were joined."""
    name = next(each for each in ("jobid", "jobidraw", "start", "end") if each in table)
    again = (table.frame[name].str.to_lowercase() == name).fill_null(False).to_numpy()
    if not again.any():
        return table
    if again.all():
        raise DataError(f"{table.path}: no records, only headers")
    return LogTable(table.path, table.frame.filter(~again), table.lines[~again], table.dropped | {"repeated header line": int(again.sum())})


def _identity(table: LogTable) -> tuple[Array, Array, Array, tuple[str, ...]]:
    """Return the id as text, as a number (JobIDRaw where there is one), whether it belongs to a step, and notes."""
    if "jobid" not in table and "jobidraw" not in table:
        count = np.arange(1, len(table) + 1)
        step = table.frame["user"].is_null().to_numpy() if "user" in table else np.zeros(len(table), bool)
        note = "no JobID: jobs are numbered by row, rows without a user count as steps, and repeated rows are not noticed"
        return count.astype(str).astype(object), count.astype(np.float64), step, (note,)
    import polars as pl

    name = "jobid" if "jobid" in table else "jobidraw"
    text = table.frame[name]
    wrong = (~text.str.contains(_JOB_ID)).fill_null(True).arg_true()
    if len(wrong):
        row = int(wrong[0])
        raise table.rows.error(row, f"{name} = {(text[row] or '')[:40]!r} is not a job id")
    plain = text.str.extract(r"^(\d+)").cast(pl.Float64)
    raw = table.frame["jobidraw"].str.extract(r"^(\d{1,15})").cast(pl.Float64) if "jobidraw" in table else plain
    step = text.str.contains(".", literal=True).to_numpy()
    return text.to_numpy().astype(object), raw.fill_null(plain).to_numpy(), step, ()


def _arrivals(table: LogTable, start: Array, arrival: Arrival) -> tuple[Array, bool, tuple[str, ...]]:
    """Return when jobs arrive, whether their waits are known, and notes about it."""
    submit, eligible = table.instants("submit", instant_of), table.instants("eligible", instant_of)
    if arrival == "eligible":
        if "eligible" not in table:
            raise UsageError(f"{table.path}: arrival=eligible, but there is no column Eligible")
        return np.fmax(submit, eligible), True, ("jobs arrive when they are eligible, not when they are submitted",)
    if "submit" in table:
        return submit, True, ()
    if "eligible" in table:
        return eligible, True, ("no submit times: jobs arrive when they are eligible",)
    return start, False, ("no submit times: start times are used instead, and waits are unknown",)


def _count(text: str) -> float:
    """Parse `12`, and `1K` for 1024 as older versions write it."""
    match = re.fullmatch(r"(\d{1,12}(?:\.\d{1,4})?)([KM]?)", text)
    if not match:
        raise ValueError("is not a count")
    return float(np.floor(float(match[1]) * {"": 1, "K": 1024, "M": 1024**2}[match[2]]))


def _number(text: str) -> float:
    if not re.fullmatch(r"-?\d{1,15}(?:\.\d{1,15})?", text):
        raise ValueError("is not a number")
    return float(text)


def _memory(table: LogTable, cpus: Array, nodes: Array) -> Array:
    """Return GB in all from ReqMem, which may be per node or per core."""
    found, codes = table.parsed("reqmem", lambda text: gigabytes_of(text) if text else (np.nan, ""))
    size, per = np.array([each[0] for each in found])[codes], np.array([each[1] for each in found])[codes]
    total: Array = size * np.select([per == "n", per == "c"], [nodes, cpus], 1.0)
    return total
