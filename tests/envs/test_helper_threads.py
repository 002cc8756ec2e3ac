"""Threads that step a batch together: nothing is lost, nothing is done twice, and they end with their batch."""

from __future__ import annotations

import gc
import threading
import time
from dataclasses import replace

import numpy as np
import pytest

from gpuyard.envs.kinds.base import find_env
from gpuyard.envs.kinds.job.kind import PickJob
from gpuyard.envs.threads import HELPERS, HelperThreads, pieces_of
from gpuyard.traces.recipes import Workloads

WORKLOAD = "lublin:jobs=40,nodes=16,load=1.2 on 2x8:gpu"


def batch(count: int, threads: int):
    return find_env("PickJob").make(Workloads([WORKLOAD]).part("train"), replace(PickJob(window=16), pool=6, threads=threads), count, 0)


@pytest.mark.parametrize("count", [1, 2, 31, 32, 33, 63, 64, 65, 256, 1000])
def test_pieces_cover_every_environment_once(count: int):
    pieces, size = pieces_of.py_func(count)
    covered = [e for piece in range(pieces) for e in range(piece * size, min((piece + 1) * size, count))]
    assert covered == list(range(count))


def until(true, limit: float = 10.0) -> bool:
    """Whether it comes true within so many seconds."""
    end = time.monotonic() + limit
    while not true() and time.monotonic() < end:
        time.sleep(0.001)
    return bool(true())


@pytest.mark.parametrize("count", [3, 70])
def test_helpers_that_sleep_and_wake_change_nothing(count: int):
    def played(threads: int) -> bytes:
        envs = batch(count, threads)
        seen, found = envs.reset(5), []
        for k in range(120):
            if k % 40 == 20 and threads > 1:
                assert until(lambda: envs._helpers.board[HELPERS::8].all())  # long enough for all to fall asleep
            step = envs.step(seen.mask.shape[1] - 1 - seen.mask[:, ::-1].argmax(1))
            seen = step.observation
            found += [part.tobytes() for part in (*seen, step.reward, step.done)]
        return b"".join(found)

    assert played(1) == played(2) == played(4)


def test_helpers_end_with_their_batch():
    before = set(threading.enumerate())
    envs = batch(8, 3)
    seen = envs.reset(0)
    envs.step(seen.mask.argmax(1))
    helpers = set(threading.enumerate()) - before
    assert len(helpers) == 2
    del envs
    gc.collect()
    assert until(lambda: not any(helper.is_alive() for helper in helpers))


def test_only_sleeping_helpers_are_woken():
    calls: list[int] = []
    helpers = HelperThreads(2, lambda board: calls.append(1))
    helpers.wake()
    assert until(lambda: len(calls) == 2 and helpers.board[HELPERS::8].all())
    helpers.wake()
    assert until(lambda: len(calls) == 4)
    assert np.array_equal(helpers.board[HELPERS::8] | 1, [1, 1])
