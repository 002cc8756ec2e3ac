"""Runs of an experiment per second: `gpuyard run core`, a bare loop over `simulate`, and a plain Python simulator on the same workloads.

    python benchmarks/experiments.py [--seeds 8]

Two plain Python loops. The least that a script can be: two heaps, one GPU per job, no nodes, no timeline, no preemption; its numbers are
those of the engine, which is checked. And a simulator that knows all that the engine knows, `gpuyard.testing.reference`. Ratios are of Runs
of four schedulers, one after the other in one process.
"""

from __future__ import annotations

import argparse
import heapq
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard import Workload, load_cluster, parse_scheduler, simulate
from gpuyard.experiments.design.cells import Sources, cells_of
from gpuyard.experiments.design.spec import Experiment, load_experiment
from gpuyard.experiments.running.runner import backend_of, run
from gpuyard.metrics import measure
from gpuyard.testing.reference import reference

Row = tuple[str, str, str, str]
LEAST = "some 150 jobs"
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


def loops(experiment: Experiment, seeds: int) -> tuple[int, float, float, float]:
    """(Runs, CPU s of a loop over `simulate`, of the two heaps, of the reference) for four schedulers on all regimes."""
    sources = Sources(experiment.axes.seeds)
    cases = [sources.episode(cell, seed) for cell in cells_of(experiment) for seed in experiment.axes.seeds[:seeds]]
    schedulers = {name: parse_scheduler(name) for name in KEYS}
    for scheduler in schedulers.values():
        simulate(cases[0].workload, cases[0].cluster, scheduler)
    lists = [(as_dicts(case.workload), int(load_cluster(case.cluster.name).gpus)) for case in cases]
    seconds = [0.0, 0.0, 0.0]
    for case, (jobs, gpus) in zip(cases, lists, strict=True):
        for name, scheduler in schedulers.items():
            began = time.process_time()
            ours = measure(simulate(case.workload, case.cluster, scheduler), ["slowdown", "wait"])
            between = time.process_time()
            theirs = plain(jobs, gpus, KEYS[name])
            seconds[0] += between - began
            then = time.process_time()
            seconds[1] += then - between
            reference(case.workload, case.cluster, scheduler)
            seconds[2] += time.process_time() - then
            assert np.isclose(ours["slowdown"], theirs["slowdown"], rtol=1e-9), (case.text, name, ours, theirs)
    return len(cases) * len(KEYS), seconds[0], seconds[1], seconds[2]


def whole(experiment: Experiment, workers: int) -> tuple[int, float]:
    """(Runs, seconds) of everything: processes, metrics, curves, bounds, files."""
    with tempfile.TemporaryDirectory() as folder:
        began = time.perf_counter()
        outcome = run(experiment, Path(folder) / "core", backend_of("local", workers))
        return outcome.runs, time.perf_counter() - began


def lines(seeds: int = 8) -> list[Row]:
    """Rows of the table: what, measured, target, note."""
    experiment = load_experiment("core")
    experiment = replace(experiment, axes=replace(experiment.axes, seeds=experiment.axes.seeds[:seeds]))
    runs, ours, heaps, slow = loops(experiment, 1)
    found: list[Row] = []
    for workers in (2, 1):
        count, seconds = whole(experiment, workers)
        target = "≥ 768 Runs/s" if workers == 2 else ""  # 3,072 in 4 s
        note = f"{count:,} Runs in {seconds:.1f} s, with metrics, curves, bounds and files"
        found.append((f"`gpuyard run core`, {workers} worker{'s' * (workers > 1)}", f"{count / seconds:,.0f} Runs/s", target, note))
    found.append(("the same workloads, a loop over `simulate` with two metrics", f"{runs / ours:,.0f} Runs/s", "", "four schedulers"))
    found.append(("… in plain Python, all that the engine knows", f"{runs / slow:,.0f} Runs/s", "", ""))
    found.append(("… in plain Python, two heaps and two means, no more", f"{runs / heaps:,.0f} Runs/s", "", ""))
    found.append(("the engine : plain Python that knows as much, Runs/s", f"{slow / ours:.0f} ×", "", ""))
    found.append(("the engine : two heaps in plain Python, Runs/s", f"{heaps / ours:.2f} ×", "≥ 1 ×", f"of {LEAST} the setting up is most"))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seeds", type=int, default=8)
    for row in lines(parser.parse_args().seeds):
        print("  ".join(row))


if __name__ == "__main__":
    main()
