"""Predictors inside simulations: never from what has not ended there, and better than nothing where there is a pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard import simulate
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.estimator import EndedLog, fitted_before
from gpuyard.model.result import Result
from gpuyard.model.workload import Workload
from gpuyard.policies import parse_scheduler
from gpuyard.traces import accuracy, with_estimate
from gpuyard.traces.estimates.boosting import FEWEST, HISTORY, Boosting, _described, _descriptions, _Memory
from support.hidden import decisions_until, otherwise


def habits(n: int, seed: int, span: float = 3e6) -> Workload:
    """Each user has two kinds of jobs, told apart by their GPUs, whose lengths vary little."""
    rng = np.random.default_rng(seed)
    user, gpus = rng.integers(0, 20, n), rng.choice([1, 8], n)
    habit = np.exp(rng.uniform(3, 9, (20, 9)))
    runtime = habit[user, gpus] * np.exp(rng.normal(0, 0.1, n))
    columns = {"submit": np.sort(rng.uniform(0, span, n)), "user": user, "gpus": gpus, "walltime": np.full(n, 86400.0)}
    return Workload.build(columns, np.minimum(runtime, 86400.0), users=tuple(map(str, range(20))))


def run(work: Workload, scheduler: str = "sjf/fewest/easy", *, segments: bool = False) -> Result:
    return simulate(work, Cluster.uniform(2, 8, "gpu"), parse_scheduler(scheduler), segments=segments)


@pytest.mark.parametrize("scheduler", ["sjf/fewest/easy", "fcfs"])
@pytest.mark.parametrize("source", ["rolling", "boosting:refits=4"])
def test_what_has_not_ended_in_the_simulation_does_not_count(source: str, scheduler: str) -> None:
    """Other run times of what has not ended at an instant change no estimate and no decision until then; later ones they do."""
    pytest.importorskip("sklearn")
    work = with_estimate(habits(600, 1, span=6e5), source)
    result = run(work, scheduler, segments=True)
    instants, rng = np.unique(result.segments["start"]), np.random.default_rng(1)
    for now in instants[[200, 350]]:
        changed = otherwise(work, result, float(now), rng)
        other = run(changed, scheduler, segments=True)
        assert decisions_until(result, now).tobytes() == decisions_until(other, now).tobytes()
        mine, theirs = result.workload.jobs.estimate, other.workload.jobs.estimate
        before = work.jobs.submit <= now
        assert mine[before].tobytes() == theirs[before].tobytes()
        assert mine[~before].tobytes() != theirs[~before].tobytes()


def test_boosting_learns_what_rolling_cannot() -> None:
    pytest.importorskip("sklearn")
    work = habits(3000, 2)

    def error(source: str) -> float:
        made = run(with_estimate(work, source)).workload
        return float(np.abs(np.log(made.jobs.estimate / work.runtime))[1000:].mean())

    assert error("boosting") < 0.5 * error("rolling") < 0.5 * error("requested")


def test_a_simulation_fits_at_most_so_many_models(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("sklearn")
    from gpuyard.traces.estimates import boosting

    fits: list[int] = []
    fit = boosting._model
    monkeypatch.setattr(boosting, "_model", lambda known, target: fits.append(len(target)) or fit(known, target))
    run(with_estimate(habits(2000, 3), "boosting:refits=4"))
    assert 3 <= len(fits) <= 4
    assert fits[0] >= FEWEST
    assert fits == sorted(fits)


def test_a_job_is_described_in_a_simulation_as_in_a_log() -> None:
    """Where the simulation's clock is the log's, and the description is made at the submission itself."""
    log = EndedLog.of(habits(300, 4))
    jobs, memory = log.jobs, _Memory()
    ended = 0
    for j in np.argsort(jobs.submit).tolist():
        while ended < len(log.end) and log.end[ended] <= jobs.submit[j]:
            memory.add((jobs.users[jobs.user[ended]], (jobs.gpus[ended], jobs.walltime[ended], jobs.cpus[ended])), float(log.work[ended]))
            ended += 1
        one = jobs.with_table(jobs.table[j : j + 1])
        assert _described(one, 0.0, one.user, memory).tobytes() == _descriptions(log)[j : j + 1].tobytes()


def test_a_users_past_is_what_had_ended_before() -> None:
    log = EndedLog.of(habits(300, 5))
    past = log.before(float(log.jobs.submit[150]))
    memory, replayed = _Memory(past), _Memory()
    for row in range(past.count):
        key = (log.jobs.users[log.jobs.user[row]], (log.jobs.gpus[row], log.jobs.walltime[row], log.jobs.cpus[row]))
        replayed.add(key, float(log.work[row]))
    for row in range(len(log.jobs)):
        key = (log.jobs.users[log.jobs.user[row]], (log.jobs.gpus[row], log.jobs.walltime[row], log.jobs.cpus[row]))
        assert memory.describe(key) == replayed.describe(key)
        assert len(memory.describe(key)) == HISTORY


def test_environments_take_a_model_that_was_fitted_before() -> None:
    pytest.importorskip("sklearn")
    whole = habits(1000, 6)
    window = with_estimate(whole.take(np.arange(800, 1000)), "boosting")
    past = EndedLog.of(whole).before(float(window.jobs.submit[0]))
    made = fitted_before(replace(window, predictor=Boosting().after(past)))
    assert made.predictor is None
    assert accuracy(made)["agreement"] > 0.8
    hidden = replace(window, runtime=window.runtime * 3, predictor=Boosting().after(past))
    assert fitted_before(hidden).jobs.estimate.tobytes() == made.jobs.estimate.tobytes()
    with pytest.raises(UsageError, match="no job had ended by then"):
        fitted_before(window)
    rolling = with_estimate(window, "rolling")
    assert fitted_before(rolling) is rolling


def test_accuracy() -> None:
    work = Workload.build({"submit": [0.0, 1.0], "estimate": [20.0, 5.0]}, [10.0, 10.0])
    assert accuracy(work) == {"ratio": 1.25, "agreement": 0.5, "below": 0.5}


@pytest.mark.parametrize("source", ["rolling:0", "rolling:101", "boosting:refits=0", "rolling:last=x"])
def test_wrong_parameters(source: str) -> None:
    with pytest.raises(UsageError):
        with_estimate(habits(10, 0), source)


def test_no_hidden_run_time_is_in_the_estimates_before_a_simulation() -> None:
    """A workload without limits has its run times as estimates; a predictor must not begin with them."""
    work = Workload.build({"submit": [0.0, 1.0]}, [123.0, 456.0])
    assert not np.isin(with_estimate(work, "rolling").jobs.estimate, work.runtime).any()
