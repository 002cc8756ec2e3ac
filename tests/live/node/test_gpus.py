"""What jobs get of the GPUs, who keeps them from it, and what `why` says: with readings from a file, under a scheduler of the registry."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from gpuyard.errors import GpuyardError
from gpuyard.live.node.jobs import Submission
from support.nodes import TriedNode, until

GO = "while ! test -e $FOLDER/go; do sleep 0.02; done"


class FakedGpus:
    """The file that a daemon under test reads its GPUs from."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows = [{"index": k, "uuid": f"GPU-{k}", "name": "NVIDIA A100", "memory": 80.0, "free": 80.0} for k in range(2)]
        self.set(0)

    def set(self, number: int, **facts: Any) -> None:
        """Change one GPU; what is not named is as usual."""
        usual = {"free": 80.0, "lost": "", "processes": []}
        self.rows[number] |= usual | facts
        part = self.path.with_suffix(".part")
        part.write_text(json.dumps(self.rows))
        part.replace(self.path)


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[TriedNode, FakedGpus]]:
    """A node with two GPUs, each of which two jobs may share."""
    folder = tmp_path_factory.mktemp("gpus")
    gpus = FakedGpus(folder / "gpus.json")
    node = TriedNode(folder / "node").start(gpus=str(gpus.path), share=2, scheduler="fcfs/fewest/easy", cpus=8)
    jobs = [node.shell("sleep 60") for _ in range(3)]
    node.await_scheduler()
    node.client.call("cancel", ids=jobs)
    node.ends(*jobs)
    yield node, gpus
    assert "Traceback" not in node.close()


@pytest.fixture
def gpus(started: tuple[TriedNode, FakedGpus]) -> Iterator[FakedGpus]:
    yield started[1]
    for number in (0, 1):
        started[1].set(number)


@pytest.fixture
def node(started: tuple[TriedNode, FakedGpus], gpus: FakedGpus) -> Iterator[TriedNode]:
    """The node, with nothing to do; its scheduler must have been the one that was asked for all the time."""
    tried = started[0]
    yield tried
    (tried.folder / "go").touch()
    tried.client.call("cancel", ids=[job.id for job in tried.client.jobs()])
    until(lambda: not tried.client.jobs(), "every job has ended")
    (tried.folder / "go").unlink()
    status = tried.client.call("status")
    assert (status["used"], status["trouble"]) == ("fcfs/fewest/easy", "")


@contextmanager
def stranger(node: TriedNode, gpus: FakedGpus, number: int) -> Iterator[int]:
    """Let a process of somebody else use a GPU for the block; the node has noticed it when the block begins."""
    with subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"]) as process:
        gpus.set(number, processes=[{"pid": process.pid, "memory": 10.0}])
        try:
            until(lambda: node.client.call("status")["devices"][number]["state"] == "gpu-foreign", "the node has seen the stranger")
            yield process.pid
        finally:
            process.kill()


def running(node: TriedNode, *numbers: int) -> None:
    until(lambda: all(node.state(number) == "RUNNING" for number in numbers), f"jobs {numbers} run")


def why(node: TriedNode, number: int) -> str:
    return str(node.client.call("why", id=number)["reason"])


def devices(node: TriedNode, number: int) -> tuple[str, ...]:
    return node.job(number).devices


def test_a_job_sees_its_gpus_by_uuid_and_no_others(node):
    show = "echo $CUDA_VISIBLE_DEVICES,$CUDA_DEVICE_ORDER"
    env = {"PATH": os.environ["PATH"], "CUDA_VISIBLE_DEVICES": "7"}
    asked = {"one": {}, "two": {"gpus": 2}, "none": {"gpus": 0}, "part": {"gpus": 0.5}}
    jobs = {name: node.client.submit(Submission(("sh", "-c", show), env=env, **more))[0] for name, more in asked.items()}
    node.ends(*jobs.values())
    said = {name: node.output(number).strip() for name, number in jobs.items()}
    assert said["two"] == "GPU-0,GPU-1,PCI_BUS_ID"
    assert said["none"] == ",PCI_BUS_ID"
    assert {said["one"], said["part"]} <= {"GPU-0,PCI_BUS_ID", "GPU-1,PCI_BUS_ID"}
    assert node.job(jobs["two"]).energy == 5.0


def test_two_jobs_share_a_gpu_and_a_third_waits_for_room(node):
    whole, first, second = node.shell(GO), node.shell(GO, gpus=0.5), node.shell(GO, gpus=0.5)
    running(node, whole, first, second)
    assert devices(node, first) == devices(node, second) != devices(node, whole)
    third = node.shell(GO, gpus=0.5)
    until(lambda: why(node, third) == "it is next and waits for 0.5 GPU; 0 free")
    node.client.call("cancel", ids=[first])
    running(node, third)
    assert devices(node, third) == devices(node, second)


def test_processes_of_others_keep_a_gpu_and_why_says_so(node, gpus):
    with stranger(node, gpus, 0) as pid:
        both, one, next_one = node.shell(GO, gpus=2), node.shell(GO), node.shell(GO)
        running(node, one)
        assert devices(node, one) == ("GPU-1",)
        told = f"GPU 0 (process {pid} of others)"
        until(lambda: why(node, both) == f"processes of others use the GPUs that it could have: {told}")
        until(lambda: why(node, next_one) == f"it is next and waits for 1 GPU; 0 free; not in use: {told}")
        node.client.call("cancel", ids=[both])  # else it would be the first
    running(node, next_one)


def test_a_stranger_on_the_gpu_of_a_job_harms_nobody(node, gpus):
    """Its other half stays empty, and the scheduler goes on."""
    half = node.shell(GO, gpus=0.5)
    running(node, half)
    mine = int(devices(node, half)[0][-1])
    with stranger(node, gpus, mine):
        whole, other = node.shell(GO), node.shell(GO, gpus=0.5)
        running(node, whole)
        assert devices(node, whole) == (f"GPU-{1 - mine}",)
        assert node.state(other) == "PENDING"
    running(node, other)


HEADLESS = """
import ctypes, os, pathlib, sys, threading, time
def rest():
    while not os.path.exists(sys.argv[1]):
        time.sleep(0.02)
    os._exit(0)
threading.Thread(target=rest).start()
print(os.getpid(), flush=True)
ctypes.CDLL(None).syscall(60 if os.uname().machine == "x86_64" else 93, 0)  # exit: of this thread alone
"""


def test_a_job_whose_first_thread_has_ended_is_no_stranger(node, gpus):
    """A process that leaves a GPU reads as dead for a while, as its other threads are still at it."""
    job = node.client.submit(Submission((sys.executable, "-c", HEADLESS, str(node.folder / "go")), env=dict(os.environ)))[0]
    running(node, job)
    until(lambda: node.output(job).strip(), "it has said its number")
    pid = int(node.output(job))
    until(lambda: Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z", "its first thread has ended")
    mine = int(devices(node, job)[0][-1])
    gpus.set(mine, free=70.0, processes=[{"pid": pid, "memory": 10.0}])
    until(lambda: node.client.call("status")["devices"][mine]["free"] == 70.0, "the node has seen it")
    assert node.client.call("status")["devices"][mine]["state"] != "gpu-foreign"
    node.client.call("cancel", ids=[job])
    until(lambda: not Path(f"/proc/{pid}").exists(), "it has ended")


def test_a_job_fits_by_free_memory(node, gpus):
    gpus.set(0, free=20.0)
    gpus.set(1, free=30.0)
    until(lambda: [each["free"] for each in node.client.call("status")["devices"]] == [20.0, 30.0], "the node has seen it")
    small, large = node.shell(GO, gpu_memory=25.0), node.shell(GO, gpu_memory=60.0)
    running(node, small)
    assert devices(node, small) == ("GPU-1",)
    until(lambda: why(node, large) == "no GPU has as much free memory as it asks for: 60 GB; the most that is free is 20.0 GB")
    gpus.set(0, free=61.0)
    running(node, large)
    with pytest.raises(GpuyardError, match="gpu_memory = 90 GB: this node has 80 GB"):
        node.shell(GO, gpu_memory=90.0)


def test_a_gpu_that_falls_off_the_bus_gets_no_more_jobs(node, gpus):
    job = node.shell(GO)
    running(node, job)
    mine = int(devices(node, job)[0][-1])
    gpus.set(mine, lost="fell off the bus")
    both = node.shell(GO, gpus=2)
    until(lambda: why(node, both) == f"too few GPUs are in working order: GPU {mine} (fell off the bus)")
    other = node.shell(GO)
    running(node, other)
    assert devices(node, other) == (f"GPU-{1 - mine}",)
    (node.folder / "go").touch()
    node.ends(job, other)
    assert node.state(both) == "PENDING"
    gpus.set(mine)
    assert node.ends(both)[0].devices == ("GPU-0", "GPU-1")
