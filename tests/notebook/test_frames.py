"""Frames of results: names instead of numbers, the same in polars and pandas, and as files."""

from __future__ import annotations

import csv
import sys

import numpy as np
import pytest

import gpuyard as gy
from gpuyard.errors import GpuyardError

polars, pandas = pytest.importorskip("polars"), pytest.importorskip("pandas")


@pytest.fixture(scope="module")
def result() -> gy.Result:
    workload = gy.Workload.from_frame(
        {
            "submit": [0, 1, 2], "runtime": [100, 50, 10], "gpus": [8, 4, 64], "user": ["ann", "=cmd()", "ben"], "partition": ["all"] * 3,
            "cpus": [1, 1, 1],
        }
    )  # fmt: skip
    return gy.simulate(workload, "1x8:a100", "fcfs")


def test_jobs_have_names_for_codes(result):
    frame = result.jobs()
    assert isinstance(frame, polars.DataFrame)
    assert frame["user"].to_list() == ["ann", "=cmd()", "ben"]
    assert frame["partition"].to_list() == ["all"] * 3
    assert frame["status"].to_list() == ["done", "done", "rejected"]
    assert frame["reason"].to_list() == ["", "", "more GPUs than its partition has"]
    assert frame["node"].to_list() == ["n0", "n0", ""]
    assert frame["nodes"].to_list()[:2] == [1, 1]
    assert frame["start"].to_list()[:2] == [0.0, 100.0]
    assert frame["wait"].to_list()[:2] == [0.0, 99.0]
    assert frame["turnaround"].to_list()[:2] == [100.0, 149.0]
    assert np.isnan(frame["start"][2])


def test_columns_that_say_nothing_are_left_out(result):
    columns = result.jobs().columns
    assert "cpus" in columns
    assert not {"memory", "deadline", "priority", "account"} & set(columns)


def test_pandas_has_the_same(result):
    frame = result.jobs("pandas")
    assert isinstance(frame, pandas.DataFrame)
    assert list(frame.columns) == result.jobs().columns
    assert frame["status"].tolist() == result.jobs()["status"].to_list()
    frame.loc[0, "wait"] = 5.0  # the caller's own copy
    assert result.jobs()["wait"][0] == 0.0


def test_the_summary_has_a_row_per_metric(result):
    frame = result.summary()
    assert dict(zip(frame["metric"], frame["value"], strict=True)) == gy.measure(result, frame["metric"].to_list())
    assert frame.row(0, named=True)["meaning"] == "time in the queue"
    assert result.summary(["wait.max"], kind="pandas")["value"].tolist() == [99.0]


def test_the_summary_by_group_has_a_row_per_group(result):
    frame = result.summary("wait", by="user")
    assert dict(zip(frame["user"], frame["wait"], strict=True))["=cmd()"] == 99.0
    assert frame["rejected"].sum() == 1


def test_both_spellings_are_accepted(result):
    assert result.summary("utilisation")["value"].item() == gy.measure(result, "utilization") == gy.measure(result, "utilisation")
    assert len(gy.measure_by(result, "utilisation", "user")) == 3
    found = gy.compare(["fcfs", "sjf"], result.workload, result.cluster, metrics="utilisation")
    assert found.table.line("fcfs").values["utilisation"].mean == gy.measure(result, "utilization")


def test_an_unknown_library_is_refused(result):
    with pytest.raises(GpuyardError, match=r"unknown kind of frame 'panda'.*did you mean 'pandas'"):
        result.jobs("panda")


@pytest.mark.parametrize(("absent", "other"), [("pandas", "polars"), ("polars", "pandas")])
def test_a_library_that_is_absent_is_named_and_the_other_does(result, monkeypatch, absent, other):
    monkeypatch.setitem(sys.modules, absent, None)
    with pytest.raises(GpuyardError, match=rf"{absent} is not installed.*pip install {absent}, or ask for '{other}'"):
        result.jobs(absent)
    assert len(result.jobs(other)) == 3
    assert gy.Workload.from_frame({"submit": [0], "runtime": [1], "user": ["ann"]}).jobs.users == ("ann",)


def test_a_spreadsheet_runs_nothing(result, tmp_path):
    from gpuyard.notebook.frames import write_jobs

    write_jobs(result, tmp_path / "jobs.csv")
    with (tmp_path / "jobs.csv").open() as stream:
        rows = list(csv.DictReader(stream))
    assert [row["user"] for row in rows] == ["ann", "'=cmd()", "ben"]
    assert rows[2]["start"] == ""
