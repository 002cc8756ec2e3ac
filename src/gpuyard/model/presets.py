"""Known device types with their published figures, and a few ready clusters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gpuyard.model.cluster import GpuType
from gpuyard.model.trace_presets import trace_clusters
from gpuyard.registry import Registry


@dataclass(frozen=True)
class Datasheet:
    """What a vendor publishes about a device."""

    tflops: float  # dense FP16/BF16 tensor, FP32 accumulation; FP16 (P100) or FP32 (K80) where there are no tensor cores
    bandwidth: float  # GB/s of device memory
    memory: float  # GB
    tdp: float  # W
    idle: float  # W, assumed


# Sources: the vendors' datasheets and architecture whitepapers (SXM form where there is one). K80: one of the two devices on a board.
# `idle` is no vendor's figure but a rough assumption, 4–21 % of the TDP; energy studies set `idle_watts` from readings of their own.
_DATASHEETS: dict[str, Datasheet] = {
    "b200": Datasheet(2250, 7700, 180, 1000, 140),
    "h200": Datasheet(989, 4800, 141, 700, 75),
    "h100": Datasheet(989, 3350, 80, 700, 70),
    "a100": Datasheet(312, 2039, 80, 400, 55),
    "a100-40gb": Datasheet(312, 1555, 40, 400, 50),
    "a40": Datasheet(149.7, 696, 48, 300, 30),
    "a30": Datasheet(165, 933, 24, 165, 30),
    "a10": Datasheet(125, 600, 24, 150, 20),
    "l40s": Datasheet(362, 864, 48, 350, 35),
    "l4": Datasheet(121, 300, 24, 72, 15),
    "rtx4090": Datasheet(165.2, 1008, 24, 450, 20),
    "rtx3090": Datasheet(71, 936, 24, 350, 20),
    "rtx2080ti": Datasheet(53.8, 616, 11, 250, 15),
    "v100": Datasheet(125, 900, 32, 300, 40),
    "v100-16gb": Datasheet(125, 900, 16, 300, 40),
    "t4": Datasheet(65, 320, 16, 70, 10),
    "p100": Datasheet(21.2, 732, 16, 300, 30),
    "k80": Datasheet(4.37, 240, 12, 150, 25),
    "mi300x": Datasheet(1307, 5300, 192, 750, 140),
    "mi250x": Datasheet(383, 3277, 128, 560, 90),
}


def _relative_speed(sheet: Datasheet) -> float:
    """Speed with A100 = 1: the geometric mean of the ratios of tensor throughput and of memory bandwidth.

    Training steps are bound partly by the one and partly by the other, so their mean is a fair guess where nothing was
    measured. Measured figures go into a cluster file's `[speed.CLASS]`.
    """
    reference = _DATASHEETS["a100"]
    return round(float((sheet.tflops / reference.tflops * sheet.bandwidth / reference.bandwidth) ** 0.5), 3)


DEVICES: Registry[GpuType] = Registry("device type")
for _name, _sheet in _DATASHEETS.items():
    DEVICES.add(_name, GpuType(_name, _relative_speed(_sheet), _sheet.tflops, _sheet.memory, _sheet.idle, _sheet.tdp))
# A processor of a CPU machine, speed 1 because CPU traces are logged on it. Per core of a 64-core, 280 W, 2.45 GHz server
# processor with 32 FP32 operations per cycle (AMD EPYC 7763): 4.4 W busy; a third of it idle is assumed. Its memory is the
# host's, so nothing is transferred to it.
DEVICES.add("cpu", GpuType("cpu", 1.0, 0.078, 0.0, 1.5, 4.4, transfer=0.0))


def device(name: str) -> GpuType:
    """The known type of that name (in any case), or a made-up one of speed 1."""
    known = name.lower()
    return DEVICES[known] if known in DEVICES else GpuType(name)


@dataclass(frozen=True)
class Preset:
    """A ready cluster: one line about it, and the table that a cluster file would hold."""

    title: str
    table: Mapping[str, Any]


def _dgx_a100(rack: int) -> dict[str, Any]:
    # NVIDIA DGX A100 640GB: 8 devices, 2 × 64 cores, 2 TB
    return {"count": 4, "gpus": 8, "type": "a100", "cpus": 128, "memory": "2TB", "rack": rack}


PRESETS: Registry[Preset] = Registry("cluster preset")
PRESETS.add("node8", Preset("one machine with 8 A100", {"nodes": [{"gpus": 8, "type": "a100", "cpus": 128, "memory": "2TB"}]}))
PRESETS.add("dgx-a100-16", Preset("16 DGX A100 in 4 racks: 128 A100", {"nodes": [_dgx_a100(rack) for rack in range(4)]}))
PRESETS.add(
    "hetero-demo",
    Preset(
        "three generations, 96 GPUs: 4×8 A100, 8×4 V100, 8×4 T4; gangs run at 0.9 over nodes, 0.8 over racks",
        {
            "span_nodes": 0.9,
            "span_racks": 0.8,
            "nodes": [
                {"count": 4, "gpus": 8, "type": "a100", "cpus": 128, "memory": "1TB", "rack": 0, "name": "a"},
                {"count": 8, "gpus": 4, "type": "v100", "cpus": 64, "memory": "512GB", "rack": 1, "name": "v"},
                {"count": 8, "gpus": 4, "type": "t4", "cpus": 64, "memory": "256GB", "rack": 2, "name": "t"},
            ],
        },
    ),
)
PRESETS.add(
    "partitions-demo",
    Preset(
        "two partitions: `prod` with 8×8 H100, `dev` with 4×8 A100 and at most 24 GPUs in use",
        {
            "partitions": {"prod": {}, "dev": {"quota": 24}},
            "nodes": [
                {"count": 8, "gpus": 8, "type": "h100", "cpus": 112, "memory": "2TB", "partition": "prod", "name": "p"},
                {"count": 4, "gpus": 8, "type": "a100", "cpus": 128, "memory": "1TB", "partition": "dev", "name": "d"},
            ],
        },
    ),
)
PRESETS.add("lublin-256", Preset("one pool of 256 processors, as the lublin_256 trace asks for", {"nodes": [{"gpus": 256, "type": "cpu"}]}))
for _name, (_title, _table) in trace_clusters(dict(DEVICES.items())).items():
    PRESETS.add(_name, Preset(_title, _table))


# Tasks of a compute intensity c run 1 + 3c times as fast on the GPU; c in steps of 0.05, a job class each.
TASK_INTENSITIES: Mapping[str, float] = {f"c{step / 20:.2f}": step / 20 for step in range(21)}
PRESETS.add(
    "tasks",
    Preset(
        "devices for the generator `tasks`: 4 CPUs with 64 GB each and 2 GPUs with 16 GB each, one task at a time",
        {
            "nodes": [
                {"count": 4, "gpus": 1, "type": "cpu", "memory": 64, "name": "cpu"},
                {"count": 2, "gpus": 1, "type": "gpu", "memory": 16, "name": "gpu"},
            ],
            "speed": {name: {"cpu": 1.0, "gpu": 1 + 3 * c} for name, c in TASK_INTENSITIES.items()},
        },
    ),
)
