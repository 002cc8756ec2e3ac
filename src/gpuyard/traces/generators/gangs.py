"""Gangs of GPUs at a chosen load: the workload of benchmarks, in one vectorised step."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np

from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators import sampling
from gpuyard.traces.generators.sampling import require, stream
from gpuyard.traces.parameters import Seconds

SIZES = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0])
WEIGHTS = np.array([0.50, 0.14, 0.14, 0.14, 0.05, 0.02, 0.01])


@generator("gangs", title="Power-of-two gangs, Poisson arrivals at a chosen load, overestimated walltimes")
def gangs(
    seed: int,
    *,
    jobs: int = 10_000,
    nodes: int = 1000,
    gpus_per_node: int = 8,
    load: float = 0.9,
    median: Seconds = 600.0,
    spread: float = 1.2,
    users: int = 200,
    together: Literal["anywhere", "node"] = "anywhere",
) -> Workload:
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
