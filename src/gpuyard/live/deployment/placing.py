"""Placing jobs by begin times: what the scheduler is shown of jobs that wait for it, and which decisions hold. Nothing is sent here.

A hook gives each job of ours a begin time DEADMAN s ahead and a mark. A job that is decided gets its nodes and may start; the others are
pushed further ahead, each only when its time is near. So without us every job may start within DEADMAN s.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.live.deployment.modes import MOST_NAMES, Decided, Planned, Update
from gpuyard.live.guards import GuardSettings, Start, checked_starts
from gpuyard.live.state.site import SiteJob, SiteNode, SiteState

BEATS = 3  # a begin time is put off when less than a third of DEADMAN is left
MARK = "gpuyard"
_OPEN = frozenset({"", "begin"})  # why a job of ours waits when nothing else keeps it


@dataclass(frozen=True)
class PlaceSettings:
    """The times of place mode."""

    deadman: float = 600.0  # s after which a job may start without us
    settle: float = 20.0  # s that a started job may take to run
    rest: float = 60.0  # s for which a job is not tried again that did not start


@dataclass(frozen=True)
class SortedQueue:
    """Holds what a cycle makes of the queue."""

    state: SiteState  # for the scheduler: what we have started runs, what we keep back may start, and what is Slurm's may not
    ours: Mapping[str, SiteJob]  # waiting jobs that we may start, as Slurm has them
    stuck: tuple[SiteJob, ...]  # have nodes of ours, and do not run: to be taken back
    released: tuple[SiteJob, ...]  # to be left to Slurm at once
    pushed: tuple[SiteJob, ...]  # whose begin time must not come


@dataclass
class Rests:
    """Remembers who did not start where it was put, for a while. Lost at a restart, which costs one more try."""

    until: dict[str, float] = field(default_factory=dict)

    def add(self, names: Iterable[str], end: float) -> None:
        """Let jobs rest."""
        self.until |= dict.fromkeys(names, end)

    def resting(self, now: float) -> set[str]:
        """Return who rests."""
        self.until = {name: end for name, end in self.until.items() if end > now}
        return set(self.until)


def as_seen(
    state: SiteState, settings: PlaceSettings, guards: GuardSettings, resting: set[str], partitions: frozenset[str] = frozenset()
) -> SortedQueue:
    """Sort the waiting jobs that carry our mark; the scheduler is shown those that we may start, and nobody else's as waiting.

    What the hook has marked in other `partitions` than ours (none: all are) is Slurm's: we would put it off, and never start it.
    """
    shown: list[SiteJob] = []
    ours: dict[str, SiteJob] = {}
    stuck, released, pushed = [], [], []
    for job in state.jobs:
        if not job.waits:
            shown.append(job)
            continue
        home = not partitions or not partitions.isdisjoint(job.partitions)
        kept = job.mark == MARK and home and not guards.leaves(job) and could_run(job, state.nodes)
        if kept and under_way(job, state.now, settings.settle):
            shown.append(replace(job, waits=False, runs=True, nodes=job.pinned, start=state.now))
            continue
        may = kept and job.why != "held" and (job.why in _OPEN or bool(job.pinned)) and job.name not in resting
        shown.append(replace(job, why="" if may else job.why or "site", eligible=job.submit if may else job.eligible))
        ours |= {job.name: job} if may else {}
        if kept:
            stuck += [job] if job.pinned and job.why != "held" else []
            pushed.append(job)
        elif job.mark == MARK and job.why != "held":
            released.append(job)
    return SortedQueue(replace(state, jobs=shown), ours, tuple(stuck), tuple(released), tuple(pushed))


def under_way(job: SiteJob, now: float, settle: float) -> bool:
    """Return whether we have started a job a moment ago: it has nodes, its begin time has come, and Slurm has not found fault with it."""
    return bool(job.pinned) and job.why not in ("impossible", "held") and 0 <= now - job.eligible < settle


def could_run(job: SiteJob, nodes: Sequence[SiteNode]) -> bool:
    """Return whether an empty cluster would hold it, as far as we understand what it asks for. If not, Slurm must know better."""
    each = -(-job.gpus // job.node_count)
    cpus, memory = job.cpus / job.node_count, job.memory / job.node_count
    able = 0
    for node in nodes:
        gpus = node.gpus.get(job.gpu_type, 0) if job.gpu_type else max(node.gpus.values(), default=0)
        enough = gpus >= each and node.cpus >= cpus and (node.memory or memory) >= memory
        able += enough and bool(set(job.partitions) & set(node.partitions))
        if able >= job.node_count:
            return True
    return False


@dataclass
class PlaceMode(ABC):
    """Says when and on which nodes the jobs of some partitions start."""

    guards: GuardSettings
    settings: PlaceSettings
    partitions: frozenset[str]
    every: float
    name: str = "place"
    needs_order: bool = False
    reads_nodes: bool = True
    placing: bool = True
    rests: Rests = field(default_factory=Rests)
    _seen: SortedQueue | None = field(default=None, repr=False)
    _started: tuple[set[str], float] = field(default=(set(), 0.0), repr=False)

    @abstractmethod
    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse a batch system in which this mode cannot work."""

    def reread(self, patience: float) -> None:  # noqa: B027 - a mode may have nothing more to read
        """Read nothing more."""

    def seen(self, state: SiteState) -> SiteState:
        """Show jobs of ours as what they are: under way, or waiting for us."""
        self._seen = as_seen(state, self.settings, self.guards, self.rests.resting(state.now), self.partitions)
        return self._seen.state

    def plan(self, decided: Decided, state: SiteState) -> Planned:
        """Return a start for each decision that holds, and what keeps the other jobs in hand."""
        assert self._seen is not None
        good, refused = checked_starts(decided.saved, decided.decisions, self._seen.ours, self.guards)
        started = {each.name for each in good}
        self._started = started, state.now
        self.rests.add([job.name for job in self._seen.stuck], state.now + self.settings.rest)
        facts = {
            "placed": [(each.name, list(each.nodes)) for each in good[:MOST_NAMES]],
            "refused": dict(list(refused.items())[:MOST_NAMES]), "stuck": [job.name for job in self._seen.stuck],
        }  # fmt: skip
        margin = self.settings.deadman / BEATS + 2 * self.every
        return Planned([*self._starts(good, self._seen), *self._upkeep(self._seen, started, margin)], facts)

    @abstractmethod
    def _starts(self, good: Sequence[Start], seen: SortedQueue) -> list[Update]:
        """Return what starts jobs on their nodes."""

    @abstractmethod
    def _upkeep(self, seen: SortedQueue, started: set[str], margin: float) -> list[Update]:
        """Return what keeps the other jobs in hand: whose begin time comes within `margin` s gets a later one."""

    @abstractmethod
    def _went(self, why: str) -> bool:
        """Return whether a refusal says that the job has started or is gone: nothing is wrong."""

    def told(self, sent: Sequence[Update], failed: Mapping[str, str]) -> None:
        """Let those rest whose start was refused."""
        names, now = self._started
        self.rests.add([name for name, why in failed.items() if name in names and not self._went(why)], now + self.settings.rest)

    @abstractmethod
    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Let all jobs of ours start by themselves, anywhere."""
