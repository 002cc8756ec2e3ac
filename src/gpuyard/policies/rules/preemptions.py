"""The built-in preemption rules: running jobs with a higher score than the head may be stopped for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuyard.policies.rules.orderings import tiresias
from gpuyard.policies.slots import PREEMPTIONS, Preemption, preemption, rank

if TYPE_CHECKING:
    from gpuyard.engine.state import JobTable

PREEMPTIONS.add("none", Preemption("none", "running jobs run to their end"))


@preemption("srpt", title="shortest remaining time: stop what has more left")
def srpt(jobs: JobTable, j: int, now: float) -> float:
    """Estimated work left."""
    return jobs.remaining[j]


@preemption("priority", title="stop lower priorities")
def priority(jobs: JobTable, j: int, now: float) -> float:
    """Higher priority is more important."""
    return -jobs.priority[j]


@preemption("las", title="two queues by attained service: stop what has passed the threshold", every=60.0)
def las_two_queues(jobs: JobTable, j: int, now: float, threshold: float = 3600.0) -> float:
    """0 below `threshold` GPU-seconds of service, 1 above."""
    return 1.0 if jobs.attained[j] >= threshold else 0.0


preemption("tiresias", title="stop what is in a lower queue of Tiresias", every=60.0)(tiresias)


# ── rank rules: all waiting jobs and all running ones that say they may be stopped compete ──


@rank("srpt-area", title="least estimated work left × GPUs, through the rank pass")
def srpt_area(jobs: JobTable, j: int, now: float) -> float:
    """Estimated work left. A job that has outlived its estimate is taken to need twice as long, and again: else nothing would stop it."""
    left = jobs.remaining[j]
    if left > 0:
        return left
    age = jobs.attained[j] / jobs.gpus[j] if jobs.gpus[j] > 0 else jobs.ran[j]
    length = max(jobs.estimate[j], 1.0)
    while length <= age:
        length *= 2.0
    return length - age


@rank("las-log2", title="least attained service in levels of a factor of two, through the rank pass")
def las_log2(jobs: JobTable, j: int, now: float) -> float:
    """Seconds on the devices so far."""
    return jobs.attained[j] / jobs.gpus[j] if jobs.gpus[j] > 0 else jobs.ran[j]
