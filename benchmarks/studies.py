"""Run every study that comes with gpuyard, then write the pages that are made from them.

    python benchmarks/studies.py [--out results] [--traces DIR] [--train] [--quick] [--workers N]

Studies that train agents first (`ablation`) are run with `--train` only. `traces`, `months` and `hetero-traces` read public traces,
fetched by name where they can be; `--traces DIR` says where they are. `preemption` reads seven with `--traces` only. What is complete in
`--out` is not run again. At the end there is a table of how long each took, and docs/reference/results.md and docs/reference/claims.md
are written from the folders, unless it is the quick form.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType

from gpuyard.experiments.design.spec import Experiment, load_experiment, shipped

ROOT = Path(__file__).resolve().parents[1]
FIRST = (
    "core", "switching", "robustness", "drift", "ablation", "bandits", "hetero", "hetero-traces", "placing", "traces", "months", "hosts",
    "preemption", "shift",
)  # fmt: skip
FILES: Mapping[str, str] = MappingProxyType(  # value of a study → its file below --traces
    {
        "philly": "philly/philly_jobs_vc.csv.gz",
        "helios": "helios/helios_venus_gpu_jobs.csv.gz",
        "pai": "alibaba/pai2020_gpu_tasks_sample.csv.gz",
        "alibaba": "alibaba/pai2020_gpu_tasks_sample.csv.gz",
        "kth": "swf/KTH-SP2-1996-2.1-cln.swf.gz",
        "sdsc": "swf/SDSC-SP2-easy-resimulated.swf.gz",
        "ctc": "swf/CTC-SP2-easy-resimulated.swf.gz",
        "hpc2n": "swf/HPC2N-2002-2.1-cln.swf.gz",
        "google": "google/google2011_job_events_part00000-00017.csv.gz",
    }
)


def studies() -> dict[str, Experiment]:
    """Return the studies, those of the list above first and in its order."""
    names = shipped()
    order = [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)]
    return {name: load_experiment(name) for name in order}


def command(name: str, given: argparse.Namespace) -> list[str]:
    """Return the command line of a study."""
    parts = [sys.executable, "-m", "gpuyard", "run", name, "--out", str(folder(name, given)), "--format", "csv"]
    parts += ["--quick"] if given.quick else []
    parts += ["--workers", str(given.workers)] if given.workers else []
    return [*parts, *(part for text in values(name, given) for part in ("--set", text))]


def values(name: str, given: argparse.Namespace) -> Iterator[str]:
    """Yield where the traces are, for a study that reads them."""
    if given.traces is None or given.quick:
        return
    text = shipped()[name].read_text("utf-8")
    for value, file in FILES.items():
        if f"${{{value}}}" in text:
            yield f"{value}={given.traces / file}"


def folder(name: str, given: argparse.Namespace) -> Path:
    path: Path = given.out / name
    return path


def is_complete(name: str, given: argparse.Namespace) -> bool:
    return (folder(name, given) / "complete.json").is_file()


def run_all(given: argparse.Namespace) -> tuple[dict[str, float], list[str]]:
    """Run what is not complete; return the seconds that each took, and the studies that failed."""
    taken, failed = {}, []
    for name, experiment in studies().items():
        if is_complete(name, given):
            print(f"{name}: complete already", file=sys.stderr)
        elif experiment.agents and not given.train:
            print(f"{name}: trains agents first; --train runs it", file=sys.stderr)
        else:
            print(f"{name}: {experiment.title}", file=sys.stderr)
            begin = time.perf_counter()
            code = subprocess.run(command(name, given), stdout=subprocess.DEVNULL, check=False, cwd=ROOT).returncode
            taken[name] = time.perf_counter() - begin
            failed += [name] if code else []
    return taken, failed


def write_pages(given: argparse.Namespace) -> int:
    """Write the pages from the folders that are complete."""
    there = [str(folder(name, given)) for name in studies() if is_complete(name, given)]
    results = [sys.executable, "benchmarks/results_page.py", *there]
    claims = [sys.executable, "docs/pages/claims.py", str(given.out)]
    return max(subprocess.run(each, check=False, cwd=ROOT).returncode for each in (results, claims))


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=ROOT / "results", help="where the folders of the studies are")
    parser.add_argument("--traces", type=Path, help="folder of the public traces; they are fetched unless given")
    parser.add_argument("--train", action="store_true", help="also the studies that train agents first")
    parser.add_argument("--quick", action="store_true", help="the short forms, and no pages")
    parser.add_argument("--workers", type=int, help="processes; as many as there are cores unless given")
    given = parser.parse_args()
    given.out = given.out.resolve()
    given.traces = given.traces.resolve() if given.traces else None
    taken, failed = run_all(given)
    for name, seconds in taken.items():
        print(f"{name:12} {seconds:7.1f} s{'  failed' if name in failed else ''}")
    print(f"{'all':12} {sum(taken.values()):7.1f} s")
    if failed or given.quick:
        return 1 if failed else 0
    return write_pages(given)


if __name__ == "__main__":
    raise SystemExit(main())
