"""Features for the choice of a host for a job: the hosts that could take it, the job, and how full the cluster is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.runs import revised_end
from gpuyard.engine.state import HOST_SUMS
from gpuyard.features.numbers import COUNT, TIME, log, share
from gpuyard.features.schema import Schema

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Real, Reals
    from gpuyard.engine.state import State
    from gpuyard.model.jobs import SubmittedRow

HOST = Schema(
    "host",
    1,
    rows=(
        "core_use",  # share of its cores in use
        "memory_use",
        "cores",  # over those of the largest host
        "memory",
        "gpu_use",
        "gpus",  # over those of the largest host
        "speed",  # of its devices for the job's class, over the fastest
        "cores_left",  # when the job has its cores, over those of the largest host
        "memory_left",
        "gpus_left",
        "until_free",  # s until the estimated end of its last running job, over that + the job's estimate
        "room",  # share of jobs that would fit on it, if they were spread evenly up to twice the mean of those that run or wait
        "room_lost",  # how much less it is when the job is on it: a number of its own, because it is small beside both
        "next_fit",  # share of the first LOOK other waiting jobs that would fit on it; 0 if none wait
        "next_fit_lost",
    ),
    context=(
        "job_cores",  # over those of the largest host
        "job_memory",
        "job_gpus",
        "job_estimate",  # log2 of s
        "waiting",  # log2 of the jobs in the queue
        "core_use",  # of all hosts
        "memory_use",
        "gpu_use",
        "mean_cores",  # of the jobs that run or wait, over those of the largest host
        "mean_memory",
        "room",  # mean over all hosts: what a choice takes away shows in the next situation, long before somebody waits for it
        "next_fit",  # share of the first LOOK other waiting jobs that would fit on some host; 1 if none wait
    ),
)
ROWS = len(HOST.rows)
CONTEXT = len(HOST.context)
LOOK = 8  # waiting jobs that are compared with each host
DEPTH = 64  # waiting jobs that count for the means

# Places in `host_sums`.
(
    MOST_CPUS, MOST_MEMORY, MOST_GPUS, CPUS, USED_CPUS, MEMORY, USED_MEMORY, MEAN_CPUS, MEAN_MEMORY, MEAN_GPUS, ROOM, NEXT_FIT,
    NEXT, FIRST_NEXT,
) = range(14)  # fmt: skip
assert FIRST_NEXT + 3 * LOOK == HOST_SUMS


@inner
def write_host(
    out: Array, at: Int, stride: Int,
    cpus: Real, free_cpus: Real, memory: Real, free_memory: Real, gpus: Real, free: Real, speed: Real, left: Real,
    job_cpus: Real, job_memory: Real, job_gpus: Real, estimate: Real, most_cpus: Real, most_memory: Real, most_gpus: Real, fastest: Real,
) -> None:  # fmt: skip
    """The features of one host into out[at], out[at + stride] … `left`: s until the estimated end of its last job."""
    out[at] = share(cpus - free_cpus, cpus)
    out[at + stride] = share(memory - free_memory, memory)
    out[at + 2 * stride] = share(min(cpus, most_cpus), most_cpus)  # one without a limit is as the largest that has one
    out[at + 3 * stride] = share(min(memory, most_memory), most_memory)
    out[at + 4 * stride] = share(gpus - free, gpus)
    out[at + 5 * stride] = share(gpus, most_gpus)
    out[at + 6 * stride] = share(speed, fastest)
    out[at + 7 * stride] = share(free_cpus - job_cpus, most_cpus) if cpus < np.inf else np.float32(1.0)
    out[at + 8 * stride] = share(free_memory - job_memory, most_memory) if memory < np.inf else np.float32(1.0)
    out[at + 9 * stride] = share(free - job_gpus, most_gpus)
    out[at + 10 * stride] = np.float32(left / (left + max(estimate, 1.0)))


@inner
def measure_hosts(s: State, p: Int, j: Int) -> None:
    """Fill `busy_until` for the nodes of partition p, and `host_sums`, for a choice about job j."""
    part = s.partitions[p]
    now = s.control[0].now
    most = s.host_sums
    for k in range(len(most)):
        most[k] = 0.0
    for n in range(part.node_lo, part.node_hi):
        node = s.nodes[n]
        s.busy_until[n] = now
        if node.cpus < np.inf:
            most[MOST_CPUS] = max(most[MOST_CPUS], node.cpus)
            most[CPUS] += node.cpus
            most[USED_CPUS] += node.cpus - node.free_cpus
        if node.memory < np.inf:
            most[MOST_MEMORY] = max(most[MOST_MEMORY], node.memory)
            most[MEMORY] += node.memory
            most[USED_MEMORY] += node.memory - node.free_memory
        most[MOST_GPUS] = max(most[MOST_GPUS], float(node.gpus))
    running = 0
    for i in range(s.control[0].heap):
        row = s.rows[s.ends[i]]
        end = revised_end(s, row)
        if row.partition == p:
            running += 1
            _count(most, s.table[row.number])
        k = row.alloc
        while k >= 0:
            piece = s.parts[k]
            s.busy_until[piece.node] = max(s.busy_until[piece.node], end)
            k = piece.next
    _measure_queue(s, p, j, running)
    _measure_room(s, p)


@inner
def _count(most: Reals, job: SubmittedRow) -> None:
    most[MEAN_CPUS] += job.cpus
    most[MEAN_MEMORY] += job.memory
    most[MEAN_GPUS] += job.gpus


@inner
def _measure_queue(s: State, p: Int, j: Int, running: Real) -> None:
    """Measure the means over running and waiting jobs, and what the first waiting ones other than j ask for."""
    part = s.partitions[p]
    most = s.host_sums
    upto = min(part.tail, part.head + DEPTH)
    found = 0
    for i in range(part.head, upto):
        other = s.queue_jobs[i]
        job = s.table[other]
        _count(most, job)
        if other != j and found < LOOK:
            at = FIRST_NEXT + 3 * found
            most[at], most[at + 1], most[at + 2] = job.cpus, job.memory, job.gpus
            found += 1
    most[NEXT] = float(found)
    count = max(float(running + upto - part.head), 1.0)
    most[MEAN_CPUS] /= count
    most[MEAN_MEMORY] /= count
    most[MEAN_GPUS] /= count


@inner
def _measure_room(s: State, p: Int) -> None:
    """Measure the mean room of hosts, and the share of the next jobs that fit somewhere."""
    part = s.partitions[p]
    most = s.host_sums
    fitting = 0
    for n in range(part.node_lo, part.node_hi):
        node = s.nodes[n]
        most[ROOM] += float(_room(most, node.free_cpus, node.free_memory, float(node.free)))
        for k in range(int(most[NEXT])):
            if _fits(most, k, node.free_cpus, node.free_memory, float(node.free)):
                fitting |= 1 << k
    most[ROOM] /= max(float(part.node_hi - part.node_lo), 1.0)
    for k in range(int(most[NEXT])):
        most[NEXT_FIT] += float(fitting >> k & 1)
    most[NEXT_FIT] = most[NEXT_FIT] / most[NEXT] if most[NEXT] > 0 else 1.0


@inner
def _part_that_fits(free: Real, mean: Real) -> Any:
    """Return the share of numbers spread evenly from 0 to twice the mean that are at most `free`."""
    return min(max(free, 0.0) / (2.0 * mean), 1.0) if mean > 0 else 1.0


@inner
def _room(most: Reals, cpus: Real, memory: Real, gpus: Real) -> Any:
    fits = _part_that_fits(cpus, most[MEAN_CPUS]) * _part_that_fits(memory, most[MEAN_MEMORY])
    return np.float32(fits * _part_that_fits(gpus, most[MEAN_GPUS]))


@inner
def _fits(most: Reals, k: Int, cpus: Real, memory: Real, gpus: Real) -> Any:
    at = FIRST_NEXT + 3 * k
    return most[at] <= cpus and most[at + 1] <= memory and most[at + 2] <= gpus


@inner
def _next_fit(most: Reals, cpus: Real, memory: Real, gpus: Real) -> Any:
    found = 0.0
    for k in range(int(most[NEXT])):
        found += 1.0 if _fits(most, k, cpus, memory, gpus) else 0.0
    return np.float32(found / max(most[NEXT], 1.0))


@inner
def host_row(s: State, n: Int, j: Int, fastest: Real, out: Array, at: Int, stride: Int) -> None:
    """Write one host for job j, after `measure_hosts`. `fastest`: the highest speed for the job's class."""
    node = s.nodes[n]
    row, job = s.rows[j], s.table[j]
    most = s.host_sums
    speed = s.speed[row.job_class * len(s.types) + node.gpu_type]
    free = float(node.free)
    write_host(
        out, at, stride,
        node.cpus, node.free_cpus, node.memory, node.free_memory, float(node.gpus), free, speed,
        s.busy_until[n] - s.control[0].now,
        job.cpus, job.memory, row.gpus, row.remaining, most[MOST_CPUS], most[MOST_MEMORY], most[MOST_GPUS], fastest,
    )  # fmt: skip
    cpus, memory, gpus = node.free_cpus - job.cpus, node.free_memory - job.memory, free - row.gpus
    room, next_fit = _room(most, node.free_cpus, node.free_memory, free), _next_fit(most, node.free_cpus, node.free_memory, free)
    out[at + 11 * stride] = room
    out[at + 12 * stride] = room - _room(most, cpus, memory, gpus)
    out[at + 13 * stride] = next_fit
    out[at + 14 * stride] = next_fit - _next_fit(most, cpus, memory, gpus)


@inner
def fastest_for(s: State, j: Int) -> Any:
    """Return the highest speed of any device type for job j."""
    best = 0.0
    for t in range(len(s.types)):
        best = max(best, s.speed[s.rows[j].job_class * len(s.types) + t])
    return best


@inner
def host_context(s: State, p: Int, j: Int, out: Array, at: Int) -> None:
    """Write the context of job j, after `measure_hosts`."""
    part = s.partitions[p]
    row = s.rows[j]
    most = s.host_sums
    out[at] = share(s.table[j].cpus, most[MOST_CPUS])
    out[at + 1] = share(s.table[j].memory, most[MOST_MEMORY])
    out[at + 2] = share(row.gpus, most[MOST_GPUS])
    out[at + 3] = log(row.remaining) * np.float32(TIME)
    out[at + 4] = log(float(part.tail - part.head)) * np.float32(COUNT)
    out[at + 5] = share(most[USED_CPUS], most[CPUS])
    out[at + 6] = share(most[USED_MEMORY], most[MEMORY])
    out[at + 7] = share(float(part.total - part.free), float(part.total))
    out[at + 8] = share(most[MEAN_CPUS], most[MOST_CPUS])
    out[at + 9] = share(most[MEAN_MEMORY], most[MOST_MEMORY])
    out[at + 10] = np.float32(most[ROOM])
    out[at + 11] = np.float32(most[NEXT_FIT])
