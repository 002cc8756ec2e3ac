"""The balanced objective: slowdown, deadlines, wait, use, queue and power in one number."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.rows.sums import MOST_POWER, MOST_QUEUE, MOST_SLOWDOWN, MOST_WAIT
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import accepted, has_status, ratio
from gpuyard.metrics.jobs import NONE_ACCEPTED, slowdown, wait
from gpuyard.model.result import Result

STEP = 60.0  # s: how often utilisation, queue and power are counted


@dataclass(frozen=True)
class BalancedWeights:
    """The weights of the balanced objective, for judging and for rewards; all but the utilisation's count against a scheduler."""

    slowdown: float = 1.0  # per job: min(slowdown, 10) / 10
    deadline: float = 5.0  # per job that missed its deadline
    wait: float = 0.5  # per job: min(wait, 1 h) / 1 h
    utilisation: float = 0.1  # per step: share of the devices in use
    queue: float = 0.1  # per step: min(waiting jobs, 100) / 100
    power: float = 0.05  # per step: watts over the most that the devices could draw
    watts: float = 0.0  # per step: min(watts, 800) / 800, as first published; fifteen idle A100 draw that much

    def terms(self) -> dict[str, float]:
        """Return the weights by the terms that rewards are made of, see gpuyard.envs.kernels.WeightRow."""
        return {
            "capped_slowdown": -self.slowdown, "missed": -self.deadline, "capped_wait": -self.wait, "utilisation": self.utilisation,
            "queue": -self.queue, "power": -self.power, "watts": -self.watts,
        }  # fmt: skip


@metric(
    "balanced",
    title="balanced objective",
    unit="1",
    better="higher",
    kind="run",
    formula="(Σ over jobs (−min(slowdown, 10)/10 − 5·[deadline missed] − 0.5·min(wait, 3600 s)/3600 s)"
    " + Σ over minutes (0.1·utilisation − 0.1·min(queue, 100)/100 − 0.05·power/most power)) / jobs",
    covers="every accepted job, with all its time; the timeline from the first submit to the last end, in steps of 60 s",
    missing=NONE_ACCEPTED,
    parameters=BalancedWeights,
)
def balanced(result: Result, weights: BalancedWeights = BalancedWeights()) -> float:  # noqa: B008 - frozen
    """The reward of a meta-scheduler, per job. Killed and unfinished jobs have missed their deadlines.

    Power counts as a share of what the devices draw when all are busy, so that it means the same on every cluster. Other weights:
    `balanced:deadline=2,power=0`; with `power=0,watts=0.05` it is min(power, 800 W)/800 W, as first published for a small node.
    """
    keep = accepted(result)
    if not keep.any():
        return np.nan
    deadline = result.workload.jobs.deadline
    missed = np.isfinite(deadline) & ~(has_status(result, "done") & (result.table["end"] <= deadline))
    per_job = -weights.slowdown * np.minimum(slowdown(result), MOST_SLOWDOWN) / MOST_SLOWDOWN - weights.deadline * missed
    per_job -= weights.wait * np.minimum(wait(result), MOST_WAIT) / MOST_WAIT
    bins = result.timeline
    use = np.divide(bins["busy"], bins["up"], out=np.zeros(len(bins)), where=bins["up"] > 0)
    rate = weights.utilisation * use - weights.queue * np.minimum(bins["queue"], MOST_QUEUE) / MOST_QUEUE
    watts, most = _watts(result)
    rate -= weights.power * np.divide(watts, most, out=np.zeros(len(bins)), where=most > 0)
    if weights.watts:
        rate -= weights.watts * np.minimum(watts, MOST_POWER) / MOST_POWER
    return float((per_job[keep].sum() + float(rate @ bins["span"]) / STEP) / keep.sum())


def _watts(result: Result) -> tuple[Array, Array]:
    """Return (bins,) watts, with the busy devices spread over the types as over the whole run; and those if all devices were busy."""
    types = result.cluster.types
    busy = np.array([result.totals.get(f"busy/{kind.name}", 0.0) for kind in types])
    up = np.array([result.totals.get(f"up/{kind.name}", 0.0) for kind in types])
    idle = np.array([kind.idle_watts for kind in types])
    full = np.array([kind.busy_watts for kind in types])
    of_busy = ratio(float((full - idle) @ busy), float(busy.sum())) if busy.any() else 0.0
    of_up, of_full = (ratio(float(each @ up), float(up.sum())) if up.any() else 0.0 for each in (idle, full))
    there = result.timeline["up"]
    return there * of_up + result.timeline["busy"] * of_busy, there * of_full
