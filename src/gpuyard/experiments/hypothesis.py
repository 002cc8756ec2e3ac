"""Simulate a log as if half of its jobs could be stopped, of which nothing says so, and put what comes out in words.

It takes two more simulations: 2 s for 200,000 jobs without a predictor.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.engine.site import takes_ranks
from gpuyard.experiments.judging.statistics import Interval, block_ratio
from gpuyard.experiments.judging.text import change_in_words
from gpuyard.experiments.judging.words import NO_WAIT
from gpuyard.metrics import METRICS
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.units import format_seconds
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import apply

MOST_JOBS = 250_000  # of a log that is simulated twice more without being asked
PLAIN, RANKED = "saf/fewest/easy", "saf/fewest/easy/gittins"
SHARE, CHECKPOINT, WRITING, RESTART = 0.5, 600.0, 0.02, 60.0  # supposed: of the jobs; s between checkpoints; of that time; s
SUPPOSED = f"preemptible:share={SHARE:g},checkpoint={CHECKPOINT:g},writing={WRITING:g},restart={RESTART:g}"
_WOULD = ("would fall", "would rise", "would stay as it is", "would not clearly change")


@dataclass(frozen=True)
class WhatIf:
    """Compare the same jobs with and without stops. Changes are shares of the value without; those of classes are of their mean wait."""

    scheduler: str  # that stops
    wait: tuple[float, float]  # s, mean without stops and with them
    change: Interval
    slowdown: Interval
    stoppable: Interval
    others: Interval
    longest: tuple[float, float]  # s, without stops and with them

    @property
    def words(self) -> str:
        """Say what would be gained, and what is supposed; of classes of jobs where their change is clear."""
        before, after = map(format_seconds, self.wait)
        classes = (("the jobs that could be stopped", self.stoppable), ("the others", self.others))
        parts = [
            f"the mean wait {change_in_words(self.change, _WOULD)}, from {before} to {after}",
            f"the mean bounded slowdown {change_in_words(self.slowdown, _WOULD)}",
            *(f"the mean wait of {who} {change_in_words(each, _WOULD)}" for who, each in classes if each.low > 0 or each.high < 0),
            f"the longest wait would go from {' to '.join(map(format_seconds, self.longest))}",
        ]
        supposed = (
            f"drawn at random; checkpoints every {format_seconds(CHECKPOINT)} that cost {100 * WRITING:g} % of the time;"
            f" {format_seconds(RESTART)} for a restart"
        )
        first = f"A supposition: if {100 * SHARE:g} % of the jobs could be stopped ({supposed})"
        return f"{first}, with {self.scheduler} instead of {PLAIN} {'; '.join(parts)}."


def what_if(workload: Workload, cluster: Cluster, rules: Rules, counted: Array) -> WhatIf | None:
    """Compare smallest area first with EASY with and without stops, over the jobs that are `counted`, (jobs,) bool.

    None where some job may be stopped already, where hardly any waits, where the site has what rank rules do not know, and of a log that is
    too long.
    """
    stated = workload.jobs.stated.get("preemptible", np.zeros(0))
    if (stated > 0).any() or not counted.any() or len(workload) > MOST_JOBS or not takes_ranks(workload.jobs, cluster):
        return None
    supposed = apply(workload, SUPPOSED, 0)
    results = [simulate(work, cluster, parse_scheduler(text), rules=rules) for work, text in ((workload, PLAIN), (supposed, RANKED))]
    (before, after), slow = (_values(results, name, counted) for name in ("delay", "bsld"))
    means = float(np.nanmean(before)), float(np.nanmean(after))
    if not means[0] > NO_WAIT:
        return None
    submit, may_stop = workload.jobs.submit, supposed.jobs.stated["preemptible"] > 0

    def change(base: Array, ours: Array, who: Array = counted) -> Interval:
        base, ours = (np.where(who, each, np.nan) for each in (base, ours))
        return block_ratio(ours - base, base, submit)

    return WhatIf(
        RANKED, means, change(before, after), change(*slow), change(before, after, may_stop), change(before, after, ~may_stop),
        (float(np.nanmax(before)), float(np.nanmax(after))),
    )  # fmt: skip


def _values(results: list[Result], metric: str, counted: Array) -> list[Array]:
    """Return for each result (jobs,) values of the jobs that count; the others have none."""
    return [np.where(counted, values_of(each, METRICS[metric]), np.nan) for each in results]
