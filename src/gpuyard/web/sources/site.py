"""A batch system, or files: a snapshot at each look, and what a scheduler of gpuyard would do with it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from gpuyard.errors import UsageError
from gpuyard.live.deciding import Asked, outlook, plain_types
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteJob
from gpuyard.model.decision import Action
from gpuyard.model.site.eligibility import REASONS
from gpuyard.model.snapshot import Snapshot
from gpuyard.model.units import clean
from gpuyard.policies import AnyScheduler
from gpuyard.web.rows import GONE, QueueRow
from gpuyard.web.sources.base import Glance, GpuNow, HeldSpan, LooksOnly
from gpuyard.web.sources.systems import BatchSystem, SiteLook

MOST_DEVICES = 512  # rows of the Gantt chart
MOST_EXPLAINED = 3000  # waiting jobs up to which each is explained at once
DECISIONS = 200


@dataclass
class _LastLook:
    """The last look."""

    saved: SavedSnapshot | None = None
    numbers: dict[str, int] = field(default_factory=dict)  # name of a job → the number that it has here
    names: dict[int, str] = field(default_factory=dict)


class SiteSource(LooksOnly):
    """Looks at a cluster by snapshots. `scheduler`: what is asked what it would do; None: nobody is. `system`: what is told to act."""

    def __init__(
        self, take: Callable[[], SiteLook], scheduler: AnyScheduler | None, *, every: float = 5.0, system: BatchSystem | None = None
    ) -> None:
        self.every, self.can_act = every, system is not None
        self._take, self._system = take, system
        self._asked = Asked(scheduler) if scheduler is not None else None
        self._scheduler = scheduler
        self._seen = _LastLook()

    def look(self) -> Glance:
        """Take a snapshot, and ask the scheduler."""
        seen = self._take()
        saved = seen.saved
        s = saved.snapshot
        ended = [job for job in seen.jobs.values() if not (job.waits or job.runs)]
        for name in (*map(saved.name, range(len(s.jobs))), *saved.ineligible, *(job.name for job in ended)):
            number = self._seen.numbers.setdefault(name, len(self._seen.numbers) + 1)
            self._seen.names[number] = name
        self._seen.saved = saved
        decisions, order, keys = self._decided(saved)
        numbers = [self._seen.numbers[saved.name(row)] for row in range(len(s.jobs))]
        devices, first = _devices(s)
        nodes = s.cluster.nodes.gpus
        free = int(s.free_gpus().sum())
        usable = int(np.where(s.nodes["down"] == 0, nodes - s.nodes["off"], 0).sum())
        rows = self._rows(seen, numbers) + [self._ended(job) for job in ended]
        return Glance(
            s.now, clean(saved.source) or s.cluster.name, self._scheduler.label if self._scheduler else "", notes=_cleaned(saved.notes),
            whole=True, rows=rows, order=[numbers[row] for row in order], keys=keys,
            reasons=self._reasons(saved), total=float(nodes.sum()), busy=float(max(usable - free, 0)), devices=devices,
            held=self._held(saved, numbers, first), gpus=_gpus(saved) if nodes.sum() <= 64 else (), decisions=decisions,
        )  # fmt: skip

    def detail(self, number: int) -> Mapping[str, Any]:
        """Say what the scheduler would do with the job, and why."""
        saved, name = self._seen.saved, self._seen.names.get(number, "")
        if saved is None or self._scheduler is None or name in saved.ineligible or len(saved.snapshot.waiting) > MOST_EXPLAINED:
            return {}
        found = next((each for each in outlook(saved, self._scheduler) if each.name == name), None)
        return {"why": f"{found.action}{f' on {found.place}' if found.place else ''}: {found.reason}"} if found else {}

    def act(self, action: str, number: int) -> None:
        """Let the system cancel, hold or release a job, or put it before the others of its user."""
        if self._system is None:
            raise UsageError("this cluster can only be looked at")
        self._system.act(action, self._seen.names.get(number, ""))

    def _decided(self, saved: SavedSnapshot) -> tuple[list[Mapping[str, Any]], list[int], list[float]]:
        """Return what the scheduler would do now, and the rows of the waiting jobs in its order, with keys."""
        s = saved.snapshot
        if self._asked is None:
            return [], sorted(s.waiting.tolist(), key=lambda row: float(s.jobs.table["submit"][row])), []
        made, order, _ = self._asked.decide(saved)
        rows, nodes = s.rows(), s.cluster.nodes.names
        shown = [
            {
                "at": s.now,
                "job": saved.name(rows[each.job]),
                "action": f"would {each.action.value}",
                "reason": clean(each.reason) or ", ".join(f"{nodes[part.node]} ({part.gpus:g})" for part in each.parts[:4]),
            }
            for each in made
            if each.action is not Action.HOLD
        ]
        keys = self._asked.keys if len(self._asked.keys) == len(order) else ()
        return list(shown[:DECISIONS]), order, [float(key) for key in keys]

    def _rows(self, seen: SiteLook, numbers: Sequence[int]) -> list[QueueRow]:
        """Return the jobs that run or wait."""
        saved, s = seen.saved, seen.saved.snapshot
        table, live, nodes = s.jobs.table, s.live, s.cluster.nodes.names
        places: dict[int, list[str]] = {}
        for row, node in zip(s.held["row"].tolist(), s.held["node"].tolist(), strict=True):
            places.setdefault(row, []).append(clean(nodes[node]))
        users, partitions, classes = s.jobs.users, s.jobs.partitions, s.jobs.classes
        found = []
        for row, number in enumerate(numbers):
            name, runs = saved.name(row), bool(live["running"][row])
            wanted = classes[table["job_class"][row]] or plain_types(s.jobs.gpu_types[table["gpu_type"][row]])
            title = seen.jobs[name].title if name in seen.jobs else ""
            found.append(QueueRow(
                number, clean(name), clean(title or wanted), clean(users[table["user"][row]]),
                "RUNNING" if runs else "PENDING", gpus=float(table["gpus"][row]), submit=float(table["submit"][row]),
                place=" ".join(dict.fromkeys(places.get(row, ()))) if runs else "", start=float(live["run_start"][row]) if runs else 0.0,
                partition=clean(partitions[table["partition"][row]]), estimate=_finite(table["estimate"][row]),
                priority=_finite(table["priority"][row]),
            ))  # fmt: skip
        return found + [self._reported(seen.jobs.get(name), name, "PENDING") for name in saved.ineligible]

    def _reported(self, job: SiteJob | None, name: str, state: str) -> QueueRow:
        """Return a job that is not in the snapshot, as far as the system reports it."""
        number = self._seen.numbers[name]
        if job is None:
            return QueueRow(number, clean(name), "", "", state)
        return QueueRow(
            number, clean(name), clean(job.title), clean(job.user), state, gpus=float(job.gpus), submit=_finite(job.submit),
            partition=clean(",".join(job.partitions)), priority=_finite(job.priority),
        )  # fmt: skip

    def _ended(self, job: SiteJob) -> QueueRow:
        """Return a job that has ended. What did not end by itself may have failed or been cancelled: that is not told apart."""
        start = _finite(job.start)
        state = GONE if math.isnan(job.lasted) else "DONE"
        end = start + _finite(job.ran) if start else _finite(job.submit)
        return replace(self._reported(job, job.name, state), place=clean(" ".join(job.nodes)), start=start, end=end)

    def _reasons(self, saved: SavedSnapshot) -> dict[int, str]:
        found = {self._seen.numbers[name]: REASONS.get(why, clean(why)) for name, why in saved.ineligible.items()}
        if self._scheduler is not None and 0 < len(saved.snapshot.waiting) <= MOST_EXPLAINED // 10:
            found |= {self._seen.numbers[each.name]: each.reason for each in outlook(saved, self._scheduler) if each.action == "wait"}
        return found

    def _held(self, saved: SavedSnapshot, numbers: Sequence[int], first: Sequence[int]) -> list[HeldSpan]:
        s = saved.snapshot
        found = []
        for part in s.held.tolist():
            row, node, gpus, device, bits = part
            if first[node] < 0 or not (gpus or device >= 0):
                continue
            rows = [k for k in range(64) if bits >> k & 1] if bits else ([device] if device >= 0 else list(range(gpus)))
            began = float(s.live["run_start"][row])
            name = clean(saved.name(row))
            found.append(HeldSpan(numbers[row], name, name, [first[node] + k for k in rows], began, 0.0))
        return found


def _devices(s: Snapshot) -> tuple[list[str], list[int]]:
    """Return the names of the devices that the chart shows, and (nodes,) the first of each node; −1: it is not shown."""
    names: list[str] = []
    first = []
    for node, gpus in zip(s.cluster.nodes.names, s.cluster.nodes.gpus.tolist(), strict=True):
        shown = gpus > 0 and len(names) + gpus <= MOST_DEVICES
        first.append(len(names) if shown else -1)
        names += [f"{clean(node)}:{k}" for k in range(gpus)] if shown else []
    return names, first


def _gpus(saved: SavedSnapshot) -> list[GpuNow]:
    """Return the GPUs of a small cluster, as far as it is known who holds them."""
    s = saved.snapshot
    holders: dict[tuple[int, int], list[str]] = {}
    for row, node, gpus, device, bits in s.held.tolist():
        for k in [k for k in range(64) if bits >> k & 1] if bits else ([device] if device >= 0 else range(gpus)):
            holders.setdefault((node, k), []).append(clean(saved.name(row)))
    found = []
    for k, (name, gpus) in enumerate(zip(s.cluster.nodes.names, s.cluster.nodes.gpus.tolist(), strict=True)):
        kind = plain_types(s.cluster.types[int(s.cluster.nodes.gpu_type[k])].name)
        for device in range(gpus):
            jobs = holders.get((k, device), [])
            up = not s.nodes["down"][k] and bool(int(s.nodes["mask"][k]) >> device & 1 or not s.nodes["off"][k])
            found.append(GpuNow(f"{clean(name)}:{device}", kind, "busy" if jobs else "free" if up else "down", jobs))
    return found


def _cleaned(texts: Sequence[str]) -> tuple[str, ...]:
    return tuple(clean(text) for text in texts)


def _finite(value: float) -> float:
    return float(value) if np.isfinite(value) else 0.0
