"""The four slots of a scheduler and their registries."""

from __future__ import annotations

import dis
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from types import CodeType
from typing import Any, Literal, Protocol, TypeVar

from gpuyard.engine.compiler.compile import compile_keys, compile_scores, compile_switch, parameters_of
from gpuyard.engine.decide import decide_once
from gpuyard.engine.slots import BACKFILLS as BACKFILL_CODES
from gpuyard.engine.slots import SCORES, SPANS, Program, Slot, check_half_life
from gpuyard.engine.state import CLOCK_NO, CLOCK_STATE, CLOCK_YES, OUTPUTS
from gpuyard.errors import PolicyError, UsageError
from gpuyard.model.decision import Decision
from gpuyard.model.snapshot import HALF_LIFE, Snapshot
from gpuyard.networks.inside import order_by_network, place_by_network, scratch_for, switch_by_network
from gpuyard.networks.network import Network
from gpuyard.registry import Registry

DEFAULT_SLOTS = ("fcfs", "fewest", "none", "none")

Function = Callable[..., Any]
Params = tuple[tuple[str, float], ...]
Span = Literal["score", "fewest", "tier2"]  # of gpuyard.engine.slots.SPANS


class Parametrised(Protocol):
    @property
    def name(self) -> str: ...
    @property
    def params(self) -> Params: ...


def _number(value: float) -> str:
    """As short as it can be written and still be read back."""
    return f"{value:g}" if float(f"{value:g}") == value else repr(float(value))


SHORTEST_PERIOD = 0.001  # s; a timer that fires more often only burns time


def check_period(every: float, where: str) -> None:
    """A period is 0 (none) or a finite time that is not absurdly short."""
    if every != 0 and not SHORTEST_PERIOD <= every < math.inf:
        raise UsageError(f"{where}: every = {every} is not a period in seconds", hint=f"0, or at least {SHORTEST_PERIOD:g}")


def _label(name: str, params: Params, defaults: Mapping[str, float]) -> str:
    changed = [f"{key}={_number(value)}" for key, value in params if defaults.get(key) != value]
    return name + (":" + ",".join(changed) if changed else "")


@dataclass(frozen=True)
class Ordering:
    """Which job goes next: `function(jobs, j, now, *params)`, lower first. Keyed once unless it reads the clock."""

    name: str
    title: str
    function: Function | None  # None: a network scores the whole queue
    params: Params = ()
    reads_clock: bool = False
    builtin: bool = False
    source: str = ""
    network: Network | None = None

    @property
    def label(self) -> str:
        return _label(self.name, self.params, parameters_of(self.function, 3) if self.function else {})

    @property
    def clock(self) -> int:
        """When keys are worked out anew, of gpuyard.engine.state.CLOCK_*."""
        return CLOCK_STATE if self.network else CLOCK_YES if self.reads_clock else CLOCK_NO

    def address(self) -> int:
        if self.function is None:
            return order_by_network()
        return compile_keys(self.function, len(self.params), cached=self.builtin)


@dataclass(frozen=True)
class Placement:
    """On which nodes: a built-in score, or `function(nodes, n, jobs, j, *params)`, lower first."""

    name: str
    title: str
    function: Function | None = None
    params: Params = ()
    span: Span = "score"
    score: str = "own"  # of gpuyard.engine.slots.SCORES
    network: Network | None = None

    @property
    def label(self) -> str:
        return _label(self.name, self.params, parameters_of(self.function, 4) if self.function else {})

    def address(self) -> int:
        if self.network is not None:
            return place_by_network()
        return compile_scores(self.function, len(self.params)) if self.function else 0


@dataclass(frozen=True)
class Backfill:
    """Who may pass the head of the queue; `depth` jobs behind it are looked at (0: all)."""

    name: str
    title: str = ""
    depth: int = 0

    @property
    def params(self) -> Params:
        return (("depth", float(self.depth)),)

    @property
    def label(self) -> str:
        return _label(self.name, self.params, {"depth": 0.0})


@dataclass(frozen=True)
class Preemption:
    """Who may be stopped for the head: running jobs with a higher `function(jobs, j, now, *params)` than its own."""

    name: str
    title: str
    function: Function | None = None
    params: Params = ()
    every: float = 0.0  # s between timer events; 0: none
    builtin: bool = False

    def __post_init__(self) -> None:
        check_period(self.every, f"preemption {self.name}")

    @property
    def label(self) -> str:
        defaults = parameters_of(self.function, 3) if self.function else {}
        defaults["every"] = PREEMPTIONS[self.name].every if self.name in PREEMPTIONS else 0.0
        return _label(self.name, (*self.params, ("every", self.every)), defaults)

    def address(self) -> int:
        return compile_keys(self.function, len(self.params), cached=self.builtin) if self.function else 0


@dataclass(frozen=True)
class Scheduler:
    """One policy in each slot."""

    ordering: Ordering
    placement: Placement
    backfill: Backfill
    preemption: Preemption

    def __post_init__(self) -> None:
        half_life_of((self,))  # refuses what no usage can decay with

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage halves that this scheduler wants to see."""
        return half_life_of((self,)) or HALF_LIFE

    @property
    def label(self) -> str:
        """`ordering/placement/backfill/preemption`, without what is the default at its end."""
        labels = [slot.label for slot in (self.ordering, self.placement, self.backfill, self.preemption)]
        least = 3 if self.ordering.network or self.placement.network else 1  # a checkpoint's name alone means its own slots
        while len(labels) > least and labels[-1] == DEFAULT_SLOTS[len(labels) - 1]:
            labels.pop()
        return "/".join(labels)

    def slot(self) -> Slot:
        """Compiled, as the engine takes it."""
        return Slot(
            ordering=self.ordering.address(),
            reads_clock=self.ordering.clock,
            score=SCORES.index(self.placement.score),
            placement=self.placement.address(),
            span=SPANS.index(self.placement.span),
            backfill=BACKFILL_CODES.index(self.backfill.name),
            depth=self.backfill.depth,
            preemption=self.preemption.address(),
            ordering_params=_values(self.ordering),
            placement_params=_values(self.placement),
            preemption_params=_values(self.preemption),
            ordering_network=self.ordering.network.address if self.ordering.network else 0,
            placement_network=self.placement.network.address if self.placement.network else 0,
        )

    @property
    def networks(self) -> tuple[Network, ...]:
        return tuple(slot.network for slot in (self.ordering, self.placement) if slot.network)

    def program(self) -> Program:
        return Program(
            (self.slot(),), self.label, timer=self.preemption.every, half_life=half_life_of((self,)),
            scratch=scratch_for(self.networks), keep=self.networks,
        )  # fmt: skip

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """What this scheduler would do now; used where a real cluster is driven, and step by step."""
        return decide_once(self.program(), snapshot)


@dataclass(frozen=True)
class Switch:
    """A rule `function(system, now, *params)` that names (by position) the scheduler to use from now on."""

    name: str
    title: str
    function: Function | None  # None: a network
    params: Params = ()
    builtin: bool = False
    network: Network | None = None

    @property
    def label(self) -> str:
        return _label(self.name, self.params, parameters_of(self.function, 2) if self.function else {})

    def address(self) -> int:
        if self.function is None:
            return switch_by_network()
        return compile_switch(self.function, len(self.params), cached=self.builtin)


@dataclass(frozen=True)
class Meta:
    """Several schedulers and a rule that switches between them, at every pass or every `every` seconds."""

    schedulers: tuple[Scheduler, ...]
    rule: Switch
    every: float = 0.0

    def __post_init__(self) -> None:
        check_period(self.every, f"meta {self.rule.name}")
        half_life_of(self.schedulers)
        network = self.rule.network
        if network is not None and not network.spec.actions == len(self.schedulers) <= OUTPUTS:
            which = f"the network chooses among {network.spec.actions} schedulers, and {len(self.schedulers)} are given"
            raise UsageError(f"{self.rule.name}: {which}", hint=f"as many as it was trained with, at most {OUTPUTS}")

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage halves that its schedulers want to see."""
        return half_life_of(self.schedulers) or HALF_LIFE

    @property
    def label(self) -> str:
        if self.rule.network is not None:
            return self.rule.name  # its checkpoint says all
        period = f"@{_number(self.every)}" if self.every else ""
        return f"meta:{self.rule.label}({', '.join(s.label for s in self.schedulers)}){period}"

    def program(self) -> Program:
        rule = self.rule
        made = program_of(self.schedulers, self.label, self.every, (rule.network,) if rule.network else ())
        address = rule.network.address if rule.network else 0
        return replace(made, switch=rule.address(), switch_params=_values(rule), switch_every=self.every, network=address)

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """What the scheduler that the rule names would do now (with a period, the rule is asked at every call)."""
        return decide_once(self.program(), snapshot)


def program_of(schedulers: Sequence[Scheduler], label: str, every: float, networks: tuple[Network, ...] = ()) -> Program:
    """Several schedulers and no rule yet that switches between them, every `every` seconds or at every pass; `networks` of that rule."""
    own = next((s.preemption.every for s in schedulers if s.preemption.every > 0), 0.0)
    every_network = (*(network for s in schedulers for network in s.networks), *networks)
    return Program(
        tuple(s.slot() for s in schedulers), label, timer=every or own, half_life=half_life_of(schedulers),
        scratch=scratch_for(every_network), keep=every_network,
    )  # fmt: skip


def _values(policy: Parametrised) -> tuple[float, ...]:
    return tuple(value for _, value in policy.params)


class Decides(Protocol):
    """What needs the whole queue, a solver or a network: asked at every decision point. One object serves one simulation.

    A `report()` method, if it has one, says afterwards what it did; it goes into the result's manifest.
    """

    def decide(self, snapshot: Snapshot) -> list[Decision]: ...


@dataclass(frozen=True)
class Several:
    """Schedulers that a decider chooses from."""

    schedulers: tuple[Scheduler, ...]

    def __post_init__(self) -> None:
        if len(self.schedulers) < 2:
            raise UsageError(f"{len(self.schedulers)} schedulers to choose from", hint="give at least two: (fcfs, sjf/best/easy)")
        half_life_of(self.schedulers)

    @property
    def label(self) -> str:
        return ", ".join(scheduler.label for scheduler in self.schedulers)

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage halves that they want to see."""
        return half_life_of(self.schedulers) or HALF_LIFE


@dataclass(frozen=True)
class Decider:
    """A class with `decide(snapshot)`, its parameters, and the scheduler, or the several, that it builds on (None: on none).

    `every`, if it is a parameter, is the period in seconds at which it is also asked, as long as jobs wait.
    """

    name: str
    title: str
    make: Callable[..., Decides]
    params: Params = ()
    inner: Scheduler | Several | None = None

    def __post_init__(self) -> None:
        check_period(self.every, f"decider {self.name}")

    @property
    def label(self) -> str:
        inner = f"({self.inner.label})" if self.inner else ""
        return _label(self.name, self.params, decider_parameters(self.make)) + inner

    @property
    def every(self) -> float:
        return dict(self.params).get("every", 0.0)

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage in its snapshots halves."""
        return self.inner.half_life if self.inner else HALF_LIFE

    def begin(self) -> Decides:
        """A fresh one, for one simulation."""
        given = dict(self.params)
        return self.make(self.inner, **given) if self.inner else self.make(**given)


AnyScheduler = Scheduler | Meta | Decider


# ── registries ──

ORDERINGS: Registry[Ordering] = Registry("ordering")
PLACEMENTS: Registry[Placement] = Registry("placement")
BACKFILLS: Registry[Backfill] = Registry("backfill")
PREEMPTIONS: Registry[Preemption] = Registry("preemption")
SWITCHES: Registry[Switch] = Registry("switch rule")
DECIDERS: Registry[Decider] = Registry("decider")

F = TypeVar("F", bound=Function)


def reads_clock(function: Function) -> bool:
    """Whether the function's third argument (now) is used at all, or the users' usage, which changes with time alone."""
    code = function.__code__
    name = code.co_varnames[2]
    return name in code.co_cellvars or any(_loads(i, name) for i in dis.get_instructions(function)) or reads_usage(function)


@cache
def reads_usage(function: Function) -> bool:
    """Whether the function, or one of its module that it calls, reads `jobs.usage`. Another thing of that name costs only time."""
    seen: set[Function] = set()
    todo = [function]
    while todo:
        each = todo.pop()
        seen.add(each)
        if _names(each.__code__, "usage"):
            return True
        called = (each.__globals__.get(name) for name in each.__code__.co_names)
        todo += [f for f in called if inspect.isfunction(f) and f.__module__ == each.__module__ and f not in seen]
    return False


def _names(code: CodeType, name: str) -> bool:
    """Whether the name occurs in the code, or in that of a function inside it."""
    return name in code.co_names or name in code.co_consts or any(isinstance(c, CodeType) and _names(c, name) for c in code.co_consts)


def half_life_of(schedulers: Sequence[Scheduler]) -> float:
    """Seconds in which the users' usage halves that these schedulers read; 0: none of them reads it."""
    slots = [slot for s in schedulers for slot in (s.ordering, s.placement, s.preemption)]
    readers = [dict(slot.params) for slot in slots if slot.function is not None and reads_usage(slot.function)]
    given = sorted({params["half_life"] for params in readers if "half_life" in params})
    if len(given) > 1:
        what = f"half_life = {given[0]:g} s and half_life = {given[1]:g} s in one scheduler"
        raise UsageError(what, hint="usage is kept with one half-life: give all of its policies the same")
    return check_half_life(given[0] if given else HALF_LIFE) if readers else 0.0


def _loads(instruction: dis.Instruction, name: str) -> bool:
    names = instruction.argval if isinstance(instruction.argval, tuple) else (instruction.argval,)  # from 3.13 loads are fused in pairs
    return name in names and "LOAD" in instruction.opname


def make_ordering(function: Function, name: str, title: str = "", *, builtin: bool = False, source: str = "") -> Ordering:
    """An ordering from a plain function; its keyword arguments become parameters."""
    params = tuple(parameters_of(function, 3).items())
    return Ordering(name, title or _summary(function), function, params, reads_clock(function), builtin, source)


def ordering(name: str, *, title: str = "", source: str = "") -> Callable[[F], F]:
    """Register an ordering. The function stays callable as it is."""

    def register(function: F) -> F:
        ORDERINGS.add(name, make_ordering(function, name, title, builtin=_ours(function), source=source))
        return function

    return register


def preemption(name: str, *, title: str = "", every: float = 0.0) -> Callable[[F], F]:
    """Register a preemption rule."""

    def register(function: F) -> F:
        PREEMPTIONS.add(name, make_preemption(function, name, title, every=every, builtin=_ours(function)))
        return function

    return register


def make_preemption(function: Function, name: str, title: str = "", *, every: float = 0.0, builtin: bool = False) -> Preemption:
    """A preemption rule from a plain function."""
    return Preemption(name, title or _summary(function), function, tuple(parameters_of(function, 3).items()), every, builtin)


def placement(name: str, *, title: str = "", span: Span = "score") -> Callable[[F], F]:
    """Register a placement."""

    def register(function: F) -> F:
        PLACEMENTS.add(name, make_placement(function, name, title, span=span))
        return function

    return register


def make_placement(function: Function, name: str, title: str = "", *, span: Span = "score") -> Placement:
    """A placement from a plain function."""
    return Placement(name, title or _summary(function), function, tuple(parameters_of(function, 4).items()), span)


def switch(name: str, *, title: str = "") -> Callable[[F], F]:
    """Register a switch rule."""

    def register(function: F) -> F:
        SWITCHES.add(name, make_switch(function, name, title, builtin=_ours(function)))
        return function

    return register


def make_switch(function: Function, name: str, title: str = "", *, builtin: bool = False) -> Switch:
    """A switch rule from a plain function."""
    return Switch(name, title or _summary(function), function, tuple(parameters_of(function, 2).items()), builtin)


D = TypeVar("D", bound=Callable[..., Any])


def decider(name: str, *, title: str = "", inner: Scheduler | Several | None = None) -> Callable[[D], D]:
    """Register a class `(*, parameter=number …)` with `decide(snapshot)`; with `inner` it takes a scheduler, or several, first."""

    def register(make: D) -> D:
        DECIDERS.add(name, make_decider(make, name, title, inner=inner))
        return make

    return register


def make_decider(make: Callable[..., Decides], name: str, title: str = "", *, inner: Scheduler | Several | None = None) -> Decider:
    """A decider from a class."""
    return Decider(name, title or _summary(make), make, tuple(decider_parameters(make).items()), inner)


def decider_parameters(make: Callable[..., Any]) -> dict[str, float]:
    """The keyword-only arguments of a decider's class, which are numbers."""
    keyword = [p for p in inspect.signature(make).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for parameter in keyword:
        if not isinstance(parameter.default, (int, float)):
            raise PolicyError(f"{make.__name__}: parameter {parameter.name!r} needs a number as its default")
    return {parameter.name: float(parameter.default) for parameter in keyword}


def _ours(function: Function) -> bool:
    """Whether the function is part of this package, whose files do not change between runs (so its code may be cached)."""
    return function.__module__.startswith("gpuyard.")


def _summary(function: Function) -> str:
    return (function.__doc__ or function.__name__).strip().splitlines()[0]
