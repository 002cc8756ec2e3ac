"""Reads a Slurm site's own policy: weights, partitions, QOS and limits, as `scontrol show config`, `scontrol show partition`,
`sacctmgr -P show qos` and `sacctmgr -P show assoc` print them, or as they stand in a slurm.conf; in one text, one after the other."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from gpuyard.errors import DataError
from gpuyard.model.cluster import MAX_SHARING, Cluster, Partition, where_several
from gpuyard.model.site.limits import Limit
from gpuyard.model.site.notation import node_names, seconds_of, tres_of

MOST_LINES = 1_000_000
_HINT = "scontrol show config; scontrol show partition; sacctmgr -P show qos"
# Slurm's name → parameter of the ordering `multifactor`
WEIGHTS = {
    "priorityweightage": "age", "priorityweightjobsize": "size", "priorityweightpartition": "partition", "priorityweightqos": "qos",
    "priorityweightfairshare": "fairshare",
}  # fmt: skip
TIMES = {"prioritymaxage": ("max_age", 604_800.0), "prioritydecayhalflife": ("half_life", 604_800.0)}
_PAIR = re.compile(r"^\s*(\w+)\s*=\s*(.*?)\s*$")
_PAIRS = re.compile(r"(\w+)=(\S*)")
_ALONE: tuple[str, ...] = ()
# Column of sacctmgr → whose jobs are counted together, and what of them
_QOS_LIMITS = {
    "grpjobs": ((), "jobs"), "grpsubmit": ((), "submitted"), "grptres": ((), "gpus"), "grptresmins": ((), "gpu_minutes"),
    "grptresrunmins": ((), "running_gpu_minutes"), "maxjobspu": (("user",), "jobs"), "maxsubmitpu": (("user",), "submitted"),
    "maxtrespu": (("user",), "gpus"), "maxjobspa": (("account",), "jobs"), "maxsubmitpa": (("account",), "submitted"),
    "maxtrespa": (("account",), "gpus"), "maxtresperuser": (("user",), "gpus"), "maxtresperaccount": (("account",), "gpus"),
}  # fmt: skip
_ASSOC_LIMITS = {
    "grpjobs": "jobs", "grpsubmit": "submitted", "grptres": "gpus", "grptresmins": "gpu_minutes", "grptresrunmins": "running_gpu_minutes",
    "maxjobs": "jobs", "maxsubmit": "submitted",
}  # fmt: skip


@dataclass(frozen=True)
class SlurmPartition:
    """Holds what Slurm says of a partition."""

    name: str
    tier: float = 1.0
    factor: float = 1.0  # PriorityJobFactor
    nodes: tuple[str, ...] = ()
    everywhere: bool = False  # on all nodes, without naming them


@dataclass(frozen=True)
class SlurmSite:
    """The policy of a site that runs Slurm."""

    settings: Mapping[str, str] = field(default_factory=dict)  # by Slurm's names, in lower case
    partitions: tuple[SlurmPartition, ...] = ()
    qos: Mapping[str, float] = field(default_factory=dict)
    limits: tuple[Limit, ...] = ()

    @property
    def ordering(self) -> str:
        """The ordering that the site uses, as it is written: `multifactor` with its weights, or `fcfs`."""
        if "multifactor" not in self.settings.get("prioritytype", "priority/multifactor"):
            return "fcfs"
        said = {ours: _number(self.settings.get(name, "0"), name) for name, ours in WEIGHTS.items()}
        for name, (ours, usual) in TIMES.items():
            seconds = seconds_of(self.settings[name]) if name in self.settings else usual
            if name == "prioritydecayhalflife" and seconds == 0:
                seconds = 1e12  # usage never decays
            said[ours] = seconds
        said["small"] = float(self.settings.get("priorityfavorsmall", "no").lower() in ("yes", "1", "true"))
        return "multifactor:" + ",".join(f"{name}={value:g}" for name, value in said.items())

    @property
    def scheduler(self) -> str:
        """The scheduler that does nearly as the site: EASY stands for Slurm's backfill, which reserves for more jobs."""
        return f"{self.ordering}/fewest/{'none' if 'builtin' in self.settings.get('schedulertype', '') else 'easy'}"


def parse_slurm_site(text: str, where: str = "slurm.conf") -> SlurmSite:
    """Read the outputs, in any order. What is not known is left out; a text with nothing that is known is refused."""
    lines = text.splitlines()
    if len(lines) > MOST_LINES:
        raise DataError(f"{where}: more than {MOST_LINES:,} lines")
    settings: dict[str, str] = {}
    records: list[dict[str, str]] = []
    partitions: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    header: list[str] = []
    for line in lines:
        if "|" in line:
            header = _table_line(line, header, records)
            continue
        header = []
        bare = line.split("#")[0]
        pairs = {name.lower(): value for name, value in _PAIRS.findall(bare)}
        if "partitionname" in pairs:
            current = partitions.setdefault(pairs["partitionname"], {})
        if current is not None and pairs and ("partitionname" in pairs or line[:1].isspace()):
            current.update(pairs)
        elif found := _PAIR.match(bare):
            current = None
            settings[found[1].lower()] = found[2]
    made = SlurmSite(settings, tuple(_partitions(partitions, where)), *_qos_and_limits(records, where))
    if not (made.partitions or made.qos or made.limits or set(settings) & {*WEIGHTS, *TIMES, "prioritytype", "schedulertype"}):
        raise DataError(
            f"{where}: nothing of a Slurm site in it", hint="scontrol show config; scontrol show partition; sacctmgr -P show qos"
        )
    return made


def _table_line(line: str, header: list[str], records: list[dict[str, str]]) -> list[str]:
    """Take a line of `sacctmgr -P`: the header, or a row of the table under way; returns the header."""
    cells = [cell.strip() for cell in line.split("|")]
    if not header:
        return [cell.lower() for cell in cells]
    records.append(dict(zip(header, cells, strict=False)))
    return header


def _partitions(given: Mapping[str, Mapping[str, str]], where: str) -> Iterator[SlurmPartition]:
    usual = given.get("DEFAULT", {})
    for name, own in given.items():
        said = {**usual, **own}
        if name == "DEFAULT":
            continue
        factor = said.get("priorityjobfactor", said.get("priority", "1"))
        tier = said.get("prioritytier", said.get("priority", "1"))
        nodes = said.get("nodes", "")
        named = tuple(node_names(nodes)) if nodes not in ("", "(null)", "ALL") else ()
        what = f"{where}: partition {name}"
        yield SlurmPartition(name, _number(tier, what), _number(factor, what), named, nodes == "ALL")


def _qos_and_limits(records: list[dict[str, str]], where: str) -> tuple[dict[str, float], tuple[Limit, ...]]:
    qos: dict[str, float] = {}
    limits: list[Limit] = []
    for row in records:
        if "account" in row:
            labels = {name: row.get(name, "") for name in ("account", "user", "partition")}
            amounts = [(column, _ALONE, ours) for column, ours in _ASSOC_LIMITS.items()]
        elif "name" in row:
            qos[row["name"]] = _number(row.get("priority") or "0", f"{where}: QOS {row['name']}")
            labels = {"qos": row["name"]}
            amounts = [(column, each, ours) for column, (each, ours) in _QOS_LIMITS.items()]
        else:
            continue
        for column, each, ours in amounts:
            value = _amount(row.get(column, ""), ours, f"{where}: {column}")
            if math.isfinite(value):
                limits.append(Limit(each, **labels, **{ours: value}))  # type: ignore[arg-type]
    return qos, tuple(limits)


def _amount(text: str, what: str, where: str) -> float:
    """Return a limit; of trackable resources the GPUs. inf: there is none."""
    if not text or text.upper() in ("N/A", "UNLIMITED", "-1"):
        return math.inf
    if what in ("jobs", "submitted"):
        return _number(text, where)
    gpus = tres_of(text).gpus
    return gpus if gpus == gpus else math.inf


def _number(text: str, where: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise DataError(f"{where}: {text[:40]!r} is not a number from 0")
    return value


# ── the policy of the site for a cluster: its partitions, tiers, priorities, QOS and limits ──


def with_slurm_site(cluster: Cluster, site: SlurmSite) -> tuple[Cluster, tuple[str, ...]]:
    """Return the cluster under the site's policy, and notes about what could not be taken over.

    Where the site's partitions list all nodes of the cluster by name, they take the place of its own. Otherwise those of the same name
    get tier and priority.
    """
    notes: list[str] = []
    places = {name: number for number, name in enumerate(cluster.nodes.names)}
    listed = {name for partition in site.partitions for name in (places if partition.everywhere else partition.nodes)}
    if listed >= set(places) and len(site.partitions) <= MAX_SHARING:
        cluster = _divided(cluster, site, places)
        missing = len(listed - set(places))
        notes += [f"{missing:,} nodes of the site are not in the cluster"] if missing else []
    else:
        said = {partition.name: partition for partition in site.partitions}
        known = cluster.partition_numbers
        notes += [f"partition {name} of the site is not in the cluster" for name in said if name not in known]
        found = {known[name]: each for name, each in said.items() if name in known}
        partitions = tuple(
            replace(own, tier=found[k].tier, priority=found[k].factor) if k in found else own for k, own in enumerate(cluster.partitions)
        )
        cluster = replace(cluster, partitions=partitions)
    return replace(cluster, qos={**cluster.qos, **site.qos}, limits=(*cluster.limits, *site.limits)), tuple(notes)


def _divided(cluster: Cluster, site: SlurmSite, places: dict[str, int]) -> Cluster:
    """Return the cluster with the partitions of the site."""
    sets = np.zeros(len(places), np.uint64)
    for number, partition in enumerate(site.partitions):
        inside = [*places.values()] if partition.everywhere else [places[name] for name in partition.nodes if name in places]
        sets[inside] |= np.uint64(1) << np.uint64(number)
    lowest = np.array([(int(bits) & -int(bits)).bit_length() - 1 for bits in sets], np.int32)
    partitions = tuple(Partition(each.name, priority=each.factor, tier=each.tier) for each in site.partitions)
    return replace(cluster, nodes=replace(cluster.nodes, partition=lowest, member_of=where_several(sets)), partitions=partitions)
