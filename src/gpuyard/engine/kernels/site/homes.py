"""In which of its partitions a job is looked at, or runs, where partitions share nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

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
def find_home(s: State, row: JobRow) -> None:
    """Take the first of its partitions that has all its nodes for that in which a job runs, where partitions share nodes."""
    label = s.table[row.number].partition
    pair = 0
    while row.plain < 0 and pair < s.pair_at[label + 1] - s.pair_at[label]:
        look_at_in(s, row, pair)
        k = row.alloc
        while k >= 0 and admits(s, row, s.nodes[s.parts[k].node]):
            k = s.parts[k].next
        if k < 0:
            return
        pair += 1
