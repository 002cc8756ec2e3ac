"""Our table beside the published one of RLScheduler (Zhang et al., SC 2020), trace lublin_256; exit code 1 if any digit differs.

    python benchmarks/rlscheduler.py [PATH/lublin_256.swf.gz]

The first part runs the compatibility mode `gpuyard.compat.rlscheduler.rules`, which follows the paper's simulator rule by rule. The second
part gives gpuyard's own semantics (textbook EASY, no committed head) on the same ten windows and on windows that do not overlap.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np

from gpuyard import Result, Workload, load_cluster, parse_scheduler, simulate
from gpuyard.compat.rlscheduler.reader import load_rlscheduler
from gpuyard.compat.rlscheduler.rules import rlscheduler
from gpuyard.errors import GpuyardError
from gpuyard.metrics.jobs import bounded_slowdown

TRACE = Path(__file__).resolve().parents[2] / "shared" / "traces" / "swf" / "lublin_256.swf.gz"
PROCESSORS = 256
LENGTH = 1024  # jobs in a window
STARTS = (1981, 2756, 4299, 8850, 3316, 2714, 5228, 7762, 4022, 7085)  # of their ten windows, which overlap
ORDERINGS = ("fcfs", "wfp3", "unicep", "sjf", "f1")
# (backfilling, the published bug in the wait) → mean bounded slowdown to two digits, in the order of ORDERINGS. The rows without the
# bug are not in the paper: they are what its rules give with w = now − submit.
PUBLISHED: dict[tuple[bool, bool], tuple[str, ...]] = {
    (False, True): ("7273.77", "19753.53", "22274.74", "277.35", "258.37"),
    (False, False): ("7273.77", "337.34", "381.71", "277.35", "258.37"),
    (True, True): ("235.82", "133.87", "307.23", "73.31", "75.07"),
    (True, False): ("235.82", "126.50", "103.10", "73.31", "75.07"),
}
THEIR_RL = {(False, True): "254.67", (True, True): "58.64"}


def windows(workload: Workload, starts: Sequence[int]) -> list[Workload]:
    """The windows of LENGTH consecutive jobs that begin at `starts`, with the trace's own times."""
    return [workload.take(np.arange(start, start + LENGTH)) for start in starts]


def mean_slowdown(parts: Sequence[Workload], run: Callable[[Workload], Result]) -> float:
    """Mean bounded slowdown over the jobs of a window, then over the windows."""
    return float(np.mean([bounded_slowdown(run(part)).mean() for part in parts]))


def compatible(parts: Sequence[Workload], *, backfill: bool, bug: bool) -> tuple[str, ...]:
    """A row of the compatibility mode, with the digits of the paper."""

    def row(name: str) -> float:
        return mean_slowdown(parts, lambda w: rlscheduler(w, PROCESSORS, name, backfill=backfill, published_wait_bug=bug))

    return tuple(f"{row(name):.2f}" for name in ORDERINGS)


def own(parts: Sequence[Workload], backfill: str) -> tuple[str, ...]:
    """A row of gpuyard's own engine."""
    cluster = load_cluster(str(PROCESSORS))

    def row(name: str) -> float:
        scheduler = parse_scheduler(f"{name}/first/{backfill}")
        return mean_slowdown(parts, lambda w: simulate(w, cluster, scheduler))

    return tuple(f"{row(name):.2f}" for name in ORDERINGS)


def line(label: str, values: Sequence[str]) -> str:
    return f"{label:<46}" + "".join(f"{value:>11}" for value in values)


def print_compatible(parts: Sequence[Workload]) -> bool:
    """Print the published rows and ours; whether they are equal in every digit."""
    print(line("rules of the paper, its ten windows", (*ORDERINGS, "their RL")))
    equal = True
    for (backfill, bug), expected in PUBLISHED.items():
        ours = compatible(parts, backfill=backfill, bug=bug)
        title = ("their backfilling" if backfill else "no backfilling") + (", w as published" if bug else ", w = now − submit")
        print(line(f"{title}: {'paper' if bug else 'expected'}", (*expected, THEIR_RL.get((backfill, bug), ""))))
        print(line(f"{title}: gpuyard", (*ours, "" if ours == expected else "DIFFERS")))
        equal &= ours == expected
    return equal


def print_own(workload: Workload) -> None:
    """Print gpuyard's own semantics on their windows and on disjoint ones."""
    disjoint = range(0, len(workload) - LENGTH + 1, LENGTH)
    sets = {"their ten windows": STARTS, f"{len(disjoint)} disjoint windows": disjoint}
    print("\n" + line("gpuyard's own semantics, w = now − submit", ORDERINGS))
    for title, starts in sets.items():
        parts = windows(workload, list(starts))
        for backfill in ("none", "easy", "conservative"):
            print(line(f"{title}, backfill {backfill}", own(parts, backfill)))


def main(arguments: Sequence[str]) -> int:
    path = Path(arguments[0]) if arguments else TRACE
    if not path.is_file():
        shown = path if arguments else "../shared/traces/swf/lublin_256.swf.gz"
        print(f"error: {shown}: no such file; hint: give the path of the trace lublin_256 (SWF) as the argument", file=sys.stderr)
        return 2
    try:
        workload = load_rlscheduler(path)
    except GpuyardError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    if len(workload) < max(STARTS) + LENGTH:
        print(f"error: {path}: {len(workload):,} jobs; the windows need {max(STARTS) + LENGTH:,}", file=sys.stderr)
        return 1
    print(f"Mean bounded slowdown, {LENGTH:,} jobs a window, {PROCESSORS} processors\n")
    equal = print_compatible(windows(workload, STARTS))
    print_own(workload)
    print("\nequal to every published digit" if equal else "\nNOT equal to the published digits")
    return 0 if equal else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
