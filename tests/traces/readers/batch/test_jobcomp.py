"""jobcomp/filetxt logs."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuyard.errors import DataError
from gpuyard.model.units import GIB
from gpuyard.traces import load_workload
from gpuyard.traces.base import reader_of

LINE = (
    "JobId=3 UserId=ann(1000) GroupId=lab(7) Name=a b JobState=COMPLETED Partition=p TimeLimit=5 StartTime=2024-01-01T00:00:10"
    " EndTime=2024-01-01T00:01:10 NodeList=n[1-2] NodeCnt=2 ProcCnt=8 WorkDir=/x y Tres=cpu=8,mem=2G,node=2,gres/gpu:a100=4"
    " Account=acc QOS=q WcKey= Cluster=c SubmitTime=2024-01-01T00:00:00 EligibleTime=2024-01-01T00:00:00 DerivedExitCode=0:0 ExitCode=0:0 "
)


def test_a_line(tmp_path: Path) -> None:
    path = tmp_path / "log"
    path.write_text(
        LINE + "\n\n" + LINE.replace("JobId=3", "JobId=4").replace("TimeLimit=5", "TimeLimit=UNLIMITED") + "\n", encoding="utf-8"
    )
    assert reader_of(path).name == "jobcomp"
    workload = load_workload(str(path))
    jobs = workload.jobs
    assert jobs.id.tolist() == [3, 4]
    assert (jobs.gpus[0], jobs.cpus[0], jobs.memory[0], workload.runtime[0]) == (4, 8, 2 * GIB, 60)
    assert jobs.walltime.tolist() == [300, float("inf")]
    assert (jobs.users, jobs.accounts, jobs.qoses, jobs.partitions, jobs.gpu_types) == (("ann",), ("acc",), ("q",), ("p",), ("a100",))
    assert [(m.name, m.gpus) for m in workload.machines] == [("n1", 4), ("n2", 4)]


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("JobId=3", "JobId=x", "no JobId"),
        ("TimeLimit=5", "TimeLimit=x", "TimeLimit = 'x'"),
        ("ProcCnt=8", "ProcCnt=-8", "ProcCnt = '-8' is not a count"),
    ],
)
def test_wrong_values(tmp_path: Path, old: str, new: str, message: str) -> None:
    path = tmp_path / "jobcomp.log"
    path.write_text(LINE.replace(old, new) + "\n", encoding="utf-8")
    with pytest.raises(DataError, match=f"jobcomp.log:1: {message}"):
        load_workload(str(path), reader="jobcomp")
