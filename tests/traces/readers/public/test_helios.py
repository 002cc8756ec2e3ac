from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.public.helios import LOG_HEADER, SERVICE_HEADER

LOG = (
    ",".join(LOG_HEADER),
    "7,u1,8,64,2,COMPLETED,2020-04-01 00:00:10,2020-04-01 00:01:10,2020-04-01 00:02:50,100,60,vcA",
    "7,u2,0,4,1,FAILED,2020-04-01 00:00:00,2020-04-01 00:00:00,2020-04-01 00:00:05,5,0,vcB",
    "8,u1,3,6,2,CANCELLED,2020-04-01 00:00:20,2020-04-01 00:00:20,2020-04-01 00:00:21,1,0,vcA",
    "9,u1,1,6,1,CANCELLED,2020-04-01 00:00:20,,2020-04-01 00:00:21,,,vcA",
)


def test_the_published_log(write: Callable[..., str]) -> None:
    path = write(*LOG)
    assert reader_of(Path(path)).name == "helios"
    work = load_workload(path)
    jobs = work.jobs
    assert jobs.submit.tolist() == [0, 10, 20]
    assert work.runtime.tolist() == [5, 100, 1]
    assert jobs.gpus.tolist() == [0, 8, 3]
    assert jobs.cpus.tolist() == [4, 64, 6]
    assert jobs.chunk.tolist() == [1, 4, 1]  # 8 GPUs on 2 nodes; 3 on 2 is uneven
    assert [jobs.users[k] for k in jobs.user] == ["u2", "u1", "u1"]
    assert [jobs.partitions[k] for k in jobs.partition] == ["vcB", "vcA", "vcA"]
    assert jobs.id.tolist() == [2, 1, 3]
    assert work.logged_start is not None
    assert work.logged_start.tolist() == [0, 70, 20]
    assert work.dropped == {"no run time": 1}
    assert work.preset == ""


def test_the_folder_tells_the_cluster(write: Callable[..., str]) -> None:
    assert load_workload(write(*LOG, name="Earth/cluster_log.csv")).preset == "helios-earth"


def test_the_four_columns(write: Callable[..., str]) -> None:
    path = write(",".join(SERVICE_HEADER), "363167#0,10.0,172800.0,32", "363167#2,5,60,1")
    assert reader_of(Path(path)).name == "helios"
    work = load_workload(path)
    assert work.preset == "helios-venus"
    assert (work.jobs.submit.tolist(), work.runtime.tolist(), work.jobs.gpus.tolist()) == ([5, 10], [60, 172800], [1, 32])
    assert work.jobs.id.tolist() == [2, 1]


def test_a_wrong_row_is_named(write: Callable[..., str]) -> None:
    with pytest.raises(DataError, match=r"trace\.txt:3: runtime = 'x' is not a number"):
        load_workload(write(",".join(SERVICE_HEADER), "1#1,1,1,1", "2#2,1,x,1"))
