"""What the engine needs to know of a scheduler: addresses and codes, no names."""

from __future__ import annotations

import math
from dataclasses import dataclass

from gpuyard.errors import UsageError

# Codes of built-in placement scores, and of how a job that no node can take whole is spread.
SCORES = (
    "first",
    "free",
    "minus-free",
    "random",
    "fastest",
    "lexicographic",
    "whole-last",
    "load",
    "remainder",
    "fragments",
    "own",
    "network",
)
SPANS = ("score", "fewest", "tier2")
BACKFILLS = ("none", "skip", "easy", "conservative")
SHORTEST_HALF_LIFE = 1.0  # s


def check_half_life(seconds: float) -> float:
    """The same, if usage can decay with it."""
    if not SHORTEST_HALF_LIFE <= seconds < math.inf:
        raise UsageError(f"half_life = {seconds} is not a half-life in seconds", hint=f"at least {SHORTEST_HALF_LIFE:g}, e.g. 7d")
    return seconds


@dataclass(frozen=True)
class Slot:
    """One scheduler, ready to run. Addresses are those of compiled policies; 0: none."""

    ordering: int
    reads_clock: int  # of gpuyard.engine.state.CLOCK_*
    score: int = 0  # into SCORES
    placement: int = 0
    span: int = 0  # into SPANS
    backfill: int = 0  # into BACKFILLS
    depth: int = 0
    preemption: int = 0
    ordering_params: tuple[float, ...] = ()
    placement_params: tuple[float, ...] = ()
    preemption_params: tuple[float, ...] = ()
    ordering_network: int = 0  # addresses of networks
    placement_network: int = 0

    @property
    def reads_mix(self) -> bool:
        """Whether the placement asks what the workload's requests are like."""
        return self.score == SCORES.index("fragments")

    @property
    def tracks_running(self) -> bool:
        """Whether running jobs must be kept in the order of their believed ends."""
        return self.preemption != 0 or self.backfill >= BACKFILLS.index("easy") or self.ordering_network != 0


@dataclass(frozen=True)
class Program:
    """Everything that drives a simulation: one slot, or several with a switch rule between them."""

    slots: tuple[Slot, ...]
    label: str
    timer: float = 0.0  # s; 0: none
    switch: int = 0
    switch_params: tuple[float, ...] = ()
    switch_every: float = 0.0
    half_life: float = 0.0  # s, of the users' usage; 0: no policy reads it
    network: int = 0  # of the switch rule
    scratch: int = 0  # floats that networks need
    keep: tuple[object, ...] = ()  # what must outlive the simulation: networks whose addresses are above
