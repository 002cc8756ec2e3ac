"""Says what a scheduler would do now, job by job, and why. Nothing is changed: it is what `gpuyard decide` prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.mix import reach
from gpuyard.engine.snapshots import carried_out, revise_ends, rows_of
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.model.decision import Action, Decision
from gpuyard.model.snapshot import Snapshot
from gpuyard.policies import AnyScheduler, parse_scheduler

WAITS = "wait"
_PLAIN = "fcfs/fewest"  # asked whether a job fits


@dataclass(frozen=True)
class JobOutlook:
    """Tells what happens to one job now."""

    row: int  # of the snapshot
    name: str
    action: str  # start, preempt, migrate or wait
    place: str  # a node, or nodes and their GPUs: "a1 (4), a2 (4)"; empty: nowhere
    reason: str


class Asked:
    """A scheduler at work beside one cluster: it remembers what it remembers from one snapshot to the next."""

    def __init__(self, scheduler: AnyScheduler) -> None:
        self._decider: Any = scheduler.begin()
        self.keys: list[float] = []  # of the jobs in the last order: lower goes first; empty: not known

    @property
    def has_order(self) -> bool:
        """Return whether it says in which order jobs stand, beside which start."""
        return hasattr(self._decider, "decide_in_order")

    def decide(self, saved: SavedSnapshot) -> tuple[list[Decision], list[int], Snapshot]:
        """Return the decisions, the rows of the waiting jobs in order as far as there is one, and the state after the decisions.

        Jobs of a higher tier are decided first, as if there were no others.
        """
        s = replace(saved.snapshot, live=saved.snapshot.live.copy())
        revise_ends(s.live, s.jobs.table["walltime"], s.now, s.rules)
        tier = np.array([saved.tiers.get(name, 0) for name in s.jobs.partitions])[s.jobs.table["partition"]]
        made: list[Decision] = []
        order: list[int] = []
        self.keys = []
        levels = np.unique(tier[s.waiting])[::-1].tolist() or [0]
        for level in levels:
            offered = s if len(levels) == 1 else rows_of(s, s.live["running"] | (tier == level))
            rows, decisions = self._decider.decide_in_order(offered) if self.has_order else ((), self._decider.decide(offered))
            self.keys += getattr(self._decider, "keys", np.zeros(0)).tolist() if len(rows) else []
            if len(rows):
                order += np.searchsorted(s.jobs.index, offered.jobs.index[rows]).tolist()
            s = carried_out(s, decisions)
            made += decisions
        return made, order, s


def decide_now(saved: SavedSnapshot, scheduler: AnyScheduler) -> list[Decision]:
    """Return what the scheduler does now, tier by tier: jobs of a higher tier are decided first, as if there were no others."""
    return Asked(scheduler).decide(saved)[0]


def outlook(saved: SavedSnapshot, scheduler: AnyScheduler) -> list[JobOutlook]:
    """Return what happens to each waiting job, and to running jobs that would be stopped: first what is done, then who waits, in order."""
    decisions, order, left = Asked(scheduler).decide(saved)
    s = saved.snapshot
    rows = s.rows()
    place = {row: k for k, row in enumerate(order)}
    acted = {rows[each.job] for each in decisions if each.action is not Action.HOLD}
    heads = _Heads(s, [row for row in order if row not in acted])
    found = [_done(saved, each, rows[each.job], place, heads) for each in decisions if each.action is not Action.HOLD]
    waiting = sorted((row for row in s.waiting.tolist() if row not in acted), key=lambda row: place.get(row, len(place) + row))
    fits = _Fits(left)
    found += [JobOutlook(row, saved.name(row), WAITS, "", _why_wait(saved, row, heads, fits)) for row in waiting]
    return found


def outlook_records(saved: SavedSnapshot, found: Sequence[JobOutlook]) -> list[dict[str, Any]]:
    """Return an outlook for other programs."""
    gpus = saved.snapshot.jobs.table["gpus"]
    return [{"job": o.name, "now": o.action, "gpus": float(gpus[o.row]), "where": o.place, "why": o.reason} for o in found]


# ── why ──


class _Heads:
    """Knows of the jobs that wait, given in order, which is the first that may use a node that another may use."""

    def __init__(self, s: Snapshot, order: Sequence[int]) -> None:
        self._label = s.jobs.table["partition"]
        self.reach = [reach(label, s.cluster) for label in s.jobs.partitions]
        firsts: dict[int, int] = {}
        for row in order:
            firsts.setdefault(int(self._label[row]), row)
        self._head = [next((row for label, row in firsts.items() if (self.reach[label] & mine).any()), None) for mine in self.reach]

    def of(self, row: int) -> int | None:
        """Return the row of the head, which may be the job itself."""
        return self._head[int(self._label[row])]

    def nodes(self, row: int) -> Array:
        """(nodes,) bool: whether the job may run there."""
        return self.reach[int(self._label[row])]


class _Fits:
    """Knows which jobs have room after the decisions."""

    def __init__(self, left: Snapshot) -> None:
        self.left = left
        self._decider: Any = parse_scheduler(_PLAIN).begin()

    def now(self, row: int) -> bool:
        """Return whether the job in a row could start beside everything that runs then."""
        made = self._decider.choose_first(self.left, row=row)
        return made is not None and made.action is Action.START

    def free(self, reached: Array, wanted: str) -> Array:
        """(nodes,) free GPUs where the job may run; 0 elsewhere."""
        cluster = self.left.cluster
        types = wanted.split("|") if wanted else [kind.name for kind in cluster.types]
        allowed = np.isin(cluster.nodes.gpu_type, [k for k, kind in enumerate(cluster.types) if kind.name in types])
        return np.where(allowed & reached, self.left.free_gpus(), 0)


def _done(saved: SavedSnapshot, made: Decision, row: int, place: Mapping[int, int], heads: _Heads) -> JobOutlook:
    nodes = saved.snapshot.cluster.nodes.names
    several = len(made.parts) > 1
    where = ", ".join(f"{nodes[part.node]} ({part.gpus:g})" if several else nodes[part.node] for part in made.parts)
    head = heads.of(row)
    reason = made.reason
    if not reason and made.action is Action.START:
        passes = head is not None and row in place and place[head] < place[row]
        reason = f"fits beside job {saved.name(head)}, which goes first but cannot start" if passes and head is not None else "is next"
    return JobOutlook(row, saved.name(row), made.action.value, where, reason)


def _why_wait(saved: SavedSnapshot, row: int, heads: _Heads, fits: _Fits) -> str:
    s, head = saved.snapshot, heads.of(row)
    job = s.jobs.table[row]
    if fits.now(row):
        if head is None or head == row:
            return "the scheduler leaves it waiting"
        return f"would fit, but could delay job {saved.name(head)}, which goes first"
    wanted = s.jobs.gpu_types[job["gpu_type"]]
    free = fits.free(heads.nodes(row), wanted)
    asked, total = float(job["gpus"]), int(free.sum())
    kind = f" {plain_types(wanted)}" if wanted else ""
    if asked > total:
        return f"asks for {_gpus(asked, kind)}; {total} {'is' if total == 1 else 'are'} free"
    chunk = int(job["chunk"])
    if asked >= 1 and int((free // chunk).sum()) * chunk < asked:
        return f"asks for {_gpus(chunk, kind)} on a node; at most {int(free.max(initial=0))} are free on one"
    return "no node has GPUs, cores and memory for it"


def plain_types(wanted: str) -> str:
    """Return GPU types without the partitions in which nodes of a site are told apart: `a100@debug+long|a100@long` is a100."""
    return "|".join(dict.fromkeys(kind.partition("@")[0] for kind in wanted.split("|")))


def _gpus(count: float, kind: str = "") -> str:
    return f"{count:g}{kind} GPU{'' if count == 1 else 's'}"
