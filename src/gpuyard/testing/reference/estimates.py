"""Estimates that the reference simulator makes while it runs: rolling means by hand, and any other estimator as the semantics page says."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from gpuyard.model.estimator import Estimator, Rolling
from gpuyard.model.workload import Workload
from gpuyard.testing.reference.state import JobState


class Estimates(Protocol):
    """Makes the estimates of one simulation, which tells it what happens."""

    def before(self, time: float) -> None:
        """Prepare for the instant at `time`; nothing of it has happened."""

    def end(self, job: JobState, now: float, work: float) -> None:
        """Take note that a job has ended after so much work."""

    def submit(self, job: JobState) -> None:
        """Set the estimate of a job that is submitted."""


def make_estimates(workload: Workload, jobs: list[JobState]) -> Estimates:
    """Make what estimates the jobs of one simulation."""
    predictor = workload.predictor
    if predictor is None:
        return Given()
    if isinstance(predictor, Rolling):
        return RollingMeans(workload, predictor)
    return Stretches(workload, jobs, predictor.begin(workload.jobs), predictor.period(workload.jobs))


class Given:
    """Every job has its estimate from the beginning."""

    def before(self, time: float) -> None: ...

    def end(self, job: JobState, now: float, work: float) -> None: ...

    def submit(self, job: JobState) -> None: ...


class RollingMeans:
    """The mean of the last run times of a user, from a list of all."""

    def __init__(self, workload: Workload, rolling: Rolling) -> None:
        self.last = rolling.last
        self.ended: list[tuple[str, float]] = []  # user and work, in the order of ends
        self.users = workload.jobs.users
        if rolling.past is not None:
            past = rolling.past.log.jobs
            self.ended = [
                (past.users[past.user[row]], float(rolling.past.log.work[row])) for row in range(rolling.past.count)
            ]  # fmt: skip

    def before(self, time: float) -> None: ...

    def end(self, job: JobState, now: float, work: float) -> None:
        self.ended.append((self.users[job.user], work))

    def submit(self, job: JobState) -> None:
        mine = [work for user, work in self.ended if user == self.users[job.user]][-self.last :]
        guess = job.walltime
        if mine:
            guess = added(mine) / len(mine)
        elif guess == float("inf"):
            every = [work for _, work in self.ended]
            guess = added(every) / len(every) if every else 3600.0
        job.estimate = max(min(guess, job.walltime), 1.0)


def added(values: list[float]) -> float:
    """Add numbers one by one; `sum` may round otherwise."""
    total = 0.0
    for value in values:
        total += value
    return total


class Stretches:
    """Asks an estimator for all submissions of a stretch, before the instant at which it begins."""

    def __init__(self, workload: Workload, jobs: list[JobState], estimator: Estimator, period: float) -> None:
        self.workload, self.jobs, self.estimator, self.period = workload, jobs, estimator, period
        self.news: list[tuple[int, float, float]] = []  # job, end, work
        self.asked: dict[int, float] = {}

    def before(self, time: float) -> None:
        first = next((job for job in self.jobs if job.submit == time and job.index not in self.asked), None)
        if first is None:
            return
        jobs = self.workload.jobs
        if self.news:
            rows, ends, work = (np.array(column) for column in zip(*self.news, strict=True))
            self.estimator.observe(time, jobs.with_table(jobs.table[rows]), ends, work)
            self.news = []
        stretch = [job.index for job in self.jobs if job.submit == time or time < job.submit < time + self.period]
        found = self.estimator.estimate(time, jobs.with_table(jobs.table[np.array(stretch)]))
        self.asked.update(zip(stretch, found.tolist(), strict=True))

    def end(self, job: JobState, now: float, work: float) -> None:
        self.news.append((job.index, now, work))

    def submit(self, job: JobState) -> None:
        job.estimate = self.asked[job.index]
