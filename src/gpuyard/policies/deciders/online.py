"""Bandits as schedulers: within one simulation they learn which of several schedulers does best, from the jobs that have ended."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.decision import Decision
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.deciders.bandits import Bandit, EpsilonGreedy, EpsilonGreedySettings, Exp3, Exp3Settings, LinUcb, LinUcbSettings
from gpuyard.policies.schedulers import Several, decider
from gpuyard.policies.text import parse_slots

HEURISTICS = ("fcfs", "priority", "edf", "srpt", "dynamic")  # what a meta-scheduler chooses from by default
FEATURES = 4
LATE, WAIT = 5.0, 0.5  # weights of a missed deadline and of the wait; that of the slowdown is 1
MOST_SLOWDOWN, MOST_WAIT = 10.0, 3600.0  # 1, s
_FIVE = Several(tuple(parse_slots(text) for text in HEURISTICS))


class Online:
    """A bandit over schedulers. Every `every` seconds it learns the worth of its last choice, and chooses again.

    Worth is the mean over the jobs that ended since of −min(slowdown, 10)/10 − 5·[deadline missed] − 0.5·min(wait, 1 h)/1 h. Where none
    has ended nothing is learned.
    """

    def __init__(self, several: Several, bandit: Bandit, every: float) -> None:
        self._schedulers = [scheduler.begin() for scheduler in several.schedulers]
        self._labels = [scheduler.label for scheduler in several.schedulers]
        self._idle = all(not scheduler.preemption.stops for scheduler in several.schedulers)
        self._bandit, self._every = bandit, every
        self._random: np.random.Generator | None = None
        self._known: dict[int, tuple[float, float]] = {}  # index → submit, deadline
        self._payoffs: list[float] = []
        self._context: Array = np.zeros(FEATURES)
        self._active, self._next = -1, -np.inf
        self._chosen = [0] * len(self._labels)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Return what the scheduler in use would do."""
        self._observe(snapshot)
        if not len(snapshot.waiting):
            return []
        if snapshot.now >= self._next:
            self._choose(snapshot)
        if self._idle and _all_in_use(snapshot):
            return []
        return self._schedulers[self._active].decide(snapshot)

    def report(self) -> dict[str, int]:
        """How often each scheduler was chosen."""
        return dict(zip(self._labels, self._chosen, strict=True))

    @property
    def chosen(self) -> list[int]:
        """How often each scheduler was chosen, in their order."""
        return self._chosen

    def _observe(self, snapshot: Snapshot) -> None:
        for row in snapshot.ended:
            submit, deadline = self._known.pop(int(row["job"]), (float(row["start"]), np.inf))
            self._payoffs.append(worth(submit, float(row["start"]), float(row["end"]), deadline, killed=bool(row["killed"])))
        jobs = snapshot.jobs
        for index, submit, deadline in zip(jobs.index.tolist(), jobs.submit.tolist(), jobs.deadline.tolist(), strict=True):
            self._known.setdefault(index, (submit, deadline))

    def _choose(self, snapshot: Snapshot) -> None:
        if self._random is None:
            self._random = np.random.default_rng(snapshot.seed)
        if self._active >= 0 and self._payoffs:
            self._bandit.learn(self._context, self._active, float(np.mean(self._payoffs)))
        self._payoffs.clear()
        self._context = features(snapshot)
        self._active = self._bandit.choose(self._context, self._random)
        self._chosen[self._active] += 1
        self._next = snapshot.now + self._every


def worth(submit: float, start: float, end: float, deadline: float, *, killed: bool = False) -> float:
    """Return the worth of one job that has ended, at most 0; `start` is the start of its last run."""
    slowdown = (end - submit) / max(end - start, 1e-9)
    missed = killed or end > deadline
    return -min(slowdown, MOST_SLOWDOWN) / MOST_SLOWDOWN - LATE * missed - WAIT * min(start - submit, MOST_WAIT) / MOST_WAIT


def features(snapshot: Snapshot) -> Array:
    """(4,) from 0 to about 1: jobs that wait and hours of work for each GPU (logarithms), GPUs in use, waiting jobs that will be late."""
    jobs, waiting = snapshot.jobs, snapshot.waiting
    gpus = max(int(snapshot.cluster.nodes.gpus.sum()), 1)
    estimate = jobs.estimate[waiting]
    late = snapshot.now + estimate > jobs.deadline[waiting]
    work = float((estimate * jobs.gpus[waiting]).sum()) / gpus
    busy = 1.0 - float(snapshot.free_gpus().sum()) / gpus
    return np.array([np.log2(1 + len(waiting)) / 10, np.log2(1 + work / 60) / 10, busy, float(late.mean()) if len(late) else 0.0])


def _all_in_use(snapshot: Snapshot) -> bool:
    """Whether no job can start: all waiting jobs want whole GPUs and none is free."""
    return bool((snapshot.jobs.gpus[snapshot.waiting] >= 1).all()) and not snapshot.free_gpus().any()


@decider("epsilon-greedy", title="ε-greedy bandit over schedulers", inner=_FIVE)
class OnlineEpsilonGreedy(Online):
    """Uses the scheduler with the best mean worth so far, or with probability `epsilon` any of them. The mean follows the newest worth
    by `step`; 0 is the plain mean. Worth: slowdown, deadline and wait of the jobs that ended while it was in use."""

    def __init__(self, several: Several, *, every: float = 60.0, epsilon: float = 0.1, step: float = 0.0) -> None:
        super().__init__(several, EpsilonGreedy(len(several.schedulers), FEATURES, EpsilonGreedySettings(epsilon, step)), every)


@decider("exp3", title="EXP3, a bandit over schedulers that trusts no pattern", inner=_FIVE)
class OnlineExp3(Online):
    """Uses schedulers with probabilities that grow exponentially with their worth (Auer et al. 2002), a share `gamma` evenly. Worth:
    slowdown, deadline and wait of the jobs that ended while it was in use."""

    def __init__(self, several: Several, *, every: float = 60.0, gamma: float = 0.1) -> None:
        super().__init__(several, Exp3(len(several.schedulers), FEATURES, Exp3Settings(gamma)), every)


@decider("linucb", title="LinUCB, a bandit over schedulers that looks at the queue", inner=_FIVE)
class OnlineLinUcb(Online):
    """Uses the scheduler with the highest bound on its worth, linear in queue, work, use and share of late jobs (Li et al. 2010);
    `alpha` is the size of the bonus for what is uncertain. Worth: slowdown, deadline and wait of the jobs that ended while in use."""

    def __init__(self, several: Several, *, every: float = 60.0, alpha: float = 1.0, ridge: float = 1.0) -> None:
        super().__init__(several, LinUcb(len(several.schedulers), FEATURES, LinUcbSettings(alpha, ridge)), every)
