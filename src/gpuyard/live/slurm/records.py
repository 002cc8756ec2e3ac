"""Jobs, nodes and partitions as Slurm reports them, made of the fields of its commands, whatever these are called there."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from typing import TypeVar

from gpuyard.errors import DataError
from gpuyard.live.state.site import MAX_TASK, SiteJob, SiteNode, SitePartition
from gpuyard.model.site.notation import Resources, gigabytes_of, gres_of, instant_of, node_names, seconds_of, tres_of, type_label

T = TypeVar("T")
VERIFIED = ("22.05",)  # releases that samples and tests are from
NOTHING = frozenset({"", "n/a", "(null)", "none", "unknown", "null"})
_ALIASES = {  # ours → squeue's headers, scontrol's keys, keys of the JSON
    "shown": ("JOBID", "JobId"), "id": ("RAW_JOBID", "JobId", "job_id"), "array": ("ARRAY_JOB_ID", "ArrayJobId", "array_job_id"),
    "task": ("ARRAY_TASK_ID", "ArrayTaskId", "array_task_id", "array_task_string"),
    "state": ("STATE", "JobState", "job_state"), "reason": ("REASON", "Reason", "state_reason"),
    "priority": ("PRIORITY", "Priority", "priority"), "per_node": ("TRES_PER_NODE", "TresPerNode", "tres_per_node"),
    "per_job": ("TRES_PER_JOB", "TresPerJob", "tres_per_job"), "per_task": ("TRES_PER_TASK", "TresPerTask", "tres_per_task"),
    "per_socket": ("TRES_PER_SOCKET", "TresPerSocket", "tres_per_socket"),
    "tres": ("TRES_ALLOC", "AllocTRES", "ReqTRES", "TRES", "tres_alloc_str", "tres_req_str"),
    "node_list": ("NODELIST", "NodeList", "nodes"), "node_count": ("NODES", "NumNodes", "node_count"),
    "cpus": ("CPUS", "NumCPUs", "cpus"), "tasks": ("TASKS", "NumTasks", "tasks"), "limit": ("TIME_LIMIT", "TimeLimit", "time_limit"),
    "start": ("START_TIME", "StartTime", "start_time"), "submit": ("SUBMIT_TIME", "SubmitTime", "submit_time"),
    "eligible": ("ELIGIBLE_TIME", "EligibleTime", "eligible_time"), "user": ("USER", "UserId", "user_name"),
    "account": ("ACCOUNT", "Account", "account"), "qos": ("QOS", "QOS", "qos"), "partition": ("PARTITION", "Partition", "partition"),
    "name": ("NAME", "JobName", "name"), "elapsed": ("TIME", "RunTime"), "mark": ("ADMIN_COMMENT", "AdminComment", "admin_comment"),
    "pinned": ("REQ_NODES", "ReqNodeList", "required_nodes"),
}  # fmt: skip
_WHY = {  # what Slurm's reason begins with → ours; the first that fits
    "None": "", "Priority": "", "Resources": "", "JobHeld": "held", "JobHoldMaxRequeue": "held", "BeginTime": "begin",
    "DependencyNeverSatisfied": "after-failed", "Dependency": "after", "JobArrayTaskLimit": "array-limit", "Licenses": "licence",
    "Reserv": "reservation", "Assoc": "account-limit", "MaxTRES": "account-limit", "MaxJobs": "account-limit", "QOS": "qos-limit",
    "Partition": "partition-limit", "AccountingPolicy": "account-limit", "AccountNotAllowed": "account-limit",
    "InvalidAccount": "account-limit", "InvalidQOS": "qos-limit", "BadConstraints": "impossible", "DeadLine": "impossible",
    "ReqNodeNotAvail": "node-down", "NodeDown": "node-down", "Nodes_required": "node-down", "Burst": "staging", "Cleaning": "staging",
    "FedJobLock": "held",
}  # fmt: skip
_NO_STARTS = {  # states of a node in which nothing new starts there
    "DOWN", "DRAIN", "DRAINED", "DRAINING", "FAIL", "FAILING", "ERROR", "MAINT", "NOT_RESPONDING", "NO_RESPOND", "POWERED_DOWN",
    "POWERING_DOWN", "POWER_DOWN", "REBOOT", "REBOOT_ISSUED", "REBOOT_REQUESTED", "RESERVED", "UNKNOWN", "FUTURE", "INVAL",
    "INVALID_REG", "BLOCKED",
}  # fmt: skip
_WAITS = frozenset({"PENDING", "REQUEUED", "REQUEUE_HOLD", "REQUEUE_FED", "SPECIAL_EXIT"})
_RUNS = frozenset({"RUNNING", "COMPLETING", "CONFIGURING", "SUSPENDED", "STOPPED", "SIGNALING", "STAGE_OUT", "RESIZING"})  # holds nodes
_ENDED = frozenset({"COMPLETED", "FAILED", "TIMEOUT", "CANCELLED", "NODE_FAIL", "PREEMPTED", "OUT_OF_MEMORY", "DEADLINE", "BOOT_FAIL"})
_INDICES = re.compile(r"\(IDX:([0-9,\-]+)\)")


class Reported:
    """The fields of one thing under our names; a field that is absent or says nothing is empty. Errors name place and field."""

    def __init__(self, given: Mapping[str, str], where: str) -> None:
        self.given, self.where = given, where

    def __getitem__(self, name: str) -> str:
        for each in _ALIASES.get(name, (name,)):
            value = self.given.get(each, "").strip()
            if value.lower() not in NOTHING:
                return value
        return ""

    def read(self, name: str, parse: Callable[[str], T], otherwise: T) -> T:
        """Parse a field; `otherwise` where it says nothing."""
        text = self[name]
        try:
            return parse(text) if text else otherwise
        except ValueError as error:
            raise DataError(f"{self.where}: {name} = {text[:60]!r} {error}") from None


def job_of(given: Mapping[str, str], where: str, devices: Mapping[str, tuple[int, ...]] | None = None) -> SiteJob:
    """Make a job of the fields of any of the commands."""
    row = Reported(given, where)
    shown = row["shown"] or row["id"]
    head, _, tail = shown.partition("_")
    number = row.read("id", _whole, -1)
    number = number if number >= 0 else _number(head, where)
    array = row.read("array", _whole, 0) or (_number(head, where) if tail else 0)
    task_text = (row["task"] or tail) if array else ""
    task = _task(task_text) if array else -1
    state = row["state"].upper().split(",")[0].split("+")[0]
    if not state:
        raise DataError(f"{where}: job {shown} has no state")
    no_nodes: list[str] = []
    nodes = tuple(row.read("node_list", node_names, no_nodes))
    count = max(row.read("node_count", lambda text: _whole(text.partition("-")[0]), 1), 1)
    held = row.read("tres", tres_of, Resources())
    cpus = row.read("cpus", _amount, 1.0)
    gpus, chunk, kind = _gpus_asked(row, count, held)
    reason = row["reason"] or "None"
    ran = row.read("elapsed", seconds_of, math.nan) if state in _ENDED else math.nan
    name = f"{array}_{task}" if task >= 0 and array else f"{array}_[{task_text.strip('[]')}]" if array and task_text else str(number)
    return SiteJob(
        number, array, task, name, state in _WAITS, state in _RUNS, why_of(reason), reason,
        tuple(filter(None, row["partition"].split(","))),
        row["user"].partition("(")[0], row["account"], row["qos"], row["name"], row.read("priority", _amount, 0.0),
        row.read("submit", instant_of, 0.0), row.read("eligible", instant_of, math.nan), row.read("start", instant_of, math.nan),
        row.read("limit", _limit, math.inf), nodes, len(nodes) or count, cpus, 0.0 if math.isnan(held.memory) else held.memory,
        gpus, chunk, kind, devices or {}, ran if state == "COMPLETED" else math.nan, ran, row["mark"][:100],
        tuple(row.read("pinned", node_names, no_nodes)),
    )  # fmt: skip


def _gpus_asked(row: Reported, nodes: int, held: Resources) -> tuple[int, int, str]:
    """Return GPUs in all, GPUs that are together on a node, and their type."""
    for name, times in (("per_node", nodes), ("per_task", row.read("tasks", _whole, 1)), ("per_job", 1)):
        asked = row.read(name, lambda text: gres_of(text.replace("gres/gpu=", "gres:gpu:").replace("=", ":")), Resources())
        if asked.gpus > 0:
            total = int(asked.gpus) * times
            chunk = int(asked.gpus) if name == "per_node" else total if nodes == 1 else 1
            return total, chunk, asked.gpu_type
    if held.gpus > 0:
        total = int(held.gpus)
        return total, total // nodes if total % nodes == 0 else 1, held.gpu_type
    return 0, 1, ""


def node_of(given: Mapping[str, str], where: str) -> SiteNode:
    """Make a node of the fields of `scontrol show node`, `sinfo -N` or `sinfo --json`."""
    name = _first(given, "NodeName", "NODELIST", "name")
    if not name:
        raise DataError(f"{where}: a node has no name")
    row = Reported(given, f"{where}: node {name[:60]}")
    text = _first(given, "State", "STATE", "state").upper()
    states = frozenset(re.split(r"[+,]", text.rstrip("*~#!%$@^-"))) | ({"NOT_RESPONDING"} if "*" in text else set())
    none: dict[str, int] = {}
    gres = Reported({"x": _first(given, "Gres", "GRES", "gres")}, row.where).read("x", gpus_by_type, none)
    used = Reported({"x": _first(given, "GresUsed", "GRES_USED", "gres_used")}, row.where).read("x", gpus_by_type, none)
    memory = Reported({"x": _first(given, "RealMemory", "MEMORY", "real_memory")}, row.where).read("x", gigabytes_of, (0.0, ""))[0]
    cpus = Reported({"x": _first(given, "CPUEfctv", "CPUTot", "CPUS", "cpus")}, row.where).read("x", _amount, 0.0)
    partitions = tuple(sorted(filter(None, _first(given, "Partitions", "PARTITION", "partitions").rstrip("*").split(","))))
    return SiteNode(name, not states & _NO_STARTS, cpus, memory, gres, partitions, sum(used.values()))


def partition_of(given: Mapping[str, str], where: str) -> SitePartition:
    """Make a partition of the fields of `scontrol show partition`."""
    row = Reported(given, where)
    if not row["PartitionName"]:
        raise DataError(f"{where}: a partition has no name")
    limit = row.read("MaxTime", _limit, math.inf)
    state = row["State"].upper()
    return SitePartition(
        row["PartitionName"], row.read("PriorityTier", _whole, 1), row.read("PriorityJobFactor", _amount, 0.0), state in ("", "UP"), limit
    )


def why_of(reason: str) -> str | None:
    """Return our name for Slurm's reason why a job waits; empty if it may start, None if it is not known."""
    return next((ours for start, ours in _WHY.items() if reason.startswith(start)), None)


def unverified(version: str) -> tuple[str, ...]:
    """Return a note for a release that nothing has been read of before."""
    if not version or version.startswith(VERIFIED):
        return ()
    return (f"Slurm {version}: no sample of this release has been read before; check a few jobs by eye",)


def gpus_by_type(text: str) -> dict[str, int]:
    """Parse `gpu:a100:8(S:0-1),gpu:v100:2,shard:16` to GPUs by type; an untyped GPU has the type `gpu`."""
    found: dict[str, int] = {}
    for part in re.sub(r"\([^()]*\)", "", text).split(","):
        words = part.strip().removeprefix("gres:").removeprefix("gres/").split(":")
        if words[0] != "gpu":
            continue
        count = _whole(words[-1]) if words[-1].isdigit() else 1
        kind = type_label(words[1]) if len(words) > 1 and not words[1].isdigit() else "gpu"
        found[kind] = found.get(kind, 0) + count
    return found


def indices_of(gres: str) -> tuple[int, ...]:
    """Return the GPUs in `gpu:a100:8(IDX:0-3,6)`, ascending; none where it does not say."""
    found: set[int] = set()
    for match in _INDICES.finditer(gres):
        for part in match[1].split(","):
            first, _, last = part.partition("-")
            if not first.isdigit() or not (last or first).isdigit() or int(last or first) >= 4096:
                raise ValueError("has GPUs that are not numbers")
            found.update(range(int(first), int(last or first) + 1))
    return tuple(sorted(found))


def _first(given: Mapping[str, str], *names: str) -> str:
    return next((given[name].strip() for name in names if given.get(name, "").strip().lower() not in NOTHING), "")


def _whole(text: str) -> int:
    clean = text.strip()
    if not re.fullmatch(r"[0-9]{1,12}", clean):
        raise ValueError("is not a whole number")
    return int(clean)


def _amount(text: str) -> float:
    match = re.fullmatch(r"([0-9]{1,15}(?:\.[0-9]{1,6})?)([KM]?)", text.strip())
    if match is None:
        raise ValueError("is not a number")
    return float(match[1]) * {"": 1, "K": 1e3, "M": 1e6}[match[2]]


def _limit(text: str) -> float:
    return seconds_of(text) if not re.fullmatch(r"[0-9]{1,9}", text) else 60.0 * float(text)


def _number(text: str, where: str) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text):
        raise DataError(f"{where}: {text[:40]!r} is not the number of a job")
    return int(text)


def _task(text: str) -> int:
    return int(text) if re.fullmatch(r"[0-9]{1,7}", text) and int(text) < MAX_TASK else -1
