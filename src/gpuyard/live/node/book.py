"""The jobs that have not ended, in memory, and the changes that wait to be committed together.

What is read includes the changes. If they cannot be committed they are forgotten, so that memory never runs ahead of the disk.
"""

from __future__ import annotations

import secrets
import sqlite3
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import replace

from gpuyard.live.node.client import NodeError
from gpuyard.live.node.jobs import NodeJob, RunState
from gpuyard.live.node.store import AttemptRow, NodeStore

Change = tuple[NodeJob | None, NodeJob]  # a job before and after a commit
MOST_CHANGED = 50_000  # jobs of which it is remembered that they have changed


class ChangeLog:
    """Knows which jobs have changed since somebody asked last, each once."""

    def __init__(self) -> None:
        self.epoch = secrets.token_hex(8)  # of this daemon: numbers of another mean nothing
        self.number = 0  # of the last change
        self.reasons = 0  # times that the reasons why jobs wait have changed
        self._jobs: OrderedDict[int, int] = OrderedDict()  # job → its last change, in that order
        self._forgotten = 0  # the last change that is no longer known

    def note(self, job: int) -> None:
        """Note that a job has changed."""
        self.number += 1
        self._jobs[job] = self.number
        self._jobs.move_to_end(job)
        if len(self._jobs) > MOST_CHANGED:
            self._forgotten = self._jobs.popitem(last=False)[1]

    def since(self, number: int, limit: int) -> tuple[list[int], int] | None:
        """Return the jobs that changed after a change, the first `limit` of them, and the last change that this covers.

        None: so long ago that it is not known.
        """
        if not self._forgotten <= number <= self.number:
            return None
        found: list[tuple[int, int]] = []
        for job, change in reversed(self._jobs.items()):
            if change <= number:
                break
            found.append((change, job))
        first = found[::-1][:limit]
        return [job for _, job in first], first[-1][0] if len(found) > limit else self.number


class Book:
    """The jobs of a node. `then` is called after the next commit, in order, and dropped if that fails."""

    def __init__(self, store: NodeStore, taken: int = 0) -> None:
        """Read the jobs of a store; numbers up to `taken` are not given again."""
        self.store = store
        self.jobs = {job.id: job for job in store.unfinished()}
        self._last = max(store.last_id(), taken)
        self._new: dict[int, tuple[NodeJob, str]] = {}
        self._changed: dict[int, NodeJob] = {}
        self._attempts: list[AttemptRow] = []
        self._decisions: list[tuple[float, int, str, str]] = []
        self._meta: dict[str, str] = {}
        self._effects: list[Callable[[], None]] = []
        self.log = ChangeLog()

    @property
    def dirty(self) -> bool:
        """Return whether anything waits to be committed."""
        return bool(self._new or self._changed or self._attempts or self._meta or self._effects)

    def find(self, number: int) -> NodeJob:
        """Return a job as it will be after the commit; an unknown number is refused."""
        found = self._changed.get(number) or (self._new[number][0] if number in self._new else None) or self.jobs.get(number)
        found = found or self.store.job(number)
        if found is None:
            raise NodeError(f"there is no job {number}", hint="gpuyard queue --all lists jobs")
        return found

    def next_number(self) -> int:
        """Return the number of the next job."""
        self._last += 1
        return self._last

    def add(self, job: NodeJob, token: str) -> None:
        """Add a job, submitted under a token."""
        self._new[job.id] = (job, token)

    def put(self, job: NodeJob) -> None:
        """Change a job."""
        if job.id in self._new:
            self._new[job.id] = (job, self._new[job.id][1])
        else:
            self._changed[job.id] = job

    def note_attempt(self, row: AttemptRow) -> None:
        self._attempts.append(row)

    def note_decision(self, at: float, job: int, action: str, reason: str) -> None:
        self._decisions.append((at, job, action, reason))

    def note(self, key: str, value: str) -> None:
        """Set a fact about the node."""
        self._meta[key] = value

    def then(self, effect: Callable[[], None]) -> None:
        """Call something once the changes so far are on record."""
        self._effects.append(effect)

    def commit(self) -> tuple[list[Change], list[Callable[[], None]]]:
        """Write all changes in one transaction; return what has changed and what is to be done now.

        If it fails, nothing has changed and NodeError says why.
        """
        new, changed, effects = dict(self._new), dict(self._changed), list(self._effects)
        try:
            if self.dirty or self._decisions:
                self.store.write(list(new.values()), changed.values(), self._attempts, self._decisions, self._meta)
        except sqlite3.Error as error:
            self._last = min([self._last, *(number - 1 for number in new)])
            raise NodeError(f"{self.store.path}: cannot be written: {error}", hint="is the disk full, or the folder read-only?") from None
        finally:
            for waiting in (self._new, self._changed, self._attempts, self._decisions, self._meta, self._effects):
                waiting.clear()
        slim = [without_environment(job) for job in (*(job for job, _ in new.values()), *changed.values())]
        found: list[Change] = []
        for job in slim:
            found.append((self.jobs.get(job.id), job))
            self.log.note(job.id)
            if job.state.ended:
                self.jobs.pop(job.id, None)
            else:
                self.jobs[job.id] = job
        return found, effects

    def waiting(self) -> list[NodeJob]:
        """Return the jobs that wait, by number."""
        return [job for job in self.jobs.values() if job.state is RunState.pending]


def without_environment(job: NodeJob) -> NodeJob:
    """Return the job with an empty environment: those of 10,000 jobs would take 100 MB."""
    return replace(job, asked=replace(job.asked, env={})) if job.asked.env else job
