"""Plans the updates of place mode. Nothing is read or sent here.

A job that is decided gets its nodes and `starttime=now` by one update. All that we know is in Slurm: a marked job that waits with nodes and
a begin time that has come is one that we have started.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gpuyard.live.deployment.modes import Update
from gpuyard.live.deployment.placing import PlaceSettings, SortedQueue
from gpuyard.live.guards import Start
from gpuyard.live.state.site import SiteJob
from gpuyard.model.site.notation import ranges_text


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
