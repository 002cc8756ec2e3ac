"""Holds all that the engine knows about a scheduler: addresses and codes instead of names."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.rows.ranking import HYSTERESIS_AT
from gpuyard.engine.state import CLOCK_FALLS, PARAMS, SLOT_ROW
from gpuyard.errors import UsageError

# Names → the codes by which kernels know them: placement scores, how a job that no node can take whole is spread, backfill rules.
SCORES = {
    "first": 0, "free": 1, "minus-free": 2, "random": 3, "fastest": 4, "lexicographic": 5, "whole-last": 6, "load": 7, "remainder": 8,
    "fragments": 9, "own": 10, "network": 11,
}  # fmt: skip
SPANS = {"score": 0, "fewest": 1, "tier2": 2}
BACKFILLS = {"none": 0, "skip": 1, "easy": 2, "conservative": 3}
SHORTEST_HALF_LIFE = 1.0  # s


def check_half_life(seconds: float) -> float:
    """Return a half-life, or refuse one that usage cannot decay with."""
    if not SHORTEST_HALF_LIFE <= seconds < math.inf:
        raise UsageError(f"half_life = {seconds} is not a half-life in seconds", hint=f"at least {SHORTEST_HALF_LIFE:g}, e.g. 7d")
    return seconds


@dataclass(frozen=True)
class Slot:
    """One scheduler, ready to run. Addresses are those of compiled policies; 0: none."""

    ordering: int
    reads_clock: int  # of gpuyard.engine.state.CLOCK_*
    score: int = 0  # of SCORES
    placement: int = 0
    span: int = 0  # of SPANS
    backfill: int = 0  # of BACKFILLS
    depth: int = 0
    preemption: int = 0
    ordering_params: tuple[float, ...] = ()
    placement_params: tuple[float, ...] = ()
    preemption_params: tuple[float, ...] = ()
    rank: int = 0  # of gpuyard.engine.rows.ranking
    rank_settings: tuple[float, ...] = ()  # of a rank rule, from HYSTERESIS_AT on
    run_times: tuple[float, ...] = ()  # a packed table, for RANK_TABLE and RANK_NETWORK
    ordering_network: int = 0  # addresses of networks
    placement_network: int = 0
    rank_network: int = 0
    alike: frozenset[str] | None = None  # columns; of jobs that agree in them the ordering lets the first to come go first; None: unknown

    @property
    def reads_mix(self) -> bool:
        """Whether the placement reads the mix of requests."""
        return self.score == SCORES["fragments"]

    @property
    def starts_one_by_one(self) -> bool:
        """Whether a pass asks only who goes next: without preemption, a depth and conservative backfilling, which walk on."""
        return not self.preempts and self.depth == 0 and self.backfill != BACKFILLS["conservative"]

    @property
    def preempts(self) -> bool:
        """Whether running jobs may be stopped."""
        return self.preemption != 0 or self.rank != 0

    @property
    def tracks_running(self) -> bool:
        """Whether running jobs must be kept in the order of their estimated ends."""
        return self.preempts or self.backfill in (BACKFILLS["easy"], BACKFILLS["conservative"]) or self.ordering_network != 0


@dataclass(frozen=True)
class Program:
    """Everything that drives a simulation: one slot, or several with a switch rule between them."""

    slots: tuple[Slot, ...]
    label: str
    timer: float = 0.0  # s; 0: none
    accounts: bool = False  # what jobs that may be stopped wait is compared with what others do
    calm_timer: float = 0.0  # s; the same where no job says that it may be stopped
    switch: int = 0
    switch_params: tuple[float, ...] = ()
    switch_every: float = 0.0
    half_life: float = 0.0  # s, of the users' usage; 0: no policy reads it
    factors: bool = False  # some policy reads a column of gpuyard.engine.state.FactorRow
    network: int = 0  # of the switch rule
    scratch: int = 0  # floats that networks need
    keep: tuple[object, ...] = ()  # what must outlive the simulation: networks whose addresses are above

    @cached_property
    def tracks_running(self) -> bool:
        """Whether running jobs must be kept in the order of their estimated ends."""
        return any(slot.tracks_running for slot in self.slots)

    @cached_property
    def sifts(self) -> bool:
        """Whether some rule walks the queue past its head."""
        return any(slot.backfill in (BACKFILLS["skip"], BACKFILLS["easy"]) for slot in self.slots)

    @cached_property
    def plans(self) -> bool:
        """Whether some rule is conservative."""
        return any(slot.backfill == BACKFILLS["conservative"] for slot in self.slots)

    @cached_property
    def stops(self) -> bool:
        """Whether some rule stops running jobs."""
        return any(slot.preempts for slot in self.slots)

    @cached_property
    def ranks(self) -> bool:
        """Whether some rule ranks jobs."""
        return any(slot.rank != 0 for slot in self.slots)

    @cached_property
    def judges(self) -> bool:
        """Whether some network judges the times of jobs for a rank rule."""
        return any(slot.rank_network != 0 for slot in self.slots)

    @cached_property
    def run_times(self) -> Array:
        """The tables of run times of all slots, one behind the other."""
        return np.array([value for slot in self.slots for value in slot.run_times] or [0.0])

    @cached_property
    def reads_mix(self) -> bool:
        """Whether some placement reads the mix of requests."""
        return any(slot.reads_mix for slot in self.slots)

    @cached_property
    def bounds_keys(self) -> bool:
        """Whether lower bounds of the keys can take the place of a queue in order: they only fall, and all that matters is who is next."""
        slot = self.slots[0]
        simple = slot.starts_one_by_one and slot.placement_network == 0
        return len(self.slots) == 1 and slot.reads_clock == CLOCK_FALLS and simple

    @cached_property
    def slot_rows(self) -> Array:
        """(slots,) of SLOT_ROW."""
        rows = np.zeros(len(self.slots), SLOT_ROW)
        for name in SLOT_ROW.names or ():
            rows[name] = [int(getattr(slot, name)) if name not in ("chosen", "table") else 0 for slot in self.slots]
        rows["table"] = np.cumsum([0, *(len(slot.run_times) for slot in self.slots)])[:-1]
        return rows

    @cached_property
    def param_rows(self) -> Array:
        """(slots × 4 × PARAMS,): ordering, placement, preemption, and the switch rule with the first."""
        rows = np.zeros((len(self.slots), 4, PARAMS))
        for i, slot in enumerate(self.slots):
            for k, values in enumerate((slot.ordering_params, slot.placement_params, slot.preemption_params)):
                rows[i, k, : len(values)] = values
            if slot.rank != 0:
                rows[i, 2, HYSTERESIS_AT : HYSTERESIS_AT + len(slot.rank_settings)] = slot.rank_settings
        rows[0, 3, : len(self.switch_params)] = self.switch_params
        return rows.ravel()
