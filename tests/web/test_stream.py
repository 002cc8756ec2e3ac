"""The stream of events: who comes back is told what was missed, who does not read is dropped, memory stays bounded."""

from __future__ import annotations

import asyncio
import http.client
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gpuyard.web import stream as streams
from gpuyard.web.stream import KEPT, MOST_WAITING, EventStream
from support.dashboards import ManyJobs, TriedDashboard


class Listener:
    """A viewer that may stop reading, and may go."""

    def __init__(self) -> None:
        self.said: list[bytes] = []
        self.status = 0
        self.reads = asyncio.Event()
        self.reads.set()
        self.gone = asyncio.Event()

    async def receive(self) -> MutableMapping[str, Any]:
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        await self.reads.wait()
        self.status = message.get("status", self.status)
        self.said.append(message.get("body", b""))

    @property
    def events(self) -> list[int]:
        text = b"".join(self.said).decode()
        return [int(line.partition(" ")[2]) for line in text.splitlines() if line.startswith("data: ") and line[6:].isdigit()]

    @property
    def last_id(self) -> str:
        return [line[4:] for line in b"".join(self.said).decode().splitlines() if line.startswith("id: ")][-1]


def played(scene: Callable[[EventStream], Awaitable[None]]) -> None:
    async def play() -> None:
        made = EventStream()
        made.start()
        await scene(made)
        made.close()

    with ThreadPoolExecutor(1) as pool:  # in this thread a browser of other tests may have a loop of its own
        pool.submit(asyncio.run, play()).result()


async def settled() -> None:
    for _ in range(20):
        await asyncio.sleep(0)


def test_who_comes_back_is_told_what_was_missed():
    async def scene(stream: EventStream) -> None:
        first, second = Listener(), Listener()
        serving = asyncio.create_task(stream.serve("", first.receive, first.send))
        await settled()
        for k in range(3):
            stream.publish("n", k)
        await settled()
        assert first.events == [0, 1, 2]
        first.gone.set()
        await serving
        assert stream.viewers == 0
        for k in range(3, 6):
            stream.publish("n", k)
        await settled()
        serving = asyncio.create_task(stream.serve(first.last_id, second.receive, second.send))
        await settled()
        assert second.events == [3, 4, 5]
        second.gone.set()
        await serving

    played(scene)


def test_a_browser_that_connects_again_says_what_it_saw_last():
    """Over HTTP: the header reaches the stream."""
    served = TriedDashboard(ManyJobs(running=1))
    try:
        events = list(_read(served, "", 3))
        again = list(_read(served, events[0][0], 2))
        assert again == events[1:]
        assert next(_read(served, "another-7", 1))[1] == "reset"
    finally:
        served.stop()


def _read(served: TriedDashboard, last: str, count: int) -> Iterator[tuple[str, str, str]]:
    """Yield id, name and data of some events."""
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=30)
    try:
        connection.request("GET", "/api/live/events", headers={"Last-Event-ID": last} if last else {})
        found = connection.getresponse()
        while count:
            block = b"".join(iter(found.readline, b"\n")).decode()
            fields = dict(line.split(": ", 1) for line in block.splitlines())
            if "event" in fields:
                yield fields.get("id", ""), fields["event"], fields["data"]
                count -= 1
    finally:
        connection.close()


def test_who_was_away_too_long_or_saw_another_server_begins_again():
    async def scene(stream: EventStream) -> None:
        for k in range(KEPT + 50):
            stream.publish("n", k)
        await settled()
        for last in ("other-3", f"{stream._epoch}-1", f"{stream._epoch}-x", "nonsense"):
            assert stream.missed(last) == [b"event: reset\ndata: {}\n\n"]
        assert len(stream.missed(f"{stream._epoch}-{KEPT + 40}")) == 10

    played(scene)


def test_who_does_not_read_is_dropped_and_keeps_nobody_waiting(monkeypatch: Any):
    monkeypatch.setattr(streams, "PATIENCE", 0.2)

    async def scene(stream: EventStream) -> None:
        slow, quick = Listener(), Listener()
        serving = [asyncio.create_task(stream.serve("", each.receive, each.send)) for each in (slow, quick)]
        await settled()
        slow.reads.clear()
        for k in range(3 * MOST_WAITING):
            stream.publish("n", k)
            await settled()
        assert quick.events == list(range(3 * MOST_WAITING))
        await asyncio.wait_for(serving[0], 5.0)  # its connection ends
        assert stream.viewers == 1 and stream.dropped >= 1 and not serving[1].done()
        quick.gone.set()
        await serving[1]

    played(scene)


def test_there_is_an_end_to_the_number_of_viewers(monkeypatch: Any):
    monkeypatch.setattr(streams, "MOST_VIEWERS", 1)

    async def scene(stream: EventStream) -> None:
        first, second = Listener(), Listener()
        serving = asyncio.create_task(stream.serve("", first.receive, first.send))
        await settled()
        await stream.serve("", second.receive, second.send)
        assert (first.status, second.status) == (200, 503)
        stream.close()
        await serving
        assert stream.viewers == 0

    played(scene)
