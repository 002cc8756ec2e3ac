"""The comparisons that were asked for: one runs at a time, each in a process of its own that can be ended."""

from __future__ import annotations

import itertools
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Literal

from gpuyard.errors import UsageError
from gpuyard.model.presets import PRESETS
from gpuyard.registry import unknown_name
from gpuyard.traces import GENERATORS

MOST_WAITING = 4
MOST_KEPT = 20
MOST_LINE = 20_000_000  # characters of what a comparison tells
_FILES = ("..", "\\", "\0", "//", ".py", ".toml", ".safetensors")
PATIENCE = 1200.0  # s that one may take
State = Literal["waiting", "running", "done", "failed", "cancelled"]


@dataclass
class AskedComparison:
    """A comparison that somebody asked for."""

    number: int
    asked: dict[str, Any]
    state: State = "waiting"
    done: int = 0
    begun: float = 0.0  # s since 1970
    ended: float = 0.0
    error: str = ""
    hint: str = ""
    result: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[str] | None = None

    @property
    def total(self) -> int:
        return max(len(self.asked["schedulers"]), 1) * int(self.asked["seeds"])

    def told(self) -> dict[str, Any]:
        """Return what a list shows of it."""
        return {
            "number": self.number, "state": self.state, "done": self.done, "total": self.total, "asked": self.asked, "begun": self.begun,
            "ended": self.ended, "error": self.error, "hint": self.hint, "now": time.time(),
        }  # fmt: skip


class Comparisons:
    """Runs comparisons one after the other."""

    def __init__(self, changed: Callable[[AskedComparison], None] = lambda _: None) -> None:
        self._changed = changed
        self._lock = threading.Lock()
        self._all: OrderedDict[int, AskedComparison] = OrderedDict()
        self._numbers = itertools.count(1)
        self._wake = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="comparisons", daemon=True)
        self._thread.start()

    def ask(self, workload: str, cluster: str, schedulers: Sequence[str], seeds: int) -> AskedComparison:
        """Queue a comparison."""
        check_names(workload, cluster, schedulers)
        with self._lock:
            if sum(each.state == "waiting" for each in self._all.values()) >= MOST_WAITING:
                raise UsageError(f"{MOST_WAITING} comparisons wait already", hint="cancel one, or try again later")
            asked = {"workload": workload, "cluster": cluster, "schedulers": list(dict.fromkeys(schedulers)), "seeds": seeds}
            made = AskedComparison(next(self._numbers), asked)
            self._all[made.number] = made
            for number in [each.number for each in self._all.values() if each.ended][: max(len(self._all) - MOST_KEPT, 0)]:
                del self._all[number]
        self._wake.set()
        return made

    def all(self) -> list[AskedComparison]:
        """List them, the last first."""
        with self._lock:
            return list(reversed(self._all.values()))

    def find(self, number: int) -> AskedComparison | None:
        """Return one of them."""
        with self._lock:
            return self._all.get(number)

    def cancel(self, number: int) -> None:
        """End a comparison that waits or runs."""
        with self._lock:
            found = self._all.get(number)
            if found is not None and found.state in ("waiting", "running"):
                found.state, found.ended = "cancelled", time.time()
                _end(found.process)

    def close(self) -> None:
        """End what runs."""
        self._closed = True
        for each in self.all():
            self.cancel(each.number)
        self._wake.set()
        self._thread.join(3.0)

    def _run(self) -> None:
        while not self._closed:
            self._wake.wait()
            self._wake.clear()
            while (found := self._next()) is not None and not self._closed:
                self._do(found)
                self._changed(found)

    def _next(self) -> AskedComparison | None:
        with self._lock:
            return next((each for each in self._all.values() if each.state == "waiting"), None)

    def _do(self, one: AskedComparison) -> None:
        command = [sys.executable, "-m", "gpuyard.web.comparison_task"]
        with self._lock:
            if one.state != "waiting":
                return
            one.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True)
            one.state, one.begun = "running", time.time()
        timer = threading.Timer(PATIENCE, _end, (one.process,))
        timer.daemon = True
        timer.start()
        try:
            self._follow(one, one.process)
        finally:
            timer.cancel()
            _end(one.process)
            one.process.wait()
            with self._lock:
                if one.state == "running":
                    one.state, one.error = "failed", one.error or "its process ended without an answer"
                one.ended = one.ended or time.time()
                one.process = None

    def _follow(self, one: AskedComparison, process: subprocess.Popen[str]) -> None:
        assert process.stdin is not None and process.stdout is not None
        with suppress(OSError):
            process.stdin.write(json.dumps(one.asked))
            process.stdin.close()
        while line := process.stdout.readline(MOST_LINE):
            told = json.loads(line)
            with self._lock:
                if one.state != "running":
                    return
                one.done = int(told.get("done", one.done))
                if "error" in told:
                    one.state, one.error, one.hint = "failed", str(told["error"]), str(told.get("hint", ""))
                elif "result" in told:
                    one.state, one.result, one.done = "done", told, one.total


def check_names(workload: str, cluster: str, schedulers: Sequence[str]) -> None:
    """Refuse whatever is not a name: who may look here may neither read files nor run code in them."""
    base = workload.partition(":")[0]
    if base not in GENERATORS:
        raise unknown_name("generator", base[:60], [name for name, _ in GENERATORS.items()])
    if cluster and cluster not in PRESETS and not cluster[:1].isdigit() and not cluster.startswith("hosts"):
        raise unknown_name("cluster", cluster[:60], [name for name, _ in PRESETS.items()])
    for text in (workload, cluster, *schedulers):
        words = re.split(r"[=:,()+/ ]", text)
        if text.startswith("/") or any(word.startswith((".", "~")) for word in words) or any(bad in text for bad in _FILES):
            raise UsageError(
                f"{text[:60]!r} names a file", hint="names of workloads, clusters and schedulers alone; gpuyard compare reads files"
            )


def _end(process: subprocess.Popen[str] | None) -> None:
    if process is not None and process.poll() is None:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
