"""The same workload in SimPy, as one would write it in an afternoon: FCFS and EASY on a counter of processors.

    python benchmarks/simpy_fcfs.py

Kept plain and fair: one process per job, SimPy's own container for FCFS (its queue is strict), and for EASY a list of waiting and one
of running jobs with a pass at every submission and end. There are no nodes, devices, partitions or timeline; gpuyard does all of that
in the time that it is compared by. Times are whole seconds in lublin_256, and SimPy handles the events of one second one by one, so that
EASY may choose otherwise than gpuyard's one pass an instant; FCFS starts every job at the same second.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import simpy

Job = tuple[float, int, float, float]  # submit (s), processors, estimate (s), run time (s)


def fcfs(jobs: Sequence[Job], processors: int) -> list[float]:
    """Start of every job (s), first come, first served; `jobs` in order of submit."""
    env = simpy.Environment()
    free = simpy.Container(env, capacity=processors, init=processors)
    starts = [0.0] * len(jobs)

    def job(j: int, size: int, runtime: float) -> Iterator[Any]:
        yield free.get(size)
        starts[j] = env.now
        yield env.timeout(runtime)
        yield free.put(size)

    def source() -> Iterator[Any]:
        for j, (submit, size, _, runtime) in enumerate(jobs):
            if submit > env.now:
                yield env.timeout(submit - env.now)
            env.process(job(j, size, runtime))

    env.process(source())
    env.run()
    return starts


@dataclass
class Easy:
    """EASY backfilling, first come, first served, on a counter of processors."""

    jobs: Sequence[Job]
    free: int
    env: Any = field(default_factory=simpy.Environment)
    waiting: list[int] = field(default_factory=list)
    running: list[tuple[float, int]] = field(default_factory=list)  # (believed end, processors), sorted

    def __post_init__(self) -> None:
        self.starts = [0.0] * len(self.jobs)

    def simulate(self) -> list[float]:
        """Start of every job (s)."""
        self.env.process(self.source())
        self.env.run()
        return self.starts

    def source(self) -> Iterator[Any]:
        for j, (submit, _, _, _) in enumerate(self.jobs):
            if submit > self.env.now:
                yield self.env.timeout(submit - self.env.now)
            self.waiting.append(j)
            self.schedule()

    def job(self, j: int, entry: tuple[float, int]) -> Iterator[Any]:
        yield self.env.timeout(self.jobs[j][3])
        self.free += entry[1]
        del self.running[bisect.bisect_left(self.running, entry)]
        self.schedule()

    def start(self, j: int) -> None:
        _, size, estimate, _ = self.jobs[j]
        self.starts[j] = self.env.now
        self.free -= size
        entry = (self.env.now + estimate, size)
        bisect.insort(self.running, entry)
        self.env.process(self.job(j, entry))

    def schedule(self) -> None:
        """Start from the front while it fits; then those behind that do not delay the head."""
        while self.waiting and self.jobs[self.waiting[0]][1] <= self.free:
            self.start(self.waiting.pop(0))
        if not self.waiting or self.free == 0:
            return
        shadow, spare = self.reservation(self.jobs[self.waiting[0]][1])
        kept = self.waiting[:1]
        for j in self.waiting[1:]:
            _, size, estimate, _ = self.jobs[j]
            in_time = self.env.now + estimate <= shadow
            if size <= self.free and (in_time or size <= spare):
                spare -= 0 if in_time else size
                self.start(j)
            else:
                kept.append(j)
        self.waiting = kept

    def reservation(self, size: int) -> tuple[float, int]:
        """When the head is believed to start, and the processors that are left beside it then."""
        free = self.free
        shadow = float("inf")
        for end, more in self.running:
            if end > shadow:
                break
            free += more
            if free >= size and shadow == float("inf"):
                shadow = end
        return shadow, free - size


def easy(jobs: Sequence[Job], processors: int) -> list[float]:
    """Start of every job (s), EASY; `jobs` in order of submit."""
    return Easy(jobs, processors).simulate()


def plain_jobs(workload: Any) -> list[Job]:
    """The columns that SimPy needs, as Python numbers."""
    jobs = workload.jobs
    return list(zip(jobs.submit.tolist(), jobs.gpus.astype(int).tolist(), jobs.estimate.tolist(), workload.runtime.tolist(), strict=True))


def main() -> None:
    import time

    import numpy as np

    from gpuyard import load_cluster, load_workload, parse_scheduler, simulate

    workload, cluster = load_workload("lublin:jobs=10000"), load_cluster("256")
    jobs = plain_jobs(workload)
    for name, run, scheduler in (("FCFS", fcfs, "fcfs/first/none"), ("EASY", easy, "fcfs/first/easy")):
        began = time.perf_counter()
        starts = np.array(run(jobs, 256))
        seconds = time.perf_counter() - began
        ours = simulate(workload, cluster, parse_scheduler(scheduler)).table["start"]
        equal = f"{(starts == ours).mean():.1%} of the starts equal gpuyard's"
        print(f"{name}: {len(jobs) / seconds:,.0f} jobs/s; mean wait {np.mean(starts - workload.jobs.submit):,.1f} s; {equal}")


if __name__ == "__main__":
    main()
