"""TensorBoard files, through tensorboardX where it is installed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from gpuyard.files import writing

FLUSH = 10.0  # s after which what was written can be seen


class Board:
    """Writes scalars in this thread, so that an error comes where it can be told; does nothing without tensorboardX."""

    def __init__(self, folder: Path, update: int, steps: int, say: Callable[[str], None]) -> None:
        self._folder = folder
        self._writer: Any = None
        self._flushed = time.monotonic()
        try:
            from tensorboardX.proto import event_pb2
            from tensorboardX.record_writer import RecordWriter
            from tensorboardX.summary import scalar
        except ImportError:
            say("no TensorBoard files: tensorboardX is not installed (pip install 'gpuyard[learn]'); metrics.jsonl has the same numbers")
            return
        self._event, self._scalar = event_pb2.Event, scalar
        with writing(folder):
            folder.mkdir(exist_ok=True)
            self._writer = RecordWriter(str(folder / f"events.out.tfevents.{update:010d}.gpuyard"))
            self._write(self._event(wall_time=time.time(), file_version="brain.Event:2"))
            begin = event_pb2.SessionLog(status=event_pb2.SessionLog.START)  # what an earlier process wrote of later steps no longer counts
            self._write(self._event(wall_time=time.time(), step=steps + 1, session_log=begin))

    def add(self, values: Mapping[str, float], steps: int) -> None:
        """Scalars at a number of steps; what is not a finite number is left out."""
        if self._writer is None:
            return
        with writing(self._folder):
            for name, value in values.items():
                if math.isfinite(value):
                    self._write(self._event(wall_time=time.time(), step=steps, summary=self._scalar(name, value, display_name=name)))
            if time.monotonic() - self._flushed > FLUSH:
                self._writer.flush()
                self._flushed = time.monotonic()

    def _write(self, event: Any) -> None:
        self._writer.write(event.SerializeToString())

    def close(self) -> None:
        """Write what is left."""
        if self._writer is not None:
            with writing(self._folder):
                self._writer.close()
