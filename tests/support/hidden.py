"""Other hidden run times where nobody can know them yet, and what was decided until then."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.result import Result
from gpuyard.model.workload import Workload


def otherwise(workload: Workload, result: Result, now: float, rng: np.random.Generator) -> Workload:
    """The same workload with other hidden run times where, at `now`, nobody can know them.

    Jobs that have not started before `now` get any; those that have and have not ended get longer ones, or keep what they had.
    Run times of 0 stay: such a job that starts at `now` is seen to end at `now`, and a second pass of that instant follows.
    """
    start, end = result.table["start"], result.table["end"]
    runtime = workload.runtime.copy()
    unstarted = ~(start < now) & (runtime > 0)
    runtime[unstarted] = rng.permutation(runtime[unstarted]) * rng.choice([0.3, 1.0, 3.0], int(unstarted.sum()))
    alive = (start < now) & ~(end <= now)
    runtime[alive] += rng.choice([0.0, 5.0, 50.0], int(alive.sum()))
    return replace(workload, runtime=runtime)


def decisions_until(result: Result, now: float) -> Array:
    """Who was started where and when, and until when, as far as it is known at `now`."""
    known = result.segments[result.segments["start"] <= now].copy()
    known["end"] = np.where(known["end"] <= now, known["end"], np.inf)
    return np.sort(known, order=("start", "job", "node"))
