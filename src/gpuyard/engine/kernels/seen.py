"""Lay a snapshot into a state that is kept from one decision to the next, and read decisions off it. Nothing is allocated here."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import copier, inner
from gpuyard.engine.kernels.accounts import show_usage
from gpuyard.engine.kernels.events import count_free, switch
from gpuyard.engine.kernels.nodes import NO_DEVICES, describe, hold
from gpuyard.engine.kernels.passes import order_queue
from gpuyard.engine.kernels.queue import queue_sort
from gpuyard.engine.kernels.ranks.area import may_be_stopped
from gpuyard.engine.kernels.ranks.terms import begin_terms
from gpuyard.engine.kernels.runs import fill_row
from gpuyard.engine.kernels.site.homes import find_home
from gpuyard.engine.kernels.site.limits import bench_over, charge_limits
from gpuyard.engine.kernels.site.refusals import find_chances, find_given
from gpuyard.engine.state import JOB_ROW, RUNNING, WAITING
from gpuyard.model.jobs import JOB as SUBMITTED
from gpuyard.model.snapshot import LIVE

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints, Real, Reals, Vector, Words
    from gpuyard.engine.state import ControlRow, NodeRow, PartitionRow, State
    from gpuyard.model.jobs import SubmittedRow
    from gpuyard.model.snapshot import EndedRow, HeldRow, LiveRow, NodeStatusRow

LAID_OUT, NO_JOB, UNSOUND = 0, -100, -101  # beside the failures of policies
ALL, SCHEDULER, JOB, HOST = range(4)  # what is to be decided: everything by a pass that follows; or one thing at once
LONGEST_TIME = 1e15  # s; beyond it, time does not move on when a second is added

_copy_given = copier(SUBMITTED.names or ())
_copy_live = copier([name for name in LIVE.names or () if name in (JOB_ROW.names or ())])


@inner
def is_sound(
    s: State, table: Vector[SubmittedRow], live: Vector[LiveRow], held: Vector[HeldRow], nodes: Vector[NodeStatusRow],
    usage: Reals, where: Ints,
) -> Any:  # fmt: skip
    """Whether everything that a snapshot refers to by number exists. Kernels do not check the bounds of arrays."""
    if len(live) != len(table) or len(nodes) != len(where) or (len(usage) > 0 and len(usage) != len(s.users)):
        return False
    for j in range(len(table)):
        if not _is_sound_job(s, table[j], live[j]):
            return False
    for number in range(len(nodes)):
        node = s.nodes[where[number]]
        if not (_has_devices(node, nodes[number].mask) and 0 <= nodes[number].off <= node.gpus):
            return False
    for k in range(len(held)):
        row, number = held[k].row, held[k].node
        if not (0 <= row < len(table) and live[row].running and 0 <= number < len(nodes)):
            return False
        if not _is_sound_piece(s.nodes[where[number]], held[k], table[row].gpus):
            return False
    return True


@inner
def _is_sound_job(s: State, job: SubmittedRow, seen: LiveRow) -> Any:
    if not (0 <= job.partition < len(s.partition_of) and 0 <= job.gpu_type < len(s.allowed) and job.chunk >= 1):
        return False
    if not (0 <= job.job_class < len(s.speed) // len(s.types) and 0 <= job.user < len(s.users) and 0 <= job.qos < len(s.qos_factor)):
        return False
    if not 0 <= job.terms < len(s.terms) // 2:
        return False
    return not seen.running or (abs(seen.run_start) < LONGEST_TIME and seen.est_end == seen.est_end)


@inner
def _is_sound_piece(node: NodeRow, piece: HeldRow, gpus: Real) -> Any:
    device = piece["device"]  # numpy has an attribute of that name
    if 0 < gpus < 1:
        return node.first_device >= 0 and 0 <= device < node.gpus and np.uint64(piece.devices) == np.uint64(1) << np.uint64(device)
    return _has_devices(node, piece.devices) and device < node.gpus and 0 <= piece.gpus <= node.gpus


@inner
def _has_devices(node: NodeRow, mask: np.uint64) -> Any:
    """Whether a bit set names devices of the node alone; a pool of devices that have no numbers knows no bit sets."""
    return node.first_device < 0 or node.gpus >= 64 or np.uint64(mask) >> np.uint64(node.gpus) == NO_DEVICES


@inner
def lay_out(
    s: State, table: Vector[SubmittedRow], live: Vector[LiveRow], held: Vector[HeldRow], nodes: Vector[NodeStatusRow],
    ended: Vector[EndedRow], usage: Reals, homes: Ints, where: Ints, now: Real, submitted: Int,
) -> Any:  # fmt: skip
    """Set queues, running jobs, nodes and counts as a snapshot shows them; returns LAID_OUT, or UNSOUND. `where`: node number → place.

    The state must have room: rows, queues and ends for the jobs, parts for what is held and for what may start.
    """
    if not is_sound(s, table, live, held, nodes, usage, where) or not -LONGEST_TIME < now < LONGEST_TIME:
        return UNSOUND
    control = s.control[0]
    control.now = control.usage_at = now
    control.notes = 0
    for u in range(len(s.users)):
        s.users[u].usage = usage[u] if len(usage) > 0 else 0.0
        s.users[u].held = 0.0  # no time passes: what is held does not count
    _set_nodes(s, nodes, where)
    _set_regions(s, table)
    _set_rows(s, table, live)
    _set_held(s, held, where)
    for i in range(control.heap):
        j = np.int64(s.ends[i])
        find_home(s, s.rows[j], np.int64(homes[j]) if j < len(homes) else np.int64(-1))
    _count_arrivals(control, table, ended, submitted)
    for n in range(len(s.nodes)):
        if s.nodes[n].free < 0:
            return UNSOUND
    _count_devices(s)
    if control.limits > 0:
        for i in range(control.heap):
            charge_limits(s, s.rows[s.ends[i]], 1.0, 0.0)
    return LAID_OUT


@inner
def _set_nodes(s: State, nodes: Vector[NodeStatusRow], where: Ints) -> None:
    """Set every node to what it is with no job on it."""
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
        s.fragment[where[number]] = -1


@inner
def _set_regions(s: State, table: Vector[SubmittedRow]) -> None:
    """Give each partition its region of the queue arrays: a place for each of its jobs."""
    for p in range(len(s.partitions)):
        s.partitions[p].queue_hi = 0
    for j in range(len(table)):
        s.partitions[max(s.partition_of[table[j].partition], 0)].queue_hi += 1
    at = 0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        part.queue_lo = part.head = part.tail = part.first_run = at
        at += part.queue_hi
        part.queue_hi = at
        part.running = part.unsorted = part.sifted = part.settled = part.came = 0
        part.work = part.used = part.ageing = 0.0


@inner
def _set_rows(s: State, table: Vector[SubmittedRow], live: Vector[LiveRow]) -> None:
    control = s.control[0]
    control.waiting = control.heap = control.sharing = control.hosts = control.stoppable = 0
    for j in range(len(table)):
        _set_row(s, table[j], live[j], j)
        row = s.rows[j]
        part = s.partitions[row.partition]
        if row.status == WAITING:
            s.queue_jobs[part.tail] = j
            part.tail += 1
            part.work += row.remaining * row.gpus
            control.waiting += 1
        else:
            _set_running(s, control, part, j)
        if 0 < row.gpus < 1:
            control.sharing = 1
        if row.hosted == 1:
            control.hosts = 1
    control.running = control.heap
    if control.tracking == 1:
        for p in range(len(s.partitions)):
            lo = s.partitions[p].queue_lo
            queue_sort(s.running_ends, s.running_jobs, lo, lo + s.partitions[p].running)
    if control.sharing == 1:
        for d in range(len(s.devices)):
            s.devices[d] = 0.0


@inner
def _set_row(s: State, given: SubmittedRow, seen: LiveRow, j: Int) -> None:
    row = s.rows[j]
    _copy_given(given, s.table[j])
    fill_row(s, given, j)
    _copy_live(seen, row)
    row.runtime = np.inf  # hidden
    if len(s.factors) > 0:
        s.factors[j].attained = seen.attained
    row.remaining = max(row.estimate - row.done, 0.0)
    row.status = RUNNING if seen.running else WAITING
    if not seen.running:
        begin_terms(s, row)
    if s.partitions[row.partition].shared > 0:
        find_chances(s, j)  # of one that runs too: it may be stopped, and then waits
    if may_be_stopped(s, row):
        s.control[0].stoppable = 1
    if len(s.rank_until) > 1:
        s.rank_until[j] = s.rank_calm[j] = -np.inf


@inner
def _set_running(s: State, control: ControlRow, part: PartitionRow, j: Int) -> None:
    """Add a running job to the ends, which are not known, and to the running jobs where they are kept in order."""
    s.ends[control.heap] = j
    s.end_times[control.heap] = np.inf
    control.heap += 1
    part.used += s.rows[j].gpus
    if control.tracking == 1:
        s.running_ends[part.queue_lo + part.running] = s.rows[j].est_end
        s.running_jobs[part.queue_lo + part.running] = j
        part.running += 1


@inner
def _set_held(s: State, held: Vector[HeldRow], where: Ints) -> None:
    """Let running jobs hold what they have; the parts that are left are free."""
    control = s.control[0]
    for t in range(len(s.types)):
        s.types[t].held = 0.0
    for k in range(len(held) - 1, -1, -1):  # the list of a job is built from its end
        row = s.rows[held[k].row]
        piece = s.parts[k]
        piece.mask, piece.gpus, piece.gpu = held[k].devices, held[k].gpus, held[k]["device"]
        piece.node = where[held[k].node]
        piece.next = row.alloc
        row.alloc = k
    for k in range(len(held)):
        row, node = s.rows[held[k].row], s.nodes[s.parts[k].node]
        hold(s, row, node, s.devices, s.parts[k])
        s.types[node.gpu_type].held += float(s.parts[k].gpus) if row.gpus >= 1 else row.gpus
    _free_parts(s, len(held))
    control.free_part = control.parts_used = control.parts_laid = len(held)


@inner
def _free_parts(s: State, first: Int) -> None:
    """Link the parts from `first` on. A pass takes free parts in order and links none of them to the next: the rest is linked already."""
    control = s.control[0]
    k = first
    while k + 1 < len(s.parts) and (k < control.parts_laid or s.parts[k].next != k + 1):
        s.parts[k].next = k + 1
        k += 1
    s.parts[len(s.parts) - 1].next = -1


@inner
def _count_arrivals(control: ControlRow, table: Vector[SubmittedRow], ended: Vector[EndedRow], submitted: Int) -> None:
    """Count the jobs that have come so far, as far as their numbers show it, and those that came recently."""
    arrived = control.next_job
    for j in range(len(table)):
        arrived = max(arrived, int(table[j].index) + 1)
    for k in range(len(ended)):
        arrived = max(arrived, int(ended[k].job) + 1)
    control.next_job = arrived
    control.recent_job = arrived - submitted


@inner
def _count_devices(s: State) -> None:
    for w in range(len(s.free_index)):
        s.free_index[w] = NO_DEVICES
    for t in range(len(s.types)):
        s.types[t].up = 0.0
    for n in range(len(s.nodes)):
        node = s.nodes[n]
        if node.down == 0:
            s.types[node.gpu_type].up += float(node.gpus - node.off)
    count_free(s)


# ── one choice alone ──


@inner
def first_choice(s: State, what: Int, which: Int) -> Any:
    """Make the first choice that a pass would make: the number of a scheduler, or the row of a job; negative: NO_JOB or a failure.

    SCHEDULER: the one that the switch rule names; JOB: the first job of partition `which`; HOST: the nodes for the job in row `which`.
    For a job its nodes, `control.picked` of them, are in the first parts.
    """
    control = s.control[0]
    if control.half_life > 0:
        show_usage(s)
    if control.limits > 0:
        bench_over(s)
    if what == SCHEDULER:
        status = switch(s)
        return status if status < 0 else control.active
    row = which
    if what == JOB:
        row = _first_of(s, which)
        if row < 0:
            return row
    picked = np.int64(0)
    if s.rows[row].benched == 0:
        s.pick_units[0] = 0  # no nodes are given
        picked = find_given(s, np.int64(s.rows[row].partition), row)
    if picked < 0:
        control.error_job = row
        return picked
    control.picked = picked
    for i in range(picked):
        describe(s.rows[row], s.nodes[s.pick_node[i]], s.devices, s.pick_units[i], s.pick_device[0], s.parts[i])
        s.parts[i].node = s.pick_node[i]
        s.parts[i].next = i - 1  # from the last to the first
    s.rows[row].alloc = picked - 1
    return row


@inner
def _first_of(s: State, p: Int) -> Any:
    """Return the first job of a queue that is over no limit, NO_JOB, or a failure."""
    part = s.partitions[p]
    if part.head == part.tail:
        return NO_JOB
    status = order_queue(s, p)
    if status < 0:
        return status
    for i in range(part.head, part.tail):
        j = np.int64(s.queue_jobs[i])
        if s.rows[j].benched == 0:
            return j
    return NO_JOB


# ── decisions ──


@inner
def read_decisions(s: State, rows: Ints, counts: Ints, nodes: Ints, gpus: Reals, devices: Words) -> Any:
    """Write what a pass did, in order, into arrays; returns how many decisions there are.

    `rows` (decisions,); `counts` (decisions,) of parts, -1: stopped; the others (parts,): node numbers, GPUs, bit sets of devices.
    """
    at = 0
    noted = s.control[0].notes
    for i in range(noted):
        j = np.int64(s.notes[i])
        if j < 0:
            rows[i], counts[i] = -1 - j, -1
        else:
            count = read_parts(s, j, at, nodes, gpus, devices)
            rows[i], counts[i] = j, count
            at += count
    return noted


@inner
def read_parts(s: State, j: Int, at: Int, nodes: Ints, gpus: Reals, devices: Words) -> Any:
    """Write the parts of job j into arrays from position `at` on; returns how many there are."""
    count = 0
    k = s.rows[j].alloc
    while k >= 0:
        piece = s.parts[k]
        nodes[at + count] = s.nodes[piece.node].number
        gpus[at + count] = float(piece.gpus) if s.rows[j].gpus >= 1 else s.rows[j].gpus
        devices[at + count] = piece.mask
        k = piece.next
        count += 1
    return count
