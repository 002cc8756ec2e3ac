"""Run times predicted by gradient-boosted trees, fitted again and again to the jobs that have ended.

A job is described when its estimate is made, by what it asks for and by the last jobs of its user; when it has ended, that description is
what the model learns from. The median of the logarithm is predicted: on KTH-SP2 under FCFS with EASY the mean of |log(estimate / run time)|
is 1.27, that of `rolling` 1.29.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Protocol

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.estimator import FIRST_GUESS, SHORTEST, EndedLog, Past, bounded
from gpuyard.model.jobs import Jobs

RECENT = 20_000  # latest ended jobs, which are learned from
FEWEST = 50  # ended jobs before the first fit
GROWTH = 1.1  # ended jobs, over those at the last fit, from which another is worth its time
STRETCHES = 500  # of submissions, at most; descriptions are made at the beginning of each. KTH-SP2: error 1.34 with 10, 1.27 with 500
STRETCH = 16  # submissions of a stretch, at least, on average
DAY = 86400.0
MEMORY = 10  # run times that a group of jobs remembers
HISTORY = 10  # columns that describe the past of a job's user


@dataclass(frozen=True)
class Boosting:
    """Estimates by trees that are fitted up to `refits` times in a simulation."""

    refits: int = 10
    past: Past | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.refits <= 1000:
            raise UsageError(f"estimate source boosting: refits = {self.refits} does not lie in 1..1000")

    def begin(self, jobs: Jobs) -> BoostingEstimator:
        return BoostingEstimator(_span(jobs) / self.refits, self.past, self.refits)

    def period(self, jobs: Jobs) -> float:
        return _span(jobs) / max(min(STRETCHES, len(jobs) // STRETCH), 1)

    def after(self, past: Past) -> Boosting:
        return replace(self, past=past)


def _span(jobs: Jobs) -> float:
    return float(jobs.submit[-1] - jobs.submit[0]) if len(jobs) else 0.0


class BoostingEstimator:
    """Predicts by the last model. A refit is due every `every` s, where enough has ended since the last."""

    def __init__(self, every: float, past: Past | None, refits: int) -> None:
        self._every = every
        self._origin = 0.0 if past is None else past.origin
        self._memory = _Memory(past)
        self._numbers = {} if past is None else {name: k for k, name in enumerate(past.log.jobs.users)}
        self._asked: dict[int, Array] = {}  # job's id → its description
        self._known: deque[tuple[Array, float]] = deque(maxlen=RECENT)  # descriptions and log run times of what has ended
        self._ended, self._total = 0, 0.0  # jobs, s of their work
        self._model: _Regressor | None = None
        self._fitted = 0  # jobs that had ended when it was fitted
        self._due = -np.inf  # s, when the next refit is due
        if past is not None:
            self._ended, self._total = past.count, past.total
            self._fitted = _edge(past, refits)
            self._model = _fitted(past.log, self._fitted) if self._fitted else None

    def observe(self, now: float, jobs: Jobs, end: Array, work: Array) -> None:
        for key, seconds in zip(_keys(jobs), work.tolist(), strict=True):
            self._memory.add(key, seconds)
        for number, seconds in zip(jobs.id.tolist(), work.tolist(), strict=True):
            described = self._asked.pop(number, None)
            if described is not None:
                self._known.append((described, float(np.log1p(seconds))))
            self._ended += 1
            self._total += seconds

    def estimate(self, now: float, jobs: Jobs) -> Array:
        if now >= self._due and self._refit():
            self._due = now + self._every
        asked = _described(jobs, self._origin, self._number_users(jobs), self._memory)
        self._asked.update(zip(jobs.id.tolist(), asked, strict=True))
        predicted = np.full(len(jobs), np.nan) if self._model is None else np.expm1(_predicted(self._model, asked))
        return bounded(jobs, predicted, self._total / self._ended if self._ended else FIRST_GUESS)

    def _number_users(self, jobs: Jobs) -> Array:
        """Return (jobs,) the number of each job's user, the same in every call."""
        numbers = [self._numbers.setdefault(name, len(self._numbers)) for name in jobs.users]
        return np.array(numbers)[jobs.user]

    def _refit(self) -> bool:
        """Fit a new model, if enough has ended; returns whether it was."""
        past = self._memory.past
        if self._ended < max(FEWEST, GROWTH * self._fitted) or not self._known:
            return False
        known, target = np.array([row for row, _ in self._known]), np.array([value for _, value in self._known])
        if past is not None and len(target) < RECENT:
            rows = slice(max(past.count - (RECENT - len(target)), 0), past.count)
            known = np.concatenate([_descriptions(past.log)[rows], known])
            target = np.concatenate([np.log1p(past.log.work[rows]), target])
        self._model, self._fitted = _model(known, target), self._ended
        return True


# ── descriptions ──

_Key = tuple[str, tuple[float, float, float]]  # the user, and what the job asks for: GPUs, limit, cores


def _keys(jobs: Jobs) -> list[_Key]:
    asked = zip(jobs.gpus.tolist(), jobs.walltime.tolist(), jobs.cpus.tolist(), strict=True)
    return [(jobs.users[user], alike) for user, alike in zip(jobs.user.tolist(), asked, strict=True)]


class _Group:
    """Jobs that are alike, as far as they have ended: how many, and the log run times and used shares of the limit of the last."""

    __slots__ = ("count", "last", "total", "used")

    def __init__(self) -> None:
        self.count = 0
        self.total = 0.0  # of log run times
        self.last: deque[float] = deque(maxlen=MEMORY)  # log run times
        self.used: deque[float] = deque(maxlen=5)  # run times over the limits

    @classmethod
    def of(cls, log_run: Array, used: Array) -> _Group:
        """Make the group of jobs that have ended in this order."""
        made = cls()
        made.count, made.total = len(log_run), float(np.cumsum(log_run)[-1])  # added one by one, as in `add`
        made.last.extend(log_run[-MEMORY:].tolist())
        made.used.extend(used[-MEMORY:].tolist())
        return made

    def add(self, log_run: float, used: float) -> None:
        self.count += 1
        self.total += log_run
        self.last.append(log_run)
        self.used.append(used)

    def means(self) -> Iterable[float]:
        """Return the means of the last, the last two, and the last ten log run times."""
        last = list(self.last)
        return (_mean(last[-1:]), _mean(last[-2:]), _mean(last))


def _mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else -1.0  # trees can separate −1


class _Memory:
    """The groups: of each user, and of each user's jobs that ask for the same. A user's past is looked up when first asked for."""

    def __init__(self, past: Past | None = None) -> None:
        self.past = past
        self._users: dict[str, _Group] = {}
        self._twins: dict[_Key, _Group] = {}
        self._looked_up: set[str] = set()

    def add(self, key: _Key, seconds: float) -> None:
        user, twins = self._groups(key)
        log_run, used = float(np.log1p(seconds)), seconds / max(key[1][1], SHORTEST)
        user.add(log_run, used)
        twins.add(log_run, used)

    def describe(self, key: _Key) -> tuple[float, ...]:
        """Return HISTORY numbers about what the job's user has run."""
        user, twins = self._groups(key)
        counts = math.log1p(user.count), math.log1p(twins.count)
        so_far = user.total / user.count if user.count else -1.0
        return (_mean(list(user.used)), *counts, so_far, *user.means(), *twins.means())

    def _groups(self, key: _Key) -> tuple[_Group, _Group]:
        if self.past is not None and key[0] not in self._looked_up:
            self._looked_up.add(key[0])
            self._look_up(key[0], self.past)
        return self._users.setdefault(key[0], _Group()), self._twins.setdefault(key, _Group())

    def _look_up(self, name: str, past: Past) -> None:
        """Take over what is known of a user from the past."""
        rows = past.rows_of(name)
        if not len(rows):
            return
        kinds, kind = _alike(past.log)
        work = past.log.work[rows]
        log_run, used = np.log1p(work), work / np.maximum(past.log.jobs.walltime[rows], SHORTEST)
        self._users[name] = _Group.of(log_run, used)
        order = np.argsort(kind[rows], kind="stable")
        for part in np.split(order, np.flatnonzero(np.diff(kind[rows][order])) + 1):
            self._twins[name, kinds[kind[rows[part[0]]]]] = _Group.of(log_run[part], used[part])


@lru_cache(maxsize=4)
def _alike(log: EndedLog) -> tuple[list[tuple[float, float, float]], Array]:
    """Return what jobs of a log ask for, and (jobs,) which of these each does."""
    jobs = log.jobs
    kinds, kind = np.unique(np.stack([jobs.gpus, jobs.walltime, jobs.cpus], axis=1), axis=0, return_inverse=True)
    return [(gpus, limit, cores) for gpus, limit, cores in kinds.tolist()], kind.ravel()


def _described(jobs: Jobs, origin: float, users: Array, memory: _Memory) -> Array:
    """Return (jobs, features): what is known about each job. Missing numbers are −1. The jobs' clock begins at `origin` s of the log."""
    history = np.array([memory.describe(key) for key in _keys(jobs)]).reshape(len(jobs), HISTORY)
    clock = jobs.submit + origin
    columns = [
        np.log1p(np.where(np.isfinite(jobs.walltime), jobs.walltime, 0.0)), jobs.gpus, np.log1p(jobs.cpus), np.log1p(jobs.memory),
        jobs.priority, jobs.partition, jobs.job_class, jobs.qos, jobs.account, jobs.chunk, jobs.gpu_type,
        np.floor(clock % DAY / 3600.0), np.floor(clock % (7 * DAY) / DAY), users,
    ]  # fmt: skip
    return np.concatenate([np.stack(columns, axis=1), history], axis=1)


@lru_cache(maxsize=4)
def _descriptions(log: EndedLog) -> Array:
    """Return (jobs, features) of a log's jobs as each could be described at its submission, by the log's own clock."""
    jobs, memory = log.jobs, _Memory()
    keys, work, ends, submit = _keys(jobs), log.work.tolist(), log.end.tolist(), jobs.submit.tolist()
    history = np.empty((len(jobs), HISTORY))
    ended = 0
    for j in np.argsort(jobs.submit, kind="stable").tolist():
        while ended < len(ends) and ends[ended] <= submit[j]:
            memory.add(keys[ended], work[ended])
            ended += 1
        history[j] = memory.describe(keys[j])
    table = _described(jobs, 0.0, jobs.user, _Memory())
    table[:, -HISTORY:] = history
    return table


# ── models ──


class _Regressor(Protocol):
    """A fitted model of scikit-learn."""

    def predict(self, asked: Array) -> Array: ...


def _edge(past: Past, refits: int) -> int:
    """Return how many of the past jobs the first model is fitted to: windows that begin close to each other share it."""
    if past.count < FEWEST:
        return 0
    step = max(len(past.log.work) // refits, 1)
    return max(past.count // step * step, FEWEST)


@lru_cache(maxsize=64)
def _fitted(log: EndedLog, count: int) -> _Regressor:
    """Return a model of the first `count` jobs of a log to end."""
    rows = slice(max(count - RECENT, 0), count)
    return _model(_descriptions(log)[rows], np.log1p(log.work[rows]))


def _model(known: Array, target: Array) -> _Regressor:
    """Fit a model to `known` (n, features) and `target` (n,). Its own randomness is fixed."""
    try:
        from sklearn.ensemble import HistGradientBoostingRegressor
    except ImportError:
        raise UsageError("estimate source boosting: scikit-learn is not installed", hint="pip install 'gpuyard[learn]'") from None
    model = HistGradientBoostingRegressor(loss="absolute_error", max_iter=100, min_samples_leaf=20, random_state=0)
    with _one_thread().limit(limits=1):
        fitted: _Regressor = model.fit(known, target)
    return fitted


def _predicted(model: _Regressor, asked: Array) -> Array:
    with _one_thread().limit(limits=1):
        return model.predict(asked)


@lru_cache(maxsize=1)
def _one_thread() -> Any:
    """Return the control of scikit-learn's threads, which wait by spinning: on two busy cores they made it 15 times slower."""
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()
