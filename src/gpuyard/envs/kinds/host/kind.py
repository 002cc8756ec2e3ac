"""PickHost: options, baselines, teachers and explanation of the decision which node a job gets."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.place import next_node
from gpuyard.engine.slots import BACKFILLS, SCORES, Program, Slot
from gpuyard.envs.kinds.base import ENVS, Answer, Demonstrator, EnvKind, Explaining
from gpuyard.envs.kinds.engine import PICKED, EngineOptions, make_envs, scheduler_of
from gpuyard.envs.opened import OpenDecision, Opened, refuse_depth
from gpuyard.envs.vector import EngineEnvs
from gpuyard.errors import UsageError
from gpuyard.features.hosts import HOST
from gpuyard.model.decision import Action, Decision
from gpuyard.networks.inside import place_by_network
from gpuyard.networks.network import Network
from gpuyard.policies import PLACEMENTS, Scheduler, parse_slots
from gpuyard.policies.learned import network_placement
from gpuyard.traces.recipes import EpisodeSource

HEURISTICS = ("first", "best", "worst", "balance", "packing")


class OpenPlacement(OpenDecision):
    """Choose the next node of the job that is about to start."""

    code = st.OPEN_PLACEMENT
    schema = HOST
    marks_nodes = True

    def rows(self, opened: Opened, nodes: int) -> int:
        return nodes

    def check(self, slots: Sequence[Slot]) -> None:
        if any(slot.backfill == BACKFILLS["easy"] for slot in slots):
            raise UsageError("with the placement left open backfill is none or skip", hint="a trained placement runs with all of them")
        refuse_depth(slots)

    def closed(self, program: Program, network: Network, opened: Opened) -> Program:
        slot = replace(program.slots[0], placement=place_by_network(), score=SCORES["network"], placement_network=network.address)
        return replace(program, slots=(slot,))

    def use(self, state: st.State, address: int) -> None:
        state.slots["placement_network"][:1] = address

    def question(self, legal: int, active: str) -> str:
        return f"{legal} hosts may take the job"

    def first_shown(self, s: st.State, queue: Array) -> int:
        at = np.flatnonzero(queue == s.control[0]["open_job"])
        return int(at[0]) if len(at) else 0

    def offers(self, s: st.State, position: int, job: int) -> bool:
        return job == int(s.control["open_job"][0])


@dataclass(frozen=True)
class PickHost(EngineOptions):
    """The placement is left open: choose a node for each job that can start, in the order of `ordering`."""

    objective: str = "wait"
    ordering: str = "fcfs"
    backfill: str = "none"

    def text(self, placement: str) -> str:
        """Return the scheduler with this placement."""
        return f"{self.ordering}/{placement}/{self.backfill}"

    def scheduler(self, network: Network) -> Scheduler:
        return replace(parse_slots(self.text("first")), placement=network_placement(network, PICKED))

    def left_open(self) -> Opened:
        return self.opened_beside("first")

    def opened_beside(self, placement: str) -> Opened:
        """Leave the placement open; what this placement would choose can be asked, see `next_hosts`."""
        return self._opened(OpenPlacement(), parse_slots(self.text(placement)).program())


@dataclass(frozen=True)
class _Demonstrated(PickHost):
    """The placement is left open beside a heuristic."""

    placement: str = "first"

    def left_open(self) -> Opened:
        return self.opened_beside(self.placement)


def _demonstrate(source: EpisodeSource, options: PickHost, name: str, count: int, seed: int) -> Demonstrator:
    """Ask the engine's own scores for the next host."""
    envs = make_envs(source, _Demonstrated(**{**vars(options), "baseline": ""}, placement=name), count, seed)
    return Demonstrator(envs, lambda _: next_hosts(envs))


def next_hosts(envs: EngineEnvs) -> Array:
    """Return (envs,) i4: the host that the placement of the program would take next, in each environment."""
    chosen = np.zeros(envs.count, np.int32)
    _next_hosts()(envs.headers, chosen)
    return chosen


@lru_cache(maxsize=1)
def _next_hosts() -> Callable[[Array, Array], None]:
    """Compile the question; the result is cached on disk."""
    source = source_hash(__name__)

    @entry(types.void(types.int64[::1], types.int32[::1]))
    def write_hosts(headers: Any, chosen: Any) -> None:
        for e in range(len(headers) if source != 0 else 0):  # never 0; part of the cache's key
            s = state_at(headers[e])
            control = s.control[0]
            n = next_node(s, control.open_part, control.open_job, s.slots[control.active], control.missing)
            chosen[e] = s.nodes[n].number

    made: Callable[[Array, Array], None] = write_hosts
    return made


def _teachers(_: PickHost) -> tuple[str, ...]:
    """Return placements without chance, which cannot be learned, and without tier 2, which spreads jobs that the environment does not."""
    return tuple(name for name, each in PLACEMENTS.items() if each.score not in ("random", "own", "network") and each.span != "tier2")


def _alike(mine: Answer, theirs: Mapping[str, Answer]) -> dict[str, tuple[float, float]]:
    """Compare where the first job starts; empty where all heuristics agree, because there was nothing to choose."""
    nodes = {name: _nodes(starts) for name, (_, starts) in theirs.items()}
    if len(set(nodes.values())) < 2:
        return {}
    return {name: (float(_nodes(mine[1]) == each), math.nan) for name, each in nodes.items()}


def _nodes(decisions: Sequence[Decision]) -> tuple[int, ...]:
    """Return the job that starts first, and its nodes."""
    first = next((each for each in decisions if each.action is Action.START), None)
    return () if first is None else (first.job, *(part.node for part in first.parts))


ENVS.add(
    "PickHost",
    EnvKind(
        "PickHost", "which node a job gets", HOST, PickHost, make_envs, scheduler_of,
        lambda options: tuple(parse_slots(options.text(name)).label for name in (*HEURISTICS, "random")), "wait", aliases=("host",),
        metrics=("wait", "makespan", "completed", "utilization", "load_imbalance", "core_utilization", "core_imbalance"),
        choices=lambda options: {"ordering": options.ordering, "backfill": options.backfill},
        text=lambda name, options: options.text(name),
        teachers=_teachers, demonstrate=_demonstrate,
        explaining=Explaining(HEURISTICS, _alike, snapshots=480),  # many: most jobs find one host with room, or none
        example="eda:jobs=500,arrivals=0.35:1.1,cores=1:16,memory=1:128 on hosts:count=50,cores=8:64,memory=32:512,seed={seed}",
        workload="eda:jobs=256,arrivals=1:3 on hosts:count=20,seed=1",
        # Shares of the largest host, or of what is left there: a host without a limit may be asked for any number.
        unbounded=frozenset(
            {"job_cores", "job_memory", "job_gpus", "cores_left", "memory_left", "gpus_left", "mean_cores", "mean_memory"}
        ),
    ),
)  # fmt: skip
