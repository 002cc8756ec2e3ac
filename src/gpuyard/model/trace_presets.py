"""The clusters on which public traces ran, from the machine lists that were published with them.

Run times of a trace were logged on whatever ran the job, and which type that was is not said. So every type here has speed 1: a job
takes what was logged wherever it runs, and one that asks for a type takes what was logged on that type. Give measured
speeds (`--speeds`) where types are to differ.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from gpuyard.model.cluster import GpuType
from gpuyard.model.units import MIB

Row = tuple[int, float, float, int, str]  # machines, cores, memory, GPUs, type

# Microsoft Philly: the machine list of its authors, revised by those of Helios; machines, GPUs of each.
_PHILLY = ((264, 8), (271, 4), (1, 3), (3, 2), (13, 0))

# SenseTime Helios: GPUs as its authors count them.
_HELIOS = {"venus": 1022, "earth": 997, "saturn": 2080, "uranus": 2119}

# Alibaba openb 2023: the published node lists; memory in MiB.
_OPENB_GPU: tuple[Row, ...] = (
    (549, 96, 393216, 8, "G2"), (387, 104, 524288, 2, "T4"), (107, 16, 122880, 2, "P100"), (39, 128, 786432, 8, "G3"),
    (28, 32, 131072, 4, "V100M16"), (22, 64, 262144, 2, "P100"), (21, 96, 786432, 8, "V100M32"), (19, 8, 32768, 1, "V100M16"),
    (17, 96, 393216, 4, "T4"), (9, 48, 376832, 4, "V100M32"), (7, 64, 262144, 8, "V100M16"), (3, 8, 61440, 1, "P100"),
    (2, 8, 61440, 2, "P100"), (2, 128, 1048576, 1, "A10"), (1, 82, 344064, 8, "V100M16"),
)  # fmt: skip
_OPENB_CPU: tuple[Row, ...] = (
    (129, 32, 262144, 0, "cpu"), (59, 96, 524288, 0, "cpu"), (30, 96, 393216, 0, "cpu"), (23, 32, 131072, 0, "cpu"),
    (22, 64, 524288, 0, "cpu"), (20, 104, 524288, 0, "cpu"), (10, 32, 65536, 0, "cpu"), (8, 64, 262144, 0, "cpu"),
    (4, 64, 131072, 0, "cpu"), (3, 104, 786432, 0, "cpu"), (1, 96, 786432, 0, "cpu"), (1, 104, 196608, 0, "cpu"),
)  # fmt: skip
# G2 and G3 are undisclosed: figures of the V100 stand in for them.
_OPENB_TYPES = {"G2": "v100", "T4": "t4", "P100": "p100", "G3": "v100", "V100M16": "v100-16gb", "V100M32": "v100", "A10": "a10"}

# Alibaba PAI 2020: pai_machine_spec; memory in GB.
_PAI: tuple[Row, ...] = (
    (798, 64, 512, 2, "P100"), (497, 96, 512, 2, "T4"), (280, 96, 512, 8, "MISC"), (135, 96, 384, 8, "V100M32"), (59, 96, 512, 8, "V100"),
    (45, 96, 384, 8, "V100"), (83, 96, 512, 0, "cpu"),
)  # fmt: skip
# MISC is a mixture that is not told apart: figures of the T4 stand in for it.
_PAI_TYPES = {"P100": "p100", "T4": "t4", "MISC": "t4", "V100M32": "v100", "V100": "v100-16gb"}

# Alibaba Lingjun 2023: hosts under each access switch (ASW), by the three groups of them (PSW); a rack is such a switch.
_LINGJUN = (
    (8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 7, 7, 8, 8, 7, 8, 8, 7, 5, 8, 8, 8, 8, 8,
     6, 6, 7, 8, 6, 8, 8, 8, 8, 8, 8, 7, 3, 8, 7, 8, 8, 8, 8, 8, 8, 8),
    (7, 6, 7, 8, 8, 5, 8, 8, 8, 6, 8, 8, 8, 8, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2, 7, 7, 8, 6, 7, 8, 7, 6, 8, 8, 8, 8, 8, 8),
    (8, 6, 7, 4, 7, 6, 6, 7, 8, 5, 8, 5, 4, 6, 8, 7, 5, 5, 6, 5, 6, 6, 2, 7, 6, 7, 8, 7, 7),
)  # fmt: skip


def trace_clusters(devices: Mapping[str, GpuType]) -> dict[str, tuple[str, dict[str, Any]]]:
    """Name → (title, table in the form of a cluster file); `devices` gives the published figures of types."""
    philly = [{"count": count, "gpus": gpus, "type": "gpu" if gpus else "cpu"} for count, gpus in _PHILLY]
    hosts = [{"count": count, "gpus": 8, "type": "gpu", "rack": rack} for rack, count in enumerate(n for group in _LINGJUN for n in group)]
    openb = _figures(devices, _OPENB_TYPES)
    return {
        "philly": ("Microsoft Philly 2017: 552 machines, 3,205 GPUs (264×8, 271×4, 1×3, 3×2, 13 without)", {"nodes": philly}),
        **{f"helios-{name}": _helios(name, gpus) for name, gpus in _HELIOS.items()},
        "openb": (
            "Alibaba openb 2023: 1,213 GPU nodes, 6,212 GPUs of 7 types, all of speed 1",
            {"nodes": _nodes(_OPENB_GPU, MIB), "types": openb},
        ),
        "openb-all": (
            "openb with its 310 nodes without GPUs: 1,523 nodes", {"nodes": _nodes((*_OPENB_GPU, *_OPENB_CPU), MIB), "types": openb},
        ),
        "pai2020": (
            "Alibaba PAI 2020: 1,897 machines, 6,742 GPUs of 5 types, all of speed 1",
            {"nodes": _nodes(_PAI, 1.0), "types": _figures(devices, _PAI_TYPES)},
        ),
        "lingjun2023": ("Alibaba Lingjun 2023: 847 hosts × 8 GPUs in 119 racks (access switches)", {"nodes": hosts}),
        "rlmetadqn": (
            "the node of the RL-MetaDQN workloads: 2 A100, speed 1",
            {"nodes": [{"gpus": 2, "type": "a100"}], "types": _figures(devices, {"a100": "a100"})},
        ),
    }  # fmt: skip


def _helios(name: str, gpus: int) -> tuple[str, dict[str, Any]]:
    """Nodes of 8, as all of Helios are, and one with what is left over."""
    whole, rest = divmod(gpus, 8)
    nodes = [{"count": whole, "gpus": 8, "type": "gpu"}] + ([{"count": 1, "gpus": rest, "type": "gpu"}] if rest else [])
    split = f"{whole}×8" + (f" + {rest}" if rest else "")
    return f"SenseTime Helios 2020, {name.capitalize()}: {gpus:,} GPUs ({split}: the split is assumed)", {"nodes": nodes}


def _nodes(rows: Iterable[Row], gigabyte: float) -> list[dict[str, Any]]:
    return [{"count": n, "gpus": gpus, "type": kind, "cpus": cpus, "memory": size * gigabyte} for n, cpus, size, gpus, kind in rows]


def _figures(devices: Mapping[str, GpuType], types: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Types by the trace's names with the published figures of known devices, and speed 1."""
    figures = ("tflops", "memory", "idle_watts", "busy_watts")
    return {name: {"speed": 1.0, **{key: getattr(devices[known], key) for key in figures}} for name, known in types.items()}
