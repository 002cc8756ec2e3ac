"""The compiled entry: made on first use, loaded from the disk cache where it is there."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from gpuyard.engine.compiler.jit import INTERPRETED, address_of, entry
from gpuyard.engine.compiler.parts import address, compiled_beside
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.interrupts import interrupts
from gpuyard.engine.kernels.events import step

if TYPE_CHECKING:
    from gpuyard.arrays import Int

_lock = threading.Lock()


def engine() -> Callable[[int, int, int], int]:
    """The compiled `step`, by the address of a header. A first run compiles it and says so on stderr."""
    with _lock:  # threads that start together must not compile it twice
        return _load()


@lru_cache(maxsize=1)
def _load() -> Callable[[int, int, int], int]:
    with interrupts(), compiled_beside():
        return _compile(source_hash(__name__))


def _compile(source: int) -> Callable[[int, int, int], int]:
    @entry(types.int64(types.int64, types.int64, types.int64))
    def advance(header: Int, order: Int, j: Int) -> Any:
        if source == 0:  # never; the hash is a free variable so that it is part of the cache's key
            return -9
        return step(state_at(header), order, j)

    made: Callable[[int, int, int], int] = advance
    return made


def parts_address() -> int:
    """Where kernels find the parts; states carry it."""
    if not INTERPRETED:
        engine()  # first: the parts are compiled beside it
    with _lock:
        return address()


def engine_address() -> int:
    """Where compiled code finds the engine, as `int64 (int64 header, int64 order, int64 j)`."""
    return address_of(engine())


def run_step(handle: Any, order: int, j: int = 0) -> int:
    """Give one order to the engine, by the address of a state's header (by the state where kernels are interpreted); returns its status."""
    if INTERPRETED:
        with np.errstate(all="ignore"):
            return int(step(handle, order, j))
    advance = engine()
    with interrupts():
        return advance(handle, order, j)
