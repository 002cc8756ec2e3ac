"""Events for many viewers: each has a bounded queue, and who does not read is dropped. Who comes back is told what was missed."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections import deque
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

KEPT = 120  # events that a viewer who comes back may have missed
MOST_WAITING = 30  # events that a viewer may be behind
MOST_VIEWERS = 256
PATIENCE = 15.0  # s that a viewer may take to accept an event, and between signs of life
RETRY = 1000  # ms after which a browser connects again

Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


@dataclass(eq=False)
class Viewer:
    """A viewer's queue."""

    waiting: asyncio.Queue[bytes] = field(default_factory=lambda: asyncio.Queue(MOST_WAITING))
    slow: bool = False


class EventStream:
    """Sends every event to all viewers. It lives in one event loop; `publish` may be called from any thread."""

    def __init__(self) -> None:
        self.dropped = 0
        self._epoch = secrets.token_hex(4)
        self._number = 0
        self._past: deque[tuple[int, bytes]] = deque(maxlen=KEPT)
        self._viewers: set[Viewer] = set()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._closed = False

    @property
    def viewers(self) -> int:
        return len(self._viewers)

    def start(self) -> None:
        """Belong to the running event loop."""
        self._loop = asyncio.get_running_loop()

    def close(self) -> None:
        """Let all viewers go."""
        self._closed = True
        for viewer in list(self._viewers):
            self._drop(viewer)

    def publish(self, name: str, data: object) -> None:
        """Send an event to all who watch."""
        if self._loop is not None and not self._loop.is_closed():
            with suppress(RuntimeError):  # closed in between
                self._loop.call_soon_threadsafe(self._send, name, json.dumps(data, ensure_ascii=False, separators=(",", ":")))

    def _send(self, name: str, data: str) -> None:
        self._number += 1
        text = f"id: {self._epoch}-{self._number}\nevent: {name}\ndata: {data}\n\n".encode("utf-8", "replace")
        self._past.append((self._number, text))
        for viewer in list(self._viewers):
            try:
                viewer.waiting.put_nowait(text)
            except asyncio.QueueFull:
                self.dropped += 1
                self._drop(viewer)

    def _drop(self, viewer: Viewer) -> None:
        """Let a viewer go; what waits for him is thrown away, so that the end of the queue is seen at once."""
        viewer.slow = True
        self._viewers.discard(viewer)
        while not viewer.waiting.empty():
            viewer.waiting.get_nowait()
        viewer.waiting.put_nowait(b"")

    def missed(self, last: str) -> list[bytes]:
        """Return the events after the one that a viewer saw last; a `reset` where they are no longer known."""
        if not last:
            return []
        epoch, _, number = last.partition("-")
        if epoch != self._epoch or not number.isdigit() or (self._past and int(number) + 1 < self._past[0][0]):
            return [b"event: reset\ndata: {}\n\n"]
        return [text for k, text in self._past if k > int(number)]

    async def serve(self, last: str, receive: Receive, send: Send) -> None:
        """Serve a viewer until he goes, is too slow, or the server ends."""
        if len(self._viewers) >= MOST_VIEWERS or self._closed:
            body = b'{"error":"too many viewers"}'
            await send({"type": "http.response.start", "status": 503, "headers": [(b"content-type", b"application/json")]})
            await send({"type": "http.response.body", "body": body})
            return
        headers = [(b"content-type", b"text/event-stream; charset=utf-8"), (b"cache-control", b"no-store"), (b"x-accel-buffering", b"no")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        viewer = Viewer()
        first = [f"retry: {RETRY}\n\n".encode(), *self.missed(last)]
        self._viewers.add(viewer)
        gone = asyncio.ensure_future(_until_gone(receive))
        try:
            await _tell(send, b"".join(first))
            await self._feed(viewer, gone, send)
            if not gone.done():
                with suppress(TimeoutError):
                    await asyncio.wait_for(send({"type": "http.response.body", "body": b""}), PATIENCE)
        except TimeoutError:
            self.dropped += 1
        finally:
            self._viewers.discard(viewer)
            gone.cancel()

    async def _feed(self, viewer: Viewer, gone: asyncio.Future[None], send: Send) -> None:
        while not gone.done():
            next_event = asyncio.ensure_future(viewer.waiting.get())
            waited: set[asyncio.Future[Any]] = {next_event, gone}
            done, _ = await asyncio.wait(waited, timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
            if next_event not in done:
                next_event.cancel()
                if not done:
                    await _tell(send, b": here\n\n")
                continue
            if not (text := next_event.result()):
                return
            await _tell(send, text)


async def _tell(send: Send, text: bytes) -> None:
    await asyncio.wait_for(send({"type": "http.response.body", "body": text, "more_body": True}), PATIENCE)


async def _until_gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
