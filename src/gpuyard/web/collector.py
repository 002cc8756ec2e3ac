"""Asks the source again and again, once for all who watch, and tells them what has changed."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import compress
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.web.rows import ENDED, GONE, JobRows, QueueRow
from gpuyard.web.series import HOURS, RecentPast
from gpuyard.web.sources.base import Glance, LiveSource
from gpuyard.web.stream import EventStream

MOST_ENDED = 120_000  # jobs that have ended and are shown
AGAIN = 2.0  # s after which a source that cannot be reached is asked again
MOST_FOLLOWED = 2000  # waiting jobs whose places and keys are remembered
SURPLUS = 5000  # ended jobs beyond the most, before some are forgotten


class Collector:
    """Looks at a source in a thread of its own."""

    def __init__(self, source: LiveSource, stream: EventStream) -> None:
        self.source, self.stream = source, stream
        self.rows, self.past = JobRows(), RecentPast()
        self.latest: Glance | None = None
        self.decisions: Sequence[Mapping[str, Any]] = ()
        self.problem = "it has not been asked yet"
        self.seconds = 0.0  # that the last look took
        self.looks = 0
        self._reasons: Mapping[int, str] = {}
        self._order: Sequence[int] = []
        self._listed: Mapping[int, QueueRow] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="collector", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """Stop looking. A source that hangs is not waited for."""
        self._stop.set()
        self._thread.join(3.0)
        self.source.close()

    def wake(self) -> None:
        """Look at once: something was asked for."""
        self.look()

    def _run(self) -> None:
        while not self._stop.is_set():
            began = time.monotonic()
            wait = self.source.every if self.look() else AGAIN
            if self.latest is not None and self.latest.loading:
                wait = 0.05
            self._stop.wait(max(wait - (time.monotonic() - began), 0.02))

    def look(self) -> bool:
        """Look once, and say what has changed; return whether the source could be reached."""
        began = time.perf_counter()
        try:
            if not self.looks:
                self.past.recall(self.source.past(time.time() - HOURS * 3600.0))
            seen = self.source.look()
            self._take(seen)
            self.problem = ""
        except GpuyardError as error:
            self._lost(f"{error}")
        except Exception as error:  # the dashboard goes on whatever a source does
            print(f"gpuyard: {type(error).__name__}: {error}", file=sys.stderr, flush=True)  # noqa: T201
            self._lost(" ".join(f"{type(error).__name__}: {error}".split())[:300])
        self.seconds = time.perf_counter() - began
        self.stream.publish("tick", self.summary())
        return not self.problem

    def _lost(self, why: str) -> None:
        self.problem = why

    def _take(self, seen: Glance) -> None:
        if seen.fresh:
            self.rows.clear()
        rows = self._changes(seen) if seen.whole else seen.rows
        if rows:
            self.rows.put(rows)
        if seen.reasons is not None or seen.order is not None:
            self._explain(seen, bool(rows))
        self.past.hold(seen)
        self.past.measure(seen, self.rows.counts())
        if seen.order is not None:
            self.past.rank(seen.now, *self._head(seen))
        if seen.decisions is not None:
            self.decisions = seen.decisions
        if len(self.rows) > MOST_ENDED and not seen.loading:
            surplus = self.rows.oldest(MOST_ENDED - SURPLUS) if len(self.rows) > MOST_ENDED + SURPLUS else []
            if surplus:
                self.rows.remove(surplus)
        self.latest = seen
        self.looks += 1

    def _head(self, seen: Glance) -> tuple[list[int], list[float]]:
        """Return the jobs at the head of the queue, and their keys. Some may have started since the scheduler was asked."""
        order = list(seen.order or ())[:MOST_FOLLOWED]
        waits = self.rows.waiting(order)
        return list(compress(order, waits)), list(compress(seen.keys, waits))

    def _changes(self, seen: Glance) -> list[QueueRow]:
        """Return the rows of a look at everything that are new or others than before, and those that are gone, as ended."""
        now = {row.number: row for row in seen.rows}
        gone = [
            replace(row, state=GONE, end=seen.now, reason="")
            for number, row in self._listed.items()
            if number not in now and row.state not in ENDED
        ]
        changed = [row for number, row in now.items() if self._listed.get(number) != row]
        self._listed = now
        return changed + gone

    def _explain(self, seen: Glance, changed: bool) -> None:
        """Give reasons and order to the rows, if they are others than before or rows are new."""
        reasons = self._reasons if seen.reasons is None else seen.reasons
        order = self._order if seen.order is None else list(seen.order)
        if changed or reasons != self._reasons or order != self._order:
            self._reasons, self._order = reasons, order
            self.rows.explain(reasons, order)

    def summary(self) -> dict[str, Any]:
        """Return what every viewer sees at once."""
        seen, counts = self.latest, self.rows.counts()
        if seen is None:
            return {"problem": self.problem, "version": 0, "counts": counts}
        powers = [each.watts for each in seen.gpus if each.watts is not None]
        return {
            "problem": self.problem, "now": round(seen.now, 1), "title": seen.title, "scheduler": seen.scheduler, "trouble": seen.trouble,
            "notes": list(seen.notes[:10]), "version": self.rows.version, "counts": counts,
            "ended": sum(counts.get(name, 0) for name in ENDED),
            "total": seen.total, "busy": seen.busy, "unit": seen.unit, "watts": round(sum(powers), 1) if powers else None,
            "loading": seen.loading, "decided": self.decisions[0]["at"] if self.decisions else 0, "viewers": self.stream.viewers,
            "gpus": [
                [each.name, each.kind, each.state, list(each.jobs), _percent(each.utilisation), _rounded(each.memory), each.total,
                 _rounded(each.watts), _rounded(each.celsius)]
                for each in seen.gpus[:64]
            ],
        }  # fmt: skip


def _percent(share: float | None) -> float | None:
    return None if share is None else round(share, 3)


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 1)
