"""A learned rank: a network that multiplies the time by which a table of run times judges a job."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gpuyard.engine.compiler.jit import call_state, inner
from gpuyard.engine.rows.ranking import RANK_NETWORK

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real
    from gpuyard.engine.state import SlotRow, State


@inner
def judge_jobs(s: State, p: Int, slot: SlotRow) -> Any:
    """Let the network of a slot, if it has one, fill `rank_factors` of the jobs of a partition that may be stopped; returns a status."""
    if slot.rank != RANK_NETWORK:
        return 0
    s.control[0].asked += 1
    return call_state(slot.preemption, s, p, 0, slot.rank_network)


@inner
def judged_time(s: State, slot: SlotRow, j: Int, time: Real) -> Any:
    """Return the time (s) of job j as the slot's network judges it; without a network as it is."""
    return time * s.rank_factors[j] if slot.rank == RANK_NETWORK else time
