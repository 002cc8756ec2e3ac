"""When a job may be offered to a policy at all, and the names of the reasons why it may not.

A job that is not eligible is left out of the `Snapshot`. A further condition is a field of `Conditions`, a name in REASONS and a line in
`why_not`; nodes, batch systems and simulations ask this one function.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from gpuyard.errors import DataError
from gpuyard.model.units import MAX_TIME

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
    "user-limit": "its user is at a limit", "site-limit": "the site is at a limit",
    "partition-limit": "its partition is closed, at a limit or does not admit it", "licence": "no licence is free",
    "node-down": "a node that it needs is not available", "staging": "its data or its last run is still being cleaned up",
    "site": "the batch system does not let it start",
    "impossible": "no node can ever fulfil its request",
}  # fmt: skip
NEVER = frozenset({"after-failed"})  # a job that is ineligible for these stays so
STATES = ("held", "delay", "after", "after_any", "array", "array_limit")  # what a job of a workload may state, in its terms
_MOST_AFTER = 10_000  # jobs that one waits for


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

    @property
    def text(self) -> str:
        """Write the conditions as `parse_conditions` reads them; `begin` counts from the submission."""
        said = {
            "held": "yes" if self.held else "", "delay": f"{self.begin!r}" if self.begin > 0 else "",
            "after": _numbers(self.after), "after_any": _numbers(self.after_any),
            "array": str(self.array or ""), "array_limit": str(self.array_limit or ""),
        }  # fmt: skip
        return " ".join(f"{name}={value}" for name, value in said.items() if value)


def _numbers(jobs: tuple[int, ...]) -> str:
    return ",".join(map(str, jobs))


@lru_cache(maxsize=4096)
def parse_conditions(text: str) -> Conditions:
    """Read `held=yes delay=3600 after=12,13 after_any=9 array=7 array_limit=4`; `begin` is the delay, from the submission on.

    Jobs are named by their ids.
    """
    given = {}
    for part in text.split():
        name, _, value = part.partition("=")
        if name not in STATES or name in given:
            raise DataError(f"conditions {text[:80]!r}: {part[:40]!r} is not one of {', '.join(STATES)}")
        given[name] = value
    if given.get("held", "yes") != "yes":
        raise DataError(f"conditions {text[:80]!r}: held is yes, or left out")
    after, after_any = (_ids(given.get(name, ""), text) for name in ("after", "after_any"))
    array, array_limit = (_number(given.get(name, "0"), text) for name in ("array", "array_limit"))
    return Conditions("held" in given, _delay(given.get("delay", "0"), text), after, after_any, array, array_limit)


def _delay(value: str, text: str) -> float:
    try:
        seconds = float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds <= MAX_TIME:
        raise DataError(f"conditions {text[:80]!r}: delay = {value[:40]!r} is not a time in seconds")
    return seconds


def _number(value: str, text: str) -> int:
    if not value.isascii() or not value.removeprefix("-").isdigit() or len(value) > 18:
        raise DataError(f"conditions {text[:80]!r}: {value[:40]!r} is not a whole number")
    return int(value)


def _ids(value: str, text: str) -> tuple[int, ...]:
    found = tuple(_number(each, text) for each in value.split(",")) if value else ()
    if len(found) > _MOST_AFTER:
        raise DataError(f"conditions {text[:80]!r}: more than {_MOST_AFTER:,} jobs to wait for")
    return found


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
