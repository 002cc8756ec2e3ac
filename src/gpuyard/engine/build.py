"""Workload, cluster and program → the state that the kernels work on."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.compiler.entry import part_addresses
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.estimating import with_estimates
from gpuyard.engine.ground import Ground, ground_of
from gpuyard.engine.memory import FIELD, Memory, header_of
from gpuyard.engine.mix import request_mix
from gpuyard.engine.slots import Program
from gpuyard.model.cluster import Cluster
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
    memory = build_many(jobs, runtime, cluster, [program], seed, rules, segments=segments, timeline=timeline, mix=mix)
    made, header = memory.state(0), memory.headers[0]
    if predictor is not None:
        made = with_estimates(made, jobs, predictor)
        header = header_of(made)
    return as_seen_by_kernels(made), header


def build_many(
    jobs: Jobs, runtime: Array, cluster: Cluster, programs: Sequence[Program], seed: int, rules: Rules, *,
    segments: bool, timeline: bool, mix: Array | None = None,
) -> Memory:  # fmt: skip
    """Allocate a state for each program, as `build_state` does for one."""
    ground, count = ground_of(jobs, cluster), len(programs)
    if mix is None:
        mix = request_mix(jobs, cluster) if any(program.reads_mix for program in programs) else _NO_MIX
    shared = {"table": ground.table, "runtime": np.ascontiguousarray(runtime), "mix": mix}
    bins = (count, st.BINS if timeline else 1)
    own = {"result": np.zeros((count, ground.jobs), ROW), "timeline": np.empty(bins, BIN), "bins": np.empty(bins, st.BIN_ROW)}
    lengths = [_lengths(ground, program, segments=segments) for program in programs]
    made = Memory(lengths, shared, own, ground.beginning)
    if len(mix):
        made.every("mix_at")[:] = np.searchsorted(mix["partition"], np.arange(len(cluster.partitions) + 1))
    slots, params = made.every("slots"), made.every("params")
    for k, program in enumerate(programs):
        slots[k, : len(program.slots)] = program.slot_rows
        params[k, : len(program.param_rows)] = program.param_rows
    following = made.every("parts")["next"]
    following[:] = np.arange(1, ground.pool + 1)
    following[:, -1] = -1
    made.every("pick_device")[:] = -1
    _set_control(made.every("control")[:, 0], programs, seed, rules, segments=segments, timeline=timeline)
    return made


def _lengths(ground: Ground, program: Program, *, segments: bool) -> tuple[int, ...]:
    """Return the lengths of all arrays that a state has for itself, by the fields of State."""
    n, m, tracking = ground.jobs, ground.nodes, program.tracks_running
    own = {
        "slots": len(program.slots),
        "params": len(program.param_rows),
        "queue_need": n if program.sifts else 1,
        "queue_length": n if program.sifts else 1,
        "running_jobs": n if tracking else 1,
        "running_ends": n if tracking else 1,
        "log": 1024 if segments else 1,
        "score": max(m, n) if program.stops else m,
        "shadow_nodes": m if tracking else 1,
        "shadow_devices": ground.devices if tracking else 1,
        "plan_first": m if program.plans else 1,
        "scratch": max(program.scratch, 1),
    }
    lengths = list(ground.lengths)
    for name, length in own.items():
        lengths[FIELD[name]] = length
    return tuple(lengths)


def as_seen_by_kernels(s: st.State) -> st.State:
    """Records with attributes where kernels run as plain Python; nothing to do where they are compiled."""
    return st.State._make(a.view(np.recarray) if a.dtype.names else a for a in s) if INTERPRETED else s


def _set_control(control: Array, programs: Sequence[Program], seed: int, rules: Rules, *, segments: bool, timeline: bool) -> None:
    """Set the numbers that programs and rules settle, in the rows (programs,)."""
    control["checkpoint"] = rules.checkpoint
    control["restart_cost"] = rules.restart_cost
    control["kills"] = rules.walltime_kill
    control["seed"] = seed
    control["logging"] = segments
    control["timeline"] = timeline
    control["tracking"] = [program.tracks_running for program in programs]
    for name in ("timer", "switch", "switch_every", "half_life", "network"):
        control[name] = [getattr(program, name) for program in programs]
    control["picking"], control["planning"] = part_addresses()
