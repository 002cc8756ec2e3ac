"""Proven bounds on metrics that no scheduler can beat on a workload and a cluster, not even a preemptive and clairvoyant one.

The jobs are relaxed as in `relaxation`: submit r_j, at least d_j seconds on g_j devices, and a partition in which all jobs together work at
no more than m, the sum of its devices' speeds. Work is a_j = g_j·d_j; a job that runs works at a rate of at most g_j. Let C_j be its end.

Each of these holds for every run in which all accepted jobs come to their end; of a sum over jobs the greatest is taken:

1. Alone: C_j ≥ r_j + d_j.
2. SRPT: Σ C_j is at least that of one machine of speed m which always works on the job with the least work left. What any run has done by
   each instant, one machine can have done too, with every job ending no later (work in the order of the C_j); and on one machine with
   preemption SRPT has the least Σ C_j (Schrage 1968). Exact for one GPU.
3. Mean busy times: let M_j be the mean of the instants at which job j is worked on. Its rate is at most g_j, so half of its work takes at
   least d_j / 2 more: C_j ≥ M_j + d_j / 2. And Σ w_j M_j = Σ (w_j / a_j) ∫ t·(rate of j at t) dt is least on one machine of speed m
   that always works on the job with the highest w_j / a_j: to exchange two pieces of work in another order makes it no less (Goemans 1997;
   for parallel machines Chou, Queyranne & Simchi-Levi 2006).
4. Both: for any λ_j in 0..1, value_j ≥ λ_j·(what 3 says of it) + (1 − λ_j)·(what 1 says of it), where the weights of 3 are λ_j·w_j. The sum
   is concave in λ; a few steps along its gradient raise it. Every λ gives a bound, so nothing hangs on how far they get.
5. Cpus and memory: a job that runs also holds c_j of the C cpus of its partition, so 2 and 3 hold with c_j in place of g_j and C in place
   of m; memory likewise.
6. Wide gangs: for 0 < ε ≤ 1/2 and x_j = g_j / devices let u_j = 1 where x_j > 1 − ε, 0 where x_j < ε, else x_j. Jobs that run at once have
   Σ u_j ≤ 1, since beside one with x_j > 1 − ε there is room only for those below ε (Fekete & Schepers 2001). So 2 and 3 also hold
   with u_j in place of g_j and m = 1; of cpus and memory likewise.

M. X. Goemans, SODA 1997. M. C. Chou, M. Queyranne, D. Simchi-Levi, Math. Program. 106 (2006). L. Schrage, Oper. Res. 16 (1968).
S. P. Fekete, J. Schepers, Math. Program. 91 (2001). What an unfinished job shows in a metric is the time until the horizon, which is no
value of a whole run: of runs with unfinished jobs nothing is said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.mix import are_shared
from gpuyard.engine.rows.sums import SHORT
from gpuyard.engine.site import has_site
from gpuyard.experiments.judging.relaxation import Relaxation, most_on_time, one_machine, relax
from gpuyard.metrics.base import resolve
from gpuyard.model.cluster import Cluster
from gpuyard.model.rules import Rules, terms_table
from gpuyard.model.workload import Workload

ALONE = "each job alone"
SRPT = "SRPT on one machine of speed m"
BUSY = "mean busy times (Goemans 1997)"
WORK = "work over capacity"
_WIDE = (0.5, 0.25)  # ε of 6.
_ROUNDS, _SHRINK = 12, 0.7  # steps along the gradient of 4., and the ratio of their lengths: within 1 % of what 200 steps reach
_SUBSETS = 3  # of jobs, tried with 2.; the rest is alone
_DELAY = 1e-6  # s by which a deadline may be missed in the bound: ends are rounded


@dataclass(frozen=True)
class Bound:
    """No scheduler gets below `value` (above it, where higher is better). `method`: what proves it."""

    value: float  # in the metric's unit
    method: str


@dataclass(frozen=True, eq=False)
class _Case:
    """The inputs of a bound."""

    workload: Workload
    cluster: Cluster
    rules: Rules
    stops: bool  # whether a job that runs may be stopped
    relaxed: Relaxation

    @property
    def wasteful(self) -> bool:
        """Whether a job that is stopped may hold devices longer than it needs."""
        jobs = self.workload.jobs
        terms = terms_table(jobs.term_texts, self.rules)
        return self.stops and bool((terms["interval"] > 0).any() or (terms["restart"] > 0).any() or (jobs.transfer > 0).any())


@dataclass(frozen=True, eq=False)
class _Terms:
    """A metric as the mean of max(floor_j, weight_j·(end − submit) + offset_j) over accepted jobs. `alike`: all weights are 1."""

    weight: Array
    offset: Array
    floor: Array  # what job j alone comes to
    alike: bool = False


def bound(metric: str, workload: Workload, cluster: Cluster, *, rules: Rules | None = None, stops: bool = True) -> Bound | None:
    """Return the bound on `metric` for `workload` on `cluster`; None where none is known for that metric.

    It holds where all accepted jobs come to their end; none is known where partitions share nodes or jobs, where jobs say when they may
    start, or under limits. `stops`: schedulers may preempt; without it `wait` and the utilisations are
    bounded more tightly (outages stop jobs too). Of metrics with one value per job it is of the mean. O(n log n).
    """
    return bounds([metric], workload, cluster, rules=rules, stops=stops)[metric]


def bounds(
    metrics: Iterable[str], workload: Workload, cluster: Cluster, *, rules: Rules | None = None, stops: bool = True
) -> dict[str, Bound | None]:
    """Return the bound on each metric, as `bound` does; the jobs are relaxed once."""
    rules = rules or Rules()
    proofs = {metric: _proof_of(metric) for metric in metrics}
    found: dict[str, Bound | None] = dict.fromkeys(proofs)
    if not any(proofs.values()) or are_shared(workload.jobs, cluster) or has_site(workload.jobs, cluster):
        return found
    relaxed = relax(workload, cluster, rules)
    if len(relaxed.rows) == 0:
        return found
    case = _Case(workload, cluster, rules, stops or bool(cluster.outages), relaxed)
    return found | {metric: prove(case) for metric, prove in proofs.items() if prove is not None}


def _proof_of(metric: str) -> _Proof | None:
    found, aggregation = resolve(metric)
    return _PROOFS.get(found.name) if aggregation in ("", "mean") else None


# ── sums over jobs ──


def _turnaround(case: _Case) -> Bound:
    """Every weight is 1."""
    least = case.relaxed.least
    return _mean(case.relaxed, _Terms(np.ones(len(least)), np.zeros(len(least)), least, alike=True), case.relaxed.speed)


def _waiting(case: _Case) -> Bound:
    """The time without devices only grows. Look at a job's first d_j seconds on devices, on whichever: they end at a C_j for which all of
    the above holds with the number of devices for m, and by then the job was without devices for C_j − r_j − d_j."""
    least = case.relaxed.least
    return _mean(case.relaxed, _Terms(np.ones(len(least)), -least, np.zeros(len(least)), alike=True), case.relaxed.devices)


def _wait(case: _Case) -> Bound:
    """Bound the wait until the first start. A job that may be stopped can start and be stopped at once: then no bound above 0 holds.
    Where no job is stopped, it is all the time without devices."""
    return Bound(0.0, "a job that may be stopped can start at once") if case.stops else _waiting(case)


def _slowdown(case: _Case) -> Bound:
    """The weight is 1 / runtime on the reference GPU; a job of 0 s has (turnaround + 1) / 1."""
    alone = case.relaxed.alone
    zero = np.where(alone == 0, 1.0, 0.0)
    weight = 1.0 / (alone + zero)
    return _mean(case.relaxed, _Terms(weight, zero, weight * case.relaxed.least + zero), case.relaxed.speed)


def _bsld(case: _Case) -> Bound:
    """The weight is 1 / max(runtime, 10 s), and no job is below 1."""
    weight = 1.0 / np.maximum(case.relaxed.alone, SHORT)
    floor = np.maximum(weight * case.relaxed.least, 1.0)
    return _mean(case.relaxed, _Terms(weight, np.zeros(len(weight)), floor), case.relaxed.speed)


def _mean(relaxed: Relaxation, terms: _Terms, speed: Array) -> Bound:
    """Take the greatest of the bounds, partition by partition; jobs that take no device time count by themselves."""
    total, methods = float(terms.floor.sum()), set()
    for p, rows in relaxed.parts():
        mine = _Terms(terms.weight[rows], terms.offset[rows], terms.floor[rows], terms.alike)
        submit, least = relaxed.submit[rows], relaxed.least[rows]
        alone = float(mine.floor.sum())
        value, method = alone, ALONE
        for size, capacity in _sizes(relaxed, p, rows, float(speed[p])):
            value, method = max((value, method), *_sums(submit, least, size, capacity, mine))
        total += value - alone
        methods.add(method)
    return Bound(total / len(relaxed.rows), " and ".join(sorted(methods)) or ALONE)


def _sizes(relaxed: Relaxation, p: int, rows: Array, speed: float) -> Iterator[tuple[Array, float]]:
    """(jobs,) what each job takes while it runs, and how much of it there is; for every resource."""
    held = [(relaxed.gpus[rows], speed, float(relaxed.devices[p]))]
    held += [(need[rows], float(there[p]), float(there[p])) for need, there in relaxed.others]
    for size, capacity, most in held:
        if size.any() and np.isfinite(most):
            yield size, capacity
            yield from _wide(size / most)


def _wide(share: Array) -> Iterator[tuple[Array, float]]:
    """Bound 6 of the list above, for shares (jobs,) of a resource."""
    for epsilon in _WIDE:
        if (share > 1.0 - epsilon).any():
            yield np.where(share > 1.0 - epsilon, 1.0, np.where(share < epsilon, 0.0, share)), 1.0


def _sums(submit: Array, least: Array, size: Array, capacity: float, terms: _Terms) -> Iterator[tuple[float, str]]:
    takes = size > 0
    rest = float(terms.floor[~takes].sum())
    mine = _Terms(terms.weight[takes], terms.offset[takes], terms.floor[takes], terms.alike)
    submit, least, work = submit[takes], least[takes], (size * least)[takes]
    yield rest + _mean_busy_sum(submit, least, work, capacity, mine), BUSY
    if terms.alike:
        yield rest + _srpt_sum(submit, work, capacity, mine), SRPT


def _mean_busy_sum(submit: Array, least: Array, work: Array, capacity: float, terms: _Terms) -> float:
    """Bounds 3 and 4 of the list above."""
    share = np.ones(len(submit))
    best = -np.inf
    for step in range(_ROUNDS):
        _, busy = one_machine(submit, work, capacity, -share * terms.weight / work)
        gain = terms.weight * (busy + least / 2.0) + terms.offset - terms.floor
        best = max(best, float(terms.floor.sum() + share @ gain))
        share = np.clip(share + gain / (np.abs(gain) + terms.weight * least) * _SHRINK**step, 0.0, 1.0)
    return best


def _srpt_sum(submit: Array, work: Array, capacity: float, terms: _Terms) -> float:
    """Bound 2 of the list above, for all jobs and for those only that wait for others in it: what is left out cannot make a run worse."""
    best, chosen = -np.inf, np.arange(len(submit))
    for _ in range(_SUBSETS):
        end, _busy = one_machine(submit[chosen], work[chosen], capacity, None)
        gain = end + (terms.offset - terms.floor)[chosen]
        best = max(best, float(terms.floor.sum() + gain.sum()))
        chosen = chosen[gain > 0]
    return best


# ── the whole run ──


def _span(relaxed: Relaxation, first: float) -> tuple[float, str]:
    """Seconds from `first` to the last end. What is submitted from an instant on can only be worked on after it: C_max ≥ r + Σ work / m."""
    last, method = float((relaxed.submit + relaxed.least).max()), ALONE
    for p, rows in relaxed.parts():
        submit, least = relaxed.submit[rows], relaxed.least[rows]
        for size, capacity in _sizes(relaxed, p, rows, float(relaxed.speed[p])):
            still = np.cumsum((size * least)[::-1])[::-1]
            last, method = max((last, method), (float((submit + still / capacity).max()), WORK))
    return last - first, method


def _makespan(case: _Case) -> Bound:
    """Bound the time from the first submit, also of rejected jobs."""
    return Bound(*_span(case.relaxed, float(case.workload.jobs.submit[0])))


def _loaded_utilization(case: _Case) -> Bound | None:
    """Until the last submit T job j holds at most g_j·min(s on devices at most, T − r_j); and whatever was submitted, from any instant t on
    at most all devices are busy. So busy ≤ least over t of (what came before t holds) + devices·(T − t)."""
    relaxed, first = case.relaxed, float(case.workload.jobs.submit[0])
    last = float(relaxed.submit[-1])
    if case.cluster.gpus == 0 or not last > first:
        return _utilization(case)
    up = _up(case.cluster, first, last)
    if case.wasteful or up <= 0:
        return Bound(1.0, "all devices all the time")
    held = np.cumsum(relaxed.gpus * np.minimum(relaxed.most, last - relaxed.submit))
    before = np.concatenate([[0.0], held])
    instants = np.concatenate([relaxed.submit, [last]])
    busy = float((before + case.cluster.gpus * (last - instants)).min())
    return Bound(min(busy / up, 1.0), "jobs that came, and all devices")


def _up(cluster: Cluster, first: float, last: float) -> float:
    """Device-s in order from `first` to `last`, at least."""
    up = cluster.gpus * (last - first)
    for outage in cluster.outages:
        gpus = int(cluster.nodes.gpus[outage.node])
        lost = gpus if outage.gpus is None else min(outage.gpus, gpus)
        up -= lost * max(min(outage.end, last) - max(outage.start, first), 0.0)
    return up


def _utilization(case: _Case) -> Bound | None:
    """Jobs hold Σ g_j·(s on devices, at most) in all, in a time of at least the makespan's bound, from which outages are taken off.
    Who may stop jobs at a price can keep devices busy with nothing: then all of them may be."""
    if case.cluster.gpus == 0:
        return None
    first = float(case.workload.jobs.submit[0])
    span, method = _span(case.relaxed, first)
    up = _up(case.cluster, first, first + span)
    held = float(case.relaxed.gpus @ case.relaxed.most)
    if case.wasteful or held >= up:
        return Bound(1.0, "all devices all the time")
    return Bound(held / up, f"least makespan: {method}")


def _deadline_met(case: _Case) -> Bound | None:
    """Jobs that cannot be in time alone miss their deadlines, rejected ones too. Of the others, cut into batches by submit, no more are in
    time than if the jobs of a batch were all there when it begins and had one machine of speed m for themselves (Moore 1968)."""
    relaxed, deadline = case.relaxed, case.workload.jobs.deadline[case.relaxed.rows] + _DELAY
    count = int(np.isfinite(case.workload.jobs.deadline).sum())
    if count == 0:
        return None
    can = np.isfinite(deadline) & (relaxed.submit + relaxed.least <= deadline)
    met = int(can.sum())
    for p, rows in relaxed.parts():
        mine = rows[can[rows]]
        each = [
            _most_on_time(relaxed.submit[mine], deadline[mine], size * relaxed.least[mine], capacity)
            for size, capacity in _sizes(relaxed, p, mine, float(relaxed.speed[p]))
        ]
        met -= len(mine) - min(each, default=len(mine))
    return Bound(met / count, "Moore 1968 on one machine of speed m")


def _most_on_time(submit: Array, deadline: Array, work: Array, speed: float) -> int:
    """Take the least over batches of 2, 4, 8 … jobs, and over one batch of all jobs."""
    n, best, size = len(submit), len(submit), 2
    while n and size < 2 * n:
        batch = np.arange(n) // size
        order = np.lexsort((deadline, batch))
        begin = submit[(batch * size)[order]]
        best = min(best, most_on_time(batch[order], begin, deadline[order], work[order], speed))
        size *= 2
    return best


_Proof: TypeAlias = Callable[[_Case], Bound | None]
_PROOFS: Mapping[str, _Proof] = MappingProxyType({
    "turnaround": _turnaround, "wait": _wait, "waiting": _waiting, "slowdown": _slowdown, "bsld": _bsld, "makespan": _makespan,
    "utilization": _loaded_utilization, "utilization_drained": _utilization, "deadline_met": _deadline_met,
})  # fmt: skip
