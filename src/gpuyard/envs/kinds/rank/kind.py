"""Rank: options, baselines, start and explanation of the decision how long a job is judged to hold its devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NoReturn, cast

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.rows.ranking import RANK_NETWORK
from gpuyard.engine.slots import Program
from gpuyard.envs.base import Instance, Judge
from gpuyard.envs.kinds.base import ENVS, Criterion, EnvKind, Explaining, instances_of
from gpuyard.envs.kinds.engine import PICKED, EngineOptions, scheduler_of
from gpuyard.envs.kinds.rank.seen import judged_at
from gpuyard.envs.opened import OpenDecision, Opened
from gpuyard.envs.reward import MIX_SECONDS
from gpuyard.envs.rollout import Rollouts
from gpuyard.errors import UsageError
from gpuyard.features.ranks import RANK
from gpuyard.metrics import measure
from gpuyard.model.estimator import fitted_before
from gpuyard.model.result import Result
from gpuyard.model.snapshot import HALF_LIFE
from gpuyard.networks.inside import judge_by_network
from gpuyard.networks.network import Network
from gpuyard.networks.spec import NetworkSpec
from gpuyard.policies import Scheduler, parse_slots
from gpuyard.policies.learned import network_rank
from gpuyard.policies.ranks import GITTINS, NamedTable
from gpuyard.policies.slots import DEFAULT_TABLE
from gpuyard.traces.recipes import EpisodeSource, episode_number


class OpenRank(OpenDecision):
    """Judge the times of all jobs that may be stopped, at every pass. It is asked inside the engine alone."""

    code = st.OPEN_NONE
    schema = RANK

    def rows(self, opened: Opened, nodes: int) -> int:
        return 0

    def closed(self, program: Program, network: Network, opened: Opened) -> Program:
        slot = replace(program.slots[0], preemption=judge_by_network(), rank=RANK_NETWORK, rank_network=network.address)
        return replace(program, slots=(slot,), half_life=HALF_LIFE)

    def use(self, state: st.State, address: int) -> None:
        state.slots["rank_network"][:1] = address

    def question(self, legal: int, active: str) -> str:
        return f"in use: {active}"


@dataclass(frozen=True)
class JudgeTimes(EngineOptions):
    """The rank is left open: a network multiplies the times of a table of run times."""

    objective: str = "mix"
    placement: str = "fewest"
    table: str = DEFAULT_TABLE  # a name or a path

    def text(self, preemption: str) -> str:
        """Return the scheduler with this rank rule."""
        return f"saf/{self.placement}/easy/{preemption}"

    @property
    def by_table(self) -> str:
        """The scheduler that ranks by the table alone."""
        return self.text(GITTINS if self.table == DEFAULT_TABLE else f"{GITTINS}:table={self.table}")

    def scheduler(self, network: Network) -> Scheduler:
        return replace(parse_slots(self.by_table), preemption=network_rank(network, PICKED, NamedTable(self.table)))

    def left_open(self) -> Opened:
        return self._opened(OpenRank(), parse_slots(self.by_table).program())


class RankEpisodes:
    """Episodes that are run as a whole with a network as the rank: it is asked for every job at every pass, so nothing can be stepped."""

    schema = RANK
    actions = 0

    def __init__(self, opened: Opened, episodes: Sequence[Instance], count: int, threads: int) -> None:
        self.count = count
        self._opened, self._episodes, self._threads = opened, episodes, threads

    def rollouts(self, like: Network, *, threads: int = 0) -> Judge:
        """Return the episodes, to be run with networks of the shape of `like`; 0 threads: as many as the options say."""
        return Rollouts(self._opened, self._episodes, like, threads=threads or self._threads)

    def _refuse(self, *_: object) -> NoReturn:
        raise UsageError("a rank is learned from whole episodes, not step by step", hint="--learner evolution")

    reset = step = save = restore = _refuse


def rank_episodes(source: EpisodeSource, options: JudgeTimes, count: int, seed: int) -> RankEpisodes:
    made: Callable[[int], Instance] = instances_of(source)
    first = episode_number(seed, 0, 0)
    pairs = map(made, range(first, first + min(options.pool, source.size)))
    return RankEpisodes(options.left_open(), [(fitted_before(workload), cluster) for workload, cluster in pairs], count, options.threads)


def as_the_table(spec: NetworkSpec, arrays: Mapping[str, Array]) -> Mapping[str, Array]:
    """Return the weights with a last layer of zeros: the network's score is 0, and the rank exactly that of the table."""
    last = f"head.{len(spec.head_layers)}."
    return {name: np.zeros_like(array) if name.startswith(last) else array for name, array in arrays.items()}


def _mixed(options: JudgeTimes) -> Criterion:
    def mix(result: object) -> float:
        found = measure(cast(Result, result), ["bsld", "turnaround"])
        return found["bsld"] + found["turnaround"] / MIX_SECONDS

    return Criterion("mix", "lower", mix)


ENVS.add(
    "Rank",
    EnvKind(
        "Rank", "how long each job that may be stopped is judged to hold its devices", RANK, JudgeTimes, rank_episodes, scheduler_of,
        lambda options: (options.by_table, f"saf/{options.placement}/easy"), "mix",
        objectives={"mix": _mixed}, metrics=("turnaround", "bsld", "waiting", "waiting.p99"),
        choices=lambda options: {"placement": options.placement, "table": options.table},
        text=lambda name, options: options.text(name), starts={GITTINS: as_the_table},
        opponents=lambda options: tuple(options.text(name) for name in ("srpt-area", "las-log2")),
        explaining=Explaining(waiting=2, snapshots=120, judged=judged_at),
        example="demo:jobs=512,load=1.0", entry_point="", vector_entry_point=None,
    ),
)  # fmt: skip
