"""The state as one pointer, for compiled code.

Kernels write `s.rows[j].end`; passing the tuple of arrays itself to every kernel took 80 s to compile and some 250 machine
arguments a call. Here `s` is the address of a header (an address and a length for each array), and reading an attribute
builds the array from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from llvmlite import ir
from numba import types
from numba.core import cgutils
from numba.core.datamodel import models
from numba.core.extending import register_model
from numba.core.imputils import lower_getattr_generic
from numba.core.typing.templates import AttributeTemplate
from numba.extending import infer_getattr, intrinsic

from gpuyard.engine.memory import DTYPES
from gpuyard.engine.state import State

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.context import BaseContext as TypingContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

    from gpuyard.arrays import Int


class StatePointer(types.Type):  # type: ignore[misc]
    """Numba's type for the address of a header."""

    def __init__(self) -> None:
        super().__init__(name="gpuyard.StatePointer")


STATE_POINTER = StatePointer()
_ARRAYS = {name: types.Array(numba.from_dtype(np.dtype(DTYPES[name])), 1, "C") for name in State._fields}


@register_model(StatePointer)
class _StatePointerModel(models.PrimitiveModel):  # type: ignore[misc]
    def __init__(self, manager: Any, kind: Any) -> None:
        super().__init__(manager, kind, ir.IntType(64).as_pointer())


@infer_getattr
class _Attributes(AttributeTemplate):  # type: ignore[misc]
    key = StatePointer

    def generic_resolve(self, value: Any, attribute: str) -> Any:
        return _ARRAYS.get(attribute)


@lower_getattr_generic(StatePointer)  # type: ignore[untyped-decorator]
def _read(context: TargetContext, builder: IRBuilder, kind: Type, header: Value, attribute: str) -> Any:
    address, length = words_of(builder, header, attribute)
    return array_at(context, builder, _ARRAYS[attribute], address, length, np.dtype(DTYPES[attribute]).itemsize)


def words_of(builder: IRBuilder, header: Value, attribute: str) -> tuple[Any, Any]:
    """Read the address and the length of an array of the state."""
    at = 2 * State._fields.index(attribute)
    return _load(builder, header, at), _load(builder, header, at + 1)


def array_at(context: TargetContext, builder: IRBuilder, kind: Type, address: Value, length: Value, size: int) -> Any:
    """Make an array of `length` items of `size` bytes at an address; the memory is not kept alive."""
    from numba.np.arrayobj import populate_array  # only a compilation needs it, and it takes 0.1 s to load

    array = context.make_array(kind)(context, builder)
    itemsize = ir.Constant(ir.IntType(64), size)
    populate_array(
        array,
        data=builder.inttoptr(address, array.data.type),
        shape=cgutils.pack_array(builder, [length]),
        strides=cgutils.pack_array(builder, [itemsize]),
        itemsize=itemsize,
        meminfo=None,
    )
    return array._getvalue()


def _load(builder: Any, header: Int, at: int) -> Any:
    """Read a word of the header, which never changes while a kernel runs: the load may be moved out of loops."""
    value = builder.load(builder.gep(header, [ir.Constant(ir.IntType(64), at)]))
    value.set_metadata("invariant.load", builder.module.add_metadata([]))
    return value


@intrinsic  # type: ignore[untyped-decorator]
def state_at(typing: TypingContext, address: Type) -> Any:
    """The address of a header (int64) as a state."""
    signature = STATE_POINTER(types.int64)

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        return builder.inttoptr(args[0], ir.IntType(64).as_pointer())

    return signature, codegen
