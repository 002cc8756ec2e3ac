"""The node itself: what it is asked for, and what the scheduler's decisions lead to. It knows no sockets.

Every change goes through the book. `commit` puts it on record and brings in step what is derived from the jobs.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

from gpuyard.errors import UsageError
from gpuyard.live.estimator import HistoryEstimator, WaitAccounts, kind_of
from gpuyard.live.node.advice.advisor import Advice, Advisor
from gpuyard.live.node.book import Book, Change
from gpuyard.live.node.client import NodeError
from gpuyard.live.node.clock import NodeClock
from gpuyard.live.node.devices import Gpus
from gpuyard.live.node.jobs import NodeJob, RunState, Submission, submission_of
from gpuyard.live.node.running.attempts import last_folder, writable_cgroup
from gpuyard.live.node.running.executor import Executor, Launcher
from gpuyard.live.node.running.lifecycle import Lifecycle
from gpuyard.live.node.running.shim import parents
from gpuyard.live.node.store import NodeStore
from gpuyard.live.node.yard import NodeDevices, shares
from gpuyard.live.state.table import LiveJobs, SeenJob
from gpuyard.model.cluster import EPS
from gpuyard.model.decision import Action, Decision
from gpuyard.model.rules import Rules, StopTerms
from gpuyard.model.site.eligibility import Conditions, why_not

Kind = tuple[str, str]  # user, kind of job
LAG = 5.0  # s by which readings of a GPU's memory may be late
REMEMBERED = 1000  # jobs of the history that the estimator learns from at a start
RULES = Rules(walltime_kill=True)


@dataclass(frozen=True)
class NodeSettings:
    """The settings of a node, kept from one start to the next."""

    scheduler: str = "fcfs/fewest/easy"
    share: int = 1  # jobs that may share a GPU
    cpus: int = 0  # CPU slots, or cores for jobs; 0: those of the machine
    patience: float = 10.0  # s that the scheduler may take
    cgroup: bool = True  # put jobs into control groups where that is possible
    templates: Mapping[str, Sequence[str]] = field(default_factory=dict)  # name of a warm process → modules that it imports


@dataclass(frozen=True)
class Promise:
    """The devices on which a job starts as soon as those who were stopped for it have left them."""

    devices: tuple[str, ...]
    left: float = math.inf  # when they had, by the node's clock


class Node:
    """A queue for one machine."""

    def __init__(
        self, folder: Path, settings: NodeSettings, gpus: Gpus, launchers: Mapping[str, Launcher] | None = None, umask: int = 0o022
    ) -> None:
        """Read what is on record. Jobs make files with the `umask`."""
        self.folder, self.settings, self.gpus = folder, settings, gpus
        self.store = NodeStore(folder)
        self.book = Book(self.store, last_folder(folder / "jobs"))
        history = self.store.ended(REMEMBERED)
        known = [max(job.submit, job.start, job.end) for job in (*history, *self.book.jobs.values())]
        self.clock = NodeClock(max(known, default=0.0))
        self.origin = float(self.store.meta("origin") or self.clock.now())
        self.draining = self.store.meta("draining") == "yes"
        self.executor = Executor(folder / "jobs", writable_cgroup() if settings.cgroup else "", launchers)
        self.runs = Lifecycle(self.book, self.clock, self.executor, gpus, umask)
        self.advisor = Advisor(settings.scheduler, settings.patience, folder / "scheduler.log")
        self.estimator = HistoryEstimator()
        self.accounts = WaitAccounts()
        self.yard = self._make_yard()
        self.table = LiveJobs()
        self.sizes: dict[int, float] = {}  # job → devices that it takes
        self.pending: dict[int, tuple[float, float]] = {}  # waiting job → devices, and GB on each
        self.running: set[int] = set()
        self._deviceless: set[int] = set()  # waiting jobs that need no device
        self.reasons: dict[int, str] = {}  # waiting jobs that were not offered to the scheduler → why
        self.order: Sequence[int] = ()  # the first waiting jobs, as the scheduler orders them
        self.keys: Sequence[float] = ()  # by which it does; empty: it does not say
        self.first = {int(each) for each in json.loads(self.store.meta("first") or "[]")}  # jobs that go before all others
        self.wanted = True  # something has happened that the scheduler should see
        self._next_ask = 0.0
        self._leaving: set[int] = set()  # running jobs that were told to make room
        self._promised: dict[int, Promise] = {}  # waiting jobs that start once they have
        self._conditional: set[int] = set()  # waiting jobs with conditions of their own
        self._succeeded: dict[int, bool] = {}  # jobs that others wait for and that have ended, as far as somebody has asked
        self._arrays: dict[int, int] = {}  # array → its running jobs
        self._alike: dict[Kind, set[int]] = {}  # waiting jobs whose run times are estimated alike
        self._learned: set[Kind] = set()  # what has been learned about since the estimates were revised
        for job in reversed(history):
            self._learn(job)
        for job in self.book.jobs.values():
            self._took(None, job)

    def begin(self) -> None:
        """Find out what has become of the jobs that ran when the last daemon ended."""
        rebooted = self.store.meta("boot") not in ("", self.runs.boot)
        settings = json.dumps(asdict(self.settings))
        for key, value in {"origin": repr(self.origin), "boot": self.runs.boot, "settings": settings}.items():
            self.book.note(key, value)
        for job in list(self.book.jobs.values()):
            self.runs.adopt(job, rebooted)

    def _make_yard(self) -> NodeDevices:
        cores = self.settings.cpus or len(os.sched_getaffinity(0))
        memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 1e9
        return NodeDevices(self.gpus.latest(), cores, memory, self.settings.share)

    # ── requests ──

    def submit(self, data: object, token: str, user: str) -> list[int]:
        """Queue a job, or one for each number of an array, and return their numbers; a token gives the same numbers each time."""
        known = self.store.ids_of_token(token) if token else []
        if known:
            return known
        asked = submission_of(data)
        if asked.template and asked.template not in self.executor.warm:
            hint = f"gpuyard node start --template {asked.template}=MODULE,…"
            raise UsageError(f"this node has no template {asked.template!r}", hint=hint)
        gpus = self.yard.gpus_of(asked)
        for needed in (*asked.after, *asked.after_any):
            self.book.find(needed)
        now, made = self.clock.now(), list[int]()
        expected = self.estimator.estimate(*_kind(user, asked), asked.walltime, asked.estimate).expected
        one = replace(asked, array=(), gpus=asked.gpus if asked.gpus < 0 else gpus)
        for number in asked.array or (0,):
            made.append(self.book.next_number())
            array = (made[0], number) if asked.array else (0, 0)
            job = NodeJob(made[-1], one, RunState.pending, now, user, array=array, held=asked.held, queued=now, expected=expected)
            self.book.add(job, token)
        return made

    def cancel(self, numbers: Sequence[int]) -> list[int]:
        """End jobs: those that wait at once, those that run by TERM and, after a grace, KILL. Ended ones stay as they are."""
        for job in map(self.book.find, numbers):
            if job.state is RunState.pending:
                self.book.put(replace(job, state=RunState.killed, reason="cancelled", end=self.clock.now(), held=False))
            elif not job.state.ended:
                self.runs.stop(job, "cancel")
        return list(numbers)

    def hold(self, numbers: Sequence[int], held: bool) -> list[int]:
        """Keep waiting jobs from starting, or let them."""
        for job in map(self.book.find, numbers):
            if job.state is not RunState.pending:
                raise NodeError(f"job {job.id} is {job.state.value}, not PENDING", hint="only jobs that wait can be held or released")
            self.book.put(replace(job, held=held))
        return list(numbers)

    def put_first(self, numbers: Sequence[int]) -> list[int]:
        """Let waiting jobs go before all others: until they have started, no other starts."""
        for job in map(self.book.find, numbers):
            if job.state is not RunState.pending:
                raise NodeError(f"job {job.id} is {job.state.value}, not PENDING", hint="only jobs that wait can be put first")
        self._note_first(self.first | set(numbers))
        return list(numbers)

    def _note_first(self, jobs: set[int]) -> None:
        self.first, self.wanted = jobs, True
        self.book.note("first", json.dumps(sorted(jobs)))

    def retry(self, numbers: Sequence[int]) -> list[int]:
        """Queue jobs again that have FAILED, were KILLED or are LOST; without numbers all that have FAILED or are LOST."""
        again = (RunState.failed, RunState.lost)
        numbers = numbers or sorted(job.id for job in self.store.ended(10_000) if job.state in again)
        for job in map(self.book.find, numbers):
            if job.state not in (*again, RunState.killed):
                raise NodeError(f"job {job.id} is {job.state.value}", hint="only jobs that are FAILED, KILLED or LOST run again")
            self.book.put(self.runs.again(job, f"{job.state.value}: {job.reason or 'run again'}"))
        return list(numbers)

    def drain(self, draining: bool) -> None:
        """Start nothing more, or go on."""
        self.draining, self.wanted = draining, True
        self.book.note("draining", "yes" if draining else "no")

    # ── what is derived from the jobs ──

    def commit(self) -> list[Change]:
        """Put on record what has happened, then do what follows from it. NodeError: nothing has happened."""
        changes, effects = self.book.commit()
        for old, new in changes:
            self._took(old, new)
        for effect in effects:
            effect()
        self._keep_promises()
        return changes

    def _took(self, old: NodeJob | None, job: NodeJob) -> None:
        self.wanted = True
        was, state = old is not None and _runs(old), _runs(job)
        if job.array[0]:
            self._arrays[job.array[0]] = self._arrays.get(job.array[0], 0) + state - was
        (self.running.add if state else self.running.discard)(job.id)
        (self._leaving.add if state and job.stopping == "preempt" else self._leaving.discard)(job.id)
        self.pending.pop(job.id, None)
        self._deviceless.discard(job.id)
        if job.id in self.first and job.state is not RunState.pending:
            self._note_first(self.first - {job.id})
        kind = _kind(job.user, job.asked)
        self._alike.get(kind, set()).discard(job.id)
        self._conditional.discard(job.id)
        self._succeeded.pop(job.id, None)  # it has ended, perhaps otherwise than the last time, or runs again
        if job.state.ended:
            self._leave(job)
            return
        if job.id not in self.sizes:
            self.sizes[job.id] = self.size_of(job)
            self.table.add(self._seen(job))
        if job.state is RunState.pending:
            self._alike.setdefault(kind, set()).add(job.id)
            self.pending[job.id] = (self.sizes[job.id], job.asked.gpu_memory)
            if not self.sizes[job.id]:
                self._deviceless.add(job.id)
            if self._conditions(job).any or job.id in self.runs.troubles:
                self._conditional.add(job.id)
        self.table.set(job.id, **self._columns(job))

    def _columns(self, job: NodeJob) -> dict[str, float]:
        """Return what changes of a job as policies see it: who makes room has left, and who was promised it has begun."""
        gpus, promised = self.sizes[job.id], job.id in self._promised
        runs = promised or (_runs(job) and job.id not in self._leaving)
        begun = (self.clock.now() if promised else job.start) - self.origin
        found: dict[str, float] = {"running": runs, "ran": job.ran, "attained": job.ran * gpus, "done": job.ran}
        found |= {"preemptions": job.preemptions, "queued": job.queued - self.origin}
        if runs:
            found |= {"run_start": begun, "est_end": begun + max(job.expected - job.ran, 1.0)}
        return found | ({"start": begun} if job.start or promised else {})

    def _leave(self, job: NodeJob) -> None:
        self.table.remove(job.id)
        self.sizes.pop(job.id, None)
        self.reasons.pop(job.id, None)
        self.runs.forget(job)
        self._learn(job)

    def _learn(self, job: NodeJob) -> None:
        if job.state in (RunState.done, RunState.failed) and job.end > job.start > 0:
            kind = _kind(job.user, job.asked)
            runtime = job.ran + job.end - job.start
            self.estimator.observe(*kind, runtime)
            self._learned.add(kind)
            area = max(job.expected, 1.0) * self.size_of(job)
            self.accounts.add(job.end - job.submit - runtime, area, job.asked.preemptible or job.preemptions > 0)

    def _expected(self, job: NodeJob) -> float:
        return self.estimator.estimate(*_kind(job.user, job.asked), job.asked.walltime, job.asked.estimate).expected

    def _revise(self) -> None:
        """Let waiting jobs have what has been learned of others like them; those whose users know better keep what they said."""
        for kind in self._learned:
            known: dict[float, float] = {}
            for number in self._alike.get(kind, ()):
                job = self.book.jobs[number]
                if not job.asked.estimate:
                    if job.asked.walltime not in known:
                        known[job.asked.walltime] = max(self._expected(job), 1.0)
                    self.table.set(number, estimate=known[job.asked.walltime])
        self.wanted |= bool(self._learned)
        self._learned.clear()

    def size_of(self, job: NodeJob) -> float:
        """Return how many devices of the cluster a job takes."""
        try:
            return self.yard.gpus_of(job.asked)
        except UsageError:
            return max(job.asked.gpus, 1.0)  # the machine has changed: it waits until it fits again

    def _seen(self, job: NodeJob) -> SeenJob:
        asked, origin = job.asked, self.origin
        terms = StopTerms(preemptible=asked.preemptible, checkpoint=asked.checkpoint if asked.checkpoint else float("nan"))
        return SeenJob(
            job.id, job.submit - origin, self.sizes[job.id], max(job.expected, 1.0), asked.walltime, asked.deadline - origin,
            asked.cpus if self.yard.has_gpus else 0.0, asked.memory, asked.priority, job.user, job_class=asked.job_class, terms=terms,
        )  # fmt: skip

    # ── eligibility ──

    def _conditions(self, job: NodeJob) -> Conditions:
        asked = job.asked
        return Conditions(job.held, asked.begin, asked.after, asked.after_any, job.array[0], asked.array_limit)

    def why_not(self, job: NodeJob, now: float) -> str:
        """Return the name of the reason why a waiting job is not offered to the scheduler; empty if it is."""
        for needed in _needed(job):
            if needed not in self._succeeded and (found := self.book.find(needed)).state.ended:
                self._succeeded[needed] = found.state is RunState.done
        reason = why_not(self._conditions(job), now, self._succeeded, self._arrays)
        if not reason and self.runs.troubles.get(job.id, (0, 0.0, ""))[1] > now:
            reason = "start-failed"
        return reason or self.yard.lacking(self.sizes[job.id], job.asked.gpu_memory)

    def _ineligible(self, now: float) -> dict[int, str]:
        """Return the waiting jobs that are not offered now, and why. Of an array no more are offered than may start."""
        found = {number: reason for number in self._conditional if (reason := self.why_not(self.book.jobs[number], now))}
        lacking = {shape: reason for shape in set(self.pending.values()) if (reason := self.yard.lacking(*shape))}
        if lacking:
            found |= {number: lacking[shape] for number, shape in self.pending.items() if shape in lacking and number not in found}
        room: dict[int, int] = {}
        for number in sorted(self._conditional - found.keys()):
            job = self.book.jobs[number]
            if job.asked.array_limit:
                left = room.setdefault(job.array[0], job.asked.array_limit - self._arrays.get(job.array[0], 0))
                room[job.array[0]] = left - 1
                if left <= 0:
                    found[number] = "array-limit"
        return found | dict.fromkeys(self._promised, "making-room")

    # ── decisions ──

    @property
    def free(self) -> float:
        """Return how many devices no job holds."""
        return max(self.yard.devices - len(self.yard.blocked) - sum(self.sizes[number] for number in self.running), 0.0)

    @property
    def crowded(self) -> bool:
        """Return whether nothing can start until a job ends, whatever the scheduler says."""
        return not (self._deviceless or self.free > EPS or any(self.book.jobs[number].asked.preemptible for number in self.running))

    def ask(self) -> bool:
        """Ask the scheduler what to do now, if anything waits; return whether it was asked."""
        self.wanted = False
        if self.draining or not self.pending:
            return False
        now = self.clock.now()
        reasons = self._ineligible(now)
        self.book.log.reasons += reasons != self.reasons
        self.reasons = reasons
        if len(self.reasons) == len(self.pending):
            return False
        free_to_start = self.pending.keys() - self.reasons.keys()
        offered: Collection[int] | None = (self.first & free_to_start) or (free_to_start if self.reasons or self._leaving else None)
        holders = self._holders()
        held = [each for job in holders for each in self.yard.holdings(job, self.sizes[job.id])]
        nodes = self.yard.nodes({uuid for job in holders for uuid in job.devices})
        known = {"rules": RULES, "excess": self.accounts.excess}
        self.advisor.ask(self.table.snapshot(now - self.origin, self.yard.cluster, offered, held, nodes, **known))
        return True

    def follow(self, advice: Advice) -> None:
        """Do what the scheduler wants, as far as it is possible by now; what is not is logged."""
        self.order, self.keys = advice.order, advice.keys
        now = self.clock.now()
        self._next_ask = now + advice.every if advice.every else 0.0
        held, leaving = self._shares(self._holders()), self._shares(self.book.jobs[number] for number in self._leaving)
        for decision in sorted(advice.decisions, key=lambda each: each.action is Action.START):  # who makes room comes first
            refused = self._carry_out(decision, held, leaving, now)
            what = f"{decision.action.value}{' refused' if refused else ' later' if decision.job in self._promised else ''}"
            self.book.note_decision(
                now, decision.job, what, refused or decision.reason or f"{self.advisor.now_used}{advice.because(decision)}"
            )

    def _holders(self) -> list[NodeJob]:
        """Return the jobs that hold devices as policies see them: those that run and stay, and those that wait for others to leave."""
        stay = [self.book.jobs[number] for number in self.running - self._leaving]
        return stay + [replace(self.book.jobs[number], devices=promise.devices) for number, promise in self._promised.items()]

    def _shares(self, jobs: Iterable[NodeJob]) -> dict[str, float]:
        return shares((job, self.sizes[job.id]) for job in jobs)

    def _carry_out(self, decision: Decision, held: dict[str, float], leaving: dict[str, float], now: float) -> str:
        """Carry out one decision; return why that cannot be, or nothing. What is held, and by those who leave, is kept up to date."""
        job = self.book.jobs.get(decision.job)
        if job is None or self.book.find(decision.job) is not job:
            return "it has changed meanwhile"
        if decision.action in (Action.PREEMPT, Action.MIGRATE):
            if job.state is not RunState.running or not job.asked.preemptible:
                return f"it is {job.state.value}" if job.asked.preemptible else "it must not be stopped"
            for uuid, share in self._shares([job]).items():
                held[uuid], leaving[uuid] = held.get(uuid, 0.0) - share, leaving.get(uuid, 0.0) + share
            self.runs.stop(job, "preempt")
            return ""
        if decision.action is not Action.START:
            return ""
        if not self._may_start(job, now) or job.id in self._promised:
            return "it may not start now"
        gpus = self.sizes[job.id]
        devices = self.yard.choose(decision.parts, gpus, job.asked.gpu_memory, held, leaving)
        if devices is None or (gpus > 0 and not devices):
            return "its devices are not free"
        for uuid in devices:
            held[uuid] = held.get(uuid, 0.0) + min(gpus, 1.0)
        if any(held[uuid] + leaving.get(uuid, 0.0) > 1 + EPS for uuid in devices):
            self._promised[job.id], self.reasons[job.id] = Promise(devices), "making-room"
            self.table.set(job.id, **self._columns(job))
        else:
            self._start(job, devices)
        return ""

    def _may_start(self, job: NodeJob, now: float) -> bool:
        return job.id in self.pending and not self.draining and not (job.id in self._conditional and self.why_not(job, now))

    def _start(self, job: NodeJob, devices: tuple[str, ...]) -> None:
        self.yard.claim(devices, job.asked.gpu_memory)
        self.runs.start(replace(job, expected=self._expected(job)), devices, self.yard.has_gpus)

    def _keep_promises(self) -> None:
        """Start the jobs whose devices have been left; for those that cannot have them any more the scheduler decides again."""
        now = self.clock.now()
        for number, promise in list(self._promised.items()):
            still = self._kept(number, promise, now)
            if still is not None:
                self._promised[number] = still
                continue
            del self._promised[number]
            self.reasons.pop(number, None)
            self.wanted = True
            if number in self.pending:
                self.table.set(number, **self._columns(self.book.jobs[number]))

    def _kept(self, number: int, promise: Promise, now: float) -> Promise | None:
        """Start a job if its devices have been left; return the promise if it has to wait further."""
        job = self.book.jobs.get(number)
        if job is None or self.book.find(number) is not job or not self._may_start(job, now):
            return None
        taken = self._shares(self.book.jobs[each] for each in self.running)
        busy = [uuid for uuid in promise.devices if taken.get(uuid, 0.0) + min(self.sizes[number], 1.0) > 1 + EPS]
        if busy:
            awaited = {uuid for each in self._leaving for uuid in self.book.jobs[each].devices}
            return promise if awaited.issuperset(busy) else None
        if any(self.yard.free_memory(uuid) < job.asked.gpu_memory for uuid in promise.devices if job.asked.gpu_memory):
            left = min(promise.left, now)
            return replace(promise, left=left) if now < left + LAG else None
        if not self.yard.blocked.keys() & set(promise.devices):
            self._start(job, promise.devices)
        return None

    # ── every second ──

    def tick(self) -> None:
        """Look at the GPUs, and see that jobs whose time has come are offered."""
        readings = self.gpus.latest()
        if self.yard.unknown(readings):
            self.yard = self._make_yard()
        if self.yard.has_gpus:
            self.wanted |= self.yard.see(readings, self._owner(), self._claims())
        self.runs.tick(self.running)
        self._keep_promises()
        self._revise()
        self.wanted |= "gpu-memory" in self.reasons.values()  # the last reading may be of a job that has ended since
        self.wanted |= bool(self._conditional) or bool(self._next_ask and self.clock.now() >= self._next_ask)

    def _owner(self) -> Callable[[int], int | None]:
        """Return what names the job that a process belongs to: None if it is a stranger's, 0 if it is gone or not of this container."""
        above, found = parents(), {pid: job for job, pid in self.executor.pids.items()}

        def owner(pid: int) -> int | None:
            at = pid
            for _ in above:
                if at in found or at not in above:
                    break
                at = above[at]
            return found.get(at, None if _exists(pid) else 0)

        return owner

    def _claims(self) -> dict[str, dict[int, float]]:
        found: dict[str, dict[int, float]] = {}
        for number in self.running:
            job = self.book.jobs[number]
            for uuid in job.devices:
                found.setdefault(uuid, {})[number] = job.asked.gpu_memory
        return found

    def close(self) -> None:
        """End what belongs to the daemon; jobs go on."""
        self.advisor.close()
        self.gpus.close()
        self.store.close()


def _kind(user: str, asked: Submission) -> Kind:
    return user, kind_of(asked.job_class, asked.name, asked.command)


def _exists(pid: int) -> bool:
    """Return whether there is such a process, of anybody."""
    try:
        os.kill(pid, 0)
    except OSError as error:
        return isinstance(error, PermissionError)
    return True


def _runs(job: NodeJob) -> bool:
    return job.state in (RunState.starting, RunState.running)


def _needed(job: NodeJob) -> tuple[int, ...]:
    return (*job.asked.after, *job.asked.after_any)
