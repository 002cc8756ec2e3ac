"""The built-in placements. The engine carries them out; docs/concepts/semantics.md defines them."""

from __future__ import annotations

from gpuyard.policies.slots import PLACEMENTS, Placement

for _placement in (
    Placement("first", "first fit: the lowest-numbered node", score="first"),
    Placement("best", "best fit: the node with the fewest free GPUs, or free cores for a job without GPUs", score="free"),
    Placement("worst", "worst fit: the node with the most free GPUs, or free cores for a job without GPUs", score="minus-free"),
    Placement("fewest", "tier 1: fewest nodes for a gang, best fit for the rest", score="free", span="fewest"),
    Placement("tier2", "tier 2: one more node than the fewest if that breaks open no whole node", score="free", span="tier2"),
    Placement("lexicographic", "fewest nodes, then fewest free GPUs, fastest type, lowest price", score="lexicographic", span="fewest"),
    Placement("defrag", "nodes in use first, whole nodes stay whole", score="whole-last"),
    Placement("balance", "the least loaded node, by GPUs, cpus and memory", score="load"),
    Placement("packing", "best fit over GPU shares and cpus together", score="remainder"),
    Placement("fgd", "where the expected fragment grows least (Weng et al. 2023)", score="fragments", span="fewest"),
    Placement("random", "a random node, and for a share a random device, by seed", score="random"),
    Placement("fastest", "the fastest device type for the job's class", score="fastest"),
):
    PLACEMENTS.add(_placement.name, _placement)
