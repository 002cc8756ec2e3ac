"""Drift: at every instant the jobs are those of the family in the regime in force."""

from __future__ import annotations

from itertools import pairwise

import pytest

from gpuyard.errors import UsageError
from gpuyard.model.workload import Workload
from gpuyard.traces import apply, load_workload
from gpuyard.traces.generators.drift import COURSES, LEVELS

COURSE_NAMES = (*COURSES, "walk")


def rows(workload: Workload, begin: float, end: float) -> list[tuple[float, float, float, float]]:
    jobs = workload.jobs
    here = (jobs.submit >= begin) & (jobs.submit < end)
    return list(zip(jobs.submit[here], workload.runtime[here], jobs.deadline[here], jobs.gpus[here], strict=True))


@pytest.mark.parametrize("variant", ["plain", "gang"])
@pytest.mark.parametrize("course", COURSE_NAMES)
def test_the_jobs_of_a_phase_are_those_of_the_family_in_its_regime(course: str, variant: str) -> None:
    for seed in (0, 1):
        made = load_workload(f"drift:course={course},variant={variant}", seed)
        starts = [start for start, _ in made.phases]
        for (start, regime), end in zip(made.phases, [*starts[1:], 3600.0], strict=True):
            shape, intensity = regime.split()
            plain = load_workload(f"family:shape={shape},intensity={intensity},variant={variant}", seed)
            assert rows(made, start, end) == rows(plain, start, end)


def test_the_courses_have_the_phases_that_they_promise() -> None:
    phases = {course: load_workload(f"drift:course={course}", 3).phases for course in COURSES}
    assert phases["base-bursty-diurnal"] == ((0, "base medium"), (1200, "bursty medium"), (2400, "diurnal medium"))
    assert phases["diurnal-shifted-bursty"] == ((0, "diurnal medium"), (1200, "shifted_diurnal medium"), (2400, "bursty medium"))
    assert phases["medium-high-medium"] == ((0, "base medium"), (1200, "bursty high"), (1800, "base medium"))
    longer = load_workload("drift:course=medium-high-medium,horizon=2h", 3).phases
    assert [start for start, _ in longer] == [0, 2400, 3600]


def test_a_walk_takes_one_step_at_a_time_and_depends_on_the_seed() -> None:
    walks = [load_workload("drift:course=walk,horizon=3h,phase=10min", seed).phases for seed in range(30)]
    assert len(set(walks)) > 25
    seen = set()
    for walk in walks:
        assert [start for start, _ in walk] == [600.0 * k for k in range(18)]
        regimes = [name.split() for _, name in walk]
        for (shape, level), (next_shape, next_level) in pairwise(regimes):
            steps = (shape != next_shape) + abs(LEVELS.index(level) - LEVELS.index(next_level))
            assert steps == 1
        seen |= {name for _, name in walk}
    assert len(seen) == 12  # four shapes at three intensities
    assert walks[0] == load_workload("drift:course=walk,horizon=3h,phase=10min", 0).phases


def test_phases_stay_where_times_do_and_go_where_they_move() -> None:
    workload = load_workload("drift", 1)
    assert apply(workload, "burst:2", 1).phases == workload.phases
    assert apply(workload, "stretch:2").phases == ()
    assert apply(workload, "thin:0.5", 1).phases == workload.phases


@pytest.mark.parametrize(
    ("text", "says"),
    [("horizon=0", "horizon = 0"), ("phase=0", "phase = 0"), ("course=walk,phase=1e-6", "allowed are 1 to"), ("course=hill", "hill")],
)
def test_what_is_refused(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        load_workload(f"drift:{text}", 1)
    assert says in str(caught.value)
