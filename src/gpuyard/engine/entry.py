"""The compiled entry: made on first use, loaded from the disk cache where it is there."""

from __future__ import annotations

import sys
import threading
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
from numba import types

from gpuyard.engine import state as st
from gpuyard.engine.jit import INTERPRETED, address_of, entry
from gpuyard.engine.kernels.events import step
from gpuyard.engine.pointer import state_at
from gpuyard.model.jobs import Array

_PATIENCE = 0.8  # s without an answer before the user is told that a compilation is under way


def source_hash(*packages: str) -> int:
    """A number that changes with any source of the engine, the model or other packages: numba's cache only watches the entry's own file."""
    here = Path(__file__).parent
    folders = [here.parent / name for name in ("model", *packages)]
    files = [*sorted(here.rglob("*.py")), *(file for folder in folders for file in sorted(folder.rglob("*.py")))]
    return 1 + zlib.crc32(b"".join(f.read_bytes() for f in files))


_lock = threading.Lock()


def engine() -> Callable[[int, int, int], int]:
    """The compiled `step`, by the address of a header. A first run compiles it and says so on stderr."""
    with _lock:  # threads that start together must not compile it twice
        return _load()


@lru_cache(maxsize=1)
def _load() -> Callable[[int, int, int], int]:
    told = threading.Timer(_PATIENCE, _tell)
    told.daemon = True
    told.start()
    try:
        return _compile(source_hash())
    finally:
        told.cancel()


def _tell() -> None:
    sys.stderr.write("gpuyard: compiling the engine, once for this machine and version (20–30 s) …\n")
    sys.stderr.flush()


def _compile(source: int) -> Callable[[int, int, int], int]:
    @entry(types.int64(types.int64, types.int64, types.int64))
    def advance(header: Any, order: Any, j: Any) -> Any:
        if source == 0:  # never; the hash is a free variable so that it is part of the cache's key
            return -9
        return step(state_at(header), order, j)

    made: Callable[[int, int, int], int] = advance
    return made


def engine_address() -> int:
    """Where compiled code finds the engine, as `int64 (int64 header, int64 order, int64 j)`."""
    return address_of(engine())


def run_step(s: st.State, header: Array, order: int, j: int = 0) -> int:
    """One order to the engine; returns its status."""
    if INTERPRETED:
        with np.errstate(all="ignore"):
            return int(step(s, order, j))
    return engine()(header.ctypes.data, order, j)
