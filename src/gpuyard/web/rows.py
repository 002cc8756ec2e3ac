"""The jobs of a cluster as columns: sorted, filtered and cut into pages on the server, so that a viewer gets a hundred rows and never all.

130,000 jobs take some 30 MB. Texts are kept once each, by number; an order of the rows is worked out once for all who ask for the same.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.errors import UsageError

GONE = "GONE"  # no longer in the queue; how it ended is not known
STATES = ("RUNNING", "STARTING", "PENDING", "DONE", "FAILED", "KILLED", "LOST", GONE)
WAITING, ACTIVE, ENDED = ("PENDING",), ("RUNNING", "STARTING"), STATES[3:]
GROUPS: Mapping[str, Sequence[str]] = {"all": STATES, "running": ACTIVE, "waiting": WAITING, "ended": ENDED}
MOST_ROWS = 100  # of a page
MOST_BYTES = 95_000  # of a page
MOST_QUERIES = 32  # whose order is remembered: 4 bytes a job each
LENGTHS = {"label": 40, "name": 100, "user": 40, "reason": 160, "place": 80, "partition": 40}  # characters that a page shows
NOT_YET = 0.0
NEVER = 1e300  # sorts behind every number


@dataclass(frozen=True)
class QueueRow:
    """A job as a table shows it. Times are s since 1970; 0: not yet, or not known."""

    number: int  # by which it is found
    label: str  # what its source calls it
    name: str
    user: str
    state: str  # one of STATES
    reason: str = ""
    gpus: float = 0.0
    place: str = ""
    submit: float = 0.0
    start: float = NOT_YET
    partition: str = ""
    end: float = NOT_YET
    estimate: float = 0.0  # s that it is estimated to take
    priority: float = 0.0


_TEXTS = tuple(each.name for each in fields(QueueRow) if each.type == "str")
_NUMBERS = tuple(each.name for each in fields(QueueRow) if each.type != "str")
SORTS = ("rank", "wait", "ran", *_NUMBERS, *_TEXTS)


@dataclass(frozen=True)
class Query:
    """A choice of jobs, and their order."""

    group: str = "all"
    sort: str = "rank"
    descending: bool = False
    search: str = ""
    user: str = ""

    def __post_init__(self) -> None:
        if self.group not in GROUPS:
            raise UsageError(f"{self.group[:40]!r} is not a group of jobs", hint=f"one of {', '.join(GROUPS)}")
        if self.sort not in SORTS:
            raise UsageError(f"{self.sort[:40]!r} is not a column", hint=f"one of {', '.join(SORTS)}")


class TextColumn:
    """Texts by number: each is kept once."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._numbers: dict[str, int] = {}
        self._ranks: Array = np.zeros(0, np.int64)

    def number(self, text: str) -> int:
        found = self._numbers.get(text)
        if found is None:
            found = self._numbers[text] = len(self.texts)
            self.texts.append(text)
        return found

    def ranks(self) -> Array:
        """(texts,) the place of each in the alphabet, whatever the case."""
        if len(self._ranks) != len(self.texts):
            order = sorted(range(len(self.texts)), key=lambda k: self.texts[k].casefold())
            self._ranks = np.empty(len(order), np.int64)
            self._ranks[order] = np.arange(len(order))
        return self._ranks

    def having(self, words: str) -> Array:
        """(texts,) bool: which contain these letters, whatever the case."""
        return np.fromiter((words in text.casefold() for text in self.texts), bool, len(self.texts))


class JobRows:
    """All jobs that a dashboard knows. Any thread may ask or change."""

    def __init__(self) -> None:
        self.version = 0
        self._lock = threading.Lock()
        self._clear()

    def _clear(self) -> None:
        self._at: dict[int, int] = {}  # number → row
        self._texts = {name: TextColumn() for name in _TEXTS}
        self._table: dict[str, Array] = {name: np.zeros(1024, np.int32 if name in _TEXTS else np.float64) for name in (*_TEXTS, *_NUMBERS)}
        self._rank: Array = np.full(1024, NEVER)
        self._found: dict[Query, Array] = {}  # orders of rows, until something changes

    def __len__(self) -> int:
        return len(self._at)

    # ── changing ──

    def put(self, rows: Iterable[QueueRow]) -> None:
        """Add jobs, or change those that are there."""
        with self._lock:
            for row in rows:
                at = self._at.get(row.number)
                if at is None:
                    at = self._at[row.number] = len(self._at)
                    self._make_room(at)
                    self._rank[at] = NEVER
                for name in _TEXTS:
                    self._table[name][at] = self._texts[name].number(getattr(row, name))
                for name in _NUMBERS:
                    self._table[name][at] = getattr(row, name)
            self._changed()

    def remove(self, numbers: Iterable[int]) -> None:
        """Forget jobs; the last row takes the place of each."""
        with self._lock:
            for number in numbers:
                at = self._at.pop(number, None)
                last = len(self._at)
                if at is None or at == last:
                    continue
                for column in (*self._table.values(), self._rank):
                    column[at] = column[last]
                self._at[int(self._table["number"][at])] = at
            self._changed()

    def clear(self) -> None:
        """Forget all jobs."""
        with self._lock:
            self._clear()
            self._changed()

    def explain(self, reasons: Mapping[int, str], order: Sequence[int]) -> None:
        """Say why jobs wait, and in which order the scheduler looks at them; other waiting jobs have neither reason nor place."""
        with self._lock:
            size, texts = len(self._at), self._texts["reason"]
            waits = np.isin(self._table["state"][:size], self._states(WAITING))
            column = self._table["reason"][:size]
            column[waits] = texts.number("")
            self._rank[:size] = NEVER
            at = self._places(reasons)
            code = {reason: texts.number(reason) for reason in set(reasons.values())}
            codes = np.fromiter((code[reason] for reason in reasons.values()), np.int64, len(reasons))
            told = (at >= 0) & waits[at] if size else np.zeros(len(at), bool)
            column[at[told]] = codes[told]
            at = self._places(order)
            known = (at >= 0) & waits[at] if size else np.zeros(len(at), bool)
            self._rank[at[known]] = np.arange(1, known.sum() + 1)
            self._changed()

    def waiting(self, order: Sequence[int]) -> list[bool]:
        """Return which of these jobs wait."""
        with self._lock:
            at, states = self._places(order), self._states(WAITING)
            return [bool(k >= 0 and self._table["state"][k] in states) for k in at]

    def _places(self, numbers: Iterable[int]) -> Array:
        """(numbers,) the row of each job; −1: there is none."""
        return np.array([self._at.get(number, -1) for number in numbers], np.int64)

    def _make_room(self, rows: int) -> None:
        if rows < len(self._rank):
            return
        self._table = {name: _longer(column) for name, column in self._table.items()}
        self._rank = _longer(self._rank)

    def _changed(self) -> None:
        self.version += 1
        self._found.clear()

    # ── asking ──

    def counts(self) -> dict[str, int]:
        """Count the jobs in each state."""
        with self._lock:
            counted = np.bincount(self._table["state"][: len(self._at)], minlength=len(self._texts["state"].texts))
            return {state: int(n) for state, n in zip(self._texts["state"].texts, counted.tolist(), strict=True) if n}

    def get(self, number: int) -> dict[str, Any] | None:
        """Return a job in full; None: there is none."""
        with self._lock:
            at = self._at.get(number)
            return None if at is None else self._record(at) | {"rank": self._place(at)}

    def oldest(self, most: int) -> list[int]:
        """Return the numbers of the jobs that ended first, as far as there are more ended ones than `most`."""
        with self._lock:
            rows = np.flatnonzero(self._chosen(Query("ended")))
            if len(rows) <= most:
                return []
            first = rows[np.argsort(self._table["end"][rows], kind="stable")[: len(rows) - most]]
            return [int(number) for number in self._table["number"][first]]

    def page(self, query: Query, now: float, first: int = 0, count: int = MOST_ROWS) -> dict[str, Any]:
        """Return the rows from `first` on, how many there are in all, and the version that this is; fewer rows where they are long."""
        with self._lock:
            order = self._order(query, now)
            shown = order[first : first + min(count, MOST_ROWS)].tolist()
            rows, size = [], 0
            for at in shown:
                row = [*(_short(self._text(name, at), name) for name in _TEXTS), *(self._number(name, at) for name in _NUMBERS)]
                size += sum(len(each.encode("utf-8", "replace")) + 2 if isinstance(each, str) else 16 for each in row) + 24
                if size > MOST_BYTES:
                    break
                rows.append([*row, self._place(at)])
            return {"columns": [*_TEXTS, *_NUMBERS, "rank"], "rows": rows, "first": first, "total": len(order), "version": self.version}

    def _order(self, query: Query, now: float) -> Array:
        known = self._found.get(query)
        if known is not None:
            return known
        rows = np.flatnonzero(self._chosen(query))
        keys = self._keys(query.sort, rows, now)
        number = self._table["number"][rows]
        order: Array = rows[np.lexsort((number, -keys if query.descending else keys))].astype(np.int32)
        if len(self._found) >= MOST_QUERIES:
            self._found.clear()
        self._found[query] = order
        return order

    def _chosen(self, query: Query) -> Array:
        """(rows,) bool: the jobs that a query is about."""
        size = len(self._at)
        chosen = np.ones(size, bool)
        if query.group != "all":
            chosen &= np.isin(self._table["state"][:size], self._states(GROUPS[query.group]))
        if query.user:
            column = self._texts["user"]
            chosen &= self._table["user"][:size] == (column.number(query.user) if query.user in column.texts else -1)
        if words := query.search.strip().casefold():
            chosen &= np.logical_or.reduce([
                self._texts[name].having(words)[self._table[name][:size]] for name in ("label", "name", "user", "reason", "place")
            ])  # fmt: skip
        return chosen

    def _keys(self, sort: str, rows: Array, now: float) -> Array:
        """(rows,) by which they are sorted."""
        if sort in _TEXTS:
            ranks: Array = self._texts[sort].ranks()[self._table[sort][rows]].astype(np.float64)
            return ranks
        submit, start, end = (self._table[name][rows] for name in ("submit", "start", "end"))
        if sort == "wait":
            waited: Array = np.where(start > 0, start, np.where(end > 0, end, now)) - submit
            return waited
        if sort == "ran":
            ran: Array = np.where(start > 0, np.where(end > 0, end, now) - start, 0.0)
            return ran
        if sort == "rank":  # running jobs first, the newest on top; then the queue; then what has ended, the last first
            states = self._table["state"][rows]
            runs, ended = (np.isin(states, self._states(group)) for group in (ACTIVE, ENDED))
            queue = np.where(self._rank[rows] < NEVER, self._rank[rows], 1e8 + self._table["number"][rows])
            ordered: Array = np.where(runs, -1e10 - start, np.where(ended, 1e15 - end, queue))
            return ordered
        plain: Array = self._table[sort][rows]
        return plain

    def _states(self, names: Sequence[str]) -> list[int]:
        return [self._texts["state"].number(name) for name in names]

    def _text(self, name: str, at: int) -> str:
        return str(self._texts[name].texts[int(self._table[name][at])])

    def _number(self, name: str, at: int) -> float:
        value = float(self._table[name][at])
        return int(value) if value.is_integer() else round(value, 3)

    def _place(self, at: int) -> int | None:
        return int(self._rank[at]) if self._rank[at] < NEVER else None

    def _record(self, at: int) -> dict[str, Any]:
        return {name: self._text(name, at) for name in _TEXTS} | {name: self._number(name, at) for name in _NUMBERS}


def _longer(column: Array) -> Array:
    """Return a column with room for a quarter more rows: doubling would show as a leak."""
    made = np.zeros(len(column) + max(len(column) // 4, 1024), column.dtype)
    made[: len(column)] = column
    return made


def _short(text: str, name: str) -> str:
    most = LENGTHS.get(name, 20)
    return text if len(text) <= most else f"{text[: most - 1]}…"
