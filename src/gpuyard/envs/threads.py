"""Threads for compiled work that does not hold the interpreter's lock: a map over items, and helpers that step environments.

Helpers take work from a board in compiled code. The caller takes environments from the first on, helpers from the last back, so that
each mostly meets those it has in its cache. The caller waits only for what a helper has already taken: a late helper costs nothing. A
helper looks for work a little longer before it sleeps, because waking it takes as long as some ten steps. Helpers are kept off the
caller's processor: some kernels schedule a woken thread on its waker's core and leave it there while another core idles.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine.compiler import atomics
from gpuyard.engine.compiler.jit import inner

if TYPE_CHECKING:
    from gpuyard.arrays import Int, Ints

Item = TypeVar("Item")
Found = TypeVar("Found")

# Words of a board, each in its own cache line.
TAKEN, FROM_TOP, DONE, OVER, STOP, WAY, HELPERS = range(0, 56, 8)  # the last: from there on one for each helper; 1: it sleeps
PIECES = 32  # that the environments are taken in, if there are as many
LOOKS = 64  # at the board before the processor is offered to others
PATIENCE = 500  # such offers, some 0.2 ms, before a helper sleeps


def map_on_threads(function: Callable[[Item], Found], items: Iterable[Item], threads: int) -> list[Found]:
    """Apply `function` to each item, in the order of the items, by the caller and `threads` − 1 helpers that end with the call.

    Each thread takes the next item when it is done with one. That costs about a microsecond per item; a future per item costs some fifty.
    After an error no item is begun, and the error of the first item that failed is raised.
    """
    tasks = list(enumerate(items))
    found: list[Any] = [None] * len(tasks)
    failures: dict[int, BaseException] = {}
    todo = iter(tasks)  # shared: taking the next item of a list is one step for the interpreter

    def work() -> None:
        number = -1
        try:
            while not failures and (task := next(todo, None)) is not None:
                number = task[0]
                found[number] = function(task[1])
        except BaseException as error:
            failures[number] = error

    helpers = [threading.Thread(target=work, daemon=True) for _ in range(min(threads, len(tasks)) - 1)]
    for helper in helpers:
        helper.start()
    work()
    for helper in helpers:
        helper.join()
    if failures:
        raise failures[min(failures)]
    return cast(list[Found], found)


@inner
def pieces_of(count: Int) -> Any:
    """Return how many pieces `count` environments are taken in, and how many there are in each but the last."""
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
    """Wait until `count` environments are done; returns the sum of what was reported about them."""
    looks = 0
    while atomics.read(board, DONE) < count:
        looks += 1
        if looks % LOOKS == 0:
            atomics.give_way(board[WAY])
    return atomics.read(board, OVER)


@inner
def await_work(board: Ints, pieces: Int) -> Any:
    """Wait for work; returns False if none came for a while, or none will."""
    for _ in range(PATIENCE):
        for _ in range(LOOKS):
            if atomics.read(board, TAKEN) < pieces:
                return True
        if atomics.read(board, STOP) == 1:
            return False
        atomics.give_way(board[WAY])
    return False


class HelperThreads:
    """Run helpers that call `help_out(board)`, which returns when there has been no work for a while. They end with this object."""

    def __init__(self, helpers: int, help_out: Callable[[Array], object]) -> None:
        self.board = np.zeros(HELPERS + 8 * helpers, np.int64)
        self.board[TAKEN] = np.iinfo(np.int64).max // 2  # no work yet
        self.board[WAY] = atomics.way_address()
        self.board[HELPERS::8] = 1
        self._signals = [threading.Semaphore(0) for _ in range(helpers)]
        self._processors, self._here, self._apart_from = processors(), processor(), -1
        self._threads = [
            threading.Thread(target=_help, args=(self.board, number, signal, help_out), daemon=True)
            for number, signal in enumerate(self._signals)
        ]
        for thread in self._threads:
            thread.start()
        weakref.finalize(self, _dismiss, self.board, self._signals)

    def wake(self) -> None:
        """Wake sleeping helpers before there is work. One that falls asleep at this moment misses it, which does no harm."""
        here = self._here()
        if here != self._apart_from:
            self._apart_from = here
            for thread in self._threads:
                move(thread.native_id, self._processors - {here})
        for number, signal in enumerate(self._signals):
            if self.board[HELPERS + 8 * number]:
                self.board[HELPERS + 8 * number] = 0
                signal.release()


def processors() -> frozenset[int]:
    """Return the processors that this process may use; none where the system does not say."""
    return frozenset(os.sched_getaffinity(0)) if sys.platform == "linux" else frozenset()


def processor() -> Callable[[], int]:
    """Return a function that says which processor this thread is on; always -1 where the system does not say."""
    if sys.platform != "linux":
        return lambda: -1
    found: Callable[[], int] = ctypes.CDLL(None).sched_getcpu
    return found


def move(thread: int | None, to: frozenset[int]) -> None:
    """Restrict a thread, by its native number, to these processors; none: leave it as it is."""
    if to and thread is not None and sys.platform == "linux":
        with contextlib.suppress(OSError):  # it may have ended
            os.sched_setaffinity(thread, to)


def _help(board: Array, number: int, signal: threading.Semaphore, help_out: Callable[[Array], object]) -> None:
    while True:
        signal.acquire()
        if board[STOP]:
            return
        help_out(board)
        board[HELPERS + 8 * number] = 1


def _dismiss(board: Array, signals: list[threading.Semaphore]) -> None:
    board[STOP] = 1
    for signal in signals:
        signal.release()
