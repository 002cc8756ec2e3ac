"""Guards stand between a decision and a real cluster, whichever batch system runs it. Nothing is read or sent here.

Decisions are checked against the snapshot that they were made from, the order is kept near the site's own, and a watch says when a
deployment must go back to the site's own policy.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any, TypeVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError
from gpuyard.live.log import each_line
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteJob
from gpuyard.model.decision import Action, Decision

T = TypeVar("T")
_TINY = 1e-6


@dataclass(frozen=True)
class GuardSettings:
    """The bounds within which a deployment works."""

    users: frozenset[str] = frozenset()  # whose jobs are left to the site
    partitions: frozenset[str] = frozenset()  # whose jobs are left to the site
    behind: int | None = None  # places that a job may stand behind where the site has it; None: any
    fresh: float = 60.0  # s; an older snapshot is not acted on
    starts: int = 100  # jobs that one cycle may start
    stop_file: Path | None = None  # while it exists, the site's own policy holds
    slow: float = 30.0  # s that a cycle may take
    strikes: int = 5  # slow or failed cycles in a row, after which the site's policy returns
    usual_wait: float | None = None  # s, the mean wait under the site's policy; None: not watched
    worse: float = 1.5  # × usual_wait: a longer mean wait ends it
    least: int = 100  # started jobs that a mean wait is taken of

    def leaves(self, job: SiteJob) -> bool:
        """Return whether a job is none of ours to touch."""
        return job.user in self.users or bool(self.partitions & set(job.partitions))

    def touches(self, job: SiteJob, partitions: frozenset[str]) -> bool:
        """Return whether a job is ours to touch: in one of our partitions (none: in any), and not left to the site."""
        return not self.leaves(job) and (not partitions or not partitions.isdisjoint(job.partitions))

    @property
    def stopped(self) -> bool:
        """Return whether the kill switch is there; one that cannot be looked at counts."""
        if self.stop_file is None:
            return False
        try:
            self.stop_file.lstat()
        except FileNotFoundError:
            return False
        except OSError:
            return True
        return True


def near_own(wanted: Sequence[T], own: Sequence[T], behind: int | None) -> list[T]:
    """Return `wanted` with nobody more than `behind` places behind where he stands in `own`. Both hold the same.

    At each place goes who must go now, since his last allowed place it is, else the next of `wanted`: one at most must, so it is possible.
    """
    if behind is None:
        return list(wanted)
    found: list[T] = []
    placed: set[T] = set()
    queue = iter(wanted)
    for place in range(len(own)):
        due = own[place - behind] if place >= behind else None
        if due is None or due in placed:
            due = next(each for each in queue if each not in placed)
        found.append(due)
        placed.add(due)
    return found


# ── starts ──


@dataclass(frozen=True)
class Start:
    """A job, and the nodes that it is to start on."""

    row: int  # of the snapshot
    name: str
    nodes: tuple[str, ...]


@dataclass
class Room:
    """Keeps what is left of each node while decisions are checked one after the other."""

    gpus: Array  # (nodes,)
    cpus: Array
    memory: Array
    types: Array  # into the cluster's types

    @classmethod
    def of(cls, saved: SavedSnapshot) -> Room:
        """Return what the snapshot says is free."""
        s = saved.snapshot
        nodes, table = s.cluster.nodes, s.jobs.table
        cpus, memory = nodes.cpus.astype(float), nodes.memory.astype(float)
        parts = np.maximum(np.bincount(s.held["row"], minlength=len(table)), 1)
        for column, left in (("cpus", cpus), ("memory", memory)):
            np.subtract.at(left, s.held["node"], (table[column] / parts)[s.held["row"]])
        closed = s.nodes["down"] > 0
        cpus[closed] = memory[closed] = -1.0
        return cls(s.free_gpus(), cpus, memory, nodes.gpu_type)

    def fits(self, node: int, gpus: int, cpus: float, memory: float) -> bool:
        """Return whether a node has as much left."""
        return bool(self.gpus[node] >= gpus and self.cpus[node] >= cpus - _TINY and self.memory[node] >= memory - _TINY)

    def take(self, nodes: Iterable[int], gpus: int, cpus: float, memory: float) -> None:
        """Take it from each of some nodes."""
        for node in nodes:
            self.gpus[node] -= gpus
            self.cpus[node] -= cpus
            self.memory[node] -= memory


def checked_starts(
    saved: SavedSnapshot, decisions: Sequence[Decision], jobs: Mapping[str, SiteJob], settings: GuardSettings
) -> tuple[list[Start], dict[str, str]]:
    """Return the starts that fit the snapshot one after the other, each on as many nodes as its job asks for, and who is refused, why.

    A policy counts GPUs; a batch system counts nodes too. Where a decision packs a job closer than it asks, nodes with room are added.
    """
    room, rows = Room.of(saved), saved.snapshot.rows()
    good: list[Start] = []
    refused: dict[str, str] = {}
    for each in decisions:
        if each.action is not Action.START or each.job not in rows:
            continue
        row = rows[each.job]
        job = jobs.get(saved.name(row))
        if job is None or not job.waits:
            refused[saved.name(row)] = "it does not wait"
        elif settings.leaves(job):
            refused[job.name] = "its user or partition is left to the site"
        elif len(good) >= settings.starts:
            refused[job.name] = f"{settings.starts} starts in this cycle already"
        elif (nodes := _nodes_for(saved, row, job, [part.node for part in each.parts], room)) is None:
            refused[job.name] = "it does not fit"
        else:
            good.append(Start(row, job.name, tuple(saved.snapshot.cluster.nodes.names[node] for node in nodes)))
    return good, refused


def _nodes_for(saved: SavedSnapshot, row: int, job: SiteJob, decided: Sequence[int], room: Room) -> list[int] | None:
    """Return as many nodes as the job asks for, the decided ones first, and take its parts from `room`; None: there are not so many."""
    count = job.node_count
    gpus, cpus, memory = _share(saved, row, job)
    wanted = saved.snapshot.jobs.gpu_types[saved.snapshot.jobs.table["gpu_type"][row]]
    kinds = saved.snapshot.cluster.types
    allowed = [not wanted or kind.name in wanted.split("|") for kind in kinds]
    types = {int(room.types[node]) for node in decided}
    home = {int(saved.snapshot.cluster.nodes.partition[node]) for node in decided}
    order = list(dict.fromkeys(decided))
    if len(order) < count:
        fullest = np.argsort(room.gpus, kind="stable").tolist()
        partition = saved.snapshot.cluster.nodes.partition
        order += [node for node in fullest if node not in order and int(room.types[node]) in types and int(partition[node]) in home]
    found = [node for node in order if allowed[int(room.types[node])] and room.fits(node, gpus, cpus, memory)][:count]
    if len(found) < count:
        return None
    room.take(found, gpus, cpus, memory)
    return found


def _share(saved: SavedSnapshot, row: int, job: SiteJob) -> tuple[int, float, float]:
    """Return what a job needs on each of its nodes: GPUs, cores, GB."""
    table, count = saved.snapshot.jobs.table[row], job.node_count
    divisor = count if job.gpus else 1  # without GPUs the table has what one node gives
    return -(-job.gpus // count), float(table["cpus"]) / divisor, float(table["memory"]) / divisor


# ── the watch ──


def usual_wait(log: Path) -> float:
    """Return the mean wait of the jobs that started while a shadow log was written, in s."""
    waits = [wait for record in each_line(log) if not record.get("acts") for wait in started_waits(record)]
    if not waits:
        raise UsageError(
            f"{log}: no job started while it was written", hint="let --shadow run for longer: a week shows nights and weekends"
        )
    return fmean(waits)


def started_waits(record: Mapping[str, Any]) -> list[float]:
    """Return the waits of the jobs that a line of a log says have started, in s; what is none is left out."""
    found = record.get("started")
    pairs = found if isinstance(found, list | tuple) else ()
    waits = [each[1] for each in pairs if isinstance(each, list | tuple) and len(each) == 2]
    return [float(wait) for wait in waits if isinstance(wait, int | float) and 0 <= wait < 1e10]


@dataclass
class Watch:
    """Says when a deployment must go back to the site's own policy. What has tripped stays so until it is started anew."""

    settings: GuardSettings
    tripped: str = ""
    _strikes: int = 0
    _waits: deque[float] = field(default_factory=deque, repr=False)

    def __post_init__(self) -> None:
        self._waits = deque(maxlen=2 * self.settings.least)

    @property
    def mean_wait(self) -> float | None:
        """The mean wait of the last jobs that started, in s; None: too few."""
        return fmean(self._waits) if len(self._waits) >= self.settings.least else None

    def see(self, record: Mapping[str, Any]) -> str:
        """Take what is logged of a cycle into account, and return why the site's policy must return; empty: it need not."""
        self._waits.extend(started_waits(record))
        seconds = sum(record.get("seconds", {}).values())
        bad = record.get("error") or (f"a cycle took {seconds:.1f} s" if seconds > self.settings.slow else "")
        self._strikes = self._strikes + 1 if bad else 0
        usual, mean = self.settings.usual_wait, self.mean_wait
        if not self.tripped and self._strikes >= self.settings.strikes:
            self.tripped = f"{self._strikes} cycles in a row were slow or failed; the last: {bad}"
        if not self.tripped and usual and mean is not None and mean > self.settings.worse * usual:
            self.tripped = f"jobs waited {mean:.0f} s on average, {mean / usual:.1f} times as long as in shadow mode"
        return self.tripped
