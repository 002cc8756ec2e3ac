"""Heuristics that choose in the states of environments, to be imitated: each is the one that schedulers have, carried out by the engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
from numba import types

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.entry import source_hash
from gpuyard.engine.compiler.jit import entry
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.kernels.place import next_node
from gpuyard.envs.base import Envs, Observation
from gpuyard.envs.kinds.base import EnvKind
from gpuyard.envs.kinds.device.kind import PickDevice, device_envs
from gpuyard.envs.kinds.scheduling import PickHost, PickJob, Switch, make_envs
from gpuyard.envs.vector import EngineEnvs, Opened
from gpuyard.policies import ORDERINGS, PLACEMENTS
from gpuyard.traces.recipes import Source


@dataclass(frozen=True)
class Demonstrator:
    """A heuristic, and environments made for it; `choose` says what it would do, (envs,) i4, in the states that they are in now."""

    envs: Envs
    choose: Callable[[Observation], Array]


@dataclass(frozen=True)
class Teaching:
    """What can be imitated in environments of one kind."""

    names: Callable[[Any], tuple[str, ...]]  # of options
    make: Callable[[Source, Any, str, int, int], Demonstrator]  # of a source, options, one of the names, environments and a seed


def imitable(kind: EnvKind, options: Any) -> tuple[str, ...]:
    """Names of the heuristics that can be imitated."""
    return TEACHINGS[kind.name].names(options) if kind.name in TEACHINGS else ()


def demonstrator(kind: EnvKind, source: Source, options: Any, name: str, count: int, seed: int) -> Demonstrator:
    """One of these, in `count` environments over the episodes that a training with the same seed has."""
    return TEACHINGS[kind.name].make(source, options, name, count, seed)


# ── which job next: the engine keeps the queue in the order of the heuristic, and rows are in that order ──


def by_ordering(source: Source, options: PickJob, name: str, count: int, seed: int) -> Demonstrator:
    """Where more jobs wait than the window has, they are the first of them by the heuristic."""
    return Demonstrator(make_envs(source, replace(options, ordering=name, rules=(), baseline=""), count, seed), first_legal)


def first_legal(seen: Observation) -> Array:
    """(envs,) i4."""
    chosen: Array = seen.mask.argmax(axis=1).astype(np.int32)
    return chosen


# ── which host: the engine's own scores ──


@dataclass(frozen=True)
class Placed(PickHost):
    """The placement is open; what would be chosen by `placement` can be asked."""

    placement: str = "first"

    def left_open(self) -> Opened:
        return self._opened(st.OPEN_PLACEMENT, self.scheduler(self.placement).program())


def by_placement(source: Source, options: PickHost, name: str, count: int, seed: int) -> Demonstrator:
    own = Placed(**{**vars(options), "baseline": ""}, placement=name)
    envs = make_envs(source, own, count, seed)
    return Demonstrator(envs, lambda _: next_hosts(envs))


def next_hosts(envs: EngineEnvs) -> Array:
    """(envs,) i4: the host that the placement of the program would take next, in each environment."""
    chosen = np.zeros(envs.count, np.int32)
    _next_hosts()(envs.headers, chosen)
    return chosen


def _placements(_: PickHost) -> tuple[str, ...]:
    """Without chance, which nobody can learn, and tier 2, which spreads jobs where the environment has none to spread."""
    return tuple(name for name, each in PLACEMENTS.items() if each.score not in ("random", "own", "network") and each.span != "tier2")


@lru_cache(maxsize=1)
def _next_hosts() -> Callable[[Array, Array], None]:
    """Compiled on first use and cached on disk."""
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


# ── which scheduler: always the same one ──


def always(source: Source, options: Switch, name: str, count: int, seed: int) -> Demonstrator:
    chosen = options.schedulers.index(name)
    envs = make_envs(source, replace(options, baseline=""), count, seed)
    return Demonstrator(envs, lambda seen: np.full(len(seen.mask), chosen, np.int32))


# ── which device ──


def greedily(source: Source, options: PickDevice, name: str, count: int, seed: int) -> Demonstrator:
    envs = device_envs(source, options, count, seed)
    return Demonstrator(envs, lambda _: np.array([episode.greedy() for episode in envs.episodes], np.int32))


TEACHINGS: Mapping[str, Teaching] = MappingProxyType(
    {
        "PickJob": Teaching(lambda _: tuple(ORDERINGS), by_ordering),
        "PickHost": Teaching(_placements, by_placement),
        "Switch": Teaching(lambda options: options.schedulers, always),
        "PickDevice": Teaching(lambda _: ("greedy-device",), greedily),
    }
)
