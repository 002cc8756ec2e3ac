"""The GPUs of the machine: read each second through NVML, kept on disk within bounds, counted per job, and shown to Prometheus.

Without nvidia-ml-py (extra `node`), a driver or a GPU there is nothing to read, and `find_gpus` says which of them is missing.
"""

from __future__ import annotations

from pathlib import Path

from gpuyard.live.gpus.prometheus import prometheus_text
from gpuyard.live.node.devices import Gpus, NoGpus

__all__ = ["find_gpus", "prometheus_text"]


def find_gpus(folder: Path | None = None) -> Gpus:
    """Return the GPUs of this machine; readings are kept in `folder`."""
    from gpuyard.live.gpus.nvml import NvmlLibrary
    from gpuyard.live.gpus.watching import NvmlGpus

    library = NvmlLibrary()
    if not library.open():
        return NoGpus(library.problem)
    return NvmlGpus(library, folder)
