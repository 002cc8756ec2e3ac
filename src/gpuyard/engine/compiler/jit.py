"""The only place with numba flags, and the bridge by which compiled kernels call policies.

Policies reach the kernels as C function addresses, so that the engine is compiled once and cached on disk whatever
policies are used (decision record 0001). With `NUMBA_DISABLE_JIT=1` everything here runs as plain Python: an
"address" is then a handle into a table of Python functions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numba import config, from_dtype, njit, types
from numba.extending import intrinsic

from gpuyard.engine.compiler.diskcache import compile_cached
from gpuyard.engine.compiler.linking import EntryCompiler, KernelCompiler
from gpuyard.engine.compiler.pointer import words_of
from gpuyard.engine.state import PARAMS

if TYPE_CHECKING:
    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

    from gpuyard.arrays import Int, Ints, Real, Reals, Vector
    from gpuyard.engine.state import JobRow, State, SystemRow

WORD, FLOAT, NOTHING = types.int64, types.float64, types.void  # in signatures of entries
F = TypeVar("F", bound=Callable[..., Any])
INTERPRETED = bool(config.DISABLE_JIT)


# No reference counting (`_nrt=False`): nothing is allocated inside kernels, and counting costs more than the work:
# 30 k instead of 1–2 M jobs/s was measured with it on.
_INNER = {"nogil": True, "error_model": "numpy", "_nrt": False}
_LINKED = {"no_cpython_wrapper": True, "no_cfunc_wrapper": True}


class Kernel:
    """A kernel called by other kernels. Numba's dispatcher is made when one of them is compiled: 300 of them take 0.07 s of a start."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.py_func = function  # numba's name for it
        self.__doc__, self.__name__, self.__module__ = function.__doc__, function.__name__, function.__module__

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the name: what an entry closes over is in its key on the disk, and numba's dispatcher is another one in each process."""
        return _named, (self.__module__, self.__name__)

    @cached_property
    def dispatcher(self) -> Any:
        return njit(pipeline_class=KernelCompiler, **_INNER, **_LINKED)(self.py_func)

    @property
    def _numba_type_(self) -> Any:
        """Answer numba, which asks an object for its type by this name."""
        return types.Dispatcher(self.dispatcher)


def _named(module: str, name: str) -> Any:
    return getattr(import_module(module), name)


def inner(function: F) -> F:
    """A kernel called by other kernels: typed at the call, linked into the entry that uses it."""
    return function if INTERPRETED else Kernel(function)  # type: ignore[return-value]


def array_of(kind: Any, dimensions: int = 1) -> Any:
    """The type of a contiguous array of numbers or records, in signatures of entries."""
    return types.Array(from_dtype(np.dtype(kind)), dimensions, "C")


def copier(names: Sequence[str]) -> Callable[[Any, Any], None]:
    """A kernel `(given, row)` that copies the named columns of one record to another. It is generated, so that none can be forgotten."""
    lines = [f"    row[{name!r}] = given[{name!r}]" for name in names]
    space: dict[str, Any] = {}
    exec("\n".join(["def copy(given, row):", *lines]), space)  # noqa: S102 - our own text: names of columns
    return inner(space["copy"])  # type: ignore[no-any-return]


def entry(signature: Any) -> Callable[[F], F]:
    """A kernel called from Python: compiled once for `signature` and cached on disk."""
    if INTERPRETED:
        return lambda function: function
    return lambda function: compile_cached(njit(pipeline_class=EntryCompiler, **_INNER)(function), signature)


def address_of(compiled: Any) -> int:
    """Where compiled code finds what `entry` made, as a C function."""
    result = next(iter(compiled.overloads.values()))
    return int(result.library.get_pointer_to_function(result.fndesc.llvm_cfunc_wrapper_name))


def _data(context: TargetContext, builder: IRBuilder, kind: Type, value: Value) -> Any:
    """The address of an array's first element, as a byte pointer."""
    from llvmlite import ir

    array = context.make_array(kind)(context, builder, value)
    return builder.bitcast(array.data, ir.IntType(8).as_pointer())


def _call(context: TargetContext, builder: IRBuilder, address: Value, result: Value, arguments: list[Any]) -> Any:
    from llvmlite import ir

    function_type = ir.FunctionType(result, [a.type for a in arguments])
    return builder.call(builder.inttoptr(address, function_type.as_pointer()), arguments)


def _offset(builder: IRBuilder, pointer: Value, count: Value, size: int) -> Any:
    from llvmlite import ir

    return builder.gep(pointer, [builder.mul(count, ir.Constant(ir.IntType(64), size))])


@intrinsic  # type: ignore[untyped-decorator]
def _call_keys(
    typing: TypingContext, address: Type, s: Type, jobs: Type, keys: Type, first: Type, count: Type, now: Type, params: Type, at: Type
) -> Any:
    """Fill keys[first:first+count] by the policy at `address` for jobs[first:first+count]; returns a status."""
    signature = types.int64(types.int64, s, jobs, keys, types.int64, types.int64, types.float64, params, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        address, s, jobs, keys, first, count, now, params, at = args
        arguments = [
            s,
            _offset(builder, _data(context, builder, sig.args[2], jobs), first, 4),
            _offset(builder, _data(context, builder, sig.args[3], keys), first, 8),
            count,
            now,
            _offset(builder, _data(context, builder, sig.args[7], params), at, 8),
        ]
        return _call(context, builder, address, ir.IntType(64), arguments)

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _call_scores(
    typing: TypingContext, address: Type, s: Type, picks: Type, scores: Type, count: Type, job: Type, params: Type, at: Type
) -> Any:
    """Fill scores[:count] by the placement at `address` for nodes picks[:count] and one job; returns a status."""
    signature = types.int64(types.int64, s, picks, scores, types.int64, types.int64, params, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        byte, (nodes, size) = ir.IntType(8).as_pointer(), words_of(builder, args[1], "nodes")
        picks, scores = (_data(context, builder, sig.args[k], args[k]) for k in (2, 3))
        params = _offset(builder, _data(context, builder, sig.args[6], args[6]), args[7], 8)
        given = [builder.inttoptr(nodes, byte), size, picks, scores, args[4], args[1], args[5], params]
        return _call(context, builder, args[0], ir.IntType(64), given)

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _call_switch(typing: TypingContext, address: Type, system: Type, now: Type, params: Type, at: Type) -> Any:
    """The choice of the switch rule at `address`."""
    signature = types.int64(types.int64, system, types.float64, params, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        address, system, now, params, at = args
        values = _offset(builder, _data(context, builder, sig.args[3], params), at, 8)
        arguments = [_data(context, builder, sig.args[1], system), now, values]
        return _call(context, builder, address, ir.IntType(64), arguments)

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _call_state(typing: TypingContext, address: Type, s: Type, a: Type, b: Type, network: Type) -> Any:
    """Call what sees the whole state, at `address`, with two numbers and a network; returns its answer."""
    signature = types.int64(types.int64, s, types.int64, types.int64, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        word = ir.IntType(64)
        return _call(context, builder, args[0], word, [builder.ptrtoint(args[1], word), *args[2:]])

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def call_engine(typing: TypingContext, address: Type, header: Type, order: Type, j: Type) -> Any:
    """Give an order to the engine at `address`, by the address of a state's header; returns its status. For compiled code only."""
    signature = types.int64(types.int64, types.int64, types.int64, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        return _call(context, builder, args[0], ir.IntType(64), list(args[1:]))

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _trailing_zeros(typing: TypingContext, word: Type) -> Any:
    signature = types.int64(types.uint64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        return builder.cttz(args[0], ir.Constant(ir.IntType(1), 1))

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _prefetch(typing: TypingContext, array: Type, at: Type) -> Any:
    """Ask for the item of an array at position `at` to be brought into the cache: it is going to be read and written."""
    signature = types.void(array, types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir
        from numba.core import cgutils

        size = context.get_abi_sizeof(context.get_data_type(sig.args[0].dtype))
        first = _offset(builder, _data(context, builder, sig.args[0], args[0]), args[1], size)
        number = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [first.type, number, number, number])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        for line in range(0, size, 64):
            place = builder.gep(first, [ir.Constant(ir.IntType(64), line)])
            builder.call(fetch, [place, *(ir.Constant(number, value) for value in (1, 3, 1))])  # to write, to keep, data
        return context.get_dummy_value()

    return signature, codegen


@intrinsic  # type: ignore[untyped-decorator]
def _float_bits(typing: TypingContext, value: Type) -> Any:
    """The bits of a float32 as an int32."""
    signature = types.int32(types.float32)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        from llvmlite import ir

        return builder.bitcast(args[0], ir.IntType(32))

    return signature, codegen


# ── the same calls for interpreted mode ──
_handles: list[Callable[..., Any]] = []


def python_handle(function: Callable[..., Any]) -> int:
    """A handle (from 1) for a Python function, used as its address in interpreted mode."""
    _handles.append(function)
    return len(_handles)


def _call_python(address: Int, *arguments: Any) -> int:
    return int(_handles[address - 1](*arguments))


def _python_keys(address: Int, s: State, jobs: Ints, keys: Reals, first: Int, count: Int, now: Real, params: Reals, at: Int) -> int:
    return _call_python(address, s, jobs[first : first + count], keys[first : first + count], now, params[at:])


def _python_scores(address: Int, s: State, picks: Ints, scores: Reals, count: Int, job: Int, params: Reals, at: Int) -> int:
    return _call_python(address, s, picks[:count], scores[:count], job, params[at:])


def _python_switch(address: Int, system: Vector[SystemRow], now: Real, params: Reals, at: Int) -> int:
    return _call_python(address, system, now, params[at:])


def _python_state(address: Int, s: State, a: Int, b: Int, network: Int) -> int:
    return _call_python(address, s, a, b, network)


def _python_trailing_zeros(word: Int) -> int:
    value = int(word)
    return (value & -value).bit_length() - 1


def _python_prefetch(array: Vector[JobRow], at: Int) -> None:
    """Do nothing: plain Python does not reach the cache."""


def _python_float_bits(value: Real) -> int:
    return int(np.float32(value).view(np.int32))


call_keys = _python_keys if INTERPRETED else _call_keys
call_scores = _python_scores if INTERPRETED else _call_scores
call_switch = _python_switch if INTERPRETED else _call_switch
call_state = _python_state if INTERPRETED else _call_state
trailing_zeros = _python_trailing_zeros if INTERPRETED else _trailing_zeros
prefetch = _python_prefetch if INTERPRETED else _prefetch
float_bits = _python_float_bits if INTERPRETED else _float_bits


@inner
def mix(word: Int) -> Any:
    """splitmix64's finaliser (Steele et al. 2014): uint64 → uint64."""
    x = np.uint64(word) + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return x ^ (x >> np.uint64(31))


@inner
def hash01(seed: Int, a: Int, b: Int, c: Int) -> Any:
    """A number in [0, 1) that depends on four integers and on nothing else."""
    h = mix(mix(mix(mix(np.uint64(seed)) ^ np.uint64(a)) ^ np.uint64(b)) ^ np.uint64(c))
    return np.float64(h >> np.uint64(11)) / 9007199254740992.0


# The four sets of parameters of a scheduler.
ORDERING, PLACEMENT, PREEMPTION, SWITCH = (np.int64(i) for i in range(4))  # typed: a literal would compile its users again


@inner
def params_at(scheduler: Int, which: Int) -> Any:
    """Where a policy's parameters begin in State.params."""
    return (scheduler * 4 + which) * PARAMS
