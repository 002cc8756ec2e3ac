"""LSF's `lsb.acct`."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload
from gpuyard.traces.base import reader_of


def finish(
    job: int = 7, *, hosts: tuple[str, ...] = ("2*h1", "2*h2"), asked: tuple[str, ...] = (), resreq: str = "", limit: int = 600,
    options: tuple[str, ...] = (), index: int = 0, start: int = 1010, used: int = 0,
) -> str:  # fmt: skip
    """A JOB_FINISH record as LSF 10.1 writes it."""
    quoted = [f'"{name}"' for name in asked]
    ran = [f'"{name}"' for name in hosts]
    pairs = [f'{1000 + k} "{value}"' for k, value in enumerate(options)]
    usage = [f"h{k} 1 0 1 1 0" for k in range(used)]
    middle = f'"" "proj" 0 4 "" "" {index} 2048 0 "" "" "" "" 0 "" 0 "" -1 "/ann" "" "" "" -1 "" "" 5136 "" 1010 "" ""'
    parts = [
        f'"JOB_FINISH" "10.1" 1110 {job} 1000 33 4 1000 0 0 {start} "ann" "normal" "span[ptile=2]" "" "" "login" "/d" "" "" "" "f"',
        str(len(asked)), *quoted, str(len(hosts)), *ran, '64 60.0 "na""me" "run ""x"""', " ".join(["0"] * 19), middle,
        str(len(options)), *pairs, str(used), *usage, f'{limit} 0 2048 "{resreq}" "" -1 "" -1 0 "" 0 0 "" 100 "" 0 ""',
    ]  # fmt: skip
    return " ".join(parts)


def read(tmp_path: Path, *lines: str, **options: str) -> Workload:
    path = tmp_path / "lsb.acct"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert reader_of(path).name == "lsb-acct"
    return load_workload(str(path), **options)


def test_the_columns_of_a_job(tmp_path: Path) -> None:
    workload = read(tmp_path, finish(asked=("h1", "h2", "h3"), used=2), finish(8, hosts=("h1", "h1", "h2"), limit=0, options=("x", "y")))
    jobs = workload.jobs
    assert jobs.id.tolist() == [7, 8]
    assert jobs.gpus.tolist() == [4, 3]  # slots
    assert jobs.walltime.tolist() == [600, math.inf]
    assert workload.runtime.tolist() == [100, 100]
    assert workload.logged_start is not None and workload.logged_start.tolist() == [10, 10]
    assert (jobs.users, jobs.partitions, jobs.accounts) == (("ann",), ("normal",), ("proj",))
    assert {m.name for m in workload.machines} == {"h1", "h2"}


def test_gpus_are_counted_by_host_unless_said(tmp_path: Path) -> None:
    line = finish(resreq="select[x] rusage[mem=1,ngpus_physical=2.00:gmodel=TeslaV100]")
    workload = read(tmp_path, line)
    assert (workload.jobs.gpus[0], workload.jobs.cpus[0], workload.jobs.gpu_types) == (4, 4, ("teslav100",))
    assert read(tmp_path, line, gpus_per="task").jobs.gpus[0] == 8
    assert read(tmp_path, line, gpus_per="job").jobs.gpus[0] == 2
    assert read(tmp_path, finish(options=("num=3:mode=shared",))).jobs.gpus[0] == 6


def test_arrays_other_records_and_jobs_that_never_started(tmp_path: Path) -> None:
    workload = read(
        tmp_path, "# a comment", '"EVENT_ADRSV_FINISH" "10.1" 1 2', finish(index=1), finish(index=2), finish(9, hosts=(), start=0)
    )
    assert workload.jobs.id.tolist() == [7, 8]
    assert dict(workload.dropped) == {"comment": 1, "record other than JOB_FINISH": 1, "never started": 1}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (finish().replace('"run', "run"), "never closed|is not a whole number"),
        (finish()[:200], "breaks off|follow|never closed|is not a whole number"),
        (finish().replace(' 2 "2*h1"', ' 999999 "2*h1"'), "execution hosts.* = 999999, but"),
        (finish().replace(" 1000 0 0 ", " soon 0 0 "), "field 8 .submit. = 'soon' is not a whole number"),
    ],
)
def test_wrong_records(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"lsb\.acct:2: .*({message})"):
        read(tmp_path, finish(), line)
