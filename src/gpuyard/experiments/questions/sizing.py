"""How large must the cluster be? The smallest that meets a target, by bisection over the number of nodes, and what the last node buys."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import DataError, UsageError
from gpuyard.experiments.judging.answering.names import duration, in_sentence, people_name
from gpuyard.experiments.judging.statistics import Interval, block_interval
from gpuyard.experiments.judging.text import count, short
from gpuyard.experiments.questions.service import Service, deadline_share, served
from gpuyard.experiments.questions.sites import added, chosen_nodes, is_pool
from gpuyard.experiments.questions.whatif import numbers_of
from gpuyard.experiments.usual import TODAY
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler, parse_scheduler

Goal = Literal["wait", "p95", "deadlines", "cost"]
LARGEST = 16  # × the present size: what is looked at at most
DRAWS = 400  # of whole blocks of time, for the interval of a percentile
BLOCKS = 16
MONTH = 30 * 86_400.0  # s


@dataclass(frozen=True)
class Target:
    """The target to be met: a mean wait or a 95th percentile of at most `value` s, deadlines met by that share, or money at most."""

    goal: Goal
    value: float

    @property
    def words(self) -> str:
        """Name the target in a sentence."""
        if self.goal == "deadlines":
            return f"{short(100 * self.value)} % of the deadlines met"
        if self.goal == "cost":
            return f"a cost of at most {money(self.value)} for the time of the log"
        what = "a mean wait" if self.goal == "wait" else "a 95th percentile of the wait"
        return f"{what} of at most {duration(self.value).replace('.0 ', ' ')}"

    def measured(self, service: Service) -> Interval:
        """Return what the target is about, with its interval by blocks of time where there is one."""
        if self.goal == "wait":
            return service.interval
        if self.goal == "p95":
            return _percentile(service.wait, service.workload.jobs.submit)
        if self.goal == "deadlines":
            return block_interval(service.in_time, service.workload.jobs.submit)
        return Interval(service.cost, math.nan, math.nan, 1)

    def met(self, service: Service) -> bool:
        """Whether the target is met by the mean, with no job rejected that fits the present cluster."""
        value = {"wait": service.mean, "p95": service.percentile(95), "deadlines": deadline_share(service), "cost": service.cost}[self.goal]
        return bool(value >= self.value if self.goal == "deadlines" else value <= self.value)

    def surely(self, service: Service) -> bool:
        """Whether the whole interval meets the target."""
        found = self.measured(service)
        return bool(found.low >= self.value if self.goal == "deadlines" else found.high <= self.value)

    def shown(self, value: float) -> str:
        """Write a value of what the target is about."""
        if math.isnan(value):
            return "not known"
        return f"{short(100 * value)} %" if self.goal == "deadlines" else money(value) if self.goal == "cost" else duration(value)


def money(value: float) -> str:
    """Write an amount of money: `2.5`, `259,200`."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def _percentile(wait: Array, submit: Array) -> Interval:
    """The 95th percentile of the wait, with an interval by drawing whole blocks of time again and again (seed 0)."""
    known = np.isfinite(wait)
    values = wait[known][np.argsort(submit[known], kind="stable")]
    if len(values) == 0:
        return Interval(math.nan, math.nan, math.nan, 0)
    blocks = np.array_split(values, BLOCKS)
    draws = np.random.default_rng(0)
    found = [np.percentile(np.concatenate([blocks[k] for k in draws.integers(0, BLOCKS, BLOCKS)]), 95) for _ in range(DRAWS)]
    low, high = np.percentile(found, [2.5, 97.5]) if len(values) >= 4 * BLOCKS else (math.nan, math.nan)
    return Interval(float(np.percentile(values, 95)), float(low), float(high), BLOCKS, of="block")


@dataclass(frozen=True, eq=False)
class Sized:
    """The smallest cluster that meets a target, and what was tried on the way."""

    target: Target
    scheduler: str
    name: str
    unit: str  # what is counted: nodes of a shape, or processors
    present: int  # how many there are now
    tried: dict[int, Service]  # number → what the jobs get
    smallest: int | None  # None: not even the largest that was tried meets it
    sure: int | None  # the smallest whose whole interval meets it
    priced: bool

    @property
    def cheapest(self) -> int:
        """The number that costs least of those on which no job is rejected that fits the present cluster."""
        most = self.tried[self.present].rejected
        return min((number for number, each in self.tried.items() if each.rejected <= most), key=lambda number: self.tried[number].cost)

    @property
    def shown(self) -> list[int]:
        """Choose the numbers that matter: now, what is found with its neighbours, and the one that is sure; else the largest."""
        near = (
            [self.smallest + step for step in (-1, 0, 1)]
            if self.smallest is not None
            else [self.cheapest if self.target.goal == "cost" else max(self.tried)]
        )
        return sorted({self.present, *near, *([self.sure] if self.sure is not None else [])} & set(self.tried))

    @property
    def sentences(self) -> list[str]:
        """Answer the question, say how sure that is, what the last one buys, and what it costs."""
        return _sentences(self)

    @property
    def record(self) -> dict[str, Any]:
        """The numbers as plain values; times in s."""
        rows = [{"count": number, **numbers_of(self.tried[number])} for number in sorted(self.tried)]
        return {
            "target": {"goal": self.target.goal, "value": self.target.value}, "scheduler": self.scheduler, "unit": self.unit,
            "present": self.present, "smallest": self.smallest, "surely": self.sure, "tried": rows, "answer": self.sentences,
        }  # fmt: skip


def size(
    workload: Workload, cluster: Cluster, target: Target, *, scheduler: AnyScheduler | str = TODAY, partition: str = "",
    rules: Rules | None = None, progress: Callable[[int], None] | None = None,
) -> Sized:  # fmt: skip
    """Find the smallest number of nodes (of a pool: processors) that meets the target; those of the usual shape are added or taken away.

    Bisection takes it that more nodes do not make waits longer; the neighbours of what is found are simulated too, and the sentences say
    where that does not hold.
    A cost is met by the largest cluster that costs no more.
    """
    _check(target, workload, cluster)
    chosen = parse_scheduler(scheduler) if isinstance(scheduler, str) else scheduler
    search = _Search(workload, cluster, target, chosen, partition, rules or Rules(), progress or (lambda _: None))
    smallest, sure = search.smallest(target.met), None
    if target.goal != "cost" and smallest is not None:
        sure = search.smallest(target.surely, low=smallest)
        for neighbour in (smallest - 1, smallest + 1):
            search.at(neighbour)
    return Sized(
        target, chosen.label, people_name(chosen), search.unit, search.present, search.found, smallest, sure,
        any(kind.price for kind in cluster.types),
    )  # fmt: skip


def _check(target: Target, workload: Workload, cluster: Cluster) -> None:
    if not target.value > 0:
        raise UsageError(f"size: a target of {target.value:g} is not positive")
    if target.goal == "deadlines":
        if target.value > 1:
            raise UsageError(f"size: {target.value:g} is not a share of the deadlines", hint="e.g. 95% or 0.95")
        if not np.isfinite(workload.jobs.deadline).any():
            raise DataError(f"{workload.name}: no job has a deadline", hint="give a wait: --wait 30m")
    if target.goal == "cost" and not any(kind.price for kind in cluster.types):
        raise DataError(f"{cluster.name}: no prices", hint="give `price` for each type in a cluster file: [types.a100] price = 2.5")
    if len(workload) == 0:
        raise DataError(f"{workload.name}: no jobs")


class _Search:
    """Simulates sizes, each once."""

    def __init__(
        self, workload: Workload, cluster: Cluster, target: Target, scheduler: AnyScheduler, partition: str, rules: Rules,
        progress: Callable[[int], None],
    ) -> None:  # fmt: skip
        chosen = chosen_nodes(cluster, partition)
        sizes = cluster.nodes.gpus[chosen]
        self.pool = is_pool(cluster, int(chosen[np.argmax(sizes)]))
        self._all = (workload, cluster, scheduler, partition, rules)
        self._target, self._progress = target, progress
        self.found: dict[int, Service] = {}
        self.present = int(sizes.max()) if self.pool else len(chosen)
        self.unit = "processors" if self.pool else "nodes"
        self.rejected = self.at(self.present).rejected  # type: ignore[union-attr]

    def at(self, number: int) -> Service | None:
        """Return what the jobs get with so many; None where there cannot be so many."""
        if number not in self.found:
            workload, cluster, scheduler, partition, rules = self._all
            try:
                made = added(cluster, number - self.present, partition) if number != self.present else cluster
            except UsageError:
                return None
            self.found[number] = served(workload, replace(made, name=f"{cluster.name} with {number:,} {self.unit}"), scheduler, rules)
            self._progress(len(self.found))
        return self.found[number]

    def _meets(self, number: int, test: Callable[[Service], bool]) -> bool:
        service = self.at(number)
        return service is not None and service.rejected <= self.rejected and test(service)

    def smallest(self, test: Callable[[Service], bool], low: int = 1) -> int | None:
        """Find the smallest number from `low` on that passes the test; of a cost the largest."""
        if self._target.goal == "cost":
            return self._largest(test)
        high = max(self.present, low)
        while not self._meets(high, test):
            if high >= LARGEST * self.present:
                return None
            low, high = high + 1, min(2 * high, LARGEST * self.present)
        while low < high:
            middle = (low + high) // 2
            if self._meets(middle, test):
                high = middle
            else:
                low = middle + 1
        return high

    def _largest(self, test: Callable[[Service], bool]) -> int | None:
        low, high = 0, self.present
        while self._meets(high, test) and high < LARGEST * self.present:
            low, high = high, min(2 * high, LARGEST * self.present)
        while high - low > 1:
            middle = (low + high) // 2
            service = self.at(middle)
            if service is None or test(service):
                low = middle
            else:
                high = middle
        return low if low and self._meets(low, test) else None


def _sentences(found: Sized) -> list[str]:
    target, unit = found.target, found.unit
    if found.smallest is None and target.goal == "cost":
        least, one = found.cheapest, unit.removesuffix("s")
        cost = money(found.tried[least].cost)
        return [f"Not met: the cheapest size that was tried and takes every job that fits now, {count(least, one)}, costs {cost}."]
    if found.smallest is None:
        most = max(found.tried)
        service = found.tried[most]
        reached = target.shown(target.measured(service).mean)
        return [f"Not met: {target.words} is not reached with up to {most:,} {unit} ({reached} there, {service.rejected:,} jobs rejected)."]
    here = found.tried[found.smallest]
    value = target.measured(here)
    ends = f" (95 % interval {target.shown(value.low)} to {target.shown(value.high)})" if math.isfinite(value.low) else ""
    wait = "" if target.goal == "wait" else f" and a mean wait of {duration(here.mean)}"
    verb = "The largest for" if target.goal == "cost" else "For"
    lines = [
        f"{verb} {target.words} with {in_sentence(found.name)}: {found.smallest:,} {unit}, where there are {found.present:,} now;"
        f" it gives {target.shown(value.mean)}{ends}{wait}, with {100 * here.busy:.0f} % in use."
    ]
    if found.sure is not None and found.sure != found.smallest:
        lines.append(f"To be sure of it by the interval: {found.sure:,} {unit}.")
    elif found.sure is None and target.goal != "cost":
        lines.append("No size that was tried meets it by the whole interval: a longer log would tell more.")
    return [*lines, *_last(found, here), *_money(found, here)]


def _last(found: Sized, here: Service) -> list[str]:
    """Say what the last node buys, and whether one less would do as well."""
    before = found.tried.get((found.smallest or 0) - 1)
    after = found.tried.get((found.smallest or 0) + 1)
    one = found.unit.removesuffix("s")
    lines = []
    if before is not None and math.isfinite(before.mean):
        lines.append(f"The last {one} buys {duration(before.mean - here.mean)} of the mean wait ({duration(before.mean)} without it).")
    if after is not None and math.isfinite(after.mean):
        worse = after.mean > here.mean
        told = "would not help: it comes to" if worse else "would bring it to"
        lines.append(f"One {one} more {told} {duration(after.mean)}.")
    return lines


def _money(found: Sized, here: Service) -> list[str]:
    if not found.priced or found.smallest is None:
        return []
    now = found.tried[found.present]
    return [
        f"It costs {money(_monthly(here))} a month by the prices given ({money(_monthly(now))} now),"
        f" {money(here.cost / max(len(here.workload), 1))} a job."
    ]


def _monthly(service: Service) -> float:
    """Money for all devices for 30 days, used or not."""
    nodes, types = service.cluster.nodes, service.cluster.types
    hourly = sum(types[int(kind)].price * int(gpus) for kind, gpus in zip(nodes.gpu_type, nodes.gpus, strict=True))
    return hourly * MONTH / 3600
