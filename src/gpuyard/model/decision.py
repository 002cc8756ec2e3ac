"""A decision: start, preempt, migrate or hold one job."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Action(Enum):
    """One of the things that can be done with a job."""

    START = "start"
    PREEMPT = "preempt"
    MIGRATE = "migrate"  # stop and start again elsewhere at once; progress and cost as for a preemption
    HOLD = "hold"


@dataclass(frozen=True)
class Part:
    """Devices on one node: `gpus` whole devices, or the share of one.

    `devices` names them. A simulation honours the name for a share; whole devices of a node are interchangeable there, and
    it always takes the lowest-numbered free ones.
    """

    node: int
    gpus: float
    devices: tuple[int, ...] = ()


@dataclass(frozen=True)
class Decision:
    """A decision about job `job` (its index). START and MIGRATE carry the parts; with none the ordinary placement is used."""

    job: int
    action: Action = Action.START
    parts: tuple[Part, ...] = ()
    reason: str = field(default="", compare=False)  # why, for people
    silent: bool = False  # the run that starts writes no checkpoints, although the job could: they are not worth what they cost
    partition: int = -1  # in which it starts, where partitions share nodes: limits count there; -1: the first in which it may
