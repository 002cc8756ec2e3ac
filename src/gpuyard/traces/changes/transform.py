"""The registry of changes to workloads and clusters, `thin:0.3`, `burst:severity=3`, and the functions that apply them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import COLUMNS, Jobs
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.generators.sampling import require
from gpuyard.traces.parameters import Registered, arguments_of, parameters_of

Function = Callable[..., Workload]
ClusterFunction = Callable[..., Cluster]


@dataclass(frozen=True)
class Transform(Registered[Workload]):
    """A change of a workload: `function(workload, seed, **parameters)` returns another workload."""

    random: bool = False  # depends on the seed
    what: ClassVar[str] = "transform"


@dataclass(frozen=True)
class ClusterTransform(Registered[Cluster]):
    """A change of a cluster: `function(cluster, workload, seed, **parameters)` returns another cluster."""

    random: bool = False  # depends on the seed
    what: ClassVar[str] = "transform"


TRANSFORMS: Registry[Transform] = Registry("transform")
CLUSTER_TRANSFORMS: Registry[ClusterTransform] = Registry("transform of clusters")


def transform(name: str, *, title: str, random: bool = False) -> Callable[[Function], Function]:
    """Register `function(workload, seed, *, parameter=default …) -> Workload`; annotations as for generators.

    The function keeps ids and hidden run times with their jobs; `apply` writes the name and a note.
    """
    return TRANSFORMS.register(name, lambda function: Transform(name, title, function, parameters_of(function), random))


def cluster_transform(name: str, *, title: str, random: bool = False) -> Callable[[ClusterFunction], ClusterFunction]:
    """Register `function(cluster, workload, seed, *, parameter=default …) -> Cluster`."""
    return CLUSTER_TRANSFORMS.register(name, lambda function: ClusterTransform(name, title, function, parameters_of(function), random))


def apply(workload: Workload, text: str, seed: int = 0) -> Workload:
    """Apply `NAME` or `NAME:PARAMETER=VALUE,…` (a lone VALUE is the first parameter); the new name and a note say so."""
    name, _, arguments = text.partition(":")
    found = TRANSFORMS[name]
    require(seed >= 0, f"seed = {seed} is negative")
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs to apply {text} to")
    made = found.call(arguments, workload, seed)
    if len(made) == 0:
        raise DataError(f"{workload.name}: {text} leaves no jobs")
    note = f"{text} was applied" + (f" with seed {seed}" if found.random else "")
    return replace(made, name=f"{workload.name}+{text}", notes=(*made.notes, note))


def apply_to_cluster(cluster: Cluster, text: str, workload: Workload, seed: int = 0) -> Cluster:
    """Apply a transform of clusters; the new name says so. `workload` gives the span of time."""
    name, _, arguments = text.partition(":")
    found = CLUSTER_TRANSFORMS[name]
    require(seed >= 0, f"seed = {seed} is negative")
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs, so no span of time for {text}")
    made = found.call(arguments, cluster, workload, seed)
    return replace(made, name=f"{cluster.name}+{text}")


def check_transform(text: str) -> Transform | ClusterTransform:
    """Return the transform that a text names; refuse unknown names and parameters."""
    name, _, arguments = text.partition(":")
    if name not in TRANSFORMS and name not in CLUSTER_TRANSFORMS:
        raise unknown_name("transform", name, [*TRANSFORMS, *CLUSTER_TRANSFORMS])
    found: Transform | ClusterTransform = TRANSFORMS[name] if name in TRANSFORMS else CLUSTER_TRANSFORMS[name]
    arguments_of(arguments, f"transform {name}", found.parameters)
    return found


def apply_all(workload: Workload, texts: Iterable[str], seed: int = 0) -> Workload:
    """Apply the transforms of workloads among `texts`, one after the other."""
    for text in texts:
        if isinstance(check_transform(text), Transform):
            workload = apply(workload, text, seed)
    return workload


def apply_all_to_cluster(cluster: Cluster, texts: Iterable[str], workload: Workload, seed: int = 0) -> Cluster:
    """Apply the transforms of clusters among `texts`, one after the other."""
    for text in texts:
        if isinstance(check_transform(text), ClusterTransform):
            cluster = apply_to_cluster(cluster, text, workload, seed)
    return cluster


# ── what the transforms share ──


def with_times(workload: Workload, submit: Array) -> Workload:
    """Move the jobs to other submit times and sort them again; deadlines move along, logged starts no longer hold and are dropped."""
    return replace(_rebuilt(workload, np.arange(len(workload)), submit, workload.jobs.id), phases=())


def with_copies(workload: Workload, times: Array, rows: Array, submit: Array) -> Workload:
    """Keep each job `times` (jobs,) 0 or 1 times, and add copies of the jobs in `rows` with ids of their own at the times `submit`."""
    kept, ids = np.flatnonzero(times), workload.jobs.id
    room = np.iinfo(ids.dtype).max - int(ids.max())
    require(len(rows) <= room, f"{workload.name}: the ids leave no room for {len(rows):,} more jobs")
    fresh = ids.max() + np.arange(1, len(rows) + 1, dtype=ids.dtype)
    every = np.concatenate([kept, rows])
    return _rebuilt(workload, every, np.concatenate([workload.jobs.submit[kept], submit]), np.concatenate([ids[kept], fresh]))


def _rebuilt(workload: Workload, rows: Array, submit: Array, ids: Array) -> Workload:
    """Build the jobs in `rows` again, with these submit times and ids."""
    old = workload.jobs
    columns = {name: old.table[name][rows] for name in COLUMNS if name != "index"}
    columns |= {"submit": submit, "deadline": columns["deadline"] + (submit - columns["submit"]), "id": ids}
    labels = old.labels
    jobs, order = Jobs.build(
        columns, users=labels["users"], partitions=labels["partitions"], classes=labels["classes"], gpu_types=labels["gpu_types"],
        qoses=labels["qoses"], accounts=labels["accounts"], term_texts=labels["term_texts"], where=workload.name,
    )  # fmt: skip
    return replace(workload, jobs=jobs, runtime=workload.runtime[rows][order], logged_start=None)


def level(what: str, severity: int, levels: tuple[float, ...], given: float) -> float:
    """Return the strength of a perturbation: `given` unless it is 0, else the level of the severity, 1 to 4."""
    require(1 <= severity <= len(levels), f"{what}: severity = {severity} does not lie in 1..{len(levels)}")
    return given or levels[severity - 1]
