"""Numbers and texts as JSON can hold them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.model.units import clean

MOST_POINTS = 400


def plain(value: object) -> Any:
    """Return a value with None for what is not a finite number, six digits at most, and clean texts."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(f"{float(value):.6g}") if math.isfinite(value) else None
    if isinstance(value, np.ndarray):
        return [plain(each) for each in value.tolist()]
    if isinstance(value, Mapping):
        return {clean(str(key)): plain(each) for key, each in value.items()}
    if isinstance(value, Sequence | set | frozenset):
        return [plain(each) for each in value]
    return clean(str(value))


def thinned(count: int, most: int = MOST_POINTS) -> list[int]:
    """Return which of so many points are shown: the first, the last and some between."""
    return list(range(count)) if count <= most else sorted({round(k) for k in np.linspace(0, count - 1, most).tolist()})
