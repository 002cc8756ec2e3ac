"""The cluster now: jobs by pages, the past for charts, one job, and what may be done with it.

What is in memory is answered at once (`async`): each thread that answers keeps memory for good. Who asks the source waits in a thread.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from fastapi import APIRouter, HTTPException, Path, Query
from pydantic import BaseModel, Field

from gpuyard.errors import UsageError
from gpuyard.web import rows as table
from gpuyard.web.collector import Collector
from gpuyard.web.guarding import Access

Number = Annotated[int, Path(ge=1, lt=2**53)]
MOST_OUTPUT = 20_000  # bytes
MOST_HELD = 2500  # stretches of the Gantt chart
Measure = Literal["busy", "queue", "utilisation", "memory", "power", "temperature"]


class WantedAction(BaseModel):
    """A request to do something with a job."""

    action: Literal["cancel", "hold", "release", "top"]
    number: int = Field(ge=1, lt=2**53)


def live_router(collector: Collector, access: Access) -> APIRouter:
    """Return what is asked about a cluster."""
    api = APIRouter(prefix="/api/live", tags=["live"])
    _jobs(api, collector, access)
    _past(api, collector)
    _thoughts(api, collector)
    _actions(api, collector, access)
    return api


def _jobs(api: APIRouter, collector: Collector, access: Access) -> None:
    @api.get("")
    async def summary() -> dict[str, Any]:
        """Return counts, devices and what is wrong."""
        return collector.summary()

    @api.get("/jobs")
    async def jobs(
        group: Literal["all", "running", "waiting", "ended"] = "all",
        sort: Annotated[str, Query(max_length=20)] = "rank",
        descending: bool = False,
        search: Annotated[str, Query(max_length=100)] = "",
        user: Annotated[str, Query(max_length=100)] = "",
        first: Annotated[int, Query(ge=0, lt=10**9)] = 0,
        count: Annotated[int, Query(ge=1, le=table.MOST_ROWS)] = table.MOST_ROWS,
    ) -> dict[str, Any]:
        """Return a page of jobs."""
        now = collector.latest.now if collector.latest else 0.0
        return collector.rows.page(table.Query(group, sort, descending, search, user), now, first, count) | {"now": now}

    @api.get("/jobs/{number}")
    def job(number: Number) -> dict[str, Any]:
        """Return a job in full, and why it waits."""
        found = collector.rows.get(number)
        if found is None:
            raise HTTPException(404, "there is no such job")
        now = collector.latest.now if collector.latest else 0.0
        return found | {"detail": dict(collector.source.detail(number)), "now": now, "actions": access.actions and collector.source.can_act}

    @api.get("/jobs/{number}/output")
    def output(number: Number) -> dict[str, str]:
        """Return the end of what a job has written; only with a token, since others may share this machine."""
        if not access.token:
            raise HTTPException(403, "the output of jobs is shown where a token is asked for: gpuyard serve --token FILE")
        return {"text": collector.source.output(number, MOST_OUTPUT)}


def _past(api: APIRouter, collector: Collector) -> None:
    @api.get("/lines/{name}")
    async def lines(name: Measure, span: Literal["minutes", "hours"] = "minutes") -> dict[str, Any]:
        """Return the past of a measure: a line for each GPU, or for waiting and running jobs."""
        times, values = collector.past.lines(name, long=span == "hours")
        seen = collector.latest
        names = (
            ["waiting", "running"]
            if name == "queue"
            else ["busy"]
            if name == "busy"
            else [each.name for each in (seen.gpus if seen else ())]
        )
        return {"times": times, "lines": [{"name": label, "values": line} for label, line in zip(names, values, strict=False)]}

    @api.get("/gantt")
    async def gantt(hours: Annotated[float, Query(gt=0, le=12)] = 3.0) -> dict[str, Any]:
        """Return who held which devices in the last hours."""
        seen = collector.latest
        if seen is None:
            return {"devices": [], "spans": [], "from": 0.0, "until": 0.0, "left_out": 0}
        since = seen.now - hours * 3600.0
        spans = collector.past.spans(since)
        shown = spans[-MOST_HELD:]
        return {
            "devices": list(seen.devices), "from": since, "until": seen.now, "left_out": len(spans) - len(shown),
            "spans": [
                [each.job, each.label, each.name[:60], list(each.rows)[:64], round(each.start, 1), round(each.end, 1)] for each in shown
            ],
        }  # fmt: skip


def _thoughts(api: APIRouter, collector: Collector) -> None:
    @api.get("/decisions")
    async def decisions(count: Annotated[int, Query(ge=1, le=200)] = 50) -> dict[str, Any]:
        """Return what was decided last, and why."""
        return {"decisions": [dict(each) | {"reason": str(each["reason"])[:300]} for each in collector.decisions[:count]]}

    @api.get("/ranks")
    async def ranks() -> dict[str, Any]:
        """Return the places that the jobs at the head of the queue have had, and the policy's keys."""
        found = []
        for number, line in collector.past.ranks().items():
            job = collector.rows.get(number) or {}
            found.append({"number": number, "label": job.get("label", str(number)), "name": str(job.get("name", ""))[:60], "line": line})
        return {"scheduler": collector.latest.scheduler if collector.latest else "", "jobs": found}


def _actions(api: APIRouter, collector: Collector, access: Access) -> None:
    @api.post("/actions")
    def act(wanted: WantedAction) -> dict[str, Any]:
        """Cancel, hold or release a job, or put it before the others."""
        if not access.actions:
            raise HTTPException(403, "this dashboard is read-only: gpuyard serve --allow-actions --token FILE")
        if not collector.source.can_act:
            raise UsageError("this cluster can only be looked at")
        if collector.rows.get(wanted.number) is None:
            raise HTTPException(404, "there is no such job")
        collector.source.act(wanted.action, wanted.number)
        return {"done": wanted.action, "number": wanted.number}
