"""The Standard Workload Format: every field, every kind of damage, writing and reading back."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.errors import DataError
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload, swf_header, write_swf
from gpuyard.traces.readers.swf import FIELDS

#       id sub wait run alloc cpu mem req time rmem st user grp exe queue part prec think
ROWS = """\
; Version: 2.2
; MaxNodes: 144
;   MaxProcs:  1152
; UnixStartTime: 956700003
; Note: a: b
; Note: c
    5   100    7     60    4  552.21 -1   8   3600   -1  1   12   1  -1   3  -1  -1  -1
    4    50   -1      0   -1   -1    -1   2     -1   -1  1   -1  -1  -1  -1  -1  -1  -1

; in the middle
\t7   100    0.5  12.25  16   -1    -1  -1    1e3   -1  1   12  -1  -1   0  -1  -1  -1
    8    -1    0     60    4   -1    -1   4     -1   -1  1   12  -1  -1   0  -1  -1  -1
    9   100    0     -1    4   -1    -1   4     -1   -1  1   12  -1  -1   0  -1  -1  -1
   10   100    0     60    0   -1    -1  -1     -1   -1  1   12  -1  -1   0  -1  -1  -1
   11   100    0     60   -1   -1    -1   0     -1   -1  1   12  -1  -1   0  -1  -1  -1
"""


def _write(folder: Path, text: str) -> Path:
    path = folder / "log.swf"
    path.write_text(text)
    return path


def _row(**fields: object) -> str:
    values: dict[str, object] = dict.fromkeys(FIELDS, -1)
    values |= {"job number": 1, "submit time": 0, "run time": 60, "allocated processors": 4}
    values |= {name.replace("_", " "): value for name, value in fields.items()}
    return " ".join(str(v) for v in values.values()) + "\n"


def _processors(path: Path) -> int:
    return load_workload(str(path)).machines[0].gpus


def test_every_field(tmp_path: Path) -> None:
    workload = load_workload(str(_write(tmp_path, ROWS)))
    jobs = workload.jobs
    assert jobs.id.tolist() == [4, 5, 7]
    assert jobs.submit.tolist() == [50, 100, 100]
    assert jobs.gpus.tolist() == [2, 4, 16]
    assert workload.runtime.tolist() == [0, 60, 12.25]
    assert jobs.walltime.tolist() == [np.inf, 3600, 1000]
    assert jobs.estimate.tolist() == [0, 3600, 1000]
    assert [jobs.users[k] for k in jobs.user] == ["", "12", "12"]
    assert [jobs.partitions[k] for k in jobs.partition] == ["", "3", "0"]
    assert jobs.priority.tolist() == [0, 0, 0]
    assert workload.logged_start is not None
    np.testing.assert_array_equal(workload.logged_start, [np.nan, 107, 100.5])
    assert workload.dropped == {"no submit time": 1, "no run time": 1, "no processors": 2}
    assert workload.all_notes == (
        "time 0 is 2000-04-25T22:00:03",
        "1 of 3 jobs have no requested time: their estimates are the run times",
    )
    assert workload.estimates == "requested; exact for 1 of 3 jobs"


def test_requested_processors(tmp_path: Path) -> None:
    workload = load_workload(str(_write(tmp_path, ROWS)), processors="requested")
    assert workload.jobs.gpus.tolist() == [2, 8, 16]


def test_header(tmp_path: Path) -> None:
    path = _write(tmp_path, ROWS)
    assert swf_header(path) == {"Version": "2.2", "MaxNodes": "144", "MaxProcs": "1152", "UnixStartTime": "956700003", "Note": "a: b"}
    assert _processors(path) == 1152
    assert _processors(_write(tmp_path, "; MaxNodes: 256\n; MaxProcs: -1\n" + _row())) == 256
    assert load_workload(str(_write(tmp_path, "; MaxNodes: many\n" + _row() + "; MaxProcs: 5\n"))).machines[0].gpus == 0


def test_no_requested_times_is_noted(tmp_path: Path) -> None:
    assert load_workload(str(_write(tmp_path, _row()))).all_notes == ("no requested times: estimates are the run times",)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("1 2 3\n", "3 columns instead of 18"),
        (_row().rstrip() + " 5\n", "19 columns instead of 18"),
        (_row(run_time="abc"), "column 4 (run time) = 'abc' is not a finite number"),
        (_row(run_time="NaN"), "column 4 (run time) = 'NaN' is not a finite number"),
        (_row(think_time="nan"), "column 18 (think time) = 'nan'"),
        (_row(run_time="inf"), "column 4 (run time) = 'inf'"),
        (_row(run_time="1e999"), "column 4 (run time) = '1e999'"),
        (_row(run_time="1_0"), "column 4 (run time) = '1_0'"),
        (_row(run_time="0x10"), "column 4 (run time) = '0x10'"),
        (_row(run_time="--5"), "column 4 (run time) = '--5'"),
        (_row(run_time="12-5"), "column 4 (run time) = '12-5'"),
        (_row(run_time="-"), "column 4 (run time) = '-'"),
        (_row(run_time="٣"), "column 4 (run time) = '٣'"),
        (_row(run_time="9" * 500), "column 4 (run time)"),
        (_row(submit_time=-5), "submit time = -5 is negative"),
        (_row(submit_time=-0.5), "submit time = -0.5 is negative"),
        (_row(submit_time="1e13"), "submit = 10000000000000 is more than 1,000,000,000,000"),
        (_row(run_time="1e13"), "runtime = 10000000000000 is more than 1,000,000,000,000"),
        (_row(allocated_processors=10**9), "gpus = 1000000000 is more than 1,000,000"),
        (_row(allocated_processors=1.5), "processors = 1.5 is not a whole number"),
        (_row(job_number=1.5), "job id = 1.5 is not a whole number"),
        (_row(job_number="1e300"), "job id = 1e+300 is not a whole number"),
        (_row(user=0.5), "user = 0.5 is not a whole number"),
        (_row(job_number=4), "job id 4 occurs twice, first in line 8"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, line: str, says: str) -> None:
    path = _write(tmp_path, ROWS + "\n; a comment\n" + line.replace("1 0 ", "100 0 ", 1))
    with pytest.raises(DataError) as caught:
        load_workload(str(path))
    assert str(caught.value).startswith(f"{path}:18: {says}")
    assert "\n" not in str(caught.value)


def test_a_wrong_row_deep_in_a_long_file(tmp_path: Path) -> None:
    lines = [_row(job_number=k) for k in range(40_000)]
    lines[35_000] = _row(job_number=35_000, user="x")
    with pytest.raises(DataError, match=r"log\.swf:35001: column 12 \(user\) = 'x'"):
        load_workload(str(_write(tmp_path, "".join(lines))))


def test_nothing_usable(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no usable job$"):
        load_workload(str(_write(tmp_path, "; only a header\n")))
    with pytest.raises(DataError, match=r"no usable job \(1 with no run time\)"):
        load_workload(str(_write(tmp_path, _row(run_time=-1))))


@given(st.binary(max_size=300))
def test_no_bytes_give_a_traceback(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "log.swf"
    path.write_bytes(_row().encode() + noise)
    try:
        workload = load_workload(str(path))
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert len(workload) >= 1


@given(st.lists(st.floats(-1e15, 1e15) | st.integers(-(10**17), 10**17), min_size=1, max_size=20))
def test_numbers_are_read_as_python_reads_them(tmp_path_factory: pytest.TempPathFactory, numbers: list[float]) -> None:
    from gpuyard.traces.opening import Block
    from gpuyard.traces.readers.swf import _parse

    text = "".join(" ".join([repr(n), *["-1"] * 17]) + "\n" for n in numbers)
    table, lines = _parse(Path("x"), Block(text.encode(), 1))
    assert table[:, 0].tolist() == [float(n) for n in numbers]
    assert lines.tolist() == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("name", ["a.swf", "a.swf.gz"])
@pytest.mark.parametrize("text", ["gangs:jobs=300", "lublin:jobs=300", "demo:jobs=300", "family:variant=estimate"])
def test_written_and_read_back(tmp_path: Path, text: str, name: str) -> None:
    made = load_workload(text, 5)
    write_swf(made, tmp_path / name)
    back = load_workload(str(tmp_path / name))
    for column in ("id", "submit", "gpus", "walltime", "estimate"):
        np.testing.assert_array_equal(getattr(back.jobs, column), getattr(made.jobs, column))
    np.testing.assert_array_equal(back.runtime, made.runtime)
    same = (made.jobs.user[:, None] == made.jobs.user) == (back.jobs.user[:, None] == back.jobs.user)
    assert same.all()
    write_swf(load_workload(text, 5), tmp_path / f"again-{name}")
    assert (tmp_path / f"again-{name}").read_bytes() == (tmp_path / name).read_bytes()


def test_what_was_read_is_written_equal(tmp_path: Path) -> None:
    first = load_workload(str(_write(tmp_path, ROWS)))
    write_swf(first, tmp_path / "log.swf")
    again = load_workload(str(tmp_path / "log.swf"))
    assert again.jobs == first.jobs
    assert again.logged_start is not None
    assert first.logged_start is not None
    np.testing.assert_array_equal(again.logged_start, first.logged_start)


def test_names_of_users_go_to_the_header(tmp_path: Path) -> None:
    made = Workload.build({"submit": [0, 1], "user": [1, 0]}, [5, 6], users=("bob\n1 2 3", "alice"))
    write_swf(made, tmp_path / "a.swf")
    assert "; Note: user 1 is bob 1 2 3\n; Note: user 2 is alice\n" in (tmp_path / "a.swf").read_text()
    assert load_workload(str(tmp_path / "a.swf")).jobs.users == ("1", "2")


def test_what_swf_cannot_hold_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"job 2 has 0.5 GPUs"):
        write_swf(Workload.build({"submit": [0, 1], "gpus": [1, 0.5]}, [5, 6]), tmp_path / "a.swf")
    with pytest.raises(DataError, match="cannot be written"):
        write_swf(Workload.build({"submit": [0]}, [5]), tmp_path / "nowhere" / "a.swf")


@pytest.mark.parametrize(
    ("name", "jobs", "processors"),
    [
        ("KTH-SP2-1996-2.1-cln.swf.gz", 28_475, 100),
        ("HPC2N-2002-2.1-cln.swf.gz", 202_876, 240),
        ("SDSC-BLUE-2000-4.2-cln.swf.gz", 232_562, 1152),
        ("LANL-CM5-1994-4.1-cln.swf.gz", 122_057, 1024),
        ("NASA-iPSC-1993-3.1-cln.swf.gz", 18_239, 128),
        ("lublin_256.swf.gz", 10_000, 256),
        ("CTC-SP2-easy-resimulated.swf.gz", 77_199, 338),
        ("SDSC-SP2-easy-resimulated.swf.gz", 54_006, 128),
    ],
)
def test_real_logs(shared: Path, name: str, jobs: int, processors: int) -> None:
    path = shared / "traces" / "swf" / name
    workload = load_workload(str(path))
    assert len(workload) == jobs
    assert [machine.gpus for machine in workload.machines] == [processors]
    with gzip.open(path, "rt") as lines:
        first = next(line for line in lines if not line.startswith(";")).split()
    row = workload.jobs.id.tolist().index(int(first[0]))
    assert workload.jobs.submit[row] == float(first[1])
    assert workload.runtime[row] == float(first[3])
