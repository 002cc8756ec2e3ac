"""Plain synthetic workloads with Poisson arrivals at a chosen load: gangs of GPUs (for benchmarks), and jobs with four priorities."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.jobs import MAX_GPUS
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators import sampling
from gpuyard.traces.generators.requests import Requests, typical_requests
from gpuyard.traces.generators.sampling import require, stream
from gpuyard.traces.parameters import Seconds

SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
WEIGHTS = np.array([0.50, 0.14, 0.14, 0.14, 0.05, 0.02, 0.01])
PRIORITIES = np.array([0.5, 1.0, 2.5, 5.0])
SHORTEST = 60.0  # s; shorter run times are drawn again


@generator("gangs", title="Power-of-two gangs, Poisson arrivals at a chosen load, overestimated walltimes")
def gangs(
    seed: int, *, jobs: int = 10_000, nodes: int = 1000, gpus_per_node: int = 8, load: float = 0.9, median: Seconds = 600.0,
    spread: float = 1.2, users: int = 200, together: Literal["anywhere", "node"] = "anywhere",
) -> Workload:  # fmt: skip
    """Generate `jobs` gangs of 1, 2, 4 … 64 GPUs (50, 14, 14, 14, 5, 2, 1 %; at most the cluster) for `nodes` × `gpus_per_node` GPUs.

    Poisson arrivals at the rate that offers `load` × the cluster's GPU-seconds in expectation. Run time lognormal (`median`, ln-`spread`);
    walltime = run time × (1 + exponential of mean 1), rounded up to what people ask for; users by Zipf's law. `together=node`: a gang
    sits on one node, or fills whole nodes if it is larger.
    """
    what = "generator gangs"
    sampling.require_jobs(what, jobs)
    sampling.require_size(what, nodes, gpus_per_node)
    sampling.require_load(what, load)
    require(0 < median <= 1e7, f"{what}: median = {median:g} s does not lie in (0, 1e7]")
    require(0 <= spread <= 3, f"{what}: spread = {spread} does not lie in 0..3")
    require(1 <= users <= 1_000_000, f"{what}: users = {users} does not lie in 1..1,000,000")
    total = nodes * gpus_per_node
    largest = 2.0 ** math.floor(math.log2(total))
    sizes = np.minimum(SIZES, largest)
    work = float(sizes @ WEIGHTS) * median * math.exp(spread**2 / 2)  # GPU-s a job, in expectation
    gpus = sizes[sampling.pick(stream(seed, "gangs/gpus"), WEIGHTS, jobs)]
    runtime = median * np.exp(spread * stream(seed, "gangs/runtime").standard_normal(jobs))
    over = 1.0 + stream(seed, "gangs/walltime").standard_exponential(jobs)
    columns = {
        "submit": np.cumsum(stream(seed, "gangs/arrivals").standard_exponential(jobs)) * (work / (load * total)),
        "gpus": gpus,
        "walltime": sampling.usual_walltime(runtime * over),
        "user": sampling.pick(stream(seed, "gangs/users"), sampling.zipf(users), jobs),
    }
    if together == "node":
        columns["chunk"] = np.minimum(gpus, 2.0 ** math.floor(math.log2(gpus_per_node)))
    return Workload.build(columns, runtime, name="gangs", users=sampling.user_names(users), preset=f"{nodes}x{gpus_per_node}:gpu")


@generator("poisson", title="Poisson arrivals, normal run times, 1 to 8 GPUs, four priorities")
def poisson(
    seed: int, *, jobs: int = 1000, gpus: int = 64, largest: int = 8, load: float = 0.9, mean: Seconds = 3000.0,
    deviation: Seconds = 2500.0, requests: Requests = "typical",
) -> Workload:  # fmt: skip
    """Generate `jobs` jobs for a cluster of `gpus` GPUs at `load` (the share of its GPU-seconds that they offer, in expectation).

    Run time N(`mean`, `deviation`²) s, drawn again below 60 s; U{1..`largest`} GPUs; priority uniform in 0.5, 1, 2.5, 5. Requested
    times are those that people type; `requests=exact`: none, so that estimates are the run times.
    """
    what = "generator poisson"
    sampling.require_jobs(what, jobs)
    require(1 <= gpus <= MAX_GPUS, f"{what}: gpus = {gpus} does not lie in 1..{MAX_GPUS:,}")
    require(1 <= largest <= gpus, f"{what}: largest = {largest} does not lie in 1..{gpus}, the cluster")
    sampling.require_load(what, load)
    require(SHORTEST <= mean <= 1e8 and 0 <= deviation <= 10 * mean, f"{what}: run times N({mean:g}, {deviation:g}²) s are not sensible")
    size = stream(seed, "poisson/gpus").integers(1, largest + 1, jobs).astype(float)
    runtime = _runtimes(seed, jobs, mean, deviation)
    gap = float(size @ runtime) / jobs / (load * gpus)  # s
    columns = {
        "submit": np.cumsum(stream(seed, "poisson/arrivals").standard_exponential(jobs)) * gap,
        "gpus": size,
        "priority": PRIORITIES[stream(seed, "poisson/priority").integers(0, len(PRIORITIES), jobs)],
    }
    if requests == "typical":
        columns["walltime"] = typical_requests(seed, "poisson", runtime, mean + 4 * deviation)
    return Workload.build(columns, runtime, name="poisson", preset=f"{gpus // 8}x8:gpu" if gpus % 8 == 0 else f"1x{gpus}:gpu")


def _runtimes(seed: int, jobs: int, mean: float, deviation: float) -> Array:
    generator = stream(seed, "poisson/runtime")
    value = generator.normal(mean, deviation, jobs)
    while (short := np.flatnonzero(value < SHORTEST)).size:
        value[short] = generator.normal(mean, deviation, len(short))
    return value
