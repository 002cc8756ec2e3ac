"""Runs one attempt of one job, and writes down how it ended: `python -I -S shim.py FOLDER ATTEMPT`.

There is one shim per running job. It outlives the daemon. It uses nothing of gpuyard and little of the standard library, so that it takes
some 20 ms to start and 10 MB. The steps are those of docs/decisions/0036: lock, look for a fence, write the identity, run the command,
kill what is left, write the end. In the folder the attempt K has the files K.spec (what to run), K.lock (held for as long as the shim
lives), K.fence (this attempt must not start), K.id, K.stop (why to end early) and K.end.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import resource
import select
import signal
import sys
import time
from collections.abc import Callable

ENDED, BUSY, FENCED, UNWRITABLE, BROKEN = 0, 3, 4, 5, 6  # exit codes of the shim
NO_CHILDREN_AFTER = 10.0  # s that processes may take to die of KILL before they are given up and counted
LAST_WORDS = 1.0  # s for what is left in the pipe; a process of somebody else may write into it for ever
ROOM = 4096  # bytes set aside for the end, so that it can be written on a full disk
PIECE = 65_536  # bytes of output read at a time
MARK = b"gpuyard-job 1"  # begins a spec
CUT = "\n[gpuyard: the rest of the output is dropped: {}]\n"
_SET_PDEATHSIG, _SET_CHILD_SUBREAPER = 1, 36
_RESET = (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGCHLD, signal.SIGUSR1, signal.SIGQUIT)


def reached(point: str) -> None:
    """Mark a point of the protocol: begin, lock, identity, exec, exit-record. Tests stop or kill processes there."""


class Spec:
    """The command and its surroundings. On disk: the mark, then the key, the number of values and the values of each; all end with NUL."""

    def __init__(self, values: dict[str, list[str]]) -> None:
        self.argv = values["argv"]
        self.env = dict(each.partition("=")[::2] for each in values["env"])
        self.cwd = values["cwd"][0]
        self.output = values["output"][0]
        self.output_limit = int(values["output_limit"][0])
        self.walltime = float(values["walltime"][0])
        self.grace = float(values["grace"][0])
        self.cgroup = values["cgroup"][0]
        self.files = int(values.get("files", ["0"])[0])  # that may be open; 0: as many as here
        self.umask = int(values["umask"][0])

    @classmethod
    def read(cls, path: str) -> Spec:
        """Read a spec; a damaged one raises ValueError."""
        with open(path, "rb") as file:  # noqa: PTH123 - pathlib takes 3 ms to import
            words = file.read().split(b"\0")
        if words[0] != MARK or words[-1] != b"":
            raise ValueError("not a spec")
        values: dict[str, list[str]] = {}
        at = 1
        while at < len(words) - 1:
            count = int(words[at + 1])
            values[words[at].decode()] = [os.fsdecode(word) for word in words[at + 2 : at + 2 + count]]
            at += 2 + count
        return cls(values)


def spec_bytes(values: dict[str, list[str]]) -> bytes:
    """Write a spec."""
    words = [MARK]
    for key, texts in values.items():
        words += [key.encode(), str(len(texts)).encode(), *map(os.fsencode, texts)]
    return b"\0".join(words) + b"\0"


def main(arguments: list[str]) -> int:
    """Run the attempt that the arguments name."""
    folder, attempt = arguments
    return supervise(folder, int(attempt))


def supervise(folder: str, attempt: int, instead: Callable[[Spec], None] | None = None) -> int:
    """Run one attempt to its end and return the shim's exit code.

    `instead` runs in the child in place of the command, for a process that has warmed up and forked; the child ends when it returns.
    """
    os.umask(0o077)
    name = f"{folder}/{attempt}"
    wake = _listen()
    reached("begin")
    lock = os.open(f"{name}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return BUSY
    reached("lock")
    if os.path.exists(f"{name}.fence") or os.path.exists(f"{name}.id"):  # noqa: PTH110
        return FENCED
    try:
        run = Supervised(Spec.read(f"{name}.spec"), folder, name, wake)
        run.lock = lock
        run.set_aside()
        write_whole(f"{name}.id", run.identity())
    except OSError as error:
        print(error, file=sys.stderr)  # noqa: T201
        return UNWRITABLE
    except (ValueError, KeyError, IndexError) as error:
        print(f"{name}.spec: damaged: {error}", file=sys.stderr)  # noqa: T201
        return BROKEN
    reached("identity")
    run.start(instead)
    run.watch()
    run.finish()
    reached("exit-record")
    os.close(lock)
    return ENDED


def _listen() -> int:
    """Let signals wake the shim through a pipe, and return its end. An inherited SIG_IGN for SIGCHLD would destroy exit codes."""
    wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
    signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
    for number in (signal.SIGCHLD, signal.SIGUSR1, signal.SIGTERM):
        signal.signal(number, lambda *_: None)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE, signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    return wake


def write_whole(path: str, text: str) -> None:
    """Write a small file whole or not at all, and let it reach the disk."""
    part = f"{path}.part"
    file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    try:
        os.write(file, text.encode())
        os.fsync(file)
    finally:
        os.close(file)
    _rename(part, path)


def _rename(part: str, path: str) -> None:
    os.rename(part, path)  # noqa: PTH104
    folder = os.open(path.rpartition("/")[0], os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def boot_id() -> str:
    """Return the id of the machine's present boot."""
    with open("/proc/sys/kernel/random/boot_id", "rb") as file:  # noqa: PTH123
        return file.read().decode().strip()


def start_time(pid: int) -> int:
    """Return when a process started, in clock ticks since boot; 0: there is no such process."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123
            return int(file.read().rpartition(b")")[2].split()[19])
    except (OSError, ValueError, IndexError):
        return 0


def parents() -> dict[int, int]:
    """Return the parent of every process that lives. One whose first thread has ended reads as dead, and lives as long as another does."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208
        if name.isdigit():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:  # noqa: PTH123
                    state, parent = file.read().rpartition(b")")[2].split()[:2]
                if state != b"Z" or len(os.listdir(f"/proc/{name}/task")) > 1:  # noqa: PTH208
                    found[int(name)] = int(parent)
            except (OSError, ValueError):
                continue
    return found


def descendants(roots: set[int]) -> set[int]:
    """Return the processes below these, without them."""
    below: set[int] = set()
    every = parents()
    size = -1
    while len(below) > size:
        size = len(below)
        below |= {pid for pid, parent in every.items() if parent in below or parent in roots}
    return below - roots


def groups(pids: set[int]) -> set[int]:
    """Return the process groups of processes but that of this one, as `os.kill` names them. A signal to a group also reaches who forks."""
    found = set()
    for pid in pids:
        try:
            found.add(-os.getpgid(pid))
        except OSError:
            continue
    return found - {0, -1, -os.getpgrp()}  # 0 and -1 mean something else to `os.kill`


def send(pids: set[int], number: int) -> None:
    """Send a signal to processes, or to groups by their negative numbers; some may be gone."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except OSError:
            continue


class Supervised:
    """One run of a command and of everything that it starts."""

    def __init__(self, spec: Spec, folder: str, name: str, wake: int) -> None:
        self.spec, self.folder, self.name, self.wake = spec, folder, name, wake
        self.began = time.monotonic()
        self.began_at = time.time()
        self.pid = 0  # of the command
        self.lock = -1
        self.status: int | None = None  # as waitpid says
        self.pipe = -1  # its output
        self.file = -1
        self.written = self.dropped = 0  # bytes
        self.why = ""  # walltime, cancel, preempt, terminated or no-start; "": it ended by itself
        self.trouble = ""  # why it could not start
        self.steps: list[tuple[float, int, bool]] = []  # (s, signal, to all processes): what is still to be sent
        self.cgroup = ""

    def identity(self) -> str:
        """Say who runs the attempt."""
        pid = os.getpid()
        return f'{{"pid": {pid}, "started": {start_time(pid)}, "boot": "{boot_id()}", "monotonic": {self.began!r}}}\n'

    def set_aside(self) -> None:
        """Set room aside for the end, and open the output."""
        end = os.open(f"{self.name}.end.part", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
        try:
            os.write(end, b" " * ROOM)
            os.fsync(end)
        finally:
            os.close(end)
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        self.file = os.open(f"{self.folder}/{self.spec.output}", flags, 0o600)
        self.written = os.fstat(self.file).st_size

    # ── start ──

    def start(self, instead: Callable[[Spec], None] | None) -> None:
        """Fork the command. Orphans below it become children of the shim, so that none escapes."""
        libc = ctypes.CDLL(None, use_errno=True)
        libc.prctl(_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        if self.spec.cgroup:
            try:
                os.mkdir(self.spec.cgroup, 0o700)  # noqa: PTH102
                self.cgroup = self.spec.cgroup
            except OSError:
                self.cgroup = ""
        self.pipe, output = os.pipe2(os.O_CLOEXEC)
        told, teller = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self.pipe, False)
        shim = os.getpid()
        self.began, self.began_at = time.monotonic(), time.time()
        self.pid = os.fork()
        if self.pid == 0:
            self._become(libc, shim, output, teller, instead)
        os.close(output)
        os.close(teller)
        self.trouble = self._read_trouble(told)
        if self.trouble:
            self.why = "no-start"
        reached("exec")
        if self.spec.walltime < float("inf"):
            self.steps = [(self.began + self.spec.walltime, 0, True)]
        self._look_for_stop()

    def _become(self, libc: ctypes.CDLL, shim: int, output: int, teller: int, instead: Callable[[Spec], None] | None) -> None:
        """Become the command; if that cannot be, say why."""
        subject = "session"
        try:
            os.setsid()
            libc.prctl(_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != shim:
                os._exit(127)
            signal.set_wakeup_fd(-1)
            for number in _RESET:
                signal.signal(number, signal.SIG_DFL)
            self._tell_cgroup("procs", b"0")
            if self.spec.files:
                resource.setrlimit(resource.RLIMIT_NOFILE, (self.spec.files, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
            nothing = os.open("/dev/null", os.O_RDONLY)
            for source, target in ((nothing, 0), (output, 1), (output, 2)):
                os.dup2(source, target)
            os.umask(self.spec.umask)
            subject = self.spec.cwd
            os.chdir(subject)
            subject = self.spec.argv[0]
            if instead is None:
                os.execvpe(self.spec.argv[0], self.spec.argv, self.spec.env)
            os.close(teller)
            os.environ.clear()
            os.environ.update(self.spec.env)
            for held in (self.lock, self.file, self.pipe, self.wake):  # exec closes them, else they would live as long as the job
                os.close(held)
            instead(self.spec)
            os._exit(0)
        except BaseException as error:
            what = getattr(error, "strerror", None) or str(error) or type(error).__name__
            os.write(teller, f"{what}: {subject}".encode("utf-8", "replace")[:500])
        os._exit(127)

    @staticmethod
    def _read_trouble(told: int) -> str:
        """Wait until the command runs, or return why it does not."""
        text = b""
        while piece := os.read(told, 1000):
            text += piece
        os.close(told)
        return text.decode("utf-8", "replace")

    # ── while it runs ──

    def watch(self) -> None:
        """Copy the output, keep the times, and obey until the command has ended."""
        readable = {self.wake, self.pipe}
        while self.status is None:
            left = self.steps[0][0] - time.monotonic() if self.steps else None
            ready, _, _ = select.select(list(readable), [], [], None if left is None else min(max(left, 0.0), 1e6))
            if self.wake in ready:
                self._drain_wake()
            if self.pipe in ready and not self._copy():
                readable.discard(self.pipe)
            self._reap()
            if self.steps and time.monotonic() >= self.steps[0][0]:
                self._step()

    def _drain_wake(self) -> None:
        got = os.read(self.wake, 512)
        if signal.SIGTERM in got and not self.why:
            self._end_early("terminated", self._usual_steps())
        if signal.SIGUSR1 in got:
            self._look_for_stop()

    def _look_for_stop(self) -> None:
        """Obey K.stop: a reason, the signal that comes first (0: TERM to all at once), and the grace before the next step."""
        try:
            with open(f"{self.name}.stop", "rb") as file:  # noqa: PTH123
                why, number, grace = file.read(200).decode().split()
        except (OSError, ValueError):
            return
        if self.why and not (self.why == "preempt" and why == "cancel"):
            return
        now = time.monotonic()
        steps = self._usual_steps()
        if int(number):
            steps = [(now, int(number), False), *((float(grace) + when, kind, everybody) for when, kind, everybody in steps)]
        self._end_early(why, steps)

    def _usual_steps(self) -> list[tuple[float, int, bool]]:
        now = time.monotonic()
        return [(now, signal.SIGTERM, True), (now + self.spec.grace, signal.SIGKILL, True)]

    def _end_early(self, why: str, steps: list[tuple[float, int, bool]]) -> None:
        self.why, self.steps = why, steps

    def _step(self) -> None:
        _, number, everybody = self.steps.pop(0)
        if number == 0:
            self._end_early("walltime", self._usual_steps())
        elif number == signal.SIGKILL:
            self._tell_cgroup("kill", b"1")
            send(descendants({os.getpid()}), signal.SIGKILL)
            self.steps = self.steps or [(time.monotonic() + 0.2, signal.SIGKILL, True)]
        else:
            send(descendants({os.getpid()}) if everybody else {self.pid}, number)

    def _reap(self) -> bool:
        """Take the exit codes of children that have ended; return whether any child is left."""
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return False
            if pid == 0:
                return True
            if pid == self.pid:
                self.status = status

    def _copy(self) -> bool:
        """Copy a piece of the output to its file, up to its limit; return whether there may be more."""
        try:
            piece = os.read(self.pipe, PIECE)
        except BlockingIOError:
            return True
        room = 0 if self.dropped else max(self.spec.output_limit - self.written, 0)
        self._write(piece[:room])
        if piece[room:]:
            self._drop(piece[room:], f"limit of {self.spec.output_limit:,} bytes")
        return bool(piece)

    def _write(self, piece: bytes) -> None:
        try:
            done = os.write(self.file, piece)
        except OSError as error:
            self._drop(piece, error.strerror or "error")
            return
        self.written += done
        if done < len(piece):
            self._write(piece[done:])

    def _drop(self, piece: bytes, why: str) -> None:
        if not self.dropped:
            try:
                os.write(self.file, CUT.format(why).encode())
            except OSError:
                why = ""  # a full disk takes no note either
        self.dropped += len(piece)

    # ── the end ──

    def _tell_cgroup(self, name: str, text: bytes) -> None:
        if self.cgroup:
            try:
                with open(f"{self.cgroup}/cgroup.{name}", "wb") as file:  # noqa: PTH123
                    file.write(text)
            except OSError:
                return  # not ours any more, or older than Linux 5.14: the walk has to do

    def _kill_all(self) -> int:
        """Kill everything that the command started, and return how many processes could not be killed."""
        until = time.monotonic() + NO_CHILDREN_AFTER
        me, stopped = os.getpid(), set[int]()
        self._tell_cgroup("kill", b"1")
        while self._reap():
            left = descendants({me})
            if time.monotonic() > until:
                return len(left)
            number = signal.SIGSTOP if left - stopped else signal.SIGKILL  # whoever forks faster than one can look is stopped first
            send(left | groups(left), number)
            stopped |= left
            self._kill_orphans()
            time.sleep(0.002)
        return 0

    def _kill_orphans(self) -> None:
        """Kill children as fast as they come: of a chain of processes, each of which forks and ends, the last is always one."""
        before, found = set[int](), {0}
        try:
            while found != before:
                before = found
                with open(f"/proc/self/task/{os.getpid()}/children", "rb") as file:  # noqa: PTH123
                    found = {int(word) for word in file.read().split()}
                send(found, signal.SIGKILL)
                self._reap()
        except OSError:
            return  # a kernel without this file

    def finish(self) -> None:
        """Kill what is left, copy what is left of the output, and write the end until that succeeds."""
        ended, ended_at = time.monotonic(), time.time()
        survivors = self._kill_all()
        until = time.monotonic() + LAST_WORDS
        while time.monotonic() < until and select.select([self.pipe], [], [], 0)[0] and self._copy():
            pass
        self._remove_cgroup()
        text = self._end(ended, ended_at, survivors)
        while True:
            try:
                self._write_end(text)
                return
            except OSError:
                time.sleep(1.0)  # a full or broken disk: nothing is lost as long as this process lives

    def _remove_cgroup(self) -> None:
        for _ in range(50 if self.cgroup else 0):
            try:
                os.rmdir(self.cgroup)  # noqa: PTH106
                return
            except OSError:
                time.sleep(0.01)

    def _end(self, ended: float, ended_at: float, survivors: int) -> str:
        status = self.status if self.status is not None else 127 << 8
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        trouble = "".join(letter if letter.isprintable() and letter not in '"\\' else "?" for letter in self.trouble)
        return (
            f'{{"exit": {os.WEXITSTATUS(status) if os.WIFEXITED(status) else "null"}, '
            f'"signal": {os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}, "why": "{self.why}", "trouble": "{trouble}", '
            f'"began": {self.began!r}, "ended": {ended!r}, "began_at": {self.began_at!r}, "ended_at": {ended_at!r}, '
            f'"user_cpu": {used.ru_utime!r}, "system_cpu": {used.ru_stime!r}, "memory": {used.ru_maxrss * 1024}, '
            f'"output": {self.written}, "dropped": {self.dropped}, "survivors": {survivors}}}\n'
        )

    def _write_end(self, text: str) -> None:
        """Write into the room that was set aside, which a full disk still has; into a new folder, if somebody has removed the old one."""
        os.makedirs(self.folder, mode=0o700, exist_ok=True)  # noqa: PTH103
        part = f"{self.name}.end.part"
        file = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(file, text.encode().ljust(ROOM), 0)
            os.fsync(file)
        finally:
            os.close(file)
        _rename(part, f"{self.name}.end")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
