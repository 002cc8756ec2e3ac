"""Make the pictures of the README and the guides: what a person sees who types the commands they stand beside.

    python benchmarks/screenshots.py [--only NAME …]

Every picture comes from a real run: figures from simulations, terminals from the bytes that a command printed, pages from Chromium. They
lie in docs/images, in few colours, so that all of them together stay below 2 MB. Takes some minutes.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch

from gpuyard import Result, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.report.gantt import gantt_of
from pictures import shrink

ROOT = Path(__file__).resolve().parents[1]
IMAGES = ROOT / "docs" / "images"
DAY, HOUR = 86400.0, 3600.0
Scheme = Literal["light", "dark"]
SCHEMES: tuple[Scheme, ...] = ("light", "dark")
PICTURES: dict[str, Callable[[], list[Path]]] = {}


def picture(make: Callable[[], list[Path]]) -> Callable[[], list[Path]]:
    """Register a function that makes pictures and returns their paths."""
    PICTURES[make.__name__] = make
    return make


# ── one day on a cluster ──


@dataclass(frozen=True)
class Look:
    """Colours of a figure on a light or a dark page."""

    ground: str
    ink: str
    muted: str
    line: str


LOOKS: dict[Scheme, Look] = {
    "light": Look("#ffffff", "#1b1f24", "#68707a", "#d5d9dd"),
    "dark": Look("#0d1117", "#e8eaec", "#9aa3ad", "#30363d"),
}
KINDS = {"training": "#0b6e99", "sweep": "#e0a526", "evaluation": "#3fa37c", "debug": "#c8553d"}  # from the bottom of the queue


@picture
def day() -> list[Path]:
    """The busiest day of the demo: which job held which GPUs, and who waited meanwhile."""
    result = simulate(load_workload("demo"), load_cluster("16x8:a100"), parse_scheduler("sjf/fewest/easy"), segments=True)
    window = (3.3 * DAY, 5.0 * DAY)
    return [_day(result, window, scheme) for scheme in SCHEMES]


def _day(result: Result, window: tuple[float, float], scheme: Scheme) -> Path:
    import matplotlib

    look, names = LOOKS[scheme], list(result.workload.jobs.classes)
    kinds = result.workload.jobs.job_class
    drawn = gantt_of(result, window)
    with matplotlib.rc_context({"text.color": look.ink, "axes.edgecolor": look.line, "axes.labelcolor": look.muted, "font.size": 7.5,
                                "xtick.color": look.muted, "ytick.color": look.muted, "axes.facecolor": look.ground}):  # fmt: skip
        figure = Figure(figsize=(9.0, 4.0), facecolor=look.ground, layout="constrained", dpi=200)
        gantt, queue = figure.subplots(2, 1, height_ratios=[2.6, 1.0], sharex=True)
        for span in drawn.spans:
            gantt.broken_barh([(span.start, span.end - span.start)], (span.row, span.height), color=KINDS[names[kinds[span.job]]],
                              edgecolor=look.ground, linewidth=0.35)  # fmt: skip
        gantt.set_ylim(drawn.rows, 0)
        gantt.set_yticks([first + 4 for first, _ in drawn.nodes], [name for _, name in drawn.nodes], fontsize=6)
        for first, _ in drawn.nodes[1:]:
            gantt.axhline(first, color=look.line, lw=0.6)
        gantt.tick_params(length=0)
        times, waiting = _waiting(result, window)
        colours = list(KINDS.values())
        queue.stackplot(times / DAY, [waiting[names.index(kind)] for kind in KINDS], colors=colours, step="post", lw=0)
        queue.set_xlim(window[0] / DAY, window[1] / DAY)
        _label_hours(queue, window)
        queue.set_ylabel("jobs waiting")
        gantt.set_ylabel("16 nodes with 8 GPUs")
        for axes in (gantt, queue):
            axes.spines[["top", "right", "left"]].set_visible(False)
        figure.legend(handles=[Patch(color=colour, label=kind) for kind, colour in reversed(KINDS.items())], loc="outside upper right",
                      ncols=4, frameon=False, fontsize=7.5, handlelength=1, handleheight=1)  # fmt: skip
        path = IMAGES / f"day-{scheme}.png"
        figure.savefig(path)
    shrink(path)
    return path


def _waiting(result: Result, window: tuple[float, float]) -> tuple[Array, Array]:
    """How many jobs of each kind wait, at points of time in the window. (kinds, times)"""
    times = np.linspace(*window, 1200)
    submit, start, kinds = result.workload.jobs.submit, result.table["start"], result.workload.jobs.job_class
    waiting = [
        np.searchsorted(np.sort(submit[kinds == k]), times, "right") - np.searchsorted(np.sort(start[kinds == k]), times, "right")
        for k in range(len(result.workload.jobs.classes))
    ]
    return times, np.array(waiting)


def _label_hours(axes: object, window: tuple[float, float]) -> None:
    hours = np.arange(np.ceil(window[0] / HOUR / 6) * 6, window[1] / HOUR + 1e-9, 6)
    axes.set_xticks(hours * HOUR / DAY, [f"{h % 24:02.0f}:00" if h % 24 else f"day {h / 24 + 1:.0f}" for h in hours])  # type: ignore[attr-defined]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", nargs="+", choices=sorted(PICTURES), default=list(PICTURES))
    for name in parser.parse_args().only:
        for path in PICTURES[name]():
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size / 1000:.0f} kB")
    total = sum(path.stat().st_size for path in IMAGES.iterdir())
    print(f"docs/images: {total / 1e6:.2f} MB in all")


if __name__ == "__main__":
    main()
