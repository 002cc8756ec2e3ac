"""Runs several programs on the same jobs, set up together, and makes results of what they leave.

A run of 150 jobs takes the kernels 0.03 ms. To set it up and to make its result takes longer, because that is done in Python; for
all programs together it takes hardly longer than for one.
"""

from __future__ import annotations

import platform
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.build import as_seen_by_kernels, build_many
from gpuyard.engine.compiler.entry import run_step
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.driver import Driver
from gpuyard.engine.interrupts import interrupts
from gpuyard.engine.kernels.events import FINISH, FINISHED, PREPARE, RUN
from gpuyard.engine.memory import Memory
from gpuyard.engine.slots import Program
from gpuyard.errors import UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import INELIGIBLE, SEGMENT, WAITS_FOR, Result
from gpuyard.model.rules import Rules
from gpuyard.model.workload import Workload

TOGETHER = 1 << 14  # jobs of all runs that are set up at once, at most: 8 MB; a run that is longer is alone
_TOTALS = ("passes", "instants", "first_submit", "last_end", "failures", "migrations", "queue_max")
T = TypeVar("T")
Seconds = tuple[float, float]  # of the whole run, and of its decisions


def checked_seed(seed: int) -> int:
    """Return a seed, or refuse one that the kernels cannot hold."""
    if not (isinstance(seed, (int, np.integer)) and 0 <= seed < 2**63):
        raise UsageError(f"seed = {seed} is not a whole number from 0 to 2^63 - 1")
    return seed


@dataclass(frozen=True)
class Ran:
    """Holds what was run, whatever the scheduler."""

    workload: Workload
    cluster: Cluster
    seed: int
    rules: Rules

    @cached_property
    def _about(self) -> dict[str, Any]:
        rules = {k: getattr(self.rules, k) for k in ("walltime_kill", "checkpoint", "restart_cost", "checkpoint_cost", "drain")}
        return {"seed": self.seed, "estimate": self.workload.estimates, "rules": rules, **_versions()}

    def manifest(self, label: str, seconds: Seconds, passes: float, slots: Array) -> dict[str, Any]:
        """Describe a run under the scheduler of that label; of one that switches, also how often it chose which."""
        clocks = {"wall_s": seconds[0], "decision_us": seconds[1] / max(passes, 1.0) * 1e6}
        chosen = {"chosen": slots["chosen"].tolist()} if len(slots) > 1 else {}
        return {"measured": False, "scheduler": label, **self._about, **clocks, **chosen}

    def result(self, s: st.State, label: str, seconds: Seconds, *, over: bool) -> Result:
        """Make the result of a state; see `result_of`."""
        manifest = self.manifest(label, seconds, float(s.control["passes"][0]), s.slots.view(np.ndarray))
        return result_of(s, self.workload, self.cluster, label, self.seed, manifest, over=over)


def run_together(about: Ran, programs: Sequence[Program], *, segments: bool) -> list[Result]:
    """Run every program to its end. Estimates must be those of the jobs."""
    every = batches(programs, len(about.workload))
    return [result for batch in every for result in _run_batch(about, batch, segments=segments)]


def batches(items: Sequence[T], jobs: int) -> Iterator[Sequence[T]]:
    """Split what runs on a workload of so many jobs into those that are set up together."""
    size = max(TOGETHER // max(jobs, 1), 1)
    return (items[k : k + size] for k in range(0, len(items), size))


def _run_batch(about: Ran, programs: Sequence[Program], *, segments: bool) -> list[Result]:
    began, jobs = time.perf_counter(), about.workload.jobs
    memory = build_many(
        jobs, about.workload.runtime, about.cluster, programs, about.seed, about.rules, segments=segments, timeline=True
    )  # fmt: skip
    memory.every("control")["attention"] = 0 if INTERPRETED else interrupts().address
    shared = (time.perf_counter() - began) / len(programs)
    seconds: list[Seconds] = []
    apart: dict[int, st.State] = {}  # of runs that needed more space than they began with
    for k, (program, address) in enumerate(zip(programs, memory.addresses(), strict=True)):
        then = time.perf_counter()
        driver = _run_to_the_end(memory, k, address, program.label, jobs.id)
        if driver is not None:
            apart[k] = driver.state
        took = time.perf_counter() - then
        seconds.append((shared + took, took))
    if segments:
        apart = {k: memory.state(k) for k in range(len(programs))} | apart
    together = _results(about, memory, programs, seconds) if len(apart) < len(programs) else []
    return [
        about.result(apart[k], program.label, seconds[k], over=True) if k in apart else together[k] for k, program in enumerate(programs)
    ]


def _run_to_the_end(memory: Memory, k: int, address: int, label: str, ids: Array) -> Driver | None:
    """Run a state to its end; returns its driver where it took one."""
    handle: Any = as_seen_by_kernels(memory.state(k)) if INTERPRETED else address
    run_step(handle, PREPARE)
    status, driver = run_step(handle, RUN), None
    if status != FINISHED:
        driver = Driver(as_seen_by_kernels(memory.state(k)), label, ids, None, memory.headers[k])
        if status < 0:
            raise driver.failure(status)
        driver.order(RUN)
        handle = driver.handle
    run_step(handle, FINISH)
    return driver


# ── results ──


def _results(about: Ran, memory: Memory, programs: Sequence[Program], seconds: Sequence[Seconds]) -> list[Result]:
    """Make the results of all runs, whose tables and timelines stay where they are."""
    control = memory.every("control")[:, 0]
    tables, timelines, bins = _frozen(memory.every("result")), _frozen(memory.every("timeline")), control["bins"].tolist()
    every = totals_of(control, memory.every("bins"), memory.every("types"), about.cluster)
    slots = memory.every("slots")
    manifests = [
        about.manifest(program.label, seconds[k], every[k]["passes"], slots[k, : len(program.slots)]) for k, program in enumerate(programs)
    ]
    return [
        Result(
            about.workload, about.cluster, program.label, about.seed, table=tables[k], timeline=timelines[k, : bins[k]],
            segments=_NO_SEGMENTS, totals=MappingProxyType(every[k]), manifest=MappingProxyType(manifests[k]),
        )
        for k, program in enumerate(programs)
    ]  # fmt: skip


def result_of(
    s: st.State, workload: Workload, cluster: Cluster, label: str, seed: int, manifest: Mapping[str, Any], *, over: bool = False
) -> Result:
    """Make a result of a state; FINISH must have been ordered. `over`: the kernels write no more to it, and nothing need be copied."""
    table, timeline = s.result.view(np.ndarray), s.timeline.view(np.ndarray)[: int(s.control["bins"][0])]
    if workload.predictor is not None:
        workload = workload.with_made_estimates(s.rows["estimate"])
    control, bins, types = (array.view(np.ndarray) for array in (s.control, s.bins, s.types))
    totals = totals_of(control, bins[None], types[None], cluster)[0]
    return Result(
        workload, cluster, label, seed,
        table=_frozen(table if over else table.copy()), timeline=_frozen(timeline if over else timeline.copy()), segments=_segments(s),
        totals=MappingProxyType(totals), manifest=MappingProxyType(dict(manifest)), ineligible=_ineligible(s),
    )  # fmt: skip


def _ineligible(s: st.State) -> Array:
    """Return for how long jobs were not eligible, as rows of INELIGIBLE."""
    if not s.control["explaining"][0]:
        return _frozen(np.zeros(0, INELIGIBLE))
    seconds = s.why_total.reshape(-1, len(WAITS_FOR))
    job, reason = np.nonzero(seconds)
    found = np.zeros(len(job), INELIGIBLE)
    found["job"], found["reason"], found["seconds"] = job, reason, seconds[job, reason]
    return _frozen(found)


@cache
def _versions() -> dict[str, str]:
    return {"python": platform.python_version(), "numpy": np.__version__, "platform": platform.platform()}


def _segments(s: st.State) -> Array:
    used = s.log[: int(s.control["log"][0])]
    if not len(used):
        return _NO_SEGMENTS
    segments = np.zeros(len(used), SEGMENT)
    for name in SEGMENT.names or ():
        segments[name] = used[name]
    return _frozen(segments)


def _frozen(array: Array) -> Array:
    array.flags.writeable = False
    return array


_NO_SEGMENTS = _frozen(np.zeros(0, SEGMENT))


def totals_of(control: Array, bins: Array, types: Array, cluster: Cluster) -> list[dict[str, float]]:
    """Return the totals of each of some runs, from their rows: (runs,), (runs, bins) and (runs, types)."""
    queue = np.zeros((len(control), st.BINS))  # as long as the bins, because the length decides how numpy rounds a sum
    for k, used in enumerate(control["bins"].tolist()):  # the others may hold anything
        queue[k, :used] = bins["queue"][k, :used]
    columns = {name: control[name] for name in _TOTALS} | {"queue_integral": queue.sum(axis=1)}
    columns |= {"queue_explosions": control["explosions"], "preemptions": control["preempted"]}
    rest = np.maximum(control["last_end"][:, None] - types["since"], 0.0)
    up = types["up_seconds"] - types["late_seconds"] + types["up"] * rest
    for t, kind in enumerate(cluster.types):
        columns |= {f"busy/{kind.name}": types["busy_seconds"][:, t], f"up/{kind.name}": up[:, t]}
    names, values = list(columns), np.array(list(columns.values()), np.float64).T.tolist()
    return [dict(zip(names, row, strict=True)) for row in values]
