"""The study of a real machine, from nothing to its files: rates, calibrations, replays. Whatever is there is not done again.

The folder holds `rates.json`, `traces/NAME.json` and `replays/TRACE--SCHEDULER--SLOTS.json`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from gpuyard.errors import UsageError
from gpuyard.experiments.real.measuring import Crowd, Rates, measure_rates
from gpuyard.experiments.real.replaying import Budget, ReplayMachine, TraceReplay, replay_all
from gpuyard.experiments.real.traces import RealTrace, calibration, held_out, trace_of
from gpuyard.files import is_file, locked
from gpuyard.registry import unknown_name
from gpuyard.workbench.task import KINDS, TaskRequest, can_do

HEURISTICS = ("fcfs", "priority", "edf", "srpt", "dynamic")
Say = Callable[[str], None]


@dataclass(frozen=True)
class RealSettings:
    """Settings of the study; times in s."""

    traces: int = 3
    schedulers: str = "fcfs priority edf srpt dynamic learned:meta"  # as `gpuyard simulate` takes them, with blanks between
    jobs: int = 50  # of a trace
    workload: str = ""  # a file or generator in the place of the held-out traces, e.g. trace_001.csv
    compress: float = 300.0  # jobs of 30–900 s become jobs of 0.1–3 s
    kinds: str = ""  # of work, with blanks between; empty: all that can be done here
    library: str = "auto"
    slots: int = 4  # jobs that share the GPU; on a CPU at most its cores
    scale: str = "auto"
    alone: int = 1  # traces that are also replayed with one job at a time
    alone_schedulers: str = "fcfs srpt"
    alone_jobs: int = 16  # the first jobs of such a trace
    seconds: float = 1e9  # after which no replay is begun
    measure: float = 2.0  # s for which each pair of kinds is measured

    def __post_init__(self) -> None:
        for name, (low, high) in _LIMITS.items():
            if not low <= getattr(self, name) <= high:
                raise UsageError(f"real: {name} = {getattr(self, name):g} does not lie in {low:g}..{high:g}")
        if not self.schedulers.split():
            raise UsageError("real: no schedulers", hint="schedulers='fcfs srpt learned:meta'")
        for kind in self.kinds.split():
            if kind not in KINDS:
                raise unknown_name("kind of work", kind, list(KINDS))

    @property
    def works(self) -> tuple[str, ...]:
        """Return the kinds of work of the study."""
        if self.kinds:
            return tuple(kind for kind in KINDS if kind in self.kinds.split())
        return tuple(kind for kind in KINDS if can_do(kind, self.library))


QUICK: Mapping[str, Any] = {
    "traces": 1, "jobs": 8, "schedulers": "fcfs srpt", "compress": 2000.0, "measure": 0.3, "alone_jobs": 4, "slots": 2, "scale": "small",
}  # fmt: skip
_LIMITS: Mapping[str, tuple[float, float]] = {
    "traces": (0, 1000), "jobs": (1, 10_000), "compress": (1e-3, 1e6), "slots": (1, 64), "alone": (0, 1000), "alone_jobs": (1, 10_000),
    "seconds": (0, 1e9), "measure": (0.05, 600),
}  # fmt: skip


def settings_of(values: Mapping[str, str], *, quick: bool = False) -> RealSettings:
    """Read settings as a person types them; `quick` is the short form, in which minutes become seconds."""
    usual = asdict(RealSettings())
    kinds = {name: type(value) for name, value in usual.items()}
    found: dict[str, Any] = dict(QUICK) if quick else {}
    for name, text in values.items():
        if name not in kinds:
            raise unknown_name("setting of the study real:", name, list(kinds))
        try:
            found[name] = kinds[name](text)
        except ValueError:
            raise UsageError(f"real: {name} = {text[:60]!r} is not a number") from None
    return RealSettings(**found)


def measure_contention(folder: Path, settings: RealSettings, say: Say = lambda text: None) -> Rates:
    """Measure what is still missing of the rates alone, in pairs and all at once."""
    path = folder / "rates.json"
    known = Rates.load(path) if is_file(path) else None
    if known is not None and known.complete(settings.works):
        return known

    def keep(rates: Rates, crowd: Crowd) -> None:
        rates.save(path)
        shown = ", ".join(f"{kind} {rate:.3g}/s" for kind, rate in rates.crowds[crowd].items())
        say(f"{' beside '.join(crowd) if len(crowd) > 1 else f'{crowd[0]} alone'}: {shown}")

    asked = TaskRequest("lm", settings.library, scale=settings.scale)
    warm = min(settings.measure / 2, 1.0)
    return measure_rates(asked, kinds=settings.works, seconds=settings.measure, warm=warm, known=known, on_progress=keep)


def run_study(folder: Path, settings: RealSettings, say: Say = lambda text: None) -> int:
    """Do everything that is not done yet, as far as the time allows; return how many replays are missing."""
    began = time.monotonic()
    with locked(folder):
        rates = measure_contention(folder, settings, say)
        gpu = rates.device == "gpu"
        slots = settings.slots if gpu else min(settings.slots, len(os.sched_getaffinity(0)))
        shared = ReplayMachine(slots, gpu, rates.library, settings.scale)
        alone = replace(shared, slots=1)
        traces, first = study_traces(folder, settings)
        budget = Budget(settings.seconds, began)
        missing = 0
        for machine in (alone, shared):
            missing += replay_all([_kept(folder, calibration(settings.works))], ["fcfs"], machine, rates, folder / "replays", budget, say)
        if first:
            missing += replay_all(first, settings.alone_schedulers.split(), alone, rates, folder / "replays", budget, say)
        return missing + replay_all(traces, settings.schedulers.split(), shared, rates, folder / "replays", budget, say)


def study_traces(folder: Path, settings: RealSettings) -> tuple[list[RealTrace], list[RealTrace]]:
    """Return the traces for shared slots, and the shorter ones for one job at a time."""
    if settings.workload:
        traces = [trace_of(settings.workload, 0, jobs=settings.jobs, compress=settings.compress, kinds=settings.works)]
    else:
        traces = held_out(settings.traces, jobs=settings.jobs, compress=settings.compress, kinds=settings.works) if settings.traces else []
    short = [
        replace(trace, name=f"{trace.name}-first{settings.alone_jobs}", jobs=trace.jobs[: settings.alone_jobs])
        for trace in traces[: settings.alone]
    ]
    return [_kept(folder, trace) for trace in traces], [_kept(folder, trace) for trace in short]


def _kept(folder: Path, trace: RealTrace) -> RealTrace:
    """Keep the trace in the folder; one of the same name that is there must be the same."""
    path = folder / "traces" / f"{trace.name}.json"
    if is_file(path):
        if RealTrace.load(path) != trace:
            raise UsageError(f"{path}: is another trace", hint="the folder holds a study with other settings: give another --out")
    else:
        trace.save(path)
    return trace


def load_study(folder: Path) -> tuple[Rates, dict[str, RealTrace], list[TraceReplay]]:
    """Read what a study wrote, finished or not."""
    rates = Rates.load(folder / "rates.json")
    traces = {path.stem: RealTrace.load(path) for path in sorted((folder / "traces").glob("*.json"))}
    replays = [TraceReplay.load(path) for path in sorted((folder / "replays").glob("*.json"))]
    return rates, traces, replays
