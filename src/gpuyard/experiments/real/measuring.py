"""Measure how fast each kind of work is alone and beside others, on one device.

Every job is a process of its own, forked from this one after the library has been imported, and works without end; its rate is read
between two instants, when all have long begun.
"""

from __future__ import annotations

import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.experiments.real.traces import read_record, write_record
from gpuyard.workbench.task import KINDS, TaskRequest, library_for
from gpuyard.workbench.work import TELL, WorkRequest, work

PATIENCE = 120.0  # s until a job must have done its first steps
FOREVER = 1e8  # s
Crowd = tuple[str, ...]  # kinds of work that run at once, in the order of KINDS


@dataclass(frozen=True)
class Rates:
    """Steps per second of each kind in each crowd that was measured, on one device."""

    device: str  # cpu or gpu
    device_name: str
    library: str
    crowds: Mapping[Crowd, Mapping[str, float]] = field(default_factory=dict)

    def alone(self, kind: str) -> float:
        """Return the steps per second of a kind that has the device to itself."""
        return self.crowds[(kind,)][kind]

    def slowdown(self, kind: str, beside: Sequence[str]) -> float:
        """Return how many times as long a step takes beside these jobs, at least 1.

        Each neighbour adds what it added when the two were alone: where the device is divided by time, that is exact.
        """
        added = sum(max(self.alone(kind) / self.crowds[_crowd(kind, other)][kind] - 1.0, 0.0) for other in beside)
        return 1.0 + added

    def complete(self, kinds: Sequence[str] = tuple(KINDS)) -> bool:
        """Return whether every crowd has been measured."""
        return all(crowd in self.crowds for crowd in crowds(kinds))

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        rows = [{"crowd": list(crowd), "rates": dict(rates)} for crowd, rates in self.crowds.items()]
        table = {"device": self.device, "device_name": self.device_name, "library": self.library, "crowds": rows}
        write_record(path, "rates", table)

    @classmethod
    def load(cls, path: Path) -> Rates:
        """Read what `save` wrote."""
        fields = read_record(path, "rates")
        crowds: dict[Crowd, dict[str, float]] = {}
        for row in fields.rows("crowds"):
            rates = row.table("rates")
            crowds[row.texts("crowd")] = {kind: rates.number(kind, above=0.0) for kind in rates.names}
            row.done()
        made = cls(fields.text("device"), fields.text("device_name"), fields.text("library"), crowds)
        fields.done()
        return made


def _crowd(*kinds: str) -> Crowd:
    order = list(KINDS)
    return tuple(sorted(kinds, key=order.index))


def crowds(kinds: Sequence[str]) -> list[Crowd]:
    """Return what is measured: each kind alone, every pair, and all at once."""
    pairs = [_crowd(*pair) for pair in combinations_with_replacement(kinds, 2)]
    every = [_crowd(*kinds)] if len(kinds) > 2 else []
    return [*((kind,) for kind in kinds), *pairs, *every]


def measure_rates(
    asked: TaskRequest, *, kinds: Sequence[str] = tuple(KINDS), seconds: float = 3.0, warm: float = 1.0, known: Rates | None = None,
    on_progress: Callable[[Rates, Crowd], None] = lambda rates, crowd: None,
) -> Rates:  # fmt: skip
    """Measure all crowds but the known ones; each takes `warm` + `seconds` s and the time to begin."""
    for kind in kinds:
        library = library_for(kind, asked.library)
        if library != "numpy":
            import_module(f"gpuyard.workbench.on_{library}")
    made = known or Rates("", "", "")
    for crowd in crowds(kinds):
        if crowd not in made.crowds:
            rates, about = _measure(asked, crowd, seconds, warm)
            # numpy's table may be measured first: what trains says which library it is
            library = made.library if made.library not in ("", "numpy") else about["library"]
            made = Rates(about["device"], about["device_name"], library, {**made.crowds, crowd: rates})
            on_progress(made, crowd)
    return made


def _measure(asked: TaskRequest, crowd: Crowd, seconds: float, warm: float) -> tuple[dict[str, float], dict[str, Any]]:
    with _started(asked, crowd) as workers:
        for worker in workers:
            worker.await_ready()
        time.sleep(warm)
        before = [worker.ask() for worker in workers]
        time.sleep(seconds)
        after = [worker.ask() for worker in workers]
        rates = [(b["steps"] - a["steps"]) / max(b["seconds"] - a["seconds"], 1e-9) for a, b in zip(before, after, strict=True)]
        about = [worker.stop() for worker in workers]
    mean = {kind: [rate for other, rate in zip(crowd, rates, strict=True) if other == kind] for kind in crowd}
    return {kind: sum(each) / len(each) for kind, each in mean.items()}, about[0]


class EndlessJob:
    """A forked process that works without end and says how far it is."""

    def __init__(self, asked: TaskRequest) -> None:
        self._reader, writer = os.pipe()
        self._rest = b""
        sys.stdout.flush()
        sys.stderr.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _work_forever(asked, writer)
        os.close(writer)

    def await_ready(self) -> None:
        """Wait until its first step is done."""
        self._line()

    def ask(self) -> dict[str, Any]:
        """Return how many steps it has done, and in how many seconds."""
        os.kill(self.pid, TELL)
        return self._line()

    def stop(self) -> dict[str, Any]:
        """End it, and return what it says at the end."""
        os.kill(self.pid, signal.SIGTERM)
        found = self._line()
        os.waitpid(self.pid, 0)
        self.pid = 0
        return found

    def close(self) -> None:
        """End it, whatever state it is in."""
        if self.pid:
            with suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self._reader)

    def _line(self) -> dict[str, Any]:
        until = time.monotonic() + PATIENCE
        while b"\n" not in self._rest:
            ready, _, _ = select.select([self._reader], [], [], max(until - time.monotonic(), 0.0))
            piece = os.read(self._reader, 65_536) if ready else b""
            if not piece:
                raise GpuyardError(f"a job of the workbench {'has ended' if ready else f'has not answered for {PATIENCE:g} s'}")
            self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        found: dict[str, Any] = json.loads(line)
        return found


def _work_forever(asked: TaskRequest, writer: int) -> None:
    """Become a worker; this does not return."""
    try:
        os.dup2(writer, 1)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        work(WorkRequest(asked, seconds=FOREVER, announce=True))
    except GpuyardError as error:
        sys.stderr.write(f"workbench: error: {error}\n")
    finally:
        os._exit(1)


@contextmanager
def _started(asked: TaskRequest, crowd: Crowd) -> Iterator[list[EndlessJob]]:
    workers: list[EndlessJob] = []
    try:
        for number, kind in enumerate(crowd):
            workers.append(EndlessJob(TaskRequest(kind, asked.library, asked.device, asked.scale, asked.seed + number, asked.threads)))
        yield workers
    finally:
        for worker in workers:
            worker.close()
