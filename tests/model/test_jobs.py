from __future__ import annotations

import dataclasses
from typing import Any

import numpy as np
import pytest

from gpuyard.errors import DataError
from gpuyard.model.jobs import COLUMNS, JOB, Jobs


def test_rows_are_sorted_by_submit_and_ties_keep_the_order_given() -> None:
    jobs, order = Jobs.build({"submit": [5.0, 1.0, 5.0, 0.0], "id": [10, 20, 30, 40]})
    assert jobs.id.tolist() == [40, 20, 10, 30]
    assert order.tolist() == [3, 1, 0, 2]
    assert jobs.index.tolist() == [0, 1, 2, 3]


def test_missing_columns_get_their_defaults() -> None:
    jobs, _ = Jobs.build({"submit": [0.0]})
    assert (jobs.gpus[0], jobs.chunk[0], jobs.id[0]) == (1.0, 1, 1)
    assert np.isinf(jobs.walltime[0])
    assert np.isinf(jobs.deadline[0])
    assert np.isnan(jobs.estimate[0])


@pytest.mark.parametrize("name", COLUMNS)
def test_columns_are_read_only_attributes(name: str) -> None:
    jobs, _ = Jobs.build({"submit": [0.0, 1.0]})
    column = getattr(jobs, name)
    assert column.dtype == JOB[name]
    with pytest.raises(ValueError, match="read-only"):
        column[0] = 1


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({}, "no column 'submit'"),
        ({"submit": [0.0], "colour": [1]}, "unknown column 'colour'"),
        ({"submit": [0.0, 1.0], "gpus": [1.0]}, "'gpus' has 1 values"),
        ({"submit": ["a"]}, "not numeric"),
        ({"submit": [0.0, -1.0]}, "row 2: submit = -1.0 is negative"),
        ({"submit": [np.nan]}, "submit = nan"),
        ({"submit": [np.inf]}, "submit = inf"),
        ({"submit": [1e13]}, "beyond"),
        ({"submit": [0.0], "gpus": [1.5]}, "neither a whole number"),
        ({"submit": [0.0], "gpus": [1e9]}, "more than 1,000,000"),
        ({"submit": [0.0], "gpus": [0.0]}, "no cpus or memory"),
        ({"submit": [0.0], "gpus": [4.0], "chunk": [3]}, "does not divide gpus"),
        ({"submit": [0.0], "chunk": [0]}, "below 1"),
        ({"submit": [0.0], "walltime": [-1.0]}, "walltime = -1.0 is negative"),
        ({"submit": [0.0], "estimate": [-1.0]}, "estimate = -1.0 is negative"),
        ({"submit": [0.0], "user": [1]}, "user = 1 has no label"),
        ({"submit": [0.0, 1.0, 2.0], "id": [7, 8, 7]}, "row 3: id = 7 occurs twice"),
    ],
)
def test_a_bad_value_is_refused_with_field_and_row(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(DataError, match=says) as caught:
        Jobs.build(columns, where="mine.csv")
    assert "mine.csv" in str(caught.value)


def test_equal_means_rows_and_labels() -> None:
    one, _ = Jobs.build({"submit": [0.0]}, users=("a",))
    assert one == Jobs.build({"submit": [0.0]}, users=("a",))[0]
    assert one != Jobs.build({"submit": [0.0]}, users=("b",))[0]
    assert one != one.replace(priority=[1.0])


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    jobs, _ = Jobs.build({"submit": [0.0]})
    with pytest.raises(AttributeError, match="runtime"):
        _ = jobs.runtime


@pytest.mark.parametrize(
    ("name", "value"),
    [("user", 2**32), ("chunk", 2**32 + 1), ("chunk", 1.5), ("user", 0.9), ("id", 2.0**63), ("job_class", np.inf), ("gpus", 1e-7)],
)
def test_what_a_column_cannot_hold_is_refused_with_field_and_row(name, value):
    with pytest.raises(DataError, match=rf"row 2: {name} = "):
        Jobs.build({"submit": [0.0, 1.0], name: [1, value] if name != "user" else [0, value]}, users=("a", "b"), classes=("", "x"))


def test_a_replaced_column_is_checked_like_a_new_one():
    jobs, _ = Jobs.build({"submit": [0.0, 1.0]})
    with pytest.raises(DataError, match="row 2: gpus = -5"):
        jobs.replace(gpus=[1.0, -5.0])


def test_a_table_replaced_in_another_way_has_its_own_columns() -> None:
    """`dataclasses.replace` used to take the columns of the old table along, which could send the engine round and round."""
    jobs, _ = Jobs.build({"submit": [0.0, 1.0, 2.0], "gpus": [1.0, 2.0, 4.0]})
    assert jobs.gpus.tolist() == [1.0, 2.0, 4.0]  # now they are kept
    other = jobs.table[:2].copy()
    other["gpus"] = 8.0
    changed = dataclasses.replace(jobs, table=other)
    assert changed.gpus.tolist() == [8.0, 8.0]
    assert len(changed) == 2
    assert jobs.gpus.tolist() == [1.0, 2.0, 4.0]
    with pytest.raises((TypeError, ValueError)):
        dataclasses.replace(jobs, _columns={"gpus": jobs.gpus})


@pytest.mark.parametrize("table", [np.zeros(3), np.zeros((2, 2), JOB), [1, 2]])
def test_a_table_of_another_shape_is_refused(table: Any) -> None:
    jobs, _ = Jobs.build({"submit": [0.0, 1.0, 2.0]})
    with pytest.raises(DataError, match=r"not one row of JOB per job.*jobs\.replace"):
        dataclasses.replace(jobs, table=table)
