"""Runs of jobs: start, end, preempt; and the accounts that go with them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import ORDERING, call_keys, copier, inner, params_at
from gpuyard.engine.kernels.accounts import charge, log_segment, note_service, tally_end, write_result
from gpuyard.engine.kernels.nodes import describe, give_back, hold, index_add, index_remove
from gpuyard.engine.kernels.queue import (
    ends_insert,
    ends_remove,
    join_line,
    line_for,
    queue_append,
    queue_insert,
    queue_position,
    queue_remove,
    running_insert,
    running_remove,
)
from gpuyard.engine.kernels.ranks.area import next_halving, waiting_area
from gpuyard.engine.kernels.ranks.terms import begin_terms, kept_of, learn_run_time, share_burden, terms_at, test_table
from gpuyard.engine.kernels.site.homes import look_at_in
from gpuyard.engine.kernels.site.limits import bench_over, charge_limits, leave_limits
from gpuyard.engine.kernels.site.reasons import note_reason
from gpuyard.engine.state import CLOCK_NO, DONE, JOB_ROW, KILLED, PENDING, RUNNING, WAITING
from gpuyard.model.jobs import JOB

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import FactorRow, JobRow, PartitionRow, State
    from gpuyard.model.jobs import SubmittedRow

BAD_KEY = -1
STARVED = -4
MOST_BARREN = 60  # such stops are counted up to here
MOST_STOPS = 10_000  # of one job, before a stop that keeps none of its work is taken for the sign of an endless loop


@inner
def overhead_of(s: State, row: JobRow, factor: Real) -> Any:
    """Seconds on the devices before work goes on, where they take `factor` × the job's transfer."""
    transfer = s.table[row.number].transfer * factor if row.moved == 1 else 0.0
    return transfer + (s.terms[row.terms].restart if row.preemptions > 0 else 0.0)


@inner
def factor_picked(s: State, row: JobRow, count: Int) -> Any:
    """Return the factor on the transfer on the nodes picked."""
    if row.gpus == 0 or row.moved == 0:
        return 1.0
    factor = 0.0
    for i in range(count):
        factor = max(factor, s.types[s.nodes[s.pick_node[i]].gpu_type].transfer)
    return factor


@inner
def factor_held(s: State, row: JobRow) -> Any:
    """Return the factor on the transfer on the nodes of a running job: found again from its parts, to keep the rows small."""
    if row.gpus == 0 or row.moved == 0:
        return 1.0
    factor = 0.0
    k = row.alloc
    while k >= 0:
        piece = s.parts[k]
        factor = max(factor, s.types[s.nodes[piece.node].gpu_type].transfer)
        k = piece.next
    return factor


@inner
def rate_of(s: State, row: JobRow, count: Int) -> Any:
    """Work per second on the nodes picked."""
    writing = s.terms[terms_at(s, row)].writing
    if row.gpus == 0:
        return writing
    control = s.control[0]
    first = s.nodes[s.pick_node[0]]
    speeds = row.job_class * len(s.types)
    rate = s.speed[speeds + first.gpu_type]
    racks = False
    for i in range(1, count):
        node = s.nodes[s.pick_node[i]]
        rate = min(rate, s.speed[speeds + node.gpu_type])
        racks = racks or node.rack != first.rack
    if racks:
        rate = rate * control.span_racks
    elif count > 1:
        rate = rate * control.span_nodes
    return rate * writing


@inner
def estimated_end(s: State, row: JobRow, rate: Real, factor: Real) -> Any:
    """When a run that starts now at `rate`, with `factor` × its transfer, is estimated to end."""
    return s.control[0].now + estimated_length(s, row, rate, factor)


@inner
def estimated_length(s: State, row: JobRow, rate: Real, factor: Real) -> Any:
    """Seconds that a run at `rate`, with `factor` × its transfer, is estimated to take."""
    length = overhead_of(s, row, factor) + max(row.estimate - row.done, 0.0) / rate
    return min(length, max(s.table[row.number].walltime - row.ran, 0.0)) if s.control[0].kills == 1 else length


@inner
def estimated_end_now(est_end: Real, now: Real) -> Any:
    """Return the estimated end of a running job, as seen now."""
    return est_end if est_end > now else now + 1.0


@inner
def revised_end(s: State, row: JobRow) -> Any:
    """Return the estimated end of a running job; if it has passed, the estimate is doubled until it lies ahead."""
    control = s.control[0]
    end = row.est_end
    if end > control.now:
        return end
    while end <= control.now:
        end = row.run_start + max(2.0 * (end - row.run_start), 1.0)
    limit = row.run_start + max(s.table[row.number].walltime - row.ran, 0.0)
    if control.kills == 1 and limit > control.now:  # a real cluster may let a job run past its limit
        end = min(end, limit)
    return end


@inner
def revise_ends(s: State, p: Int) -> None:
    """Bring the estimated ends of the running jobs of partition p up to now."""
    control = s.control[0]
    part = s.partitions[p]
    while part.running > 0:
        if s.running_ends[part.first_run] > control.now:
            return
        j = np.int64(s.running_jobs[part.first_run])
        row = s.rows[j]
        running_remove(s, part, j)
        row.est_end = revised_end(s, row)
        running_insert(s, part, j)


@inner
def start_job(s: State, p: Int, j: Int, count: Int) -> None:
    """Start job j, which is in no queue, on the `count` nodes picked."""
    control = s.control[0]
    part = s.partitions[p]
    row = s.rows[j]
    row.alloc = -1
    for i in range(count - 1, -1, -1):
        node = s.nodes[s.pick_node[i]]
        before = node.free
        if part.index >= 0:
            index_remove(s.free_index, part, node)
        k = control.free_part
        piece = s.parts[k]
        control.free_part = piece.next
        describe(row, node, s.devices, s.pick_units[i], s.pick_device[0], piece)
        hold(s, row, node, s.devices, piece)
        s.fragment[s.pick_node[i]] = -1
        if part.index >= 0:
            index_add(s.free_index, part, node)
        part.free += node.free - before
        s.types[node.gpu_type].held += float(piece.gpus) if row.gpus >= 1 else row.gpus
        piece.node = s.pick_node[i]
        piece.next = row.alloc
        row.alloc = k
    control.parts_used += count
    row.rate = rate_of(s, row, count)
    line = s.result[j]
    line.nodes = count
    line.node = s.nodes[s.pick_node[0]].number
    line.rate = row.rate
    part.used += row.gpus
    control.busy += row.gpus
    if control.half_life > 0:
        charge(s, row, 1.0)
    end = _set_clocks(s, row)
    row.status, row.benched = RUNNING, 0
    _note(s, j)
    ends_insert(s.end_times, s.ends, control.heap, end, j)
    control.heap += 1
    control.running += 1
    if control.tracking == 1:
        running_insert(s, part, j)
    if len(s.rank_until) > 1:
        s.rank_until[j] = s.rank_calm[j] = -math.inf
    if control.limits > 0:
        note_reason(s, j, 0)  # stops that made room for it may have put it over a limit since it was looked at
        charge_limits(s, row, 1.0, 0.0)
        bench_over(s)


@inner
def start_at(s: State, p: Int, at: Int, count: Int) -> Any:
    """Start the job at position `at` of the queue on the nodes picked; returns the position of the next."""
    j = np.int64(s.queue_jobs[at])
    part = s.partitions[p]
    following = queue_remove(s, part, at)
    start_taken(s, p, j, count)
    return following


@inner
def start_taken(s: State, p: Int, j: Int, count: Int) -> None:
    """Start job j, which has just been taken out of the queue, on the nodes picked."""
    part = s.partitions[p]
    part.work = max(part.work - s.rows[j].remaining * s.rows[j].gpus, 0.0) if part.head < part.tail else 0.0
    s.control[0].waiting -= 1
    start_job(s, p, j, count)


@inner
def _set_clocks(s: State, row: JobRow) -> Any:
    """Set the times of a run that starts now; returns when it ends."""
    control = s.control[0]
    now = control.now
    if row.start < 0:
        row.start = now
    row.run_start = now
    row.remaining = max(row.estimate - row.done, 0.0)
    factor = factor_held(s, row)
    row.est_end = estimated_end(s, row, row.rate, factor)
    length = overhead_of(s, row, factor) + (row.runtime - row.done) / row.rate
    row.overrun = 0
    if control.kills == 1:
        left = s.table[row.number].walltime - row.ran
        if length > left:
            row.overrun = 1
            return now + max(left, 0.0)
    return now + length


@inner
def _release(s: State, p: Int, j: Int) -> None:
    """Give the devices back and write the accounts of the run that ends now; the job leaves the running ones."""
    control = s.control[0]
    part = s.partitions[p]
    row = s.rows[j]
    elapsed = control.now - row.run_start
    k = row.alloc
    while k >= 0:
        piece = s.parts[k]
        node = s.nodes[piece.node]
        before = node.free
        up = node.down == 0
        if part.index >= 0 and up:
            index_remove(s.free_index, part, node)
        give_back(s, row, node, s.devices, piece)
        s.fragment[piece.node] = -1
        if up:
            if part.index >= 0:
                index_add(s.free_index, part, node)
            part.free += node.free - before
        amount = float(piece.gpus) if row.gpus >= 1 else row.gpus
        s.types[node.gpu_type].busy_seconds += elapsed * amount
        s.types[node.gpu_type].held -= amount
        if control.logging == 1:
            log_segment(s, j, piece, node.number, amount, row.run_start)
        following = piece.next
        piece.next = control.free_part
        control.free_part = k
        control.parts_used -= 1
        k = following
    row.alloc = -1
    part.used -= row.gpus
    control.busy -= row.gpus
    if control.half_life > 0:
        charge(s, row, -1.0)
    if part.used < 1e-9:
        part.used = 0.0
    if control.limits > 0:
        charge_limits(s, row, -1.0, elapsed * row.gpus)
    row.ran += elapsed
    note_service(s, row, row.ran)
    part.settled = 0
    control.running -= 1
    if control.tracking == 1:
        running_remove(s, part, j)


@inner
def end_job(s: State, j: Int) -> None:
    """The run of job j, which the heap has given up already, has come to its end."""
    row = s.rows[j]
    _release(s, np.int64(row.partition), j)
    row.status = KILLED if row.overrun == 1 else DONE
    s.control[0].last_end = s.control[0].now
    if s.control[0].late == 1:
        s.control[0].late = 0
        for t in range(len(s.types)):
            s.types[t].late_seconds = 0.0
    write_result(s, j)
    s.result[j].end = s.control[0].now
    if s.control[0].limits > 0:
        leave_limits(s, j)
    if s.control[0].tallying == 1:
        tally_end(s, row)
    if len(s.burden) > 1:
        share_burden(s, row)
        test_table(s, row)
        learn_run_time(s, row)


_copy_submitted = copier([name for name in JOB.names or () if name in (JOB_ROW.names or ())])


@inner
def submit_row(s: State, j: Int) -> None:
    """Fill the row of a job that is submitted now, and clear its line in the result."""
    fill_row(s, s.table[j], j)
    s.rows[j].runtime = s.runtime[j]
    line = s.result[j]
    line.rate, line.nodes, line.node, line.reason = 0.0, 0, -1, 0


@inner
def fill_row(s: State, given: SubmittedRow, j: Int) -> None:
    """Fill row j for a job that has not run yet: the columns that are copied, then the derived ones. Only `runtime` is left out."""
    row = s.rows[j]
    _copy_submitted(given, row)
    row.number = j
    row.partition = max(s.partition_of[given.partition], 0)
    if len(s.factors) > 0:
        _fill_factors(s, given, row, s.factors[j])
    row.ran, row.done, row.run_start, row.rate, row.est_end = 0.0, 0.0, 0.0, 0.0, 0.0
    row.remaining, row.queued, row.start = given.estimate, given.submit, -1.0
    row.status, row.alloc, row.preemptions, row.reached = PENDING, -1, 0, 0.0
    row.overrun, row.benched, row.barren, row.silent = 0, 0, 0, 0
    whole = given.gpus >= 1
    row.units = int(given.gpus) // given.chunk if whole else 1
    everything = (1 << len(s.types)) - 1
    row.hosted = 1 if given.cpus > 0 or given.memory > 0 else 0
    row.moved = 1 if given.transfer > 0 else 0
    plain = whole and row.hosted == 0 and given.chunk == 1 and s.allowed[given.gpu_type] == everything
    row.plain = 1 if plain else 0
    if s.partitions[row.partition].shared > 0:
        look_at_in(s, row, 0)


@inner
def _fill_factors(s: State, given: SubmittedRow, row: JobRow, line: FactorRow) -> None:
    line.attained = line.usage = 0.0
    line.fair_share = 1.0 / len(s.users)
    line.size_factor = given.gpus / s.control[0].gpus if s.control[0].gpus > 0 else 0.0
    line.partition_factor = s.partition_factor[given.partition]
    line.qos_factor = s.qos_factor[given.qos]


@inner
def requeue(s: State, j: Int) -> Any:
    """Stop a running job, keep what its last checkpoint kept, and put it back into the queue; returns a status."""
    control = s.control[0]
    row = s.rows[j]
    at = 0
    while s.ends[at] != j:
        at += 1
    ends_remove(s.end_times, s.ends, control.heap, at)
    control.heap -= 1
    overhead = overhead_of(s, row, factor_held(s, row))
    useful = max(control.now - row.run_start - overhead, 0.0)
    _release(s, np.int64(row.partition), j)
    kept = kept_of(s, row, useful)
    if row.done + useful * row.rate > row.reached:
        row.reached = row.done + useful * row.rate
    row.done = min(row.done + kept * row.rate, row.runtime)
    row.preemptions += 1
    if (kept == 0 or kept < overhead) and row.barren < MOST_BARREN:
        row.barren += 1
    if kept == 0 and row.preemptions >= MOST_STOPS:
        control.error_job = j
        return STARVED
    _note(s, -1 - j)
    status = enqueue(s, j, False)
    if control.limits > 0:
        bench_over(s)
    return status


@inner
def _note(s: State, what: Int) -> None:
    """Write down a start (j) or a stop (-1 - j), in order, if decisions are asked for."""
    control = s.control[0]
    if control.noting == 1:
        s.notes[control.notes] = what
        control.notes += 1


@inner
def enqueue(s: State, j: Int, crowd: bool) -> Any:
    """Put job j into the queue of its partition, keyed by the active ordering; returns a status.

    One of a `crowd` goes to the end, and the next pass sorts: to find the place of each would take a time that grows with the
    square of the crowd.
    """
    control = s.control[0]
    row = s.rows[j]
    row.status = WAITING
    row.queued = control.now
    note_reason(s, j, 0)
    begin_terms(s, row)
    row.remaining = max(row.estimate - row.done, 0.0)
    control.waiting += 1
    part = s.partitions[row.partition]
    part.work += row.remaining * row.gpus
    key = 0.0
    if control.external == 0:
        slot = s.slots[control.active]
        if slot.reads_clock == CLOCK_NO:
            key = key_of(s, slot.ordering, j, ORDERING) if slot.rank == 0 else waiting_area(s, slot, j)
            if key != key:
                control.error_job = j
                return BAD_KEY
            if slot.rank != 0:
                part.ageing = min(part.ageing, next_halving(s, row))
        elif len(s.front_jobs) > 1:
            number = line_for(s, j)
            if number >= 0:
                _line_up(s, part, number, j, crowd)
                return 0
            _file_anew(s, part, j)
            key = bound_of(s, j)
    part.newcomer = _put(s, part, key, j, crowd)
    part.came += 1
    return 0


@inner
def _put(s: State, part: PartitionRow, key: Real, j: Int, crowd: bool) -> Any:
    """Put an entry into the queue; returns its position."""
    if crowd:
        at = queue_append(s, part, key, j)
        part.unsorted = 1
    else:
        at = queue_insert(s, part, key, j)
    if len(s.queue_need) > 1:
        note_demand(s, at)
    return at


@inner
def _line_up(s: State, part: PartitionRow, number: Int, j: Int, crowd: bool) -> None:
    """Put job j at the end of its line, and the line into the queue if nobody was waiting in it."""
    row, line = s.rows[j], s.lines[number]
    alone = line.head == line.tail
    join_line(s, line, j, least_devices(row), least_length(s, row))
    if alone:
        line.bound, line.filed = bound_of(s, j), j
        _put(s, part, line.bound, j, crowd)
    elif part.sifted == 1 and part.unsorted == 0:
        note_demand(s, queue_position(s, part, line.bound, np.int64(line.filed)))


@inner
def _file_anew(s: State, part: PartitionRow, j: Int) -> None:
    """Let the line that is filed under job j, which comes back from a run and waits by itself from now on, be filed under its first."""
    number = np.int64(s.line_of[j]) if len(s.line_of) > 1 else np.int64(-1)
    if number < 0:
        return
    line = s.lines[number]
    if line.filed == j and line.head < line.tail:
        queue_remove(s, part, queue_position(s, part, line.bound, j))
        line.filed = s.line_jobs[line.head]
        _put(s, part, line.bound, np.int64(line.filed), False)


@inner
def note_demand(s: State, at: Int) -> None:
    """Write beside the queue what the job at position `at`, or the jobs of the line there, need at least: whole devices, and seconds."""
    j = np.int64(s.queue_jobs[at])
    number = line_for(s, j)
    if number >= 0:
        s.queue_need[at], s.queue_length[at] = s.lines[number].need, s.lines[number].length
    else:
        s.queue_need[at], s.queue_length[at] = least_devices(s.rows[j]), least_length(s, s.rows[j])


@inner
def least_devices(row: JobRow) -> Any:
    """Whole devices that a job needs at least."""
    return row.gpus if row.gpus >= 1 else 0.0


@inner
def least_length(s: State, row: JobRow) -> Any:
    """Seconds that a job is estimated to take at least, wherever it runs."""
    return estimated_length(s, row, s.control[0].fastest, s.control[0].least_transfer)


@inner
def key_of(s: State, address: Int, j: Int, which: Int) -> Any:
    """The key (which = ORDERING) or preemption score (PREEMPTION) of one job; NaN if the policy fails."""
    return _key_at(s, address, j, which, s.control[0].now)


@inner
def bound_of(s: State, j: Int) -> Any:
    """Return the least key that a waiting job can have up to the horizon, where keys only fall."""
    control = s.control[0]
    if control.half_life > 0:
        s.factors[j].usage = s.users[s.table[j].user].floor
    key = _key_at(s, s.slots[control.active].ordering, j, ORDERING, control.horizon)
    return key if key == key else -math.inf


@inner
def _key_at(s: State, address: Int, j: Int, which: Int, time: Real) -> Any:
    s.candidates[0] = j
    if call_keys(address, s, s.candidates, s.score, 0, 1, time, s.params, params_at(s.control[0].active, which)) != 0:
        return np.nan
    return s.score[0]
