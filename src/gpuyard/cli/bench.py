"""`gpuyard bench`: the speed of the engine on this machine, as ratios measured in one run."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from gpuyard.cli.common import options
from gpuyard.cli.common.output import Format, Output, Table, emit, say, short
from gpuyard.errors import UsageError

if TYPE_CHECKING:
    from gpuyard.model.cluster import Cluster
    from gpuyard.model.workload import Workload

SCRIPT = Path(__file__).resolve().parents[3] / "benchmarks" / "bench.py"  # exists in a checkout, not in an installed package


@dataclass(frozen=True)
class BenchCase:
    """A generated workload on a cluster under a scheduler, which is timed."""

    workload: str
    cluster: str
    scheduler: str


CASES = (
    BenchCase("lublin:jobs=10000,requests=exact", "256", "fcfs"),
    BenchCase("lublin:jobs=10000,requests=exact", "256", "sjf"),
    BenchCase("lublin:jobs=10000,requests=exact", "256", "fcfs/fewest/easy"),
    BenchCase("lublin:jobs=10000,requests=exact", "256", "sjf/fewest/easy"),
)
LARGE = BenchCase("gangs:jobs=1000000", "1000x8:a100", "fcfs")


@dataclass(frozen=True)
class Timing:
    """The median and the fastest of some runs."""

    case: BenchCase
    jobs: int
    median: float  # s
    best: float  # s


def bench(
    large: Annotated[bool, typer.Option("--large", help="Also time 1 M gang jobs on 1,000 × 8 GPUs.")] = False,
    runs: Annotated[int, typer.Option(metavar="N", help="Runs of each case; the median counts.")] = 5,
    short_: Annotated[bool, typer.Option("--short", help="Run this built-in benchmark even where benchmarks/bench.py exists.")] = False,
    out: Annotated[Path | None, typer.Option(metavar="FILE", help="Keep this run, to compare later ones with.")] = None,
    against: Annotated[
        Path | None,
        typer.Option(
            "--against",
            metavar="FILE",
            help="An earlier run on this machine: exit code 3 if a ratio is more than 15 % lower.",
        ),
    ] = None,
    how: options.FormatOption = Format.table,
    verbose: options.Verbose = False,
) -> None:
    """Time the engine: jobs per second on generated workloads. In a checkout this runs benchmarks/bench.py."""
    if not 1 <= runs <= 1000:
        raise UsageError(f"--runs {runs} does not lie in 1..1000")
    if SCRIPT.is_file() and not short_:
        say(f"running {SCRIPT.relative_to(SCRIPT.parents[1])}; --short for the built-in benchmark")
        further = [word for name, file in (("--out", out), ("--against", against)) if file for word in (name, str(file))]
        raise typer.Exit(subprocess.run([sys.executable, str(SCRIPT), *further], check=False).returncode)
    if out or against:
        raise UsageError("--out and --against need benchmarks/bench.py of a checkout", hint="-f json shows the numbers of this one")
    emit(describe([measure(case, runs) for case in (*CASES, *((LARGE,) if large else ()))]), how)


def measure(case: BenchCase, runs: int) -> Timing:
    """Time a case, warm: one run comes before the clock starts."""
    from gpuyard.model.cluster_file import load_cluster
    from gpuyard.traces import load_workload

    return time_runs(case, load_workload(case.workload, 0), load_cluster(case.cluster), runs)


def time_runs(case: BenchCase, workload: Workload, cluster: Cluster, runs: int) -> Timing:
    """Time `simulate` on a workload and a cluster that are loaded already."""
    from gpuyard.engine.simulation import simulate
    from gpuyard.policies import parse_scheduler

    scheduler = parse_scheduler(case.scheduler)
    simulate(workload.head(1000), cluster, scheduler)
    seconds = []
    for _ in range(runs):
        began = time.perf_counter()
        simulate(workload, cluster, scheduler)
        seconds.append(time.perf_counter() - began)
    return Timing(case, len(workload), statistics.median(seconds), min(seconds))


def describe(timings: Sequence[Timing]) -> Output:
    """Show jobs per second, and the ratio to the first case."""
    first = timings[0].jobs / timings[0].median
    records: list[dict[str, Any]] = [
        {"workload": t.case.workload, "cluster": t.case.cluster, "scheduler": t.case.scheduler, "jobs": t.jobs,
         "jobs_per_s": t.jobs / t.median, "best_jobs_per_s": t.jobs / t.best, "ratio": t.jobs / t.median / first}
        for t in timings
    ]  # fmt: skip
    rows = [
        (r["workload"], r["cluster"], r["scheduler"], *(short(r[key]) for key in ("jobs_per_s", "best_jobs_per_s", "ratio")))
        for r in records
    ]
    header = ("workload", "cluster", "scheduler", "jobs/s\nmedian", "jobs/s\nbest", "ratio to\nthe first")
    return Output([Table(header, rows, "simulate, warm", frozenset({0, 1, 2}))], records, records)
