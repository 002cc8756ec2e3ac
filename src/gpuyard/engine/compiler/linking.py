"""A numba pipeline for functions that are only ever linked into a compiled entry.

By default numba optimises and assembles every function on its own, with all that it calls, and again inside each caller:
41 s for the engine's kernels on two cores, 14 s in this way. Here an inner kernel stops at plain LLVM code; the entry
links all of them and is optimised once.
"""

from __future__ import annotations

from typing import Any

from numba.core.compiler import Compiler
from numba.core.compiler_machinery import register_pass
from numba.core.typed_passes import NativeLowering


@register_pass(mutates_CFG=True, analysis_only=False)
class LinkOnlyLowering(NativeLowering):  # type: ignore[misc]
    """Lower to LLVM code, without optimisation or machine code."""

    _name = "gpuyard_link_only_lowering"

    def run_pass(self, state: Any) -> Any:
        library = state.targetctx.codegen().create_library(state.func_id.func_qualname)
        library.enable_object_caching()
        library._optimize_final_module = _nothing
        library._finalize_final_module = lambda: _finalize(library)
        state.library = library
        # The dispatcher wants some built-in function of its own as a key; nothing ever calls it.
        state.targetctx.get_executable = lambda *_: [].append
        try:
            return super().run_pass(state)
        finally:
            del state.targetctx.get_executable  # the method of the class shows through again


class LinkOnlyCompiler(Compiler):  # type: ignore[misc]
    """Numba's compiler with that lowering."""

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for manager in pipelines:
            manager.passes = [(LinkOnlyLowering, about) if kind is NativeLowering else (kind, about) for kind, about in manager.passes]
            manager._finalized = False
            manager.finalize()
        return pipelines


def _nothing() -> None:
    """In place of the optimisation of a library."""


def _finalize(library: Any) -> None:
    library._finalize_dynamic_globals()
    library._finalized = True
