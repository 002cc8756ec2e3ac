"""The verbs of the service. A request is a JSON object, `{"verb": …, argument: value, …}`; over HTTP the path is the verb.

| verb | arguments | answer |
|---|---|---|
| status | | version, scheduler |
| decide | snapshot: what a snapshot file holds; explain: also why, job by job | decisions, order |
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gpuyard import __version__
from gpuyard.live.deciding import Asked, outlook, outlook_records
from gpuyard.live.state.file import SavedSnapshot, snapshot_from
from gpuyard.model.decision import Decision
from gpuyard.model.fields import Fields
from gpuyard.policies import AnyScheduler


class Desk:
    """The scheduler of a service, and what it was told."""

    def __init__(self, scheduler: AnyScheduler) -> None:
        self.scheduler = scheduler
        scheduler.begin()  # compiles it

    def forget(self) -> None:
        """Begin again with deciders that may have been interrupted."""


def decided(saved: SavedSnapshot, decisions: Sequence[Decision], order: Sequence[int]) -> dict[str, Any]:
    """Return decisions for other programs: jobs and nodes by their names."""
    rows, nodes = saved.snapshot.rows(), saved.snapshot.cluster.nodes.names
    made = [
        {
            "job": saved.name(rows[each.job]),
            "action": each.action.value,
            "parts": [{"node": nodes[part.node], "gpus": part.gpus, "devices": list(part.devices)} for part in each.parts],
            "reason": each.reason,
        }
        for each in decisions
    ]
    return {"now": saved.snapshot.now, "decisions": made, "order": [saved.name(row) for row in order]}


def _status(desk: Desk, given: Fields) -> dict[str, Any]:
    _take(given)
    return {"ok": True, "version": __version__, "scheduler": desk.scheduler.label}


def _decide(desk: Desk, given: Fields) -> dict[str, Any]:
    explain = given.flag("explain", False)
    saved = snapshot_from(given.value("snapshot"), "snapshot")
    _take(given)
    decisions, order, _ = Asked(desk.scheduler).decide(saved)
    answer = {"ok": True, "scheduler": desk.scheduler.label, **decided(saved, decisions, order)}
    if explain:
        answer["jobs"] = outlook_records(saved, outlook(saved, desk.scheduler))
        answer["ineligible"] = dict(saved.ineligible)
    return answer


def _take(given: Fields) -> None:
    """Refuse what was not taken; over HTTP the verb is not among it."""
    given.value("verb", "")
    given.done()


VERBS: Mapping[str, Callable[[Desk, Fields], Any]] = {"status": _status, "decide": _decide}
