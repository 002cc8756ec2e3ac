"""The engine against theory: queueing formulas, optimality of SRPT, promises of backfilling, no clairvoyance, no idling.

Everything here is worked out independently of the engine: in closed form, by exhaustive search, or on a plain counter of GPUs.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from itertools import product

import numpy as np
import pytest

from gpuyard import Cluster, Result, Scheduler, Simulation, Snapshot, Workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.model.decision import Action, Decision
from gpuyard.policies import BACKFILLS, ORDERINGS, PLACEMENTS, PREEMPTIONS
from gpuyard.testing.strategies import random_case
from support.hidden import decisions_until, otherwise
from support.schedulers import suit


def slots(text: str) -> Scheduler:
    """A scheduler of four slots, no meta-scheduler."""
    made = parse_scheduler(text)
    assert isinstance(made, Scheduler)
    return made


# ── queues ──

WARM_UP = 2_000  # jobs at the start of each run that are not counted: the queue begins empty


@dataclass(frozen=True)
class Queue:
    """Poisson arrivals, exponential service of mean 1 s, `servers` GPUs of which the share `load` is busy."""

    servers: int
    load: float

    def workload(self, jobs: int, seed: int) -> Workload:
        rng = np.random.default_rng([seed, self.servers])
        submit = np.cumsum(rng.standard_exponential(jobs) / (self.load * self.servers))
        return Workload.build({"submit": submit}, rng.standard_exponential(jobs))

    def mean_wait(self) -> float:
        """Erlang C: P(wait) / (servers · (1 − load)), in mean service times."""
        offered, blocked = self.load * self.servers, 1.0
        for k in range(1, self.servers + 1):
            blocked = offered * blocked / (k + offered * blocked)  # Erlang B, by recursion
        return blocked / (1 - self.load * (1 - blocked)) / (self.servers * (1 - self.load))

    def waits(self, workload: Workload) -> Array:
        result = simulate(workload, Cluster.uniform(1, self.servers), parse_scheduler("fcfs/first/none"))
        return np.asarray(result.table["start"] - workload.jobs.submit)


def lindley(workload: Workload, servers: int = 1) -> Array:
    """Waits in the same queue with one server that is `servers` times as fast (Lindley's recursion, unrolled)."""
    gap = np.diff(workload.jobs.submit, prepend=0.0)
    step = np.concatenate(([0.0], workload.runtime[:-1] / servers)) - gap
    step[0] = 0.0
    walk = np.cumsum(step)
    return np.asarray(walk - np.minimum.accumulate(walk))


def many_servers(workload: Workload, servers: int) -> Array:
    """Starts with FCFS on several servers: each job takes the one that is free first (Kiefer and Wolfowitz)."""
    free = [0.0] * servers
    starts = []
    for submit, runtime in zip(workload.jobs.submit.tolist(), workload.runtime.tolist(), strict=True):
        first = min(range(servers), key=free.__getitem__)
        starts.append(max(submit, free[first]))
        free[first] = starts[-1] + runtime
    return np.array(starts)


def controlled_mean(estimates: Array, controls: Array) -> tuple[float, float]:
    """The mean of `estimates` (runs,) given that every column of `controls` (runs, k) is 0 in expectation, and its standard error.

    Linear control variates: the intercept of the regression on the controls.
    """
    design = np.column_stack([np.ones(len(estimates)), controls])
    coefficients = np.linalg.lstsq(design, estimates, rcond=None)[0]
    rest = estimates - design @ coefficients
    variance = rest @ rest / (len(estimates) - design.shape[1])
    return float(coefficients[0]), float(np.sqrt(variance * np.linalg.inv(design.T @ design)[0, 0]))


def relative_error(queue: Queue, runs: int, jobs: int = 50_000) -> tuple[float, float]:
    """Of the simulated mean wait against theory, and its standard error; runs with seeds 0, 1, 2 …

    The control of M/M/c is the wait in a single c times faster server, worked out beside the engine, whose mean ρ/(c(1 − ρ)) is
    known: it takes away 70–95 % of the standard error. For M/M/1 that would be the result itself; there the sample's own mean service
    time and gap have to do.
    """
    estimates, controls = [], []
    for seed in range(runs):
        workload = queue.workload(jobs, seed)
        estimates.append(queue.waits(workload)[WARM_UP:].mean())
        if queue.servers == 1:
            gaps = np.diff(workload.jobs.submit, prepend=0.0) * queue.load
            controls.append([workload.runtime[WARM_UP:].mean() - 1.0, gaps[WARM_UP:].mean() - 1.0])
        else:
            fast = lindley(workload, queue.servers)[WARM_UP:].mean()
            controls.append([fast - queue.load / (queue.servers * (1 - queue.load))])
    mean, error = controlled_mean(np.array(estimates), np.array(controls))
    return mean / queue.mean_wait() - 1, error / queue.mean_wait()


QUICK = [(Queue(1, 0.5), 60), (Queue(2, 0.6), 30), (Queue(4, 0.7), 40)]
LONG = [(Queue(1, 0.7), 400), (Queue(8, 0.8), 200), (Queue(3, 0.9), 300)]


@pytest.mark.parametrize(("queue", "runs"), [*QUICK, *(pytest.param(*case, marks=pytest.mark.slow) for case in LONG)], ids=str)
def test_mean_waits_are_those_of_queueing_theory(queue: Queue, runs: int) -> None:
    difference, error = relative_error(queue, runs)
    assert error < 0.005, "too few runs to tell 1 %"
    assert abs(difference) < 0.01


def test_one_server_follows_lindley_and_many_servers_kiefer_wolfowitz() -> None:
    one = Queue(1, 0.9)
    workload = one.workload(100_000, seed=1)
    np.testing.assert_allclose(one.waits(workload), lindley(workload), atol=1e-6)
    several = Queue(5, 0.9)
    workload = several.workload(30_000, seed=1)
    np.testing.assert_array_equal(several.waits(workload), many_servers(workload, 5) - workload.jobs.submit)


# ── SRPT ──


def exact(submit: Array, gpus: Array, runtime: Array) -> Workload:
    """Jobs whose run times are known."""
    return Workload.build({"submit": submit, "gpus": gpus, "estimate": runtime}, runtime)


def total_flow(result: Result) -> float:
    return float((result.table["end"] - result.workload.jobs.submit).sum())


def least_total_flow(submit: tuple[int, ...], runtime: tuple[int, ...]) -> int:
    """Over all preemptive plans on one GPU that decide at whole seconds, idle ones included."""

    @cache
    def cost(now: int, left: tuple[int, ...]) -> int:
        """Job-seconds in the system from `now` on."""
        if not any(left):
            return 0
        present = [j for j in range(len(left)) if left[j] and submit[j] <= now]
        later = [s for s, rest in zip(submit, left, strict=True) if rest and s > now]
        futures = [cost(now + 1, left[:j] + (left[j] - 1,) + left[j + 1 :]) for j in present]
        if later:
            futures.append(cost(now + 1, left))  # leave the GPU idle
        return len(present) + min(futures)

    return cost(0, runtime)


def small_queues() -> Iterator[tuple[tuple[int, ...], tuple[int, ...]]]:
    """(submits, run times): all of up to 3 jobs on a small grid, then random ones of 4 and 5 jobs."""
    for n in (1, 2, 3):
        for submit in product(range(3), repeat=n):
            if list(submit) == sorted(submit):
                yield from ((submit, runtime) for runtime in product(range(1, 4), repeat=n))
    rng = np.random.default_rng(7)
    for _ in range(60):
        n = int(rng.integers(4, 6))
        yield tuple(sorted(rng.integers(0, 8, n).tolist())), tuple(rng.integers(1, 6, n).tolist())


def test_srpt_has_the_least_flow_of_all_plans_on_one_gpu() -> None:
    scheduler, cluster = slots("srpt/first/none/srpt"), Cluster.uniform(1, 1)
    for submit, runtime in small_queues():
        workload = exact(np.array(submit), np.ones(len(submit)), np.array(runtime, float))
        assert total_flow(simulate(workload, cluster, scheduler)) == least_total_flow(submit, runtime), (submit, runtime)


def test_no_registered_scheduler_has_less_flow_than_srpt_on_one_gpu() -> None:
    rng = np.random.default_rng(3)
    cluster = Cluster.uniform(1, 1)
    for _ in range(2):
        submit, runtime = np.cumsum(rng.exponential(1.1, 60)), rng.lognormal(-0.5, 1.0, 60)
        workload = exact(submit, np.ones(60), runtime)
        best = total_flow(simulate(workload, cluster, parse_scheduler("srpt/first/none/srpt")))
        for ordering, backfill, preemption in filter(lambda each: suit(*each), product(ORDERINGS, BACKFILLS, PREEMPTIONS)):
            other = simulate(workload, cluster, parse_scheduler(f"{ordering}/first/{backfill}/{preemption}"))
            assert best <= total_flow(other) * (1 + 1e-12), other.scheduler


# ── what backfilling promises ──


@dataclass(frozen=True)
class Pass:
    """One instant of decisions: what was seen, and what was decided."""

    snapshot: Snapshot
    decisions: list[Decision]

    @property
    def started(self) -> list[int]:
        """Indices of the jobs that were started."""
        return [decision.job for decision in self.decisions if decision.action is Action.START]

    def blocked(self, scheduler: Scheduler) -> int | None:
        """Index of the first waiting job in order that was not started."""
        jobs = self.snapshot.jobs
        keys = [scheduler.ordering.function(jobs, j, self.snapshot.now) for j in range(len(jobs))]
        queue = sorted(self.snapshot.waiting.tolist(), key=lambda j: (keys[j], jobs.index[j]))
        started = set(self.started)
        return next((int(jobs.index[j]) for j in queue if int(jobs.index[j]) not in started), None)


def passes(workload: Workload, cluster: Cluster, scheduler: Scheduler) -> tuple[list[Pass], Result]:
    """Every pass of a run, step by step, and its result, which is that of `simulate`."""
    simulation = Simulation(workload, cluster)
    seen = []
    while (snapshot := simulation.advance()) is not None:
        seen.append(Pass(snapshot, scheduler.decide(snapshot)))
        simulation.apply(seen[-1].decisions)
    result = simulation.result()
    assert result.table.tobytes() == simulate(workload, cluster, scheduler).table.tobytes()
    return seen, result


def random_jobs(rng: np.random.Generator, gpus: int, jobs: int = 40, *, wrong: bool = False) -> Workload:
    """A busy while on `gpus` GPUs; whole and broken seconds; with `wrong` estimates off by up to a factor of three."""
    runtime = rng.choice([rng.integers(1, 20, jobs).astype(float), rng.exponential(8.0, jobs) + 0.1])
    submit = np.sort(rng.choice([rng.integers(0, 60, jobs).astype(float), rng.random(jobs) * 60]))
    estimate = runtime * np.exp(rng.uniform(-1.1, 1.1, jobs)) if wrong else runtime
    size = np.where(rng.random(jobs) < 0.4, rng.integers(1, gpus + 1, jobs), 1).astype(float)
    return Workload.build({"submit": submit, "gpus": size, "estimate": estimate}, runtime)


def estimated_ends(snapshot: Snapshot, add: list[int]) -> list[tuple[float, float]]:
    """(believed end, GPUs) of the running jobs and of those started now, ascending; on one node, at speed 1."""
    now, jobs, live = snapshot.now, snapshot.jobs, snapshot.live
    ends = [(float(live["est_end"][j]), float(jobs.gpus[j])) for j in snapshot.running]
    ends += [(now + float(jobs.estimate[j]), float(jobs.gpus[j])) for j in range(len(jobs)) if int(jobs.index[j]) in add]
    return sorted((end if end > now else now + 1.0, gpus) for end, gpus in ends)


def reservation(snapshot: Snapshot, head: int, total: float, add: list[int]) -> float:
    """When enough GPUs for job `head` are believed to be free, with the jobs `add` started now."""
    ends = estimated_ends(snapshot, add)
    row = int(np.flatnonzero(snapshot.jobs.index == head)[0])
    free = total - sum(gpus for _, gpus in ends)
    for end, gpus in ends:
        free += gpus
        if free >= snapshot.jobs.gpus[row]:
            return end
    raise AssertionError(f"job {head} can never start")


def before_head(one: Pass, scheduler: Scheduler, head: int) -> list[int]:
    """Of the jobs started, those that are before the head in the order: they owe it nothing."""
    jobs, now = one.snapshot.jobs, one.snapshot.now
    row = {int(index): j for j, index in enumerate(jobs.index)}
    key = {index: (scheduler.ordering.function(jobs, j, now), index) for index, j in row.items()}
    return [index for index in one.started if key[index] < key[head]]


BY_JOB = [
    name for name in ORDERINGS if name not in ("srpt", "las", "dynamic", "multifactor", "tiresias")
]  # those read live columns, which `Jobs` lacks


@pytest.mark.parametrize("wrong", [False, True], ids=["exact estimates", "wrong estimates"])
@pytest.mark.parametrize("ordering", BY_JOB)
def test_easy_never_delays_the_heads_reservation_in_a_pass(ordering: str, wrong: bool) -> None:
    """What starts behind the blocked head leaves its reservation, as believed at that instant, where it was."""
    scheduler = slots(f"{ordering}/first/easy")
    rng = np.random.default_rng([11, wrong])
    backfilled = 0
    for _ in range(6):
        gpus = int(rng.integers(2, 12))
        for one in passes(random_jobs(rng, gpus, wrong=wrong), Cluster.uniform(1, gpus), scheduler)[0]:
            head = one.blocked(scheduler)
            if head is None:
                continue
            ahead = before_head(one, scheduler, head)
            backfilled += len(one.started) - len(ahead)
            assert reservation(one.snapshot, head, gpus, one.started) <= reservation(one.snapshot, head, gpus, ahead)
    assert backfilled > 0 or ordering == "smallest"  # behind the smallest job that does not fit none does


def test_easy_with_exact_estimates_starts_every_head_by_its_reservation() -> None:
    """In order of submission no newcomer passes a head, so that each reservation it ever had is kept."""
    scheduler = slots("fcfs/best/easy")
    rng = np.random.default_rng(12)
    promised = 0
    for _ in range(20):
        gpus = int(rng.integers(2, 12))
        seen, result = passes(random_jobs(rng, gpus), Cluster.uniform(1, gpus), scheduler)
        for one in seen:
            head = one.blocked(scheduler)
            if head is not None:
                promised += 1
                limit = reservation(one.snapshot, head, gpus, before_head(one, scheduler, head))
                assert result.table["start"][head] <= limit, (head, one.snapshot.now)
    assert promised > 100


class Plan:
    """Free GPUs over time, on a counter; for bookings in order."""

    def __init__(self, now: float, total: float, leaving: list[tuple[float, float]]) -> None:
        self.now = now
        self.claims = [(now, end, gpus) for end, gpus in leaving]
        self.total = total

    def book(self, gpus: float, duration: float) -> float:
        """The earliest time at which `gpus` are free for `duration`, taken."""
        times = sorted({self.now, *(t for claim in self.claims for t in claim[:2] if t > self.now)})
        start = next(t for t in times if self._least_free(t, t + duration) >= gpus)
        self.claims.append((start, start + duration, gpus))
        return start

    def _least_free(self, low: float, high: float) -> float:
        edges = [low, *(start for start, _, _ in self.claims if low < start < high)]
        return min(self.total - sum(gpus for start, end, gpus in self.claims if start <= edge < end) for edge in edges)


def test_conservative_with_exact_estimates_starts_no_job_after_its_first_reservation() -> None:
    scheduler = slots("fcfs/first/conservative")
    rng = np.random.default_rng(13)
    passed = 0
    for _ in range(12):
        gpus = int(rng.integers(2, 12))
        workload = random_jobs(rng, gpus)
        seen, result = passes(workload, Cluster.uniform(1, gpus), scheduler)
        first: dict[int, float] = {}
        for one in seen:
            snapshot = one.snapshot
            plan = Plan(snapshot.now, gpus, estimated_ends(snapshot, []))
            for j in snapshot.waiting:
                booked = plan.book(float(snapshot.jobs.gpus[j]), float(snapshot.jobs.estimate[j]))
                first.setdefault(int(snapshot.jobs.index[j]), booked)
        late = [j for j, limit in first.items() if result.table["start"][j] > limit + 1e-9]
        assert not late, (late, workload.jobs.table.tolist())
        passed += int((np.diff(result.table["start"]) < 0).sum())
    assert passed > 20  # jobs that did pass others


# ── no clairvoyance ──

SLOTS = [
    *(f"{name}/best/easy/none" for name in ORDERINGS),
    *(f"{name}/best/easy/srpt" for name in ORDERINGS),
    *(f"sjf/{name}/easy/none" for name in PLACEMENTS),
    *(f"sjf/fewest/{name}/none" for name in BACKFILLS),
    *(f"f1/first/{name}:depth=2/none" for name in BACKFILLS if name != "none"),
    *(f"fcfs/worst/{backfill}/{name}" for name in PREEMPTIONS for backfill in BACKFILLS if suit("fcfs", backfill, name)),
    *(f"saf/worst/easy/{name}" for name in PREEMPTIONS if not suit("fcfs", "easy", name)),
]


@pytest.mark.parametrize("name", SLOTS)
def test_decisions_do_not_depend_on_hidden_run_times(name: str) -> None:
    scheduler = slots(name)
    compared = 0
    for seed in range(25):
        case = random_case(10_000 + seed)
        rng = np.random.default_rng(seed)
        result = simulate(case.workload, case.cluster, scheduler, rules=case.rules, segments=True)
        instants = np.unique(result.segments["start"])
        for now in rng.choice(instants, min(3, len(instants)), replace=False) if len(instants) else []:
            changed = otherwise(case.workload, result, float(now), rng)
            other = simulate(changed, case.cluster, scheduler, rules=case.rules, segments=True)
            assert decisions_until(result, now).tobytes() == decisions_until(other, now).tobytes(), (seed, now)
            compared += int((changed.runtime != case.workload.runtime).any())
    assert compared > 20


# ── work is conserved ──


def busy_spells(segments: Array) -> list[tuple[float, float]]:
    """Maximal intervals in which something runs."""
    spells: list[tuple[float, float]] = []
    for segment in np.sort(segments, order=("start", "end")):
        start, end = float(segment["start"]), float(segment["end"])
        if spells and start <= spells[-1][1] + 1e-9:
            spells[-1] = (spells[-1][0], max(end, spells[-1][1]))
        else:
            spells.append((start, end))
    return spells


def busy_by_theory(workload: Workload) -> list[tuple[float, float]]:
    """The same for one GPU that is idle only when nobody is there, whatever the order."""
    spells: list[tuple[float, float]] = []
    for submit, runtime in zip(workload.jobs.submit.tolist(), workload.runtime.tolist(), strict=True):
        if spells and submit <= spells[-1][1] + 1e-9:
            spells[-1] = (spells[-1][0], spells[-1][1] + runtime)
        else:
            spells.append((submit, submit + runtime))
    return spells


def test_one_gpu_is_idle_only_when_nobody_waits_whatever_the_scheduler() -> None:
    rng = np.random.default_rng(21)
    runtime = rng.exponential(1.0, 50)
    workload = exact(np.cumsum(rng.exponential(1.3, 50)), np.ones(50), runtime)
    expected = np.array(busy_by_theory(workload))
    assert len(expected) > 3
    for ordering, backfill, preemption in filter(lambda each: suit(*each), product(ORDERINGS, BACKFILLS, PREEMPTIONS)):
        scheduler = slots(f"{ordering}/first/{backfill}/{preemption}")
        result = simulate(workload, Cluster.uniform(1, 1), scheduler, segments=True)
        np.testing.assert_allclose(np.array(busy_spells(result.segments)), expected, rtol=1e-9, err_msg=result.scheduler)
        assert math.isclose(result.table["gpu_seconds"].sum(), runtime.sum(), rel_tol=1e-9)


@pytest.mark.parametrize("ordering", list(ORDERINGS))
def test_after_a_pass_with_skip_no_waiting_job_fits(ordering: str) -> None:
    rng = np.random.default_rng(22)
    scheduler = slots(f"{ordering}/best/skip")
    for _ in range(4):
        gpus = int(rng.integers(2, 12))
        for one in passes(random_jobs(rng, gpus), Cluster.uniform(1, gpus), scheduler)[0]:
            jobs, started = one.snapshot.jobs, set(one.started)
            gone = np.array([int(index) in started for index in jobs.index])
            free = gpus - jobs.gpus[one.snapshot.live["running"] | gone].sum()
            assert (jobs.gpus[~one.snapshot.live["running"] & ~gone] > free).all()


@pytest.mark.parametrize("ordering", list(ORDERINGS))
def test_strict_order_leaves_gpus_idle_only_for_a_head_that_does_not_fit(ordering: str) -> None:
    rng = np.random.default_rng(23)
    scheduler = slots(f"{ordering}/best/none")
    for _ in range(4):
        gpus = int(rng.integers(2, 12))
        workload = random_jobs(rng, gpus)
        unit = exact(workload.jobs.submit, np.ones(len(workload)), workload.runtime)
        for one in passes(unit, Cluster.uniform(1, gpus), scheduler)[0]:
            there = len(one.snapshot.jobs)
            assert len(one.snapshot.running) + len(one.started) == min(gpus, there)
