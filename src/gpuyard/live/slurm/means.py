"""Changes where jobs stand in Slurm's queue: by site factors under priority/multifactor, by priorities under priority/basic.

A site factor is added to what Slurm works out, and its owner cannot change it. A priority under priority/basic is a number that Slurm keeps
until it is told to `release` the job: then the job stands behind all others again, so releasing all in the order of submission is a reset.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from gpuyard.live.deployment.modes import Update
from gpuyard.live.deployment.ordering import QueuedJob, plan_offsets, plan_priorities
from gpuyard.live.slurm.commands import SlurmError, call, read_jobs, send, went
from gpuyard.live.slurm.text import site_factors
from gpuyard.live.state.site import SiteJob

PATIENCE = 30.0  # s
Touches = Callable[[SiteJob], bool]  # whether a job is ours to touch: the operator may have excluded it


class Means(Protocol):
    """A way to change the order of waiting jobs."""

    def read(self, patience: float) -> dict[int, int]:
        """Return what was added to each job's own priority, as far as that can be known and is not 0."""

    def plan(self, order: Sequence[QueuedJob], within: int) -> list[tuple[int, int]]:
        """Return (job, value) for those that must change, in the order of sending."""

    def update(self, job: int, value: int) -> Update:
        """Return what sets one job's value."""

    def reset(self, patience: float, touches: Touches) -> tuple[int, Mapping[str, str]]:
        """Put back every job that is ours to touch; return how many were sent, and who did not take it."""


class SiteFactors:
    """Site factors, under priority/multifactor."""

    def read(self, patience: float) -> dict[int, int]:
        """Return the site factors that are not 0."""
        return {job: site for job, site in read_site_factors(patience).items() if site}

    def plan(self, order: Sequence[QueuedJob], within: int) -> list[tuple[int, int]]:
        """Return the smallest set of changes, within ±`within`."""
        return plan_offsets(order, within)

    def update(self, job: int, value: int) -> Update:
        """Set a site factor."""
        return Update(str(job), f"sitefactor={value}")

    def reset(self, patience: float, touches: Touches) -> tuple[int, Mapping[str, str]]:
        """Set the site factors back to 0, of waiting and running jobs.

        Slurm shows the factors of jobs alone that may start now. The others get a 0 whether they need it or not.
        """
        known, queue = read_site_factors(patience), [job for job in read_jobs(patience) if touches(job)]
        jobs = sorted({job.base for job in queue} | {job.id for job in queue})
        changes = [(job, 0) for job in jobs if known.get(job, -1) != 0]
        failed = set_site_factors(changes, patience)
        return len(changes), {job: why for job, why in failed.items() if not went(why)}


class Priorities:
    """Priorities as numbers, under priority/basic."""

    def read(self, patience: float) -> dict[int, int]:
        """Return nothing: Slurm does not keep what a priority was before."""
        return {}

    def plan(self, order: Sequence[QueuedJob], within: int) -> list[tuple[int, int]]:
        """Return the smallest set of changes."""
        return plan_priorities(order)

    def update(self, job: int, value: int) -> Update:
        """Set a priority."""
        return Update(str(job), f"priority={value}")

    def reset(self, patience: float, touches: Touches) -> tuple[int, Mapping[str, str]]:
        """Un-pin the waiting jobs, in the order of submission, so that they stand as if nothing had been changed. Held jobs stay held."""
        free = (job for job in read_jobs(patience) if job.waits and job.why != "held" and job.priority > 0 and touches(job))
        waiting = sorted(free, key=lambda job: (job.submit, job.base))
        jobs = dict.fromkeys(job.base for job in waiting)
        failed = send([Update(str(job), "", "release") for job in jobs], patience)
        return len(jobs), {job: why for job, why in failed.items() if not went(why)}


MEANS: Mapping[str, type[SiteFactors] | type[Priorities]] = {"priority/multifactor": SiteFactors, "priority/basic": Priorities}


def read_site_factors(patience: float = PATIENCE) -> dict[int, int]:
    """Return the site factor of each waiting job that Slurm works out a priority for; none under priority/basic."""
    try:
        return site_factors(call(["sprio", "-o", "%i|%S"], patience))
    except SlurmError as error:
        if "priority plugin" in str(error):
            return {}
        raise


def set_site_factors(changes: Sequence[tuple[int, int]], patience: float = PATIENCE) -> dict[str, str]:
    """Set the site factors of jobs and whole arrays; return who did not take theirs, and why."""
    return send([SiteFactors().update(job, site) for job, site in changes], patience)
