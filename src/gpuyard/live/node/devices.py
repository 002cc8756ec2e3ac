"""The GPUs of the machine as the daemon sees them. Telemetry fulfils `Gpus`; a machine without GPUs has `NoGpus`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True)
class GpuProcess:
    """A process that uses a GPU."""

    pid: int
    memory: float = 0.0  # GB on the GPU; 0: not known


@dataclass(frozen=True)
class GpuReading:
    """One GPU at an instant."""

    index: int  # its place on the bus
    uuid: str
    name: str  # e.g. "NVIDIA H200"
    memory: float  # GB in all
    free: float  # GB
    processes: tuple[GpuProcess, ...] = ()  # of anybody; the daemon knows which are its own
    lost: str = ""  # why it cannot be used, e.g. "fell off the bus"; "": it can
    utilisation: float = 0.0  # 0 … 1
    watts: float = 0.0
    celsius: float = 0.0


@dataclass(frozen=True)
class GpuUse:
    """The measured use of GPUs by one job."""

    joules: float = 0.0
    utilisation: float = 0.0  # mean, 0 … 1
    memory: float = 0.0  # GB, the most on one GPU


class Gpus(Protocol):
    """Reads the GPUs in the background. The daemon asks about once a second and never waits for a driver."""

    def latest(self) -> Sequence[GpuReading]:
        """Return the last reading of every GPU, by index; at once, and without raising. A lost GPU stays in the list."""

    def began(self, job: int, uuids: Sequence[str]) -> None:
        """Note that a job has begun to use these GPUs. A daemon that has adopted a job says so again."""

    def ended(self, job: int) -> GpuUse:
        """Note that a job has ended, and return what it used."""

    def close(self) -> None:
        """Stop reading."""


class NoGpus:
    """A machine without GPUs."""

    def latest(self) -> Sequence[GpuReading]:
        return ()

    def began(self, job: int, uuids: Sequence[str]) -> None:
        return

    def ended(self, job: int) -> GpuUse:
        return GpuUse()

    def close(self) -> None:
        return


def find_gpus() -> Gpus:
    """Return the GPUs of this machine."""
    return NoGpus()
