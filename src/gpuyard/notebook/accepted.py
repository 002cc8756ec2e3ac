"""Texts, paths and objects that stand for a workload or a cluster in a call."""

from __future__ import annotations

from os import PathLike, fspath

from gpuyard.errors import UsageError, WrongTypeError
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import load_cluster
from gpuyard.model.workload import Workload
from gpuyard.traces import GENERATORS, guess_cluster, load_workload

WorkloadLike = Workload | str | PathLike[str]
ClusterLike = Cluster | str | PathLike[str]


def is_generator(given: object) -> bool:
    """Return whether it is another workload at every seed."""
    return isinstance(given, str) and given.partition(":")[0] in GENERATORS


def workload_of(given: object, seed: int = 0) -> Workload:
    """Return a workload, or load the one that a text (`demo`, `family:shape=bursty`) or a path names."""
    if isinstance(given, Workload):
        return given
    if isinstance(given, str | PathLike):
        return load_workload(fspath(given), seed)
    frame = isinstance(given, dict) or hasattr(given, "columns")
    raise WrongTypeError(
        "workload", "a Workload, or a text such as 'demo' or 'log.swf.gz'", given, hint="Workload.from_frame(…) reads it" if frame else ""
    )


def cluster_of(given: object, workload: Workload, *, generated: bool) -> Cluster:
    """Return a cluster, the one that a text (`16x8:a100`, a preset, a file) names, or for None the one that goes with the workload."""
    if isinstance(given, Cluster):
        return given
    if isinstance(given, str | PathLike):
        return load_cluster(fspath(given))
    if given is not None:
        raise WrongTypeError("cluster", "a Cluster, or a text such as '16x8:a100', a preset or a .toml file", given)
    if generated and not workload.preset:
        raise UsageError(f"{workload.name}: no cluster to run it on", hint="give one, such as '16x8:a100'")
    return guess_cluster(workload)[0]
