"""Comparisons: asking for one, following it, reading what came out."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Path
from pydantic import BaseModel, Field

from gpuyard.experiments.judging.answering.names import people_name
from gpuyard.experiments.usual import ALL, TODAY
from gpuyard.model.presets import PRESETS
from gpuyard.networks.checkpoint import PREFIX, shipped_names
from gpuyard.policies import parse_scheduler
from gpuyard.traces import GENERATORS
from gpuyard.traces.base import check_workload
from gpuyard.web.comparisons import AskedComparison, Comparisons, check_names
from gpuyard.web.plain import plain

Text = Annotated[str, Field(min_length=1, max_length=200)]
Number = Annotated[int, Path(ge=1, lt=2**31)]
USUAL = (TODAY, "multifactor/fewest/easy", "sjf/fewest/easy", "saf/fewest/easy")
CLUSTERS = ("4x8:a100", "16x8:a100", "32x8:h100")


class WantedComparison(BaseModel):
    """A request to compare schedulers."""

    workload: Text = "demo"
    cluster: Annotated[str, Field(max_length=200)] = "16x8:a100"
    schedulers: Annotated[list[Text], Field(min_length=2, max_length=8)]
    seeds: int = Field(default=8, ge=1, le=20)


def comparing_router(comparisons: Comparisons) -> APIRouter:
    """Return what is asked about comparisons."""
    api = APIRouter(prefix="/api/comparisons", tags=["comparisons"])
    _asking(api, comparisons)
    _reading(api, comparisons)
    return api


def _asking(api: APIRouter, comparisons: Comparisons) -> None:
    choices = _choices()

    @api.get("/choices")
    def offered() -> dict[str, Any]:
        """Return the names from which a comparison can be made."""
        return choices

    @api.get("")
    def all_of_them() -> dict[str, Any]:
        """List the comparisons since the dashboard was started."""
        return {"comparisons": [each.told() for each in comparisons.all()]}

    @api.post("", status_code=202)
    def ask(wanted: WantedComparison) -> dict[str, Any]:
        """Begin a comparison; it goes on without whoever asked."""
        check_names(wanted.workload, wanted.cluster, wanted.schedulers)
        for text in wanted.schedulers:
            parse_scheduler(text)  # a wrong name is told at once
        check_workload(wanted.workload)
        return comparisons.ask(wanted.workload, wanted.cluster, wanted.schedulers, wanted.seeds).told()

    @api.delete("/{number}")
    def cancel(number: Number) -> dict[str, Any]:
        """End a comparison."""
        comparisons.cancel(_found(comparisons, number).number)
        return _found(comparisons, number).told()


def _reading(api: APIRouter, comparisons: Comparisons) -> None:
    @api.get("/{number}")
    def one(number: Number) -> dict[str, Any]:
        """Return how far a comparison is, and what came out."""
        return _found(comparisons, number).told()

    @api.get("/{number}/result")
    def result(number: Number) -> dict[str, Any]:
        """Return what came out."""
        return _part(comparisons, number, "result")

    @api.get("/{number}/play")
    def play(number: Number) -> dict[str, Any]:
        """Return what is needed to play it back in time."""
        return _part(comparisons, number, "play")


def _found(comparisons: Comparisons, number: int) -> AskedComparison:
    found = comparisons.find(number)
    if found is None:
        raise HTTPException(404, "there is no such comparison")
    return found


def _part(comparisons: Comparisons, number: int, name: str) -> dict[str, Any]:
    found = _found(comparisons, number)
    if found.state != "done":
        raise HTTPException(409, "this comparison is not done")
    return dict(found.result[name])


def _choices() -> dict[str, Any]:
    texts = list(dict.fromkeys((*USUAL, *ALL, *(f"{PREFIX}{name}" for name in shipped_names()))))
    return {
        "workloads": [{"text": name, "title": plain(each.title)} for name, each in GENERATORS.items()],
        "clusters": [*CLUSTERS, *(name for name, _ in PRESETS.items())],
        "schedulers": [{"text": text, "title": plain(people_name(parse_scheduler(text))), "usual": text in USUAL} for text in texts],
    }
