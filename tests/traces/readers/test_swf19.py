from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.swf19 import FIELDS

ROWS = (
    # id submit wait run gpus cpu mem rcpus rtime rmem status user group exe queue part prec vc type
    "1 0 5 100 8 -1 -1 64 3600 -1 1 ann lab 1 q -1 -1 vcA V100",
    "2 10 -1 50 0 -1 -1 4 -1 -1 0 -1 -1 -1 q -1 -1 -1 -1",
    "3 20 0 -1 1 -1 -1 4 60 -1 5 ben lab 1 q -1 -1 vcB -1",
    "4 30 0 7 -1 -1 -1 4 60 -1 5 ben lab 1 q -1 -1 vcB -1",
    "5 40 1.5 7 2 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB T4|P100",
)
NAMES = (
    "job id,submit,wait,run,gpus,cpu time,memory,req cpus,req time,req memory,status,user,group,executable,queue,partition,preceding,vc,"
    "gpu type"
)


def _write(folder: Path, *lines: str) -> str:
    path = folder / "log.dat"
    path.write_text("\n".join(lines) + "\n")
    return str(path)


FORMS = {
    "blanks": ROWS,
    "commas": tuple(row.replace(" ", ",") for row in ROWS),
    "tabs and blanks": tuple("  " + row.replace(" ", "\t ") + " " for row in ROWS),
    "comments": ("; Computer: yard", *ROWS[:2], "  ; in between", "", *ROWS[2:]),
    "header": (" ".join(FIELDS), *ROWS),
    "header with commas": (NAMES, *(row.replace(" ", ",") for row in ROWS)),
    "comments and header": ("; made up", NAMES, *(row.replace(" ", ", ") for row in ROWS)),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_gives_the_same_jobs(tmp_path: Path, form: str) -> None:
    path = _write(tmp_path, *FORMS[form])
    assert reader_of(Path(path)).name == "swf19"
    work = load_workload(path)
    jobs = work.jobs
    assert jobs.id.tolist() == [1, 2, 5]
    assert jobs.submit.tolist() == [0, 10, 40]
    assert work.runtime.tolist() == [100, 50, 7]
    assert jobs.gpus.tolist() == [8, 0, 2]
    assert jobs.cpus.tolist() == [64, 4, 0]
    assert jobs.walltime.tolist() == [3600, np.inf, 60]
    assert [jobs.users[k] for k in jobs.user] == ["ann", "", "ben"]
    assert [jobs.accounts[k] for k in jobs.account] == ["lab", "", "lab"]
    assert [jobs.partitions[k] for k in jobs.partition] == ["vcA", "", "vcB"]
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["V100", "", "T4|P100"]
    assert work.logged_start is not None
    np.testing.assert_array_equal(work.logged_start, [5, np.nan, 41.5])
    assert work.dropped == {"no run time": 1, "no GPU count": 1}


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("6 50 0 7 2 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB", "18 columns instead of 19"),
        ("6 x 0 7 2 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB T4", "submit = 'x' is not a number"),
        ("6 -7 0 7 2 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB T4", "submit = -7 is negative"),
        ("5 50 0 7 2 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB T4", "job id 5 occurs twice, first in line 6"),
        ("6 50 0 7 2.5 -1 -1 -1 60 -1 5 ben lab 1 q -1 -1 vcB T4", "gpus = 2.5 is neither"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, says: str) -> None:
    with pytest.raises(DataError, match=rf"log\.dat:7: {says}"):
        load_workload(_write(tmp_path, "; comment", *ROWS, row))


@pytest.mark.parametrize("first", ["job-a 0 5 100 8", "a1 0 5 100 8"])
def test_ids_may_be_names_and_the_first_row_is_kept(tmp_path: Path, first: str) -> None:
    path = _write(tmp_path, first + ROWS[0].removeprefix("1 0 5 100 8"), ROWS[4].replace("5 40", "b 40", 1))
    assert reader_of(Path(path)).name == "swf19"
    work = load_workload(path)
    assert work.runtime.tolist() == [100, 7]
    assert work.jobs.id.tolist() == [1, 2]
    assert any("ids are row numbers" in note for note in work.notes)


@pytest.mark.parametrize("first", ["1 x 5 100 8", "a 0 x 100 8", "a 0 5 100"])
def test_a_first_row_with_a_mistake_is_not_taken_for_a_header(tmp_path: Path, first: str) -> None:
    with pytest.raises(DataError, match=r"log\.dat:1: "):
        load_workload(_write(tmp_path, first + ROWS[0].removeprefix("1 0 5 100 8"), *ROWS[1:]), reader="swf19")


def _numbered(folder: Path, *types: str) -> str:
    return _write(folder, *(f"{k} {k} 0 9 1 -1 -1 4 60 -1 1 ann lab 1 q -1 -1 vcA {kind}" for k, kind in enumerate(types)))


def test_numbers_stand_for_gpu_types(tmp_path: Path) -> None:
    path = _numbered(tmp_path, "0", "1", "2", "3", "4", "-1", "A100")
    jobs = load_workload(path).jobs
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["t4", "other", "p100", "v100-16gb", "v100", "", "A100"]
    jobs = load_workload(path, types="a|b|c|d|e").jobs
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["a", "b", "c", "d", "e", "", "A100"]


def test_a_number_that_stands_for_no_type_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"log\.dat:2: GPU type 2 stands for none of t4\|p100"):
        load_workload(_numbered(tmp_path, "1", "2"), types="t4|p100")


def test_eighteen_columns_are_plain_swf(tmp_path: Path) -> None:
    assert reader_of(Path(_write(tmp_path, "1 0 -1 5 1" + " -1" * 13))).name == "swf"


def test_another_table_of_nineteen_columns_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "own.csv"
    path.write_text("submit,runtime,gpus,a,b" + ",x" * 14 + "\n" + "1,2,3,4,5" + ",6" * 14 + "\n")
    assert reader_of(path).name == "csv"


def test_only_comments_are_no_jobs(tmp_path: Path) -> None:
    path = _write(tmp_path, "; nothing", "")
    with pytest.raises(DataError, match="no jobs"):
        load_workload(path, reader="swf19")
