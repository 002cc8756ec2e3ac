from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gpuyard.errors import DataError
from gpuyard.model.workload import Workload


def three() -> Workload:
    return Workload.build(
        {"submit": [2.0, 0.0, 1.0], "walltime": [30.0, np.inf, 10.0]},
        [3.0, 1.0, 2.0],
        logged_start=[5.0, np.nan, 6.0],
    )


def test_hidden_columns_are_sorted_with_the_jobs() -> None:
    work = three()
    assert work.runtime.tolist() == [1.0, 2.0, 3.0]
    assert work.logged_start is not None
    np.testing.assert_array_equal(work.logged_start, [np.nan, 6.0, 5.0])


def test_an_estimate_is_the_walltime_or_else_the_runtime() -> None:
    assert three().jobs.estimate.tolist() == [1.0, 10.0, 30.0]
    assert three().estimate_source == "requested"


def test_given_estimates_are_kept() -> None:
    work = Workload.build({"submit": [0.0], "estimate": [7.0]}, [1.0])
    assert work.jobs.estimate.tolist() == [7.0]
    assert work.estimate_source == "given"


def test_some_jobs_without_a_request_are_counted() -> None:
    assert three().estimates == "requested; exact for 1 of 3 jobs"
    assert three().all_notes == ("1 of 3 jobs have no requested time: their estimates are the run times",)


def test_without_any_request_the_estimates_are_exact() -> None:
    work = Workload.build({"submit": [0.0, 1.0]}, [5.0, 7.0], notes=("a note",))
    assert (work.estimate_source, work.estimates) == ("exact", "exact")
    assert work.all_notes == ("a note", "no requested times: estimates are the run times")


def test_with_all_requests_there_is_nothing_to_note() -> None:
    work = Workload.build({"submit": [0.0, 1.0], "walltime": [10.0, 10.0]}, [5.0, 7.0])
    assert (work.estimates, work.all_notes) == ("requested", ())


def test_a_part_of_the_jobs_is_judged_by_itself() -> None:
    assert three().take(np.array([1, 2])).estimates == "requested"
    assert three().head(1).estimates == "exact"


def test_gaps_in_given_estimates_are_filled_and_told() -> None:
    work = Workload.build(
        {"submit": [0.0, 1.0, 2.0], "estimate": [9.0, np.nan, np.nan], "walltime": [np.inf, 8.0, np.inf]}, [5.0, 6.0, 7.0]
    )
    assert work.jobs.estimate.tolist() == [9.0, 8.0, 7.0]
    assert work.estimates == "given; exact for 1 of 3 jobs"


def test_given_estimates_that_are_the_run_times_are_exact() -> None:
    assert Workload.build({"submit": [0.0], "estimate": [5.0]}, [5.0]).estimates == "exact"
    assert Workload.build({"submit": [0.0], "estimate": [5.0], "walltime": [5.0]}, [5.0]).estimates == "given"


@pytest.mark.parametrize("source", ["noisy:0.3", "rolling", "boosting", "requested with noise"])
def test_other_sources_stay_as_they_are_and_bring_no_note(source: str) -> None:
    work = replace(Workload.build({"submit": [0.0]}, [5.0]), estimate_source=source)
    assert (work.estimates, work.all_notes) == (source, ())


@pytest.mark.parametrize("runtime", [[1.0], [1.0, np.nan, 1.0], [1.0, -1.0, 1.0], [1.0, np.inf, 1.0]])
def test_a_bad_runtime_is_refused(runtime: list[float]) -> None:
    with pytest.raises(DataError, match="runtime"):
        Workload.build({"submit": [0.0, 1.0, 2.0]}, runtime)


def test_head_and_take_number_the_jobs_anew() -> None:
    part = three().take(np.array([0, 2]))
    assert part.jobs.index.tolist() == [0, 1]
    assert part.runtime.tolist() == [1.0, 3.0]
    assert len(three().head(2)) == 2
    assert three().head(99) == three()


def test_jobs_replaced_without_the_rest_are_refused() -> None:
    whole = Workload.build({"submit": [0.0, 1.0, 2.0]}, [5.0, 6.0, 7.0], logged_start=[0.0, 1.0, 2.0])
    with pytest.raises(DataError, match="runtime has 3 values for 2 jobs"):
        replace(whole, jobs=whole.jobs.with_table(whole.jobs.table[:2]))
    with pytest.raises(DataError, match="logged_start has 2 values for 3 jobs"):
        replace(whole, logged_start=np.zeros(2))
    with pytest.raises(DataError, match="not in the order of their submits"):
        replace(whole, jobs=whole.jobs.with_table(whole.jobs.table[::-1]))
