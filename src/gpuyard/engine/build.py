"""Workload, cluster and program → the state that the kernels work on."""

from __future__ import annotations

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.estimating import with_estimates
from gpuyard.engine.ground import Ground, ground_of
from gpuyard.engine.kernels.backfill import BACKFILL_CONSERVATIVE, BACKFILL_EASY, BACKFILL_SKIP
from gpuyard.engine.memory import header_of, lay_out
from gpuyard.engine.mix import request_mix
from gpuyard.engine.slots import Program
from gpuyard.model.cluster import MAX_DEVICES, Cluster
from gpuyard.model.estimator import Predictor
from gpuyard.model.jobs import Jobs
from gpuyard.model.result import BIN, ROW
from gpuyard.model.rules import Rules
from gpuyard.model.snapshot import MIX

_NO_MIX = np.zeros(0, MIX)


def build_state(
    jobs: Jobs, runtime: Array, cluster: Cluster, program: Program, seed: int, rules: Rules, *,
    segments: bool, timeline: bool, mix: Array | None = None, predictor: Predictor | None = None,
) -> st.State:  # fmt: skip
    """Allocate everything; no job is submitted yet, and the kernel still needs the order to PREPARE.

    `segments` and `timeline`: whether they are kept. `mix` is what jobs ask for, where that is known already; else it is counted
    from `jobs`, if a placement reads it.
    """
    return build(jobs, runtime, cluster, program, seed, rules, segments=segments, timeline=timeline, mix=mix, predictor=predictor)[0]


def build(
    jobs: Jobs, runtime: Array, cluster: Cluster, program: Program, seed: int, rules: Rules, *,
    segments: bool, timeline: bool, mix: Array | None = None, predictor: Predictor | None = None,
) -> tuple[st.State, Array]:  # fmt: skip
    """Build a state as `build_state` does; return its header too, which takes longer than all the rest if it is asked for later."""
    ground = ground_of(jobs, cluster)
    if mix is None:
        mix = request_mix(jobs, cluster) if any(slot.reads_mix for slot in program.slots) else _NO_MIX
    given = {
        "table": ground.table, "runtime": np.ascontiguousarray(runtime), "mix": mix,
        "result": np.zeros(ground.jobs, ROW), "timeline": np.empty(st.BINS if timeline else 1, BIN),  # these two outlive the others
    }  # fmt: skip
    made, header = lay_out(_lengths(ground, program, segments=segments, timeline=timeline), given, ground.beginning)
    if len(mix):
        made.mix_at[:] = np.searchsorted(mix["partition"], np.arange(len(cluster.partitions) + 1))
    made.slots[:] = program.slot_rows
    made.params[:] = program.param_rows
    following = made.parts["next"]
    following[:] = np.arange(1, ground.pool + 1)
    following[-1] = -1
    made.pick_device[0] = -1
    _set_control(made.control, program, seed, rules, segments=segments, timeline=timeline)
    if predictor is not None:
        made = with_estimates(made, jobs, predictor)
        header = header_of(made)
    return as_seen_by_kernels(made), header


def _lengths(ground: Ground, program: Program, *, segments: bool, timeline: bool) -> dict[str, int]:
    """The lengths of all arrays that a state has for itself."""
    n, m = ground.jobs, ground.nodes
    tracking = program.tracks_running
    sifted = n if any(slot.backfill in (BACKFILL_SKIP, BACKFILL_EASY) for slot in program.slots) else 1
    planning = m if any(slot.backfill == BACKFILL_CONSERVATIVE for slot in program.slots) else 1
    return {
        **ground.lengths,
        "slots": len(program.slots),
        "params": len(program.param_rows),
        "queue_need": sifted,
        "queue_length": sifted,
        "running_jobs": n if tracking else 1,
        "running_ends": n if tracking else 1,
        "recent_work": 1,
        "bins": st.BINS if timeline else 1,
        "log": 1024 if segments else 1,
        "system": 1,
        "tally": 1,
        "history": st.HISTORY * st.SAMPLE,
        # what lasts no longer than a pass
        "partial": MAX_DEVICES + 1,
        "room": m,
        "score": max(m, n) if any(slot.preemption for slot in program.slots) else m,
        "pick_node": m + 1,
        "pick_units": m + 1,
        "pick_device": 1,
        "candidates": m,
        "shadow_nodes": m if tracking else 1,
        "shadow_devices": ground.devices if tracking else 1,
        "notes": 1,
        "plan_time": 1,
        "plan_used": 1,
        "plan_free": 1,
        "plan_cells": 1,
        "plan_first": planning,
        "legal": 1,
        "scratch": max(program.scratch, 1),
        "outputs": st.OUTPUTS,
        "busy_until": m,
        "host_sums": st.HOST_SUMS,
    }


def as_seen_by_kernels(s: st.State) -> st.State:
    """Records with attributes where kernels run as plain Python; nothing to do where they are compiled."""
    return st.State._make(a.view(np.recarray) if a.dtype.names else a for a in s) if INTERPRETED else s


def _set_control(control: Array, program: Program, seed: int, rules: Rules, *, segments: bool, timeline: bool) -> None:
    """Set the numbers that program and rules settle."""
    row = control[0]
    row["checkpoint"] = rules.checkpoint
    row["restart_cost"] = rules.restart_cost
    row["kills"] = rules.walltime_kill
    row["timer"] = program.timer
    row["switch"] = program.switch
    row["switch_every"] = program.switch_every
    row["half_life"] = program.half_life
    row["network"] = program.network
    row["seed"] = seed
    row["logging"] = segments
    row["timeline"] = timeline
    row["tracking"] = program.tracks_running
