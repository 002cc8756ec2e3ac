"""Parts shared by the kinds on the engine: options about rewards and episodes, and how a batch is made."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gpuyard.arrays import Array
from gpuyard.engine.slots import Program
from gpuyard.envs.base import Instance
from gpuyard.envs.kinds.base import instances_of
from gpuyard.envs.opened import OpenDecision, Opened
from gpuyard.envs.reward import OBJECTIVES
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import UsageError
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import AnyScheduler, Decider, parse_scheduler
from gpuyard.traces.recipes import EpisodeSource, episode_number

PICKED = "learned"  # the name of a policy under training


@dataclass(frozen=True)
class EngineOptions(ABC):
    """Options of every environment on the engine: how choices are rewarded, and how many episodes there are."""

    objective: str = "bsld"
    weights: tuple[str, ...] = ()  # TERM=WEIGHT, in place of those of the objective
    baseline: str = ""  # a scheduler; rewards are then shares of what it pays
    bonus: bool = True  # with a baseline, its own share is added at the end: a return above 0 is better; False: only the scale is its own
    shaping: float = 0.0  # 1: unfinished jobs are charged as time passes; the best policy stays the same
    foresight: bool = False  # with shaping: jobs are charged what they can no longer avoid, such as a deadline that is lost already
    gamma: float = 1.0  # of the learner, for `shaping`; `gpuyard train` takes the learner's unless given
    pool: int = 512  # episodes, made once; environments take them in random order
    threads: int = 2

    def __post_init__(self) -> None:
        OBJECTIVES[self.objective]  # refuses an unknown name
        self.parsed_weights()
        if self.pool < 1 or not 1 <= self.threads <= 256:
            raise UsageError(f"a pool of {self.pool} episodes and {self.threads} threads: at least one of each")

    def parsed_weights(self) -> dict[str, float]:
        """Return the weights by term."""
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
        """Return the simulation in which the decision is left open."""

    @abstractmethod
    def scheduler(self, network: Network) -> AnyScheduler:
        """Return the scheduler in which the network makes the decision."""

    def envs(self, opened: Opened, source: Callable[[int], Instance], numbers: Sequence[int], count: int) -> EngineEnvs:
        """Make a batch of environments over the episodes with these numbers."""
        return EngineEnvs(opened, source, numbers, count, threads=self.threads)

    def _opened(self, decision: OpenDecision, program: Program, **more: Any) -> Opened:
        """Leave the decision open in a program."""
        objective = OBJECTIVES[self.objective].with_weights(self.parsed_weights())
        baseline = parse_scheduler(self.baseline) if self.baseline else None
        if isinstance(baseline, Decider):
            raise UsageError(
                f"baseline {self.baseline!r} is asked from Python at every decision", hint="give one that is compiled, e.g. sjf"
            )
        return Opened(
            decision, program, objective=objective, shaping=self.shaping, foresight=self.foresight, gamma=self.gamma, baseline=baseline,
            bonus=self.bonus, **more,
        )  # fmt: skip


def scheduler_of(spec: NetworkSpec, arrays: Mapping[str, Array], options: EngineOptions) -> AnyScheduler:
    """Return the scheduler in which a network of these arrays makes the decision."""
    return options.scheduler(Network.of(spec, arrays))


def make_envs(source: EpisodeSource, options: EngineOptions, count: int, seed: int, *, recorded: bool = False) -> EngineEnvs:
    """Make `count` environments over a pool of episodes; `recorded`: their results have timelines, and which job held which devices."""
    opened = replace(options.left_open(), recorded=recorded)
    first = episode_number(seed, 0, 0)
    numbers = [first + k for k in range(min(options.pool, source.size))]  # in a row: they go through all combinations
    return options.envs(opened, instances_of(source), numbers, count)
