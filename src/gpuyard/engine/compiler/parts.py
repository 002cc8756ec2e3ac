"""Parts of the engine that are compiled apart and reached by their addresses, so that a first run can use two cores.

Numba compiles one function at a time, whatever the number of threads. So another process compiles the parts while this one compiles the
entry, and leaves their code on disk: 11 s beside 9 s, where both in turn took 17 s (decision record 0001).
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpuyard.engine.compiler.diskcache import is_missing_on_disk
from gpuyard.engine.compiler.jit import INTERPRETED, WORD, address_of, entry, python_handle
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.place import pick_among
from gpuyard.engine.kernels.plan import conservative

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import State

_SIGNATURE = WORD(WORD, WORD, WORD, WORD)  # header, a, b, 0
_PACKAGES = Path(__file__).parents[3]  # the folder that holds the package
_COMMAND = f"from {__name__} import addresses; addresses()"


@cache
def addresses() -> tuple[int, int]:
    """Return the addresses of `pick_among` and `conservative`; they are compiled if the disk does not have them."""
    if INTERPRETED:
        return python_handle(_pick), python_handle(_plan)
    pick, plan = (entry(_SIGNATURE)(function) for function in _functions())
    _keep.extend((pick, plan))
    return address_of(pick), address_of(plan)


_keep: list[Any] = []  # compiled functions whose addresses are in use must not be freed


def _pick(s: State, count: Int, j: Int, _: Int) -> Any:
    return pick_among(s, count, j)


def _plan(s: State, p: Int, head: Int, _: Int) -> Any:
    return conservative(s, p, head)


def _functions() -> tuple[Callable[..., Any], ...]:
    source = source_hash(__name__)  # never 0, and part of the cache's key

    def pick_among_nodes(header: Int, count: Int, j: Int, _: Int) -> Any:
        return pick_among(state_at(header), count, j) if source != 0 else -9

    def plan_conservatively(header: Int, p: Int, head: Int, _: Int) -> Any:
        return conservative(state_at(header), p, head) if source != 0 else -9

    return pick_among_nodes, plan_conservatively


@contextmanager
def compiled_beside() -> Iterator[None]:
    """Let another process compile the parts meanwhile, if the disk does not have them. If it fails, they are compiled here later on."""
    wanted = _cores() > 1 and bool(sys.executable) and any(is_missing_on_disk(function, _SIGNATURE) for function in _functions())
    if not wanted:
        yield
        return
    places = os.pathsep.join([str(_PACKAGES), *filter(None, sys.path)])
    quiet: dict[str, Any] = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
    with subprocess.Popen([sys.executable, "-P", "-c", _COMMAND], env=os.environ | {"PYTHONPATH": places}, **quiet) as child:
        try:
            yield
            child.wait()
        finally:
            child.kill()  # nothing happens to one that has ended


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
