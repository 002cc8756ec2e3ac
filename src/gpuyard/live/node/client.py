"""Speaks to the user's daemon. It needs the standard library only, so that `gpuyard submit` returns at once."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.live.node.api import LONGEST, SOCKET, Message, decode, encode, node_folder
from gpuyard.live.node.jobs import NodeJob, Submission, job_of

PATIENCE = 30.0  # s that the daemon may take to answer


class NodeError(GpuyardError):
    """The node refused a request, or cannot be reached."""


class NoNodeError(NodeError):
    """No daemon runs in the folder."""


class NodeClient:
    """A connection to the daemon of a folder. It connects at the first request."""

    def __init__(self, folder: str | os.PathLike[str] | None = None, *, patience: float = PATIENCE) -> None:
        self.folder: Path = node_folder(folder)
        self._patience = patience
        self._socket: socket.socket | None = None
        self._rest = b""

    def __enter__(self) -> NodeClient:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection; the next request opens another."""
        if self._socket is not None:
            self._socket.close()
        self._socket, self._rest = None, b""

    def call(self, verb: str, *, patience: float | None = None, **arguments: Any) -> Message:
        """Send a request and return its answer; a refusal is raised."""
        line = encode({"verb": verb, **arguments})
        try:
            answer = decode(self._exchange(line, self._patience if patience is None else patience))
        except TimeoutError:
            self.close()
            raise NodeError(f"{self.folder}: the node does not answer", hint="gpuyard node status") from None
        except OSError as error:
            self.close()
            raise self._unreachable(error) from None
        if answer.get("ok") is True:
            return answer
        refusal = UsageError if answer.get("code") == 2 else NodeError
        raise refusal(str(answer.get("error", "refused"))[:2000], hint=str(answer.get("hint", ""))[:500])

    def _exchange(self, line: bytes, patience: float) -> bytes:
        self._close_if_gone()
        channel = self._socket or self._connect()
        channel.settimeout(patience if patience < float("inf") else None)
        with suppress(BrokenPipeError):  # who refuses a client says so before he closes
            channel.sendall(line)
        while b"\n" not in self._rest:
            piece = channel.recv(1 << 20)
            if not piece:
                raise ConnectionResetError("the node closed the connection")
            self._rest += piece
            if len(self._rest) > 16 * LONGEST:
                raise NodeError(f"{self.folder}: the node's answer is too long")
        found, _, self._rest = self._rest.partition(b"\n")
        return found

    def _close_if_gone(self) -> None:
        """Close a connection that the daemon has closed: it makes room for others when one is idle, or has been started again."""
        if self._socket is not None:
            self._socket.settimeout(0.0)
            try:
                gone = not self._socket.recv(1, socket.MSG_PEEK)
            except OSError as error:
                gone = not isinstance(error, BlockingIOError)
            if gone:
                self.close()

    def _connect(self) -> socket.socket:
        channel = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        try:
            channel.settimeout(self._patience)
            with short_path(self.folder) as place:
                self._queue_up(channel, place)
        except BaseException:
            channel.close()
            raise
        self._socket = channel
        return channel

    def _queue_up(self, channel: socket.socket, place: str) -> None:
        """Connect; where many others do at the same time, wait for a place in the line."""
        until = time.monotonic() + self._patience
        while True:
            try:
                channel.connect(place)
                return
            except BlockingIOError:
                if time.monotonic() > until:
                    raise TimeoutError from None
                time.sleep(0.01)

    def _unreachable(self, error: OSError) -> NodeError:
        if isinstance(error, FileNotFoundError | ConnectionRefusedError):
            return NoNodeError(f"no node runs in {self.folder}", hint="gpuyard node start")
        return NodeError(f"{self.folder}: the node cannot be reached: {error.strerror or error}", hint="gpuyard node status")

    # ── verbs ──

    def submit(self, job: Submission, *, patience: float = PATIENCE) -> list[int]:
        """Submit a job, or an array, and return the ids. A daemon that is being restarted is waited for; nothing is submitted twice."""
        token, until = os.urandom(8).hex(), time.monotonic() + patience
        while True:
            try:
                return [int(each) for each in self.call("submit", job=job.plain(), token=token)["ids"]]
            except NodeError as error:
                if "closed the connection" not in str(error) and "Connection reset" not in str(error):
                    raise
                if time.monotonic() > until:
                    raise
                self._await_daemon(until)

    def _await_daemon(self, until: float) -> None:
        """Wait until a daemon that went away in the middle of a request is back."""
        while time.monotonic() < until:
            try:
                self.call("status")
                return
            except NodeError:
                time.sleep(0.05)

    def jobs(self, ids: Sequence[int] = (), *, ended: int = 0) -> list[NodeJob]:
        """Return these jobs, or all that have not ended and the last `ended` that have."""
        return [job_of(each) for each in self.call("jobs", ids=list(ids), ended=ended)["jobs"]]

    def wait(self, ids: Sequence[int], timeout: float = float("inf")) -> list[NodeJob]:
        """Wait until these jobs have ended, or for `timeout` s, and return them."""
        limit = {} if timeout == float("inf") else {"timeout": timeout}
        answer = self.call("wait", patience=timeout + PATIENCE, ids=list(ids), **limit)
        return [job_of(each) for each in answer["jobs"]]


@contextmanager
def short_path(folder: Path, name: str = SOCKET) -> Iterator[str]:
    """Yield an address of a socket in a folder for the block: an address holds 107 bytes, so a long path goes through its open folder."""
    whole = str(folder / name)
    if len(os.fsencode(whole)) < 100:
        yield whole
        return
    opened = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{opened}/{name}"
    finally:
        os.close(opened)
