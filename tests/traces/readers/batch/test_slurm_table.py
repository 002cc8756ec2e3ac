"""Exports of Slurm's job table."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from gpuyard.errors import DataError, UsageError
from gpuyard.model.units import MIB
from gpuyard.model.workload import Workload
from gpuyard.traces import load_workload
from gpuyard.traces.base import reader_of

SUPERCLOUD = (
    "id_job,id_array_job,id_array_task,id_user,kill_requid,nodes_alloc,nodelist,cpus_req,derived_ec,exit_code,gres_used,array_max_tasks,"
    "array_task_pending,constraints,flags,mem_req,partition,priority,state,timelimit,time_submit,time_eligible,time_start,time_end,"
    "time_suspended,track_steps,tres_alloc,tres_req,job_type"
)
DONE = "7,0,4294967294,55,-1,1,r1n1,8,0,0,gpu:volta:2,0,0,,0,2048,gpu,5,3,60,1000000,1000000,1000010,1000110,0,0,"
DONE += '"1=8,2=4096,4=1","1=8,2=4096,4=1",x'


def read(tmp_path: Path, *lines: str, **options: str) -> Workload:
    path = tmp_path / "table.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert reader_of(path).name == "slurm-table"
    return load_workload(str(path), **options)


def test_a_supercloud_row(tmp_path: Path) -> None:
    pending = DONE.replace("7,", "8,", 1).replace(",3,60,", ",0,60,").replace("1000010,1000110", "0,0")
    never = DONE.replace("7,", "9,", 1).replace(",3,60,", ",4,60,").replace("1000010,1000110", "0,1000110")
    workload = read(tmp_path, SUPERCLOUD, DONE, pending, never)
    jobs = workload.jobs
    assert (jobs.id[0], jobs.gpus[0], jobs.cpus[0], jobs.memory[0], jobs.walltime[0], jobs.priority[0]) == (7, 2, 8, 4096 * MIB, 3600, 5)
    assert (workload.runtime[0], jobs.users[jobs.user[0]], jobs.gpu_types[jobs.gpu_type[0]]) == (100, "55", "volta")
    assert workload.logged_start is not None and workload.logged_start[0] == 10
    assert dict(workload.dropped) == {"pending": 1, "never started": 1}


HEAD = "id_job;time_submit;time_start;time_end;state;tres_alloc;tres_req;nodelist;mem_req;timelimit"


def test_the_numbers_of_gpus_are_a_sites_own(tmp_path: Path) -> None:
    row = "1;100;110;120;3;1=4,2=1024,4=1,1001=2,1002=2,1003=1;1=4,1001=2;n1;0;4294967295"
    plain = read(tmp_path, HEAD, row)
    assert (plain.jobs.gpus[0], plain.jobs.gpu_types, plain.jobs.walltime[0]) == (2, ("",), math.inf)
    typed = read(tmp_path, HEAD, row.replace("1=4,1001=2;", "1=4,1001=2,1002=2;"), gpu_tres="1001 1002:A100")
    assert (typed.jobs.gpus[0], typed.jobs.gpu_types[typed.jobs.gpu_type[0]]) == (2, "a100")
    assert read(tmp_path, HEAD, row, gpu_tres="1003").jobs.gpus[0] == 1
    with pytest.raises(UsageError, match="'gpu' is not NUMBER"):
        read(tmp_path, HEAD, row, gpu_tres="gpu")


def test_memory_per_core_and_state_flags(tmp_path: Path) -> None:
    row = f"1;100;110;120;{3 + (1 << 10)};1=4,4=1,1001=1;;n1;{(1 << 63) + 2048};10"
    assert read(tmp_path, HEAD, row).jobs.memory[0] == 4 * 2048 * MIB


def test_suspended_time_is_no_run_time(tmp_path: Path) -> None:
    rows = [f"{k};100;110;210;3;1=4,4=1,1001=1;;n1;0;10;{suspended}" for k, suspended in enumerate((0, 30, 101), 1)]
    workload = read(tmp_path, HEAD + ";time_suspended", *rows)
    assert workload.runtime.tolist() == [100, 70, 100]  # 101 s cannot be: the job was there for 100
    assert workload.notes[-1] == "1 records were suspended for some time, which does not count as run time"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("7,0", "x,0", "id_job = 'x'"),
        ("7,0", "99999999999999999999,0", "id_job = 1e.20 is not a job id"),
        ('"1=8,2=4096,4=1"', '"1=many"', "tres_alloc = '1=many' has 'many'"),
        (",x", ",x,y", "30 fields instead of 29"),
    ],
)
def test_wrong_values(tmp_path: Path, old: str, new: str, message: str) -> None:
    with pytest.raises(DataError, match=rf"table\.csv:2: {message}"):
        read(tmp_path, SUPERCLOUD, DONE.replace(old, new, 1))


def test_a_list_of_nodes_as_python_writes_it(tmp_path: Path) -> None:
    """Rows of MIT Supercloud with several nodes: `"['r1-1', 'r1-2']"`."""
    two = DONE.replace("1,r1n1,8", "2,\"['r1-1', 'r1-2']\",8").replace("gpu:volta:2", "gpu:volta:1").replace("4=1", "4=2")
    one = DONE.replace("7,", "8,", 1).replace("r1n1", "['r1-1']")
    workload = read(tmp_path, SUPERCLOUD, two, one)
    assert sorted(machine.name for machine in workload.machines) == ["r1-1", "r1-2"]
    assert len(workload) == 2
    assert not workload.dropped
