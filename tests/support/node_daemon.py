"""Daemons that a test can kill at a named point of the protocol, and shims that wait there: `python node_daemon.py FOLDER`.

Each line of stdin is the options of a daemon, as JSON; it is forked off, so that a start takes some 10 ms, and its pid is printed.
Options are the settings, `die` (a point of the daemon: commit, fork), `pause` (a point of the shim: begin, lock, identity, exec,
exit-record), `gpus` (a file with readings, which is read again and again), `boot` (the id of the machine's boot) and `clock` (s that the
machine's clock is ahead). A shim that pauses makes FOLDER/paused and goes on once that is gone.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import fields
from pathlib import Path

from gpuyard.errors import GpuyardError
from gpuyard.live.node.core import NodeSettings
from gpuyard.live.node.daemon import serve
from gpuyard.live.node.devices import GpuProcess, GpuReading, GpuUse, NoGpus
from gpuyard.live.node.running import attempts, executor, lifecycle, shim

PAUSING = """
import importlib.util, os, sys, time
spec = importlib.util.spec_from_file_location("shim", {shim!r})
shim = importlib.util.module_from_spec(spec)
spec.loader.exec_module(shim)
def reached(point):
    if point == {point!r}:
        open({flag!r}, "w").close()
        while os.path.exists({flag!r}):
            time.sleep(0.002)
shim.reached = reached
sys.exit(shim.main(sys.argv[1:]))
"""


class PausingShims:
    """Starts shims that wait at a point of the protocol."""

    def __init__(self, point: str, flag: Path) -> None:
        self._program = PAUSING.format(shim=shim.__file__, point=point, flag=str(flag))

    def launch(self, folder: Path, attempt: int) -> Callable[[], bool]:
        command = [sys.executable, "-I", "-S", "-c", self._program, str(folder), str(attempt)]
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, start_new_session=True)
        return lambda: child.poll() is not None


class GpusOfFile:
    """Reads GPUs from a JSON file: a list of readings."""

    problem = ""

    def __init__(self, path: Path) -> None:
        self._path = path

    def latest(self) -> Sequence[GpuReading]:
        found = json.loads(self._path.read_text())
        return [GpuReading(**each | {"processes": tuple(GpuProcess(**p) for p in each.get("processes", ()))}) for each in found]

    def began(self, job: int, uuids: Sequence[str]) -> None:
        return

    def ended(self, job: int) -> GpuUse:
        return GpuUse(joules=5.0)

    def close(self) -> None:
        return


def run(folder: Path, options: dict[str, object]) -> None:
    """Serve until told to stop, or until the point where it dies."""

    def reached(point: str) -> None:
        if point == options.get("die"):
            os.kill(os.getpid(), signal.SIGKILL)

    executor.reached = reached
    if "boot" in options:
        attempts.boot_id = lifecycle.boot_id = lambda: str(options["boot"])
    true_time, ahead = time.time, float(str(options.get("clock", 0.0)))
    time.time = lambda: true_time() + ahead
    known = {each.name for each in fields(NodeSettings)}
    settings = NodeSettings(**{name: value for name, value in options.items() if name in known})  # type: ignore[arg-type]
    launchers = {"": PausingShims(str(options["pause"]), folder / "paused")} if "pause" in options else None
    gpus = GpusOfFile(Path(str(options["gpus"]))) if "gpus" in options else NoGpus()
    try:
        serve(folder, settings, gpus, launchers)
    except GpuyardError as error:
        sys.stderr.write(f"error: {error}\n")
        sys.stderr.flush()
        os._exit(error.exit_code)


def main(folder: Path) -> None:
    """Fork a daemon for each line of stdin."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # as a careless parent does: it is inherited
    for line in sys.stdin:
        pid = os.fork()
        if pid == 0:
            run(folder, json.loads(line))
            os._exit(0)
        sys.stdout.write(f"{pid}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
