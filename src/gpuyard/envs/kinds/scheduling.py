"""The environments on the engine: which job next, which host, which scheduler."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.arrays import Array
from gpuyard.compat.rlscheduler.rules import RLSCHEDULER_ORDERINGS
from gpuyard.engine import state as st
from gpuyard.engine.slots import Program
from gpuyard.envs.kinds.base import ENVS, EnvKind
from gpuyard.envs.reward import OBJECTIVES
from gpuyard.envs.rules import RULES, WholeEpisodes, check_rules, run_by
from gpuyard.envs.vector import EngineEnvs, Opened
from gpuyard.errors import UsageError
from gpuyard.features.hosts import HOST
from gpuyard.features.jobs import JOB
from gpuyard.features.schema import Schema
from gpuyard.features.system import SWITCH
from gpuyard.model.result import Result
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Decider, Meta, Scheduler, parse_scheduler, parse_slots
from gpuyard.policies.deciders.online import HEURISTICS
from gpuyard.policies.learned import network_ordering, network_placement, network_switch
from gpuyard.policies.schedulers import program_of
from gpuyard.traces.recipes import Episode, Source, episode_number

PICKED = "learned"  # the name of a policy under training


@dataclass(frozen=True)
class Common(ABC):
    """What all three have: how choices are rewarded, and how many episodes there are."""

    objective: str = "bsld"
    weights: tuple[str, ...] = ()  # TERM=WEIGHT, in place of those of the objective
    baseline: str = ""  # a scheduler; rewards are then shares of what it pays
    bonus: bool = True  # with a baseline, its own share is added at the end: a return above 0 is better; False: only the scale is its own
    shaping: float = 0.0  # 1: unfinished jobs are charged as time passes; the best policy stays the same
    gamma: float = 1.0  # of the learner, for `shaping`; `gpuyard train` takes the learner's unless given
    pool: int = 512  # episodes, made once; environments take them in random order
    threads: int = 2

    def __post_init__(self) -> None:
        OBJECTIVES[self.objective]  # refuses an unknown name
        self.parsed_weights()
        if self.pool < 1 or not 1 <= self.threads <= 256:
            raise UsageError(f"a pool of {self.pool} episodes and {self.threads} threads: at least one of each")

    def parsed_weights(self) -> dict[str, float]:
        """Term → weight."""
        found = {}
        for text in self.weights:
            name, _, value = text.partition("=")
            try:
                found[name.strip()] = float(value)
            except ValueError:
                raise UsageError(f"weight {text!r} is not TERM=NUMBER", hint="e.g. missed=-5") from None
        OBJECTIVES[self.objective].with_weights(found)
        return found

    @abstractmethod
    def left_open(self) -> Opened:
        """The simulation in which the decision is left open."""

    def _opened(self, decision: int, program: Program, **more: Any) -> Opened:
        """The simulation with that decision left open."""
        objective = OBJECTIVES[self.objective].with_weights(self.parsed_weights())
        baseline = parse_scheduler(self.baseline) if self.baseline else None
        if isinstance(baseline, Decider):
            raise UsageError(
                f"baseline {self.baseline!r} is asked from Python at every decision", hint="give one that is compiled, e.g. sjf"
            )
        return Opened(
            decision, program, objective=objective, shaping=self.shaping, gamma=self.gamma, baseline=baseline, bonus=self.bonus, **more
        )


def make_envs(source: Source, options: Common, count: int, seed: int, *, recorded: bool = False) -> EngineEnvs:
    """`count` environments over a pool of episodes; `recorded`: their results are complete, with timelines and who held which devices."""
    opened = replace(options.left_open(), recorded=recorded)
    first = episode_number(seed, 0, 0)
    numbers = [first + k for k in range(min(options.pool, source.size))]  # in a row: they go through all combinations

    def made(number: int) -> Any:
        episode = source.episode(number)
        return episode.workload, episode.cluster

    rules = getattr(options, "rules", ())
    if rules:
        return WholeEpisodes(opened, made, numbers, count, rules, options.baseline, threads=options.threads)
    return EngineEnvs(opened, made, numbers, count, threads=options.threads)


# ── which job next ──


@dataclass(frozen=True)
class PickJob(Common):
    """The ordering is left open: choose among the first `window` waiting jobs, in the order of `ordering`."""

    ordering: str = "fcfs"
    placement: str = "fewest"
    backfill: str = "none"
    window: int = 128
    rules: tuple[str, ...] = ()  # of gpuyard.envs.rules: each episode is run, as a whole, by each of them; none: `backfill` alone

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rules(self.rules)

    def scheduler(self) -> Scheduler:
        return parse_slots(f"{self.ordering}/{self.placement}/{self.backfill}")

    @property
    def compatible(self) -> bool:
        """Whether some of the rules know few orderings."""
        return any(RULES[name].compatible for name in self.rules)

    def left_open(self) -> Opened:
        return self._opened(st.OPEN_ORDERING, self.scheduler().program(), window=self.window)


def _job_results(episode: Episode, scheduler: Scheduler, options: PickJob) -> list[Result]:
    run = episode.workload, episode.cluster
    return [run_by(name, run, scheduler, episode.seed) for name in options.rules or (options.backfill,)]


def _job_scheduler(spec: NetworkSpec, arrays: Mapping[str, Array], options: PickJob) -> Scheduler:
    return replace(options.scheduler(), ordering=network_ordering(Network.of(spec, arrays), PICKED))


def _job_baselines(options: PickJob) -> tuple[str, ...]:
    orderings = RLSCHEDULER_ORDERINGS if options.compatible else ("fcfs", "sjf", "saf", "f1", "wfp3", "unicep", "smallest")
    return tuple(f"{ordering}/{options.placement}/{options.backfill}" for ordering in orderings)


# ── which host ──


@dataclass(frozen=True)
class PickHost(Common):
    """The placement is left open: choose a node for each job that can start, in the order of `ordering`."""

    objective: str = "wait"
    ordering: str = "fcfs"
    backfill: str = "none"

    def scheduler(self, placement: str = "first") -> Scheduler:
        return parse_slots(f"{self.ordering}/{placement}/{self.backfill}")

    def left_open(self) -> Opened:
        return self._opened(st.OPEN_PLACEMENT, self.scheduler().program())


def _host_scheduler(spec: NetworkSpec, arrays: Mapping[str, Array], options: PickHost) -> Scheduler:
    return replace(options.scheduler(), placement=network_placement(Network.of(spec, arrays), PICKED))


def _host_baselines(options: PickHost) -> tuple[str, ...]:
    return tuple(options.scheduler(placement).label for placement in ("first", "best", "worst", "balance", "packing", "random"))


# ── which scheduler ──


@dataclass(frozen=True)
class Switch(Common):
    """The choice of the scheduler is left open: every `every` seconds while jobs wait, or at every pass."""

    objective: str = "balanced"
    schedulers: tuple[str, ...] = HEURISTICS
    every: float = 60.0  # s; 0: at every pass

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(self.schedulers) <= st.OUTPUTS:
            raise UsageError(f"{len(self.schedulers)} schedulers to choose from; from 2 to {st.OUTPUTS}")

    def meta(self, network: Network) -> Meta:
        return Meta(tuple(parse_slots(text) for text in self.schedulers), network_switch(network, PICKED), self.every)

    def left_open(self) -> Opened:
        program = program_of([parse_slots(text) for text in self.schedulers], "open", self.every)
        return self._opened(st.OPEN_SWITCH, program, every=self.every)


def _switch_scheduler(spec: NetworkSpec, arrays: Mapping[str, Array], options: Switch) -> Meta:
    return options.meta(Network.of(spec, arrays))


def _kind(name: str, title: str, schema: Schema, options: type[Any], alias: str, **more: Any) -> None:
    ENVS.add(name, EnvKind(name, title, schema, options, aliases=(alias,), **more))


_kind(
    "PickJob", "which waiting job goes next", JOB, PickJob, "job", make=make_envs, scheduler=_job_scheduler, baselines=_job_baselines,
    results=_job_results, example="lublin:jobs=256,nodes=256,load=0.9|1.1 on 32x8:gpu",
    choices=lambda options: {"placement": options.placement, "backfill": options.backfill},
)  # fmt: skip
_kind(
    "PickHost", "which node a job gets", HOST, PickHost, "host", make=make_envs, scheduler=_host_scheduler, baselines=_host_baselines,
    objective="wait",
    example="eda:jobs=500,arrivals=0.35:1.1,cores=1:16,memory=1:128 on hosts:count=50,cores=8:64,memory=32:512,seed={seed}",
    choices=lambda options: {"ordering": options.ordering, "backfill": options.backfill},
)  # fmt: skip
_kind(
    "Switch", "which scheduler is in use", SWITCH, Switch, "meta", make=make_envs, scheduler=_switch_scheduler,
    baselines=lambda options: options.schedulers, objective="balanced",
    choices=lambda options: {"schedulers": list(options.schedulers), "period": options.every},
)  # fmt: skip
