"""The built-in placements, backfill rules, preemption rules and switch rules."""

# mypy: disable-error-code="no-any-return"
# Columns are arrays whose elements numpy types as Any; the functions are compiled with real types.
from __future__ import annotations

from typing import Any

from gpuyard.policies.base import BACKFILLS, PLACEMENTS, PREEMPTIONS, Backfill, Placement, Preemption, preemption, switch

# Scores are computed inside the engine; see docs/concepts/semantics.md for their definitions.
for _placement in (
    Placement("first", "first fit: the lowest-numbered node", score="first"),
    Placement("best", "best fit: the node with the fewest free GPUs", score="free"),
    Placement("worst", "worst fit: the node with the most free GPUs", score="minus-free"),
    Placement("fewest", "fewest nodes for a gang, best fit for the rest", score="free", span="fewest"),
    Placement("random", "a random node, by seed", score="random"),
    Placement("fastest", "the fastest device type for the job's class", score="fastest"),
):
    PLACEMENTS.add(_placement.name, _placement)

for _backfill in (
    Backfill("none", "nobody passes the head"),
    Backfill("skip", "whoever fits may pass"),
    Backfill("easy", "who does not delay the head's reservation may pass (Lifka 1995)"),
    Backfill("conservative", "who delays no one's reservation may pass (Mu'alem and Feitelson 2001)"),
):
    BACKFILLS.add(_backfill.name, _backfill)

PREEMPTIONS.add("none", Preemption("none", "running jobs run to their end"))


@preemption("srpt", title="shortest remaining time: stop what has more left")
def srpt(jobs: Any, j: int, now: float) -> float:
    """Work believed to be left."""
    return jobs.remaining[j]


@preemption("priority", title="stop lower priorities")
def priority(jobs: Any, j: int, now: float) -> float:
    """Higher priority is more important."""
    return -jobs.priority[j]


@preemption("las", title="two queues by attained service (Tiresias): stop what has passed the threshold", every=60.0)
def las_two_queues(jobs: Any, j: int, now: float, threshold: float = 3600.0) -> float:
    """0 below `threshold` GPU-seconds of service, 1 above."""
    return 1.0 if jobs.attained[j] >= threshold else 0.0


@switch("backlog", title="the second scheduler while more than `limit` jobs wait")
def backlog(system: Any, now: float, limit: float = 10.0) -> int:
    """0 up to `limit` waiting jobs, 1 above."""
    return 1 if system.waiting > limit else 0


@switch("urgency", title="the second scheduler while some job is about to miss its deadline")
def urgency(system: Any, now: float, share: float = 0.25) -> int:
    """1 while more than `share` of the waiting jobs cannot meet their deadlines any more."""
    return 1 if system.urgent > share * system.waiting else 0
