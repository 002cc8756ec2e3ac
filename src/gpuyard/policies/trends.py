"""Finds out whether the key of a waiting job can only fall as time passes, by running the ordering on trends instead of numbers.

The engine works out keys that only fall once in a while instead of at every pass (`gpuyard.engine.kernels.bounds`). Nobody has to
declare it, so nobody can declare it wrongly: an ordering is taken at its code. Whatever cannot be proved is not assumed.
"""

from __future__ import annotations

import builtins
import dis
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import FunctionType, SimpleNamespace
from typing import Any

from gpuyard.engine.compiler.vetting import limited
from gpuyard.engine.state import VISIBLE_NAMES

Function = Callable[..., Any]
MOST_PATHS = 64  # ways through the branches of a function that are tried
RISES, FALLS = 1, -1

_NOT_NEGATIVE = (
    "gpus", "estimate", "walltime", "cpus", "memory", "transfer", "attained", "ran", "remaining", "done", "preemptions", "usage",
    "size_factor",
)  # fmt: skip
_PAST = ("submit", "queued")  # never later than now


class Unproved(Exception):
    """Something depends on time in a way that is not followed up."""


@dataclass
class _Paths:
    """Remember which way each branch takes in this run, in the order in which the branches are reached."""

    taken: list[bool] = field(default_factory=list)
    at: int = 0

    def branch(self) -> bool:
        if self.at == len(self.taken):
            self.taken.append(True)
        if self.at == MOST_PATHS:  # a loop
            raise Unproved
        self.at += 1
        return self.taken[self.at - 1]

    def advance(self) -> bool:
        """Go on to the next way through; False if all have been tried."""
        self.at = 0
        while self.taken and not self.taken[-1]:
            self.taken.pop()
        if self.taken:
            self.taken[-1] = False
        return bool(self.taken)


@dataclass(frozen=True, eq=False)
class Trend:
    """A number of which is known where it lies, and whether it rises (1), falls (-1) or stays as time passes.

    Every operation here is monotone in floating-point numbers too: a sum, product or quotient is rounded, and rounding keeps order.
    """

    paths: _Paths
    low: float = -math.inf
    high: float = math.inf
    trend: int = 0
    name: str = ""  # of the column; "now"

    def _made(self, low: float, high: float, trend: int) -> Trend:
        return Trend(self.paths, low if low == low else -math.inf, high if high == high else math.inf, trend)

    def _of(self, other: object) -> Trend:
        if isinstance(other, Trend):
            return other
        if isinstance(other, (int, float)):
            return self._made(float(other), float(other), 0)
        raise Unproved

    def __neg__(self) -> Trend:
        return self._made(-self.high, -self.low, -self.trend)

    def __pos__(self) -> Trend:
        return self

    def __add__(self, other: object) -> Trend:
        b = self._of(other)
        return self._made(self.low + b.low, self.high + b.high, _both(self.trend, b.trend))

    def __sub__(self, other: object) -> Trend:
        b = self._of(other)
        made = self + -b
        waited = self.name == "now" and b.name in _PAST
        return self._made(max(made.low, 0.0), made.high, made.trend) if waited else made

    def __mul__(self, other: object) -> Trend:
        b = self._of(other)
        if self.trend == 0 and b.trend == 0:
            trend = 0
        elif self.trend == 0 or b.trend == 0:
            still, moving = (self, b) if self.trend == 0 else (b, self)
            trend = moving.trend * still.sign()
        else:
            trend = _both(self.trend * b.sign(), b.trend * self.sign())
        ends = [x * y for x in (self.low, self.high) for y in (b.low, b.high)]
        known = all(end == end for end in ends)
        positive = self.low >= 0 and b.low >= 0
        return self._made(min(ends) if known else 0.0 if positive else -math.inf, max(ends) if known else math.inf, trend)

    def __truediv__(self, other: object) -> Trend:
        b = self._of(other)
        if b.low <= 0 <= b.high:
            if self.trend == 0 and b.trend == 0:
                return self._made(-math.inf, math.inf, 0)
            raise Unproved
        return self * b._made(1.0 / b.high, 1.0 / b.low, -b.trend)

    def __pow__(self, other: object) -> Trend:
        b = self._of(other)
        if self.trend == 0 and b.trend == 0:
            return self._made(-math.inf, math.inf, 0)
        if self.low < 0 or b.trend != 0 or b.low != b.high or b.low < 0:
            raise Unproved
        return self._made(0.0, math.inf, self.trend)

    def __rpow__(self, other: object) -> Trend:
        b = self._of(other)
        if b.low <= 0:
            raise Unproved
        return self._made(0.0, math.inf, self.trend if b.low >= 1 else -self.trend)

    def __radd__(self, other: object) -> Trend:
        return self._of(other) + self

    def __rsub__(self, other: object) -> Trend:
        return self._of(other) - self

    def __rmul__(self, other: object) -> Trend:
        return self._of(other) * self

    def __rtruediv__(self, other: object) -> Trend:
        return self._of(other) / self

    def __abs__(self) -> Trend:
        return self if self.low >= 0 else -self if self.high <= 0 else self._still()

    def sign(self) -> int:
        """1 where it is never negative, -1 where never positive."""
        if self.low >= 0:
            return 1
        if self.high <= 0:
            return -1
        raise Unproved

    def _still(self) -> Trend:
        """Return any number that does not change with time."""
        if self.trend != 0:
            raise Unproved
        return self._made(-math.inf, math.inf, 0)

    def __bool__(self) -> bool:
        """Take either way, but always the same: what stays as it is cannot change its answer."""
        self._still()
        return self.paths.branch()

    def _compared(self, other: object) -> bool:
        self._of(other)._still()
        return bool(self)

    __lt__ = __le__ = __gt__ = __ge__ = _compared

    def __eq__(self, other: object) -> bool:
        return self._compared(other)

    def __ne__(self, other: object) -> bool:
        return self._compared(other)

    __hash__ = None  # type: ignore[assignment]


def _both(a: int, b: int) -> int:
    """Return the trend of what rises with both."""
    if a * b < 0:
        raise Unproved
    return a or b


# ── functions that orderings use ──


def _extreme(pick: Callable[..., Any]) -> Function:
    def chosen(*values: Any) -> Any:
        found = next((v for v in values if isinstance(v, Trend)), None)
        if found is None or len(values) != 2:
            return pick(*values)
        a, b = (found._of(v) for v in values)
        return found._made(pick(a.low, b.low), pick(a.high, b.high), _both(a.trend, b.trend))

    return chosen


def _rising(function: Callable[[float], float]) -> Function:
    """Return a function that never falls with its argument, for trends too."""

    def at(value: float, otherwise: float) -> float:
        try:
            return function(value)
        except (ValueError, OverflowError):
            return otherwise

    def followed(value: Any) -> Any:
        if not isinstance(value, Trend):
            return function(value)
        return value._made(at(value.low, -math.inf), at(value.high, math.inf), value.trend)

    return followed


def _steady(function: Callable[..., Any]) -> Function:
    """Return a test that is made of numbers that do not change."""
    return lambda value: bool(value) if isinstance(value, Trend) else function(value)


_RISING = ("exp", "expm1", "log", "log2", "log10", "log1p", "sqrt", "floor", "ceil")
_STEADY = ("isinf", "isnan", "isfinite")
_FOLLOWED = {name: _rising(getattr(math, name)) for name in _RISING} | {name: _steady(getattr(math, name)) for name in _STEADY}
_MATH = SimpleNamespace(**(vars(math) | _FOLLOWED))
_KNOWN: Mapping[Any, Any] = {math: _MATH, max: _extreme(max), min: _extreme(min), abs: abs} | {
    getattr(math, name): function for name, function in _FOLLOWED.items()
}


def _followed(function: Function) -> Function:
    """Return the function with what it calls exchanged for what knows trends. It may use nothing else but numbers."""
    space: dict[str, Any] = {}
    for name in {str(i.argval) for i in dis.get_instructions(function) if i.opname == "LOAD_GLOBAL"}:
        thing = function.__globals__.get(name, getattr(builtins, name, None))
        if not isinstance(thing, (int, float)) and not (thing.__hash__ and thing in _KNOWN):
            raise Unproved
        space[name] = thing if isinstance(thing, (int, float)) else _KNOWN[thing]
    if function.__code__.co_exceptiontable or not all(isinstance(cell.cell_contents, (int, float)) for cell in function.__closure__ or ()):
        raise Unproved
    return FunctionType(function.__code__, space, function.__name__, function.__defaults__, function.__closure__)


@dataclass(frozen=True)
class _TableTrend:
    """Stand in for the jobs that an ordering is shown, and note which columns it reads."""

    paths: _Paths
    trends: Mapping[str, int]
    read: set[str]

    def __getattr__(self, name: str) -> Any:
        if name not in VISIBLE_NAMES:
            raise Unproved
        self.read.add(name)
        low = 1e-300 if name == "fair_share" else 0.0 if name in _NOT_NEGATIVE else -math.inf
        return _ColumnTrend(Trend(self.paths, low, math.inf, self.trends.get(name, 0), name))


@dataclass(frozen=True)
class _ColumnTrend:
    value: Trend

    def __getitem__(self, j: object) -> Trend:
        if j is not _JOB:
            raise Unproved
        return self.value


_JOB = object()  # the job asked about; nothing can be worked out from it


def _trends_of(function: Function, params: tuple[float, ...], trends: Mapping[str, int], read: set[str]) -> Iterator[int]:
    """Yield the trend of the key on every way through the function, where columns and now have the trends given."""
    followed = _followed(function)
    paths = _Paths()
    for _ in range(MOST_PATHS):
        key = followed(_TableTrend(paths, trends, read), _JOB, Trend(paths, trend=trends.get("now", 0), name="now"), *params)
        yield key.trend if isinstance(key, Trend) else 0
        if not paths.advance():
            return
    raise Unproved


@lru_cache(maxsize=1024)
def alike(function: Function, params: tuple[float, ...]) -> frozenset[str] | None:
    """Return the columns in which two waiting jobs must agree so that the first to come never has the higher key; None if not proved."""
    read: set[str] = set()
    try:
        with limited():
            late = any(trend == FALLS for trend in _trends_of(function, params, dict.fromkeys(_PAST, RISES), read))
    except Exception:
        return None
    return None if late else frozenset(read.difference(_PAST))


@lru_cache(maxsize=1024)
def falls(function: Function, params: tuple[float, ...]) -> bool:
    """Whether the key of a waiting job, with these parameters, never rises as time passes, nor as its user's usage gets less."""
    try:
        with limited():
            return all(trend != RISES for trend in _trends_of(function, params, {"now": RISES, "usage": FALLS}, set()))
    except Exception:  # a user's function may do anything with what it does not expect
        return False
