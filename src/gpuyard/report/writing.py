"""Write a report: one HTML file, figures and CSVs."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from gpuyard.experiments.judging.summary import Summary
from gpuyard.experiments.running.store import Store
from gpuyard.files import staged, write_bytes
from gpuyard.report.charts import Absent, Chart
from gpuyard.report.drawing import write_figure
from gpuyard.report.page.experiment import experiment_page
from gpuyard.report.page.overview import comparisons_page
from gpuyard.report.static import draw
from gpuyard.report.studies import Study, charts_of, load_study
from gpuyard.report.tables import csv_files

HTML, FIGURES, CSV = "report.html", "figures", "csv"
SUFFIXES = ("pdf", "png")


def write_report(folder: Path, out: Path | None = None) -> Path:
    """Write the report of a completed experiment in `folder`, into it or into `out`. Returns the path of the HTML file."""
    return write_study(load_study(folder), out or folder)


def write_study(study: Study, out: Path) -> Path:
    """Write the report of an experiment: an HTML file, figures and CSVs. Returns the path of the HTML file.

    All files are written beside their places and moved there together, so that a killed process leaves the old report as it was.
    """
    charts = charts_of(study)
    with staged(out, last=HTML) as place:
        target, drawn = Store(place), dict(figure_files(charts))
        for name, data in drawn.items():
            target.write(f"{FIGURES}/{name}", data)
        for name, text in csv_files([study.summary]).items():
            target.write(f"{CSV}/{name}", text.encode())
        pictures = iter(data for name, data in drawn.items() if name.endswith(".png"))
        figures = [(each, b"" if isinstance(each, Absent) else next(pictures)) for each in charts]
        target.write(HTML, experiment_page(study, figures).encode())
    return out / HTML


def write_comparisons(summaries: Sequence[Summary], out: Path) -> Path:
    """Write the report of comparisons to a file that ends in .html, or with CSVs into a folder. Returns the path of the HTML file."""
    whole = comparisons_page(summaries).encode()
    if out.suffix.lower() == ".html":
        write_bytes(out, whole)
        return out
    with staged(out, last=HTML) as place:
        for name, text in csv_files(summaries).items():
            write_bytes(place / CSV / name, text.encode())
        write_bytes(place / HTML, whole)
    return out / HTML


def write_page(whole: str, out: Path) -> Path:
    """Write a page that stands alone to a file that ends in .html, or into a folder. Returns its path."""
    path = out if out.suffix.lower() == ".html" else out / HTML
    write_bytes(path, whole.encode())
    return path


def figure_files(charts: Sequence[Chart | Absent]) -> Iterator[tuple[str, bytes]]:
    """Yield (file name, content) of every chart, as PDF and PNG."""
    used: set[str] = set()
    for chart in charts:
        if isinstance(chart, Absent):
            continue
        name = file_name(chart.name, used)
        figure = draw(chart)
        for suffix in SUFFIXES:
            target = io.BytesIO()
            write_figure(figure, target, suffix)
            yield f"{name}.{suffix}", target.getvalue()


def file_name(name: str, used: set[str]) -> str:
    """Return a safe file name that is not in `used`, and add it there."""
    plain = re.sub(r"[^A-Za-z0-9._+-]+", "_", name).strip("._")[:80] or "figure"
    found = next(each for each in (plain, *(f"{plain}-{k}" for k in range(2, 10_000))) if each not in used)
    used.add(found)
    return found
