"""How near the simulated present is to what the log says: waits and devices in use, of all jobs, by partition and by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpuyard.experiments.judging.answering.names import duration
from gpuyard.experiments.judging.answering.waits import PARTITION, SIZE, Waits
from gpuyard.experiments.judging.logged import LABEL
from gpuyard.experiments.judging.text import short

APART = 0.25  # of the log's wait: groups beyond it are named
LEAST = 300.0  # s that the waits of such a group differ by
MOST_NAMED = 2
FARTHEST = "Farthest off:"


@dataclass(frozen=True)
class GroupFidelity:
    """A group of jobs in the log and in the simulated present."""

    grouping: str  # `partition` or `GPUs`
    group: str
    jobs: int
    wait: tuple[float, float]  # s, in the log and simulated
    busy: tuple[float, float]  # devices in use on average while jobs are submitted, in the log and simulated

    @property
    def gap(self) -> float:
        """Return by how many seconds the simulated mean wait is off."""
        return abs(self.wait[1] - self.wait[0])

    @property
    def apart(self) -> bool:
        """Whether the waits are so far apart that the group is worth naming."""
        return self.gap > max(APART * self.wait[0], LEAST)


def fidelity(waits: Waits | None, stand_in: str) -> list[GroupFidelity]:
    """Compare the log with the scheduler that stands in for the site's own, by partition and size; empty without a log."""
    if waits is None or LABEL not in waits.seconds or stand_in not in waits.seconds:
        return []
    found = []
    for grouping in (PARTITION, SIZE):
        labels = waits.labels.get(grouping, ())
        for each in waits.changes(grouping, stand_in, LABEL):
            place = labels.index(each.group)
            busy = tuple(float(waits.busy[who][grouping][place]) for who in (LABEL, stand_in))
            found.append(GroupFidelity(grouping, each.group, each.jobs, (each.before, each.after), (busy[0], busy[1])))
    return found


def farthest(found: Sequence[GroupFidelity], device: str) -> str:
    """Name the groups whose waits are farthest from the log, by the waiting that is missing or too much; empty where none is far."""
    far = sorted((each for each in found if each.apart), key=lambda each: -each.gap * each.jobs)[:MOST_NAMED]
    if not far:
        return ""
    told = [f"{_who(each, device)} {duration(each.wait[1])} (log: {duration(each.wait[0])})" for each in far]
    return f"{FARTHEST} {', '.join(told)}."


def _who(each: GroupFidelity, device: str) -> str:
    return (
        f"partition {each.group}"
        if each.grouping == PARTITION
        else f"jobs on {each.group.replace('1 or less', 'at most one of the')} {device}"
    )


def rows_of(found: Sequence[GroupFidelity], device: str) -> list[list[str]]:
    """Write the groups as rows of a table: group, jobs, wait in the log and simulated, devices in use in the log and simulated."""
    return [[_who(each, device), f"{each.jobs:,}", *map(duration, each.wait), *(short(value) for value in each.busy)] for each in found]


HEADER = ("group", "jobs", "wait, log", "wait, simulated", "in use, log", "in use, simulated")
