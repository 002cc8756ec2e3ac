"""Changes to workloads and clusters by name: `thin:0.3`, `burst:severity=3`; the registry, and how they are applied."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import COLUMNS, Jobs
from gpuyard.model.workload import Workload
from gpuyard.registry import Registry, unknown_name
from gpuyard.traces.generators.sampling import require
from gpuyard.traces.parameters import Parameter, arguments_of, parameters_of

Function = Callable[..., Workload]
ClusterFunction = Callable[..., Cluster]


@dataclass(frozen=True)
class Transform:
    """`function(workload, seed, **parameters)` gives another workload."""

    name: str
    title: str
    function: Function
    parameters: tuple[Parameter, ...]
    random: bool  # depends on the seed


@dataclass(frozen=True)
class ClusterTransform:
    """`function(cluster, workload, seed, **parameters)` gives another cluster."""

    name: str
    title: str
    function: ClusterFunction
    parameters: tuple[Parameter, ...]
    random: bool


TRANSFORMS: Registry[Transform] = Registry("transform")
CLUSTER_TRANSFORMS: Registry[ClusterTransform] = Registry("transform of clusters")


def transform(name: str, *, title: str, random: bool = False) -> Callable[[Function], Function]:
    """Register `function(workload, seed, *, parameter=default …) -> Workload`; annotations as for generators.

    The function keeps ids and hidden run times with their jobs; name and note are written by `apply`.
    """

    def register(function: Function) -> Function:
        TRANSFORMS.add(name, Transform(name, title, function, parameters_of(function), random))
        return function

    return register


def cluster_transform(name: str, *, title: str, random: bool = False) -> Callable[[ClusterFunction], ClusterFunction]:
    """Register `function(cluster, workload, seed, *, parameter=default …) -> Cluster`."""

    def register(function: ClusterFunction) -> ClusterFunction:
        CLUSTER_TRANSFORMS.add(name, ClusterTransform(name, title, function, parameters_of(function), random))
        return function

    return register


def apply(workload: Workload, text: str, seed: int = 0) -> Workload:
    """The workload after `NAME` or `NAME:PARAMETER=VALUE,…` (a lone VALUE is the first parameter); its name and a note say so."""
    name, _, arguments = text.partition(":")
    found = TRANSFORMS[name]
    require(seed >= 0, f"seed = {seed} is negative")
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs to apply {text} to")
    made = found.function(workload, seed, **arguments_of(arguments, f"transform {name}", found.parameters))
    if len(made) == 0:
        raise DataError(f"{workload.name}: {text} leaves no jobs")
    note = f"{text} was applied" + (f" with seed {seed}" if found.random else "")
    return replace(made, name=f"{workload.name}+{text}", notes=(*made.notes, note))


def apply_to_cluster(cluster: Cluster, text: str, workload: Workload, seed: int = 0) -> Cluster:
    """The cluster after a transform of clusters; its name says so. `workload` tells the span of time it is for."""
    name, _, arguments = text.partition(":")
    found = CLUSTER_TRANSFORMS[name]
    require(seed >= 0, f"seed = {seed} is negative")
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs, so no span of time for {text}")
    made = found.function(cluster, workload, seed, **arguments_of(arguments, f"transform {name}", found.parameters))
    return replace(made, name=f"{cluster.name}+{text}")


def check_transform(text: str) -> Transform | ClusterTransform:
    """The transform that a text names, having refused unknown names and parameters."""
    name, _, arguments = text.partition(":")
    if name not in TRANSFORMS and name not in CLUSTER_TRANSFORMS:
        raise unknown_name("transform", name, [*TRANSFORMS, *CLUSTER_TRANSFORMS])
    found: Transform | ClusterTransform = TRANSFORMS[name] if name in TRANSFORMS else CLUSTER_TRANSFORMS[name]
    arguments_of(arguments, f"transform {name}", found.parameters)
    return found


def apply_all(workload: Workload, texts: Iterable[str], seed: int = 0) -> Workload:
    """The transforms of workloads among `texts`, one after the other."""
    for text in texts:
        if isinstance(check_transform(text), Transform):
            workload = apply(workload, text, seed)
    return workload


def apply_all_to_cluster(cluster: Cluster, texts: Iterable[str], workload: Workload, seed: int = 0) -> Cluster:
    """The transforms of clusters among `texts`, one after the other."""
    for text in texts:
        if isinstance(check_transform(text), ClusterTransform):
            cluster = apply_to_cluster(cluster, text, workload, seed)
    return cluster


# ── what the transforms share ──


def with_times(workload: Workload, submit: Array) -> Workload:
    """The same jobs submitted at other times, sorted anew; deadlines move along, logged starts are dropped: they are of another past."""
    old = workload.jobs
    columns = {name: old.table[name] for name in COLUMNS if name != "index"}
    columns |= {"submit": submit, "deadline": old.deadline + (submit - old.submit)}
    labels = old.labels
    jobs, order = Jobs.build(
        columns, users=labels["users"], partitions=labels["partitions"], classes=labels["classes"], gpu_types=labels["gpu_types"],
        qoses=labels["qoses"], accounts=labels["accounts"], where=workload.name,
    )  # fmt: skip
    return replace(workload, jobs=jobs, runtime=workload.runtime[order], logged_start=None)


def level(what: str, severity: int, levels: tuple[float, ...], given: float) -> float:
    """The strength of a perturbation: `given` where it is not 0, else that of the severity, 1 to 4."""
    require(1 <= severity <= len(levels), f"{what}: severity = {severity} does not lie in 1..{len(levels)}")
    return given or levels[severity - 1]
