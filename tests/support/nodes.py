"""A node under test: a real daemon in its own process, which can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from gpuyard.live.node.client import NodeClient, NodeError
from gpuyard.live.node.jobs import NodeJob, Submission
from gpuyard.live.node.starting import stop_node

SCRIPT = Path(__file__).with_name("node_daemon.py")
COMPILING = 300.0  # s
PATIENCE = 20.0  # s: a machine that tests something else at the same time is slow


def until(true: Callable[[], Any], what: str = "") -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"never came true: {what or true}"
        time.sleep(0.005)
    return found


def clear(folder: Path) -> None:
    """Cancel what is left on a node, and stop its daemon, if one runs."""
    with NodeClient(folder) as client:
        try:
            left = [job.id for job in client.jobs()]
        except NodeError:
            return
        if left:
            client.call("cancel", ids=left)
            client.wait(left, 3 * PATIENCE)
    stop_node(folder)


class TriedNode:
    """Starts, kills and asks the daemon of one folder. It takes first come, first served unless told otherwise: that needs no engine."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.client = NodeClient(folder)
        self.pid = 0
        self._parent = subprocess.Popen(
            [sys.executable, str(SCRIPT), str(folder)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )

    def start(self, *, wait: bool = True, **options: Any) -> TriedNode:
        """Start a daemon; with `wait` it answers before this returns."""
        assert self._parent.stdin is not None
        assert self._parent.stdout is not None
        self._parent.stdin.write(json.dumps({"scheduler": "plain", "cpus": 4, **options}) + "\n")
        self._parent.stdin.flush()
        self.pid = int(self._parent.stdout.readline())
        self.client.close()
        if wait:
            until(self.answers, "the daemon answers")
        return self

    def await_scheduler(self) -> None:
        """Wait until the scheduler has answered once, for which a job must wait; the engine may have to be compiled first."""
        end = time.monotonic() + COMPILING
        while not self.client.call("status")["ready"]:
            assert time.monotonic() < end, "the scheduler is not loaded"
            time.sleep(0.02)

    def answers(self) -> bool:
        try:
            self.client.call("status")
        except NodeError:
            return False
        return True

    def alive(self) -> bool:
        try:
            os.kill(self.pid, 0)
        except ProcessLookupError:
            return False
        return True

    def kill(self) -> None:
        """Kill the daemon with -9, and wait until it is gone."""
        if self.alive():
            os.kill(self.pid, signal.SIGKILL)
        self.gone()

    def gone(self) -> None:
        until(lambda: not self.alive(), "the daemon is gone")
        self.client.close()

    def submit(self, *command: str, **asked: Any) -> int:
        env = {"PATH": os.environ["PATH"], "FOLDER": str(self.folder)}
        return self.client.submit(Submission(command, cwd=str(self.folder), env=env, **asked))[0]

    def shell(self, script: str, **asked: Any) -> int:
        return self.submit("sh", "-c", script, **asked)

    def job(self, number: int) -> NodeJob:
        return self.client.jobs([number])[0]

    def state(self, number: int) -> str:
        return self.job(number).state.value

    def ends(self, *numbers: int) -> Sequence[NodeJob]:
        """Wait until jobs have ended, and return them."""
        until(self.answers, "the daemon answers")
        found = self.client.wait(numbers, PATIENCE)
        assert all(job.state.ended for job in found), [(job.id, job.state.value, job.reason) for job in found]
        return found

    def output(self, number: int) -> str:
        return (self.folder / "jobs" / str(number) / "output.log").read_text()

    def close(self) -> str:
        """Cancel what is left, stop the daemon, and return what it wrote to stderr."""
        if self.alive() and self.answers():
            left = [job.id for job in self.client.jobs()]
            if left:
                self.client.call("cancel", ids=left)
                self.client.wait(left, PATIENCE)
            self.client.call("stop")
        self.kill()
        _, errors = self._parent.communicate()
        return errors
