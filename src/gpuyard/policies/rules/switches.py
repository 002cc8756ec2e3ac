"""The built-in switch rules of meta-schedulers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuyard.policies.schedulers import switch

if TYPE_CHECKING:
    from gpuyard.engine.state import SystemRow


@switch("backlog", title="the second scheduler while more than `limit` jobs wait")
def backlog(system: SystemRow, now: float, limit: float = 10.0) -> int:
    """0 up to `limit` waiting jobs, 1 above."""
    return 1 if system.waiting > limit else 0


@switch("urgency", title="the second scheduler while some job is about to miss its deadline")
def urgency(system: SystemRow, now: float, share: float = 0.25) -> int:
    """1 while more than `share` of the waiting jobs cannot meet their deadlines any more."""
    return 1 if system.urgent > share * system.waiting else 0


@switch("random", title="any of the schedulers, drawn again each time")
def at_random(system: SystemRow, now: float, seed: float = 0.0) -> int:
    """A number below that of the schedulers, from `seed` and the time in ms: squares modulo the prime 2³¹ − 1, four times over."""
    prime = 2147483647
    drawn = (int(now * 1000.0) + 69621 * int(seed)) % prime
    for _ in range(4):
        drawn = (drawn * drawn + 1234567) % prime
    return drawn * int(system.schedulers) // prime
