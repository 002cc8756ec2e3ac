"""The four slots of a scheduler and their registries. Nothing here imports networks: a learned policy brings its own."""

from __future__ import annotations

import dis
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from os import PathLike, fspath
from types import CodeType
from typing import Any, ClassVar, Literal, Protocol, TypeVar, cast

from gpuyard.engine.compiler.compile import compile_keys, compile_scores, parameters_of
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.compiler.vetting import is_helper, plain, try_out
from gpuyard.engine.rows.ranking import RANK_CLOCK, RANK_NETWORK, RANK_NONE, RANK_TABLE, RANK_TIME
from gpuyard.engine.state import CLOCK_FALLS, CLOCK_NO, CLOCK_STATE, CLOCK_YES
from gpuyard.errors import UsageError, WrongTypeError
from gpuyard.policies.trends import alike, falls
from gpuyard.registry import Registry

DEFAULT_TABLE = "auto"  # of run times: `hpc` for jobs that requested a time, `gpu` for the others
DEFAULT_SLOTS = ("fcfs", "fewest", "none", "none")
SHORTEST_PERIOD = 0.001  # s; a timer that fires more often only burns time

Function = Callable[..., Any]
Params = tuple[tuple[str, float], ...]
Span = Literal["score", "fewest", "tier2"]  # of gpuyard.engine.slots.SPANS


class Parametrised(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def params(self) -> Params: ...


class RunTimes(Protocol):
    """A slot's view of a table of run times by class of jobs."""

    @property
    def name(self) -> str: ...
    @property
    def packed(self) -> tuple[float, ...]: ...  # as kernels take it


class TrainedNetwork(Protocol):
    """A slot's view of a trained network. The address is valid as long as the object lives."""

    @property
    def address(self) -> int: ...
    @property
    def actions(self) -> int: ...  # that it chooses from; 0: one for each row
    @property
    def state_scratch(self) -> int: ...  # floats that a state of the engine needs for it


def short_number(value: float) -> str:
    """Write a number as shortly as it can be read back."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


def check_period(every: float, where: str) -> None:
    """Refuse a period that is neither 0 (none) nor a finite time of sensible length."""
    if every != 0 and not SHORTEST_PERIOD <= every < math.inf:
        raise UsageError(f"{where}: every = {every} is not a period in seconds", hint=f"0, or at least {SHORTEST_PERIOD:g}")


def label_of(name: str, params: Params, defaults: Mapping[str, float]) -> str:
    """Write a policy as a user would: its name, and the parameters that are not at their defaults."""
    changed = [f"{key}={short_number(value)}" for key, value in params if defaults.get(key) != value]
    return name + (":" + ",".join(changed) if changed else "")


def values_of(policy: Parametrised) -> tuple[float, ...]:
    """Return the values of a policy's parameters in their order."""
    return tuple(value for _, value in policy.params)


@dataclass(frozen=True)
class FunctionPolicy(ABC):
    """A policy that is a plain function, something built in, or a network."""

    name: str
    title: str
    function: Function | None = None  # None: built in, or a network
    params: Params = ()
    network: TrainedNetwork | None = field(default=None, kw_only=True)
    by_network: Callable[[], int] | None = field(default=None, kw_only=True)  # address of the compiled code that asks the network
    arguments: ClassVar[int]  # of the function, before its parameters

    @property
    def defaults(self) -> dict[str, float]:
        return parameters_of(self.function, self.arguments) if self.function else {}

    @property
    def label(self) -> str:
        return label_of(self.name, self.params, self.defaults)

    def address(self) -> int:
        """Compile the function and return its address; 0 without one. A user's function is tried out before its first use."""
        if self.by_network is not None:
            return self.by_network()
        if self.function is None:
            return 0
        made = self.compiled(self.function)
        if not INTERPRETED and not is_builtin(self.function):
            try_out(self.function, self.arguments)
        return made

    @abstractmethod
    def compiled(self, function: Function) -> int:
        """Compile the function and return its address."""


@dataclass(frozen=True)
class Ordering(FunctionPolicy):
    """An ordering says which job goes next: `function(jobs, j, now, *params)`, lower first. Keyed once unless it reads the clock."""

    reads_clock: bool = False
    builtin: bool = False
    source: str = ""
    arguments = 3

    @property
    def clock(self) -> int:
        """When keys are computed again, of gpuyard.engine.state.CLOCK_*."""
        if self.network:
            return CLOCK_STATE
        if self.function is None or not self.reads_clock:
            return CLOCK_NO
        return CLOCK_FALLS if falls(self.function, values_of(self)) else CLOCK_YES

    @property
    def keyed(self) -> str:
        """Say when keys are computed."""
        if not self.reads_clock:
            return "keyed once"
        return "keyed as far as a pass needs it, since keys only fall" if self.clock == CLOCK_FALLS else "keyed at every pass"

    @property
    def alike(self) -> frozenset[str] | None:
        """Columns; of jobs that agree in them the first to come goes first, where keys only fall. None: unknown."""
        return alike(self.function, values_of(self)) if self.function is not None and self.clock == CLOCK_FALLS else None

    def compiled(self, function: Function) -> int:
        return compile_keys(function, len(self.params), cached=self.builtin)


@dataclass(frozen=True)
class Placement(FunctionPolicy):
    """On which nodes: a built-in score, or `function(nodes, n, jobs, j, *params)`, lower first."""

    span: Span = "score"
    score: str = "own"  # of gpuyard.engine.slots.SCORES
    arguments = 4

    def compiled(self, function: Function) -> int:
        return compile_scores(function, len(self.params))


@dataclass(frozen=True)
class Backfill:
    """A backfill rule says which jobs may pass the head of the queue; at most `depth` jobs behind it are tried (0: all).

    `words` follow the name of an ordering in a sentence: "shortest job first *with EASY*".
    """

    name: str  # of gpuyard.engine.slots.BACKFILLS
    title: str = ""
    depth: int = 0
    words: str = ""

    @property
    def params(self) -> Params:
        return (("depth", float(self.depth)),)

    @property
    def label(self) -> str:
        return label_of(self.name, self.params, {"depth": 0.0})


@dataclass(frozen=True)
class Preemption(FunctionPolicy):
    """A preemption rule says which jobs may be stopped for the head: running ones with a higher `function(jobs, j, now, *params)`."""

    every: float = 0.0  # s between timer events; 0: none
    builtin: bool = False
    arguments = 3

    def __post_init__(self) -> None:
        check_period(self.every, f"preemption {self.name}")

    @property
    def stops(self) -> bool:
        """Whether it may stop running jobs."""
        return self.function is not None or self.rank != RANK_NONE

    @property
    def rank(self) -> int:
        """How jobs are ranked: not at all."""
        return RANK_NONE

    @property
    def label(self) -> str:
        every = PREEMPTIONS[self.name].every if self.name in PREEMPTIONS else 0.0
        return label_of(self.name, (*self.params, ("every", self.every)), self.defaults | {"every": every})

    def compiled(self, function: Function) -> int:
        return compile_keys(function, len(self.params), cached=self.builtin)


@dataclass(frozen=True)
class RankRule(Preemption):
    """A rank rule lets waiting and running jobs compete: `function(jobs, j, now, *params)` is the time that a job is judged to need.

    Only jobs that say they may be stopped are. A rule by a table has no function; a network may multiply the times of the table.
    """

    hysteresis: float = 2.0  # the time of a running job is divided by it,
    width: float = 0.0  # and by 1 + width × the square of its share of the partition's devices
    pay: float = 0.0  # a stop must gain so many times what it costs; 0: it need not
    ageing: float = 0.0  # h: a job counts for half as much after each such time that it has waited; 0: it does not age
    stretch: float = 10.0  # … or after so many times its estimate, if that is longer
    burden: float = math.inf  # jobs that may be stopped wait at most so much longer than others of their size; 0.25: a quarter
    writing: float = math.inf  # a run writes checkpoints if this share of what it keeps from others is worth more; inf: always
    online: float = 0.0  # every so many jobs that end, the run time of one takes the place of a quantile of its class; 0: none does
    trust: float = math.inf  # jobs are judged by estimates if these told so many bits a job more about run times than the table
    table: RunTimes | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 1 <= self.hysteresis < math.inf:
            raise UsageError(f"preemption {self.name}: hysteresis = {self.hysteresis} is not a factor of 1 or more")
        for name in RANK_SETTINGS[1:]:
            value = getattr(self, name)
            if not (0 <= value < math.inf or (value == math.inf and name in ("burden", "writing", "trust"))):
                raise UsageError(f"preemption {self.name}: {name} = {value} is not a number of 0 or more")
        if self.online != int(self.online) or (self.online > 0 and self.table is None):
            raise UsageError(
                f"preemption {self.name}: online = {self.online:g} is not a number of jobs", hint="a whole number, of a rule by a table"
            )

    @property
    def settings(self) -> tuple[float, ...]:
        """The settings as kernels take them, from HYSTERESIS_AT on."""
        return tuple(float(getattr(self, name)) for name in RANK_SETTINGS)

    @property
    def label(self) -> str:
        if self.network is not None:
            return self.name  # its checkpoint says all
        usual = dict(PREEMPTIONS.items()).get(self.name)
        names = ("every", *RANK_SETTINGS)
        plain = RankRule("", "")
        own = {name: float(getattr(usual, name, getattr(plain, name))) for name in names}
        label = label_of(self.name, (*self.params, *((name, getattr(self, name)) for name in names)), self.defaults | own)
        if self.table is None or self.table.name == DEFAULT_TABLE:
            return label
        return f"{self.name}:table={self.table.name}{label.removeprefix(self.name).replace(':', ',', 1)}"

    @property
    def rank(self) -> int:
        """How jobs are ranked, of gpuyard.engine.rows.ranking."""
        if self.table is not None:
            return RANK_TABLE if self.network is None else RANK_NETWORK
        return RANK_CLOCK if self.function is not None and reads_clock(self.function) else RANK_TIME


# Settings of rank rules, in the order of gpuyard.engine.rows.ranking.HYSTERESIS_AT and those behind it.
RANK_SETTINGS = ("hysteresis", "width", "pay", "ageing", "stretch", "burden", "writing", "online", "trust")

# ── registries ──

ORDERINGS: Registry[Ordering] = Registry("ordering")
PLACEMENTS: Registry[Placement] = Registry("placement")
BACKFILLS: Registry[Backfill] = Registry("backfill")
PREEMPTIONS: Registry[Preemption] = Registry("preemption")

F = TypeVar("F", bound=Function)


def make_ordering(function: Function, name: str, title: str = "", *, builtin: bool = False, source: str = "") -> Ordering:
    """Make an ordering of a plain function; its keyword arguments become parameters."""
    params = tuple(parameters_of(function, 3).items())
    return Ordering(name, title or summary_of(function), function, params, reads_clock(function), builtin, source)


def ordering(name: str, *, title: str = "", source: str = "") -> Callable[[F], F]:
    """Register an ordering `(jobs, j, now)` under a name: `@ordering("saf")`. The function stays callable as it is."""
    return ORDERINGS.register(name, lambda function: make_ordering(function, name, title, builtin=is_builtin(function), source=source))


def make_preemption(function: Function, name: str, title: str = "", *, every: float = 0.0, builtin: bool = False) -> Preemption:
    """Make a preemption rule of a plain function."""
    return Preemption(name, title or summary_of(function), function, tuple(parameters_of(function, 3).items()), every, builtin)


def preemption(name: str, *, title: str = "", every: float = 0.0) -> Callable[[F], F]:
    """Register a preemption rule `(jobs, j, now)`; it is asked at every pass, or every so many seconds."""
    return PREEMPTIONS.register(name, lambda function: make_preemption(function, name, title, every=every, builtin=is_builtin(function)))


def make_rank(function: Function, name: str, title: str = "", *, every: float = 0.0, builtin: bool = False) -> RankRule:
    """Make a rank rule of a plain function."""
    return RankRule(name, title or summary_of(function), function, tuple(parameters_of(function, 3).items()), every, builtin)


def rank(name: str, *, title: str = "", every: float = 60.0) -> Callable[[F], F]:
    """Register a rank rule, which fills the preemption slot."""
    return PREEMPTIONS.register(name, lambda function: make_rank(function, name, title, every=every, builtin=is_builtin(function)))


def make_placement(function: Function, name: str, title: str = "", *, span: Span = "score") -> Placement:
    """Make a placement of a plain function."""
    return Placement(name, title or summary_of(function), function, tuple(parameters_of(function, 4).items()), span)


def placement(name: str, *, title: str = "", span: Span = "score") -> Callable[[F], F]:
    """Register a placement `(nodes, n, jobs, j)`: the node with the lowest value is taken first."""
    return PLACEMENTS.register(name, lambda function: make_placement(function, name, title, span=span))


# ── what a person writes in a slot ──

FROM_TEXT: dict[
    str, Callable[[str], FunctionPolicy | Backfill]
] = {}  # slot → reader of its texts; a text may name a network, so policies.text fills it
_SLOTS: dict[str, tuple[type, Registry[Any], Callable[[Function, str], FunctionPolicy] | None, str]] = {
    "ordering": (Ordering, ORDERINGS, make_ordering, "(jobs, j, now)"),
    "placement": (Placement, PLACEMENTS, make_placement, "(nodes, n, jobs, j)"),
    "backfill": (Backfill, BACKFILLS, None, ""),
    "preemption": (Preemption, PREEMPTIONS, make_preemption, "(jobs, j, now)"),
}


def filled(slot: str, given: object) -> FunctionPolicy | Backfill:
    """Return the policy for a slot: itself, the one that a text names (`sjf`, `easy:depth=100`), or the one that a plain function is."""
    kind, registry, make, arguments = _SLOTS[slot]
    if isinstance(given, kind):
        return cast("FunctionPolicy | Backfill", given)
    if isinstance(given, str | PathLike):
        return FROM_TEXT[slot](fspath(given))
    if make is not None and callable(given) and not isinstance(given, type):
        function = getattr(given, "py_func", given)  # numba's own decorator is taken off again
        decorated = (policy for _, policy in registry.items() if policy.function is function)
        name = getattr(function, "__name__", type(given).__name__)
        return next(decorated, None) or make(function, "lambda" if name == "<lambda>" else name)
    function_of = f", a function {arguments}" if make is not None else ""
    known = ", ".join(list(registry)[:4])
    raise WrongTypeError(slot, f"a name such as {known}{function_of} or {_article(kind.__name__)}", given)


def _article(noun: str) -> str:
    return f"{'an' if noun[0] in 'AEIOU' else 'a'} {noun}"


def is_builtin(function: Function) -> bool:
    """Whether the function is part of this package, whose files do not change between runs (so its code may be cached)."""
    return str(function.__module__).startswith("gpuyard.")  # a function made from a text has none


def summary_of(function: Function) -> str:
    """Return the first line of a function's docstring, or its name."""
    return (function.__doc__ or function.__name__).strip().splitlines()[0]


# ── what a function reads ──


def reads_clock(function: Function) -> bool:
    """Whether the function uses its third argument (now), or the users' usage, which changes with time alone."""
    code = function.__code__
    name = code.co_varnames[2]
    return name in code.co_cellvars or any(_loads(i, name) for i in dis.get_instructions(function)) or reads_usage(function)


def reads_usage(function: Function) -> bool:
    """Whether the function, or one of its module that it calls, reads `jobs.usage`."""
    return reads(function, ("usage",))


@cache
def reads(function: Function, columns: tuple[str, ...]) -> bool:
    """Whether the function, or one of its module that it calls, reads one of the columns. Another thing of that name costs only time."""
    seen: set[Function] = set()
    todo = [function]
    while todo:
        each = todo.pop()
        seen.add(each)
        if any(_names(each.__code__, column) for column in columns):
            return True
        called = (each.__globals__.get(name) for name in each.__code__.co_names)
        todo += [plain(thing) for thing in called if is_helper(thing, each) and plain(thing) not in seen]
    return False


def _names(code: CodeType, name: str) -> bool:
    """Whether the name occurs in the code, or in that of a function inside it."""
    return name in code.co_names or name in code.co_consts or any(isinstance(c, CodeType) and _names(c, name) for c in code.co_consts)


def _loads(instruction: dis.Instruction, name: str) -> bool:
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)  # from 3.13 loads are fused in pairs
    return name in names and "LOAD" in instruction.opname
