from __future__ import annotations

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
