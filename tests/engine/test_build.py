"""A state's block of memory, and what is worked out once for jobs on a cluster."""

from __future__ import annotations

from itertools import pairwise

import numpy as np

from gpuyard import load_cluster, load_workload, parse_scheduler, simulate
from gpuyard.engine import state as st
from gpuyard.engine.build import build
from gpuyard.engine.ground import ground_of
from gpuyard.engine.memory import CACHE_LINE, header_of
from gpuyard.model.rules import Rules


def made(scheduler: str) -> tuple[st.State, np.ndarray]:
    workload, cluster = load_workload("family:shape=base,gpus=4"), load_cluster("2x4:a100+1x8:v100")
    program = parse_scheduler(scheduler).program()
    return build(workload.jobs, workload.runtime, cluster, program, 7, Rules(), segments=True, timeline=True)


def test_the_header_names_every_array() -> None:
    state, header = made("sjf/fewest/easy")
    assert np.array_equal(header.reshape(-1, 2)[:, 1], [len(array) for array in state])
    held = np.array([len(array) > 0 for array in state])
    assert np.array_equal(header.reshape(-1, 2)[held], header_of(state).reshape(-1, 2)[held])


def test_arrays_do_not_overlap_and_begin_at_cache_lines() -> None:
    state, _ = made("srpt/best/conservative/srpt")
    own = sorted((array.ctypes.data, array.nbytes, name) for name, array in state._asdict().items() if array.nbytes and name != "mix")
    for (at, size, name), (following, _, other) in pairwise(own):
        assert at + size <= following, (name, other)
    assert state.rows.ctypes.data % CACHE_LINE == 0


def test_one_simulation_leaves_nothing_behind_for_the_next() -> None:
    workload, cluster = load_workload("family:shape=bursty,gpus=4"), load_cluster("1x4:a100")
    first, other = parse_scheduler("sjf/best/easy"), parse_scheduler("fcfs")
    before = simulate(workload, cluster, first)
    simulate(workload, cluster, other)
    assert simulate(workload, cluster, first).same_bytes(before)


def test_jobs_know_which_cluster_they_were_prepared_for() -> None:
    workload, small, large = load_workload("family:shape=base,gpus=4"), load_cluster("1x4:a100"), load_cluster("3x4:a100")
    scheduler = parse_scheduler("fcfs")
    fresh = load_workload("family:shape=base,gpus=4")
    simulate(workload, small, scheduler)
    assert ground_of(workload.jobs, small) is ground_of(workload.jobs, small)
    assert ground_of(workload.jobs, large).nodes == 3
    assert simulate(workload, large, scheduler).same_bytes(simulate(fresh, large, scheduler))
    assert ground_of(workload.jobs.replace(gpus=2.0), large).pool > 0
