"""Ranges of numbers in configurations, refused in one line where they are made and not where they would be used."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuyard.errors import UsageError

ANY = float("inf")
MOST = 10**15  # of anything that is counted


def check_limits(what: str, config: Any, limits: Mapping[str, tuple[float, float]], *, above: tuple[str, ...] = ()) -> None:
    """Refuse a field of `config` that does not lie in its (lowest, highest); those in `above` may not be the lowest itself."""
    for name, (low, high) in limits.items():
        value = getattr(config, name)
        if low < value <= high or (value == low and name not in above):
            continue
        problem = f"above {high:g}" if value > high else f"not above {low:g}" if name in above else f"below {low:g}"
        raise UsageError(f"{what}: {name} = {str(value)[:40]} is {problem}")
