"""The files of an attempt, read from outside: what has become of it, whoever started it and whatever has died since.

The lock is the authority. Whoever holds it is the attempt's shim, or somebody who looks; while one looks, no shim can begin.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import stat
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

from gpuyard.live.node.running.shim import Spec, boot_id, start_time, write_whole

TOKEN = "GPUYARD_TOKEN"  # variable that marks the processes of an attempt
SHIM_LOG = "shim.log"
MOST_BYTES = 65_536  # of a record


class Fate(Enum):
    """The fate of an attempt."""

    settling = "settling"  # its shim is about to say who it is
    alive = "alive"
    ended = "ended"  # the end is on record
    lost = "lost"  # it began, and nobody wrote how it ended
    unborn = "unborn"  # it never began, and never will: it is fenced


@dataclass(frozen=True)
class Seen:
    """An attempt as it was found."""

    fate: Fate
    record: dict[str, Any]  # the end, or else the identity


@dataclass(frozen=True)
class AttemptFiles:
    """The files of one attempt in the folder of its job."""

    folder: Path
    attempt: int

    def path(self, kind: str) -> Path:
        return self.folder / f"{self.attempt}.{kind}"

    def look(self) -> Seen:
        """Find out what has become of it. What has never begun is fenced on the way, so that a late shim refuses to start."""
        with self._lock() as mine:
            if not mine:
                identity = self._read("id")
                return Seen(Fate.alive if identity else Fate.settling, identity)
            end = self._read("end")
            if end:
                return Seen(Fate.ended, end)
            identity = self._read("id")
            if identity:
                return Seen(Fate.lost, identity)
            write_whole(str(self.path("fence")), f"{os.getpid()}\n")
            return Seen(Fate.unborn, {})

    def identity(self) -> dict[str, Any]:
        """Return who runs it; empty if nobody has said so yet."""
        return self._read("id")

    def cgroup(self) -> str:
        """Return the control group that it was to run in; empty if there is none. Another daemon may have named it."""
        try:
            return Spec.read(str(self.path("spec"))).cgroup
        except (OSError, ValueError, LookupError):
            return ""

    def last_words(self) -> str:
        """Return the last line of what its shim complained of."""
        try:
            with (self.folder / SHIM_LOG).open("rb") as file:
                file.seek(max(file.seek(0, os.SEEK_END) - 1000, 0))
                said = file.read().decode("utf-8", "replace").strip().splitlines()
        except OSError:
            return ""
        return "".join(letter if letter.isprintable() else "?" for letter in said[-1][:300]) if said else ""

    def ask_to_stop(self, why: str, number: int, grace: float) -> None:
        """Write why it is to end early; a signal must follow."""
        write_whole(str(self.path("stop")), f"{why} {number} {grace!r}\n")

    @contextmanager
    def _lock(self) -> Iterator[bool]:
        """Hold the lock for the block, and yield whether that was possible."""
        file = os.open(self.path("lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                yield False
            else:
                yield True
        finally:
            os.close(file)

    def _read(self, kind: str) -> dict[str, Any]:
        """Return a record; empty if there is none, or none that can be read."""
        try:
            with self.path(kind).open("rb") as file:
                found = json.loads(file.read(MOST_BYTES))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def open_shim(identity: Mapping[str, Any]) -> int:
    """Return a pidfd of the shim that this identity names; -1 if it is gone, or its number belongs to another process by now."""
    pid, started = identity.get("pid"), identity.get("started")
    if not isinstance(pid, int) or identity.get("boot") != boot_id():
        return -1
    try:
        found = os.pidfd_open(pid)
    except OSError:
        return -1
    if start_time(pid) != started:
        os.close(found)
        return -1
    return found


def began_since(folder: Path, attempt: int) -> bool:
    """Return whether a shim has begun an attempt after this one, as the folder of a job says after a power failure."""
    return any(each.name.removesuffix(".id").isdigit() and int(each.name.removesuffix(".id")) > attempt for each in folder.glob("*.id"))


def last_folder(jobs: Path) -> int:
    """Return the highest number of a job that has a folder; 0: none has. A power failure may have cost the database its last second."""
    with suppress(OSError), os.scandir(jobs) as entries:
        return max((int(each.name) for each in entries if each.name.isascii() and each.name.isdigit() and len(each.name) < 16), default=0)
    return 0


def job_folder(jobs: Path, number: int) -> Path:
    """Make the folder of a job, or accept it where it is one of ours: neither a link nor open to others."""
    jobs.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = jobs / str(int(number))
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        about = folder.lstat()
        if not stat.S_ISDIR(about.st_mode) or about.st_uid != os.geteuid():
            raise NotADirectoryError(errno.ENOTDIR, "not a folder of this node", str(folder)) from None
        if about.st_mode & 0o077:
            folder.chmod(0o700)
    return folder


# ── what a killed shim leaves behind ──


def marked(token: str) -> set[int]:
    """Return the processes of this user that carry an attempt's token in their environment."""
    needle = f"{TOKEN}={token}".encode()
    found = set()
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                with open(f"/proc/{entry.name}/environ", "rb") as file:  # noqa: PTH123 - thousands of processes
                    if needle in file.read(2_000_000).split(b"\0"):
                        found.add(int(entry.name))
            except OSError:
                continue
    return found


def in_cgroup(cgroup: str) -> set[int]:
    """Return the processes in a control group."""
    try:
        return {int(line) for line in Path(cgroup, "cgroup.procs").read_text().split()} if cgroup else set()
    except (OSError, ValueError):
        return set()


def writable_cgroup() -> str:
    """Return a new folder of control groups (version 2) in which jobs may be put; empty if this user may make none."""
    try:
        mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
        mount = next(words[1] for words in mounts if words[2] == "cgroup2")
        own = next(line for line in Path("/proc/self/cgroup").read_text().splitlines() if line.startswith("0::"))[3:]
        base = Path(mount + own.rstrip("/"), f"gpuyard-{os.geteuid()}")
        base.mkdir(exist_ok=True)
        probe = base / f"probe-{os.getpid()}-{time.monotonic_ns()}"
        probe.mkdir()
        usable = (
            os.access(probe / "cgroup.procs", os.W_OK)
            and (probe / "cgroup.kill").exists()
            and os.access(base.parent / "cgroup.procs", os.W_OK)
        )
        probe.rmdir()
    except (OSError, StopIteration, IndexError):
        return ""
    return str(base) if usable else ""
