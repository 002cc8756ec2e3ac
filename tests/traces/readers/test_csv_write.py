"""What is written as a table reads back equal."""

from __future__ import annotations

import gzip
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import DataError
from gpuyard.model.jobs import LABELS
from gpuyard.model.workload import Workload
from gpuyard.traces import GENERATORS, apply, load_workload, with_estimate, write_csv

SMALL = {"lublin": "lublin:jobs=50", "gangs": "gangs:jobs=50", "poisson": "poisson:jobs=50"}
INF = float("inf")


def everything() -> Workload:
    columns = {
        "id": [7, -2, 40], "submit": [0.1, 3.0, 1e9 + 1 / 3], "gpus": [8.0, 0.25, 0.0], "walltime": [10.5, INF, 7.0],
        "estimate": [1.0, 2.0, 1 / 3], "deadline": [INF, 50.0, INF], "cpus": [0.0, 1.5, 4.0], "memory": [1.1, 0.0, 2.0],
        "transfer": [0.0, 0.5, 0.0], "priority": [-1.0, 2.5, 0.0], "chunk": [4, 1, 1], "user": [1, 0, 1], "partition": [0, 1, 1],
        "job_class": [1, 0, 0], "gpu_type": [1, 0, 0], "qos": [0, 1, 1], "account": [1, 0, 1],
    }  # fmt: skip
    return Workload.build(
        columns, [5.0, 0.0, 2 / 3], name="a.csv", users=("", 'ann "the" b, c'), partitions=("p 1", "q\nr"), classes=("", "lm"),
        gpu_types=("", "a100|v100"), qoses=("high", "low"), accounts=("", "lab"), logged_start=[0.1, np.nan, 1e9 + 2],
    )  # fmt: skip


def same_jobs(a: Workload, b: Workload) -> None:
    """All columns, whatever the order of the labels."""
    for name in a.jobs.table.dtype.names or ():
        mine, theirs = getattr(a.jobs, name), getattr(b.jobs, name)
        if name in LABELS:
            mine, theirs = (np.array(getattr(w.jobs, LABELS[name]))[c] for w, c in ((a, mine), (b, theirs)))
        np.testing.assert_array_equal(mine, theirs, err_msg=name)
    assert a.runtime.tobytes() == b.runtime.tobytes()


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_every_column_comes_back(tmp_path: Path, name: str) -> None:
    made = replace(everything(), name=name)
    write_csv(made, tmp_path / name)
    assert load_workload(str(tmp_path / name)) == made
    first = (tmp_path / name).read_bytes()
    write_csv(made, tmp_path / name)
    assert (tmp_path / name).read_bytes() == first
    assert [entry.name for entry in tmp_path.iterdir()] == [name]


@pytest.mark.parametrize("name", list(GENERATORS))
def test_every_generator_comes_back(tmp_path: Path, name: str) -> None:
    made = load_workload(SMALL.get(name, name), 3)
    write_csv(made, tmp_path / "a.csv")
    read = load_workload(str(tmp_path / "a.csv"))
    same_jobs(read, made)
    assert read.estimates == made.estimates


def test_what_is_usual_is_left_out(tmp_path: Path) -> None:
    write_csv(Workload.build({"submit": [0.0, 1.5]}, [3.0, 1e-7]), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "id,submit,runtime,gpus\n1,0,3,1\n2,1.5,1e-07,1\n"
    write_csv(with_estimate(Workload.build({"submit": [0.0], "walltime": [9.0]}, [3.0]), "exact"), tmp_path / "a.csv")
    assert (tmp_path / "a.csv").read_text() == "id,submit,runtime,estimate,gpus,walltime\n1,0,3,3,1,9\n"


def test_logged_starts_of_which_none_is_known(tmp_path: Path) -> None:
    made = Workload.build({"submit": [0.0, 1.0]}, [3.0, 4.0], name="a.csv", logged_start=[np.nan, np.nan])
    write_csv(made, tmp_path / "a.csv")
    assert load_workload(str(tmp_path / "a.csv")) == made


finite = st.floats(0, 1e12, allow_nan=False)


@given(st.lists(st.tuples(finite, finite, finite), min_size=1, max_size=20))
def test_every_digit_comes_back(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[float, float, float]]) -> None:
    path = tmp_path_factory.mktemp("csv") / "a.csv"
    submit, runtime, estimate = zip(*rows, strict=True)
    made = Workload.build({"submit": submit, "estimate": estimate}, runtime)
    write_csv(made, path)
    same_jobs(load_workload(str(path)), made)


def test_a_perturbed_workload_comes_back(tmp_path: Path) -> None:
    made = apply(load_workload("demo:jobs=200", 1), "arrival-noise", 1)
    write_csv(made, tmp_path / "a.csv.gz")
    same_jobs(load_workload(str(tmp_path / "a.csv.gz")), made)
    assert gzip.decompress((tmp_path / "a.csv.gz").read_bytes()).startswith(
        b"id,submit,runtime,gpus,walltime,deadline,priority,chunk,preemptible,user,"
    )


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be written"):
        write_csv(everything(), tmp_path / "nowhere" / "a.csv")
