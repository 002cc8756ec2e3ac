"""What is submitted survives the way to the daemon, and what is out of bounds is refused."""

from __future__ import annotations

import json
import math

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.live.node.api import LONGEST, decode, encode, node_folder
from gpuyard.live.node.jobs import NodeJob, RunState, Submission, job_of, submission_of

FULL = Submission(
    command=("python", "träin.py", "a\nb", "\udcff"), cwd="/tmp", env={"A": "1", "B": "x=y"}, name="run", gpus=0.5, gpu_memory=8.0,
    walltime=60.0, after=(3, 4), array=(1, 5, 9), array_limit=2, retry=2, requeue_lost=True, preemptible=True, signal="USR2", deadline=5e9,
)  # fmt: skip


@pytest.mark.parametrize("asked", [Submission(("true",)), FULL])
def test_a_submission_comes_back_as_it_was_sent(asked):
    sent = decode(encode({"job": asked.plain()}))["job"]
    assert submission_of(sent) == asked
    assert submission_of(json.loads(json.dumps(asked.plain()))) == asked


def test_a_job_comes_back_without_its_environment():
    job = NodeJob(7, FULL, RunState.running, 10.0, devices=("GPU-1",), attempt=2)
    again = job_of(decode(encode(job.plain())))
    assert dict(again.asked.env) == {}
    assert (again.id, again.state, again.devices, again.asked.walltime, again.asked.deadline) == (
        7,
        RunState.running,
        ("GPU-1",),
        60.0,
        5e9,
    )
    assert job_of(NodeJob(1, Submission(("a",)), RunState.done, 0.0).plain()).asked.walltime == math.inf


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({}, "no command"),
        ({"command": "rm -rf /"}, "command"),
        ({"command": ["a"], "gpus": 1.5}, "gpus"),
        ({"command": ["a"], "gpus": math.nan}, "gpus"),
        ({"command": ["a"], "cpus": -1}, "cpus"),
        ({"command": ["a\0b"]}, "NUL"),
        ({"command": ["a" * 200_000]}, "longer"),
        ({"command": ["a"] * 20_000}, "command"),
        ({"command": ["a"], "env": {"A": 1}}, "env"),
        ({"command": ["a"], "env": {"A=B": "1"}}, "env"),
        ({"command": ["a"], "env": []}, "env"),
        ({"command": ["a"], "cwd": "somewhere"}, "absolute"),
        ({"command": ["a"], "signal": "KILL"}, "signal"),
        ({"command": ["a"], "name": "x\x1b[31m"}, "control"),
        ({"command": ["a"], "after": [-1]}, "after"),
        ({"command": ["a"], "walltime": 0}, "walltime"),
        ({"command": ["a"], "wall": 3}, "unknown key"),
        ([], "table"),
    ],
)
def test_what_is_out_of_bounds_is_refused(wrong, told):
    with pytest.raises(GpuyardError, match=told):
        submission_of(wrong)


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b"[" * 100_000, b'{"verb": 1', b"\xff\xfe", b'"a"'])
def test_garbage_is_refused(line):
    with pytest.raises(GpuyardError, match="message"):
        decode(line)


def test_a_message_that_is_too_long_is_refused_before_it_is_sent():
    with pytest.raises(GpuyardError, match="bytes"):
        encode({"verb": "x" * LONGEST})


def test_the_folder_of_the_node(monkeypatch, tmp_path):
    monkeypatch.delenv("GPUYARD_NODE", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    assert node_folder() == tmp_path / "gpuyard" / "node"
    monkeypatch.setenv("GPUYARD_NODE", str(tmp_path / "mine"))
    assert node_folder() == tmp_path / "mine"
    assert node_folder(tmp_path / "other") == tmp_path / "other"
