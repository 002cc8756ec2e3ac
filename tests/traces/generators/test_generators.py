"""The other generators against the laws they state. Fixed seeds; bounds are 4 sigma or p < 0.001."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gpuyard.traces import load_workload
from gpuyard.traces.generators.lublin import LONGEST_RUN, MODELS, SLOTS, _daily_weights, _through_the_day

Array = np.ndarray[Any, Any]


def two_sample(a: Array, b: Array) -> float:
    """Kolmogorov-Smirnov distance of two samples, scaled; above 1.95 with probability 0.001."""
    grid = np.union1d(a, b)
    distance = np.abs(np.searchsorted(np.sort(a), grid, "right") / len(a) - np.searchsorted(np.sort(b), grid, "right") / len(b)).max()
    return float(distance * np.sqrt(len(a) * len(b) / (len(a) + len(b))))


@pytest.mark.parametrize("kind", list(MODELS))
def test_lublin_sizes(kind: str) -> None:
    n = 40_000
    size = load_workload("lublin", 2, jobs=n, nodes=256, kind=kind).jobs.gpus
    model = MODELS[kind]
    sigma = 0.5 / np.sqrt(n)
    assert size.min() == 1
    assert size.max() <= 256
    assert abs((size == 1).mean() - model.serial) < 4 * sigma
    powers = np.isin(size, 2.0 ** np.arange(9)).mean()
    assert powers > model.serial + model.power_of_two - 4 * sigma


@pytest.mark.parametrize("kind", list(MODELS))
def test_lublin_runtimes(kind: str) -> None:
    workload = load_workload("lublin", 3, jobs=40_000, nodes=128, kind=kind)
    size, log = workload.jobs.gpus, np.log(workload.runtime)
    assert log.max() <= LONGEST_RUN
    assert log.min() >= 0
    model = MODELS[kind]
    one = log[size == 1]
    share = model.slope + model.base
    mean = share * model.short[0] * model.short[1] + (1 - share) * model.long[0] * model.long[1]
    assert abs(one.mean() - mean) < 4 * one.std() / np.sqrt(len(one)) + 0.05  # what is cut off moves it a little
    assert log[size >= 32].mean() > one.mean()  # larger jobs run longer


def test_lublin_arrivals_have_the_models_gaps_and_daily_cycle() -> None:
    submit = load_workload("lublin", 5, jobs=40_000).jobs.submit
    weights = _daily_weights(MODELS["all"])
    assert weights.mean() == pytest.approx(1)
    day = SLOTS * 1800.0
    whole = np.floor(submit / day)
    clock = whole * day + np.interp(submit - whole * day, np.arange(SLOTS + 1) * 1800.0, np.concatenate(([0], np.cumsum(weights))) * 1800)
    np.testing.assert_allclose(_through_the_day(clock, weights), submit, rtol=1e-9)
    gap = np.log(np.diff(clock))
    shape, scale = MODELS["all"].gap
    assert abs(gap.mean() - shape * scale) < 4 * np.sqrt(shape * scale**2 / len(gap)) + 0.02
    hour = np.bincount((submit % day // 3600).astype(int), minlength=24)
    assert 9 <= int(hour.argmax()) <= 17
    assert hour.max() > 4 * hour[2:5].mean()


def test_lublin_load() -> None:
    for load in (0.5, 1.2):
        workload = load_workload("lublin", 6, jobs=5000, load=load)
        offered = float(workload.jobs.gpus @ workload.runtime) / 256 / workload.jobs.submit[-1]
        assert offered == pytest.approx(load, rel=0.02)  # a day's cycle is not a whole one at the end
    np.testing.assert_array_equal(load_workload("lublin", 6, load=0.5).runtime, load_workload("lublin", 6).runtime)


def test_lublin_resembles_a_trace_of_the_original_program(shared: Path) -> None:
    trace = load_workload(str(shared / "traces" / "swf" / "lublin_256.swf.gz"))
    made = load_workload("lublin:jobs=10000,nodes=256", 1)
    assert two_sample(trace.jobs.gpus, made.jobs.gpus) < 1.95
    assert two_sample(trace.runtime, np.floor(made.runtime)) < 1.95
    assert two_sample(np.diff(trace.jobs.submit), np.floor(np.diff(made.jobs.submit))) < 1.95


def test_tiny_machines() -> None:
    for nodes in (2, 3, 5):
        for kind in MODELS:
            size = load_workload("lublin", 1, jobs=200, nodes=nodes, kind=kind).jobs.gpus
            assert set(size) <= set(range(1, nodes + 1))


def test_gangs_follow_their_laws() -> None:
    n = 200_000
    workload = load_workload("gangs", 9, jobs=n)
    jobs, runtime = workload.jobs, workload.runtime
    gaps = np.diff(jobs.submit, prepend=0.0)
    assert abs(gaps.std() / gaps.mean() - 1) < 4 / np.sqrt(n) * 2
    expected = np.array([0.50, 0.14, 0.14, 0.14, 0.05, 0.02, 0.01])
    shares = np.array([(jobs.gpus == 2.0**k).mean() for k in range(7)])
    assert (np.abs(shares - expected) < 4 * np.sqrt(expected * (1 - expected) / n)).all()
    assert float(jobs.gpus @ runtime) / 8000 / jobs.submit[-1] == pytest.approx(0.9, rel=0.03)
    log = np.log(runtime / 600)
    assert abs(log.mean()) < 4 * 1.2 / np.sqrt(n)
    assert log.std() == pytest.approx(1.2, rel=0.01)
    assert (jobs.walltime >= runtime).all()
    assert 1.5 < np.median(jobs.walltime / runtime) < 3
    users = np.bincount(jobs.user)
    assert users[0] / users[1] == pytest.approx(2, rel=0.05)
    assert len(jobs.users) == 200
    assert set(jobs.chunk) == {1}


def test_gangs_fit_the_cluster() -> None:
    jobs = load_workload("gangs:jobs=1000,nodes=3,gpus_per_node=4,together=node").jobs
    assert jobs.gpus.max() == 8
    assert set(jobs.chunk) == {1, 2, 4}
    assert (jobs.gpus % jobs.chunk == 0).all()


def test_poisson_follows_its_laws() -> None:
    n = 50_000
    workload = load_workload("poisson", 3, jobs=n)
    jobs, runtime = workload.jobs, workload.runtime
    assert set(jobs.priority) == {0.5, 1, 2.5, 5}
    assert set(jobs.gpus) == set(range(1, 9))
    assert runtime.min() >= 60
    upper = runtime[runtime > 3000]  # the half above the mean is not cut
    assert abs((runtime > 5500).sum() / len(upper) - 0.3173) < 4 * np.sqrt(0.22 / len(upper))
    assert float(jobs.gpus @ runtime) / 64 / jobs.submit[-1] == pytest.approx(0.9, rel=0.03)


@pytest.mark.parametrize("seed", range(5))
def test_the_demo_is_a_busy_week(seed: int) -> None:
    workload = load_workload("demo", seed)
    jobs = workload.jobs
    assert len(workload) == 2000
    assert 4 < jobs.submit[-1] / 86400 < 5.1
    assert float(jobs.gpus @ workload.runtime) / (128 * 5 * 86400) == pytest.approx(0.9)
    assert (jobs.walltime >= workload.runtime).all()
    assert np.isfinite(jobs.deadline).all()
    assert (jobs.deadline > jobs.submit + workload.runtime).all()
    assert {1.0, 2.0, 4.0, 8.0, 16.0, 32.0} == set(jobs.gpus)
    np.testing.assert_array_equal(jobs.chunk, np.minimum(jobs.gpus, 8))
    assert len(set(jobs.user)) > 15
    hour = (jobs.submit % 86400) // 3600
    assert np.bincount(hour.astype(int), minlength=24).max() > 2000 / 24
