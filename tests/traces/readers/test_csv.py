"""Tables with columns named by the caller."""

from __future__ import annotations

import gzip
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuyard.engine.simulation import simulate
from gpuyard.errors import DataError, UnknownNameError, UsageError
from gpuyard.policies import parse_scheduler
from gpuyard.traces import guess_cluster, load_workload
from gpuyard.traces.readers.columns import COLUMNS


def _write(folder: Path, text: str, name: str = "jobs.csv") -> str:
    path = folder / name
    path.write_text(text)
    return str(path)


EVERYTHING = """\
id,submit,start,end,deadline,runtime,estimate,walltime,transfer,gpus,cpus,memory,priority,chunk,user,partition,job_class,gpu_type,qos,account,preemptible,checkpoint,checkpoint_cost,drain,restart_cost,conditions,other
12,20,21,31,90,10,11,12,0.5,8,16,32.5,2.5,4,ann,p1,lm,a100|v100,high,lab,yes,600,12,30,60,delay=5 after=-3,x
-3, 10 ,,,, 7 ,,,,0.25,,,-1,,,,,,,,,,,,,, "quoted, with comma"
"""


def test_every_column(tmp_path: Path) -> None:
    workload = load_workload(_write(tmp_path, EVERYTHING))
    jobs = workload.jobs
    assert jobs.id.tolist() == [-3, 12]
    assert jobs.submit.tolist() == [10, 20]
    assert workload.runtime.tolist() == [7, 10]
    assert jobs.estimate.tolist() == [7, 11]
    assert jobs.walltime.tolist() == [np.inf, 12]
    assert jobs.deadline.tolist() == [np.inf, 90]
    assert jobs.transfer.tolist() == [0, 0.5]
    assert jobs.gpus.tolist() == [0.25, 8]
    assert jobs.cpus.tolist() == [0, 16]
    assert jobs.memory.tolist() == [0, 32.5]
    assert jobs.priority.tolist() == [-1, 2.5]
    assert jobs.chunk.tolist() == [1, 4]
    assert [jobs.users[k] for k in jobs.user] == ["", "ann"]
    assert [jobs.partitions[k] for k in jobs.partition] == ["", "p1"]
    assert [jobs.classes[k] for k in jobs.job_class] == ["", "lm"]
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["", "a100|v100"]
    assert [jobs.qoses[k] for k in jobs.qos] == ["", "high"]
    assert [jobs.accounts[k] for k in jobs.account] == ["", "lab"]
    terms = ["", "preemptible=yes checkpoint=600 checkpoint_cost=12 drain=30 restart_cost=60 delay=5 after=-3"]
    assert [jobs.term_texts[k] for k in jobs.terms] == terms
    assert workload.logged_start is not None
    np.testing.assert_array_equal(workload.logged_start, [np.nan, 21])
    header = [*EVERYTHING.split("\n", 1)[0].split(","), "wait"]  # which says the start once more
    assert set(header) - {"other"} == set(COLUMNS)


def test_conditions_that_make_no_sense_are_refused_with_their_line(tmp_path: Path) -> None:
    text = "id,submit,gpus,runtime,conditions\n1,9,1,10,\n7,3,1,,\n2,5,1,10,held=yes\n3,0,1,10,after=x\n"
    with pytest.raises(DataError, match=r"jobs.csv:5: conditions 'after=x': 'x' is not a whole number"):
        load_workload(_write(tmp_path, text))


def test_blank_lines_do_no_harm(tmp_path: Path) -> None:
    workload = load_workload(_write(tmp_path, "submit,runtime,gpus\n\n1,2,4\n\n\n3,4,8\n\n"))
    assert workload.jobs.submit.tolist() == [1, 3]
    assert workload.jobs.gpus.tolist() == [4, 8]


@pytest.mark.parametrize("delimiter", [",", "\t", ";", "|"])
def test_mapped_columns_and_delimiters(tmp_path: Path, delimiter: str) -> None:
    text = "arrival (s),took,n\n5,60,2\n3,0,1\n".replace(",", delimiter)
    columns = {"submit": "arrival (s)", "runtime": "took", "gpus": "n", "estimate": "arrival (s)"}
    workload = load_workload(_write(tmp_path, text), columns=columns)
    assert workload.jobs.submit.tolist() == [3, 5]
    assert workload.runtime.tolist() == [0, 60]
    assert workload.jobs.gpus.tolist() == [1, 2]
    assert workload.jobs.id.tolist() == [2, 1]
    assert workload.estimate_source == "given"


def test_units_of_numbers(tmp_path: Path) -> None:
    path = _write(tmp_path, "submit,runtime,gpus\n1.5,2,4\n")
    workload = load_workload(path, unit="h")
    assert (workload.jobs.submit[0], workload.runtime[0], workload.jobs.gpus[0]) == (5400, 7200, 4)
    with pytest.raises(UnknownNameError, match="value of reader csv: unit"):
        load_workload(path, unit="fortnight")


def test_timestamps(tmp_path: Path) -> None:
    text = (
        "submit,start,end,deadline\n"
        "2024-02-29 23:59:30,2024-03-01 00:00:00.25,2024-03-01T00:01:00,\n"
        "2024-02-29T22:59:00Z,2024-02-29T23:59:30+01:00,2024-02-29 18:00:00-0500,2024-03-01 00:00:00\n"
    )
    workload = load_workload(_write(tmp_path, text))
    assert workload.jobs.submit.tolist() == [0, 3630]
    assert workload.runtime.tolist() == [30, 59.75]
    assert workload.logged_start is not None
    assert workload.logged_start.tolist() == [30, 3660.25]
    assert workload.jobs.deadline.tolist() == [3660, np.inf]
    assert workload.notes[0] == "time 0 is 2024-02-29T22:59:00"


def test_unusable_rows_are_dropped_and_counted(tmp_path: Path) -> None:
    text = "submit,runtime,gpus\n,1,1\n1,,1\n2,NA,1\n3,1,\n4,1,0\n5,0,1\n\n6,3,1\n"
    workload = load_workload(_write(tmp_path, text))
    assert workload.dropped == {"no submit time": 1, "no run time": 2, "no GPU count": 1, "no GPU, CPU or memory asked for": 1}
    assert workload.jobs.submit.tolist() == [5, 6]
    assert workload.jobs.id.tolist() == [6, 7]
    with pytest.raises(DataError, match=r"no usable job \(1 with no run time\)"):
        load_workload(_write(tmp_path, "submit,runtime\n1,\n"))


def test_ids_that_are_text(tmp_path: Path) -> None:
    workload = load_workload(_write(tmp_path, "id,submit,runtime\na#1,5,1\nb#2,4,1\n"))
    assert workload.jobs.id.tolist() == [2, 1]
    assert "ids are row numbers: those of the table are not numbers" in workload.notes


def test_lines_inside_quotes(tmp_path: Path) -> None:
    path = _write(tmp_path, 'name,submit,runtime\n"a\nb, ""c""",1,2\nd,3,x\n')
    with pytest.raises(DataError, match=r"jobs\.csv:4: runtime = 'x' is not a number"):
        load_workload(path)


@pytest.mark.parametrize(
    ("row", "says"),
    [
        ("1,2", "2 columns instead of 5"),
        ("1,2,3,4,5,6", "6 columns instead of 5"),
        ("7,x,1,1,1", "submit = 'x' is not a number"),
        ("7,NaN,1,1,1", "submit = 'NaN' is not a number"),
        ("7,inf,1,1,1", "submit = inf is more than"),
        ("7,-5,1,1,1", "submit = -5 is negative"),
        ("7,1e13,1,1,1", "submit = 10000000000000 is more than"),
        ("7,5,-1,1,1", "runtime = -1 is negative"),
        ("7,5,nan,1,1", "runtime = 'nan' is not a number"),
        ("7,5,abc,1,1", "runtime = 'abc' is not a number"),
        ("7,5,inf,1,1", "runtime = inf is more than"),
        ("7,5,1,1000000000,1", "gpus = 1000000000 is more than 1,000,000"),
        ("7,5,1,2.5,1", "gpus = 2.5 is neither"),
        ("7,5,1,-1,1", "gpus = -1 is negative"),
        ("7,5,1,3,2", "chunk = 2 does not divide gpus"),
        ("7,5,1,3,0", "chunk = 0 is not a number of GPUs"),
        ("2,5,1,1,1", "job id 2 occurs twice, first in line 3"),
        (",5,1,1,1", "no id"),
    ],
)
def test_a_wrong_row_is_named(tmp_path: Path, row: str, says: str) -> None:
    path = _write(tmp_path, f"id,submit,runtime,gpus,chunk\n1,0,1,4,2\n2,0,1,1,1\n{row}\n3,1,1,1,1\n")
    with pytest.raises(DataError) as caught:
        load_workload(path)
    assert str(caught.value).startswith(f"{path}:4: {says}")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("submit,runtime\n", "no jobs, only a header"),
        ("submit\n1\n", "no column for 'runtime'; hint: name it, runtime=NAME; the table has: submit"),
        ("runtime,start\n1,1\n", "no column for 'submit'"),
        ("submit,runtime,submit\n1,1,1\n", "column 'submit' occurs twice"),
        ('submit,runtime\n1,"2\n', "a quoted field is never closed"),
        ("submit,runtime\n2024-13-01 00:00:00,5\n", "is neither a number nor an ISO timestamp"),
        ("submit,runtime\nsoon,5\n", "submit = 'soon' is neither a number nor an ISO timestamp"),
        ("submit,start,end\n2024-01-01 00:00:00,1,2\n", "submit has timestamps but start has numbers"),
        ("submit,runtime,id\n1,1,a\n2,2,a\n", "id 'a' occurs twice"),
        ("submit,start,end\n1,5,3\n", "runtime = -2 is negative"),
        ("submit,runtime" + ",x" * 20000 + "\n", "20,002 columns; at most 10,000"),
    ],
)
def test_a_wrong_table_is_refused(tmp_path: Path, text: str, says: str) -> None:
    path = _write(tmp_path, text)
    with pytest.raises(DataError) as caught:
        load_workload(path)
    assert str(caught.value).startswith(path)
    assert says in str(caught.value)


def test_wrong_options(tmp_path: Path) -> None:
    path = _write(tmp_path, "arrival,took\n1,2\n")
    with pytest.raises(UnknownNameError, match="unknown column 'submitted'; hint: did you mean 'submit'"):
        load_workload(path, columns={"submitted": "arrival"})
    with pytest.raises(DataError, match=r"no column 'arival' \(for 'submit'\); hint: did you mean 'arrival'"):
        load_workload(path, columns={"submit": "arival"})
    with pytest.raises(UsageError, match="is not one plain character"):
        load_workload(path, delimiter="ab")


@given(st.binary(max_size=300))
def test_no_bytes_give_a_traceback(tmp_path_factory: pytest.TempPathFactory, noise: bytes) -> None:
    path = tmp_path_factory.mktemp("noise") / "a.csv"
    path.write_bytes(b"submit,runtime,user\n1,2,a\n" + noise)
    try:
        workload = load_workload(str(path))
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert len(workload) >= 1


@given(st.text("0123456789.,\"\n\r -eNa:TZ;'", max_size=200))
def test_no_text_gives_a_traceback(tmp_path_factory: pytest.TempPathFactory, noise: str) -> None:
    path = tmp_path_factory.mktemp("noise") / "a.csv"
    path.write_bytes(b"submit,runtime,user\n1,2,a\n" + noise.encode())
    try:
        workload = load_workload(str(path))
    except DataError as error:
        assert "\n" not in str(error)
    else:
        assert len(workload) >= 1


SERVICE = {"submit": "arrival_s", "runtime": "service_sec", "gpus": "gpu_count", "id": "job_id"}
RFOLD = {"submit": "arrival time (sec)", "runtime": "duration (sec)", "gpus": "size", "id": "#job id"}
VC = {"submit": "timestamp", "runtime": "duration", "gpus": "num_gpus", "partition": "cluster"}
PODS = {
    "submit": "creation_time", "start": "scheduled_time", "end": "deletion_time", "gpus": "num_gpu",
    "cpus": "cpu_milli", "memory": "memory_mib", "gpu_type": "gpu_spec", "job_class": "qos",
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "columns", "jobs", "last", "largest"),
    [
        ("philly/philly_jobs_rfold.csv.gz", RFOLD, 111_549, None, 128),
        ("philly/philly_jobs_vc.csv.gz", VC, 82_247, 9_408_690, 128),
        ("helios/helios_venus_gpu_jobs.csv.gz", SERVICE, 125_303, None, 200),
        ("alibaba/pai2020_gpu_tasks_sample.csv.gz", SERVICE, 60_105, 5_518_537, 400),
        ("alibaba/openb2023_pod_list_default.csv.gz", PODS, 8_152 - 897, None, 8),
    ],
)
def test_real_tables(shared: Path, name: str, columns: dict[str, str], jobs: int, last: float | None, largest: int) -> None:
    path = shared / "traces" / name
    workload = load_workload(str(path), columns=columns)
    assert len(workload) == jobs
    assert workload.jobs.gpus.max() == largest
    assert last is None or workload.jobs.submit[-1] == last


def test_a_real_table_value_by_value(shared: Path) -> None:
    path = shared / "traces" / "philly" / "philly_jobs_rfold.csv.gz"
    workload = load_workload(str(path), columns=RFOLD)
    with gzip.open(path, "rt") as lines:
        rows = [line.split(",") for line in lines][1:]
    assert workload.jobs.id.tolist() == [int(r[0]) for r in rows]
    assert workload.jobs.submit.tolist() == [float(r[1]) for r in rows]
    assert workload.jobs.gpus.tolist() == [float(r[4]) for r in rows]
    assert workload.runtime.tolist() == [float(r[5]) for r in rows]
    assert (workload.runtime == 0).sum() == 10


# ── names that tables of jobs usually have, units in them, comments ──


@pytest.mark.parametrize(
    "text",
    [
        "# by a script\n# in May\nSubmit_Time,Start_Time,End_Time,GPUs,User\n600,1200,6600,1,ann\n# a pause\n900,1800,12600,2,bob\n",
        "#job_id,arrival_time,wait (min),duration_min,num_gpus,user_id\n1,600,10,90,1,ann\n2,900,15,180,2,bob\n",
        "# some notes\nSubmittedAt;Waiting Time [s];elapsed_h;Requested GPUs;UserName\n600;600;1.5;1;ann\n900;900;3;2;bob\n",
        "start,wait,run_time,gpu_num,user\n1200,600,5400,1,ann\n1800,900,10800,2,bob\n",
        "submit,wait,finish,ngpus,user\n600,600,6600,1,ann\n900,900,12600,2,bob\n",
    ],
)
def test_usual_names_units_and_comments(tmp_path: Path, text: str) -> None:
    workload = load_workload(_write(tmp_path, text))
    assert workload.jobs.submit.tolist() == [600, 900]
    assert workload.logged_start is not None
    assert workload.logged_start.tolist() == [1200, 1800]
    assert workload.runtime.tolist() == [5400, 10800]
    assert workload.jobs.gpus.tolist() == [1, 2]
    assert [workload.jobs.users[k] for k in workload.jobs.user] == ["ann", "bob"]
    assert any(note.startswith("columns by their usual names: ") for note in workload.notes)


def test_our_own_names_go_before_usual_ones(tmp_path: Path) -> None:
    workload = load_workload(_write(tmp_path, "submit_time,submit,duration,runtime\n5,6,7,8\n"))
    assert (workload.jobs.submit.tolist(), workload.runtime.tolist()) == ([6], [8])
    assert not any("usual" in note for note in workload.notes)


def test_two_columns_of_one_usual_name(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="'Submit Time' and 'submit_time' may both be 'submit'; hint: say which"):
        load_workload(_write(tmp_path, "Submit Time,submit_time,runtime\n5,6,7\n"))


def test_a_unit_for_one_column(tmp_path: Path) -> None:
    file = _write(tmp_path, "submit,took,limit\n5000,2,3\n")
    workload = load_workload(file, unit="ms", columns={"runtime": "took:min", "walltime": "limit:h"})
    assert (workload.jobs.submit.tolist(), workload.runtime.tolist(), workload.jobs.walltime.tolist()) == ([5], [120], [10800])


@pytest.mark.parametrize(("name", "gigabytes"), [("memory", 512), ("mem_mb", 0.512), ("Memory (GiB)", 549.755813888), ("mem", 0)])
def test_memory_of_a_usual_name_needs_a_unit(tmp_path: Path, name: str, gigabytes: float) -> None:
    workload = load_workload(_write(tmp_path, f"submit,runtime,{name}\n0,1,512\n"))
    assert workload.jobs.memory.tolist() == pytest.approx([gigabytes])


def test_the_line_of_an_error_counts_comments(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"jobs.csv:6: runtime = 'x' is not a number"):
        load_workload(_write(tmp_path, "# one\n# two\nsubmit,runtime\n1,2\n# three\n3,x\n"))
    with pytest.raises(DataError, match=r"jobs.csv:2: the line is blank"):
        load_workload(_write(tmp_path, "# one\n\nsubmit,runtime\n1,2\n"))


def test_a_table_of_jobs_is_one_whatever_its_name(tmp_path: Path) -> None:
    path = tmp_path / "export.dat"
    path.write_text("arrival_time\tduration\n0\t5\n")
    assert len(load_workload(str(path))) == 1


@pytest.mark.parametrize("name", ["cpus", "Cores", "num_cpu"])
def test_cores_are_not_called_gpus(tmp_path: Path, name: str) -> None:
    """A table of a CPU cluster: a device is a core, and the cluster that is guessed has processors."""
    rows = "".join(f"{60 * k},{60 * k + 5},{100 + k},{4 + k % 3},{8 * k},\n" for k in range(50))
    workload = load_workload(_write(tmp_path, f"submit,start,runtime,{name},mem_gb,user\n{rows}"))
    assert workload.jobs.gpus[:3].tolist() == [4, 5, 6]
    assert not workload.jobs.cpus.any()
    assert not workload.jobs.memory.any()
    assert "a device is a CPU core: the table has no column of GPUs" in workload.notes
    cluster, why = guess_cluster(workload)
    assert [kind.name for kind in cluster.types] == ["cpu"]
    assert "processors" in why
    assert "GPU" not in why
    assert (simulate(workload, cluster, parse_scheduler("fcfs/fewest/easy")).table["reason"] == 0).all()


def test_cores_beside_gpus_and_parts_of_cores_stay_what_they_are(tmp_path: Path) -> None:
    with_gpus = load_workload(_write(tmp_path, "submit,runtime,cores,gpus\n0,9,8,1\n"))
    assert (with_gpus.jobs.gpus[0], with_gpus.jobs.cpus[0], with_gpus.machines) == (1, 8, ())
    parts = load_workload(_write(tmp_path, "submit,runtime,cores\n0,9,0.5\n1,9,2.5\n"))
    assert (parts.jobs.gpus.tolist(), parts.jobs.cpus.tolist()) == ([1, 1], [0.5, 2.5])
