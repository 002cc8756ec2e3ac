"""Networks as policies inside the engine: features are written, scored and used without leaving compiled code."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.engine.compiler.jit import INTERPRETED, WORD, address_of, entry, inner, python_handle
from gpuyard.engine.compiler.pointer import state_at
from gpuyard.engine.compiler.sources import source_hash
from gpuyard.engine.kernels.ranks.area import may_be_stopped
from gpuyard.features import hosts, jobs, ranks, system
from gpuyard.networks.kernels import (
    BLOCK,
    net_begin,
    net_context,
    net_end_pool,
    net_is_pooled,
    net_pool_block,
    net_rows,
    net_score_actions,
    net_score_block,
)
from gpuyard.networks.network import BLOCK_AT, CONTEXT_AT, NETWORK_AT

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints, Real
    from gpuyard.engine.state import State


def _order(s: State, p: Int, behind: Int, network: Int) -> Any:
    """Key the queue of partition p, or, where the first of it waits, the `behind` jobs next to it: minus the scores; returns 0.

    What is pooled is pooled over the jobs that are keyed: those that may be chosen, as in training.
    """
    part = s.partitions[p]
    first, last = (part.head + 1, part.head + 1 + behind) if behind > 0 else (part.head, part.tail)
    typed = net_rows(network) > jobs.ROWS
    jobs.queue_context(s, p, 1.0 if behind > 0 else 0.0, typed, s.scratch, CONTEXT_AT)
    net_begin(network, s.scratch, CONTEXT_AT, s.scratch, NETWORK_AT)
    if net_is_pooled(network):
        at = first
        while at < last:
            count = min(last - at, BLOCK)
            jobs.job_rows(s, p, at, count, typed, s.scratch, BLOCK_AT, 1, BLOCK)
            net_pool_block(network, s.scratch, BLOCK_AT, count, s.scratch, NETWORK_AT)
            at += count
        net_end_pool(network, s.scratch, NETWORK_AT)
    at = first
    while at < last:
        count = min(last - at, BLOCK)
        jobs.job_rows(s, p, at, count, typed, s.scratch, BLOCK_AT, 1, BLOCK)
        net_score_block(network, s.scratch, BLOCK_AT, count, s.scratch, NETWORK_AT, s.queue_keys, at)
        at += count
    for i in range(first, last):
        s.queue_keys[i] = -s.queue_keys[i]
    return 0


def _place(s: State, j: Int, count: Int, network: Int) -> Any:
    """Score candidates[:count] for job j: minus the scores; returns 0."""
    p = np.int64(s.rows[j].partition)
    hosts.measure_hosts(s, p, j)
    hosts.host_context(s, p, j, s.scratch, CONTEXT_AT)
    fastest = hosts.fastest_for(s, j)
    net_begin(network, s.scratch, CONTEXT_AT, s.scratch, NETWORK_AT)
    if net_is_pooled(network):
        at = 0
        while at < count:
            size = min(count - at, BLOCK)
            for r in range(size):
                hosts.host_row(s, s.candidates[at + r], j, fastest, s.scratch, BLOCK_AT + r, BLOCK)
            net_pool_block(network, s.scratch, BLOCK_AT, size, s.scratch, NETWORK_AT)
            at += size
        net_end_pool(network, s.scratch, NETWORK_AT)
    at = 0
    while at < count:
        size = min(count - at, BLOCK)
        for r in range(size):
            hosts.host_row(s, s.candidates[at + r], j, fastest, s.scratch, BLOCK_AT + r, BLOCK)
        net_score_block(network, s.scratch, BLOCK_AT, size, s.scratch, NETWORK_AT, s.score, at)
        at += size
    for i in range(count):
        s.score[i] = -s.score[i]
    return 0


def _switch(s: State, a: Int, b: Int, network: Int) -> Any:
    """The scheduler with the highest score, the first of equals; -1 where a score is not a number."""
    system.system_context(s, net_context(network) > system.SIZELESS, s.scratch, CONTEXT_AT)
    net_score_actions(network, s.scratch, CONTEXT_AT, s.scratch, NETWORK_AT, s.outputs, 0)
    best = 0
    for i in range(len(s.slots)):
        if s.outputs[i] != s.outputs[i]:
            return -1
        if s.outputs[i] > s.outputs[best]:
            best = i
    return best


MOST_SCORE = 8.0  # a rank multiplies times by 2 ** −8 to 2 ** 8


@inner
def _factor(score: Real) -> Any:
    """Return about 2 ** score, with straight lines between powers of two: exact and the same everywhere, and 1 for 0."""
    if score != score:
        return score
    bounded = min(max(score, -MOST_SCORE), MOST_SCORE)
    whole = math.floor(bounded)
    return math.ldexp(1.0 + (bounded - whole), int(whole))


@inner
def _judge_block(s: State, count: Int, network: Int) -> None:
    """Set the factors of the first `count` of `rank_jobs`, whose features are in the scratch."""
    net_score_block(network, s.scratch, BLOCK_AT, count, s.scratch, NETWORK_AT, s.outputs, 0)
    for r in range(count):
        s.rank_factors[s.rank_jobs[r]] = _factor(s.outputs[r])


@inner
def _judge_some(s: State, listed: Ints, first: Int, last: Int, network: Int) -> None:
    """Set the factors of those of listed[first:last] that may be stopped."""
    slot, count = s.slots[s.control[0].active], 0
    for i in range(first, last):
        j = np.int64(listed[i])
        row = s.rows[j]
        if not may_be_stopped(s, row):
            continue
        ranks.rank_row(s, slot, row, s.scratch, BLOCK_AT + count, BLOCK)
        s.rank_jobs[count] = j
        count += 1
        if count == BLOCK:
            _judge_block(s, count, network)
            count = 0
    if count > 0:
        _judge_block(s, count, network)


def _judge(s: State, p: Int, b: Int, network: Int) -> Any:
    """Set the factors of the jobs of partition p that may be stopped; returns 0."""
    part = s.partitions[p]
    ranks.rank_context(s, p, s.scratch, CONTEXT_AT)
    net_begin(network, s.scratch, CONTEXT_AT, s.scratch, NETWORK_AT)
    _judge_some(s, s.queue_jobs, part.head, part.tail, network)
    _judge_some(s, s.running_jobs, part.first_run, part.first_run + part.running, network)
    return 0


# Compiled again for each process, these would cost 2.5 s each. numba's disk cache knows a function by its name, its code and what it
# closes over, and a compiled function has another identity in every process: so these are globals, and each entry has a name of its own.
_ENTRY = WORD(WORD, WORD, WORD, WORD)  # of C functions: header, a, b, network
_order_kernel, _place_kernel, _switch_kernel, _judge_kernel = inner(_order), inner(_place), inner(_switch), inner(_judge)
_keep: list[Any] = []  # compiled functions whose addresses are in use must not be freed


def _order_entry(source: int) -> Any:
    @entry(_ENTRY)
    def choose_job(header: Int, p: Int, behind: Int, network: Int) -> Any:
        return _order_kernel(state_at(header), p, behind, network) if source != 0 else -9  # never 0; part of the cache's key

    return choose_job


def _place_entry(source: int) -> Any:
    @entry(_ENTRY)
    def choose_host(header: Int, j: Int, count: Int, network: Int) -> Any:
        return _place_kernel(state_at(header), j, count, network) if source != 0 else -9

    return choose_host


def _switch_entry(source: int) -> Any:
    @entry(_ENTRY)
    def choose_scheduler(header: Int, a: Int, b: Int, network: Int) -> Any:
        return _switch_kernel(state_at(header), a, b, network) if source != 0 else -9

    return choose_scheduler


def _judge_entry(source: int) -> Any:
    """Make the C function that sets factors; `b` is not used."""

    @entry(_ENTRY)
    def judge_times(header: Int, p: Int, b: Int, network: Int) -> Any:
        return _judge_kernel(state_at(header), p, b, network) if source != 0 else -9

    return judge_times


def _address(function: Callable[..., Any], made: Callable[[int], Any]) -> int:
    """Return the address of a C function, compiled on first use and cached on disk."""
    if INTERPRETED:
        return python_handle(function)
    compiled = made(source_hash(__name__))
    _keep.append(compiled)
    return address_of(compiled)


@lru_cache(maxsize=1)
def order_by_network() -> int:
    """Return the address of the function that keys a queue."""
    return _address(_order, _order_entry)


@lru_cache(maxsize=1)
def place_by_network() -> int:
    """Return the address of the function that scores nodes."""
    return _address(_place, _place_entry)


@lru_cache(maxsize=1)
def switch_by_network() -> int:
    """Return the address of the function that names a scheduler."""
    return _address(_switch, _switch_entry)


@lru_cache(maxsize=1)
def judge_by_network() -> int:
    """Return the address of the function that judges the times of jobs."""
    return _address(_judge, _judge_entry)
