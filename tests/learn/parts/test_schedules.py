"""Courses of numbers over training, at points where their values are known."""

import math

import pytest

from gpuyard.errors import UsageError
from gpuyard.learn.parts.schedules import COURSES, EarlyStopping, anneal, warmed_up

KNOWN = {
    "constant": {0.0: 1.0, 0.5: 1.0, 1.0: 1.0},
    "linear": {0.0: 1.0, 0.25: 0.75, 1.0: 0.0},
    "exponential": {0.0: 1.0, 0.5: 0.1, 1.0: 0.01},
    "cosine": {0.0: 1.0, 1 / 3: 0.75, 0.5: 0.5, 1.0: 0.0},
    "warm-up-cosine": {0.0: 0.0, 0.025: 0.5, 0.05: 1.0, 0.525: 0.5, 1.0: 0.0},
}


@pytest.mark.parametrize("name", list(COURSES))
def test_known_values(name: str) -> None:
    for progress, factor in KNOWN[name].items():
        assert COURSES[name](progress) == pytest.approx(factor, abs=1e-12)


def test_from_start_to_end_and_not_beyond() -> None:
    assert anneal("linear", 0.1, 0.02, 0.25) == pytest.approx(0.08)
    assert anneal("linear", 0.1, 0.02, 7.0) == anneal("linear", 0.1, 0.02, 1.0) == pytest.approx(0.02)
    assert anneal("cosine", 3.0, 1.0, -1.0) == pytest.approx(3.0)


def test_unknown_course_is_refused() -> None:
    with pytest.raises(UsageError, match="did you mean 'cosine'"):
        anneal("cosinus", 1.0, 0.0, 0.5)


def stops_after(scores: list[float], patience: int, threshold: float) -> int | None:
    stopping = EarlyStopping(patience, threshold)
    for number, score in enumerate(scores, 1):
        stopping = stopping.after(score)
        if stopping.stop:
            return number
    return None


def test_stops_when_patience_is_over() -> None:
    assert stops_after([1.0, 2.0, 2.0, 1.5, 9.0], patience=2, threshold=0.0) == 4
    assert stops_after([1.0, 2.0, 2.0, 2.5, 2.5, 2.5], patience=2, threshold=0.0) == 6
    assert stops_after([1.0, 1.05, 1.09, 2.0], patience=2, threshold=0.1) == 3
    assert stops_after([1.0, 1.06, 1.12, 1.0], patience=2, threshold=0.1) is None
    assert stops_after([1.0] * 50, patience=0, threshold=0.0) is None


def test_a_score_that_is_no_number_is_no_improvement() -> None:
    assert stops_after([1.0, math.nan, math.nan], patience=2, threshold=0.0) == 3


def test_a_warm_up_by_steps_rises_evenly_and_then_leaves_the_course_alone() -> None:
    assert [warmed_up(0.2, steps, 100) for steps in (0, 25, 100, 1000)] == pytest.approx([0.0, 0.05, 0.2, 0.2])
    assert warmed_up(0.2, 0, 0) == 0.2
