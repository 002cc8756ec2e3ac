"""What is seen when a host is chosen for a job: the hosts that could take it, the job, and how full the cluster is."""

from __future__ import annotations

from typing import Any

import numpy as np

from gpuyard.engine.jit import inner
from gpuyard.engine.kernels.runs import revised_end
from gpuyard.features.numbers import COUNT, TIME, log, share
from gpuyard.features.schema import Schema

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
        "until_free",  # s until its last running job is believed to end, over that + the job's estimate
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
    ),
)
ROWS = len(HOST.rows)
CONTEXT = len(HOST.context)


@inner
def write_host(
    out: Any, at: Any, stride: Any,
    cpus: Any, free_cpus: Any, memory: Any, free_memory: Any, gpus: Any, free: Any, speed: Any, left: Any,
    job_cpus: Any, job_memory: Any, job_gpus: Any, estimate: Any, most_cpus: Any, most_memory: Any, most_gpus: Any, fastest: Any,
) -> None:  # fmt: skip
    """The features of one host into out[at], out[at + stride] … `left`: s until its last job is believed to end."""
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
def measure_hosts(s: Any, p: Any) -> None:
    """Fill `busy_until` for the nodes of partition p, and `host_sums`."""
    part = s.partitions[p]
    now = s.control[0].now
    most = s.host_sums
    for k in range(len(most)):
        most[k] = 0.0
    for n in range(part.node_lo, part.node_hi):
        node = s.nodes[n]
        s.busy_until[n] = now
        if node.cpus < np.inf:
            most[0] = max(most[0], node.cpus)
            most[3] += node.cpus
            most[4] += node.cpus - node.free_cpus
        if node.memory < np.inf:
            most[1] = max(most[1], node.memory)
            most[5] += node.memory
            most[6] += node.memory - node.free_memory
        most[2] = max(most[2], float(node.gpus))
    for i in range(s.control[0].heap):
        row = s.rows[s.ends[i]]
        end = revised_end(row, s.control[0])
        k = row.alloc
        while k >= 0:
            piece = s.parts[k]
            s.busy_until[piece.node] = max(s.busy_until[piece.node], end)
            k = piece.next


@inner
def host_row(s: Any, n: Any, j: Any, fastest: Any, out: Any, at: Any, stride: Any) -> None:
    """One host for job j, after `measure_hosts`. `fastest`: the highest speed for the job's class."""
    node = s.nodes[n]
    row = s.rows[j]
    most = s.host_sums
    speed = s.speed[row.job_class * len(s.types) + node.gpu_type]
    write_host(
        out, at, stride,
        node.cpus, node.free_cpus, node.memory, node.free_memory, float(node.gpus), float(node.free), speed,
        s.busy_until[n] - s.control[0].now,
        row.cpus, row.memory, row.gpus, row.remaining, most[0], most[1], most[2], fastest,
    )  # fmt: skip


@inner
def fastest_for(s: Any, j: Any) -> Any:
    """The highest speed of any device type for job j."""
    best = 0.0
    for t in range(len(s.types)):
        best = max(best, s.speed[s.rows[j].job_class * len(s.types) + t])
    return best


@inner
def host_context(s: Any, p: Any, j: Any, out: Any, at: Any) -> None:
    """The context of job j, after `measure_hosts`."""
    part = s.partitions[p]
    row = s.rows[j]
    most = s.host_sums
    out[at] = share(row.cpus, most[0])
    out[at + 1] = share(row.memory, most[1])
    out[at + 2] = share(row.gpus, most[2])
    out[at + 3] = log(row.remaining) * np.float32(TIME)
    out[at + 4] = log(float(part.tail - part.head)) * np.float32(COUNT)
    out[at + 5] = share(most[4], most[3])
    out[at + 6] = share(most[6], most[5])
    out[at + 7] = share(float(part.total - part.free), float(part.total))
