"""Shows a user's policy columns that can be read by row and nothing else, compiled and interpreted alike.

An array would also let a policy write, take a view of the hidden fields beside a column, or reach other memory through a pointer.
These types have no such operations, so a policy that asks for one does not compile. A job's columns lie in three arrays of the state;
which one a column is read from is settled when the policy is compiled.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
from llvmlite import ir
from numba import from_dtype, types
from numba.core import cgutils
from numba.core.typing.templates import AbstractTemplate, AttributeTemplate, infer_getattr, infer_global, signature
from numba.extending import intrinsic, lower_builtin, lower_getattr_generic, models, register_model

from gpuyard.engine.compiler.pointer import words_of
from gpuyard.engine.state import FACTOR_ROW, JOB_ROW, NODE_ROW, SYSTEM_ROW, VISIBLE_NAMES, State
from gpuyard.errors import PolicyError
from gpuyard.model.jobs import JOB

if TYPE_CHECKING:
    from collections.abc import Sequence

    from llvmlite.ir import IRBuilder, Value
    from numba.core.base import BaseContext as TargetContext
    from numba.core.typing.templates import Signature
    from numba.types import Type

    from gpuyard.arrays import Array, Int


# ── compiled ──


class ShownType(types.Type):  # type: ignore[misc]
    """Rows of records at one or more addresses: `jobs`, `nodes` or `system`. A column is in the first of them that has it."""

    def __init__(self, what: str, rows: Sequence[np.dtype[Any]], names: Sequence[str] | None, *, checked: bool = True) -> None:
        self.what, self.checked = what, checked  # checked: a row that is not there is an error, not other memory
        self.records = tuple(from_dtype(row) for row in rows)
        every = dict.fromkeys(name for row in rows for name in row.names or () if names is None or name in names)
        self.place = {name: next(k for k, row in enumerate(rows) if name in (row.names or ())) for name in every}
        super().__init__(name=f"gpuyard.{type(self).__name__}({what}{'' if checked else ', trusted'})")

    def has(self, field: str) -> bool:
        return field in self.place

    def kind(self, field: str) -> Type:
        """Return the type of a field's values."""
        return self.records[self.place[field]].typeof(field)


class ShownTableType(ShownType):
    """A table whose columns are its attributes."""


class ShownRowType(ShownType):
    """One row, whose fields are its attributes."""


class ShownColumnType(types.Type):  # type: ignore[misc]
    """One column of a table: a row's value is read with `column[row]`."""

    def __init__(self, table: ShownTableType, field: str) -> None:
        self.table, self.field, self.records = table, field, table.records
        super().__init__(name=f"gpuyard.ShownColumnType({table.what}.{field}{'' if table.checked else ', trusted'})")


JOB_ARRAYS = ("rows", "table", "factors")  # the arrays of a state that a job's columns are in
JOB_PARTS = (JOB_ROW, JOB, FACTOR_ROW)
JOBS = ShownTableType("jobs", JOB_PARTS, VISIBLE_NAMES)
TRUSTED_JOBS = ShownTableType("jobs", JOB_PARTS, VISIBLE_NAMES, checked=False)  # for policies of this package
NODES = ShownTableType("nodes", (NODE_ROW,), None)
SYSTEM = ShownRowType("system", (SYSTEM_ROW,), None)


@register_model(ShownTableType)
@register_model(ShownRowType)
@register_model(ShownColumnType)
class _ShownModel(models.StructModel):  # type: ignore[misc]
    """An address and a length for each array."""

    def __init__(self, manager: object, kind: Any) -> None:
        members = [(f"{name}{k}", of) for k in range(len(kind.records)) for name, of in (("data", types.voidptr), ("size", types.intp))]
        super().__init__(manager, kind, members)


def _shown(kind: ShownType) -> Any:
    """Make the code that puts addresses and lengths together to what a policy is shown."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        made = cgutils.create_struct_proxy(kind)(context, builder)
        for k in range(len(kind.records)):
            setattr(made, f"data{k}", builder.bitcast(args[2 * k], cgutils.voidptr_t))
            setattr(made, f"size{k}", args[2 * k + 1])
        return made._getvalue()

    return codegen


def _shown_at(kind: ShownType) -> Any:
    """(address, rows): what is there, as a policy is shown it."""
    return intrinsic(lambda typing, address, rows: (kind(address, types.int64), _shown(kind)))


def _jobs_at(kind: ShownType) -> Any:
    """(header): the jobs of a state, as a policy is shown them."""

    def codegen(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
        header = builder.bitcast(args[0], ir.IntType(64).as_pointer())
        words = [word for name in JOB_ARRAYS for word in words_of(builder, header, name)]
        given = [builder.inttoptr(word, cgutils.voidptr_t) if k % 2 == 0 else word for k, word in enumerate(words)]
        return _shown(kind)(context, builder, sig, given)

    return intrinsic(lambda typing, header: (kind(header), codegen))


show_nodes, show_system = (_shown_at(kind) for kind in (NODES, SYSTEM))
show_jobs, show_trusted_jobs = (_jobs_at(kind) for kind in (JOBS, TRUSTED_JOBS))


@infer_getattr
class _TableAttributes(AttributeTemplate):  # type: ignore[misc]
    key = ShownTableType

    def generic_resolve(self, table: ShownTableType, field: str) -> Type | None:
        return ShownColumnType(table, field) if table.has(field) else None


@infer_getattr
class _RowAttributes(AttributeTemplate):  # type: ignore[misc]
    key = ShownRowType

    def generic_resolve(self, row: ShownRowType, field: str) -> Type | None:
        return row.kind(field) if row.has(field) else None


@infer_global(operator.getitem)
class _ColumnItem(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Sequence[Type], keywords: object) -> Signature | None:
        column, row = args
        if not (isinstance(column, ShownColumnType) and isinstance(row, types.Integer)):
            return None
        return signature(column.table.kind(column.field), column, types.intp)


@infer_global(len)
class _ColumnLength(AbstractTemplate):  # type: ignore[misc]
    def generic(self, args: Sequence[Type], keywords: object) -> Signature | None:
        return signature(types.intp, args[0]) if isinstance(args[0], ShownColumnType | ShownTableType) else None


def _field(context: TargetContext, builder: IRBuilder, kind: ShownType, field: str, value: Value, row: Value | None) -> Any:
    """Load a field of the given row, or of the first."""
    place = kind.place[field]
    record = kind.records[place]
    at: Any = ir.Constant(ir.IntType(64), record.offset(field))
    if row is not None:
        at = builder.add(at, builder.mul(row, ir.Constant(ir.IntType(64), record.size)))
    data = builder.gep(builder.extract_value(value, 2 * place), [at])
    address = builder.bitcast(data, context.get_data_type(kind.kind(field)).as_pointer())
    return context.unpack_value(builder, kind.kind(field), address, None if record.aligned else 1)


@lower_getattr_generic(ShownTableType)  # type: ignore[untyped-decorator]
def _column_of(context: TargetContext, builder: IRBuilder, kind: ShownTableType, value: Value, field: str) -> Any:
    return value  # the same addresses and lengths; the type names the field


@lower_getattr_generic(ShownRowType)  # type: ignore[untyped-decorator]
def _value_of(context: TargetContext, builder: IRBuilder, kind: ShownRowType, value: Value, field: str) -> Any:
    return _field(context, builder, kind, field, value, None)


@lower_builtin(operator.getitem, ShownColumnType, types.intp)  # type: ignore[untyped-decorator]
def _item_of(context: TargetContext, builder: IRBuilder, sig: Signature, args: Sequence[Value]) -> Any:
    (value, row), column = args, sig.args[0]
    if column.table.checked:
        sizes = [builder.extract_value(value, 2 * place + 1) for place in (0, column.table.place[column.field])]
        outside = [builder.icmp_unsigned(">=", row, size) for size in sizes]  # as an unsigned number a negative row is a large one
        with builder.if_then(builder.or_(*outside), likely=False):
            context.call_conv.return_user_exc(builder, IndexError, (f"{column.table.what}.{column.field}: no such row",))
    return _field(context, builder, column.table, column.field, value, row)


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
    """A table, or one row, of records: its columns or fields as attributes. They may lie in several arrays, as long as each other."""

    __slots__ = ("_kind", "_rest")
    _kind: ShownType
    _rest: tuple[Array, ...]

    def __init__(self, kind: ShownType, rows: Array, *rest: Array) -> None:
        super().__init__(rows, kind.what)
        object.__setattr__(self, "_kind", kind)
        object.__setattr__(self, "_rest", rest)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if not self._kind.has(name):
            raise PolicyError(no_such_column(name))
        column = (self._rows, *self._rest)[self._kind.place[name]][name]
        return column[0] if isinstance(self._kind, ShownRowType) else ShownColumn(column, f"{self._name}.{name}")


def job_parts(jobs: Array) -> tuple[Array, ...]:
    """Return made-up jobs, (jobs,) of VISIBLE_ROW, as the arrays of a state that hold them."""
    made = tuple(np.zeros(len(jobs), kind) for kind in JOB_PARTS)
    for part in made:
        for name in set(part.dtype.names or ()) & set(VISIBLE_NAMES):
            part[name] = jobs[name]
    return made


def header_for(parts: Sequence[Array]) -> Array:
    """Return the header of a state that has these arrays of jobs and nothing else; they must outlive it."""
    header = np.zeros(2 * len(State._fields), np.int64)
    for name, part in zip(JOB_ARRAYS, parts, strict=True):
        at = 2 * State._fields.index(name)
        header[at : at + 2] = part.ctypes.data, len(part)
    return header


def no_such_column(name: str) -> str:
    """Say that a policy asked for a column that it is not shown."""
    return f"there is no column {name!r} that a policy can see"
