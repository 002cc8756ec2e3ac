"""Parses what Slurm's commands print: `squeue` and `sinfo` as tables with a header, `scontrol show` as KEY=VALUE, `sprio`.

Names, accounts and comments of jobs are texts that users choose, line breaks and separators included. What is read live has a separator
that is drawn anew for each call, so that no text can pass for another field or row; in files the name is the last column, and a key that
`scontrol` prints twice is refused.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping

from gpuyard.errors import DataError
from gpuyard.live.slurm.records import NOTHING, indices_of, job_of, node_of, partition_of
from gpuyard.live.state.site import SiteJob, SiteNode, SitePartition
from gpuyard.model.site.notation import node_names

SQUEUE = (  # -O: field:suffix
    "JobArrayID", "JobID", "ArrayJobID", "State", "Reason", "PriorityLong", "tres-per-node", "tres-per-job", "tres-per-task",
    "tres-per-socket", "tres-alloc", "NodeList", "NumNodes", "NumCPUs", "NumTasks", "TimeLimit", "TimeUsed", "StartTime", "SubmitTime",
    "EligibleTime", "UserName", "Account", "QOS", "Partition", "Name",
)  # fmt: skip
PLACING = ("ReqNodes", "admin_comment")  # further fields, for place mode
_KEY = re.compile(r"(?:^|(?<=\s))([A-Z][A-Za-z0-9_/:&.-]*)=")
_SHARE = re.compile(r"Nodes=(\S+) CPU_IDs=(\S+) Mem=(\d+) GRES=(\S*)")


def table_rows(text: str, where: str) -> Iterator[tuple[str, dict[str, str]]]:
    """Yield place and fields of each line of a table with the separator `|` and a header. The last column takes the rest of a line."""
    lines = text.splitlines()
    if not lines:
        return
    ending = "|" if lines[0].endswith("|") else ""
    names = lines[0].removesuffix(ending).split("|")
    names = [name.strip() or f"COLUMN_{k}" for k, name in enumerate(names)]
    if "JOBID" in names and names.count("JOBID") == 2:
        names[names.index("JOBID", names.index("JOBID") + 1)] = "RAW_JOBID"
    if len(set(names)) < len(names):
        raise DataError(f"{where}:1: a column is named twice")
    for number, line in enumerate(lines[1:], 2):
        if not line.strip():
            continue
        values = line.removesuffix(ending).split("|", len(names) - 1)
        if len(values) != len(names):
            raise DataError(f"{where}:{number}: {len(values)} fields, the header names {len(names)}")
        yield f"{where}:{number}", dict(zip(names, values, strict=True))


def squeue_jobs(text: str, where: str = "squeue") -> list[SiteJob]:
    """Read the jobs of `squeue -r -o …` or `-O …` with a header and the separator `|`."""
    return [job_of(fields, place) for place, fields in table_rows(text, where)]


KnownRows = dict[tuple[str, ...], SiteJob]  # the fields of a row, and the job that they say


def drawn_jobs(text: str, separator: str, where: str = "squeue", known: KnownRows | None = None) -> list[SiteJob]:
    """Read the jobs of `squeue -r -O …` with `separator` behind every field, the last too: one that nobody could know.

    `known` has the rows of the reading before, and gets those of this one: most waiting jobs are as they were, and to take a row apart
    costs 40 µs.
    """
    head, *rows = text.split(f"{separator}\n")
    if not rows:
        raise DataError(f"{where}: {head.strip()[:60]!r} is not the table that was asked for")
    names = [name.strip() for name in head.split(separator)]
    if names.count("JOBID") == 2:
        names[names.index("JOBID", names.index("JOBID") + 1)] = "RAW_JOBID"
    if rows.pop().strip():
        raise DataError(f"{where}: the answer is cut short")
    found, before = [], dict(known or {})
    if known is not None:
        known.clear()
    for number, row in enumerate(rows, 2):
        values = tuple(row.split(separator))
        if len(values) != len(names):
            raise DataError(f"{where}:{number}: {len(values)} fields, the header names {len(names)}")
        job = before.get(values)
        if job is None:
            job = job_of({name: " ".join(value.split()) for name, value in zip(names, values, strict=True)}, f"{where}:{number}")
        if known is not None:
            known[values] = job
        found.append(job)
    return found


def sinfo_nodes(text: str, where: str = "sinfo") -> list[SiteNode]:
    """Read the nodes of `sinfo -N -O "NodeList:|,StateLong:|,…"`; a node has a line for each of its partitions."""
    found: dict[str, dict[str, str]] = {}
    for _, fields in table_rows(text, where):
        name = fields.get("NODELIST", "").strip()
        partition = fields.get("PARTITION", "").strip().rstrip("*")
        if name in found:
            found[name]["PARTITION"] += f",{partition}"
        else:
            found[name] = {**fields, "PARTITION": partition}
    return [node_of(fields, where) for fields in found.values()]


def records(text: str, first: str, where: str) -> Iterator[tuple[str, dict[str, str], str]]:
    """Yield place, fields and text of each record of `scontrol show`, in one line (`-o`) or several; `first` is its first key."""
    begins = [match.start() for match in re.finditer(rf"^{first}=", text, re.M)]
    for begin, end in itertools.pairwise([*begins, len(text)]):
        body = text[begin:end]
        line = text.count("\n", 0, begin) + 1
        yield f"{where}:{line}", _fields(_SHARE.sub(" ", body), f"{where}:{line}"), body


def _fields(body: str, where: str) -> dict[str, str]:
    marks = list(_KEY.finditer(body))
    found: dict[str, str] = {}
    for mark, after in zip(marks, [*marks[1:], None], strict=True):
        value = body[mark.end() : after.start() if after else len(body)].strip()
        if mark[1] in found and found[mark[1]] != value:
            raise DataError(f"{where}: {mark[1]} is given twice", hint="a job's name or comment may look like a field: read squeue instead")
        found[mark[1]] = value
    return found


def scontrol_jobs(text: str, where: str = "scontrol show job") -> list[SiteJob]:
    """Read `scontrol -d show job`, with `-o` or without: also which GPUs jobs hold."""
    return [job_of(fields, place, _devices(body, place)) for place, fields, body in records(text, "JobId", where)]


def _devices(body: str, where: str) -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {}
    for match in _SHARE.finditer(body):
        try:
            devices = indices_of(match[4])
            found |= dict.fromkeys(node_names(match[1]), devices) if devices else {}
        except ValueError as error:
            raise DataError(f"{where}: GRES = {match[4][:60]!r} {error}") from None
    return found


def scontrol_nodes(text: str, where: str = "scontrol show node") -> list[SiteNode]:
    """Read `scontrol -d show node`, with `-o` or without."""
    return [node_of(fields, place) for place, fields, _ in records(text, "NodeName", where)]


def scontrol_partitions(text: str, where: str = "scontrol show partition") -> list[SitePartition]:
    """Read `scontrol show partition`, with `-o` or without."""
    return [partition_of(fields, place) for place, fields, _ in records(text, "PartitionName", where)]


def site_factors(text: str, where: str = "sprio") -> dict[int, int]:
    """Read `sprio -o "%i|%S"`: the site factor of each waiting job that has a priority."""
    found: dict[int, int] = {}
    for place, fields in table_rows(text, where):
        number, factor = fields.get("JOBID", "").strip(), fields.get("SITE", "").strip()
        if number.lower() in NOTHING:
            continue
        if not number.isdigit() or not re.fullmatch(r"-?[0-9]{1,12}", factor):
            raise DataError(f"{place}: {number[:20]!r} and {factor[:20]!r} are not a job and its site factor")
        found[int(number)] = int(factor)
    return found


def version_of(nodes_text: str) -> str:
    """Return the release that nodes name, such as 22.05.8; empty if none does."""
    match = re.search(r"\bVersion=([0-9]{2}\.[0-9]{2}[0-9.]*)", nodes_text)
    return match[1] if match else ""


def as_text(given: Mapping[str, object]) -> dict[str, str]:
    """Return the values as texts; nothing for None."""
    return {name: "" if value is None else str(value) for name, value in given.items()}
