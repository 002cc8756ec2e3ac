"""The mix of requests: the most frequent requests of each partition with their weights. Sizes only, never times."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.cluster import MAX_SHARING, Cluster, linked, partition_names, quota_of_sharer
from gpuyard.model.jobs import Jobs
from gpuyard.model.snapshot import MIX

COVERED = 0.95  # of a partition's jobs; rarer requests are left out
MOST_REQUESTS = 64  # of a partition
WHOLE = 100_000  # what the weights of a partition add up to, less what is lost by rounding down


def request_mix(jobs: Jobs, cluster: Cluster) -> Array:
    """Rows of MIX, by partition, then the most frequent first (ties: the request that was submitted first)."""
    columns = _columns(jobs, cluster)
    first, counts = _groups(list(columns.values()))
    made = []
    for p in range(len(cluster.partitions)):
        mine = np.flatnonzero(columns["partition"][first] == p)
        mine = mine[np.lexsort((first[mine], -counts[mine]))]
        reached = np.cumsum(counts[mine])
        size = min(int(np.searchsorted(reached, COVERED * reached[-1])) + 1, MOST_REQUESTS) if len(mine) else 0
        rows = np.zeros(size, MIX)
        for name, column in columns.items():
            rows[name] = column[first[mine[:size]]]
        rows["weight"] = counts[mine[:size]] * WHOLE // reached[size - 1] if size else 0
        made.append(rows)
    return np.concatenate(made)


def _columns(jobs: Jobs, cluster: Cluster) -> dict[str, Array]:
    """Return the columns of what one unit of every job asks for."""
    gang = jobs.gpus >= 1
    part = np.where(gang, jobs.chunk, 1.0)
    whole = np.where(gang, jobs.gpus, 1.0)
    types = np.array([type_set(label, cluster) for label in jobs.gpu_types], np.int64)
    return {
        "partition": partition_numbers(jobs, cluster)[jobs.partition],
        "gpus": np.where(gang, jobs.chunk, jobs.gpus),
        "cpus": jobs.cpus * part / whole,
        "memory": jobs.memory * part / whole,
        "allowed": np.where(jobs.gpus > 0, types[jobs.gpu_type], 0),
    }


def _groups(columns: list[Array]) -> tuple[Array, Array]:
    """Rows that are equal in all columns: the first of each group, and how many there are."""
    code = np.zeros(len(columns[0]), np.int64)
    for column in columns:
        values, inverse = np.unique(column, return_inverse=True)
        code = np.unique(code * max(len(values), 1) + inverse, return_inverse=True)[1]  # numbered again, so that it cannot overflow
    _, first, counts = np.unique(code, return_index=True, return_counts=True)
    return first, counts


def type_set(label: str, cluster: Cluster) -> int:
    """The device types that a label allows, as a bit set."""
    if not label:
        return (1 << len(cluster.types)) - 1
    wanted = label.split("|")
    return sum(1 << i for i, kind in enumerate(cluster.types) if kind.name in wanted)


def partition_numbers(jobs: Jobs, cluster: Cluster) -> Array:
    """For each partition label of the jobs the division of the cluster to which its partitions belong, or -1: none of them exists."""
    named = named_partitions(jobs, cluster)
    homes = divisions(named, cluster)
    return np.array([homes[numbers[0]] if numbers else -1 for numbers in named], np.int32)


def named_partitions(jobs: Jobs, cluster: Cluster) -> list[list[int]]:
    """Return for each partition label of the jobs the partitions of the cluster that it names, in its order."""
    return named_in(jobs.partitions, cluster)


def reach(label: str, cluster: Cluster) -> Array:
    """(nodes,) bool: whether jobs with that partition label may run on a node."""
    (numbers,) = named_in([label], cluster)
    return np.logical_or.reduce([np.zeros(len(cluster.nodes), bool), *map(cluster.nodes.of_partition, numbers)])  # type: ignore[no-any-return]


def named_in(labels: Sequence[str], cluster: Cluster) -> list[list[int]]:
    """Return the partitions of the cluster that each label names.

    Of several, names that do not exist are left out. If the cluster has one partition, every label means it.
    """
    if len(cluster.partitions) == 1:
        return [[0]] * len(labels)
    numbers = cluster.partition_numbers
    return [
        [numbers[label]] if label in numbers else list(dict.fromkeys(numbers[name] for name in partition_names(label) if name in numbers))
        for label in labels
    ]


def are_shared(jobs: Jobs, cluster: Cluster) -> bool:
    """Whether partitions share nodes, or jobs that name several."""
    homes = divisions(named_partitions(jobs, cluster), cluster)
    return bool((homes != np.arange(len(homes))).any())


def divisions(named: Sequence[Sequence[int]], cluster: Cluster) -> Array:
    """(partitions,) int32: the lowest number of the partitions that are linked, because nodes or labels of jobs belong to both."""
    alone = cluster.divisions
    together = [numbers for numbers in named if len(numbers) > 1]
    if not together:
        return alone
    found = linked(len(alone), [*together, *(np.flatnonzero(alone == home).tolist() for home in np.unique(alone))])
    sharers = np.bincount(found, minlength=len(found))[found] > 1
    for number in np.flatnonzero(sharers).tolist():
        if np.isfinite(cluster.partitions[number].quota):
            raise quota_of_sharer(cluster.name, cluster.partitions[number].name)
    if len(alone) > MAX_SHARING:
        raise DataError(f"cluster {cluster.name}: {len(alone)} partitions; at most {MAX_SHARING} where jobs name several")
    return found
