"""Asks the scheduler, in a process of its own, what to do. If it fails or takes too long, another takes over, and the node says so."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.live.node.advice.deciding import LENGTH
from gpuyard.live.state.wire import SnapshotWriter
from gpuyard.model.cluster import EPS
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.snapshot import Snapshot

PLAIN = "plain"  # first come, first served, in the daemon itself: needs no engine
FALLBACKS = ("fcfs/fewest/easy", PLAIN)
FIRST_COME = "fcfs"  # ordering of schedulers whose first decisions are those of PLAIN, so that nobody waits until they are loaded
LOADING = 300.0  # s that a scheduler may take to its first answer: the engine may have to be compiled


@dataclass(frozen=True)
class Advice:
    """The scheduler's answer."""

    decisions: Sequence[Decision] = ()
    order: Sequence[int] = ()  # the first waiting jobs, in its order; empty: it does not say
    seconds: float = 0.0
    keys: Sequence[float] = ()  # by which it orders them, lower first; of a network minus its score; empty: it does not say
    every: float = 0.0  # s after which it wants to be asked again while jobs wait; 0: only when something happens

    def because(self, decision: Decision) -> str:
        """Say why a job starts, as far as the order of the queue shows it: it was next, or fits beside one that goes first."""
        starts = {each.job for each in self.decisions if each.action is Action.START}
        if decision.action is not Action.START or decision.job not in self.order:
            return ""
        head = next((number for number in self.order if number == decision.job or number not in starts), decision.job)
        return ": is next" if head == decision.job else f": fits beside job {head}, which goes first but cannot start"


@dataclass
class Advisor:
    """The scheduler of a node, by its text. One question is open at a time: it lies in memory that its process reads."""

    text: str
    patience: float  # s for an answer
    log: Path
    now_used: str = ""
    trouble: str = ""  # why it is not the one that was asked for
    ready: bool = False  # it has answered once
    loading: bool = False
    asked: float = 0.0  # when the open question was asked, by the monotonic clock; 0: none is open. The first is whether it is loaded
    took: float = 0.0  # s of the last answer
    _process: subprocess.Popen[bytes] | None = field(default=None, repr=False)
    _writer: SnapshotWriter = field(default_factory=SnapshotWriter, repr=False)
    _sheet: int = field(default=-1, repr=False)  # file in memory that snapshots are written to
    _data: bytes = field(default=b"", repr=False)
    _plain: Advice | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        self._use(self.text)

    @property
    def busy(self) -> bool:
        return self.asked > 0 and not self.stands_in

    @property
    def stands_in(self) -> bool:
        """Return whether questions are answered here at once: there is no process, or it is still loading and would say the same."""
        return self._process is None or (self.loading and self.now_used.partition("/")[0] == FIRST_COME)

    def fileno(self) -> int:
        """Return the file that an answer comes from; -1: there is no process."""
        return self._process.stdout.fileno() if self._process and self._process.stdout else -1

    def _use(self, text: str) -> None:
        self.close()
        self.now_used, self.ready, self.asked, self._data, self._writer = text, text == PLAIN, 0.0, b"", SnapshotWriter()
        self.loading = text != PLAIN
        if self.loading:
            self._sheet = os.memfd_create("snapshot", os.MFD_CLOEXEC)
            command = [sys.executable, "-m", "gpuyard.live.node.advice.deciding", text, str(self._sheet)]
            with self.log.open("ab") as log:
                self._process = subprocess.Popen(
                    command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, pass_fds=[self._sheet], start_new_session=True
                )
            os.set_blocking(self.fileno(), False)
            self.asked = time.monotonic()

    def close(self) -> None:
        """End the process."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()
            process.wait()
            os.close(self._sheet)

    def ask(self, snapshot: Snapshot) -> None:
        """Ask what to do now. The answer comes later; see `answer`."""
        if self.stands_in or self._process is None or self._process.stdin is None:
            self._plain = Advice(first_come(snapshot))
            return
        self.asked = time.monotonic()
        try:
            size = os.pwritev(self._sheet, self._writer.write(snapshot), 0)
            os.write(self._process.stdin.fileno(), LENGTH.pack(size))
        except OSError as error:
            self._fail(f"cannot be asked: {error.strerror or error}")

    def answer(self) -> Advice | None:
        """Return the answer, if it is there. A failure lets the next scheduler take over, and is no answer."""
        if self._plain is not None:
            made, self._plain = self._plain, None
            return made
        if self._process is None:
            return None
        try:
            piece = os.read(self.fileno(), 1 << 20)
        except BlockingIOError:
            return None
        if not piece:
            self._fail("ended" if self._process.poll() is None else f"ended with code {self._process.returncode}")
            return None
        self._data += piece
        if len(self._data) < LENGTH.size or len(self._data) < LENGTH.size + LENGTH.unpack(self._data[: LENGTH.size])[0]:
            return None
        found, self._data = json.loads(self._data[LENGTH.size :]), b""
        if "error" in found:
            self._fail(str(found["error"]))
            return None
        if "loaded" in found:
            self.loading, self.asked = False, 0.0
            return None
        self.ready, self.asked, self.took = True, 0.0, float(found["seconds"])
        return Advice([_decision(each) for each in found["decisions"]], found["order"], self.took, found["keys"], float(found["every"]))

    def check(self) -> bool:
        """Let the next scheduler take over if this one takes too long; return whether that has happened."""
        limit = self.patience if self.ready else LOADING
        if self.asked and time.monotonic() - self.asked > limit:
            self._fail(f"gave no answer within {limit:g} s")
            return True
        return False

    def _fail(self, why: str) -> None:
        after = FALLBACKS.index(self.now_used) + 1 if self.now_used in FALLBACKS else 0
        self.trouble = f"{self.now_used} {why}"[:1000]
        self._use(FALLBACKS[min(after, len(FALLBACKS) - 1)])


def _decision(data: Sequence[Any]) -> Decision:
    job, action, parts, reason = data
    return Decision(job, Action(action), tuple(Part(node, gpus, tuple(devices)) for node, gpus, devices in parts), reason)


def first_come(snapshot: Snapshot) -> list[Decision]:
    """Start the waiting jobs in the order of submission until one does not fit."""
    jobs, nodes = snapshot.jobs.table, snapshot.cluster.nodes
    free = snapshot.free_gpus().astype(float)
    cpus = nodes.cpus.copy()
    for held in snapshot.held:
        cpus[held["node"]] -= jobs["cpus"][held["row"]]
    made = []
    for row in snapshot.waiting.tolist():
        gpus, need = float(jobs["gpus"][row]), float(jobs["cpus"][row])
        fits = [k for k in range(len(nodes)) if free[k] >= math.ceil(gpus) and cpus[k] + EPS >= need]
        if not fits:
            break
        node = fits[0]
        free[node] -= math.ceil(gpus)
        cpus[node] -= need
        made.append(Decision(int(jobs["index"][row]), Action.START, (Part(node, gpus),), "first come, first served"))
    return made
