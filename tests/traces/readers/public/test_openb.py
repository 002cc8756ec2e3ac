from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.public.openb import HEADER, UNTIMED

PODS = (
    ",".join(HEADER),
    "p0,12000,16384,1,1000,,LS,Running,0,100,10",
    "p1,6000,12288,1,460,T4|P100,BE,Failed,5,20,5",
    "p2,64500,1024,8,1000,G2,LS,Succeeded,7,30,8",
    "p3,8000,2048,0,0,,BE,Running,8,18,9",
    "p4,8000,2048,1,500,,BE,Pending,9,50,",
    "p5,8000,2048,1,500,,BE,Running,9,50,",
)


def test_pods(write: Callable[..., str]) -> None:
    path = write(*PODS)
    assert reader_of(Path(path)).name == "openb"
    work = load_workload(path)
    jobs = work.jobs
    assert jobs.submit.tolist() == [0, 5, 7, 8, 9]
    assert work.runtime.tolist() == [90, 15, 22, 9, 41]  # from scheduling, or from creation where that is not known
    assert jobs.gpus.tolist() == [1, 0.46, 8, 0, 0.5]
    assert jobs.chunk.tolist() == [1, 1, 8, 1, 1]
    assert jobs.cpus.tolist() == [12, 6, 64.5, 8, 8]
    assert jobs.memory[0] == 16384 * 1048576 / 1e9
    assert [jobs.gpu_types[k] for k in jobs.gpu_type] == ["", "T4|P100", "G2", "", ""]
    assert [jobs.qoses[k] for k in jobs.qos] == ["LS", "BE", "LS", "BE", "BE"]
    assert work.dropped == {"never scheduled (Pending)": 1}
    assert work.logged_start is not None
    assert work.logged_start.tolist()[:4] == [10, 5, 8, 9]
    assert work.preset == "openb"


def test_a_list_without_times_needs_some(write: Callable[..., str]) -> None:
    path = write(",".join(UNTIMED), "p0,12000,16384,1,1000", "p1,6000,12288,1,460")
    with pytest.raises(DataError, match="has no times; hint: give --with arrivals=60s"):
        load_workload(path)
    with pytest.raises(DataError, match="only one of arrivals and runtime is given"):
        load_workload(path, arrivals="1min")
    work = load_workload(path, arrivals="1min", runtime="2h")
    assert (work.jobs.submit.tolist(), work.runtime.tolist(), work.jobs.gpus.tolist()) == ([0, 60], [7200, 7200], [1, 0.46])


def test_times_can_be_given_to_any_list(write: Callable[..., str]) -> None:
    work = load_workload(write(*PODS), arrivals=1, runtime=5)
    assert len(work) == 6
    assert work.jobs.submit.tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("milli", ["0", "1001", "-5", ""])
def test_a_share_must_be_one(write: Callable[..., str], milli: str) -> None:
    with pytest.raises(DataError, match=r"trace\.txt:2: gpu_milli = "):
        load_workload(write(PODS[0], f"p0,12000,16384,1,{milli},,LS,Running,0,100,10"))
