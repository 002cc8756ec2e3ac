"""A dashboard under test: the application on a port of this machine, in a thread, and a source with any number of jobs."""

from __future__ import annotations

import http.client
import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuyard.web.app import Dashboard, DashboardServer, configuration, create_app, listen
from gpuyard.web.guarding import Access
from gpuyard.web.rows import QueueRow
from gpuyard.web.sources.base import Glance, GpuNow, HeldSpan, LooksOnly
from support.nodes import until

TOKEN = "a" * 32
NOW = 1_790_000_000.0


class TriedDashboard:
    """Serves a dashboard, can be stopped and started again on the same port."""

    def __init__(self, source: Any, *folders: Path, token: str = "", actions: bool = False) -> None:
        self._source, self._folders = source, folders
        self._access = Access.at("127.0.0.1", token, actions=actions)
        self.port = 0
        self.start()

    def start(self) -> None:
        self.app = create_app(Dashboard(self._source, self._access, self._folders))
        listener = listen("127.0.0.1", self.port)
        self.port = listener.getsockname()[1]
        self._server = DashboardServer(configuration(self.app))
        self._thread = threading.Thread(target=self._server.run, kwargs={"sockets": [listener]}, daemon=True)
        self._thread.start()
        until(lambda: self._server.started, "the dashboard serves")

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(10.0)

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, *, method: str = "GET", body: Any = None, headers: Mapping[str, str] | None = None) -> tuple[int, Any, Any]:
        """Return status, body (of JSON: what it says) and headers."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            given = {"content-type": "application/json", "x-gpuyard": "1"} if body is not None else {}
            connection.request(method, path, json.dumps(body) if body is not None else None, {**given, **(headers or {})})
            found = connection.getresponse()
            data = found.read()
        finally:
            connection.close()
        is_json = (found.getheader("content-type") or "").startswith("application/json")
        return found.status, json.loads(data) if is_json else data, found.headers

    def get(self, path: str, **headers: str) -> Any:
        """Return what a path says; it must be there."""
        status, found, _ = self.ask(path, headers=headers)
        assert status == 200, (path, status, found)
        return found


@dataclass
class ManyJobs(LooksOnly):
    """A cluster with so many jobs that run, wait and have ended. It changes when it is told to."""

    running: int = 0
    waiting: int = 0
    ended: int = 0
    every: float = 0.2
    can_act: bool = True
    name: str = ""  # of every job, if it is given
    changed: list[QueueRow] = field(default_factory=list)
    acted: list[tuple[str, int]] = field(default_factory=list)
    looks: int = 0

    def look(self) -> Glance:
        self.looks += 1
        now = NOW + self.looks
        rows = self._rows() if self.looks == 1 else self.changed
        self.changed = []
        order = range(self.running + 1, self.running + min(self.waiting, 2000) + 1)
        gpus = [GpuNow(f"GPU {k}", "H100", "busy", [str(k + 1)], 0.9, 60.0, 80.0, 600.0, 61.0) for k in range(4)]
        held = [HeldSpan(k + 1, str(k + 1), "train", [k], NOW - 600.0, 0.0) for k in range(4)]
        decisions = [{"at": NOW, "job": "1", "action": "start", "reason": f"sjf: is next {self.name}"}]
        return Glance(
            now, "a cluster of a test", "sjf/fewest/easy", fresh=self.looks == 1, rows=rows, order=list(order),
            keys=[float(k) for k in order],
            total=4.0, busy=4.0, devices=[f"GPU {k}" for k in range(4)], gpus=gpus, held=held, decisions=decisions,
        )  # fmt: skip

    def _rows(self) -> Sequence[QueueRow]:
        states = ["RUNNING"] * self.running + ["PENDING"] * self.waiting + ["DONE"] * self.ended
        return [row_of(k + 1, state, self.name) for k, state in enumerate(states)]

    def detail(self, number: int) -> Mapping[str, Any]:
        return {"why": f"because {self.name}", "command": self.name, "position": 3}

    def output(self, number: int, most: int) -> str:
        return self.name

    def act(self, action: str, number: int) -> None:
        self.acted.append((action, number))

    def close(self) -> None:
        self.looks = 0  # who looks next knows nothing yet


def row_of(number: int, state: str, name: str = "") -> QueueRow:
    """Return a job whose numbers follow from its own."""
    row = QueueRow(number, str(number), name or f"train-{number % 977}", f"user-{number % 13}", state, gpus=float(1 + number % 8),
                   submit=NOW - 100.0 - number, estimate=float(number % 5000), priority=float(number % 7))  # fmt: skip
    if state == "PENDING":
        return row
    began = replace(row, start=row.submit + number % 90)
    return began if state == "RUNNING" else replace(began, end=began.start + 60.0 + number % 300)
