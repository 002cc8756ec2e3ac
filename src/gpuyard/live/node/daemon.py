"""The daemon: one loop over its socket, its shims and its scheduler. `python -m gpuyard.live.node.daemon FOLDER SETTINGS` starts it.

In each turn the requests and ends that have come are worked off, then committed together, and only then answered and carried out.
"""

from __future__ import annotations

import gc
import json
import os
import selectors
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import IO

from gpuyard.errors import GpuyardError
from gpuyard.files import claim
from gpuyard.live.clients import Clients, Connection, LineWire, Request, listen_at, refusal
from gpuyard.live.gpus import find_gpus
from gpuyard.live.node.api import SOCKET, Message, decode
from gpuyard.live.node.client import NodeError
from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import Gpus
from gpuyard.live.node.running.executor import Launcher
from gpuyard.live.node.running.template import WarmTemplate
from gpuyard.live.node.verbs import CHANGING, VERBS, ids_of, shown
from gpuyard.model.fields import Fields

TICK = 1.0  # s
TIDY = 60.0  # s between looks through memory that no longer counts references; with 20,000 jobs the first one takes 50 ms
SETTLING = 0.005  # s between looks at attempts that begin
HANDING_OVER = 2.0  # s for which the lock of a daemon that was killed may outlive it
SHARE_OF_TIME = 0.1  # of the daemon's time that goes into laying out the queue for the scheduler


class Daemon:
    """Serves a node on the socket in its folder until it is told to stop."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._selector = selectors.DefaultSelector()
        self._waits: dict[Connection, tuple[list[int], float]] = {}  # for the end of jobs, until when
        self._replies: list[tuple[Connection, str, Message]] = []
        self._advisor_file = -1
        self._next_tick = self._next_pass = self._last_pass = self._next_complaint = self._next_tidy = 0.0
        self._stopping = False
        self._clients = Clients(listen_at(node.folder, SOCKET), self._selector, LineWire(), self._handle, "node")
        node.executor.on_watch, node.executor.on_forget = self._watch, self._unwatch
        self._flusher = threading.Thread(target=self._flush, daemon=True)

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
            self._clients.drop_slow()
            self._tidy(now)
        self.node.advisor.check()
        self._commit()
        if self.node.wanted and not self.node.advisor.busy and now >= self._due_pass() and self.node.ask():
            self._last_pass, self._next_pass = now, now + (time.monotonic() - now) / SHARE_OF_TIME
        if self.node.advisor.stands_in:
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
        due = min([due, *(until for _, until in self._waits.values())])
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
            self._clients.send(connection, refusal(trouble) if refused and trouble else reply)
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
        (self.node.folder / SOCKET).unlink(missing_ok=True)
        self._clients.close()
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
        loading = self.node.advisor.loading
        advice = self.node.advisor.answer()
        if advice is not None:
            self.node.follow(advice)
        self.node.wanted |= loading and not self.node.advisor.loading  # it may see more than what stood in for it

    # ── clients ──

    def _handle(self, connection: Connection, request: Request) -> None:
        """Carry out one request. Its answer is sent after the commit."""
        verb = ""
        try:
            given = Fields(decode(request.body), "request")
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
            reply = refusal(error)
        except Exception as error:  # the queue goes on whatever one request does
            print(f"gpuyard: request {verb!r}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            reply = refusal(NodeError(f"{type(error).__name__}: {error}"))
        self._replies.append((connection, verb, reply if reply.get("ok") is False else {"ok": True, **reply}))

    def _wait(self, connection: Connection, given: Fields) -> None:
        ids = ids_of(given)
        for number in ids:
            self.node.book.find(number)
        connection.waits = True
        self._waits[connection] = (ids, time.monotonic() + given.number("timeout", 1e9, high=1e9))

    def _answer_waiting(self, now: float) -> None:
        for connection, (ids, until) in list(self._waits.items()):
            if not connection.open:
                del self._waits[connection]
            elif now >= until or not any(number in self.node.book.jobs for number in ids):
                del self._waits[connection]
                self._clients.send(connection, {"ok": True, "jobs": [shown(self.node, self.node.book.find(number)) for number in ids]})


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


def _claimed(lock: IO[str]) -> bool:
    """Return whether the lock could be had: what a killed daemon had just forked holds it until it has become a shim."""
    until = time.monotonic() + HANDING_OVER
    while not claim(lock):
        if time.monotonic() > until:
            return False
        time.sleep(0.01)
    return True


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
        if not _claimed(lock):
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
