"""Limits of a site: how much users, accounts, qualities of service and partitions may use at once, in all, or have submitted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from gpuyard.errors import DataError
from gpuyard.model.fields import Fields

DIMENSIONS = ("user", "account", "qos", "partition")  # by which jobs are told apart
AMOUNTS = ("jobs", "gpus", "gpu_minutes", "running_gpu_minutes", "submitted")


@dataclass(frozen=True)
class Limit:
    """Says what jobs may use that have the labels given; those of each user, account … are counted apart where `each` says so.

    A job that would go beyond it is not eligible, and others pass it; one too many submitted is rejected.
    """

    each: tuple[str, ...] = ()  # of DIMENSIONS
    user: str = ""  # a label; empty: any
    account: str = ""
    qos: str = ""
    partition: str = ""
    jobs: float = math.inf  # that run at once
    gpus: float = math.inf  # in use at once
    gpu_minutes: float = math.inf  # in all: what was used, and what running jobs have asked for
    running_gpu_minutes: float = math.inf  # what running jobs have asked for
    submitted: float = math.inf  # jobs submitted that have not ended

    def __post_init__(self) -> None:
        wrong = [name for name in self.each if name not in DIMENSIONS]
        if wrong:
            raise DataError(f"limit: each = {wrong[0]!r} is not one of {', '.join(DIMENSIONS)}")
        both = [name for name in self.each if getattr(self, name)]
        if both:
            raise DataError(f"limit: {both[0]} is named, and each {both[0]} is counted apart")
        for name in AMOUNTS:
            if not getattr(self, name) >= 0:
                raise DataError(f"limit: {name} = {getattr(self, name)} is not a number from 0")
        if all(math.isinf(getattr(self, name)) for name in AMOUNTS):
            raise DataError("limit: it limits nothing", hint="give one of " + ", ".join(AMOUNTS))

    @property
    def reason(self) -> str:
        """The name of the reason why a job waits for it, of `gpuyard.model.site.eligibility`: whose limit it is."""
        whose = next((name for name in DIMENSIONS if name in self.each or getattr(self, name)), "site")
        return f"{whose}-limit"


def limit_of(row: Fields) -> Limit:
    """Return the limit in a row of `[[limits]]`."""
    user, account, qos, partition = (row.text(name, "") for name in DIMENSIONS)
    made = Limit(row.texts("each", ()), user, account, qos, partition, *(row.number(name, math.inf) for name in AMOUNTS))
    row.done()
    return made


def limit_row(limit: Limit) -> dict[str, Any]:
    """Return the row of `[[limits]]` for a limit."""
    row: dict[str, Any] = {"each": list(limit.each)} if limit.each else {}
    row |= {name: getattr(limit, name) for name in DIMENSIONS if getattr(limit, name)}
    return row | {name: float(getattr(limit, name)) for name in AMOUNTS if math.isfinite(getattr(limit, name))}
