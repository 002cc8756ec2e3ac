"""A guard against starvation around any ordering: nobody is passed over for longer than a time that is set."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.mix import named_partitions
from gpuyard.engine.snapshots import carried_out, rows_of
from gpuyard.errors import UsageError
from gpuyard.model.decision import Action, Decision
from gpuyard.model.snapshot import HELD, Snapshot
from gpuyard.policies.schedulers import Scheduler, decider
from gpuyard.policies.text import parse_slots

DAY = 86_400.0  # s


@decider("guard", title="Nobody is passed over for longer than a set time", inner=parse_slots("sjf/fewest/easy"))
class Guard:
    """The inner scheduler decides as long as nobody has waited for `after` seconds.

    Who has waited that long goes first, the oldest before the others. Until the oldest can start, jobs of its partition start only where
    they end, by the limits that they asked for, before it could begin. So where jobs keep to their limits it begins at the latest once
    those have ended that ran when its turn came. A job that could not start even if nothing else ran holds nobody up.
    """

    def __init__(self, inner: Scheduler, *, after: float = DAY) -> None:
        if inner.preemption.stops:
            raise UsageError(f"guard stops no jobs, but {inner.label!r} does", hint="leave the fourth slot out")
        if not 0 <= after < np.inf:
            raise UsageError(f"guard: after = {after:g} is not a time in seconds")
        self._after = after
        self._inner = inner.begin()
        self._first_come = Scheduler("fcfs", inner.placement, "none").begin()
        self._around = Scheduler("fcfs", inner.placement, "easy").begin()
        self._counts = {"passes": 0, "guarded": 0, "held_back": 0}

    def decide(self, snapshot: Snapshot) -> list[Decision]:
        """Return what the inner scheduler does, unless somebody has waited for too long."""
        self._counts["passes"] += 1
        overdue = self._overdue(snapshot)
        if not overdue.any():
            return self._inner.decide(snapshot)
        self._counts["guarded"] += 1
        while True:
            made = self._first_come.decide(rows_of(snapshot, snapshot.live["running"] | overdue))
            left = carried_out(snapshot, made)
            blocked = np.flatnonzero(overdue & ~left.live["running"])
            home = _homes(snapshot)
            heads = {int(home[row]): int(row) for row in blocked[::-1].tolist()}  # the first of each partition
            hopeless = [row for row in heads.values() if not self._could_ever(left, row)]
            if not hopeless:
                break
            overdue[hopeless] = False
        return made + self._rest(left, np.isin(home, list(heads)))

    def decide_in_order(self, snapshot: Snapshot) -> tuple[Array, list[Decision]]:
        """Return the rows of the waiting jobs in order, those who have waited for too long first, and the decisions."""
        overdue = self._overdue(snapshot)
        order, _ = self._inner.decide_in_order(snapshot)
        late = np.flatnonzero(overdue)
        return np.concatenate([late, order[~overdue[order]]]), self.decide(snapshot)

    def report(self) -> Mapping[str, int]:
        """Return how often it was asked, how often somebody had waited too long, and in how many of these it held others back."""
        return dict(self._counts)

    def _overdue(self, s: Snapshot) -> Array:
        """(jobs,) bool: has waited for too long."""
        late: Array = ~s.live["running"] & (s.now - s.jobs.table["submit"] >= self._after)
        return late

    def _rest(self, s: Snapshot, guarded: Array) -> list[Decision]:
        """Decide on the others: `guarded` (jobs,) are those of partitions in which somebody must not be passed over any more."""
        running = s.live["running"]
        made: list[Decision] = []
        if (guarded & ~running).any():
            self._counts["held_back"] += 1
            made = self._around.decide(by_limits(rows_of(s, running | guarded)))
        if (~guarded & ~running).any():
            made = made + self._inner.decide(rows_of(s, running | ~guarded))
        return made

    def _could_ever(self, s: Snapshot, row: int) -> bool:
        """Return whether a job would fit if nothing else ran on the nodes that are up."""
        kept = np.zeros(len(s.jobs), bool)
        kept[row] = True
        alone = replace(s, jobs=s.jobs.with_table(s.jobs.table[kept]), live=s.live[kept], held=np.zeros(0, HELD))
        made = self._first_come.choose_first(alone, row=0)
        return made is not None and made.action is Action.START


def by_limits(s: Snapshot) -> Snapshot:
    """Return the snapshot with estimates that are the limits, as far as there are any: nobody runs for longer."""
    table, live = s.jobs.table.copy(), s.live.copy()
    limited = np.isfinite(table["walltime"])
    table["estimate"][limited] = table["walltime"][limited]
    ends = live["run_start"] + np.maximum(table["walltime"] - live["ran"], 0.0)
    live["est_end"] = np.where(live["running"] & limited, np.maximum(ends, s.now), live["est_end"])
    return replace(s, jobs=s.jobs.with_table(table), live=live)


def _homes(s: Snapshot) -> Array:
    """(jobs,) the number of the first partition of the cluster that each job names."""
    numbers: Array = np.array([(named or [0])[0] for named in named_partitions(s.jobs, s.cluster)])
    home: Array = numbers[s.jobs.table["partition"]]
    return home
