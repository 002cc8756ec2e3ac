"""16 float32 numbers as one value, for compiled loops that must use the wide instructions of a processor.

A loop that numba hands to LLVM as scalar code is vectorised only if LLVM can show that no two arrays overlap, which it
cannot for arrays that come from addresses. `Vector` is one from the start. Every operation is one rounding of IEEE
float32 (a product and a sum are never fused), so results are the same bytes on every machine, and as plain numpy with
`NUMBA_DISABLE_JIT=1`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.datamodel import models
from numba.core.extending import register_model
from numba.extending import intrinsic

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import INTERPRETED, inner
from gpuyard.engine.compiler.pointer import array_at

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

    from gpuyard.arrays import Int, Real

LANES = 16  # a queue has a dozen jobs on average: with 32, a third of a choice went into layers, most of it for lanes without a job
_VECTOR = ir.VectorType(ir.FloatType(), LANES)
_WORDS = ir.VectorType(ir.IntType(32), LANES)
_INDEX = ir.IntType(32)


class VectorType(types.Type):  # type: ignore[misc]
    """Numba's type for 16 float32 numbers."""

    def __init__(self) -> None:
        super().__init__(name="gpuyard.Vector")


VECTOR_TYPE = VectorType()


@register_model(VectorType)
class _VectorModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, _VECTOR)


# ── arrays from addresses ──
def _arrays_of(number: Type) -> Any:
    """(address, length): an array of such numbers, not kept alive. For compiled code only."""
    kind = types.Array(number, 1, "C")

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return array_at(context, builder, kind, args[0], args[1], number.bitwidth // 8)

    return intrinsic(lambda typing, address, length: (kind(types.int64, types.int64), codegen))


_floats_at, _words_at = _arrays_of(types.float32), _arrays_of(types.int64)
ints_at, bytes_at, reals_at = _arrays_of(types.int32), _arrays_of(types.uint8), _arrays_of(types.float64)


# ── memory ──
def _element(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value], which: int) -> Any:
    """The address of element args[which + 1] of the array args[which]."""
    array = context.make_array(sig.args[which])(context, builder, args[which])
    return builder.gep(array.data, [args[which + 1]])


@intrinsic  # type: ignore[untyped-decorator]
def _load(typing: TypingContext, array: Type, at: Type) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return builder.load(builder.bitcast(_element(context, builder, sig, args, 0), _VECTOR.as_pointer()), align=4)

    return VECTOR_TYPE(array, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _store(typing: TypingContext, value: Type, array: Type, at: Type) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        builder.store(args[0], builder.bitcast(_element(context, builder, sig, args, 1), _VECTOR.as_pointer()), align=4)
        return context.get_dummy_value()

    return types.void(VECTOR_TYPE, array, types.int64), codegen


def _splatted(builder: IRBuilder, number: Value) -> Any:
    first = builder.insert_element(ir.Constant(_VECTOR, ir.Undefined), number, ir.Constant(_INDEX, 0))
    return builder.shuffle_vector(first, ir.Constant(_VECTOR, ir.Undefined), ir.Constant(_WORDS, [0] * LANES))


@intrinsic  # type: ignore[untyped-decorator]
def _spread(typing: TypingContext, array: Type, at: Type) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return _splatted(builder, builder.load(_element(context, builder, sig, args, 0)))

    return VECTOR_TYPE(array, types.int64), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _splat(typing: TypingContext, number: Type) -> Any:
    return VECTOR_TYPE(types.float32), lambda context, builder, sig, args: _splatted(builder, args[0])


# ── arithmetic ──
def _binary(name: str) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return getattr(builder, name)(args[0], args[1])

    return intrinsic(lambda typing, a, b: (VECTOR_TYPE(VECTOR_TYPE, VECTOR_TYPE), codegen))


def _chosen(comparison: str) -> Any:
    """Take the first of two numbers where it compares so, the second elsewhere."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return builder.select(builder.fcmp_ordered(comparison, args[0], args[1]), args[0], args[1])

    return intrinsic(lambda typing, a, b: (VECTOR_TYPE(VECTOR_TYPE, VECTOR_TYPE), codegen))


@intrinsic  # type: ignore[untyped-decorator]
def _first_of(typing: TypingContext, a: Type, count: Type, b: Type) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        numbers = ir.Constant(_WORDS, list(range(LANES)))
        wanted = builder.insert_element(ir.Constant(_WORDS, ir.Undefined), builder.trunc(args[1], ir.IntType(32)), ir.Constant(_INDEX, 0))
        spread = builder.shuffle_vector(wanted, ir.Constant(_WORDS, ir.Undefined), ir.Constant(_WORDS, [0] * LANES))
        return builder.select(builder.icmp_signed("<", numbers, spread), args[0], args[2])

    return VECTOR_TYPE(VECTOR_TYPE, types.int64, VECTOR_TYPE), codegen


@intrinsic  # type: ignore[untyped-decorator]
def _power_of_two(typing: TypingContext, shifted: Type) -> Any:
    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        bits = builder.shl(builder.bitcast(args[0], _WORDS), ir.Constant(_WORDS, [23] * LANES))
        return builder.bitcast(builder.add(bits, ir.Constant(_WORDS, [0x3F800000] * LANES)), _VECTOR)

    return VECTOR_TYPE(VECTOR_TYPE), codegen


def _folded(combine: Callable[[Any, Any, Any], Any]) -> Any:
    """All lanes into one number: the upper half with the lower half, until one is left."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        value, size = args[0], LANES
        while size > 1:
            size //= 2
            undefined = ir.Constant(value.type, ir.Undefined)
            kind = ir.VectorType(ir.IntType(32), size)
            low = builder.shuffle_vector(value, undefined, ir.Constant(kind, list(range(size))))
            high = builder.shuffle_vector(value, undefined, ir.Constant(kind, list(range(size, 2 * size))))
            value = combine(builder, low, high)
        return builder.extract_element(value, ir.Constant(_INDEX, 0))

    return intrinsic(lambda typing, a: (types.float32(VECTOR_TYPE), codegen))


_plus, _minus, _times, _over = (_binary(name) for name in ("fadd", "fsub", "fmul", "fdiv"))
_larger, _smaller = _chosen(">"), _chosen("<")
_total = _folded(lambda builder, a, b: builder.fadd(a, b))
_largest = _folded(lambda builder, a, b: builder.select(builder.fcmp_ordered(">", a, b), a, b))


# ── the same for interpreted mode ──
def _python_floats_at(address: Int, length: Int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_float * int(length)).from_address(int(address)))


def _python_words_at(address: Int, length: Int) -> Array:
    return np.ctypeslib.as_array((ctypes.c_int64 * int(length)).from_address(int(address)))


def _python_load(array: Array, at: Int) -> Array:
    return array[at : at + LANES].copy()


def _python_store(value: Array, array: Array, at: Int) -> None:
    array[at : at + LANES] = value


def _python_spread(array: Array, at: Int) -> Array:
    return np.full(LANES, array[at], np.float32)


def _python_splat(number: Real) -> Array:
    return np.full(LANES, number, np.float32)


def _python_larger(a: Array, b: Array) -> Array:
    return np.where(a > b, a, b)


def _python_smaller(a: Array, b: Array) -> Array:
    return np.where(a < b, a, b)


def _python_first_of(a: Array, count: Int, b: Array) -> Array:
    return np.where(np.arange(LANES) < count, a, b)


def _python_power_of_two(shifted: Array) -> Array:
    return ((shifted.view(np.uint32) << np.uint32(23)) + np.uint32(0x3F800000)).view(np.float32)


def _python_folded(combine: Callable[[Array, Array], Array]) -> Callable[[Array], Any]:
    def fold(a: Array) -> Any:
        while len(a) > 1:
            a = combine(a[: len(a) // 2], a[len(a) // 2 :])
        return a[0]

    return fold


floats_at = _python_floats_at if INTERPRETED else _floats_at  # (address, length): a float32 array, not kept alive
words_at = _python_words_at if INTERPRETED else _words_at  # (address, length): an int64 array, not kept alive
load = _python_load if INTERPRETED else _load  # (array, at): array[at : at + 16]
store = _python_store if INTERPRETED else _store  # (value, array, at)
spread = _python_spread if INTERPRETED else _spread  # (array, at): array[at] in all lanes
splat = _python_splat if INTERPRETED else _splat  # (number): in all lanes
plus = np.add if INTERPRETED else _plus
minus = np.subtract if INTERPRETED else _minus
times = np.multiply if INTERPRETED else _times
over = np.divide if INTERPRETED else _over
larger = _python_larger if INTERPRETED else _larger
smaller = _python_smaller if INTERPRETED else _smaller
first_of = _python_first_of if INTERPRETED else _first_of  # (a, count, b): a in the first `count` lanes, b in the others
power_of_two = _python_power_of_two if INTERPRETED else _power_of_two  # of a whole number n given as n + 1.5 · 2^23
total = _python_folded(np.add) if INTERPRETED else _total
largest = _python_folded(_python_larger) if INTERPRETED else _largest

_SHIFT = np.float32(12582912.0)  # 1.5 · 2^23: adding it rounds to a whole number
_LOG2_E = np.float32(1.44269504)
_LN2_HIGH, _LN2_LOW = np.float32(0.693359375), np.float32(-2.12194440e-4)  # the first has few bits: its product with n is exact
_LEAST_EXPONENT = np.float32(-60.0)  # 1e-26: nothing beside 1, and its products are still normal numbers, which are fast
_E7, _E6, _E5 = np.float32(1.9875691500e-4), np.float32(1.3981999507e-3), np.float32(8.3334519073e-3)
_E4, _E3, _E2 = np.float32(4.1665795894e-2), np.float32(1.6666665459e-1), np.float32(5.0000001201e-1)
_ONE = np.float32(1.0)


@inner
def exponential(x: Any) -> Any:
    """e^x for x ≤ 88, to 2e-7 of its value (the polynomial of Cephes' expf); below −60 as at −60."""
    x = larger(x, splat(_LEAST_EXPONENT))
    shifted = plus(times(x, splat(_LOG2_E)), splat(_SHIFT))
    n = minus(shifted, splat(_SHIFT))
    r = minus(minus(x, times(n, splat(_LN2_HIGH))), times(n, splat(_LN2_LOW)))
    p = plus(times(splat(_E7), r), splat(_E6))
    p = plus(times(p, r), splat(_E5))
    p = plus(times(p, r), splat(_E4))
    p = plus(times(p, r), splat(_E3))
    p = plus(times(p, r), splat(_E2))
    p = plus(plus(times(times(p, r), r), r), splat(_ONE))
    return times(p, power_of_two(shifted))


_TANH_END = np.float32(7.90531110763549805)
_T13, _T11, _T9 = np.float32(-2.76076847742355e-16), np.float32(2.00018790482477e-13), np.float32(-8.60467152213735e-11)
_T7, _T5 = np.float32(5.12229709037114e-08), np.float32(1.48572235717979e-05)
_T3, _T1 = np.float32(6.37261928875436e-04), np.float32(4.89352455891786e-03)
_Q6, _Q4 = np.float32(1.19825839466702e-06), np.float32(1.18534705686654e-04)
_Q2, _Q0 = np.float32(2.26843463243900e-03), np.float32(4.89352518554385e-03)


@inner
def hyperbolic_tangent(x: Any) -> Any:
    """tanh to 3e-7: the ratio of polynomials that Eigen and XLA use."""
    x = smaller(larger(x, splat(-_TANH_END)), splat(_TANH_END))
    s = times(x, x)
    p = plus(times(s, splat(_T13)), splat(_T11))
    p = plus(times(s, p), splat(_T9))
    p = plus(times(s, p), splat(_T7))
    p = plus(times(s, p), splat(_T5))
    p = plus(times(s, p), splat(_T3))
    p = plus(times(s, p), splat(_T1))
    q = plus(times(s, splat(_Q6)), splat(_Q4))
    q = plus(times(s, q), splat(_Q2))
    q = plus(times(s, q), splat(_Q0))
    return over(times(x, p), q)
