"""The balanced objective: slowdown, deadlines, wait, use, queue and power in one number."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import accepted, has_status
from gpuyard.metrics.jobs import NONE_ACCEPTED, slowdown, wait
from gpuyard.model.result import Result

STEP = 60.0  # s: how often use, queue and power are counted
LATE, WAIT, USE, QUEUE, POWER = 5.0, 0.5, 0.1, 0.1, 0.05  # weights; that of the slowdown is 1
MOST_SLOWDOWN, MOST_WAIT, MOST_QUEUE, MOST_POWER = 10.0, 3600.0, 100.0, 800.0  # 1, s, jobs, watts


@metric(
    "balanced",
    title="balanced objective",
    unit="1",
    better="higher",
    kind="run",
    formula="(Σ over jobs (−min(slowdown, 10)/10 − 5·[deadline missed] − 0.5·min(wait, 3600 s)/3600 s)"
    " + Σ over minutes (0.1·utilisation − 0.1·min(queue, 100)/100 − 0.05·min(power, 800 W)/800 W)) / jobs",
    covers="every accepted job, with all its time; the timeline from the first submit to the last end, in steps of 60 s",
    missing=NONE_ACCEPTED,
)
def balanced(result: Result) -> float:
    """The reward of a meta-scheduler, per job. Killed and unfinished jobs have missed their deadlines."""
    keep = accepted(result)
    if not keep.any():
        return np.nan
    deadline = result.workload.jobs.deadline
    missed = np.isfinite(deadline) & ~(has_status(result, "done") & (result.table["end"] <= deadline))
    per_job = -np.minimum(slowdown(result), MOST_SLOWDOWN) / MOST_SLOWDOWN - LATE * missed
    per_job -= WAIT * np.minimum(wait(result), MOST_WAIT) / MOST_WAIT
    bins = result.timeline
    use = np.divide(bins["busy"], bins["up"], out=np.zeros(len(bins)), where=bins["up"] > 0)
    rate = USE * use - QUEUE * np.minimum(bins["queue"], MOST_QUEUE) / MOST_QUEUE
    rate -= POWER * np.minimum(_watts(result), MOST_POWER) / MOST_POWER
    return float((per_job[keep].sum() + float(rate @ bins["span"]) / STEP) / keep.sum())


def _watts(result: Result) -> Array:
    """(bins,) power, with the busy devices spread over the types as over the whole run."""
    types = result.cluster.types
    busy = np.array([result.totals.get(f"busy/{kind.name}", 0.0) for kind in types])
    up = np.array([result.totals.get(f"up/{kind.name}", 0.0) for kind in types])
    idle = np.array([kind.idle_watts for kind in types])
    extra = np.array([kind.busy_watts for kind in types]) - idle
    of_busy = float(extra @ busy) / busy.sum() if busy.sum() > 0 else 0.0
    of_up = float(idle @ up) / up.sum() if up.sum() > 0 else 0.0
    watts: Array = result.timeline["up"] * of_up + result.timeline["busy"] * of_busy
    return watts
