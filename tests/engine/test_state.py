"""The state's arrays have the dtypes that its annotations promise."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest

from gpuyard.arrays import RecordRow, columns_of, row_dtype
from gpuyard.compat.rlscheduler import rules
from gpuyard.engine import state as st
from gpuyard.engine.memory import DTYPES
from gpuyard.envs import kernels
from gpuyard.model import jobs, result, snapshot

NUMBERS: dict[str, Any] = {"Reals": "f", "Ints": "i", "Words": "u"}
ROWS = {kind.__name__: kind for module in (st, jobs, result, snapshot, kernels) for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, RecordRow)}  # fmt: skip


@pytest.mark.parametrize("field", st.State._fields)
def test_a_field_of_the_state_has_the_dtype_of_its_annotation(field: str) -> None:
    annotation = st.State.__annotations__[field]
    text = getattr(annotation, "__forward_arg__", annotation)
    dtype = np.dtype(DTYPES[field])
    if text in NUMBERS:
        assert dtype.kind == NUMBERS[text]
    else:
        row = re.fullmatch(r"Vector\[(\w+)\]", text)
        assert row
        assert {name: np.dtype(code) for name, code in columns_of(ROWS[row[1]]).items()} == {n: dtype[n] for n in dtype.names or ()}


def test_a_row_lists_the_columns_of_the_classes_it_is_made_of() -> None:
    assert set(columns_of(st.JobRow)) == set(st.JOB_ROW.names or ())
    assert set(columns_of(st.VisibleRow)) == set(st.VISIBLE_NAMES) == set(st.VISIBLE_ROW.names or ())
    assert set(columns_of(st.HiddenColumns)).isdisjoint(st.VISIBLE_NAMES)
    assert columns_of(st.CopiedColumns).items() <= columns_of(jobs.JobColumns).items()


def test_a_job_without_optional_columns_takes_332_bytes() -> None:
    """The table, the run time, the row, the result, and the place in the queue."""
    queue = sum(np.dtype(DTYPES[name]).itemsize for name in ("queue_keys", "queue_jobs"))
    assert DTYPES["table"].itemsize + 8 + st.JOB_ROW.itemsize + result.ROW.itemsize + queue == 332


def test_the_row_of_a_job_has_no_gaps_and_what_is_read_most_comes_first() -> None:
    assert st.JOB_ROW.itemsize == 144 == sum(st.JOB_ROW[name].itemsize for name in st.JOB_ROW.names or ())
    assert st.JOB_ROW.fields is not None
    assert all(st.JOB_ROW.fields[name][1] < 64 for name in ("submit", "gpus", "remaining", "deadline", "status", "partition", "number"))


def test_columns_are_laid_out_in_the_order_of_the_class() -> None:
    assert row_dtype(st.PartRow) == np.dtype(
        [("mask", "u8"), ("node", "i4"), ("next", "i4"), ("gpus", "i4"), ("gpu", "i4")], align=True
    )  # fmt: skip
    assert jobs.JOB.names == (*columns_of(jobs.JobColumns), "id")


def test_rows_of_the_compatibility_mode_are_64_bit_numbers() -> None:
    assert np.dtype([(name, "f8") for name in rules.ProcessorJob.__annotations__]) == rules._JOB
    assert {code.str[1:] for code, _ in (rules._CONTROL.fields or {}).values()} == {"f8", "i8"}
