"""A cluster some of whose devices are slower: they get device types, and where needed nodes, of their own."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

import numpy as np

from gpuyard.model.cluster import Cluster, GpuType, Nodes, Outage


def slowed(cluster: Cluster, devices: Mapping[int, int], factor: float) -> Cluster:
    """Divide the speed of some devices by `factor`; `devices`: node → how many of its devices, from 1 to all.

    A node has devices of one type, so a node of which only some are slow is split, and the new node stands after all others. Cpus, memory
    and outages are split with the devices.
    """
    nodes, types = cluster.nodes, [*cluster.types]
    number: dict[int, int] = {}  # type → its slow twin
    for kind in dict.fromkeys(int(nodes.gpu_type[n]) for n in devices):
        number[kind] = len(types)
        types.append(_slow(types[kind], factor, {each.name for each in types}))
    parts = {n: count for n, count in devices.items() if count < nodes.gpus[n]}
    kinds = nodes.gpu_type.copy()
    for n in devices.keys() - parts.keys():
        kinds[n] = number[int(kinds[n])]
    made = _split(replace(nodes, gpu_type=kinds), parts, number)
    speed = {
        name: {**row, **{types[slow].name: row[types[kind].name] / factor for kind, slow in number.items() if types[kind].name in row}}
        for name, row in cluster.speed.items()
    }
    outages = _outages(cluster.outages, {n: (len(nodes) + k, int(made.gpus[n])) for k, n in enumerate(parts)})
    return replace(cluster, nodes=made, types=tuple(types), speed=speed, outages=tuple(outages))


def _slow(kind: GpuType, factor: float, used: set[str]) -> GpuType:
    return replace(kind, name=_free_name(kind.name, used), speed=kind.speed / factor)


def _free_name(name: str, used: set[str]) -> str:
    name = f"{name}-slow"
    return _free_name(name, used) if name in used else name


def _split(nodes: Nodes, parts: Mapping[int, int], number: Mapping[int, int]) -> Nodes:
    """Move so many devices of each node in `parts` to a new node at the end, of the slow type."""
    at, moved = np.array(list(parts), dtype=np.int64), np.array(list(parts.values()), dtype=np.int64)
    columns = nodes.columns
    share = moved / np.maximum(nodes.gpus[at], 1)
    fresh = {name: column[at] for name, column in columns.items()}
    fresh["gpu_type"] = np.array([number[int(kind)] for kind in fresh["gpu_type"]], dtype=nodes.gpu_type.dtype)
    fresh["gpus"] = moved.astype(nodes.gpus.dtype)
    columns = {name: column.copy() for name, column in columns.items()}
    columns["gpus"][at] -= fresh["gpus"]
    for name in ("cpus", "memory"):
        fresh[name] = fresh[name] * share
        columns[name][at] *= 1 - share
    names, used = list(nodes.names), set(nodes.names)
    for n in parts:
        names.append(_free_name(nodes.names[n], used))
        used.add(names[-1])
    return Nodes(tuple(names), **{name: np.concatenate([column, fresh[name]]) for name, column in columns.items()})


def _outages(outages: Iterable[Outage], split: Mapping[int, tuple[int, int]]) -> list[Outage]:
    """Share out the outages of split nodes: `split` is node → (its new part, devices that the node keeps)."""
    found = []
    for outage in outages:
        if outage.node not in split:
            found.append(outage)
            continue
        part, left = split[outage.node]
        if outage.gpus is None:
            found += [outage, replace(outage, node=part)]
            continue
        found.append(replace(outage, gpus=min(outage.gpus, left)))
        found += [replace(outage, node=part, gpus=outage.gpus - left)] if outage.gpus > left else []
    return found
