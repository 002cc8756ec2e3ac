"""Checks that a scheduler does the same in a simulator and in the slow reference.

For authors of policies and of engines:

    from gpuyard.testing.conformance import compare_with_reference
    from gpuyard.testing.strategies import random_case

    for seed in range(100):
        assert compare_with_reference(random_case(seed), my_scheduler, gpuyard.simulate) == []
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import GpuyardError
from gpuyard.model.result import REASONS, ROW, STATUS, WAITS_FOR, Result
from gpuyard.policies.schedulers import Meta, Scheduler
from gpuyard.testing.accounts import compare_accounts
from gpuyard.testing.reference import ReferenceResult, reference
from gpuyard.testing.strategies import Case

T = TypeVar("T")
MOST = 20  # differences named; one cause often changes every later job


class HasTables(Protocol):
    """The parts of a result that are compared: its rows, and its segments where it has any."""

    @property
    def table(self) -> Array: ...
    @property
    def segments(self) -> Array: ...


def compare_with_reference(case: Case, scheduler: Scheduler | Meta, simulate: Callable[..., HasTables], seed: int = 0) -> list[str]:
    """Simulate the case both ways and return the differences, as lines that name job, column and both values; empty if there are none.

    `simulate` is called as `gpuyard.simulate` is, with `segments=True`. Values are compared bit for bit, except that any
    NaN equals any other; totals and timeline, where the result has them, to 1e-9. An error (GpuyardError) on one side
    only is also a difference.
    """
    ours = _attempt(lambda: simulate(case.workload, case.cluster, scheduler, seed=seed, rules=case.rules, segments=True))
    expected = _attempt(lambda: reference(case.workload, case.cluster, scheduler, seed, case.rules))
    if isinstance(ours, str) or isinstance(expected, str):
        refusals = [made if isinstance(made, str) else "" for made in (ours, expected)]
        return [] if all(refusals) else [f"simulated: {refusals[0] or 'no error'}; reference: {refusals[1] or 'no error'}"]
    found = compare_tables(ours.table, expected.table) or compare_segments(ours.segments, expected.segment_table)
    if found or not isinstance(ours, Result):
        return found
    return compare_estimates(ours, expected) or compare_ineligible(ours, expected) or _shortened(compare_accounts(ours, expected))


def _attempt(make: Callable[[], T]) -> T | str:
    """Return what is made, or the message of the error."""
    try:
        return make()
    except GpuyardError as error:
        return str(error) or type(error).__name__


def compare_tables(table: Array, expected: Array) -> list[str]:
    """Return the differences between two arrays of ROW, at most MOST of them."""
    if len(table) != len(expected):
        return [f"simulated: {len(table)} rows; reference: {len(expected)}"]
    found = [
        f"job {job}: {name}: simulated {_shown(name, table[name][job])}, reference {_shown(name, expected[name][job])}"
        for job in range(len(table))
        for name in ROW.names or ()
        if not _same(table[name][job], expected[name][job])
    ]
    return _shortened(found)


def compare_estimates(ours: Result, expected: ReferenceResult) -> list[str]:
    """Return the differences between the estimates that policies saw."""
    pairs = enumerate(zip(ours.workload.jobs.estimate.tolist(), expected.estimates, strict=True))
    return _shortened([f"job {job}: estimate: simulated {mine!r}, reference {other!r}" for job, (mine, other) in pairs if mine != other])


def compare_ineligible(ours: Result, expected: ReferenceResult) -> list[str]:
    """Return the differences between the times for which jobs were not eligible."""
    mine = {(int(row["job"]), WAITS_FOR[row["reason"]]): float(row["seconds"]) for row in ours.ineligible}
    theirs = {key: seconds for key, seconds in expected.ineligible.items() if seconds > 0}
    pairs = ((key, mine.get(key, 0.0), theirs.get(key, 0.0)) for key in sorted(mine.keys() | theirs.keys()))
    differing = [each for each in pairs if not math.isclose(each[1], each[2], abs_tol=1e-6)]
    return _shortened([f"job {job}: {reason}: simulated {a!r} s, reference {b!r} s" for (job, reason), a, b in differing])


def compare_segments(segments: Array, expected: Array) -> list[str]:
    """Return the differences between two arrays of SEGMENT; their order does not matter."""
    order = ("start", "job", "node", "end")
    ours, theirs = np.sort(segments, order=order), np.sort(expected, order=order)
    if len(ours) != len(theirs):
        return [f"simulated: {len(ours)} segments; reference: {len(theirs)}"]
    found = [
        f"segment of job {a['job']} from {a['start']} s: simulated {a}, reference {b}"
        for a, b in zip(ours, theirs, strict=True)
        if a.tobytes() != b.tobytes()
    ]
    return _shortened(found)


def _same(a: Any, b: Any) -> bool:
    return bool(a.tobytes() == b.tobytes() or (a != a and b != b))


def _shown(name: str, value: Any) -> str:
    words: dict[str, Sequence[str]] = {"status": STATUS, "reason": REASONS}
    return repr(words[name][value]) if name in words else repr(value.item())


def _shortened(found: list[str]) -> list[str]:
    return found if len(found) <= MOST else [*found[:MOST], f"and {len(found) - MOST} more"]
