"""Numba's compiler without what kernels have no use for: each is lowered to plain LLVM code, and the entry links and optimises all of them.

By default numba optimises and assembles every function on its own, with all that it calls, and again inside each caller, and sends it
through 27 passes. To compile the engine took 41 s in that way and takes 16 s here (two cores, decision record 0001).
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from llvmlite import binding
from numba import types
from numba.core import typed_passes as typed
from numba.core import untyped_passes as untyped
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler, CompilerBase, Flags
from numba.core.compiler_machinery import PassManager, register_pass


class KernelLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The LLVM code of one kernel and of nothing that it calls. It is never optimised or assembled."""

    def finalize(self) -> None:
        self._finalize_dynamic_globals()
        self._finalized = True

    def _optimize_functions(self, ll_module: Any) -> None:
        """Leave it to the entry, whose passes begin with the same: alone they take a tenth of a first run."""
        ll_module.data_layout = self._codegen._data_layout

    def _get_module_for_linking(self) -> Any:
        """Return the code for an entry. Numba copies it first, since it can also be assembled; here nothing else uses it."""
        if self._shared_module is None:  # type: ignore[has-type]
            for function in self._final_module.functions:
                if not function.is_declaration and function.linkage == binding.Linkage.external:
                    function.linkage = "linkonce_odr"  # several entries may define it, and what is inlined is dropped
            self._shared_module = self._final_module
        return self._shared_module


class EntryLibrary(JITCodeLibrary):  # type: ignore[misc]
    """The code of an entry, with every kernel that it calls, directly or not."""

    def finalize(self) -> None:
        self._linking_libraries = _callers_first(self._linking_libraries)  # type: ignore[has-type]
        super().finalize()

    def _optimize_final_module(self) -> None:
        """Optimise once. Numba does so twice, to find pairs of counted references in what it inlined; kernels count none."""
        passes, builder = self._codegen._module_pass_manager()
        passes.run(self._final_module, builder)

    def _verify_declare_only_symbols(self) -> None:
        """Refuse code that calls a function that is not there; to call it would end the process."""
        missing = [
            function.name for function in self._final_module.functions if function.is_declaration and function.name.startswith("_ZN")
        ]
        if missing:
            raise AssertionError(f"{self.name}: not linked: {', '.join(missing)}")


def _callers_first(libraries: Sequence[Any]) -> list[Any]:
    """Return the libraries and all that kernels among them call, each after its callers: LLVM drops what nothing has asked for yet."""
    seen: set[Any] = set()
    done: list[Any] = []

    def visit(library: Any) -> None:
        if library in seen:
            return
        seen.add(library)
        for called in library._linking_libraries if isinstance(library, KernelLibrary) else ():  # numba's own bring along what they call
            visit(called)
        done.append(library)

    for library in libraries:
        visit(library)
    return done[::-1]


def _new_library(state: Any, kind: type[JITCodeLibrary]) -> Any:
    library = kind(state.targetctx.codegen(), state.func_id.func_qualname)
    library.enable_object_caching()
    return library


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelTyping(typed.NopythonTypeInference):  # type: ignore[misc]
    """Infer types. What a function of numba's own returns is asked once for each kind of arguments: of 8,500 questions 500 differ."""

    _name = "gpuyard_kernel_typing"

    def run_pass(self, state: Any) -> Any:
        context = state.typingctx
        if "resolve_function_type" in vars(context):  # by the kernel that calls this one
            return super().run_pass(state)
        context.resolve_function_type = _answered_once(context.resolve_function_type)
        try:
            return super().run_pass(state)
        finally:
            del context.resolve_function_type  # the method of the class shows through again


def _answered_once(resolve: Callable[[Any, Any, Any], Any]) -> Callable[[Any, Any, Any], Any]:
    known: dict[Any, Any] = {}

    def answer(function: Any, args: Any, kws: Any) -> Any:
        if type(function) is not types.Function or kws:
            return resolve(function, args, kws)
        found = known.get((function, args))
        if found is None:
            found = known[function, args] = resolve(function, args, kws)
        return found

    return answer


@register_pass(mutates_CFG=True, analysis_only=False)
class KernelLowering(typed.NativeLowering):  # type: ignore[misc]
    """Lower to LLVM code, without optimisation or machine code."""

    _name = "gpuyard_kernel_lowering"

    def run_pass(self, state: Any) -> Any:
        _tell_compiling()
        state.library = _new_library(state, KernelLibrary)
        # The dispatcher wants some built-in function of its own as a key; nothing ever calls it.
        state.targetctx.get_executable = lambda *_: [].append
        try:
            return super().run_pass(state)
        finally:
            del state.targetctx.get_executable  # the method of the class shows through again


@register_pass(mutates_CFG=True, analysis_only=False)
class EntryLowering(typed.NativeLowering):  # type: ignore[misc]
    """Lower to machine code, with the kernels linked in."""

    _name = "gpuyard_entry_lowering"

    def run_pass(self, state: Any) -> Any:
        state.library = _new_library(state, EntryLibrary)
        return super().run_pass(state)


# Left out are passes for what no kernel has: closures, comprehensions, `with`, `literally`, raised errors, whole-array arithmetic. A kernel
# that had one would not compile. Of three times, branches on constants are pruned once.
_PASSES = (
    untyped.TranslateByteCode, untyped.FixupArgs, untyped.IRProcessing, untyped.DeadBranchPrune, untyped.GenericRewrites,
    untyped.ReconstructSSA, KernelTyping, typed.PreLowerStripPhis, typed.NoPythonSupportedFeatureValidation,
    typed.IRLegalization, typed.AnnotateTypes, KernelLowering, typed.NoPythonBackend,
)  # fmt: skip


class KernelFlags(Flags):  # type: ignore[misc]
    """Numba's flags, compared by what is set: numba writes all of them out 60,000 times, 2 s of a first run."""

    def __hash__(self) -> int:
        return _HASH

    def __eq__(self, other: object) -> bool:
        return (isinstance(other, KernelFlags) and self._values == other._values) or bool(super().__eq__(other))


_HASH = hash(Flags())  # that of all of numba's: it is of their names alone


class KernelCompiler(CompilerBase):  # type: ignore[misc]
    """Compiles an inner kernel."""

    def __init__(self, typing: Any, target: Any, library: Any, args: Any, return_type: Any, flags: Flags, locals: Any) -> None:
        super().__init__(typing, target, library, args, return_type, KernelFlags(flags), locals)

    def define_pipelines(self) -> list[PassManager]:
        manager = PassManager("gpuyard_kernel")
        for kind in _PASSES:
            manager.add_pass(kind, kind._name)
        manager.finalize()
        return [manager]


class EntryCompiler(Compiler):  # type: ignore[misc]
    """Compiles a kernel that Python calls."""

    def define_pipelines(self) -> Any:
        pipelines = super().define_pipelines()
        for manager in pipelines:
            manager.passes = [(EntryLowering, about) if kind is typed.NativeLowering else (kind, about) for kind, about in manager.passes]
            manager._finalized = False
            manager.finalize()
        return pipelines


@contextmanager
def no_collection() -> Iterator[None]:
    """Keep Python's collector of cycles away: it looks at all that a compilation has made again and again, 2 s of a first run."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


def prepare_numba() -> None:
    """Load numba's array functions before a compilation does. They look for scipy's linear algebra at once, 0.2 s for nothing."""
    wanted = "scipy.linalg.cython_blas"
    if wanted in sys.modules or "numba.np.arraymath" in sys.modules:
        return
    sys.modules[wanted] = None  # type: ignore[assignment]  # this is how an import is made to fail
    try:
        arraymath: Any = import_module("numba.np.arraymath")
    finally:
        del sys.modules[wanted]
    arraymath._HAVE_BLAS = find_spec("scipy") is not None  # those who call it still find it


@cache
def _tell_compiling() -> None:
    """Say so once, and only where something is compiled: code from the disk cache does not come here."""
    sys.stderr.write("gpuyard: compiling the engine, once for this machine and version (10–30 s) …\n")
    sys.stderr.flush()
