"""Scale numbers for networks: of order one, cheap to compute, the same compiled and interpreted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import float_bits, inner

if TYPE_CHECKING:
    from gpuyard.arrays import Real

TIME = 1 / 20  # log2 of about 12 days becomes 1
COUNT = 1 / 16  # log2 of 65,536 becomes 1


@inner
def log(x: Real) -> Any:
    """log2(1 + x) for x ≥ 0, straight lines between powers of two: within 0.086 of it, and some 2 ns where the exact one takes 10."""
    return np.float32((float_bits(np.float32(1.0 + x)) - np.int32(0x3F800000)) * np.float32(1 / 8388608))


@inner
def squash(x: float) -> Any:
    """Return x / (1 + |x|): from −1 to 1; infinity gives ±1."""
    if x == np.inf:
        return np.float32(1.0)
    if x == -np.inf:
        return np.float32(-1.0)
    return np.float32(x / (1.0 + abs(x)))


@inner
def share(part: Real, whole: Real) -> Any:
    """Return part / whole; 0 if the whole is nothing or infinite; 1 if only the part has no limit."""
    if not 0 < whole < np.inf:
        return np.float32(0.0)
    return np.float32(part / whole) if part < np.inf else np.float32(1.0)
