"""Make the pictures of the README and the guides: what a person sees who types the commands they stand beside.

    python benchmarks/screenshots.py [--only NAME …]

Every picture comes from a real run: figures from simulations, terminals from the bytes that a command printed, pages from Chromium. They
lie in docs/images, in few colours, so that all of them together stay below 2 MB. Takes some minutes. Printed pages are drawn by
pypdfium2 (pip install pypdfium2).
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import pty
import shlex
import subprocess
import sys
import tempfile
import termios
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import matplotlib
import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import Patch
from PIL import Image

from gpuyard import Result, load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.arrays import Array
from gpuyard.experiments.judging.answering.names import duration, in_sentence, people_name
from gpuyard.report.gantt import gantt_of
from pictures import opened, shrink

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


# ── six schedulers ──

DEMO = "gpuyard compare demo --checkpoint 10m --restart-cost 1m"  # as `make demo` calls it, without the report
COLOURS: dict[Scheme, tuple[str, str]] = {"light": ("#0a7d4f", "#9aa3ad"), "dark": ("#4cc38a", "#6b747d")}  # better, baseline


@picture
def waits() -> list[Path]:
    """The mean wait under the schedulers that the demo compares."""
    (compared,) = json.loads(subprocess.run([*shlex.split(DEMO), "-f", "json"], check=True, capture_output=True, cwd=ROOT).stdout)
    return [_waits(compared, scheme) for scheme in SCHEMES]


def _waits(compared: Mapping[str, Any], scheme: Scheme) -> Path:
    metric, look, (good, grey) = compared["primary"], LOOKS[scheme], COLOURS[scheme]
    lines = sorted(compared["schedulers"], key=lambda line: -line["metrics"][metric]["mean"])
    clear = [line["scheduler"] for line in lines if line["difference"] and line["difference"]["high"] < 0]
    name = {line["scheduler"]: people_name(parse_scheduler(line["scheduler"])) for line in lines}
    with matplotlib.rc_context({"text.color": look.ink, "xtick.color": look.muted, "ytick.color": look.ink, "font.size": 7.5,
                                "axes.facecolor": look.ground, "axes.edgecolor": look.line}):  # fmt: skip
        figure = Figure(figsize=(9.0, 2.5), facecolor=look.ground, layout="constrained", dpi=200)
        axes = figure.subplots()
        for row, line in enumerate(lines):
            wait = {key: line["metrics"][metric][key] / 60 for key in ("low", "mean", "high")}
            colour = good if line["scheduler"] in clear else grey
            axes.plot([wait["low"], wait["high"]], [row, row], color=colour, lw=2.2, solid_capstyle="round")
            axes.plot(wait["mean"], row, "o", color=colour, ms=6)
            axes.annotate(
                duration(60 * wait["mean"]), (wait["high"], row), (6, 0), textcoords="offset points", va="center", color=look.muted
            )
        axes.set_yticks(range(len(lines)), [f"{name[line['scheduler']]}{' †' if line['may_stop_jobs'] else ''}" for line in lines])
        axes.set_xlim(left=0)
        axes.xaxis.set_major_formatter("{x:.0f} min")
        axes.grid(axis="x", color=look.line, lw=0.6)
        axes.set_axisbelow(True)
        axes.tick_params(length=0)
        axes.spines[:].set_visible(False)
        among = f"all {len(clear)}" if len(clear) == len(lines) - 1 else f"{len(clear)} of {len(lines) - 1}"
        baseline = in_sentence(name[compared["baseline"]])
        figure.suptitle(f"Jobs wait clearly less under {among} others than under {baseline}",
                        x=0.01, ha="left", fontsize=9.5, fontweight="bold")  # fmt: skip
        axes.set_title(f"Mean wait, 95 % interval over {len(compared['seeds'])} seeds. Clearly: the paired difference excludes 0",
                       loc="left", fontsize=7, color=look.muted)  # fmt: skip
        path = IMAGES / f"waits-{scheme}.png"
        figure.savefig(path)
    shrink(path)
    return path


# ── what a terminal shows ──

PAGE = """<!doctype html><meta charset="utf-8"><style>
body {{ margin: 0; background: {ground}; }}
main {{ display: inline-block; padding: 18px 22px; color: {ink}; white-space: pre; font: 14px/1.3 "DejaVu Sans Mono", monospace; }}
</style><main>{code}</main>"""
PROMPT = "\x1b[32m$\x1b[0m "


@picture
def terminal() -> list[Path]:
    """The demo in a terminal with 80 and with 120 columns."""
    return [_terminal(f"terminal-{columns}", f"{PROMPT}{DEMO}\n{printed(DEMO, columns)}", columns) for columns in (80, 120)]


NODE = (  # commands on a node, and whether a reader is to see them
    ("gpuyard submit --name warm-up python3 -c pass", False),
    ("gpuyard wait", False),
    ("gpuyard submit --name vit --estimate 20m -- python3 train.py vit 20", True),
    ("gpuyard submit --name sweep --estimate 5m --array 1-4%2 -- python3 train.py cnn 5", True),
    ("gpuyard submit --name wide --cpus 4 --estimate 1h -- python3 train.py lm 60", True),
    ("sleep 8", False),
    ("gpuyard queue", True),
    ("gpuyard why 7", True),
    ("gpuyard logs --tail 3 2", True),
    ("gpuyard cancel 2-7", False),
    ("sh -c 'gpuyard wait 2-7; true'", False),
)
TRAIN = """
import sys, time
kind, minutes = sys.argv[1], int(sys.argv[2])
for step in range(60 * minutes):
    print(f"{kind}: step {step + 1:,}, loss {2.3 / (1 + step) ** 0.2:.3f}", flush=True)
    time.sleep(1.0)
"""


@picture
def node() -> list[Path]:
    """A node with four CPU slots: what is submitted, runs and waits."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        (place / "train.py").write_text(TRAIN, encoding="utf-8")
        with _set("GPUYARD_NODE", str(place / "node")):
            text = "".join(_typed(*each, place) for each in (("gpuyard node start --cpus 4", True), *NODE, ("gpuyard node stop", False)))
    return [_terminal("node-80", text, 80)]


def _typed(command: str, shown: bool, folder: Path) -> str:
    """Run a command and return what a terminal shows of it."""
    said = printed(command, 80, folder, talk=True)
    return f"{PROMPT}{command}\n{said}" if shown else ""


@contextlib.contextmanager
def _set(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        os.environ |= {} if before is None else {name: before}


def _terminal(name: str, text: str, columns: int) -> Path:
    """Draw what was printed in a terminal."""
    from rich.console import Console
    from rich.terminal_theme import TerminalTheme
    from rich.text import Text

    look = LOOKS["dark"]
    theme = TerminalTheme((13, 17, 23), (232, 234, 236), [(90, 98, 108), (240, 135, 90), (76, 195, 138), (224, 165, 38), (91, 184, 224),
                          (200, 160, 230), (91, 200, 200), (232, 234, 236)])  # fmt: skip
    console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True, color_system="truecolor")
    console.print(Text.from_ansi(text.rstrip()), soft_wrap=True)
    page = PAGE.format(ground=look.ground, ink=look.ink, code=console.export_html(theme=theme, code_format="{code}", inline_styles=True))
    path = IMAGES / f"{name}.png"
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "terminal.html"
        file.write_text(page, encoding="utf-8")
        with opened(file.as_uri(), 1600, 900, sharpness=1.5) as (shown, _):
            shown.locator("main").screenshot(path=path)
    shrink(path)
    return path


def printed(command: str, columns: int, folder: Path = ROOT, *, talk: bool = False) -> str:
    """What a command writes to stdout, a terminal with so many columns; what it says on stderr is left out unless `talk` is asked for."""
    ours, theirs = pty.openpty()
    termios.tcsetwinsize(theirs, (200, columns))
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(columns)}
    errors = theirs if talk else subprocess.DEVNULL
    with subprocess.Popen(shlex.split(command), stdout=theirs, stderr=errors, cwd=folder, env=environment) as process:
        os.close(theirs)
        parts: list[bytes] = []
        with contextlib.suppress(OSError):  # on Linux, reading after the end is an error
            while part := os.read(ours, 65536):
                parts.append(part)
        os.close(ours)
    if process.returncode:
        raise SystemExit(f"{command}: exit code {process.returncode}")
    return b"".join(parts).decode("utf-8").replace("\r\n", "\n")


# ── reports and the site ──


@picture
def report() -> list[Path]:
    """The report of the made-up log of the guides: its first screen on a desk and on a phone, and the pages that it prints."""
    with tempfile.TemporaryDirectory() as folder:
        log = subprocess.run([sys.executable, "examples/sacct_demo.py"], check=True, capture_output=True, cwd=ROOT).stdout
        Path(folder, "sacct.txt").write_bytes(log)
        _quietly("gpuyard compare sacct.txt --report answer", Path(folder))
        address = Path(folder, "answer", "report.html").as_uri()
        return [_page(address, "report-1280", 1280, 800), _page(address, "report-390", 390, 844), *_printed_pages(address, Path(folder))]


@picture
def dashboard() -> list[Path]:
    """The dashboard of a node with made-up GPUs, and a comparison made there."""
    import dashboard_pictures

    with dashboard_pictures.shown() as served:
        wanted: list[tuple[str, str, Scheme, str]] = [
            ("dashboard-1280", "desk", "light", "/"), ("dashboard-390", "phone", "dark", "/"),
            ("dashboard-compare", "desk", "light", dashboard_pictures.compared(served)),
        ]  # fmt: skip
        for name, size, scheme, path in wanted:
            dashboard_pictures.photograph(served, path, IMAGES / f"{name}.png", size, scheme, whole=False)
            shrink(IMAGES / f"{name}.png")
    return [IMAGES / f"{name}.png" for name, *_ in wanted]


@picture
def site() -> list[Path]:
    """The first page of the documentation."""
    _quietly(f"{sys.executable} -m zensical build --strict")
    address = (ROOT / "site" / "index.html").as_uri()
    return [_page(address, "site-1280", 1280, 800), _page(address, "site-390", 390, 844, "dark")]


def _quietly(command: str, folder: Path = ROOT) -> None:
    subprocess.run(shlex.split(command), check=True, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


def _page(address: str, name: str, width: int, height: int, scheme: Scheme = "light") -> Path:
    """Keep what is in a window of that size when the page has loaded."""
    path = IMAGES / f"{name}.png"
    with opened(address, width, height, scheme) as (page, outside):
        page.wait_for_timeout(500)
        page.screenshot(path=path)
    if outside:
        raise SystemExit(f"{address} asks for {outside[0]}")
    shrink(path)
    return path


def _printed_pages(address: str, folder: Path) -> list[Path]:
    """Print a page as PDF and draw its sheets side by side, as many as there are."""
    with opened(address, 1280, 800) as (page, _):
        page.pdf(path=folder / "report.pdf", format="A4", prefer_css_page_size=True, print_background=True)
    import pypdfium2

    sheets = [sheet.render(scale=70 / 72).to_pil().convert("RGB") for sheet in pypdfium2.PdfDocument(folder / "report.pdf")]
    gap = 12
    width = sum(sheet.width for sheet in sheets) + gap * (len(sheets) + 1)
    whole = Image.new("RGB", (width, max(sheet.height for sheet in sheets) + 2 * gap), "#d5d9dd")
    for k, sheet in enumerate(sheets):
        whole.paste(sheet, (gap + k * (sheet.width + gap), gap))
    path = IMAGES / "report-printed.png"
    whole.save(path)
    shrink(path)
    return [path]


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
