"""Repairs and failures in the reference simulator, and multiples of a timer's period."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

from gpuyard.model.cluster import Outage
from gpuyard.testing.reference.state import JobState, Yard


@dataclass(eq=False)
class OutageState:
    """An outage, how far it has come, and the devices it took."""

    outage: Outage
    begun: bool = False
    over: bool = False
    devices: list[int] = field(default_factory=list)


class OutageEvents(ABC):
    """The events of nodes and devices; the simulation is what inherits them."""

    now: float
    yard: Yard
    outages: list[OutageState]
    jobs: list[JobState]
    failures: int

    @abstractmethod
    def with_status(self, status: str, partition: int | None = None) -> list[JobState]: ...

    @abstractmethod
    def requeue(self, job: JobState) -> None: ...

    def repair(self) -> None:
        for state in self.outages:
            if state.begun and not state.over and state.outage.end == self.now:
                state.over = True
                node = self.yard.nodes[state.outage.node]
                if state.outage.gpus is None:
                    node.whole_outages -= 1
                for device in state.devices:
                    node.out[device] = False

    def fail(self) -> None:
        for state in self.outages:
            if not state.begun and state.outage.start == self.now:
                state.begun = True
                if state.outage.gpus is None:
                    self.fail_node(state)
                else:
                    self.fail_devices(state, state.outage.gpus)

    def fail_node(self, state: OutageState) -> None:
        number = state.outage.node
        for job in self.with_status("running"):
            if any(part.node == number for part in job.parts):
                self.failures += 1
                self.requeue(job)
        self.yard.nodes[number].whole_outages += 1

    def fail_devices(self, state: OutageState, gpus: int) -> None:
        node = self.yard.nodes[state.outage.node]
        to_take = min(gpus, node.gpus - sum(node.out))
        while len(node.wholly_free()) < to_take:
            holders = [self.jobs[index] for index in set().union(*node.holders)]
            self.failures += 1
            self.requeue(max(holders, key=lambda job: (job.run_start, job.index)))
        state.devices = node.wholly_free()[-to_take:] if to_take > 0 else []
        for device in state.devices:
            node.out[device] = True


def next_multiple(period: float, after: float) -> float:
    """Return the least multiple of `period` (0 included) that is later than `after`."""
    k = max(math.floor(after / period) - 1, 0) if after > 0 else 0
    while k * period <= after:
        k += 1
    return k * period
