"""The compiled entry: made on first use, loaded from the disk cache where it is there."""

from __future__ import annotations

import re
import threading
import zlib
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numba import types

from gpuyard.engine.compiler.jit import INTERPRETED, address_of, entry
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.interrupts import interrupts
from gpuyard.engine.kernels.events import step

if TYPE_CHECKING:
    from gpuyard.arrays import Int


def source_hash(module: str) -> int:
    """A number that changes with the source of `module` and of every gpuyard module that it imports, directly or not.

    Numba's cache watches the file of the entry alone. Imports are followed, so that a kernel that moves cannot be left out.
    """
    sources = {name: path.read_bytes() for name, path in _imported(module).items()}
    return 1 + zlib.crc32(b"".join(name.encode() + source for name, source in sorted(sources.items())))


def _imported(module: str) -> dict[str, Path]:
    """Module → file, for a module and all of gpuyard that it imports; what a package exports counts as imported."""
    found: dict[str, Path] = {}
    todo = [module]
    while todo:
        name = todo.pop()
        path = _file_of(name)
        if path is None or name in found:
            continue
        found[name] = path
        for package, names in _IMPORT.findall(path.read_text("utf-8")):
            todo += [package, *(f"{package}.{each}" for each in _NAME.findall(names))]
    return found


_ROOT = Path(__file__).parents[3]  # the folder that holds the package
_IMPORT = re.compile(r"^[ \t]*from (gpuyard(?:\.\w+)*) import (\([^)]*\)|[^\n]*)", re.MULTILINE)
_NAME = re.compile(r"\w+")


def _file_of(module: str) -> Path | None:
    """The file of a module or package; None: it is a name inside a module."""
    path = _ROOT.joinpath(*module.split("."))
    files = (path.with_suffix(".py"), path / "__init__.py")
    return next((file for file in files if file.is_file()), None)


_lock = threading.Lock()


def engine() -> Callable[[int, int, int], int]:
    """The compiled `step`, by the address of a header. A first run compiles it and says so on stderr."""
    with _lock:  # threads that start together must not compile it twice
        return _load()


@lru_cache(maxsize=1)
def _load() -> Callable[[int, int, int], int]:
    with interrupts():
        return _compile(source_hash(__name__))


def _compile(source: int) -> Callable[[int, int, int], int]:
    @entry(types.int64(types.int64, types.int64, types.int64))
    def advance(header: Int, order: Int, j: Int) -> Any:
        if source == 0:  # never; the hash is a free variable so that it is part of the cache's key
            return -9
        return step(state_at(header), order, j)

    made: Callable[[int, int, int], int] = advance
    return made


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
