"""The GPUs of the machine: read each second through NVML, kept on disk within bounds, counted per job, and shown to Prometheus.

Without nvidia-ml-py (extra `node`), a driver or a GPU there is nothing to read, and `find_gpus` says which of them is missing.
"""

from __future__ import annotations

from pathlib import Path

from gpuyard.live.node.devices import Gpus, NoGpus


def find_gpus(folder: Path | None = None) -> tuple[Gpus, str]:
    """Return the GPUs of this machine, and why there are none; readings are kept in `folder`."""
    from gpuyard.live.gpus.nvml import NvmlLibrary
    from gpuyard.live.gpus.watching import NvmlGpus

    library = NvmlLibrary()
    if not library.open():
        return NoGpus(), library.problem
    return NvmlGpus(library, folder), ""
