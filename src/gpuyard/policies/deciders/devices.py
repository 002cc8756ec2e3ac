"""Device choice: every task waits in the queue of one device, to which it was assigned when it was submitted."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.model.decision import Decision, Part
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies.capacity import Capacity, JobRequest, Requests, estimated_end, estimated_seconds
from gpuyard.policies.schedulers import decider

Lane = tuple[int, int]  # node, and the number of one of its devices; −1: the node's processors, for CPU jobs


@dataclass(eq=False)
class DeviceView:
    """One decision: the devices in order, their estimated work, and which suit a task."""

    snapshot: Snapshot
    requests: Requests
    capacity: Capacity
    lanes: list[Lane]

    @classmethod
    def of(cls, snapshot: Snapshot) -> DeviceView:
        requests = Requests(snapshot)
        capacity = Capacity(snapshot.cluster, snapshot.nodes)
        lanes = [(n, d) for n in np.flatnonzero(capacity.up).tolist() for d in range(-1, int(capacity.usable[n]))]
        return cls(snapshot, requests, capacity, lanes)

    def __post_init__(self) -> None:
        self._node, self._device = np.array(self.lanes, int).reshape(-1, 2).T
        self._kind = self.snapshot.cluster.nodes.gpu_type[self._node]

    def seconds(self, request: JobRequest) -> Array:
        """(lanes,) how long the task is estimated to take there; inf: it can never run there."""
        suits = (self.capacity.rooms(request)[self._node] > 0) & ((self._device < 0) == (request.gpus == 0))
        by_type = np.full(len(self.snapshot.cluster.types), np.inf)
        for kind in np.unique(self._kind[suits]).tolist():
            node = int(self._node[np.argmax(suits & (self._kind == kind))])
            by_type[kind] = estimated_seconds(self.snapshot, request, [node])
        return np.where(suits, by_type[self._kind], np.inf)


class Queues:
    """A queue for every device. What is assigned stays, unless its device fails; the first in a queue starts when the device is free.

    A device is one GPU of a node, or the processors of a node for CPU jobs, and does one task at a time. Jobs of more GPUs are refused.
    At each decision: `admit`, `put` for each of the new tasks (or later, one that nobody put is new again), then `starts`.
    """

    def __init__(self) -> None:
        self._lane: dict[int, Lane] = {}  # job → its device, from assignment to its end
        self._queue: dict[Lane, list[int]] = {}  # device → jobs that wait for it, first in first out
        self._seconds: dict[int, float] = {}  # job → how long it is estimated to take there

    def admit(self, snapshot: Snapshot) -> tuple[DeviceView, list[JobRequest]]:
        """Return what the decision is about, and the tasks that have no device yet, in order."""
        _refuse_gangs(snapshot)
        board = DeviceView.of(snapshot)
        self._forget(snapshot, set(board.lanes))
        new = [row for row in snapshot.waiting.tolist() if int(snapshot.jobs.index[row]) not in self._lane]
        return board, [board.requests[row] for row in new]

    def put(self, task: JobRequest, lane: Lane, seconds: float) -> None:
        """Behind all that waits there."""
        self._lane[task.index] = lane
        self._seconds[task.index] = seconds
        self._queue.setdefault(lane, []).append(task.index)

    def take_back(self) -> None:
        """Nobody waits for a device any more; who runs stays."""
        for queue in self._queue.values():
            for index in queue:
                del self._lane[index]
        self._queue = {}

    def estimated_ends(self, board: DeviceView) -> Array:
        """(lanes,) when each device is estimated to have done what it has."""
        waits = [sum(self._seconds[index] for index in self._queue.get(lane, [])) for lane in board.lanes]
        return self.free_at(board) + waits

    def free_at(self, board: DeviceView) -> Array:
        """(lanes,) when each device is estimated to have done what runs there."""
        ends = np.full(len(board.lanes), board.snapshot.now)
        for row, i in self._tasks_on_devices(board):
            if board.snapshot.live["running"][row]:
                ends[i] = self.running_end(board.snapshot, row)
        return ends

    def loads(self, board: DeviceView) -> tuple[Array, Array, Array]:
        """(lanes,) each: tasks that wait there; whether one runs; reference seconds of work estimated to be left of all these."""
        snapshot = board.snapshot
        waiting, busy, work = np.zeros(len(board.lanes)), np.zeros(len(board.lanes), bool), np.zeros(len(board.lanes))
        for row, i in self._tasks_on_devices(board):
            left = float(snapshot.jobs.estimate[row])
            if snapshot.live["running"][row]:
                busy[i] = True
                left = max(left - (snapshot.now - float(snapshot.live["run_start"][row])), 0.0)
            else:
                waiting[i] += 1
            work[i] += left
        return waiting, busy, work

    def _tasks_on_devices(self, board: DeviceView) -> Iterator[tuple[int, int]]:
        """Yield the row of each task that has a device, and the device's position among all."""
        position, row_of = {lane: i for i, lane in enumerate(board.lanes)}, board.snapshot.rows()
        return ((row_of[index], position[lane]) for index, lane in self._lane.items())

    def running_end(self, snapshot: Snapshot, row: int) -> float:
        """When the running task of that row is estimated to end: by its estimate, speed and transfer."""
        return estimated_end(snapshot, float(snapshot.live["est_end"][row]))

    def _forget(self, snapshot: Snapshot, lanes: set[Lane]) -> None:
        """Forget jobs that have left, and assignments to devices that are gone; a job that was stopped is assigned again."""
        running, row_of = snapshot.live["running"], snapshot.rows()
        waiting = {index for queue in self._queue.values() for index in queue}
        kept = {}
        for index, lane in self._lane.items():
            row = row_of.get(index)
            if row is not None and ((index in waiting and lane in lanes) or (index not in waiting and running[row])):
                kept[index] = lane
        self._lane = kept
        self._seconds = {index: self._seconds[index] for index in kept}
        self._renumber(set(snapshot.jobs.index[snapshot.held["row"]].tolist()), lanes)
        self._queue = {lane: [i for i in queue if self._lane.get(i) == lane] for lane, queue in self._queue.items() if lane in lanes}

    def _renumber(self, holding: set[int], lanes: set[Lane]) -> None:
        """A running task whose number is gone with a failed device takes the place of another on its node."""
        taken = {lane for index, lane in self._lane.items() if index in holding}
        for index, lane in list(self._lane.items()):
            if index in holding and lane not in lanes:
                free = next(other for other in sorted(lanes) if other[0] == lane[0] and other[1] >= 0 and other not in taken)
                self._lane[index] = free
                taken.add(free)

    def starts(self, board: DeviceView) -> list[Decision]:
        """Start who is first on a free device."""
        snapshot, row_of = board.snapshot, board.snapshot.rows()
        capacity = Capacity.of(snapshot, board.requests)
        busy = {lane for index, lane in self._lane.items() if snapshot.live["running"][row_of[index]]}
        decisions = []
        for lane in sorted(self._queue):
            if lane in busy or not self._queue[lane]:
                continue
            request = board.requests[row_of[self._queue[lane][0]]]
            whole = capacity.lowest_free(lane[0]) if request.shared else ()  # not to be packed with another share
            if capacity.within_quota(request) and capacity.rooms(request)[lane[0]] > 0 and (whole or not request.shared):
                parts = capacity.take(request, (Part(lane[0], request.gpus, whole),))
                decisions.append(Decision(request.index, parts=parts))
                self._queue[lane].pop(0)
        return decisions


class DeviceQueues(Queues, ABC):
    """Queues with a rule of who goes into which."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Assign who is new, then start who is first on a free device."""
        board, tasks = self.admit(snapshot)
        self.assign(board, tasks)
        return self.starts(board)

    @abstractmethod
    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        """Choose a device for each of the tasks, in order, with `put`."""


def _refuse_gangs(snapshot: Snapshot) -> None:
    wide = np.flatnonzero(snapshot.jobs.gpus > 1)
    if len(wide):
        job, gpus = int(snapshot.jobs.id[wide[0]]), float(snapshot.jobs.gpus[wide[0]])
        raise UsageError(f"job {job} asks for {gpus:g} GPUs: device choice is for tasks of at most one", hint="milp and gavel place gangs")


class OneByOne(DeviceQueues):
    """Each task by itself, when it is submitted."""

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        """A lane for each, in order."""
        for task in tasks:
            seconds = board.seconds(task)
            suits = np.flatnonzero(np.isfinite(seconds)).tolist()
            if suits:
                chosen = self.choose(board, task, suits, seconds)
                self.put(task, board.lanes[chosen], float(seconds[chosen]))

    @abstractmethod
    def choose(self, board: DeviceView, task: JobRequest, suits: list[int], seconds: Array) -> int:
        """One of the lanes that suit."""


@decider("round-robin", title="Device choice: every device in turn")
class RoundRobin(OneByOne):
    """Tasks go to the devices that suit them in turn, by node and device number, and wait there."""

    def __init__(self) -> None:
        super().__init__()
        self._turn: Lane = (-1, -1)

    def choose(self, board: DeviceView, task: JobRequest, suits: list[int], seconds: Array) -> int:
        after = [i for i in suits if board.lanes[i] > self._turn]
        chosen = (after or suits)[0]
        self._turn = board.lanes[chosen]
        return chosen


@decider("random-device", title="Device choice: at random")
class RandomDevice(OneByOne):
    """A device that suits, at random by the simulation's seed and the task; it waits there."""

    def choose(self, board: DeviceView, task: JobRequest, suits: list[int], seconds: Array) -> int:
        rng = np.random.default_rng([board.snapshot.seed, task.index])
        return suits[int(rng.integers(len(suits)))]


@decider("greedy-device", title="Device choice: where the task is estimated to end first")
class GreedyDevice(OneByOne):
    """The device on which the task is estimated to end first, behind all that waits there already: estimate, transfer and speed count."""

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        if tasks:
            self._ends = self.estimated_ends(board)
            super().assign(board, tasks)

    def choose(self, board: DeviceView, task: JobRequest, suits: list[int], seconds: Array) -> int:
        best = greedy_lane(self._ends, seconds)
        self._ends[best] += seconds[best]
        return best


def greedy_lane(ends: Array, seconds: Array) -> int:
    """The device on which a task that takes `seconds` (lanes,) there ends first, where each has done the rest at `ends` (lanes,)."""
    return int(np.argmin(ends + seconds))


@decider("optimal-device", title="Device choice: least total turnaround of all tasks known")
class OptimalDevice(DeviceQueues):
    """Assigns and orders all waiting tasks so that the sum of their estimated ends is least.

    On unrelated machines this is an assignment problem (Horn 1973, Bruno et al. 1974): the k-th task from the last on a device adds k times
    its length. For tasks submitted together and exact estimates it is the offline optimum. Tasks to come are not known. All is solved
    again when one comes, a device comes or goes, or a task does not end when it was estimated to. Beyond `most` waiting tasks those
    submitted first are looked at. Cpus, memory and quotas do not enter the choice.
    """

    def __init__(self, *, most: float = 200) -> None:
        super().__init__()
        if not (1 <= most <= 2000 and most == int(most)):
            raise UsageError(f"optimal-device: most = {most:g} is not a whole number in 1..2,000")
        self._most = int(most)
        self._later: set[int] = set()  # tasks that were left for later
        self._expected: dict[int, float] = {}  # running task → its estimated end
        self._devices: list[Lane] = []

    def assign(self, board: DeviceView, tasks: list[JobRequest]) -> None:
        fresh = any(task.index not in self._later for task in tasks)
        few = bool(tasks) and sum(map(len, self._queue.values())) <= self._most // 2
        surprised = self._surprised(board.snapshot)  # asked always: it takes note
        if fresh or few or surprised or board.lanes != self._devices:
            self._devices = board.lanes
            self._solve(board)

    def _surprised(self, snapshot: Snapshot) -> bool:
        """Whether a task has ended at another time than it was estimated to, or is overdue."""
        now, running = snapshot.now, snapshot.running
        ends = snapshot.live["est_end"][running].tolist()
        before, self._expected = self._expected, dict(zip(snapshot.jobs.index[running].tolist(), ends, strict=True))
        slack = 1e-9 * max(now, 1.0)
        early = any(abs(end - now) > slack for index, end in before.items() if index not in self._expected)
        return early or any(end < now - slack for end in self._expected.values())

    def _solve(self, board: DeviceView) -> None:
        self.take_back()
        tasks = [board.requests[row] for row in board.snapshot.waiting.tolist()]
        ends = self.estimated_ends(board) - board.snapshot.now
        for cpu in (True, False):
            timed = ((task, board.seconds(task)) for task in tasks if (task.gpus == 0) == cpu)
            known = list(islice(((task, seconds) for task, seconds in timed if np.isfinite(seconds).any()), self._most))
            matrix = np.array([seconds for _, seconds in known])
            for lane, queue in optimal_queues(matrix, ends):
                for k in queue:
                    self.put(known[k][0], board.lanes[lane], float(matrix[k, lane]))
        self._later = {task.index for task in tasks} - set(self._lane)


class PlannedDevices:
    """Plays queues that were made before: each device starts its tasks in the order given and waits for one that is still to come."""

    label = "planned"

    def __init__(self, queues: Mapping[Lane, Sequence[int]]) -> None:
        self._queues = {lane: deque(queue) for lane, queue in sorted(queues.items())}
        self._runs: dict[Lane, int] = {}

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Start the next on each free device, if it is there."""
        running = set(snapshot.jobs.index[snapshot.running].tolist())
        waiting = set(snapshot.jobs.index[snapshot.waiting].tolist())
        decisions = []
        for lane, queue in self._queues.items():
            if queue and queue[0] in waiting and self._runs.get(lane) not in running:
                self._runs[lane] = queue.popleft()
                decisions.append(Decision(self._runs[lane], parts=(Part(lane[0], 1.0),)))
        return decisions


def optimal_queues(seconds: Array, waits: Array) -> Iterable[tuple[int, list[int]]]:
    """(device, tasks in order) with the least sum of ends: device i is free after `waits[i]` s, task k takes `seconds[k, i]` there."""
    try:
        from scipy.optimize import linear_sum_assignment
    except ImportError:
        raise UsageError("optimal-device needs scipy", hint="pip install 'gpuyard[learn]'") from None
    tasks = len(seconds)
    if tasks == 0:
        return []
    used = np.flatnonzero(np.isfinite(seconds).any(axis=0))
    places = min(tasks, -(-tasks // len(used)) + 2)
    while True:
        cost = waits[used][None, :, None] + seconds[:, used, None] * np.arange(1, places + 1)
        large = 1e3 * (1.0 + np.where(np.isfinite(cost), cost, 0.0).max()) * tasks
        rows, columns = linear_sum_assignment(np.where(np.isfinite(cost), cost, large).reshape(tasks, -1))
        # a last place that stays empty on every device has the dual value 0, and places beyond cost more: they cannot help
        if places == tasks or (columns % places < places - 1).all():
            break
        places = min(tasks, 2 * places)
    queues: dict[int, list[tuple[int, int]]] = {}
    for task, column in zip(rows.tolist(), columns.tolist(), strict=True):
        queues.setdefault(int(used[column // places]), []).append((-(column % places), task))
    return [(device, [task for _, task in sorted(queue)]) for device, queue in sorted(queues.items())]
