"""Kernels that are linked into an entry, and an entry that lacks one."""

from __future__ import annotations

import pickle
from typing import Any

import numba
import pytest
from numba import njit, types
from numba.core.serialize import dumps

from gpuyard.engine.compiler.jit import INTERPRETED, Kernel, entry, inner, mix
from gpuyard.engine.compiler.linking import EntryLibrary, KernelFlags

pytestmark = pytest.mark.skipif(INTERPRETED, reason="nothing is compiled")


@inner
def lowest(x: Any) -> Any:
    return x * x + 1


@inner
def unused_but_called(x: Any) -> Any:
    lowest(x)  # LLVM drops this call, and with it the first time that `lowest` is asked for
    return x + 1


@inner
def needed(x: Any) -> Any:
    return lowest(x) + unused_but_called(x)


@pytest.fixture
def _own_cache(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(numba.config, "CACHE_DIR", str(tmp_path))


@pytest.mark.usefixtures("_own_cache")
def test_a_kernel_reached_on_two_roads_is_linked_though_nothing_is_left_of_the_first_call() -> None:
    @entry(types.int64(types.int64))
    def both(x: Any) -> Any:
        return unused_but_called(x) + needed(x)

    assert both(3) == 4 + 10 + 4


def test_in_the_key_of_an_entry_on_the_disk_a_kernel_is_its_name() -> None:
    """Else each process has a key of its own, and compiles what is there already: numba's dispatchers have names drawn at random."""
    key = dumps((mix,))
    assert isinstance(mix, Kernel) and mix.dispatcher is not None
    assert dumps((mix,)) == key and len(key) < 200
    assert pickle.loads(key)[0] is mix  # noqa: S301 - made here


@pytest.mark.usefixtures("_own_cache")
def test_an_entry_that_lacks_a_kernel_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    finalize = EntryLibrary.finalize

    def forget(library: Any) -> None:
        library._linking_libraries = []
        finalize(library)

    monkeypatch.setattr(EntryLibrary, "finalize", forget)
    with pytest.raises(AssertionError, match="not linked: .*lowest"):

        @entry(types.int64(types.int64))
        def one(x: Any) -> Any:
            return lowest(x)


def test_a_kernel_is_no_dispatcher_before_it_is_compiled() -> None:
    kernel = Kernel(lambda x: x + 1)
    assert "dispatcher" not in vars(kernel)
    assert njit(lambda x: x)(1) == 1
    assert kernel._numba_type_.dispatcher is kernel.dispatcher


def test_flags_are_equal_where_those_of_numba_are() -> None:
    plain, other = numba.core.compiler.Flags(), numba.core.compiler.Flags()
    other.nrt = True
    assert KernelFlags(plain) == KernelFlags(plain) == plain
    assert hash(KernelFlags(plain)) == hash(plain)
    assert KernelFlags(plain) != KernelFlags(other)
    assert KernelFlags(other) != plain
    other.nrt = plain.nrt  # set, to what it is anyway
    assert KernelFlags(plain) == KernelFlags(other)
