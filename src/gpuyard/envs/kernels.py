"""Compiled environments: choose, run on to the next choice, add up the reward, write the observation; and begin again."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numba import from_dtype, types

from gpuyard.arrays import RecordRow, row_dtype
from gpuyard.engine.compiler import atomics
from gpuyard.engine.compiler.jit import INTERPRETED, call_engine, entry, inner
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.compiler.vectors import bytes_at, floats_at, ints_at, reals_at, words_at
from gpuyard.engine.kernels.accounts import power
from gpuyard.engine.kernels.events import DECIDE, FINISHED, GROW_LOG, PAUSED, PREPARE, RUN
from gpuyard.engine.kernels.open import LEGAL
from gpuyard.engine.rows.sums import MOST_POWER, MOST_QUEUE, MOST_SLOWDOWN, MOST_WAIT, SHORT, TallyRow
from gpuyard.engine.state import OPEN_ORDERING, OPEN_PLACEMENT
from gpuyard.envs.threads import DONE, FROM_TOP, OVER, TAKEN, await_done, await_work, open_work, pieces_of
from gpuyard.errors import UsageError
from gpuyard.features import hosts, jobs, system

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Ints, Real, Vector, f8, i8
    from gpuyard.engine.rows.sums import TallyRow
    from gpuyard.engine.state import JobRow, State


class WeightRow(TallyRow):
    """The weights of a reward: of the sums of a tally, and of six terms that are counted at every choice."""

    utilisation: f8  # share of the devices in use
    queue: f8  # min(waiting jobs, MOST_QUEUE) / MOST_QUEUE
    power: f8  # watts over those if all devices in order were busy
    watts: f8  # min(watts, MOST_POWER) / MOST_POWER
    cores: f8  # share of the cores in use, of nodes that state theirs
    imbalance: f8  # standard deviation over nodes of the share in use: of cores, or of devices where a node states no cores


WEIGHT_ROW = row_dtype(WeightRow)
TERMS = WEIGHT_ROW.names or ()


class EnvRow(RecordRow):
    """One environment."""

    header: i8  # address of the state's header
    rows: i8  # addresses of the observation
    context: i8
    mask: i8
    trail: i8  # address of the choices made in this episode
    choices: i8  # how many
    written: i8  # rows of the observation that are not 0
    status: i8  # of the last order to the engine
    reward: f8  # of the last choice
    total: f8  # of this episode
    potential: f8  # at the last choice
    scale: f8  # rewards are multiplied by it
    bonus: f8  # added at the end of the episode
    illegal: i8  # choices of this episode that were not legal
    next: i8  # number in the pool of the episode that comes next
    ended: i8  # 1: the last choice ended an episode, and the next one began


SLOT = row_dtype(EnvRow)
KEEP, LENGTH, SHARE, COPY = range(4)  # how a field of a state is brought back


class SetupRow(RecordRow):
    """Settings that all environments of a batch share."""

    engine: i8  # address
    open: i8  # OPEN_*
    rows: i8  # of the observation
    features: i8  # of a row
    context: i8  # features of the situation
    actions: i8
    shaping: f8  # weight of the potential
    foresight: i8  # 1: the potential charges what can no longer be avoided, 0: what has happened
    gamma: f8
    pool: i8  # address of the addresses of the headers of all episodes at their beginning
    scales: i8  # address of what rewards are multiplied by and what is added at the end, for each episode
    episodes: i8  # how many
    plans: i8  # address of how each field of a state is brought back, see `put_back`
    fields: i8  # how many
    goes_on: i8  # 1: where an episode ends, the next one begins


SETUP = row_dtype(SetupRow)


# ── observations ──


@inner
def observe(s: State, slot: EnvRow, setup: SetupRow) -> None:
    """Write the observation of a state that waits for a choice."""
    context = floats_at(slot.context, system.CONTEXT)  # the longest of the three
    mask = bytes_at(slot.mask, setup.actions)
    if setup.open == OPEN_ORDERING:
        _observe_queue(s, slot, setup, context, mask)
    elif setup.open == OPEN_PLACEMENT:
        _observe_hosts(s, slot, setup, context, mask)
    else:
        system.system_context(s, setup.context > system.SIZELESS, context, 0)
        for a in range(setup.actions):
            mask[a] = 1


@inner
def _observe_queue(s: State, slot: EnvRow, setup: SetupRow, context: Array, mask: Array) -> None:
    control = s.control[0]
    part = s.partitions[control.open_part]
    count = min(part.tail - part.head, setup.rows)
    features = setup.features
    typed = features > jobs.ROWS
    rows = floats_at(slot.rows, setup.rows * features)
    jobs.queue_context(s, control.open_part, 1.0 if control.open_head >= 0 else 0.0, typed, context, 0)
    jobs.job_rows(s, control.open_part, part.head, count, typed, rows, 0, features, 1)
    for i in range(count * features, slot.written * features):
        rows[i] = np.float32(0.0)
    for i in range(count):
        mask[i] = s.legal[i] & LEGAL
    for i in range(count, slot.written):
        mask[i] = 0
    slot.written = count


@inner
def _observe_hosts(s: State, slot: EnvRow, setup: SetupRow, context: Array, mask: Array) -> None:
    control = s.control[0]
    p, j = control.open_part, control.open_job
    part = s.partitions[p]
    rows = floats_at(slot.rows, setup.rows * hosts.ROWS)
    if part.node_hi - part.node_lo < setup.rows:  # those of other partitions are not to be seen
        for i in range(setup.rows * hosts.ROWS):
            rows[i] = np.float32(0.0)
        for i in range(setup.rows):
            mask[i] = 0
    hosts.measure_hosts(s, p, j)
    fastest = hosts.fastest_for(s, j)
    for n in range(part.node_lo, part.node_hi):
        number = np.int64(s.nodes[n].number)
        hosts.host_row(s, n, j, fastest, rows, number * hosts.ROWS, 1)
        mask[number] = 1 if s.room[n] > 0 else 0
    hosts.host_context(s, p, j, context, 0)


# ── choices ──


@inner
def choose(s: State, slot: EnvRow, setup: SetupRow, action: Int) -> Any:
    """Make an action the choice of a state that waits for one; returns the action, or the first legal one if it is not."""
    control = s.control[0]
    mask = bytes_at(slot.mask, setup.actions)
    if action < 0 or action >= setup.actions or mask[action] == 0:
        slot.illegal += 1
        action = 0
        while mask[action] == 0:
            action += 1
    if setup.open == OPEN_ORDERING:
        control.choice = np.int64(s.queue_jobs[s.partitions[control.open_part].head + action])
    elif setup.open == OPEN_PLACEMENT:
        n = action
        if s.nodes[n].number != n:
            n = 0
            while s.nodes[n].number != action:
                n += 1
        control.choice = n
    else:
        control.choice = action
    return action


# ── rewards ──


@inner
def pay(s: State, slot: EnvRow, setup: SetupRow, weights: WeightRow, over: bool) -> None:
    """Add up the weighted reward since the last choice, and clear the sums."""
    sums = s.tally[0]
    control = s.control[0]
    value = weights.ended * sums.ended + weights.slowdown * sums.slowdown + weights.capped_slowdown * sums.capped_slowdown
    value += weights.bsld * sums.bsld
    of_jobs = weights.missed * sums.missed + weights.wait * sums.wait + weights.capped_wait * sums.capped_wait
    value += of_jobs + weights.turnaround * sums.turnaround
    of_time = weights.queue_time * sums.queue_time + weights.busy_time * sums.busy_time + weights.gpu_seconds * sums.gpu_seconds
    value += of_time + weights.idle_time * sums.idle_time + weights.stranded_time * sums.stranded_time + weights.energy * sums.energy
    clear_sums(sums)
    if weights.utilisation != 0.0 and control.up > 0:
        value += weights.utilisation * control.busy / control.up
    if weights.queue != 0.0:
        value += weights.queue * min(float(control.waiting), MOST_QUEUE) / MOST_QUEUE
    if weights.power != 0.0 and system.most_power(s) > 0:
        value += weights.power * power(s) / system.most_power(s)
    if weights.watts != 0.0:
        value += weights.watts * min(power(s), MOST_POWER) / MOST_POWER
    if weights.cores != 0.0:
        value += weights.cores * _cores_in_use(s)
    if weights.imbalance != 0.0:
        value += weights.imbalance * _imbalance(s)
    if setup.shaping != 0.0:
        after = 0.0 if over else setup.shaping * potential_of(s, setup, weights)
        value += setup.gamma * after - slot.potential
        slot.potential = after
    slot.reward = value * slot.scale + (slot.bonus if over else 0.0)
    slot.total += slot.reward


@inner
def _cores_in_use(s: State) -> Any:
    """Return the share of the cores in use; 0 where no node states its cores."""
    cores, used = 0.0, 0.0
    for n in range(len(s.nodes)):
        node = s.nodes[n]
        if node.cpus < np.inf and node.down == 0:
            cores += node.cpus
            used += node.cpus - node.free_cpus
    return used / cores if cores > 0 else 0.0


@inner
def _imbalance(s: State) -> Any:
    """Return the standard deviation over the nodes in order of the share in use."""
    count, total, squares = 0, 0.0, 0.0
    for n in range(len(s.nodes)):
        node = s.nodes[n]
        limited = node.cpus < np.inf and node.cpus > 0
        if node.down == 0 and (limited or node.gpus > 0):
            share = 1.0 - (node.free_cpus / node.cpus if limited else float(node.free) / float(node.gpus))
            count += 1
            total += share
            squares += share * share
    if count == 0:
        return 0.0
    return np.sqrt(max(squares / count - (total / count) ** 2, 0.0))


@inner
def clear_sums(sums: TallyRow) -> None:
    sums.ended, sums.slowdown, sums.capped_slowdown, sums.bsld, sums.missed, sums.wait = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    sums.capped_wait, sums.turnaround, sums.queue_time, sums.busy_time, sums.gpu_seconds, sums.energy = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    sums.idle_time, sums.stranded_time = 0.0, 0.0


@inner
def potential_of(s: State, setup: SetupRow, weights: WeightRow) -> Any:
    """Return what the unfinished jobs would be charged if they ended now: a function of the state alone, 0 at the end.

    With foresight it is what they are charged at the least: if waiting jobs started now and no job were stopped.
    """
    control = s.control[0]
    ahead = setup.foresight == 1
    value = 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            row = s.rows[s.queue_jobs[i]]
            value += _charge(row, control.now + row.runtime if ahead else control.now, control.now, weights)
    for i in range(control.heap):
        row = s.rows[s.ends[i]]
        value += _charge(row, s.end_times[i] if ahead else control.now, control.now, weights)
    return value


@inner
def _charge(row: JobRow, end: Real, now: Real, weights: WeightRow) -> Any:
    """Return the charge for an unfinished job if it ended at `end`."""
    age = end - row.submit
    wait = (row.start if row.start >= 0 else now) - row.submit
    zero = 1.0 if row.runtime == 0 else 0.0  # as the metric has it
    slowdown = (age + zero) / (row.runtime + zero)
    value = weights.slowdown * slowdown + weights.capped_slowdown * min(slowdown, MOST_SLOWDOWN) / MOST_SLOWDOWN
    value += weights.bsld * age / max(row.runtime, SHORT)
    of_wait = weights.missed * (1.0 if end > row.deadline else 0.0) + weights.wait * wait
    value += of_wait + weights.capped_wait * min(wait, MOST_WAIT) / MOST_WAIT
    return value + weights.turnaround * age


# ── the entries ──


@inner
def _go_on(s: State, slot: EnvRow, setup: SetupRow, weights: WeightRow, first: bool) -> Any:
    """Run to the first or the next choice or to the end, and say what it was worth; returns 0 at a choice.

    A full log stops it on the way: give it space and let it go on.
    """
    status = call_engine(setup.engine, slot.header, RUN, 0)
    while status == PAUSED:
        status = call_engine(setup.engine, slot.header, RUN, 0)
    slot.status = status
    if status == DECIDE:
        observe(s, slot, setup)
    if status == GROW_LOG:
        return 1
    if first:
        clear_sums(s.tally[0])
        if setup.shaping != 0.0 and status == DECIDE:
            slot.potential = setup.shaping * potential_of(s, setup, weights)
    else:
        pay(s, slot, setup, weights, status != DECIDE)
    return 0 if status == DECIDE else 1


def _step(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, low: Int, high: Int) -> Any:
    """Choose `actions` in the environments low … high and run each to its next choice; returns how many are not at one."""
    setup = setups[0]
    over = 0
    for e in range(low, high):
        slot = slots[e]
        s = state_at(slot.header)
        trail = ints_at(slot.trail, slot.choices + 1)
        trail[slot.choices] = choose(s, slot, setup, np.int64(actions[e]))
        slot.choices += 1
        slot.ended = 0
        stopped = _go_on(s, slot, setup, weights[0], False)
        over += stopped
        if stopped == 1 and slot.status == FINISHED and setup.goes_on == 1:
            slot.ended = 1
            _begin_next(slot, setup, weights[0])
    return over


@inner
def _take_pieces(
    slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, board: Ints, helper: bool
) -> None:
    """Step pieces of the environments until all are taken."""
    count = len(slots)
    pieces, size = pieces_of(count)
    own = 0
    while atomics.read(board, TAKEN) < pieces and atomics.add(board, TAKEN, 1) < pieces:
        piece = own
        if helper:
            piece = pieces - 1 - atomics.add(board, FROM_TOP, 1)
        own += 1
        high = min((piece + 1) * size, count)
        atomics.add(board, OVER, _inner_step(slots, setups, weights, actions, piece * size, high))
        atomics.add(board, DONE, high - piece * size)


def _step_together(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, board: Ints) -> Any:
    """Step all environments together with the helpers at `board`; returns how many are not at a choice."""
    open_work(board)
    _take_pieces(slots, setups, weights, actions, board, False)
    return await_done(board, len(slots))


def _help_out(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, board: Ints) -> None:
    """Take part in `step_together` until there has been nothing to do for a while."""
    while await_work(board, pieces_of(len(slots))[0]):
        _take_pieces(slots, setups, weights, actions, board, True)


def _begin(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], which: Ints) -> Any:
    """Begin the next episodes of the environments `which`, up to the first choice; returns how many have none."""
    over = 0
    for i in range(len(which)):
        over += _begin_next(slots[which[i]], setups[0], weights[0])
    return over


@inner
def _begin_next(slot: EnvRow, setup: SetupRow, weights: WeightRow) -> Any:
    """Bring a state to the beginning of its next episode and run it to the first choice; returns 0 there, 1 if there is none."""
    scale = reals_at(setup.scales, 2 * setup.episodes)
    slot.scale, slot.bonus = scale[2 * slot.next], scale[2 * slot.next + 1]
    _inner_put_back(slot.header, words_at(setup.pool, setup.episodes)[slot.next], setup.plans, setup.fields)
    call_engine(setup.engine, slot.header, PREPARE, 0)
    slot.choices = 0
    slot.total = 0.0
    slot.illegal = 0
    slot.potential = 0.0
    s = state_at(slot.header)
    clear_sums(s.tally[0])
    return _go_on(s, slot, setup, weights, True)


def _resume(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], which: Ints) -> Any:
    """Let the environments `which` go on that stopped because their logs were full; returns how many are not at a choice."""
    over = 0
    for i in range(len(which)):
        slot = slots[which[i]]
        over += _go_on(state_at(slot.header), slot, setups[0], weights[0], slot.choices == 0)
    return over


def _put_back(to_address: Int, from_address: Int, plans_address: Int, fields: Int) -> None:
    """Bring the state with its header at the first address into the state of the second.

    Plans: for each field of a state how it is brought back: KEEP its own memory, take only the other's LENGTH, SHARE the other's memory,
    or COPY its content, of so many bytes an item (the second word). Compiled code takes the header of a state for unchangeable: whoever
    goes on must read the header's address from memory again.
    """
    plans = words_at(plans_address, 2 * fields)
    to = words_at(to_address, 2 * fields)
    given = words_at(from_address, 2 * fields)
    for f in range(fields):
        how = plans[2 * f]
        if how == KEEP:
            continue
        to[2 * f + 1] = given[2 * f + 1]
        if how == SHARE:
            to[2 * f] = given[2 * f]
        elif how == COPY:
            words = (given[2 * f + 1] * plans[2 * f + 1] + 7) // 8
            target = words_at(to[2 * f], words)
            source = words_at(given[2 * f], words)
            for k in range(words):
                target[k] = source[k]


def _fork(slots: Vector[EnvRow], given: Vector[EnvRow], actions: Int, plans_address: Int, fields: Int) -> None:
    """Bring as many environments in a row as there are for each given one into its state, with no choice made yet."""
    times = len(slots) // len(given)
    for e in range(len(slots)):
        slot, like = slots[e], given[e // times]
        _inner_put_back(slot.header, like.header, plans_address, fields)
        slot.choices, slot.illegal, slot.total, slot.ended = 0, 0, 0.0, 0
        slot.status, slot.potential, slot.scale, slot.bonus = like.status, like.potential, like.scale, like.bonus
        mask, legal = bytes_at(slot.mask, actions), bytes_at(like.mask, actions)
        for a in range(actions):
            mask[a] = legal[a]


class Kernels(NamedTuple):
    """The compiled entries: see the functions of the same names."""

    step: Callable[..., int]
    step_together: Callable[..., int]
    help_out: Callable[..., None]
    begin: Callable[..., int]
    resume: Callable[..., int]
    put_back: Callable[..., None]
    fork: Callable[..., None]


@lru_cache(maxsize=1)
def kernels() -> Kernels:
    """Return the entries, compiled on first use and cached on disk."""
    if INTERPRETED:
        raise UsageError("environments need compiled code", hint="unset NUMBA_DISABLE_JIT")
    return _compile(source_hash(__name__))


_inner_step, _inner_begin, _inner_resume, _inner_put_back = inner(_step), inner(_begin), inner(_resume), inner(_put_back)
_inner_step_together, _inner_help_out, _inner_fork = inner(_step_together), inner(_help_out), inner(_fork)


def _compile(source: int) -> Kernels:
    slots, setup, weights = from_dtype(SLOT)[::1], from_dtype(SETUP)[::1], from_dtype(WEIGHT_ROW)[::1]
    ints, words = types.int32[::1], types.int64[::1]

    @entry(types.int64(slots, setup, weights, ints, types.int64, types.int64))
    def step(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, low: Int, high: Int) -> Any:
        return _inner_step(slots, setups, weights, actions, low, high) if source != 0 else -9  # never 0; part of the cache's key

    @entry(types.int64(slots, setup, weights, ints, words))
    def step_together(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, board: Ints) -> Any:
        return _inner_step_together(slots, setups, weights, actions, board) if source != 0 else -9

    @entry(types.void(slots, setup, weights, ints, words))
    def help_out(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], actions: Ints, board: Ints) -> None:
        if source != 0:
            _inner_help_out(slots, setups, weights, actions, board)

    @entry(types.int64(slots, setup, weights, ints))
    def begin(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], which: Ints) -> Any:
        return _inner_begin(slots, setups, weights, which) if source != 0 else -9

    @entry(types.int64(slots, setup, weights, ints))
    def resume(slots: Vector[EnvRow], setups: Vector[SetupRow], weights: Vector[WeightRow], which: Ints) -> Any:
        return _inner_resume(slots, setups, weights, which) if source != 0 else -9

    @entry(types.void(*[types.int64] * 4))
    def put_back(to_address: Int, from_address: Int, plans_address: Int, fields: Int) -> None:
        if source != 0:
            _inner_put_back(to_address, from_address, plans_address, fields)

    @entry(types.void(slots, slots, *[types.int64] * 3))
    def fork(slots: Vector[EnvRow], given: Vector[EnvRow], actions: Int, plans_address: Int, fields: Int) -> None:
        if source != 0:
            _inner_fork(slots, given, actions, plans_address, fields)

    return Kernels(step, step_together, help_out, begin, resume, put_back, fork)
