"""The result of the reference simulator."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.result import REASONS, ROW, SEGMENT, STATUS


@dataclass(frozen=True)
class Row:
    """The outcome of one job; the fields of `gpuyard.model.result.ROW` with names instead of codes."""

    status: str
    reason: str
    start: float  # s; nan: never
    end: float  # s; nan: never
    ran: float  # s
    gpu_seconds: float
    rate: float
    nodes: int
    node: int
    preemptions: int


@dataclass(frozen=True)
class Segment:
    """One part of one run; `devices` is a bit set, 0 for a pool or a CPU job."""

    job: int
    node: int
    gpus: float
    devices: int
    start: float
    end: float


@dataclass(frozen=True)
class ReferenceResult:
    """The result of a simulation: one row per job in index order; segments in the order in which runs ended."""

    rows: list[Row]
    segments: list[Segment]
    passes: int
    preemptions: int  # stops by a preemption rule
    failures: int  # stops by an outage
    queue_integral: float  # job·s, counted between passes
    queue_max: int  # jobs waiting after a pass, at most
    estimates: list[float]  # s, of each job, as policies saw them
    entered: list[float]  # s, when each job first entered its queue; nan: never
    ineligible: dict[tuple[int, str], float]  # (job, reason) → s

    @property
    def table(self) -> Array:
        """Return the rows as an array of ROW."""
        table = np.zeros(len(self.rows), ROW)
        for i, row in enumerate(self.rows):
            for name in ROW.names or ():
                value = getattr(row, name)
                table[i][name] = {"status": STATUS.index, "reason": REASONS.index}.get(name, lambda same: same)(value)
        return table

    @property
    def segment_table(self) -> Array:
        """Return the segments as an array of SEGMENT."""
        return np.array([(s.job, s.node, s.gpus, s.devices, s.start, s.end) for s in self.segments], SEGMENT)
