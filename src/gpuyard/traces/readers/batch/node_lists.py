"""Node lists of many jobs, as numbers of nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.traces.checks import Rows
from gpuyard.traces.readers.batch.fields import node_names
from gpuyard.traces.readers.batch.records import Coded

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
