"""The Standard Workload Format (Feitelson et al.; Parallel Workloads Archive): 18 numbers per job, `;` begins a comment."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC
from pathlib import Path
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.files import Stream
from gpuyard.model.units import clean
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import MAX_ID, Rows, check_count, check_ids, check_values, no_usable_job, usable_rows
from gpuyard.traces.guess import guess_cluster
from gpuyard.traces.opening import DEFAULT_LIMITS, Block, Head, Limits, blocks, check_comments
from gpuyard.traces.origin import is_origin, origin_note, origin_of
from gpuyard.traces.writing import WRITERS, Writer, lost_columns, lost_facts, number_texts, write_lines, written

FIELDS = (
    "job number", "submit time", "wait time", "run time", "allocated processors", "mean CPU time", "used memory",
    "requested processors", "requested time", "requested memory", "status", "user", "group", "executable", "queue",
    "partition", "preceding job", "think time",
)  # fmt: skip
_KEPT = {"id": 0, "submit": 1, "wait": 2, "run": 3, "allocated": 4, "requested": 7, "time": 8, "user": 11, "queue": 14, "partition": 15}
_COMMENT = re.compile(rb"^[ \t]*;.*$", re.M)
_KEY = re.compile(rb"[A-Za-z][A-Za-z ]*")
PART = 0.01  # of the jobs that a number of field 16 must have to be that of a part of the machine
_MAX_KEYS = 10_000  # read from a header; the rest is ignored
_ALLOWED = b"0123456789+-.eE \t\r\n"


def _sniff(head: Head) -> bool:
    body = [line for line in head.lines if not line.lstrip().startswith(";")]
    return bool(body) and len(body[0].split()) == len(FIELDS) and all(_is_number(field.encode()) for field in body[0].split())


@reader("swf", glob="*.swf*", title="Standard Workload Format", sniff=_sniff)
def read_swf(
    path: Path, *, processors: Literal["allocated", "requested"] = "allocated", pools: Literal["auto", "partition", "queue"] = "auto",
    limits: Limits = DEFAULT_LIMITS,
) -> Workload:  # fmt: skip
    """Read the jobs of an SWF log; a processor counts as a GPU.

    `processors` chooses field 5 or 8; the other one is used where the chosen one is missing. Rows without a
    run time, processors or a submit time (−1) are dropped and counted. The walltime is the requested time. `pools` says what a job's
    partition is: field 16, whose number is that of a part of the machine, or the queue, field 15. Unless said, it is field 16 where
    this has several numbers, each with at least 1 % of the jobs, and the queue is then the QOS.
    """
    header: dict[str, str] = {}
    table, lines = _read_table(path, limits, header)
    rows = Rows(path, lines)
    columns = {name: table[:, k] for k, name in enumerate(_KEPT)}
    check_ids(rows, columns["id"])
    submit = columns["submit"]
    rows.refuse((submit < 0) & (submit != -1), "submit time", submit, "is negative")
    first, second = ("allocated", "requested") if processors == "allocated" else ("requested", "allocated")
    columns["gpus"] = np.where(columns[first] > 0, columns[first], columns[second])
    reasons = {"no submit time": submit < 0, "no run time": columns["run"] < 0, "no processors": columns["gpus"] <= 0}
    keep, dropped = usable_rows(len(submit), reasons)
    kept = {name: values[keep] for name, values in columns.items()}
    by_part = pools == "partition" or (pools == "auto" and _several_parts(kept["partition"]))
    made = _workload(path, kept, rows.take(keep), dropped, _machine(header), by_part=by_part)
    told = ("partitions are those of field 16 (--with pools=queue takes the queues)",) if by_part and pools == "auto" else ()
    return replace(made, notes=_origin(header) + told)


def _several_parts(numbers: Array) -> bool:
    """Whether at least two partition numbers each have a share of the jobs; −1 says nothing."""
    known = numbers[numbers >= 0]
    return bool((np.unique(known, return_counts=True)[1] >= max(PART * len(numbers), 1)).sum() > 1)


def _workload(
    path: Path, c: dict[str, Array], rows: Rows, dropped: dict[str, int], machines: tuple[Machine, ...], *, by_part: bool
) -> Workload:  # fmt: skip
    if len(c["id"]) == 0:
        raise no_usable_job(path, dropped)
    gpus = c["gpus"]
    rows.refuse(gpus != np.floor(gpus), "processors", gpus, "is not a whole number")
    check_values(rows, {"submit": c["submit"], "runtime": c["run"], "gpus": gpus})
    walltime = np.where(c["time"] > 0, c["time"], np.inf)
    users, user = _labels(rows, "user", c["user"])
    queues, queue = _labels(rows, "queue", c["queue"])
    partitions, partition = _labels(rows, "partition", c["partition"]) if by_part else (queues, queue)
    columns = {"id": c["id"], "submit": c["submit"], "gpus": gpus, "walltime": walltime, "user": user, "partition": partition}
    columns |= {"qos": queue} if by_part else {}
    return Workload.build(
        columns, c["run"], name=path.name, users=users, partitions=partitions, qoses=queues if by_part else ("",), dropped=dropped,
        logged_start=np.where(c["wait"] >= 0, c["submit"] + c["wait"], np.nan), machines=machines,
    )  # fmt: skip


def _labels(rows: Rows, name: str, numbers: Array) -> tuple[tuple[str, ...], Array]:
    """Turn numbers into labels; −1 is the empty label."""
    rows.refuse((np.abs(numbers) > MAX_ID) | (numbers != np.floor(numbers)), name, numbers, "is not a whole number")
    found, codes = np.unique(numbers, return_inverse=True)
    return tuple("" if n == -1 else str(int(n)) for n in found), codes


def swf_header(path: Path | str, limits: Limits = DEFAULT_LIMITS) -> dict[str, str]:
    """Return the `; Key: value` lines before the first job; the first value counts where a key occurs twice."""
    found: dict[str, str] = {}
    size = 0
    for block in blocks(Path(path), limits):
        if not _add_header(block.text, found):
            break
        size = check_comments(Path(path), size + len(block.text), limits)
    return found


def _add_header(text: bytes, found: dict[str, str]) -> bool:
    """Add the comment lines up to the first job to `found`; return whether the header may go on."""
    body = re.search(rb"^[ \t]*[^;\s]", text, re.M)
    for match in _COMMENT.finditer(text, 0, body.start() if body else len(text)):
        key, colon, value = match[0].lstrip(b" \t").removeprefix(b";").partition(b":")
        key = key.strip(b" \t")
        if colon and len(found) < _MAX_KEYS and _KEY.fullmatch(key):
            found.setdefault(key.decode(), value.strip(b" \t\r").decode())
    return body is None


def _origin(header: dict[str, str]) -> tuple[str, ...]:
    """Return the note about time 0 where the header gives its date."""
    match = re.match(r"\d{1,12}(?!\d)", header.get("UnixStartTime", ""))
    return (origin_note(float(match[0])),) if match and is_origin(float(match[0])) else ()


def _machine(header: dict[str, str]) -> tuple[Machine, ...]:
    """Return one pool with the header's MaxProcs (else MaxNodes) processors, of unknown size (0) where the header has neither."""
    for key in ("MaxProcs", "MaxNodes"):
        match = re.match(r"\d{1,9}", header.get(key, ""))
        if match and int(match[0]) > 0:
            return (Machine(header.get("Computer", "pool")[:80] or "pool", int(match[0]), gpu_type="cpu"),)
    return (Machine("pool", 0, gpu_type="cpu"),)


def _read_table(path: Path, limits: Limits, header: dict[str, str]) -> tuple[Array, Array]:
    """Read the kept fields, (rows, len(_KEPT)), and the line of each row; fill in `header`."""
    in_header, barren = True, 0
    tables, lines, count = [np.empty((0, len(_KEPT)))], [np.empty(0, np.int64)], 0
    for block in blocks(path, limits):
        in_header = in_header and _add_header(block.text, header)
        table, at = _parse(path, block)
        count += len(table)
        check_count(path, count, limits)
        barren = 0 if len(table) else check_comments(path, barren + len(block.text), limits)
        tables.append(table)
        lines.append(at)
    return np.concatenate(tables), np.concatenate(lines)


def _parse(path: Path, block: Block) -> tuple[Array, Array]:
    """Parse one block, vectorised; if anything is odd, read it again line by line to say what and where."""
    text = _COMMENT.sub(b"", block.text) if b";" in block.text else block.text
    data = np.frombuffer(text, np.uint8)
    blank = data <= 32
    edges = np.flatnonzero(blank[1:] != blank[:-1]) + 1
    if not blank[0]:
        edges = np.concatenate(([0], edges))
    starts, ends = edges[0::2], edges[1::2]
    feeds = np.flatnonzero(data == 10)
    width = np.diff(np.searchsorted(starts, feeds), prepend=0)  # fields on each line
    rows = np.flatnonzero(width)
    if (width[rows] != len(FIELDS)).any() or text.translate(None, _ALLOWED):
        raise _fault(path, block)
    kept = list(_KEPT.values())
    shape = (len(rows), len(FIELDS))
    try:
        table = _numbers(data, starts.reshape(shape)[:, kept].ravel(), ends.reshape(shape)[:, kept].ravel())
    except ValueError:
        raise _fault(path, block) from None
    if not np.isfinite(table).all():
        raise _fault(path, block)
    return table.reshape(len(rows), len(kept)), rows + block.first_line


def _numbers(data: Array, starts: Array, ends: Array) -> Array:
    """Parse the numbers at `data[start:end]`: whole ones of up to 15 digits all at once, others one by one."""
    value = np.zeros(len(starts))
    negative = data[starts] == ord("-")
    begin = starts + negative
    length = ends - begin
    plain = (length >= 1) & (length <= 15)
    for k in range(int(length[plain].max(initial=0))):
        inside = k < length
        digit = data[np.minimum(begin + k, len(data) - 1)] - np.uint8(ord("0"))  # wraps: anything but a digit is above 9
        plain &= (digit <= 9) | ~inside
        value = np.where(inside, value * 10 + digit, value)
    value = np.where(negative, -value, value)
    raw = data.tobytes()
    odd = np.flatnonzero(~plain)
    value[odd] = [float(raw[a:b]) for a, b in zip(starts[odd].tolist(), ends[odd].tolist(), strict=True)]
    return value


def _fault(path: Path, block: Block) -> DataError:
    """Return the error for the first wrong line of the block."""
    for number, line in enumerate(block.text.split(b"\n"), block.first_line):
        fields = [] if line.lstrip().startswith(b";") else line.split()
        if fields and len(fields) != len(FIELDS):
            return DataError(f"{path}:{number}: {len(fields)} columns instead of {len(FIELDS)}", hint="SWF has 18 numbers on a line")
        for k, field in enumerate(fields):
            if not _is_number(field):
                shown = field[:40].decode(errors="replace")
                return DataError(f"{path}:{number}: column {k + 1} ({FIELDS[k]}) = {shown!r} is not a finite number")
    return DataError(f"{path}:{block.first_line}: not SWF")


def _is_number(field: bytes) -> bool:
    if field.translate(None, _ALLOWED):
        return False
    try:
        return bool(np.isfinite(float(field)))
    except ValueError:
        return False


def write_swf(workload: Workload, path: Path | str) -> None:
    """Save a workload as SWF (gzip if the name ends in .gz): id, submit, run, GPUs, requested time, user, partition, logged wait.

    SWF has no deadline, priority, GPU type, CPUs, memory or job class: those are lost. Jobs without whole GPUs are refused.
    Labels that are not numbers are numbered from 1 and named in the header. The same workload gives the same bytes.
    """
    path = Path(path)
    gpus = workload.jobs.gpus
    if ((gpus < 1) | (gpus != np.floor(gpus))).any():
        row = int(np.argmax((gpus < 1) | (gpus != np.floor(gpus))))
        raise DataError(f"{path}: job {workload.jobs.id[row]} has {gpus[row]:g} GPUs; SWF has whole processors only")
    with written(path) as out:
        _write(workload, out)


def _lost(workload: Workload) -> list[str]:
    columns = lost_columns(workload, frozenset({"walltime", "user", "partition"}))
    return [*(["the columns " + ", ".join(columns)] if columns else []), *lost_facts(workload, machines=1)]


WRITERS[".swf"] = Writer(write_swf, _lost)


def _write(workload: Workload, out: Stream) -> None:
    jobs = workload.jobs
    users, queues = _numbered(jobs.users), _numbered(jobs.partitions)
    header = {"Version": "2.2", "Computer": workload.name, "MaxJobs": len(jobs), "MaxRecords": len(jobs), "MaxProcs": _most(workload)}
    origin = origin_of(workload)
    header |= {} if origin is None else {"UnixStartTime": int(origin.replace(tzinfo=UTC).timestamp())}
    lines = [f"; {key}: {_one_line(str(value))}\n" for key, value in header.items()]
    for what, known in (("user", users), ("queue", queues)):
        lines += [f"; Note: {what} {number} is {_one_line(label)}\n" for label, number in known.items() if label and str(number) != label]
    out.write("".join(lines).encode())
    user = np.array([users[label] for label in jobs.users])[jobs.user]
    queue = np.array([queues[label] for label in jobs.partitions])[jobs.partition]
    wait = np.full(len(jobs), np.nan) if workload.logged_start is None else workload.logged_start - jobs.submit
    times = (number_texts(values, "-1") for values in (jobs.submit, wait, workload.runtime, jobs.gpus, jobs.walltime))
    rows = zip(jobs.id.tolist(), *times, user.tolist(), queue.tolist(), strict=True)
    line = "{0} {1} {2} {3} {4} -1 -1 {4} {5} -1 -1 {6} -1 -1 {7} -1 -1 -1\n".format
    write_lines(out, (line(*row) for row in rows))


def _most(workload: Workload) -> int:
    """Return the processors of the machine: those of the guessed cluster, at least as many as the largest job needs."""
    largest = int(workload.jobs.gpus.max(initial=0))
    try:
        return max(largest, guess_cluster(workload)[0].gpus)
    except DataError:  # no jobs, or nodes that do not make a cluster
        return largest


def _numbered(labels: tuple[str, ...]) -> dict[str, int]:
    """Number the labels: by themselves if all are numbers, else 1, 2, 3 …; −1 for the empty one."""
    named = [label for label in labels if label]
    own = all(re.fullmatch(r"\d{1,15}", label) and str(int(label)) == label for label in named)
    return {"": -1} | {label: int(label) if own else k for k, label in enumerate(named, 1)}


def _one_line(text: str) -> str:
    return clean(" ".join(text.split()))
