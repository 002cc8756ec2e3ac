"""Hosts and jobs that clients have told the service, as the columns of a snapshot, dense and in order.

A change costs some tens of µs, and a snapshot copies nothing. What a client says is checked here: nothing that is held twice, or is not
there, can reach a decision.
"""

from __future__ import annotations

import time
from array import array
from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.mix import reach
from gpuyard.engine.snapshots import carried_out, revise_ends
from gpuyard.errors import DataError, UsageError
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.table import nodes_up
from gpuyard.model.cluster import MAX_DEVICES, Cluster
from gpuyard.model.decision import Decision, Part
from gpuyard.model.jobs import JOB, LABELS, Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import HELD, LIVE, RECENT, Snapshot

MOST_JOBS = 200_000
MOST_ARRIVALS = 100_000  # of the last five minutes that are counted
MOST_LABELS = 10_000  # of users, accounts …
_FIRST = 256  # rows
_EPS = 1e-6  # of a share


def empty_site(cluster: Cluster, now: float = 0.0) -> SavedSnapshot:
    """Return a cluster on which nothing runs or waits."""
    nothing = Jobs(np.zeros(0, JOB), term_texts=("preemptible=no",))
    nodes = nodes_up(cluster, {})
    return SavedSnapshot(Snapshot(now, nothing, np.zeros(0, LIVE), np.zeros(0, HELD), nodes, cluster, Rules(), seed=0), "registered")


class RegisteredSite:
    """The hosts of one cluster and the jobs on it, from a snapshot on, changed job by job.

    Its clock is the clients' as soon as one says what time it is, and this machine's until then. It never goes back.
    """

    def __init__(self, saved: SavedSnapshot) -> None:
        s = saved.snapshot
        self.cluster, self._given, self._clock = s.cluster, saved, time.monotonic()
        self._now, self._own_clock = s.now, True
        count = len(s.jobs)
        self._jobs, self._live = _with_room(s.jobs.table), _with_room(s.live)
        self._held, self._pieces = _with_room(s.held), len(s.held)
        self._count = count
        self._names = [saved.name(row) for row in range(count)]
        if len(set(self._names)) < count:
            raise DataError("snapshot: two jobs have the same name")
        self._index = {name: int(index) for name, index in zip(self._names, s.jobs.table["index"].tolist(), strict=True)}
        submits = sorted(s.jobs.table["submit"][s.jobs.table["submit"] > s.now - RECENT].tolist())
        submits += [s.now] * (s.submitted - len(submits))  # of jobs that have ended since
        self._arrived = array("d", submits)  # when jobs came lately
        self._next = int(s.jobs.table["index"][-1]) + 1 if count else 0
        self._next_id = int(s.jobs.table["id"].max()) + 1 if count else 1
        self._texts: dict[str, Any] = s.jobs.labels
        self._numbers = {name: {text: k for k, text in enumerate(texts)} for name, texts in self._texts.items()}
        self._right: set[tuple[float, int, bool, bool]] = set()
        self._usage, self._nodes = s.usage, s.nodes.copy()
        self._node = {name: k for k, name in enumerate(s.cluster.nodes.names)}
        self._taken = np.zeros(len(self._node), np.uint64)  # devices that are held whole
        self._busy = np.zeros(len(self._node), np.int64)  # GPUs that are held whole
        self._shared: defaultdict[tuple[int, int], float] = defaultdict(float)  # (node, device) → what is held of it
        for piece in s.held.tolist():
            self._hold(piece, float(s.jobs.table["gpus"][piece[0]]), 1)

    def __len__(self) -> int:
        return self._count

    def __contains__(self, name: str) -> bool:
        return name in self._index

    @property
    def running(self) -> int:
        return int(np.count_nonzero(self._live["running"][: self._count]))

    @property
    def now(self) -> float:
        """The time, in s."""
        return self._now + (time.monotonic() - self._clock if self._own_clock else 0.0)

    def set_clock(self, now: float) -> None:
        """Take the clients' time."""
        self._now, self._own_clock = max(now, self._now), False

    # ── what a scheduler sees ──

    def row(self, name: str) -> int:
        """Return the row of a job."""
        if name not in self._index:
            raise UsageError(f"job {name[:60]!r}: is not registered")
        return int(np.searchsorted(self._jobs["index"][: self._count], self._index[name]))

    def node(self, name: str) -> int:
        """Return the number of a host."""
        if name not in self._node:
            raise UsageError(f"host {name[:60]!r}: is not registered")
        return self._node[name]

    def has_node(self, name: str) -> bool:
        return name in self._node

    def name(self, row: int) -> str:
        return self._names[row]

    def snapshot(self) -> Snapshot:
        """Return what is so now. It shares memory with the site: it holds until the next change."""
        now, jobs, live = self.now, self._jobs[: self._count], self._live[: self._count]
        revise_ends(live, jobs["walltime"], now, self._given.snapshot.rules)
        gone = bisect_right(self._arrived, now - RECENT)
        if gone:
            del self._arrived[:gone]
        return replace(
            self._given.snapshot, now=now, jobs=Jobs(jobs, **self._texts), live=live, held=self._held[: self._pieces], nodes=self._nodes,
            submitted=len(self._arrived), usage=self._usage,
        )  # fmt: skip

    def saved(self) -> SavedSnapshot:
        """Return a snapshot with the names of the jobs."""
        return replace(self._given, snapshot=self.snapshot(), names=tuple(self._names))

    def fits(self, row: int) -> Array:
        """(nodes,) whether one unit of placement of a job has room there now: its GPUs of one node, and their cores and memory."""
        s, job = self.snapshot(), self._jobs[row]
        gpus, kinds = float(job["gpus"]), self._texts["gpu_types"][int(job["gpu_type"])]
        part = float(job["chunk"]) / gpus if gpus >= 1 else 1.0
        cpus, memory = self._used()
        room = (s.nodes["down"] == 0) & (self.cluster.nodes.cpus - cpus >= float(job["cpus"]) * part - _EPS)
        room &= self.cluster.nodes.memory - memory >= float(job["memory"]) * part - _EPS
        if gpus >= 1:
            room &= s.free_gpus() >= int(job["chunk"])
        elif gpus > 0:
            shares = [(node, device) for (node, device), held in self._shared.items() if held + gpus <= 1 + _EPS]
            room &= (s.free_gpus() >= 1) | np.isin(np.arange(len(room)), [node for node, _ in shares])
        if kinds:
            wanted = [k for k, kind in enumerate(self.cluster.types) if kind.name in kinds.split("|")]
            room &= np.isin(self.cluster.nodes.gpu_type, wanted)
        found: Array = room & reach(self._texts["partitions"][int(self._jobs["partition"][row])], self.cluster)
        return found

    def _used(self) -> tuple[Array, Array]:
        """(nodes,) cores and GB that running jobs use."""
        held = self._held[: self._pieces]
        jobs = self._jobs[held["row"]]
        part = np.where(jobs["gpus"] >= 1, held["gpus"] / np.maximum(jobs["gpus"], 1.0), 1.0)
        size = len(self._node)
        return np.bincount(held["node"], jobs["cpus"] * part, size), np.bincount(held["node"], jobs["memory"] * part, size)

    # ── changes ──

    def add(self, name: str, columns: Mapping[str, float], labels: Mapping[str, str]) -> int:
        """Add a waiting job, behind those that are there, and return its row; a missing `submit` is now. No amount may be negative."""
        if name in self._index:
            raise UsageError(f"job {name[:60]!r}: is registered already")
        if self._count >= MOST_JOBS:
            raise UsageError(f"{MOST_JOBS:,} jobs are registered; no more are kept", hint='tell it who has ended: {"job": …, "do": "end"}')
        row = np.zeros(1, JOB)
        now = self.now
        row["submit"], row["walltime"], row["deadline"], row["gpus"], row["estimate"] = now, np.inf, np.inf, 1.0, np.nan
        for key, value in columns.items():
            row[key] = value
        row["chunk"] = columns.get("chunk", max(float(row["gpus"][0]), 1.0))
        if np.isnan(row["estimate"][0]):
            row["estimate"] = row["walltime"][0] if np.isfinite(row["walltime"][0]) else 3600.0
        row["index"], row["id"] = self._next, self._next_id
        for key, text in labels.items():
            row[key] = self._number(LABELS[key], text)
        self._check_shape(name, row)
        self._append(name, row)
        return self._count - 1

    def _check_shape(self, name: str, row: Array) -> None:
        """Refuse what no job may ask for. Shapes that were found right are remembered: a check takes longer than a decision."""
        job = row[0]
        shape = float(job["gpus"]), int(job["chunk"]), bool(job["cpus"] > 0), bool(job["memory"] > 0)
        if shape not in self._right:
            Jobs(row, **self._texts).check(f"job {name[:60]!r}")
            if len(self._right) < MOST_LABELS:
                self._right.add(shape)

    def _append(self, name: str, row: Array) -> None:
        at = self._count
        if at == len(self._jobs):
            self._jobs, self._live = _with_room(self._jobs), _with_room(self._live)
        self._jobs[at] = row[0]
        live = self._live[at : at + 1]
        live[:] = np.zeros(1, LIVE)
        live["queued"], live["start"], live["run_start"], live["rate"] = row["submit"], -1.0, -1.0, 1.0
        insort(self._arrived, float(row["submit"][0]))
        if len(self._arrived) > MOST_ARRIVALS:
            del self._arrived[: MOST_ARRIVALS // 10]
        self._names.append(name)
        self._index[name] = self._next
        self._next, self._next_id, self._count = self._next + 1, self._next_id + 1, at + 1

    def start(self, name: str, parts: Sequence[Part]) -> None:
        """Let a waiting job hold devices; ones that are not named are the lowest free ones."""
        row = self.row(name)
        if self._live["running"][row]:
            raise UsageError(f"job {name[:60]!r}: runs already")
        named = self._named(name, float(self._jobs["gpus"][row]), parts)
        now = self.now
        s = self.snapshot()
        after = carried_out(replace(s, jobs=s.jobs.with_table(s.jobs.table[row : row + 1]), live=s.live[row : row + 1], held=s.held[:0]),
                            [Decision(int(self._jobs["index"][row]), parts=tuple(named))])  # fmt: skip
        self._live[row] = after.live[0]
        if self._live["start"][row] < 0:
            self._live["start"][row] = now
        pieces = after.held.copy()
        pieces["row"] = row
        self._insert(pieces)
        for piece in pieces.tolist():
            self._hold(piece, float(self._jobs["gpus"][row]), 1)

    def stop(self, name: str, done: float) -> None:
        """Let a running job wait again; `done` s of its work are kept."""
        row = self._running_row(name)
        live, now = self._live[row : row + 1], self.now
        ran = max(now - float(live["run_start"][0]), 0.0)
        self._release(row)
        live["running"] = False
        live["ran"] += ran
        live["attained"] += ran * self._jobs["gpus"][row]
        live["done"], live["queued"], live["est_end"] = done, now, 0.0
        live["preemptions"] += 1

    def end(self, name: str) -> bool:
        """Forget a job; return whether it was known."""
        if name not in self._index:
            return False
        row = self.row(name)
        if self._live["running"][row]:
            self._release(row)
        if row + 1 < self._count:
            for table in (self._jobs, self._live):
                table[row : self._count - 1] = table[row + 1 : self._count]
            held = self._held["row"][: self._pieces]
            held[held > row] -= 1
        self._count -= 1
        del self._names[row], self._index[name]
        return True

    def withdraw(self, name: str) -> None:
        """Forget the job that came last, as if it had never come."""
        at = bisect_left(self._arrived, float(self._jobs["submit"][self.row(name)]))
        if at < len(self._arrived):
            self._arrived.pop(at)
        self.end(name)

    def set_host(self, name: str, *, down: bool, off: Sequence[int]) -> None:
        """Say whether a host takes jobs, and which of its devices are out of order."""
        k = self.node(name)
        size = int(self.cluster.nodes.gpus[k])
        if any(not 0 <= device < size for device in off) or len(set(off)) < len(off):
            raise UsageError(f"host {name[:60]!r}: off names GPUs that it does not have; it has {size}")
        mask = sum(1 << device for device in off)
        held = int(self._taken[k]) | sum(1 << device for node, device in self._shared if node == k)
        if (size <= MAX_DEVICES and mask & held) or len(off) + int(self._busy[k]) > size:
            raise UsageError(f"host {name[:60]!r}: a job holds a GPU that is said to be off", hint="stop or end the job first")
        self._nodes["down"][k], self._nodes["off"][k] = down, len(off)
        self._nodes["mask"][k] = (1 << size) - 1 & ~mask if size <= MAX_DEVICES else 0

    # ── what is held ──

    def _running_row(self, name: str) -> int:
        row = self.row(name)
        if not self._live["running"][row]:
            raise UsageError(f"job {name[:60]!r}: does not run")
        return row

    def _named(self, name: str, gpus: float, parts: Sequence[Part]) -> list[Part]:
        """Return the parts with devices that are named, if they are what the job asks for, and free."""
        where = f"job {name[:60]!r}"
        asked = 0.0 if gpus == 0 else gpus
        if not parts or abs(sum(part.gpus for part in parts) - asked) > _EPS:
            raise UsageError(f"{where}: its parts do not add up to {asked:g} GPUs")
        if len({part.node for part in parts}) < len(parts) or (gpus < 1 and len(parts) > 1):
            raise UsageError(f"{where}: has two parts where it can have one")
        return [self._named_part(where, gpus, part) for part in parts]

    def _named_part(self, where: str, gpus: float, part: Part) -> Part:
        k, host = part.node, f"host {self.cluster.nodes.names[part.node]!r}"
        size = int(self.cluster.nodes.gpus[k])
        free = int(self._nodes["mask"][k]) & ~int(self._taken[k]) if size <= MAX_DEVICES else 0
        if 0 < gpus < 1:
            device = part.devices[0] if len(part.devices) == 1 else -1
            if size > MAX_DEVICES or device < 0 or not free >> device & 1 or self._shared.get((k, device), 0.0) + gpus > 1 + _EPS:
                raise UsageError(f"{where}: {host} does not have that much of one GPU free", hint='name it: "devices": [0]')
            return part
        count = int(part.gpus)
        for node, device in self._shared:
            if node == k:
                free &= ~(1 << device)
        shared = sum(node == k for node, _ in self._shared)
        if count != part.gpus or count + int(self._busy[k]) + int(self._nodes["off"][k]) + shared > size or (gpus and count < 1):
            raise UsageError(f"{where}: {host} does not have {part.gpus:g} GPUs free")
        if size > MAX_DEVICES or count == 0:
            return replace(part, devices=())
        lowest = [device for device in range(size) if free >> device & 1][:count]
        devices = part.devices or tuple(lowest)
        if len(set(devices)) != count or any(device < 0 or not free >> device & 1 for device in devices):
            raise UsageError(f"{where}: {host}: these GPUs are not {count} free ones")
        return replace(part, devices=tuple(devices))

    def _hold(self, piece: Sequence[Any], gpus: float, sign: int) -> None:
        """Count a piece of HELD in, or with sign -1 out."""
        _, node, whole, device, devices = piece
        if 0 < gpus < 1:
            self._shared[node, device] += sign * gpus
            if self._shared[node, device] < _EPS:
                del self._shared[node, device]
            return
        self._busy[node] += sign * whole
        self._taken[node] = np.uint64(int(self._taken[node]) ^ int(devices))

    def _insert(self, pieces: Array) -> None:
        count, size = self._pieces, len(pieces)
        while count + size > len(self._held):
            self._held = _with_room(self._held)
        at = int(np.searchsorted(self._held["row"][:count], pieces["row"][0], "right"))
        self._held[at + size : count + size] = self._held[at:count].copy()
        self._held[at : at + size] = pieces
        self._pieces = count + size

    def _release(self, row: int) -> None:
        """Take away what a job holds."""
        rows = self._held["row"][: self._pieces]
        first, last = (int(np.searchsorted(rows, row, side)) for side in ("left", "right"))
        for piece in self._held[first:last].tolist():
            self._hold(piece, float(self._jobs["gpus"][row]), -1)
        self._held[first : self._pieces - (last - first)] = self._held[last : self._pieces].copy()
        self._pieces -= last - first

    def _number(self, attribute: str, text: str) -> int:
        known = self._numbers[attribute]
        if text not in known:
            if len(known) >= MOST_LABELS:
                raise UsageError(f"more than {MOST_LABELS:,} {attribute} are registered")
            known[text] = len(known)
            self._texts = {**self._texts, attribute: tuple(known)}
            if attribute == "users" and len(self._usage):
                self._usage = np.append(self._usage, 0.0)
        return known[text]


def _with_room(table: Array) -> Array:
    """Return a copy with room for as many rows again."""
    made = np.zeros(max(_FIRST, 2 * len(table)), table.dtype)
    made[: len(table)] = table
    return made
