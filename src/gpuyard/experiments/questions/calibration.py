"""Fits what a log does not say about its site on the first half of the log, and lets the second half judge the fit.

Two things may be unknown: how large the cluster was, where that is only a guess, and when all of it stood still. The fit is the size, with
or without those outages, under which the simulated mean wait of the first half is nearest to the log's. It is taken only if it also brings
the second half clearly nearer: a smaller machine can stand for waits that have other reasons, and would then predict nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.simulation import simulate
from gpuyard.errors import GpuyardError
from gpuyard.experiments.judging.answering.names import amount
from gpuyard.experiments.judging.text import count
from gpuyard.experiments.questions.sites import scaled
from gpuyard.experiments.usual import TODAY
from gpuyard.model.cluster import Cluster, Outage
from gpuyard.model.units import format_seconds
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces.pools import UseOverTime

FACTORS = (0.6, 0.7, 0.8, 0.85, 0.9, 0.95, 1.0, 1.05, 1.1, 1.2, 1.35, 1.5)  # × the guessed size
STILL = 1800.0  # s for which nothing ran although jobs waited: an outage
BETTER = 0.1  # of the second half's error, by which it must fall for the fit to be taken
FEWEST_JOBS = 200  # with a start, in each half
MOST_OUTAGES = 100_000  # of single nodes

Pair = tuple[float, float]  # of the first half and of the second


@dataclass(frozen=True)
class SiteFit:
    """Tell what was fitted on the first half of a log, and how the second half judged it. Waits are means, s."""

    cluster: Cluster  # to simulate on: the fitted one if it was taken
    size: Pair  # devices, before and fitted
    outages: int  # whole machine, taken into the fit
    still: float  # s that these last in all
    log: Pair
    before: Pair
    after: Pair
    fitted: bool  # anything but the cluster as it was
    sized: bool  # the size could be fitted: it was a guess

    @property
    def gain(self) -> float:
        """Return the share by which the error of the second half falls; below 0 it grows."""
        was, now = (abs(each[1] - self.log[1]) for each in (self.before, self.after))
        return 1 - now / was if was > 0 else 0.0

    @property
    def taken(self) -> bool:
        """Whether the second half confirms the fit."""
        return self.fitted and self.gain >= BETTER

    @property
    def simulates_outages(self) -> bool:
        """Whether the cluster has outages that the log shows."""
        return self.taken and self.outages > 0

    @property
    def words(self) -> str:
        """Say what was fitted, and what the second half says about it."""
        wait = [amount("wait", value) for value in (self.log[0], self.before[0], self.after[0])]
        if not self.fitted:
            what = "other size and no outage" if self.sized else "outage"
            told = f"no {what} brings the simulated first half nearer to the log ({wait[1]}, log: {wait[0]})"
            return f"Calibrated: {told}, so the cluster stays as it is."
        parts = [f"{self.size[1]:,.0f} devices instead of {self.size[0]:,.0f}"] if self.size[0] != self.size[1] else []
        parts += [f"{count(self.outages, 'outage')} of {format_seconds(self.still)} in all"] if self.outages else []
        second = [amount("wait", value) for value in (self.log[1], self.before[1], self.after[1])]
        verdict = "taken" if self.taken else "not taken, the cluster stays as it was"
        return (
            f"Calibrated on the first half: {' and '.join(parts)} bring its mean wait from {wait[1]} to {wait[2]} (log: {wait[0]})."
            f" Judged on the second half: from {second[1]} to {second[2]} (log: {second[0]}), {_error(self.gain)}: {verdict}."
        )


def _error(gain: float) -> str:
    share = f"{100 * abs(gain):.0f}"
    return "the same error" if share == "0" else f"{share} % {'less' if gain > 0 else 'more'} error"


def calibrate(workload: Workload, cluster: Cluster, *, size_known: bool) -> SiteFit | None:
    """Fit the cluster of a log; None where too few starts are known. It takes up to 24 simulations of first come, first served + EASY."""
    submit, start = workload.jobs.submit, workload.known_start
    known = np.isfinite(start)
    if known.sum() < 2 * FEWEST_JOBS:
        return None
    first = submit < (submit[known][0] + submit[known][-1]) / 2
    halves = (known & first, known & ~first)
    if min(int(half.sum()) for half in halves) < FEWEST_JOBS:
        return None
    log = _means(start - submit, halves)
    before = _simulated(workload, cluster, halves)
    if not all(map(math.isfinite, before)):
        return None
    outages = stood_still(workload, cluster)
    best, waits, used = cluster, before, 0
    for other, spells in _others(cluster, outages, size_known=size_known):
        found = _simulated(workload, other, halves)
        if abs(found[0] - log[0]) < abs(waits[0] - log[0]):
            best, waits, used = other, found, len(spells)
    fitted = best is not cluster
    still = sum(end - begin for begin, end in outages) if used else 0.0
    made = SiteFit(best, (cluster.gpus, best.gpus), used, still, log, before, waits, fitted, not size_known)
    return made if made.taken else replace(made, cluster=cluster)


def _others(cluster: Cluster, outages: list[Pair], *, size_known: bool) -> Iterator[tuple[Cluster, list[Pair]]]:
    """Yield the clusters that are tried, those nearest to what is there first, with their outages."""
    for factor in sorted((1.0,) if size_known else FACTORS, key=lambda factor: abs(math.log(factor))):
        with suppress(GpuyardError):
            other = cluster if factor == 1 else scaled(cluster, factor)
            if factor != 1:
                yield other, []
            if outages and len(outages) * len(other.nodes) <= MOST_OUTAGES:
                down = tuple(Outage(node, begin, end) for begin, end in outages for node in range(len(other.nodes)))
                yield replace(other, outages=(*other.outages, *down)), outages


def stood_still(workload: Workload, cluster: Cluster) -> list[Pair]:
    """Return when, from and until s, nothing at all ran for half an hour or more although jobs waited, by the starts of the log."""
    submit, start = workload.jobs.submit, workload.known_start
    known = np.isfinite(start)
    use = UseOverTime.of(submit[known], start[known], (start + workload.runtime)[known], workload.jobs.gpus[known])
    if len(use.time) < 2:
        return []
    still = (use.level[:-1] < 0.5 * min(1.0, cluster.gpus)) & use.waiting[:-1]
    edges = np.flatnonzero(np.diff(np.concatenate([[0], still.astype(np.int8), [0]])))
    spells = zip(use.time[edges[::2]].tolist(), use.time[edges[1::2]].tolist(), strict=True)
    return [(begin, end) for begin, end in spells if end - begin >= STILL]


def _means(wait: Array, halves: tuple[Array, Array]) -> Pair:
    return float(np.mean(wait[halves[0]])), float(np.mean(wait[halves[1]]))


def _simulated(workload: Workload, cluster: Cluster, halves: tuple[Array, Array]) -> Pair:
    """Return the mean waits of both halves; infinite where a job of theirs never starts, as on a cluster that is too small."""
    wait = simulate(workload, cluster, parse_scheduler(TODAY)).table["start"] - workload.jobs.submit
    return _means(np.where(np.isfinite(wait), wait, np.inf), halves)
