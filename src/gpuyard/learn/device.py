"""Device choice by what was learned of how long tasks take on a CPU and on a GPU.

A model predicts seconds on each kind of device from a task's size, intensity and memory; the device on which the task is predicted to
end first gets it. A model may go on learning while it decides: a task that has ended was measured on the device that it ran on.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features.devices import is_gpu, task_facts
from gpuyard.learn.forest import Forest, ForestConfig
from gpuyard.model.cluster import Cluster
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.workload import Workload
from gpuyard.policies.capacity import JobRequest
from gpuyard.policies.deciders.devices import DeviceQueues, DeviceView, optimal_queues
from gpuyard.policies.schedulers import Decides

KINDS = ("cpu", "gpu")


@dataclass(frozen=True, eq=False)
class Profile:
    """Tasks that were measured on each kind of device: what a model is trained on before it decides anything."""

    facts: Array  # (tasks, 3) of gpuyard.features.devices.TaskFacts
    seconds: Array  # (tasks, 2) on a CPU, on a GPU

    def __len__(self) -> int:
        return len(self.facts)


def profile(workload: Workload, cluster: Cluster) -> Profile:
    """Every task once on the first type of each kind, alone: its transfer, then its run time at the device's speed."""
    jobs, types = workload.jobs, list(cluster.types)
    cpu = next(kind for kind in types if kind.name == "cpu")
    gpu = next(kind for kind in types if kind.name != "cpu")
    facts = np.array([task_facts(jobs, row) for row in range(len(jobs))]).reshape(-1, 3)
    columns = []
    for kind in (cpu, gpu):
        speed = np.array([cluster.speed_of(label, kind) for label in jobs.classes])[jobs.job_class]
        columns.append(jobs.transfer * kind.transfer + workload.runtime / speed)
    return Profile(facts, np.stack(columns, axis=1))


class Model(ABC):
    """Seconds on each kind of device."""

    @abstractmethod
    def predict(self, facts: Array) -> Array:
        """(tasks, 2) s of tasks with `facts` (tasks, 3)."""

    def hope(self, facts: Array) -> Array:
        """(tasks, 2) s, as a choice should see them: less than predicted where little is known."""
        return self.predict(facts)

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        """Tasks with `facts` (n, 3) took `seconds` (n,) on a CPU (`kind` 0) or GPU (1). Whether predictions have changed."""
        return False


class ForestModel(Model):
    """A random forest, trained before and frozen."""

    def __init__(self, forest: Forest) -> None:
        self.forest = forest

    @classmethod
    def fit(cls, data: Profile, seed: int, config: ForestConfig | None = None) -> ForestModel:
        return cls(Forest.fit(data.facts, data.seconds, seed, config))

    def predict(self, facts: Array) -> Array:
        return self.forest.predict(facts)


@dataclass(frozen=True)
class LinearConfig:
    """LinUCB (Li et al. 2010), turned to costs: a ridge regression of log seconds for each kind, and its lower confidence bound."""

    alpha: float = 0.1  # width of the bound, in standard deviations of log seconds
    prior: float = 10.0  # tasks that the offline data counts as
    ridge: float = 0.01


class LinearModel(Model):
    """Log seconds as a quadratic function of log size, intensity and memory; each measured task is taken in at once."""

    def __init__(self, data: Profile, config: LinearConfig | None = None) -> None:
        self.config = config or LinearConfig()
        basis = _quadratic(data.facts)
        width = basis.shape[1]
        self._gram = np.empty((len(KINDS), width, width))
        self._sums = np.empty((len(KINDS), width))
        for k in range(len(KINDS)):
            full = basis.T @ basis + 1e-3 * np.eye(width)
            weights = np.linalg.solve(full, basis.T @ np.log(data.seconds[:, k]))
            self._gram[k] = full * self.config.prior / max(len(data), 1) + self.config.ridge * np.eye(width)
            self._sums[k] = self._gram[k] @ weights
        self._solve()

    @property
    def weights(self) -> Array:
        """(kinds, terms)."""
        return self._weights

    def predict(self, facts: Array) -> Array:
        return _seconds(_quadratic(facts) @ self._weights.T)

    def hope(self, facts: Array) -> Array:
        basis = _quadratic(facts)
        spread = np.sqrt(np.einsum("ni,kij,nj->nk", basis, self._inverse, basis))
        return _seconds(basis @ self._weights.T - self.config.alpha * spread)

    def learn(self, facts: Array, kind: Array, seconds: Array) -> bool:
        for row, k, target in zip(_quadratic(facts), kind.tolist(), np.log(seconds).tolist(), strict=True):
            self._gram[k] += np.outer(row, row)
            self._sums[k] += row * target
        self._solve()
        return True

    def _solve(self) -> None:
        self._inverse = np.linalg.inv(self._gram)
        self._weights: Array = np.einsum("kij,kj->ki", self._inverse, self._sums)


def _quadratic(facts: Array) -> Array:
    """(tasks, 10) all products of at most two of log size, intensity and memory / 8 GB."""
    size, intensity, memory = facts.T
    terms = np.stack([np.ones(len(facts)), np.log(np.maximum(size, 1e-3)), intensity, memory / 8], axis=1)
    a, b = np.triu_indices(4)
    products: Array = terms[:, a] * terms[:, b]
    return products


def _seconds(logs: Array) -> Array:
    """From log seconds, kept within 1e-4 s and 1e6 s."""
    seconds: Array = np.exp(np.clip(logs, -9.0, 14.0))
    return seconds


@dataclass(frozen=True)
class Exploration:
    """How often the kind of device that looks worse is tried: with probability epsilon / (1 + n / half) at the n-th task."""

    epsilon: float = 0.0
    half: float = 50.0  # tasks after which it is tried half as often

    def rate(self, n: int) -> float:
        return self.epsilon / (1.0 + n / self.half)


class PredictedDevice(DeviceQueues):
    """Each task, when it is submitted, to the device on which it is predicted to end first, behind all that waits there.

    The model is told of each task that has ended (not of one that was killed or had been stopped). When it has learned, what is
    believed of waiting and running tasks is predicted anew; they stay where they are. The true times of unfinished tasks are never read.
    """

    def __init__(self, model: Model, exploration: Exploration | None = None) -> None:
        super().__init__()
        self.model = model
        self._exploration = exploration or Exploration()
        self._facts: dict[int, Array] = {}  # job → (3,), until it has ended
        self._kind: dict[int, int] = {}  # job → the kind of device that it was given last
        self._avoided: dict[int, int] = {}  # job → the kind that it is kept off: it is to try the other
        self._again: set[int] = set()  # has been stopped: its last run is not all of it
        self._assigned = 0

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        self._learn(board.snapshot)
        if not tasks:
            return
        ends = self.believed_ends(board)
        for task in tasks:
            seconds = self._hoped(board, task)
            if np.isfinite(seconds).any():
                chosen = int(np.argmin(ends + seconds))
                ends[chosen] += self._give(board, task, chosen)

    def running_end(self, snapshot: Snapshot, row: int) -> float:
        """By the prediction; a task that has outlived it is believed to take twice as long, until that lies ahead."""
        begin, seconds = float(snapshot.live["run_start"][row]), self._seconds[int(snapshot.jobs.index[row])]
        while begin + seconds <= snapshot.now:
            seconds = max(2.0 * seconds, 0.01)
        return begin + seconds

    def report(self) -> dict[str, float]:
        return {"assigned": float(self._assigned)}

    def _hoped(self, board: DeviceView, task: JobRequest) -> Array:
        """(lanes,) s on each device; inf where it cannot run, or is not to run because the other kind is tried."""
        if task.index not in self._facts:
            self._meet(board.snapshot, task)
        elif board.snapshot.live["preemptions"][task.row] > 0:
            self._again.add(task.index)
        kinds = _kinds(board)
        seconds = np.where(np.isfinite(board.seconds(task)), self.model.hope(self._facts[task.index][None])[0][kinds], np.inf)
        tried = np.where(kinds == self._avoided.get(task.index, -1), np.inf, seconds)
        return tried if np.isfinite(tried).any() else seconds

    def _meet(self, snapshot: Snapshot, task: JobRequest) -> None:
        """A task that is new: what it is, and whether the kind that looks worse is tried."""
        facts = np.array(task_facts(snapshot.jobs, task.row))
        self._facts[task.index] = facts
        if np.random.default_rng([snapshot.seed, task.index]).random() < self._exploration.rate(self._assigned):
            self._avoided[task.index] = int(np.argmin(self.model.hope(facts[None])[0]))
        self._assigned += 1

    def _give(self, board: DeviceView, task: JobRequest, chosen: int) -> float:
        """Put it into that queue; returns the seconds that it is predicted to take there."""
        kind = int(_kinds(board)[chosen])
        seconds = float(self.model.predict(self._facts[task.index][None])[0][kind])
        self._kind[task.index] = kind
        self.put(task, board.lanes[chosen], seconds)
        return seconds

    def _learn(self, snapshot: Snapshot) -> None:
        samples = []
        for ended in snapshot.ended:
            index = int(ended["job"])
            facts, kind = self._facts.pop(index, None), self._kind.pop(index, 0)
            self._avoided.pop(index, None)
            seconds = float(ended["end"] - ended["start"])
            if facts is not None and index not in self._again and not ended["killed"] and seconds > 0:
                samples.append((facts, kind, seconds))
        if samples:
            if self.model.learn(*(np.array(column) for column in zip(*samples, strict=True))):
                self._believe_anew()

    def _believe_anew(self) -> None:
        indices = list(self._lane)
        if indices:
            predicted = self.model.predict(np.array([self._facts[index] for index in indices]))
            for index, seconds in zip(indices, predicted, strict=True):
                self._seconds[index] = float(seconds[self._kind[index]])


class PlannedByPrediction(PredictedDevice):
    """As `optimal-device` does with known seconds: whenever a task comes or ends, all that wait are assigned and ordered anew.

    The sum of their predicted ends is then least. Beyond `most` waiting tasks those submitted first are looked at.
    """

    most = 200

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        self._learn(board.snapshot)
        if not tasks and not len(board.snapshot.ended):
            return
        self.take_back()
        waiting = [board.requests[row] for row in board.snapshot.waiting.tolist()]
        known = [(task, seconds) for task in waiting[: self.most] if np.isfinite(seconds := self._hoped(board, task)).any()]
        free = self.free_at(board) - board.snapshot.now
        for lane, queue in optimal_queues(np.array([seconds for _, seconds in known]), free):
            for k in queue:
                self._give(board, known[k][0], lane)


def _kinds(board: DeviceView) -> Array:
    """(lanes,) 0: a CPU, 1: a GPU."""
    kinds: Array = is_gpu(board.snapshot.cluster)[[node for node, _ in board.lanes]].astype(int)
    return kinds


@dataclass(frozen=True)
class LearnedDevice:
    """As a scheduler for `simulate`: `make` gives a model for each simulation, so that what is learned in one stays in it.

    `replan`: tasks that wait may change their device and their place; otherwise they stay, first in first out.
    """

    label: str
    make: Callable[[], Model]
    exploration: Exploration = Exploration()
    replan: bool = False

    def begin(self) -> Decides:
        return (PlannedByPrediction if self.replan else PredictedDevice)(self.make(), self.exploration)
