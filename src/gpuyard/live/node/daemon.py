"""The daemon: one loop over its socket, its shims and its scheduler. `python -m gpuyard.live.node.daemon FOLDER SETTINGS` starts it.

In each turn the requests and ends that have come are worked off, then committed together, and only then answered and carried out.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import socket
import struct
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.files import claim
from gpuyard.live.gpus import find_gpus
from gpuyard.live.node.api import LONGEST, SOCKET, Message, decode, encode
from gpuyard.live.node.client import NodeError, short_path
from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import Gpus
from gpuyard.live.node.running.executor import Launcher
from gpuyard.live.node.running.template import WarmTemplate
from gpuyard.live.node.verbs import CHANGING, VERBS, ids_of, shown
from gpuyard.model.fields import Fields

MOST_CONNECTIONS = 256
IMPATIENCE = 10.0  # s in which a client must finish a line it has begun, and read what it was sent
TICK = 1.0  # s
TIDY = 60.0  # s between looks through memory that no longer counts references; with 20,000 jobs the first one takes 50 ms
SETTLING = 0.005  # s between looks at attempts that begin
SHARE_OF_TIME = 0.1  # of the daemon's time that goes into laying out the queue for the scheduler
_CREDENTIALS = struct.Struct("3i")


@dataclass
class Connection:
    """A client."""

    channel: socket.socket
    data: bytearray = field(default_factory=bytearray)
    out: bytearray = field(default_factory=bytearray)
    since: float = 0.0  # when it began a line, or was sent what it has not read; 0: neither
    used: float = 0.0  # when it last asked for something
    waits: tuple[list[int], float] | None = None  # jobs whose end it waits for, until when
    asked: bool = False  # its last request has no answer yet

    @property
    def busy(self) -> bool:
        """Return whether it must be answered, and have read that, before its next request is looked at."""
        return self.asked or bool(self.out) or self.waits is not None


class Daemon:
    """Serves a node on the socket in its folder until it is told to stop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._selector = selectors.DefaultSelector()
        self._connections: dict[int, Connection] = {}
        self._replies: list[tuple[Connection, str, Message]] = []
        self._advisor_file = -1
        self._next_tick = self._next_pass = self._last_pass = self._next_complaint = self._next_tidy = 0.0
        self._stopping = False
        self._listener = self._listen()
        node.executor.on_watch, node.executor.on_forget = self._watch, self._unwatch
        self._flusher = threading.Thread(target=self._flush, daemon=True)

    def _listen(self) -> socket.socket:
        """Open the socket, in the place of one that a killed daemon left. Only its owner may connect."""
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_CLOEXEC | socket.SOCK_NONBLOCK)
        (self.node.folder / SOCKET).unlink(missing_ok=True)
        before = os.umask(0o177)
        try:
            with short_path(self.node.folder) as place:
                listener.bind(place)
        finally:
            os.umask(before)
        listener.listen(1024)
        self._selector.register(listener, selectors.EVENT_READ, self._accept)
        return listener

    # ── the loop ──

    def run(self) -> None:
        """Serve until a request or a signal ends it."""
        self._take_signals()
        self.node.begin()
        self._commit()
        self._flusher.start()
        while not self._stopping:
            for key, events in self._selector.select(self._pause()):
                with suppress(KeyError):  # an event before this one may have closed it
                    self._selector.get_key(key.fileobj)
                    key.data(events)
            self._turn()
        self._commit()
        self._close()

    def _turn(self) -> None:
        """Do what is due, put it on record, answer, and ask the scheduler if something has changed."""
        now = time.monotonic()
        self.node.runs.settle()
        if now >= self._next_tick:
            self._next_tick = now + TICK
            self.node.tick()
            self._drop_slow(now)
            self._tidy(now)
        self.node.advisor.check()
        self._commit()
        if self.node.wanted and not self.node.advisor.busy and now >= self._due_pass() and self.node.ask():
            self._last_pass, self._next_pass = now, now + (time.monotonic() - now) / SHARE_OF_TIME
        if self.node.advisor.fileno() < 0:
            self._heed(0)
            self._commit()
        self._watch_advisor()
        self._answer_waiting(now)

    def _tidy(self, now: float) -> None:
        """Free cycles of objects, and leave what is still there out of the next look; in between only new objects are looked through."""
        if now >= self._next_tidy:
            self._next_tidy = now + TIDY
            gc.set_threshold(10_000, 10, 1_000_000)
            gc.collect()
            gc.freeze()

    def _due_pass(self) -> float:
        """Return when the scheduler may be asked again: where nothing can start, once a second is enough for the order of the queue."""
        return max(self._next_pass, self._last_pass + TICK) if self.node.crowded else self._next_pass

    def _pause(self) -> float:
        """Return how long nothing is due, in s."""
        now = time.monotonic()
        if self._replies:
            return 0.0
        due = self._next_tick
        if self.node.runs.starting or self.node.runs.sweeping:
            due = min(due, now + SETTLING)
        if self.node.wanted and not self.node.advisor.busy:
            due = min(due, self._due_pass())
        for connection in self._connections.values():
            if connection.waits:
                due = min(due, connection.waits[1])
        return max(due - now, 0.0)

    def _commit(self) -> None:
        """Put the turn on record, and only then answer. If that fails, whoever asked for a change is told."""
        trouble: NodeError | None = None
        try:
            while self.node.book.dirty:
                self.node.commit()
        except NodeError as error:
            trouble = error
            self.node.wanted, self._next_pass = True, time.monotonic() + TICK
        replies, self._replies = self._replies, []
        for connection, verb, reply in replies:
            refused = trouble is not None and verb in CHANGING
            self._send(connection, _refusal(trouble) if refused and trouble else reply)
        if trouble is not None:
            self._complain(str(trouble))
            time.sleep(0.05)  # a full disk: no use in trying a thousand times a second

    def _complain(self, text: str) -> None:
        """Write to the log, at most once a minute: what it says may be that the disk is full."""
        if time.monotonic() >= self._next_complaint:
            self._next_complaint = time.monotonic() + 60.0
            with suppress(OSError):
                print(f"gpuyard: {text}", file=sys.stderr, flush=True)  # noqa: T201

    def _flush(self) -> None:
        while not self._stopping:
            time.sleep(TICK)
            self.node.store.flush()

    def _take_signals(self) -> None:
        wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # whoever started the daemon may have ignored it
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._told_to_stop)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: os.read(wake, 512))

    def _told_to_stop(self, *_: object) -> None:
        self._stopping = True

    def _close(self) -> None:
        for connection in list(self._connections.values()):
            self._drop(connection)
        (self.node.folder / SOCKET).unlink(missing_ok=True)
        self._listener.close()
        self.node.store.flush()
        self.node.close()

    # ── shims and scheduler ──

    def _watch(self, job: int, file: int) -> None:
        self._selector.register(file, selectors.EVENT_READ, lambda _: self.node.runs.shim_gone(job))

    def _unwatch(self, file: int) -> None:
        self._selector.unregister(file)

    def _watch_advisor(self) -> None:
        """Listen to the process of the scheduler, which may be another one by now."""
        file = self.node.advisor.fileno()
        if file == self._advisor_file:
            return
        if self._advisor_file >= 0:
            with suppress(KeyError, ValueError, OSError):
                self._selector.unregister(self._advisor_file)
        if file >= 0:
            self._selector.register(file, selectors.EVENT_READ, self._heed)
        self._advisor_file = file
        self.node.wanted = True

    def _heed(self, _: int) -> None:
        advice = self.node.advisor.answer()
        if advice is not None:
            self.node.follow(advice)

    # ── clients ──

    def _accept(self, _: int) -> None:
        while True:
            try:
                channel, _address = self._listener.accept()
            except OSError:
                return
            channel.setblocking(False)
            _pid, user, _group = _CREDENTIALS.unpack(channel.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))
            if user not in (os.geteuid(), 0):
                self._turn_away(channel, "this node belongs to another user")
            elif not self._room():
                self._turn_away(channel, f"{MOST_CONNECTIONS} clients are connected; no more are served at once")
            else:
                connection = self._connections[channel.fileno()] = Connection(channel, used=time.monotonic())
                self._selector.register(channel, selectors.EVENT_READ, partial(self._serve, connection))

    def _turn_away(self, channel: socket.socket, why: str) -> None:
        with suppress(OSError):
            channel.send(encode(_refusal(NodeError(why))))
        channel.close()

    def _room(self) -> bool:
        """Return whether one more client can be served; whoever has been idle for longest makes room."""
        if len(self._connections) >= MOST_CONNECTIONS:
            idle = (each for each in self._connections.values() if not (each.busy or each.data))
            longest = next((each for each in sorted(idle, key=lambda each: each.used) if _silent(each.channel)), None)
            if longest is not None:
                self._drop(longest)
        return len(self._connections) < MOST_CONNECTIONS

    def _serve(self, connection: Connection, events: int) -> None:
        """Read what a client has sent, and write what it has not read yet."""
        try:
            if events & selectors.EVENT_WRITE:
                self._write(connection)
            if events & selectors.EVENT_READ:
                piece = connection.channel.recv(1 << 18)
                if not piece:
                    self._drop(connection)
                    return
                connection.data += piece
                self._take_lines(connection)
        except BlockingIOError:
            return
        except OSError:
            self._drop(connection)

    def _take_lines(self, connection: Connection) -> None:
        """Carry out the next request, if the last one is answered: who asks a lot at once waits longer, and nobody else does."""
        if not connection.busy:
            line, found, rest = connection.data.partition(b"\n")
            if found:
                connection.data, connection.asked, connection.used = rest, True, time.monotonic()
                self._handle(connection, bytes(line))
        if len(connection.data) > LONGEST:
            connection.data.clear()
            self._send(connection, _refusal(UsageError(f"a request is longer than {LONGEST:,} bytes")))
            self._drop(connection)
        connection.since = (connection.since or time.monotonic()) if connection.data or connection.out else 0.0

    def _handle(self, connection: Connection, line: bytes) -> None:
        """Carry out one request. Its answer is sent after the commit."""
        verb = ""
        try:
            given = Fields(decode(line), "request")
            verb = given.text("verb", limit=50)
            if verb == "wait":
                self._wait(connection, given)
                return
            if verb == "stop":
                self._stopping = True
                reply: Message = {"stopped": True}
            else:
                reply = VERBS[verb](self.node, given)
        except GpuyardError as error:
            reply = _refusal(error)
        except Exception as error:  # the queue goes on whatever one request does
            print(f"gpuyard: request {verb!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            reply = _refusal(NodeError(f"{type(error).__name__}: {error}"))
        self._replies.append((connection, verb, reply if reply.get("ok") is False else {"ok": True, **reply}))

    def _wait(self, connection: Connection, given: Fields) -> None:
        ids = ids_of(given)
        for number in ids:
            self.node.book.find(number)
        connection.waits = (ids, time.monotonic() + given.number("timeout", 1e9, high=1e9))

    def _answer_waiting(self, now: float) -> None:
        for connection in list(self._connections.values()):
            if connection.waits is None:
                continue
            ids, until = connection.waits
            if now >= until or not any(number in self.node.book.jobs for number in ids):
                connection.waits = None
                self._send(connection, {"ok": True, "jobs": [shown(self.node, self.node.book.find(number)) for number in ids]})

    def _send(self, connection: Connection, message: Message) -> None:
        connection.asked = False
        if connection.channel.fileno() >= 0:
            connection.out += encode(message, limit=0)
            self._write(connection)

    def _write(self, connection: Connection) -> None:
        try:
            sent = connection.channel.send(connection.out)
            del connection.out[:sent]
        except BlockingIOError:
            sent = 0
        except OSError:
            self._drop(connection)
            return
        if not connection.out and not connection.data:
            connection.since = 0.0
        elif sent or not connection.since:
            connection.since = time.monotonic()
        events = selectors.EVENT_WRITE if connection.out else selectors.EVENT_READ
        if self._selector.get_key(connection.channel).events != events:
            self._selector.modify(connection.channel, events, partial(self._serve, connection))
        self._take_lines(connection)

    def _drop(self, connection: Connection) -> None:
        file = connection.channel.fileno()
        if file >= 0:
            self._connections.pop(file, None)
            with suppress(KeyError):
                self._selector.unregister(connection.channel)
            connection.channel.close()

    def _drop_slow(self, now: float) -> None:
        """Drop clients that began a line, or were sent an answer, and then did nothing more."""
        for connection in list(self._connections.values()):
            if connection.since and not connection.waits and now - connection.since > IMPATIENCE:
                self._drop(connection)


def _silent(channel: socket.socket) -> bool:
    """Return whether nothing waits to be read, not even the end."""
    try:
        channel.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _refusal(error: GpuyardError) -> Message:
    text = str(error).removesuffix(f"; hint: {error.hint}") if error.hint else str(error)
    return {"ok": False, "error": text, "hint": error.hint, "code": error.exit_code}


def prepare_folder(folder: Path) -> None:
    """Make the node's folder, which only its owner may enter."""
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        about = folder.stat()
        if about.st_uid != os.geteuid():
            raise NodeError(f"{folder}: belongs to another user", hint="give a folder of your own: --folder DIR")
        if about.st_mode & 0o077:
            folder.chmod(0o700)
    except OSError as error:
        raise unusable(folder, error) from None


def unusable(folder: Path, error: OSError) -> NodeError:
    """Return an error that says why the node's folder cannot be used."""
    hint = "give a folder on a local disk that you can write: --folder DIR"
    return NodeError(f"{folder}: cannot be used: {error.strerror or error}", hint=hint)


def serve(
    folder: Path,
    settings: NodeSettings,
    gpus: Gpus | None = None,
    launchers: Mapping[str, Launcher] | None = None,
    ready: Callable[[Daemon], None] = lambda _: None,
) -> None:
    """Run the daemon of a folder until it is told to stop. A second daemon of the same folder is refused."""
    prepare_folder(folder)
    umask = os.umask(0o077)  # of its own files; jobs get the one that was there
    try:
        lock = (folder / "lock").open("a+", encoding="ascii")
    except OSError as error:
        raise unusable(folder, error) from None
    with lock:
        if not claim(lock):
            raise NodeError(f"a node runs in {folder} already", hint="gpuyard node status")
        try:
            warm = {name: WarmTemplate(modules, folder / f"template-{name}.log") for name, modules in settings.templates.items()}
            daemon = Daemon(Node(folder, settings, gpus or find_gpus(folder / "gpus"), {**warm, **(launchers or {})}, umask))
        except OSError as error:
            raise unusable(folder, error) from None
        ready(daemon)
        daemon.run()


def main(arguments: list[str]) -> int:
    """Serve as the command line says; an error is one line."""
    folder, settings = arguments
    try:
        serve(Path(folder), NodeSettings(**json.loads(settings)))
    except GpuyardError as error:
        print(f"gpuyard: error: {error}", file=sys.stderr, flush=True)  # noqa: T201
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
