"""`gpuyard simulate --jobs-out`: the log of jobs as CSV or Parquet."""

from __future__ import annotations

import polars
import pytest

import gpuyard as gy


@pytest.mark.parametrize("name", ["jobs.csv", "jobs.parquet"])
def test_simulate_writes_the_log_of_jobs(cli, tmp_path, name):
    path = tmp_path / name
    code, out, err = cli("simulate", "demo:jobs=40", "--cluster", "4x8:a100", "--jobs-out", path)
    assert code == 0
    assert "bounded slowdown" in out
    assert f"40 jobs written to {path}" in err
    read = polars.read_csv(path) if name.endswith("csv") else polars.read_parquet(path)
    expected = gy.simulate("demo:jobs=40", "4x8:a100", "fcfs").jobs()
    assert read.columns == expected.columns
    assert read["status"].to_list() == expected["status"].to_list()
    assert read["start"].to_list() == expected["start"].to_list()
    assert read["wait"].to_list() == expected["wait"].to_list()


@pytest.mark.parametrize(("name", "says"), [("jobs.xls", "unknown kind of table"), ("no/jobs.csv", "no such folder")])
def test_a_file_that_cannot_be_written_is_refused_before_the_run(cli, tmp_path, name, says):
    code, out, err = cli("simulate", "demo:jobs=40", "--cluster", "4x8:a100", "--jobs-out", tmp_path / name)
    assert (code, out) == (2, "")
    assert says in err
