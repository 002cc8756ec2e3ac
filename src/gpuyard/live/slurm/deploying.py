"""Shadow and order modes: reads the queue once a cycle, asks the scheduler, and logs or sets site factors. Nothing is ever held.

The only state is which site factors were set, and Slurm keeps these: they are read at the start and every tenth cycle. Killed at any
moment, it leaves offsets within ±`within`, which age like any others; `reset` takes all of them back.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError, UsageError
from gpuyard.live.deciding import Asked
from gpuyard.live.estimator import HistoryEstimator, keep, kind_of, recalled
from gpuyard.live.log import RotatedLog
from gpuyard.live.slurm.commands import SlurmError, call, configuration, read_jobs, read_slurm
from gpuyard.live.slurm.ordering import QueuedJob, out_of_order, plan_offsets
from gpuyard.live.slurm.text import site_factors
from gpuyard.live.state.file import SavedSnapshot
from gpuyard.live.state.site import SiteJob, SiteState, site_snapshot
from gpuyard.model.decision import Action
from gpuyard.model.estimator import SHORTEST
from gpuyard.policies import AnyScheduler

REREAD = 10  # cycles after which nodes, partitions and site factors are read again
LONGEST_PAUSE = 60.0  # s between cycles while Slurm does not answer
MOST_NAMES = 100  # jobs of the order that a line of the log names
PER_CALL = 200  # updates that one scontrol sends
_REFUSED = re.compile(r"([A-Z][^\n]*?) for job (\d+)")
_GONE = ("Invalid job id", "Job has already finished", "Job/step already completing")
_NO_RIGHT = ("Invalid user id", "Access/permission denied", "Access denied")


@dataclass(frozen=True)
class DeploySettings:
    """How a deployment works. `order` False: shadow mode, which sends nothing."""

    order: bool = False
    every: float = 10.0  # s between cycles
    most: int = 100  # updates in a cycle
    within: int = 1_000_000  # the largest site factor, up or down
    partitions: tuple[str, ...] = ()  # of Slurm; (): all
    patience: float = 30.0  # s for a command


@dataclass
class Deployment:
    """One scheduler at work beside one Slurm."""

    scheduler: AnyScheduler
    settings: DeploySettings
    log: RotatedLog | None = None
    memory: Path | None = None  # where run times are kept; safe to lose
    estimator: HistoryEstimator = field(default_factory=HistoryEstimator, repr=False)
    _asked: Asked = field(init=False, repr=False)
    _site: dict[int, int] = field(default_factory=dict, repr=False)  # job or array → its site factor, as far as it is not 0
    _ground: SiteState | None = field(default=None, repr=False)
    _waited: dict[str, float] = field(default_factory=dict, repr=False)  # waiting job → when it was submitted
    _ended: set[str] = field(default_factory=set, repr=False)  # jobs whose run times are known already
    _cycle: int = 0

    def __post_init__(self) -> None:
        if self.memory is not None:
            self.estimator = recalled(self.memory)
        self._asked = Asked(self.scheduler)
        if not self._asked.has_order:
            hint = "take slots such as sjf/fewest/easy, a checkpoint, or guard(…)"
            raise UsageError(f"{self.scheduler.label}: it decides what starts, not in which order jobs stand", hint=hint)

    def check(self) -> None:
        """Refuse a Slurm whose order cannot be changed so."""
        found = configuration(self.settings.patience)
        kind, priority = found.get("SchedulerType", ""), found.get("PriorityType", "")
        if self.settings.order and kind != "sched/backfill":
            raise UsageError(f"{kind} starts jobs as they come and ignores priorities", hint="SchedulerType=sched/backfill in slurm.conf")
        if self.settings.order and priority != "priority/multifactor":
            raise UsageError(f"{priority} has no site factor", hint="PriorityType=priority/multifactor in slurm.conf")

    def cycles(self, count: int | None = None) -> Iterator[dict[str, Any]]:
        """Work, cycle by cycle, and yield what is logged of each. An error of Slurm ends a cycle, not the deployment."""
        pause = self.settings.every
        while count is None or self._cycle < count:
            began = time.monotonic()
            try:
                record = self._one_cycle()
                pause = self.settings.every
            except NoRightError:
                raise
            except GpuyardError as error:
                record = {"t": time.time(), "cycle": self._cycle, "error": str(error)[:500]}
                self._ground = None
                pause = min(2 * pause, max(LONGEST_PAUSE, self.settings.every))
            self._cycle += 1
            if self.log is not None:
                self.log.add(record)
            yield record
            if count is None or self._cycle < count:
                time.sleep(max(pause - (time.monotonic() - began), 0.0))

    # ── one cycle ──

    def _one_cycle(self) -> dict[str, Any]:
        times = [time.perf_counter()]
        state = self._read()
        self._learn(state)
        saved = site_snapshot(state, self.estimator)
        times.append(time.perf_counter())
        decisions, order, _ = self._asked.decide(saved)
        groups = self._groups(saved, order, state.jobs)
        changes = [change for group in groups for change in plan_offsets(group, self.settings.within)]
        times.append(time.perf_counter())
        sent = changes[: self.settings.most]
        failed = self._send(sent) if self.settings.order else {}
        times.append(time.perf_counter())
        names, nodes = saved.snapshot.rows(), saved.snapshot.cluster.nodes.names
        starts = [(saved.name(names[d.job]), [nodes[p.node] for p in d.parts]) for d in decisions if d.action is Action.START]
        spans = {name: round(b - a, 4) for name, a, b in zip(("read", "decide", "act"), times, times[1:], strict=False)}
        return {
            "t": state.now, "cycle": self._cycle, "mode": "order" if self.settings.order else "shadow", "scheduler": self.scheduler.label,
            "running": len(saved.snapshot.running), "waiting": len(saved.snapshot.waiting), "ineligible": len(saved.ineligible),
            "out_of_order": sum(map(out_of_order, groups)), "would_start": starts[:MOST_NAMES],
            "order": [saved.name(row) for row in order[:MOST_NAMES]], "updates": sent, "left": len(changes) - len(sent),
            "failed": failed, "started": self._started(state), "seconds": spans, "notes": list(saved.notes),
        }  # fmt: skip

    def _read(self) -> SiteState:
        """Read the queue, and from time to time the rest."""
        if self._ground is None or self._cycle % REREAD == 0:
            self._ground = read_slurm(self.settings.patience, ended=True)
            if self.memory is not None and self._cycle:
                keep(self.estimator, self.memory)
            self._site = {job: site for job, site in read_site_factors(self.settings.patience).items() if site}
            return self._ground
        quiet = [replace(node, used=0) for node in self._ground.nodes]  # which GPUs were in use then is no longer so
        return replace(self._ground, now=time.time(), jobs=read_jobs(self.settings.patience, ended=True), nodes=quiet)

    def _learn(self, state: SiteState) -> None:
        """Learn from the jobs that have ended by themselves how long such jobs take."""
        ended = {job.name: job for job in state.jobs if job.lasted == job.lasted}
        for name, job in ended.items():
            if name not in self._ended:
                self.estimator.observe(job.user, kind_of("", job.title, ()), max(job.lasted, SHORTEST))
        self._ended = set(ended)

    def _groups(self, saved: SavedSnapshot, order: Sequence[int], jobs: Sequence[SiteJob]) -> list[list[QueuedJob]]:
        """Return the waiting jobs in order, each array once, apart by what Slurm never mixes: shared nodes, and tiers."""
        known = {job.name: job for job in jobs}
        s = saved.snapshot
        homes = [s.jobs.partitions[number] for number in s.jobs.table["partition"].tolist()]
        groups: dict[tuple[int, int], list[QueuedJob]] = {}
        seen: set[int] = set()
        for row in order:
            job, home = known[saved.name(row)], homes[row]
            if job.base in seen or (self.settings.partitions and not set(job.partitions) & set(self.settings.partitions)):
                continue
            seen.add(job.base)
            key = s.cluster.partition_numbers.get(home, 0), saved.tiers.get(home, 0)
            groups.setdefault(key, []).append(QueuedJob(job.base, int(job.priority), self._site.get(job.base, 0)))
        return list(groups.values())

    def _send(self, changes: Sequence[tuple[int, int]]) -> dict[int, str]:
        """Set site factors; return the jobs that did not take theirs, with the reason."""
        failed = set_site_factors(changes, self.settings.patience)
        self._site |= {job: site for job, site in changes if job not in failed}
        if any(why.startswith(_NO_RIGHT) for why in failed.values()):
            raise NoRightError(
                "this user may not set site factors", hint="run it as SlurmUser or root, or as an operator of Slurm's accounting"
            )
        return failed

    def _started(self, state: SiteState) -> list[tuple[str, float]]:
        """Return the jobs that waited in the cycle before and run now, with their waits in s."""
        found = [(job.name, round(job.start - self._waited[job.name], 3)) for job in state.jobs if job.runs and job.name in self._waited]
        self._waited = {job.name: job.submit for job in state.jobs if job.waits}
        return found


class NoRightError(SlurmError):
    """The user may not change other users' jobs."""


# ── site factors ──


def read_site_factors(patience: float = 30.0) -> dict[int, int]:
    """Return the site factor of each waiting job that Slurm works out a priority for; none under priority/basic."""
    try:
        return site_factors(call(["sprio", "-o", "%i|%S"], patience))
    except SlurmError as error:
        if "priority plugin" in str(error):
            return {}
        raise


def set_site_factors(changes: Sequence[tuple[int, int]], patience: float = 30.0) -> dict[int, str]:
    """Set the site factors of jobs and whole arrays, by one scontrol for some hundred; return who did not take theirs, and why."""
    failed: dict[int, str] = {}
    for at in range(0, len(changes), PER_CALL):
        lines = "".join(f"update jobid={job} sitefactor={site}\n" for job, site in changes[at : at + PER_CALL])
        complaints = call(["scontrol"], patience, given=lines, complaints=True)
        failed |= {int(number): why.strip() for why, number in _REFUSED.findall(complaints)}
    return failed


def reset(patience: float = 30.0) -> tuple[int, Mapping[int, str]]:
    """Set every site factor back to 0, of waiting and running jobs; return how many were sent, and who did not take it.

    Slurm shows the factors of jobs alone that may start now. The others get a 0 whether they need it or not.
    """
    known, queue = read_site_factors(patience), read_jobs(patience)
    jobs = sorted({job.base for job in queue} | {job.id for job in queue} | set(known))
    changes = [(job, 0) for job in jobs if known.get(job, -1) != 0]
    failed = set_site_factors(changes, patience)
    return len(changes), {job: why for job, why in failed.items() if not why.startswith(_GONE)}
