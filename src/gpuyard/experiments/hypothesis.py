"""Simulates a log as if some of its jobs could be stopped. It takes two more simulations: 2 s for 200,000 jobs without a predictor."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.experiments.judging.hypothesis import RANKED, RULE, Terms, WhatIf
from gpuyard.experiments.judging.statistics import Interval, block_ratio
from gpuyard.metrics import METRICS
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import apply

MOST_JOBS = 250_000  # of a log that is simulated twice more without being asked


def what_if(workload: Workload, cluster: Cluster, rules: Rules, counted: Array, terms: Terms = Terms()) -> WhatIf | None:  # noqa: B008
    """Compare smallest area first with EASY with and without stops, over the jobs that are `counted`, (jobs,) bool.

    None where some job may be stopped already, where nothing waits, and of a log that is too long.
    """
    stated = workload.jobs.stated.get("preemptible", np.zeros(0))
    if (stated > 0).any() or not counted.any() or len(workload) > MOST_JOBS:
        return None
    ranked = f"{RANKED}:table={_table(workload)}"
    assumed = apply(workload, terms.change, 0)
    results = [simulate(work, cluster, parse_scheduler(text), rules=rules) for work, text in ((workload, RULE), (assumed, ranked))]
    before, after = (_delays(result, counted) for result in results)
    slow = [np.where(counted, values_of(result, METRICS["bsld"]), np.nan) for result in results]
    means = float(np.nanmean(before)), float(np.nanmean(after))
    if not means[0] > 0:
        return None
    submit, may_stop = workload.jobs.submit, assumed.jobs.stated["preemptible"] > 0

    def change(base: Array, ours: Array, who: Array = counted) -> Interval:
        base, ours = (np.where(who, each, np.nan) for each in (base, ours))
        return block_ratio(ours - base, base, submit)

    return WhatIf(
        terms, ranked, means, change(before, after), change(*slow), change(before, after, may_stop), change(before, after, ~may_stop),
        (float(np.nanmax(before)), float(np.nanmax(after))),
    )  # fmt: skip


def _delays(result: Result, counted: Array) -> Array:
    return np.where(counted, values_of(result, METRICS["delay"]), np.nan)


def _table(workload: Workload) -> str:
    """Choose the shipped table: the one for HPC goes by requested times, the one for GPU clusters by estimates."""
    return "hpc" if np.isfinite(workload.jobs.walltime).mean() > 0.5 else "gpu"
