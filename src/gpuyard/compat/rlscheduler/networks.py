"""Networks in the compatibility mode "rlscheduler" (`gpuyard.compat.rlscheduler.rules`): the same features, the same scores.

At every choice the whole queue is scored and the highest goes to its head, the first submitted of equals; the rest of the rules is as it
is for other orderings. While the head waits, backfilling goes by the order of submit: the network is not asked.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from gpuyard.compat.rlscheduler.rules import Chooser, Kernel, kernel_with
from gpuyard.engine.compiler.jit import inner
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.errors import UsageError
from gpuyard.features.jobs import ROWS, write_job, write_queue
from gpuyard.features.numbers import log
from gpuyard.model.snapshot import RECENT
from gpuyard.networks.kernels import BLOCK, net_begin, net_end_pool, net_is_pooled, net_pool_block, net_score_block
from gpuyard.networks.network import Network
from gpuyard.policies.learned import job_network

if TYPE_CHECKING:
    from gpuyard.arrays import Array, Int, Vector
    from gpuyard.compat.rlscheduler.rules import ProcessorJob, ProcessorState

# Where things are in the scratch: the context, a block of rows, the network's own.
_CONTEXT, _BLOCK = 0, 64
_NETWORK = _BLOCK + BLOCK * ROWS


def learned_chooser(ordering: str | Network) -> Chooser:
    """Return what `rlscheduler(workload, processors, ordering=…)` takes, from `learned:NAME`, the path of a checkpoint, or a network."""
    network = ordering if isinstance(ordering, Network) else job_network(ordering)
    name = "network" if isinstance(ordering, Network) else ordering
    if network.spec.rows != ROWS:
        raise UsageError(f"{name}: sees GPU types, and by the rules of rlscheduler there are none", hint="use one trained in PickJob-v0")
    return Chooser(name, _kernel(), network.address, _NETWORK + network.scratch, keep=network)


@lru_cache(maxsize=1)
def _kernel() -> Kernel:
    return kernel_with(_choose, source_hash(__name__))


@inner
def _queue_context(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], scratch: Array) -> None:
    """The context of the queue."""
    state = control[0]
    work = 0.0
    for i in range(state["waiting"]):
        job = jobs[lists[0, i]]
        work += job["requested"] * job["procs"]
    while state["recent"] < state["next"] and jobs[state["recent"]]["submit"] <= state["now"] - RECENT:
        state["recent"] += 1
    next_end = 0.0
    for i in range(state["running"]):
        job = jobs[lists[1, i]]
        left = job["start"] + job["requested"] - state["now"]
        next_end = left if i == 0 else min(next_end, left)
    recent, free, total = state["next"] - state["recent"], state["free"], state["total"]
    passing = float(state["backfill"])
    write_queue(scratch, _CONTEXT, free, total, state["waiting"], work, state["running"], recent, next_end, 0.0, passing)


@inner
def _job_rows(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], first: Int, count: Int, scratch: Array) -> None:
    """A block of waiting jobs."""
    state = control[0]
    log_total = log(state["total"])
    for r in range(count):
        job = jobs[lists[0, first + r]]
        wait = max(state["now"] - job["submit"], 0.0)
        write_job(scratch, _BLOCK + r, BLOCK, job["requested"], job["procs"], wait, np.inf, 0.0, state["free"], log_total)


@inner
def _choose(jobs: Vector[ProcessorJob], lists: Array, control: Vector[ProcessorState], scratch: Array, network: Int, bug: Int) -> None:
    """Bring the job with the highest score to the head; the others keep their order."""
    waiting = control[0]["waiting"]
    _queue_context(jobs, lists, control, scratch)
    net_begin(network, scratch, _CONTEXT, scratch, _NETWORK)
    if net_is_pooled(network):
        for at in range(0, waiting, BLOCK):
            count = min(waiting - at, BLOCK)
            _job_rows(jobs, lists, control, at, count, scratch)
            net_pool_block(network, scratch, _BLOCK, count, scratch, _NETWORK)
        net_end_pool(network, scratch, _NETWORK)
    best, top = 0, np.float32(-np.inf)
    for at in range(0, waiting, BLOCK):
        count = min(waiting - at, BLOCK)
        _job_rows(jobs, lists, control, at, count, scratch)
        net_score_block(network, scratch, _BLOCK, count, scratch, _NETWORK, scratch, _BLOCK)  # in the place of the rows
        for r in range(count):
            if scratch[_BLOCK + r] > top:
                best, top = at + r, scratch[_BLOCK + r]
    head = lists[0, best]
    for i in range(best, 0, -1):
        lists[0, i] = lists[0, i - 1]
    lists[0, 0] = head
