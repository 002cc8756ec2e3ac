"""Poisson arrivals with normal run times and four priorities: a plain synthetic cluster workload."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.sampling import require, require_jobs, require_load, stream
from gpuyard.traces.parameters import Seconds

PRIORITIES = np.array([0.5, 1.0, 2.5, 5.0])
SHORTEST = 60.0  # s; shorter run times are drawn again


@generator("poisson", title="Poisson arrivals, normal run times, 1 to 8 GPUs, four priorities")
def poisson(
    seed: int, *, jobs: int = 1000, gpus: int = 64, largest: int = 8, load: float = 0.9, mean: Seconds = 3000.0, deviation: Seconds = 2500.0
) -> Workload:
    """Generate `jobs` jobs for a cluster of `gpus` GPUs at `load` (the share of its GPU-seconds that they offer, in expectation).

    Run time N(`mean`, `deviation`²) s, drawn again below 60 s; U{1..`largest`} GPUs; priority uniform in 0.5, 1, 2.5, 5.
    """
    what = "generator poisson"
    require_jobs(what, jobs)
    require(1 <= gpus <= MAX_GPUS, f"{what}: gpus = {gpus} does not lie in 1..{MAX_GPUS:,}")
    require(1 <= largest <= gpus, f"{what}: largest = {largest} does not lie in 1..{gpus}, the cluster")
    require_load(what, load)
    require(SHORTEST <= mean <= 1e8 and 0 <= deviation <= 10 * mean, f"{what}: run times N({mean:g}, {deviation:g}²) s are not sensible")
    size = stream(seed, "poisson/gpus").integers(1, largest + 1, jobs).astype(float)
    runtime = _runtimes(seed, jobs, mean, deviation)
    gap = float(size @ runtime) / jobs / (load * gpus)  # s
    columns = {
        "submit": np.cumsum(stream(seed, "poisson/arrivals").standard_exponential(jobs)) * gap,
        "gpus": size,
        "priority": PRIORITIES[stream(seed, "poisson/priority").integers(0, len(PRIORITIES), jobs)],
    }
    preset = f"{gpus // 8}x8:gpu" if gpus % 8 == 0 else f"1x{gpus}:gpu"
    return Workload.build(columns, runtime, name="poisson", notes=("no requested times: estimates are the run times",), preset=preset)


def _runtimes(seed: int, jobs: int, mean: float, deviation: float) -> Array:
    generator = stream(seed, "poisson/runtime")
    value = generator.normal(mean, deviation, jobs)
    while (short := np.flatnonzero(value < SHORTEST)).size:
        value[short] = generator.normal(mean, deviation, len(short))
    return value
