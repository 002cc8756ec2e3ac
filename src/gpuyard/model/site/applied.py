"""Gives a cluster the policy of a Slurm site: its partitions, tiers, priorities, QOS and limits."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuyard.model.cluster import MAX_SHARING, Cluster, Partition
from gpuyard.model.site.slurm_conf import SlurmSite


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
    several = (sets & (sets - np.uint64(1))).any()
    partitions = tuple(Partition(each.name, priority=each.factor, tier=each.tier) for each in site.partitions)
    return replace(cluster, nodes=replace(cluster.nodes, partition=lowest, member_of=sets if several else None), partitions=partitions)
