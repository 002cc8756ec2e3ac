"""When a job may be offered to a policy at all, and the names of the reasons why it may not.

A job that is not eligible is left out of the `Snapshot`. A further condition is a field of `Conditions`, a name in REASONS and a line in
`why_not`; nodes, batch systems and simulations ask this one function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

REASONS: Mapping[str, str] = {  # name → what a person reads
    "held": "it is held", "begin": "its begin time has not come",
    "after": "a job that must end first has not ended",
    "after-failed": "a job that had to succeed first did not; it will never run",
    "array-limit": "as many jobs of its array run as may run at once",
    "gpu-memory": "no GPU has as much free memory as it asks for", "gpu-lost": "too few GPUs are in working order",
    "gpu-foreign": "processes of others use the GPUs that it could have",
    "making-room": "it starts as soon as a job that makes room for it has stopped",
    "start-failed": "it could not be started a moment ago and is tried again soon",
    "drain": "the node is being drained and starts nothing",
    "reservation": "it waits for a reservation", "account-limit": "its account or user is at a limit", "qos-limit": "its QOS is at a limit",
    "partition-limit": "its partition is closed or does not admit it", "licence": "no licence is free",
    "node-down": "a node that it needs is not available", "staging": "its data or its last run is still being cleaned up",
    "site": "the batch system does not let it start",
    "impossible": "no node can ever fulfil its request",
}  # fmt: skip
NEVER = frozenset({"after-failed"})  # a job that is ineligible for these stays so


@dataclass(frozen=True)
class Conditions:
    """The conditions of one job. Jobs are named by numbers."""

    held: bool = False
    begin: float = 0.0  # s, in the time of `now`
    after: tuple[int, ...] = ()  # jobs that must have succeeded
    after_any: tuple[int, ...] = ()  # jobs that must have ended
    array: int = 0  # the array it belongs to; 0: none
    array_limit: int = 0  # jobs of the array that may run at once; 0: any number

    @property
    def any(self) -> bool:
        """Return whether there is any condition."""
        return self.held or self.begin > 0 or bool(self.after or self.after_any) or self.array_limit > 0


def why_not(conditions: Conditions, now: float, succeeded: Mapping[int, bool], running: Mapping[int, int]) -> str:
    """Return the name of the first reason why a job is not eligible; empty if it is.

    `succeeded` has the jobs that have ended, `running` the number of running jobs of each array.
    """
    if conditions.held:
        return "held"
    if any(succeeded.get(job) is False for job in conditions.after):
        return "after-failed"
    if any(job not in succeeded for job in (*conditions.after, *conditions.after_any)):
        return "after"
    if now < conditions.begin:
        return "begin"
    if 0 < conditions.array_limit <= running.get(conditions.array, 0):
        return "array-limit"
    return ""
