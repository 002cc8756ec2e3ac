"""One job of the workbench: steps until the end, checkpoints, and one JSON line that says what was done."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from gpuyard.errors import CheckpointError, UsageError
from gpuyard.files import is_file, parse_json
from gpuyard.model.fields import Fields
from gpuyard.workbench.task import Task, TaskRequest, make_task

STOPPING = (signal.SIGUSR1, signal.SIGTERM)  # write a checkpoint and end
SETTLE_EVERY = 8  # steps that the device may be behind: what is counted has then been done
FORMAT, VERSION = "gpuyard-workbench", 1


@dataclass(frozen=True)
class WorkRequest:
    """How long to work on a task, and where its checkpoint is."""

    task: TaskRequest
    steps: int = 0  # 0: not limited
    seconds: float = 0.0  # of steps after the first of each run, over all runs; 0: not limited
    checkpoint: Path | None = None
    every: float = 0.0  # s between checkpoints; 0: only at the end
    began: float = field(default_factory=time.monotonic)  # when the process began, as far as it knows


@dataclass
class WorkDone:
    """The steps that have been done, over all runs."""

    steps: int = 0
    seconds: float = 0.0
    first: float = float("nan")  # the loss after the first step
    last: float = float("nan")


class StopSignals:
    """Notes the first signal that asks to stop, while the block runs; the step at hand is finished."""

    def __init__(self) -> None:
        self.came = 0
        self._before: dict[int, Any] = {}

    def __enter__(self) -> StopSignals:
        for number in STOPPING:
            self._before[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = self.came or number


def work(asked: WorkRequest) -> dict[str, Any]:
    """Work until the steps or seconds are done, and return the facts. A signal to stop saves a checkpoint and ends the process by it.

    `setup_seconds` last until the first step of this run is done, `seconds` count the steps after it.
    """
    if not (asked.steps or asked.seconds):
        raise UsageError("nothing says when the work is done", hint="--steps N or --seconds S")
    with StopSignals() as stop:
        task, library = make_task(asked.task)
        done = _resumed(asked, task, library)
        resumed = done.steps
        _first_step(asked, task, done)
        setup = time.monotonic() - asked.began
        _loop(asked, task, done, stop, lambda: _save(asked, task, library, done))
        _save(asked, task, library, done)
        facts = _facts(asked, task, library, done) | {"resumed_at": resumed, "setup_seconds": round(setup, 4), "finished": not stop.came}
        if stop.came:
            tell(facts)
    if stop.came:
        signal.signal(stop.came, signal.SIG_DFL)
        os.kill(os.getpid(), stop.came)  # whoever waits for this process sees that it was stopped
    return facts


def _first_step(asked: WorkRequest, task: Task, done: WorkDone) -> None:
    """Do the step that compiles kernels or loads libraries: it may take seconds, so that it counts as a part of the setup."""
    if asked.steps and done.steps >= asked.steps:
        return
    task.step(done.steps)
    done.steps += 1
    done.last = task.settle()
    if done.steps == 1:
        done.first = done.last


def _loop(asked: WorkRequest, task: Task, done: WorkDone, stop: StopSignals, save: Callable[[], None]) -> None:
    began, before, saved = time.perf_counter(), done.seconds, time.perf_counter()
    most = asked.steps or sys.maxsize
    while done.steps < most and not stop.came:
        task.step(done.steps)
        done.steps += 1
        if done.steps % SETTLE_EVERY:
            continue
        done.last = task.settle()
        now = time.perf_counter()
        done.seconds = before + now - began
        if asked.seconds and done.seconds >= asked.seconds:
            break
        if asked.every and now - saved >= asked.every:
            save()
            saved = time.perf_counter()
    done.last = task.settle()
    done.seconds = before + time.perf_counter() - began


def _facts(asked: WorkRequest, task: Task, library: str, done: WorkDone) -> dict[str, Any]:
    return {
        "kind": asked.task.kind, "library": library, "device": task.device, "device_name": task.device_name, "seed": asked.task.seed,
        "steps": done.steps, "seconds": round(done.seconds, 4), "first": done.first, "last": done.last,
    }  # fmt: skip


def tell(facts: dict[str, Any]) -> None:
    """Write the line; JSON has no NaN."""
    plain = {name: None if isinstance(value, float) and value != value else value for name, value in facts.items()}
    sys.stdout.write(json.dumps(plain) + "\n")
    sys.stdout.flush()


# ── checkpoints ──


def _save(asked: WorkRequest, task: Task, library: str, done: WorkDone) -> None:
    if asked.checkpoint is None:
        return
    from gpuyard.networks.tensor_file import write_arrays

    about = {
        "format": FORMAT, "version": VERSION, "kind": asked.task.kind, "library": library, "scale": asked.task.scale,
        "seed": asked.task.seed, "steps": done.steps, "seconds": done.seconds, "first": repr(done.first), "last": repr(done.last),
    }  # fmt: skip
    write_arrays(asked.checkpoint, task.arrays(), {"gpuyard": json.dumps(about)})


def _resumed(asked: WorkRequest, task: Task, library: str) -> WorkDone:
    """Go on from the checkpoint, if there is one; one of other work is refused."""
    if asked.checkpoint is None or not is_file(asked.checkpoint):
        return WorkDone()
    from gpuyard.networks.tensor_file import read_arrays

    arrays, meta = read_arrays(asked.checkpoint)
    where = str(asked.checkpoint)
    about = Fields(parse_json(meta.get("gpuyard", "{}"), where, strict=True), where)
    if about.text("format", "") != FORMAT or about.whole("version", 0) != VERSION:
        raise CheckpointError(f"{where}: not a checkpoint of the workbench, or of another version")
    for name, mine in (("kind", asked.task.kind), ("library", library), ("scale", asked.task.scale)):
        if about.text(name) != mine:
            raise CheckpointError(f"{where}: its {name} is not {mine!r}", hint="give another --checkpoint, or remove the file")
    if about.whole("seed", low=-(2**63), high=2**63) != asked.task.seed:
        raise CheckpointError(f"{where}: its seed is not {asked.task.seed}", hint="give another --checkpoint, or remove the file")
    found = WorkDone(about.whole("steps"), about.number("seconds"), _loss(about, "first"), _loss(about, "last"))
    about.done()
    try:
        task.restore(arrays)
    except (KeyError, RuntimeError, TypeError, ValueError) as error:
        raise CheckpointError(f"{where}: does not fit the task: {' '.join(str(error).split())[:200]}") from None
    return found


def _loss(about: Fields, name: str) -> float:
    text = about.text(name)
    try:
        return float(text)
    except ValueError:
        raise about.error(name, "is not a number") from None
