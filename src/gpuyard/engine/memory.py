"""The arrays of a state, cut out of one block of memory.

A state has some sixty arrays. To allocate them one by one and to ask each for its address takes 0.3 ms, as long as the
simulation of 500 jobs; one block and a layout that is worked out once per set of lengths take 0.03 ms.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.state import DTYPES, State

CACHE_LINE = 64  # bytes; arrays begin at one, so that a waiting job is read from one line, not two
# The arrays that do not begin with zeros come first in the block, so that all of them are copied at once.
BEGUN = (
    "control", "nodes", "partitions", "types", "speed", "type_rank", "allowed", "mix_at", "fragment", "partition_of", "qos_factor",
    "outages",
)  # fmt: skip
_ORDER = (*BEGUN, *(name for name in State._fields if name not in BEGUN))
_KINDS = tuple(np.dtype(DTYPES[name]) for name in State._fields)
_PLACE = {name: i for i, name in enumerate(State._fields)}


class _Layout(NamedTuple):
    """Where each array of a state begins in the block, counted from the block's first cache line."""

    shapes: tuple[tuple[int], ...]
    offsets: tuple[int, ...]
    size: int  # bytes
    header: Array  # offsets and lengths, to which the address of the block is added


@lru_cache(maxsize=1024)
def _layout(lengths: tuple[int, ...]) -> _Layout:
    at, offsets = 0, [0] * len(lengths)
    for i in (_PLACE[name] for name in _ORDER):
        offsets[i] = at
        at += _whole_lines(lengths[i] * _KINDS[i].itemsize)
    header = np.array([word for pair in zip(offsets, lengths, strict=True) for word in pair], np.int64)
    return _Layout(tuple((length,) for length in lengths), tuple(offsets), at, header)


def _whole_lines(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE


def packed(arrays: Mapping[str, Array]) -> Array:
    """Return the bytes of the arrays of BEGUN, as they lie in a block."""
    parts = [(np.ascontiguousarray(arrays[name], DTYPES[name]).view(np.uint8), arrays[name].nbytes) for name in BEGUN]
    block, at = np.zeros(sum(_whole_lines(size) for _, size in parts), np.uint8), 0
    for part, size in parts:
        block[at : at + size] = part
        at += _whole_lines(size)
    return block


def lay_out(lengths: Mapping[str, int], given: Mapping[str, Array], beginning: Array) -> tuple[State, Array]:
    """Make a state and its header. `lengths` are those of all arrays but those `given`; they hold zeros behind the packed `beginning`."""
    layout = _layout(tuple(map(lengths.get, State._fields, repeat(0))))
    block = np.zeros(layout.size + CACHE_LINE, np.uint8)
    address = block.ctypes.data
    first = -address % CACHE_LINE
    block[first : first + len(beginning)] = beginning
    arrays: list[Any] = [
        np.ndarray(shape, kind, block, first + at) for shape, kind, at in zip(layout.shapes, _KINDS, layout.offsets, strict=True)
    ]
    header = layout.header.copy()
    header[::2] += address + first
    for name, array in given.items():
        i = _PLACE[name]
        arrays[i] = array
        if len(array):
            header[2 * i], header[2 * i + 1] = array.ctypes.data, len(array)
    return State._make(arrays), header


def header_of(s: State) -> Array:
    """Addresses and lengths of the arrays of a state, which must outlive it."""
    words = [word for array in s for word in (array.ctypes.data, len(array))]
    return np.array(words, np.int64)
