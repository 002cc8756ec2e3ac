"""The facts about a workload, worked out by hand."""

from __future__ import annotations

import math

import numpy as np

from gpuyard.model.workload import Machine, Workload
from gpuyard.traces.summary import summarise


def test_every_fact() -> None:
    columns = {
        "submit": [0.0, 3600.0, 7200.0, 14400.0], "gpus": [1.0, 0.5, 0.0, 4.0], "cpus": [0.0, 0.0, 2.0, 0.0],
        "walltime": [100.0, 100.0, np.inf, 50.0], "deadline": [np.inf, 9000.0, np.inf, np.inf], "priority": [1.0, 0.0, 1.0, 1.0],
        "user": [2, 1, 2, 0],
    }  # fmt: skip
    workload = Workload.build(
        columns, [60.0, 120.0, 30.0, 0.0], name="w", users=("", "ann", "ben", "unused"), dropped={"no run time": 3},
        logged_start=[10.0, 3600.0, np.nan, 14500.0], notes=("time 0 is 2020-01-01T00:00:00",), machines=(Machine("a", 8),),
    )  # fmt: skip
    s = summarise(workload)
    assert (s.jobs, s.rows, s.dropped) == (4, 7, {"no run time": 3})
    assert (s.first, s.last, s.span) == ("2020-01-01 00:00:00", "2020-01-01 04:00:00", 14400.0)
    assert s.jobs_per_day == 24.0
    assert s.gpu_hours == (60 + 60) / 3600
    assert s.core_hours == 60 / 3600
    assert s.mean_gpus == 120 / 14400
    assert s.peak_gpus == 4.0
    assert s.sizes == {"0": 1, "0.5": 1, "1": 1, "4": 1}
    assert (s.shared_jobs, s.cpu_jobs) == (1, 1)
    assert (s.run.count, s.run.mean, s.run.p50, s.run.largest) == (4, 52.5, 45.0, 120.0)
    assert (s.wait.count, s.wait.mean, s.wait.p50) == (3, 110 / 3, 10.0)
    assert (s.estimate.count, s.estimate.p50) == (3, 1.0)  # 100/60, 100/120, 30/30
    assert (s.too_short, s.requested, s.deadlines) == (0.25, 3, 1)
    assert s.priorities == (0.0, 1.0)
    assert s.labels["users"] == ("ben", "ann")
    assert s.busiest_user == 0.5
    assert s.missing == ("requested times of 1 jobs", "logged starts of 1 jobs", "partitions", "GPU types", "memory")


def test_no_jobs_and_one_instant() -> None:
    one = Workload.build({"submit": [5.0]}, [0.0])
    s = summarise(one)
    assert (s.span, s.jobs, s.first) == (0.0, 1, "")
    assert math.isnan(s.jobs_per_day)
    assert math.isnan(s.peak_gpus)
    assert s.estimate.count == 0
    empty = summarise(one.head(0))
    assert (empty.jobs, empty.run.count) == (0, 0)
    assert "requested times" in empty.missing
