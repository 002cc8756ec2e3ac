"""Who does the work: this process, processes of this machine, or a Ray cluster. The numbers do not depend on it.

Each backend takes tasks by number and hands back what came of each, in any order. A worker process that dies is replaced and its task done
again, up to `TRIES` times; an error that a task raises is the task's own and ends the whole.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from gpuyard.errors import GpuyardError, UsageError

TRIES = 3
MAX_WORKERS = 1024
Make = Callable[[], Any]  # an object whose method `work` takes a number


class Makes(Protocol):
    """Makes the worker in its process; travels there, so it is a plain, picklable object."""

    def __call__(self) -> Any: ...


class Backend(Protocol):
    """Runs tasks."""

    def run(self, make: Makes, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """(number, outcome) as they come."""


def check_workers(count: int | None) -> int:
    """A number of workers; as many as there are cores unless given, at most 8."""
    number = min(len(os.sched_getaffinity(0)), 8) if count is None else count
    if not 1 <= number <= MAX_WORKERS:
        raise UsageError(f"--workers {number} does not lie in 1..{MAX_WORKERS:,}")
    return number


def backend_of(on: str, workers: int | None) -> Backend:
    """`local`; `ray`, a Ray cluster of this machine that is started; or the address of one that runs."""
    if on == "local":
        count = check_workers(workers)
        return Here() if count == 1 else Processes(count)
    from gpuyard.experiments.on_ray import OnRay

    if on == "ray":
        return OnRay("", check_workers(workers))
    return OnRay(on, 0 if workers is None else check_workers(workers))


class Here:
    """One after the other, in this process."""

    def run(self, make: Makes, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """In order."""
        worker = make()
        for number in numbers:
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

    def run(self, make: Makes, numbers: Iterable[int]) -> Iterator[tuple[int, Any]]:
        """In the order in which they are done."""
        waiting = deque(numbers)
        tries: dict[int, int] = {}
        hands = [_start(make) for _ in range(min(self._count, len(waiting)))]
        try:
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
    """What it sent; None if it is dead."""
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
            f"a worker died {TRIES} times at the same task (exit code {hand.process.exitcode})",
            hint="out of memory? try --workers 1; what was done before is kept",
        )
    _stop(hand)
    waiting.appendleft(task)
    return _start(make)


@dataclass(frozen=True)
class _Failure:
    """An error that a task raised."""

    error: Exception


def _start(make: Makes) -> _Hand:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(make, theirs), daemon=True)
    process.start()
    theirs.close()
    return _Hand(process, ours)


def _stop(hand: _Hand) -> None:
    hand.pipe.close()
    if hand.process.is_alive():
        hand.process.terminate()
    hand.process.join(5)


def _serve(make: Makes, pipe: Connection) -> None:
    """In the worker: until the pipe closes, as it does when the parent is gone. Ctrl-C is the parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
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
            found = _Failure(_portable(error))
        try:
            pipe.send(found)
        except OSError:
            return


def _portable(error: Exception) -> Exception:
    """gpuyard's own errors as they are; others as one line, for they may not travel."""
    if isinstance(error, GpuyardError):
        made = type(error)(str(error))
        made.hint = error.hint
        return made
    return GpuyardError(f"a worker failed: {type(error).__name__}: {error}")
