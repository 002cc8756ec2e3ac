"""Jobs of an electronic-design farm: cores and memory on one host, from ranges."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.units import Range
from gpuyard.model.workload import Workload
from gpuyard.traces.base import generator
from gpuyard.traces.generators.sampling import require, require_jobs, stream
from gpuyard.traces.parameters import CountRange, GigabyteRange, SecondsRange

HOSTS = "hosts:count=50,cores=16:32,memory=64:256"
LONGEST = 1e8  # s over which jobs may arrive, three years


@generator("eda", title="CPU jobs on one host each: cores, memory, duration and arrivals per second from ranges")
def eda(
    seed: int, *, jobs: int = 1000, cores: CountRange = Range(1, 8), memory: GigabyteRange = Range(1, 32),  # noqa: B008 - frozen
    duration: SecondsRange = Range(10, 600), arrivals: Range = Range(0.2, 1.2),  # noqa: B008 - frozen
) -> Workload:  # fmt: skip
    """Generate `jobs` jobs without GPUs. Cores (whole numbers), memory (GB) and run time are uniform, each in its range.

    Arrivals: in every second a Poisson number with a mean drawn from `arrivals`, at times uniform in the second. A job runs on one host;
    its cluster is `hosts:count=50,cores=16:32,memory=64:256` unless another is given, whose cores the defaults fill to about 0.8.
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
    notes = ("no requested times: estimates are the run times",)
    return Workload.build(columns, runtime, name="eda", notes=notes, preset=HOSTS)


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
