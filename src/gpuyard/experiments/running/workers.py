"""Backends that do the work: this process, processes on this machine, or a Ray cluster. The numbers do not depend on it.

Each backend takes tasks by number and hands back what came of each, in any order. A worker process that dies is replaced and its task done
again, up to `TRIES` times; an error that a task raises is the task's own and ends the whole.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from gpuyard.errors import GpuyardError, UsageError

TRIES = 3
MAX_WORKERS = 1024
PATIENCE = 5.0  # s that a worker with nothing to do gets to end by itself
Outcomes = Generator[tuple[int, Any], None, None]


class Makes(Protocol):
    """Makes the worker, an object whose method `work` takes a number, in its process; travels there: a plain, picklable object."""

    def __call__(self) -> Any: ...


class Backend(Protocol):
    """Runs tasks."""

    def run(self, make: Makes, numbers: Iterable[int]) -> Outcomes:
        """(number, outcome) as they come; closed early, it stops all workers."""


def check_workers(count: int | None) -> int:
    """A number of workers; as many as there are cores unless given, at most 8."""
    number = min(len(os.sched_getaffinity(0)), 8) if count is None else count
    if not 1 <= number <= MAX_WORKERS:
        raise UsageError(f"--workers {number} does not lie in 1..{MAX_WORKERS:,}")
    return number


class Here:
    """One after the other, in this process."""

    def run(self, make: Makes, numbers: Iterable[int]) -> Outcomes:
        """In order."""
        worker = None
        for number in numbers:
            worker = worker or make()
            yield number, worker.work(number)


@dataclass
class _Hand:
    """A worker process and what it is at."""

    process: Any
    pipe: Connection
    task: int | None = None


class Processes:
    """Fresh processes, so that none inherits threads, locks or a compiler at work; each has a pipe of its own and ends when it closes."""

    def __init__(self, count: int) -> None:
        self._count = count

    def run(self, make: Makes, numbers: Iterable[int]) -> Outcomes:
        """In the order in which they are done."""
        waiting = deque(numbers)
        tries: dict[int, int] = {}
        hands: list[_Hand] = []
        try:
            for _ in range(min(self._count, len(waiting))):
                hands.append(_start(make))
            while waiting or any(hand.task is not None for hand in hands):
                _hand_out(hands, waiting)
                for hand in _ready(hands):
                    found = _received(hand)
                    if found is None:
                        hands[hands.index(hand)] = _replaced(hand, make, waiting, tries)
                        continue
                    number, hand.task = hand.task, None
                    if isinstance(found, _Failure):
                        raise found.error
                    assert number is not None
                    yield number, found
        finally:
            for hand in hands:
                _dismiss(hand)
            for hand in hands:
                _stop(hand)


def _hand_out(hands: list[_Hand], waiting: deque[int]) -> None:
    for hand in hands:
        if hand.task is None and waiting:
            hand.task = waiting.popleft()
            with suppress(OSError):  # it is dead: that shows when it is listened to
                hand.pipe.send(hand.task)


def _ready(hands: list[_Hand]) -> list[_Hand]:
    busy = {hand.pipe: hand for hand in hands if hand.task is not None}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _received(hand: _Hand) -> Any:
    """Return what the worker sent; None if it is dead."""
    try:
        return hand.pipe.recv()
    except (EOFError, OSError):
        return None


def _replaced(hand: _Hand, make: Makes, waiting: deque[int], tries: dict[int, int]) -> _Hand:
    """Another worker in place of a dead one; its task is the next."""
    task = hand.task
    assert task is not None
    hand.process.join(5)
    tries[task] = tries.get(task, 0) + 1
    if tries[task] >= TRIES:
        raise GpuyardError(
            f"a worker died {TRIES} times at the same task, number {task} (exit code {hand.process.exitcode})",
            hint="out of memory? try --workers 1; what was done before is kept",
        )
    _stop(hand)
    waiting.appendleft(task)
    return _start(make)


@dataclass(frozen=True)
class _Failure:
    """An error that a task raised."""

    error: GpuyardError


def _start(make: Makes) -> _Hand:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(make, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Hand(process, ours)


def _dismiss(hand: _Hand) -> None:
    """One that is idle ends by itself, and tidies up, when its pipe closes; one that is at work is told to end."""
    hand.pipe.close()
    if hand.task is not None:
        hand.process.terminate()


def _stop(hand: _Hand) -> None:
    """Until it is gone, whatever it takes."""
    _dismiss(hand)
    for end in (hand.process.terminate, hand.process.kill):
        hand.process.join(PATIENCE)
        if not hand.process.is_alive():
            break
        end()
    hand.process.join()


def _serve(make: Makes, pipe: Connection) -> None:
    """In the worker: until the pipe closes. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    worker = None
    while True:
        try:
            number = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            worker = worker or make()
            found = worker.work(number)
        except Exception as error:
            found = _Failure(portable(error))
        except KeyboardInterrupt:  # a training hears it by itself
            return
        try:
            pipe.send(found)
        except OSError:
            return


def _end_with_parent() -> None:
    """A task may take hours, and nobody would hear of what comes of it; another process may be at it already."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def portable(error: Exception) -> GpuyardError:
    """gpuyard's own errors as they are; others as one line, for they may not travel."""
    if isinstance(error, GpuyardError):
        made = type(error)(str(error))
        made.hint = error.hint
        return made
    return GpuyardError(" ".join(f"a worker failed: {type(error).__name__}: {error}".split()))
