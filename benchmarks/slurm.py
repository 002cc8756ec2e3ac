"""Measure order and place mode beside a real Slurm, and write docs/reference/slurm.md.

    python benchmarks/slurm.py [--page] [--repetitions 5] [--jobs 200]      # some forty minutes

The same jobs, drawn anew for each repetition, under Slurm's own order and under schedulers that order or place them, each beside a private
Slurm with 24 fake GPUs (tests/support/real_slurm.py) whose jobs are `sleep`, all arms of a repetition at the same time; what the controller
has to do at 3,000 waiting jobs; and what a pass over 5,000 waiting jobs takes. Runs are kept in --kept, so that a broken series goes on:
with as many as are asked for in there, it measures the rest alone.
"""

from __future__ import annotations

import argparse
import json
import math
import multiprocessing
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np

from bench import machine
from service import cpu_seconds

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.real_slurm import NODES, RealSlurm  # noqa: E402

from gpuyard.live.deciding import Asked  # noqa: E402
from gpuyard.live.log import read_lines  # noqa: E402
from gpuyard.live.slurm.dead_man import hook  # noqa: E402
from gpuyard.live.slurm.deploying import SlurmDeployment, SlurmSettings  # noqa: E402
from gpuyard.live.state.site import SiteJob, SiteNode, SiteState, site_snapshot  # noqa: E402
from gpuyard.model.site.notation import node_names  # noqa: E402
from gpuyard.policies import parse_scheduler  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "slurm.md"
OWN = "Slurm's own order"
SCHEDULERS = ("fcfs/fewest/easy", "sjf/fewest/easy", "learned:hpc/fewest/easy")
ARMS = (("own", OWN), *((mode, each) for mode in ("order", "place") for each in SCHEDULERS))
SHAPES = (("a100", 1, 1), ("a100", 2, 1), ("a100", 4, 1), ("a100", 8, 1), ("a100", 4, 2), ("v100", 1, 1), ("v100", 2, 1), ("v100", 4, 1))
SHARES = (0.15, 0.1, 0.15, 0.15, 0.1, 0.1, 0.1, 0.15)  # 4 GPUs a job: a queue in which the order matters
EVERY = 0.5  # s, from one cycle to the next
SHORTEST, LONGEST = 1.0, 20.0  # s: waits are many times the second in which Slurm starts jobs
FIRST_SEED = 10
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # Student's t by repetitions
WAITING, SPELL, PAIRS = 3_000, 18.0, 8  # jobs, s (two cycles, and the third not begun), how often with and without


@dataclass(frozen=True)
class Run:
    """One repetition under one scheduler."""

    mode: str  # own, order or place
    scheduler: str
    seed: int
    wait: float  # s, mean
    longest: float  # s
    span: float  # s, until the last has ended
    jobs: int
    twice: int  # jobs that ended twice, or not as COMPLETED
    oversubscribed: int  # instants at which a node's GPUs were held twice
    held: int  # looks at which a waiting job was held


@contextmanager
def slurm(mode: str = "own") -> Iterator[RealSlurm]:
    """Run a Slurm for a while."""
    base = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    base.chmod(0o755)
    epilog, made = base / "wake.sh", RealSlurm(base, hook=hook(["gpu"], deadman=600.0) if mode == "place" else "")
    if mode == "place":
        epilog.write_text(f"#!/bin/sh\nexec touch {wake_of(made)}\n")
        epilog.chmod(0o755)
        made.more = f"EpilogSlurmctld={epilog}"
    try:
        made.start()
        os.environ.update({name: made.environment[name] for name in ("SLURM_CONF", "PATH")})
        yield made
    finally:
        made.stop()
        shutil.rmtree(base, ignore_errors=True)


def wake_of(beside: RealSlurm) -> Path:
    """Return the file that is touched when a job ends."""
    return beside.base / "wake"


@contextmanager
def at_work(work: SlurmDeployment) -> Iterator[None]:
    """Let a deployment work beside what is done meanwhile, cycle after cycle as in production."""
    over = threading.Event()

    def run() -> None:
        for _ in work.cycles():
            if over.is_set():
                return

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


# ── the same jobs under several orders ──


def replay(mode: str, scheduler: str, seed: int, count: int) -> Run:
    """Let jobs gather behind four that fill the cluster, then let them go; all numbers are from Slurm's own record."""
    draw = np.random.default_rng(seed)
    seconds = np.exp(draw.uniform(np.log(SHORTEST), np.log(LONGEST), count))
    shapes = draw.choice(len(SHAPES), count, p=SHARES)
    with slurm(mode) as beside:
        blockers = [beside.submit("-w", name, f"--gres=gpu:{size}") for name, (_, size) in NODES.items()]
        while not all(beside.states()[job] == "RUNNING" for job in blockers):
            time.sleep(0.1)
        jobs = {}
        for shape, span in zip(shapes.tolist(), seconds.tolist(), strict=True):
            kind, each, nodes = SHAPES[shape]
            limit = 1 + int(span * 10)  # minutes: longer jobs ask for more, as users do
            jobs[beside.submit(f"-N{nodes}", f"--gres=gpu:{kind}:{each}", f"-t{limit}", seconds=round(span, 3))] = shape
        beneath: AbstractContextManager[None] = nullcontext()
        if mode != "own":
            settings = SlurmSettings(mode, every=EVERY, most=400, partitions=("gpu",), wake=wake_of(beside))
            work = SlurmDeployment(parse_scheduler(scheduler), settings)
            work.check()
            for _ in range(3):
                next(work.cycles())
            beneath = at_work(work)
        began, held = time.time(), 0
        beside.run("scancel", *map(str, blockers))
        with beneath:
            while waiting := beside.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%T %Q %r").splitlines():
                held += sum(line.startswith("PENDING") and (" 0 " in line or "Held" in line) for line in waiting)
                time.sleep(EVERY)
        return _judged(mode, scheduler, seed, jobs, began, held, beside)


def _judged(mode: str, scheduler: str, seed: int, jobs: dict[int, int], began: float, held: int, beside: RealSlurm) -> Run:
    lines = (beside.base / "log" / "jobcomp.log").read_text().splitlines()
    rows = [dict(part.partition("=")[::2] for part in line.split(" ") if "=" in part) for line in lines]
    mine = [row for row in rows if int(row["JobId"]) in jobs]
    events = []
    for row in mine:
        each = SHAPES[jobs[int(row["JobId"])]][1]
        start, end = (datetime.fromisoformat(row[name]).timestamp() for name in ("StartTime", "EndTime"))
        events += [event for node in node_names(row["NodeList"]) for event in ((start, 1, node, each), (end, 0, node, -each))]
    used, over = dict.fromkeys(NODES, 0), 0
    for _, _, node, change in sorted(events):
        used[node] += change
        over += used[node] > NODES[node][1]
    waits = [max(datetime.fromisoformat(row["StartTime"]).timestamp() - began, 0.0) for row in mine]
    ends = [datetime.fromisoformat(row["EndTime"]).timestamp() - began for row in mine]
    good = sum(row["JobState"] == "COMPLETED" for row in mine)
    wrong = len(jobs) - good + len(mine) - len({row["JobId"] for row in mine})
    return Run(mode, scheduler, seed, statistics.mean(waits), max(waits), max(ends), len(mine), wrong, over, held)


def change(runs: list[Run], arm: tuple[str, str]) -> tuple[float, float, float]:
    """Return by how many % the mean wait differs from Slurm's own order, with its 95 % interval over repetitions, paired."""
    own = {run.seed: run.wait for run in runs if run.mode == "own"}
    ratios = [100 * (run.wait / own[run.seed] - 1) for run in runs if (run.mode, run.scheduler) == arm]
    mean = statistics.mean(ratios)
    half = T_95[len(ratios)] * statistics.stdev(ratios) / len(ratios) ** 0.5
    return mean, mean - half, mean + half


def series(repetitions: int, count: int, kept: Path) -> list[Run]:
    """Run what is not in `kept` yet, the arms of a repetition at the same time."""
    runs = [Run(**json.loads(line)) for line in kept.read_text().splitlines()] if kept.exists() else []
    done = {(run.mode, run.scheduler, run.seed) for run in runs}
    for seed in range(FIRST_SEED, FIRST_SEED + repetitions):
        left = [arm for arm in ARMS if (*arm, seed) not in done]
        with ProcessPoolExecutor(max(len(left), 1), multiprocessing.get_context("spawn")) as pool:
            made = list(pool.map(replay, *zip(*((*arm, seed, count) for arm in left), strict=True))) if left else []
        with kept.open("a") as file:
            file.writelines(json.dumps(asdict(run)) + "\n" for run in made)
        runs += made
        print(*made, sep="\n", flush=True)
    return [run for run in runs if run.seed < FIRST_SEED + repetitions]


# ── the controller's load ──


@dataclass(frozen=True)
class Load:
    """What the controller had to do in one spell."""

    cycle: float  # µs, mean of slurmctld's scheduling cycles
    cpu: float  # s of CPU time of slurmctld


@contextmanager
def ordering(beside: RealSlurm) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    """Run order mode as its systemd unit does, with its usual period and niceness; yield the process and its log."""
    log = beside.base / "order.jsonl"
    command = [sys.executable, "-m", "gpuyard", "deploy", "slurm", "--order", "--scheduler", "sjf/fewest/easy", "--most", str(WAITING),
               "--log", str(log), "--lock", str(beside.base)]  # fmt: skip
    process = subprocess.Popen(["nice", "-n", "5", *command], env=beside.environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        yield process, log
    finally:
        process.send_signal(signal.SIGCONT)
        process.terminate()
        process.wait()


def load() -> tuple[list[tuple[Load, Load]], list[dict[str, Any]]]:
    """Return what the controller has to do at WAITING jobs without and with order mode, spell beside spell, and what order mode logs."""
    with slurm() as beside:
        blockers = [beside.submit("-w", name, f"--gres=gpu:{size}") for name, (_, size) in NODES.items()]
        while not all(beside.states()[job] == "RUNNING" for job in blockers):
            time.sleep(0.1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda k: beside.submit("--gres=gpu:1", f"-t{1 + k * 7919 % 3000}"), range(WAITING)))
        with ordering(beside) as (process, log):
            while len(read_lines(log)) < 2:  # the whole order is set
                time.sleep(0.5)
            found = []
            for pair in range(PAIRS):
                halves = {works: _spell(beside, process, works=works) for works in ((True, False), (False, True))[pair % 2]}
                found.append((halves[False], halves[True]))
                print(*found[-1], flush=True)
            return found, read_lines(log)


def _spell(beside: RealSlurm, process: subprocess.Popen[bytes], *, works: bool) -> Load:
    """Let order mode work for a while, or stand still."""
    process.send_signal(signal.SIGCONT if works else signal.SIGSTOP)
    controller = int((beside.base / "pid" / "slurmctld.pid").read_text())
    beside.run("sdiag", "--reset")
    before = cpu_seconds(controller)
    time.sleep(SPELL)
    cpu = cpu_seconds(controller) - before
    return Load(float(re.findall(r"Mean cycle:\s+(\d+)", beside.run("sdiag"))[0]), cpu)


# ── a pass ──


def passes() -> dict[str, float]:
    """Return the CPU time, in ms, of a pass over 5,000 waiting jobs on 1,000 nodes, for each scheduler: decisions, order, all of it."""
    draw = np.random.default_rng(1)
    nodes = [SiteNode(f"n{k}", True, 64, 512.0, {"a100": 8}, ("gpu",), 0) for k in range(1000)]
    spots = [(node.name, 2) for node in nodes for _ in range(4) if draw.random() < 0.97]
    asked = [((), int(draw.choice([1, 2, 4, 8]))) for _ in range(5000)]
    jobs = []
    for number, (where, gpus) in enumerate([*(((name,), count) for name, count in spots), *asked], 1):
        jobs.append(SiteJob(
            number, 0, -1, str(number), not where, bool(where), "", "Priority", ("gpu",), f"u{number % 50}", "", "", f"j{number}", 100.0,
            1e6 - 6000 + 0.5 * number, math.nan, 1e6 - 100 if where else math.nan, float(draw.integers(600, 86_400)), where, 1, 4.0, 8.0,
            gpus, gpus, "",
        ))  # fmt: skip
    saved = site_snapshot(SiteState(1e6, jobs, nodes))
    found = {}
    for scheduler in SCHEDULERS:
        asked_of, times = Asked(parse_scheduler(scheduler)), []
        for _ in range(21):
            began = time.process_time()
            asked_of.decide(saved)
            times.append(1000 * (time.process_time() - began))
        found[scheduler] = statistics.median(times[1:])
    return found


# ── the page ──


def page(runs: list[Run], heavy: str, spent: dict[str, float], facts: str) -> str:
    """Return the page."""
    rows = []
    for arm in ARMS:
        mine = [run for run in runs if (run.mode, run.scheduler) == arm]
        waits, longest = (statistics.mean(getattr(run, column) for run in mine) for column in ("wait", "longest"))
        against = "" if arm[0] == "own" else "{:+.0f} % ({:+.0f} to {:+.0f} %)".format(*change(runs, arm))
        rows.append(f"| {arm[1] if arm[0] == 'own' else f'{arm[0]}, `{arm[1]}`'} | {waits:.1f} s | {against} | {longest:.0f} s |")
    count, seeds = runs[0].jobs, len({run.seed for run in runs})
    wrong, over, held = (sum(getattr(run, column) for run in runs) for column in ("twice", "oversubscribed", "held"))
    verdicts = "\n".join(f"- {_verdict(arm, *change(runs, arm))}" for arm in ARMS if arm[0] != "own")
    return f"""# Beside a real Slurm

Generated by `python benchmarks/slurm.py --page`; do not edit. Measured on: {facts}.

## The same jobs, in another order

{count} jobs wait when the cluster becomes free; {seeds} repetitions with other jobs, each under every order at the same time.
Waits count from then on.

| mode and scheduler | mean wait | against Slurm's own, paired, 95 % interval | longest wait |
|---|---:|---:|---:|
{chr(10).join(rows)}

{verdicts}

By Slurm's own record of all {sum(run.jobs for run in runs):,} jobs: {wrong} ended twice or not at all, {over} times were GPUs of a node
held twice, and at {held} looks was a waiting job held.
{heavy}
{_pass_part(spent)}## How it was measured

- Slurm 22.05 with sched/backfill and priority/multifactor without weights, so that its own order is first come, first served; 24 fake GPUs
  on four nodes; jobs of 1 to 8 GPUs and gangs over two nodes that sleep {SHORTEST:g} to {LONGEST:g} s, spread evenly over the logarithm,
  and ask for limits that grow with that: who sorts by limits sorts by length. Real users' limits say less.
- [Order mode](../guides/live-clusters.md#order-site-factors) and [place mode](../guides/live-clusters.md#place-begin-times) run a cycle
  every half second. A private Slurm for each; those of a repetition run at the same time and so share the machine's bad moments.
- Slurm writes times in whole seconds, and starts jobs about once a second.
"""


def _pass_part(spent: dict[str, float]) -> str:
    times = "\n".join(f"| `{name}` | {value:.1f} ms |" for name, value in spent.items())
    return (
        f"""## What a pass takes

CPU time of one pass over 5,000 waiting jobs on 1,000 nodes with 8 GPUs each, nearly all in use: decisions and the whole order.
Median of 20.

| scheduler | CPU time |
|---|---:|
{times}

"""
        if spent
        else ""
    )


def _verdict(arm: tuple[str, str], mean: float, low: float, high: float) -> str:
    what = f"{arm[0].capitalize()} mode under `{arm[1]}`"
    if low <= 0 <= high:
        return f"{what}: no difference is shown, the interval includes 0."
    return f"{what}: mean waits are {abs(mean):.0f} % {'shorter' if mean < 0 else 'longer'}."


def _growth(before: list[float], after: list[float]) -> str:
    """Return medians, and by how many % the second grow, paired, with the 95 % interval."""
    ratios = [100 * (b / a - 1) for a, b in zip(before, after, strict=True)]
    mean, half = statistics.mean(ratios), T_95[len(ratios)] * statistics.stdev(ratios) / len(ratios) ** 0.5
    medians = f"{statistics.median(before):,.4g} | {statistics.median(after):,.4g}"
    return f"{medians} | {mean:+.1f} % ({mean - half:+.1f} to {mean + half:+.1f} %)"


def _load_part(pairs: list[tuple[Load, Load]], records: list[dict[str, Any]]) -> str:
    first, later = records[0], [each["seconds"] for each in records[2:] if "seconds" in each]
    read, decide = (1000 * statistics.median(each[name] for each in later) for name in ("read", "decide"))
    rows = "\n".join(
        f"| {what} | {_growth([getattr(a, name) for a, _ in pairs], [getattr(b, name) for _, b in pairs])} |"
        for name, what in (("cycle", "mean scheduling cycle of slurmctld, µs"), ("cpu", f"CPU time of slurmctld in {SPELL:g} s, s"))
    )
    sent, took = len(first["updates"]), first["seconds"]["act"]
    return f"""
## What the controller has to do

{WAITING:,} jobs wait, and order mode works with its usual period of ten seconds, or stands still:
{PAIRS} pairs of spells of {SPELL:g} s, in turn.

| what | without | with | growth, paired, 95 % interval |
|---|---:|---:|---:|
{rows}

The first order took {sent:,} site factors and {took:.1f} s; after that nothing is sent while the order holds.
A cycle takes {read:.0f} ms to read the queue and {decide:.0f} ms to decide and to plan.

"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--no-load", action="store_true", help="leave out the controller's load")
    parser.add_argument("--kept", type=Path, help="keep runs in this file, and do not repeat what is in it")
    given = parser.parse_args()
    facts = machine()
    with tempfile.TemporaryDirectory() as folder:
        runs = series(given.repetitions, given.jobs, given.kept or Path(folder) / "runs.jsonl")
    spent = passes()
    print(spent, flush=True)
    heavy = "" if given.no_load else _load_part(*load())
    print(heavy, flush=True)
    if given.page:
        PAGE.write_text(page(runs, heavy, spent, facts), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
