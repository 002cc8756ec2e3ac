"""Counts what a service has done, for its health and for Prometheus."""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.1, 1.0)  # s
_PAGE = os.sysconf("SC_PAGE_SIZE")


@dataclass
class Counts:
    """What one service has answered so far."""

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

    def prometheus(self, gauges: Iterable[tuple[str, str, float]]) -> str:
        """Return everything in the text format 0.0.4; `gauges`: name, meaning, value."""
        lines: list[str] = []
        for name, about, value in gauges:
            lines += [f"# HELP {name} {about}", f"# TYPE {name} gauge", f"{name} {value:.15g}"]
        counters = {"refused": self.refused, "crashed": self.crashed}
        lines += ["# HELP gpuyard_requests_total Requests by verb.", "# TYPE gpuyard_requests_total counter"]
        lines += [f'gpuyard_requests_total{{verb="{verb}"}} {count}' for verb, count in sorted(self.requests.items())]
        for name, count in counters.items():
            lines += [f"# HELP gpuyard_requests_{name}_total Requests that were {name}.", f"# TYPE gpuyard_requests_{name}_total counter"]
            lines.append(f"gpuyard_requests_{name}_total {count}")
        lines += ["# HELP gpuyard_decisions_total Jobs that were decided about.", "# TYPE gpuyard_decisions_total counter"]
        lines += [f"gpuyard_decisions_total {self.decisions}"]
        lines += ["# HELP gpuyard_request_seconds Time spent on requests.", "# TYPE gpuyard_request_seconds histogram"]
        below = 0
        for limit, count in zip(BUCKETS, self.within, strict=True):
            below += count
            lines.append(f'gpuyard_request_seconds_bucket{{le="{limit:g}"}} {below}')
        lines += [f'gpuyard_request_seconds_bucket{{le="+Inf"}} {self.total}', f"gpuyard_request_seconds_sum {self.seconds:.9g}"]
        lines.append(f"gpuyard_request_seconds_count {self.total}")
        return "\n".join(lines) + "\n"


def resident_bytes() -> int:
    """Return the memory of this process; 0 where the system does not say."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE
    except (OSError, ValueError, IndexError):
        return 0
