"""Every trace there is, read and run whole under three schedulers; prints and writes docs/reference/traces.md.

    python benchmarks/traces.py [--no-page] [FILE …]

Speeds are of one warm run each, the whole call of `simulate`; reading comes before. Ends with 1 if a file that should be read is not.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

import numpy as np

from gpuyard import Cluster, Workload, load_workload, parse_scheduler, simulate
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.metrics import counts, measure
from gpuyard.model.units import format_seconds
from gpuyard.traces import guess_cluster, reader_of
from gpuyard.traces.opening import head_of
from gpuyard.traces.readers.csv import what_file

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT.parent / "shared" / "traces"
PAGE = ROOT / "docs" / "reference" / "traces.md"
SCHEDULERS = {"FCFS+EASY": "fcfs/best/easy", "SJF+EASY": "sjf/best/easy", "LAS": "las/best/easy/las"}
# A list of pods without times: they are made up, and the page says so.
OPTIONS = {"openb2023_pod_list_multigpu50.csv.gz": {"arrivals": "60s", "runtime": "1h"}}
# Output of commands that show machines, queues or counters, told by the names under which it is kept.
NO_JOBS = {
    "README.md": "about the files",
    "slurm/*sinfo*": "nodes (sinfo)", "slurm/*squeue*": "the queue of a moment (squeue)", "slurm/*scontrol*": "scontrol show",
    "slurm/*sdiag*": "counters (sdiag)", "slurm/*sshare*": "shares (sshare)", "slurm/*sacctmgr*": "limits (sacctmgr)",
    "lsf/*bhosts*": "hosts", "lsf/*lsload*": "hosts", "lsf/*lshosts*": "hosts", "lsf/*bslots*": "free slots", "lsf/*bqueues*": "queues",
    "lsf/*lsid*": "the version", "lsf/*lsclusters*": "clusters", "lsf/*badmin*": "counters", "lsf/*bhist*": "the history of jobs by state",
    "lsf/datadog_bjobs.txt": "jobs of a moment (bjobs -o)",
}  # fmt: skip
NOTHING_USABLE = "no usable job"  # the format is known, but no row of the file has ended


@dataclass(frozen=True)
class Run:
    """One scheduler on one trace."""

    jobs_per_second: float
    wait: float  # s, mean
    bsld: float  # mean
    rejected: int


@dataclass
class Outcome:
    """What became of a file."""

    name: str
    reader: str = ""
    seconds: float = 0.0  # of reading
    workload: Workload | None = None
    cluster: Cluster | None = None
    origin: str = ""
    other: str = ""  # what the file is, if not a job trace
    error: str = ""
    runs: dict[str, Run] = field(default_factory=dict)


def files(given: Sequence[str]) -> list[Path]:
    """The files asked for, or all."""
    return [Path(name).resolve() for name in given] or sorted(path for path in FOLDER.rglob("*") if path.is_file())


def examine(path: Path) -> Outcome:
    """Read the file, or say why not."""
    name = path.relative_to(FOLDER).as_posix() if path.is_relative_to(FOLDER) else path.name
    head = head_of(path)
    other = (what_file(head) if head else "") or next((what for glob, what in NO_JOBS.items() if fnmatch(name, glob)), "")
    if other:
        return Outcome(name, other=other)
    try:
        reader = reader_of(path)
    except UsageError:
        return Outcome(name, error="no reader takes it")
    found = Outcome(name, reader=reader.name)
    try:
        began = time.perf_counter()
        found.workload = load_workload(str(path), **OPTIONS.get(path.name, {}))
        found.seconds = time.perf_counter() - began
        found.cluster, found.origin = guess_cluster(found.workload)
    except GpuyardError as error:
        if NOTHING_USABLE in str(error):
            found.other = "no job in it has ended"
        else:
            found.error = str(error).replace(str(path), path.name)
    return found


def run(found: Outcome) -> None:
    """The three schedulers, whole."""
    assert found.workload is not None
    assert found.cluster is not None
    for label, text in SCHEDULERS.items():
        scheduler = parse_scheduler(text)
        began = time.perf_counter()
        result = simulate(found.workload, found.cluster, scheduler)
        rate = len(found.workload) / (time.perf_counter() - began)
        values = measure(result, ("wait", "bsld"))
        found.runs[label] = Run(rate, values["wait"], values["bsld"], counts(result)["rejected"])
        print(f"  {found.name}: {label}: {rate:,.0f} jobs/s, bsld {values['bsld']:,.2f}", file=sys.stderr)


def load(workload: Workload, cluster: Cluster) -> float:
    """Work asked for / what the devices could do between the first and the last submission; nan for work without GPUs."""
    span = float(np.ptp(workload.jobs.submit))
    work = float(workload.jobs.gpus @ workload.runtime)
    return work / (cluster.gpus * span) if cluster.gpus and span > 0 else float("nan")


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def described(found: Outcome) -> tuple[str, ...]:
    """The row of a trace in the table of what was read."""
    workload, cluster = found.workload, found.cluster
    assert workload is not None
    assert cluster is not None
    dropped = "; ".join(f"{count:,} {reason}" for reason, count in workload.dropped.items()) or "none"
    rejected = max(one.rejected for one in found.runs.values())
    by_preset = f"`{workload.preset}`" if workload.preset and cluster.name == workload.preset else "guessed"
    size = f"{len(cluster.nodes):,} nodes, {cluster.gpus:,} devices"
    return (
        f"`{found.name}`", found.reader, f"{len(workload):,}", dropped, f"{by_preset}: {size}", f"{load(workload, cluster):.3f}",
        f"{rejected:,}", f"{found.seconds:.2f} s",
    )  # fmt: skip


def measured(found: Outcome) -> tuple[str, ...]:
    """The row of a trace in the table of results."""
    cells = [f"`{found.name}`"]
    for one in found.runs.values():
        cells += [format_seconds(one.wait), f"{one.bsld:,.2f}", f"{one.jobs_per_second:,.0f}"]
    return tuple(cells)


def page(outcomes: Sequence[Outcome]) -> str:
    """The generated page."""
    ran = [found for found in outcomes if found.runs]
    jobs = sum(len(found.workload) for found in ran if found.workload is not None)
    results = ("file", *(f"{label}: {what}" for label in SCHEDULERS for what in ("mean wait", "mean bsld", "jobs/s")))
    parts = [
        "# Traces", "",
        "Made by `python benchmarks/traces.py`, which reads every file of the trace collection and runs each whole.",
        "How to get them, and what each reader makes of a file: [public traces](../guides/public-traces.md).", "",
        f"{len(ran)} traces with {jobs:,} jobs. `bsld` is the bounded slowdown; estimates are the requested times,",
        "or the run times where a trace has none.", "",
        "## What is read", "",
        "`load` is the work asked for over what the devices could do between the first and the last submission.",
        "`rejected`: jobs that no part of the cluster holds.", "",
        table(("file", "reader", "jobs kept", "rows dropped", "cluster", "load", "rejected", "read in"), map(described, ran)), "",
        "## What three schedulers make of it", "",
        ", ".join(f"{label} is `{text}`" for label, text in SCHEDULERS.items()) + ". Speeds are of one warm run each.", "",
        table(results, map(measured, ran)), "",
        "## Files that are no job traces", "",
        table(("file", "is"), [(f"`{found.name}`", found.other) for found in outcomes if found.other]), "",
    ]  # fmt: skip
    failed = [found for found in outcomes if found.error]
    if failed:
        parts += ["## Not read", "", table(("file", "why"), [(f"`{found.name}`", found.error) for found in failed]), ""]
    return "\n".join(parts)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", nargs="*", help="only these; all unless given")
    parser.add_argument("--no-page", action="store_true", help="do not write docs/reference/traces.md")
    options = parser.parse_args()
    if not options.file and not FOLDER.is_dir():
        print("traces: ../shared/traces is absent: nothing to run", file=sys.stderr)
        return 0
    warm = load_workload("poisson:jobs=100")
    for text in SCHEDULERS.values():
        simulate(warm, Cluster.uniform(4, 8), parse_scheduler(text))
    outcomes = []
    for path in files(options.file):
        found = examine(path)
        if found.workload is not None:
            run(found)
        outcomes.append(found)
    text = page(outcomes)
    print(text)
    if not options.no_page and not options.file:
        PAGE.write_text(text, encoding="utf-8")
    for found in outcomes:
        if found.error:
            print(f"traces: {found.name}: {found.error}", file=sys.stderr)
    return 1 if any(found.error for found in outcomes) else 0


if __name__ == "__main__":
    sys.exit(main())
