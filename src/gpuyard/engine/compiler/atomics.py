"""Whole numbers that several threads read and write in compiled code, in one order that all of them see."""

from __future__ import annotations

import ctypes
from typing import TYPE_CHECKING, Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

_WORD = 8  # bytes


def _address(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
    return builder.gep(context.make_array(sig.args[0])(context, builder, args[0]).data, [args[1]])


@intrinsic  # type: ignore[untyped-decorator]
def read(typing: TypingContext, words: Type, at: Type) -> Any:
    """(words, at): words[at], of an int64 array."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return builder.load_atomic(_address(context, builder, sig, args), "seq_cst", _WORD)

    return types.int64(words, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def write(typing: TypingContext, words: Type, at: Type, value: Type) -> Any:
    """(words, at, value): words[at] = value; what was written before is seen by whoever sees this."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        builder.store_atomic(args[2], _address(context, builder, sig, args), "seq_cst", _WORD)
        return context.get_dummy_value()

    return types.void(words, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def add(typing: TypingContext, words: Type, at: Type, value: Type) -> Any:
    """(words, at, value): words[at] += value; returns what it was before."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return builder.atomic_rmw("add", _address(context, builder, sig, args), args[2], "seq_cst")

    return types.int64(words, types.int64, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def give_way(typing: TypingContext, address: Type) -> Any:
    """(address): let another thread have the processor, by the function at `way_address()`; 0: go on."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        with builder.if_then(builder.icmp_unsigned("!=", args[0], ir.Constant(ir.IntType(64), 0))):
            function = ir.FunctionType(ir.IntType(32), [])
            builder.call(builder.inttoptr(args[0], function.as_pointer()), [])
        return context.get_dummy_value()

    return types.void(types.int64), codegen


def way_address() -> int:
    """Where the system's function is that lets another thread have the processor; 0 where the system has none."""
    try:
        found = ctypes.CDLL(None).sched_yield
    except (AttributeError, OSError, TypeError):
        return 0
    return ctypes.cast(found, ctypes.c_void_p).value or 0
