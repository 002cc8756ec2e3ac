"""Random state and nested states as flat mappings of plain arrays."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from gpuyard.arrays import Array
from gpuyard.learn.base import Arrays

_WORD = 1 << 64


def generator_state(rng: np.random.Generator) -> Array:
    """Return the state of a PCG64 generator as (6,) u8: state and increment (low, high), the kept half word."""
    state = rng.bit_generator.state
    if state["bit_generator"] != "PCG64":
        raise ValueError(f"a PCG64 generator is needed, not {state['bit_generator']}")
    value, step = int(state["state"]["state"]), int(state["state"]["inc"])
    words = [value % _WORD, value // _WORD, step % _WORD, step // _WORD, int(state["has_uint32"]), int(state["uinteger"])]
    return np.array(words, dtype=np.uint64)


def generator_from(words: Array) -> np.random.Generator:
    """Return the generator with this `generator_state`."""
    low, high, step_low, step_high, kept, half = (int(word) for word in words)
    rng = np.random.Generator(np.random.PCG64())
    rng.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": {"state": low + high * _WORD, "inc": step_low + step_high * _WORD},
        "has_uint32": kept,
        "uinteger": half,
    }
    return rng


def nested(prefix: str, arrays: Mapping[str, Array]) -> Arrays:
    """Return copies of the arrays under `prefix/`: what is saved must not change later."""
    return {f"{prefix}/{name}": np.array(values) for name, values in arrays.items()}


def part(prefix: str, arrays: Mapping[str, Array]) -> Arrays:
    """Return the arrays that `nested(prefix, …)` put in."""
    start = f"{prefix}/"
    return {name[len(start) :]: values for name, values in arrays.items() if name.startswith(start)}
