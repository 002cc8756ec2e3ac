"""The life of a running job: started by its attempt's shim, watched, told to stop, and put on record as the shim says how it ended.

docs/decisions/0036 has the diagram. Every change goes through the book; what must follow a commit (a start, a signal) is its effect.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import Any

from gpuyard.live.node.book import Book
from gpuyard.live.node.clock import NodeClock
from gpuyard.live.node.devices import Gpus
from gpuyard.live.node.jobs import NodeJob, RunState
from gpuyard.live.node.running import executor as executing
from gpuyard.live.node.running.attempts import Fate, began_since
from gpuyard.live.node.running.executor import Executor
from gpuyard.live.node.running.shim import boot_id
from gpuyard.live.node.store import AttemptRow

MOST_LOSSES = 3  # times that --requeue-lost lets a job run again
STARTING_FOR = 20.0  # s after which an attempt that has not begun is looked into
LOOK_AGAIN = 0.5  # s after which files that could not be looked at are looked at again
SWEEP_AGAIN = 0.05  # s after which what a killed shim has left is looked for again
NOTHING_LEFT = 0.3  # s without a trace of it: a process that is just becoming another program shows none for a moment
TELL_AGAIN = 2.0  # s after which a job that has not stopped is told again
BACKOFF = (1.0, 60.0)  # s before a job that could not be started is tried again: the first time, at most


class Lifecycle:
    """Brings the book and the attempts on disk into agreement."""

    def __init__(self, book: Book, clock: NodeClock, executor: Executor, gpus: Gpus, umask: int) -> None:
        self._book, self._clock, self._executor, self._gpus = book, clock, executor, gpus
        self.boot = boot_id()
        self.starting: dict[int, float] = {}  # job → when its shim was started; 0: by an earlier daemon
        self.sweeping: dict[int, str] = {}  # jobs that have lost their shims, while what is left of them is killed → why
        self.troubles: dict[int, tuple[int, float, str]] = {}  # job → failed starts, when the next is tried, what went wrong
        self._look_again: dict[int, float] = {}  # job → when its files can be looked at again, which a moment ago could not
        self._seen: dict[int, float] = {}  # job whose shim was killed → when something of it was last seen
        self._told: dict[int, float] = {}  # job → when it was last told to stop
        self._umask = umask  # of jobs

    def adopt(self, job: NodeJob, rebooted: bool) -> None:
        """Find out what has become of a job that an earlier daemon left."""
        if job.state is not RunState.pending:
            if job.devices:
                self._gpus.began(job.id, job.devices)
            self.starting[job.id] = 0.0
            self._look_into(job)
            return
        folder = self._executor.folder / str(job.id)
        if rebooted and began_since(folder, job.attempt):  # the database has lost its last second to a power failure
            last = max(int(each.name[:-3]) for each in folder.glob("*.id"))
            self._lose(replace(job, attempt=last, start=self._clock.now()), "the machine went down while it ran")

    def forget(self, job: NodeJob) -> None:
        """Forget a job that has ended."""
        self.troubles.pop(job.id, None)

    # ── starting ──

    def start(self, job: NodeJob, devices: tuple[str, ...], visible: bool) -> None:
        """Put on record that an attempt begins, and then begin it. `visible`: the machine has GPUs, and the job sees those named."""
        now = self._clock.now()
        begun = replace(
            job, state=RunState.starting, attempt=job.attempt + 1, devices=devices, start=now, exit_code=None, signal=0, reason=""
        )
        self._book.put(begun)
        self._note(begun, now, 0.0, {})
        self._book.then(partial(self._launch, begun, visible))

    def _launch(self, job: NodeJob, visible: bool) -> None:
        executing.reached("commit")
        self.starting[job.id] = time.monotonic()
        whole = self._book.store.job(job.id) or job
        try:
            self._executor.start(whole, self._umask, job.devices if visible else None)
            self._gpus.began(job.id, job.devices)
        except OSError as error:
            self._try_later(job, f"{error.strerror or error}: {error.filename or 'shim'}")
            self._never_began(self._book.find(job.id))

    def _try_later(self, job: NodeJob, why: str) -> None:
        """Let a job that could not be started wait for a while, twice as long each time."""
        times = self.troubles.get(job.id, (0, 0.0, ""))[0] + 1
        self.troubles[job.id] = (times, self._clock.now() + min(BACKOFF[0] * 2.0 ** (times - 1), BACKOFF[1]), why)

    # ── running ──

    def settle(self) -> None:
        """Look after attempts that are about to begin, and after what killed shims have left."""
        now = time.monotonic()
        for number, since in list(self.starting.items()):
            if self._look_again.get(number, 0.0) > now:
                continue
            self._look_again.pop(number, None)
            job = self._book.find(number)
            if since and not self._executor.files(job).identity() and not self._overdue(job, since):
                continue
            self._look_into(job)
        for number in list(self.sweeping):
            if self._look_again.get(number, 0.0) <= now:
                self._look_again[number] = now + SWEEP_AGAIN
                self._sweep(self._book.find(number), now)

    def _sweep(self, job: NodeJob, now: float) -> None:
        """Kill what a killed shim has left; the job is LOST once nothing has been seen of it for a while."""
        with suppress(OSError):
            if not self._executor.sweep(job):
                self._seen[job.id] = now
            elif now - self._seen.setdefault(job.id, now) >= NOTHING_LEFT:
                del self._seen[job.id], self._look_again[job.id]
                self._lose(job, self.sweeping.pop(job.id))

    def _overdue(self, job: NodeJob, since: float) -> bool:
        return self._executor.gone(job) or time.monotonic() - since > STARTING_FOR

    def _look_into(self, job: NodeJob) -> None:
        """Find out what has become of an attempt, and put it on record. A disk that cannot be written is tried again."""
        try:
            seen = self._executor.look(job)
            if seen.fate is Fate.unborn and job.state is RunState.running:  # it was born: somebody has removed its folder
                seen = self._executor.look_without_folder(job, self._book.store.identity(job.id, job.attempt))
        except OSError:
            self._look_again[job.id] = time.monotonic() + LOOK_AGAIN
            return
        if seen.fate is Fate.settling:
            return
        launched = self.starting.pop(job.id, 0.0)
        if seen.fate is Fate.alive:
            self._goes_on(job, seen.record)
        elif seen.fate is Fate.ended:
            self._finish(job, seen.record)
        elif seen.fate is Fate.lost:
            self.sweeping[job.id] = "its shim was killed" if seen.record.get("boot") == self.boot else "the machine went down"
        elif seen.fate is Fate.unborn:
            if launched and not job.stopping:
                self._try_later(job, self._executor.files(job).last_words() or "its shim did not begin")
            self._never_began(job)

    def _never_began(self, job: NodeJob) -> None:
        """Let a job wait again whose attempt has run nothing, and never will."""
        self._release(job)
        self._note(replace(job, state=RunState.lost), job.start, self._clock.now(), {"why": "never began"})
        if job.stopping == "cancel":
            self._book.put(replace(job, state=RunState.killed, reason="cancelled", stopping="", end=self._clock.now()))
        else:
            self._book.put(self._waiting(job))

    def _goes_on(self, job: NodeJob, identity: Mapping[str, Any]) -> None:
        """Note that an attempt runs. Who runs it is kept, in case its folder is removed."""
        if job.state is RunState.starting:
            running = replace(job, state=RunState.running, start=self._clock.at(float(identity["monotonic"])))
            self._book.put(running)
            self._note(running, running.start, 0.0, identity)
            self.troubles.pop(job.id, None)
        if job.stopping:
            self._book.then(partial(self._tell, job.id))

    def shim_gone(self, number: int) -> None:
        """The shim of a job has ended."""
        self._executor.forget(number)
        job = self._book.find(number)
        if not job.state.ended and job.state is not RunState.pending:
            self.starting[number] = 0.0
            self._look_into(job)

    def _finish(self, job: NodeJob, record: Mapping[str, Any]) -> None:
        """Put the end of an attempt on record, and what comes after it."""
        now, began, ended = self._clock.now(), float(record.get("began", 0.0)), float(record.get("ended", 0.0))
        span = max(ended - began, 0.0)
        same = self._of_this_boot(job)
        end = min(self._clock.at(ended), now) if same else now
        start = end - span
        joules = self._release(job)
        code, number, why = record.get("exit"), int(record.get("signal") or 0), str(record.get("why", ""))
        state, reason = _verdict(code, number, why, str(record.get("trouble", "")))
        if record.get("survivors"):
            reason = "; ".join(filter(None, [reason, f"{record['survivors']} of its processes could not be killed"]))
        done = replace(
            job, state=state, reason=reason, start=start, end=end, exit_code=code, signal=number, energy=job.energy + joules, stopping=""
        )
        self._note(done, start, end, record, joules)
        if why == "preempt":
            ran = job.ran + span
            done = replace(self._waiting(done, f"preempted after {span:.0f} s"), preemptions=job.preemptions + 1, ran=ran)
        elif (state is RunState.failed and job.retried < job.asked.retry) or (why == "terminated" and self._may_repeat(job)):
            done = self.again(replace(done, losses=job.losses + (why == "terminated")), f"{state.value}: {reason}")
        self._book.put(done)

    def _may_repeat(self, job: NodeJob) -> bool:
        """Return whether a job that did not end by itself runs again, by the rules that it was submitted with."""
        return job.retried < job.asked.retry or (job.asked.requeue_lost and job.losses < MOST_LOSSES)

    def _of_this_boot(self, job: NodeJob) -> bool:
        return bool(self._executor.files(job).identity().get("boot") == self.boot)

    def _lose(self, job: NodeJob, why: str) -> None:
        """Nobody knows how an attempt ended. It runs again only where a rule says so."""
        joules = self._release(job)
        lost = replace(
            job, state=RunState.lost, reason=why, end=self._clock.now(), energy=job.energy + joules, losses=job.losses + 1, stopping=""
        )
        self._note(lost, job.start, lost.end, {}, joules)
        if job.stopping == "cancel":
            lost = replace(lost, state=RunState.killed, reason=f"cancelled; {why}")
        elif self._may_repeat(job):
            lost = self.again(lost, f"LOST: {why}")
        self._book.put(lost)

    def _release(self, job: NodeJob) -> float:
        """Note that a job has left its devices, and return the J it used."""
        self._executor.forget(job.id)
        self._told.pop(job.id, None)
        self.starting.pop(job.id, None)
        return self._gpus.ended(job.id).joules

    def _waiting(self, job: NodeJob, event: str = "") -> NodeJob:
        history = (*job.history, f"{job.attempt}: {event}") if event else job.history
        return replace(job, state=RunState.pending, devices=(), queued=self._clock.now(), stopping="", end=0.0, history=history, reason="")

    def again(self, job: NodeJob, event: str) -> NodeJob:
        """Return the job as it waits to run again from the beginning."""
        return replace(self._waiting(job, event), retried=job.retried + 1, ran=0.0, exit_code=None, signal=0)

    def _note(self, job: NodeJob, began: float, ended: float, record: Mapping[str, Any], joules: float = 0.0) -> None:
        self._book.note_attempt(AttemptRow(job.id, job.attempt, self.boot, job.devices, began, ended, job.state, record, joules))

    # ── stopping ──

    def stop(self, job: NodeJob, why: str) -> None:
        """Let a running job be told to stop: `cancel`, or `preempt`, after which it runs again."""
        if job.stopping != "cancel":
            self._book.put(replace(job, stopping=why))
            self._book.then(partial(self._tell, job.id))

    def _tell(self, number: int) -> None:
        """Tell a running job to stop. One that is about to begin is told as soon as it runs."""
        job = self._book.jobs.get(number)
        if job is not None and job.stopping and job.state is RunState.running:
            self._told[number] = time.monotonic()
            with suppress(OSError):
                self._executor.ask_to_stop(job, job.stopping)

    def tick(self, running: Iterable[int]) -> None:
        """Tell again whoever of those that run has not stopped, and look after shims that cannot be watched."""
        now = time.monotonic()
        for job in [self._book.jobs[number] for number in running if number not in self.sweeping]:
            if job.stopping and now - self._told.get(job.id, 0.0) > TELL_AGAIN:
                self._tell(job.id)
            if self._executor.watched(job.id) < 0:
                self.starting.setdefault(job.id, 0.0)


def _verdict(code: object, number: int, why: str, trouble: str) -> tuple[RunState, str]:
    """Return the state that an end leads to, and what to say of it."""
    if why in ("cancel", "walltime", "terminated"):
        said = {"cancel": "cancelled", "walltime": "reached its walltime", "terminated": "its shim was told to stop"}
        return RunState.killed, said[why]
    if why == "no-start":
        return RunState.failed, f"could not start: {trouble}"
    if code == 0:
        return RunState.done, ""
    return RunState.failed, f"signal {number}" if number else f"exit code {code}"
