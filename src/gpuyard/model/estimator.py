"""Estimates of run times that are made while jobs are submitted: from what has ended by then, there, and from nothing else.

A workload may carry a `Predictor`. It makes an `Estimator` for each simulation, which is told of ends and asked about submissions; a
service that runs a real cluster can do the same. `Rolling` is also compiled into the engine.
"""

from __future__ import annotations

import operator
from collections import deque
from dataclasses import dataclass, replace
from functools import cached_property, reduce
from typing import TYPE_CHECKING, Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.jobs import Jobs

if TYPE_CHECKING:
    from gpuyard.model.workload import Workload

FIRST_GUESS = 3600.0  # s, for a job without a limit before any job has ended
SHORTEST = 1.0  # s
MOST_LAST = 100  # run times of a user that are averaged, at most


class Estimator(Protocol):
    """Estimates run times on one cluster, simulated or real."""

    def observe(self, now: float, jobs: Jobs, end: Array, work: Array) -> None:
        """Learn that `jobs` have ended, in this order, at `end` (jobs,) s and after `work` (jobs,) s on a reference GPU."""

    def estimate(self, now: float, jobs: Jobs) -> Array:
        """Return (jobs,) s on a reference GPU for jobs that are submitted now, or soon, before it is asked again."""


class Predictor(Protocol):
    """Makes the estimates of a workload's jobs while these are simulated."""

    @property
    def past(self) -> Past | None:
        """Return what had ended before the first of them was submitted; None: nothing is known."""

    def begin(self, jobs: Jobs) -> Estimator:
        """Make an estimator for one simulation of `jobs`, which knows the past."""

    def period(self, jobs: Jobs) -> float:
        """Return the seconds of submissions that are estimated together; 0: each on its own."""

    def after(self, past: Past) -> Predictor:
        """Return the same predictor with another past."""


def bounded(jobs: Jobs, work: Array, otherwise: float) -> Array:
    """Return (jobs,) s: estimates of `work` (nan: none), at most the limit. A gap becomes the limit, or `otherwise` where there is none."""
    limit = jobs.walltime
    fallback = np.where(np.isfinite(limit), limit, otherwise)
    return np.maximum(np.minimum(np.where(np.isnan(work), fallback, work), limit), SHORTEST)


def unestimated(jobs: Jobs) -> Array:
    """Return (jobs,) s: what is believed before anything has ended."""
    return bounded(jobs, np.full(len(jobs), np.nan), FIRST_GUESS)


# ── history ──


@dataclass(frozen=True, eq=False)
class EndedLog:
    """The jobs of a log in the order in which they ended there."""

    jobs: Jobs
    work: Array  # (jobs,) s on a reference GPU
    end: Array  # (jobs,) s

    @classmethod
    def of(cls, workload: Workload) -> EndedLog:
        """Sort a workload's jobs by the log's ends; without a logged start, a job ends at the earliest it could have."""
        start = workload.known_start
        end = np.where(np.isfinite(start), start, workload.jobs.submit) + workload.runtime
        order = np.argsort(end, kind="stable")
        return cls(workload.jobs.with_table(workload.jobs.table[order]), workload.runtime[order], end[order])

    def before(self, instant: float) -> Past:
        """Return what had ended at an instant, s of the log, which is the origin of what follows."""
        return Past(self, int(np.searchsorted(self.end, instant, "right")), instant)

    @cached_property
    def total(self) -> Array:
        """Return (jobs,) s: the work of all jobs up to each, added one by one."""
        return np.cumsum(self.work)

    @cached_property
    def rows_of_users(self) -> dict[str, Array]:
        """Return the rows of each user's jobs, by label."""
        user = self.jobs.user
        order = np.argsort(user, kind="stable")
        edges = np.searchsorted(user[order], np.arange(len(self.jobs.users) + 1))
        return {name: order[edges[k] : edges[k + 1]] for k, name in enumerate(self.jobs.users)}


@dataclass(frozen=True, eq=False)
class Past:
    """The first `count` jobs of a log to end: those that had ended before a window of the log. The window's origin is at `origin` there."""

    log: EndedLog
    count: int
    origin: float  # s

    def rows_of(self, user: str) -> Array:
        """Return the rows of the user's jobs in the log, in the order of their ends."""
        rows = self.log.rows_of_users.get(user, np.zeros(0, np.int64))
        return rows[: int(np.searchsorted(rows, self.count))]

    def last_of(self, user: str, most: int) -> Array:
        """Return the work of the user's last jobs to end, at most so many, oldest first."""
        return self.log.work[self.rows_of(user)[-most:]]

    @property
    def total(self) -> float:
        """Return the s of work of all of them."""
        return float(self.log.total[self.count - 1]) if self.count else 0.0


# ── the mean of the user's last ──


@dataclass(frozen=True)
class Rolling:
    """Estimates by the mean of the user's last run times to have ended (Tsafrir, Etsion and Feitelson 2007)."""

    last: int = 2
    past: Past | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.last <= MOST_LAST:
            raise UsageError(f"estimate source rolling: last = {self.last} does not lie in 1..{MOST_LAST}")

    def begin(self, jobs: Jobs) -> RollingEstimator:
        made = RollingEstimator(self.last)
        if self.past is not None:
            made.recent = {name: deque(self.past.last_of(name, self.last).tolist(), self.last) for name in jobs.users}
            made.ended, made.total = self.past.count, self.past.total
        return made

    def period(self, jobs: Jobs) -> float:
        return 0.0

    def after(self, past: Past) -> Rolling:
        return replace(self, past=past)


class RollingEstimator:
    """Follows the same rule outside the engine, for services. Users are told apart by their labels."""

    def __init__(self, last: int) -> None:
        self._last = last
        self.recent: dict[str, deque[float]] = {}  # user → work of the last jobs to end, oldest first
        self.ended = 0
        self.total = 0.0  # s of work of all that have ended

    def observe(self, now: float, jobs: Jobs, end: Array, work: Array) -> None:
        for user, value in zip(jobs.user.tolist(), work.tolist(), strict=True):
            self.recent.setdefault(jobs.users[user], deque(maxlen=self._last)).append(value)
            self.ended += 1
            self.total += value

    def estimate(self, now: float, jobs: Jobs) -> Array:
        known = [self.recent.get(jobs.users[user]) for user in jobs.user.tolist()]
        means = np.array([reduce(operator.add, values) / len(values) if values else np.nan for values in known])  # `sum` rounds otherwise
        return bounded(jobs, means, self.total / self.ended if self.ended else FIRST_GUESS)


def fitted_before(workload: Workload) -> Workload:
    """Return the workload with estimates that are made once, before its first submission, unless the engine makes them itself.

    This is how environments take a predictor that would have to stop the simulation. Without a past there is nothing to learn from.
    """
    predictor = workload.predictor
    if predictor is None or isinstance(predictor, Rolling):
        return workload
    if predictor.past is None or not predictor.past.count:
        what = f"estimates by {workload.estimate_source}: environments take those of a model that was fitted before the first submission,"
        raise UsageError(f"{what} and no job had ended by then", hint="use rolling, or windows of a trace from later on (from=0.3)")
    jobs = workload.jobs
    return workload.with_made_estimates(predictor.begin(jobs).estimate(float(jobs.submit[0]) if len(jobs) else 0.0, jobs))
