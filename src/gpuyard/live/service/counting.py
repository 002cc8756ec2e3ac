"""Counts what a service has done, for its health and for Prometheus."""

from __future__ import annotations

import itertools
import os
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from gpuyard.live.gpus.prometheus import metric_lines

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0)  # s
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Counts:
    """Count what one service has answered so far."""

    began: float = field(default_factory=time.monotonic)
    requests: Counter[str] = field(default_factory=Counter)  # by verb
    refused: int = 0
    crashed: int = 0  # requests that a fault in a policy or in gpuyard ended
    decisions: int = 0
    seconds: float = 0.0  # spent on requests
    within: list[int] = field(default_factory=lambda: [0] * len(BUCKETS))  # requests that took at most so long

    def add(self, verb: str, seconds: float, *, ok: bool) -> None:
        """Count a request."""
        self.requests[verb] += 1
        self.refused += not ok
        self.seconds += seconds
        for k, limit in enumerate(BUCKETS):
            if seconds <= limit:
                self.within[k] += 1
                return

    @property
    def total(self) -> int:
        return self.requests.total()

    def prometheus(self, gauges: Sequence[tuple[str, str, float]]) -> str:
        """Return everything in the text format 0.0.4; `gauges`: name, meaning, value."""
        lines = [line for name, about, value in gauges for line in metric_lines(name, "gauge", about, [({}, value)])]
        by_verb = [({"verb": verb}, float(count)) for verb, count in sorted(self.requests.items())]
        lines += metric_lines("requests_total", "counter", "Requests by verb.", by_verb)
        for name, about, count in (
            ("requests_refused_total", "Requests that were refused.", self.refused),
            ("requests_crashed_total", "Requests that a fault ended.", self.crashed),
            ("decisions_total", "Jobs that were decided about.", self.decisions),
        ):
            lines += metric_lines(name, "counter", about, [({}, count)])
        return "\n".join([*lines, *self._histogram()]) + "\n"

    def _histogram(self) -> list[str]:
        """Return how long requests took."""
        name = "gpuyard_request_seconds"
        below = list(itertools.accumulate(self.within))
        buckets = [*(f"{limit:g}" for limit in BUCKETS), "+Inf"]
        rows = [f'{name}_bucket{{le="{limit}"}} {count}' for limit, count in zip(buckets, [*below, self.total], strict=True)]
        heads = [f"# HELP {name} Time spent on requests.", f"# TYPE {name} histogram"]
        return [*heads, *rows, f"{name}_sum {self.seconds:.9g}", f"{name}_count {self.total}"]


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
