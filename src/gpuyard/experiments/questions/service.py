"""Measures what the jobs get on one site under one scheduler, and how that differs from what the same jobs get on another."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.experiments.judging.statistics import Interval, block_interval, block_ratio
from gpuyard.experiments.usual import WAIT, WAIT_WITH_STOPS, may_stop
from gpuyard.metrics import METRICS, aggregate
from gpuyard.metrics.base import values_of
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload
from gpuyard.policies import AnyScheduler


@dataclass(frozen=True, eq=False)
class Service:
    """How the jobs of a workload were served on a cluster."""

    workload: Workload
    cluster: Cluster
    wait: Array  # (jobs,) s; nan: rejected or never started
    in_time: Array  # (jobs,) 1 or 0; nan: no deadline
    busy: float  # share of the devices in use
    cost: float  # money, by the prices of the cluster's types; 0: no prices
    rejected: int  # jobs that never start: no node is large enough, or a limit is below what they ask for

    @property
    def mean(self) -> float:
        """The mean wait, s."""
        return float(np.nanmean(self.wait)) if np.isfinite(self.wait).any() else np.nan

    @property
    def longest(self) -> float:
        """The longest wait, s."""
        return float(np.nanmax(self.wait)) if np.isfinite(self.wait).any() else np.nan

    def percentile(self, share: float) -> float:
        """A percentile of the wait, s."""
        return float(np.nanpercentile(self.wait, share)) if np.isfinite(self.wait).any() else np.nan

    @property
    def interval(self) -> Interval:
        """The mean wait with its interval by blocks of time."""
        return block_interval(self.wait, self.workload.jobs.submit)

    def change_from(self, base: Service) -> tuple[Interval, int]:
        """Return the change of the wait as a share of the base's, over the jobs that both have served, and how many these are."""
        was, now, submit = self.paired(base)
        return block_ratio(now - was, was, submit), len(was)

    def paired(self, base: Service) -> tuple[Array, Array, Array]:
        """(n,) waits with the base, waits here, and submits, s, of the jobs that both have served.

        Jobs are paired by their ids: a change may take some away or add some.
        """
        ids = [each.workload.jobs.id for each in (base, self)]
        _, mine, other = np.intersect1d(ids[1], ids[0], return_indices=True)
        was, now = base.wait[other], self.wait[mine]
        both = np.isfinite(was) & np.isfinite(now)
        return was[both], now[both], base.workload.jobs.submit[other][both]


def served(workload: Workload, cluster: Cluster, scheduler: AnyScheduler, rules: Rules) -> Service:
    """Simulate, and keep what operators ask for. Where jobs may be stopped, work that is lost counts as waiting."""
    result = simulate(workload, cluster, scheduler, rules=rules)
    name = WAIT_WITH_STOPS if may_stop([workload]) else WAIT
    wait = values_of(result, METRICS[name])
    wait = np.where(np.isfinite(result.table["start"]), wait, np.nan)
    in_time, busy, cost = (values_of(result, METRICS[name]) for name in ("deadline_met", "utilization", "cost"))
    return Service(workload, cluster, wait, in_time, float(busy), float(cost), int((~np.isfinite(wait)).sum()))


def deadline_share(service: Service) -> float:
    """Return the share of the jobs with a deadline that met it; nan where there are none."""
    return float(aggregate(service.in_time, "mean"))
