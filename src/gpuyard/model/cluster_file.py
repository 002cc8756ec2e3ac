"""Make clusters from text: a TOML file, `16x8:a100`, `4x8:a100+8x4:t4`, `256` (one pool of processors), `256@batch+64@long` (pools, each
a partition), `hosts:…`, or a preset's name.

A cluster file with every key; all but `[[nodes]]` and its `gpus` may be left out:

    name = "lab"
    span_nodes = 0.9            # rate of a gang over several nodes; 1 unless given
    span_racks = 0.8            # … over several racks
    speeds = "measured.json"    # a speed table, in the folder of this file; `measured.json:reference=p100`

    [[nodes]]                   # one group of equal nodes
    count = 4                   # 1 unless given
    gpus = 8
    type = "a100"               # "gpu" unless given, "cpu" where gpus = 0
    cpus = 128                  # cores per node; not limited unless given
    memory = "1TB"              # per node, a number is GB; not limited unless given
    rack = 0
    partition = "train"         # needed where there are several; "train,debug": the nodes are in both
    name = "a"                  # a0, a1, … (without `count`: the name itself); n0, n1, … unless given
    # names = ["gpu-01", …]     # or each by name

    [types.a100]                # overrides the published figures; a new type starts from speed 1
    speed = 1.0
    tflops = 312
    memory = "80GB"
    idle_watts = 55
    busy_watts = 400
    price = 2.5                 # money per device-hour
    transfer = 1.0              # factor on the `transfer` of jobs; 1 unless given, 0 for cpu

    [partitions.train]
    quota = 24                  # GPUs in use at once; not limited unless given
    priority = 10               # weighed by the ordering `multifactor`; 0 unless given
    also = ["short"]            # other names by which jobs ask for this partition
    tier = 2                    # jobs of a higher tier go first where partitions share nodes; 0 unless given

    [qos]                       # priority of each quality of service, for `multifactor`
    high = 100
    normal = 10

    [[limits]]                  # at least one amount; a job that would go beyond waits, and others pass it
    each = ["user"]             # counted apart for each user, account, qos, partition; together unless given
    qos = "normal"              # only jobs with this label; so user, account, partition
    jobs = 10                   # running at once
    gpus = 16                   # in use at once
    gpu_minutes = 100000        # in all: used, and asked for by running jobs
    running_gpu_minutes = 5000  # asked for by running jobs
    submitted = 100             # submitted and not ended; one more is rejected

    [speed.resnet]              # speed of a type for jobs of a class
    a100 = 1.0

    [[outages]]
    node = "a0"                 # or its number
    start = "2h"                # a number is seconds
    end = "3h"
    gpus = 2                    # the whole node unless given

    [profile]                   # where the figures come from, as `gpuyard profile` writes it; nothing else reads it
    version = 1
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.files import is_file, read_toml, toml_text, write_bytes
from gpuyard.model.cluster import (
    MAX_SHARING,
    MAX_TOTAL_GPUS,
    MAX_TRANSFER_FACTOR,
    Cluster,
    GpuType,
    Nodes,
    Outage,
    Partition,
    partition_names,
)
from gpuyard.model.fields import Fields
from gpuyard.model.presets import DEVICES, HOSTS, PRESETS, check_type, device, hosts_table
from gpuyard.model.site.limits import limit_of, limit_row
from gpuyard.model.speeds import speeds_text, with_speeds
from gpuyard.model.storage import MANIFEST, is_saved, read_manifest
from gpuyard.model.units import (
    format_gigabytes,
    format_seconds,
    shorten,
)
from gpuyard.registry import unknown_name

MAX_NODES = 1_000_000
MAX_FILE_BYTES = 64_000_000
PROFILE_VERSION = 1  # of the table `profile` in a cluster file
PROFILE_FIGURES = ("memory", "bandwidth", "tflops", "half_tflops", "to_device", "from_device", "idle_watts", "busy_watts")  # of a device
_GROUP = re.compile(r"(?:([0-9]{1,18})x)?([0-9]{1,18})(?::([A-Za-z][A-Za-z0-9_.-]{0,63}))?")
_POOL = re.compile(r"[1-9][0-9]{0,17}")
_HINT = "write 16x8:a100, 4x8:a100+8x4:t4, 256, 256@batch+64@long, hosts:cores=16:32, a preset or a .toml file"

_FIGURES = ("speed", "tflops", "memory", "idle_watts", "busy_watts", "price", "transfer")  # of a type


def load_cluster(text: str) -> Cluster:
    """Return the cluster that `text` names: a preset, a short form such as `16x8:a100`, a TOML file, or the folder of a result."""
    text = text.strip()
    if text in PRESETS:
        return cluster_from_dict({"name": text, **PRESETS[text].table}, where=f"preset {text}")
    if text[:1].isdigit() and "/" not in text and not text.endswith(".toml"):
        return _short_form(text)
    if text == "hosts" or text.startswith(HOSTS):
        return cluster_from_dict(hosts_table(text), where=f"cluster {shorten(text)[1:-1]}")
    path = Path(text)
    if is_saved(path):
        root = Fields(read_manifest(path), str(path / MANIFEST))
        root.table("cluster")  # refuses anything but a table
        found: Any = root.peek("cluster")
        return cluster_from_dict(found, where=f"{path / MANIFEST}: [cluster]")
    if text.endswith(".toml") or "/" in text or is_file(path):
        return read_cluster_file(path)
    raise unknown_name("cluster", text if len(text) < 60 else text[:59] + "…", list(PRESETS))


def _short_form(text: str) -> Cluster:
    """Parse `256`, or groups `COUNTxGPUS[:TYPE]` or pools `GPUS` joined by `+`, each with `@PARTITION[,ANOTHER NAME…]` or none with it."""
    what = f"cluster {shorten(text)}"
    if _POOL.fullmatch(text):
        return cluster_from_dict({"name": text, "nodes": [{"gpus": int(text), "type": "cpu"}]}, where=f"cluster {text}")
    groups: list[dict[str, Any]] = []
    partitions: dict[str, dict[str, Any]] = {}
    parts = text.split("+")
    for part in parts:
        group, at, labels = part.strip().partition("@")
        name, *also = labels.split(",")
        if bool(at) != ("@" in parts[0]) or (at and not name):
            raise UsageError(f"{what}: {shorten(part)} names no partition", hint="name one for each part: 256@batch+64@long")
        groups.append(_group(group, what, pool=bool(at)) | ({"partition": name} if at else {}))
        if at:
            known = partitions.setdefault(name, {"also": []})["also"]
            known += [other for other in also if other not in known]
    table: dict[str, Any] = {"name": shorten(text)[1:-1], "nodes": groups}
    return cluster_from_dict(table | ({"partitions": partitions} if partitions else {}), where=f"cluster {shorten(text)[1:-1]}")


def _group(text: str, what: str, *, pool: bool) -> dict[str, Any]:
    """Parse `COUNTxGPUS[:TYPE]`, or `GPUS` where a pool is allowed."""
    match = _GROUP.fullmatch(text)
    if match is None or (match[1] is None and (match[3] or not pool)):
        raise UsageError(f"{what}: {shorten(text)} is not COUNTxGPUS:TYPE", hint=_HINT)
    count, gpus, kind = match.groups()
    if kind:
        check_type(kind, what)
    if count is None:
        return {"gpus": int(gpus), "type": "cpu"}
    return {"count": int(count), "gpus": int(gpus)} | ({"type": kind} if kind else {})


def read_cluster_file(path: Path) -> Cluster:
    """Read the cluster in a TOML file. A type or partition that is declared and used nowhere is refused: it is a misspelt name."""
    if not is_file(path):
        raise DataError(f"{shorten(str(path))[1:-1]}: no such cluster file", hint=_HINT)
    table = read_toml(path, "a cluster file", MAX_FILE_BYTES)
    speeds = table.pop("speeds", "")
    cluster = cluster_from_dict({"name": path.stem[:200], **table}, where=str(path))
    _refuse_unused(cluster, str(path))
    return _measured(cluster, speeds, path) if speeds else cluster


def _measured(cluster: Cluster, speeds: object, path: Path) -> Cluster:
    """Add the table that the key `speeds` names. A class that does not fit on a type is refused: a cluster file cannot keep jobs off."""
    if not isinstance(speeds, str):
        raise DataError(f"{path}: speeds is not a text", hint='write speeds = "table.json"')
    table = speeds_text(speeds, path.parent)
    for name, row in table.items():
        for kind in cluster.types:
            if row.get(kind.name) == 0 and kind.name not in cluster.speed.get(name, {}):
                raise DataError(
                    f"{path}: speeds: {shorten(name)} does not fit on {kind.name}",
                    hint="give the table with --speeds instead, which keeps such jobs off that type, or set the speed in [speed.CLASS]",
                )
    return with_speeds(cluster, table)


def _refuse_unused(cluster: Cluster, where: str) -> None:
    used = [cluster.types[i].name for i in np.unique(cluster.nodes.gpu_type)]
    for kind in cluster.types:
        if kind.name not in used:
            raise DataError(f"{where}: [types.{kind.name}]: no node has this type", hint="types of the nodes: " + ", ".join(used))
    for job_class, row in cluster.speed.items():
        for name in row:
            if name not in used:
                raise DataError(f"{where}: [speed.{job_class}]: {unknown_name('device type', name, used)}")
    filled = [partition.name for i, partition in enumerate(cluster.partitions) if cluster.nodes.of_partition(i).any()]
    for partition in cluster.partitions:
        if partition.name not in filled:
            raise DataError(f"{where}: [partitions.{partition.name}]: has no nodes", hint="partitions of the nodes: " + ", ".join(filled))


def cluster_from_dict(data: Mapping[str, Any], *, where: str = "cluster") -> Cluster:
    """Make the cluster from a table in the form of a cluster file. Errors name `where` and the key path."""
    root = Fields(data, where)
    name = root.text("name", "cluster")
    factors = {key: root.number(key, 1.0, above=0.0, high=10.0) for key in ("span_nodes", "span_racks")}
    groups = root.rows("nodes")
    if not groups:
        raise DataError(f"{where}: no [[nodes]]", hint="a cluster has at least one group of nodes")
    types = {key: _gpu_type(key, fields) for key, fields in root.tables("types")}
    partitions = {key: _partition(key, fields) for key, fields in root.tables("partitions")}
    nodes = _nodes(groups, types, partitions)
    cluster = Cluster(
        nodes,
        tuple(types.values()),
        tuple(partitions.values()),
        speed=MappingProxyType({key: _numbers(fields, above=0.0) for key, fields in root.tables("speed")}),
        outages=_outages(root.rows("outages"), nodes),
        name=name,
        qos=_numbers(root.table("qos")),
        limits=tuple(limit_of(row) for row in root.rows("limits")),
        **factors,
    )
    _check_profile(root)
    root.done()
    return cluster


def _check_profile(root: Fields) -> None:
    """Check the measurements behind the figures, if a cluster file has them. The cluster does not keep them."""
    if "profile" not in root:
        return
    profile = root.table("profile")
    version = profile.whole("version")
    if version != PROFILE_VERSION:
        raise profile.error("version", f"is not {PROFILE_VERSION}", hint="measure again with this gpuyard: gpuyard profile")
    profile.text("made", "")
    for row in profile.rows("devices"):
        for key in ("kind", "title", "library"):
            row.text(key)
        row.whole("count", 1, low=1)
        for key in PROFILE_FIGURES:
            row.number(key, 0.0)
        row.texts("notes", ())
        row.done()
    profile.done()


def _gpu_type(name: str, fields: Fields) -> GpuType:
    known = device(name)
    limits: dict[str, dict[str, float]] = {"speed": {"above": 0.0}, "transfer": {"high": MAX_TRANSFER_FACTOR}}
    figures = {key: fields.number(key, getattr(known, key), **limits.get(key, {})) for key in _FIGURES if key != "memory"}
    made = GpuType(name, memory=fields.gigabytes("memory", known.memory), **figures)
    fields.done()
    return made


def _partition(name: str, fields: Fields) -> Partition:
    figures = {key: fields.number(key, default) for key, default in (("quota", np.inf), ("priority", 0.0), ("tier", 0.0))}
    made = Partition(name, also=fields.texts("also", ()), **figures)
    fields.done()
    return made


def _numbers(fields: Fields, above: float | None = None) -> Mapping[str, float]:
    return MappingProxyType({key: fields.number(key, above=above) for key in fields.names})


def _nodes(groups: list[Fields], types: dict[str, GpuType], partitions: dict[str, Partition]) -> Nodes:
    """Make the columns over all groups, and add the types and partitions that only the groups name."""
    declared = bool(partitions)
    names: list[str] = []
    prefixes: dict[str, int] = {}
    columns: list[tuple[int, int, int, float, float, int, int, int]] = []
    total = 0
    for group in groups:
        count = group.whole("count", len(group.texts("names", ("",))), low=1, high=MAX_NODES - len(names))
        gpus = group.whole("gpus", high=MAX_TOTAL_GPUS)
        total += count * gpus
        if total > MAX_TOTAL_GPUS:
            raise group.error("gpus", f"makes more than {MAX_TOTAL_GPUS:,} GPUs in all")
        kind = _type_of(group, types, "gpu" if gpus else "cpu")
        cpus, memory, rack = group.number("cpus", np.inf), group.gigabytes("memory", np.inf), group.whole("rack", 0, high=MAX_NODES)
        homes = [list(partitions).index(name) for name in _partitions_of(group, partitions, declared)]
        names.extend(_names(group, count, len(names), prefixes))
        columns.append((count, gpus, list(types).index(kind), cpus, memory, rack, homes[0], sum(1 << home for home in homes)))
        group.done()
    _refuse_twins(names, groups[0].where)
    counts, *values, sets = zip(*columns, strict=True)
    kinds = (np.int32, np.int32, np.float64, np.float64, np.int32, np.int32)
    made = Nodes(tuple(names), *(np.repeat(np.array(column, kind), counts) for column, kind in zip(values, kinds, strict=True)))
    if all(bits & (bits - 1) == 0 for bits in sets):
        return made
    if len(partitions) > MAX_SHARING:
        raise DataError(f"{groups[0].where}: {len(partitions)} partitions; at most {MAX_SHARING} where some share nodes")
    return replace(made, member_of=np.repeat(np.array(sets, np.uint64), counts))


def _type_of(group: Fields, types: dict[str, GpuType], default: str) -> str:
    """Return the group's type: a declared one, else a known one in upper or lower case, else a new one."""
    name = group.text("type", default)
    if not name or "|" in name:
        raise group.error("type", "is not a type's name", hint="a name without |")
    if name in types:
        return name
    kind = device(name)
    types.setdefault(kind.name, kind)
    return kind.name


def _partitions_of(group: Fields, partitions: dict[str, Partition], declared: bool) -> list[str]:
    if "partition" not in group and len(partitions) > 1 and declared:
        raise group.error("partition", "is missing", hint="partitions: " + ", ".join(partitions))
    names = partition_names(group.text("partition", next(iter(partitions)) if declared else "all", limit=10_000))
    for name in names:
        if name not in partitions:
            if declared:
                raise DataError(f"{group.where}: {group.path}: {unknown_name('partition', name, partitions)}")
            partitions[name] = Partition(name)
    return names


def _names(group: Fields, count: int, first: int, prefixes: dict[str, int]) -> list[str]:
    given = group.texts("names", ())
    if given:
        if len(given) != count:
            raise group.error("names", f"has {len(given)} names for {count} nodes")
        for name in given:
            if not name.isprintable() or not 0 < len(name) <= 200:
                raise group.error("names", f"has {shorten(name)}, which is not a name")
        return list(given)
    if "name" not in group:
        return [f"n{i}" for i in range(first, first + count)]
    prefix = group.text("name", limit=200)
    if "count" not in group:
        return [prefix]
    start = prefixes.get(prefix, 0)
    prefixes[prefix] = start + count
    return [f"{prefix}{i}" for i in range(start, start + count)]


def _refuse_twins(names: list[str], where: str) -> None:
    if len(set(names)) == len(names):
        return
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise DataError(f"{where}: [[nodes]]: two nodes are called {shorten(name)}")
        seen.add(name)


def _outages(rows: list[Fields], nodes: Nodes) -> tuple[Outage, ...]:
    if not rows:
        return ()
    numbers = {name: i for i, name in enumerate(nodes.names)}
    outages = []
    for row in rows:
        node = _node_number(row, numbers)
        start, end = row.seconds("start"), row.seconds("end", default=np.inf)
        if not start < end:
            raise row.error("end", f"is not after start = {start:g}")
        gpus = None
        if "gpus" in row:
            gpus = row.whole("gpus", low=1)
            if gpus > nodes.gpus[node]:
                raise row.error("gpus", f"is more than the {nodes.gpus[node]} of node {nodes.names[node]}")
        outages.append(Outage(node, start, end, gpus))
        row.done()
    return tuple(outages)


def _node_number(row: Fields, numbers: Mapping[str, int]) -> int:
    """Return the node's number, given as a number or a name."""
    if "node" in row and not isinstance(row.peek("node"), str):
        return row.whole("node", high=len(numbers) - 1)
    name = row.text("node")
    if name not in numbers:
        raise DataError(f"{row.where}: {row.path}: {unknown_name('node', name, list(numbers)[:1000])}")
    return numbers[name]


def cluster_to_dict(cluster: Cluster) -> dict[str, Any]:
    """Return the cluster as a table of JSON values in the form of a cluster file; `cluster_from_dict` gives it back equal."""
    return {
        "name": cluster.name,
        "span_nodes": float(cluster.span_nodes),
        "span_racks": float(cluster.span_racks),
        "nodes": _groups(cluster),
        "types": {kind.name: {key: float(getattr(kind, key)) for key in _FIGURES} for kind in cluster.types},
        "partitions": {p.name: _about(p) for p in cluster.partitions},
        "qos": {key: float(value) for key, value in cluster.qos.items()},
        "speed": {key: {kind: float(speed) for kind, speed in row.items()} for key, row in cluster.speed.items()},
        "outages": [_outage_row(outage) for outage in cluster.outages],
        "limits": [limit_row(limit) for limit in cluster.limits],
    }


def save_cluster(cluster: Cluster, path: Path) -> None:
    """Write a cluster file that `load_cluster` reads again; types that no node has are left out, since such a file is refused."""
    table = cluster_to_dict(cluster)
    used = {group["type"] for group in table["nodes"]}
    table["types"] = {name: figures for name, figures in table["types"].items() if name in used}
    table["speed"] = {name: {kind: speed for kind, speed in row.items() if kind in used} for name, row in table["speed"].items()}
    write_bytes(path, toml_text({key: value for key, value in table.items() if value not in ({}, [])}).encode())


def _about(partition: Partition) -> dict[str, Any]:
    about: dict[str, Any] = {} if np.isinf(partition.quota) else {"quota": float(partition.quota)}
    about |= {"priority": float(partition.priority)} if partition.priority else {}
    about |= {"tier": float(partition.tier)} if partition.tier else {}
    return about | ({"also": list(partition.also)} if partition.also else {})


def _outage_row(outage: Outage) -> dict[str, float]:
    row: dict[str, float] = {"node": int(outage.node), "start": float(outage.start)}
    if np.isfinite(outage.end):
        row["end"] = float(outage.end)
    return row if outage.gpus is None else row | {"gpus": int(outage.gpus)}


def _groups(cluster: Cluster) -> list[dict[str, Any]]:
    """Group runs of equal nodes; unlimited cpus and memory and the names n0, n1 … are left out."""
    nodes = cluster.nodes
    columns = (nodes.gpus, nodes.gpu_type, nodes.cpus, nodes.memory, nodes.rack, nodes.partition)
    sets = () if nodes.member_of is None else (nodes.member_of,)
    changes = np.zeros(len(nodes), bool)
    changes[0] = True
    for column in (*columns, *sets):
        changes[1:] |= column[1:] != column[:-1]
    starts = [*np.flatnonzero(changes).tolist(), len(nodes)]
    groups = []
    for first, stop in pairwise(starts):
        group: dict[str, Any] = {"count": stop - first, "gpus": int(nodes.gpus[first])}
        group["type"] = cluster.types[nodes.gpu_type[first]].name
        for key, column in (("cpus", nodes.cpus), ("memory", nodes.memory)):
            if np.isfinite(column[first]):
                group[key] = float(column[first])
        group["rack"] = int(nodes.rack[first])
        group["partition"] = ",".join(cluster.partitions[number].name for number in nodes.partitions_of(first))
        names = nodes.names[first:stop]
        if names != tuple(f"n{i}" for i in range(first, stop)):
            group["names"] = list(names)
        groups.append(group)
    return groups


def describe_cluster(cluster: Cluster) -> list[tuple[str, str]]:
    """Describe the cluster for a person, as rows of (label, text)."""
    nodes = cluster.nodes
    rows = [("cluster", cluster.name), ("size", _size(nodes, np.ones(len(nodes), bool)))]
    for i, kind in enumerate(cluster.types):
        of_type = nodes.gpu_type == i
        shape = " + ".join(f"{count}×{gpus}" for gpus, count in zip(*np.unique(nodes.gpus[of_type], return_counts=True), strict=True))
        memory = f", {format_gigabytes(kind.memory)}" if kind.memory else ""
        watts = f", {kind.idle_watts:g}–{kind.busy_watts:g} W" if kind.busy_watts else ""
        price = f", {kind.price:g}/h" if kind.price else ""
        transfer = f", transfer × {kind.transfer:g}" if kind.transfer != 1 else ""
        origin = "" if kind.name in DEVICES else " (own type)"
        rows.append((f"type {kind.name}", f"{shape}: speed {kind.speed:g}, {kind.tflops:g} TFLOPS{memory}{watts}{price}{transfer}{origin}"))
    for i, partition in enumerate(cluster.partitions):
        inside = nodes.of_partition(i)
        quota = "" if np.isinf(partition.quota) else f", at most {partition.quota:g} in use"
        priority = f", priority {partition.priority:g}" if partition.priority else ""
        tier = f", tier {partition.tier:g}" if partition.tier else ""
        also = f", also {', '.join(partition.also)}" if partition.also else ""
        rows.append((f"partition {partition.name}", _size(nodes, inside) + quota + priority + tier + also))
    for job_class, speeds in cluster.speed.items():
        rows.append((f"speed of {job_class}", ", ".join(f"{name} {value:g}" for name, value in speeds.items())))
    if (cluster.span_nodes, cluster.span_racks) != (1.0, 1.0):
        rows.append(("locality", f"rate × {cluster.span_nodes:g} over nodes, × {cluster.span_racks:g} over racks"))
    if cluster.qos:
        rows.append(("QOS", ", ".join(f"{name} {value:g}" for name, value in cluster.qos.items())))
    rows += [("limit", ", ".join(f"{name} {value}" for name, value in limit_row(limit).items())) for limit in cluster.limits]
    if cluster.outages:
        down = sum(outage.end - outage.start for outage in cluster.outages)
        rows.append(("outages", f"{len(cluster.outages):,}, {format_seconds(down)} in all"))
    return rows


def _size(nodes: Nodes, inside: Array) -> str:
    counts = ((int(inside.sum()), "node"), (int(nodes.gpus[inside].sum()), "device"), (len(np.unique(nodes.rack[inside])), "rack"))
    return ", ".join(f"{count:,} {what}{'' if count == 1 else 's'}" for count, what in counts)
