"""Plans place mode: what the scheduler is shown of jobs that wait for it, and which updates a cycle needs. Nothing is read or sent here.

A hook (`dead_man`) gives each job of ours a begin time DEADMAN s ahead and a mark. A job that is decided gets its nodes and `starttime=now`
by one update; the others are pushed further ahead, each only when its time is near. So without us every job may start within DEADMAN s.
All that we know is in Slurm: a marked job that waits with nodes and a begin time that has come is one that we have started.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gpuyard.live.guards import GuardSettings, Start
from gpuyard.live.slurm.commands import Update
from gpuyard.live.state.site import SiteJob, SiteNode, SiteState
from gpuyard.model.site.notation import ranges_text

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


def as_seen(state: SiteState, settings: PlaceSettings, guards: GuardSettings, resting: set[str]) -> SortedQueue:
    """Sort the waiting jobs that carry our mark; the scheduler is shown those that we may start, and nobody else's as waiting."""
    shown: list[SiteJob] = []
    ours: dict[str, SiteJob] = {}
    stuck, released, pushed = [], [], []
    for job in state.jobs:
        if not job.waits:
            shown.append(job)
            continue
        kept = job.mark == MARK and not guards.leaves(job) and could_run(job, state.nodes)
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


def starts_of(good: Sequence[Start], ours: Mapping[str, SiteJob]) -> list[Update]:
    """Return one update for each start: nodes and begin time together, or neither."""
    return [Update(each.name, f"reqnodelist={','.join(each.nodes)} starttime=now") for each in good if each.name in ours]


def upkeep(seen: SortedQueue, started: set[str], settings: PlaceSettings, margin: float) -> list[Update]:
    """Return what keeps the other jobs in hand, the most urgent first.

    Those that did not start lose their nodes; those whose begin time comes within `margin` s get a later one; and those whose time lies
    further ahead than a living scheduler puts it, since a clock was set, get an earlier one.
    """
    now, later = seen.state.now, f"starttime=now+{settings.deadman:.0f}"
    taken = [Update(job.name, f"reqnodelist= {later}") for job in seen.stuck if job.name not in started]
    done = started | {job.name for job in seen.stuck}
    left = [(job.eligible - now, job) for job in seen.pushed if job.name not in done]
    near = [(ahead, job) for ahead, job in left if ahead <= margin or ahead > settings.deadman + margin]
    near.sort(key=lambda each: (each[0], each[1].base, each[1].task))
    return taken + [Update(name, later) for name in together([job for _, job in near])] + let_go(seen)


def let_go(seen: SortedQueue) -> list[Update]:
    """Return what gives jobs to Slurm that are none of ours to place, once: their begin time comes, and they are pinned to nothing."""
    named = [job for job in seen.released if job.pinned or job.eligible > seen.state.now]
    return [Update(name, "reqnodelist= starttime=now") for name in together(named)]


def together(jobs: Sequence[SiteJob]) -> list[str]:
    """Return what scontrol calls jobs, tasks of one record of an array as one: `17_[0-2,5]`, so that none is split off."""
    groups: dict[tuple[int, int], list[SiteJob]] = {}
    for job in jobs:
        groups.setdefault((job.array, job.id), []).append(job)
    return [
        each[0].name if len(each) == 1 else f"{each[0].array}_[{ranges_text(sorted(job.task for job in each))}]" for each in groups.values()
    ]
