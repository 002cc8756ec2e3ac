"""Choose a device for each task by the seconds that a model predicts on a CPU and on a GPU.

A task goes to the device on which it is predicted to end first. A model may go on learning while it decides: a task that has ended was
measured on the device that it ran on.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.features.devices import is_gpu, task_facts
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import JobRequest
from gpuyard.policies.deciders.devices import DeviceQueues, DeviceView, optimal_queues
from gpuyard.policies.deciders.learning.models import KINDS, DurationModel
from gpuyard.policies.schedulers import Decides


@dataclass(frozen=True)
class Exploration:
    """How often the kind of device that looks worse is tried: at the n-th task with probability epsilon / (1 + n / half)."""

    epsilon: float = 0.0
    half: float = 50.0  # tasks after which it is tried half as often

    def rate(self, n: int) -> float:
        return self.epsilon / (1.0 + n / self.half)


class PredictedDevice(DeviceQueues):
    """Sends each submitted task to the device on which it is predicted to end first, behind all that waits there.

    The model learns from each task that has ended, unless it was killed or had been stopped. Then waiting and running tasks are
    predicted again, and stay where they are. The true times of unfinished tasks are never read.
    """

    def __init__(self, model: DurationModel, exploration: Exploration | None = None) -> None:
        super().__init__()
        self.model = model
        self._exploration = exploration or Exploration()
        self._facts: dict[int, Array] = {}  # job → (3,), until it has ended
        self._kind: dict[int, int] = {}  # job → the kind of device that it was given last
        self._avoided: dict[int, int] = {}  # job → the kind that it must avoid, to try the other
        self._stopped: set[int] = set()  # jobs that have been stopped: their last run is not all of their time
        self._assigned = self._explored = self._learned = 0
        self._ended = [0] * len(KINDS)

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        self._learn(board.snapshot)
        self._take_in(board, tasks)
        if not tasks:
            return
        ends = self.estimated_ends(board)
        for task in tasks:
            seconds = self._hoped(board, task)
            if np.isfinite(seconds).any():
                chosen = int(np.argmin(ends + seconds))
                ends[chosen] += self._give(board, task, chosen)

    def running_end(self, snapshot: Snapshot, row: int) -> float:
        """Return the predicted end; for a task that outlived its prediction, the prediction is doubled until it lies ahead."""
        begin, seconds = float(snapshot.live["run_start"][row]), self._seconds[int(snapshot.jobs.index[row])]
        while begin + seconds <= snapshot.now:
            seconds = max(2.0 * seconds, 0.01)
        return begin + seconds

    def report(self) -> dict[str, float]:
        """Return how many tasks were assigned, tried the device that looked worse, ended on a CPU and on a GPU, and were learned from."""
        ended = {f"ended on a {kind}": float(count) for kind, count in zip(KINDS, self._ended, strict=True)}
        return {"assigned": float(self._assigned), "explored": float(self._explored), **ended, "learned from": float(self._learned)}

    def _hoped(self, board: DeviceView, task: JobRequest) -> Array:
        """Return (lanes,) s on each device; inf where the task cannot run, or must not because it tries the other kind."""
        if board.snapshot.live["preemptions"][task.row] > 0:
            self._stopped.add(task.index)
        kinds = kinds_of(board)
        seconds = np.where(np.isfinite(board.seconds(task)), self.model.hope(self._facts[task.index][None])[0][kinds], np.inf)
        tried = np.where(kinds == self._avoided.get(task.index, -1), np.inf, seconds)
        return tried if np.isfinite(tried).any() else seconds

    def _take_in(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        """Note the facts of new tasks, and decide which of them try the kind that looks worse."""
        for task in tasks:
            if task.index not in self._facts:
                self._facts[task.index] = np.array(task_facts(board.snapshot.jobs, task.row))
                self._choose_kind(board, task)
                self._assigned += 1

    def _choose_kind(self, board: DeviceView, task: JobRequest) -> None:
        if self._draws(board.snapshot, task).random() < self._exploration.rate(self._assigned):
            self._avoided[task.index] = int(np.argmin(self.model.hope(self._facts[task.index][None])[0]))
            self._explored += 1

    @staticmethod
    def _draws(snapshot: Snapshot, task: JobRequest) -> np.random.Generator:
        """Return the random numbers of a task: they depend on the simulation's seed and on nothing that was decided."""
        return np.random.default_rng([snapshot.seed, task.index])

    def _give(self, board: DeviceView, task: JobRequest, chosen: int) -> float:
        """Put the task into that queue; return the seconds that it is predicted to take there."""
        kind = int(kinds_of(board)[chosen])
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
            if facts is not None and index not in self._stopped and not ended["killed"] and seconds > 0:
                samples.append((facts, kind, seconds))
                self._ended[kind] += 1
        if samples and self.model.learn(*(np.array(column) for column in zip(*samples, strict=True))):
            self._learned += len(samples)
            self._predict_again()

    def _predict_again(self) -> None:
        indices = list(self._lane)
        if indices:
            predicted = self.model.predict(np.array([self._facts[index] for index in indices]))
            for index, seconds in zip(indices, predicted, strict=True):
                self._seconds[index] = float(seconds[self._kind[index]])


class PlannedByPrediction(PredictedDevice):
    """Assigns and orders all waiting tasks again whenever a task comes or ends, as `optimal-device` does with known seconds.

    The sum of their predicted ends is then least. Beyond `most` waiting tasks only those submitted first are planned.
    """

    most = 200

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        self._learn(board.snapshot)
        self._take_in(board, tasks)
        if not tasks and not len(board.snapshot.ended):
            return
        self.take_back()
        waiting = [board.requests[row] for row in board.snapshot.waiting.tolist()]
        known = [(task, seconds) for task in waiting[: self.most] if np.isfinite(seconds := self._hoped(board, task)).any()]
        free = self.free_at(board) - board.snapshot.now
        for lane, queue in optimal_queues(np.array([seconds for _, seconds in known]), free):
            for k in queue:
                self._give(board, known[k][0], lane)


def kinds_of(board: DeviceView) -> Array:
    """Return (lanes,) 0 for a CPU, 1 for a GPU."""
    kinds: Array = is_gpu(board.snapshot.cluster)[[node for node, _ in board.lanes]].astype(int)
    return kinds


@dataclass(frozen=True)
class LearnedDevice:
    """A scheduler for `simulate`: `make` gives each simulation its own decider, so that nothing is learned across simulations."""

    label: str
    make: Callable[[], Decides]

    def begin(self) -> Decides:
        return self.make()


def by_prediction(model: DurationModel, exploration: Exploration | None = None, *, replan: bool = False) -> PredictedDevice:
    """Make the decider of one simulation. With `replan`, waiting tasks may change their device and place; else first in, first out."""
    return (PlannedByPrediction if replan else PredictedDevice)(model, exploration)
