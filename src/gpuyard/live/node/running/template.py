"""A warm process that has imported what takes long, and forks the shims of jobs.

A job that needs PyTorch spends seconds on importing it. The template has imported it already, without touching a GPU, and forks a shim,
which takes the lock and forks the job as every shim does; the job then runs its Python program in place. So the protocol of a fresh
process holds, and the shim outlives the template and the daemon. A command that is not Python is started as usual, by exec.

Requests come through a socket as lines, `FOLDER ATTEMPT` in JSON, and each is answered with the number of the shim's process.
"""

from __future__ import annotations

import ctypes
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib import import_module
from pathlib import Path

from gpuyard.live.node.running import shim
from gpuyard.live.node.running.attempts import SHIM_LOG
from gpuyard.live.node.running.executor import FreshProcess

ANSWER = 5.0  # s that a fork may take; then the shim is started afresh, and the lock lets only one of the two run
WARM = b"warm\n"
MOST = 65_536  # bytes of a message
_SET_PDEATHSIG = 1
# Libraries that PyTorch loads when it first computes on a GPU; loading them touches no GPU and takes the better part of a second.
_LATE = ("libcublasLt.so", "libcublas.so", "libcudnn.so", "libcudnn_ops.so", "libcudnn_cnn.so", "libcudnn_adv.so", "libcudnn_graph.so",
         "libcudnn_engines_precompiled.so", "libcudnn_engines_runtime_compiled.so", "libcudnn_heuristic.so", "libnvrtc.so")  # fmt: skip


class WarmTemplate:
    """Starts shims by a warm process (`gpuyard.live.node.running.executor.Launcher`); while it is not warm or is gone, as new processes."""

    def __init__(self, modules: Sequence[str], log: Path) -> None:
        self.modules = tuple(modules)
        self._fresh = FreshProcess()
        mine, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._channel = mine
        command = [sys.executable, "-m", "gpuyard.live.node.running.template", str(other.fileno()), *modules]
        paths = [str(Path(each).absolute()) for each in os.environ.get("PYTHONPATH", "").split(os.pathsep) if each]
        variables = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}  # the process runs in another folder
        with other, log.open("ab") as stream:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=stream,
                stderr=stream,
                cwd="/",
                env=variables,
                pass_fds=(other.fileno(),),
                start_new_session=True,
            )
        self._warm = False

    @property
    def warm(self) -> bool:
        """Return whether everything has been imported, and the process lives."""
        if not self._warm:
            with suppress(OSError):
                self._warm = self._channel.recv(MOST, socket.MSG_DONTWAIT) == WARM
        return self._warm and self._process.poll() is None

    def launch(self, folder: Path, attempt: int) -> Callable[[], bool]:
        """Start a shim; return what tells whether it is surely gone."""
        if not self.warm:
            return self._fresh.launch(folder, attempt)
        try:
            self._channel.settimeout(ANSWER)
            self._channel.send(json.dumps([str(folder), attempt]).encode())
            pid, started = json.loads(self._channel.recv(MOST))
        except (OSError, ValueError):
            self.close()
            return self._fresh.launch(folder, attempt)
        return lambda: not _lives(pid, started)

    def close(self) -> None:
        """End the process; the shims that it has forked go on."""
        self._warm = False
        self._channel.close()
        self._process.kill()
        self._process.wait()


def _lives(pid: int, started: int) -> bool:
    """Return whether a process that began at that time lives and is more than an exit code that nobody has read."""
    return bool(started) and shim.start_time(pid) == started and pid in shim.parents()


# ── the process ──


def main(arguments: Sequence[str]) -> int:
    """Import the modules, say that it is warm, and fork a shim for each request until the daemon is gone."""
    ctypes.CDLL(None).prctl(_SET_PDEATHSIG, signal.SIGKILL)
    channel = socket.socket(fileno=int(arguments[0]))
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for name in arguments[1:]:
        import_module(name)
    _load_late()
    channel.send(WARM)
    while request := channel.recv(MOST):
        folder, attempt = json.loads(request)
        pid = _fork_shim(channel, str(folder), int(attempt))
        channel.send(json.dumps([pid, shim.start_time(pid)]).encode())
        _reap()
    return 0


def _fork_shim(channel: socket.socket, folder: str, attempt: int) -> int:
    """Fork a shim that supervises the attempt, and return its number."""
    _reap()
    pid = os.fork()
    if pid:
        return pid
    try:
        channel.close()
        os.setsid()
        ctypes.CDLL(None).prctl(_SET_PDEATHSIG, 0)
        log = os.open(f"{folder}/{SHIM_LOG}", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        os._exit(shim.supervise(folder, attempt, run_program))
    except BaseException:
        traceback.print_exc()
    os._exit(shim.BROKEN)


def _reap() -> None:
    """Take the exit codes of shims that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def _load_late() -> None:
    """Load what PyTorch loads late, from the folders beside what it has loaded already."""
    try:
        lines = Path("/proc/self/maps").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return
    loaded = [line.rpartition(" ")[2] for line in lines if line.endswith(".so") or ".so." in line]
    folders = {Path(path).parent for path in loaded if "cu" in Path(path).name or "nv" in path}
    for name in _LATE:
        found = next((path for folder in sorted(folders) for path in sorted(folder.glob(f"{name}*"))), None)
        if found is not None:
            with suppress(OSError):
                ctypes.CDLL(str(found))


def run_program(spec: shim.Spec) -> None:
    """Run the job's Python program in this process, or its command by exec; the environment and the folder are the job's already."""
    words = spec.argv[1:]
    if not Path(spec.argv[0]).name.startswith("python") or not words or (words[0].startswith("-") and words[0] != "-m"):
        os.execvpe(spec.argv[0], spec.argv, spec.env)
    code = 1
    try:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(line_buffering=True)  # type: ignore[union-attr]
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if words[0] == "-m":
            sys.argv = words[1:]
            sys.path.insert(0, spec.cwd)
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            sys.argv = words
            sys.path.insert(0, str(Path(words[0]).absolute().parent))
            runpy.run_path(words[0], run_name="__main__")
        code = 0
    except SystemExit as asked:
        code = _exit_code(asked.code)
    except BaseException:
        traceback.print_exc()
    with suppress(OSError, ValueError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


def _exit_code(said: object) -> int:
    """Return the exit code that Python makes of what `sys.exit` was given."""
    if said is None or isinstance(said, int):
        return (said or 0) & 0xFF
    sys.stderr.write(f"{said}\n")
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
