"""What came out: one row per job, a timeline, and a manifest that says how it was made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.cluster import Cluster
from gpuyard.model.plain import to_plain
from gpuyard.model.workload import Workload

STATUS = ("pending", "waiting", "running", "done", "killed", "rejected")
REASONS = (
    "",
    "no such partition",
    "no such GPU type",
    "more GPUs than its partition has",
    "more cpus or memory than a node has",
    "over the partition's quota",
)

ROW = np.dtype(
    [
        ("start", "f8"),  # s, first start; nan: never started
        ("end", "f8"),  # s; nan: never ended
        ("ran", "f8"),  # s on devices, all runs
        ("gpu_seconds", "f8"),  # ran × gpus
        ("rate", "f8"),  # work per second in the last run
        ("nodes", "i4"),  # nodes of the last run
        ("node", "i4"),  # its first node; -1: never started
        ("preemptions", "i4"),  # times stopped and requeued, failures included
        ("status", "i2"),  # into STATUS
        ("reason", "i2"),  # into REASONS
    ],
    align=True,
)
BIN = np.dtype(
    [
        ("time", "f8"),  # s, where the bin begins
        ("span", "f8"),  # s, how much of the bin was simulated
        ("queue", "f8"),  # jobs waiting, mean over the span
        ("queue_max", "f8"),
        ("busy", "f8"),  # GPUs in use, mean
        ("up", "f8"),  # GPUs not out of order, mean
    ]
)
SEGMENT = np.dtype(
    [
        ("job", "i4"),  # index
        ("node", "i4"),
        ("gpus", "f8"),
        ("devices", "u8"),  # bit set of device numbers; 0: a pool or a CPU job
        ("start", "f8"),
        ("end", "f8"),
    ]
)


@dataclass(frozen=True, eq=False)
class Result:
    """One simulated (or measured) run. Arrays are read-only; `totals` are run-wide sums by name."""

    workload: Workload
    cluster: Cluster
    scheduler: str
    seed: int
    table: Array  # (jobs,) of ROW, in index order
    timeline: Array  # (bins,) of BIN
    segments: Array  # (parts,) of SEGMENT; empty unless asked for
    totals: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    manifest: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))

    def __len__(self) -> int:
        return len(self.table)

    def same_bytes(self, other: Result) -> bool:
        """Equal in everything that was computed; the manifest (clock times, platform) aside."""
        arrays = ((self.table, other.table), (self.timeline, other.timeline), (self.segments, other.segments))
        return all(a.tobytes() == b.tobytes() for a, b in arrays) and dict(self.totals) == dict(other.totals)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        mine, theirs = ((r.workload, r.cluster, r.scheduler, r.seed, to_plain(r.manifest, "manifest")) for r in (self, other))
        return mine == theirs and self.same_bytes(other)

    __hash__ = None  # type: ignore[assignment]

    def save(self, path: str | PathLike[str]) -> None:
        """Write it as a folder, whole or not at all; an earlier result there is replaced."""
        from gpuyard.model.storage import save_result

        save_result(self, path)

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Result:
        """The result in a folder that `save` wrote, equal to what was saved."""
        from gpuyard.model.storage import load_result

        return load_result(path)
