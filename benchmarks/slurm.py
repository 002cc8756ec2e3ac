"""Measure order mode beside a real Slurm, and write docs/reference/slurm.md.

    python benchmarks/slurm.py [--page] [--repetitions 5] [--jobs 200]      # some fifteen minutes

The same jobs, drawn anew for each repetition, under Slurm's own order and under schedulers that set site factors; and what the controller
has to do at 3,000 waiting jobs. The Slurm is a private one with 24 fake GPUs (tests/support/real_slurm.py); its jobs are `sleep`.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import numpy as np

from bench import machine

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from tests.support.real_slurm import NODES, RealSlurm  # noqa: E402

from gpuyard.live.slurm.deploying import Deployment, DeploySettings  # noqa: E402
from gpuyard.model.site.notation import node_names  # noqa: E402
from gpuyard.policies import parse_scheduler  # noqa: E402

PAGE = ROOT / "docs" / "reference" / "slurm.md"
OWN = "Slurm's own order"
SCHEDULERS = (OWN, "sjf/fewest/easy")
SHAPES = (("a100", 1, 1), ("a100", 2, 1), ("a100", 4, 1), ("a100", 8, 1), ("a100", 4, 2), ("v100", 1, 1), ("v100", 2, 1), ("v100", 4, 1))
SHARES = (0.15, 0.1, 0.15, 0.15, 0.1, 0.1, 0.1, 0.15)  # 4 GPUs a job: a queue in which the order matters
SHORTEST, LONGEST = 0.5, 6.0  # s
FIRST_SEED = 10
T_95 = {2: 12.706, 3: 4.303, 4: 3.182, 5: 2.776, 6: 2.571, 7: 2.447, 8: 2.365}  # Student's t by repetitions
WAITING, SPELL, SPELLS = 3_000, 12.0, 3  # jobs, s, how often with and without


@dataclass(frozen=True)
class Run:
    """One repetition under one scheduler."""

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
def slurm() -> Iterator[RealSlurm]:
    """Run a Slurm for a while."""
    base = Path(tempfile.mkdtemp(prefix="slurm-", dir="/tmp"))
    base.chmod(0o755)
    made = RealSlurm(base)
    try:
        made.start()
        os.environ.update({name: made.environment[name] for name in ("SLURM_CONF", "PATH")})
        yield made
    finally:
        made.stop()
        shutil.rmtree(base, ignore_errors=True)


# ── the same jobs under several orders ──


def replay(scheduler: str, seed: int, count: int) -> Run:
    """Let jobs gather behind four that fill the cluster, then let them go; all numbers are from Slurm's own record."""
    draw = np.random.default_rng(seed)
    seconds = np.exp(draw.uniform(np.log(SHORTEST), np.log(LONGEST), count))
    shapes = draw.choice(len(SHAPES), count, p=SHARES)
    with slurm() as beside:
        blockers = [beside.submit("-w", name, f"--gres=gpu:{size}") for name, (_, size) in NODES.items()]
        while not all(beside.states()[job] == "RUNNING" for job in blockers):
            time.sleep(0.1)
        jobs = {}
        for shape, span in zip(shapes.tolist(), seconds.tolist(), strict=True):
            kind, each, nodes = SHAPES[shape]
            limit = 1 + int(span * 10)  # minutes: longer jobs ask for more, as users do
            jobs[beside.submit(f"-N{nodes}", f"--gres=gpu:{kind}:{each}", f"-t{limit}", seconds=round(span, 3))] = shape
        work = None
        if scheduler != OWN:
            work = Deployment(parse_scheduler(scheduler), DeploySettings(order=True, every=0.5, most=400))
            for _ in range(3):
                next(work.cycles())
        began = time.time()
        beside.run("scancel", *map(str, blockers))
        held = 0
        while waiting := beside.run("squeue", "-h", "-t", "PD,R,CG", "-o", "%T %Q %r").splitlines():
            held += sum(line.startswith("PENDING") and (" 0 " in line or "Held" in line) for line in waiting)
            if work is not None:
                next(work.cycles())
            time.sleep(0.5)
        return _judged(scheduler, seed, jobs, began, held, beside)


def _judged(scheduler: str, seed: int, jobs: dict[int, int], began: float, held: int, beside: RealSlurm) -> Run:
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
    return Run(scheduler, seed, statistics.mean(waits), max(waits), max(ends), len(mine), wrong, over, held)


def change(runs: list[Run], scheduler: str) -> tuple[float, float, float]:
    """Return by how many % the mean wait differs from Slurm's own order, with its 95 % interval over repetitions, paired."""
    own = {run.seed: run.wait for run in runs if run.scheduler == OWN}
    ratios = [100 * (run.wait / own[run.seed] - 1) for run in runs if run.scheduler == scheduler]
    mean = statistics.mean(ratios)
    half = T_95[len(ratios)] * statistics.stdev(ratios) / len(ratios) ** 0.5
    return mean, mean - half, mean + half


# ── the controller's load ──


def load() -> dict[str, float]:
    """Return the mean scheduling cycles (µs) with and without order mode at WAITING jobs, and what a cycle of ours takes."""
    found: dict[str, list[float]] = {"with": [], "without": []}
    with slurm() as beside:
        blockers = [beside.submit("-w", name, f"--gres=gpu:{size}") for name, (_, size) in NODES.items()]
        while not all(beside.states()[job] == "RUNNING" for job in blockers):
            time.sleep(0.1)
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda k: beside.submit("--gres=gpu:1", f"-t{1 + k * 7919 % 3000}"), range(WAITING)))
        work = Deployment(parse_scheduler("sjf/fewest/easy"), DeploySettings(order=True, every=5.0, most=WAITING))
        first = next(work.cycles())
        for _ in range(SPELLS):
            for how in ("without", "with"):
                beside.run("sdiag", "--reset")
                until = time.monotonic() + SPELL
                while time.monotonic() < until:
                    record = next(work.cycles()) if how == "with" else None
                    time.sleep(5.0)
                text = beside.run("sdiag")
                found[how].append(float(re.findall(r"Mean cycle:\s+(\d+)", text)[0]))
    assert record is not None
    return {
        "with": statistics.median(found["with"]), "without": statistics.median(found["without"]), "updates": float(len(first["updates"])),
        "first": first["seconds"]["act"], "read": record["seconds"]["read"], "decide": record["seconds"]["decide"],
    }  # fmt: skip


# ── the page ──


def page(runs: list[Run], found: dict[str, float] | None, facts: str) -> str:
    """Return the page."""
    names = list(dict.fromkeys(run.scheduler for run in runs))
    rows = []
    for name in names:
        mine = [run for run in runs if run.scheduler == name]
        waits, longest = (statistics.mean(getattr(run, column) for run in mine) for column in ("wait", "longest"))
        against = "" if name == OWN else "{:+.0f} % ({:+.0f} to {:+.0f} %)".format(*change(runs, name))
        rows.append(f"| {name if name == OWN else f'`{name}`'} | {waits:.1f} s | {against} | {longest:.0f} s |")
    count, seeds = runs[0].jobs, len({run.seed for run in runs})
    wrong, over, held = (sum(getattr(run, column) for run in runs) for column in ("twice", "oversubscribed", "held"))
    verdicts = "\n".join(_verdict(name, *change(runs, name)) for name in names if name != OWN)
    heavy = "" if found is None else _load_part(found)
    return f"""# Beside a real Slurm

Generated by `python benchmarks/slurm.py --page`; do not edit. Measured on: {facts}.

## The same jobs, in another order

{count} jobs wait when the cluster becomes free; {seeds} repetitions with other jobs, each under every order. Waits count from then on.

| order | mean wait | against Slurm's own, paired, 95 % interval | longest wait |
|---|---:|---:|---:|
{chr(10).join(rows)}

{verdicts}

By Slurm's own record of all {sum(run.jobs for run in runs):,} jobs: {wrong} ended twice or not at all, {over} times were GPUs of a node
held twice, and at {held} looks was a waiting job held.
{heavy}
- Slurm 22.05 with sched/backfill and priority/multifactor without weights, so that its own order is first come, first served; 24 fake GPUs
  on four nodes; jobs of 1 to 8 GPUs and gangs over two nodes that sleep {SHORTEST} to {LONGEST} s and ask for limits that grow with that.
- [Order mode](../guides/live-clusters.md#order-site-factors) runs a cycle every half second.
- Slurm writes times in whole seconds, and starts jobs about once a second.
"""


def _verdict(name: str, mean: float, low: float, high: float) -> str:
    if low <= 0 <= high:
        return (
            f"Under `{name}` no difference is shown: the interval includes 0. Its jobs take seconds, and Slurm starts some once a second."
        )
    return f"Under `{name}` mean waits are {abs(mean):.0f} % {'shorter' if mean < 0 else 'longer'}."


def _load_part(found: dict[str, float]) -> str:
    more = 100 * (found["with"] / found["without"] - 1)
    return f"""
## What the controller has to do

At {WAITING:,} waiting jobs, {SPELLS} spells of {SPELL:g} s with order mode (a cycle every five seconds) and without, in turn; medians.

| what | measured |
|---|---:|
| mean scheduling cycle of slurmctld, without → with | {found["without"]:.0f} → {found["with"]:.0f} µs ({more:+.0f} %) |
| the first order: {found["updates"]:.0f} site factors | {found["first"]:.1f} s |
| a cycle after that: squeue and parsing | {1000 * found["read"]:.0f} ms |
| a cycle after that: deciding and planning | {1000 * found["decide"]:.0f} ms |
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--page", action="store_true", help=f"write {PAGE.relative_to(ROOT)}")
    parser.add_argument("--repetitions", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=200)
    parser.add_argument("--no-load", action="store_true", help="leave out the controller's load")
    given = parser.parse_args()
    facts, runs = machine(), list[Run]()
    for seed in range(FIRST_SEED, FIRST_SEED + given.repetitions):
        order = SCHEDULERS if seed % 2 == 0 else SCHEDULERS[::-1]
        for scheduler in order:
            runs.append(replay(scheduler, seed, given.jobs))
            print(runs[-1], flush=True)
    found = None if given.no_load else load()
    print(found, flush=True)
    if given.page:
        PAGE.write_text(page(runs, found, facts), encoding="utf-8")
        print(f"written: {PAGE.relative_to(ROOT)}")


if __name__ == "__main__":
    main()
