"""Measure the dashboard with many jobs and many viewers, and write docs/reference/dashboard.md.

    python benchmarks/dashboard.py [--page] [--soak SECONDS]      # some nine minutes, five of them soak unless told otherwise

A real node with 30,000 waiting and 100,000 ended jobs, some of which change every second; `gpuyard serve` beside it, a small experiment, a
browser, and twenty viewers who ask for all that a page asks for.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import random
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import machine
from gpuyard.experiments.design.spec import parse_experiment
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.jobs import RunState
from gpuyard.live.node.starting import start_node, stop_node
from gpuyard.live.node.store import NodeStore
from node import LONG, SETTINGS, Line, node, until
from pictures import opened
from targets import is_met

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "dashboard.md"
STATIC = ROOT / "src" / "gpuyard" / "web" / "static"
WAITING, ENDED, ARRAY = 30_000, 100_000, 1_000
VIEWERS, VISITS, ASKED = 20, 15, 40  # at once; of a browser; times that each call is made
CHANGES = 5  # jobs submitted, and as many cancelled, each second
TICKS = os.sysconf("SC_CLK_TCK")
EXPERIMENT = """
title = "Who waits?"
[axes]
workloads = ["family:shape=bursty,intensity=low,gpus=2 on 2"]
schedulers = ["fcfs", "srpt"]
seeds = "0-4"
objectives = ["slowdown"]
[judge]
challengers = ["srpt"]
baseline = "fcfs"
"""
FIRST_ROW = """
new MutationObserver((_, watching) => {
  if (!document.querySelector("tr[data-number]")) return;
  window.firstRow = performance.now();
  watching.disconnect();
}).observe(document, { childList: true, subtree: true });
"""
EMPTY = "/api/about"
Took = dict[str, list[float]]  # call → ms


# ── a crowded node, and its dashboard ──


@contextmanager
def crowded(folder: Path) -> Iterator[NodeClient]:
    """Run a node with many jobs. Those that have ended are copies of one that has; those that wait were submitted."""
    with node(folder, SETTINGS) as client:
        (first,) = client.submit(replace(LONG, command=("true",)))
        client.wait([first], 60.0)
        stop_node(folder)
        _copy(folder, first)
        start_node(folder, SETTINGS)
        for _ in range(4):
            client.submit(LONG)
        until(lambda: client.call("status")["jobs"].get(RunState.running.value) == 4)
        for k in range(WAITING // ARRAY):
            asked = replace(LONG, name=f"part {k}", cpus=float(1 + k % 4), estimate=60.0 * (1 + k), array=tuple(range(ARRAY)))
            client.submit(asked)
        yield client


def _copy(folder: Path, number: int) -> None:
    store = NodeStore(folder)
    job = store.job(number)
    assert job is not None
    past = (RunState.done, RunState.done, RunState.failed, RunState.killed)
    kinds = [replace(job.asked, name=f"run {k}") for k in range(997)]
    rows = []
    for k in range(1, ENDED):
        began = job.end - 3.0 * (ENDED - k)
        made = replace(
            job, id=number + k, asked=kinds[k % 997], submit=began - k % 300, start=began, end=began + k % 900, state=past[k % 4]
        )
        rows.append((made, ""))
    store.write(rows, [], [])
    store.close()


def changing(client: NodeClient, stop: threading.Event) -> None:
    """Submit and cancel jobs every second."""
    while not stop.wait(1.0):
        client.submit(replace(LONG, name="short of time", array=tuple(range(CHANGES))))
        client.call("cancel", ids=client.submit(replace(LONG, array=tuple(range(CHANGES)))))


class Served:
    """`gpuyard serve` in a process of its own."""

    def __init__(self, *arguments: str) -> None:
        command = [str(Path(sys.executable).with_name("gpuyard")), "serve", "--port", "0", *arguments]
        self.process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert self.process.stderr is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self.process.stderr.readline())
        if found is None:
            raise SystemExit("the dashboard does not start")
        self.port = int(found[1])

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def ask(self, path: str, connection: http.client.HTTPConnection | None = None) -> tuple[bytes, float]:
        """Return what a path says, and the ms that it took."""
        used = connection or http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        began = time.perf_counter()
        used.request("GET", path)
        found = used.getresponse()
        data = found.read()
        took = 1000 * (time.perf_counter() - began)
        if connection is None:
            used.close()
        if found.status != 200:
            raise SystemExit(f"{path}: {found.status} {data[:200]!r}")
        return data, took

    def get(self, path: str) -> Any:
        return json.loads(self.ask(path)[0])

    def cpu(self) -> float:
        """Return the s of processor that it has used."""
        words = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(words[11]) + int(words[12])) / TICKS

    def megabytes(self) -> float:
        """Return its memory that is no other's."""
        rows = dict(line.split(":", 1) for line in Path(f"/proc/{self.process.pid}/smaps_rollup").read_text().splitlines()[1:])
        return sum(int(rows[name].split()[0]) for name in ("Private_Clean", "Private_Dirty")) / 1e3

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(20)


# ── what is measured ──


def reading(served: Served) -> Line:
    """Wait until it has read all jobs."""
    began = time.monotonic()
    until(lambda: (seen := served.get("/api/live")).get("ended", 0) >= ENDED and not seen["loading"])
    note = f"{served.cpu():.1f} s CPU of the dashboard; the first rows are there after its first look"
    return Line(f"all {WAITING + ENDED:,} jobs read from the node", f"{time.monotonic() - began:.1f} s", "", note)


def visits(served: Served) -> Iterator[Line]:
    """Come with a fresh browser, again and again, until the first row is there."""
    took, outside = [], list[str]()
    with opened("about:blank", 1280, 900) as (page, _):
        browser = page.context.browser
        assert browser is not None
        for _ in range(VISITS):
            context = browser.new_context(viewport={"width": 1280, "height": 900})
            context.add_init_script(FIRST_ROW)
            fresh = context.new_page()
            fresh.on("request", lambda request: outside.append(request.url))
            fresh.goto(served.address)
            fresh.wait_for_selector("tr[data-number]", timeout=60_000)
            took.append(fresh.evaluate("window.firstRow"))
            context.close()
    note = f"median of {VISITS} visits with an empty cache; best {min(took):.0f} ms, worst {max(took):.0f} ms; from the click on"
    yield Line("first rows in Chromium", f"{statistics.median(took):.0f} ms", "< 500 ms", note)
    others = [url for url in outside if not url.startswith((served.address, "data:"))]
    yield Line("requests to other hosts", str(len(others)), "< 1", f"of {len(outside):,} requests")


def sizes(served: Served) -> Iterator[Line]:
    """Ask for pages of rows, everywhere and in every order."""
    largest, tried = 0, 0
    for sort in ("rank", "label", "name", "user", "state", "reason", "gpus", "wait", "ran", "estimate", "submit"):
        for group, rows in (("all", WAITING + ENDED), ("waiting", WAITING), ("ended", ENDED)):
            for first in (0, rows // 2, rows - 100):
                data, _ = served.ask(f"/api/live/jobs?group={group}&sort={sort}&first={first}")
                largest, tried = max(largest, len(data)), tried + 1
    yield Line(
        "the largest page of rows", f"{largest / 1000:.1f} KB", "< 100 KB", f"of {tried}; a page that would be larger has fewer rows"
    )
    scripts = sum(path.stat().st_size for path in STATIC.rglob("*.js"))
    yield Line("scripts", f"{scripts / 1000:.0f} KB", "≤ 150 KB", "as written, not compressed, uPlot included")


def calls_of(served: Served) -> list[str]:
    """Return calls of every kind that pages make."""
    (experiment,) = (each["name"] for each in served.get("/api/results")["experiments"])
    jobs = [f"/api/live/jobs?{words}" for words in (
        "first=0", "group=waiting&first=12000", "group=ended&sort=end&descending=true&first=50000", "sort=name&first=60000",
        "search=part+7", "group=ended&search=run+99&sort=wait&descending=true",
    )]  # fmt: skip
    lines = [f"/api/live/lines/{name}?span={span}" for name in ("queue", "busy") for span in ("minutes", "hours")]
    live = ["/api/about", "/api/live", "/api/live/gantt?hours=12", "/api/live/decisions?count=60", "/api/live/ranks", "/api/live/jobs/7"]
    results = ["/api/results", f"/api/results/{experiment}", f"/api/results/{experiment}/manifests"]
    return [
        *live,
        f"/api/live/jobs/{ENDED + 2000}",
        *jobs,
        *lines,
        *results,
        "/api/training",
        "/api/comparisons",
        "/api/comparisons/choices",
    ]


def calls(served: Served, beside: str, paths: list[str]) -> Line:
    """Ask for each again and again, in any order."""
    took: Took = defaultdict(list)
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    order = paths * ASKED
    random.Random(0).shuffle(order)
    before = served.cpu()
    for path in order:
        took[path].append(served.ask(path, connection)[1])
    spent = 1000 * (served.cpu() - before) / len(order)
    connection.close()
    worst = max(took, key=lambda path: p95(took[path]))
    usual = statistics.median(p95(each) for each in took.values())
    note = f"`{worst}` of {len(took)} calls, {ASKED} times each; median of their p95s {usual:.1f} ms, of `{EMPTY}`, which costs nothing, "
    note += f"{p95(took[EMPTY]):.1f} ms; {spent:.1f} ms CPU a call"
    return Line(f"p95 of the slowest API call, {beside}", f"{p95(took[worst]):.1f} ms", "< 100 ms", note)


def p95(values: list[float]) -> float:
    """Return the 95th percentile."""
    return sorted(values)[min(len(values) * 95 // 100, len(values) - 1)]


class Viewer(threading.Thread):
    """Reads events, and asks for what the page asks for: rows when jobs have changed, the rest every five seconds."""

    SLOW = ("/api/live/lines/queue?span=minutes", "/api/live/gantt?hours=1", "/api/live/decisions?count=60", "/api/live/ranks")

    def __init__(self, served: Served, stop: threading.Event) -> None:
        super().__init__(daemon=True)
        self.served, self.halt, self.ticks, self.problem = served, stop, 0, ""

    def run(self) -> None:
        try:
            self._watch()
        except Exception as error:  # told at the end
            self.problem = f"{type(error).__name__}: {error}"

    def _watch(self) -> None:
        stream = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        stream.request("GET", "/api/live/events")
        events, version, looked = stream.getresponse(), -1, 0.0
        asking = http.client.HTTPConnection("127.0.0.1", self.served.port, timeout=60)
        while not self.halt.is_set():
            line = events.readline()
            if not line:
                raise ConnectionError("the stream has ended")
            if not line.startswith(b"data: {"):
                continue
            self.ticks += 1
            seen: Mapping[str, Any] = json.loads(line[6:])
            if seen.get("version") != version:
                version = seen.get("version")
                self.served.ask("/api/live/jobs?first=0&count=100", asking)
            if time.monotonic() - looked > 5.0:
                looked = time.monotonic()
                for path in self.SLOW:
                    self.served.ask(path, asking)


def watched(served: Served, paths: list[str], seconds: float) -> Iterator[Line]:
    """Let many watch for long; meanwhile time the calls once more, and look at the memory."""
    stop = threading.Event()
    viewers = [Viewer(served, stop) for _ in range(VIEWERS)]
    for each in viewers:
        each.start()
        time.sleep(0.05)
    time.sleep(seconds / 10)
    before, spent, began = served.megabytes(), served.cpu(), time.monotonic()
    yield calls(served, f"{VIEWERS} viewers beside", paths)
    while time.monotonic() - began < 0.9 * seconds:
        time.sleep(1.0)
    after = served.megabytes()
    lasted, ticks = time.monotonic() - began, sum(each.ticks for each in viewers)
    share = (served.cpu() - spent) / lasted
    stop.set()
    for each in viewers:
        each.join(10.0)
    problems = [each.problem for each in viewers if each.problem]
    if problems:
        raise SystemExit(f"{len(problems)} viewers were lost: {problems[0]}")
    note = f"private; {before:.1f} MB after a tenth of the time, {after:.1f} MB at the end; {ticks:,} events were read, nobody was dropped"
    growth = 100 * max(after - before, 0.0) / before
    yield Line(f"growth of memory, {VIEWERS} viewers, {seconds / 60:g} minutes", f"{growth:.1f} %", "< 5 %", note)
    yield Line(f"processor that {VIEWERS} viewers cost", f"{100 * share:.0f} %", "", "of one core, the timed calls included")


def measure(seconds: float) -> Iterator[Line]:
    """Yield every row."""
    with tempfile.TemporaryDirectory() as place, crowded(Path(place) / "node") as client:
        run(parse_experiment(EXPERIMENT, "who.toml"), Path(place) / "results" / "who", backend_of("local", 1))
        served = Served("--folder", str(Path(place) / "node"), "--results", str(Path(place) / "results"))
        stop = threading.Event()
        busy = threading.Thread(target=changing, args=(client, stop), daemon=True)
        try:
            yield reading(served)
            busy.start()
            yield from visits(served)
            yield from sizes(served)
            paths = calls_of(served)
            yield calls(served, "alone", paths)
            yield from watched(served, paths, seconds)
        finally:
            stop.set()
            with suppress(RuntimeError):
                busy.join(10.0)
            served.stop()


def page(lines: list[Line], facts: str) -> str:
    """Return the page."""
    verdict = {True: "met", False: "**missed**", None: ""}
    rows = [f"| {each.what} | {each.measured} | {each.target} | {verdict[is_met(each)]} | {each.note} |" for each in lines]
    met, all_of = sum(is_met(each) is True for each in lines), sum(is_met(each) is not None for each in lines)
    return f"""# The dashboard under load

Generated by `python benchmarks/dashboard.py --page`; do not edit. {met} of {all_of} targets are met. Measured on: {facts}.

| what | measured | target | | |
|---|---:|---|---|---|
{chr(10).join(rows)}

- A real [node](../guides/your-gpu-workstation.md) without GPUs: {WAITING:,} jobs wait, 4 run, {ENDED:,} have ended (copies of one that
  ran). Every second {CHANGES} jobs are submitted and {CHANGES} others submitted and cancelled. [`gpuyard serve`](../guides/dashboard.md)
  runs beside it in a process of its own.
- Node, dashboard, browser and viewers share the same {os.cpu_count()} cores.
- A viewer reads the stream of events and asks for all that a page in a browser asks for: rows when jobs have changed, charts every five
  seconds. Viewers are threads of one process, because twenty browsers would measure this machine and not the dashboard.
- Times are wall time, on connections that are kept open; the slowest call is the one whose own 95th percentile is the highest.
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--soak", type=float, default=300.0, metavar="SECONDS", help="how long the viewers watch")
    given = parser.parse_args()
    facts, lines = machine(), list[Line]()
    for line in measure(given.soak):
        print(f"{line.what}: {line.measured} {line.target} ({line.note})", flush=True)
        lines.append(line)
    if given.page:
        PAGE.write_text(page(lines, facts), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
