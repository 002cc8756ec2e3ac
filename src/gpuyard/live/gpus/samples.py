"""Readings on disk: 32 bytes per GPU and second, in files that are compressed when they are full; the oldest go when there are too many.

A file begins with MAGIC and holds rows of SAMPLE. The newest is plain, so that a reading costs one write; a row that was cut short by
a crash is left out when it is read. A day of eight GPUs takes about 22 MB plain and 4–8 MB compressed.
"""

from __future__ import annotations

import gzip
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import numpy as np

from gpuyard.arrays import Array
from gpuyard.files import write_bytes
from gpuyard.live.node.devices import GpuReading

MAGIC = b"gpuyard samples 1\n"
SAMPLE = np.dtype(
    [
        ("time", "<f8"),  # s since 1970
        ("used", "<f4"),  # GB
        ("free", "<f4"),  # GB
        ("watts", "<f4"),
        ("utilisation", "<f4"),  # 0 … 1
        ("celsius", "<f4"),
        ("gpu", "<u2"),
        ("processes", "u1"),  # at most 255 are counted
        ("lost", "u1"),
    ]
)
MOST_BYTES = 64_000_000  # of all files
FILE_BYTES = 2_000_000  # of a plain one


class SampleFiles:
    """The files of a folder. `problem` says why the last reading could not be kept; readings are worth less than the daemon."""

    def __init__(self, folder: Path, *, most: int = MOST_BYTES, each: int = FILE_BYTES) -> None:
        self.problem = ""
        self._folder, self._most, self._each = folder, most, min(each, most // 2)
        self._path: Path | None = None
        self._size = 0

    def add(self, now: float, readings: Sequence[GpuReading]) -> None:
        """Keep one reading of all GPUs."""
        rows = np.array([_row(now, each) for each in readings], SAMPLE)
        try:
            self._write(now, rows.tobytes())
            self.problem = ""
        except OSError as error:
            self.problem = f"readings are not kept: {error.strerror or error}"
            self._path = None

    def _write(self, now: float, data: bytes) -> None:
        if self._path is None or self._size + len(data) > self._each:
            self._begin(now)
        assert self._path is not None
        with self._path.open("ab") as stream:
            stream.write(data)
        self._size += len(data)

    def _begin(self, now: float) -> None:
        """Begin a file; compress the ones before, and remove the oldest beyond the limit."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for path in self._files(".bin"):
            write_bytes(path.with_suffix(".bin.gz"), gzip.compress(path.read_bytes(), 6))
            path.unlink()
        kept = self._files(".gz")
        total = sum(path.stat().st_size for path in kept) + self._each
        for path in kept:
            if total <= self._most:
                break
            total -= path.stat().st_size
            path.unlink()
        self._path = self._folder / f"{int(now * 1000):014d}.bin"
        self._path.write_bytes(MAGIC)
        self._path.chmod(0o600)
        self._size = len(MAGIC)

    def _files(self, ending: str) -> list[Path]:
        return sorted(path for path in self._folder.glob(f"*{ending}") if path.name.split(".")[0].isdigit())

    def read(self, since: float = 0.0, until: float = float("inf")) -> Array:
        """Return the readings in a span of time, as (rows,) of SAMPLE; damaged files are left out."""
        found = []
        for path in sorted(self._files(".bin") + self._files(".gz")):
            with suppress(OSError, EOFError, ValueError):
                data = path.read_bytes()
                plain = gzip.decompress(data) if path.suffix == ".gz" else data
                if plain.startswith(MAGIC):
                    body = plain[len(MAGIC) :]
                    found.append(np.frombuffer(body[: len(body) - len(body) % SAMPLE.itemsize], SAMPLE))
        rows: Array = np.concatenate(found) if found else np.zeros(0, SAMPLE)
        return rows[(rows["time"] >= since) & (rows["time"] <= until)]


def _row(now: float, each: GpuReading) -> tuple[float, ...]:
    used = max(each.memory - each.free, 0.0)
    return (now, used, each.free, each.watts, each.utilisation, each.celsius, each.index, min(len(each.processes), 255), bool(each.lost))
