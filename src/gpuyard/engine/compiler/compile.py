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
from numba import carray, njit, types
from numba.core.ccallback import CFunc
from numba.core.sigutils import normalize_signature

from gpuyard.engine.compiler.diskcache import use_disk
from gpuyard.engine.compiler.jit import INTERPRETED, python_handle
from gpuyard.engine.compiler.linking import prepare_numba
from gpuyard.engine.compiler.shown import (
    JOB_ARRAYS,
    JOB_PARTS,
    JOBS,
    NODES,
    SYSTEM,
    Shown,
    no_such_column,
    show_jobs,
    show_nodes,
    show_system,
    show_trusted_jobs,
)
from gpuyard.engine.compiler.vetting import is_helper, plain, vet
from gpuyard.engine.state import NODE_ROW, OWN_PARAMS, PARAMS, SYSTEM_ROW, State
from gpuyard.errors import PolicyError

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Ints, Reals, Vector
    from gpuyard.engine.state import SystemRow

Function = Callable[..., Any]

_GENERATED = 100_000  # the first line of a loop around a user's function, so that no line of it is taken for one of the user's file
# A state's header. The type says where in it the arrays of jobs are and what their rows are like: so it is in the key of the disk cache.
_LAYOUT = [(f"{name}{State._fields.index(name)}", row) for name, row in zip(JOB_ARRAYS, JOB_PARTS, strict=True)]
_JOBS = types.CPointer(numba.from_dtype(np.dtype(_LAYOUT)))
_NODES = types.CPointer(numba.from_dtype(NODE_ROW))
_SYSTEM = types.CPointer(numba.from_dtype(SYSTEM_ROW))
_INTS = types.CPointer(types.int32)
_FLOATS = types.CPointer(types.float64)


@dataclass(frozen=True)
class _Kind:
    """How one kind of policy is wrapped: `views` make what it is shown, and `call` asks it once."""

    what: str
    signature: Any
    arguments: str
    views: tuple[str, ...]
    call: str
    given: int  # positional arguments that the engine passes
    example: str


_KEYS = _Kind(
    "rule",
    types.int64(_JOBS, _INTS, _FLOATS, types.int64, types.float64, _FLOATS),
    "jobs_at, ids_at, out_at, count, now, params_at",
    ("jobs = show_jobs(jobs_at)", "ids = carray(ids_at, count)"),
    "rule(jobs, ids[i], now{params})",
    3,
    "def rule(jobs, j, now): return jobs.estimate[j]",
)
_SCORES = _Kind(
    "placement",
    types.int64(_NODES, types.int64, _INTS, _FLOATS, types.int64, _JOBS, types.int64, _FLOATS),
    "nodes_at, size, ids_at, out_at, count, jobs_at, job, params_at",
    ("nodes = show_nodes(nodes_at, size)", "jobs = show_jobs(jobs_at)", "ids = carray(ids_at, count)"),
    "rule(nodes, ids[i], jobs, job{params})",
    4,
    "def rule(nodes, n, jobs, j): return nodes.free[n]",
)
_SWITCH = _Kind(
    "switch rule",
    types.int64(_SYSTEM, types.float64, _FLOATS),
    "system_at, now, params_at",
    ("system = show_system(system_at, 1)",),
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
    if len(extra) > OWN_PARAMS:
        raise PolicyError(f"{where}: {len(extra)} parameters; at most {OWN_PARAMS}")
    return tuple(extra.items())


def place_of(function: Function, line: int = 0) -> str:
    """file:line name, for messages; the line is the function's first unless given."""
    code = getattr(function, "__code__", None)
    name = getattr(function, "__name__", repr(function))
    return f"{code.co_filename}:{line or code.co_firstlineno} {name}" if code else name


def _place_of_error(error: Exception, function: Function) -> str:
    """The line of the user's file that numba complains about, if it names one; of several, the innermost comes first."""
    found = re.search(r"\bline (\d+):", str(error))
    return place_of(function, int(found[1]) if found and int(found[1]) < _GENERATED else 0)


_keep: list[Any] = []  # compiled functions whose addresses are in use must not be freed


@cache
def _address(kind: _Kind, function: Function, params: int, cached: bool) -> int:
    if not cached:
        vet(function)
    if INTERPRETED:
        return python_handle(_interpreted(kind, function, params))
    rule = _rule(function, checked=False) if cached else _with_helpers(function, {})
    wrapper = _wrapper(kind, function, params, rule, guarded=not cached)
    try:
        compiled = CFunc(wrapper, normalize_signature(kind.signature), locals={}, options={"error_model": "numpy"})
        if cached:
            use_disk(compiled, wrapper)
        else:
            prepare_numba()
        compiled.compile()
    except Exception as error:  # numba's own errors, and others that its front end lets through for code that it cannot read
        where, why = _place_of_error(error, function), _first_line(error)
        raise PolicyError(f"{where}: does not compile: {why}", hint=f"e.g. {kind.example}") from None
    _keep.append(compiled)
    return int(compiled.address or 0)


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
            if is_helper(helper, function):
                space[name] = _with_helpers(plain(helper), made)
    return made[function]


def _first_line(error: BaseException) -> str:
    """Say in one line what a compilation failed on; numba's own messages run to pages."""
    column = re.search(r"Unknown attribute '(\w+)' of type gpuyard\.Shown(?:Table|Row)", str(error))
    if column:
        return no_such_column(column[1])
    shown = re.search(r"gpuyard\.Shown\w+\((\S+?)\)", str(error))
    if shown:
        return f"{shown[1]} can be read one row at a time and in no other way; it cannot be changed"
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
    source = "\n" * (_GENERATED if guarded else 0) + f"def {name}({kind.arguments}):\n" + "\n".join("    " + line for line in body) + "\n"
    shown = {"show_jobs": show_jobs if guarded else show_trusted_jobs, "show_nodes": show_nodes, "show_system": show_system}
    namespace: dict[str, Any] = {"rule": rule, "carray": carray, **shown, "__name__": function.__module__}
    exec(compile(source, function.__code__.co_filename, "exec"), namespace)  # noqa: S102 - our own text; the rule is called, not pasted
    made: Function = namespace[name]
    return made


def _guard(lines: list[str], otherwise: str, guarded: bool) -> list[str]:
    return ["try:", *(f"    {line}" for line in lines), "except Exception:", f"    {otherwise}"] if guarded else lines


def _interpreted(kind: _Kind, function: Function, params: int) -> Function:
    def keys(s: State, ids: Ints, out: Reals, now: float, values: Array) -> int:
        jobs = _jobs_of(s)
        for i in range(len(ids)):
            out[i] = function(jobs, ids[i], now, *values[:params])
        return 0

    def scores(s: State, ids: Ints, out: Reals, job: int, values: Array) -> int:
        hosts, jobs = Shown(NODES, s.nodes), _jobs_of(s)
        for i in range(len(ids)):
            out[i] = function(hosts, ids[i], jobs, job, *values[:params])
        return 0

    def switch(system: Vector[SystemRow], now: float, values: Array) -> int:
        return int(function(Shown(SYSTEM, system), now, *values[:params]))

    loops: dict[str, Function] = {_KEYS.what: keys, _SCORES.what: scores, _SWITCH.what: switch}
    return loops[kind.what]


def _jobs_of(s: State) -> Shown:
    return Shown(JOBS, s.rows, s.table[: len(s.rows)], s.factors[: len(s.rows)])
