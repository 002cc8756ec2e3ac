"""A mode of a deployment turns a scheduler's decisions into changes of the queue, or into nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteState
from gpuyard.model.decision import Decision

MOST_NAMES = 100  # jobs that a line of the log names


@dataclass(frozen=True)
class Update:
    """A change of one job, of one task or of some tasks of an array: `Update("17_3", "sitefactor=5")`."""

    job: str
    change: str
    verb: str = "update"  # what the batch system calls it


@dataclass(frozen=True)
class Decided:
    """Holds what the scheduler says of a snapshot."""

    saved: SavedSnapshot
    decisions: Sequence[Decision]
    order: Sequence[int]  # rows


@dataclass(frozen=True)
class Planned:
    """Holds what a cycle sends, in this order, and what its line of the log says besides."""

    updates: Sequence[Update] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)


class Mode(Protocol):
    """Does something with decisions, or nothing."""

    name: str
    needs_order: bool
    reads_nodes: bool  # in every cycle
    placing: bool  # reads marks and pins

    def check(self, config: Mapping[str, str], state: SiteState) -> None:
        """Refuse a batch system in which this mode cannot work."""

    def reread(self, patience: float) -> None:
        """Read what is read every tenth cycle."""

    def seen(self, state: SiteState) -> SiteState:
        """Return the state as the scheduler is to see it."""

    def plan(self, decided: Decided, state: SiteState) -> Planned:
        """Return what to send. `state` is what `seen` was given."""

    def told(self, sent: Sequence[Update], failed: Mapping[str, str]) -> None:
        """Take note of what was sent and who did not take it."""

    def withdraw(self, patience: float) -> tuple[int, Mapping[str, str]]:
        """Give the queue back to the site's own policy; return how many updates that took, and who did not take his."""
