"""Study this machine: how fast it is, how jobs slow each other down, and real jobs under several schedulers.

    python benchmarks/real_node.py run  --out DIR --seconds-budget 500  # all steps; the same command goes on
    python benchmarks/real_node.py page --out DIR                       # writes docs/reference/real.md

On a machine that is lent for minutes at a time, one file goes from run to run; it is written anew after each finished piece:

    python benchmarks/real_node.py run  --out DIR --archive FILE.tgz --seconds-budget 500
    python benchmarks/real_node.py page --out DIR --archive FILE.tgz

The steps of `run`, each of which can be asked for alone: check (versions, the engine, the work; a minute, as the engine is compiled),
profile (a minute), contention (kinds of work alone, in pairs, all at once; two minutes), real (replays, a minute each). All but `page`
run from the source tree, without network, and need numpy, numba, safetensors, typer, rich, torch or jax, and nvidia-ml-py for a GPU.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tarfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))
os.environ["PYTHONPATH"] = os.pathsep.join([str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH", "")])])

PAGE = ROOT / "docs" / "reference" / "real.md"
ON_CPUS = """
**No GPU was measured yet.** This is a trial on CPU slots,
{load}.
Traces this short do not say which scheduler is best; they say how near the simulator comes. On a machine with a GPU the same commands, at
the end of this page, give the figures that count.
"""
QUIET = "one job after the other on a core that real-time priority kept free of other work"
BUSY = """on a machine whose cores did other work at the same time: how fast a job runs there depends on who else is busy, so that
predictions which are several times too long say that, and nothing of the simulator"""
FIGURES = ("turnaround", "turnaround.p95", "slowdown", "wait", "deadline_met", "makespan", "fairness")
BEGAN = time.monotonic()


def say(text: str) -> None:
    """Print one line with the seconds since the start."""
    print(f"{time.monotonic() - BEGAN:7.1f} s  {text}", flush=True)


def profile(given: argparse.Namespace) -> None:
    """Measure the devices."""
    from gpuyard.files import json_bytes, toml_text, write_bytes
    from gpuyard.live.gpus.nvml import NvmlLibrary
    from gpuyard.workbench.machine import machine_table
    from gpuyard.workbench.speed import Effort, cores, cpu_name, measure_machine

    library = NvmlLibrary()
    has = library.open()
    effort = Effort(cpu_side=512, gpu_side=1024, megabytes=32, repeats=2) if given.quick else Effort()
    devices = measure_machine(effort, watts=(lambda: library.read()[0].watts) if has else (lambda: 0.0))
    write_bytes(given.out / "machine.toml", toml_text(machine_table(devices)).encode())
    readings = [{"name": each.name, "memory": each.memory, "watts": each.watts} for each in library.read()] if has else []
    about = {"python": platform.python_version(), "cpu": cpu_name(), "cores": cores(), "gpus": readings, "nvml": library.problem or "found"}
    about |= {"real_time": os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)}
    write_bytes(given.out / "about.json", json_bytes({**about, "made": time.time(), "libraries": _versions()}))
    for each in devices:
        say(f"{each.title} ({each.library}): {each.products} TFLOP/s, {each.bandwidth:.0f} GB/s, {each.transfer} GB/s, {each.watts} W")


def _versions() -> dict[str, str]:
    from importlib.metadata import PackageNotFoundError, version

    found = {}
    for name in ("numpy", "numba", "torch", "jax", "nvidia-ml-py"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            continue
    return found


def _settings(given: argparse.Namespace) -> Any:
    from gpuyard.experiments.real.study import settings_of

    return settings_of(dict(text.partition("=")[::2] for text in given.set) | {"seconds": str(given.seconds_budget)})


def contention(given: argparse.Namespace) -> None:
    """Measure kinds of work alone, in pairs and all at once."""
    from gpuyard.experiments.real.study import measure_contention

    measure_contention(given.out, _settings(given), say)


def real(given: argparse.Namespace) -> None:
    """Replay traces."""
    from gpuyard.experiments.real.study import run_study

    missing = run_study(given.out, _settings(given), say)
    say(f"{missing} replays are missing: the same command goes on" if missing else "complete")


def check(given: argparse.Namespace) -> None:
    """See that everything is there, before time is spent: libraries, GPUs, the engine with each scheduler, the kinds of work."""
    import gpuyard
    from gpuyard.live.gpus.nvml import NvmlLibrary

    versions = ", ".join(f"{name} {version}" for name, version in _versions().items())
    say(f"gpuyard {gpuyard.__version__}, Python {platform.python_version()}, {versions}; {len(os.sched_getaffinity(0))} cores")
    library = NvmlLibrary()
    say(", ".join(each.name for each in library.read()) if library.open() else f"no GPU: {library.problem}")
    settings = _settings(given)
    say(f"kinds of work: {', '.join(settings.works)}")
    for scheduler in settings.schedulers.split():
        gpuyard.simulate("demo", "2x4:a100", scheduler)
        say(f"{scheduler}: compiled")


def run(given: argparse.Namespace) -> None:
    """Do what is missing of all steps, as far as the time allows; keep the archive up to date."""
    from gpuyard.experiments.real.study import measure_contention, run_study

    def told(text: str) -> None:
        say(text)
        pack(given)

    _apart("check", given)
    if not (given.out / "machine.toml").exists():
        _apart("profile", given)
        pack(given)
    measure_contention(given.out, _settings(given), told)
    given.seconds_budget -= time.monotonic() - BEGAN
    missing = run_study(given.out, _settings(given), told)
    say(f"{missing} replays are missing: the same command goes on" if missing else "complete")


def _apart(step: str, given: argparse.Namespace) -> None:
    """Do a step in a process of its own: one that has used a GPU cannot fork jobs that use it."""
    words = [word for text in given.set for word in ("--set", text)] + ["--quick"] * given.quick
    done = subprocess.run([sys.executable, __file__, step, "--out", str(given.out), *words], check=False)
    if done.returncode:
        sys.exit(done.returncode)


def unpack(given: argparse.Namespace) -> None:
    """Take over what an earlier run has left in the archive, if there is one."""
    if given.archive is not None and given.archive.exists():
        with tarfile.open(given.archive) as archive:
            archive.extractall(given.out, filter="data")


def pack(given: argparse.Namespace) -> None:
    """Put everything into the archive, if one is asked for; it is whole at any moment."""
    if given.archive is not None:
        part = given.archive.with_suffix(".part")
        with tarfile.open(part, "w:gz") as archive:
            for each in sorted(given.out.iterdir()):
                if each.name != "lock":
                    archive.add(each, arcname=each.name)
        part.replace(given.archive)


# ── the page ──


def page(given: argparse.Namespace) -> None:
    """Write the page from what a study has left."""
    from gpuyard.experiments.real.judging import judge
    from gpuyard.files import parse_json, read_bytes, read_toml

    summary = judge(given.out)
    table = read_toml(given.out / "machine.toml", "a cluster file") if (given.out / "machine.toml").exists() else {}
    about = parse_json(read_bytes(given.out / "about.json", 100_000, "facts"), "about.json") if (given.out / "about.json").exists() else {}
    parts = [
        _opening(summary, table, about),
        *_devices(table),
        _contention(summary),
        _measured(summary),
        _predicted(summary),
        _reading(summary),
        _again(),
    ]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    say(f"written: {PAGE.relative_to(ROOT)}")


def _rows(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    ruler = ["---" if k == 0 else "---:" for k in range(len(header))]
    return "\n".join("| " + " | ".join(row) + " |" for row in (header, ruler, *rows)) + "\n"


def _short(value: float) -> str:
    from gpuyard.experiments.judging.text import short

    return short(value) if value == value else "–"


def _name(text: str) -> str:
    return f"`{text}`"


def _opening(summary: Any, table: dict[str, Any], about: dict[str, Any]) -> str:
    rates, jobs = summary.rates, sum(each.jobs for each in summary.replays)
    lost = sum(each.lost for each in summary.replays)
    versions = ", ".join(f"{name} {version}" for name, version in about.get("libraries", {}).items())
    slots, order = summary.slots, summary.schedulers(summary.slots)
    device = rates.device_name if rates.device == "gpu" else about.get("cpu", "a CPU")
    made_with = f", with Python {about['python']}, {versions}" if about else ""
    day = time.strftime("%-d %B %Y", time.gmtime(summary.made))
    right, of = _best(summary)
    cpu = f"On a CPU with {slots} slot{'s' if slots > 1 else ''} (**{device}**, no GPU)"
    answer = f"On one **{device}**, which {slots} jobs share" if rates.device == "gpu" else cpu
    alone, shared = summary.median_error(1), summary.median_error(slots)
    both = f", and of jobs\nthat share it to within {100 * shared:.1f} %" if slots > 1 else ""
    trial = "" if rates.device == "gpu" else ON_CPUS.format(load=QUIET if about.get("real_time") and slots == 1 else BUSY)
    return f"""# Real jobs on a real machine

Generated by `python benchmarks/real_node.py page`; do not edit. Measured on {day}{made_with}.

{answer}, {_name(order[0])} gave the shortest mean turnaround of the {len(order)} schedulers; the simulator named the best one on {right} of
{of} traces. It predicted the turnaround of a job that has the device to itself to within {100 * alone:.1f} % (median;
{_target(alone)}){both}.

{jobs:,} jobs were run in {len(summary.replays)} replays; {f"{lost} of them did not end" if lost else "all of them ended"} with exit code 0.
{trial}
Every job is real work of the workbench (`python -m gpuyard.workbench`): a language model fine-tuned on generated text, a CNN and a
vision transformer trained on generated images, or a table filtered, joined and grouped. The traces are the first jobs of the workload
family (`gpuyard list workloads`) from seeds that no policy was trained, chosen or judged on, with their times divided. A
[node](../guides/your-gpu-workstation.md) of gpuyard runs them under each scheduler; learned ones were trained in simulation only.
"""


def _target(error: float) -> str:
    from gpuyard.experiments.real.judging import GOOD

    return f"asked for are {100 * GOOD:.0f} %: {'met' if error < GOOD else 'not met'}"


def _best(summary: Any) -> tuple[int, int]:
    from gpuyard.experiments.real.judging import best_is_predicted

    return best_is_predicted(summary, summary.slots)


def _devices(table: dict[str, Any]) -> list[str]:
    found = table.get("profile", {}).get("devices", [])
    if not found:
        return []
    names = {
        "tflops": "TFLOP/s, single", "half_tflops": "TFLOP/s, bfloat16", "bandwidth": "memory, GB/s", "to_device": "to it, GB/s",
        "from_device": "from it, GB/s", "busy_watts": "power, W",
    }  # fmt: skip
    rows = [[f"{each['title']} ({each['library']})", *(_short(each[key]) if each[key] else "–" for key in names)] for each in found]
    return ["## The devices\n\n`gpuyard profile` on this machine:\n", _rows(("device", *names.values()), rows)]


def _contention(summary: Any) -> str:
    from gpuyard.experiments.real.judging import contention_rows

    found = contention_rows(summary.rates)
    kinds = [row[0] for row in found]
    rows = [
        [_name(kind), _short(rate), *(f"{x:.2f}" for x in beside), f"{both:.2f}", f"{total:.2f}"]
        for kind, rate, beside, both, total in found
    ]
    costs = {slots: ", ".join(f"{kind} {1000 * each.beside(kind):.0f} ms" for kind in each.fixed) for slots, each in summary.costs.items()}
    taken = "; ".join(f"{'one job at a time' if slots == 1 else f'{slots} at once'}: {text}" for slots, text in sorted(costs.items()))
    pace = ", ".join(f"{kind} {value:.3f}" for kind, value in summary.costs[1].pace.items()) if 1 in summary.costs else "not measured"
    return f"""## How much jobs slow each other down

How many times as long a step takes beside one job of each kind, and beside one of each other kind at once: as measured, and as the sum
of what each pair added, which is what the predictions below use.

{_rows(("kind", "steps/s alone", *(f"beside {kind}" for kind in kinds), "all at once", "by the sum"), rows)}
What a job holds its slot for beside its steps, from the end of the job before it to its own (the record of that end, a decision, a
supervisor, a process forked from a warm one, libraries, the first step): {taken}.
What a planned second of steps took on the node, one job at a time: {pace}.
Both are from a calibration before the replays, with short and long jobs of each kind.
"""


def _measured(summary: Any) -> str:
    slots = summary.slots
    header = (
        "scheduler",
        "mean turnaround, s",
        "against the best heuristic",
        "95th percentile, s",
        "slowdown",
        "wait, s",
        "deadlines met",
        "makespan, s",
        "energy, kJ",
        "decision, ms",
    )
    rows = []
    for name in summary.schedulers(slots):
        mine = [each for each in summary.of(slots) if each.scheduler == name]
        joules = sum(each.joules for each in mine) / len(mine)
        decision = sorted(each.decision for each in mine)[len(mine) // 2]
        figures = [_short(summary.mean(name, slots, metric)) for metric in FIGURES[:6]]
        figures[4] = f"{100 * summary.mean(name, slots, 'deadline_met'):.0f} %"
        gap = summary.gap(name, slots)
        rows.append(
            [
                _name(name),
                figures[0],
                f"{100 * gap:+.1f} %" if gap == gap else "–",
                *figures[1:],
                _short(joules / 1000) if joules else "–",
                _short(1000 * decision),
            ]
        )
    troubles = [f"- {each.trace} under `{each.scheduler}`: {each.trouble}" for each in summary.replays if each.trouble]
    traces = sorted({each.trace for each in summary.of(slots)})
    notes = [*troubles, *_left_out(summary, traces)]
    if not any(each.metrics["deadline_met"] for each in summary.of(slots)):
        notes.append("- No deadline could be met: the family's leave a job less time than its process takes to start.")
    energy = ""
    if any(each.joules for each in summary.replays):
        energy = " Energy is that of the GPU while jobs held it."
    else:
        header, rows = (*header[:8], header[9]), [[*row[:8], row[9]] for row in rows]
    at_once = f"{slots} jobs at once" if slots > 1 else "one job at a time"
    return f"""## The schedulers, measured

Means over {len(traces)} traces ({", ".join(traces)}), {at_once}. The best heuristic is that of each trace, known only
afterwards.{energy}

{_rows(header, rows)}{chr(10).join(["", *notes, ""]) if notes else ""}"""


def _left_out(summary: Any, traces: list[str]) -> list[str]:
    """Say which schedulers the table leaves out because some trace is missing."""
    done: dict[str, int] = {}
    for each in summary.of(summary.slots):
        done[each.scheduler] = done.get(each.scheduler, 0) + 1
    part = [f"{_name(name)} ({count} of {len(traces)})" for name, count in done.items() if count < len(traces)]
    return [f"- Not in the table, as they did not replay every trace: {', '.join(part)}. What they did is below."] if part else []


def _predicted(summary: Any) -> str:
    rows = []
    for each in sorted(summary.replays, key=lambda e: (e.slots, e.trace, e.scheduler)):
        real, guess = each.metrics["turnaround"], each.predicted["turnaround"]
        rows.append(
            [
                each.trace,
                _name(each.scheduler),
                str(each.slots),
                str(each.jobs),
                _short(real),
                _short(guess),
                f"{100 * (guess / real - 1):+.1f} %",
                f"{100 * each.error:.1f} %",
                f"{100 * each.run_error:.1f} %",
                "yes" if each.agreed else "no",
            ]
        )
    header = (
        "trace",
        "scheduler",
        "at once",
        "jobs",
        "mean turnaround, s",
        "predicted, s",
        "off by",
        "median job off by",
        "its run off by",
        "came to rest",
    )
    return f"""## The simulator's prediction of the same traces

{_rows(header, rows)}
"""


def _reading(summary: Any) -> str:
    changes = [each for replay in summary.of(1) for each in replay.changes]
    slow = [each for each in changes if each > 0.5]
    middle = 1000 * sorted(changes)[len(changes) // 2] if changes else 0.0
    idle = f"- One job at a time, the next began {middle:.0f} ms after the end of the one before (median),"
    idle = f"{idle} but over half a second after it in {len(slow)} of {len(changes)} cases.\n" if changes else ""
    return f"""How to read it:

- A job's turnaround is its end minus its submission, by the clock of the node. The prediction knows the trace, the steps per second of
  each kind alone, the table of pairs, and what a job takes beside its steps, all measured before.
- **The engine has no slowdown of jobs that share a device.** Each job of a predicted trace therefore has a speed of its own: the mean
  over its run of 1 / slowdown beside those that run then. Simulation and speeds are repeated until they agree ("came to rest"). A job
  that starts in another order than predicted meets other neighbours; that is the larger part of the errors of shared replays.
{idle}- Traces of a minute have few jobs: differences of some per cent between schedulers are within what one more replay may change.
"""


def _again() -> str:
    return """## To do it again

```sh
python benchmarks/real_node.py run  --out DIR --seconds-budget 500
python benchmarks/real_node.py page --out DIR
```

`run` sees first that everything is there, then measures the devices and the kinds of work, and replays the traces; when the time is over
it says how many replays are missing, and the same command goes on. It needs no network and no installation, but Python with numpy, numba,
safetensors, typer, rich, torch or jax, and nvidia-ml-py for a GPU. On a machine that is lent for minutes at a time, `--archive FILE.tgz`
goes on from that file and keeps everything in it: below 1 MB, whole at any moment.

```sh
python benchmarks/real_node.py run  --out DIR --archive FILE.tgz --seconds-budget 500
python benchmarks/real_node.py page --out DIR --archive FILE.tgz
```

`gpuyard run real --out DIR` does the same as `run`, without check, profile and archive.
"""


def main() -> None:
    """Do one step."""
    steps: dict[str, Callable[[argparse.Namespace], None]] = {
        "profile": profile,
        "contention": contention,
        "real": real,
        "check": check,
        "run": run,
        "page": page,
    }
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=list(steps))
    parser.add_argument("--out", type=Path, required=True, metavar="DIR")
    parser.add_argument("--archive", type=Path, metavar="FILE.tgz", help="goes on from this file, and keeps everything in it")
    parser.add_argument("--quick", action="store_true", help="small measurements")
    parser.add_argument("--seconds-budget", type=float, default=500.0, metavar="S", help="no replay is begun that would end later")
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of the study, e.g. traces=3")
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    unpack(given)
    steps[given.step](given)


if __name__ == "__main__":
    main()
