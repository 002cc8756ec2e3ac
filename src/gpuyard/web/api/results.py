"""Experiments: what each was about, what came out, its tables, charts and manifests."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Annotated, Any

from fastapi import APIRouter, HTTPException, Query, Response
from fastapi import Path as InPath

from gpuyard.errors import GpuyardError
from gpuyard.experiments.judging.summary import Comparison, Standing
from gpuyard.experiments.judging.text import metric_title
from gpuyard.experiments.judging.words import findings, lead
from gpuyard.experiments.running.store import COMPLETE, EXPERIMENT, MANIFESTS, PARTS, RUNS, Store
from gpuyard.metrics import resolve
from gpuyard.report.charts import Absent, Chart, Lines, Points
from gpuyard.report.studies import charts_of, load_study
from gpuyard.report.study import Study
from gpuyard.web.folders import FolderList, FoundFolder, ReadOnce
from gpuyard.web.plain import plain, thinned

Name = Annotated[str, InPath(pattern="^[0-9a-f]{16}$")]
LATELY = 120.0  # s since something was written, up to which an experiment is taken to be under way
MOST_LINES = 60  # schedulers of a table
_UNIT = re.compile(r"[0-9]{7}")


def results_router(folders: FolderList) -> APIRouter:
    """Return what is asked about experiments."""
    api = APIRouter(prefix="/api/results", tags=["results"])
    read = ReadOnce(_Read, (EXPERIMENT, COMPLETE))

    @api.get("")
    def experiments() -> dict[str, Any]:
        """List the experiments, the last first."""
        found = sorted((_listed(each) for each in folders.all("experiment")), key=lambda each: -each["changed"])
        return {"experiments": found, "now": time.time()}

    @api.get("/{name}")
    def experiment(name: Name) -> dict[str, Any]:
        """Return what came out of an experiment."""
        path = folders.find(name, "experiment")
        if not (path / COMPLETE).exists():
            raise HTTPException(409, "this experiment is not complete yet")
        return {"name": name, **read.get(path).told}

    @api.get("/{name}/charts/{number}.svg")
    def drawn(name: Name, number: Annotated[int, InPath(ge=0, lt=1000)]) -> Response:
        """Draw a chart that a browser does not draw by itself."""
        return Response(read.get(folders.find(name, "experiment")).drawn(number), media_type="image/svg+xml")

    @api.get("/{name}/manifests")
    def manifests(
        name: Name, first: Annotated[int, Query(ge=0, lt=10**9)] = 0, count: Annotated[int, Query(ge=1, le=50)] = 10
    ) -> dict[str, Any]:
        """Return how some Runs were made."""
        every = read.get(folders.find(name, "experiment")).study.results.manifests
        return {"total": len(every), "first": first, "manifests": plain(every[first : first + count])}

    return api


class _Read:
    """An experiment that was read."""

    def __init__(self, folder: Path) -> None:
        self.study = load_study(folder)
        self._charts: list[Chart | Absent] = charts_of(self.study)
        self._pictures: dict[int, bytes] = {}
        self.told = _told(self.study, self._charts)

    def drawn(self, number: int) -> bytes:
        """Return a picture of a chart."""
        if number not in self._pictures:
            if number >= len(self._charts) or isinstance(chart := self._charts[number], Absent):
                raise HTTPException(404, "there is no such chart")
            self._pictures[number] = picture(chart)
        return self._pictures[number]


def _listed(found: FoundFolder) -> dict[str, Any]:
    """Say what an experiment is, from its first file alone."""
    path = found.path
    told: dict[str, Any] = {
        "name": found.name,
        "folder": plain(found.shown),
        "state": "damaged",
        "title": plain(found.shown),
        "question": "",
    }
    try:
        record = Store(path).read_experiment()
        about = record["experiment"]
        complete = (path / COMPLETE).exists()
        changed = max(
            each.stat().st_mtime for each in (path, path / EXPERIMENT, path / PARTS, path / COMPLETE, path / RUNS) if each.exists()
        )
        lately = time.time() - changed < LATELY
        state = "complete" if complete else "running" if lately else "stopped"
        told |= {"state": state, "title": plain(about.get("title") or about.get("name")), "question": plain(about.get("question", ""))}
        told |= {"parts": 0 if complete else sum(1 for _ in (path / PARTS).glob("*.parquet")), "gpuyard": plain(record.get("gpuyard", ""))}
    except (GpuyardError, OSError) as error:
        changed, told["question"] = 0.0, plain(str(error))[:300]
    return told | {"changed": changed}


def _told(study: Study, charts: list[Chart | Absent]) -> dict[str, Any]:
    summary, results = study.summary, study.results
    about = {key: value for key, value in results.about.items() if key not in ("format", "version")}
    return {
        "title": plain(study.title), "question": plain(results.experiment.question), "answer": plain(lead(summary)),
        "findings": plain(findings(summary)), "notes": plain(summary.notes), "tables": [_table(study, each) for each in summary.tables],
        "charts": [chart_data(each, k) for k, each in enumerate(charts)], "about": plain(about), "runs": len(results),
        "files": [MANIFESTS, RUNS],
    }  # fmt: skip


def _table(study: Study, table: Comparison) -> dict[str, Any]:
    found = resolve(table.objective)[0]
    sign = -1 if found.better == "higher" else 1
    lines = sorted(table.lines, key=lambda line: (value := sign * line.values[table.objective].mean, value != value))
    return {
        "objective": table.objective, "title": plain(metric_title(table.objective)), "unit": "" if found.unit == "1" else found.unit,
        "better": found.better, "baseline": plain(table.baseline), "over": table.over, "n": table.n,
        "lines": [_line(study, table, line) for line in lines[:MOST_LINES]], "left_out": max(len(lines) - MOST_LINES, 0),
    }  # fmt: skip


def _line(study: Study, table: Comparison, line: Standing) -> dict[str, Any]:
    value, versus = line.values[table.objective], line.versus
    told = {
        "scheduler": plain(line.scheduler), "title": plain(study.results.name(line.scheduler)), "challenger": line.challenger,
        "best": table.objective in line.best, "mean": value.mean, "low": value.low, "high": value.high,
        "others": {name: each.mean for name, each in line.values.items() if name != table.objective},
    }  # fmt: skip
    if versus is not None:
        told |= {
            "share": versus.share,
            "share_low": versus.share_low,
            "share_high": versus.share_high,
            "better": versus.better,
            "p": versus.p,
        }
    return dict(plain(told))


# ── charts: data that a browser draws, or a picture of the same ──


def chart_data(chart: Chart | Absent, number: int) -> dict[str, Any]:
    """Return a chart for a browser: lines, or points with intervals; of other drawings only the title: there is a picture of them."""
    if isinstance(chart, Absent):
        return {"name": plain(chart.name), "kind": "absent", "title": plain(chart.name), "caption": plain(chart.reason)}
    about = {"name": plain(chart.name), "title": plain(chart.title), "caption": plain(chart.caption), "number": number}
    drawn = chart.drawing
    if isinstance(drawn, Lines) and not drawn.categories:
        return about | {"kind": "lines"} | _lines(drawn)
    if isinstance(drawn, Points):
        return about | {"kind": "points"} | _points(drawn)
    return about | {"kind": "picture"}


def _lines(drawn: Lines) -> dict[str, Any]:
    lines = []
    for each in drawn.lines:
        chosen = thinned(len(each.x))
        lines.append({"name": plain(each.name), "x": plain(each.x[chosen]), "values": plain(each.y[chosen]), "strong": each.strong})
    return {
        "x": {"title": plain(drawn.x.title), "log": drawn.x.scale == "log"},
        "y": {"title": plain(drawn.y.title), "percent": drawn.y.percent},
        "lines": lines, "steps": drawn.steps,
    }  # fmt: skip


def _points(drawn: Points) -> dict[str, Any]:
    marks = [
        {"name": plain(each.name), "mean": plain(each.mean), "low": plain(each.low), "high": plain(each.high), "strong": each.strong}
        for each in drawn.marks
    ]
    value = {
        "title": plain(drawn.value.title),
        "percent": drawn.value.percent,
        "bend": drawn.value.linear_to if drawn.value.scale == "bent" else 0,
    }
    return {"rows": plain(drawn.rows), "value": value, "marks": marks}


def picture(chart: Chart) -> bytes:
    """Draw a chart as SVG; it needs matplotlib."""
    from io import BytesIO

    from gpuyard.report.drawing import write_figure
    from gpuyard.report.static import draw

    target = BytesIO()
    write_figure(draw(chart), target, "svg")
    return target.getvalue()
