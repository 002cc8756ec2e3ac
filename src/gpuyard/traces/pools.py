"""Finds the pools of a machine in what its log says ran at once: how large each is, and whether labels such as queues are pools at all.

A pool is as large as the use that it held while jobs waited, not as the bare peak, which records that overlap by mistake lift. Labels are
pools where jobs waited although the whole machine had room for them, and far less often although their own part of it had.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.units import format_seconds
from gpuyard.model.workload import Workload

HELD = 0.02  # of the time in which jobs wait: a level of use that is held longer than that is sustained
HELD_IDLE = 0.001  # of the time in use, where hardly anybody waits
SPURIOUS = 1.02  # × the sustained level, above which the bare peak is not believed
LATE = 60.0  # s from which a job is said to have waited
RARE = 0.005  # of the work: labels with less join the largest pool
TOGETHER = 1.15  # × the whole machine: parts that are larger than that in sum must share nodes
ROOM = 0.1  # of the waiting, from which room elsewhere speaks for pools
EXPLAINED = 0.6  # of that share: what pools must bring it down to
SPARE = 0.1  # of a part's size that must be left beside the job before there is room: sizes are known to within a few percent
SAMPLES = 20_000  # instants at which waiting is looked at
MOST_POOLS = 64


@dataclass(frozen=True)
class UseOverTime:
    """How many devices were in use over time, by a log's starts: `level` (n,) from `time` (n,) s on, and whether jobs waited then."""

    time: Array
    level: Array
    waiting: Array  # (n,) bool

    @classmethod
    def of(cls, submit: Array, start: Array, end: Array, gpus: Array) -> UseOverTime:
        """Count what runs at each instant; an end comes before a start of the same instant."""
        used, late = (end > start) & (gpus > 0), start - submit > LATE
        times = np.concatenate([end[used], start[used], start[late], submit[late]])
        change = np.concatenate([-gpus[used], gpus[used], np.zeros(2 * int(late.sum()))])
        queue = np.concatenate([np.zeros(2 * int(used.sum())), -np.ones(int(late.sum())), np.ones(int(late.sum()))])
        order = np.lexsort((change, times))
        return cls(times[order], np.cumsum(change[order]), np.cumsum(queue[order]) > 0.5)

    def at(self, instants: Array) -> Array:
        """(n,) the use at each instant."""
        if len(self.time) == 0:
            return np.zeros(len(instants))
        level: Array = self.level[np.maximum(np.searchsorted(self.time, instants, side="right") - 1, 0)]
        return level

    def sustained(self) -> tuple[float, float, str]:
        """Return the level that is held long enough to be believed, how long, s, and what `long enough` is measured by."""
        spans = np.diff(self.time)
        level, busy = self.level[:-1], self.waiting[:-1]
        waited, used = float(spans[busy].sum()), float(spans[level > 0].sum())
        chosen, share, words = (busy, HELD, "while jobs waited") if waited > HELD * used else (level > 0, HELD_IDLE, "in all")
        order = np.flatnonzero(chosen)[np.argsort(-level[chosen], kind="stable")]
        if len(order) == 0:
            return 0.0, 0.0, words
        held = np.cumsum(spans[order])
        k = min(int(np.searchsorted(held, share * held[-1])), len(order) - 1)
        return float(level[order[k]]), float(held[k]), words


@dataclass(frozen=True)
class Pool:
    """A part of a machine with the evidence for its size."""

    name: str
    also: tuple[str, ...]  # labels that hardly occur and are counted here
    size: int
    jobs: int
    peak: int  # the most that ran at once
    held: float  # s for which the sustained level or more was in use
    when: str
    largest: int  # job

    @property
    def evidence(self) -> str:
        """Say why the pool is this large."""
        name = f"{self.name}: " if self.name else ""
        if self.size == self.peak:
            return f"{name}{self.size:,}, the most that ran at once ({self.jobs:,} jobs)"
        basis = "the largest job" if self.size == self.largest else f"in use for {format_seconds(self.held)} or more {self.when}"
        return f"{name}{self.size:,}, {basis}; the bare peak of {self.peak:,} was brief"


@dataclass(frozen=True)
class Pools:
    """Pools that a log shows, one or several, and why."""

    pools: tuple[Pool, ...]
    whole: int  # devices, as stated or else by sustained use
    room: float  # share of the waiting during which the whole machine had room; nan: nobody waited
    room_apart: float  # share of it during which the job's own pool had room
    why: str  # the labels are, or are not, pools; empty: there are none

    @property
    def apart(self) -> bool:
        """Whether there is more than one pool."""
        return len(self.pools) > 1


def find_pools(workload: Workload, stated: int = 0) -> Pools:
    """Find the pools of a log that says when most of its jobs started; `stated`: devices of the whole machine, if the log says so.

    It takes 1 s for a million jobs.
    """
    start = workload.known_start
    known = np.isfinite(start)
    jobs = workload.jobs
    runs = _Runs(jobs.submit[known], start[known], start[known] + workload.runtime[known], jobs.gpus[known])
    everything = _pool("", (), runs, np.ones(int(known.sum()), bool))
    whole = stated or everything.size
    labels, code = _groups(workload, known)
    if len(labels) < 2:
        return Pools((everything,), whole, np.nan, np.nan, "")
    found = [_pool(names[0], names[1:], runs, code == k) for k, names in enumerate(labels)]
    if len(found) > MOST_POOLS:
        return Pools((everything,), whole, np.nan, np.nan, f"{len(found)} partitions are taken as queues of one pool")
    room, apart = _room(runs, code, found, whole)
    total = sum(pool.size for pool in found)
    why, separate = _judge(len(found), total, whole, room, apart)
    return Pools(tuple(found) if separate else (everything,), whole, room, apart, why)


def _judge(count: int, total: int, whole: int, room: float, apart: float) -> tuple[str, bool]:
    """Say whether the labels are pools, and why."""
    if total > TOGETHER * whole:
        return (
            f"at their own busiest times the {count} partitions held {total:,}, more than the {whole:,} there are: they share nodes",
            False,
        )
    if not np.isfinite(room):
        return f"hardly anybody waited, so nothing tells whether the {count} partitions share nodes: one pool", False
    told = f"jobs waited while the whole machine had room for them {room:.0%} of the time, and their own partition {apart:.0%}"
    if room >= ROOM and apart <= EXPLAINED * room:
        return f"{told}: {count} pools that share no nodes", True
    return f"{told}: the {count} partitions share nodes", False


# ── how it is found ──


@dataclass(frozen=True)
class _Runs:
    """The runs of a log: submits, starts, ends and devices."""

    submit: Array
    start: Array
    end: Array
    gpus: Array

    def use(self, rows: Array) -> UseOverTime:
        return UseOverTime.of(self.submit[rows], self.start[rows], self.end[rows], self.gpus[rows])


def _groups(workload: Workload, known: Array) -> tuple[list[tuple[str, ...]], Array]:
    """Return the labels of each pool that might be, most work first, and the number of the pool of each known job."""
    labels = workload.jobs.partitions
    code = np.asarray(workload.jobs.partition, np.int64)[known]
    work = np.bincount(code, weights=(workload.jobs.gpus * np.maximum(workload.runtime, 1.0))[known], minlength=len(labels))
    order = [k for k in np.argsort(-work, kind="stable").tolist() if work[k] > 0]
    kept = [k for k in order if labels[k] and work[k] >= RARE * work.sum()]
    if len(kept) < 2:
        return [], code
    place = np.zeros(len(labels), np.int64)
    place[kept] = np.arange(len(kept))
    names: list[tuple[str, ...]] = [(labels[k],) for k in kept]
    names[0] += tuple(label for k, label in enumerate(labels) if k not in kept and label)
    return names, place[code]


def _pool(name: str, also: Sequence[str], runs: _Runs, rows: Array) -> Pool:
    """Measure one pool: its sustained use, or the bare peak where that is hardly more; the largest job fits in any case."""
    use, largest = runs.use(rows), int(runs.gpus[rows].max(initial=0.0))
    peak = int(max(use.level.max(initial=0.0), largest))
    level, held, when = use.sustained()
    size = peak if peak <= SPURIOUS * level else max(int(level), largest)
    return Pool(name, tuple(also), size, int(rows.sum()), peak, held, when, largest)


def _room(runs: _Runs, code: Array, pools: Sequence[Pool], whole: int) -> tuple[float, float]:
    """Return the shares of the waiting during which the whole machine, and the job's own pool, had room for the job.

    The waiting is looked at at instants spread evenly over its sum, so that a long wait counts for more.
    """
    wait = np.where(runs.start - runs.submit > LATE, runs.start - runs.submit, 0.0)
    total = np.cumsum(wait)
    if len(total) == 0 or total[-1] <= 0:
        return np.nan, np.nan
    marks = (np.arange(SAMPLES) + 0.5) / SAMPLES * total[-1]
    job = np.searchsorted(total, marks)
    instant = runs.start[job] - (total[job] - marks)
    needed = runs.gpus[job]
    every = runs.use(np.ones(len(wait), bool)).at(instant)
    own, size = np.zeros(SAMPLES), np.array([pool.size for pool in pools])
    for k in range(len(pools)):
        inside = code[job] == k
        own[inside] = runs.use(code == k).at(instant[inside])
    mine = size[code[job]]
    return float(((1 - SPARE) * whole - every >= needed).mean()), float(((1 - SPARE) * mine - own >= needed).mean())
