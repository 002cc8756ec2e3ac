"""Schedulers: four filled slots, several of them with a rule that switches, or a class that decides by itself."""

from __future__ import annotations

import inspect
import traceback
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, TypeVar, cast

from gpuyard.engine.compiler.compile import compile_switch, parameters_of
from gpuyard.engine.decide import DeciderPool, SnapshotDecider
from gpuyard.engine.slots import BACKFILLS, SCORES, SPANS, Program, Slot, check_half_life
from gpuyard.engine.state import FACTOR_ROW, OUTPUTS
from gpuyard.errors import GpuyardError, PolicyError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.decision import Decision
from gpuyard.model.snapshot import HALF_LIFE, Snapshot
from gpuyard.model.units import shorten
from gpuyard.policies.slots import (
    DEFAULT_SLOTS,
    Backfill,
    F,
    Function,
    FunctionPolicy,
    Ordering,
    Params,
    Placement,
    Preemption,
    TrainedNetwork,
    check_period,
    filled,
    is_builtin,
    label_of,
    reads,
    reads_usage,
    short_number,
    summary_of,
    values_of,
)
from gpuyard.registry import Registry
from gpuyard.views import Displayed

FACTORS = tuple(FACTOR_ROW.names or ())


@dataclass(frozen=True)
class CompiledScheduler(ABC):
    """A scheduler that the engine carries out as a compiled program."""

    _pool: DeciderPool = field(default_factory=DeciderPool, init=False, repr=False, compare=False)

    def program(self) -> Program:
        """Return the scheduler as the engine takes it; its policies are compiled on first use."""
        return self._pool.program(self._made)

    @abstractmethod
    def _made(self) -> Program:
        """Make the program; it is kept."""

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Return what this scheduler would do now. No past is known: with a period, the rule that switches is asked at every call."""
        return self._pool.decide(self.program, snapshot)

    def begin(self) -> SnapshotDecider:
        """Make a decider for one simulation or cluster, and one thread. It remembers the period, and the past that a network sees."""
        return SnapshotDecider(self.program())


@dataclass(frozen=True, init=False)
class Scheduler(Displayed, CompiledScheduler):
    """One policy in each slot: `Scheduler(ordering=my_function, backfill="easy")`.

    A slot takes a policy, the text that names one (`sjf`, `wfp3:power=2`, `./mine.py:rule`, a checkpoint) or a plain function.
    What is left out is first come, first served, on the fewest nodes, without backfilling and preemption.
    """

    ordering: Ordering
    placement: Placement
    backfill: Backfill
    preemption: Preemption

    def __init__(
        self,
        ordering: Ordering | Function | str = DEFAULT_SLOTS[0],
        placement: Placement | Function | str = DEFAULT_SLOTS[1],
        backfill: Backfill | str = DEFAULT_SLOTS[2],
        preemption: Preemption | Function | str = DEFAULT_SLOTS[3],
    ) -> None:
        given = {"ordering": ordering, "placement": placement, "backfill": backfill, "preemption": preemption}
        for name, slot in given.items():
            object.__setattr__(self, name, filled(name, slot))
        object.__setattr__(self, "_pool", DeciderPool())
        half_life_of((self,))  # refuses two half-lives in one scheduler
        if self.preemption.rank and (self.ordering.name != "saf" or self.backfill.name != "easy" or self.backfill.depth):
            what = f"preemption {self.preemption.name} orders and backfills by itself, as an extension of saf and easy"
            raise UsageError(what, hint=f"write saf/{self.placement.label}/easy/{self.preemption.label}")

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage halves that this scheduler wants to see."""
        return half_life_of((self,)) or HALF_LIFE

    @property
    def label(self) -> str:
        """`ordering/placement/backfill/preemption`, without the defaults at its end."""
        labels = [slot.label for slot in (self.ordering, self.placement, self.backfill, self.preemption)]
        least = 3 if self.ordering.network or self.placement.network else 1  # a checkpoint's name alone means its own slots
        while len(labels) > least and labels[-1] == DEFAULT_SLOTS[len(labels) - 1]:
            labels.pop()
        return "/".join(labels)

    def slot(self) -> Slot:
        """Compile the policies and return them as the engine takes them."""
        return Slot(
            ordering=self.ordering.address(),
            reads_clock=self.ordering.clock,
            alike=self.ordering.alike,
            score=SCORES[self.placement.score],
            placement=self.placement.address(),
            span=SPANS[self.placement.span],
            backfill=BACKFILLS[self.backfill.name],
            depth=self.backfill.depth,
            preemption=self.preemption.address(),
            ordering_params=values_of(self.ordering),
            placement_params=values_of(self.placement),
            preemption_params=values_of(self.preemption),
            rank=self.preemption.rank,
            rank_settings=getattr(self.preemption, "settings", ()),
            run_times=table.packed if (table := getattr(self.preemption, "table", None)) else (),
            ordering_network=self.ordering.network.address if self.ordering.network else 0,
            placement_network=self.placement.network.address if self.placement.network else 0,
            rank_network=self.preemption.network.address if self.preemption.network else 0,
        )

    @property
    def networks(self) -> tuple[TrainedNetwork, ...]:
        return tuple(slot.network for slot in (self.ordering, self.placement, self.preemption) if slot.network)

    def _made(self) -> Program:
        return program_of((self,), self.label, 0.0)


@dataclass(frozen=True)
class Switch(FunctionPolicy):
    """A rule `function(system, now, *params)` that names (by position) the scheduler to use from now on."""

    builtin: bool = False
    arguments = 2

    def compiled(self, function: Function) -> int:
        return compile_switch(function, len(self.params), cached=self.builtin)


@dataclass(frozen=True)
class Meta(Displayed, CompiledScheduler):
    """Several schedulers and a rule that switches between them, at every pass or every `every` seconds."""

    schedulers: tuple[Scheduler, ...]
    rule: Switch
    every: float = 0.0

    def __post_init__(self) -> None:
        check_period(self.every, f"meta {self.rule.name}")
        half_life_of(self.schedulers)
        network = self.rule.network
        if network is not None and not network.actions == len(self.schedulers) <= OUTPUTS:
            which = f"the network chooses among {network.actions} schedulers, and {len(self.schedulers)} are given"
            raise UsageError(f"{self.rule.name}: {which}", hint=f"as many as it was trained with, at most {OUTPUTS}")

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage halves that its schedulers want to see."""
        return half_life_of(self.schedulers) or HALF_LIFE

    @property
    def label(self) -> str:
        if self.rule.network is not None:
            return self.rule.name  # its checkpoint says all
        period = f"@{short_number(self.every)}" if self.every else ""
        return f"meta:{self.rule.label}({', '.join(s.label for s in self.schedulers)}){period}"

    def _made(self) -> Program:
        rule = self.rule
        made = program_of(self.schedulers, self.label, self.every, (rule.network,) if rule.network else ())
        address = rule.network.address if rule.network else 0
        return replace(made, switch=rule.address(), switch_params=values_of(rule), switch_every=self.every, network=address)


def program_of(schedulers: Sequence[Scheduler], label: str, every: float, networks: tuple[TrainedNetwork, ...] = ()) -> Program:
    """Make one program of several schedulers, with no rule yet that switches between them, every `every` seconds or at every pass.

    `networks` are those of that rule.
    """
    own = next((s.preemption.every for s in schedulers if s.preemption.every > 0), 0.0)
    calm = next((s.preemption.every for s in schedulers if s.preemption.every > 0 and not s.preemption.rank), 0.0)
    every_network = (*(network for s in schedulers for network in s.networks), *networks)
    return Program(
        tuple(s.slot() for s in schedulers), label, timer=every or own, calm_timer=every or calm, half_life=half_life_of(schedulers),
        factors=any(reads(function, FACTORS) for function, _ in _functions(schedulers)),
        scratch=max((network.state_scratch for network in every_network), default=0), keep=every_network,
    )  # fmt: skip


def half_life_of(schedulers: Sequence[Scheduler]) -> float:
    """Seconds in which the users' usage halves that these schedulers read; 0: none of them reads it."""
    readers = [dict(params) for function, params in _functions(schedulers) if reads_usage(function)]
    given = sorted({params["half_life"] for params in readers if "half_life" in params})
    if len(given) > 1:
        what = f"half_life = {given[0]:g} s and half_life = {given[1]:g} s in one scheduler"
        raise UsageError(what, hint="usage is kept with one half-life: give all of its policies the same")
    judged = any(s.preemption.network is not None for s in schedulers)  # by a network that sees the users' usage
    return check_half_life(given[0] if given else HALF_LIFE) if readers or judged else 0.0


def _functions(schedulers: Sequence[Scheduler]) -> list[tuple[Function, Params]]:
    """Return the functions in the slots of these schedulers, with their parameters."""
    slots = [slot for s in schedulers for slot in (s.ordering, s.placement, s.preemption)]
    return [(slot.function, slot.params) for slot in slots if slot.function is not None]


# ── schedulers that are asked at every decision ──


class Decides(Protocol):
    """Decides from the whole queue, e.g. by a solver: asked at every decision point. One object serves one simulation.

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
class Decider(Displayed):
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
        return label_of(self.name, self.params, decider_parameters(self.make)) + inner

    @property
    def every(self) -> float:
        return dict(self.params).get("every", getattr(self.make, "period", 0.0))

    @property
    def half_life(self) -> float:
        """Seconds in which the users' usage in its snapshots halves."""
        return self.inner.half_life if self.inner else HALF_LIFE

    def begin(self) -> Decides:
        """Make a new one, for one simulation. Errors in a user's class name its file and line."""
        given = dict(self.params)
        if is_builtin(self.make):
            return self.make(self.inner, **given) if self.inner else self.make(**given)
        with _placed_errors(self.make, "cannot be made"):
            return OwnDecider(self.make(self.inner, **given) if self.inner else self.make(**given), self.make)


AnyScheduler = Scheduler | Meta | Decider


class Copies:
    """Makes deciders of an object that decides: each simulation gets a copy of it, or what its `begin()` makes."""

    def __init__(self, thing: object) -> None:
        self.thing = thing
        self.made_of = type(thing)
        self.period = float(getattr(thing, "every", 0.0))  # s
        self.__name__, self.__module__ = self.made_of.__name__, self.made_of.__module__

    def __call__(self) -> Decides:
        begin = getattr(self.thing, "begin", None)
        return cast(Decides, deepcopy(self.thing) if begin is None else begin())


class OwnDecider:
    """A user's decider, asked so that its errors name the user's file and line. The cluster that it sees is read-only."""

    def __init__(self, decider: Decides, made_by: Callable[..., Decides]) -> None:
        self._decider, self._made_by = decider, made_by
        self._clusters: tuple[Cluster, Cluster] | None = None  # that of the last snapshot, and as it is shown

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        if self._clusters is None or self._clusters[0] is not snapshot.cluster:
            self._clusters = snapshot.cluster, _read_only(snapshot.cluster)
        with _placed_errors(self._made_by, f"decide, at {snapshot.now:g} s"):
            decisions = self._decider.decide(replace(snapshot, cluster=self._clusters[1]))
        listed = decisions if isinstance(decisions, list | tuple) else None
        if listed is None or not all(isinstance(each, Decision) for each in listed):
            wrong = next(each for each in listed if not isinstance(each, Decision)) if listed else decisions
            raise PolicyError(f"{_place(self._made_by)}: decide returns {shorten(repr(wrong))}, not a list of Decision")
        return list(listed)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._decider, name)  # such as report()


def _read_only(cluster: Cluster) -> Cluster:
    """Return the cluster with columns that cannot be written to: those of a snapshot are shared with later simulations."""
    shown = {name: column.view() for name, column in cluster.nodes.columns.items()}
    for column in shown.values():
        column.flags.writeable = False
    return replace(cluster, nodes=replace(cluster.nodes, **shown))


def _place(made_by: Callable[..., Any], error: BaseException | None = None) -> str:
    """file:line name of a user's class, at the last line of its file that an error went through."""
    name = getattr(made_by, "__name__", repr(made_by))
    made_by = getattr(made_by, "made_of", made_by)
    try:
        file, line = inspect.getfile(made_by), inspect.getsourcelines(made_by)[1]
    except (OSError, TypeError):
        return name
    frames = traceback.extract_tb(error.__traceback__) if error else []
    return f"{file}:{next((each.lineno for each in reversed(frames) if each.filename == file), line)} {name}"


@contextmanager
def _placed_errors(made_by: Callable[..., Any], what: str) -> Iterator[None]:
    try:
        yield
    except GpuyardError:
        raise
    except Exception as error:
        raise PolicyError(f"{_place(made_by, error)}: {what}: {type(error).__name__}: {error}") from error


# ── registries ──

SWITCHES: Registry[Switch] = Registry("switch rule")
DECIDERS: Registry[Decider] = Registry("decider")
D = TypeVar("D", bound=Callable[..., Any])


def make_switch(function: Function, name: str, title: str = "", *, builtin: bool = False) -> Switch:
    """Make a switch rule of a plain function."""
    return Switch(name, title or summary_of(function), function, tuple(parameters_of(function, 2).items()), builtin)


def switch(name: str, *, title: str = "") -> Callable[[F], F]:
    """Register a switch rule `(system, now)`, which returns the number of the scheduler to use."""
    return SWITCHES.register(name, lambda function: make_switch(function, name, title, builtin=is_builtin(function)))


def make_decider(make: Callable[..., Decides], name: str, title: str = "", *, inner: Scheduler | Several | None = None) -> Decider:
    """Make a decider of a class."""
    return Decider(name, title or summary_of(make), make, tuple(decider_parameters(make).items()), inner)


def decider(name: str, *, title: str = "", inner: Scheduler | Several | None = None) -> Callable[[D], D]:
    """Register a class `(*, parameter=number …)` with `decide(snapshot)`; with `inner` it takes a scheduler, or several, first."""
    return DECIDERS.register(name, lambda make: make_decider(make, name, title, inner=inner))


def decider_parameters(make: Callable[..., Any]) -> dict[str, float]:
    """Return the keyword-only arguments of a decider's class, which are numbers."""
    keyword = [p for p in inspect.signature(make).parameters.values() if p.kind is inspect.Parameter.KEYWORD_ONLY]
    for parameter in keyword:
        if not isinstance(parameter.default, (int, float)):
            raise PolicyError(f"{make.__name__}: parameter {parameter.name!r} needs a number as its default")
    return {parameter.name: float(parameter.default) for parameter in keyword}
