"""Metrics by priority, user, partition and class."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gpuyard.errors import UnknownNameError
from gpuyard.metrics import GROUPINGS, METRICS, counts, measure, measure_by

NAN = math.nan
ROWS = [
    (0.0, 0.0, 100.0, 100.0, "done"),
    (0.0, 50.0, 150.0, 100.0, "done"),
    (10.0, 150.0, 160.0, 10.0, "done"),
    (20.0, NAN, NAN, 10.0, "rejected"),
    (60.0, NAN, NAN, 50.0, "waiting"),
]
COLUMNS = {"priority": [1, 2, 2, 1, 1], "user": [1, 0, 1, 0, 1], "partition": [0, 0, 1, 1, 1], "job_class": [0] * 5}
LABELS = {"users": ("ann", "bob"), "partitions": ("small", "large"), "classes": ("",)}


@pytest.fixture
def result(make):
    return make(ROWS, columns=COLUMNS, **LABELS, totals={"first_submit": 0.0, "last_end": 160.0, "busy/gpu": 1.0, "up/gpu": 2.0})


def test_by_priority(result):
    high, low = measure_by(result, ["wait", "wait.max", "makespan", "utilization"], by="priority")
    assert {**high, "utilization": None} == {
        "priority": "2", "jobs": 2, "done": 2, "killed": 0, "rejected": 0, "unfinished": 0,
        "wait": 95.0, "wait.max": 140.0, "makespan": 160.0, "utilization": None,
    }  # fmt: skip
    assert math.isnan(high["utilization"])
    assert (low["priority"], low["jobs"], low["done"], low["rejected"], low["unfinished"]) == ("1", 3, 1, 1, 1)
    assert low["wait"] == 50.0  # 0 and 160 − 60: the horizon is that of the whole run
    assert low["makespan"] == 100.0


def test_by_user_and_partition_have_labels(result):
    assert [row["user"] for row in measure_by(result, [], by="user")] == ["ann", "bob"]
    assert [row["partition"] for row in measure_by(result, ["bsld"], by="partition")] == ["small", "large"]


@pytest.mark.parametrize("by", list(GROUPINGS))
def test_groups_add_up_to_the_run(result, by):
    rows = measure_by(result, ["turnaround.sum", "throughput", "completed.sum"], by=by)
    for name, number in counts(result).items():
        assert sum(row[name] for row in rows) == number
    for name, value in measure(result, ["turnaround.sum", "throughput", "completed.sum"]).items():
        assert np.nansum([row[name] for row in rows]) == pytest.approx(value)


def test_one_group_of_all_jobs_has_the_values_of_the_run(result):
    """What is said of a group is computed as for the run, unless it is of the cluster."""
    names = [name for name, each in METRICS.items() if each.kind == "job" or each.grouped]
    (row,) = measure_by(result, names, by="job_class")
    assert {name: row[name] for name in names} == pytest.approx(measure(result, names), nan_ok=True)


def test_priorities_are_printed_as_numbers(make):
    rows = measure_by(make(ROWS[:3], columns={"priority": [0.0, -1.5, 10.0]}), [], by="priority")
    assert [row["priority"] for row in rows] == ["10", "0", "-1.5"]


def test_no_jobs_no_rows_and_an_unknown_grouping(make, result):
    assert measure_by(make([]), ["wait"], by="user") == []
    with pytest.raises(UnknownNameError, match="did you mean 'priority'"):
        measure_by(result, ["wait"], by="prioirty")
