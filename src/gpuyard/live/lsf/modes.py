"""Says what a deployment beside LSF does with decisions: order the queues, say where jobs start, or publish that for the plugin.

Never `brun`, which starts a job whatever else holds the host: LSF itself starts every job, within all its limits.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.errors import UsageError
from gpuyard.live.deployment.modes import MOST_NAMES, Decided, Planned, Update
from gpuyard.live.deployment.placing import MARK, PlaceMode, PlaceSettings, SortedQueue
from gpuyard.live.guards import GuardSettings, Start, checked_starts, near_own
from gpuyard.live.lsf.commands import lsf_update, read_lsf, send, went
from gpuyard.live.lsf.marks import HELD, JobMark
from gpuyard.live.lsf.moves import aps_values, move_updates, out_of_place, target_of
from gpuyard.live.lsf.publishing import DecisionFile
from gpuyard.live.state.site import SiteJob, SiteState

_MINUTE = 60.0


def check_queues(queues: frozenset[str], state: SiteState, *, needed: str = "") -> None:
    """Refuse queues that are not there, and none where some are needed."""
    known = {each.name for each in state.partitions}
    if queues - known:
        raise UsageError(f"no such queue: {', '.join(sorted(queues - known))}", hint=f"queues: {', '.join(sorted(known))}")
    if needed and not queues:
        raise UsageError("which queues?", hint=f"--queue NAME, {needed}")


# ── order ──


@dataclass
class LsfOrder:
    """Lets the waiting jobs of each queue stand in the scheduler's order."""

    guards: GuardSettings
    queues: frozenset[str]
    name: str
    by: str  # btop, or aps for queues with APS_PRIORITY
    most: int
    needs_order: bool = True
    reads_nodes: bool = False
    placing: bool = False
    _values: dict[str, int] = field(default_factory=dict, repr=False)  # job → its system value, as far as we have set it
    _planned: dict[str, int] = field(default_factory=dict, repr=False)

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse what cannot be done."""
        check_queues(self.queues, state)
        if self.by == "aps" and (self.guards.users or self.guards.partitions or self.guards.behind is not None):
            what = "jobs with a system value go before all others of an APS queue, so nobody can be left to the site there"
            raise UsageError(what, hint="--means btop, or without --exclude-user, --exclude-partition and --behind")

    def reread(self, patience: float) -> None:
        """Read nothing more: LSF does not show system values."""

    def seen(self, state: SiteState) -> SiteState:
        """Return the state as it is."""
        return state

    def plan(self, decided: Decided, state: SiteState) -> Planned:
        """Return the fewest commands that put each queue in order."""
        updates: list[Update] = []
        wrong, self._planned = 0, {}
        for queue, wanted in self._wanted(decided, state.jobs).items():
            listed = _whole(job for job in state.jobs if job.waits and job.partitions[:1] == (queue,))
            target = target_of(listed, near_own(wanted, [each for each in listed if each in set(wanted)], self.guards.behind))
            wrong += out_of_place(listed, target)
            if self.by == "aps":
                changes = aps_values(wanted, {job: value for job, value in self._values.items() if job in set(wanted)})
                self._planned |= dict(changes)
                updates += [lsf_update("bmod", job, "-aps", f"system={value}") for job, value in changes]
            else:
                updates += move_updates(listed, target, self.most)
        return Planned(updates, {"out_of_order": wrong})

    def _wanted(self, decided: Decided, jobs: Sequence[SiteJob]) -> dict[str, list[str]]:
        """Return the jobs of each queue in the scheduler's order, each array once."""
        known = {job.name: job for job in jobs}
        found: dict[str, list[str]] = {}
        for row in decided.order:
            job = known[decided.saved.name(row)]
            queue = job.partitions[0]
            if self.guards.leaves(job) or (self.queues and queue not in self.queues):
                continue
            names = found.setdefault(queue, [])
            if str(job.base) not in names:
                names.append(str(job.base))
        return found

    def told(self, sent: Sequence[Update], failed: Mapping[str, str]) -> None:
        """Remember the values that were set."""
        self._values |= {each.job: self._planned[each.job] for each in sent if each.job in self._planned and each.job not in failed}

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Give the queues back: without system values, or in the order of submission."""
        self._values = {}
        return put_back(self.by, self.queues, self.guards, patience)


def put_back(by: str, queues: frozenset[str], guards: GuardSettings, patience: float) -> tuple[int, Mapping[str, str]]:
    """Take the system values away, or let the jobs of the queues (none: of all) stand in the order of submission.

    They share the places that they have: jobs that the guards leave to the site are not moved. Return how many commands, and who refused.
    """
    state, _ = read_lsf(patience)
    waiting = [job for job in state.jobs if job.waits and (not queues or job.partitions[0] in queues)]
    updates: list[Update] = []
    if by == "aps":
        updates = [lsf_update("bmod", job, "-apsn") for job in _whole(job for job in waiting if not guards.leaves(job))]
    else:
        for queue in dict.fromkeys(job.partitions[0] for job in waiting):
            listed = [job for job in waiting if job.partitions[0] == queue]
            ours = (job for job in listed if not guards.leaves(job))
            target = target_of(_whole(listed), _whole(sorted(ours, key=lambda job: (job.submit, job.base, job.task))))
            updates += move_updates(_whole(listed), target, len(listed))
    failed = send(updates, patience)
    return len(updates), {job: why for job, why in failed.items() if not went(why)}


def _whole(jobs: Iterable[SiteJob]) -> list[str]:
    """Return the numbers of jobs, each array once."""
    return list(dict.fromkeys(str(job.base) for job in jobs))


# ── place ──


def later(now: float, deadman: float) -> float:
    """Return the begin time of a job that waits for us: LSF knows minutes."""
    return math.ceil((now + deadman) / _MINUTE) * _MINUTE


def begin_words(when: float) -> tuple[str, str]:
    """Return bmod's option for a begin time, in this machine's time zone."""
    return "-b", time.strftime("%Y:%m:%d:%H:%M", time.localtime(when))


@dataclass
class LsfPlace(PlaceMode):
    """Says when and on which hosts the marked jobs of some queues start."""

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse queues that are not there."""
        check_queues(self.partitions, state, needed="the same that esub.gpuyard names")

    def _starts(self, good: Sequence[Start], seen: SortedQueue) -> list[Update]:
        return [update for each in good for update in start_updates(seen.ours[each.name], each, seen.state.now)]

    def _upkeep(self, seen: SortedQueue, started: set[str], margin: float) -> list[Update]:
        return upkeep_updates(seen, started, self.settings, margin + _MINUTE)

    def _went(self, why: str) -> bool:
        return went(why)

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Let all marked jobs start by themselves, anywhere."""
        return release_marked(patience)


def start_updates(job: SiteJob, start: Start, now: float) -> list[Update]:
    """Return what lets a job start on its hosts: one command, and for one that is held a second that resumes it."""
    held = is_held(job)
    mark = JobMark(MARK, math.floor(now), start.nodes, held)
    words = ("-m", " ".join(start.nodes), *(() if held else ("-bn",)), "-Jd", str(mark))
    return [lsf_update("bmod", job.name, *words), *([lsf_update("bresume", job.name)] if held else [])]


def upkeep_updates(seen: SortedQueue, started: set[str], settings: PlaceSettings, margin: float) -> list[Update]:
    """Return what takes back those that did not start, puts off those whose time comes near, and gives back those that are not ours."""
    now, when = seen.state.now, later(seen.state.now, settings.deadman)
    mark = JobMark(MARK, when)
    taken = [update for job in seen.stuck if job.name not in started for update in _taken_back(job, when)]
    done = started | {job.name for job in seen.stuck}
    left = [job for job in seen.pushed if job.name not in done and job.eligible == job.eligible]
    near = sorted((job for job in left if not margin < job.eligible - now <= settings.deadman + margin), key=lambda job: job.eligible)
    pushed = [lsf_update("bmod", job.name, *begin_words(when), "-Jd", str(mark)) for job in near]
    return [*taken, *pushed, *(update for job in seen.released for update in release_updates(job))]


def _taken_back(job: SiteJob, when: float) -> list[Update]:
    """Return what lets a job wait again that has hosts and did not start."""
    if is_held(job):
        return [lsf_update("bstop", job.name), lsf_update("bmod", job.name, "-mn", "-Jd", str(JobMark(MARK, held=True)))]
    return [lsf_update("bmod", job.name, "-mn", *begin_words(when), "-Jd", str(JobMark(MARK, when)))]


def resumed(sent: Sequence[Update], failed: Mapping[str, str]) -> list[Update]:
    """Return what lets jobs go on that were taken back just when they had started: `bstop` suspends a job that runs."""
    return [lsf_update("bresume", each.job) for each in sent if each.verb == "bstop" and went(failed.get(each.job, ""))]


def release_updates(job: SiteJob) -> list[Update]:
    """Return what gives a marked job to LSF: no hosts, no begin time, no mark."""
    freed = lsf_update("bmod", job.name, "-mn", "-bn", "-Jdn")
    return [freed, *([lsf_update("bresume", job.name)] if is_held(job) else [])]


def is_held(job: SiteJob) -> bool:
    """Return whether a marked job is held until it is started, by `esub.gpuyard` with HOLD=yes."""
    return job.reason == HELD


def release_marked(patience: float) -> tuple[int, Mapping[str, str]]:
    """Give all marked jobs that wait to LSF; return how many commands that took, and who did not take his."""
    state, _ = read_lsf(patience)
    updates = [update for job in state.jobs if job.waits and job.mark and job.why != "held" for update in release_updates(job)]
    failed = send(updates, patience)
    return len(updates), {job: why for job, why in failed.items() if not went(why)}


# ── publish ──


@dataclass
class LsfPublish:
    """Publishes for the scheduler's plugin where the jobs of some queues may start now. Nothing is sent to LSF."""

    guards: GuardSettings
    queues: frozenset[str]
    file: DecisionFile
    settle: float
    needs_order: bool = False
    reads_nodes: bool = True
    placing: bool = False
    name: str = "publish"
    _told: dict[str, tuple[float, tuple[str, ...]]] = field(default_factory=dict, repr=False)  # job → when it was let go, and where to
    _next: dict[int, tuple[str, ...]] = field(default_factory=dict, repr=False)

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse queues that are not there."""
        check_queues(self.queues, state, needed="the same that epsub.gpuyard names")

    def reread(self, patience: float) -> None:
        """Read nothing more."""

    def seen(self, state: SiteState) -> SiteState:
        """Show jobs that were let go a moment ago as running: LSF starts them in its next session."""
        waiting = {job.name for job in state.jobs if job.waits}
        self._told = {name: told for name, told in self._told.items() if name in waiting and state.now - told[0] < self.settle}
        return replace(state, jobs=[self._shown(job, state.now) for job in state.jobs])

    def _shown(self, job: SiteJob, now: float) -> SiteJob:
        if not job.waits:
            return job
        if job.name in self._told:
            return replace(job, waits=False, runs=True, nodes=self._told[job.name][1], start=now)
        return job if self._ours(job) else replace(job, why=job.why or "site")

    def _ours(self, job: SiteJob) -> bool:
        """Return whether the plugin knows the job: arrays have one request for all of their tasks, so they are LSF's."""
        return job.partitions[0] in self.queues and not job.array and not self.guards.leaves(job)

    def plan(self, decided: Decided, state: SiteState) -> Planned:
        """Return nothing to send; remember what to publish."""
        known = {job.name: job for job in state.jobs}
        good, refused = checked_starts(decided.saved, decided.decisions, known, self.guards)
        ours = {job.name: job for job in state.jobs if job.waits and self._ours(job)}
        placed = {each.name: each.nodes for each in good if each.name in ours}
        self._next = {
            job.id: placed.get(name, self._told.get(name, (0.0, ()))[1]) for name, job in ours.items() if job.why in ("", "begin")
        }
        self._told |= {name: (state.now, nodes) for name, nodes in placed.items()}
        facts = {"placed": [(name, list(nodes)) for name, nodes in list(placed.items())[:MOST_NAMES]],
                 "refused": dict(list(refused.items())[:MOST_NAMES])}  # fmt: skip
        return Planned((), facts)

    def publish(self) -> None:
        """Replace the file."""
        self.file.publish(self._next, time.time())

    def told(self, sent: Sequence[Update], failed: Mapping[str, str]) -> None:
        """Remember nothing: nothing is sent."""

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Remove the file: LSF schedules by itself from its next session on."""
        self.file.withdraw()
        self._told = {}
        return 1, {}
