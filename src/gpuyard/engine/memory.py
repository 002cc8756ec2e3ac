"""The arrays of a state, or of several states side by side, cut out of one block of memory.

A state has some sixty arrays. To allocate them one by one and to ask each for its address takes 0.3 ms, as long as the
simulation of 500 jobs; one block takes 0.03 ms. Kernels need no more than
addresses; the arrays of a state are made when Python asks for them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.rows.ranking import RANKED_ROW
from gpuyard.engine.state import State
from gpuyard.model.jobs import JOB
from gpuyard.model.result import BIN, ROW
from gpuyard.model.rules import TERMS
from gpuyard.model.snapshot import MIX

_INT32 = "queue_jobs line_of line_jobs front_jobs running_jobs ends type_rank partition_of room pick_node pick_units candidates"
_SITE = "pair_at pairs releases unmet follower_at followers failing group_of why"
_INT64 = "allowed mix_at fragment partial pick_device plan_free"
DTYPES: dict[str, Any] = dict.fromkeys(State._fields, np.float64) | dict.fromkeys(_INT64.split(), np.int64) | dict.fromkeys(
    [*_INT32.split(), *_SITE.split(), "notes", "plan_first", "legal", "rank_jobs", "rank_level"], np.int32) | {
    "control": st.CONTROL_ROW, "table": np.dtype(JOB, align=True), "rows": st.JOB_ROW, "factors": st.FACTOR_ROW, "result": ROW,
    "nodes": st.NODE_ROW, "asks": st.ASK_ROW, "parts": st.PART_ROW, "partitions": st.PARTITION_ROW, "types": st.TYPE_ROW, "mix": MIX,
    "outages": st.OUTAGE_ROW, "slots": st.SLOT_ROW,     "users": st.USER_ROW, "bins": st.BIN_ROW, "timeline": BIN, "log": st.LOG_ROW,
    "system": st.SYSTEM_ROW, "shadow_nodes": st.NODE_ROW,     "plan_cells": st.CELL_ROW, "tally": st.TALLY_ROW, "terms": TERMS,
    "ranked": RANKED_ROW, "ranked_parts": st.PART_ROW, "ranked_nodes": st.NODE_ROW,     "queue_need": np.float32,
    "queue_length": np.float32, "line_need": np.float32, "line_length": np.float32, "scratch": np.float32,     "free_index": np.uint64,
    "lines": st.LINE_ROW, "members": np.uint64, "chances": np.uint64, "heads": st.HEAD_ROW, "groups": st.GROUP_ROW,
    "head_nodes": st.NODE_ROW,
}  # fmt: skip

CACHE_LINE = 64  # bytes; arrays begin at one, so that a waiting job is read from one line, not two
# The arrays that do not begin with zeros come first in the block, so that all of them are copied at once.
BEGUN = (
    "control", "nodes", "partitions", "types", "speed", "type_rank", "allowed", "mix_at", "fragment", "partition_of", "qos_factor",
    "outages", "partition_factor", "pair_at", "pairs", "members",
)  # fmt: skip
FIELD = {name: i for i, name in enumerate(State._fields)}
_ORDER = np.array([FIELD[name] for name in (*BEGUN, *(name for name in State._fields if name not in BEGUN))])
_KINDS = tuple(np.dtype(DTYPES[name]) for name in State._fields)
_SIZES = np.array([kind.itemsize for kind in _KINDS])


def _layout(lengths: tuple[int, ...]) -> tuple[Array, int]:
    """Return where each array of a state begins in a block, in bytes from the block's first cache line, and the size of all."""
    sizes = -(-(np.array(lengths, np.int64) * _SIZES) // CACHE_LINE) * CACHE_LINE
    ends = sizes[_ORDER].cumsum()
    offsets = np.empty_like(sizes)
    offsets[_ORDER] = ends - sizes[_ORDER]
    return offsets, int(ends[-1])


def _whole_lines(size: int) -> int:
    return -(-size // CACHE_LINE) * CACHE_LINE


def packed(arrays: Mapping[str, Array]) -> Array:
    """Return the bytes of the arrays of BEGUN, as they lie in a block."""
    parts = [np.asarray(arrays[name], DTYPES[name]).tobytes() for name in BEGUN]
    return np.frombuffer(b"".join(part.ljust(_whole_lines(len(part)), b"\0") for part in parts), np.uint8)


class Memory:
    """The arrays of some states: their lengths may differ, what they begin with is the same.

    `lengths` has a row per state, by the fields of State, and 0 for arrays that are given: those `shared` by all states, and those of
    their `own` (states, length), which outlive the others or need no zeros. The others hold zeros behind the packed `beginning`.
    """

    def __init__(self, lengths: Sequence[tuple[int, ...]], shared: Mapping[str, Array], own: Mapping[str, Array], beginning: Array) -> None:
        count, most = len(lengths), tuple(map(max, *lengths)) if len(lengths) > 1 else lengths[0]
        self._most = most
        self._offsets, self._size = _layout(most)
        size = self._size
        self._block = np.zeros(count * size + CACHE_LINE, np.uint8)
        address = self._block.ctypes.data
        self._first = -address % CACHE_LINE
        begin = np.arange(count)[:, None] * size + (address + self._first)
        self._block[self._first : self._first + count * size].reshape(count, size)[:, : len(beginning)] = beginning
        self.headers = np.empty((count, 2 * len(most)), np.int64)
        self.headers[:, ::2] = begin + self._offsets
        self.headers[:, 1::2] = lengths
        self._shared, self._own = shared, own
        for name, array in shared.items():
            self._point(name, array.ctypes.data, len(array))
        for name, array in own.items():
            self._point(name, array.ctypes.data + np.arange(count) * array.strides[0], array.shape[1])

    def _point(self, name: str, address: Any, length: int) -> None:
        if length:
            i = 2 * FIELD[name]
            self.headers[:, i], self.headers[:, i + 1] = address, length

    def __len__(self) -> int:
        return len(self.headers)

    def addresses(self) -> list[int]:
        """Return where the header of each state is, which is what kernels take."""
        first, step = self.headers.ctypes.data, self.headers.strides[0]
        return [first + k * step for k in range(len(self))]

    def every(self, name: str) -> Array:
        """Return (states, most) that array of all states; one that is given to all has no rows of its own and is not asked for."""
        if name in self._own:
            return self._own[name]
        i = FIELD[name]
        at, steps = self._first + int(self._offsets[i]), (self._size, _KINDS[i].itemsize)
        return np.ndarray((len(self), self._most[i]), _KINDS[i], self._block, at, steps)

    def state(self, k: int) -> State:
        """Return the arrays of one state."""
        offsets, lengths = (self._offsets + (self._first + k * self._size)).tolist(), self.headers[k, 1::2].tolist()
        arrays: dict[str, Any] = {
            name: np.ndarray((length,), kind, self._block, at)
            for name, kind, at, length in zip(State._fields, _KINDS, offsets, lengths, strict=True)
            if name not in self._shared and name not in self._own
        }
        return State.of(**arrays, **self._shared, **{name: array[k] for name, array in self._own.items()})


def header_of(s: State) -> Array:
    """Addresses and lengths of the arrays of a state, which must outlive it."""
    words = [word for array in s for word in (array.ctypes.data, len(array))]
    return np.array(words, np.int64)
