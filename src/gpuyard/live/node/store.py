"""The node's state in SQLite: jobs, their attempts and what was decided. Every batch of changes is one transaction.

The database is in WAL mode. A commit survives the death of the daemon at once, and a power failure once `flush` has run, within a second;
the folders of jobs say what began after that. A new version of the layout is reached by the steps in UPGRADES, one after the other.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from gpuyard.errors import DataError
from gpuyard.live.node.jobs import NodeJob, RunState, Submission, submission_of

DATABASE = "node.db"
VERSION = 2
MOST_DECISIONS = 100_000  # that are kept
UPGRADES: Mapping[int, Sequence[str]] = {
    1: (  # energy of jobs and attempts, and the log of decisions
        "ALTER TABLE jobs ADD COLUMN energy REAL NOT NULL DEFAULT 0",
        "ALTER TABLE attempts ADD COLUMN energy REAL NOT NULL DEFAULT 0",
        "CREATE TABLE decisions (number INTEGER PRIMARY KEY, at REAL NOT NULL, job INTEGER NOT NULL, action TEXT NOT NULL, reason TEXT)",
    ),
}  # fmt: skip
LAYOUT = (
    "CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL)",
    "CREATE TABLE environments (hash TEXT PRIMARY KEY, variables TEXT NOT NULL)",
    """CREATE TABLE jobs (
        id INTEGER PRIMARY KEY, token TEXT NOT NULL, environment TEXT NOT NULL, asked TEXT NOT NULL, state TEXT NOT NULL,
        submit REAL NOT NULL, user TEXT NOT NULL, reason TEXT NOT NULL, array TEXT NOT NULL, held INTEGER NOT NULL,
        attempt INTEGER NOT NULL, queued REAL NOT NULL, start REAL NOT NULL, exit_code INTEGER, end REAL NOT NULL,
        stopping TEXT NOT NULL, signal INTEGER NOT NULL, devices TEXT NOT NULL, ran REAL NOT NULL, energy REAL NOT NULL,
        expected REAL NOT NULL, history TEXT NOT NULL, preemptions INTEGER NOT NULL, retried INTEGER NOT NULL, losses INTEGER NOT NULL)""",
    "CREATE INDEX jobs_by_state ON jobs (state)",
    "CREATE INDEX jobs_by_token ON jobs (token)",
    """CREATE TABLE attempts (
        job INTEGER NOT NULL, attempt INTEGER NOT NULL, boot TEXT NOT NULL, devices TEXT NOT NULL, began REAL NOT NULL, ended REAL NOT NULL,
        state TEXT NOT NULL, record TEXT NOT NULL, energy REAL NOT NULL, PRIMARY KEY (job, attempt))""",
    UPGRADES[1][2],
)
_JSON = ("array", "devices", "history")  # columns of NodeJob that are kept as JSON
_COLUMNS = tuple(each.name for each in fields(NodeJob))


@dataclass(frozen=True)
class AttemptRow:
    """One attempt of a job, in the database."""

    job: int
    attempt: int
    boot: str
    devices: tuple[str, ...]
    began: float
    ended: float  # s since 1970; 0: it has not
    state: RunState
    record: Mapping[str, Any]  # what the shim wrote
    energy: float = 0.0  # J


class NodeStore:
    """The database of one node. One process writes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / DATABASE
        try:
            self._database = sqlite3.connect(self.path, isolation_level=None, timeout=5.0, check_same_thread=False)
            self.path.chmod(0o600)
            self._database.execute("PRAGMA journal_mode = WAL")
            self._database.execute("PRAGMA synchronous = NORMAL")
            self._open()
        except (sqlite3.Error, OSError) as error:
            raise DataError(f"{self.path}: cannot be opened: {error}", hint="is the folder writable, and the disk not full?") from None
        self._unflushed = False

    def _open(self) -> None:
        version = int(self._one("PRAGMA user_version"))
        if version > VERSION:
            raise DataError(
                f"{self.path}: version {version}; this gpuyard knows versions up to {VERSION}", hint="start the newer gpuyard that wrote it"
            )
        if version == VERSION:
            return
        self._database.execute("BEGIN IMMEDIATE")
        steps = LAYOUT if version == 0 else [step for old in range(version, VERSION) for step in UPGRADES[old]]
        for step in steps:
            self._database.execute(step)
        self._database.execute(f"PRAGMA user_version = {VERSION}")
        self._database.execute("COMMIT")

    def _one(self, query: str, *values: Any) -> Any:
        row = self._database.execute(query, values).fetchone()
        return None if row is None else row[0]

    def close(self) -> None:
        """Close the database."""
        with suppress(sqlite3.Error):
            self._database.close()

    # ── writing ──

    def write(
        self,
        new: Sequence[tuple[NodeJob, str]],
        changed: Iterable[NodeJob],
        attempts: Iterable[AttemptRow],
        decisions: Sequence[tuple[float, int, str, str]] = (),
        meta: Mapping[str, str] | None = None,
    ) -> None:
        """Write jobs with their tokens, changed jobs, attempts and decisions in one transaction; if it fails nothing is written."""
        database = self._database
        database.execute("BEGIN IMMEDIATE")
        try:
            self._insert(new)
            database.executemany(_UPDATE, [_values(job) for job in changed])
            database.executemany(
                "INSERT OR REPLACE INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                [
                    (a.job, a.attempt, a.boot, json.dumps(a.devices), a.began, a.ended, a.state.value, json.dumps(dict(a.record)), a.energy)
                    for a in attempts
                ],
            )
            database.executemany("INSERT INTO decisions (at, job, action, reason) VALUES (?, ?, ?, ?)", decisions)
            if decisions:
                database.execute("DELETE FROM decisions WHERE number <= (SELECT max(number) FROM decisions) - ?", (MOST_DECISIONS,))
            database.executemany("INSERT OR REPLACE INTO meta VALUES (?, ?)", list((meta or {}).items()))
            database.execute("COMMIT")
        except sqlite3.Error:
            with suppress(sqlite3.Error):
                database.execute("ROLLBACK")
            raise
        self._unflushed = True

    def _insert(self, new: Sequence[tuple[NodeJob, str]]) -> None:
        """Insert jobs; those of an array share one environment and one text of what was asked for."""
        known: dict[int, tuple[str, str]] = {}
        rows = []
        for job, token in new:
            if id(job.asked) not in known:
                known[id(job.asked)] = self._keep_environment(job.asked), _cell(job, "asked")
            name, asked = known[id(job.asked)]
            rows.append([token, name, *(asked if column == "asked" else _cell(job, column) for column in _COLUMNS)])
        self._database.executemany(_INSERT, rows)

    def _keep_environment(self, asked: Submission) -> str:
        """Keep an environment once, and return its name."""
        variables = json.dumps(dict(asked.env), sort_keys=True)
        name = hashlib.sha256(variables.encode("utf-8", "surrogatepass")).hexdigest()
        self._database.execute("INSERT OR IGNORE INTO environments VALUES (?, ?)", (name, variables))
        return name

    def flush(self) -> None:
        """Let what was committed reach the disk. It may take some ms, and may run in another thread."""
        if self._unflushed:
            self._unflushed = False
            with suppress(OSError):
                log = os.open(f"{self.path}-wal", os.O_RDONLY | os.O_CLOEXEC)
                try:
                    os.fsync(log)
                finally:
                    os.close(log)

    # ── reading ──

    def meta(self, key: str) -> str:
        """Return a fact about the node; empty if it is not known."""
        found = self._one("SELECT value FROM meta WHERE key = ?", key)
        return "" if found is None else str(found)

    def last_id(self) -> int:
        return int(self._one("SELECT max(id) FROM jobs") or 0)

    def unfinished(self) -> list[NodeJob]:
        """Return the jobs that have not ended, by id."""
        return self._jobs("WHERE state IN ('PENDING', 'STARTING', 'RUNNING') ORDER BY id")

    def ended(self, limit: int, since: float = 0.0) -> list[NodeJob]:
        """Return the last jobs to end, newest first."""
        return self._jobs(
            "WHERE state IN ('DONE', 'FAILED', 'KILLED', 'LOST') AND end >= ? ORDER BY end DESC, id DESC LIMIT ?", since, limit
        )

    def before(self, number: int, limit: int) -> list[NodeJob]:
        """Return the last jobs with smaller numbers, ended or not, the greatest first."""
        return self._jobs("WHERE id < ? ORDER BY id DESC LIMIT ?", number, limit)

    def job(self, number: int) -> NodeJob | None:
        """Return a job, with its environment."""
        found = self._jobs("WHERE id = ?", number)
        if not found:
            return None
        variables = self._one("SELECT variables FROM environments JOIN jobs ON environment = hash WHERE id = ?", number)
        asked = found[0].asked
        return _with(found[0], Submission(**{**vars(asked), "env": json.loads(variables or "{}")}))

    def ids_of_token(self, token: str) -> list[int]:
        """Return the jobs that were submitted under a token."""
        return [row[0] for row in self._database.execute("SELECT id FROM jobs WHERE token = ? ORDER BY id", (token,))]

    def attempts(self, jobs: Sequence[int]) -> Iterator[AttemptRow]:
        """Yield the attempts of some jobs."""
        for number in jobs:
            for row in self._database.execute("SELECT * FROM attempts WHERE job = ? ORDER BY attempt", (number,)):
                job, attempt, boot, devices, began, ended, state, record, energy = row
                yield AttemptRow(job, attempt, boot, tuple(json.loads(devices)), began, ended, RunState(state), json.loads(record), energy)

    def identity(self, job: int, attempt: int) -> dict[str, Any]:
        """Return who runs an attempt, as its shim said when it began."""
        return dict(json.loads(self._one("SELECT record FROM attempts WHERE job = ? AND attempt = ?", job, attempt) or "{}"))

    def decisions(self, limit: int) -> list[tuple[float, int, str, str]]:
        """Return the last decisions, newest first: when, which job, what, why."""
        return list(self._database.execute("SELECT at, job, action, reason FROM decisions ORDER BY number DESC LIMIT ?", (limit,)))

    def _jobs(self, where: str, *values: Any) -> list[NodeJob]:
        rows = self._database.execute(f"SELECT {', '.join(_COLUMNS)} FROM jobs {where}", values)
        return [_job(dict(zip(_COLUMNS, row, strict=True))) for row in rows]


_INSERT = f"INSERT INTO jobs (token, environment, {', '.join(_COLUMNS)}) VALUES ({', '.join('?' * (2 + len(_COLUMNS)))})"
_MUTABLE = tuple(name for name in _COLUMNS if name not in ("id", "asked", "submit", "user", "array"))
_UPDATE = f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in _MUTABLE)} WHERE id = ?"


def _cell(job: NodeJob, name: str) -> Any:
    value = getattr(job, name)
    if name in _JSON:
        return json.dumps(value)
    return json.dumps(job.asked.plain(environment=False)) if name == "asked" else value.value if name == "state" else value


def _values(job: NodeJob) -> list[Any]:
    return [*(_cell(job, name) for name in _MUTABLE), job.id]


def _job(row: dict[str, Any]) -> NodeJob:
    row |= {name: tuple(json.loads(row[name])) for name in _JSON}
    row |= {"asked": submission_of(json.loads(row["asked"]), "database"), "state": RunState(row["state"]), "held": bool(row["held"])}
    return NodeJob(**row)


def _with(job: NodeJob, asked: Submission) -> NodeJob:
    return NodeJob(**{**vars(job), "asked": asked})
