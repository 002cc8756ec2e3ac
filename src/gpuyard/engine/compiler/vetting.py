"""Looks through a user's policy before it is compiled, and tries it out before it is used.

The compiler would accept code that reaches beyond what a policy is shown: pointers, views, Python inside compiled code, recursion
without end. Such code is refused with its file and line. This keeps mistakes from giving wrong results or ending the process;
it is no wall against a hostile file, whose code runs when it is loaded.
"""

from __future__ import annotations

import dis
import inspect
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from types import CodeType, FrameType, FunctionType, ModuleType, TracebackType
from typing import Any

import numpy as np
from numba.core.dispatcher import Dispatcher

from gpuyard.arrays import Array
from gpuyard.engine.compiler.shown import JOBS, NODES, SYSTEM, Shown, job_parts
from gpuyard.engine.state import NODE_ROW, RUNNING, SYSTEM_ROW, VISIBLE_ROW, WAITING
from gpuyard.errors import PolicyError

Function = Callable[..., Any]

_FOREIGN = frozenset({"numba", "ctypes", "_ctypes", "cffi", "_cffi_backend", "llvmlite"})  # packages that hand out pointers or run Python
_HARMLESS = frozenset({"prange", "literal_unroll"})  # of numba
_ATTRIBUTES = frozenset({"view", "ctypes", "base", "as_strided"})  # of arrays and numpy: what leads to other memory
_LONGEST_CALL = 10.0  # s that one answer may take as plain Python
_LONGEST_TRIAL = 2.0  # s in all; what is not asked by then is not asked
_ROWS, _HOSTS = 24, 6  # made-up jobs and nodes


def plain(function: object) -> Any:
    """Return the Python function behind one that numba has compiled already."""
    return function.py_func if isinstance(function, Dispatcher) else function


# ── reading the code ──


def vet(function: Function) -> None:
    """Refuse a policy that uses what is not for policies, itself or in a function that it calls; the error names file and line."""
    _vet(function, (), set())


def _vet(function: Function, path: tuple[Function, ...], done: set[Function]) -> None:
    done.add(function)
    for line, what in _uses(function):
        called = plain(what)
        if isinstance(called, FunctionType) and called in (*path, function):
            raise _refused(function, line, f"{called.__name__} calls itself: recursion is not for policies", "write a loop")
        complaint = _complaint(what)
        if complaint:
            raise _refused(function, line, complaint, "a policy is arithmetic on jobs.column[j] and nodes.column[n]")
        if isinstance(called, FunctionType) and called not in done and is_helper(what, function):
            _vet(called, (*path, function), done)


def is_helper(what: object, function: Function) -> bool:
    """Whether the policy's own file, or numba at its behest, makes this a function that is compiled with the policy."""
    return isinstance(what, Dispatcher) or (inspect.isfunction(what) and what.__module__ == function.__module__)


def _uses(function: Function) -> Iterator[tuple[int, Any]]:
    """Each thing that the code uses by a global or outer name, and each attribute: `.name` that it reads, `.name =` that it sets."""
    outer = inspect.getclosurevars(function).nonlocals if function.__closure__ else {}
    space = {**function.__globals__, **outer}
    for code in _codes(function.__code__):
        thing: Any = None
        for each in dis.get_instructions(code):
            line = (each.positions.lineno if each.positions else None) or code.co_firstlineno
            if each.opname in ("LOAD_GLOBAL", "LOAD_NAME", "LOAD_DEREF", "LOAD_CLASSDEREF"):
                thing = space.get(each.argval)
            elif each.opname in ("STORE_ATTR", "DELETE_ATTR"):
                yield line, f".{each.argval} ="
            elif each.opname in ("LOAD_ATTR", "LOAD_METHOD"):
                yield line, f".{each.argval}"
                thing = getattr(thing, each.argval, None) if isinstance(thing, ModuleType) else None
            else:
                continue
            yield from ((line, item) for item in (thing if isinstance(thing, tuple | list) else (thing,)) if _counts(item))


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for const in code.co_consts:
        if isinstance(const, CodeType):
            yield from _codes(const)


def _counts(thing: object) -> bool:
    """Whether a thing is judged by itself: of a package it is what is taken from it that counts."""
    return thing is not None and not isinstance(thing, ModuleType | str)


def _complaint(thing: object) -> str:
    """Say why a policy may not use this; empty: it may."""
    if isinstance(thing, str):
        name = thing.removeprefix(".")
        if name.endswith("="):
            return f"{thing} …: what a policy is shown cannot be changed"
        return f"{thing} is not for policies" if name in _ATTRIBUTES or name.startswith("_") else ""
    if isinstance(thing, Dispatcher):
        return ""
    own_name = getattr(thing, "__name__", "")
    if own_name in _ATTRIBUTES:
        return f"{own_name} is not for policies"
    for made_by in (getattr(thing, "__module__", None), type(thing).__module__):
        package = str(made_by).partition(".")[0]
        if package in _FOREIGN and own_name not in _HARMLESS:
            return f"{own_name or type(thing).__name__} of {package.lstrip('_')} is not for policies"
    return ""


def _refused(function: Function, line: int, why: str, hint: str = "") -> PolicyError:
    return PolicyError(f"{function.__code__.co_filename}:{line} {function.__name__}: {why}", hint=hint)


# ── trying it out ──


@cache
def try_out(function: Function, arguments: int) -> None:
    """Ask a policy twice about made-up jobs, nodes or systems, as plain Python, and refuse one that cannot be relied on.

    It must not write, must answer in time, and must give the same answer when asked again. Other errors are left to the engine,
    which meets them in compiled code and names the job. `arguments` before the parameters tell the kind of policy.
    """
    over = time.monotonic() + _LONGEST_TRIAL
    for late in (False, True):
        calls = _CALLS[arguments](late)
        first: dict[int, Any] = {}
        for k in (*range(len(calls)), *reversed(range(len(calls)))):
            if time.monotonic() > over:
                return
            answer = _answer(function, calls[k])
            if k in first and not _same(first[k], answer):
                why = f"asked twice about the same thing, it answers {first[k]!r} and {answer!r}"
                raise _refused(function, function.__code__.co_firstlineno, why, "an answer may depend on the arguments alone")
            first[k] = answer


def _answer(function: Function, arguments: tuple[Any, ...]) -> Any:
    """Return the answer; None where it raises an ordinary error."""
    try:
        with np.errstate(all="ignore"), limited():
            return function(*arguments)
    except PolicyError as error:
        raise _refused(function, line_of(error.__traceback__, function), str(error)) from None
    except Exception:
        return None


def _same(a: object, b: object) -> bool:
    return bool(a == b or (a != a and b != b))


def line_of(trace: TracebackType | None, function: Function) -> int:
    """Return the last line of the function's file that an error went through."""
    line: int = function.__code__.co_firstlineno
    while trace is not None:
        if trace.tb_frame.f_code.co_filename == function.__code__.co_filename:
            line = trace.tb_lineno
        trace = trace.tb_next
    return line


@contextmanager
def limited() -> Iterator[None]:
    """End Python code in the block that runs too long. The clock is read at every line, in any thread, without signals."""
    end = time.monotonic() + _LONGEST_CALL

    def watch(frame: FrameType, event: str, argument: object) -> Any:
        if time.monotonic() > end:
            raise PolicyError(f"no answer within {_LONGEST_CALL:g} s", hint="does a loop end?")
        return watch

    before = sys.gettrace()
    sys.settrace(watch)
    try:
        yield
    finally:
        sys.settrace(before)


def _rules(late: bool) -> list[tuple[Any, ...]]:
    now = 50_000.0 if late else 4_000.0
    jobs = Shown(JOBS, *_jobs(now, late))
    return [(jobs, np.int32(j), now) for j in range(_ROWS)]


def _placements(late: bool) -> list[tuple[Any, ...]]:
    jobs, nodes = Shown(JOBS, *_jobs(50_000.0, late)), Shown(NODES, _nodes())
    return [(nodes, np.int32(n), jobs, j) for n in range(_HOSTS) for j in range(3)]


def _switches(late: bool) -> list[tuple[Any, ...]]:
    system = np.zeros(1, SYSTEM_ROW)
    for k, name in enumerate(SYSTEM_ROW.names or ()):
        system[name] = (k + 1.0) * (50.0 if late else 1.0)
    return [(Shown(SYSTEM, system), 50_000.0 if late else 4_000.0)]


_CALLS: Mapping[int, Callable[[bool], list[tuple[Any, ...]]]] = {3: _rules, 4: _placements, 2: _switches}


def _jobs(now: float, late: bool) -> tuple[Array, ...]:
    """Make up jobs as a simulation could show them: just submitted, or `late` and every second one running."""
    draw = np.random.default_rng(7)
    rows = np.zeros(_ROWS, VISIBLE_ROW)
    rows["submit"] = np.sort(draw.uniform(0, 4_000.0, _ROWS))
    rows["gpus"] = draw.choice([1.0, 2.0, 4.0, 8.0], _ROWS)
    rows["estimate"] = rows["remaining"] = draw.lognormal(7.0, 1.0, _ROWS)
    rows["walltime"], rows["deadline"] = 2 * rows["estimate"], now + 3 * rows["estimate"]
    rows["cpus"], rows["memory"], rows["priority"] = rows["gpus"] * 8, rows["gpus"] * 64, draw.integers(0, 3, _ROWS)
    rows["queued"], rows["start"], rows["status"] = rows["submit"], -1.0, WAITING
    rows["index"], rows["user"], rows["chunk"] = np.arange(_ROWS), draw.integers(0, 4, _ROWS), 1
    rows["fair_share"], rows["size_factor"], rows["usage"] = 0.25, rows["gpus"] / 48, draw.uniform(0, 1, _ROWS)
    if late:
        half = rows[::2]
        half["start"] = half["run_start"] = half["submit"] + 10.0
        half["rate"], half["status"] = 1.0, RUNNING
        half["est_end"] = half["run_start"] + half["estimate"]
    return job_parts(rows)


def _nodes() -> Array:
    rows = np.zeros(_HOSTS, NODE_ROW)
    number = np.arange(_HOSTS)
    rows["gpus"], rows["free"], rows["number"], rows["rack"] = 8, 8 - number, number, number // 2
    rows["cpus"] = rows["free_cpus"] = 64.0
    rows["memory"] = rows["free_memory"] = 512.0
    rows["speed"], rows["share"], rows["first_device"] = 1.0 + number % 2, 1.0, -1
    rows["mask"] = 2 ** rows["free"].astype(np.uint64) - 1
    return rows
