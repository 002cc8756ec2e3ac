"""Shows a user's policy columns that can be read by row and nothing else, compiled and interpreted alike.

An array would also let a policy write, take a view of the hidden fields beside a column, or reach other memory through a pointer.
These types have no such operations, so a policy that asks for one does not compile.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic, models, register_model

from gpuyard.engine.state import NODE_ROW, SYSTEM_ROW, VISIBLE_ROW
from gpuyard.errors import PolicyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

    from gpuyard.arrays import Array, Int


# ── compiled ──


class ShownType(types.Type):  # type: ignore[misc]
    """Rows of records at an address: `jobs`, `nodes` or `system`."""

    def __init__(self, what: str, row: np.dtype[Any]) -> None:
        self.what = what
        self.record = from_dtype(row)
        super().__init__(name=f"gpuyard.{type(self).__name__}({what})")

    def has(self, field: str) -> bool:
        return field in self.record.fields


class ShownTableType(ShownType):
    """A table whose columns are its attributes."""


class ShownRowType(ShownType):
    """One row, whose fields are its attributes."""


class ShownColumnType(types.Type):  # type: ignore[misc]
    """One column of a table: a row's value is read with `column[row]`."""

    def __init__(self, table: ShownTableType, field: str) -> None:
        self.table, self.field = table, field
        super().__init__(name=f"gpuyard.ShownColumnType({table.what}.{field})")


JOBS, NODES = ShownTableType("jobs", VISIBLE_ROW), ShownTableType("nodes", NODE_ROW)
SYSTEM = ShownRowType("system", SYSTEM_ROW)


@register_model(ShownTableType)
@register_model(ShownRowType)
@register_model(ShownColumnType)
class _ShownModel(models.StructModel):  # type: ignore[misc]
    def __init__(self, manager: object, kind: Type) -> None:
        super().__init__(manager, kind, [("data", types.voidptr), ("size", types.intp)])


def _shown_at(kind: ShownType) -> Any:
    """(address, rows): what is there, as a policy is shown it."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        made = cgutils.create_struct_proxy(kind)(context, builder)
        made.data, made.size = builder.bitcast(args[0], cgutils.voidptr_t), args[1]
        return made._getvalue()

    return intrinsic(lambda typing, address, rows: (kind(address, types.int64), codegen))


show_jobs, show_nodes, show_system = (_shown_at(kind) for kind in (JOBS, NODES, SYSTEM))


@infer_getattr
class _TableAttributes(AttributeTemplate):  # type: ignore[misc]
    key = ShownTableType

    def generic_resolve(self, table: ShownTableType, field: str) -> Type | None:
        return ShownColumnType(table, field) if table.has(field) else None


@infer_getattr
class _RowAttributes(AttributeTemplate):  # type: ignore[misc]
    key = ShownRowType

    def generic_resolve(self, row: ShownRowType, field: str) -> Type | None:
        return row.record.typeof(field) if row.has(field) else None


@infer_global(operator.getitem)
class _ColumnItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Sequence[Type], keywords: object) -> Signature | None:
        column, row = args
        if not (isinstance(column, ShownColumnType) and isinstance(row, types.Integer)):
            return None
        return signature(column.table.record.typeof(column.field), column, types.intp)


@infer_global(len)
class _ColumnLength(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Sequence[Type], keywords: object) -> Signature | None:
        return signature(types.intp, args[0]) if isinstance(args[0], ShownColumnType | ShownTableType) else None


def _field(context: TargetContext, builder: IRBuilder, record: types.Record, field: str, data: Value, row: Value | None) -> Any:
    """Load a field of the given row, or of the first."""
    kind = record.typeof(field)
    at: Any = ir.Constant(ir.IntType(64), record.offset(field))
    if row is not None:
        at = builder.add(at, builder.mul(row, ir.Constant(ir.IntType(64), record.size)))
    address = builder.bitcast(builder.gep(data, [at]), context.get_data_type(kind).as_pointer())
    return context.unpack_value(builder, kind, address, None if record.aligned else 1)


@lower_getattr_generic(ShownTableType)  # type: ignore[untyped-decorator]
def _column_of(context: TargetContext, builder: IRBuilder, kind: ShownTableType, value: Value, field: str) -> Any:
    return value  # the same address and length; the type names the field


@lower_getattr_generic(ShownRowType)  # type: ignore[untyped-decorator]
def _value_of(context: TargetContext, builder: IRBuilder, kind: ShownRowType, value: Value, field: str) -> Any:
    return _field(context, builder, kind.record, field, builder.extract_value(value, 0), None)


@lower_builtin(operator.getitem, ShownColumnType, types.intp)  # type: ignore[untyped-decorator]
def _item_of(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
    (value, row), column = args, sig.args[0]
    outside = builder.icmp_unsigned(">=", row, builder.extract_value(value, 1))  # as an unsigned number a negative row is a large one
    with builder.if_then(outside, likely=False):
        context.call_conv.return_user_exc(builder, IndexError, (f"{column.table.what}.{column.field}: no such row",))
    return _field(context, builder, column.table.record, column.field, builder.extract_value(value, 0), row)


@lower_builtin(len, ShownTableType)  # type: ignore[untyped-decorator]
@lower_builtin(len, ShownColumnType)  # type: ignore[untyped-decorator]
def _length_of(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
    return builder.extract_value(args[0], 1)


# ── interpreted ──


def _refuse(what: str) -> NoReturn:
    raise PolicyError(f"{what} is read-only: a policy may not change what it is shown")


class _ReadOnly:
    """Rows for a policy that runs as plain Python; nothing can be set."""

    __slots__ = ("_name", "_rows")
    _name: str
    _rows: Array

    def __init__(self, rows: Array, name: str) -> None:
        object.__setattr__(self, "_rows", rows)
        object.__setattr__(self, "_name", name)

    def __len__(self) -> int:
        return len(self._rows)

    def __setattr__(self, name: str, value: object) -> None:
        _refuse(self._name)


class ShownColumn(_ReadOnly):
    """One column of a table."""

    __slots__ = ()

    def __getitem__(self, row: Int) -> Any:
        k = operator.index(row)
        if not 0 <= k < len(self._rows):
            raise IndexError(f"{self._name}[{k}]: there are {len(self._rows)} rows")
        return self._rows[k]

    def __setitem__(self, row: Int, value: object) -> None:
        _refuse(self._name)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)  # Python and numpy ask for what an object can do
        raise PolicyError(f"{self._name}.{name} is not for policies", hint=f"read one row at a time: {self._name}[j]")


class Shown(_ReadOnly):
    """A table, or one row, of records: its columns or fields as attributes."""

    __slots__ = ("_kind",)
    _kind: ShownType

    def __init__(self, kind: ShownType, rows: Array) -> None:
        super().__init__(rows, kind.what)
        object.__setattr__(self, "_kind", kind)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._kind.has(name):
            raise PolicyError(no_such_column(name))
        column = self._rows[name]
        return column[0] if isinstance(self._kind, ShownRowType) else ShownColumn(column, f"{self._name}.{name}")


def no_such_column(name: str) -> str:
    """Say that a policy asked for a column that it is not shown."""
    return f"there is no column {name!r} that a policy can see"
