"""Reader of exports of Slurm's job table (`<cluster>_job_table` of slurmdbd), such as MIT Supercloud's `slurm-log.csv`."""

from __future__ import annotations

import re
from functools import partial
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.model.site.notation import Resources, gres_of, instant_of, minutes_of, resources, type_label
from gpuyard.model.units import MIB
from gpuyard.model.workload import Workload
from gpuyard.traces.base import reader
from gpuyard.traces.checks import MAX_ID
from gpuyard.traces.opening import DEFAULT_LIMITS, Head, Limits, read_text
from gpuyard.traces.readers.batch.records import ENDED, PENDING, RUNNING, Records, first_positive, phase
from gpuyard.traces.readers.batch.table import Broken, LogTable, check_delimiter, header_layout, read_table
from gpuyard.traces.readers.batch.workload import Count, Gangs, workload_of

WANTED = (
    "id_job", "id_array_job", "id_array_task", "het_job_id", "het_job_offset", "id_user", "user", "account",
    "partition", "id_qos", "priority", "state", "timelimit", "time_submit", "time_start", "time_end", "time_suspended",
    "nodes_alloc", "nodelist", "cpus_req", "mem_req", "tres_alloc", "tres_req", "gres_used", "gres_alloc", "gres_req",
)  # fmt: skip
KNOWN = frozenset(WANTED) | {
    "array_task_pending", "time_eligible", "kill_requid", "derived_ec", "exit_code", "array_max_tasks", "constraints", "flags",
    "track_steps", "job_type",
}  # fmt: skip
_MEMORY_PER_CORE = 1 << 63  # a flag in mem_req; without it the amount is per node
_NO_TASK = 4_294_967_294


def _sniff(head: Head) -> bool:
    layout = header_layout(head.lines, KNOWN)
    return layout is not None and "id_job" in layout.names and {"time_start", "time_end"} <= set(layout.names)


@reader(
    "slurm-table", glob=("*slurm-log*.csv*", "*job_table*.csv*"), title="Slurm's job table, exported with its column names", sniff=_sniff
)
def read_slurm_table(
    path: Path, *, count: Count = "auto", gangs: Gangs = "free", gpu_tres: str = "1001 1002", delimiter: str = "",
    broken: Broken = "refuse", limits: Limits = DEFAULT_LIMITS,
) -> Workload:  # fmt: skip
    """Read the jobs of a table with a header line: id_job, time_submit, time_start, time_end, tres_alloc, tres_req and so on.

    `gpu_tres`: the numbers under which the site's database counts GPUs (`sacctmgr show tres`), `1001 1002:a100 1003:v100` where they
    have types. Numbers from 1001 on follow the order of AccountingStorageTRES; by default the larger of 1001 and 1002 counts, which is
    right where one is all GPUs and the other a type of them. Where the numbers say nothing, `gres_used`, `gres_alloc` and `gres_req` do.
    """
    ids = _gpu_ids(gpu_tres)
    text = read_text(path, limits)
    first = [line.decode("utf-8") for line in text.getvalue()[: limits.line].splitlines()[:3]]
    layout = header_layout(first, KNOWN, check_delimiter(delimiter))
    if layout is None or "id_job" not in layout.names:
        raise DataError(f"{path}:1: no column id_job in the header line")
    table = read_table(path, text, layout, WANTED, limits, broken)
    return workload_of(_records(table, ids), count=count, gangs=gangs)


def _gpu_ids(text: str) -> dict[str, str]:
    """Map the number of a resource to a GPU type; empty where it counts GPUs of any type."""
    found = {}
    for word in re.split(r"[ +,]+", text.strip()):
        match = re.fullmatch(r"(\d{1,9})(?::([\w.-]{1,64}))?", word)
        if not match:
            raise UsageError(f"gpu_tres: {word!r} is not NUMBER or NUMBER:TYPE")
        found[match[1]] = type_label(match[2] or "")
    return found


def _records(table: LogTable, ids: dict[str, str]) -> Records:
    number = table.values("id_job", _whole)
    table.rows.refuse(~((number >= 0) & (number < MAX_ID)), "id_job", number, "is not a job id")
    parse = partial(_tres_of, ids=ids)
    got, asked = table.resources("tres_alloc", parse), table.resources("tres_req", parse)
    for name in ("gres_used", "gres_alloc"):
        got = got.over(table.resources(name, gres_of))
    asked = asked.over(table.resources("gres_req", gres_of))
    cpus = first_positive(got.cpus, asked.cpus, table.values("cpus_req", _whole))
    nodes = first_positive(table.values("nodes_alloc", _whole), got.nodes, asked.nodes)
    ran_type = got.gpu_type.over(asked.gpu_type)
    start, end, notes = _runs(table)
    return Records(
        rows=table.rows, key=_keys(table, number), number=number, step=np.zeros(len(table), bool), phase=_phases(table),
        submit=table.instants("time_submit", instant_of), start=start, end=end, notes=notes,
        elapsed=np.full(len(table), np.nan), walltime=table.values("timelimit", minutes_of, np.inf),
        gpus=first_positive(got.gpus, asked.gpus), cpus=cpus, nodes=nodes,
        memory=first_positive(got.memory, asked.memory, _memory(table, cpus, nodes)), priority=table.values("priority", _whole),
        user=table.coded("user" if "user" in table else "id_user"), partition=table.coded("partition"), qos=table.coded("id_qos"),
        account=table.coded("account"), asked_type=asked.binding_type(ran_type), ran_type=ran_type, node_list=table.coded("nodelist"),
        unassigned=table.without_nodes(), dropped=table.dropped,
    )  # fmt: skip


def _tres_of(text: str, ids: dict[str, str]) -> Resources:
    """Parse `1=8,2=32000,4=1,1001=4`: cores, MiB, nodes, and the site's own resources from 1001 on."""
    pairs = (part.strip().partition("=") for part in text.split(",") if part.strip())
    amount = {key: _whole(value) for key, _, value in pairs}
    typed = {kind: amount[key] for key, kind in ids.items() if kind and amount.get(key, 0) > 0}
    plain = [amount[key] for key, kind in ids.items() if not kind and key in amount]
    memory = amount["2"] * MIB if 0 < amount.get("2", 0) < 2**53 else None
    return resources(amount.get("1"), memory, amount.get("4"), max(plain) if plain else None, typed)


def _whole(text: str) -> float:
    if not re.fullmatch(r"-?\d{1,20}(?:\.0*)?", text.strip()):
        raise ValueError(f"has {text[:20]!r}, which is not a whole number")
    return float(text)


def _runs(table: LogTable) -> tuple[Array, Array, tuple[str, ...]]:
    """Return start and end; the end is earlier by the time for which the job was suspended and held no devices."""
    start, end = table.instants("time_start", instant_of), table.instants("time_end", instant_of)
    suspended = table.values("time_suspended", _whole, 0.0)
    paused = (suspended > 0) & (suspended <= end - start)
    note = f"{int(paused.sum()):,} records were suspended for some time, which does not count as run time"
    return start, np.where(paused, end - suspended, end), (note,) if paused.any() else ()


def _keys(table: LogTable, number: Array) -> Array:
    """Return the id, with the task of an array where there is one."""
    task, array = table.values("id_array_task", _whole), table.values("id_array_job", _whole, 0.0)
    offset, lead = table.values("het_job_offset", _whole), table.values("het_job_id", _whole, 0.0)
    keys = np.char.mod("%d", number.astype(np.int64)).astype(object)
    for row in np.flatnonzero((array > 0) & (task >= 0) & (task < _NO_TASK)).tolist():
        keys[row] = f"{int(array[row])}_{int(task[row])}/{keys[row]}"
    for row in np.flatnonzero((lead > 0) & (offset >= 0) & (offset < _NO_TASK)).tolist():
        keys[row] = f"{int(lead[row])}+{int(offset[row])}"
    return keys


def _phases(table: LogTable) -> Array:
    """Return the phase by the state's base number (flags are above 255) or by its name."""
    known = {0: PENDING, 1: RUNNING, 2: RUNNING}
    found, codes = table.parsed("state", lambda text: known.get(int(text) & 255, ENDED) if re.fullmatch(r"\d{1,9}", text) else phase(text))
    phases: Array = np.array(found)[codes]
    return phases


def _memory(table: LogTable, cpus: Array, nodes: Array) -> Array:
    """Return GB in all from mem_req: MiB per node, or per core where the highest bit is set."""
    column = table.coded("mem_req")
    raw = [int(label) if re.fullmatch(r"\d{1,20}", label) else 0 for label in column.labels]
    per_core = np.array([value >= _MEMORY_PER_CORE for value in raw])[column.codes]
    size = np.array([float(value % _MEMORY_PER_CORE) for value in raw])[column.codes]
    return np.where(size < 2**31, size * MIB * np.where(per_core, cpus, nodes), np.nan)
