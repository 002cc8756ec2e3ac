"""Serves the clients of a socket in one loop: none can cost memory without bound, or keep another waiting."""

from __future__ import annotations

import os
import selectors
import socket
import struct
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.live.node.api import LONGEST, Message, encode
from gpuyard.live.node.client import NodeError, short_path

MOST_CONNECTIONS = 256
MOST_BUFFERED = 4  # requests of the greatest length that all clients together may have begun
IMPATIENCE = 10.0  # s in which a client must finish a request it has begun, and read what it was sent
_LARGE = 1_000_000  # bytes of one client, from which on those of all are added up
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True)
class Request:
    """One request of a client."""

    body: bytes
    verb: str = ""  # empty: the body says it
    last: bool = False  # the client wants the connection to end then


class Wire(Protocol):
    """Cuts what a client has sent into requests, and writes answers."""

    limit: int  # bytes of a request

    def take(self, data: bytearray) -> Request | None:
        """Take a whole request from the front; None: there is none yet. An error ends the connection, after it has been told."""

    def answer(self, message: Any) -> bytes:
        """Return the bytes of an answer."""


class LineWire:
    """JSON objects, a line each."""

    def __init__(self, limit: int = LONGEST) -> None:
        self.limit = limit

    def take(self, data: bytearray) -> Request | None:
        end = data.find(b"\n")
        if end < 0 and len(data) <= self.limit:
            return None
        if not 0 <= end <= self.limit:
            raise UsageError(f"a request is longer than {self.limit:,} bytes")
        line = Request(bytes(data[:end]))
        del data[: end + 1]
        return line

    def answer(self, message: Any) -> bytes:
        return encode(message, limit=0)


@dataclass(eq=False)
class Connection:
    """A client."""

    channel: socket.socket
    data: bytearray = field(default_factory=bytearray)
    out: bytearray = field(default_factory=bytearray)
    since: float = 0.0  # when it began a request, or was sent what it has not read; 0: neither
    used: float = 0.0  # when it last asked for something
    waits: bool = False  # for an answer that may take any time
    asked: bool = False  # its last request has no answer yet
    last: bool = False  # it is dropped when it has been told all

    @property
    def busy(self) -> bool:
        """Return whether it must be answered, and have read that, before its next request is looked at."""
        return self.asked or bool(self.out) or self.waits

    @property
    def open(self) -> bool:
        return self.channel.fileno() >= 0


class Clients:
    """The clients of a listening socket. Each request goes to `handle`, which sees to it that `send` is called, at once or later."""

    def __init__(
        self,
        listener: socket.socket,
        selector: selectors.BaseSelector,
        wire: Wire,
        handle: Callable[[Connection, Request], None],
        what: str,
    ) -> None:
        self._listener, self._selector, self._wire, self._handle, self._what = listener, selector, wire, handle, what
        self._connections: dict[int, Connection] = {}
        selector.register(listener, selectors.EVENT_READ, self._accept)

    def close(self) -> None:
        """Drop all clients, and listen no more."""
        for connection in list(self._connections.values()):
            self._drop(connection)
        self._selector.unregister(self._listener)
        self._listener.close()

    def drop_slow(self) -> None:
        """Drop clients that began a request, or were sent an answer, and then did nothing more."""
        now = time.monotonic()
        for connection in list(self._connections.values()):
            if connection.since and not connection.waits and now - connection.since > IMPATIENCE:
                self._drop(connection)

    def send(self, connection: Connection, message: Any) -> None:
        """Answer the last request of a client, if it is still there."""
        connection.asked = connection.waits = False
        if connection.open:
            connection.out += self._wire.answer(message)
            self._write(connection)

    # ── who may come ──

    def _accept(self, _: int) -> None:
        while True:
            try:
                channel, _address = self._listener.accept()
            except OSError:
                return
            channel.setblocking(False)
            if channel.family == socket.AF_UNIX and not _ours(channel):
                self._turn_away(channel, f"this {self._what} belongs to another user")
            elif not self._room():
                self._turn_away(channel, f"{MOST_CONNECTIONS} clients are connected; no more are served at once")
            else:
                if channel.family != socket.AF_UNIX:
                    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection = self._connections[channel.fileno()] = Connection(channel, used=time.monotonic())
                self._selector.register(channel, selectors.EVENT_READ, partial(self._serve, connection))

    def _turn_away(self, channel: socket.socket, why: str) -> None:
        with suppress(OSError):
            channel.send(self._wire.answer(refusal(NodeError(why))))
        channel.close()

    def _room(self) -> bool:
        """Return whether one more client can be served; whoever has been idle for longest makes room."""
        if len(self._connections) >= MOST_CONNECTIONS:
            idle = (each for each in self._connections.values() if not (each.busy or each.data))
            longest = next((each for each in sorted(idle, key=lambda each: each.used) if _silent(each.channel)), None)
            if longest is not None:
                self._drop(longest)
        return len(self._connections) < MOST_CONNECTIONS

    # ── what they send and read ──

    def _serve(self, connection: Connection, events: int) -> None:
        """Read what a client has sent, and write what it has not read yet."""
        try:
            if events & selectors.EVENT_WRITE:
                self._write(connection)
            if events & selectors.EVENT_READ and connection.open:
                piece = connection.channel.recv(1 << 18)
                if not piece:
                    self._drop(connection)
                    return
                connection.data += piece
                self._take(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _take(self, connection: Connection) -> None:
        """Carry out the next request, if the last one is answered: who asks a lot at once waits longer, and nobody else does."""
        try:
            request = None if connection.busy else self._wire.take(connection.data)
            if connection.busy and len(connection.data) > self._wire.limit:
                raise UsageError(f"a request is longer than {self._wire.limit:,} bytes")
            self._check_room(connection)
        except GpuyardError as error:
            connection.data.clear()
            connection.last = True
            self.send(connection, refusal(error))
            return
        if request is not None:
            connection.asked, connection.used, connection.last = True, time.monotonic(), request.last
            self._handle(connection, request)
        connection.since = (connection.since or time.monotonic()) if connection.data or connection.out else 0.0

    def _check_room(self, connection: Connection) -> None:
        if len(connection.data) > _LARGE:
            most = MOST_BUFFERED * self._wire.limit
            if sum(len(each.data) for each in self._connections.values()) > most:
                raise UsageError("too many large requests at once", hint="try again later")

    def _write(self, connection: Connection) -> None:
        try:
            sent = connection.channel.send(connection.out)
            del connection.out[:sent]
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        if connection.last and not connection.out:
            self._drop(connection)
            return
        if not connection.out and not connection.data:
            connection.since = 0.0
        elif sent or not connection.since:
            connection.since = time.monotonic()
        events = selectors.EVENT_WRITE if connection.out else selectors.EVENT_READ
        if self._selector.get_key(connection.channel).events != events:
            self._selector.modify(connection.channel, events, partial(self._serve, connection))
        if connection.data and not connection.last:
            self._take(connection)

    def _drop(self, connection: Connection) -> None:
        file = connection.channel.fileno()
        if file >= 0:
            self._connections.pop(file, None)
            with suppress(KeyError):
                self._selector.unregister(connection.channel)
            connection.channel.close()


def listen_at(folder: Path, name: str) -> socket.socket:
    """Open a socket in a folder, in the place of one that a killed process left. Only its owner may connect."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
    (folder / name).unlink(missing_ok=True)
    before = os.umask(0o177)
    try:
        with short_path(folder, name) as place:
            listener.bind(place)
    finally:
        os.umask(before)
    listener.listen(1024)
    return listener


def refusal(error: GpuyardError) -> Message:
    """Return the answer that says why a request was refused."""
    text = str(error).removesuffix(f"; hint: {error.hint}") if error.hint else str(error)
    status = {"status": error.status} if hasattr(error, "status") else {}  # of HTTP
    return {"ok": False, "error": text, "hint": error.hint, "code": error.exit_code, **status}


def _ours(channel: socket.socket) -> bool:
    """Return whether a client is us, or root."""
    _pid, user, _group = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
    return user in (os.geteuid(), 0)


def _silent(channel: socket.socket) -> bool:
    """Return whether nothing waits to be read, not even the end."""
    try:
        channel.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False
