"""The loop of the service: one process, one decision after the other, each client at most one request in a turn."""

from __future__ import annotations

import gc
import os
import selectors
import signal
import socket
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.files import parse_json
from gpuyard.live.clients import Clients, Connection, LineWire, Request, Wire, listen_at, refusal
from gpuyard.live.node.client import NodeError, short_path
from gpuyard.live.service.http import HttpWire, PlainText
from gpuyard.live.service.verbs import VERBS, Desk
from gpuyard.live.state.file import check_parts
from gpuyard.model.fields import Fields
from gpuyard.registry import unknown_name

LONGEST = 16_000_000  # bytes of a request: a snapshot of some 50,000 jobs
TICK = 1.0  # s


class TooSlowError(GpuyardError):
    """A decision took longer than the service lets any."""


class DecisionService:
    """Answers on a listening socket until it is told to stop. It must run in the main thread, whose alarm ends what takes too long."""

    def __init__(self, listener: socket.socket, desk: Desk, *, token: str = "", patience: float = 10.0) -> None:
        self._desk, self._patience = desk, patience
        self._selector = selectors.DefaultSelector()
        self._lines = listener.family == socket.AF_UNIX
        wire: Wire = LineWire(LONGEST) if self._lines else HttpWire(token, LONGEST)
        self._clients = Clients(listener, self._selector, wire, self._take, "service")
        self._asked: list[tuple[Connection, Request]] = []
        self._stopping = False

    def run(self) -> None:
        """Serve until a signal ends it."""
        wake, waker = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._stop)
        signal.signal(signal.SIGALRM, _too_slow)
        self._selector.register(wake, selectors.EVENT_READ, lambda _: os.read(wake, 512))
        gc.collect()
        gc.freeze()
        next_tick = time.monotonic() + TICK
        while not self._stopping:
            for key, events in self._selector.select(0.0 if self._asked else max(next_tick - time.monotonic(), 0.0)):
                with suppress(KeyError):  # an event before this one may have closed it
                    self._selector.get_key(key.fileobj)
                    key.data(events)
            asked, self._asked = self._asked, []
            for connection, request in asked:
                self._clients.send(connection, self._for_wire(self._answer(request)))
            if time.monotonic() >= next_tick:
                next_tick = time.monotonic() + TICK
                self._clients.drop_slow()
        self._clients.close()

    def _stop(self, *_: object) -> None:
        self._stopping = True

    def _take(self, connection: Connection, request: Request) -> None:
        self._asked.append((connection, request))

    def _for_wire(self, answer: object) -> object:
        return {"ok": True, "text": answer.text} if isinstance(answer, PlainText) and self._lines else answer

    def _answer(self, request: Request) -> Any:
        """Answer a request, and count it."""
        began, verb = time.perf_counter(), ""
        try:
            with _limited(self._patience):
                check_parts(request.body, "request")
                given = Fields(parse_json(request.body, "request", strict=True), "request")
                asked = request.verb or given.text("verb", limit=50)
                if asked not in VERBS:
                    raise unknown_name("verb", asked, list(VERBS))
                verb = asked
                answer = VERBS[verb](self._desk, given)
        except GpuyardError as error:
            if isinstance(error, TooSlowError):
                self._desk.forget()
            answer = refusal(error)
        except Exception as error:  # the service goes on whatever one request does
            what = " ".join(f"{type(error).__name__}: {error}".split())[:300]
            print(f"gpuyard: request: {what}", file=sys.stderr, flush=True)  # noqa: T201
            self._desk.counts.crashed += 1
            answer = refusal(NodeError(what))
        ok = not isinstance(answer, dict) or answer.get("ok", True) is True
        self._desk.counts.add(verb or "unknown", time.perf_counter() - began, ok=ok)
        return answer


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    """Raise TooSlowError in the block when the time is over. Compiled code is not interrupted; what comes after it is."""
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


def _too_slow(number: int, frame: FrameType | None) -> None:
    raise TooSlowError("the request took too long", hint="a smaller snapshot, a faster scheduler, or --patience")


def listen_at_path(path: Path) -> socket.socket:
    """Open a Unix socket at a path. What is there already is replaced only if it is a socket on which nobody listens."""
    with suppress(FileNotFoundError):
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise UsageError(f"{path}: is there already, and is not a socket", hint="give another path")
        with socket.socket(socket.AF_UNIX) as trial, short_path(path.parent, path.name) as place, suppress(ConnectionRefusedError):
            trial.connect(place)
            raise UsageError(f"{path}: another service answers there", hint="stop it, or give another path")
    try:
        return listen_at(path.parent, path.name)
    except OSError as error:
        raise UsageError(f"{path}: cannot be listened on: {error.strerror or error}", hint="the folder must exist") from None
