"""One attempt of a job under test: its shim as a process of its own, its files, and who is left of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuyard.live.node.running import shim
from gpuyard.live.node.running.attempts import AttemptFiles, Seen, job_folder

PATIENCE = 30.0  # s: a machine that tests something else at the same time is slow


def until(true: Callable[[], Any], what: str = "") -> Any:
    """Wait until something is true, and return it."""
    end = time.monotonic() + PATIENCE
    while not (found := true()):
        assert time.monotonic() < end, f"never came true: {what or true}"
        time.sleep(0.005)
    return found


def carrying(tag: str) -> list[int]:
    """Return the processes that have a text among their arguments."""
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if tag.encode() in Path(entry.path, "cmdline").read_bytes():
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


class TriedAttempt:
    """The first attempt of a job, with a spec of its own."""

    def __init__(self, jobs: Path, number: int, argv: list[str], **asked: str) -> None:
        self.files = AttemptFiles(job_folder(jobs, number), 1)
        values = {
            "env": [f"PATH={os.environ['PATH']}", f"FOLDER={jobs}", "A=1"], "cwd": [str(jobs)], "output": ["output.log"],
            "output_limit": ["1000000"], "walltime": ["inf"], "grace": ["5.0"], "cgroup": [""], "umask": ["18"],
        }  # fmt: skip
        self.files.path("spec").write_bytes(shim.spec_bytes({"argv": argv, **values, **{name: [text] for name, text in asked.items()}}))

    def start(self, **options: Any) -> subprocess.Popen[bytes]:
        """Start the shim."""
        command = [sys.executable, "-I", "-S", shim.__file__, str(self.files.folder), "1"]
        return subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True, **options)

    def run(self, **options: Any) -> Mapping[str, Any]:
        """Run it to its end, and return what is on record."""
        assert self.start(**options).wait(PATIENCE) == shim.ENDED
        return self.look().record

    def look(self) -> Seen:
        return self.files.look()

    def begun(self) -> int:
        """Wait until the command runs, and return the shim's pid."""
        pid = int(until(self.files.identity)["pid"])
        until(lambda: shim.descendants({pid}), "the command runs")
        return pid

    def stop(self, why: str, number: int, grace: float) -> None:
        """Tell it to end early."""
        self.files.ask_to_stop(why, number, grace)
        os.kill(int(self.files.identity()["pid"]), signal.SIGUSR1)

    @property
    def output(self) -> str:
        return (self.files.folder / "output.log").read_text()
