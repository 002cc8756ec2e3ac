"""Starts shims, keeps an eye on those that run, and asks them to stop. It decides nothing and writes no state of the node."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol

from gpuyard.live.node.jobs import NodeJob
from gpuyard.live.node.running import shim
from gpuyard.live.node.running.attempts import SHIM_LOG, TOKEN, AttemptFiles, Fate, Seen, in_cgroup, job_folder, marked, open_shim

OUTPUT = "output.log"
MOST_FILES = 65_536  # that a daemon opens


def reached(point: str) -> None:
    """Mark a point of the protocol: commit, fork. Tests stop or kill the daemon there."""


class Launcher(Protocol):
    """Starts the shim of an attempt."""

    @property
    def warm(self) -> bool:
        """Return whether it has imported everything."""

    def launch(self, folder: Path, attempt: int) -> Callable[[], bool]:
        """Start a shim; return what tells whether it is surely gone. OSError if it cannot be started."""


class FreshProcess:
    """Starts each shim as a new process."""

    warm = True

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []

    def launch(self, folder: Path, attempt: int) -> Callable[[], bool]:
        command = [sys.executable, "-I", "-S", shim.__file__, str(folder), str(attempt)]
        with (folder / SHIM_LOG).open("ab") as log:
            child = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd="/", start_new_session=True
            )
        self._children = [each for each in self._children if each.poll() is None]
        self._children.append(child)
        return lambda: child.poll() is not None


class Executor:
    """The running attempts of this node."""

    def __init__(self, folder: Path, cgroup: str = "", launchers: Mapping[str, Launcher] | None = None) -> None:
        self.folder = folder  # of all jobs
        self.cgroup = cgroup
        self._files_of_jobs = more_files()
        self._launchers: dict[str, Launcher] = {"": FreshProcess(), **(launchers or {})}
        self._shims: dict[int, int] = {}  # job → pidfd
        self.pids: dict[int, int] = {}  # job → pid of its shim
        self.on_watch: Callable[[int, int], None] = lambda job, file: None  # a pidfd is to be watched
        self.on_forget: Callable[[int], None] = lambda file: None  # … and will be closed
        self._gone: dict[int, Callable[[], bool]] = {}  # job → whether the shim that was started for it is gone

    @property
    def warm(self) -> dict[str, bool]:
        """Return whether each template is ready, by name."""
        return {name: launcher.warm for name, launcher in self._launchers.items() if name}

    def files(self, job: NodeJob) -> AttemptFiles:
        """Return the files of the job's present attempt."""
        return AttemptFiles(self.folder / str(job.id), job.attempt)

    def start(self, job: NodeJob, umask: int, visible: Sequence[str] | None) -> None:
        """Write what the attempt is to run, and start its shim. OSError if the disk or the system refuses; then nothing runs.

        `job` has its environment. `visible` are the UUIDs of its GPUs; None: the machine has none.
        """
        files = AttemptFiles(job_folder(self.folder, job.id), job.attempt)
        data = shim.spec_bytes(self._spec(job, umask, visible))
        part = files.path("spec.part")
        part.unlink(missing_ok=True)
        with part.open("xb") as file:
            part.chmod(0o600)
            file.write(data)
        part.replace(files.path("spec"))
        launcher = self._launchers.get(job.asked.template) or self._launchers[""]
        self._gone[job.id] = launcher.launch(files.folder, job.attempt)
        reached("fork")

    def _spec(self, job: NodeJob, umask: int, visible: Sequence[str] | None) -> dict[str, list[str]]:
        token = token_of(self.folder, job)
        asked, variables = job.asked, _environment(job, token, visible)
        group = f"{self.cgroup}/{token}" if self.cgroup else ""
        return {
            "argv": list(asked.command), "env": [f"{key}={value}" for key, value in variables.items()],
            "cwd": [asked.cwd], "output": [OUTPUT], "output_limit": [str(asked.output_limit)], "walltime": [repr(asked.walltime)],
            "grace": [repr(asked.grace)], "cgroup": [group], "umask": [str(umask)], "files": [str(self._files_of_jobs)],
        }  # fmt: skip

    def look(self, job: NodeJob) -> Seen:
        """Find out what has become of the job's attempt, and watch its shim if it lives."""
        job_folder(self.folder, job.id)  # the daemon may have been killed before it made it
        seen = self.files(job).look()
        if seen.fate is Fate.alive and job.id not in self._shims:
            self._watch(job.id, seen.record)
        return seen

    def look_without_folder(self, job: NodeJob, identity: Mapping[str, Any]) -> Seen:
        """Find out what has become of an attempt that had begun, and whose files somebody has removed; its shim will write new ones."""
        alive = job.id in self._shims or self._watch(job.id, identity)
        return Seen(Fate.alive if alive else Fate.lost, dict(identity))

    def _watch(self, job: int, identity: Mapping[str, Any]) -> bool:
        """Watch the shim that an identity names; return whether it lives."""
        found = open_shim(identity)
        if found >= 0:
            self._shims[job], self.pids[job] = found, int(identity["pid"])
            self.on_watch(job, found)
        return found >= 0

    def gone(self, job: NodeJob) -> bool:
        """Return whether the shim that was started for the job is gone, so that it can be looked into."""
        return job.id in self._gone and self._gone[job.id]()

    def watched(self, job: int) -> int:
        """Return the pidfd of the job's shim, which is readable once that has ended; -1: it is not watched."""
        return self._shims.get(job, -1)

    def forget(self, job: int) -> None:
        """Stop watching a job's shim."""
        self.pids.pop(job, None)
        self._gone.pop(job, bool)()  # reaps it
        if job in self._shims:
            self.on_forget(self._shims[job])
            os.close(self._shims.pop(job))

    def ask_to_stop(self, job: NodeJob, why: str) -> None:
        """Ask the job's shim to end it; asking again does no harm. OSError if it cannot be told now."""
        number = getattr(signal, f"SIG{job.asked.signal}") if why == "preempt" else 0
        self.files(job).ask_to_stop(why, int(number), job.asked.grace)
        with suppress(ProcessLookupError):
            if job.id in self._shims:
                signal.pidfd_send_signal(self._shims[job.id], signal.SIGUSR1)

    def sweep(self, job: NodeJob) -> bool:
        """Kill what a killed shim has left of an attempt; return whether nothing was left."""
        group = self.files(job).cgroup()
        left = marked(token_of(self.folder, job)) | in_cgroup(group)
        left |= shim.descendants(left)
        shim.send(left, signal.SIGKILL)
        if not left and group:
            with suppress(OSError):
                Path(group).rmdir()
        return not left


def more_files() -> int:
    """Let this process open as many files as it may, for each running job takes one; return how many it could, 0: as many as now."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = MOST_FILES if hard == resource.RLIM_INFINITY else min(hard, MOST_FILES)
    if soft == resource.RLIM_INFINITY or soft >= wanted:
        return 0
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    return soft


def token_of(folder: Path, job: NodeJob) -> str:
    """Return what marks the processes of an attempt; no other attempt of any node of the machine has it."""
    return f"{folder.stat().st_ino:x}-{job.id}-{job.attempt}"


def _environment(job: NodeJob, token: str, visible: Sequence[str] | None) -> dict[str, str]:
    """Return the environment as it was submitted, with what the node says. GPUs are named by UUID; an empty list hides all of them."""
    found = dict(job.asked.env)
    found |= {"GPUYARD_JOB": str(job.id), "GPUYARD_ATTEMPT": str(job.attempt), "GPUYARD_PREEMPTIONS": str(job.preemptions)}
    if job.array[0]:
        found |= {"GPUYARD_ARRAY": str(job.array[0]), "GPUYARD_ARRAY_INDEX": str(job.array[1])}
    found[TOKEN] = token
    if visible is not None:
        found |= {"CUDA_VISIBLE_DEVICES": ",".join(visible), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    return found
