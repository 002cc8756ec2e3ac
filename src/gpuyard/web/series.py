"""Keeps what was measured lately: a short past second by second, a long one in half minutes. Memory does not grow."""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Mapping, Sequence

from gpuyard.web.sources.base import Glance, HeldSpan, PastReadings

FINE, COARSE = 600, 1440  # points
STEP = 30.0  # s of the coarse ones
MEASURES = ("utilisation", "memory", "power", "temperature")
MOST_GPUS = 64
HOURS = 12.0
MOST_SPANS = 4000
MOST_RANKED = 10  # jobs at the head of the queue whose place is remembered
RANK_POINTS = 720


class TimeSeries:
    """Columns over time, of which the oldest rows go."""

    def __init__(self, most: int) -> None:
        self._times: deque[float] = deque(maxlen=most)
        self._rows: deque[Mapping[str, Sequence[float | None]]] = deque(maxlen=most)

    def add(self, at: float, row: Mapping[str, Sequence[float | None]]) -> None:
        self._times.append(at)
        self._rows.append(row)

    @property
    def last(self) -> float:
        return self._times[-1] if self._times else 0.0

    def read(self, name: str) -> tuple[list[float], list[list[float | None]]]:
        """Return the times, and a column for each line of that name."""
        width = max((len(row.get(name, ())) for row in self._rows), default=0)
        columns: list[list[float | None]] = [[] for _ in range(width)]
        for row in self._rows:
            values = row.get(name, ())
            for k in range(width):
                columns[k].append(values[k] if k < len(values) else None)
        return [round(at, 1) for at in self._times], columns


class RecentPast:
    """The past of a cluster as far as its charts show it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._fine, self._coarse = TimeSeries(FINE), TimeSeries(COARSE)
        self._sum: list[tuple[float, Mapping[str, Sequence[float | None]]]] = []
        self._spans: dict[tuple[int, float], HeldSpan] = {}
        self._open: set[tuple[int, float]] = set()
        self._ranks: dict[int, deque[tuple[float, int, float | None]]] = {}
        self.head: Sequence[int] = ()

    # ── measured ──

    def recall(self, readings: PastReadings) -> None:
        """Begin with readings of before."""
        with self._lock:
            every = max(int(STEP / 10), 1)
            for k in range(0, len(readings.times), every):
                row = {name: [_known(line[k], name) for line in lines[:MOST_GPUS]] for name, lines in readings.values.items()}
                self._coarse.add(float(readings.times[k]), row)

    def measure(self, seen: Glance, counts: Mapping[str, int]) -> None:
        """Take in what a look has shown."""
        gpus = seen.gpus[:MOST_GPUS]
        row: dict[str, Sequence[float | None]] = {
            "busy": [round(seen.busy, 2)],
            "queue": [counts.get("PENDING", 0), counts.get("RUNNING", 0) + counts.get("STARTING", 0)],
            "utilisation": [_known(each.utilisation, "utilisation") for each in gpus],
            "memory": [_known(each.memory, "memory") for each in gpus],
            "power": [_known(each.watts, "power") for each in gpus],
            "temperature": [_known(each.celsius, "temperature") for each in gpus],
        }
        with self._lock:
            if seen.now <= self._fine.last:
                return
            self._fine.add(seen.now, row)
            self._sum.append((seen.now, row))
            if seen.now - max(self._coarse.last, self._sum[0][0]) >= STEP:
                self._coarse.add(seen.now, _means([row for _, row in self._sum]))
                self._sum = []

    def lines(self, name: str, *, long: bool) -> tuple[list[float], list[list[float | None]]]:
        """Return times and lines of a measure."""
        with self._lock:
            return (self._coarse if long else self._fine).read(name)

    # ── who held what ──

    def hold(self, seen: Glance) -> None:
        """Take in who holds devices; of a source that names all of them, who is no longer named has ended."""
        with self._lock:
            now_open = {(each.job, each.start) for each in seen.held if not each.end}
            ended = (
                self._open - now_open
                if seen.whole
                else {key for key in self._open if key[0] in {row.number for row in seen.rows}} - now_open
            )
            for key in ended:
                if (span := self._spans.get(key)) is not None and not span.end:
                    self._spans[key] = HeldSpan(span.job, span.label, span.name, span.rows, span.start, seen.now)
            self._open -= ended
            for each in seen.held:
                if not each.end or each.end > seen.now - HOURS * 3600.0:
                    self._spans[each.job, each.start] = _joined(self._spans.get((each.job, each.start)), each, seen)
            self._open |= now_open
            self._forget(seen.now)

    def _forget(self, now: float) -> None:
        if len(self._spans) > MOST_SPANS:
            kept = sorted(self._spans.items(), key=lambda each: each[1].end or now, reverse=True)[: MOST_SPANS * 3 // 4]
            self._spans = {key: span for key, span in kept if not span.end or span.end > now - HOURS * 3600.0}

    def spans(self, since: float) -> list[HeldSpan]:
        """Return the stretches that reach into the time after `since`, the first to begin first."""
        with self._lock:
            return sorted((each for each in self._spans.values() if not each.end or each.end >= since), key=lambda each: each.start)

    # ── the policy's order ──

    def rank(self, now: float, order: Sequence[int], keys: Sequence[float]) -> None:
        """Take in the order of the queue."""
        with self._lock:
            place = {number: k for k, number in enumerate(order)}
            self.head = list(order[:MOST_RANKED])
            for number in {*self.head, *(each for each in self._ranks if each in place)}:
                key = float(keys[place[number]]) if place[number] < len(keys) else None
                self._ranks.setdefault(number, deque(maxlen=RANK_POINTS)).append((now, place[number] + 1, key))
            if len(self._ranks) > 20 * MOST_RANKED:
                self._ranks = {number: line for number, line in self._ranks.items() if number in place}

    def ranks(self) -> dict[int, list[tuple[float, int, float | None]]]:
        """Return (time, place, key) of the jobs at the head of the queue."""
        with self._lock:
            return {number: list(self._ranks.get(number, ())) for number in self.head}


def _joined(old: HeldSpan | None, new: HeldSpan, seen: Glance) -> HeldSpan:
    """A gang holds devices on several nodes: its parts are one stretch."""
    if old is None or not seen.whole or old.end:
        return new
    return HeldSpan(new.job, new.label, new.name, sorted({*old.rows, *new.rows}), new.start, new.end)


def _known(value: float | None, name: str) -> float | None:
    return None if value is None or not math.isfinite(value) else round(value, 3 if name == "utilisation" else 1)


def _means(rows: Sequence[Mapping[str, Sequence[float | None]]]) -> dict[str, Sequence[float | None]]:
    """Return the mean of each value over some rows."""
    found: dict[str, Sequence[float | None]] = {}
    for name in rows[-1]:
        width = len(rows[-1][name])
        columns = [[value for row in rows if k < len(row.get(name, ())) and (value := row[name][k]) is not None] for k in range(width)]
        found[name] = [round(sum(column) / len(column), 3) if column else None for column in columns]
    return found
