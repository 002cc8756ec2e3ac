"""Features for the choice of a scheduler: the whole cluster, and samples of its recent past; no label of a regime."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.accounts import power
from gpuyard.engine.kernels.runs import revised_end
from gpuyard.engine.state import HISTORY, SAMPLE
from gpuyard.features.jobs import SHORTEST, advance_recent
from gpuyard.features.numbers import COUNT, TIME, log, share, squash
from gpuyard.features.schema import Schema

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Real
    from gpuyard.engine.state import JobRow, State

NOW = (
    "waiting",  # log2 of jobs
    "running",
    "free",  # share of GPUs
    "backlog",  # log2 of s
    "recent",  # log2 of the jobs submitted in the last 300 s
    "gpus",  # log2
    "mean_estimate",  # of the waiting jobs: log2 of s
    "least_estimate",
    "longest_estimate",
    "spread_estimate",  # standard deviation of the log2
    "mean_priority",  # squashed
    "top_priority",
    "hopeless",  # share of waiting jobs that miss their deadlines even if they start now
    "tight",  # share that can wait for less than a third of their estimates
    "mean_slack",  # squashed, in estimates
    "least_slack",  # of those that can still make it
    "mean_size",  # GPUs over those of the cluster
    "power",  # share of the highest
    "next_end",  # log2 of s until the first estimated end of a running job
    "mean_left",  # log2 of the mean estimated s that running jobs have left
    "late",  # share of running jobs whose estimated ends miss their deadlines
)
# Of the job that was submitted first, has the highest priority, the earliest deadline, the least work left, the least slack for its
# priority, was submitted last: its estimate (log2 of s), and how long it can wait, in estimates and in 5 minutes
# (both squashed).
HEADS = ("first", "top", "earliest", "shortest", "pressing", "newest")
HEAD = ("estimate", "slack", "time")
OF_HEADS = tuple(f"{head}_{what}" for head in HEADS for what in HEAD)
AGES = ("oldest", "mean_wait", "mean_stretch")  # log2 of s; wait / (wait + estimate)
SAMPLES = ("arrivals", "waiting", "busy", "stretch")  # of the past: log2 of the jobs since the sample before; log2; share; mean
PAST = tuple(f"{name}-{k}" for k in range(HISTORY, 0, -1) for name in SAMPLES)
# Where jobs differ in size, of each head: its GPUs over those of the cluster, and 1 if as many are free; of all waiting jobs: the share
# that as many GPUs are free for as they need, and the size of the largest.
SIZES = (*(f"{head}_{what}" for head in HEADS for what in ("size", "fits")), "fitting", "largest")
SWITCH = Schema("switch", 1, rows=(), context=(*NOW, *OF_HEADS, *AGES, *PAST))
SWITCH_SIZES = Schema("switch", 1, rows=(), context=(*NOW, *OF_HEADS, *AGES, *SIZES, *PAST))  # the past stays last: a memory is made of it
SIZELESS = len(SWITCH.context)
CONTEXT = len(SWITCH_SIZES.context)
FIRST_HEAD = len(NOW)
FIRST_AGE = FIRST_HEAD + len(OF_HEADS)
FIRST_SIZE = FIRST_AGE + len(AGES)
PATIENCE = 300.0  # s
SIX = len(HEADS)


@inner
def system_context(s: State, sized: bool, out: Array, at: Int) -> None:
    """Write the context of SWITCH or, `sized`, of SWITCH_SIZES to out[at …] and a sample to the history: call it once at each decision."""
    _waiting_jobs(s, out, at)
    _heads(s, sized, out, at)
    past = at + FIRST_SIZE
    if sized:
        _sizes(s, out, past + len(SIZES) - 2)
        past += len(SIZES)
    _running_jobs(s, out, at)
    _cluster(s, out, at)
    control = s.control[0]
    for k in range(HISTORY):  # the oldest first
        slot = (control.samples + k) % HISTORY
        for i in range(SAMPLE):
            out[past + k * SAMPLE + i] = np.float32(s.history[slot * SAMPLE + i])
    _remember(s, out, at)


@inner
def _remember(s: State, out: Array, at: Int) -> None:
    control = s.control[0]
    to = (control.samples % HISTORY) * SAMPLE
    s.history[to] = log(float(control.next_job - control.sampled_job)) * np.float32(COUNT)
    s.history[to + 1] = out[at]
    s.history[to + 2] = np.float32(1.0) - out[at + 2]
    s.history[to + 3] = out[at + FIRST_AGE + 2]
    control.sampled_job = control.next_job
    control.samples += 1


@inner
def most_power(s: State) -> Any:
    """Watts of all devices in order if all were busy."""
    watts = 0.0
    for t in range(len(s.types)):
        watts += s.types[t].up * s.types[t].busy_watts
    return watts


@inner
def _cluster(s: State, out: Array, at: Int) -> None:
    control = s.control[0]
    advance_recent(s)
    free, gpus, work = 0.0, 0.0, 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        free += float(part.free)
        gpus += float(part.total)
        work += part.work
    out[at] = log(float(control.waiting)) * np.float32(COUNT)
    out[at + 1] = log(float(control.running)) * np.float32(COUNT)
    out[at + 2] = share(free, gpus)
    out[at + 3] = log(work / max(gpus, 1.0)) * np.float32(TIME)
    out[at + 4] = log(float(control.next_job - control.recent_job)) * np.float32(COUNT)
    out[at + 5] = log(gpus) * np.float32(COUNT)
    out[at + 17] = share(power(s), most_power(s))


@inner
def _waiting_jobs(s: State, out: Array, at: Int) -> None:
    control = s.control[0]
    now = control.now
    count = max(float(control.waiting), 1.0)
    total, squares, least, longest = 0.0, 0.0, np.inf, 0.0
    priority, top = 0.0, -1.0
    hopeless, tight, slack_sum, least_slack = 0.0, 0.0, 0.0, 1.0
    size, oldest, waits, stretches = 0.0, 0.0, 0.0, 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            j = s.queue_jobs[i]
            row, urgency = s.rows[j], float(squash(s.table[j].priority))
            length = float(log(row.remaining))
            total += length
            squares += length * length
            least = min(least, length)
            longest = max(longest, length)
            priority += urgency
            top = max(top, urgency)
            estimate = max(row.remaining, SHORTEST)
            slack = float(squash((row.deadline - now - row.remaining) / estimate))
            hopeless += 1.0 if slack < 0 else 0.0
            tight += 1.0 if 0 <= slack < 0.25 else 0.0
            slack_sum += slack
            if slack >= 0:
                least_slack = min(least_slack, slack)
            size += row.gpus
            wait = now - row.submit
            oldest = max(oldest, wait)
            waits += wait
            stretches += wait / (wait + estimate)
    mean = total / count
    out[at + 6] = np.float32(mean * TIME)
    out[at + 7] = np.float32(least * TIME) if least < np.inf else np.float32(0.0)
    out[at + 8] = np.float32(longest * TIME)
    out[at + 9] = np.float32(np.sqrt(max(squares / count - mean * mean, 0.0)) * 0.25)
    out[at + 10] = np.float32(priority / count)
    out[at + 11] = np.float32(top)
    out[at + 12] = np.float32(hopeless / count)
    out[at + 13] = np.float32(tight / count)
    out[at + 14] = np.float32(slack_sum / count)
    out[at + 15] = np.float32(least_slack)
    out[at + 16] = np.float32(size / count / max(control.gpus, 1.0))
    out[at + FIRST_AGE] = log(oldest) * np.float32(TIME)
    out[at + FIRST_AGE + 1] = log(waits / count) * np.float32(TIME)
    out[at + FIRST_AGE + 2] = np.float32(stretches / count)


@inner
def _heads(s: State, sized: bool, out: Array, first: Int) -> None:
    """Describe the jobs that six orderings would start next; of equals the one that was submitted first."""
    now = s.control[0].now
    at = first + FIRST_HEAD
    for k in range(SIX):
        best, key, since = np.int64(-1), np.inf, np.inf
        for p in range(len(s.partitions)):
            part = s.partitions[p]
            for i in range(part.head, part.tail):
                j = np.int64(s.queue_jobs[i])
                row = s.rows[j]
                value = _head_key(row, s.table[j].priority, now, k)
                if best < 0 or value < key or (value == key and row.submit < since):
                    best, key, since = j, value, row.submit
        for i in range(3):
            out[at + 3 * k + i] = np.float32(0.0)
        if best >= 0:
            row = s.rows[best]
            slack = row.deadline - now - row.remaining
            out[at + 3 * k] = log(row.remaining) * np.float32(TIME)
            out[at + 3 * k + 1] = squash(slack / max(row.remaining, SHORTEST))
            out[at + 3 * k + 2] = squash(slack / PATIENCE)
        if sized:
            size = s.rows[best].gpus if best >= 0 else 0.0
            free = float(s.partitions[s.rows[best].partition].free) if best >= 0 else 0.0
            out[first + FIRST_SIZE + 2 * k] = np.float32(size / max(s.control[0].gpus, 1.0))
            out[first + FIRST_SIZE + 2 * k + 1] = np.float32(1.0 if best >= 0 and size <= free else 0.0)


@inner
def _sizes(s: State, out: Array, at: Int) -> None:
    """Write which share of the waiting jobs as many GPUs are free for as they need, and the size of the largest."""
    control = s.control[0]
    fitting, largest = 0.0, 0.0
    for p in range(len(s.partitions)):
        part = s.partitions[p]
        for i in range(part.head, part.tail):
            gpus = s.rows[s.queue_jobs[i]].gpus
            fitting += 1.0 if gpus <= part.free else 0.0
            largest = max(largest, gpus)
    out[at] = np.float32(fitting / max(float(control.waiting), 1.0))
    out[at + 1] = np.float32(largest / max(control.gpus, 1.0))


@inner
def _head_key(row: JobRow, priority: Real, now: Real, k: Int) -> Any:
    """Return the key of a job by the k-th of HEADS; lower goes first."""
    if k == 0:
        return row.submit
    if k == 1:
        return -priority
    if k == 2:
        return row.deadline
    if k == 3:
        return row.remaining
    if k == 4:
        return (row.deadline - now - row.remaining) / (max(priority, 0.0) + 1.0)
    return -row.submit


@inner
def _running_jobs(s: State, out: Array, at: Int) -> None:
    """Write the features of the running jobs, from estimated ends only: the heap of true ends gives the jobs, its order must not matter."""
    control = s.control[0]
    first, left_sum, late = np.inf, 0.0, 0.0
    for i in range(control.heap):
        row = s.rows[s.ends[i]]
        left = revised_end(s, row) - control.now
        first = min(first, left)
        left_sum += left
        late += 1.0 if control.now + left > row.deadline else 0.0
    count = max(float(control.heap), 1.0)
    out[at + 18] = log(first) * np.float32(TIME) if first < np.inf else np.float32(0.0)
    out[at + 19] = log(left_sum / count) * np.float32(TIME)
    out[at + 20] = np.float32(late / count)
