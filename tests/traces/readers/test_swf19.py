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
