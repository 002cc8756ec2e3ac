"""A node of gpuyard on this machine: what has changed since the last look, in pieces that do not hold its daemon up."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.live.gpus.samples import SampleFiles
from gpuyard.live.node.api import Message, node_folder
from gpuyard.live.node.client import NodeClient, NodeError
from gpuyard.model.site.eligibility import REASONS
from gpuyard.model.units import clean
from gpuyard.web.rows import QueueRow
from gpuyard.web.sources.base import ACTIONS, Glance, GpuNow, HeldSpan, PastReadings

PIECE = 500  # jobs asked for at once: some 30 ms of the daemon
PIECES = 6  # at one look, while all are being read
MOST_ENDED = 200_000  # numbers of jobs back to which the dashboard reads
DECISIONS = 200
_VERBS: Mapping[str, str] = {"cancel": "cancel", "hold": "hold", "release": "release", "top": "first"}
READINGS = {"utilisation": "utilisation", "memory": "used", "power": "watts", "temperature": "celsius"}  # ours → of the files


@dataclass
class _Place:
    """How far a source has read."""

    epoch: str = ""
    since: int = 0
    reasons_at: int = -1
    before: int = 0  # number below which jobs have still to be read; 0: none


class _Connection:
    """A connection to the node, for one question at a time."""

    def __init__(self, folder: Path) -> None:
        self._client, self._asking = NodeClient(folder, patience=10.0), threading.Lock()

    def call(self, verb: str, **arguments: Any) -> Message:
        with self._asking:
            return self._client.call(verb, **arguments)

    def close(self) -> None:
        with self._asking:
            self._client.close()


class NodeSource:
    """Looks at the node of a folder."""

    every = 1.0
    can_act = True

    def __init__(self, folder: Path | None = None) -> None:
        self.folder = node_folder(folder)
        self._looking, self._telling = _Connection(self.folder), _Connection(self.folder)  # who asks about a job does not wait for a look
        self._at = _Place()
        self._devices: list[str] = []

    def look(self) -> Glance:
        """Return what has changed; at first, and when another daemon has taken over, piece by piece all jobs."""
        status = self._looking.call("status")
        found = self._looking.call("watch", epoch=self._at.epoch, since=self._at.since, reasons_at=max(self._at.reasons_at, 0), limit=2000)
        fresh = bool(found.get("whole"))
        if fresh:
            self._at = _Place(found["epoch"], int(found["next"]), -1, 2**53)
            found = {"jobs": [], "reasons": {}, "order": [], "keys": []}
        else:
            self._at.since, self._at.reasons_at = int(found["next"]), int(found["reasons_at"])
        jobs = [*found["jobs"], *self._more()]
        reasons = {number: REASONS.get(why, why) for why, numbers in found.get("reasons", {}).items() for number in numbers}
        self._devices = [each["uuid"] for each in status["devices"]] or [f"cpu{k}" for k in range(int(status["slots"]))]
        return Glance(
            float(status["now"]), f"node {clean(str(status['folder']))}", str(status["used"]), _trouble(status), fresh=fresh,
            rows=[_row(each) for each in jobs], reasons=reasons if "reasons" in found else None, order=found["order"], keys=found["keys"],
            total=float(status["slots"]), busy=float(status["busy"]), unit="GPU" if status["gpus"] else "CPU slot",
            devices=[f"GPU {each['index']}" for each in status["devices"]] or [f"slot {k}" for k in range(int(status["slots"]))],
            held=list(self._held(jobs)), gpus=[_gpu(each) for each in status["devices"]], decisions=self._decisions(),
            loading=max(self._at.before - 1, 0) if 0 < self._at.before < 2**53 else 0,
        )  # fmt: skip

    def detail(self, number: int) -> Mapping[str, Any]:
        """Return why a job waits, when it may start, and what it runs."""
        why = self._telling.call("why", id=number)
        (job,) = self._telling.call("jobs", ids=[number])["jobs"]
        asked = job["asked"]
        return {
            "why": why["reason"], "position": why["position"], "start": why["start"], "earliest": why["earliest"], "latest": why["latest"],
            "history": [clean(str(each)) for each in why["history"]], "command": clean(" ".join(asked["command"]))[:2000],
            "cwd": clean(asked.get("cwd", "/")), "exit_code": job["exit_code"], "energy": job["energy"], "attempts": job["attempt"],
            "held": job["held"],
        }  # fmt: skip

    def output(self, number: int, most: int) -> str:
        """Return the end of what a job has written."""
        path = Path(self._telling.call("logs", id=number)["path"])
        try:
            with path.open("rb") as file:
                size = file.seek(0, 2)
                file.seek(max(size - most, 0))
                return file.read(most).decode("utf-8", "replace")
        except FileNotFoundError:
            return ""
        except OSError as error:
            raise NodeError(f"the output of job {number} cannot be read: {error.strerror or error}") from None

    def act(self, action: str, number: int) -> None:
        """Cancel, hold or release a job, or put it before all others."""
        assert action in ACTIONS
        self._telling.call(_VERBS[action], ids=[number])

    def past(self, since: float) -> PastReadings:
        """Return the readings that the node has kept on disk, one in ten seconds."""
        rows = SampleFiles(self.folder / "gpus").read(since)
        if not len(rows):
            return PastReadings()
        gpus = np.unique(rows["gpu"])
        steps, step = np.unique(rows["time"] // 10, return_inverse=True)
        values = {}
        for ours, theirs in READINGS.items():
            table = np.full((len(gpus), len(steps)), np.nan)
            table[np.searchsorted(gpus, rows["gpu"]), step] = rows[theirs]
            values[ours] = table.tolist()
        return PastReadings((steps * 10).tolist(), values)

    def close(self) -> None:
        """Close the connections."""
        for each in (self._looking, self._telling):
            each.close()

    def _more(self) -> Iterable[Message]:
        """Read on, from the greatest number down."""
        found: deque[Message] = deque()
        for _ in range(PIECES):
            if not self._at.before:
                break
            piece = self._looking.call("page", before=self._at.before, limit=PIECE)["jobs"]
            found.extend(piece)
            last = int(piece[-1]["id"]) if piece else 0
            first = int(piece[0]["id"]) if piece and self._at.before == 2**53 else 0
            self._floor = max(first - MOST_ENDED, 0) if first else getattr(self, "_floor", 0)
            self._at.before = last if last > max(self._floor, 1) else 0
        return found

    def _held(self, jobs: Sequence[Message]) -> Iterable[HeldSpan]:
        """Return the stretches in which these jobs held devices."""
        place = {uuid: k for k, uuid in enumerate(self._devices)}
        for job in jobs:
            rows = [place[uuid] for uuid in job["devices"] if uuid in place]
            if rows and job["start"] and job["state"] != "STARTING":
                yield HeldSpan(int(job["id"]), str(job["id"]), _text(job["name"]), rows, float(job["start"]), float(job["end"]))

    def _decisions(self) -> list[Mapping[str, Any]]:
        found = self._looking.call("decisions", limit=DECISIONS)["decisions"]
        return [{"at": at, "job": str(job), "action": _text(action), "reason": _text(reason)} for at, job, action, reason in found]


def _text(text: object) -> str:
    return " ".join(clean(str(text)).split())


def _row(job: Message) -> QueueRow:
    array = f"[{job['array']}]" if job["array"] is not None else ""
    state = str(job["state"])
    devices = " ".join(str(each) for each in job["devices"]) if state != "PENDING" else ""
    return QueueRow(
        int(job["id"]), str(job["id"]), f"{_text(job['name'])}{array}", _text(job["user"]), state,
        _text(REASONS.get(str(job["reason"]), job["reason"])), gpus=float(job["gpus"]), place=devices, submit=float(job["submit"]),
        start=float(job["start"]) if state != "PENDING" else 0.0, end=float(job["end"]), estimate=float(job["expected"]),
        priority=float(job["priority"]),
    )  # fmt: skip


def _gpu(device: Message) -> GpuNow:
    state = str(device["state"])
    return GpuNow(
        f"GPU {device['index']}", _text(device["name"]), "gpu-lost" if device["lost"] else state, [str(each) for each in device["jobs"]],
        float(device["utilisation"]), max(float(device["memory"]) - float(device["free"]), 0.0), float(device["memory"]),
        float(device["watts"]), float(device["celsius"]),
    )  # fmt: skip


def _trouble(status: Message) -> str:
    said = [status["trouble"], "the node is being drained: it starts nothing" if status["draining"] else "", status["gpu_problem"]]
    lost = [f"GPU {each['index']}: {each['lost']}" for each in status["devices"] if each["lost"]]
    return "; ".join(_text(each) for each in (*said[: 2 if not status["gpus"] else 3], *lost) if each)
