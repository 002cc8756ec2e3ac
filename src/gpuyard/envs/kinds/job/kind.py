"""PickJob: options, baselines, teachers and explanation of the decision which waiting job goes next."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.compat.rlscheduler.rules import RLSCHEDULER_ORDERINGS
from gpuyard.engine import state as st
from gpuyard.engine.kernels.open import LEGAL
from gpuyard.engine.slots import Program, Slot
from gpuyard.envs.base import Instance, Observation
from gpuyard.envs.decided import DecidedEnvs
from gpuyard.envs.kinds.base import ENVS, Answer, Demonstrator, EnvKind, Explaining, simulated
from gpuyard.envs.kinds.engine import PICKED, EngineOptions, make_envs, scheduler_of
from gpuyard.envs.kinds.job.rules import RULES, WholeEpisodes, check_rules, run_by
from gpuyard.envs.opened import OpenDecision, Opened, refuse_depth
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import UsageError
from gpuyard.features.jobs import JOB, JOB_TYPES
from gpuyard.model.result import Result
from gpuyard.networks.inside import order_by_network
from gpuyard.networks.network import Network
from gpuyard.policies import ORDERINGS, Decider, Scheduler, parse_filled
from gpuyard.policies.learned import network_ordering
from gpuyard.traces.recipes import Episode, EpisodeSource

HEURISTICS = ("fcfs", "sjf", "saf", "f1", "wfp3", "unicep", "smallest")
FURTHER = ("lcfs", "ljf", "largest", "multifactor")  # orderings that an evaluation adds; a validation in training has no time for them
STOPPING = ("las", "tiresias")  # orderings that only matter with the preemption rule of the same name


class OpenOrdering(OpenDecision):
    """Choose one of the first `window` waiting jobs."""

    code = st.OPEN_ORDERING
    schema = JOB

    def rows(self, opened: Opened, nodes: int) -> int:
        return opened.window

    def check(self, slots: Sequence[Slot]) -> None:
        if any(slot.preempts for slot in slots):
            raise UsageError("with the ordering left open there is no preemption")
        refuse_depth(slots)

    def prepare(self, control: Array, opened: Opened) -> None:
        control["tracking"] = 1  # as where a network orders

    def closed(self, program: Program, network: Network, opened: Opened) -> Program:
        slot = replace(program.slots[0], ordering=order_by_network(), reads_clock=st.CLOCK_STATE, ordering_network=network.address)
        return replace(program, slots=(slot,))

    def use(self, state: st.State, address: int) -> None:
        state.slots["ordering_network"][:1] = address

    def question(self, legal: int, active: str) -> str:
        return f"{legal} jobs may go next"

    def offers(self, s: st.State, position: int, job: int) -> bool:
        return position < min(len(s.legal), int(s.control["window"][0])) and bool(s.legal[position] & LEGAL)


class OpenTypedOrdering(OpenOrdering):
    """Choose one of the first `window` waiting jobs, with GPU types and speeds in sight."""

    schema = JOB_TYPES


@dataclass(frozen=True)
class PickJob(EngineOptions):
    """The ordering is left open: choose among the first `window` waiting jobs, in the order of `ordering`."""

    opens: ClassVar[OpenOrdering] = OpenOrdering()
    ordering: str = "fcfs"
    placement: str = "fewest"  # or a decider that builds on a scheduler: `milp:k=8`
    backfill: str = "none"
    window: int = 128
    rules: tuple[str, ...] = ()  # of gpuyard.envs.kinds.job.rules: each episode is run as a whole by each of them; none: `backfill` alone

    def __post_init__(self) -> None:
        super().__post_init__()
        check_rules(self.rules)
        if self.rules and self.filled[1] is not None:
            raise UsageError(f"rules {', '.join(self.rules)}: decider {self.placement!r} is the placement", hint="give a plain placement")

    def text(self, ordering: str) -> str:
        """Return the scheduler with this ordering."""
        return f"{ordering}/{self.placement}/{self.backfill}"

    @property
    def filled(self) -> tuple[Scheduler, Decider | None]:
        """Return the four slots, and the decider that places the jobs if `placement` names one."""
        made = parse_filled(self.text(self.ordering))
        if isinstance(made, Scheduler):
            return made, None
        assert isinstance(made.inner, Scheduler)
        return made.inner, made

    @property
    def without_decider(self) -> PickJob:
        """Return the options with the placement that a decider begins with in its place."""
        return replace(self, placement=self.filled[0].placement.label)

    def scheduler(self, network: Network) -> Scheduler | Decider:
        slots, decider = self.filled
        made = replace(slots, ordering=network_ordering(network, PICKED))
        return made if decider is None else replace(decider, inner=made)

    def left_open(self) -> Opened:
        return self._opened(self.opens, self.filled[0].program(), window=self.window)

    def envs(self, opened: Opened, source: Callable[[int], Instance], numbers: Sequence[int], count: int) -> EngineEnvs:
        decider = self.filled[1]
        if decider is not None:
            return DecidedEnvs(opened, source, numbers, count, decider, threads=self.threads)
        if self.rules:
            return WholeEpisodes(opened, source, numbers, count, self.rules, self.baseline, threads=self.threads)
        return super().envs(opened, source, numbers, count)


@dataclass(frozen=True)
class PickTypedJob(PickJob):
    """The ordering is left open as in PickJob-v0, and GPU types and speeds are seen too."""

    opens: ClassVar[OpenOrdering] = OpenTypedOrdering()


def _baselines(options: PickJob) -> tuple[str, ...]:
    """Return the heuristics; some rules know only a few."""
    compatible = any(RULES[name].compatible for name in options.rules)
    return tuple(options.text(ordering) for ordering in (RLSCHEDULER_ORDERINGS if compatible else HEURISTICS))


def _opponents(options: PickJob) -> tuple[str, ...]:
    """Return what else a policy is compared with: some of these may stop running jobs."""
    if any(RULES[name].compatible for name in options.rules):
        return ()
    plain = options.without_decider  # a decider that places jobs stops none
    return (*map(options.text, FURTHER), *(f"{plain.text(name)}/{name}" for name in STOPPING), "gavel")


def _results(episode: Episode, scheduler: Scheduler, options: PickJob) -> Sequence[Result]:
    """Run the episode by each of the rules."""
    run = episode.workload, episode.cluster
    return [run_by(name, run, scheduler, episode.seed) for name in options.rules] or simulated(episode, scheduler, options)


def _demonstrate(source: EpisodeSource, options: PickJob, name: str, count: int, seed: int) -> Demonstrator:
    """Let the engine keep the queue in the heuristic's order, so that its choice is the first row that is legal.

    Where more jobs wait than the window has rows, the rows are the first jobs by the heuristic. A decider that places jobs does not change
    which is first, and would take time.
    """
    shown = replace(options.without_decider, ordering=name, rules=(), baseline="")
    return Demonstrator(make_envs(source, shown, count, seed), first_legal)


def first_legal(seen: Observation) -> Array:
    """Return (envs,) i4: the first action that may be chosen."""
    chosen: Array = seen.mask.argmax(axis=1).astype(np.int32)
    return chosen


def _alike(mine: Answer, theirs: Mapping[str, Answer]) -> dict[str, tuple[float, float]]:
    """Compare orders: whether the first job is the same, and the rank correlation."""
    return {name: (float(mine[0][0] == order[0]), _rank(mine[0], order)) for name, (order, _) in theirs.items()}


def _rank(one: Array, other: Array) -> float:
    """Return Spearman's rank correlation of two orders of the same rows."""
    places = np.empty((2, int(one.max()) + 1))
    places[0, one] = places[1, other] = np.arange(len(one))
    return float(np.corrcoef(places[0, one], places[1, one])[0, 1])


PICK_JOB = EnvKind(
    "PickJob", "which waiting job goes next", JOB, PickJob, make_envs, scheduler_of, _baselines, aliases=("job",),
    metrics=("bsld", "waiting", "turnaround", "utilization"), results=_results,
    choices=lambda options: {"placement": options.placement, "backfill": options.backfill},
    text=lambda name, options: options.text(name),
    teachers=lambda _: tuple(ORDERINGS), demonstrate=_demonstrate, opponents=_opponents,
    explaining=Explaining(HEURISTICS, _alike, waiting=2, snapshots=120),
    example="lublin:jobs=256,nodes=256,load=0.9|1.1 on 32x8:gpu",
    workload="lublin:jobs=256,nodes=64,load=0.9 on 8x8:gpu",
)  # fmt: skip
PICK_TYPED_JOB = replace(
    PICK_JOB, title="which waiting job goes next, by GPU types and speeds too", schema=JOB_TYPES, options=PickTypedJob, version=1,
    example="poisson:jobs=256,gpus=96,load=0.3|0.5 on hetero-demo", workload="poisson:jobs=128,gpus=96,load=0.5 on hetero-demo",
)  # fmt: skip
for _kind in (PICK_JOB, PICK_TYPED_JOB):
    ENVS.add(_kind.label, _kind)
