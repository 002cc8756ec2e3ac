"""The joint placement of some jobs: who is to be placed, and what a placement is worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.policies.capacity import Capacity, JobRequest, Parts

CPU_SIZE = 0.1  # GPUs that a CPU job counts as
Placed = Mapping[int, Parts]  # position among the jobs → where


@dataclass(frozen=True)
class Weights:
    """Weights, in GPUs, of a free device on a partly used node, a difference of loads of 1, and a device of the largest block."""

    frag: float
    balance: float
    room: float


@dataclass(frozen=True)
class Terms:
    """The parts of the objective, each in its own unit."""

    throughput: float  # GPUs × rate × weight of the job
    fragmentation: float  # free devices on partly used nodes
    imbalance: float  # difference of the shares of devices in use, between types
    room: float  # devices of the largest block that is left on one node

    def value(self, weights: Weights) -> float:
        return self.throughput - weights.frag * self.fragmentation - weights.balance * self.imbalance + weights.room * self.room


@dataclass(frozen=True, eq=False)
class Candidate:
    """A job that may be placed; `must`: it has to be. `spread`: it may be over several nodes (of one type)."""

    request: JobRequest
    weight: float
    must: bool
    spread: bool

    @property
    def worth(self) -> float:
        """Return what it adds to the throughput at rate 1."""
        return self.weight * (self.request.gpus or CPU_SIZE)


@dataclass(frozen=True, eq=False)
class Problem:
    """Jobs of one partition, in order, what is free, and where the inner scheduler puts those that it starts.

    A job that is not a must is placed only if all such jobs before it are.
    """

    capacity: Capacity
    partition: int
    jobs: Sequence[Candidate]
    greedy: Placed

    @property
    def nodes(self) -> Array:
        """All nodes of the partition."""
        return np.flatnonzero(self.capacity.cluster.nodes.partition == self.partition)


def evaluate(problem: Problem, placed: Placed) -> Terms:
    """The objective's terms with these jobs placed."""
    capacity, nodes = problem.capacity, problem.nodes
    cluster = capacity.cluster
    left = capacity.free.copy()
    opened: set[tuple[int, int]] = set()
    throughput = 0.0
    for k, parts in placed.items():
        job = problem.jobs[k]
        throughput += job.worth * job.request.speed(cluster, [part.node for part in parts])
        for part in parts:
            if job.request.gpus >= 1:
                left[part.node] -= round(part.gpus)
            elif job.request.shared and (part.node, part.devices[0]) not in capacity.shares:
                opened.add((part.node, part.devices[0]))
    for node, _ in opened:
        left[node] -= 1
    left, usable = left[nodes], capacity.usable[nodes]
    partly = left < usable
    kinds = cluster.nodes.gpu_type[nodes]
    loads = [1.0 - left[kinds == t].sum() / usable[kinds == t].sum() for t in np.unique(kinds[usable > 0])]
    imbalance = max(loads) - min(loads) if loads else 0.0
    return Terms(throughput, float(left[partly].sum()), float(imbalance), float(left.max(initial=0)))
