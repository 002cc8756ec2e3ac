"""Readings as text that Prometheus reads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuyard.live.node.devices import GpuReading

_GB = 1e9
_GAUGES: Sequence[tuple[str, str, Callable[[GpuReading], float]]] = (
    ("gpu_lost", "1 if the GPU cannot be used.", lambda each: float(bool(each.lost))),
    ("gpu_utilisation_ratio", "Share of the last second in which a kernel ran.", lambda each: each.utilisation),
    ("gpu_memory_bytes", "Memory of the GPU.", lambda each: each.memory * _GB),
    ("gpu_memory_free_bytes", "Free memory of the GPU.", lambda each: each.free * _GB),
    ("gpu_power_watts", "Power that the GPU draws.", lambda each: each.watts),
    ("gpu_temperature_celsius", "Temperature of the GPU.", lambda each: each.celsius),
    ("gpu_processes", "Processes that use the GPU, of anybody.", lambda each: float(len(each.processes))),
)
_OF_NODE: Sequence[tuple[str, str, Callable[[Mapping[str, Any]], float]]] = (
    ("slots", "Devices of the node: GPUs, or CPU slots where it has none.", lambda status: status["slots"]),
    ("slots_busy", "Devices that jobs hold; a share of a GPU counts as that.", lambda status: status["busy"]),
    ("draining", "1 if the node starts nothing.", lambda status: float(status["draining"])),
    ("scheduler_ready", "1 if the scheduler that was asked for decides.", lambda status: float(status["ready"] and not status["trouble"])),
    ("decision_seconds", "How long the last decision of the scheduler took.", lambda status: status["took"]),
)
_STATES = ("PENDING", "STARTING", "RUNNING")


def prometheus_text(readings: Sequence[GpuReading], status: Mapping[str, Any] | None = None) -> str:
    """Return the readings, and the jobs and the scheduler of a node's status, in the text format 0.0.4."""
    lines = []
    for name, about, value in _GAUGES if readings else ():
        values = [({"gpu": str(each.index), "uuid": each.uuid, "name": each.name}, value(each)) for each in readings]
        lines += metric_lines(name, "gauge", about, values)
    if status is not None:
        counts = [({"state": state}, float(status["jobs"].get(state, 0))) for state in _STATES]
        lines += metric_lines("jobs", "gauge", "Jobs in each state.", counts)
        for name, about, figure in _OF_NODE:
            lines += metric_lines(name, "gauge", about, [({}, figure(status))])
    return "\n".join(lines) + "\n"


def metric_lines(name: str, kind: str, about: str, values: Sequence[tuple[Mapping[str, str], float]]) -> list[str]:
    """Return the lines of one metric; `kind` is gauge or counter, and each value has its labels."""
    heads = [f"# HELP gpuyard_{name} {about}", f"# TYPE gpuyard_{name} {kind}"]
    return heads + [f"gpuyard_{name}{_labels(labels)} {_number(value)}" for labels, value in values]


def _labels(labels: Mapping[str, str]) -> str:
    def escaped(text: str) -> str:
        return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")

    return "{" + ",".join(f'{name}="{escaped(text)}"' for name, text in labels.items()) + "}" if labels else ""


def _number(value: float) -> str:
    return f"{value:.15g}"
