"""A job of the node: what was submitted, and what has become of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from enum import StrEnum
from typing import Any

from gpuyard.errors import DataError, UsageError
from gpuyard.model.fields import Fields

SECONDS_OF_GRACE = 10.0  # between TERM and KILL
OUTPUT_BYTES = 100_000_000  # of a job's output that are kept
MOST_TEXT = 100_000  # characters of one argument, and of one variable of the environment
MOST_ARGUMENTS = 10_000
MOST_ARRAY = 100_000  # jobs of one array
CHECKPOINT_SIGNALS = ("USR1", "USR2", "INT", "TERM", "HUP")


class RunState(StrEnum):
    """The states of a job. PENDING, STARTING and RUNNING are under way; the others are ends."""

    pending = "PENDING"
    starting = "STARTING"
    running = "RUNNING"
    done = "DONE"  # it ended by itself with exit code 0
    failed = "FAILED"  # it ended by itself with another exit code, or by a signal
    killed = "KILLED"  # it was cancelled, reached its walltime, or was told to stop
    lost = "LOST"  # nobody knows how it ended: its shim was killed, or the machine went down

    @property
    def ended(self) -> bool:
        return self in (RunState.done, RunState.failed, RunState.killed, RunState.lost)


@dataclass(frozen=True)
class Submission:
    """A job as a person asks for it. Times in s, memory in GB."""

    command: tuple[str, ...]  # never passed through a shell
    cwd: str = "/"
    env: Mapping[str, str] = field(default_factory=dict)
    name: str = ""
    gpus: float = -1.0  # 0 < share < 1: part of one GPU; -1: one GPU where there is one, else none
    gpu_memory: float = 0.0  # GB that must be free on each of its GPUs; 0: does not say
    cpus: float = 1.0
    memory: float = 0.0  # GB of the machine; 0: does not say
    walltime: float = math.inf  # then it is stopped
    estimate: float = 0.0  # s that the user expects it to take; 0: the node estimates
    deadline: float = math.inf  # s since 1970
    priority: float = 0.0  # higher is more important
    after: tuple[int, ...] = ()  # jobs that must be DONE first
    after_any: tuple[int, ...] = ()  # jobs that must have ended first, however
    begin: float = 0.0  # s since 1970, not before
    array: tuple[int, ...] = ()  # one job for each number
    array_limit: int = 0  # jobs of the array that run at once; 0: any number
    retry: int = 0  # times it runs again after FAILED or LOST
    requeue_lost: bool = False  # it runs again after LOST
    held: bool = False
    preemptible: bool = False  # the policy may stop it: it gets `signal`, and later runs again
    checkpoint: float = 0.0  # s between its checkpoints
    signal: str = "USR1"  # that tells it to write a checkpoint and end
    grace: float = SECONDS_OF_GRACE  # s between telling it to end and KILL
    output_limit: int = OUTPUT_BYTES
    job_class: str = ""  # row of the speed table; jobs of a class take similar times
    template: str = ""  # warm process that starts it; "": a fresh process

    def plain(self, *, environment: bool = True) -> dict[str, Any]:
        """Return it as JSON can hold it; what is as usual is left out."""
        found = {name: value for name in _USUAL if (value := getattr(self, name)) != _USUAL[name]}
        found = {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}
        return found | ({"env": dict(self.env)} if environment else {})


_USUAL: dict[str, Any] = {each.name: each.default for each in fields(Submission) if each.name != "env"}


def submission_of(data: object, where: str = "submission") -> Submission:
    """Read what `Submission.plain` wrote, or what a stranger sent; anything out of bounds is refused."""
    given = Fields(data, where)

    def number(name: str, low: float = 0.0, high: float = 1e12) -> float:
        return given.number(name, float(_USUAL[name]), low=low, high=high) if name in given else float(_USUAL[name])

    made = Submission(
        command=_texts(given, "command", MOST_ARGUMENTS),
        cwd=_bounded(given.text("cwd", "/", limit=MOST_TEXT), "cwd"),
        env=_environment(given),
        name=given.text("name", "", limit=200),
        gpus=number("gpus", low=-1.0, high=1024.0),
        gpu_memory=number("gpu_memory", high=1e6),
        cpus=number("cpus", high=1e6),
        memory=number("memory", high=1e9),
        walltime=number("walltime"),
        estimate=number("estimate"),
        deadline=number("deadline"),
        priority=number("priority", low=-1e9, high=1e9),
        after=_numbers(given, "after", 1000),
        after_any=_numbers(given, "after_any", 1000),
        begin=number("begin"),
        array=_numbers(given, "array", MOST_ARRAY),
        array_limit=given.whole("array_limit", 0, high=MOST_ARRAY),
        retry=given.whole("retry", 0, high=1000),
        requeue_lost=given.flag("requeue_lost", False),
        held=given.flag("held", False),
        preemptible=given.flag("preemptible", False),
        checkpoint=number("checkpoint"),
        signal=given.text("signal", "USR1", limit=10),
        grace=number("grace", high=86_400.0),
        output_limit=given.whole("output_limit", OUTPUT_BYTES, high=2**50),
        job_class=given.text("job_class", "", limit=200),
        template=given.text("template", "", limit=200),
    )
    given.done()
    _check(made, where)
    return made


def _check(made: Submission, where: str) -> None:
    if not made.command or not made.command[0]:
        raise UsageError(f"{where}: no command", hint="gpuyard submit -- python train.py")
    if made.gpus != -1 and not (0 <= made.gpus < 1 or made.gpus == int(made.gpus)):
        raise UsageError(f"{where}: gpus = {made.gpus:g} is neither a whole number nor a share of one GPU")
    if made.signal not in CHECKPOINT_SIGNALS:
        raise UsageError(f"{where}: signal = {made.signal!r} is not one of {', '.join(CHECKPOINT_SIGNALS)}")
    if not made.cwd.startswith("/"):
        raise UsageError(f"{where}: cwd = {made.cwd[:100]!r} is not an absolute path")
    if not made.walltime > 0:
        raise UsageError(f"{where}: walltime = {made.walltime:g} s leaves no time to run")


def _texts(given: Fields, name: str, most: int) -> tuple[str, ...]:
    found = given.texts(name, ())
    if len(found) > most:
        raise DataError(f"{given.where}: {name} has {len(found):,} texts; at most {most:,}")
    return tuple(_bounded(each, name) for each in found)


def _bounded(text: str, what: str) -> str:
    if len(text) > MOST_TEXT or "\0" in text:
        raise DataError(f"{what}: a text {'is longer than 100,000 characters' if len(text) > MOST_TEXT else 'has a NUL character'}")
    return text


def _numbers(given: Fields, name: str, most: int) -> tuple[int, ...]:
    found = given.numbers(name, whole=True) if name in given else ()
    if len(found) > most or any(not 0 <= each < 2**53 for each in found):
        raise DataError(f"{given.where}: {name} is not a list of at most {most:,} whole numbers from 0")
    return tuple(int(each) for each in found)


def _environment(given: Fields) -> dict[str, str]:
    if "env" not in given:
        return {}
    given.table("env")  # refuses anything but a table
    found: Any = given.peek("env")
    for key, value in found.items():
        if not isinstance(value, str) or not key or "=" in key or "\0" in key:
            raise DataError(f"{given.where}: env: {str(key)[:60]!r} is not the name of a text")
        _bounded(value, f"env {key[:60]}")
    return dict(found)


@dataclass(frozen=True)
class NodeJob:
    """A job as the node knows it. Times are s since 1970 by the node's clock, which never goes back; 0: not yet."""

    id: int
    asked: Submission
    state: RunState
    submit: float
    user: str = ""
    reason: str = ""  # why it waits, or why it ended
    array: tuple[int, int] = (0, 0)  # the first job of its array, and its own number there; 0: it is in none
    attempt: int = 0  # of running it; 0: none yet
    queued: float = 0.0  # when it last began to wait
    start: float = 0.0  # of the present or last run
    held: bool = False
    exit_code: int | None = None
    end: float = 0.0
    stopping: str = ""  # what it was told to stop for: cancel or preempt
    signal: int = 0  # that ended it
    devices: tuple[str, ...] = ()  # UUIDs of its GPUs
    ran: float = 0.0  # s on devices before this run
    energy: float = 0.0  # J
    expected: float = 0.0  # s that a run is estimated to take
    history: tuple[str, ...] = ()  # how its earlier attempts ended
    preemptions: int = 0
    retried: int = 0  # times it ran again after FAILED or LOST
    losses: int = 0  # times it was LOST

    def plain(self) -> dict[str, Any]:
        """Return it as JSON can hold it, without its environment."""
        found = {name: getattr(self, name) for name in _OF_JOB} | {"asked": self.asked.plain(environment=False), "state": self.state.value}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in found.items()}


_OF_JOB = tuple(each.name for each in fields(NodeJob))


def job_of(data: Mapping[str, Any]) -> NodeJob:
    """Read what `NodeJob.plain` wrote."""
    given: dict[str, Any] = {name: tuple(value) if isinstance(value, list) else value for name, value in data.items() if name in _OF_JOB}
    return NodeJob(**given | {"asked": submission_of(data["asked"], "job"), "state": RunState(data["state"])})
