"""Switch: options, baselines, teachers and explanation of the decision which scheduler is in use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.slots import Program
from gpuyard.envs.kinds.base import ENVS, Demonstrator, EnvKind, Explaining
from gpuyard.envs.kinds.engine import PICKED, EngineOptions, make_envs, scheduler_of
from gpuyard.envs.opened import OpenDecision, Opened
from gpuyard.errors import UsageError
from gpuyard.features.system import SWITCH, SWITCH_SIZES
from gpuyard.networks.inside import switch_by_network
from gpuyard.networks.network import Network
from gpuyard.policies import Meta, parse_slots
from gpuyard.policies.deciders.online import HEURISTICS
from gpuyard.policies.learned import network_switch
from gpuyard.policies.schedulers import program_of
from gpuyard.traces.recipes import EpisodeSource


class OpenSwitch(OpenDecision):
    """Choose the scheduler that is in use from now on."""

    code = st.OPEN_SWITCH
    schema = SWITCH

    def rows(self, opened: Opened, nodes: int) -> int:
        return 0

    def prepare(self, control: Array, opened: Opened) -> None:
        control["switch"] = 0
        control["switch_every"] = opened.every
        control["timer"] = opened.every or float(control["timer"][0])

    def closed(self, program: Program, network: Network, opened: Opened) -> Program:
        timer = opened.every or program.timer
        return replace(program, switch=switch_by_network(), switch_every=opened.every, network=network.address, timer=timer)

    def use(self, state: st.State, address: int) -> None:
        state.control["network"] = address

    def question(self, legal: int, active: str) -> str:
        return f"in use: {active}"


@dataclass(frozen=True)
class PickScheduler(EngineOptions):
    """The choice of the scheduler is left open: every `every` seconds while jobs wait, or at every pass."""

    opens: ClassVar[OpenSwitch] = OpenSwitch()
    objective: str = "balanced"
    schedulers: tuple[str, ...] = HEURISTICS
    every: float = 60.0  # s; 0: at every pass

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 2 <= len(self.schedulers) <= st.OUTPUTS:
            raise UsageError(f"{len(self.schedulers)} schedulers to choose from; from 2 to {st.OUTPUTS}")

    def scheduler(self, network: Network) -> Meta:
        return Meta(tuple(parse_slots(text) for text in self.schedulers), network_switch(network, PICKED), self.every)

    def left_open(self) -> Opened:
        program = program_of([parse_slots(text) for text in self.schedulers], "open", self.every)
        return self._opened(self.opens, program, every=self.every)


class OpenSizedSwitch(OpenSwitch):
    """Choose the scheduler that is in use from now on, with the sizes of the jobs that would go first in sight."""

    schema = SWITCH_SIZES


@dataclass(frozen=True)
class PickSchedulerBySize(PickScheduler):
    """The choice of the scheduler is left open as in Switch-v0, and the sizes of the jobs that would go first are seen too."""

    opens: ClassVar[OpenSwitch] = OpenSizedSwitch()


def _chosen(choices: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of these choices of a checkpoint."""
    settings = {"every" if name == "period" else name: value for name, value in choices.items()}
    return settings | ({"schedulers": tuple(settings["schedulers"])} if "schedulers" in settings else {})


def _demonstrate(source: EpisodeSource, options: PickScheduler, name: str, count: int, seed: int) -> Demonstrator:
    """Choose the same scheduler every time."""
    chosen = options.schedulers.index(name)
    envs = make_envs(source, replace(options, baseline=""), count, seed)
    return Demonstrator(envs, lambda seen: np.full(len(seen.mask), chosen, np.int32))


SWITCH_KIND = EnvKind(
    "Switch", "which scheduler is in use", SWITCH, PickScheduler, make_envs, scheduler_of,
    lambda options: options.schedulers, "balanced", aliases=("meta",),
    metrics=("slowdown", "deadline_met", "waiting", "utilization"),
    choices=lambda options: {"schedulers": list(options.schedulers), "period": options.every}, chosen=_chosen,
    teachers=lambda options: options.schedulers, demonstrate=_demonstrate,
    explaining=Explaining(labels=lambda scheduler: tuple(each.label for each in scheduler.schedulers)),
    workload="family:shape=base|bursty|diurnal,gpus=8 on {gpus}",
)  # fmt: skip
SIZED_KIND = replace(
    SWITCH_KIND, title="which scheduler is in use, by the sizes of jobs too", schema=SWITCH_SIZES, options=PickSchedulerBySize, version=1,
    workload="family:variant=gang,shape=base|bursty|diurnal,gpus=8 on {gpus}",
)  # fmt: skip
for _kind in (SWITCH_KIND, SIZED_KIND):
    ENVS.add(_kind.label, _kind)
