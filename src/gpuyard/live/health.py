"""Figures of a deployment as text for Prometheus, and whether it is well, both from what it logs. Batch systems share them."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from gpuyard.errors import GpuyardError
from gpuyard.files import write_bytes
from gpuyard.live.gpus.prometheus import metric_lines
from gpuyard.live.log import last_record

LATE = 3.0  # × the time between cycles: then it is not well
LEAST_LATE = 60.0  # s


@dataclass
class DeploymentFigures:
    """Counts what a deployment does; `write` is for the textfile collector of the node exporter, so that no port is opened."""

    path: Path | None = None
    problem: str = ""
    _totals: dict[str, float] = field(default_factory=dict, repr=False)

    def add(self, record: Mapping[str, Any]) -> None:
        """Count a cycle, and write the figures where there is a path."""
        counts = {
            "cycles": 1.0, "errors": float("error" in record), "updates": float(len(record.get("updates", ()))),
            "refused_updates": float(len(record.get("failed", ()))), "starts": float(len(record.get("placed", ()))),
            "refused_decisions": float(len(record.get("refused", ()))),
            "waited_seconds": float(sum(wait for _, wait in record.get("started", ()))),
            "started_jobs": float(len(record.get("started", ()))),
        }  # fmt: skip
        for name, count in counts.items():
            self._totals[name] = self._totals.get(name, 0.0) + count
        if self.path is not None:
            try:
                write_bytes(self.path, self.text(record).encode())
                self.problem = ""
            except (OSError, GpuyardError) as error:
                self.problem = f"{self.path}: {error}"

    def text(self, record: Mapping[str, Any]) -> str:
        """Return all figures after a cycle, in the text format 0.0.4."""
        labels = {"mode": str(record.get("mode", ""))}
        lines = metric_lines("deploy_last_cycle_timestamp_seconds", "gauge", "When the last cycle began.", [({}, float(record["t"]))])
        lines += metric_lines("deploy_acting", "gauge", "1 if it acts, 0 if it watches.", [(labels, float(bool(record.get("acts"))))])
        tripped = float(bool(record.get("tripped")))
        lines += metric_lines("deploy_tripped", "gauge", "1 if a limit returned the site's policy.", [({}, tripped)])
        for name, about in (
            ("running", "Jobs that run."), ("waiting", "Jobs that may start."), ("ineligible", "Jobs that may not start yet."),
            ("out_of_order", "Jobs that stand elsewhere than the scheduler would have them."), ("left", "Updates left for later cycles."),
        ):  # fmt: skip
            if name in record:
                lines += metric_lines(f"deploy_{name}", "gauge", about, [({}, float(record[name]))])
        spans = [({"step": step}, float(value)) for step, value in record.get("seconds", {}).items()]
        lines += metric_lines("deploy_cycle_seconds", "gauge", "How long the steps of the last cycle took.", spans)
        for name, total in self._totals.items():
            about = f"{name.replace('_', ' ').capitalize()} since the start."
            lines += metric_lines(f"deploy_{name}_total", "counter", about, [({}, total)])
        return "\n".join(lines) + "\n"


@dataclass(frozen=True)
class Health:
    """Whether a deployment is well, and what it does."""

    well: bool
    words: str
    record: Mapping[str, Any] = field(default_factory=dict)


def health_of(log: Path, now: float | None = None) -> Health:
    """Judge a deployment by the last line of its log."""
    record = last_record(log)
    if record is None:
        return Health(False, f"{log}: nothing has been logged")
    age = (time.time() if now is None else now) - float(record.get("t", 0.0))
    patience = max(LATE * float(record.get("every", 0.0)), LEAST_LATE)
    bad: Sequence[str] = [
        f"the last cycle is {age:.0f} s old" if age > patience else "",
        f"the last cycle lies {-age:.0f} s ahead: a clock was set" if age < -patience else "",
        f"error: {record['error']}" if "error" in record else "",
        f"the site's own policy has returned: {record['tripped']}" if record.get("tripped") else "",
    ]
    reasons = [each for each in bad if each]
    mode = f"{record.get('mode', '?')} mode, {'acting' if record.get('acts') else 'watching'}, cycle {record.get('cycle', '?')}"
    return Health(not reasons, "; ".join([mode, *reasons]), record)
