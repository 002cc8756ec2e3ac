"""The offline optimum of device choice: it knows all tasks, their arrivals and their true seconds on each device, in advance.

To find the least sum of turnarounds of tasks that arrive over time is NP-hard even for one device (Lenstra et al. 1977), so the optimum
is enclosed. From above: the best queues found by a local search (move one task to any place of any queue, with seeded kicks), which
starts from the queues of `optimal-device`, exact where all tasks come at once. From below: a linear relaxation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import entry, inner
from gpuyard.errors import UsageError

_NEAR = 20.0  # s: a kick is followed by a search among the tasks that came so near to it
_WINDOW = 20  # s after its arrival in which the relaxation may start a task; the bound holds whatever it is


@dataclass(frozen=True, eq=False)
class Offline:
    """The solution: the optimum lies between `bound` and the sum of `end` − arrivals."""

    end: Array  # (tasks,) s
    queues: tuple[tuple[int, ...], ...]  # of each device, in order; where the next is still to come, the device waits for it
    total: float  # s, sum of turnarounds
    bound: float  # s, no choice of devices and order has less


def offline_optimum(arrival: Array, seconds: Array, start: Sequence[Sequence[int]], seed: int = 0, *, kicks: int = 10_000) -> Offline:
    """Search the optimum from queues `start`; `arrival` (tasks,) s, `seconds` (tasks, devices), inf where a task cannot run."""
    tasks, devices = seconds.shape
    if sorted(task for queue in start for task in queue) != list(range(tasks)) or len(start) != devices:
        raise UsageError(f"the queues to start from do not hold each of the {tasks} tasks once")
    queue, count = np.zeros((devices, tasks + 1), np.int64), np.array([len(q) for q in start], np.int64)
    for device, given in enumerate(start):
        queue[device, : len(given)] = given
    arrival, seconds = np.ascontiguousarray(arrival, np.float64), np.ascontiguousarray(seconds, np.float64)
    rng = np.random.default_rng([seed, 500])
    best = _search(arrival, seconds, queue, count, -np.inf, np.inf)
    for _ in range(kicks if tasks > 1 else 0):
        other, lengths = queue.copy(), count.copy()
        when = float(rng.choice(arrival))
        _kick(other, lengths, arrival, seconds, when, rng)
        total = _search(arrival, seconds, other, lengths, when - _NEAR, when + _NEAR)
        if total < best - 1e-9:
            best, queue, count = total, other, lengths
    queues = tuple(tuple(queue[d, : count[d]].tolist()) for d in range(devices))
    end = np.zeros(tasks)
    for d, tasks_there in enumerate(queues):
        now = 0.0
        for task in tasks_there:
            end[task] = now = max(now, arrival[task]) + seconds[task, d]
    return Offline(end, queues, float((end - arrival).sum()), lower_bound(arrival, seconds))


def _kick(queue: Array, count: Array, arrival: Array, seconds: Array, when: float, rng: np.random.Generator) -> None:
    """Move three tasks that came at about the same time to a place of about that time in any queue that suits them."""
    near = np.argsort(np.abs(arrival - when))[:12]
    for task in rng.choice(near, min(3, len(near)), replace=False).tolist():
        source = int(np.argmax([(queue[d, : count[d]] == task).any() for d in range(len(count))]))
        at = int(np.argmax(queue[source, : count[source]] == task))
        queue[source, at : count[source] - 1] = queue[source, at + 1 : count[source]].copy()
        count[source] -= 1
        target = int(rng.choice(np.flatnonzero(np.isfinite(seconds[task]))))
        later = np.flatnonzero(arrival[queue[target, : count[target]]] > when)
        place = int(later[0]) if len(later) else int(count[target])
        queue[target, place + 1 : count[target] + 1] = queue[target, place : count[target]].copy()
        queue[target, place] = task
        count[target] += 1


def _search(arrival: Array, seconds: Array, queue: Array, count: Array, low: float, high: float) -> float:
    """Improve the queues in place until no single move of a task that came in low..high s helps; the sum of turnarounds."""
    end = np.zeros(queue.shape)
    return float(_kernel()(arrival, seconds, queue, count, end, low, high) - arrival.sum())


def lower_bound(arrival: Array, seconds: Array) -> float:
    """Compute seconds below which no sum of turnarounds can be.

    Relaxed: a task may be split into parts that start at different times, and in each second the devices of a kind (equal seconds for
    every task) together give no more than their time. What a run takes of each second is piecewise linear in its start, with bends
    where its start or its end passes a whole second, so only such starts (and the arrival) need be looked at. The prices of a second of
    each kind come from a linear program over the starts within a window; the bound is the dual value at these prices over all starts,
    and holds for any prices.
    """
    kinds, size = np.unique(seconds, axis=1, return_counts=True)
    if not len(arrival):
        return 0.0
    longest = float(np.where(np.isfinite(kinds), kinds, 0.0).max())
    horizon = int(np.ceil(float(arrival.max()) + _WINDOW + longest)) + 1
    price = _prices(arrival, kinds, size, horizon)
    paid = np.concatenate([np.zeros((len(size), 1)), np.cumsum(price, axis=1)], axis=1)  # integral up to each whole second
    whole = np.arange(horizon + 1.0)
    total = -float((price * size[:, None]).sum())
    for since, row in zip(arrival.tolist(), kinds, strict=True):
        best = np.inf
        for k in np.flatnonzero(np.isfinite(row)).tolist():
            starts = _bends(since, float(row[k]), horizon)
            charge = np.interp(starts + row[k], whole, paid[k]) - np.interp(starts, whole, paid[k])
            best = min(best, float((starts + row[k] + charge).min()))
        total += best
    return total - float(arrival.sum())


def _bends(since: float, length: float, until: int) -> Array:
    """The starts from `since` on at which the start or the end of a run is a whole second, and `since` itself."""
    starts = np.arange(np.ceil(since), until + 1)
    ends = np.arange(np.ceil(since + length), until + 1) - length
    return np.concatenate([[since], starts, ends])


def _prices(arrival: Array, kinds: Array, size: Array, horizon: int) -> Array:
    """(kinds, seconds) what a second of a device is worth: dual values of the relaxation with starts within the window."""
    from scipy.optimize import linprog
    from scipy.sparse import coo_array

    cost, owner, use, place, column = [], [], [], [], 0
    for j, since in enumerate(arrival.tolist()):
        for k in np.flatnonzero(np.isfinite(kinds[j])).tolist():
            length = float(kinds[j, k])
            starts = _bends(since, length, int(since + length) + _WINDOW)
            columns = column + np.arange(len(starts))
            slots = np.floor(starts)[:, None].astype(int) + np.arange(int(length) + 2)
            overlap = np.minimum(starts[:, None] + length, slots + 1) - np.maximum(starts[:, None], slots)
            cost.append(starts + length)
            owner.append(np.full(len(starts), j))
            use.append(np.maximum(overlap, 0.0).ravel())
            rows = np.minimum(slots, horizon - 1) + k * horizon
            place.append(np.stack([rows.ravel(), np.repeat(columns, slots.shape[1])]))
            column += len(starts)
    every = np.concatenate(owner)
    whole = coo_array((np.ones(column), (every, np.arange(column))), shape=(len(arrival), column)).tocsr()
    room = coo_array((np.concatenate(use), tuple(np.concatenate(place, axis=1))), shape=(len(size) * horizon, column)).tocsr()
    solved = linprog(np.concatenate(cost), room, np.repeat(size, horizon), whole, np.ones(len(arrival)), method="highs-ipm")
    if solved.ineqlin.marginals is None:
        return np.zeros((len(size), horizon))
    prices: Array = np.maximum(-solved.ineqlin.marginals, 0.0).reshape(len(size), horizon)
    return prices


@cache
def _kernel() -> Any:
    """Compile the kernel when it is first used."""
    arrays = (
        types.float64[::1],
        types.float64[:, ::1],
        types.int64[:, ::1],
        types.int64[::1],
        types.float64[:, ::1],
        types.float64,
        types.float64,
    )
    return entry(types.float64(*arrays))(_descend)


def _descend(arrival: Any, seconds: Any, queue: Any, count: Any, end: Any, low: Any, high: Any) -> Any:
    """Take out each task that came in low..high s in turn and put it where it adds least, until a round changes nothing.

    Returns the sum of ends; `end` is room to work in.
    """
    for d in range(queue.shape[0]):
        _set_ends(arrival, seconds, queue, count, end, d, 0)
    changed = True
    while changed:
        changed = False
        for source in range(queue.shape[0]):
            at = -1
            while at + 1 < count[source]:  # tasks come and go meanwhile
                at += 1
                job = queue[source, at]
                if not low <= arrival[job] <= high:
                    continue
                saved = end[source, at] + _lost_by(arrival, seconds, queue, count, end, source, at)
                count[source] -= 1
                for i in range(at, count[source]):
                    queue[source, i] = queue[source, i + 1]
                _set_ends(arrival, seconds, queue, count, end, source, at)
                device, place, added = _cheapest(arrival, seconds, queue, count, end, job)
                if added >= saved - 1e-9:
                    device, place = source, at
                else:
                    changed = True
                for i in range(count[device], place, -1):
                    queue[device, i] = queue[device, i - 1]
                queue[device, place] = job
                count[device] += 1
                _set_ends(arrival, seconds, queue, count, end, device, place)
    total = 0.0
    for d in range(queue.shape[0]):
        for i in range(count[d]):
            total += end[d, i]
    return total


@inner
def _set_ends(arrival: Any, seconds: Any, queue: Any, count: Any, end: Any, d: Any, since: Any) -> None:
    """The ends in queue d from place `since` on."""
    now = end[d, since - 1] if since > 0 else 0.0
    for i in range(since, count[d]):
        now = max(now, arrival[queue[d, i]]) + seconds[queue[d, i], d]
        end[d, i] = now


@inner
def _lost_by(arrival: Any, seconds: Any, queue: Any, count: Any, end: Any, d: Any, at: Any) -> Any:
    """How much earlier those behind it would end, in all, without the task at place `at`."""
    now = end[d, at - 1] if at > 0 else 0.0
    lost = 0.0
    for i in range(at + 1, count[d]):
        now = max(now, arrival[queue[d, i]]) + seconds[queue[d, i], d]
        if now == end[d, i]:
            break
        lost += end[d, i] - now
    return lost


@inner
def _cheapest(arrival: Any, seconds: Any, queue: Any, count: Any, end: Any, job: Any) -> Any:
    """(device, place, what it adds to the sum of ends) of the best place for a task that is in no queue."""
    best, device, place = np.inf, 0, 0
    for d in range(queue.shape[0]):
        if seconds[job, d] == np.inf:
            continue
        for p in range(count[d] + 1):
            if p < count[d] and end[d, p] <= arrival[job]:
                continue  # behind one that ends before the task comes is no worse than before it
            now = max(end[d, p - 1] if p > 0 else 0.0, arrival[job]) + seconds[job, d]
            if now >= best:
                break  # later places are later
            added = now
            for i in range(p, count[d]):
                now = max(now, arrival[queue[d, i]]) + seconds[queue[d, i], d]
                if now <= end[d, i] or added >= best:
                    break
                added += now - end[d, i]
            if added < best:
                best, device, place = added, d, p
    return device, place, best
