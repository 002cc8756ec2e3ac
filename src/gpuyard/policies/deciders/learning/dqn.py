"""A deep Q-network (Mnih et al. 2015) that chooses between CPU and GPU for each task and goes on learning while it decides.

A state is a task with the predicted backlog of each kind of device when it is submitted, an action a kind of device, its cost the
turnaround of the task. What an action does to the tasks after it comes in by bootstrapping: the value of the next submitted task, by a
target network that is brought up to date from time to time. The network adds to what is predicted for the task itself (backlog +
seconds), so an untrained one is greedy. Within a kind, tasks are ordered by predicted seconds.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import JobRequest
from gpuyard.policies.deciders.devices import DeviceView
from gpuyard.policies.deciders.learning.choice import PlannedByPrediction, kinds_of
from gpuyard.policies.deciders.learning.models import KINDS, DurationModel
from gpuyard.policies.deciders.learning.network import INPUTS, LatestSamples, SmallNetwork, inputs_of

STATE = INPUTS + 2 * len(KINDS)  # a task, and for each kind its backlog and the task's seconds there
SCALE = 10.0  # s that are a cost of 1


@dataclass(frozen=True, eq=False)
class _Choice:
    """One task's state and action."""

    state: Array  # (STATE,)
    ahead: Array  # (kinds,) predicted turnaround / SCALE; inf where the task cannot run
    action: int


@dataclass(frozen=True)
class DeviceDqnConfig:
    """Settings of the DQN."""

    batch_size: int = 64
    epsilon: float = 0.1  # share of tasks whose kind is drawn at random, however long it has learned
    layers: tuple[int, ...] = (32, 32)  # of a network that is not trained yet
    updates: int = 4  # after each decision at which a task has ended
    discount: float = 0.7  # from task to task; with 0.9 and a rate of 1e-3 one run in five came to twice the optimum
    capacity: int = 1000  # transitions that are kept, the latest ones
    learning_rate: float = 3e-4
    sync: int = 200  # updates from one copy into the target network to the next


class DqnDevice(PlannedByPrediction):
    """Chooses the kind of device by Q-values, ε-greedily, when a task is submitted; `model` predicts seconds, and learns too."""

    def __init__(self, model: DurationModel, network: SmallNetwork, config: DeviceDqnConfig | None = None, seed: int = 0) -> None:
        super().__init__(model)
        self.config = config or DeviceDqnConfig()
        self.network, self.target = network.copy(), network.copy()
        columns = {"state": ((STATE,), "f8"), "next": ((STATE,), "f8"), "ahead": ((len(KINDS),), "f8"), "next_ahead": ((len(KINDS),), "f8")}
        self._replay = LatestSamples(self.config.capacity, **columns, action=((), "i8"), cost=((), "f8"))
        self._rng = np.random.default_rng([seed, 5])
        self._open: dict[int, tuple[_Choice, float]] = {}  # job → its choice and when it was submitted, until it has ended
        self._after: dict[int, _Choice] = {}  # job → the choice that followed its own
        self._cost: dict[int, float] = {}  # job that ended before another was submitted → its cost
        self._last = -1
        self._loss = 0.0

    @staticmethod
    def untrained(seed: int, config: DeviceDqnConfig | None = None) -> SmallNetwork:
        """Draw a network whose values are nearly 0: it is greedy."""
        layers = (config or DeviceDqnConfig()).layers
        return SmallNetwork.drawn(np.random.default_rng([seed, 6]), (STATE, *layers, len(KINDS)), last=0.01)

    def report(self) -> dict[str, float]:
        """Add to what every strategy reports: transitions, updates, copies into the target network, and the loss of the last updates."""
        copies = self.network.steps // self.config.sync
        learned = {"transitions": self._replay.added, "updates": self.network.steps, "target copies": copies}
        return {**super().report(), **{name: float(value) for name, value in learned.items()}, "loss": self._loss}

    def _choose_kind(self, board: DeviceView, task: JobRequest) -> None:
        choice = self._decided(board, task)
        if self._last in self._open or self._last in self._cost:
            self._after[self._last] = choice
            self._complete(self._last)
        submit = float(board.snapshot.jobs.submit[task.row])
        self._open[task.index], self._last = (choice, submit), task.index
        self._avoided[task.index] = 1 - choice.action

    def _decided(self, board: DeviceView, task: JobRequest) -> _Choice:
        """Look at the task and the backlogs, and choose."""
        kinds, facts = kinds_of(board), self._facts[task.index][None]
        seconds = self.model.predict(facts)[0]
        backlog = self._backlog(board, kinds)
        possible = np.isfinite(board.seconds(task))
        suits = np.array([bool(possible[kinds == k].any()) for k in range(len(KINDS))])
        state = np.concatenate([inputs_of(facts)[0], np.log1p(backlog), np.log1p(seconds)])
        ahead = np.where(suits | ~suits.any(), (backlog + seconds) / SCALE, np.inf)
        draws = self._draws(board.snapshot, task)
        action = int(np.argmin(ahead + self.network(state[None])[0]))
        if draws.random() < self.config.epsilon:
            action = int(draws.choice(np.flatnonzero(np.isfinite(ahead))))
            self._explored += 1
        return _Choice(state, ahead, action)

    def _backlog(self, board: DeviceView, kinds: Array) -> Array:
        """Return (kinds,) predicted seconds of work for each device of a kind: what runs there, waits, and was just submitted."""
        work = self.estimated_ends(board) - board.snapshot.now
        found = np.array([work[kinds == k].sum() for k in range(len(KINDS))])
        for index, (choice, _) in self._open.items():
            if index not in self._lane and index in self._facts:
                found[choice.action] += self.model.predict(self._facts[index][None])[0][choice.action]
        return found / np.maximum(np.bincount(kinds, minlength=len(KINDS)), 1)

    # ── learning ──

    def _learn(self, snapshot: Snapshot) -> None:
        for ended in snapshot.ended:
            index = int(ended["job"])
            if index in self._open and not ended["killed"]:
                self._cost[index] = (float(ended["end"]) - self._open[index][1]) / SCALE
                self._complete(index)
        super()._learn(snapshot)
        if len(snapshot.ended) and len(self._replay):
            self._update()

    def _complete(self, index: int) -> None:
        """Store a transition as soon as its cost and the next state are known."""
        if index in self._cost and index in self._after:
            (choice, _), after = self._open.pop(index), self._after.pop(index)
            self._replay.add(
                state=choice.state, ahead=choice.ahead, action=choice.action, cost=self._cost.pop(index), next=after.state,
                next_ahead=after.ahead,
            )  # fmt: skip

    def _update(self) -> None:
        """Make steps towards cost + discount × least target value of the next task."""
        replay, config = self._replay, self.config
        for pick in self._rng.integers(0, len(replay), (config.updates, config.batch_size)):
            action, ahead = replay["action"][pick], replay["ahead"][pick]
            following = (replay["next_ahead"][pick] + self.target(replay["next"][pick])).min(axis=1)
            goal = replay["cost"][pick] + config.discount * following
            own = goal - ahead[np.arange(len(pick)), action]  # what the network is to add
            self._loss = self.network.step(replay["state"][pick], action, own, config.learning_rate)
            if self.network.steps % config.sync == 0:
                self.target = self.network.copy()
