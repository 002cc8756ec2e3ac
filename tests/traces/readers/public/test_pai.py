from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import Limits, load_workload, reader_of
from gpuyard.traces.readers.public.helios import SERVICE_HEADER
from gpuyard.traces.readers.public.pai import TASK_COLUMNS

TASKS = (
    "a,worker,3,Terminated,100.0,160.0,600.0,30.0,50.0,T4",  # three instances that share
    "b,ps,4,Terminated,90.0,95.0,300.0,2.5,200.0,V100",  # a gang of 4 × 2
    "c,tensorflow,1,Failed,120.0,125.0,600.0,29.3,150.0,MISC",  # 1.5 GPUs count as 2
    "d,evaluator,2,Terminated,130.0,140.0,100.0,1.0,,",  # no GPU
    "e,worker,1,Running,140.0,,600.0,30.0,100.0,P100",
    "f,worker,1,Waiting,,,600.0,30.0,100.0,P100",
)


@pytest.mark.parametrize("header", [(), (",".join(TASK_COLUMNS),)])
def test_the_task_table(write: Callable[..., str], header: tuple[str, ...]) -> None:
    path = write(*header, *TASKS)
    assert reader_of(Path(path)).name == "pai2020"
    work = load_workload(path)
    jobs = work.jobs
    assert jobs.submit.tolist() == [90, 100, 100, 100, 120, 130, 130]
    assert work.runtime.tolist() == [5, 60, 60, 60, 5, 10, 10]
    assert jobs.gpus.tolist() == [8, 0.5, 0.5, 0.5, 2, 0, 0]
    assert jobs.chunk.tolist() == [2, 1, 1, 1, 2, 1, 1]
    assert jobs.cpus.tolist() == [12, 6, 6, 6, 6, 1, 1]
    assert jobs.memory.tolist() == [10, 30, 30, 30, 29.3, 1, 1]
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["V100", "T4", "T4", "T4", "MISC", "", ""]
    assert work.dropped == {"no submit time": 1, "no run time": 1}
    assert work.logged_start is None
    assert any("3 jobs more than rows" in note for note in work.notes)
    assert work.preset == "pai2020"


def test_instances_are_bounded(write: Callable[..., str]) -> None:
    path = write("a,worker,1000000000,Terminated,1,2,600,1,50,T4")
    with pytest.raises(DataError, match="1,000,000,000 instances that share a GPU"):
        load_workload(path)
    with pytest.raises(DataError, match="4 instances"):
        load_workload(write("a,worker,4,Terminated,1,2,600,1,50,T4"), limits=Limits(rows=3))
    with pytest.raises(DataError, match="inst_num = 0.5 is not a number of instances"):
        load_workload(write("a,worker,0.5,Terminated,1,2,600,1,50,T4"))


def test_the_sample_is_told_by_its_ids(write: Callable[..., str]) -> None:
    path = write(",".join(SERVICE_HEADER), "ali-e292-worker#384494,16670.0,167731.0,8")
    assert reader_of(Path(path)).name == "pai2020"
    work = load_workload(path)
    assert (work.preset, len(work), work.jobs.gpus[0]) == ("pai2020", 1, 8)
