"""Runs a scheduler beside one batch system: reads the queue once a cycle, asks it, guards what it says, and does what its mode does.

The only state that matters is in the batch system, and is read again at the start. Killed at any moment, a mode that orders leaves an order
that ages like any other, and one that places begin times that come.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.files import to_plain
from gpuyard.live.deciding import Asked
from gpuyard.live.deployment.modes import MOST_NAMES, Decided, Mode, Planned, Update
from gpuyard.live.deployment.placing import PlaceSettings
from gpuyard.live.estimator import HistoryEstimator, kind_of, recalled
from gpuyard.live.guards import GuardSettings, Watch
from gpuyard.live.health import DeploymentFigures
from gpuyard.live.log import RotatedLog
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteState, site_snapshot
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_to_dict
from gpuyard.model.decision import Action
from gpuyard.model.estimator import SHORTEST
from gpuyard.policies import AnyScheduler

REREAD = 10  # cycles after which nodes, partitions and site factors are read again
TELL_CLUSTER = 360  # cycles after which the log says again what the cluster is: its older files go
LONGEST_PAUSE = 60.0  # s between cycles while the batch system does not answer
JUMP = 5.0  # s by which the clock may move between cycles without being read again
LOOK = 0.02  # s from one look at the file to the next
GATHER = 0.1  # s that news is waited with: a job that has ended is still being cleaned up, and others may end with it
SHARE = 4  # news comes too early for as long as the cycle before has taken, this often: so a storm of it takes a fifth of the time at most


class NoRightError(GpuyardError):
    """The user may not change other users' jobs."""


@dataclass(frozen=True)
class DeploySettings(ABC):
    """How a deployment works."""

    mode: str = "shadow"  # or order, or place
    every: float = 10.0  # s between cycles
    most: int = 100  # updates in a cycle
    partitions: tuple[str, ...] = ()  # of the batch system; (): all
    patience: float = 30.0  # s for a command
    wake: Path | None = None  # a file that is touched when a job ends: then the next cycle begins
    guards: GuardSettings = field(default_factory=GuardSettings)
    place: PlaceSettings = field(default_factory=PlaceSettings)

    @abstractmethod
    def made(self) -> Mode:
        """Return the mode."""


@dataclass
class Pause:
    """The pause between two cycles: over when its time is, or when somebody touches a file to say that there is news."""

    wake: Path | None = None  # only its time is looked at
    _seen: int = field(default=0, repr=False)  # its time when the cycle began

    def begin(self) -> None:
        """Begin a cycle: what has happened until now it will see."""
        self._seen = self._touched()

    def rest(self, seconds: float, *, spent: float, hurried: bool = True) -> None:
        """Wait so long, or, if `hurried`, until there is news; the cycle before has taken `spent` s."""
        now = time.monotonic()
        end, earliest = now + seconds, now + SHARE * spent
        while (left := end - time.monotonic()) > 0:
            if self.wake is None or not hurried:
                time.sleep(left)
            elif time.monotonic() >= earliest and self._touched() != self._seen:
                time.sleep(min(left, GATHER))
                return
            else:
                time.sleep(min(left, LOOK))

    def _touched(self) -> int:
        with suppress(OSError):
            return self.wake.stat().st_mtime_ns if self.wake is not None else 0
        return 0


@dataclass
class Deployment(ABC):
    """One scheduler at work beside one batch system."""

    scheduler: AnyScheduler
    settings: DeploySettings
    log: RotatedLog | None = None
    memory: Path | None = None  # where run times are kept; safe to lose
    figures: DeploymentFigures | None = None
    estimator: HistoryEstimator = field(default_factory=HistoryEstimator, repr=False)
    mode: Mode = field(init=False, repr=False)
    watch: Watch = field(init=False, repr=False)
    clock: Callable[[], float] = field(default=time.time, repr=False)
    _asked: Asked = field(init=False, repr=False)
    _ground: SiteState | None = field(default=None, repr=False)
    _waited: dict[str, float] = field(default_factory=dict, repr=False)  # waiting job → when it was submitted
    _ended: set[str] = field(default_factory=set, repr=False)  # jobs whose run times are known already
    _cluster: Cluster | None = field(default=None, repr=False)  # as it was logged
    _offset: float | None = field(default=None, repr=False)  # of the clock against one that nobody can set
    _acted: bool = False  # in this cycle
    _changed: bool = False  # the queue may not be as the site's own policy has it
    _cycle: int = 0

    def __post_init__(self) -> None:
        if self.memory is not None:
            self.estimator = recalled(self.memory)
        self.mode, self.watch = self.settings.made(), Watch(self.settings.guards)
        self._changed = self.settings.mode != "shadow"  # by an earlier one
        self._asked = Asked(self.scheduler)
        if self.mode.needs_order and not self._asked.has_order:
            hint = "take slots such as sjf/fewest/easy, a checkpoint, or guard(…)"
            raise UsageError(f"{self.scheduler.label}: it decides what starts, not in which order jobs stand", hint=hint)

    @abstractmethod
    def check(self) -> None:
        """Refuse a batch system in which this mode cannot work."""

    def cycles(self, count: int | None = None) -> Iterator[dict[str, Any]]:
        """Work, cycle by cycle, and yield what is logged of each. An error of the batch system ends a cycle, not the deployment."""
        pause, between = self.settings.every, Pause(self.settings.wake)
        while count is None or self._cycle < count:
            began = time.monotonic()
            between.begin()
            try:
                record = self._one_cycle()
                pause = self.settings.every
            except NoRightError:
                raise
            except Exception as error:  # also a fault of the scheduler's own: it is counted, and ends no more than this cycle
                known = isinstance(error, GpuyardError)
                record = {"error": (str(error) if known else f"{type(error).__name__}: {error}")[:500]}
                self._ground, self._acted = None, False
                pause = min(2 * pause, max(LONGEST_PAUSE, self.settings.every))
            record = {"t": self.clock(), "cycle": self._cycle, "mode": self.settings.mode, "every": self.settings.every, **record}
            self._guard(record)
            self._cycle += 1
            if self.log is not None:
                self.log.add(record)
            if self.figures is not None:
                self.figures.add(record)
            yield record
            if count is None or self._cycle < count:
                spent = time.monotonic() - began
                between.rest(pause - spent, spent=spent, hurried="error" not in record)

    def plan_once(self) -> tuple[SavedSnapshot, Planned]:
        """Return what a cycle would send now, and send nothing."""
        state = self._read()
        saved = site_snapshot(self.mode.seen(state), self.estimator)
        return saved, self.mode.plan(Decided(saved, *self._asked.decide(saved)[:2]), state)

    # ── one cycle ──

    def _one_cycle(self) -> dict[str, Any]:
        times = [time.perf_counter()]
        state = self._read()
        ended = self._learn(state)
        saved = site_snapshot(self.mode.seen(state), self.estimator)
        times.append(time.perf_counter())
        decisions, order, _ = self._asked.decide(saved)
        planned = self.mode.plan(Decided(saved, decisions, order), state)
        times.append(time.perf_counter())
        self._acted = self._may_act(state)
        sent = planned.updates[: self.settings.most]
        failed = self._send(sent) if self._acted else {}
        times.append(time.perf_counter())
        names, nodes = saved.snapshot.rows(), saved.snapshot.cluster.nodes.names
        starts = [(saved.name(names[d.job]), [nodes[p.node] for p in d.parts]) for d in decisions if d.action is Action.START]
        spans = {name: round(b - a, 4) for name, a, b in zip(("read", "decide", "act"), times, times[1:], strict=False)}
        return {
            "t": state.now, "scheduler": self.scheduler.label, "acts": self._acted,
            "running": len(saved.snapshot.running), "waiting": len(saved.snapshot.waiting), "ineligible": len(saved.ineligible),
            "would_start": starts[:MOST_NAMES], "order": [saved.name(row) for row in order[:MOST_NAMES]],
            **planned.facts, "updates": [(each.job, each.change) for each in sent],
            "left": len(planned.updates) - len(sent), "failed": failed,
            "started": self._started(state), "ended": ended, **self._told_cluster(saved), "seconds": spans, "notes": list(saved.notes),
        }  # fmt: skip

    @abstractmethod
    def _read(self) -> SiteState:
        """Read the queue, and from time to time the rest; all of it when the clock was set."""

    @abstractmethod
    def _deliver(self, updates: Sequence[Update]) -> dict[str, str]:
        """Send updates; return the jobs that did not take theirs, with the reason. NoRightError: this user may change nobody's."""

    @abstractmethod
    def _went(self, why: str) -> bool:
        """Return whether a refusal says that the job has started or is gone: nothing is wrong."""

    def _clock_was_set(self, now: float) -> bool:
        """Return whether the clock has moved since the last cycle, or this is the first."""
        before, self._offset = self._offset, now - time.monotonic()
        return before is None or abs(self._offset - before) > JUMP

    def _learn(self, state: SiteState) -> list[dict[str, Any]]:
        """Learn from the jobs that have ended by themselves how long such jobs take; return all that have ended since, for the log."""
        gone = {job.name: job for job in state.jobs if job.ran == job.ran}
        new = [job for name, job in gone.items() if name not in self._ended]
        for job in new:
            if job.lasted == job.lasted:
                self.estimator.observe(job.user, kind_of("", job.title, ()), max(job.lasted, SHORTEST))
        self._ended = set(gone)
        return [
            {"job": job.name, "user": job.user, "partition": ",".join(job.partitions), "submit": job.submit, "start": job.start,
             "ran": job.ran, "gpus": job.gpus, "chunk": job.chunk, "type": job.gpu_type, "cpus": job.cpus, "limit": str(job.limit),
             "nodes": len(job.nodes)}
            for job in new if job.nodes
        ]  # fmt: skip

    def _told_cluster(self, saved: SavedSnapshot) -> dict[str, Any]:
        """Return what the cluster is, where the log does not say so yet."""
        cluster = saved.snapshot.cluster
        if self._cluster is not None and cluster.nodes.names == self._cluster.nodes.names and self._cycle % TELL_CLUSTER:
            return {}
        self._cluster = cluster
        return {"cluster": to_plain(cluster_to_dict(cluster), "cluster")}

    def _started(self, state: SiteState) -> list[tuple[str, float]]:
        """Return the jobs that waited in the cycle before and run now, with their waits in s."""
        found = [(job.name, round(job.start - self._waited[job.name], 3)) for job in state.jobs if job.runs and job.name in self._waited]
        self._waited = {job.name: job.submit for job in state.jobs if job.waits}
        return found

    # ── guards ──

    def _may_act(self, state: SiteState) -> bool:
        """Return whether updates may be sent: in an acting mode, with no switch or limit against it, on a snapshot that is fresh."""
        guards = self.settings.guards
        if self.settings.mode == "shadow" or guards.stopped or self.watch.tripped:
            return False
        return 0 <= self.clock() - state.now <= guards.fresh

    def _send(self, updates: Sequence[Update]) -> dict[str, str]:
        """Send updates, and take note; return the jobs that refused, unless they are gone."""
        self._changed = True
        failed = self._deliver(updates)
        self.mode.told(updates, failed)
        return {job: why for job, why in failed.items() if not self._went(why)}

    def _guard(self, record: dict[str, Any]) -> None:
        """Go back to the site's own policy where a limit or the kill switch says so; try again in the next cycle if that fails."""
        tripped = self.watch.see(record)
        stopped = self.settings.guards.stopped
        record |= {"tripped": tripped, "stopped": stopped, "mean_wait": self.watch.mean_wait}
        if self._changed and (tripped or stopped):
            try:
                count, failed = self.mode.withdraw(self.settings.patience)
                record["withdrawn"] = count - len(failed)
                self._changed = bool(failed) or self.mode.placing  # hooks go on marking new jobs, and what is under way may not start
            except GpuyardError as error:
                record["withdrawn_error"] = str(error)[:500]
