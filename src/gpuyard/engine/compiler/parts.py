"""Parts of the engine that are compiled apart and reached by an address, so that a first run can use two cores.

Numba compiles one function at a time, whatever the number of threads. So another process compiles the parts while this one compiles the
entry, and leaves their code on disk: 12 s beside 12 s, where both in turn take 24 s (decision record 0001).
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
from gpuyard.engine.compiler.jit import INTERPRETED, WORD, address_of, entry, inner, python_handle
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.place import pick_among
from gpuyard.engine.kernels.plan import conservative
from gpuyard.engine.kernels.ranks.walk import rank_pass
from gpuyard.engine.kernels.site.shared import shared_pass
from gpuyard.engine.state import PART_PICK, PART_PLAN, PART_SHARED

if TYPE_CHECKING:
    from gpuyard.arrays import Int
    from gpuyard.engine.state import State

_SIGNATURE = WORD(WORD, WORD, WORD, WORD)  # header, a, b, which
_PACKAGES = Path(__file__).parents[3]  # the folder that holds the package
_COMMAND = f"from {__name__} import address; address()"


@inner
def _part(s: State, a: Int, b: Int, which: Int) -> Any:
    """Do what a kernel of the entry asks for by `call_state(control.parts, s, a, b, which)`."""
    if which == PART_PICK:
        return pick_among(s, a, b)
    if which == PART_PLAN:
        return conservative(s, a, b)
    return shared_pass(s, a) if which == PART_SHARED else rank_pass(s, a)


@cache
def address() -> int:
    """Return where kernels find the parts, which are compiled if the disk does not have them."""
    if INTERPRETED:
        return python_handle(_part)
    made = entry(_SIGNATURE)(_function())
    _keep.append(made)
    return address_of(made)


_keep: list[Any] = []  # compiled functions whose addresses are in use must not be freed


def _function() -> Callable[..., Any]:
    source = source_hash(__name__)  # never 0, and part of the cache's key

    def do_part(header: Int, a: Int, b: Int, which: Int) -> Any:
        return _part(state_at(header), a, b, which) if source != 0 else -9

    return do_part


@contextmanager
def compiled_beside() -> Iterator[None]:
    """Let another process compile the parts meanwhile, if the disk does not have them. If it fails, they are compiled here later on."""
    wanted = _cores() > 1 and bool(sys.executable) and is_missing_on_disk(_function(), _SIGNATURE)
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
