"""Hosts drawn from ranges: `hosts:count=50,cores=16:32,memory=64GB:256GB,seed=1` as a table in the form of a cluster file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gpuyard.errors import UsageError
from gpuyard.model.units import Range, parse_assignments, parse_count, parse_gigabytes, parse_range, shorten
from gpuyard.registry import unknown_name

PREFIX = "hosts:"
MAX_HOSTS = 100_000
_PARSERS: Mapping[str, Callable[[str], Any]] = {
    "count": parse_count,
    "cores": lambda text: parse_range(text, parse_count),
    "memory": lambda text: parse_range(text, parse_gigabytes),
    "gpus": lambda text: parse_range(text, parse_count),
    "type": str,
    "seed": parse_count,
}


def hosts_table(text: str) -> dict[str, Any]:
    """One node per host: whole cores, whole GB of memory and GPUs, each uniform in its range, by `seed`.

    Defaults: 50 hosts of 16 to 32 cores and 64 to 256 GB, without GPUs. `type` is that of the GPUs.
    """
    what = f"cluster {shorten(text)[1:-1]}"
    given: dict[str, Any] = {"count": 50, "cores": Range(16, 32), "memory": Range(64, 256), "gpus": Range(0, 0), "type": "", "seed": 0}
    for name, value in parse_assignments(text.removeprefix(PREFIX.rstrip(":")).removeprefix(":"), what).items():
        if name not in _PARSERS:
            raise unknown_name(f"parameter of {what}", name, list(_PARSERS))
        try:
            given[name] = _PARSERS[name](value)
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
    """Whole numbers, uniform; the ends count, and a range without a whole number gives its lower end rounded up."""
    low = int(np.ceil(bounds.low))
    found = np.random.default_rng([seed, 0x686F7374, place]).integers(low, max(int(bounds.high), low) + 1, count)
    return [int(number) for number in found]
