"""`bjobs -json` and `bjobs -o`."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload
from gpuyard.traces.base import reader_of

DONE = {
    "JOBID": "5", "STAT": "DONE", "USER": "ann", "QUEUE": "q", "PROJ_NAME": "p", "EXEC_HOST": "2*h1:h2", "SUBMIT_TIME": "Dec 31 23:58",
    "START_TIME": "Dec 31 23:59", "FINISH_TIME": "Jan  1 00:01 L", "RUN_TIME": "90 second(s)", "RUNTIMELIMIT": "10.0/hostA", "SLOTS": "3",
}  # fmt: skip


def read(tmp_path: Path, *records: dict[str, str], before: str = "", **options: str) -> Workload:
    path = tmp_path / "listing"
    path.write_text(before + json.dumps({"COMMAND": "bjobs", "JOBS": len(records), "RECORDS": records}, indent=1), encoding="utf-8")
    assert reader_of(path).name == "bjobs-json"
    return load_workload(str(path), **options)


def test_the_columns_of_a_job(tmp_path: Path) -> None:
    workload = read(tmp_path, DONE, before="Cannot connect to LSF. Please wait ...\n")
    jobs = workload.jobs
    assert (jobs.id[0], jobs.gpus[0], jobs.walltime[0], workload.runtime[0]) == (5, 3, 600, 90)
    assert (jobs.users, jobs.partitions, jobs.accounts) == (("ann",), ("q",), ("p",))
    assert workload.logged_start is not None and workload.logged_start[0] == 60
    assert "time 0 is 1999-12-31T23:58:00" in workload.notes  # the latest date, in January, is of 2000


def test_the_year_turns_where_there_are_no_dates(tmp_path: Path) -> None:
    later = DONE | {
        "JOBID": "6[2]",
        "SUBMIT_TIME": "Jan  2 10:00",
        "START_TIME": "Jan  2 10:00",
        "FINISH_TIME": "Jan  2 10:10",
        "RUN_TIME": "00:10:00",
    }
    workload = read(tmp_path, DONE, later)
    assert workload.jobs.submit.tolist() == [0, 34 * 3600 + 120]
    dated = {
        key: f"{value.removesuffix(' L')} 2023" if key.endswith("_TIME") and ":" in value and "0:" not in value[:3] else value
        for key, value in later.items()
    }
    dated["RUN_TIME"] = "00:10:00"
    assert "time 0 is 2023-01-02T10:00:00" in read(tmp_path, dated).notes
    assert "time 0 is 2023-12-31T23:58:00" in read(tmp_path, DONE, later, year="2024").notes


def test_gpus_and_jobs_that_are_not_over(tmp_path: Path) -> None:
    gpu = DONE | {"JOBID": "7", "GPU_NUM": "4"}
    asked = DONE | {"JOBID": "8", "EFFECTIVE_RESREQ": "rusage[ngpus_physical=1.00]"}
    workload = read(tmp_path, gpu, asked, DONE | {"STAT": "RUN"}, DONE | {"STAT": "PSUSP"}, {"JOBID": "9", "STAT": "EXIT"})
    assert workload.jobs.gpus.tolist() == [4, 2]
    assert dict(workload.dropped) == {"pending": 1, "still running": 1, "never started": 1}


@pytest.mark.parametrize(
    ("field", "value", "message"),
    [
        ("JOBID", "x", "jobid = 'x' is not a job id"),
        ("SUBMIT_TIME", "Foo 31 23:58", "submit_time = 'Foo 31 23:58' is not a date"),
        ("SUBMIT_TIME", "Feb 31 23:58", "is not a date in 2000"),
        ("RUN_TIME", "soon", "'soon' is not a time"),
        ("SLOTS", "-1", "'-1' is not a count"),
    ],
)
def test_wrong_values(tmp_path: Path, field: str, value: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        read(tmp_path, DONE | {field: value})


def test_text_with_a_delimiter(tmp_path: Path) -> None:
    path = tmp_path / "listing"
    lines = ["|".join(DONE), "|".join(DONE.values()), "|".join((DONE | {"JOBID": "6", "STAT": "PEND", "RUN_TIME": "-"}).values())]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert reader_of(path).name == "bjobs"
    workload = load_workload(str(path))
    assert workload.jobs == read(tmp_path, DONE).jobs
    assert math.isclose(workload.runtime[0], 90)
    path.write_text("\n".join([*lines[:2], "6|DONE"]) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match="listing:3: 2 fields instead of 12"):
        load_workload(str(path))
