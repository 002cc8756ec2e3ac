"""Conservative backfilling: every waiting job gets a booking on a plan of the nodes over time.

The plan has two views. The steps tell, from plan_time[k] on, how many devices are wholly free in the partition and how many GPUs of
its quota are in use: most times at which a job cannot begin are seen from them. The cells of a node are a list of what is free on
it from a time on; only where the steps allow a job are they asked.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner, trailing_zeros
from gpuyard.engine.kernels.nodes import admits, allows, chunk_of, limited, takes, tightest_device, unit_cpus, unit_memory
from gpuyard.engine.kernels.place import choose, find
from gpuyard.engine.kernels.queue import move_up
from gpuyard.engine.kernels.ranks.terms import terms_at
from gpuyard.engine.kernels.runs import estimated_end, estimated_end_now, factor_picked, overhead_of, rate_of, start_at
from gpuyard.model.cluster import EPS

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import JobRow, NodeRow, PartitionRow, SlotRow, State


@inner
def depth_of(slot: SlotRow, jobs: Int) -> Any:
    """Return how many of so many jobs backfilling may look at."""
    return slot.depth if slot.depth > 0 else jobs


@inner
def plan_size(s: State, part: PartitionRow, depth: Int) -> Any:
    """Return the most steps and the most cells that the plan of a partition can have: each job begins and ends once, on few nodes.

    Running jobs count like waiting ones, which they become if they are preempted.
    """
    times = max(part.shared, 1)  # a job may be booked in each of its partitions
    steps = 2 + 2 * ((part.tail - part.head) * times + part.running)
    if _steps_suffice(s, part):
        return steps, 1
    size = int(part.node_hi - part.node_lo)
    cells = 0
    for i in range(part.head, part.tail):
        cells += 2 * min(int(s.rows[s.queue_jobs[i]].units), size) * times
    if depth > 0:  # besides those that are booked some may start before the head
        cells = min(cells, int(2 * depth * size + part.total + part.tail - part.head))
    cells += size + len(s.shadow_devices)
    for i in range(part.first_run, part.first_run + part.running):
        cells += 2 * min(int(s.rows[s.running_jobs[i]].units), size)
    return steps, cells


@inner
def _steps_suffice(s: State, part: PartitionRow) -> Any:
    """Whether no cells are needed: the partition is one node, of which only whole devices are asked for."""
    return part.node_hi - part.node_lo == 1 and s.control[0].hosts == 0 and s.control[0].sharing == 0


@inner
def conservative(s: State, p: Int, head: Int) -> Any:
    """Walk the queue from the head on; start what is booked for now, book the rest. Returns a status.

    Bookings last no longer than the pass. So the walk ends with the last job that could start now; none can in most passes.
    """
    part, slot = s.partitions[p], s.slots[s.control[0].active]
    last = _last_fitting(s, part, part.tail - 1, head)
    if last < head:
        return 0
    begin_plan(s, part)
    left = depth_of(slot, part.tail - head)
    at = head
    while at <= last and left > 0:
        j = np.int64(s.queue_jobs[at])
        count = 0
        if s.rows[j].benched == 0:
            left -= 1
            count = book(s, p, j, slot)
        if count < 0:
            s.control[0].error_job = j
            return count
        if count == 0:
            at += 1
            continue
        following = start_at(s, p, at, count)
        last = _last_fitting(s, part, last + following - at - 1, following)
        at = following
    return 0


@inner
def _last_fitting(s: State, part: PartitionRow, last: Int, first: Int) -> Any:
    """Return the last position from `first` to `last` whose job does not need more devices than are free now; less than `first`: none."""
    while last >= first:
        row = s.rows[s.queue_jobs[last]]
        if row.gpus < 1 or row.gpus <= part.free:
            return last
        last -= 1
    return last


@inner
def book(s: State, p: Int, j: Int, slot: SlotRow) -> Any:
    """Give job j its booking; returns the number of nodes picked if it starts now, 0 if later or never."""
    part = s.partitions[p]
    now = s.control[0].now
    row = s.rows[j]
    duration = _longest(s, part, row)
    shared = 0 < row.gpus < 1
    if shared:
        count = _join(s, p, j, slot, duration)
        if count != 0:
            return count
    k = _earliest(s, part, row, duration)
    if k < 0:
        return 0
    time = s.plan_time[k]
    s.pick_device[0] = -1
    count = 0
    if time == now:
        count = choose(s, p, j, slot)
        if count < 0:
            return count
        end = _after(now, duration)
        if shared:
            n = s.pick_node[0]
            s.pick_device[0] = trailing_zeros(s.nodes[n].mask)
            last = estimated_end(s, row, rate_of(s, row, count), factor_picked(s, row, count))
            s.shadow_devices[s.nodes[n].first_device + s.pick_device[0]] = estimated_end_now(last, now)
        _subtract(s, row, count, now, end, _device_of(row))
        return count
    _subtract(s, row, _in_turn(s, part, row.units), time, time + duration, _device_of(row))
    return 0


@inner
def _after(now: Real, duration: Real) -> Any:
    """When a run that begins now is estimated to end: not now, not even if it has no length."""
    return now + duration if now + duration > now else now + 1.0


@inner
def _longest(s: State, part: PartitionRow, row: JobRow) -> Any:
    """Return the longest estimate of the job, in seconds."""
    control = s.control[0]
    slowest, factor = math.inf, 0.0
    if row.gpus == 0:
        slowest, factor = 1.0, 1.0
    else:
        for n in range(part.node_lo, part.node_hi):
            kind = s.nodes[n].gpu_type
            if takes(s, row, kind) and (row.plain >= 0 or admits(s, row, s.nodes[n])):
                slowest = min(slowest, s.speed[row.job_class * len(s.types) + kind])
                factor = max(factor, s.types[kind].transfer)
        if row.units > 1:
            slowest *= min(1.0, min(control.span_nodes, control.span_racks))
    slowest *= s.terms[terms_at(s, row)].writing
    duration = overhead_of(s, row, factor) + row.remaining / slowest
    if control.kills == 1:
        duration = min(duration, max(s.table[row.number].walltime - row.ran, 0.0))
    return duration


# ── the plan ──


@inner
def begin_plan(s: State, part: PartitionRow) -> None:
    """The plan as the running jobs leave it. shadow_devices tells until when a device is shared (-1: it is not)."""
    control = s.control[0]
    control.steps = 1
    s.plan_time[0], s.plan_used[0], s.plan_free[0] = control.now, part.used, part.free
    control.cells = -1 if _steps_suffice(s, part) else 0
    for n in range(part.node_lo, part.node_hi if control.cells == 0 else part.node_lo):
        node = s.nodes[n]
        s.plan_first[n] = control.cells
        cell = s.plan_cells[control.cells]
        cell.time, cell.next = control.now, -1
        cell.free, cell.cpus, cell.memory = node.free, node.free_cpus, node.free_memory
        control.cells += 1
        if node.first_device >= 0 and control.sharing == 1:
            for d in range(node.first_device, node.first_device + node.gpus):
                s.shadow_devices[d] = -1.0
    for i in range(part.first_run, part.first_run + part.running):
        _leave_plan(s, s.rows[s.running_jobs[i]])
    if control.sharing == 1:
        for n in range(part.node_lo, part.node_hi):
            node = s.nodes[n]
            if node.first_device >= 0:
                for d in range(node.first_device, node.first_device + node.gpus):
                    if s.shadow_devices[d] >= 0:
                        _free_up(s, n, s.shadow_devices[d], np.int64(1), 0.0, 0.0)


@inner
def _leave_plan(s: State, row: JobRow) -> None:
    time = estimated_end_now(row.est_end, s.control[0].now)
    step = _step(s, time)
    k = row.alloc
    while k >= 0:
        piece = s.parts[k]
        units, gpus = 1, np.int64(0)
        if row.gpus >= 1:
            units, gpus = piece.gpus // chunk_of(row), np.int64(piece.gpus)
        elif row.gpus > 0:
            at = s.nodes[piece.node].first_device + piece.gpu
            s.shadow_devices[at] = max(s.shadow_devices[at], time)
        if gpus > 0 or s.control[0].hosts == 1:
            _free_up(s, np.int64(piece.node), time, gpus, unit_cpus(s, row) * units, unit_memory(s, row) * units)
        k = piece.next
    for t in range(step, s.control[0].steps):
        s.plan_used[t] -= row.gpus


@inner
def _free_up(s: State, n: Int, time: Real, gpus: Int, cpus: Real, memory: Real) -> None:
    """Let node n have so much more from `time` on."""
    for t in range(_step(s, time), s.control[0].steps):
        s.plan_free[t] += gpus
    c = _cell(s, n, time) if s.control[0].cells >= 0 else np.int64(-1)
    while c >= 0:
        cell = s.plan_cells[c]
        cell.free += gpus
        cell.cpus += cpus
        cell.memory += memory
        c = cell.next


@inner
def _step(s: State, time: Real) -> Any:
    """The step that begins at `time`, made if it does not exist."""
    control = s.control[0]
    k = control.steps
    while k > 0 and s.plan_time[k - 1] > time:
        k -= 1
    if k > 0 and s.plan_time[k - 1] == time:
        return k - 1
    move_up(s.plan_time, k, control.steps)
    move_up(s.plan_used, k, control.steps)
    move_up(s.plan_free, k, control.steps)
    s.plan_time[k], s.plan_used[k], s.plan_free[k] = time, s.plan_used[k - 1], s.plan_free[k - 1]
    control.steps += 1
    return k


@inner
def _cell(s: State, n: Int, time: Real) -> Any:
    """The cell of node n that begins at `time`, made if it does not exist."""
    control = s.control[0]
    c = np.int64(s.plan_first[n])
    following = np.int64(s.plan_cells[c].next)
    while following >= 0 and s.plan_cells[following].time <= time:
        c = following
        following = np.int64(s.plan_cells[c].next)
    before = s.plan_cells[c]
    if before.time == time:
        return c
    made: Int = control.cells
    control.cells += 1
    cell = s.plan_cells[made]
    cell.time, cell.next = time, following
    cell.free, cell.cpus, cell.memory = before.free, before.cpus, before.memory
    before.next = made
    return made


@inner
def _device_of(row: JobRow) -> Any:
    """Whole devices that one unit takes in the plan."""
    return np.int64(chunk_of(row) if row.gpus >= 1 else (1 if row.gpus > 0 else 0))


@inner
def _subtract(s: State, row: JobRow, count: Int, begin: Real, end: Real, devices: Int) -> None:
    """Take the units picked, of so many devices each, out of the plan from `begin` until `end`."""
    if not end > begin:
        return
    first = _step(s, begin)
    last = _step(s, end)
    for t in range(first, last):
        s.plan_used[t] += row.gpus
    for i in range(count):
        n, units = np.int64(s.pick_node[i]), np.int64(s.pick_units[i])
        for t in range(first, last):
            s.plan_free[t] -= units * devices
        if s.control[0].cells < 0:
            continue
        c, stop = _cell(s, n, begin), _cell(s, n, end)
        while c != stop:
            cell = s.plan_cells[c]
            cell.free -= units * devices
            if s.control[0].hosts == 1:
                cell.cpus -= unit_cpus(s, row) * units
                cell.memory -= unit_memory(s, row) * units
            c = np.int64(cell.next)


@inner
def _planned_room(s: State, row: JobRow, node: NodeRow, free: Int, cpus: Real, memory: Real) -> Any:
    """Units that a node with so much free can take."""
    if not allows(s, row, node):
        return 0
    if row.gpus >= 1:
        units = free // chunk_of(row)
    elif row.gpus == 0:
        units = 1
    else:
        units = 1 if free >= 1 and node.first_device >= 0 else 0
    if units == 0 or row.hosted == 0:
        return units
    return int(limited(s, float(units), cpus, memory, row))


@inner
def _earliest(s: State, part: PartitionRow, row: JobRow, duration: Real) -> Any:
    """The first step from which the job fits for `duration`, or -1; room is left in s.room."""
    steps = s.control[0].steps
    most = part.quota + EPS
    need = np.int64(np.ceil(row.gpus))
    k = 0
    while k < steps:
        until = s.plan_time[k] + duration
        t = k
        least = s.plan_free[k]
        while t < steps and (t == k or s.plan_time[t] < until) and s.plan_free[t] >= need and s.plan_used[t] + row.gpus <= most:
            least = min(least, s.plan_free[t])
            t += 1
        if t == k or (t < steps and s.plan_time[t] < until):  # no interval that contains step t can do
            k = t + 1
        elif _fits_over(s, part, row, s.plan_time[k], until, least):
            return k
        else:
            k += 1
    return -1


@inner
def _fits_over(s: State, part: PartitionRow, row: JobRow, begin: Real, until: Real, least: Int) -> Any:
    """Whether the nodes have room for the job from `begin` until `until`; s.room tells how much of it on each.

    `least`: devices that are free in the partition all that time.
    """
    total = 0
    for n in range(part.node_lo, part.node_hi):
        free, cpus, memory = least, math.inf, math.inf
        if s.control[0].cells >= 0:
            free, cpus, memory = _least(s, n, begin, until)
        room = _planned_room(s, row, s.nodes[n], free, cpus, memory)
        s.room[n] = room
        total += room
    return total >= row.units


@inner
def _least(s: State, n: Int, begin: Real, until: Real) -> Any:
    """The least devices, cpus and memory that are free on node n at `begin` and from then until `until`."""
    cell = s.plan_cells[s.plan_first[n]]
    c = cell.next
    while c >= 0 and s.plan_cells[c].time <= begin:
        cell = s.plan_cells[c]
        c = cell.next
    free, cpus, memory = cell.free, cell.cpus, cell.memory
    while c >= 0 and s.plan_cells[c].time < until:
        cell = s.plan_cells[c]
        free, cpus, memory = min(free, cell.free), min(cpus, cell.cpus), min(memory, cell.memory)
        c = cell.next
    return free, cpus, memory


@inner
def _in_turn(s: State, part: PartitionRow, units: Int) -> Any:
    """Pick nodes by number: the first that has room for all, else each in turn."""
    for n in range(part.node_lo, part.node_hi):
        if s.room[n] >= units:
            s.pick_node[0] = n
            s.pick_units[0] = units
            return 1
    count = 0
    missing = units
    for n in range(part.node_lo, part.node_hi):
        given = min(s.room[n], missing)
        if given > 0:
            s.pick_node[count] = n
            s.pick_units[count] = given
            count += 1
            missing -= given
    return count


@inner
def _join(s: State, p: Int, j: Int, slot: SlotRow, duration: Real) -> Any:
    """Try a shared job on a device that is already shared for long enough: 1 if it starts there, 0 if not, or a failure."""
    part = s.partitions[p]
    row = s.rows[j]
    count = find(s, p, j, slot)
    if count <= 0:
        return count
    n = s.pick_node[0]
    node = s.nodes[n]
    device: Int = s.pick_device[0]
    if device < 0:
        device = np.int64(tightest_device(node, s.devices, row.gpus))
    now = s.control[0].now
    end = now + duration
    if end > s.shadow_devices[node.first_device + device] or not _holds_rest(s, part, row, n, end):
        return 0
    s.pick_device[0] = device
    _subtract(s, row, np.int64(1), now, _after(now, duration), np.int64(0))
    return 1


@inner
def _holds_rest(s: State, part: PartitionRow, row: JobRow, n: Int, end: Real) -> Any:
    """Whether the plan has quota, cpus and memory for the job on node n from now until `end`."""
    _, cpus, memory = _least(s, n, s.control[0].now, end)
    if row.hosted == 1 and (s.table[row.number].cpus > cpus + EPS or s.table[row.number].memory > memory + EPS):
        return False
    t = 0
    while t < s.control[0].steps and (t == 0 or s.plan_time[t] < end):
        if s.plan_used[t] + row.gpus > part.quota + EPS:
            return False
        t += 1
    return True
