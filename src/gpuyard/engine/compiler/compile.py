"""Plain Python policy functions → C functions that the compiled engine calls by address.

The function is wrapped into a generated loop over the whole queue (or over all candidate nodes), so that a pass costs
one indirect call: 179 k jobs/s where a call per job gave 108 k (decision record 0001).
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from types import FunctionType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba import carray, cfunc, njit, types

from gpuyard.engine.compiler.jit import INTERPRETED, cached_if_possible, python_handle
from gpuyard.engine.state import NODE_ROW, PARAMS, SYSTEM_ROW, VISIBLE_NAMES, VISIBLE_ROW
from gpuyard.errors import PolicyError

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Ints, Reals, Vector
    from gpuyard.engine.state import SystemRow

Function = Callable[..., Any]

_JOBS = types.CPointer(numba.from_dtype(VISIBLE_ROW))
_NODES = types.CPointer(numba.from_dtype(NODE_ROW))
_SYSTEM = types.CPointer(numba.from_dtype(SYSTEM_ROW))
_INTS = types.CPointer(types.int32)
_FLOATS = types.CPointer(types.float64)


@dataclass(frozen=True)
class _Kind:
    """How one kind of policy is wrapped. {call} stands for the guarded call of the user's function."""

    what: str
    signature: Any
    arguments: str
    views: tuple[str, ...]
    call: str
    given: int  # positional arguments that the engine passes
    example: str


_KEYS = _Kind(
    "rule",
    types.int64(_JOBS, types.int64, _INTS, _FLOATS, types.int64, types.float64, _FLOATS),
    "jobs_at, total, ids_at, out_at, count, now, params_at",
    ("jobs = carray(jobs_at, total)", "ids = carray(ids_at, count)"),
    "rule(jobs, ids[i], now{params})",
    3,
    "def rule(jobs, j, now): return jobs.estimate[j]",
)
_SCORES = _Kind(
    "placement",
    types.int64(_NODES, types.int64, _INTS, _FLOATS, types.int64, _JOBS, types.int64, types.int64, _FLOATS),
    "nodes_at, size, ids_at, out_at, count, jobs_at, total, job, params_at",
    ("nodes = carray(nodes_at, size)", "jobs = carray(jobs_at, total)", "ids = carray(ids_at, count)"),
    "rule(nodes, ids[i], jobs, job{params})",
    4,
    "def rule(nodes, n, jobs, j): return nodes.free[n]",
)
_SWITCH = _Kind(
    "switch rule",
    types.int64(_SYSTEM, types.float64, _FLOATS),
    "system_at, now, params_at",
    ("system = carray(system_at, 1)[0]",),
    "rule(system, now{params})",
    2,
    "def rule(system, now): return 1 if system.waiting > 10 else 0",
)


def compile_keys(function: Function, params: int, *, cached: bool = False) -> int:
    """Address of the loop around an ordering or preemption rule `(jobs, j, now, *params)`."""
    return _address(_KEYS, function, params, cached)


def compile_scores(function: Function, params: int, *, cached: bool = False) -> int:
    """Address of the loop around a placement `(nodes, n, jobs, j, *params)`."""
    return _address(_SCORES, function, params, cached)


def compile_switch(function: Function, params: int, *, cached: bool = False) -> int:
    """Address of a switch rule `(system, now, *params)`."""
    return _address(_SWITCH, function, params, cached)


def parameters_of(function: Function, given: int) -> dict[str, float]:
    """The parameters behind the first `given` ones, with their defaults."""
    return dict(_parameters(function, given))


@lru_cache(maxsize=4096)  # asked for in every simulation, and 40 µs to find out
def _parameters(function: Function, given: int) -> tuple[tuple[str, float], ...]:
    where = place_of(function)
    if not inspect.isfunction(function) or inspect.iscoroutinefunction(function):
        raise PolicyError(f"{where}: is not a plain function", hint="write it with def")
    listed = list(inspect.signature(function).parameters.values())
    if len(listed) < given or any(p.default is not p.empty for p in listed[:given]):
        raise PolicyError(
            f"{where}: takes {len(listed)} arguments, {given} are given", hint="see the glossary for the arguments of each slot"
        )
    extra: dict[str, float] = {}
    for parameter in listed[given:]:
        if not isinstance(parameter.default, (int, float)):
            raise PolicyError(f"{where}: parameter {parameter.name!r} needs a number as its default")
        extra[parameter.name] = float(parameter.default)
    if len(extra) > PARAMS:
        raise PolicyError(f"{where}: {len(extra)} parameters; at most {PARAMS}")
    return tuple(extra.items())


def place_of(function: Function) -> str:
    """file:line name, for messages."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return f"{code.co_filename}:{code.co_firstlineno} {name}" if code else name


_keep: list[Any] = []  # compiled functions whose addresses are in use must not be freed


@cache
def _address(kind: _Kind, function: Function, params: int, cached: bool) -> int:
    if INTERPRETED:
        return python_handle(_interpreted(kind, function, params))
    rule = _rule(function, checked=False) if cached else _with_helpers(function, {})
    wrapper = _wrapper(kind, function, params, rule, guarded=not cached)
    try:
        compiled = cached_if_possible(lambda cache: cfunc(kind.signature, cache=cache, error_model="numpy")(wrapper), wanted=cached)
    except Exception as error:  # numba's own errors, and others that its front end lets through for code that it cannot read
        raise PolicyError(f"{place_of(function)}: does not compile: {_first_line(error)}", hint=f"e.g. {kind.example}") from None
    _keep.append(compiled)
    return int(compiled.address)


def _rule(function: Function, *, checked: bool) -> Any:
    """Compiled when called. `checked`: an index that is out of range raises, as in Python, instead of reading other memory."""
    return njit(error_model="numpy", nogil=True, boundscheck=checked)(function)


def _with_helpers(function: Any, made: dict[Any, Any]) -> Any:
    """The function, and those of its own module that it calls by name, ready to be compiled; numba takes no plain functions."""
    if function not in made:
        space = dict(function.__globals__)
        copy = FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)
        copy.__module__ = function.__module__
        made[function] = _rule(copy, checked=True)
        for name in function.__code__.co_names:
            helper = space.get(name)
            if inspect.isfunction(helper) and helper.__module__ == function.__module__:
                space[name] = _with_helpers(helper, made)
    return made[function]


def _first_line(error: BaseException) -> str:
    """Say in one line what a compilation failed on; numba's own messages run to pages."""
    column = re.search(r"Unknown attribute '(\w+)' of type (?:unaligned )?(?:array\()?Record", str(error))
    if column:
        return f"there is no column {column[1]!r} that a policy can see"
    if "<built-in function setitem>" in str(error):  # the generated loop cannot store what it returns
        return "it does not return a number"
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    telling = [x for x in lines if not x.startswith(("Failed in", "During", "File", "-", ">>>", "There are"))]
    first = (telling or lines or [type(error).__name__])[0]
    return first if len(first) <= 300 else first[:300] + " …"  # numba writes whole record types out


def _wrapper(kind: _Kind, function: Function, params: int, rule: Function, *, guarded: bool) -> Function:
    """The generated loop. Its file is the policy's own file, so that numba's disk cache follows that file."""
    call = kind.call.replace("{params}", "".join(f", params[{i}]" for i in range(params)))
    body = [f"{view}" for view in kind.views] + [f"params = carray(params_at, {PARAMS})"]
    if kind is _SWITCH:
        body += _guard([f"return int({call})"], "return -1", guarded)
    else:
        body += ["out = carray(out_at, count)", "i = 0"]
        body += _guard(["for i in range(count):", f"    out[i] = {call}"], "return i + 1", guarded)
        body += ["return 0"]
    name = re.sub(r"\W", "_", f"_{kind.what}_{function.__name__}")  # a lambda has no valid name
    source = f"def {name}({kind.arguments}):\n" + "\n".join("    " + line for line in body) + "\n"
    namespace: dict[str, Any] = {"rule": rule, "carray": carray, "__name__": function.__module__}
    exec(compile(source, function.__code__.co_filename, "exec"), namespace)  # noqa: S102 - our own text; the rule is called, not pasted
    made: Function = namespace[name]
    return made


def _guard(lines: list[str], otherwise: str, guarded: bool) -> list[str]:
    return ["try:", *(f"    {line}" for line in lines), "except Exception:", f"    {otherwise}"] if guarded else lines


class Columns:
    """Columns as attributes, for policies that run as plain Python (a recarray would hide `partition` behind a method)."""

    def __init__(self, table: Array, names: tuple[str, ...]) -> None:
        for name in names:
            setattr(self, name, table[name])


def visible(rows: Array) -> Columns:
    """The rows without what is hidden: what a policy sees when interpreted."""
    return Columns(np.asarray(rows), VISIBLE_NAMES)


def _interpreted(kind: _Kind, function: Function, params: int) -> Function:
    def keys(rows: Array, ids: Ints, out: Reals, now: float, values: Array) -> int:
        jobs = visible(rows)
        for i in range(len(ids)):
            out[i] = function(jobs, ids[i], now, *values[:params])
        return 0

    def scores(nodes: Array, ids: Ints, out: Reals, rows: Array, job: int, values: Array) -> int:
        jobs, columns = visible(rows), Columns(np.asarray(nodes), NODE_ROW.names or ())
        for i in range(len(ids)):
            out[i] = function(columns, ids[i], jobs, job, *values[:params])
        return 0

    def switch(system: Vector[SystemRow], now: float, values: Array) -> int:
        return int(function(system[0], now, *values[:params]))

    loops: dict[str, Function] = {_KEYS.what: keys, _SCORES.what: scores, _SWITCH.what: switch}
    return loops[kind.what]
