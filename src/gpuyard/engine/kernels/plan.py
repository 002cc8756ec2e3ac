"""Conservative backfilling: every waiting job gets a booking on a plan of the nodes over time.

The plan is a matrix: for step k, which begins at plan_time[k], what is free on each node of the partition.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner, trailing_zeros
from gpuyard.engine.kernels.nodes import allows, limited, tightest_device, unit_cpus, unit_memory
from gpuyard.engine.kernels.place import choose, find
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
def plan_steps(part: PartitionRow, depth: Int) -> Any:
    """Return the most steps that the plan of a partition can have."""
    jobs: Int = part.tail - part.head
    if 0 < depth < jobs:
        jobs = depth
    return 2 + part.running + 2 * (part.tail - part.head) + 2 * jobs


@inner
def conservative(s: State, p: Int, head: Int, slot: SlotRow) -> Any:
    """Walk the queue from the head on; start what is booked for now, book the rest. Returns a status."""
    part = s.partitions[p]
    _begin(s, part)
    left = depth_of(slot, part.tail - head)
    at = head
    while at < part.tail and left > 0:
        j = np.int64(s.queue_jobs[at])
        count = 0
        if s.rows[j].benched == 0:
            left -= 1
            count = _book(s, p, j, slot)
        if count < 0:
            s.control[0].error_job = j
            return count
        at = start_at(s, p, at, count) if count > 0 else at + 1
    return 0


@inner
def _book(s: State, p: Int, j: Int, slot: SlotRow) -> Any:
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
            last = estimated_end(row, s.control[0], rate_of(s, row, count), factor_picked(s, row, count))
            s.shadow_devices[s.nodes[n].first_device + s.pick_device[0]] = estimated_end_now(last, now)
        _subtract(s, part, row, count, now, end, _device_of(row))
        return count
    _subtract(s, part, row, _in_turn(s, part, row.units), time, time + duration, _device_of(row))
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
            if (s.allowed[row.gpu_type] >> kind) & 1 == 1:
                slowest = min(slowest, s.speed[row.job_class * len(s.types) + kind])
                factor = max(factor, s.types[kind].transfer)
        if row.units > 1:
            slowest *= min(1.0, min(control.span_nodes, control.span_racks))
    duration = overhead_of(row, control, factor) + row.remaining / slowest
    if control.kills == 1:
        duration = min(duration, max(row.walltime - row.ran, 0.0))
    return duration


# ── the plan ──


@inner
def _begin(s: State, part: PartitionRow) -> None:
    """The plan as the running jobs leave it. shadow_devices tells until when a device is shared (-1: it is not)."""
    control = s.control[0]
    size = part.node_hi - part.node_lo
    control.steps = 1
    s.plan_time[0] = control.now
    s.plan_used[0] = part.used
    for i in range(size):
        node = s.nodes[part.node_lo + i]
        s.plan_free[i] = node.free
        s.plan_cpus[i] = node.free_cpus
        s.plan_memory[i] = node.free_memory
        if node.first_device >= 0 and control.sharing == 1:
            for d in range(node.first_device, node.first_device + node.gpus):
                s.shadow_devices[d] = -1.0
    for i in range(part.first_run, part.first_run + part.running):
        _leave_plan(s, part, s.rows[s.running_jobs[i]])
    if control.sharing == 1:
        for i in range(size):
            node = s.nodes[part.node_lo + i]
            if node.first_device >= 0:
                for d in range(node.first_device, node.first_device + node.gpus):
                    if s.shadow_devices[d] >= 0:
                        _add(s, size, _step(s, size, s.shadow_devices[d]), i, np.int64(1))


@inner
def _leave_plan(s: State, part: PartitionRow, row: JobRow) -> None:
    size = part.node_hi - part.node_lo
    time = estimated_end_now(row.est_end, s.control[0].now)
    step = _step(s, size, time)
    k = row.alloc
    while k >= 0:
        piece = s.parts[k]
        i = piece.node - part.node_lo
        units = 1
        if row.gpus >= 1:
            units = piece.gpus // row.chunk
            _add(s, size, step, i, np.int64(piece.gpus))
        elif row.gpus > 0:
            at = s.nodes[piece.node].first_device + piece.gpu
            s.shadow_devices[at] = max(s.shadow_devices[at], time)
        if s.control[0].hosts == 1:
            for t in range(step, s.control[0].steps):
                s.plan_cpus[t * size + i] += unit_cpus(row) * units
                s.plan_memory[t * size + i] += unit_memory(row) * units
        k = piece.next
    for t in range(step, s.control[0].steps):
        s.plan_used[t] -= row.gpus


@inner
def _add(s: State, size: Int, step: Int, i: Int, gpus: Real) -> None:
    for t in range(step, s.control[0].steps):
        s.plan_free[t * size + i] += gpus


@inner
def _step(s: State, size: Int, time: Real) -> Any:
    """The step that begins at `time`, made if it does not exist."""
    control = s.control[0]
    k = control.steps
    while k > 0 and s.plan_time[k - 1] > time:
        k -= 1
    if k > 0 and s.plan_time[k - 1] == time:
        return k - 1
    for t in range(control.steps, k, -1):
        s.plan_time[t] = s.plan_time[t - 1]
        s.plan_used[t] = s.plan_used[t - 1]
    for c in range(control.steps * size - 1, (k - 1) * size - 1, -1):
        s.plan_free[c + size] = s.plan_free[c]
    if control.hosts == 1:
        for c in range(control.steps * size - 1, (k - 1) * size - 1, -1):
            s.plan_cpus[c + size] = s.plan_cpus[c]
            s.plan_memory[c + size] = s.plan_memory[c]
    s.plan_time[k] = time
    s.plan_used[k] = s.plan_used[k - 1]
    control.steps += 1
    return k


@inner
def _device_of(row: JobRow) -> Any:
    """Whole devices that one unit takes in the plan."""
    return np.int64(row.chunk if row.gpus >= 1 else (1 if row.gpus > 0 else 0))


@inner
def _subtract(s: State, part: PartitionRow, row: JobRow, count: Int, begin: Real, end: Real, devices: Int) -> None:
    """Take the units picked, of so many devices each, out of the plan from `begin` until `end`."""
    if not end > begin:
        return
    size = part.node_hi - part.node_lo
    first = _step(s, size, begin)
    last = _step(s, size, end)
    for t in range(first, last):
        s.plan_used[t] += row.gpus
        for c in range(count):
            at = t * size + s.pick_node[c] - part.node_lo
            s.plan_free[at] -= s.pick_units[c] * devices
            if s.control[0].hosts == 1:
                s.plan_cpus[at] -= unit_cpus(row) * s.pick_units[c]
                s.plan_memory[at] -= unit_memory(row) * s.pick_units[c]


@inner
def _planned_room(s: State, row: JobRow, node: NodeRow, free: Int, cpus: Real, memory: Real) -> Any:
    """Units that a node with so much free can take."""
    if not allows(row, node, s.allowed):
        return 0
    if row.gpus >= 1:
        units = free // row.chunk
    elif row.gpus == 0:
        units = 1
    else:
        units = 1 if free >= 1 and node.first_device >= 0 else 0
    if units == 0 or (row.cpus == 0 and row.memory == 0):
        return units
    return int(limited(float(units), cpus, memory, row))


@inner
def _earliest(s: State, part: PartitionRow, row: JobRow, duration: Real) -> Any:
    """The first step from which the job fits for `duration`, or -1; room is left in s.room."""
    if part.node_hi - part.node_lo == 1 and row.plain == 1 and s.nodes[part.node_lo].down == 0:
        return _earliest_in_pool(s, part, row, duration)
    k = np.int64(0)
    while k < s.control[0].steps:
        jump = _try_step(s, part, row, k, s.plan_time[k] + duration)
        if jump == k:
            return k
        k = jump
    return -1


@inner
def _earliest_in_pool(s: State, part: PartitionRow, row: JobRow, duration: Real) -> Any:
    """Do the same for a plain job on a partition of one node, where one number per step suffices."""
    steps = s.control[0].steps
    most = part.quota + EPS
    k = 0
    while k < steps:
        until = s.plan_time[k] + duration
        t = k
        while t < steps and (t == k or s.plan_time[t] < until) and s.plan_free[t] >= row.gpus and s.plan_used[t] + row.gpus <= most:
            t += 1
        if t > k and (t == steps or s.plan_time[t] >= until):
            s.room[part.node_lo] = row.units
            return k
        k = t + 1
    return -1


@inner
def _try_step(s: State, part: PartitionRow, row: JobRow, k: Int, until: Real) -> Any:
    """k if the job fits from step k until `until`, else the next step worth trying."""
    size = part.node_hi - part.node_lo
    t = k
    while t < s.control[0].steps and (t == k or s.plan_time[t] < until):
        if s.plan_used[t] + row.gpus > part.quota + EPS:
            return t + 1
        total = 0
        at_step = 0
        for i in range(size):
            node = s.nodes[part.node_lo + i]
            c = t * size + i
            free, cpus, memory = s.plan_free[c], s.plan_cpus[c], s.plan_memory[c]
            at_step += _planned_room(s, row, node, free, cpus, memory)
            if t > k:
                free = min(free, s.least_free[i])
                cpus = min(cpus, s.least_cpus[i])
                memory = min(memory, s.least_memory[i])
            s.least_free[i], s.least_cpus[i], s.least_memory[i] = free, cpus, memory
            room = _planned_room(s, row, node, free, cpus, memory)
            s.room[part.node_lo + i] = room
            total += room
        if at_step < row.units:  # no interval that contains this step can do
            return t + 1
        if total < row.units:
            return k + 1
        t += 1
    return k


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
    _subtract(s, part, row, np.int64(1), now, _after(now, duration), np.int64(0))
    return 1


@inner
def _holds_rest(s: State, part: PartitionRow, row: JobRow, n: Int, end: Real) -> Any:
    """Whether the plan has quota, cpus and memory for the job on node n from now until `end`."""
    size = part.node_hi - part.node_lo
    t = 0
    while t < s.control[0].steps and (t == 0 or s.plan_time[t] < end):
        c = t * size + n - part.node_lo
        short = row.cpus > s.plan_cpus[c] + EPS or row.memory > s.plan_memory[c] + EPS
        if short or s.plan_used[t] + row.gpus > part.quota + EPS:
            return False
        t += 1
    return True
