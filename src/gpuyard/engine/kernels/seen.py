"""What a snapshot shows, laid into a state that is kept from one decision to the next: no array is made, nothing is left to Python."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import NO_DEVICES, hold, largest_share
from gpuyard.engine.state import RUNNING, WAITING


@inner
def is_sound(s: Any, table: Any, live: Any, held: Any, nodes: Any, where: Any) -> Any:
    """Whether all that a snapshot refers to by number is there. Nothing that follows looks at the bounds of an array."""
    if len(live) != len(table) or len(nodes) != len(where):
        return False
    classes = len(s.speed) // len(s.types)
    for j in range(len(table)):
        job = table[j]
        labelled = 0 <= job.partition < len(s.partition_of) and 0 <= job.gpu_type < len(s.allowed) and 0 <= job.job_class < classes
        if not labelled or job.chunk < 1:
            return False
    for number in range(len(nodes)):
        if not _has_devices(s.nodes[where[number]], nodes[number].mask):
            return False
    for k in range(len(held)):
        piece = held[k]
        if not (0 <= piece.row < len(table) and live[piece.row].running and 0 <= piece.node < len(nodes)):
            return False
        node = s.nodes[where[piece.node]]
        if not _has_devices(node, piece.devices) or held[k]["device"] >= node.gpus or piece.gpus < 0:  # numpy has an attribute `device`
            return False
    return True


@inner
def _has_devices(node: Any, mask: Any) -> Any:
    """Whether a bit set names devices of the node alone; a pool of devices that have no numbers knows no bit sets."""
    return node.first_device < 0 or node.gpus >= 64 or np.uint64(mask) >> np.uint64(node.gpus) == NO_DEVICES


@inner
def lay_out(s: Any, table: Any, live: Any, held: Any, nodes: Any, ended: Any, where: Any, now: Any, submitted: Any) -> None:
    """Queues, running jobs, nodes and counts as a snapshot shows them. `where` (nodes,): the kernels' place of each node.

    Rows have what features and placements read. The state must have room: rows for the jobs, queues for the jobs and one more
    for each partition, parts for what is held.
    """
    control = s.control[0]
    control.now = now
    _set_nodes(s, nodes, where)
    _set_regions(s, table, live)
    _set_rows(s, table, live)
    _set_held(s, held, where)
    _count_devices(s)
    arrived = control.next_job
    for j in range(len(table)):
        arrived = max(arrived, np.int64(table[j].index) + 1)
    for k in range(len(ended)):
        arrived = max(arrived, np.int64(ended[k].job) + 1)
    control.next_job = arrived
    control.recent_job = arrived - submitted


@inner
def _set_nodes(s: Any, nodes: Any, where: Any) -> None:
    """Every node as it is with no job on it."""
    for number in range(len(nodes)):
        seen = nodes[number]
        node = s.nodes[where[number]]
        node.down = seen.down
        node.off = seen.off
        node.free = node.gpus - seen.off
        node.free_cpus = node.cpus
        node.free_memory = node.memory
        node.mask = seen.mask if node.first_device >= 0 else NO_DEVICES
        node.shared = NO_DEVICES
        node.share = 1.0


@inner
def _set_regions(s: Any, table: Any, live: Any) -> None:
    """Give each partition its region of the queue arrays: its waiting jobs, and one place for the first running job to end."""
    for p in range(len(s.partitions)):
        s.partitions[p].queue_hi = 1
    for j in range(len(table)):
        if not live[j].running:
            s.partitions[max(s.partition_of[table[j].partition], 0)].queue_hi += 1
    at = 0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        part.queue_lo = part.head = part.tail = at
        at += part.queue_hi
        part.queue_hi = at
        part.running = 0
        part.work = part.used = 0.0


@inner
def _set_rows(s: Any, table: Any, live: Any) -> None:
    control = s.control[0]
    control.waiting = control.heap = 0
    for j in range(len(table)):
        _set_row(s, table[j], live[j], s.rows[j])
        row = s.rows[j]
        part = s.partitions[row.partition]
        if row.status == WAITING:
            s.queue_jobs[part.tail] = j
            part.tail += 1
            part.work += row.remaining * row.gpus
            control.waiting += 1
        else:
            part.used += row.gpus
            if part.running == 0 or row.est_end < s.rows[s.running_jobs[part.queue_lo]].est_end:
                s.running_jobs[part.queue_lo] = j
            part.running += 1
            s.ends[control.heap] = j
            control.heap += 1
    control.running = control.heap


@inner
def _set_row(s: Any, given: Any, seen: Any, row: Any) -> None:
    row.submit, row.gpus, row.estimate, row.deadline = given.submit, given.gpus, given.estimate, given.deadline
    row.cpus, row.memory, row.priority = given.cpus, given.memory, given.priority
    row.job_class, row.chunk, row.gpu_type, row.index = given.job_class, given.chunk, given.gpu_type, given.index
    row.partition = max(s.partition_of[given.partition], 0)
    row.units = given.gpus // given.chunk if given.gpus >= 1 else 1
    row.plain = 0  # the counters of plain jobs are not kept
    row.remaining = max(given.estimate - seen.done, 0.0)
    row.est_end, row.run_start, row.ran, row.walltime = seen.est_end, seen.run_start, seen.ran, given.walltime
    row.alloc = -1
    row.status = RUNNING if seen.running else WAITING


@inner
def _set_held(s: Any, held: Any, where: Any) -> None:
    """Let running jobs hold what they have."""
    for t in range(len(s.types)):
        s.types[t].held = 0.0
    for k in range(len(held)):
        row = s.rows[held[k].row]
        piece = s.parts[k]
        piece.mask, piece.gpus, piece.gpu = held[k].devices, held[k].gpus, held[k]["device"]  # numpy has an attribute of that name
        piece.node = where[held[k].node]
        piece.next = row.alloc
        row.alloc = k
        node = s.nodes[piece.node]
        hold(row, node, s.devices, piece)
        s.types[node.gpu_type].held += float(piece.gpus) if row.gpus >= 1 else row.gpus


@inner
def _count_devices(s: Any) -> None:
    for t in range(len(s.types)):
        s.types[t].up = 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        part.free = 0
        for n in range(part.node_lo, part.node_hi):
            node = s.nodes[n]
            if node.down > 0:
                continue
            part.free += node.free
            s.types[node.gpu_type].up += float(node.gpus - node.off)
            if node.free == 0:
                node.share = largest_share(node, s.devices)
