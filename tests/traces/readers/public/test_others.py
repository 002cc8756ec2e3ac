"""The small readers: services and others."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from gpuyard.traces import load_workload, reader_of
from gpuyard.traces.readers.public import others


def test_dlrm(write: Callable[..., str]) -> None:
    path = write(
        ",".join(others.INSTANCE_HEADER),
        "i0,HN,app_0,12,12,1,1,25,25,120.0,120.0,640.0,800.0,8,10,12,112",
        "i1,CN,app_1,64,64,0,0,1,1,400.0,400.0,255.0,300.0,2,5.5,6.5,7.5",
        "i2,CN,app_1,64,64,0,0,1,1,400.0,400.0,255.0,300.0,2,,,7",
        "i3,CN,app_1,64,64,0,0,1,1,400.0,400.0,255.0,300.0,2,3,3,",
    )
    assert reader_of(Path(path)).name == "dlrm2025"
    work = load_workload(path)
    assert (work.jobs.submit.tolist(), work.runtime.tolist()) == ([5.5, 10], [1, 100])
    assert (work.jobs.gpus.tolist(), work.jobs.cpus.tolist()) == ([0, 1], [64, 12])
    assert work.jobs.memory.tolist() == pytest.approx([429.4967296, 128.8490189])
    assert [work.jobs.users[k] for k in work.jobs.user] == ["app_1", "app_0"]
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["CN", "HN"]
    assert work.dropped == {"no submit time": 1, "no run time": 1}


def test_requests(write: Callable[..., str]) -> None:
    path = write(
        ",".join(others.REQUEST_HEADER) + ",prompt_length",
        "2024-11-15 16:57:50,TXT_2_IMG,SUCCEED,32.0,G0,63.0",
        "2024-11-15 16:57:40,IMG_2_IMG,FAILED,0.0,G1,",
        "2024-11-15 16:57:55,TXT_2_IMG,PENDING,0.0,G0,63.0",
    )
    assert reader_of(Path(path)).name == "genai2026"
    work = load_workload(path)
    assert (work.jobs.submit.tolist(), work.runtime.tolist(), work.jobs.gpus.tolist()) == ([0, 10], [0, 32], [1, 1])
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["IMG_2_IMG", "TXT_2_IMG"]
    assert work.dropped == {"had not ended": 1}


def test_rlmetadqn(write: Callable[..., str]) -> None:
    path = write(",".join(others.META_HEADER), "LLM_TRAIN_job_000,sleep 71,4306.41,9447,0,621.5", "EVAL_job_001,sleep 2,60,107,2,51")
    assert reader_of(Path(path)).name == "rlmetadqn"
    work = load_workload(path)
    assert (work.jobs.submit.tolist(), work.runtime.tolist()) == ([51, 621.5], [60, 4306.41])
    assert work.jobs.deadline.tolist() == [158, 10068.5]
    assert work.jobs.priority.tolist() == [2, 0]
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["EVAL", "LLM_TRAIN"]
    assert work.preset == "rlmetadqn"


def test_rubick(write: Callable[..., str]) -> None:
    path = write(
        ",".join(others.RUBICK_HEADER), "vit-0,0,3163.5,vit,2,16,0,zero-dp,37239,0", "llama30-1,9,142,llama30,48,384,1.25,344,64,1"
    )
    assert reader_of(Path(path)).name == "rubick"
    work = load_workload(path)
    np.testing.assert_array_equal(work.runtime, [3163.5, 142])
    assert (work.jobs.gpus.tolist(), work.jobs.cpus.tolist(), work.jobs.priority.tolist()) == ([2, 48], [16, 384], [0, 1])
    assert [work.jobs.classes[k] for k in work.jobs.job_class] == ["vit", "llama30"]
