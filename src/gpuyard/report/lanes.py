"""Where the parts of jobs lie in a Gantt chart: a lane per device, bars over neighbouring ones."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.result import Result

MOST_PARTS = 400  # bars of a Gantt chart that can still be told apart
MOST_LANES = 256  # devices in it
_UNITS = (("days", 86400.0, 3 * 86400.0), ("hours", 3600.0, 3 * 3600.0), ("minutes", 60.0, 180.0), ("seconds", 1.0, 0.0))


@dataclass(frozen=True)
class Bar:
    """A part of a job on neighbouring devices."""

    job: int
    lane: float  # the lowest device, from the top
    height: float  # devices
    start: float
    end: float


def span_of(result: Result) -> tuple[float, float]:
    bins = result.timeline
    if not len(bins):
        return 0.0, 1.0
    first, last = float(bins["time"][0]), float(bins["time"][-1] + max(bins["span"][-1], 0.0))
    return first, last if last > first else first + 1.0


def unit_of(span: tuple[float, float]) -> tuple[str, float]:
    length = span[1] - span[0]
    return next((name, size) for name, size, least in _UNITS if length >= least)


def window_of(result: Result, nodes: int) -> tuple[float, float]:
    """All of the time, or, of many parts on the nodes shown, the stretch around the longest queue in which few enough start."""
    span = span_of(result)
    starts = result.segments["start"][result.segments["node"] < nodes]
    if len(starts) <= MOST_PARTS:
        return span
    middle = float(result.timeline["time"][int(np.argmax(result.timeline["queue"]))])
    half = (span[1] - span[0]) / 2
    while half > 1.0:
        low = min(max(middle - half, span[0]), span[1] - 2 * half)
        inside = (starts >= low) & (starts < low + 2 * half)
        if int(inside.sum()) <= MOST_PARTS:
            break
        half *= 0.8
    low = max(middle - half, span[0])
    return low, min(low + 2 * half, span[1])


@dataclass(frozen=True)
class Lanes:
    """Where nodes begin in the chart; nodes beyond `MOST_LANES` devices are left out."""

    first: Array  # (shown nodes,)
    size: Array  # (shown nodes,) lanes
    total: int
    devices: int  # of the whole cluster


def lanes_of(result: Result) -> Lanes:
    size = np.maximum(result.cluster.nodes.gpus.astype(np.int64), 1)
    ends = np.cumsum(size)
    shown = max(int((ends <= MOST_LANES).sum()), 1)
    return Lanes(ends[:shown] - size[:shown], size[:shown], int(ends[shown - 1]), int(result.cluster.gpus))


def bars_of(parts: Array, lanes: Lanes) -> list[Bar]:
    """Neighbouring devices of one part make one bar; pools and shared devices get lanes as they are free."""
    bars: list[Bar] = []
    pooled: dict[int, list[Any]] = {}
    shared: dict[int, list[Any]] = {}
    for part in parts:
        node, mask = int(part["node"]), int(part["devices"])
        first = int(lanes.first[node])
        if mask == 0:
            pooled.setdefault(node, []).append(part)
        elif part["gpus"] < 1:
            shared.setdefault(first + mask.bit_length() - 1, []).append(part)
        else:
            devices = [d for d in range(mask.bit_length()) if mask >> d & 1]
            bars += [_bar(part, first + low, count) for low, count in _runs(devices)]
    for node, group in pooled.items():
        bars += _pool_bars(group, int(lanes.first[node]), int(lanes.size[node]))
    for lane, group in shared.items():
        bars += _shared_bars(group, lane)
    return bars


def _bar(part: Any, lane: float, height: float) -> Bar:
    return Bar(int(part["job"]), lane, height, float(part["start"]), float(part["end"]))


def _runs(devices: Sequence[int]) -> list[tuple[int, int]]:
    """(first, how many) of neighbours in a sorted list."""
    runs: list[tuple[int, int]] = []
    for d in devices:
        if runs and runs[-1][0] + runs[-1][1] == d:
            runs[-1] = (runs[-1][0], runs[-1][1] + 1)
        else:
            runs.append((d, 1))
    return runs


def _pool_bars(group: Sequence[Any], first: int, size: int) -> list[Bar]:
    """A pool has no device numbers: a part takes the lowest lanes that are free when it starts."""
    free = list(range(size))
    busy: list[tuple[float, int, list[int]]] = []
    bars: list[Bar] = []
    for k, part in enumerate(sorted(group, key=lambda p: (float(p["start"]), int(p["job"])))):
        while busy and busy[0][0] <= part["start"]:
            for lane in heapq.heappop(busy)[2]:
                heapq.heappush(free, lane)
        taken = sorted(heapq.heappop(free) for _ in range(min(int(part["gpus"]), len(free))))
        heapq.heappush(busy, (float(part["end"]), k, taken))
        bars += [_bar(part, first + low, count) for low, count in _runs(taken)]
    return bars


def _shared_bars(group: Sequence[Any], lane: int) -> list[Bar]:
    """Shares of one device, each at the lowest place that no present one holds."""
    bars: list[Bar] = []
    for part in sorted(group, key=lambda p: (float(p["start"]), int(p["job"]))):
        place = float(lane)
        for other in sorted((b for b in bars if b.end > part["start"]), key=lambda b: b.lane):
            if place + float(part["gpus"]) <= other.lane + 1e-9:
                break
            place = max(place, other.lane + other.height)
        bars.append(_bar(part, place, float(part["gpus"])))
    return bars
