"""Estimates made inside a simulation rest on what has ended there: by hand, against the reference, and never on what is hidden."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pytest

from gpuyard import simulate
from gpuyard.arrays import Array
from gpuyard.engine.simulation import Simulation
from gpuyard.model.cluster import Cluster
from gpuyard.model.decision import Decision
from gpuyard.model.estimator import FIRST_GUESS, EndedLog, Past, Rolling, bounded
from gpuyard.model.jobs import Jobs
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.workload import Workload
from gpuyard.networks.checkpoint import shipped_names
from gpuyard.policies import parse_scheduler
from gpuyard.testing.conformance import compare_with_reference
from gpuyard.testing.strategies import Case, random_case
from gpuyard.traces import with_estimate
from support.hidden import decisions_until, otherwise
from support.schedulers import random_scheduler

ONE = Cluster.uniform(1, 1, "gpu")


def rolling(workload: Workload, last: int = 2) -> Workload:
    return with_estimate(workload, f"rolling:{last}")


# ── by hand ──


def queue_of_one(hidden: float) -> Workload:
    """The second job cannot start before 1000 s: nobody can know how long it takes when the last two are submitted."""
    columns = {"submit": [0.0, 1.0, 100.0, 101.0], "walltime": [2000.0, 500.0, 500.0, 20.0], "user": [2, 0, 0, 1]}
    return Workload.build(columns, [1000.0, hidden, 15.0, 15.0], users=("a", "b", "c"))


def test_a_job_that_has_not_run_changes_no_order() -> None:
    """A shorter job of the same user, which still waits, once made the estimate of the next one short."""
    short, long = (simulate(rolling(queue_of_one(hidden)), ONE, parse_scheduler("sjf")) for hidden in (5.0, 60.0))
    assert np.argsort(short.table["start"]).tolist() == np.argsort(long.table["start"]).tolist() == [0, 3, 1, 2]
    assert short.workload.jobs.estimate.tolist() == long.workload.jobs.estimate.tolist() == [2000.0, 500.0, 500.0, 20.0]


def one_after_the_other() -> Workload:
    """User a on one GPU: runs of 10, 20, 40 s; a fourth job comes when two have ended, a fifth when all have."""
    columns = {
        "submit": [0.0, 0.0, 1.0, 31.0, 200.0, 200.0],
        "user": [0, 0, 0, 0, 0, 1],
        "walltime": [99.0, 99.0, 99.0, 99.0, 12.0, np.inf],
    }
    return Workload.build(columns, [10.0, 20.0, 40.0, 8.0, 8.0, 3.0], users=("a", "b"))


def test_the_mean_of_the_users_last_to_have_ended() -> None:
    made = simulate(rolling(one_after_the_other()), ONE, parse_scheduler("fcfs"))
    nothing_yet, capped, mean_of_all = 99.0, 12.0, (10.0 + 20.0 + 40.0 + 8.0) / 4
    assert made.workload.jobs.estimate.tolist() == [nothing_yet] * 3 + [15.0, capped, mean_of_all]
    assert made.workload.predictor is None  # they are made
    alone = simulate(rolling(one_after_the_other(), last=1), ONE, parse_scheduler("fcfs"))
    assert alone.workload.jobs.estimate[3] == 20.0


def test_schedulers_see_different_estimates() -> None:
    """Under `ljf` the long job goes first, and has ended when the fourth comes."""
    work = rolling(one_after_the_other())
    other = simulate(replace(work, jobs=work.jobs.replace(walltime=[30.0, 20.0, 99.0, 99.0, 12.0, np.inf])), ONE, parse_scheduler("ljf"))
    assert other.workload.jobs.estimate[3] != 15.0


def test_before_anything_has_ended() -> None:
    work = Workload.build({"submit": [0.0, 0.0], "user": [0, 1]}, [7.0, 8.0], users=("a", "b"))
    made = rolling(work)
    assert made.jobs.estimate.tolist() == [FIRST_GUESS] * 2  # not the run times, which the workload's own estimates are
    assert simulate(made, ONE, parse_scheduler("fcfs")).workload.jobs.estimate.tolist() == [FIRST_GUESS] * 2


def test_a_killed_job_shows_how_long_it_ran() -> None:
    columns = {"submit": [0.0, 100.0], "walltime": [30.0, 90.0], "transfer": [10.0, 0.0]}
    made = simulate(rolling(Workload.build(columns, [50.0, 5.0])), ONE, parse_scheduler("fcfs"), rules=Rules(walltime_kill=True))
    assert made.table["status"].tolist()[0] == 4
    assert made.workload.jobs.estimate.tolist() == [30.0, 20.0]  # 30 s on the device, 10 of them the transfer


def test_a_preempted_job_ends_once_and_with_all_its_work() -> None:
    """Job 0 is stopped by job 1 at 10 s, loses nothing, and ends at 45 s: 40 s of work, whoever held the device in between."""
    columns = {"submit": [0.0, 10.0, 60.0], "walltime": [100.0, 5.0, 100.0], "user": [0, 1, 0]}
    work = rolling(Workload.build(columns, [40.0, 5.0, 3.0], users=("a", "b")))
    made = simulate(work, ONE, parse_scheduler("srpt/fewest/none/srpt"))
    assert made.table["preemptions"].tolist() == [1, 0, 0]
    assert made.workload.jobs.estimate.tolist() == [100.0, 5.0, 40.0]


def test_an_estimate_is_in_seconds_on_a_reference_gpu() -> None:
    fast = replace(ONE, types=(replace(ONE.types[0], speed=2.0),))
    work = rolling(Workload.build({"submit": [0.0, 50.0], "walltime": [100.0, 100.0]}, [40.0, 5.0]))
    made = simulate(work, fast, parse_scheduler("fcfs"))
    assert made.table["end"][0] == 20.0
    assert made.workload.jobs.estimate[1] == 40.0


# ── history ──


def log_of_three() -> Past:
    log = Workload.build({"submit": [0.0, 0.0, 5.0], "user": [0, 1, 0]}, [10.0, 30.0, 6.0], users=("a", "b"))
    return EndedLog.of(log).before(20.0)  # ends 10, 30, 11


def test_what_had_ended_before_is_known() -> None:
    work = Workload.build({"submit": [0.0, 0.0, 0.0], "user": [0, 1, 2]}, [1.0, 1.0, 1.0], users=("b", "a", "c"))
    work = replace(rolling(work), predictor=Rolling(2).after(log_of_three()))
    made = simulate(work, ONE, parse_scheduler("fcfs"))
    assert made.workload.jobs.estimate.tolist() == [8.0, 8.0, 8.0]  # b: none had ended, so the mean of all; a: (10 + 6) / 2


# ── the interface ──


class Watches:
    """Takes down what it sees, and decides nothing but the head of the queue."""

    def __init__(self) -> None:
        self.seen: dict[int, float] = {}

    def decide(self, snapshot: Snapshot) -> Sequence[Decision]:
        self.seen |= dict(zip(snapshot.jobs.index.tolist(), snapshot.jobs.estimate.tolist(), strict=True))
        free = snapshot.free_gpus().sum()
        return [Decision(int(snapshot.jobs.index[row])) for row in snapshot.waiting[:1] if free >= snapshot.jobs.gpus[row]]


def test_deciders_see_the_estimates_of_their_own_simulation() -> None:
    watches = Watches()
    made = simulate(rolling(one_after_the_other()), ONE, watches)
    assert [watches.seen[j] for j in range(6)] == made.workload.jobs.estimate.tolist()
    assert made.workload.jobs.estimate[3] == 15.0


@pytest.mark.parametrize("last", [1, 2, 5])
def test_a_service_gets_the_same_from_the_estimator(last: int) -> None:
    """Told of each end and asked at each submission, it says what the engine says, bit for bit."""
    for seed in range(20):
        case = random_case(seed)
        work = replace(rolling(case.workload, last), predictor=Rolling(last).after(log_of_three()))
        made = simulate(work, case.cluster, parse_scheduler("sjf/fewest/easy"))
        jobs, end = work.jobs, made.table["end"]
        estimator, told, found = Rolling(last).after(log_of_three()).begin(jobs), np.zeros(len(jobs), bool), []
        for j, now in enumerate(jobs.submit.tolist()):
            news = np.flatnonzero((end <= now) & ~told)
            news = news[np.argsort(end[news], kind="stable")]
            told[news] = True
            estimator.observe(now, jobs.with_table(jobs.table[news]), end[news], work.runtime[news])
            found.append(float(estimator.estimate(now, jobs.with_table(jobs.table[j : j + 1]))[0]))
        zero = (made.table["end"] == made.table["start"]).any()  # such a run ends in a second instant of the same time
        assert zero or found == made.workload.jobs.estimate.tolist(), seed


@dataclass(frozen=True)
class Means:
    """Estimates everybody's next job by the mean of all, in stretches; says what it was told."""

    every: float
    past: Past | None = None

    def begin(self, jobs: Jobs) -> MeansEstimator:
        return MeansEstimator()

    def period(self, jobs: Jobs) -> float:
        return self.every

    def after(self, past: Past) -> Means:
        return replace(self, past=past)


class MeansEstimator:
    def __init__(self) -> None:
        self.known: list[tuple[float, float]] = []

    def observe(self, now: float, jobs: Jobs, end: Array, work: Array) -> None:
        assert (end < now).all()
        assert (np.diff(end) >= 0).all()
        self.known += zip(end.tolist(), work.tolist(), strict=True)

    def estimate(self, now: float, jobs: Jobs) -> Array:
        assert jobs.submit[0] == now
        total = np.cumsum([work for _, work in self.known])
        return bounded(jobs, np.full(len(jobs), total[-1] / len(total) if len(total) else np.nan), FIRST_GUESS)


@pytest.mark.parametrize("part", range(4))
def test_rolling_is_as_in_the_reference(part: int) -> None:
    differences, made = [], 0
    for seed in range(1000 * part, 1000 * part + 60):
        case = random_case(seed)
        past = log_of_three() if seed % 3 == 0 else None
        work = replace(rolling(case.workload), predictor=Rolling(1 + seed % 3, past))
        scheduler = random_scheduler(seed)
        differences += compare_with_reference(replace(case, workload=work), scheduler, simulate, seed=seed)[:2]
        made += int((simulate(work, case.cluster, scheduler, rules=case.rules).workload.jobs.estimate != work.jobs.estimate).any())
    assert differences == []
    assert made > 20


@pytest.mark.parametrize("every", [0.0, 20.0, 1e9])
def test_any_estimator_is_asked_as_in_the_reference(every: float) -> None:
    differences = []
    for seed in range(40):
        case = random_case(seed)
        work = replace(rolling(case.workload), predictor=Means(every))
        differences += compare_with_reference(replace(case, workload=work), random_scheduler(seed), simulate, seed=seed)[:2]
    assert differences == []


def test_an_estimator_outside_is_asked_between_decisions_from_outside() -> None:
    work = replace(rolling(one_after_the_other()), predictor=Means(0.0))
    watches = Watches()
    made = simulate(work, ONE, watches)
    assert made.workload.jobs.estimate.tolist() == [watches.seen[j] for j in range(6)]
    assert made.workload.jobs.estimate[4:].tolist() == [12.0, (10.0 + 20.0 + 40.0 + 8.0) / 4]


def test_a_simulation_leaves_the_workload_as_it_was() -> None:
    work = replace(rolling(one_after_the_other()), predictor=Means(0.0))
    before = work.jobs.table.tobytes()
    simulation = Simulation(work, ONE, parse_scheduler("fcfs").program())
    simulation.run()
    assert work.jobs.table.tobytes() == before
    assert simulation.result().workload.jobs.estimate[3] == 15.0


# ── nothing hidden ──


BUILT_IN = ["fcfs", "sjf/fewest/easy", "saf/best/skip", "wfp3/first/conservative", "srpt/fewest/none/srpt"]


@pytest.mark.parametrize("name", [*BUILT_IN, *(f"learned:{name}" for name in shipped_names())])
def test_rolling_reads_no_hidden_run_times(name: str) -> None:
    """Other run times of what has not ended at an instant change no decision until then."""
    compared = 0
    for seed in range(25):
        case = random_case(20_000 + seed)
        work = rolling(case.workload)
        compared += unmoved(replace(case, workload=work), name, seed)
    assert compared > 20


def unmoved(case: Case, name: str, seed: int) -> int:
    """Perturb what is hidden at three instants; returns how often something was hidden."""
    scheduler, rng = parse_scheduler(name), np.random.default_rng(seed)
    result = simulate(case.workload, case.cluster, scheduler, rules=case.rules, segments=True)
    instants, compared = np.unique(result.segments["start"]), 0
    for now in rng.choice(instants, min(3, len(instants)), replace=False) if len(instants) else []:
        changed = otherwise(case.workload, result, float(now), rng)
        other = simulate(changed, case.cluster, scheduler, rules=case.rules, segments=True)
        assert decisions_until(result, now).tobytes() == decisions_until(other, now).tobytes(), (seed, now)
        until = case.workload.jobs.submit <= now
        assert (result.workload.jobs.estimate[until] == other.workload.jobs.estimate[until]).all(), (seed, now)
        compared += int((changed.runtime != case.workload.runtime).any())
    return compared
