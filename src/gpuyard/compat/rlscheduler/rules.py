"""The compatibility mode "rlscheduler": the rules of the RLScheduler paper's simulator (Zhang et al., SC 2020).

It is here so that our numbers can be laid beside the published ones digit by digit; it is not how gpuyard simulates. What differs
from docs/concepts/semantics.md:

| | gpuyard | rlscheduler |
|---|---|---|
| resources | nodes, devices, cpus, memory, partitions | one counter of processors |
| instants | all events of one time, then one pass | one event at a time, in the middle of a decision too |
| equal times | ends before submissions | a submission before an end |
| the head | chosen again at every pass | **committed**: once chosen it is waited for, whoever comes |
| submissions | all of an instant are seen by its pass | one comes in only while the head is blocked or the queue is empty |
| ties of scores | by (submit, index) | as the queue lies: it is sorted in place, stably, again and again |
| EASY: shadow | computed at every pass | computed once, when the head is blocked; exceeded estimates leave it in the past |
| EASY: who passes | `est_end ≤ shadow`, or fits beside the head | `now + requested < shadow` only; always in order of submit |
| SJF | estimate | (requested, submit) |
| WFP3, UNICEP | estimates of 0 count as 1 s | as given |
| walltime kills, preemption, outages, transfer, speeds | yes | none |

As published, the wait in WFP3 and UNICEP is −1 − submit for waiting jobs (the start of a job that has none is −1), not now − submit:
`published_wait_bug=True`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypedDict, get_type_hints

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.compiler.jit import INTERPRETED, NOTHING, WORD, array_of, entry, inner
from gpuyard.errors import SimulationError, UsageError
from gpuyard.model.cluster import Cluster
from gpuyard.model.result import BIN, ROW, SEGMENT, STATUS, Result
from gpuyard.model.workload import Workload
from gpuyard.registry import unknown_name

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Real, Vector


class ProcessorJob(TypedDict):
    """A job of the compatibility mode."""

    submit: float
    procs: float
    requested: float
    run: float
    start: float
    key: float
    fixed: float


class ProcessorState(TypedDict):
    """The numbers of a simulation in the compatibility mode."""

    now: float
    free: float
    total: float
    waiting: int
    running: int
    next: int
    recent: int
    asked: int
    backfill: int


_JOB, _CONTROL = (np.dtype(list(get_type_hints(row).items())) for row in (ProcessorJob, ProcessorState))
_FIXED, _WFP3, _UNICEP = range(3)
# What `_sort_running` sorts by.
_REQUESTED_END, _END = range(2)


def _by_length(jobs: Array) -> Array:
    """(requested, submit) as one number: the rank, equal for equal pairs."""
    order = np.lexsort((jobs["submit"], jobs["requested"]))
    pair = jobs[order]
    steps = (np.diff(pair["requested"]) != 0) | (np.diff(pair["submit"]) != 0)
    rank = np.zeros(len(jobs))
    rank[order] = np.concatenate(([0], np.cumsum(steps)))[: len(jobs)]
    return rank


def _by_f1(jobs: Array) -> Array:
    requested, submit = (np.where(jobs[name] > 0, jobs[name], 0.1) for name in ("requested", "submit"))
    return np.asarray(np.log10(requested) * jobs["procs"] + 870.0 * np.log10(submit))


# Scores that are known at submission, and those that the kernel works out at every choice.
_KNOWN: MappingProxyType[str, Callable[[Array], Array]] = MappingProxyType(
    {"fcfs": lambda jobs: jobs["submit"], "sjf": _by_length, "f1": _by_f1}
)
_CLOCKED = MappingProxyType({"wfp3": _WFP3, "unicep": _UNICEP})
RLSCHEDULER_ORDERINGS = (*_KNOWN, *_CLOCKED)


Kernel = Callable[[Array, Array, Array, Array, int, int, int], None]


@dataclass(frozen=True, eq=False)
class Chooser:
    """Brings a job to the head of the queue, in place of a score by name; `compat.rlscheduler.networks` makes one of a network."""

    name: str
    kernel: Kernel  # of `kernel_with`
    number: int  # passed to it
    scratch: int  # floats that it needs
    keep: object = None  # what must live as long


def rlscheduler(
    workload: Workload, processors: int, ordering: str | Chooser = "fcfs", *, backfill: bool = False, published_wait_bug: bool = False
) -> Result:
    """Run `workload` on a counter of `processors` by the rules of the SC 2020 simulator; see the module's text for them.

    `ordering`: fcfs, sjf, f1, wfp3, unicep or a Chooser. The requested time is `jobs.estimate`; F1 reads `jobs.submit`, so keep the trace's
    own seconds. `published_wait_bug` concerns wfp3 and unicep only. The Result has every job's start and end; its timeline is empty.
    """
    chooser = ordering if isinstance(ordering, Chooser) else _by_name(ordering)
    jobs = columns(workload, processors)
    if chooser.name in _KNOWN:
        jobs["fixed"] = _KNOWN[chooser.name](jobs)
    run(jobs, processors, chooser, backfill=backfill, published_wait_bug=published_wait_bug)
    rules = ("easy-once" if backfill else "none") + ("/published-wait" if published_wait_bug else "")
    return _result(workload, processors, jobs, f"rlscheduler:{chooser.name}/{rules}")


def _by_name(ordering: str) -> Chooser:
    if ordering not in RLSCHEDULER_ORDERINGS:
        raise unknown_name("ordering of the rlscheduler mode", ordering, RLSCHEDULER_ORDERINGS)
    return Chooser(ordering, _kernel(), _CLOCKED.get(ordering, _FIXED), 1)


def run(jobs: Array, processors: int, chooser: Chooser, *, backfill: bool, published_wait_bug: bool = False) -> int:
    """Fill the starts of `columns(…)`; returns how many times a job was chosen."""
    lists = np.zeros((3, len(jobs)), np.int32)  # queue, running, scratch of the sort
    control = np.zeros(1, _CONTROL)
    control["free"] = control["total"] = processors
    control["backfill"] = int(backfill)
    scratch = np.zeros(chooser.scratch, np.float32)
    with np.errstate(all="ignore"):
        chooser.kernel(jobs, lists, control, scratch, chooser.number, int(backfill), int(published_wait_bug))
    return int(control["asked"][0])


def columns(workload: Workload, processors: int) -> Array:
    """The jobs as the kernel has them, none started; refuses what does not fit the machine."""
    if not 1 <= processors <= 1_000_000:
        raise UsageError(f"rlscheduler: processors = {processors} does not lie in 1..1,000,000")
    if workload.predictor is not None:
        raise UsageError(f"rlscheduler: estimates by {workload.estimate_source} are made inside simulations by gpuyard's own rules only")
    given = workload.jobs
    bad = ~((given.gpus >= 1) & (given.gpus <= processors))
    if bad.any():
        j = int(np.argmax(bad))
        raise SimulationError(
            f"{workload.name}: job {int(given.id[j])} asks for {given.gpus[j]:g} of {processors} processors",
            hint="the rlscheduler mode has no rejections: take such jobs out",
        )
    jobs = np.zeros(len(workload), _JOB)
    for name, values in (("submit", given.submit), ("procs", given.gpus), ("requested", given.estimate), ("run", workload.runtime)):
        jobs[name] = values
    jobs["start"] = -1.0
    return jobs


def _result(workload: Workload, processors: int, jobs: Array, label: str) -> Result:
    table = np.zeros(len(jobs), ROW)
    table["start"] = jobs["start"]
    table["end"] = jobs["start"] + jobs["run"]
    table["ran"] = jobs["run"]
    table["gpu_seconds"] = jobs["run"] * jobs["procs"]
    table["rate"] = 1.0
    table["nodes"] = 1
    table["status"] = STATUS.index("done")
    table.flags.writeable = False
    cluster = Cluster.uniform(1, processors, "processor")
    first, last = (float(jobs["submit"][0]), float(table["end"].max())) if len(jobs) else (0.0, 0.0)
    totals = {
        "first_submit": first, "last_end": last, "queue_integral": float((jobs["start"] - jobs["submit"]).sum()),
        "busy/processor": float(table["gpu_seconds"].sum()), "up/processor": processors * (last - first),
    }  # fmt: skip
    manifest = {"measured": False, "scheduler": label, "estimate": workload.estimates, "mode": "rlscheduler"}
    return Result(
        workload, cluster, label, 0, table, np.zeros(0, BIN), np.zeros(0, SEGMENT), MappingProxyType(totals), MappingProxyType(manifest)
    )


# ── the kernel: jobs of _JOB, lists[0] the queue, lists[1] the running jobs, lists[2] scratch, control of _CONTROL ──


@inner
def _sort(jobs: Vector[ProcessorJob], lists: Array, which: Int, count: Int) -> Any:
    """Stable merge sort of lists[which, :count] by jobs.key; runs that are in order already are left alone."""
    width = 1
    while width < count:
        low = 0
        while low + width < count:
            middle, high = low + width, min(low + 2 * width, count)
            if jobs[lists[which, middle]]["key"] < jobs[lists[which, middle - 1]]["key"]:
                _merge(jobs, lists, which, low, middle, high)
            low += 2 * width
        width *= 2


@inner
def _merge(jobs: Vector[ProcessorJob], lists: Array, which: Int, low: Int, middle: Int, high: Int) -> Any:
    """Merge two sorted neighbours; of equals the left one first."""
    for i in range(low, middle):
        lists[2, i] = lists[which, i]
    left, right = low, middle
    for to in range(low, high):
        if left == middle:
            return
        if right < high and jobs[lists[which, right]]["key"] < jobs[lists[2, left]]["key"]:
            lists[which, to] = lists[which, right]
            right += 1
        else:
            lists[which, to] = lists[2, left]
            left += 1


@inner
def _sort_by_score(
    jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], scratch: Array, ordering: Int, bug: Int
) -> None:
    """Sort the queue, lowest score first."""
    now = -1.0 if bug else control[0]["now"]
    for i in range(control[0]["waiting"]):
        job = jobs[lists[0, i]]
        wait = now - job["submit"]
        if ordering == _FIXED:
            job["key"] = job["fixed"]
        elif ordering == _WFP3:
            ratio = wait / job["requested"]
            job["key"] = -(ratio * ratio * ratio) * job["procs"]
        else:
            job["key"] = -(wait + 1e-15) / (np.log2(job["procs"] + 1e-15) * job["requested"])
    _sort(jobs, lists, 0, control[0]["waiting"])


@inner
def _sort_by_submit(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState]) -> Any:
    """Sort the queue, first come first."""
    for i in range(control[0]["waiting"]):
        job = jobs[lists[0, i]]
        job["key"] = job["submit"]
    _sort(jobs, lists, 0, control[0]["waiting"])


@inner
def _sort_running(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], by: Int) -> Any:
    """The running jobs, by their ends or by their estimated ends."""
    for i in range(control[0]["running"]):
        job = jobs[lists[1, i]]
        job["key"] = job["start"] + (job["run"] if by == _END else job["requested"])
    _sort(jobs, lists, 1, control[0]["running"])


@inner
def _remove(lists: Array, which: Int, at: Int, count: Int) -> Any:
    """Close the gap at position `at`."""
    for i in range(at, count - 1):
        lists[which, i] = lists[which, i + 1]


@inner
def _start(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], at: Int) -> Any:
    """Start the job at position `at` of the queue."""
    state = control[0]
    j = lists[0, at]
    _remove(lists, 0, at, state["waiting"])
    state["waiting"] -= 1
    lists[1, state["running"]] = j
    state["running"] += 1
    state["free"] -= jobs[j]["procs"]
    jobs[j]["start"] = state["now"]


@inner
def _one_event(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState]) -> Any:
    """The next submission, if it is not after the first end of a running job; else that end."""
    state = control[0]
    _sort_running(jobs, lists, control, _END)
    end = np.inf
    if state["running"] > 0:
        first = jobs[lists[1, 0]]
        end = first["start"] + first["run"]
    if state["next"] < len(jobs) and jobs[state["next"]]["submit"] <= end:
        state["now"] = max(state["now"], jobs[state["next"]]["submit"])
        lists[0, state["waiting"]] = state["next"]
        state["waiting"] += 1
        state["next"] += 1
    else:
        state["now"] = max(state["now"], end)
        state["free"] += jobs[lists[1, 0]]["procs"]
        _remove(lists, 1, 0, state["running"])
        state["running"] -= 1


@inner
def _shadow(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], head: Int) -> Any:
    """Return the estimated end at which enough processors for `head` are free."""
    _sort_running(jobs, lists, control, _REQUESTED_END)
    free = control[0]["free"]
    for i in range(control[0]["running"]):
        job = jobs[lists[1, i]]
        free += job["procs"]
        if free >= jobs[head]["procs"]:
            return job["start"] + job["requested"]
    return np.inf


@inner
def _backfill(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], shadow: Real) -> Any:
    """Start, in order of submit, what fits and is estimated to end before the shadow."""
    _sort_by_submit(jobs, lists, control)
    at = 0
    while at < control[0]["waiting"]:
        job = jobs[lists[0, at]]
        if job["procs"] <= control[0]["free"] and control[0]["now"] + job["requested"] < shadow:
            _start(jobs, lists, control, at)
        else:
            at += 1


@inner
def _wait_for(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], head: Int, backfill: Int) -> Any:
    """Handle events until `head`, which does not fit now, fits."""
    shadow = _shadow(jobs, lists, control, head) if backfill else 0.0
    while jobs[head]["procs"] > control[0]["free"]:
        if backfill:
            _backfill(jobs, lists, control, shadow)
        _one_event(jobs, lists, control)


def _simulation(choose: Any, source: int) -> Any:
    """Make what fills jobs.start, with choose(jobs, lists, control, scratch, number, bug) bringing a job to the head of the queue.

    `source` stands for all that `choose` is made of: it is part of the key of the cache on disk.
    """

    def simulate(
        jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], scratch: Array, number: Int, backfill: Int, bug: Int
    ) -> None:
        state = control[0]
        while source >= 0 and (state["waiting"] > 0 or state["next"] < len(jobs)):
            while state["waiting"] == 0:
                _one_event(jobs, lists, control)
            choose(jobs, lists, control, scratch, number, bug)
            state["asked"] += 1
            head = lists[0, 0]
            if jobs[head]["procs"] > state["free"]:
                _wait_for(jobs, lists, control, head, backfill)
            at = 0
            while lists[0, at] != head:  # the queue may have been sorted otherwise meanwhile
                at += 1
            _start(jobs, lists, control, at)

    return simulate


def kernel_with(choose: Any, source: int = 0) -> Kernel:
    """The compiled simulation with `choose`, which is an `inner` kernel: cached on disk. `source` is a hash, at least 0, of its files."""
    simulate = _simulation(choose, source)
    if INTERPRETED:
        return simulate  # type: ignore[no-any-return]
    signature = NOTHING(
        array_of(_JOB), array_of(np.int32, 2), array_of(_CONTROL), array_of(np.float32), WORD, WORD, WORD
    )  # fmt: skip
    return entry(signature)(simulate)  # type: ignore[no-any-return]


@lru_cache(maxsize=1)
def _kernel() -> Kernel:
    """Return the kernel of the scores by name, made on first use."""
    return kernel_with(_sort_by_score)
