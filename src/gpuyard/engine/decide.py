"""One pass over a snapshot: what a scheduler made of compiled policies would do now."""

from __future__ import annotations

import numpy as np

from gpuyard.engine import state as st
from gpuyard.engine.entry import run_step
from gpuyard.engine.kernels.events import GROW_PLAN, PASS, PREPARE
from gpuyard.engine.pointer import header_of
from gpuyard.engine.slots import Program
from gpuyard.engine.snapshots import state_of
from gpuyard.errors import PolicyError
from gpuyard.model.decision import Action, Decision, Part
from gpuyard.model.snapshot import Snapshot


def decide_once(program: Program, snapshot: Snapshot) -> list[Decision]:
    """Run one pass of `program` on the snapshot and read off what it did, in order."""
    s = state_of(snapshot, program)
    header = header_of(s)
    run_step(s, header, PREPARE)
    while (status := run_step(s, header, PASS)) == GROW_PLAN:
        s = _with_plan(s)
        header = header_of(s)
    if status < 0:
        raise PolicyError(f"{program.label}: a policy failed at {snapshot.now:g} s (status {status})", hint="gpuyard check FILE tells more")
    notes = s.notes[: int(s.control["notes"][0])]
    index = snapshot.jobs.index
    return [
        Decision(int(index[note]), Action.START, _parts(s, int(note))) if note >= 0 else Decision(int(index[-1 - note]), Action.PREEMPT)
        for note in notes.tolist()
    ]


def _with_plan(s: st.State) -> st.State:
    steps = int(s.control["steps"][0]) * 2
    cells = steps * int((s.partitions["node_hi"] - s.partitions["node_lo"]).max())
    return s._replace(
        plan_time=np.zeros(steps), plan_used=np.zeros(steps), plan_free=np.zeros(cells, np.int32),
        plan_cpus=np.zeros(cells), plan_memory=np.zeros(cells),
    )  # fmt: skip


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
