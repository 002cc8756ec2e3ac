"""Read GPUs through NVML. Nothing here raises: a GPU that cannot be read is lost, and a driver that is gone is asked again later."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from gpuyard.live.node.devices import GpuProcess, GpuReading

RETRY = 10.0  # s until a driver that went away is asked again
RECOVERED = 10  # readings in a row after which a lost GPU is trusted again
GB = 1e9
T = TypeVar("T")


@dataclass
class KnownGpu:
    """One GPU that the driver has named."""

    handle: Any
    reading: GpuReading  # the last one
    good: int = 0  # readings in a row since it was lost


class NvmlLibrary:
    """The driver's library and the GPUs it has named. `problem` says why there are none."""

    def __init__(self) -> None:
        self.problem = ""
        self._nvml: Any = None
        self._known: list[KnownGpu] = []
        self._asked = 0.0

    def open(self) -> bool:
        """Load the library and name the GPUs; return whether there are any."""
        self._asked = time.monotonic()
        try:
            import pynvml
        except ImportError:
            self.problem = "nvidia-ml-py is not installed (pip install 'gpuyard[node]')"
            return False
        self._nvml = pynvml
        try:
            pynvml.nvmlInit()
            found = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
            self._known = [self._named(index, handle) for index, handle in enumerate(found)]
        except pynvml.NVMLError as error:
            absent = isinstance(error, pynvml.NVMLError_LibraryNotFound)
            self.problem = "no driver of NVIDIA is installed" if absent else _said(error)
            return False
        self.problem = "" if self._known else "the driver knows no GPU"
        return bool(self._known)

    def _named(self, index: int, handle: Any) -> KnownGpu:
        """Name a GPU. One that does not even say its UUID is lost from the beginning."""
        nvml = self._nvml
        uuid = self._or(lambda: str(nvml.nvmlDeviceGetUUID(handle)), f"unknown-{index}")
        name = self._or(lambda: str(nvml.nvmlDeviceGetName(handle)), "GPU")
        return KnownGpu(handle, GpuReading(index, uuid, name, memory=0.0, free=0.0))

    def close(self) -> None:
        """Let go of the library."""
        if self._nvml is not None and self._known:
            self._or(self._nvml.nvmlShutdown, None)

    def read(self) -> list[GpuReading]:
        """Read every GPU."""
        for gpu in self._known:
            gpu.reading = self._read(gpu)
        if self._known and all(gpu.reading.lost for gpu in self._known) and time.monotonic() - self._asked > RETRY:
            self._reopen()
        return [gpu.reading for gpu in self._known]

    def _reopen(self) -> None:
        """Ask the driver again after it has gone, as after an update; the GPUs keep their places by UUID."""
        before = {gpu.reading.uuid: gpu for gpu in self._known}
        self.close()
        if not self.open():
            self._known = list(before.values())
            return
        for gpu in self._known:
            old = before.pop(gpu.reading.uuid, None)
            if old is not None:
                gpu.reading, gpu.good = old.reading, old.good
        self._known += before.values()

    def joules(self, place: int) -> float | None:
        """Return the energy counter of the GPU in that place; None: it has none."""
        handle = self._known[place].handle
        found: float | None = self._or(lambda: self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle) / 1000.0, None)
        return found

    def _read(self, gpu: KnownGpu) -> GpuReading:
        nvml, handle, last = self._nvml, gpu.handle, gpu.reading
        try:
            memory = nvml.nvmlDeviceGetMemoryInfo(handle)
        except nvml.NVMLError as error:
            gpu.good = 0
            return replace(last, free=0.0, processes=(), utilisation=0.0, watts=0.0, lost=_said(error))
        gpu.good += 1
        lost = f"{last.lost.removesuffix(', back')}, back" if last.lost and gpu.good < RECOVERED else ""
        return replace(
            last,
            memory=memory.total / GB,
            free=memory.free / GB,
            processes=self._processes(handle),
            utilisation=self._or(lambda: nvml.nvmlDeviceGetUtilizationRates(handle).gpu / 100.0, 0.0),
            watts=self._or(lambda: nvml.nvmlDeviceGetPowerUsage(handle) / 1000.0, 0.0),
            celsius=self._or(lambda: float(nvml.nvmlDeviceGetTemperature(handle, nvml.NVML_TEMPERATURE_GPU)), 0.0),
            lost=lost,
        )

    def _processes(self, handle: Any) -> tuple[GpuProcess, ...]:
        """Return who uses the GPU, to compute or to draw; a process that does both is one."""
        nvml = self._nvml
        held: dict[int, float] = {}
        for what in ("Compute", "Graphics"):
            # an older driver lacks the newest form of this question
            asked = (getattr(nvml, f"nvmlDeviceGet{what}RunningProcesses{version}", None) for version in ("", "_v2"))
            answers = (self._or(partial(ask, handle), None) for ask in asked if ask is not None)
            for each in next((found for found in answers if found is not None), ()):
                held[int(each.pid)] = max(held.get(int(each.pid), 0.0), float(each.usedGpuMemory or 0) / GB)
        return tuple(GpuProcess(pid, memory) for pid, memory in sorted(held.items()))

    def _or(self, ask: Callable[[], T], otherwise: T) -> T:
        """Ask for one fact; not every GPU and driver has each."""
        try:
            return ask()
        except (self._nvml.NVMLError, self._nvml.NVMLLibraryMismatchError):
            return otherwise


def _said(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
