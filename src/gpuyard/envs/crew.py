"""Threads that step the environments of a batch together.

Work is taken from a board in compiled code: the caller takes environments from the first on, helpers from the last back, so that each
mostly meets those it has in its cache. The caller waits for nobody but for what a helper has already taken: a helper that is late costs
nothing. A helper looks for work a little longer before it sleeps; to be woken takes as long as some ten steps. Helpers are kept off the
processor that the caller is on: systems were seen that put who is woken beside who wakes it, and left it there while another idled.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.compiler import atomics
from gpuyard.engine.compiler.jit import inner

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints

# Words of a board, each in a cache line of its own.
TAKEN, FROM_TOP, DONE, OVER, STOP, WAY, HELPERS = range(0, 56, 8)  # the last: from there on one for each helper; 1: it sleeps
PIECES = 32  # that the environments are taken in, if there are as many
LOOKS = 64  # at the board before the processor is offered to others
PATIENCE = 500  # such offers, some 0.2 ms, before a helper sleeps


@inner
def pieces_of(count: Int) -> Any:
    """(pieces, environments in each but the last)."""
    size = max(count // PIECES, 1)
    return (count + size - 1) // size, size


@inner
def open_work(board: Ints) -> None:
    """Let helpers take work."""
    for word in (FROM_TOP, DONE, OVER):
        atomics.write(board, word, 0)
    atomics.write(board, TAKEN, 0)


@inner
def await_done(board: Ints, count: Int) -> Any:
    """Wait until `count` environments are done; returns the sum of what was reported of them."""
    looks = 0
    while atomics.read(board, DONE) < count:
        looks += 1
        if looks % LOOKS == 0:
            atomics.give_way(board[WAY])
    return atomics.read(board, OVER)


@inner
def await_work(board: Ints, pieces: Int) -> Any:
    """Wait for work; False if none came for long, or none will."""
    for _ in range(PATIENCE):
        for _ in range(LOOKS):
            if atomics.read(board, TAKEN) < pieces:
                return True
        if atomics.read(board, STOP) == 1:
            return False
        atomics.give_way(board[WAY])
    return False


class Crew:
    """Helpers that call `help_out(board)`, which returns once there has been no work for a while. They end with the crew."""

    def __init__(self, helpers: int, help_out: Callable[[Array], object]) -> None:
        self.board = np.zeros(HELPERS + 8 * helpers, np.int64)
        self.board[TAKEN] = np.iinfo(np.int64).max // 2  # no work yet
        self.board[WAY] = atomics.way_address()
        self.board[HELPERS::8] = 1
        self._beds = [threading.Semaphore(0) for _ in range(helpers)]
        self._processors, self._here, self._apart_from = processors(), processor(), -1
        self._threads = [
            threading.Thread(target=_help, args=(self.board, number, bed, help_out), daemon=True) for number, bed in enumerate(self._beds)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _dismiss, self.board, self._beds)

    def wake(self) -> None:
        """Before there is work: rouse those that sleep. One that falls asleep at this moment misses it, which does no harm."""
        here = self._here()
        if here != self._apart_from:
            self._apart_from = here
            for thread in self._threads:
                move(thread.native_id, self._processors - {here})
        for number, bed in enumerate(self._beds):
            if self.board[HELPERS + 8 * number]:
                self.board[HELPERS + 8 * number] = 0
                bed.release()


def processors() -> frozenset[int]:
    """Those that this process may use; none where the system does not tell."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def processor() -> Callable[[], int]:
    """What tells the processor that this thread is on; always -1 where the system does not."""
    if sys.platform != "linux":
        return lambda: -1
    found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return found


def move(thread: int | None, to: frozenset[int]) -> None:
    """Let a thread, by its native number, use these processors alone; none: leave it as it is."""
    if to and thread is not None and sys.platform == "linux":
        with contextlib.suppress(OSError):  # it may be over
            os.sched_setaffinity(thread, to)


def _help(board: Array, number: int, bed: threading.Semaphore, help_out: Callable[[Array], object]) -> None:
    while True:
        bed.acquire()
        if board[STOP]:
            return
        help_out(board)
        board[HELPERS + 8 * number] = 1


def _dismiss(board: Array, beds: list[threading.Semaphore]) -> None:
    board[STOP] = 1
    for bed in beds:
        bed.release()
