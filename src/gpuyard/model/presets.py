"""Known device types with their published figures, and a few ready clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.errors import UsageError
from gpuyard.model.cluster import GpuType
from gpuyard.model.units import MIB, Range, parse_assignments, parse_count, parse_gigabytes, parse_range, shorten
from gpuyard.registry import Registry, unknown_name


@dataclass(frozen=True)
class Datasheet:
    """The figures that a vendor publishes about a device."""

    tflops: float  # dense FP16/BF16 tensor, FP32 accumulation; FP16 (P100) or FP32 (K80) where there are no tensor cores
    bandwidth: float  # GB/s of device memory
    memory: float  # GB
    tdp: float  # W
    idle: float  # W, assumed


# Sources: the vendors' datasheets and architecture whitepapers (SXM form where there is one). K80: one of the two devices on a board.
# Vendors do not publish `idle`: it is a rough assumption, 4–21 % of the TDP. Energy studies should set `idle_watts` from readings.
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
    """Return the speed with A100 = 1: the geometric mean of the ratios of tensor throughput and of memory bandwidth.

    Training steps are bound partly by one and partly by the other, so the mean is a fair guess without measurements.
    Measured figures go into a cluster file's `[speed.CLASS]`.
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


_NEAR = 0.7  # of difflib
# Types that exist and that we have no figures of: not misspelt, however near they are to those that we have.
_OTHERS = (
    "a2", "a16", "a800", "a100-80gb", "a4000", "a5000", "a6000", "b100", "b300", "gb200", "gb300", "gh200", "h20", "h800", "h100-nvl", "l2",
    "l20", "l40", "m40", "m60", "mi50", "mi100", "mi210", "mi250", "mi300a", "mi325x", "mi355x", "p4", "p40", "v100-32gb", "v100s",
)  # fmt: skip
_FAMILIES = ("rtx", "gtx", "quadro", "tesla", "titan", "tpu", "gaudi")


def device(name: str) -> GpuType:
    """Return the known type of that name, in upper or lower case, or a new type of speed 1."""
    known = name.lower()
    return DEVICES[known] if known in DEVICES else GpuType(name)


def check_type(name: str, where: str) -> None:
    """Refuse a type that looks like a misspelt one; one that is known to exist, though not to us, is accepted."""
    near = get_close_matches(name.lower(), DEVICES, n=1, cutoff=_NEAR)
    if near and name.lower() not in (*DEVICES, *_OTHERS) and not name.lower().startswith(_FAMILIES):
        hint = f"did you mean {near[0]!r}? A type of your own is declared in a .toml file, in [types.{name}]"
        raise UsageError(f"{where}: unknown GPU type {name!r}", hint=hint)


@dataclass(frozen=True)
class Preset:
    """A ready cluster: a title, and the table that a cluster file would hold."""

    title: str
    table: Mapping[str, Any]


_DGX_A100 = {"gpus": 8, "type": "a100", "cpus": 128, "memory": "2TB"}  # NVIDIA DGX A100 640GB: 8 devices, 2 × 64 cores, 2 TB

PRESETS: Registry[Preset] = Registry("cluster preset")
PRESETS.add("node8", Preset("one machine with 8 A100", {"nodes": [_DGX_A100]}))
PRESETS.add(
    "dgx-a100-16", Preset("16 DGX A100 in 4 racks: 128 A100", {"nodes": [{"count": 4, **_DGX_A100, "rack": rack} for rack in range(4)]})
)
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
# Training steps/s on one GPU relative to a V100 (batch 64, 64, 80, 2048; A3C has none): Narayanan et al., OSDI 2020.
HETERO_SPEED: Mapping[str, Mapping[str, float]] = MappingProxyType(
    {
        "resnet50": {"v100": 1.0, "p100": 0.596, "k80": 0.141},
        "transformer": {"v100": 1.0, "p100": 0.591, "k80": 0.203},
        "lm": {"v100": 1.0, "p100": 0.749, "k80": 0.214},
        "recommendation": {"v100": 1.0, "p100": 2.222, "k80": 1.398},
        "a3c": {"v100": 1.0, "p100": 0.792, "k80": 0.479},
    }
)
PRESETS.add(
    "family-hetero",
    Preset(
        "three generations, 16 GPUs: 8 V100, 4 P100, 4 K80, with measured speeds of the five job classes of `family:variant=hetero`",
        {
            "nodes": [
                {"gpus": 8, "type": "v100", "name": "v"},
                {"gpus": 4, "type": "p100", "name": "p"},
                {"gpus": 4, "type": "k80", "name": "k"},
            ],
            "speed": {name: dict(speeds) for name, speeds in HETERO_SPEED.items()},
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


# ── clusters of public traces, from the machine lists that were published with them ──
# A trace does not say on which device type a job ran. So every type here has speed 1: a job takes its logged run time
# wherever it runs. Give measured speeds (`--speeds`) where types should differ.

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
# MISC is a mixture of unnamed types: figures of the T4 stand in for it.
_PAI_TYPES = {"P100": "p100", "T4": "t4", "MISC": "t4", "V100M32": "v100", "V100": "v100-16gb"}

# Alibaba Lingjun 2023: hosts under each access switch (ASW), by the three groups of them (PSW); a rack is such a switch.
_LINGJUN = (
    (8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 7, 7, 7, 8, 8, 7, 8, 8, 7, 5, 8, 8, 8, 8, 8,
     6, 6, 7, 8, 6, 8, 8, 8, 8, 8, 8, 7, 3, 8, 7, 8, 8, 8, 8, 8, 8, 8),
    (7, 6, 7, 8, 8, 5, 8, 8, 8, 6, 8, 8, 8, 8, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8, 8, 8, 2, 2, 7, 7, 8, 6, 7, 8, 7, 6, 8, 8, 8, 8, 8, 8),
    (8, 6, 7, 4, 7, 6, 6, 7, 8, 5, 8, 5, 4, 6, 8, 7, 5, 5, 6, 5, 6, 6, 2, 7, 6, 7, 8, 7, 7),
)  # fmt: skip


def _trace_clusters() -> dict[str, tuple[str, dict[str, Any]]]:
    """Return name → (title, table in the form of a cluster file)."""
    philly = [{"count": count, "gpus": gpus, "type": "gpu" if gpus else "cpu"} for count, gpus in _PHILLY]
    hosts = [{"count": count, "gpus": 8, "type": "gpu", "rack": rack} for rack, count in enumerate(n for group in _LINGJUN for n in group)]
    openb = _figures(_OPENB_TYPES)
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
            {"nodes": _nodes(_PAI, 1.0), "types": _figures(_PAI_TYPES)},
        ),
        "lingjun2023": ("Alibaba Lingjun 2023: 847 hosts × 8 GPUs in 119 racks (access switches)", {"nodes": hosts}),
        "rlmetadqn": (
            "the node of the RL-MetaDQN workloads: 2 A100, speed 1",
            {"nodes": [{"gpus": 2, "type": "a100"}], "types": _figures({"a100": "a100"})},
        ),
    }  # fmt: skip


def _helios(name: str, gpus: int) -> tuple[str, dict[str, Any]]:
    """Split the GPUs into nodes of 8, as in all of Helios, and one node with the rest."""
    whole, rest = divmod(gpus, 8)
    nodes = [{"count": whole, "gpus": 8, "type": "gpu"}] + ([{"count": 1, "gpus": rest, "type": "gpu"}] if rest else [])
    split = f"{whole}×8" + (f" + {rest}" if rest else "")
    return f"SenseTime Helios 2020, {name.capitalize()}: {gpus:,} GPUs ({split}: the split is assumed)", {"nodes": nodes}


def _nodes(rows: Iterable[Row], gigabyte: float) -> list[dict[str, Any]]:
    return [{"count": n, "gpus": gpus, "type": kind, "cpus": cpus, "memory": size * gigabyte} for n, cpus, size, gpus, kind in rows]


def _figures(types: Mapping[str, str]) -> dict[str, dict[str, float]]:
    """Return the types by the trace's names, with the published figures of known devices and speed 1."""
    figures = ("tflops", "memory", "idle_watts", "busy_watts")
    return {name: {"speed": 1.0, **{key: getattr(DEVICES[known], key) for key in figures}} for name, known in types.items()}


for _name, (_title, _table) in _trace_clusters().items():
    PRESETS.add(_name, Preset(_title, _table))

# Tasks of compute intensity c run 1 + 3c times as fast on the GPU; each step of 0.05 is a job class.
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


MAX_HOSTS = 100_000  # drawn from ranges
HOSTS = "hosts:"
_HOST_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "count": parse_count,
    "cores": lambda text: parse_range(text, parse_count),
    "memory": lambda text: parse_range(text, parse_gigabytes),
    "gpus": lambda text: parse_range(text, parse_count),
    "type": str,
    "seed": parse_count,
}


def hosts_table(text: str) -> dict[str, Any]:
    """Draw hosts from ranges, such as `hosts:count=50,cores=16:32,memory=64GB:256GB,seed=1`, as a table in the form of a cluster file.

    Each host is a node with whole cores, whole GB of memory and GPUs, uniform in their ranges. Defaults: 50 hosts of 16 to 32 cores
    and 64 to 256 GB, without GPUs.
    """
    what = f"cluster {shorten(text)[1:-1]}"
    given: dict[str, Any] = {"count": 50, "cores": Range(16, 32), "memory": Range(64, 256), "gpus": Range(0, 0), "type": "", "seed": 0}
    for name, value in parse_assignments(text.removeprefix(HOSTS.rstrip(":")).removeprefix(":"), what).items():
        if name not in _HOST_PARSERS:
            raise unknown_name(f"parameter of {what}", name, list(_HOST_PARSERS))
        try:
            given[name] = _HOST_PARSERS[name](value)
        except UsageError as error:
            raise UsageError(f"{what}: {name}: {error}") from None
    if not 1 <= given["count"] <= MAX_HOSTS:
        raise UsageError(f"{what}: {given['count']:,} hosts; from 1 to {MAX_HOSTS:,}")
    drawn = {name: _drawn(given["seed"], place, given[name], given["count"]) for place, name in enumerate(("cores", "memory", "gpus"))}
    kind = {"type": given["type"]} if given["type"] else {}
    nodes = [
        {"gpus": gpus, "cpus": cores, "memory": memory} | (kind if gpus else {})
        for cores, memory, gpus in zip(drawn["cores"], drawn["memory"], drawn["gpus"], strict=True)
    ]
    return {"name": shorten(text)[1:-1], "nodes": nodes}


def _drawn(seed: int, place: int, bounds: Range, count: int) -> list[int]:
    """Draw whole numbers, ends included; a range without a whole number gives its lower end rounded up."""
    low = int(np.ceil(bounds.low))
    found = np.random.default_rng([seed, 0x686F7374, place]).integers(low, max(int(bounds.high), low) + 1, count)
    return [int(number) for number in found]
