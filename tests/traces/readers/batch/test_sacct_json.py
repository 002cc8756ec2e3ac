"""`sacct --json`, old and new schema."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import DataError
from gpuyard.model.units import MIB
from gpuyard.model.workload import Workload
from gpuyard.traces import Limits, load_workload
from gpuyard.traces.base import reader_of


def tres(**counts: float) -> list[dict[str, Any]]:
    known = {"gpu": ("gres", "gpu"), "a100": ("gres", "gpu:a100")}
    return [{"type": known.get(k, (k, None))[0], "name": known.get(k, (k, None))[1], "id": 1, "count": n} for k, n in counts.items()]


def job(number: int, **other: Any) -> dict[str, Any]:
    times = {"submission": 1_700_000_000, "start": 1_700_000_060, "end": 1_700_000_160, "elapsed": 100, "limit": 30}
    both = {"allocated": tres(cpu=8, mem=2048, node=2, gpu=4, a100=4), "requested": tres(cpu=8, mem=2048, node=2, gpu=4, a100=4)}
    about = {
        "account": "lab",
        "user": "ann",
        "partition": "p",
        "qos": "q",
        "priority": 7,
        "nodes": "n[1-2]",
        "state": {"current": "COMPLETED"},
    }
    return {"job_id": number, "time": times, "tres": both, **about, **other}


def newer(value: float) -> dict[str, Any]:
    return {"set": True, "infinite": False, "number": value}


def save(path: Path, *jobs: dict[str, Any], **top: Any) -> Path:
    path.write_text(json.dumps({"meta": {"Slurm": {"release": "22.05.8"}}, "jobs": list(jobs), "errors": [], **top}), encoding="utf-8")
    return path


def read(tmp_path: Path, *jobs: dict[str, Any]) -> Workload:
    path = save(tmp_path / "listing", *jobs)
    assert reader_of(path).name == "sacct-json"
    return load_workload(str(path))


def test_the_columns_of_a_job(tmp_path: Path) -> None:
    workload = read(tmp_path, job(5))
    jobs = workload.jobs
    assert (jobs.id[0], jobs.gpus[0], jobs.cpus[0], jobs.memory[0], jobs.walltime[0], jobs.priority[0]) == (5, 4, 8, 2048 * MIB, 1800, 7)
    assert (workload.runtime[0], jobs.users, jobs.gpu_types, jobs.qoses) == (100, ("ann",), ("a100",), ("q",))
    assert [(m.name, m.gpus, m.cpus) for m in workload.machines] == [("n1", 2, 4), ("n2", 2, 4)]


def test_the_newer_schema(tmp_path: Path) -> None:
    times = {"submission": 1_700_000_000, "start": 1_700_000_060, "end": 1_700_000_160, "elapsed": 100, "limit": newer(30)}
    recent = job(5, time=times, priority=newer(7), state={"current": ["COMPLETED"], "reason": "None"})
    assert read(tmp_path, recent).jobs == read(tmp_path, job(5)).jobs
    endless = {**times, "limit": {"set": False, "infinite": True, "number": 0}}
    assert read(tmp_path, job(5, time=endless)).jobs.walltime[0] == math.inf


def test_requeued_runs_arrays_and_jobs_that_did_not_run(tmp_path: Path) -> None:
    later = {"submission": 1_700_000_200, "start": 1_700_000_260, "end": 1_700_000_300, "elapsed": 40, "limit": 30}
    never = {"submission": 1_700_000_200, "start": 0, "end": 1_700_000_300, "elapsed": 0, "limit": 30}
    cancelled = job(6, time=never, nodes="None assigned", state={"current": "CANCELLED"})
    running = job(7, state={"current": ["RUNNING"]})
    workload = read(tmp_path, job(5, state={"current": "REQUEUED"}), job(5, time=later), cancelled, running)
    assert workload.jobs.id.tolist() == [5, 6]
    assert workload.runtime.tolist() == [100, 40]
    assert dict(workload.dropped) == {"still running": 1, "never started": 1}
    task = {"job_id": 20, "task_id": 3}
    assert read(tmp_path, job(21, array=task), job(20, array={**task, "task_id": newer(4)})).jobs.id.tolist() == [21, 20]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"jobs": [', "the text breaks off|Expecting value"),
        ('{"jobs": [{"job_id": 1}, 5]}', "a job is not a JSON object"),
        ('{"jobs": [{"job_id": "x"}]}', "a job without a job_id"),
        ('{"jobs": [{"job_id": NaN}]}', "NaN is not a number"),
        ('{"jobs": []}', "no jobs in the file"),
        ("[1]", "'{' expected"),
        ('{"jobs": ' + "[" * 200_000, "nested too deeply"),
        ('{"jobs": [{"job_id": ' + "9" * 10_000 + "}]}", "not JSON"),
        ('{"a": 1}', "no jobs in the file"),
    ],
)
def test_what_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "sacct.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=message):
        load_workload(str(path), reader="sacct-json")


def test_limits(tmp_path: Path) -> None:
    path = save(tmp_path / "sacct.json", job(1), job(2))
    with pytest.raises(DataError, match="more than 100 bytes"):
        load_workload(str(path), limits=Limits(size=100))
    with pytest.raises(DataError, match="more than 1 jobs"):
        load_workload(str(path), limits=Limits(rows=1))
