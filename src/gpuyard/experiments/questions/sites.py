"""Makes another site of one: more or fewer nodes, another type of device, partitions merged or split, a quota, nodes set aside, other load.

A change is text, `nodes:add=4`, and turns a workload and a cluster into others. Transforms of workloads and clusters are changes as well.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.cluster import MAX_DEVICES, Cluster, GpuType, Nodes, Outage, Partition, where_several
from gpuyard.model.presets import DEVICES
from gpuyard.model.units import format_seconds
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.changes.reshape import stretch
from gpuyard.traces.changes.transform import CLUSTER_TRANSFORMS, TRANSFORMS, apply, apply_to_cluster
from gpuyard.traces.parameters import Registered, Seconds, arguments_of, parameters_of

Site = tuple[Workload, Cluster]


@dataclass(frozen=True)
class SiteChange(Registered[Site]):
    """A change of a site: `function(workload, cluster, **parameters)` returns another workload and cluster."""

    words: Callable[..., str] = str  # of its parameters: what the site then has
    what: ClassVar[str] = "change"


SITE_CHANGES: Registry[SiteChange] = Registry("change of a site")


def site_change(name: str, *, title: str, words: Callable[..., str]) -> Callable[[Callable[..., Site]], Callable[..., Site]]:
    """Register `function(workload, cluster, *, parameter=default …) -> (Workload, Cluster)`; `words` says the same with its parameters."""
    return SITE_CHANGES.register(name, lambda function: SiteChange(name, title, function, parameters_of(function), words))


def change_in_words(text: str) -> str:
    """Say what a change does: `10 % more nodes`, `partitions a and b as one`; of what has no words, its text."""
    found = []
    for part in map(str.strip, text.split(" + ")):
        name, _, arguments = part.partition(":")
        if name in SITE_CHANGES:
            change = SITE_CHANGES[name]
            given = {p.name: p.default for p in change.parameters} | arguments_of(arguments, f"change {name}", change.parameters)
            found.append(change.words(**given))
        else:
            found.append(part)
    return " and ".join(found)


def _in(partition: str) -> str:
    return f" in partition {partition}" if partition else ""


def _more(add: str) -> str:
    number = add.lstrip("+-")
    return f"{number} {'fewer' if add.startswith('-') else 'more'} node{'' if number == '1' else 's'}"


def _percent(factor: float, less: str, more: str) -> str:
    return f"{abs(100 * (factor - 1)):.3g} % {more if factor > 1 else less}"


def changed_site(text: str, workload: Workload, cluster: Cluster, seed: int = 0) -> Site:
    """Apply a change, or several joined by ` + `, one after the other."""
    for part in map(str.strip, text.split(" + ")):
        name, _, arguments = part.partition(":")
        check_change(part)
        if name in SITE_CHANGES:
            workload, cluster = SITE_CHANGES[name].call(arguments, workload, cluster)
        elif name in TRANSFORMS:
            workload = apply(workload, part, seed)
        else:
            cluster = apply_to_cluster(cluster, part, workload, seed)
    return workload, cluster


def check_change(text: str) -> None:
    """Refuse unknown names and parameters of a change."""
    for part in map(str.strip, text.split(" + ")):
        name, _, arguments = part.partition(":")
        found = next((registry[name] for registry in (SITE_CHANGES, TRANSFORMS, CLUSTER_TRANSFORMS) if name in registry), None)
        if found is None:
            raise unknown_name("change", name, [*SITE_CHANGES, *TRANSFORMS, *CLUSTER_TRANSFORMS])
        arguments_of(arguments, f"change {name}", found.parameters)


# ── nodes ──


def is_pool(cluster: Cluster, node: int) -> bool:
    """Whether a node is a pool of processors, of which single ones are added or taken away, and no machine."""
    gpus, kind = int(cluster.nodes.gpus[node]), cluster.types[int(cluster.nodes.gpu_type[node])].name
    return gpus > MAX_DEVICES or (kind == "cpu" and gpus > 0)


def has_pools(cluster: Cluster) -> bool:
    """Whether any of its nodes is a pool."""
    return any(is_pool(cluster, node) for node in range(len(cluster.nodes)))


def chosen_nodes(cluster: Cluster, partition: str, kind: str = "") -> Array:
    """Return the numbers of the nodes of a partition and a type; empty names: of all."""
    rows = np.ones(len(cluster.nodes), bool)
    if partition:
        if partition not in cluster.partition_numbers:
            raise unknown_name(f"partition of {cluster.name}", partition, list(cluster.partition_numbers))
        rows &= cluster.nodes.of_partition(cluster.partition_numbers[partition])
    if kind:
        names = [each.name for each in cluster.types]
        if kind not in names:
            raise unknown_name(f"device type of {cluster.name}", kind, names)
        rows &= cluster.nodes.gpu_type == names.index(kind)
    found = np.flatnonzero(rows)
    if len(found) == 0:
        raise UsageError(f"{cluster.name}: no node of type {kind} in partition {partition}")
    return found


def with_nodes(cluster: Cluster, rows: Array, gpus: Array | None = None) -> Cluster:
    """Return the cluster of these nodes, some of them perhaps several times, with other numbers of devices where `gpus` says so.

    Copies have names of their own. Outages of nodes that are gone are gone.
    """
    nodes, seen = cluster.nodes, Counter[int]()
    names = []
    for row in rows.tolist():
        names.append(nodes.names[row] + (f"-copy{seen[row]}" if seen[row] else ""))
        seen[row] += 1
    columns = {name: column[rows] for name, column in nodes.columns.items()}
    if gpus is not None:
        columns["gpus"] = gpus.astype(np.int32)
    made = Nodes(tuple(names), **columns)
    place = {row: k for k, row in reversed(list(enumerate(rows.tolist())))}
    outages = tuple(replace(each, node=place[each.node]) for each in cluster.outages if each.node in place)
    return replace(cluster, nodes=made, outages=outages)


def added(cluster: Cluster, count: int, partition: str = "", kind: str = "") -> Cluster:
    """Return the cluster with so many more nodes (fewer, if negative) of the shape that occurs most; of a pool, with more processors."""
    chosen = chosen_nodes(cluster, partition, kind)
    node = _usual(cluster, chosen)
    what = f"{cluster.name}: {'more' if count > 0 else 'fewer'} nodes"
    if is_pool(cluster, node):
        gpus = cluster.nodes.gpus.astype(np.int64)
        gpus[node] += count
        if gpus[node] < 1:
            raise UsageError(f"{what}: the pool has {cluster.nodes.gpus[node]:,} processors; {-count:,} cannot be taken away")
        return with_nodes(cluster, np.arange(len(cluster.nodes)), gpus)
    alike = [row for row in chosen.tolist() if _shape(cluster, row) == _shape(cluster, node)]
    every = np.arange(len(cluster.nodes))
    if count >= 0:
        return with_nodes(cluster, np.concatenate([every, np.full(count, node)]))
    if -count > len(alike) or -count == len(every):
        raise UsageError(f"{what}: there are {len(alike)} nodes of that shape; {-count:,} cannot be taken away")
    return with_nodes(cluster, np.setdiff1d(every, alike[len(alike) + count :]))


def scaled(cluster: Cluster, factor: float, partition: str = "") -> Cluster:
    """Return the cluster with `factor` times as many nodes of every shape (of a pool: processors), rounded, at least one of each.

    Where rounding would leave all as it is, one node of the usual shape is added or taken away.
    """
    chosen = chosen_nodes(cluster, partition)
    gpus, kept = cluster.nodes.gpus.astype(np.int64), [row for row in range(len(cluster.nodes)) if row not in set(chosen.tolist())]
    shapes: dict[tuple[object, ...], list[int]] = {}
    for row in chosen.tolist():
        if is_pool(cluster, row):
            gpus[row] = max(round(factor * int(gpus[row])), 1)
            kept.append(row)
        else:
            shapes.setdefault(_shape(cluster, row), []).append(row)
    for alike in shapes.values():
        wanted = max(round(factor * len(alike)), 1)
        kept += [alike[k % len(alike)] for k in range(wanted)]
    rows = np.array(sorted(kept))
    if factor != 1 and len(rows) == len(cluster.nodes) and np.array_equal(gpus, cluster.nodes.gpus):
        return added(cluster, 1 if factor > 1 else -1, partition)
    return with_nodes(cluster, rows, gpus[rows])


def _usual(cluster: Cluster, rows: Array) -> int:
    """Return a node of the shape with most devices in all."""
    weight: Counter[tuple[object, ...]] = Counter()
    for row in rows.tolist():
        weight[_shape(cluster, row)] += max(int(cluster.nodes.gpus[row]), 1)
    shape = max(weight, key=lambda each: weight[each])
    return int(next(row for row in rows.tolist() if _shape(cluster, row) == shape))


def _shape(cluster: Cluster, row: int) -> tuple[object, ...]:
    """Return what makes nodes alike: devices, type and partition; of nodes without devices their cores."""
    nodes = cluster.nodes
    names = ("gpus", "gpu_type", "partition") if nodes.gpus[row] else ("gpus", "gpu_type", "partition", "cpus")
    return tuple(getattr(nodes, name)[row].item() for name in names)


# ── the changes ──


@site_change(
    "nodes", title="so many nodes more, or with a minus fewer; processors of a pool",
    words=lambda add, partition, kind: f"{_more(add)}{f' of {kind}' if kind else ''}{_in(partition)}",
)  # fmt: skip
def nodes(workload: Workload, cluster: Cluster, *, add: str = "1", partition: str = "", kind: str = "") -> Site:
    """Add nodes of the shape that occurs most, in a partition and of a device type if these are named; `add=-4` takes four away."""
    try:
        count = int(add)
    except ValueError:
        raise UsageError(f"change nodes: add = {add!r} is not a whole number") from None
    if not 0 < abs(count) <= 1_000_000:
        raise UsageError(f"change nodes: add = {add} does not lie in 1..1,000,000")
    return workload, added(cluster, count, partition, kind)


@site_change(
    "scale", title="all nodes, or those of a partition, × a factor",
    words=lambda factor, partition: f"{_percent(factor, 'fewer', 'more')} nodes{_in(partition)}",
)  # fmt: skip
def scale(workload: Workload, cluster: Cluster, *, factor: float = 1.1, partition: str = "") -> Site:
    """Multiply the number of nodes of each shape, rounded, at least one; where that changes nothing, by one node."""
    if not 0 < factor <= 100:
        raise UsageError(f"change scale: factor = {factor:g} does not lie in (0, 100]")
    return workload, scaled(cluster, factor, partition)


@site_change(
    "retype", title="devices of another type in place of one; run times follow the speed",
    words=lambda new, old, speed: f"{new} in place of {old or 'what there is'}{f', {speed:g} times as fast' if speed else ''}",
)  # fmt: skip
def retype(workload: Workload, cluster: Cluster, *, new: str = "", old: str = "", speed: float = 0.0) -> Site:
    """Put devices of type `new` in the place of `old`, or of all where there is one type.

    They are `speed` times as fast as those that they replace; unless given, as the figures of both types say. Jobs that asked for the old
    type by name now ask for the new one.
    """
    names = [kind.name for kind in cluster.types]
    old = old or (names[0] if len(names) == 1 else "")
    if old not in names:
        raise unknown_name(f"change retype: device type of {cluster.name}", old, names)
    if not new:
        raise UsageError("change retype: no new type", hint="e.g. retype:new=h100,old=v100")
    if not speed and not (old in DEVICES and new in DEVICES):
        raise UsageError(f"change retype: how fast {new} is against {old} is not known", hint=f"retype:new={new},old={old},speed=1.5")
    was = cluster.types[names.index(old)]
    known = DEVICES[new] if new in DEVICES else GpuType(new)
    made = replace(known, speed=was.speed * (speed or DEVICES[new].speed / DEVICES[old].speed))
    types = tuple(made if kind is was else kind for kind in cluster.types)
    if len({kind.name for kind in types}) < len(types):
        raise UsageError(f"change retype: {cluster.name} has {new} already", hint="give the new devices a name of their own and a speed")
    labels = tuple("|".join(new if part == old else part for part in label.split("|")) for label in workload.jobs.gpu_types)
    return replace(workload, jobs=replace(workload.jobs, gpu_types=labels)), replace(cluster, types=types)


@site_change(
    "merge", title="several partitions as one",
    words=lambda partitions: f"partitions {' and '.join(partitions.split('|'))} as one" if partitions else "all partitions as one",
)  # fmt: skip
def merge(workload: Workload, cluster: Cluster, *, partitions: str = "") -> Site:
    """Make one partition of several (`merge:a|b`; all unless named): their jobs may use each other's nodes; quotas add up."""
    names = [name for name in partitions.split("|") if name] or [each.name for each in cluster.partitions]
    for name in names:
        if name not in cluster.partition_numbers:
            raise unknown_name(f"partition of {cluster.name}", name, list(cluster.partition_numbers))
    numbers = sorted({cluster.partition_numbers[name] for name in names})
    if len(numbers) < 2:
        raise UsageError(f"change merge: {cluster.name}: one partition is nothing to merge")
    first, parts = numbers[0], cluster.partitions
    joined = Partition(
        parts[first].name, sum(parts[k].quota for k in numbers), max(parts[k].priority for k in numbers),
        (*parts[first].also, *(name for k in numbers[1:] for name in (parts[k].name, *parts[k].also))), max(parts[k].tier for k in numbers),
    )  # fmt: skip
    kept = [k for k in range(len(parts)) if k not in numbers[1:]]
    place = np.array([kept.index(first if k in numbers else k) for k in range(len(parts))])
    made = _renumbered(cluster.nodes, place)
    return workload, replace(cluster, nodes=made, partitions=tuple(joined if k == first else parts[k] for k in kept))


def _renumbered(nodes: Nodes, place: Array) -> Nodes:
    """Return the nodes in partitions that have other numbers now, perhaps one for several; nodes that shared only those share no more."""
    made = replace(nodes, partition=place[nodes.partition].astype(np.int32))
    if nodes.member_of is None:
        return made
    sets = np.zeros(len(nodes), np.uint64)
    for number, at in enumerate(place.tolist()):
        sets[nodes.of_partition(number)] |= np.uint64(1) << np.uint64(at)
    return replace(made, member_of=where_several(sets))


@site_change(
    "split", title="some nodes of a partition only for its small jobs",
    words=lambda nodes, most, partition: f"{nodes:,} nodes{_in(partition)} for jobs up to {most:g} only",
)  # fmt: skip
def split(workload: Workload, cluster: Cluster, *, nodes: int = 1, most: float = 1.0, partition: str = "") -> Site:
    """Give `nodes` nodes (of a pool: processors) to the jobs of a partition with at most `most` GPUs; the others keep the rest."""
    chosen = chosen_nodes(cluster, partition)
    number = int(cluster.nodes.partition[chosen[0]])
    if not partition and len(cluster.partitions) > 1:
        raise UsageError(f"change split: {cluster.name} has several partitions", hint="name one: split:nodes=4,most=1,partition=…")
    if cluster.nodes.member_of is not None:
        raise UsageError(
            f"change split: {cluster.name} has partitions that share nodes", hint="a limit does it: [[limits]] partition, gpus"
        )
    name = f"{cluster.partitions[number].name}-small"
    wide = next((row for row in chosen.tolist() if is_pool(cluster, row)), None)
    rows, gpus = np.arange(len(cluster.nodes)), cluster.nodes.gpus.astype(np.int64)
    if not 1 <= nodes < (gpus[wide] if wide is not None else len(chosen)):
        raise UsageError(f"change split: {nodes} nodes leave nothing to one of the parts")
    if wide is not None:
        rows, gpus = np.append(rows, wide), np.append(gpus, nodes)
        gpus[wide] -= nodes
        taken = np.array([len(rows) - 1])
    else:
        taken = chosen[-nodes:]
    made = with_nodes(cluster, rows, gpus)
    parts = made.nodes.partition.copy()
    parts[taken] = len(cluster.partitions)
    apart = replace(made, nodes=replace(made.nodes, partition=parts), partitions=(*cluster.partitions, Partition(name)))
    return _relabelled(workload, cluster, number, name, most), apart


def _relabelled(workload: Workload, cluster: Cluster, number: int, name: str, most: float) -> Workload:
    """Send the small jobs of a partition to the one of that name; where the labels of jobs meant nothing they now say their partition."""
    jobs = workload.jobs
    numbers = cluster.partition_numbers
    only = len(cluster.partitions) == 1  # labels of jobs may then be any
    labels = [*([cluster.partitions[0].name] * len(jobs.partitions) if only else jobs.partitions), name]
    mine = np.array([only or numbers.get(label, -1) == number for label in jobs.partitions])[jobs.partition]
    code = np.where(mine & (jobs.gpus <= most), len(jobs.partitions), jobs.partition)
    distinct = tuple(dict.fromkeys(labels))
    place = np.array([distinct.index(label) for label in labels])
    table = jobs.table.copy()
    table["partition"] = place[code]
    return replace(workload, jobs=replace(jobs, partitions=distinct).with_table(table))


@site_change(
    "quota", title="at most so many GPUs of a partition in use at once",
    words=lambda gpus, partition: f"at most {gpus:g} in use at once{_in(partition)}",
)  # fmt: skip
def quota(workload: Workload, cluster: Cluster, *, gpus: float = 0.0, partition: str = "") -> Site:
    """Set the quota of a partition, or of all where none is named."""
    if gpus <= 0:
        raise UsageError("change quota: gpus is missing or not positive", hint="e.g. quota:gpus=64,partition=debug")
    numbers = [cluster.partition_numbers[partition]] if partition in cluster.partition_numbers else range(len(cluster.partitions))
    if partition and partition not in cluster.partition_numbers:
        raise unknown_name(f"partition of {cluster.name}", partition, list(cluster.partition_numbers))
    made = tuple(replace(each, quota=gpus) if k in numbers else each for k, each in enumerate(cluster.partitions))
    return workload, replace(cluster, partitions=made)


@site_change(
    "aside", title="some nodes out of use for a while, as for a reservation or maintenance",
    words=lambda nodes, start, length, partition: (
        f"{nodes:,} nodes{_in(partition)} set aside for {format_seconds(length)}, {format_seconds(start)} after the first submission"
        " (what runs there then is stopped and starts again)"
    ),
)  # fmt: skip
def aside(
    workload: Workload, cluster: Cluster, *, nodes: int = 1, start: Seconds = 0.0, length: Seconds = 86_400.0, partition: str = "",
) -> Site:  # fmt: skip
    """Take nodes (of a pool: processors) away from `start`, s after the first submit, for `length`. Jobs that run there are requeued."""
    begin = float(workload.jobs.submit[0]) + start
    chosen = chosen_nodes(cluster, partition)
    if is_pool(cluster, int(chosen[-1])):
        found = [Outage(int(chosen[-1]), begin, begin + length, min(nodes, int(cluster.nodes.gpus[chosen[-1]])))]
    else:
        found = [Outage(int(row), begin, begin + length) for row in chosen[-nodes:]]
    return workload, replace(cluster, outages=(*cluster.outages, *found))


@site_change(
    "demand", title="jobs come so many times as fast: the load × a factor",
    words=lambda factor: f"{_percent(factor, 'less', 'more')} demand",
)  # fmt: skip
def demand(workload: Workload, cluster: Cluster, *, factor: float = 1.2) -> Site:
    """Divide the times between submits by `factor`; jobs stay as they are."""
    if not 0 < factor <= 100:
        raise UsageError(f"change demand: factor = {factor:g} does not lie in (0, 100]")
    return stretch(workload, 0, factor=1 / factor), cluster
