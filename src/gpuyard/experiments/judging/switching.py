"""Compare switches with the best scheduler that they could have used alone, workload by workload.

The best one is chosen in hindsight, by its mean over all Runs of the workload, so a small gain is hard to get. All comparisons of all
objectives are corrected together (Holm).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from gpuyard.experiments.design.spec import SwitchSet
from gpuyard.experiments.judging.statistics import FEWEST, Interval, holm
from gpuyard.experiments.judging.summary import MINIMUM, Pivot, Summary, against, best_of
from gpuyard.experiments.judging.text import metric_title, percent, readable
from gpuyard.experiments.running.results import Results
from gpuyard.metrics import resolve

ORACLE = "oracle"
SURE = 0.05  # p values below it, after correction


@dataclass(frozen=True)
class Gain:
    """A switch against the best fixed scheduler of its set, on one workload."""

    objective: str
    workload: str
    among: str  # name of the set
    switch: str  # or `oracle`: the best fixed scheduler of each run, in hindsight
    best: str  # fixed scheduler
    share: Interval  # of the best one's value; above 0: the switch is better
    p: float

    @property
    def clear(self) -> bool:
        """Whether the switch is better, by its interval and by the corrected test; never said of the oracle."""
        return self.switch != ORACLE and self.share.low > 0 and self.p < SURE


@dataclass(frozen=True)
class FixedGap:
    """How far a fixed scheduler is behind the best fixed one of a workload."""

    objective: str
    workload: str
    scheduler: str
    share: float  # 0: it is the best


def gains(results: Results) -> list[Gain]:
    """List every switch of every set on every workload and objective, with the oracle of each run first."""
    experiment = results.experiment
    found: list[Gain] = []
    for objective in experiment.axes.objectives:
        for workload in experiment.axes.workloads:
            pivot = Pivot(results, results.columns["workload"] == workload)
            for each in experiment.sets:
                if not each.workloads or workload in each.workloads:
                    found += _of_set(pivot, objective, workload, each)
    corrected = holm([each.p for each in found]) if found else ()
    return [replace(each, p=float(p)) for each, p in zip(found, corrected, strict=True)]


def _of_set(pivot: Pivot, objective: str, workload: str, among: SwitchSet) -> Iterator[Gain]:
    sign = MINIMUM[resolve(objective)[0].better]
    values = {name: pivot.values(objective, name) for name in (*among.fixed, *among.switches)}
    best = min(among.fixed, key=lambda name: sign * pivot.mean(objective, name).mean)
    contenders = {ORACLE: best_of(values, among.fixed, sign)[None]} | {name: values[name] for name in among.switches}
    for name, mine in contenders.items():
        found = against(pivot, mine, values[best], sign)
        p = math.nan if name == ORACLE else found.difference.p
        yield Gain(objective, workload, among.name, name, best, _upwards(found.share_interval, sign), p)


def _upwards(share: Interval, sign: float) -> Interval:
    """Turn a difference into a gain: above 0 is better."""
    return share if sign < 0 else replace(share, mean=-share.mean, low=-share.high, high=-share.low)


def fixed_gaps(results: Results) -> list[FixedGap]:
    """List the fixed schedulers of the largest set on every objective and workload."""
    every = [each for each in results.experiment.sets if not each.workloads]
    found = []
    for objective in results.experiment.axes.objectives if every else ():
        sign = MINIMUM[resolve(objective)[0].better]
        for workload in results.experiment.axes.workloads:
            pivot = Pivot(results, results.columns["workload"] == workload)
            means = {name: sign * pivot.mean(objective, name).mean for name in max(every, key=lambda each: len(each.fixed)).fixed}
            least = min(means.values())
            found += [FixedGap(objective, workload, name, (mean - least) / abs(least)) for name, mean in means.items()]
    return found


def switch_findings(summary: Summary) -> list[str]:
    """Say for each objective where a switch is better than the best fixed scheduler of its set."""
    found = gains(summary.results)
    return [
        _finding(objective, [each for each in found if each.objective == objective])
        for objective in summary.results.experiment.axes.objectives
    ]


def _finding(objective: str, found: Sequence[Gain]) -> str:
    title = metric_title(objective)
    title = title[:1].upper() + title[1:]
    if all(each.share.n < FEWEST for each in found):
        return f"{title}: too few values to tell whether switching pays."
    best: dict[tuple[str, str], Gain] = {}
    for each in (each for each in found if each.clear):
        place = each.workload, each.among
        best[place] = max(best.get(place, each), each, key=lambda gain: gain.share.mean)
    if not best:
        return f"{title}: on no workload is a switch clearly better than the best heuristic of its set."
    places = [
        f"on {workload} ({among}), where {readable(top.switch)} is {percent(top.share)} better than {readable(top.best)}"
        for (workload, among), top in best.items()
    ]
    return f"{title}: switching pays {'; '.join(places)}; nowhere else is a switch clearly better than the best heuristic of its set."
