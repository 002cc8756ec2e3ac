"""One pass over a snapshot: what a scheduler made of compiled policies would do now."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.driver import Driver
from gpuyard.engine.kernels.events import PASS, PREPARE
from gpuyard.engine.slots import Program
from gpuyard.engine.snapshots import state_of
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.snapshot import Snapshot


def decide_once(program: Program, snapshot: Snapshot) -> list[Decision]:
    """Run one pass of `program` on the snapshot and read off what it did, in order."""
    return decide_in_order(program, snapshot)[1]


def decide_in_order(program: Program, snapshot: Snapshot) -> tuple[Array, list[Decision]]:
    """The same, and the rows of the waiting jobs in the order in which the pass walks them, partition by partition."""
    driver = Driver(state_of(snapshot, program), program.label, snapshot.jobs.id)
    driver.order(PREPARE)  # orders the queues
    s = driver.state
    order = np.concatenate([s.queue_jobs[int(part["head"]) : int(part["tail"])] for part in s.partitions])
    driver.order(PASS)
    s = driver.state
    notes = s.notes[: int(s.control["notes"][0])]
    index = snapshot.jobs.index
    return order, [
        Decision(int(index[note]), Action.START, _parts(s, int(note))) if note >= 0 else Decision(int(index[-1 - note]), Action.PREEMPT)
        for note in notes.tolist()
    ]


def _parts(s: st.State, row: int) -> tuple[Part, ...]:
    parts = []
    k = int(s.rows["alloc"][row])
    while k >= 0:
        piece = s.parts[k]
        mask = int(piece["mask"])
        devices = tuple(d for d in range(mask.bit_length()) if mask >> d & 1)
        gpus = float(piece["gpus"]) if s.rows["gpus"][row] >= 1 else float(s.rows["gpus"][row])
        parts.append(Part(int(s.nodes["number"][piece["node"]]), gpus, devices))
        k = int(piece["next"])
    return tuple(parts)
