"""Sums that say who gains and who pays: how long jobs waited under each scheduler, by length, size, partition and user.

Sums are kept by unit: a seed, or of a log one of many short stretches of time, of which the statistics make blocks. So the memory does not
grow with the jobs, and changes of groups have intervals like everything else.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.experiments.judging.statistics import FEWEST, Interval, block_ratio, ratio_of_sums
from gpuyard.metrics import METRICS
from gpuyard.metrics.base import values_of
from gpuyard.model.result import Result
from gpuyard.model.workload import Workload

PIECES = 640  # stretches of time of a log: at least what `time_blocks` wants to see for 16 blocks
LENGTHS = ((0.0, "under 5 min"), (300.0, "5 min to 1 h"), (3600.0, "1 to 12 h"), (43200.0, "over 12 h"))
SIZES = ((0.0, "1 or less"), (1.5, "2 to 8"), (8.5, "9 to 64"), (64.5, "over 64"))  # of a log without GPUs they are processors
LENGTH, SIZE, PARTITION, USER = "length", "GPUs", "partition", "user"
Groups: TypeAlias = Mapping[str, tuple[tuple[str, ...], Array]]  # grouping → (its groups, (jobs,) the group of each job)
LEAST_SECONDS, LEAST_SHARE = 60.0, 0.05  # by which a user must wait longer to be one who pays


@dataclass(frozen=True, eq=False)
class WaitSums:
    """How long the jobs of each group waited in one simulation: sums over (units, groups)."""

    labels: Mapping[str, tuple[str, ...]]  # grouping → its groups
    jobs: Mapping[str, Array]  # grouping → (units, groups) jobs that have a wait
    seconds: Mapping[str, Array]  # grouping → (units, groups) s
    longest: float  # s
    most: float  # s, less than which 99 % waited
    busy: Mapping[str, Array]  # grouping → (groups,) devices in use on average, from the first submit to the last


def wait_sums(result: Result, metric: str, groups: Groups, unit: Array, counted: Array | None) -> WaitSums:
    """Sum the waits of a result by group and unit, (jobs,) int; `counted`, (jobs,) bool, leaves out the other jobs."""
    values = values_of(result, METRICS[metric])
    values = np.where(counted, values, np.nan) if counted is not None else values
    known = np.isfinite(values)
    labels, jobs, seconds, busy = {}, {}, {}, {}
    used = _in_use(result, known)
    for name, (names, code) in groups.items():
        units = 1 if name == USER else int(unit.max(initial=0)) + 1  # users have no intervals: there may be thousands
        at = (0 if name == USER else unit[known]) * len(names) + code[known]
        shape = (units, len(names))
        labels[name] = names
        jobs[name] = np.bincount(at, minlength=math.prod(shape)).reshape(shape)
        seconds[name] = np.bincount(at, weights=values[known], minlength=math.prod(shape)).reshape(shape)
        busy[name] = np.bincount(code[known], weights=used[known], minlength=len(names))
    most = float(np.percentile(values[known], 99)) if known.any() else 0.0
    return WaitSums(labels, jobs, seconds, float(values[known].max(initial=0.0)), most, busy)


def _in_use(result: Result, known: Array) -> Array:
    """(jobs,) devices that each job held on average while jobs were submitted; of those with a wait, from first start to end."""
    submit = result.workload.jobs.submit[known]
    first, last = (float(submit.min()), float(submit.max())) if len(submit) else (0.0, 0.0)
    with np.errstate(invalid="ignore"):
        held = np.minimum(result.table["end"], last) - np.maximum(result.table["start"], first)
    used: Array = np.where(held > 0, held, 0.0) * result.workload.jobs.gpus / max(last - first, 1.0)
    return used


def groups_of(workload: Workload) -> Groups:
    """Grouping → (its groups, (jobs,) the group of each job): by length and size, and by partition and user where there are several."""
    jobs = workload.jobs
    found = {LENGTH: _binned(workload.runtime, LENGTHS), SIZE: _binned(jobs.gpus, SIZES)}
    for name, labels, code in ((PARTITION, jobs.partitions, jobs.partition), (USER, jobs.users, jobs.user)):
        if len(labels) > 1 and any(labels):
            found[name] = (tuple(label or "(none)" for label in labels), np.asarray(code, np.int64))
    return found


def _binned(values: Array, bins: Sequence[tuple[float, str]]) -> tuple[tuple[str, ...], Array]:
    edges = [edge for edge, _ in bins[1:]]
    return tuple(label for _, label in bins), np.searchsorted(edges, values, side="right")


def pieces_of(workload: Workload) -> Array:
    """(jobs,) the stretch of time that each job is in, all with equally many jobs."""
    place = np.empty(len(workload), np.int64)
    place[np.argsort(workload.jobs.submit, kind="stable")] = np.arange(len(workload)) * PIECES // max(len(workload), 1)
    return place


@dataclass(frozen=True, eq=False)
class Waits:
    """How long groups of jobs waited under each scheduler, over all units."""

    labels: Mapping[str, tuple[str, ...]]
    jobs: Mapping[str, Array]  # grouping → (units, groups)
    seconds: Mapping[str, Mapping[str, Array]]  # scheduler → grouping → (units, groups)
    longest: Mapping[str, float]  # scheduler → s, mean over seeds
    most: Mapping[str, float]  # scheduler → s, less than which 99 % waited, mean over seeds
    busy: Mapping[str, Mapping[str, Array]]  # scheduler → grouping → (groups,) devices in use on average
    by_time: bool  # units are stretches of time, not seeds

    @classmethod
    def joined(cls, schedulers: Sequence[str], rows: Sequence[Sequence[WaitSums]], *, by_time: bool) -> Waits:
        """Join the sums of simulations: `rows` by seed, in each the schedulers; groups of one label are one group."""
        labels: dict[str, tuple[str, ...]] = {}
        for row in rows:
            for name, found in row[0].labels.items():
                labels[name] = tuple(dict.fromkeys((*labels.get(name, ()), *found)))

        def stack(name: str, part: Callable[[Sequence[WaitSums]], tuple[WaitSums, Array]]) -> Array:
            stacked = [_aligned(sums.labels.get(name, ()), values, labels[name]) for sums, values in map(part, rows)]
            return np.sum(stacked, axis=0) if name == USER else np.concatenate(stacked)

        jobs = {name: stack(name, lambda row, n=name: (row[0], row[0].jobs.get(n, _NOTHING))) for name in labels}  # type: ignore[misc]
        seconds = {
            who: {name: stack(name, lambda row, n=name, k=k: (row[k], row[k].seconds.get(n, _NOTHING))) for name in labels}  # type: ignore[misc]
            for k, who in enumerate(schedulers)
        }
        longest = {who: float(np.mean([row[k].longest for row in rows])) for k, who in enumerate(schedulers)}
        most = {who: float(np.mean([row[k].most for row in rows])) for k, who in enumerate(schedulers)}

        def mean(k: int, name: str) -> Array:
            found = [_aligned(r[k].labels.get(name, ()), r[k].busy.get(name, _NOTHING[0])[None], labels[name]) for r in rows]
            return np.mean(found, axis=0)[0]  # type: ignore[no-any-return]

        busy = {who: {name: mean(k, name) for name in labels} for k, who in enumerate(schedulers)}
        return cls(labels, jobs, seconds, longest, most, busy, by_time)

    def changes(self, grouping: str, scheduler: str, base: str) -> list[Change]:
        """Compare two schedulers in each group that has jobs."""
        found = []
        for k, label in enumerate(self.labels.get(grouping, ())):
            jobs, mine, other = (each[:, k] for each in (self.jobs[grouping], *(self.seconds[who][grouping] for who in (scheduler, base))))
            if jobs.sum() > 0:
                means = (float(other.sum() / jobs.sum()), float(mine.sum() / jobs.sum()))
                found.append(Change(label, int(jobs.sum()), *means, self._share(mine - other, other, jobs)))
        return found

    def _share(self, parts: Array, wholes: Array, jobs: Array) -> Interval:
        if not wholes.sum() > 0:
            return Interval(math.nan, math.nan, math.nan, 0)
        if self.by_time:
            known = jobs > 0
            return block_ratio(np.where(known, parts, np.nan), np.where(known, wholes, np.nan), np.arange(len(parts), dtype=float))
        return ratio_of_sums(parts, wholes)


_NOTHING = np.zeros((1, 0))


def _aligned(labels: Sequence[str], values: Array, wanted: Sequence[str]) -> Array:
    """(units, wanted): the columns of these labels at their places; columns of one label are summed."""
    at = {label: k for k, label in enumerate(wanted)}
    made = np.zeros((len(values), len(wanted)))
    for k, label in enumerate(labels):
        made[:, at[label]] += values[:, k]
    return made


@dataclass(frozen=True)
class Change:
    """The mean wait of a group of jobs before and after, s; `share` is the change as a share of the former."""

    group: str
    jobs: int
    before: float
    after: float
    share: Interval

    @property
    def longer(self) -> bool:
        """Whether the group waits noticeably longer, in time and in proportion."""
        return self.after - self.before > max(LEAST_SECONDS, LEAST_SHARE * self.before)

    @property
    def shorter(self) -> bool:
        """Whether the group waits noticeably less."""
        return self.before - self.after > max(LEAST_SECONDS, LEAST_SHARE * self.before)

    @property
    def sure(self) -> bool:
        """Whether the interval of the change rests on enough and excludes none."""
        return self.share.n >= FEWEST and (self.share.low > 0 or self.share.high < 0)
