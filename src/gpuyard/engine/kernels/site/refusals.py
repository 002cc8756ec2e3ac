"""Why a job cannot run on its partition, not even if that is empty and healthy; and whether it may start where others want it to."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import NO_DEVICES, admits, chunk_of, limited, room_on, takes
from gpuyard.engine.kernels.place import find, within_quota
from gpuyard.engine.kernels.site.homes import look_at_in
from gpuyard.engine.kernels.site.limits import over_limit
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import JobRow, PartitionRow, State

NO_PARTITION, NO_TYPE, TOO_MANY_GPUS, TOO_LARGE, OVER_QUOTA = range(1, 6)


@inner
def why_never(s: State, j: Int) -> Any:
    """The reason why a job cannot fit even on its empty, healthy partition; 0 if it can."""
    row = s.rows[j]
    if s.partition_of[s.table[j].partition] < 0:
        return NO_PARTITION
    if row.gpus > 0 and s.allowed[s.table[j].gpu_type] == 0:
        return NO_TYPE
    part = s.partitions[row.partition]
    if part.shared > 0:
        return find_chances(s, j)
    reason = 0
    if row.plain == 1:
        reason = 0 if row.gpus <= part.total else TOO_MANY_GPUS
    else:
        reason = _why_no_room(s, part, row)
    if reason == 0 and row.gpus > part.quota + EPS:
        return OVER_QUOTA
    return reason


@inner
def find_chances(s: State, j: Int) -> Any:
    """Note in which of its partitions a job can fit; returns the reason why it cannot in the first, 0 if it can in any."""
    row = s.rows[j]
    label, part = s.table[j].partition, s.partitions[row.partition]
    first = 0
    s.chances[j] = NO_DEVICES
    for pair in range(s.pair_at[label + 1] - s.pair_at[label]):
        look_at_in(s, row, pair)
        reason = _why_no_room(s, part, row)
        if reason == 0:
            s.chances[j] |= np.uint64(1) << np.uint64(-1 - row.plain)
        first = reason if pair == 0 else first
    return first if s.chances[j] == NO_DEVICES else 0


@inner
def _why_no_room(s: State, part: PartitionRow, row: JobRow) -> Any:
    """Return the reason, the quota aside, for jobs that counters do not suffice for."""
    devices = 0
    units = 0
    for n in range(part.node_lo, part.node_hi):
        node = s.nodes[n]
        if not (row.gpus == 0 or takes(s, row, node.gpu_type)) or (row.plain < 0 and not admits(s, row, node)):
            continue
        if row.gpus >= 1:
            room = node.gpus // chunk_of(row)
        elif row.gpus == 0:
            room = 1
        else:
            room = 1 if node.gpus > 0 and node.first_device >= 0 else 0
        devices += room
        if room > 0:
            units += int(limited(s, float(room), node.cpus, node.memory, row))
        if units >= row.units:
            return 0
    return TOO_MANY_GPUS if devices < row.units and row.gpus > 0 else TOO_LARGE


@inner
def find_given(s: State, p: Int, j: Int) -> Any:
    """Return the number of nodes in pick_node if waiting job j may start there, or, with none, what `find` returns."""
    part = s.partitions[p]
    count, pair, pairs = 0, 0, 1
    if part.shared > 0:
        label = s.table[j].partition
        pairs = s.pair_at[label + 1] - s.pair_at[label]
    while count == 0 and pair < pairs:
        if part.shared > 0:
            look_at_in(s, s.rows[j], pair)
        if part.shared == 0 or _may_start_in(s, s.rows[j], -1 - s.rows[j].plain):
            count = _find_in(s, p, j)
        pair += 1
    return count


@inner
def _may_start_in(s: State, row: JobRow, home: Int) -> Any:
    """Whether a decision from outside may start a job in that partition: none other is given, and no limit closes it."""
    control = s.control[0]
    return (control.given == 0 or control.given == 1 + home) and (control.limits == 0 or over_limit(s, row, home) == 0)


@inner
def _find_in(s: State, p: Int, j: Int) -> Any:
    """Return the number of nodes in pick_node if job j fits there, or, with none, what `find` returns."""
    row = s.rows[j]
    count = 0
    while s.pick_units[count] > 0:
        if room_on(s, row, s.nodes[s.pick_node[count]]) < s.pick_units[count]:
            return 0
        count += 1
    if count == 0:
        return find(s, p, j, s.slots[s.control[0].active])
    return count if within_quota(s.partitions[p], row.gpus) else 0
