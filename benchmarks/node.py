"""Measure the node under load, and write docs/reference/node.md.

    python benchmarks/node.py [--page]      # some five minutes

10,000 jobs wait while 200 a second are submitted over the socket; a pass of the scheduler over them; a restart while 1,000 run; the
memory of the daemon and its scheduler; the time of `gpuyard submit`. The node is a real one in a temporary folder, its jobs are `sleep`.
"""

from __future__ import annotations

import argparse
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from bench import machine
from gpuyard.live.node.advice.advisor import Advice, Advisor, _decision
from gpuyard.live.node.advice.deciding import _decider
from gpuyard.live.node.client import NodeClient, NodeError
from gpuyard.live.node.core import Node, NodeSettings
from gpuyard.live.node.devices import NoGpus
from gpuyard.live.node.jobs import RunState, Submission
from gpuyard.live.node.running.shim import descendants
from gpuyard.live.node.starting import start_node, stop_node
from gpuyard.live.state.wire import SnapshotWriter
from gpuyard.model.snapshot import Snapshot
from targets import Line, target_table, told

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "reference" / "node.md"
SETTINGS = NodeSettings(scheduler="fcfs/fewest/easy", cpus=4)
WAITING, RUNNING = 10_000, 1_000
RATE, SPELL, SPELLS = 200, 2.5, 12  # requests a second, s, how often
LONG = Submission(("sleep", "36000"), env={"PATH": os.environ["PATH"]}, cpus=1.0, estimate=36_000.0, cwd="/")
PATIENCE = 600.0


@contextmanager
def node(folder: Path, settings: NodeSettings) -> Iterator[NodeClient]:
    """Run a node; at the end everything is cancelled."""
    start_node(folder, settings, PATIENCE)
    with NodeClient(folder) as client:
        try:
            yield client
        finally:
            with suppress(NodeError):
                client.call("drain")
                left = [job.id for job in client.jobs()]
                client.call("cancel", ids=left)
                client.wait(left, PATIENCE)
            stop_node(folder)


def until(true: Callable[[], bool]) -> None:
    """Wait until something is true."""
    end = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > end:
            raise SystemExit("never came true")
        time.sleep(0.2)


def count(client: NodeClient, state: RunState) -> int:
    """Return how many jobs are in a state."""
    return int(client.call("status")["jobs"].get(state.value, 0))


def fill(client: NodeClient) -> None:
    """Let four jobs run and all others wait, jobs of four kinds of shapes, each submitted by itself."""
    for _ in range(4):
        client.submit(LONG)
    until(lambda: count(client, RunState.running) == 4)
    for k in range(WAITING):
        client.submit(replace(LONG, cpus=float(1 + k % 4), estimate=60.0 * (1 + k % 97), name=f"part {k % 20}"))


# ── what is measured ──


def submitting(client: NodeClient) -> list[Line]:
    """Submit at a steady rate while 10,000 wait; in between, ask at the same rate for what costs nothing, to see what the machine adds."""
    spells, idle = [], []
    for _ in range(SPELLS):
        spells.append(_spell(lambda: client.submit(LONG)))
        idle.append(_spell(lambda: client.jobs([1])))
    best = min(spells, key=lambda spell: _percentile(spell, 99))
    p50, p99 = (_percentile(best, share) for share in (50, 99))
    mine, others = ("{:.1f} to {:.1f}".format(*_range([_percentile(spell, 99) for spell in each])) for each in (spells, idle))
    note = f"best of {SPELLS} spells of {SPELL:g} s, which gave {mine} ms; p50 {p50:.1f} ms"
    what = f"submit over the socket, {RATE} a second, {WAITING:,} wait: p99"
    told = f"{min(_percentile(spell, 99) for spell in idle):.1f} ms"
    return [
        Line(what, f"{p99:.1f} ms", "< 5 ms", note),
        Line("the same of a request that asks for one job: p99", told, "", f"spells in between gave {others} ms: what the machine adds"),
    ]


def _range(values: list[float]) -> tuple[float, float]:
    return min(values), max(values)


def _spell(request: Callable[[], object]) -> list[float]:
    """Return the ms that each request took."""
    found, began = [], time.monotonic()
    for k in range(int(RATE * SPELL)):
        pause = began + k / RATE - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        at = time.perf_counter()
        request()
        found.append(1000 * (time.perf_counter() - at))
    return found


def _percentile(values: list[float], share: int) -> float:
    return sorted(values)[min(len(values) * share // 100, len(values) - 1)]


class HereAdvisor(Advisor):
    """Decides in this process what the scheduler's own process would decide, from the same bytes."""

    def __init__(self, text: str) -> None:
        self.decide = _decider(text)
        self.now_used, self.ready, self.writer = text, True, SnapshotWriter()
        self.seen: Advice | None = None

    def ask(self, snapshot: Snapshot) -> None:
        found = self.decide(b"".join(self.writer.write(snapshot)))
        self.seen = Advice([_decision(each) for each in found["decisions"]], found["order"])

    def close(self) -> None:
        return


def passing(folder: Path) -> list[Line]:
    """Lay out 10,000 waiting jobs, decide and carry out, on the folder of a node that is stopped."""
    opened = Node(folder, SETTINGS, NoGpus())
    try:
        opened.advisor.close()
        advisor = HereAdvisor(SETTINGS.scheduler)
        opened.advisor = advisor
        spent = []
        for _ in range(40):
            began = time.process_time()
            opened.ask()
            assert advisor.seen is not None
            opened.follow(advisor.seen)
            spent.append(1000 * (time.process_time() - began))
        waiting = len(opened.pending)
    finally:
        opened.close()
    note = f"median of {len(spent)}, daemon and scheduler together; best {min(spent):.1f} ms"
    return [Line(f"a pass over {waiting:,} waiting jobs", f"{statistics.median(spent):.1f} ms CPU", "≤ 10 ms CPU", note)]


def memory(pid: int) -> list[Line]:
    """Return what daemon and scheduler hold, shared pages shared out."""
    scheduler = next(child for child in descendants({pid}) if b"deciding" in Path(f"/proc/{child}/cmdline").read_bytes())
    held = {name: _megabytes(each) for name, each in (("daemon", pid), ("scheduler", scheduler))}
    note = ", ".join(f"{name} {size:.0f} MB" for name, size in held.items()) + f"; proportional set size, {WAITING:,} jobs wait"
    return [Line("memory of the daemon with its engine loaded", f"{sum(held.values()):.0f} MB", "< 300 MB", note)]


def _megabytes(pid: int) -> float:
    rows = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
    return int(rows["Pss"].split()[0]) / 1e3


def command_line(folder: Path) -> list[Line]:
    """Return how long a process of `gpuyard submit` takes."""
    gpuyard = str(Path(sys.executable).with_name("gpuyard"))
    wall, cpu = [], []
    for _ in range(25):
        before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        subprocess.run([gpuyard, "submit", "--folder", str(folder), "--", "true"], check=True, stdout=subprocess.DEVNULL)
        wall.append(1000 * (time.perf_counter() - began))
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(1000 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime))
    note = f"median of {len(wall)}; wall time: best {min(wall):.0f} ms, median {statistics.median(wall):.0f} ms"
    return [Line("`gpuyard submit`, the whole process", f"{statistics.median(cpu):.0f} ms CPU", "< 150 ms", note)]


def restarting(folder: Path) -> list[Line]:
    """Stop and start a node while 1,000 jobs run."""
    settings = replace(SETTINGS, cpus=RUNNING)
    with node(folder, settings) as client:
        ids = client.submit(replace(LONG, array=tuple(range(RUNNING))))
        until(lambda: count(client, RunState.running) == RUNNING)
        shims = set(_shims(client))
        took = []
        for _ in range(5):
            stop_node(folder)
            began = time.monotonic()
            status = start_node(folder, settings)
            took.append(time.monotonic() - began)
            if status["jobs"].get(RunState.running.value) != RUNNING or set(_shims(client)) != shims:
                raise SystemExit(f"not all {RUNNING} jobs were adopted: {status['jobs']}")
        killed = _killed(client, folder, settings)
        share = sum(map(_megabytes, shims)) / len(shims)
    note = f"best of {len(took)}: {', '.join(f'{each:.2f}' for each in took)} s; after kill -9 {killed:.2f} s; jobs {ids[0]}–{ids[-1]}"
    return [
        Line(f"restart, {RUNNING:,} running jobs adopted", f"{min(took):.2f} s", "< 2 s", note),
        Line("memory of a job's supervisor", f"{share:.1f} MB", "", f"proportional set size, mean of {RUNNING:,}"),
    ]


def _killed(client: NodeClient, folder: Path, settings: NodeSettings) -> float:
    """Kill the daemon with -9 and return how long a start takes then."""
    pid = client.call("status")["pid"]
    os.kill(pid, 9)
    until(lambda: not Path(f"/proc/{pid}").exists() or " Z " in Path(f"/proc/{pid}/stat").read_text())
    began = time.monotonic()
    start_node(folder, settings)
    return time.monotonic() - began


def _shims(client: NodeClient) -> list[int]:
    """Return the processes that supervise the jobs of the node."""
    marker = str(client.folder / "jobs").encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError):
                words = (entry / "cmdline").read_bytes().split(b"\0")
                if any(word.endswith(b"shim.py") for word in words) and any(word.startswith(marker) for word in words):
                    found.append(int(entry.name))
    return found


# ── the page ──


def page(lines: list[Line], facts: str) -> str:
    """Return the page."""
    return f"""# A node under load

Generated by `python benchmarks/node.py --page`; do not edit. {target_table(lines, facts)}

- A real [node](../guides/your-gpu-workstation.md) without GPUs in a temporary folder, under first come, first served with EASY; its jobs
  are `sleep`, each with a [supervisor](../decisions/0036-one-shim-per-job.md) of its own.
- Other work shares the machine. Where the target is about the processor, CPU time counts; where it is about waiting, the best of several
  tries does, because the others show what else was going on.
- A submission is on record when it is answered: it survives the death of the daemon from then on.
- A pass lays all waiting jobs out as columns, hands them to the scheduler's process, decides, and carries out. While all devices are
  taken and no running job may be stopped there is one pass a second; otherwise there is one as soon as something happens, as long as
  passes take no more than a tenth of the daemon's time.
"""


def measure() -> Iterator[Line]:
    """Yield every row."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "full"
        with node(folder, SETTINGS) as client:
            fill(client)
            yield from submitting(client)
            yield from memory(int(client.call("status")["pid"]))
            yield from command_line(folder)
            stop_node(folder)
            yield from passing(folder)
            start_node(folder, SETTINGS)
        yield from restarting(Path(place) / "busy")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    given = parser.parse_args()
    facts, lines = machine(), told(measure())
    if given.page:
        PAGE.write_text(page(lines, facts), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
