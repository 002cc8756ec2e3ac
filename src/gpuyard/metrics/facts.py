"""Facts about a run that several metrics need: which jobs ended, the window, the horizon."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from types import MappingProxyType
from typing import Concatenate, ParamSpec, TypeVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.result import STATUS, Result

P = ParamSpec("P")
T = TypeVar("T")
HORIZON, LAST_SUBMIT = "horizon", "last_submit"  # in the totals of a part of a run: those of the whole


def has_status(result: Result, *names: str) -> Array:
    """Return (jobs,) bool: the job's status is one of `names`."""
    found: Array = _wanted(names)[result.table["status"]]
    return found


@lru_cache(maxsize=64)
def _wanted(names: tuple[str, ...]) -> Array:
    """Return (statuses,) bool: which of them are named."""
    wanted = np.array([name in names for name in STATUS])
    wanted.flags.writeable = False
    return wanted


def once(function: Callable[[Result], Array]) -> Callable[[Result], Array]:
    """Work an array (jobs,) of a result out once, or for all results of a stack: half of the metrics of a short run read the same few.

    The function must take each job by itself, so that it also works on a table of (results, jobs).
    """
    name = function.__qualname__

    @wraps(function)
    def known(result: Result) -> Array:
        found = result.derived.get(name)
        if found is None:
            stack: Stack | None = result.derived.get(STACK)
            found = result.derived[name] = function(result) if stack is None else known(stack.result)[stack.row]
            found.flags.writeable = False
        return found

    STACKING.add(known)
    return known


STACKING: set[Callable[[Result], Array]] = set()  # the functions that `once` has made
STACK = "stack"  # of `Result.derived`
MOST_STACKED = 1 << 17  # rows, 7 MB: from there on numpy's calls take no time worth saving


@dataclass(frozen=True)
class Stack:
    """Where a result stands among others of the same jobs: `result` has their tables, (results, jobs), and nothing else of its own."""

    result: Result
    row: int


def stacked(results: Sequence[Result]) -> Result | None:
    """Stack results of the same jobs on the same cluster in which every job ended: for a short run numpy's calls are most of the time.

    None where they cannot be stacked: a job that did not end counts until a horizon, which is each result's own.
    """
    if len(results) < 2 or not 0 < sum(map(len, results)) <= MOST_STACKED:
        return None
    first = results[0]
    if any(each.workload is not first.workload or each.cluster is not first.cluster for each in results):
        return None
    table = np.empty((len(results), len(first)), first.table.dtype)
    for row, each in enumerate(results):
        table[row] = each.table
    if np.isnan(table["end"]).any():
        return None
    made = replace(first, table=table, totals=MappingProxyType({}))
    for row, each in enumerate(results):
        each.derived[STACK] = Stack(made, row)
    return made


@once
def accepted(result: Result) -> Array:
    """Return (jobs,) bool: submitted and not rejected."""
    return ~has_status(result, "pending", "rejected")


def horizon(result: Result) -> float:
    """Return the last instant (s) about which the run says anything; nan for an empty run."""
    if HORIZON in result.totals:
        return float(result.totals[HORIZON])
    table, bins = result.table, result.timeline
    submitted = result.workload.jobs.submit[~has_status(result, "pending")]
    instants = np.concatenate([table["end"], table["start"], submitted, bins["time"] + bins["span"], [total(result, "last_end")]])
    known = instants[np.isfinite(instants)]
    return float(known.max()) if len(known) else np.nan


@once
def end_or_horizon(result: Result) -> Array:
    """Return (jobs,) s: the end, or the horizon for an accepted job that never ended; nan for the others."""
    end = result.table["end"]
    unfinished = np.isnan(end)
    seen = np.where(unfinished, horizon(result), end) if unfinished.any() else end  # the horizon takes as long as all the rest
    return np.where(accepted(result), seen, np.nan)


def window(result: Result) -> tuple[float, float]:
    """Return (first submit, last end) in s, from the totals or else from the jobs; shares of time refer to it. nan where there is none."""
    first, last = (result.totals.get(name) for name in ("first_submit", "last_end"))
    if first is None:
        submit = result.workload.jobs.submit
        first = submit.min() if len(submit) else np.nan
    if last is None:
        end = result.table["end"]
        last = np.fmax.reduce(end) if len(end) else np.nan
    return float(first), float(last)


def length(result: Result) -> float:
    """Return the length of the window in s; nan unless it is positive."""
    first, last = window(result)
    return last - first if last > first else np.nan


def remembered(function: Callable[Concatenate[Result, P], T]) -> Callable[Concatenate[Result, P], T]:
    """Work a number or a small array of a result out once for each set of further arguments: metrics of use and energy share them."""

    @wraps(function)
    def known(result: Result, /, *args: P.args, **kwargs: P.kwargs) -> T:
        key = f"{function.__qualname__} {args}"
        if key not in result.derived:
            result.derived[key] = function(result, *args, **kwargs)
        found: T = result.derived[key]
        return found

    return known


@remembered
def last_submit(result: Result) -> float:
    """Return the last instant (s) at which an accepted job came; while jobs come, schedulers differ in what they make of the cluster.

    Where all came at once it is the last end: then the whole run is the time in which they differ. nan for an empty run.
    """
    if LAST_SUBMIT in result.totals:
        return float(result.totals[LAST_SUBMIT])
    submit = result.workload.jobs.submit[accepted(result)]
    first, last = window(result)
    return float(submit.max()) if len(submit) and submit.max() > first else last


@remembered
def busy_until(result: Result, until: float) -> float:
    """Return GPU·s that jobs held until an instant (s). Where some job was stopped the timeline says it, to the width of a bin."""
    rows = result.table
    if not (rows["preemptions"] > 0).any():
        held = np.fmax(np.fmin(rows["end"], until) - rows["start"], 0.0)  # a job without an end runs on; one without a start has none
        return float(held @ result.workload.jobs.gpus)
    return _integral(result, "busy", until)


def up_until(result: Result, until: float) -> float:
    """Return GPU·s of devices in order from the first submit until an instant (s). Exact without outages, else by the timeline."""
    if result.cluster.outages:
        return _integral(result, "up", until)
    return result.cluster.gpus * (until - window(result)[0])


def _integral(result: Result, column: str, until: float) -> float:
    """Integrate a column of the timeline until an instant (s), a bin that it falls into in proportion."""
    bins = result.timeline
    share = np.clip(until - bins["time"], 0.0, bins["span"])
    return float(bins[column] @ share)


def total(result: Result, key: str) -> float:
    """Return a total by name; nan if the run does not state it."""
    return float(result.totals.get(key, np.nan))


@remembered
def by_type(result: Result, key: str) -> Array:
    """Return (types,) the totals `key/<type name>`; nan where the run does not state them."""
    return np.array([total(result, f"{key}/{kind.name}") for kind in result.cluster.types])


def ratio(part: float, whole: float) -> float:
    """Return part / whole; nan unless the whole is positive."""
    return part / whole if whole > 0 else np.nan


def jain(shares: Array) -> float:
    """Return Jain's index (Σx)² / (n·Σx²) of the shares that are numbers: 1 if all are equal, 1/n if one has all; nan without any."""
    x = shares[~np.isnan(shares)]
    return ratio(float(x.sum()) ** 2, len(x) * float((x * x).sum()))
