"""How like people the generated requests are: logs with their own requested times, with modelled ones, and with exact ones.

    python benchmarks/requests.py [FOLDER with SWF logs]

For each log one row per kind of request: rank correlation with the run times, median request ÷ run time, jobs that ran longer, and the
mean wait and bounded slowdown under three orderings with EASY. Record 0020 quotes it.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

from gpuyard import Workload, load_workload, parse_scheduler, simulate, with_estimate
from gpuyard.arrays import Array
from gpuyard.metrics import measure
from gpuyard.traces import guess_cluster
from gpuyard.traces.generators.requests import typical_requests

LOGS = Path(__file__).resolve().parents[2] / "shared" / "traces" / "swf"
LONGEST = {"CTC-SP2-easy-resimulated": 64_800.0, "SDSC-SP2-easy-resimulated": 64_800.0, "KTH-SP2-1996-2.1-cln": 216_000.0}  # s, allowed
ORDERINGS = ("fcfs", "sjf", "saf")


def requested(workload: Workload, times: Array) -> Workload:
    """Let the jobs request other times."""
    return replace(workload, jobs=workload.jobs.replace(walltime=times, estimate=times))


def row(name: str, kind: str, workload: Workload) -> str:
    """Describe the estimates, and what they do."""
    run, guess = np.maximum(workload.runtime, 1.0), np.maximum(workload.jobs.estimate, 1.0)
    about = f"{spearmanr(run, guess)[0]:.2f} | {np.median(guess / run):.1f} | {(guess < run).mean():.1%}"
    cluster, _ = guess_cluster(workload)
    found = [measure(simulate(workload, cluster, parse_scheduler(f"{each}/fewest/easy")), ["wait", "bsld"]) for each in ORDERINGS]
    return f"| {name} | {kind} | {about} | " + " | ".join(f"{m['wait'] / 60:.0f}, {m['bsld']:.1f}" for m in found) + " |"


def main() -> int:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else LOGS
    print(
        "| log | requests | rank correlation | median ÷ run time | too short | " + " | ".join(f"{each} + EASY" for each in ORDERINGS) + " |"
    )
    print("|---|---|---:|---:|---:|" + "---:|" * len(ORDERINGS))
    for name, longest in LONGEST.items():
        log = load_workload(str(folder / f"{name}.swf.gz"))
        spread = np.random.default_rng(1).uniform(1.0, 5.0, len(log))
        kinds = {
            "real": log, "typical": requested(log, typical_requests(1, name, log.runtime, longest)),
            "run time × U(1, 5)": requested(log, log.runtime * spread), "exact": with_estimate(log, "exact"),
        }  # fmt: skip
        for kind, workload in kinds.items():
            print(row(name.partition("-easy")[0].partition("-1996")[0], kind, workload), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
