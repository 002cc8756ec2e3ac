from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.public.philly import SHAPE_HEADER, VC_HEADER


def test_the_table_with_virtual_clusters(write: Callable[..., str]) -> None:
    path = write(",".join(VC_HEADER), "2017-10-09 07:01:55,66.0,1,66.0,11cb48", "2017-10-09 07:00:00,10.0,8,80.0,6214e9")
    assert reader_of(Path(path)).name == "philly"
    work = load_workload(path)
    assert (work.jobs.submit.tolist(), work.runtime.tolist(), work.jobs.gpus.tolist()) == ([0, 115], [10, 66], [8, 1])
    assert [work.jobs.partitions[k] for k in work.jobs.partition] == ["6214e9", "11cb48"]
    assert work.preset == "philly"


def test_shapes_are_gpus_that_stay_together(write: Callable[..., str]) -> None:
    rows = ("0,0.0,CLOS,1,1,5.0", "1,1.0,CLOS,8+8,16,5.0", "2,2.0,CLOS,1+3,4,5.0", "3,3.0,CLOS,8,8,0.0")
    path = write(",".join(SHAPE_HEADER), *rows)
    assert reader_of(Path(path)).name == "philly"
    work = load_workload(path)
    assert work.jobs.gpus.tolist() == [1, 16, 4, 8]
    assert work.jobs.chunk.tolist() == [1, 8, 1, 8]
    assert work.jobs.id.tolist() == [0, 1, 2, 3]
    assert work.preset == "philly"


def test_a_shape_beyond_a_machine_is_of_lingjun(write: Callable[..., str]) -> None:
    work = load_workload(write(",".join(SHAPE_HEADER), "0,0.0,CLOS,48,48,720.0", "1,60.0,CLOS,8,8,720.0"))
    assert work.preset == "lingjun2023"
    assert work.jobs.chunk.tolist() == [1, 8]
    assert "1 jobs are larger than a host" in work.notes[0]


@pytest.mark.parametrize("shape", ["8+7", "x", "-16+32", "99999999999", "+", "8+8+"])
def test_a_shape_that_does_not_add_up_is_refused(write: Callable[..., str], shape: str) -> None:
    with pytest.raises(DataError, match=r"trace\.txt:3: shape = .* does not add up to size = 16"):
        load_workload(write(",".join(SHAPE_HEADER), "0,0,CLOS,1,1,5", f"1,0,CLOS,{shape},16,5"))
