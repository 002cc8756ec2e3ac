"""Reads the GPUs each second in a thread of its own, so that a driver that hangs holds nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuyard.live.gpus.ledger import Ledger
from gpuyard.live.gpus.nvml import NvmlLibrary
from gpuyard.live.gpus.samples import SampleFiles
from gpuyard.live.node.devices import GpuReading, GpuUse

EVERY = 1.0  # s between readings
SILENT = 15.0  # s without an answer after which the GPUs count as lost


class NvmlGpus:
    """The GPUs of this machine (`gpuyard.live.node.devices.Gpus`)."""

    def __init__(self, library: NvmlLibrary, folder: Path | None = None, *, every: float = EVERY) -> None:
        self._library, self._every = library, every
        self._files = SampleFiles(folder) if folder is not None else None
        self._ledger, self._lock, self._stop = Ledger(), threading.Lock(), threading.Event()
        self._latest: Sequence[GpuReading] = ()
        self._time = 0.0
        self._read()
        self._thread = threading.Thread(target=self._run, name="gpus", daemon=True)
        self._thread.start()

    @property
    def problem(self) -> str:
        """Say what is wrong with keeping readings; empty if nothing is."""
        return self._files.problem if self._files is not None else ""

    def latest(self) -> Sequence[GpuReading]:
        """Return the last reading of every GPU; a driver that no longer answers makes them lost."""
        with self._lock:
            silent = time.monotonic() - self._time
            if silent <= max(SILENT, 3 * self._every):
                return self._latest
            return [replace(each, lost=each.lost or f"the driver has not answered for {silent:.0f} s") for each in self._latest]

    def began(self, job: int, uuids: Sequence[str]) -> None:
        """Note that a job has begun to use these GPUs."""
        with self._lock:
            self._ledger.began(time.monotonic(), job, uuids)

    def ended(self, job: int) -> GpuUse:
        """Note that a job has ended, and return what it used."""
        with self._lock:
            return self._ledger.ended(time.monotonic(), job)

    def close(self) -> None:
        """Stop reading. A driver that hangs is not waited for."""
        self._stop.set()
        self._thread.join(2.0)
        if not self._thread.is_alive():
            self._library.close()

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._read()

    def _read(self) -> None:
        readings = self._library.read()
        counters = [self._library.joules(place) if not each.lost else None for place, each in enumerate(readings)]
        now = time.monotonic()
        with self._lock:
            self._ledger.took(now, readings, counters)
            self._latest, self._time = readings, now
        if self._files is not None:
            self._files.add(time.time(), readings)
