"""Environments in which the device of each task is left open: simulations with device queues, stopped at every task submitted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple, TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import Simulation
from gpuyard.envs.base import Instance, Observation, Step, check_actions, no_episode
from gpuyard.errors import UsageError
from gpuyard.features.devices import DEVICE, DEVICE_PHYSICS, QueueColumns, fill_context, fill_rows
from gpuyard.features.schema import Schema
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.workload import Workload
from gpuyard.policies.capacity import JobRequest, overhead
from gpuyard.policies.deciders.devices import DeviceView, Lane, Queues, greedy_lane
from gpuyard.registry import Registry

MakeInstance: TypeAlias = Callable[[int], Instance]  # of the seed of an episode
EMPTY_EPISODES = 100  # in a row without a choice: the source is of no use


class TaskOutcome(NamedTuple):
    """The result of a choice, by the task's true run time. Queues are first in first out, so a task's end is known when it enters one."""

    wait: float  # s
    seconds: float  # s on the device
    fastest: float  # s on the device that suits it best


REWARDS: Registry[Callable[[TaskOutcome], float]] = Registry("reward")
REWARDS.add("turnaround", lambda outcome: -(outcome.wait + outcome.seconds))
REWARDS.add("wait", lambda outcome: -outcome.wait)
REWARDS.add("seconds", lambda outcome: -outcome.seconds)
REWARDS.add("slowdown", lambda outcome: -(outcome.wait + outcome.seconds) / max(outcome.fastest, 1e-9))


@dataclass(frozen=True)
class DeviceConfig:
    """The observation and the reward. The reward of a step is the weighted sum of the named ones, for the task that was assigned."""

    rewards: tuple[tuple[str, float], ...] = (("turnaround", 1.0),)
    physics: bool = False  # whether estimated seconds on each device are seen
    lanes: int = 0  # rows of an observation; 0: as many devices as the first cluster has

    def __post_init__(self) -> None:
        for name, weight in self.rewards:
            REWARDS[name]  # refuses a name that is not there
            if not np.isfinite(weight):
                raise UsageError(f"reward {name}: weight {weight} is not a number")
        if self.lanes < 0:
            raise UsageError(f"lanes = {self.lanes} is negative")

    @property
    def schema(self) -> Schema:
        return DEVICE_PHYSICS if self.physics else DEVICE


class DeviceEpisode:
    """One simulation, stopped at each task that needs a device. A choice is open until `over`."""

    def __init__(self, workload: Workload, cluster: Cluster, seed: int = 0) -> None:
        if (workload.jobs.gpus == 0).any():
            raise UsageError(f"{workload.name}: a CPU job", hint="PickDevice is for tasks of one device; a CPU is a device of type cpu")
        self.lanes: list[Lane] = [(n, d) for n, gpus in enumerate(cluster.nodes.gpus.tolist()) for d in range(gpus)]
        self.simulation = Simulation(workload, cluster, label="open", seed=seed)
        self.over = False
        self._queues = Queues()
        self._board: DeviceView | None = None
        self._pending: list[JobRequest] = []
        self._free_at = np.zeros(len(self.lanes))  # s, when each device has truly done all that it was given
        self._go_on()

    @property
    def suits(self) -> Array:
        """Return (lanes,) bool: which devices may be chosen."""
        found: Array = np.isfinite(self._seconds)
        return found

    def choose(self, chosen: int) -> TaskOutcome:
        """Put the task into that queue and go on to the next choice."""
        assert self._board is not None
        task = self._pending.pop(0)
        snapshot = self._board.snapshot
        suiting = zip(self.lanes, self.suits, strict=True)
        true = np.array([self._true_seconds(task, node) if suits else np.inf for (node, _), suits in suiting])
        start = max(self._free_at[chosen], snapshot.now)
        self._free_at[chosen] = start + true[chosen]
        outcome = TaskOutcome(float(start - snapshot.jobs.submit[task.row]), float(true[chosen]), float(true.min()))
        self._queues.put(task, self.lanes[chosen], float(self._seconds[chosen]))
        self._go_on()
        return outcome

    def greedy(self) -> int:
        """Return what `greedy-device` would choose now."""
        assert self._board is not None
        lane = self._board.lanes[greedy_lane(self._queues.estimated_ends(self._board), self._board.seconds(self._pending[0]))]
        return self.lanes.index(lane)

    def observe(self, physics: bool, rows: Array, context: Array, mask: Array) -> None:
        """Write what is seen before the choice; rows beyond the devices there are stay 0 and masked."""
        assert self._board is not None
        task, snapshot = self._pending[0], self._board.snapshot
        at = [self._position[lane] for lane in self.lanes]
        waiting, busy, work = (self._spread(values, at) for values in self._queues.loads(self._board))
        ends = self._queues.estimated_ends(self._board) - snapshot.now if physics else np.zeros(len(self._board.lanes))
        lanes = QueueColumns(np.array([n for n, _ in self.lanes]), waiting, busy.astype(bool), work, self._spread(ends, at), self._seconds)
        rows[:], mask[:] = 0.0, False
        fill_rows(snapshot, task.row, lanes, physics, rows[: len(self.lanes)])
        fill_context(snapshot, task.row, lanes, context)
        mask[: len(self.lanes)] = self.suits

    def result(self) -> Result:
        """Return the result so far; it is complete when the episode is over."""
        return self.simulation.result()

    def _spread(self, values: Array, at: list[int]) -> Array:
        """Expand values of the devices in order to all devices; 0 for those out of order."""
        spread: Array = np.append(values, 0)[at]
        return spread

    def _true_seconds(self, task: JobRequest, node: int) -> float:
        assert self._board is not None
        snapshot = self._board.snapshot
        work = float(self.simulation.workload.runtime[task.index]) - float(snapshot.live["done"][task.row])
        return overhead(snapshot, task.row, [node]) + work / task.rate(snapshot.cluster, [node])

    def _go_on(self) -> None:
        while not self._open():
            if self._board is not None:
                self.simulation.apply(self._queues.starts(self._board))
            snapshot = self.simulation.advance()
            if snapshot is None:
                self.over = True
                return
            self._board, self._pending = self._queues.admit(snapshot)
            known = {lane: i for i, lane in enumerate(self._board.lanes)}
            self._position = {lane: known.get(lane, len(known)) for lane in self.lanes}

    def _open(self) -> bool:
        """Whether the first pending task has a device to choose; those that have none now are asked about again at the next instant."""
        while self._pending:
            assert self._board is not None
            seconds = np.append(self._board.seconds(self._pending[0]), np.inf)
            self._seconds = seconds[[self._position[lane] for lane in self.lanes]]
            if self.suits.any():
                return True
            self._pending.pop(0)
        return False


class DeviceEnvs:
    """N episodes that are stepped together; see gpuyard.envs.base.Envs. The reward is in seconds times the weights.

    The credit for a task is exact where no device fails while the task waits or runs. Each episode is drawn by a seed of its own from
    (seed, environment, number of the episode).
    """

    def __init__(self, source: MakeInstance, count: int = 1, config: DeviceConfig | None = None) -> None:
        if count < 1:
            raise UsageError(f"{count} environments: at least one is needed")
        self._source = source
        self._config = config or DeviceConfig()
        self._rewards = [(REWARDS[name], weight) for name, weight in self._config.rewards]
        self.count = count
        self.actions = self._config.lanes or int(source(0)[1].nodes.gpus.sum())  # a cluster may have fewer devices: the others are masked
        self.schema = schema = self._config.schema
        self._seen = Observation(
            np.zeros((count, self.actions, len(schema.rows)), np.float32), np.zeros((count, len(schema.context)), np.float32),
            np.zeros((count, self.actions), bool),
        )  # fmt: skip
        self._seed = 0
        self._number = np.zeros(count, np.int64)  # of the episode
        self._taken: list[list[int]] = [[] for _ in range(count)]  # choices made in it
        self.episodes: list[DeviceEpisode] = []  # the present one of each environment
        self.finished: Result | None = None  # of the last episode that ended

    def reset(self, seed: int) -> Observation:
        """Begin the first episode of each environment."""
        self._seed = seed
        self._number[:] = -1
        self.episodes = []
        for i in range(self.count):
            self.episodes.append(self._next(i))
            self._observe(i)
        return self._seen

    def step(self, actions: Array) -> Step:
        """Choose `actions` (envs,) i4: a device each; one that does not suit counts as the first that does."""
        check_actions(actions, self.count)
        if len(self.episodes) < self.count:
            raise no_episode()
        reward, done = np.zeros(self.count, np.float32), np.zeros(self.count, bool)
        for i, action in enumerate(np.asarray(actions).tolist()):
            reward[i] = self._choose(i, action)
            if self.episodes[i].over:
                done[i] = True
                self.finished = self.episodes[i].result()
                self.episodes[i] = self._next(i)
            self._observe(i)
        return Step(self._seen, reward, done)

    def skip(self) -> Observation:
        """Abandon the current episodes and begin the next ones."""
        if len(self.episodes) < self.count:
            raise no_episode()
        for i in range(self.count):
            self.episodes[i] = self._next(i)
            self._observe(i)
        return self._seen

    def save(self) -> dict[str, Array]:
        """Save the seed, the episodes' numbers and the choices made in them; all else follows from these."""
        lengths = np.array([len(taken) for taken in self._taken], np.int64)
        flat = np.array([action for taken in self._taken for action in taken], np.int64)
        return {"seed": np.array([self._seed], np.int64), "episode": self._number.copy(), "lengths": lengths, "actions": flat}

    def restore(self, saved: dict[str, Array]) -> Observation:
        """Restore the episodes by making the choices again."""
        if len(saved["episode"]) != self.count:
            raise UsageError(f"the state of {len(saved['episode'])} environments cannot be restored into {self.count}")
        self._seed = int(saved["seed"][0])
        self._number[:] = saved["episode"] - 1
        self.episodes, ends = [], np.cumsum(saved["lengths"])
        for i, (end, length) in enumerate(zip(ends.tolist(), saved["lengths"].tolist(), strict=True)):
            self.episodes.append(self._next(i))
            for action in saved["actions"][end - length : end].tolist():
                self._choose(i, action)
            self._observe(i)
        return self._seen

    def _choose(self, i: int, action: int) -> float:
        episode = self.episodes[i]
        suits = episode.suits
        legal = 0 <= action < len(suits) and bool(suits[action])
        self._taken[i].append(action)
        outcome = episode.choose(action if legal else int(np.argmax(suits)))
        return float(sum(weight * reward(outcome) for reward, weight in self._rewards))

    def _next(self, i: int) -> DeviceEpisode:
        """Make the next episode in which there is something to choose."""
        self._taken[i] = []
        for _ in range(EMPTY_EPISODES):
            self._number[i] += 1
            seed = int(np.random.SeedSequence([self._seed, i, int(self._number[i])]).generate_state(1, np.uint64)[0] >> np.uint64(1))
            workload, cluster = self._source(seed)
            episode = DeviceEpisode(workload, cluster, seed)
            if len(episode.lanes) > self.actions:
                raise UsageError(f"{workload.name}: a cluster of {len(episode.lanes)} devices for {self.actions} rows", hint="set lanes")
            if not episode.over:
                return episode
        raise UsageError(f"{EMPTY_EPISODES} episodes in a row have no task that a device could be chosen for")

    def _observe(self, i: int) -> None:
        seen = self._seen
        self.episodes[i].observe(self._config.physics, seen.rows[i], seen.context[i], seen.mask[i])
