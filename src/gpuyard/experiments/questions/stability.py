"""Reruns the winner of a comparison and what is used today at other loads, sizes and estimates: does it stay ahead?"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate_many
from gpuyard.errors import GpuyardError
from gpuyard.experiments.judging.answering.names import amount, in_sentence, people_name
from gpuyard.experiments.judging.summary import MINIMUM
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.questions.sites import changed_site
from gpuyard.metrics import aggregate, resolve
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler
from gpuyard.traces import with_estimate

LOADS = (0.8, 0.9, 1.1, 1.2)
SIZES = (0.9, 1.1)
ESTIMATES = ("requested", "exact", "noisy:0.5")
MOST_JOBS = 20_000  # of a long log: its busiest stretch of that many
SAME = 0.02  # of today's value: a smaller difference is none
NAMED = 2


@dataclass(frozen=True)
class Tried:
    """The winner and today's scheduler in one setting."""

    setting: str
    best: float
    today: float
    lower_wins: bool

    @property
    def lead(self) -> float:
        """Return by what part of today's value the winner is better; below 0: worse."""
        return (self.today - self.best) / abs(self.today) * (1 if self.lower_wins else -1) if self.today else 0.0


@dataclass(frozen=True)
class Stability:
    """How the winner fares elsewhere."""

    best: str  # names for people
    today: str
    metric: str
    tried: tuple[Tried, ...]
    jobs: int
    all_jobs: int
    guessed: bool = False  # the log names neither nodes nor how many devices there are

    @property
    def reversed(self) -> list[Tried]:
        """The settings in which today's scheduler is the better one, the worst first."""
        return sorted((each for each in self.tried if each.lead < -SAME), key=lambda each: each.lead)

    @property
    def words(self) -> str:
        """Say whether the winner stays ahead, and where not."""
        ahead = sum(each.lead > SAME for each in self.tried)
        part = f", on the busiest {self.jobs:,} jobs" if self.jobs < self.all_jobs else ""
        what = f"{count(len(self.tried), 'setting')} tried ({self._settings()}{part})"
        name, today = in_sentence(self.best), in_sentence(self.today)
        size = f" {self._of_size()}" if self.guessed else ""
        if not ahead and not self.reversed:
            return f"Not stable: {name} is level with {today} in {'all ' if len(self.tried) > 1 else ''}{what}.{size}"
        if not self.reversed:
            others = len(self.tried) - ahead
            level = f", and is level in the other{f' {others}' if others > 1 else ''}" if others else ""
            return f"Is it stable: {name} stays ahead of {today} in {f'{ahead} of ' if level else 'all '}{what}{level}.{size}"
        lost = [f"{each.setting} ({self._value(each.best)} against {self._value(each.today)})" for each in self.reversed[:NAMED]]
        more = len(self.reversed) - len(lost)
        tail = f" and {more} more" if more else ""
        return f"Not stable: {name} is worse than {today} with {', '.join(lost)}{tail}; it stays ahead in {ahead} of {what}.{size}"

    def _settings(self) -> str:
        """Sum up what was tried: not every log and cluster allows every setting."""
        names = [each.setting for each in self.tried]
        loads = [name.removeprefix("load × ") for name in names if name.startswith("load × ")]
        sizes = [name.removesuffix(" devices") for name in names if name.endswith(" devices")]
        parts = [f"load × {loads[0]}{f' to {loads[-1]}' * (len(loads) > 1)}"] if loads else []
        parts += [f"{' and '.join(sizes)} devices"] if sizes else []
        parts += ["other estimates"] if any(name.endswith(" estimates") for name in names) else []
        return ", ".join(parts) or ", ".join(names)

    def _of_size(self) -> str:
        """Say how much hangs on the size, which is a guess."""
        told = [
            f"with {each.setting} it is {self._value(each.best)} against {self._value(each.today)}"
            for each in self.tried
            if each.setting.endswith("devices")
        ]
        return f"The size of the cluster is a guess: {', '.join(told)}." if told else ""

    def _value(self, value: float) -> str:
        return amount(self.metric, value)


def stability(
    workload: Workload, cluster: Cluster, best: AnyScheduler, today: AnyScheduler, metric: str, rules: Rules, counted: Array | None = None,
    *, guessed: bool = False,
) -> Stability | None:  # fmt: skip
    """Rerun both at other loads, sizes and sources of estimates; of a long log on its busiest stretch. None where nothing can be told."""
    rows = busiest(workload, MOST_JOBS) if len(workload) > MOST_JOBS else np.arange(len(workload))
    if counted is not None:
        rows = rows[counted[rows]]
    if len(rows) == 0:
        return None
    jobs = replace(workload.take(rows), logged_start=None)
    found, lower = [], MINIMUM[resolve(metric)[0].better] > 0
    for setting, (work, machine) in _settings(jobs, cluster):
        values = [_value(result, metric) for result in simulate_many(work, machine, [best, today], rules=rules)]
        if all(math.isfinite(value) for value in values):
            found.append(Tried(setting, values[0], values[1], lower))
    if not found:
        return None
    every = len(workload) if counted is None else int(counted.sum())
    return Stability(people_name(best), people_name(today), metric, tuple(found), len(jobs), every, guessed)


def _value(result: Result, metric: str) -> float:
    found, aggregation = resolve(metric)
    values = values_of(result, found)
    return aggregate(values, aggregation) if aggregation else float(values)


def _settings(workload: Workload, cluster: Cluster) -> list[tuple[str, tuple[Workload, Cluster]]]:
    """Make the other sites and estimates; one that cannot be made of this log is left out."""
    found: list[tuple[str, tuple[Workload, Cluster]]] = []
    for factor in LOADS:
        found.append((f"load × {factor:g}", changed_site(f"demand:{factor:g}", workload, cluster)))
    for factor in SIZES:
        with suppress(GpuyardError):  # such as one node less of one node
            site = changed_site(f"scale:{factor:g}", workload, cluster)
            found.append((_size_name(cluster, site[1], factor), site))
    known = np.isfinite(workload.jobs.walltime).mean() > 0.5
    for source in ESTIMATES:
        if source != workload.estimates and (known or source != "requested"):
            found.append((f"{source} estimates", (with_estimate(workload, source), cluster)))
    return found


def _size_name(cluster: Cluster, other: Cluster, factor: float) -> str:
    """`12 % fewer devices`: nodes are whole, so it may be more than was meant, of two nodes a half."""
    share = other.gpus / cluster.gpus if cluster.gpus else factor
    return f"{100 * abs(share - 1):.0f} % {'fewer' if share < 1 else 'more'} devices"


def busiest(workload: Workload, jobs: int) -> Array:
    """Return the rows of so many consecutive jobs that ask for most work per time."""
    work = np.concatenate([[0.0], np.cumsum(np.maximum(workload.jobs.gpus, 1e-3) * workload.runtime)])
    submit = workload.jobs.submit
    first = np.arange(0, len(workload) - jobs + 1, max(jobs // 10, 1))
    rate = (work[first + jobs] - work[first]) / np.maximum(submit[first + jobs - 1] - submit[first], 1.0)
    begin = int(first[np.argmax(rate)])
    return np.arange(begin, begin + jobs)
