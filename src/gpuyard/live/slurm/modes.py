"""Says what a deployment beside Slurm does with decisions: nothing (shadow), order the queue (order), or say where jobs start (place)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

from gpuyard.errors import UsageError
from gpuyard.live.deployment.modes import Decided, Planned, Update
from gpuyard.live.deployment.ordering import QueuedJob, out_of_order
from gpuyard.live.deployment.placing import MARK, PlaceMode, PlaceSettings, SortedQueue, under_way
from gpuyard.live.guards import GuardSettings, Start, near_own
from gpuyard.live.slurm.commands import read_jobs, send, went
from gpuyard.live.slurm.means import MEANS, Means, SiteFactors
from gpuyard.live.state.site import SiteJob, SiteState
from gpuyard.model.site.notation import ranges_text

# ── order ──


@dataclass
class OrderMode:
    """Lets waiting jobs stand in the scheduler's order."""

    guards: GuardSettings
    within: int
    partitions: frozenset[str]
    name: str = "order"
    needs_order: bool = True
    reads_nodes: bool = False
    placing: bool = False
    means: Means = field(default_factory=SiteFactors)
    _added: dict[int, int] = field(default_factory=dict, repr=False)  # job or array → what was added to its priority
    _planned: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse a Slurm that ignores priorities."""
        kind, priority = config.get("SchedulerType", ""), config.get("PriorityType", "")
        if self.name == "order" and kind != "sched/backfill":
            raise UsageError(f"{kind} starts jobs as they come and ignores priorities", hint="SchedulerType=sched/backfill in slurm.conf")
        if self.name == "order" and priority not in MEANS:
            raise UsageError(f"{priority}: no order can be set", hint="PriorityType=priority/multifactor in slurm.conf")
        self.means = MEANS.get(priority, SiteFactors)()

    def reread(self, patience: float) -> None:
        """Read the site factors."""
        self._added = self.means.read(patience)

    def seen(self, state: SiteState) -> SiteState:
        """Return the state as it is."""
        return state

    def plan(self, decided: Decided, state: SiteState) -> Planned:
        """Return the fewest changes that put the queue in order."""
        groups = [self._near_own(group) for group in self._groups(decided, state.jobs)]
        changes = [change for group in groups for change in self.means.plan(group, self.within)]
        changes += self._put_back(state.jobs)
        self._planned = {str(job): (job, value) for job, value in changes}
        return Planned([self.means.update(job, value) for job, value in changes], {"out_of_order": sum(map(out_of_order, groups))})

    def _near_own(self, group: list[QueuedJob]) -> list[QueuedJob]:
        own = sorted(group, key=lambda each: (-each.base, each.job))
        return near_own(group, own, self.guards.behind)

    def _groups(self, decided: Decided, jobs: Sequence[SiteJob]) -> list[list[QueuedJob]]:
        """Return the waiting jobs in order, each array once, apart by what Slurm never mixes: shared nodes, and tiers."""
        saved, known = decided.saved, {job.name: job for job in jobs}
        s = saved.snapshot
        homes = [s.jobs.partitions[number] for number in s.jobs.table["partition"].tolist()]
        groups: dict[tuple[int, int], list[QueuedJob]] = {}
        done: set[int] = set()
        for row in decided.order:
            job, home = known[saved.name(row)], homes[row]
            if job.base in done or not self.guards.touches(job, self.partitions):
                continue
            done.add(job.base)
            key = s.cluster.partition_numbers.get(home, 0), saved.tiers.get(home, 0)
            groups.setdefault(key, []).append(QueuedJob(job.base, int(job.priority), self._added.get(job.base, 0)))
        return list(groups.values())

    def _put_back(self, jobs: Sequence[SiteJob]) -> list[tuple[int, int]]:
        """Return what takes back the site factors of jobs that are left to the site by now."""
        left = {job.base for job in jobs if job.waits and self.guards.leaves(job)}
        return [(job, 0) for job in sorted(left) if self._added.get(job)]

    def told(self, sent: Sequence[Update], failed: Mapping[str, str]) -> None:
        """Remember what was added."""
        if isinstance(self.means, SiteFactors):
            self._added |= dict(self._planned[each.job] for each in sent if each.job not in failed)

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Put every job back that is ours to touch."""
        self._added = {}
        return self.means.reset(patience, partial(self.guards.touches, partitions=self.partitions))


# ── place ──


@dataclass
class SlurmPlace(PlaceMode):
    """Says when and on which nodes the jobs of some partitions start."""

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse a Slurm without the hook, and partitions whose nodes others use too."""
        if "lua" not in config.get("JobSubmitPlugins", ""):
            raise UsageError(
                "jobs get no begin time: Slurm has no job_submit.lua",
                hint="gpuyard deploy lua prints it; JobSubmitPlugins=lua in slurm.conf",
            )
        known = {each.name for each in state.partitions}
        if not self.partitions or self.partitions - known:
            what = f"no such partition: {', '.join(sorted(self.partitions - known))}" if self.partitions else "which partitions?"
            raise UsageError(what, hint="--partition NAME, the same that job_submit.lua names")
        for node in state.nodes:
            if self.partitions & set(node.partitions) and len(node.partitions) > 1:
                raise UsageError(
                    f"node {node.name} is in the partitions {', '.join(node.partitions)}: jobs of one would be placed without the other",
                    hint="place mode needs partitions of their own nodes; --order works with shared ones",
                )

    def _starts(self, good: Sequence[Start], seen: SortedQueue) -> list[Update]:
        return starts_of(good, seen.ours)

    def _upkeep(self, seen: SortedQueue, started: set[str], margin: float) -> list[Update]:
        return upkeep(seen, started, self.settings, margin)

    def _went(self, why: str) -> bool:
        return went(why)

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Let all jobs of ours start by themselves, anywhere. What is under way stays so."""
        return release_all(patience, self.settings.settle)


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


def release_all(patience: float, settle: float = PlaceSettings.settle) -> tuple[int, Mapping[str, str]]:
    """Let all waiting jobs that carry our mark start by themselves; return how many updates that took, and who did not take his."""
    state = SiteState(time.time(), read_jobs(patience, placing=True), [], [])
    ours = (job for job in state.jobs if job.waits and job.mark == MARK and job.why != "held")
    left = tuple(job for job in ours if not under_way(job, state.now, settle))
    updates = let_go(SortedQueue(state, {}, (), left, ()))
    failed = send(updates, patience)
    return len(updates), {job: why for job, why in failed.items() if not went(why)}
