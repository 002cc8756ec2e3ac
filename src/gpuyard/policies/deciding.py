"""One decision of a learned policy, from a snapshot, in microseconds.

A chooser keeps one state of the engine for its cluster and lays each snapshot into it, compiled; features, network and placement are
those that run inside simulations. So a policy sees in production, to the bit, what it saw in training, and nothing is built for a call.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numba
import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import as_seen_by_kernels, build_state
from gpuyard.engine.compiler.entry import source_hash
from gpuyard.engine.compiler.jit import INTERPRETED, call_state, entry, inner
from gpuyard.engine.compiler.pointer import header_of, state_at
from gpuyard.engine.kernels.events import switch_is_due
from gpuyard.engine.kernels.nodes import describe
from gpuyard.engine.kernels.place import find
from gpuyard.engine.kernels.seen import is_sound, lay_out
from gpuyard.errors import DataError, PolicyError, UsageError
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB as JOB_SCHEMA
from gpuyard.features.system import SWITCH
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.jobs import JOB
from gpuyard.model.snapshot import ENDED, HELD, LIVE, NODE, Snapshot
from gpuyard.policies.schedulers import Meta, Scheduler
from gpuyard.policies.text import parse_scheduler

_SWITCH, _JOB, _HOST = range(3)  # what is to be chosen
_NOBODY = -1  # no job waits
_FAILED = -2  # a score is no number
_UNSOUND = -3  # the snapshot refers to what is not there
_LABELS = ("partitions", "classes", "gpu_types")  # those that kernels know by number


def _choose(s: Any, what: Any, which: Any) -> Any:
    """After `lay_out`: the number of a scheduler, or the row of a job whose nodes (control.picked of them) are picked and described."""
    control = s.control[0]
    if what == _SWITCH:
        if switch_is_due(s):
            control.active = call_state(control.switch, s, 0, 0, control.network)
        return control.active if control.active >= 0 else _FAILED
    row = which
    if what == _JOB:
        row = _first_in_order(s, which)
    if row < 0:
        return row
    picked = find(s, np.int64(s.rows[row].partition), row, s.slots[0])
    control.picked = picked
    for i in range(picked):
        node = s.nodes[s.pick_node[i]]
        describe(s.rows[row], node, s.devices, s.pick_units[i], s.pick_device[0], s.parts[i])
        s.parts[i].node = node.number
    return row if picked >= 0 else _FAILED


@inner
def _first_in_order(s: Any, p: Any) -> Any:
    """The waiting job of partition p that the ordering puts first."""
    part = s.partitions[p]
    if part.head == part.tail:
        return _NOBODY
    call_state(s.slots[0].ordering, s, p, 0, s.slots[0].ordering_network)
    best = part.head
    for i in range(part.head, part.tail):
        key = s.queue_keys[i]
        if key != key:
            return _FAILED
        if key < s.queue_keys[best]:
            best = i
    return np.int64(s.queue_jobs[best])


@lru_cache(maxsize=1)
def _compiled() -> Any:
    """The one call from Python: lay out and choose."""
    return _compile(source_hash(__name__))


_choose_inner = inner(_choose)  # a global: what an entry closes over is part of its key in the disk cache, and this differs by process


def _compile(source: int) -> Any:
    word = types.int64
    arrays = [types.Array(numba.from_dtype(kind), 1, "C") for kind in (JOB, LIVE, HELD, NODE, ENDED, np.dtype(np.int32))]

    @entry(word(word, word, word, *arrays, types.float64, word))
    def decide(
        header: Any, what: Any, which: Any, table: Any, live: Any, held: Any, nodes: Any, ended: Any, where: Any, now: Any, submitted: Any
    ) -> Any:
        if source == 0:  # never; part of the cache's key
            return -9
        s = state_at(header)
        if not is_sound(s, table, live, held, nodes, where):
            return _UNSOUND
        lay_out(s, table, live, held, nodes, ended, where, now, submitted)
        return _choose_inner(s, what, which)

    return decide


class _Desk:
    """A state that snapshots are laid into, one after the other; it grows with them, and is made anew for another cluster."""

    def __init__(self, scheduler: Scheduler | Meta, what: int) -> None:
        self._program = scheduler.program()
        self._label = scheduler.label
        self._what = what
        self._run = None if INTERPRETED else _compiled()
        self._cluster: object = None
        self._labels: tuple[object, ...] = ()
        self._jobs = self._parts = -1  # room for them
        self._address = 0
        self.state: Any = None

    def forget(self) -> None:
        """Begin anew: no past is known."""
        self._cluster = self.state = None

    def choose(self, snapshot: Snapshot, which: int = 0) -> int:
        """Lay the snapshot out and choose."""
        jobs, held = snapshot.jobs, snapshot.held
        table = jobs.table
        if not self._knows(snapshot):
            self._begin(snapshot)
        if len(table) > self._jobs or len(held) > self._parts:
            self._grow(len(table), len(held))
        given: tuple[Array, ...] = (table, snapshot.live, held, snapshot.nodes, snapshot.ended)
        if self._run is None:
            chosen = self._interpret(which, given, snapshot)
        else:
            try:
                chosen = self._run(self._address, self._what, which, *given, self._where, snapshot.now, snapshot.submitted)
            except TypeError:  # no such array as the compiled code takes, e.g. one that is read-only
                given = tuple(np.array(a, kind) for a, kind in zip(given, (JOB, LIVE, HELD, NODE, ENDED), strict=True))
                chosen = self._run(self._address, self._what, which, *given, self._where, float(snapshot.now), snapshot.submitted)
        if chosen == _UNSOUND:
            raise DataError("snapshot: it refers to rows, labels, nodes or devices that are not in it or its cluster")
        if chosen == _FAILED:
            raise PolicyError(f"{self._label}: a score is not a number at {snapshot.now:g} s", hint="the checkpoint is of no use")
        return int(chosen)

    def _interpret(self, which: int, given: tuple[Array, ...], snapshot: Snapshot) -> int:
        with np.errstate(all="ignore"):
            table, live, held, nodes, ended = (np.asarray(a).view(np.recarray) for a in given)
            if not is_sound(self.state, table, live, held, nodes, self._where):
                return _UNSOUND
            lay_out(self.state, table, live, held, nodes, ended, self._where, snapshot.now, snapshot.submitted)
            return int(_choose(self.state, self._what, which))

    def _knows(self, snapshot: Snapshot) -> bool:
        """Whether cluster and labels are those of the snapshot before, the very objects: a comparison of all names takes too long."""
        if snapshot.cluster is not self._cluster:
            return False
        jobs, (partitions, classes, gpu_types) = snapshot.jobs, self._labels
        return jobs.partitions is partitions and jobs.classes is classes and jobs.gpu_types is gpu_types

    def _begin(self, snapshot: Snapshot) -> None:
        labels = tuple(getattr(snapshot.jobs, name) for name in _LABELS)
        if self._cluster is not snapshot.cluster or labels != self._labels:
            self._build(snapshot)
        self._cluster, self._labels = snapshot.cluster, labels

    def _build(self, snapshot: Snapshot) -> None:
        if len(snapshot.nodes) != len(snapshot.cluster.nodes):
            raise DataError(f"snapshot: states of {len(snapshot.nodes)} nodes for a cluster of {len(snapshot.cluster.nodes)}")
        nobody = snapshot.jobs.with_table(np.zeros(0, JOB))
        old = self.state
        s = build_state(nobody, np.zeros(0), snapshot.cluster, self._program, snapshot.seed, snapshot.rules, segments=False)
        s = s.replace(devices=np.zeros(max(snapshot.cluster.gpus, 1)))
        s.partitions["index"] = -1  # no index of free nodes is kept
        s.control["noting"] = 1  # a snapshot says how many jobs have come of late
        s.control["tracking"] = 1
        if old is not None:  # another cluster, the same past
            s.history[:] = old.history
            for name in ("samples", "sampled_job", "next_job", "next_switch", "active"):
                s.control[name] = old.control[name]
        self.state = s
        self._where = np.empty(len(s.nodes), np.int32)
        self._where[s.nodes["number"]] = np.arange(len(s.nodes))
        self._jobs = self._parts = -1

    def _grow(self, jobs: int, parts: int) -> None:
        s = self.state
        self._jobs, self._parts = max(2 * jobs, 64), max(2 * parts, len(s.nodes) + 1, 64)
        queue = self._jobs + len(s.partitions)
        s = s._replace(
            rows=np.zeros(self._jobs, st.JOB_ROW),
            queue_keys=np.zeros(queue), queue_jobs=np.zeros(queue, np.int32), running_jobs=np.zeros(queue, np.int32),
            ends=np.zeros(self._jobs, np.int32), parts=np.zeros(self._parts, st.PART_ROW),
        )  # fmt: skip
        self.state = as_seen_by_kernels(s)
        self._header = header_of(self.state)  # must live as long as its address is used
        self._address = int(self._header.ctypes.data)


class SwitchChooser:
    """Which of its schedulers a learned meta-scheduler uses now. It remembers the past that the network sees: one object, one cluster."""

    def __init__(self, scheduler: Meta | str) -> None:
        made = _parsed(scheduler, SWITCH.decision)
        if not isinstance(made, Meta) or made.rule.network is None:
            raise UsageError(f"{made.label}: no learned switch between schedulers")
        self.schedulers = made.schedulers
        self._desk = _Desk(made, _SWITCH)

    def begin(self) -> None:
        """Forget the past."""
        self._desk.forget()

    def choose(self, snapshot: Snapshot) -> int:
        """The position of the scheduler in `schedulers`; with a period, the one chosen last until the period is over."""
        return self._desk.choose(snapshot)

    @property
    def features(self) -> Array:
        """(context,) f4: what the last choice was made from."""
        return _context(self._desk, len(SWITCH.context))

    @property
    def scores(self) -> Array:
        """(schedulers,) what the network said of each at the last choice."""
        return np.array(self._desk.state.outputs[: len(self.schedulers)])


class JobChooser:
    """Which waiting job a learned ordering puts first."""

    def __init__(self, scheduler: Scheduler | str) -> None:
        made = _parsed(scheduler, JOB_SCHEMA.decision)
        if not isinstance(made, Scheduler) or made.ordering.network is None:
            raise UsageError(f"{made.label}: no learned ordering")
        self._desk = _Desk(made, _JOB)

    def choose(self, snapshot: Snapshot, partition: int = 0) -> Decision | None:
        """Start it, on the nodes that the scheduler's placement names, or hold it if it does not fit; None: no job waits."""
        if not 0 <= partition < len(snapshot.cluster.partitions):
            raise UsageError(f"partition {partition}: the cluster has {len(snapshot.cluster.partitions)}, from 0 on")
        row = self._desk.choose(snapshot, partition)
        return None if row == _NOBODY else _decision(self._desk, row)

    @property
    def features(self) -> Array:
        """(context,) f4: the situation that the last choice was made in."""
        return _context(self._desk, len(JOB_SCHEMA.context))


class HostChooser:
    """Which node a learned placement gives to a waiting job."""

    def __init__(self, scheduler: Scheduler | str) -> None:
        made = _parsed(scheduler, HOST.decision)
        if not isinstance(made, Scheduler) or made.placement.network is None:
            raise UsageError(f"{made.label}: no learned placement")
        self._desk = _Desk(made, _HOST)

    def choose(self, snapshot: Snapshot, row: int) -> Decision:
        """Start the job of that row of the snapshot on the nodes it gets, or hold it if it does not fit."""
        if not 0 <= row < len(snapshot.jobs) or snapshot.live["running"][row]:
            raise UsageError(f"row {row} of the snapshot is no waiting job")
        self._desk.choose(snapshot, row)
        return _decision(self._desk, row)

    @property
    def features(self) -> Array:
        """(context,) f4: the situation that the last choice was made in."""
        return _context(self._desk, len(HOST.context))


def _parsed(scheduler: Scheduler | Meta | str, decision: str) -> Scheduler | Meta:
    made = parse_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    if not isinstance(made, (Scheduler, Meta)):
        raise UsageError(f"{scheduler}: no checkpoint that decides about a {decision}")
    return made


def _context(desk: _Desk, size: int) -> Array:
    return np.array(desk.state.scratch[:size])


def _decision(desk: _Desk, row: int) -> Decision:
    s = desk.state
    job = s.rows[row]
    picked = int(s.control["picked"][0])
    if picked == 0:
        return Decision(int(job["index"]), Action.HOLD)
    return Decision(int(job["index"]), Action.START, tuple(_part(piece, job) for piece in s.parts[:picked]))


def _part(piece: Any, job: Any) -> Part:
    mask, gpus = int(piece["mask"]), float(piece["gpus"])
    devices = tuple([d for d in range(mask.bit_length()) if mask >> d & 1])
    return Part(int(piece["node"]), gpus if job["gpus"] >= 1 else float(job["gpus"]), devices)
