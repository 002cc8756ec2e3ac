"""The jobs of a real cluster as columns, kept up to date job by job, so that a snapshot of 10,000 takes a few ms."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import JOB, LABELS, Jobs
from gpuyard.model.rules import StopTerms
from gpuyard.model.snapshot import HELD, LIVE, NODE, RECENT, Snapshot

_FIRST = 256  # rows


@dataclass(frozen=True)
class SeenJob:
    """A job as policies see it. Times in s from the origin of the table, memory in GB."""

    index: int  # unique, and ascending in the order of submission
    submit: float
    gpus: float
    estimate: float
    walltime: float = np.inf
    deadline: float = np.inf
    cpus: float = 0.0
    memory: float = 0.0
    priority: float = 0.0
    user: str = ""
    partition: str = ""
    job_class: str = ""
    terms: StopTerms = field(default_factory=lambda: StopTerms(preemptible=False))


@dataclass(frozen=True)
class HeldDevices:
    """The devices that a running job holds on one node. A share has its device, whole ones a bit set (0: interchangeable)."""

    index: int
    node: int
    gpus: int
    device: int = -1
    devices: int = 0


class LiveJobs:
    """Rows of jobs that have not ended, in the order of submission."""

    def __init__(self) -> None:
        self._jobs = np.zeros(_FIRST, JOB)
        self._live = np.zeros(_FIRST, LIVE)
        self._kept = np.zeros(_FIRST, bool)
        self._row: dict[int, int] = {}
        self._used = 0
        self._ascending = True  # rows stand in the order of their indices; a job that comes back stands behind
        self._labels: dict[str, dict[str, int]] = {name: {"": 0} for name in LABELS.values()}
        self._texts: dict[str, Any] = dict.fromkeys(LABELS.values(), ("",))

    def __len__(self) -> int:
        return len(self._row)

    def add(self, job: SeenJob) -> None:
        """Add a waiting job; one that comes back has the index that it had."""
        if self._used == len(self._jobs):
            self._make_room()
        at = self._used
        self._used += 1
        self._ascending &= at == 0 or int(self._jobs["index"][at - 1]) < job.index
        self._row[job.index] = at
        self._kept[at] = True
        row = self._jobs[at]
        row["id"] = row["index"] = job.index
        row["chunk"] = max(int(job.gpus), 1)  # all of its GPUs on one node
        for name in ("submit", "gpus", "estimate", "walltime", "deadline", "cpus", "memory", "priority"):
            row[name] = getattr(job, name)
        labels = {"user": job.user, "partition": job.partition, "job_class": job.job_class, "terms": job.terms.text}
        for name, label in labels.items():
            row[name] = self._number(LABELS[name], label)
        live = self._live[at]
        live["queued"], live["start"], live["rate"], live["run_start"] = job.submit, -1.0, 1.0, -1.0

    def set(self, index: int, **columns: float) -> None:
        """Change columns of a job."""
        at = self._row[index]
        for name, value in columns.items():
            (self._jobs if name in _OF_JOBS else self._live)[name][at] = value

    def remove(self, index: int) -> None:
        """Forget a job, if it is there."""
        at = self._row.pop(index, None)
        if at is not None:
            self._kept[at] = False

    def snapshot(
        self, now: float, cluster: Cluster, offered: Iterable[int] | None, held: Iterable[HeldDevices], nodes: Array, **other: Any
    ) -> Snapshot:
        """Return the running jobs and those that are offered (None: all of them), with what the former hold.

        Where nothing has to be left out the rows are those of the table itself: they hold until the next change.
        """
        kept = self._kept[: self._used] & self._live["running"][: self._used] if offered is not None else self._kept[: self._used]
        if offered is not None:
            kept[[self._row[index] for index in offered]] = True
        rows = np.flatnonzero(kept)
        if not self._ascending:
            rows = rows[np.argsort(self._jobs["index"][rows], kind="stable")]
        at = np.zeros(self._used, np.int64)
        at[rows] = np.arange(len(rows))
        found = [(int(at[self._row[h.index]]), h.node, h.gpus, h.device, h.devices) for h in held if h.index in self._row]
        found.sort()
        submitted = int(np.count_nonzero(self._jobs["submit"][: self._used] > now - RECENT))
        all_of = slice(self._used) if self._ascending and len(rows) == self._used else rows
        jobs = Jobs(self._jobs[all_of], **self._texts)
        return Snapshot(now, jobs, self._live[all_of], np.array(found, HELD), nodes, cluster, seed=0, submitted=submitted, **other)

    def _make_room(self) -> None:
        """Drop the rows of jobs that have ended, and double what is left if that is not enough."""
        rows = np.flatnonzero(self._kept[: self._used])
        rows = rows[np.argsort(self._jobs["index"][rows], kind="stable")]
        self._ascending = True
        size = max(_FIRST, 2 * len(rows))
        jobs, live, kept = np.zeros(size, JOB), np.zeros(size, LIVE), np.zeros(size, bool)
        jobs[: len(rows)], live[: len(rows)], kept[: len(rows)] = self._jobs[rows], self._live[rows], True
        self._jobs, self._live, self._kept, self._used = jobs, live, kept, len(rows)
        self._row = {int(index): at for at, index in enumerate(jobs["index"][: len(rows)])}

    def _number(self, attribute: str, label: str) -> int:
        known = self._labels[attribute]
        if label not in known:
            known[label] = len(known)
            self._texts[attribute] = tuple(known)
        return known[label]


_OF_JOBS = frozenset(JOB.names or ())


def nodes_up(cluster: Cluster, unusable: Mapping[int, Iterable[int]]) -> Array:
    """(nodes,) of NODE: which devices of each node can be used, but those named as unusable."""
    found = np.zeros(len(cluster.nodes), NODE)
    for node, count in enumerate(cluster.nodes.gpus.tolist()):
        off = set(unusable.get(node, ()))
        found["off"][node] = len(off)
        found["mask"][node] = sum(1 << device for device in range(count) if device not in off) if count <= 64 else 0
    return found
