"""Backends that do the work: this process, processes on this machine, or a Ray cluster. The numbers do not depend on it.

Each backend takes tasks by number and returns the outcome of each, in any order. A worker process that dies is replaced and its task done
again, up to `TRIES` times; an error that a task raises is the task's own and ends the whole.
"""

from __future__ import annotations

import atexit
import gc
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Generator, Iterable
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

from gpuyard.errors import GpuyardError, UsageError

TRIES = 3
MAX_WORKERS = 1024
PATIENCE = 5.0  # s that a worker with nothing to do gets to end by itself
LOADED = "gpuyard.experiments.design.kinds"  # the module with what most workers need
Outcomes = Generator[tuple[int, Any], None, None]


class MakeWorker(Protocol):
    """Makes the worker, an object whose method `work` takes a number, in its process; it is pickled on its way there."""

    def __call__(self) -> Any: ...


class Backend(Protocol):
    """A place that runs tasks."""

    def run(self, make: MakeWorker, numbers: Iterable[int]) -> Outcomes:
        """Yield (number, outcome) as they come; closed early, stop all workers."""


def check_workers(count: int | None) -> int:
    """Check a number of workers; unless given, as many as there are cores, at most 8."""
    number = min(len(os.sched_getaffinity(0)), 8) if count is None else count
    if not 1 <= number <= MAX_WORKERS:
        raise UsageError(f"--workers {number} does not lie in 1..{MAX_WORKERS:,}")
    return number


class Here:
    """Runs tasks one after the other, in this process."""

    def run(self, make: MakeWorker, numbers: Iterable[int]) -> Outcomes:
        """Yield outcomes in order."""
        worker = None
        for number in numbers:
            worker = worker or make()
            yield number, worker.work(number)


@dataclass
class _WorkerProcess:
    """A worker process and its task."""

    process: Any
    pipe: Connection
    task: int | None = None


class Processes:
    """Runs tasks in fresh processes, so that none inherits threads, locks or a running compiler; each ends when its pipe closes."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._begun: list[_WorkerProcess] = []

    def begin(self) -> None:
        """Start the processes of the first `run` now: they load what workers need, 0.5 s, while the caller prepares."""
        self._begun = [_start(LOADED) for _ in range(self._count)]

    def run(self, make: MakeWorker, numbers: Iterable[int]) -> Outcomes:
        """Yield outcomes as they are done."""
        waiting = deque(numbers)
        tries: dict[int, int] = {}
        workers: list[_WorkerProcess] = []
        begun, self._begun = self._begun, []
        try:
            for _ in range(min(self._count, len(waiting))):
                workers.append(_employed(begun.pop() if begun else _start(), make))
            while waiting or any(worker.task is not None for worker in workers):
                _assign(workers, waiting)
                for worker in _ready(workers):
                    found = _received(worker)
                    if found is None:
                        workers[workers.index(worker)] = _replaced(worker, make, waiting, tries)
                        continue
                    number, worker.task = worker.task, None
                    if isinstance(found, _Failure):
                        raise found.error
                    assert number is not None
                    yield number, found
        finally:
            for worker in (*workers, *begun):
                _dismiss(worker)
            for worker in (*workers, *begun):
                _stop(worker)


def local(count: int) -> Here | Processes:
    """Return the place for so many workers on this machine."""
    return Here() if count == 1 else Processes(count)


def _assign(workers: list[_WorkerProcess], waiting: deque[int]) -> None:
    for worker in workers:
        if worker.task is None and waiting:
            worker.task = waiting.popleft()
            with suppress(OSError):  # it is dead: `_received` will notice
                worker.pipe.send(worker.task)


def _ready(workers: list[_WorkerProcess]) -> list[_WorkerProcess]:
    busy = {worker.pipe: worker for worker in workers if worker.task is not None}
    return [busy[pipe] for pipe in wait(list(busy)) if isinstance(pipe, Connection)]


def _received(worker: _WorkerProcess) -> Any:
    """Return what the worker sent; None if it is dead."""
    try:
        return worker.pipe.recv()
    except (EOFError, OSError):
        return None


def _replaced(worker: _WorkerProcess, make: MakeWorker, waiting: deque[int], tries: dict[int, int]) -> _WorkerProcess:
    """Replace a dead worker; its task is the next."""
    task = worker.task
    assert task is not None
    worker.process.join(5)
    tries[task] = tries.get(task, 0) + 1
    if tries[task] >= TRIES:
        raise GpuyardError(
            f"a worker died {TRIES} times at the same task, number {task} (exit code {worker.process.exitcode})",
            hint="out of memory? try --workers 1; what was done before is kept",
        )
    _stop(worker)
    waiting.appendleft(task)
    return _employed(_start(), make)


@dataclass(frozen=True)
class _Failure:
    """An error that a task raised."""

    error: GpuyardError


def _start(*modules: str) -> _WorkerProcess:
    """Start a process that loads these modules before it is told what to do."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_serve, args=(theirs, modules), daemon=True)
    process.start()
    theirs.close()
    return _WorkerProcess(process, ours)


def _employed(worker: _WorkerProcess, make: MakeWorker) -> _WorkerProcess:
    """Tell a worker that has just been started what it is to be."""
    with suppress(OSError):  # it is dead: `_received` will notice
        worker.pipe.send(make)
    return worker


def _dismiss(worker: _WorkerProcess) -> None:
    """Close the pipe: an idle worker then ends by itself and tidies up; a busy one is terminated."""
    worker.pipe.close()
    if worker.task is not None:
        worker.process.terminate()


def _stop(worker: _WorkerProcess) -> None:
    """Stop a worker, by force if needed."""
    _dismiss(worker)
    for end in (worker.process.terminate, worker.process.kill):
        worker.process.join(PATIENCE)
        if not worker.process.is_alive():
            break
        end()
    worker.process.join()


def _serve(pipe: Connection, modules: Iterable[str]) -> None:
    """Serve tasks in the worker until the pipe closes. The parent handles Ctrl-C."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for name in modules:
        import_module(name)
    gc.freeze()  # what is loaded stays; to look through it at every collection took 5 % of short Runs …
    atexit.register(gc.freeze)  # … and at the end another 0.1 s
    worker, make = None, None
    while True:
        try:
            make = make or pipe.recv()
            number = pipe.recv()
        except (EOFError, OSError):
            return
        try:
            worker = worker or make()
            found = worker.work(number)
        except Exception as error:
            found = _Failure(portable(error))
        except KeyboardInterrupt:  # a training handles it by itself
            return
        try:
            pipe.send(found)
        except OSError:
            return


def _end_with_parent() -> None:
    """End with the parent: a task may take hours, its outcome would be lost, and another process may already work on it."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def portable(error: Exception) -> GpuyardError:
    """Make an error that can be pickled: gpuyard's own as they are, others as one line."""
    if isinstance(error, GpuyardError):
        made = type(error)(str(error))
        made.hint = error.hint
        return made
    return GpuyardError(" ".join(f"a worker failed: {type(error).__name__}: {error}".split()))
