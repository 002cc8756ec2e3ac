"""Workload, cluster and program → the state that the kernels work on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from gpuyard.arrays import Array, columns_of
from gpuyard.engine import state as st
from gpuyard.engine.compiler.entry import parts_address
from gpuyard.engine.compiler.jit import INTERPRETED
from gpuyard.engine.estimating import with_estimates
from gpuyard.engine.ground import Ground, ground_of
from gpuyard.engine.memory import FIELD, Memory, header_of
from gpuyard.engine.mix import request_mix
from gpuyard.engine.rows.ranking import OCTAVES, RATIOS_AT, SOON
from gpuyard.engine.site import NO_RANKS, has_site, with_site
from gpuyard.engine.slots import Program
from gpuyard.errors import SimulationError
from gpuyard.model.cluster import Cluster
from gpuyard.model.estimator import Predictor
from gpuyard.model.jobs import JOB, Jobs
from gpuyard.model.result import BIN, ROW
from gpuyard.model.rules import MAY_STOP, MAY_STOP_ONCE, Rules, terms_table
from gpuyard.model.snapshot import MIX

_NO_MIX = np.zeros(0, MIX)
BOUNDS_FROM = 512  # jobs; with fewer, to prepare for bounds and groups takes longer than they save
LEAST_GROUP = 16  # jobs of a line; shorter ones cost more than to key each of their jobs
_RANKED_JOBS = ("ranked", "rank_ends", "rank_jobs", "rank_level", "rank_until", "rank_calm")
RANK_SCRATCH = (*_RANKED_JOBS, "rank_soon", "ranked_parts", "ranked_nodes", "ranked_devices")
_NO_GROUPS = np.zeros(0, np.int32)

# Columns that follow from what was submitted, as long as a job has not run; all others of these kinds are then the same for all.
_FOLLOWS = {"usage": "user", "size_factor": "gpus", "partition_factor": "partition", "qos_factor": "qos", "remaining": "estimate"}
_SAME = frozenset(columns_of(st.LiveColumns, st.FactorRow))


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
    segments: bool, timeline: bool, mix: Array | None = None, predictor: Predictor | None = None, bounds: bool = False,
) -> tuple[st.State, Array]:  # fmt: skip
    """Build a state as `build_state` does; return its header too, which takes longer than all the rest if it is asked for later.

    `bounds`: nobody reads the queue between passes, so that it need not be in the order of keys that only fall.
    """
    memory = build_many(jobs, runtime, cluster, [program], seed, rules, segments=segments, timeline=timeline, mix=mix)
    made, header = memory.state(0), memory.headers[0]
    if has_site(jobs, cluster):
        made = with_site(made, jobs, cluster, program)
        header = header_of(made)
    elif bounds and takes_bounds(program, jobs) and not made.partitions["shared"].any():
        made = _with_bounds(made, jobs, program, estimated=predictor is None)
        header = header_of(made)
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
    if ground.sharers and any(program.ranks for program in programs):
        raise SimulationError(f"cluster {cluster.name}: rank rules know no partitions that share nodes or jobs", hint=NO_RANKS)
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
        made.every("rank_table")[k, : len(program.run_times)] = program.run_times
    following = made.every("parts")["next"]
    following[:] = np.arange(1, ground.pool + 1)
    following[:, -1] = -1
    made.every("pick_device")[:] = -1
    made.every("terms")[:] = terms_table(jobs.term_texts, rules)
    _set_control(made.every("control")[:, 0], programs, seed, rules, segments=segments, timeline=timeline)
    if any(program.ranks for program in programs):
        stoppable = bool(np.isin(made.every("terms")[0]["stops"][jobs.terms], (MAY_STOP, MAY_STOP_ONCE)).any())
        made.every("control")["stoppable"] = stoppable
        if not stoppable:
            made.every("control")[:, 0]["timer"] = [program.calm_timer for program in programs]
    return made


def _lengths(ground: Ground, program: Program, *, segments: bool) -> tuple[int, ...]:
    """Return the lengths of all arrays that a state has for itself, by the fields of State."""
    n, m, tracking = ground.jobs, ground.nodes, program.tracks_running
    own = {
        "slots": len(program.slots),
        "params": len(program.param_rows),
        "factors": n if program.factors else 0,
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
        "rank_table": len(program.run_times) + 1,
        "rank_factors": n if program.judges else 1,
    }
    heads = ground.sharers if tracking else 0
    own["chances"] = n if ground.sharers else 1
    own |= {"heads": max(ground.sharers, 1), "head_nodes": heads * m or 1, "head_devices": heads * ground.devices or 1}
    if program.ranks:
        own |= dict.fromkeys(_RANKED_JOBS, n)
        own |= {"rank_soon": SOON + 2, "ranked_parts": ground.pool + 1, "ranked_nodes": m, "ranked_devices": ground.devices}
    else:
        own |= dict.fromkeys(RANK_SCRATCH, 1)
    own["burden"] = RATIOS_AT + OCTAVES if program.ranks or program.accounts else 1
    lengths = list(ground.lengths)
    for name, length in own.items():
        lengths[FIELD[name]] = length
    return tuple(lengths)


def takes_bounds(program: Program, jobs: Jobs) -> bool:
    """Whether bounds of keys that only fall pay."""
    return program.bounds_keys and len(jobs) >= BOUNDS_FROM


def _with_bounds(s: st.State, jobs: Jobs, program: Program, *, estimated: bool) -> st.State:
    """Return the state with room for bounds of keys that only fall, and with lines for jobs that are alike."""
    n = len(jobs)
    made = s.replace(front_keys=np.zeros(n), front_jobs=np.zeros(n, np.int32))
    line_of = groups_of(jobs, program.slots[0].alike, estimated=estimated)
    if len(line_of) == 0:
        return made
    sizes = np.bincount(line_of[line_of >= 0])
    lines, sifted = np.zeros(len(sizes), st.LINE_ROW), np.zeros((2, n if program.sifts else 1), np.float32)
    lines["head"] = lines["tail"] = np.cumsum(sizes) - sizes
    return made.replace(line_of=line_of, lines=lines, line_jobs=np.zeros(sizes.sum(), np.int32), line_need=sifted[0], line_length=sifted[1])


def groups_of(jobs: Jobs, alike: Iterable[str] | None, *, estimated: bool) -> Array:
    """Number the groups of jobs that agree in the columns `alike`, and in their partition: (jobs,) i4, -1 for a job that few are like.

    Empty if there are none. `estimated`: estimates are known already.
    """
    if alike is None:
        return _NO_GROUPS
    columns = {_FOLLOWS.get(name, name) for name in alike if name in _FOLLOWS or name not in _SAME} | {"partition"}
    if "index" in columns or not columns <= set(JOB.names or ()) or ("estimate" in columns and not estimated):
        return _NO_GROUPS
    number = np.zeros(len(jobs), np.int64)
    for name in sorted(columns):
        values, place = np.unique(jobs.table[name], return_inverse=True)
        if len(values) > 1:
            number = np.unique(number * len(values) + place, return_inverse=True)[1]
    several = np.bincount(number) >= LEAST_GROUP
    if not several.any():
        return _NO_GROUPS
    return np.where(several, np.cumsum(several) - 1, -1)[number].astype(np.int32)


def as_seen_by_kernels(s: st.State) -> st.State:
    """Records with attributes where kernels run as plain Python; nothing to do where they are compiled."""
    return st.State._make(a.view(np.recarray) if a.dtype.names else a for a in s) if INTERPRETED else s


def _set_control(control: Array, programs: Sequence[Program], seed: int, rules: Rules, *, segments: bool, timeline: bool) -> None:
    """Set the numbers that programs and rules settle, in the rows (programs,)."""
    control["kills"] = rules.walltime_kill
    control["seed"] = seed
    control["logging"] = segments
    control["timeline"] = timeline
    control["tracking"] = [program.tracks_running for program in programs]
    for name in ("timer", "switch", "switch_every", "half_life", "network"):
        control[name] = [getattr(program, name) for program in programs]
    control["parts"] = parts_address()
