"""Derives nodes from a log: each is as large as the most that ran there at once."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.site.notation import node_names
from gpuyard.model.workload import Machine
from gpuyard.traces.checks import Rows
from gpuyard.traces.readers.batch.records import Coded

MAX_PAIRS = 50_000_000  # jobs × nodes; beyond it the nodes of a log are ignored
MAX_LISTED = 20_000_000  # nodes of all distinct lists of a log: 160 MB
MAX_NAMES = 1_000_000  # distinct nodes of a log: some 150 MB of text


@dataclass(frozen=True)
class NodeLists:
    """The nodes of each job. `flat[first[k]:first[k] + size[k]]` are those of list k; each node occurs once in a list."""

    names: list[str]
    flat: Array  # into names
    first: Array  # (lists,)
    size: Array  # (lists,)
    codes: Array  # (jobs,) which list

    @classmethod
    def of(cls, rows: Rows, column: Coded) -> NodeLists:
        """Read every distinct list once; refuse one that cannot be read or names absurdly many nodes."""
        number: dict[str, int] = {}
        lists, total = [np.empty(0, np.int64)], 0
        for k, label in enumerate(column.labels):
            try:
                names = dict.fromkeys(node_names(label))
                total += len(names)
                if total > MAX_LISTED:
                    raise ValueError(f"brings the nodes of all lists to more than {MAX_LISTED:,}")
                lists.append(np.fromiter((number.setdefault(name, len(number)) for name in names), np.int64, len(names)))
                if len(number) > MAX_NAMES:
                    raise ValueError(f"brings the distinct nodes of all lists to more than {MAX_NAMES:,}")
            except ValueError as error:
                row = int(np.argmax(column.codes == k))
                raise rows.error(row, f"node list {label[:60]!r} {error}") from None
        size = np.array([len(each) for each in lists[1:]], np.int64)
        return cls(list(number), np.concatenate(lists), np.cumsum(size) - size, size, column.codes)

    def take(self, rows: Array) -> NodeLists:
        return replace(self, codes=self.codes[rows])

    @property
    def counts(self) -> Array:
        """Return (jobs,) nodes named; 0 without a list."""
        return self.size[self.codes]

    def pairs(self, jobs: Array) -> tuple[Array, Array]:
        """Return job and node, one row for each node of each of these jobs."""
        count = self.counts[jobs]
        job = np.repeat(jobs, count)
        return job, self.flat[np.repeat(self.first[self.codes[jobs]], count) + position_within(count)]


def position_within(count: Array) -> Array:
    """Return 0, 1 … count[0] − 1, 0, 1 … count[1] − 1, …"""
    before: Array = np.repeat(np.cumsum(count) - count, count)
    return np.arange(int(count.sum())) - before


@dataclass(frozen=True)
class Runs:
    """Where and when jobs ran, and what they held."""

    lists: NodeLists
    nodes: Array  # (jobs,) how many
    start: Array
    end: Array
    gpus: Array  # (jobs,) devices
    cpus: Array
    memory: Array
    gpu_type: Coded
    partition: Coded


@dataclass(frozen=True)
class _Pairs:
    """One row for each node of each job."""

    job: Array
    node: Array  # into names
    names: list[str]
    share: Array  # (jobs,) nodes of the job


def machines_of(runs: Runs) -> tuple[Machine, ...]:
    """Return the nodes that the log names; none where less than half of the jobs name theirs, or where there are too many.

    A job's devices are spread evenly over its nodes, with their part of its cores and memory. A node whose jobs had GPUs of
    several types becomes one machine for each.
    """
    pairs = _pairs(runs) if (runs.lists.counts > 0).mean() >= 0.5 else None
    if pairs is None:
        return ()
    kind = _kinds(runs, pairs)
    cell = pairs.node.astype(np.int64) * len(runs.gpu_type.labels) + kind
    cells, at = np.unique(cell, return_inverse=True)
    gpus, cpus, memory = _shares(runs, pairs)
    events = _Events.of(at, runs.start[pairs.job], runs.end[pairs.job], len(cells))
    most = [events.peaks(amount) for amount in (gpus, cpus, memory)]
    partitions = _partitions(runs, pairs, at, len(cells))
    twins = np.bincount(cells // len(runs.gpu_type.labels), minlength=len(pairs.names))
    found = []
    for k, code in enumerate(cells.tolist()):
        node, label = divmod(code, len(runs.gpu_type.labels))
        kind_name = runs.gpu_type.labels[label]
        name = pairs.names[node] + (f":{kind_name or 'gpu'}" if twins[node] > 1 else "")
        size = math.ceil(most[0][k] - 1e-9)
        found.append(Machine(name, size, float(most[1][k]), float(most[2][k]), kind_name if size else "", partitions[k]))
    return tuple(found)


def _pairs(runs: Runs) -> _Pairs | None:
    """Pair jobs with nodes; None where there are too many pairs. Jobs without a node get unnamed nodes, separate for each partition."""
    share = np.where(runs.lists.counts > 0, runs.lists.counts, np.maximum(runs.nodes, 1)).astype(np.int64)
    if int(share.sum()) > MAX_PAIRS:
        return None
    job, node = runs.lists.pairs(np.flatnonzero(runs.lists.counts > 0))
    lost = np.flatnonzero(runs.lists.counts == 0)
    if len(lost) == 0:
        return _Pairs(job, node, runs.lists.names, share)
    apart = np.repeat(lost, share[lost])
    places = np.stack([runs.partition.codes[apart], position_within(share[lost])])
    spot, at = np.unique(places, axis=1, return_inverse=True)
    names = [f"unnamed-{runs.partition.labels[part] or 'node'}-{k + 1}" for part, k in spot.T.tolist()]
    node = np.concatenate([node, at.reshape(-1) + len(runs.lists.names)])
    return _Pairs(np.concatenate([job, apart]), node, runs.lists.names + names, share)


def _kinds(runs: Runs, pairs: _Pairs) -> Array:
    """Return the GPU type of each pair: the job's, or the one seen most often on the node where the job has none."""
    kinds = len(runs.gpu_type.labels)
    kind = runs.gpu_type.codes[pairs.job].astype(np.int64)
    typed = np.array([bool(label) for label in runs.gpu_type.labels])[kind]
    seen, count = np.unique(pairs.node[typed] * kinds + kind[typed], return_counts=True)
    usual = np.full(len(pairs.names), runs.gpu_type.labels.index("") if "" in runs.gpu_type.labels else 0, np.int64)
    order = np.argsort(count, kind="stable")  # the most frequent is written last
    usual[seen[order] // kinds] = seen[order] % kinds
    return np.where(typed, kind, usual[pairs.node])


def _shares(runs: Runs, pairs: _Pairs) -> tuple[Array, Array, Array]:
    """Return the devices, cores and memory of each pair. GPUs come whole: three on two nodes count as two on each."""
    gpus, split = runs.gpus[pairs.job], pairs.share[pairs.job]
    part = gpus / split
    whole = np.ceil(part - 1e-9)
    portion = np.where(gpus > 0, whole / np.maximum(gpus, 1e-9), 1.0 / split)
    return whole, runs.cpus[pairs.job] * portion, runs.memory[pairs.job] * portion


def _partitions(runs: Runs, pairs: _Pairs, at: Array, cells: int) -> list[tuple[str, ...]]:
    size = len(runs.partition.labels)
    found: list[tuple[str, ...]] = [()] * cells
    for code in np.unique(at.astype(np.int64) * size + runs.partition.codes[pairs.job]).tolist():
        label = runs.partition.labels[code % size]
        if label:
            found[code // size] += (label,)
    return found


@dataclass(frozen=True)
class _Events:
    """Starts and ends by place and time; an end comes before a start of the same instant."""

    place: Array  # (pairs,)
    order: Array  # of the events: all ends, then all starts
    first: Array  # (places,) the first event of each, for those that have one
    used: Array  # (pairs,) bool: takes some time
    filled: Array  # (places,) bool
    places: int

    @classmethod
    def of(cls, place: Array, start: Array, end: Array, places: int) -> _Events:
        used = end > start
        where = np.concatenate([place[used], place[used]])
        order = np.argsort(np.concatenate([end[used], start[used]]), kind="stable")
        order = order[np.argsort(where[order], kind="stable")]
        count = np.bincount(where, minlength=places)
        first = (np.cumsum(count) - count)[count > 0]
        return cls(place, order, first, used, count > 0, places)

    def peaks(self, amount: Array) -> Array:
        """Return (places,) the most held at once, at least the most that any one job held."""
        most = np.zeros(self.places)
        np.maximum.at(most, self.place, amount)
        if len(self.order) == 0:
            return most
        held = amount[self.used]
        level = np.cumsum(np.concatenate([-held, held])[self.order])
        before = np.concatenate(([0.0], level))[self.first]  # what rounding left of the places before
        top = np.maximum.reduceat(level, self.first) - before
        most[self.filled] = np.maximum(most[self.filled], top)
        return most
