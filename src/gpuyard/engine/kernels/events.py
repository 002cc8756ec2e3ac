"""The event loop and the one compiled entry into the engine."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import SWITCH, call_state, call_switch, inner, params_at, prefetch
from gpuyard.engine.compiler.vectors import words_at
from gpuyard.engine.kernels.accounts import age_usage, estimate, observe, show_usage, tick, write_result, write_timeline
from gpuyard.engine.kernels.backfill import BACKFILL_CONSERVATIVE
from gpuyard.engine.kernels.bounds import bounded
from gpuyard.engine.kernels.nodes import largest_share
from gpuyard.engine.kernels.open import open_ordering, open_placement
from gpuyard.engine.kernels.outages import REPAIR, handle_outage, join_pool
from gpuyard.engine.kernels.passes import failed, order_queue, visit
from gpuyard.engine.kernels.plan import plan_size
from gpuyard.engine.kernels.queue import ends_remove
from gpuyard.engine.kernels.ranks.order import quiet_until
from gpuyard.engine.kernels.ranks.terms import begin_terms
from gpuyard.engine.kernels.runs import end_job, enqueue, factor_held, overhead_of, requeue, start_at, submit_row
from gpuyard.engine.kernels.site.gates import (
    AFTER_FAILED,
    can_never_run,
    explain,
    is_released,
    next_release_time,
    reject,
    release_due,
    tell_followers,
)
from gpuyard.engine.kernels.site.limits import OVER_SUBMITTED, bench_over, submit_within_limits
from gpuyard.engine.kernels.site.reasons import note_reason
from gpuyard.engine.kernels.site.refusals import find_given, why_never
from gpuyard.engine.rows.ranking import RANK_TABLE
from gpuyard.engine.state import (
    CLOCK_NO,
    EXPLOSION,
    OPEN_NONE,
    OPEN_ORDERING,
    OPEN_PLACEMENT,
    PENDING,
    RUNNING,
    WAITING,
)
from gpuyard.model.snapshot import RECENT

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import ControlRow, State

# What a step of the engine comes back with; failures are negative.
FINISHED, DECIDE, GROW_LOG, GROW_PLAN, PAUSED, ESTIMATE = range(6)
CROWD = 32  # jobs that come at once from which the queue is sorted rather than each put into its place
BREATH = 4096  # instants between returns to Python, which may have a Ctrl-C to deal with
BAD_SWITCH = -3

# What a step is asked to do.
PREPARE, RUN, PASS, START, PREEMPT, FINISH = range(6)


@inner
def step(s: State, order: Int, j: Int) -> Any:
    """Everything Python asks of the engine, in one compiled function so that it is compiled once."""
    if order == RUN:
        return _run(s)
    if order == PASS:
        return _pass(s) if s.control[0].open == OPEN_NONE else _open_pass(s)
    if order == PREPARE:
        return _prepare(s)
    if order == FINISH:
        return _finish(s)
    if order == PREEMPT:
        s.control[0].preempted += 1
        return requeue(s, j)
    return _start_given(s, j)


@inner
def _prepare(s: State) -> Any:
    """Count and index what is free, and order the waiting jobs (a new simulation has none)."""
    if s.control[0].half_life > 0:
        show_usage(s)
    count_free(s)
    if s.control[0].limits > 0:
        bench_over(s)
    for p in range(len(s.partitions)):
        if s.partitions[p].head < s.partitions[p].tail:
            status = order_queue(s, p)
            if status < 0:
                return status
    return 0


@inner
def count_free(s: State) -> None:
    """Count the free devices of each partition, and index the nodes by theirs."""
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        part.free = 0
        for n in range(part.node_lo, part.node_hi):
            s.nodes[n].share = largest_share(s.nodes[n], s.devices)
            join_pool(s, part, s.nodes[n])


@inner
def _finish(s: State) -> Any:
    """Write the result rows of the jobs that have not ended, and the timeline."""
    submitted = s.control[0].next_job
    for j in range(len(s.rows)):
        if j >= submitted:
            submit_row(s, j)
        if s.rows[j].status <= RUNNING:
            write_result(s, j)
            if s.control[0].gated == 1 and j < submitted and s.rows[j].status == PENDING:
                s.result[j].status = WAITING
        if s.control[0].explaining == 1 and j < submitted:
            note_reason(s, j, 0)
    if s.control[0].timeline == 1:
        write_timeline(s)
    return 0


@inner
def _run(s: State) -> Any:
    """Go on until the end, the next decision from outside, a need of estimates or space, or a failure."""
    control = s.control[0]
    breath = control.instants + BREATH
    while True:
        if control.at_pass == 0:
            if control.instants >= breath or (control.attention != 0 and words_at(control.attention, 1)[0] != 0):
                return PAUSED
            if control.logging == 1 and len(s.log) - control.log < control.parts_used + 1:
                return GROW_LOG
            time = _next_time(s)
            if time == math.inf:
                return FINISHED
            if time >= control.next_estimate:
                return ESTIMATE
            tick(s, time)
            control.now = time
            status = _events(s)
            if status < 0:
                return status
            control.instants += 1
            control.at_pass = 1
            if control.limits > 0:
                bench_over(s)
            if control.external == 1 and control.waiting > control.over:
                control.passes += 1
                if control.half_life > 0:
                    age_usage(s)  # when a pass of our own would have done it, so that both round alike
                return DECIDE
        if control.open != OPEN_NONE and (control.stage == 1 or control.waiting > control.over):
            status = _open_pass(s)
            if status != 0:
                return status
        elif control.external == 0 and control.waiting > control.over:
            status = _pass(s)
            if status != 0:
                return status
        control.at_pass = 0
        _count_queue(control)


@inner
def _open_pass(s: State) -> Any:
    """A pass with a decision left open: DECIDE where there is a choice, 0 at its end, or another status."""
    control = s.control[0]
    if control.open == OPEN_ORDERING:
        return open_ordering(s)
    if control.open == OPEN_PLACEMENT:
        return open_placement(s)
    if control.stage == 0 and switch_is_due(s):
        control.stage = 1
        _observe(s)
        return DECIDE
    if control.stage == 1:
        control.stage = 0
        status = _use(s, control.choice)
        if status < 0:
            return status
    return _pass(s)


@inner
def _count_queue(control: ControlRow) -> None:
    waiting = control.waiting
    if waiting > control.queue_max:
        control.queue_max = waiting
    if waiting > EXPLOSION:
        if control.exploded == 0:
            control.explosions += 1
        control.exploded = 1
    else:
        control.exploded = 0


@inner
def _next_time(s: State) -> Any:
    """The time of the next event; inf: none is left."""
    control = s.control[0]
    time = math.inf
    if control.heap > 0:
        time = s.end_times[0]
    if control.next_job < len(s.rows):
        time = min(time, s.table[control.next_job].submit)
    if control.gated == 1:
        time = min(time, next_release_time(s))
    alive = time < math.inf
    if control.next_outage < len(s.outages) and (alive or control.waiting > 0):
        if alive or _repair_to_come(s):
            time = min(time, s.outages[control.next_outage].time)
            alive = True
    if alive and control.timer > 0 and control.waiting > control.over and (control.running > 0 or _time_alone_matters(s)):
        tick_at = control.next_timer
        if tick_at <= control.now:
            tick_at = _next_multiple(control.timer, control.now)
            control.next_timer = tick_at
        if tick_at < time and s.slots[control.active].rank == RANK_TABLE:
            tick_at = _skip_ticks(s, tick_at, time)
        time = min(time, tick_at)
    return time


@inner
def _skip_ticks(s: State, tick_at: Real, until: Real) -> Any:
    """Return the first tick from `tick_at` on at which a pass may do something, or that is not before `until`.

    The passes between are counted as if they were made.
    """
    control = s.control[0]
    if control.external == 1 or control.open != OPEN_NONE or control.switch != 0 or control.half_life > 0:
        return tick_at
    for p in range(len(s.partitions)):
        until = min(until, quiet_until(s, s.partitions[p]))
    if until > tick_at:
        following = _next_multiple(control.timer, until)
        if following - control.timer >= until:  # `until` is a multiple itself
            following -= control.timer
        control.passes += round((following - tick_at) / control.timer)
        control.next_timer = tick_at = following
    return tick_at


@inner
def _time_alone_matters(s: State) -> Any:
    """Whether a pass could start a job although no job runs and nothing has happened since the last: by the clock, or from outside."""
    control = s.control[0]
    asked = control.external == 1 or control.open != OPEN_NONE or control.switch != 0
    return asked or s.slots[control.active].reads_clock != CLOCK_NO


@inner
def _next_multiple(period: Real, after: Real) -> Any:
    """The least multiple of a period later than `after`, however the quotient rounds; inf if the clock cannot tell them apart."""
    k = np.floor(after / period)
    if k > 1e15:
        return math.inf
    k = max(k - 1.0, 0.0)
    while k * period <= after:
        k += 1.0
    return k * period


@inner
def _repair_to_come(s: State) -> Any:
    for i in range(s.control[0].next_outage, len(s.outages)):
        if s.outages[i].kind == REPAIR:
            return True
    return False


@inner
def _events(s: State) -> Any:
    """Ends, repairs, failures and submissions of this instant, in that order; returns a status."""
    control = s.control[0]
    now = control.now
    while control.heap > 0 and s.end_times[0] <= now:
        j: Int = np.int64(s.ends[0])
        ends_remove(s.end_times, s.ends, control.heap, np.int64(0))
        control.heap -= 1
        if control.heap > 0:  # the next to end: to wait for its row took a tenth of the time with 1,600 running jobs
            prefetch(s.rows, np.int64(s.ends[0]))
        if control.estimating == 1:
            observe(s, j, overhead_of(s, s.rows[j], factor_held(s, s.rows[j])))  # its devices are still held
        end_job(s, j)
        if control.gated == 1:
            status = tell_followers(s, j)
            if status < 0:
                return status
    while control.next_outage < len(s.outages) and s.outages[control.next_outage].time <= now:
        status = handle_outage(s, control.next_outage)
        if status < 0:
            return status
        control.next_outage += 1
    crowd = control.next_job + CROWD < len(s.rows) and s.table[control.next_job + CROWD].submit <= now
    while control.next_job < len(s.rows) and s.table[control.next_job].submit <= now:
        j = control.next_job
        control.next_job += 1
        status = _submit(s, j, crowd)
        if status < 0:
            return status
    return release_due(s) if control.gated == 1 else 0


@inner
def _submit(s: State, j: Int, crowd: bool) -> Any:
    """Submit a job: it enters its queue, has to wait before it may, or is rejected; returns a status."""
    control = s.control[0]
    submit_row(s, j)
    if control.rolling > 0:
        estimate(s, j)
    reason = AFTER_FAILED if control.gated == 1 and can_never_run(s, j) else why_never(s, j)
    if reason == 0 and control.limits > 0 and not submit_within_limits(s, j):
        reason = OVER_SUBMITTED
    if reason != 0:
        return reject(s, j, reason)
    if control.gated == 1 and not is_released(s, j):
        explain(s, j)
        return 0
    return enqueue(s, j, crowd)


# ── passes ──


@inner
def _pass(s: State) -> Any:
    """One scheduling pass over all partitions; returns a status."""
    control = s.control[0]
    if not _plan_has_space(s):
        return GROW_PLAN
    control.passes += 1
    slot = s.slots[control.active]
    falling = len(s.front_jobs) > 1
    if falling:
        status = bounded(s, np.int64(-1))
        if status < 0:
            return status
    elif control.half_life > 0:
        show_usage(s)
    if control.switch != 0:
        status = switch(s)
        if status < 0:
            return status
        slot = s.slots[control.active]
    for p in range(len(s.partitions)):
        if s.partitions[p].head < s.partitions[p].tail:
            status = bounded(s, np.int64(p)) if falling else visit(s, p, slot)
            if status < 0:
                return status
    return 0


@inner
def _plan_has_space(s: State) -> Any:
    control = s.control[0]
    for k in range(len(s.slots)):
        if s.slots[k].backfill == BACKFILL_CONSERVATIVE:
            for p in range(len(s.partitions)):
                part = s.partitions[p]
                steps, cells = plan_size(s, part, s.slots[k].depth)
                if steps > len(s.plan_time) or cells > len(s.plan_cells):
                    control.steps, control.cells = steps, cells
                    control.error_job = p
                    return False
    return True


@inner
def switch_is_due(s: State) -> Any:
    """Whether the scheduler may be changed now; if so, the next time is set. Without a period it is, wherever it matters."""
    control = s.control[0]
    if control.switch_every <= 0:
        return _choice_matters(s)
    if control.now < control.next_switch:
        return False
    control.next_switch = _next_multiple(control.switch_every, control.now)
    return True


@inner
def _choice_matters(s: State) -> Any:
    """Whether schedulers may differ in what they start in this pass: something can start, and there is more than one job to choose from."""
    same = True
    first = s.slots[0]
    for k in range(len(s.slots)):
        slot = s.slots[k]
        if slot.preemption != 0 or slot.rank != 0:
            return True
        same = same and slot.placement == 0 and slot.placement_network == 0 and slot.score == first.score
        same = same and slot.span == first.span and slot.backfill == first.backfill and slot.depth == first.depth
    if same and s.control[0].waiting < 2:
        return False
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        if part.head < part.tail and part.free > 0:
            return True
        for i in range(part.head, part.tail):
            if s.rows[s.queue_jobs[i]].gpus < 1:  # a share of a device in use, or none
                return True
    return False


@inner
def switch(s: State) -> Any:
    """Let the switch rule choose the active scheduler; returns a status."""
    control = s.control[0]
    if not switch_is_due(s):
        return 0
    _observe(s)
    if control.network != 0:
        control.asked += 1
        choice = call_state(control.switch, s, 0, 0, control.network)
    else:
        choice = call_switch(control.switch, s.system, control.now, s.params, params_at(0, SWITCH))
    return _use(s, choice)


@inner
def _use(s: State, choice: Int) -> Any:
    """Make a scheduler the active one; returns a status."""
    control = s.control[0]
    if choice < 0 or choice >= len(s.slots):
        return failed(s, BAD_SWITCH, -1)
    s.slots[choice].chosen += 1
    if choice == control.active:
        return 0
    control.active = choice
    if len(s.rank_until) > 1:
        for j in range(len(s.rank_until)):
            s.rank_until[j] = -math.inf
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        part.settled = 0
        part.ageing = 0.0
        for i in range(part.head, part.tail):
            begin_terms(s, s.rows[s.queue_jobs[i]])
        if part.head < part.tail:
            status = order_queue(s, p)
            if status < 0:
                return status
    return 0


@inner
def _observe(s: State) -> None:
    """Fill in what a switch rule may see of the whole cluster."""
    control = s.control[0]
    view = s.system[0]
    view.waiting = control.waiting
    view.running = control.running
    free = 0
    gpus = 0
    oldest = 0.0
    urgent = 0
    work = 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        free += part.free
        gpus += part.total
        for i in range(part.head, part.tail):
            row = s.rows[s.queue_jobs[i]]
            oldest = max(oldest, control.now - row.submit)
            if row.deadline - control.now - row.remaining < 0:
                urgent += 1
            work += row.remaining * row.gpus
    if control.noting == 0:  # a snapshot says how many came; its rows lack those that have ended
        while control.recent_job < control.next_job and s.rows[control.recent_job].submit <= control.now - RECENT:
            control.recent_job += 1
    view.free, view.gpus, view.oldest, view.urgent, view.work = free, gpus, oldest, urgent, work
    view.recent = control.next_job - control.recent_job
    view.schedulers = len(s.slots)


# ── decisions from outside ──


@inner
def _start_given(s: State, j: Int) -> Any:
    """Start waiting job j on the nodes in pick_node (up to the first 0 in pick_units), or, with none, by the ordinary placement.

    Returns 1 if it started, 0 if it does not fit, or a failure.
    """
    p = np.int64(s.rows[j].partition)
    part = s.partitions[p]
    count = find_given(s, p, j)
    if count <= 0:
        return count
    at = part.head
    while s.queue_jobs[at] != j:
        at += 1
    start_at(s, p, at, count)
    return 1
