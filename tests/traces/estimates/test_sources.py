"""Sources of estimates."""

from __future__ import annotations

import numpy as np
import pytest

from gpuyard.errors import UsageError
from gpuyard.model.workload import Workload
from gpuyard.traces import is_random, with_estimate


def three() -> Workload:
    return Workload.build({"submit": [0.0, 1.0, 2.0], "walltime": [10.0, np.inf, 30.0]}, [1.0, 2.0, 3.0])


def test_sources() -> None:
    assert with_estimate(three(), "exact").jobs.estimate.tolist() == [1.0, 2.0, 3.0]
    assert with_estimate(three(), "requested").jobs.estimate.tolist() == [10.0, 2.0, 30.0]
    noisy = with_estimate(three(), "noisy:0.5", seed=3)
    assert noisy.estimate_source == "noisy:0.5"
    assert noisy == with_estimate(three(), "noisy:0.5", seed=3)
    assert noisy != with_estimate(three(), "noisy:0.5", seed=4)
    assert noisy.jobs == with_estimate(three(), "noisy:spread=0.5", seed=3).jobs
    assert with_estimate(three(), "noisy:0").jobs.estimate.tolist() == [1.0, 2.0, 3.0]
    assert is_random("noisy:0.5")
    assert not is_random("exact")


def test_given_keeps_what_the_workload_says() -> None:
    work = with_estimate(with_estimate(three(), "exact"), "given")
    assert work.jobs.estimate.tolist() == [1.0, 2.0, 3.0]
    assert work.estimate_source == "exact"


@pytest.mark.parametrize(
    "source", ["", "oracle", "exact:1", "noisy:x", "noisy:-1", "noisy:nan", "noisy:spread=1,spread=2", "noisy:sprad=1"]
)
def test_unknown_sources_are_refused(source: str) -> None:
    with pytest.raises(UsageError):
        with_estimate(three(), source)
