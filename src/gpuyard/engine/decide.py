"""Decides from snapshots: the one way for services, for live clusters, and for deciders inside a simulation.

A decider keeps one state of the engine for its cluster and lays each snapshot into it, compiled; orderings, features, networks and
placements are those that run inside simulations. So a policy sees in production, to the bit, what it saw in simulation.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import as_seen_by_kernels, build_state
from gpuyard.engine.compiler.jit import FLOAT, INTERPRETED, WORD, array_of, entry, inner
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels import seen
from gpuyard.engine.kernels.events import PASS, PREPARE
from gpuyard.engine.memory import DTYPES
from gpuyard.engine.mix import divisions, named_partitions, request_mix
from gpuyard.engine.rows.ranking import SOON
from gpuyard.engine.site import has_site, with_limits_of
from gpuyard.engine.slots import Program
from gpuyard.errors import DataError, UsageError
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.jobs import JOB
from gpuyard.model.rules import terms_table
from gpuyard.model.snapshot import ENDED, HELD, LIVE, MIX, NODE, Snapshot

if TYPE_CHECKING:
    from gpuyard.arrays import Ints

_LABELS = ("partitions", "classes", "gpu_types", "qoses", "term_texts")  # that kernels know by number
_PAST = ("samples", "sampled_job", "next_job", "next_switch", "active")  # of control: what a switch rule remembers
_UNSOUND = "snapshot: it refers to rows, labels, nodes or devices that are not in it or its cluster"
_SITE = ("gated", "explaining", "limits")  # of control: what a simulation knows about its jobs' waiting
_GIVEN: tuple[Any, ...] = (JOB, LIVE, HELD, NODE, ENDED, np.dtype(np.float64), np.dtype(np.int32))


class SnapshotDecider:
    """Decides from one snapshot after the other by one program. It remembers what a switch rule remembers: one object, one cluster.

    Its state grows with the snapshots, and is built again for another cluster. It serves one thread at a time.
    """

    def __init__(self, program: Program) -> None:
        self._program = program
        self._reads_mix = any(slot.reads_mix for slot in program.slots)
        self._walks_on = not all(slot.reads_clock == st.CLOCK_STATE and slot.starts_one_by_one for slot in program.slots)
        self._victims = f"{program.label}: makes room for the head of the queue"
        self._cluster: object = None
        self._rules: object = None
        self._seed = -1
        self._mix: Array | None = None
        self._labels: tuple[object, ...] = ()
        self._most_jobs = self._most_parts = -1
        self._fresh = True
        self._driver: Driver
        self.keys: Array = np.zeros(0)  # (waiting jobs,) of the last `decide_in_order`: lower goes first; minus the score of a network
        self._load, self._read_decisions, self._read_parts = _kernels()

    @property
    def state(self) -> st.State:
        """The state after the last snapshot."""
        return self._driver.state

    def forget(self) -> None:
        """Forget the past that a switch rule sees."""
        self._fresh = True

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Run one pass on the snapshot and return what it did, in order."""
        self.load(snapshot).order(PREPARE)
        self._make_pass()
        return self._decisions(snapshot)

    def decide_in_order(self, snapshot: Snapshot) -> tuple[Array, list[Decision]]:
        """Return the rows of the waiting jobs in the order of the ordering, partition by partition, and what the pass did."""
        self.load(snapshot).order(PREPARE)  # orders the queues
        s = self.state
        queues = [slice(int(part["head"]), int(part["tail"])) for part in s.partitions]
        order = np.concatenate([s.queue_jobs[each] for each in queues])
        self.keys = np.concatenate([s.queue_keys[each] for each in queues])
        self._make_pass()
        return order, self._decisions(snapshot)

    def decide_as_walked(self, snapshot: Snapshot) -> tuple[Array, list[Decision]]:
        """Return the rows of the waiting jobs in the order in which the pass walks them, partition by partition, and what it did.

        An ordering that sees the whole state changes its mind with every start. Its order ends with the first job that does not start, and
        has only partitions in which a job starts.
        """
        order, made = self.decide_in_order(snapshot)
        shared = bool(self.state.partitions["shared"].any())
        return (order if self._walks_on or shared else self._walked(len(made))), made

    def _make_pass(self) -> None:
        self._driver.order(PASS)

    def _walked(self, started: int) -> Array:
        """Return the rows that were started, partition by partition, each time followed by the first that was not."""
        rows = self._decided[0][:started]
        home = self.state.rows["partition"][rows]
        found = [np.append(rows[home == p], self._head_of(int(p))) for p in np.unique(home)]
        return np.concatenate([np.zeros(0, np.int64), *found]).astype(np.int64)

    def _head_of(self, p: int) -> list[int]:
        """Return the row of the job that was first in a queue when its pass ended; none if no job waits there."""
        part = self.state.partitions[p]
        return [int(self.state.queue_jobs[int(part["head"])])] if part["head"] < part["tail"] else []

    def choose_scheduler(self, snapshot: Snapshot) -> int:
        """Return the position of the scheduler that the switch rule uses now; with a period, the last until the period is over."""
        return self._run(snapshot, seen.SCHEDULER, 0)

    def choose_first(self, snapshot: Snapshot, *, partition: int = 0, row: int | None = None) -> Decision | None:
        """Return the first decision alone: about the first job of a partition, or the job in `row`. START, HOLD, or None: no job waits.

        Partitions that share nodes have one queue. A job that is over a limit is not first.
        """
        if not 0 <= partition < len(snapshot.cluster.partitions):
            raise UsageError(f"partition {partition}: the cluster has {len(snapshot.cluster.partitions)}, from 0 on")
        if row is not None and (not 0 <= row < len(snapshot.jobs) or snapshot.live["running"][row]):
            raise UsageError(f"row {row} of the snapshot is not a waiting job")
        home = int(divisions(named_partitions(snapshot.jobs, snapshot.cluster), snapshot.cluster)[partition])
        chosen = self._run(snapshot, seen.JOB, home) if row is None else self._run(snapshot, seen.HOST, row)
        if chosen == seen.NO_JOB:
            return None
        job = int(snapshot.jobs.table["index"][chosen])
        count = self._read_parts(self._driver.handle, chosen, 0, *self._parts)
        if count == 0:
            over = self.state.rows["benched"][chosen] != 0
            return Decision(job, Action.HOLD, reason="is over a limit now" if over else "does not fit now")
        parts, home = tuple(reversed(self._parts_made(count))), int(self._homes(np.array([chosen]))[0])
        return Decision(job, Action.START, parts, silent=bool(self.state.rows["silent"][chosen]), partition=home)

    def load(self, snapshot: Snapshot) -> Driver:
        """Lay the snapshot into the state; the engine still needs the order to PREPARE."""
        self._run(snapshot, seen.ALL, 0)
        return self._driver

    def _run(self, snapshot: Snapshot, what: int, which: int) -> int:
        """Lay the snapshot out and make one choice, or none."""
        usage = self._usage_of(snapshot) if self._program.half_life else _NO_USAGE
        self._make_ready(snapshot)
        s = snapshot
        given: tuple[Array, ...] = (s.jobs.table, s.live, s.held, s.nodes, s.ended, usage, s.homes)
        handle, where = self._driver.handle, self._where
        try:
            status = self._load(handle, what, which, *given, where, snapshot.now, snapshot.submitted)
        except TypeError:  # compiled code takes no array that is read-only or has gaps
            given = tuple(np.array(a, kind) for a, kind in zip(given, _GIVEN, strict=True))
            status = self._load(handle, what, which, *given, where, float(snapshot.now), int(snapshot.submitted))
        if status >= 0 or status == seen.NO_JOB:
            return status  # type: ignore[no-any-return]
        if status == seen.UNSOUND:
            raise DataError(_UNSOUND)
        raise self._driver.failure(status)

    # ── the state ──

    def _make_ready(self, snapshot: Snapshot) -> None:
        """Let the state suit the snapshot's cluster, labels, rules and sizes."""
        jobs = snapshot.jobs
        count = len(jobs.table)
        if snapshot.cluster is not self._cluster or self._labels != (
            jobs.partitions, jobs.classes, jobs.gpu_types, jobs.qoses, jobs.term_texts,
        ):  # fmt: skip
            self._build(snapshot)
        if snapshot.rules is not self._rules or snapshot.seed != self._seed:
            self._set_rules(snapshot)
        if count > self._most_jobs or len(snapshot.held) > self._most_parts or len(jobs.users) != self._users:
            self._grow(count, len(snapshot.held), len(jobs.users))
        if self._reads_mix and (snapshot.mix is None or snapshot.mix is not self._mix):
            self._set_mix(snapshot)
        if self._fresh:
            self._begin(snapshot)
        self.state.control["limits"] = 0
        if has_site(jobs, snapshot.cluster):
            self._set_limits(snapshot)
        self._driver.ids = jobs.table["id"]
        self.state.control["excess"] = snapshot.excess
        if len(self.state.rows) != count:  # a policy must not see the rows of an earlier snapshot
            self._driver.put("rows", self._rows[:count])

    def _build(self, snapshot: Snapshot) -> None:
        """Make a state for a cluster, with no room for jobs yet. The past stays."""
        if len(snapshot.nodes) != len(snapshot.cluster.nodes):
            raise DataError(f"snapshot: states of {len(snapshot.nodes)} nodes for a cluster of {len(snapshot.cluster.nodes)}")
        nobody = snapshot.jobs.with_table(np.zeros(0, JOB))
        nothing = np.zeros(0, MIX)
        given = (snapshot.cluster, self._program, snapshot.seed, snapshot.rules)
        s = build_state(nobody, np.zeros(0), *given, segments=False, timeline=False, mix=nothing)
        devices = max(snapshot.cluster.gpus, 1)
        s = s.replace(devices=np.zeros(devices), shadow_devices=np.zeros(devices if s.control["tracking"][0] else 1))
        if len(s.heads) > 1:
            s = s.replace(head_devices=np.zeros(len(s.heads) * devices))
        s = s.replace(ranked_devices=np.zeros(devices if self._program.ranks else 1))
        for name in _SITE:  # arrays of no job at all: what snapshots limit is laid out for each of them
            s.control[name] = 0
        s.control["noting"] = 1  # decisions are noted, and a snapshot says how many jobs have come recently
        if self._cluster is not None:
            s.history[:] = self.state.history
            for name in _PAST:
                s.control[name] = self.state.control[name]
        self._where = np.empty(len(s.nodes), np.int32)
        self._where[s.nodes["number"]] = np.arange(len(s.nodes))
        self._driver = Driver(s, self._program.label, np.zeros(0, np.int64))
        self._most_jobs = self._most_parts = -1
        self._rules = self._mix = None
        self._cluster, self._labels = snapshot.cluster, tuple(getattr(snapshot.jobs, name) for name in _LABELS)

    def _begin(self, snapshot: Snapshot) -> None:
        s = self.state
        s.history[:] = 0.0
        for name in _PAST:
            s.control[name] = 0
        s.control["active"] = snapshot.active if 0 <= snapshot.active < len(self._program.slots) else 0
        self._fresh = False

    def _set_rules(self, snapshot: Snapshot) -> None:
        rules, control = snapshot.rules, self.state.control
        self.state.terms[:] = terms_table(snapshot.jobs.term_texts, rules)
        control["kills"] = rules.walltime_kill
        control["seed"] = snapshot.seed
        self._rules, self._seed = rules, snapshot.seed

    def _set_mix(self, snapshot: Snapshot) -> None:
        self._mix = snapshot.mix
        mix = request_mix(snapshot.jobs, snapshot.cluster) if snapshot.mix is None else np.ascontiguousarray(snapshot.mix, MIX)
        at = np.searchsorted(mix["partition"], np.arange(len(snapshot.cluster.partitions) + 1))
        self._driver.adopt(as_seen_by_kernels(self.state.replace(mix=mix, mix_at=at)))

    def _set_limits(self, snapshot: Snapshot) -> None:
        """Lay out the groups of the snapshot's jobs that share a limit. Nobody runs in them yet."""
        try:
            made = with_limits_of(self.state, snapshot.jobs, snapshot.cluster, snapshot.spent)
        except IndexError:
            raise DataError(_UNSOUND) from None
        self._driver.adopt(as_seen_by_kernels(made))

    def _grow(self, jobs: int, parts: int, users: int) -> None:
        """Make room for twice as many jobs and parts."""
        s = self.state
        n, m = max(2 * jobs, self._most_jobs, 64), max(2 * parts, self._most_parts, 64)
        pool = m + int(s.nodes["gpus"].sum()) + n + 1  # whole devices, shares and CPU jobs that may start
        grown = s.replace(
            rows=np.zeros(n, st.JOB_ROW), table=np.zeros(n, DTYPES["table"]),
            factors=np.zeros(n if self._program.factors else 0, st.FACTOR_ROW), result=np.zeros(n, DTYPES["result"]),
            users=np.zeros(users, st.USER_ROW), chances=np.zeros(n if len(s.heads) > 1 else 1, np.uint64),
            queue_keys=np.zeros(n), queue_jobs=np.zeros(n, np.int32), running_jobs=np.zeros(n, np.int32), running_ends=np.zeros(n),
            queue_need=np.zeros(n, np.float32), queue_length=np.zeros(n, np.float32),
            ends=np.zeros(n, np.int32), end_times=np.zeros(n), parts=np.zeros(pool, st.PART_ROW),
            notes=np.zeros(2 * n + 1, np.int32), score=np.zeros(max(n, len(s.nodes))),
        )  # fmt: skip
        if self._program.ranks:
            grown = grown.replace(
                ranked=np.zeros(n, DTYPES["ranked"]), rank_ends=np.zeros(n), rank_jobs=np.zeros(n, np.int32),
                rank_level=np.zeros(n, np.int32), rank_until=np.zeros(n), rank_calm=np.zeros(n), rank_soon=np.zeros(SOON + 2),
                ranked_parts=np.zeros(pool + 1, st.PART_ROW), rank_factors=np.zeros(n if self._program.judges else 1),
            )  # fmt: skip
        self._driver.adopt(as_seen_by_kernels(grown))
        self._rows = self.state.rows
        self._most_jobs, self._most_parts, self._users = n, m, users
        self._decided = (np.zeros(2 * n + 1, np.int64), np.zeros(2 * n + 1, np.int64))
        self._parts = (np.zeros(pool, np.int64), np.zeros(pool), np.zeros(pool, np.uint64))

    def _usage_of(self, snapshot: Snapshot) -> Array:
        """Return the users' usage, which the program reads, if the snapshot knows it."""
        program = self._program
        if len(snapshot.usage) == 0:
            return _NO_USAGE
        if len(snapshot.usage) != len(snapshot.jobs.users):
            raise DataError(f"snapshot: usage has {len(snapshot.usage)} values for {len(snapshot.jobs.users)} users")
        if program.half_life != snapshot.half_life:
            what = f"{program.label}: half_life = {program.half_life:g} s, but usage in the snapshot decays with {snapshot.half_life:g} s"
            raise UsageError(what, hint=f"in a simulation: Simulation(…, half_life={program.half_life:g})")
        return snapshot.usage

    # ── decisions ──

    def _decisions(self, snapshot: Snapshot) -> list[Decision]:
        made = self._read_decisions(self._driver.handle, *self._decided, *self._parts)
        rows, counts = (each[:made] for each in self._decided)
        parts = self._parts_made(int(np.maximum(counts, 0).sum()))
        found, at = [], 0
        silent = self.state.rows["silent"][rows] == 1
        columns = (snapshot.jobs.table["index"][rows], counts, silent, self._homes(rows))
        for job, count, mute, home in zip(*(column.tolist() for column in columns), strict=True):
            if count < 0:
                found.append(Decision(job, Action.PREEMPT, (), self._victims))
                continue
            found.append(Decision(job, Action.START, tuple(parts[at : at + count]), silent=mute, partition=home))
            at += count
        return found

    def _homes(self, rows: Array) -> Array:
        """Return in which of the partitions that share nodes jobs are looked at, or run; -1: theirs shares none."""
        found: Array = np.maximum(-1 - self.state.rows["plain"][rows].astype(int), -1)
        return found

    def _parts_made(self, count: int) -> list[Part]:
        nodes, gpus, devices = (each[:count].tolist() for each in self._parts)
        return [Part(*each) for each in zip(nodes, gpus, map(_devices, devices), strict=True)]


@lru_cache(maxsize=4096)
def _devices(mask: int) -> tuple[int, ...]:
    return tuple(d for d in range(mask.bit_length()) if mask >> d & 1)


_NO_USAGE = np.zeros(0)


class DeciderPool:
    """The compiled program of one scheduler, and its idle deciders, for several threads. A copy begins with neither."""

    def __init__(self) -> None:
        self._program: Program | None = None
        self._idle: list[SnapshotDecider] = []

    def program(self, make: Callable[[], Program]) -> Program:
        """Return the program, which is made on first use."""
        if self._program is None:
            self._program = make()
        return self._program

    def decide(self, program: Callable[[], Program], snapshot: Snapshot) -> list[Decision]:
        """Decide with no past. `program` is called where no decider is idle."""
        try:
            decider = self._idle.pop()
        except IndexError:
            decider = SnapshotDecider(program())
        decider.forget()
        try:
            return decider.decide(snapshot)
        finally:
            self._idle.append(decider)

    def __reduce__(self) -> tuple[type[DeciderPool], tuple[()]]:
        return DeciderPool, ()


# ── calls of the kernels ──


def _load(s: Any, what: Any, which: Any, table: Any, live: Any, held: Any, nodes: Any, ended: Any, usage: Any, homes: Ints, where: Any,
          now: Any, submitted: Any) -> Any:  # fmt: skip
    """Lay a snapshot out, and make one choice if that is all that is asked for."""
    status = seen.lay_out(s, table, live, held, nodes, ended, usage, homes, where, now, submitted)
    return status if status < 0 or what == seen.ALL else seen.first_choice(s, what, which)


_load_kernel = inner(_load)  # a global: what an entry closes over is part of its key in the disk cache, and this differs by process
_lock = threading.Lock()


def _kernels() -> tuple[Any, ...]:
    """`_load`, `read_decisions` and `read_parts`, as functions of the driver's handle."""
    if INTERPRETED:
        return _interpreted(_load), _interpreted(seen.read_decisions), _interpreted(seen.read_parts)
    with _lock:  # threads that start together must not compile twice
        return _compiled()


def _interpreted(kernel: Callable[..., Any]) -> Callable[..., int]:
    def call(s: st.State, *arguments: Any) -> int:
        with np.errstate(all="ignore"):
            return int(kernel(s, *(a.view(np.recarray) if isinstance(a, np.ndarray) and a.dtype.names else a for a in arguments)))

    return call


@lru_cache(maxsize=1)
def _compiled() -> tuple[Any, ...]:
    return _compile(source_hash(__name__))


def _compile(source: int) -> tuple[Any, ...]:
    """`source` is never 0, and part of the cache's key."""
    snapshot = [array_of(kind) for kind in (*_GIVEN, np.dtype(np.int32))]
    numbers, parts = array_of(np.int64), (array_of(np.int64), array_of(np.float64), array_of(np.uint64))

    @entry(WORD(WORD, WORD, WORD, *snapshot, FLOAT, WORD))
    def load_snapshot(header, what, which, table, live, held, nodes, ended, usage, homes, where, now, submitted):  # type: ignore[no-untyped-def]
        if source == 0:
            return -9
        return _load_kernel(state_at(header), what, which, table, live, held, nodes, ended, usage, homes, where, now, submitted)

    @entry(WORD(WORD, numbers, numbers, *parts))
    def decisions_of_a_pass(header, rows, counts, nodes, gpus, devices):  # type: ignore[no-untyped-def]
        return seen.read_decisions(state_at(header), rows, counts, nodes, gpus, devices) if source != 0 else -9

    @entry(WORD(WORD, WORD, WORD, *parts))
    def parts_of_a_job(header, j, at, nodes, gpus, devices):  # type: ignore[no-untyped-def]
        return seen.read_parts(state_at(header), j, at, nodes, gpus, devices) if source != 0 else -9

    return load_snapshot, decisions_of_a_pass, parts_of_a_job
