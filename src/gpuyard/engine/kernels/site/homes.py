"""In which of its partitions a job is looked at, or runs, where partitions share nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import admits

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import JobRow, State


@inner
def look_at_in(s: State, row: JobRow, pair: Int) -> None:
    """Look at the job in one of its partitions, by number, from 0, the highest tier first: where partitions share nodes."""
    label = s.table[row.number].partition
    if s.pair_at[label] < s.pair_at[label + 1]:
        row.plain = -1 - s.pairs[s.pair_at[label] + pair]


@inner
def find_home(s: State, row: JobRow, said: Int) -> None:
    """Find the partition in which a job runs, where partitions share nodes: the one said, or the first; it must have all its nodes."""
    label = s.table[row.number].partition
    if row.plain >= 0:
        return
    first = -1
    for pair in range(s.pair_at[label + 1] - s.pair_at[label]):
        look_at_in(s, row, pair)
        if _has_its_nodes(s, row):
            if said == -1 - row.plain:
                return
            first = pair if first < 0 else first
    look_at_in(s, row, max(first, 0))


@inner
def _has_its_nodes(s: State, row: JobRow) -> Any:
    """Whether all nodes of a running job are in the partition in which it is looked at."""
    k = row.alloc
    while k >= 0:
        if not admits(s, row, s.nodes[s.parts[k].node]):
            return False
        k = s.parts[k].next
    return True
