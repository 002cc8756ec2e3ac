"""A measured machine as a cluster file, which every verb reads: devices, their figures, and their speed for each class of tasks.

A task of compute intensity c spends, on the reference CPU, the share c of its time on arithmetic and the rest on memory. A device whose
products are `m` times and whose memory is `b` times as fast as the CPU's does it at the speed 1 / (c/m + (1 − c)/b).
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import Any

from gpuyard.model.cluster_file import PROFILE_FIGURES, PROFILE_VERSION
from gpuyard.model.presets import DEVICES, TASK_INTENSITIES
from gpuyard.model.presets import device as device_figures
from gpuyard.workbench.speed import DeviceSpeed

LINK = 16.0  # GB/s from host to device that the generator `tasks` assumes; the factor `transfer` of a type is relative to it


def machine_table(devices: Sequence[DeviceSpeed], *, now: float | None = None) -> dict[str, Any]:
    """Return the table of a cluster file: a node for each device, one task at a time, as in the preset `tasks`."""
    cpu = devices[0]
    names = [device_type(each) for each in devices]
    nodes = [
        {"count": each.count, "gpus": 1, "type": name, "name": name} | ({"memory": round(each.memory, 1)} if each.memory else {})
        for name, each in zip(names, devices, strict=True)
    ]
    made = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now if now is not None else time.time()))
    return {
        "name": "+".join(dict.fromkeys(names)),
        "nodes": nodes,
        "types": {name: _figures(name, each, cpu) for name, each in zip(names, devices, strict=True)},
        "speed": {
            label: {name: speed(c, each, cpu) for name, each in zip(names, devices, strict=True)} for label, c in TASK_INTENSITIES.items()
        },
        "profile": {"version": PROFILE_VERSION, "made": made, "devices": [_record(each) for each in devices]},
    }


def device_type(device: DeviceSpeed) -> str:
    """Return the name of the device's type: the longest known one whose parts are in its title, else its title in small letters."""
    if device.kind == "cpu":
        return "cpu"
    plain = re.sub(r"[^a-z0-9]+", "-", device.title.lower()).strip("-")
    known = [name for name in DEVICES if all(part in plain.replace("-", "") for part in name.split("-"))]
    return max(known, key=len) if known else plain.removeprefix("nvidia-")[:60] or "gpu"


def speed(c: float, device: DeviceSpeed, cpu: DeviceSpeed) -> float:
    """Return how many times as fast as the CPU the device does tasks of compute intensity c."""
    products = device.products[0] / cpu.products[0] if cpu.products[0] and device.products[0] else 1.0
    memory = device.bandwidth / cpu.bandwidth if cpu.bandwidth and device.bandwidth else 1.0
    return round(1 / (c / products + (1 - c) / memory), 4)


def _figures(name: str, device: DeviceSpeed, cpu: DeviceSpeed) -> dict[str, float]:
    known = device_figures(name)
    watts = {"idle_watts": round(device.watts[0] or known.idle_watts, 1), "busy_watts": round(device.watts[1] or known.busy_watts, 1)}
    if device.kind == "cpu":
        return {"speed": 1.0, "tflops": round(device.products[0], 4), "transfer": 0.0, **watts}
    figures = {
        "speed": speed(0.5, device, cpu),
        "tflops": round(max(device.products), 2),
        "memory": round(device.memory or known.memory, 1),
    }
    return figures | watts | ({"transfer": round(LINK / device.transfer[0], 4)} if device.transfer[0] else {})


def _record(device: DeviceSpeed) -> dict[str, Any]:
    figures = dict(zip(PROFILE_FIGURES, (device.memory, device.bandwidth, *device.products, *device.transfer, *device.watts), strict=True))
    about = {"kind": device.kind, "title": device.title, "library": device.library, "count": device.count, "notes": list(device.notes)}
    return about | {key: float(f"{value:.5g}") for key, value in figures.items()}
