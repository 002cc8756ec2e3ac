"""Jobs drawn from ranges: tasks for a CPU or a GPU, with a law of how long they take on each, and jobs of an electronic-design farm."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.presets import TASK_INTENSITIES
from gpuyard.model.units import Range
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.requests import Requests, typical_requests
from gpuyard.traces.generators.sampling import require, require_jobs, stream
from gpuyard.traces.parameters import CountRange, GigabyteRange, Seconds, SecondsRange

LINK = 16.0  # GB/s from host to device
HOSTS = "hosts:count=50,cores=16:32,memory=64:256"
LONGEST = 1e8  # s over which jobs may arrive, three years


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
    the task waits for a CPU. Arrivals are Poisson with `gap` s between them on average; 0: all at once. The law is known, and with it
    how long a task takes: there are no requested times, and estimates are exact.

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
    return Workload.build(columns, runtime, name="tasks", classes=tuple(TASK_INTENSITIES), preset="tasks")


@generator("eda", title="CPU jobs on one host each: cores, memory, duration and arrivals per second from ranges")
def eda(
    seed: int, *, jobs: int = 1000, cores: CountRange = Range(1, 8), memory: GigabyteRange = Range(1, 32),  # noqa: B008 - frozen
    duration: SecondsRange = Range(10, 600), arrivals: Range = Range(0.2, 1.2), requests: Requests = "typical",  # noqa: B008
) -> Workload:  # fmt: skip
    """Generate `jobs` jobs without GPUs. Cores (whole numbers), memory (GB) and run time are uniform, each in its range.

    Arrivals: in every second a Poisson number with a mean drawn from `arrivals`, at times uniform in the second. A job runs on one host;
    its cluster is `hosts:count=50,cores=16:32,memory=64:256` unless another is given, whose cores the defaults fill to about 0.8.
    Requested times are those that people type; `requests=exact`: none, so that estimates are the run times.
    """
    what = "generator eda"
    require_jobs(what, jobs)
    require(cores.low >= 1, f"{what}: cores = {cores}: a job has at least 1")
    require(cores.high <= 1e6 and memory.high <= 1e6 and duration.high <= 1e9, f"{what}: cores, memory or duration are not sensible")
    require(arrivals.low >= 0 and 1e-4 <= arrivals.high <= 1e4, f"{what}: arrivals = {arrivals} a second does not lie in 0..10,000")
    seconds = jobs / ((arrivals.low + arrivals.high) / 2)
    require(
        seconds <= LONGEST, f"{what}: at arrivals = {arrivals} a second {jobs:,} jobs take {seconds:.3g} s to arrive, more than {LONGEST:g}"
    )
    runtime = stream(seed, "eda/duration").uniform(duration.low, duration.high, jobs)
    columns = {
        "submit": _arrivals(seed, jobs, arrivals),
        "gpus": np.zeros(jobs),
        "cpus": stream(seed, "eda/cores").integers(int(cores.low), int(cores.high) + 1, jobs).astype(float),
        "memory": stream(seed, "eda/memory").uniform(memory.low, memory.high, jobs),
    }
    if requests == "typical":
        columns["walltime"] = typical_requests(seed, "eda", runtime, duration.high)
    return Workload.build(columns, runtime, name="eda", preset=HOSTS)


def _arrivals(seed: int, jobs: int, rate: Range) -> Array:
    """Draw the first `jobs` instants, in order; they do not depend on how many seconds are drawn at a time."""
    means, counts, within = stream(seed, "eda/rate"), stream(seed, "eda/arrivals"), stream(seed, "eda/second")
    block = int(min(jobs / ((rate.low + rate.high) / 2) + 1, 100_000))
    found, total, second = [], 0, 0
    while total < jobs:
        number = counts.poisson(means.uniform(rate.low, rate.high, block))
        begin = np.repeat(np.arange(second, second + block, dtype=float), number)
        found.append(np.sort(begin + within.random(len(begin))))
        total, second = total + len(begin), second + block
    return np.concatenate(found)[:jobs]
