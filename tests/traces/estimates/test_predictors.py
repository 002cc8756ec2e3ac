"""Predicted run times: by hand, never from what had not ended yet, and better than nothing where there is a pattern."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.model.workload import Workload
from gpuyard.traces import accuracy, with_estimate
from gpuyard.traces.estimates.predictors import FIRST_GUESS, History, known_end


def test_rolling_by_hand() -> None:
    """User a: jobs of 10, 20, 40 s that end at 10, 25, 140; its fourth comes at 30 (two ended), its fifth at 140 (all three had)."""
    work = Workload.build(
        {"submit": [0.0, 5.0, 100.0, 30.0, 140.0, 6.0], "user": [0, 0, 0, 0, 0, 1], "walltime": [99.0, 99.0, 99.0, 99.0, 12.0, np.inf]},
        [10.0, 20.0, 40.0, 7.0, 8.0, 3.0],
        users=("a", "b"),
    )
    # by submit: 0 a, 5 a, 6 b, 30 a, 100 a, 140 a; ends 10, 25, 9, 37, 140, 148
    estimate = with_estimate(work, "rolling").jobs.estimate
    nothing_yet, capped = 99.0, 12.0
    assert estimate.tolist() == [nothing_yet, nothing_yet, FIRST_GUESS, 15.0, (20.0 + 7.0) / 2, capped]
    assert with_estimate(work, "rolling:last=1").jobs.estimate[3:5].tolist() == [20.0, 7.0]


def test_without_a_history_or_a_limit_the_mean_of_all_so_far_is_taken() -> None:
    work = Workload.build({"submit": [0.0, 1.0, 50.0], "user": [0, 1, 2]}, [10.0, 20.0, 5.0], users=("a", "b", "c"))
    assert with_estimate(work, "rolling").jobs.estimate.tolist() == [FIRST_GUESS, FIRST_GUESS, 15.0]


def test_ends_are_those_of_the_log() -> None:
    work = Workload.build({"submit": [0.0, 1.0]}, [10.0, 20.0], logged_start=[5.0, np.nan])
    assert known_end(work).tolist() == [15.0, 21.0]


def test_history_against_a_plain_loop() -> None:
    rng = np.random.default_rng(3)
    n = 300
    group, submit = rng.integers(0, 7, n), np.sort(rng.integers(0, 1000, n)).astype(float)
    value = rng.uniform(0, 50, n)
    end = submit + rng.integers(0, 60, n)
    history = History.of(group, submit, end)
    for last in (1, 3, None):
        found = history.mean_of_last(value, last)
        for j in range(n):
            mine = sorted((end[i], i) for i in range(n) if group[i] == group[j] and end[i] <= submit[j])
            mine = mine[-last:] if last else mine
            assert len(mine) == (min(last, history.count[j]) if last else history.count[j])
            expected = np.mean([value[i] for _, i in mine]) if mine else np.nan
            assert found[j] == pytest.approx(expected, nan_ok=True)


def habits(n: int, seed: int) -> Workload:
    """Each user has two kinds of jobs, told apart by their GPUs, whose lengths vary little."""
    rng = np.random.default_rng(seed)
    user, gpus = rng.integers(0, 20, n), rng.choice([1, 8], n)
    habit = np.exp(rng.uniform(3, 9, (20, 9)))
    runtime = habit[user, gpus] * np.exp(rng.normal(0, 0.1, n))
    columns = {"submit": np.sort(rng.uniform(0, 3e6, n)), "user": user, "gpus": gpus, "walltime": np.full(n, 86400.0)}
    return Workload.build(columns, np.minimum(runtime, 86400.0), users=tuple(map(str, range(20))))


@pytest.mark.parametrize("source", ["rolling", "boosting:refits=4"])
def test_what_had_not_ended_does_not_count(source: str) -> None:
    """Other run times of everything that ends after some instant change no estimate of what is submitted until then."""
    pytest.importorskip("sklearn")
    work = habits(600, 1)
    until = float(work.jobs.submit[400])
    hidden = known_end(work) > until
    other = replace(work, runtime=np.where(hidden, work.runtime * 3 + 1000, work.runtime))
    before = work.jobs.submit <= until
    assert hidden.any()
    mine, theirs = (with_estimate(each, source).jobs.estimate for each in (work, other))
    assert mine[before].tobytes() == theirs[before].tobytes()
    assert mine[~before].tobytes() != theirs[~before].tobytes()


def test_boosting_learns_what_rolling_cannot() -> None:
    pytest.importorskip("sklearn")
    work = habits(3000, 2)
    late = slice(1000, None)

    def error(source: str) -> float:
        estimate = with_estimate(work, source).jobs.estimate
        return float(np.abs(np.log(estimate / work.runtime))[late].mean())

    assert error("boosting") < 0.5 * error("rolling") < 0.5 * error("requested")


def test_accuracy() -> None:
    work = Workload.build({"submit": [0.0, 1.0], "estimate": [20.0, 5.0]}, [10.0, 10.0])
    assert accuracy(work) == {"ratio": 1.25, "agreement": 0.5, "below": 0.5}


@pytest.mark.parametrize("source", ["rolling:0", "boosting:refits=0", "rolling:last=x"])
def test_wrong_parameters(source: str) -> None:
    with pytest.raises(UsageError):
        with_estimate(habits(10, 0), source)
