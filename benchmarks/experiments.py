"""Runs of an experiment per second: `gpuyard run core`, `simulate_many` and a loop over `simulate`, and plain Python on the same workloads.

    python benchmarks/experiments.py [--seeds 8]

Two plain Python loops. The least that a script can be: two heaps, one GPU per job, no nodes, no timeline, no preemption; its numbers are
those of the engine, which is checked. And a simulator that knows all that the engine knows, `gpuyard.testing.reference`. Ratios are of Runs
of four schedulers, one after the other in one process.
"""

from __future__ import annotations

import argparse
import heapq
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard import Cluster, Workload, parse_scheduler, simulate, simulate_many
from gpuyard.experiments.design.cells import Sources, cells_of
from gpuyard.experiments.design.spec import Experiment, load_experiment
from gpuyard.experiments.running.store import COMPLETE
from gpuyard.metrics import measure, measure_many
from gpuyard.policies import AnyScheduler
from gpuyard.testing.reference import reference

Row = tuple[str, str, str, str]
LEAST = "some 150 jobs"
METRICS = ("slowdown", "wait")
ROUNDS = 5
KEYS: Mapping[str, Callable[[dict[str, Any]], float]] = {
    "fcfs": lambda job: job["submit"],
    "priority": lambda job: -job["priority"],
    "edf": lambda job: job["deadline"],
    "srpt": lambda job: job["estimate"],
}


def plain(jobs: list[dict[str, Any]], gpus: int, key: Callable[[dict[str, Any]], float]) -> dict[str, float]:
    """Mean slowdown and wait of a simulation in plain Python."""
    waiting: list[tuple[float, float, int]] = []
    running: list[tuple[float, int]] = []
    free, arrived, now = gpus, 0, 0.0
    slowdown = wait = 0.0
    while arrived < len(jobs) or running:
        following = jobs[arrived]["submit"] if arrived < len(jobs) else float("inf")
        now = min(following, running[0][0] if running else float("inf"))
        while running and running[0][0] <= now:
            heapq.heappop(running)
            free += 1
        while arrived < len(jobs) and jobs[arrived]["submit"] <= now:
            heapq.heappush(waiting, (key(jobs[arrived]), jobs[arrived]["submit"], arrived))
            arrived += 1
        while free and waiting:
            _, submit, number = heapq.heappop(waiting)
            length = jobs[number]["runtime"]
            heapq.heappush(running, (now + length, number))
            free -= 1
            wait += now - submit
            slowdown += (now - submit + length) / length
    return {"slowdown": slowdown / len(jobs), "wait": wait / len(jobs)}


def as_dicts(workload: Workload) -> list[dict[str, Any]]:
    columns = {name: getattr(workload.jobs, name).tolist() for name in ("submit", "priority", "deadline", "estimate")}
    columns["runtime"] = workload.runtime.tolist()
    return [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]


@dataclass(frozen=True)
class Loops:
    """CPU seconds of the Runs of four schedulers on all regimes, with two metrics each."""

    runs: int
    many: float  # `simulate_many` and `measure_many`
    single: float  # `simulate` and `measure`
    heaps: float  # two heaps in plain Python
    slow: float  # the reference simulator


def loops(experiment: Experiment, seeds: int) -> Loops:
    """Time all ways, workload by workload, and take the best of some rounds; each has all schedulers of a workload in turn."""
    sources = Sources(experiment.axes.seeds)
    cases = [sources.episode(cell, seed) for cell in cells_of(experiment) for seed in experiment.axes.seeds[:seeds]]
    schedulers = [parse_scheduler(name) for name in KEYS]
    simulate_many(cases[0].workload, cases[0].cluster, schedulers)
    least = np.full(3, np.inf)
    for _ in range(ROUNDS):
        seconds = np.zeros(3)
        for case in cases:
            found = []
            for k, way in enumerate(ways(case.workload, case.cluster, schedulers)):
                began = time.process_time()
                found.append([[row[name] for name in METRICS] for row in way()])
                seconds[k] += time.process_time() - began
            assert np.allclose(found, found[0], rtol=1e-9), (case.text, found)
        least = np.minimum(least, seconds)
    began = time.process_time()
    for case in cases:  # apart and once, because it takes 60 ms a Run
        for scheduler in schedulers:
            reference(case.workload, case.cluster, scheduler)
    return Loops(len(cases) * len(KEYS), *least.tolist(), time.process_time() - began)


def ways(workload: Workload, cluster: Cluster, schedulers: Sequence[AnyScheduler]) -> list[Callable[[], list[dict[str, float]]]]:
    """Return the first three ways of `Loops`: two numbers from each scheduler, and none keeps what ran where."""
    first, second = (replace(workload, jobs=workload.jobs.with_table(workload.jobs.table)) for _ in range(2))  # nothing is known of them
    jobs, gpus = as_dicts(workload), int(cluster.gpus)
    return [
        lambda: measure_many(simulate_many(first, cluster, schedulers, segments=False), METRICS),
        lambda: [measure(simulate(second, cluster, each, segments=False), METRICS) for each in schedulers],
        lambda: [plain(jobs, gpus, key) for key in KEYS.values()],
    ]


def whole(workers: int) -> tuple[int, float, float]:
    """(Runs, seconds, CPU seconds) of the command: start, processes, metrics, curves, bounds, files, summary.

    It is the command that is timed, not a call from here: worker processes load the main program of the process that starts them, and this
    one loads a learning framework. Python keeps its bytecode, as it does of an installed package.
    """
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "core"
        command = [sys.executable, "-m", "gpuyard", "run", "core", "--workers", str(workers), "--out", str(out)]
        before, began = os.times(), time.perf_counter()
        subprocess.run(command, env=os.environ | {"PYTHONDONTWRITEBYTECODE": ""}, capture_output=True, check=True)
        seconds, after = time.perf_counter() - began, os.times()
        cpu = after.children_user + after.children_system - before.children_user - before.children_system
        return json.loads((out / COMPLETE).read_text())["runs"], seconds, cpu


def lines(seeds: int = 8) -> list[Row]:
    """Rows of the table: what, measured, target, note."""
    experiment = load_experiment("core")
    experiment = replace(experiment, axes=replace(experiment.axes, seeds=experiment.axes.seeds[:seeds]))
    timed = loops(experiment, 1)
    found: list[Row] = []
    for workers in (2, 1):
        count, seconds, cpu = whole(workers)
        target = "≥ 768 Runs/s" if workers == 2 else ""  # 3,072 in 4 s
        note = f"{count:,} Runs in {seconds:.1f} s, from the start of Python to the printed summary; CPU {cpu:.1f} s"
        found.append((f"`gpuyard run core`, {workers} worker{'s' * (workers > 1)}", f"{count / seconds:,.0f} Runs/s", target, note))
    rates = {
        "the same workloads, `simulate_many` with two metrics": timed.many,
        "… one by one, a loop over `simulate`": timed.single,
        "… in plain Python, all that the engine knows": timed.slow,
        "… in plain Python, two heaps and two means, no more": timed.heaps,
    }
    found += [
        (what, f"{timed.runs / spent:,.0f} Runs/s", "", "four schedulers" * (k == 0)) for k, (what, spent) in enumerate(rates.items())
    ]
    found.append(("the engine : plain Python that knows as much, Runs/s", f"{timed.slow / timed.many:.0f} ×", "", ""))
    note = f"of {LEAST} the setting up is most; one by one {timed.heaps / timed.single:.2f} ×"
    found.append(("the engine : two heaps in plain Python, Runs/s", f"{timed.heaps / timed.many:.2f} ×", "≥ 1 ×", note))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    for row in lines(parser.parse_args().seeds):
        print("  ".join(row))


if __name__ == "__main__":
    main()
