"""Features about GPU types, which PickJob-v1 adds to those of jobs and queues: which types are free, how fast a job runs where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.kernels.nodes import takes
from gpuyard.features.numbers import TIME, log, share

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int
    from gpuyard.engine.state import JobRow, State

# Of a job: speeds are those for its class on the types of the partition that it may use; free devices are wholly free ones.
TYPE_ROWS = (
    "usable",  # share of the partition's GPUs that are of these types
    "of_usable",  # GPUs over the free ones of these types, at most 2, halved
    "time_best",  # log2 of the estimated seconds left on the fastest of these types
    "time_now",  # the same on the fastest of them that are free; on the fastest if too few are
    "speed_now",  # speed on the fastest that are free (a gang runs at its slowest GPU's) over that on the fastest; 0 if too few are
    "of_fastest",  # share of its GPUs that the fastest type has free
    "spread",  # speed on the slowest of these types over that on the fastest; 1: the type does not matter
)
# Of the partition, by the types' own speeds: fast types have more than 2/3 of the speed of its fastest, slow ones at most 1/3.
TYPE_CONTEXT = (
    "fast_free",  # share of the GPUs of fast types that are free
    "middle_free",
    "slow_free",
    "fast_size",  # share of the partition's GPUs that are of fast types
    "slow_size",
    "free_speed",  # mean speed of the free GPUs over that of the fastest; 0 if none is free
)
FAST, SLOW = 2 / 3, 1 / 3


@inner
def measure_types(s: State, p: Int) -> None:
    """Count the devices of each type that partition p has, and those of them that are free. One look at every node."""
    part = s.partitions[p]
    for t in range(len(s.types)):
        s.types[t].here = s.types[t].free_here = 0.0
    for n in range(part.node_lo, part.node_hi):
        node = s.nodes[n]
        kind = s.types[node.gpu_type]
        kind.here += float(node.gpus)
        if node.down == 0:
            kind.free_here += float(node.free)


@inner
def type_row(s: State, row: JobRow, out: Array, at: Int, stride: Int) -> None:
    """Write the features of one job into out[at], out[at + stride] …, after `measure_types`."""
    usable, here, free, fastest_free = 0.0, 0.0, 0.0, 0.0
    best, worst = 0.0, np.inf
    for t in range(len(s.types)):
        kind = s.types[t]
        here += kind.here
        if kind.here > 0 and takes(s, row, t):
            speed = _speed(s, row, t)
            usable += kind.here
            free += kind.free_here
            if speed > best:
                best, fastest_free = speed, 0.0
            fastest_free += kind.free_here if speed == best else 0.0
            worst = min(worst, speed)
    if row.gpus == 0 or best == 0:  # a CPU job runs at rate 1 wherever it is
        best = worst = 1.0
        now = 1.0 if row.gpus == 0 else 0.0
    else:
        now = _speed_now(s, row)
    out[at] = share(usable, here)
    out[at + stride] = np.float32(0.5 * min(row.gpus / max(free, 1.0), 2.0))
    out[at + 2 * stride] = log(row.remaining / best) * np.float32(TIME)
    out[at + 3 * stride] = log(row.remaining / (now if now > 0 else best)) * np.float32(TIME)
    out[at + 4 * stride] = np.float32(now / best)
    out[at + 5 * stride] = np.float32(min(fastest_free / row.gpus, 1.0)) if row.gpus > 0 else np.float32(1.0)
    out[at + 6 * stride] = np.float32(worst / best)


@inner
def _speed(s: State, row: JobRow, t: Int) -> Any:
    return s.speed[row.job_class * len(s.types) + t]


@inner
def _speed_now(s: State, row: JobRow) -> Any:
    """Return the highest speed at which as many devices as the job needs are free; 0 if there are too few in all."""
    found = 0.0
    for t in range(len(s.types)):
        speed = _speed(s, row, t)
        if speed > found and s.types[t].free_here > 0 and takes(s, row, t):
            free = 0.0
            for other in range(len(s.types)):
                if takes(s, row, other) and _speed(s, row, other) >= speed:
                    free += s.types[other].free_here
            found = speed if free >= row.gpus else found
    return found


@inner
def type_context(s: State, out: Array, at: Int) -> None:
    """Write the features of the measured partition into out[at …]."""
    fastest = 0.0
    for t in range(len(s.types)):
        fastest = max(fastest, s.types[t].speed if s.types[t].here > 0 else 0.0)
    fast, fast_free, slow, slow_free, here, free, speed = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
    for t in range(len(s.types)):
        kind = s.types[t]
        here += kind.here
        free += kind.free_here
        speed += kind.free_here * kind.speed
        if kind.speed > FAST * fastest:
            fast += kind.here
            fast_free += kind.free_here
        elif kind.speed <= SLOW * fastest:
            slow += kind.here
            slow_free += kind.free_here
    out[at] = share(fast_free, fast)
    out[at + 1] = share(free - fast_free - slow_free, here - fast - slow)
    out[at + 2] = share(slow_free, slow)
    out[at + 3] = share(fast, here)
    out[at + 4] = share(slow, here)
    out[at + 5] = share(speed, free * fastest)
