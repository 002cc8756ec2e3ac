"""Orderings: which job goes next. Lower goes first; ties go by (submit, index)."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from gpuyard.policies.slots import ordering

if TYPE_CHECKING:
    from gpuyard.engine.state import JobTable


@ordering("fcfs", title="first come, first served")
def first_come(jobs: JobTable, j: int, now: float) -> float:
    """The earliest submitted goes first."""
    return jobs.submit[j]


@ordering("lcfs", title="last come, first served")
def last_come(jobs: JobTable, j: int, now: float) -> float:
    """The latest submitted goes first."""
    return -jobs.submit[j]


@ordering("sjf", title="shortest job first")
def shortest(jobs: JobTable, j: int, now: float) -> float:
    """The shortest estimate goes first."""
    return jobs.estimate[j]


@ordering("ljf", title="longest job first")
def longest(jobs: JobTable, j: int, now: float) -> float:
    """The longest estimate goes first."""
    return -jobs.estimate[j]


@ordering("saf", title="smallest area first")
def smallest_area(jobs: JobTable, j: int, now: float) -> float:
    """The least GPU-seconds by estimate go first."""
    return jobs.estimate[j] * jobs.gpus[j]


@ordering("smallest", title="fewest GPUs first")
def smallest(jobs: JobTable, j: int, now: float) -> float:
    """The fewest GPUs go first."""
    return jobs.gpus[j]


@ordering("largest", title="most GPUs first")
def largest(jobs: JobTable, j: int, now: float) -> float:
    """The most GPUs go first."""
    return -jobs.gpus[j]


@ordering("srpt", title="shortest remaining time first")
def shortest_remaining(jobs: JobTable, j: int, now: float) -> float:
    """The least estimated work left goes first; with `preemption srpt` it is the preemptive rule."""
    return jobs.remaining[j]


@ordering("wfp3", title="WFP3", source="Tang et al. 2009")
def wfp3(jobs: JobTable, j: int, now: float) -> float:
    """−(wait / estimate)³ · GPUs: waiting in proportion to length, and size, count."""
    ratio = (now - jobs.submit[j]) / max(jobs.estimate[j], 1.0)
    return -(ratio * ratio * ratio) * jobs.gpus[j]


@ordering("unicep", title="UNICEP", source="Tang et al. 2009")
def unicep(jobs: JobTable, j: int, now: float) -> float:
    """−wait / (log₂ GPUs · estimate); one GPU or less counts as just above one, so that such jobs go first."""
    size = math.log2(max(jobs.gpus[j], 1.0) + 1e-15)
    return -(now - jobs.submit[j] + 1e-15) / (size * max(jobs.estimate[j], 1.0))


@ordering("f1", title="F1", source="Carastan-Santos and de Camargo 2017")
def f1(jobs: JobTable, j: int, now: float) -> float:
    """log₁₀(estimate) · GPUs + 870 · log₁₀(submit), learned by regression; zeros count as 0.1."""
    estimate = jobs.estimate[j] if jobs.estimate[j] > 0.0 else 0.1
    submit = jobs.submit[j] if jobs.submit[j] > 0.0 else 0.1
    return math.log10(estimate) * jobs.gpus[j] + 870.0 * math.log10(submit)


@ordering("edf", title="earliest deadline first")
def earliest_deadline(jobs: JobTable, j: int, now: float) -> float:
    """The earliest absolute deadline goes first; jobs without one come last."""
    return jobs.deadline[j]


@ordering("priority", title="static priority")
def static_priority(jobs: JobTable, j: int, now: float) -> float:
    """The highest priority goes first, then the earliest submitted."""
    return -jobs.priority[j]


@ordering("dynamic", title="dynamic heuristic: slack over priority")
def dynamic_heuristic(jobs: JobTable, j: int, now: float) -> float:
    """(deadline − now − remaining) / (priority + 1): the least slack for its importance goes first; negative priorities count as 0."""
    if math.isinf(jobs.deadline[j]):
        return 1e18 - jobs.priority[j]
    return (jobs.deadline[j] - now - jobs.remaining[j]) / (max(jobs.priority[j], 0.0) + 1.0)


@ordering("las", title="least attained service", source="Gu et al. 2019 (Tiresias)")
def least_attained(jobs: JobTable, j: int, now: float) -> float:
    """The least GPU-seconds received so far go first; needs preemption to matter."""
    return jobs.attained[j]


@ordering("multifactor", title="Slurm's fair share (multifactor priority)", source="Slurm, priority/multifactor")
def multifactor(
    jobs: JobTable,
    j: int,
    now: float,
    age: float = 1000.0,
    size: float = 1000.0,
    partition: float = 1000.0,
    qos: float = 1000.0,
    fairshare: float = 10000.0,
    max_age: float = 604800.0,
    half_life: float = 604800.0,
    small: float = 0.0,
) -> float:
    """Minus the weighted sum of five factors from 0 to 1: time in the queue over `max_age`, GPUs over the cluster's (`small=1`: 1 − that),
    the partition's and the QOS's priority over the highest, and 2^(−usage / fair share), usage decaying with `half_life`."""
    waited = min((now - jobs.queued[j]) / max(max_age, 1.0), 1.0)
    width = 1.0 - jobs.size_factor[j] if small > 0.0 else jobs.size_factor[j]
    fair = math.exp(-math.log(2.0) * jobs.usage[j] / jobs.fair_share[j])
    return -(age * waited + size * width + partition * jobs.partition_factor[j] + qos * jobs.qos_factor[j] + fairshare * fair)


@ordering("tiresias", title="discretised two-dimensional least attained service", source="Gu et al. 2019 (Tiresias)")
def tiresias(
    jobs: JobTable, j: int, now: float, threshold: float = 3600.0, second: float = math.inf, third: float = math.inf, promote: float = 8.0
) -> float:
    """The queue, from 0, that a job is in: how many of the thresholds its GPU-seconds have reached; first come, first served inside it.
    After a wait of `promote` × the time it has run it is back in queue 0, and only what it receives from then on counts."""
    running = jobs.status[j] == 2
    waited = (jobs.run_start[j] if running else now) - jobs.queued[j]
    service = jobs.attained[j]
    if jobs.ran[j] > 0.0 and waited >= promote * jobs.ran[j]:
        service = (now - jobs.run_start[j]) * jobs.gpus[j] if running else 0.0
    return (1.0 if service >= threshold else 0.0) + (1.0 if service >= second else 0.0) + (1.0 if service >= third else 0.0)
