"""Metrics of jobs: one value per job, or one per run that needs only the jobs' rows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.rows.sums import SHORT
from gpuyard.errors import UsageError
from gpuyard.metrics.base import metric
from gpuyard.metrics.facts import accepted, end_or_horizon, has_status, jain, last_submit, length, once, ratio, window
from gpuyard.model.result import Result

ACCEPTED = "every accepted job; an unfinished one with the time until the horizon, a lower bound; rejected ones are left out"
RUNTIME_COVERS = ACCEPTED + "; for a killed job the runtime is what it ran, if that is less"
SUBMITTED = "every submitted job"
NO_JOBS = "there are no jobs"
NONE_ACCEPTED = "no job was accepted"


@metric(
    "wait", title="wait", unit="s", better="lower", formula="start − submit", source="Feitelson & Rudolph 1998", covers=ACCEPTED,
    missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def wait(result: Result) -> Array:
    """Time from submit to the first start. Time in the queue after a preemption is not included: see `waiting`."""
    start = np.where(np.isnan(result.table["start"]), end_or_horizon(result), result.table["start"])
    return np.where(accepted(result), start - result.workload.jobs.submit, np.nan)


@metric(
    "waiting", title="time in the queue", unit="s", better="lower", formula="max(0, end − submit − ran)", covers=ACCEPTED,
    missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def waiting(result: Result) -> Array:
    """All the time without devices, also after preemptions and failures. Equal to `wait` when nothing is ever stopped."""
    without: Array = np.maximum(turnaround(result) - result.table["ran"], 0.0)
    return without


@metric(
    "turnaround", title="turnaround (JCT)", unit="s", better="lower", formula="end − submit", source="Feitelson & Rudolph 1998",
    covers=ACCEPTED, missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def turnaround(result: Result) -> Array:
    """Time from submit to end; reports also call it job completion time, flow time or response time."""
    return end_or_horizon(result) - result.workload.jobs.submit


def alone(result: Result) -> Array:
    """Return (jobs,) s on the reference GPU without waiting; for a killed job no more than it ran."""
    runtime = result.workload.runtime
    return np.where(has_status(result, "killed"), np.minimum(runtime, result.table["ran"]), runtime)


@metric(
    "slowdown", title="slowdown", unit="1", better="lower", formula="(end − submit) / runtime", source="Feitelson & Rudolph 1998",
    covers=RUNTIME_COVERS, missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def slowdown(result: Result) -> Array:
    """Turnaround over the runtime on the reference GPU, so a faster device can bring it below 1.
    A job with a runtime of 0 s counts as if it had run for 1 s: (wait + 1) / 1."""
    needed = alone(result)
    zero = np.where(needed == 0, 1.0, 0.0)
    stretched: Array = (turnaround(result) + zero) / (needed + zero)
    return stretched


@metric(
    "bsld", title="bounded slowdown", unit="1", better="lower", formula="max(1, (end − submit) / max(runtime, 10 s))",
    source="Feitelson 2001", covers=RUNTIME_COVERS, missing=NONE_ACCEPTED,
)  # fmt: skip
@once
def bounded_slowdown(result: Result) -> Array:
    """Slowdown in which jobs under 10 s do not dominate. The runtime is the one on the reference GPU."""
    return np.maximum(turnaround(result) / np.maximum(alone(result), SHORT), 1.0)


@dataclass(frozen=True)
class PriorityWeights:
    """How much more a job counts than one whose priority is lower by 1."""

    base: float = 4.0

    def __post_init__(self) -> None:
        if not self.base >= 1:
            raise UsageError(f"metric weighted_slowdown: base={self.base:g} is below 1", hint="a job of higher priority counts more")


@metric(
    "weighted_slowdown", title="slowdown by priority", unit="1", better="lower", kind="run",
    formula="Σ w·slowdown / Σ w over jobs, w = base^priority, base = 4", covers=RUNTIME_COVERS, missing=NONE_ACCEPTED, grouped=True,
    parameters=PriorityWeights,
)  # fmt: skip
def weighted_slowdown(result: Result, weights: PriorityWeights = PriorityWeights()) -> float:  # noqa: B008 - frozen
    """Mean slowdown in which a job counts four times as much as one whose priority is lower by 1, or `weighted_slowdown:base=2`.
    With priorities in the hundreds only jobs of the highest one count. Where all priorities are equal it is the mean slowdown."""
    keep = accepted(result)
    if not keep.any():
        return np.nan
    priority = result.workload.jobs.priority[keep]
    weight = weights.base ** (priority - priority.max())  # the largest is 1
    return float(weight @ slowdown(result)[keep] / weight.sum())


@metric(
    "fairness", title="fairness over jobs", unit="1", better="higher", kind="run",
    formula="Jain's index (Σx)² / (n·Σx²) over jobs, x = 1 / bsld", source="Jain, Chiu & Hawe 1984", covers=RUNTIME_COVERS,
    missing=NONE_ACCEPTED, grouped=True,
)  # fmt: skip
def fairness(result: Result) -> float:
    """Jain's index of the share of its undisturbed speed that each job got. The index measures what is received, hence
    1 / bsld and not bsld, where a few huge values would decide alone. 1: all equal; 1/n: one job got everything."""
    return jain(1.0 / bounded_slowdown(result))


@metric(
    "fairness_users", title="fairness over users", unit="1", better="higher", kind="run",
    formula="Jain's index over users, x = mean of 1 / bsld over the user's jobs", source="Jain, Chiu & Hawe 1984", covers=RUNTIME_COVERS,
    missing=NONE_ACCEPTED, grouped=True,
)  # fmt: skip
def fairness_users(result: Result) -> float:
    """Fairness with every user counting once, whatever the number of jobs. A workload with one user has 1."""
    keep = accepted(result)
    share = 1.0 / bounded_slowdown(result)[keep]
    user = result.workload.jobs.user[keep]
    count = np.bincount(user)
    present = count > 0
    return jain(np.bincount(user, weights=share)[present] / count[present])


@metric(
    "makespan", title="makespan", unit="s", better="lower", kind="run", formula="max(end) − min(submit)",
    covers="jobs that ended (done or killed); submit of every submitted job", missing="no job ended", grouped=True,
)  # fmt: skip
def makespan(result: Result) -> float:
    """Time from the first submit to the last end."""
    end = result.table["end"][~np.isnan(result.table["end"])]
    submit = result.workload.jobs.submit[~has_status(result, "pending")]
    return float(end.max() - submit.min()) if len(end) else np.nan


@metric(
    "throughput", title="throughput", unit="1/h", better="higher", kind="run",
    formula="jobs done by the last submit / (last submit − first submit)",
    covers="jobs done while jobs came; killed, rejected and unfinished jobs add nothing", missing="no time passed", grouped=True,
)  # fmt: skip
def throughput(result: Result) -> float:
    """Jobs done per hour while jobs came: until the last submit, or the last end if all came at once. Groups are divided by the same
    time, so they add up to the run's value."""
    first, last = window(result)[0], last_submit(result)
    done = has_status(result, "done") & (result.table["end"] <= last)
    return ratio(float(done.sum()) * 3600.0, last - first)


@metric(
    "throughput_drained", title="throughput of the whole run", unit="1/h", better="higher", kind="run",
    formula="jobs done / (last end − first submit)",
    covers="jobs done over the whole run's window; killed, rejected and unfinished jobs add nothing", missing="no time passed",
    grouped=True,
)  # fmt: skip
def throughput_drained(result: Result) -> float:
    """Jobs done per hour until the last one has ended, which the longest job decides more than the scheduler."""
    return float(has_status(result, "done").sum()) / length(result) * 3600.0


@metric(
    "deadline_met", title="deadlines met", unit="1", better="higher", formula="1 if done and end ≤ deadline, else 0",
    covers="every submitted job with a deadline; killed, rejected and unfinished jobs have missed it", missing="no job has a deadline",
)  # fmt: skip
@once
def deadline_met(result: Result) -> Array:
    """Whether the deadline was met: the mean is the share of deadlines met (SLA), the sum their number."""
    deadline = result.workload.jobs.deadline
    met = has_status(result, "done") & (result.table["end"] <= deadline)
    return np.where(np.isfinite(deadline) & ~has_status(result, "pending"), met, np.nan)


@metric(
    "tardiness", title="tardiness", unit="s", better="lower", formula="max(0, end − deadline)", source="Pinedo 2016",
    covers=ACCEPTED + "; only jobs with a deadline", missing="no accepted job has a deadline",
)  # fmt: skip
@once
def tardiness(result: Result) -> Array:
    """How late the job was; 0 if in time."""
    deadline = result.workload.jobs.deadline
    late = np.maximum(end_or_horizon(result) - np.where(np.isfinite(deadline), deadline, 0.0), 0.0)
    return np.where(np.isfinite(deadline), late, np.nan)


@metric(
    "gpu_hours", title="GPU time", unit="GPU·h", better="neither", formula="ran × gpus / 3600",
    covers="every accepted job, with all its runs; rejected ones are left out", missing=NONE_ACCEPTED,
)  # fmt: skip
def gpu_hours(result: Result) -> Array:
    """GPU-hours held, lost work and restarts included; the sum is the GPU time given to all."""
    return np.where(accepted(result), result.table["gpu_seconds"] / 3600.0, np.nan)


@metric(
    "preemptions", title="preemptions", unit="1", better="lower", formula="times stopped and requeued, for whatever reason",
    covers="every accepted job; rejected ones are left out", missing=NONE_ACCEPTED,
)  # fmt: skip
def preemptions(result: Result) -> Array:
    """Stops per job, including those by node failures (`failures` counts only these). The sum is the number in the run."""
    return np.where(accepted(result), result.table["preemptions"], np.nan)


def _share(result: Result, *names: str) -> Array:
    return np.where(has_status(result, *names), 1.0, 0.0)


@metric("completed", title="completed", unit="1", better="higher", formula="1 if done, else 0", covers=SUBMITTED, missing=NO_JOBS)
def completed(result: Result) -> Array:
    """Whether the job was done: the mean is the completion rate, the sum the number of jobs done."""
    return _share(result, "done")


@metric("killed", title="killed", unit="1", better="lower", formula="1 if killed, else 0", covers=SUBMITTED, missing=NO_JOBS)
def killed(result: Result) -> Array:
    """Whether the job was stopped for good at its walltime."""
    return _share(result, "killed")


@metric("rejected", title="rejected", unit="1", better="lower", formula="1 if rejected, else 0", covers=SUBMITTED, missing=NO_JOBS)
def rejected(result: Result) -> Array:
    """Whether the job was refused at submit because it does not fit on its partition even when empty."""
    return _share(result, "rejected")


@metric(
    "unfinished", title="unfinished", unit="1", better="lower", formula="1 if neither done, killed nor rejected, else 0",
    covers=SUBMITTED + ", and in a run that was stopped early those still to be submitted", missing=NO_JOBS,
)  # fmt: skip
def unfinished(result: Result) -> Array:
    """Whether the job was waiting, running or still to be submitted when the run ended."""
    return _share(result, "pending", "waiting", "running")
