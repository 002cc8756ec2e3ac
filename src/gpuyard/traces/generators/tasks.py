"""Tasks for a CPU or a GPU, with a law of how long they take on each."""

from __future__ import annotations

import numpy as np

from gpuyard.model.presets import TASK_INTENSITIES
from gpuyard.model.units import Range
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.sampling import require, require_jobs, stream
from gpuyard.traces.parameters import GigabyteRange, Seconds

LINK = 16.0  # GB/s from host to device


@generator("tasks", title="tasks for a CPU or a GPU: size, compute intensity and memory decide which is faster")
def tasks(
    seed: int, *, jobs: int = 500, size: Range = Range(500, 4000), intensity: Range = Range(0, 1),  # noqa: B008 - frozen
    memory: GigabyteRange = Range(0.1, 8), gap: Seconds = 1.0,  # noqa: B008
) -> Workload:  # fmt: skip
    """Generate `jobs` tasks of one device each, for which CPUs and GPUs have different laws.

    On a CPU a task takes D = (size/1000)^1.5 / (c + 0.5) s, on a GPU D / (1 + 3c) after memory/16 GB/s.

    Size and memory are uniform in their ranges; the compute intensity c is one of 0, 0.05 … 1 in its range, each equally likely. The
    run time is D; the job class `c0.35` is the intensity, for which the cluster preset `tasks` has the speeds 1 and 1 + 3c; the
    column `transfer` is memory/16 s, which devices of type `cpu` do not need. The memory must fit the device: where GPUs have less,
    the task waits for a CPU. Arrivals are Poisson with `gap` s between them on average; 0: all at once.

    Compute-heavy: `intensity=0.7:1,memory=0.1:1`; low intensity and memory-heavy: `intensity=0:0.3,memory=4GB:12GB`.
    """
    what = "generator tasks"
    require_jobs(what, jobs)
    require(size.low >= 0 and size.high <= 1e9, f"{what}: size = {size} does not lie in 0..1e9")
    require(memory.high <= 1e6, f"{what}: memory = {memory} GB is not sensible")
    require(0 <= gap <= 1e6, f"{what}: gap = {gap:g} s does not lie in 0..1e6")
    steps = np.array([k for k, c in enumerate(TASK_INTENSITIES.values()) if intensity.low - 1e-9 <= c <= intensity.high + 1e-9])
    require(len(steps) > 0, f"{what}: intensity = {intensity} contains none of 0, 0.05 … 1")
    level = steps[stream(seed, "tasks/intensity").integers(0, len(steps), jobs)]
    c = np.array(list(TASK_INTENSITIES.values()))[level]
    needed = stream(seed, "tasks/memory").uniform(memory.low, memory.high, jobs)
    runtime = (stream(seed, "tasks/size").uniform(size.low, size.high, jobs) / 1000) ** 1.5 / (c + 0.5)
    columns = {
        "submit": np.cumsum(stream(seed, "tasks/arrivals").standard_exponential(jobs)) * gap,
        "memory": needed, "transfer": needed / LINK, "job_class": level,
    }  # fmt: skip
    notes = ("no requested times: estimates are the run times",)
    return Workload.build(columns, runtime, name="tasks", classes=tuple(TASK_INTENSITIES), notes=notes, preset="tasks")
