"""Each option of `gpuyard submit`, once; and `submit` itself, which loads no parser, so that it takes 0.1 s.

Only words that are plainly right are read here. Everything else is left to the verb's parser, which says what is wrong.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gpuyard.cli.common.messages import say, say_error
from gpuyard.errors import GpuyardError, UsageError
from gpuyard.live.node.client import NodeClient
from gpuyard.live.node.jobs import CHECKPOINT_SIGNALS, MOST_ARRAY, Submission
from gpuyard.model.site.notation import ranges_text
from gpuyard.model.units import parse_gigabytes, parse_seconds, shorten

INTERRUPTED = 130
MOST_IDS = 100_000
BASIC = ("PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "TZ", "TMPDIR")  # variables that are always sent
OWN = ("GPUYARD_JOB", "GPUYARD_ATTEMPT", "GPUYARD_PREEMPTIONS", "GPUYARD_ARRAY", "GPUYARD_ARRAY_INDEX", "GPUYARD_TOKEN")  # never sent
Given = Mapping[str, Sequence[str]]  # name of an option → its values; a flag that is given has an empty one


# ── values ──


def id_numbers(texts: Iterable[str]) -> list[int]:
    """Read the numbers of jobs: `12`, `12-20`, `12,15-17`."""
    found: list[int] = []
    for part in (part.strip() for text in texts for part in text.split(",")):
        low, dash, high = part.partition("-")
        if not (low.isdecimal() and (high.isdecimal() if dash else True)) or len(low) > 15 or len(high) > 15:
            raise UsageError(f"{shorten(part)} is not the number of a job", hint="e.g. 12, 12-20 or 12,15")
        first, last = int(low), int(high or low)
        if last < first or last - first + len(found) >= MOST_IDS:
            raise UsageError(f"{shorten(part)}: {'it ends before it begins' if last < first else f'more than {MOST_IDS:,} jobs'}")
        found += range(first, last + 1)
    return list(dict.fromkeys(found))


def array_numbers(text: str) -> tuple[tuple[int, ...], int]:
    """Read `1-50`, `0-90:10`, `1,3,7-9`, each with `%4`: the numbers of an array, and how many of its jobs may run at once."""
    numbers, percent, limit = text.partition("%")
    found: list[int] = []
    for part in numbers.split(","):
        span, _, step = part.partition(":")
        low, _, high = span.partition("-")
        if not all(each.isdecimal() and len(each) < 16 for each in (low, high or low, step or "1", limit or "1")) or step == "0":
            raise UsageError(f"--array {shorten(text)} is not a list of numbers", hint="e.g. 1-50, 1-50%4 or 0-90:10")
        wanted = range(int(low), int(high or low) + 1, int(step or 1))
        if len(wanted) + len(found) > MOST_ARRAY:
            raise UsageError(f"--array {shorten(text)}: more than {MOST_ARRAY:,} jobs")
        found += wanted
    if not found or len(set(found)) < len(found) or (percent and int(limit or 0) < 1):
        raise UsageError(f"--array {shorten(text)}: no number, a number twice, or no limit", hint="e.g. 1-50 or 1-50%4")
    return tuple(found), int(limit or 0)


def instant(text: str) -> float:
    """Read `2h` (from now), `16:30` (the next), `2026-11-20` or `2026-11-20T08:00` as s since 1970, by the clock of this place."""
    from datetime import datetime, timedelta

    now = datetime.now()
    try:
        if text[:4].isdecimal() and text[4:5] == "-":
            return datetime.fromisoformat(text).timestamp()
        if len(text) == 5 and text[2] == ":":
            clock = datetime.strptime(text, "%H:%M").time()
            day = now.date() if now.time() < clock else now.date() + timedelta(days=1)
            return datetime.combine(day, clock).timestamp()
    except (ValueError, OverflowError):
        raise UsageError(f"{shorten(text)} is not a time", hint="e.g. 2h (from now), 16:30 or 2026-11-20T08:00") from None
    return time.time() + parse_seconds(text.removeprefix("+"))


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise UsageError(f"{shorten(text)} is not a number") from None


def _whole(text: str) -> int:
    if not text.isdecimal() or len(text) > 15:
        raise UsageError(f"{shorten(text)} is not a whole number")
    return int(text)


# ── options ──


@dataclass(frozen=True)
class SubmitOption:
    """An option of `submit`."""

    field: str  # of Submission, or what `submission` knows
    flag: str
    metavar: str  # empty: it has no value
    help: str
    read: Callable[[str], Any] = str
    panel: str = "Job"
    repeated: bool = False


OPTIONS = (
    SubmitOption("gpus", "--gpus", "N", "GPUs; less than 1 is a share of one, where the node shares them. One, where there is any, unless "
                 "given.", _number, "Resources"),
    SubmitOption("gpu_memory", "--gpu-memory", "SIZE", "Memory that must be free on each of its GPUs, e.g. 20GB.", parse_gigabytes,
                 "Resources"),
    SubmitOption("cpus", "--cpus", "N", "Cores; on a node without GPUs these are slots. One unless given.", _number, "Resources"),
    SubmitOption("memory", "--memory", "SIZE", "Memory of the machine, e.g. 8GB.", parse_gigabytes, "Resources"),
    SubmitOption("walltime", "--walltime", "TIME", "Stop it after so long, e.g. 2h.", parse_seconds, "Times"),
    SubmitOption("estimate", "--estimate", "TIME", "How long it will take; the node learns it from jobs like it unless given.",
                 parse_seconds, "Times"),
    SubmitOption("begin", "--begin", "WHEN", "Not before: 2h (from now), 16:30 or 2026-11-20T08:00.", instant, "Times"),
    SubmitOption("deadline", "--deadline", "WHEN", "When it should have ended, for schedulers that look at deadlines.", instant, "Times"),
    SubmitOption("priority", "--priority", "N", "Higher is more important, for schedulers that look at priorities.", _number, "Order"),
    SubmitOption("after", "--after", "ID", "Only after these jobs are DONE, e.g. 12 or 12-20; repeatable.", str, "Order", True),
    SubmitOption("after_any", "--after-any", "ID", "Only after these jobs have ended, however; repeatable.", str, "Order", True),
    SubmitOption("held", "--hold", "", "Let it wait until `gpuyard release`.", panel="Order"),
    SubmitOption("array", "--array", "1-50%4", "One job for each number, here at most 4 at once; each finds its number in "
                 "GPUYARD_ARRAY_INDEX."),
    SubmitOption("name", "--name", "TEXT", "A name; jobs of a name, numbers aside, are expected to take similar times."),
    SubmitOption("job_class", "--class", "TEXT", "The kind of work; jobs of a class are expected to take similar times."),
    SubmitOption("retry", "--retry", "N", "Run it again so many times after FAILED or LOST.", _whole, "Ends"),
    SubmitOption("requeue_lost", "--requeue-lost", "", "Run it again after LOST: its machine went down, or its supervisor was killed.",
                 panel="Ends"),
    SubmitOption("preemptible", "--preemptible", "", "The scheduler may stop it: it gets the signal, and runs again later.", panel="Ends"),
    SubmitOption("checkpoint", "--checkpoint", "TIME", "Time between its checkpoints, so that the scheduler knows what a stop loses.",
                 parse_seconds, "Ends"),
    SubmitOption("signal", "--signal", "NAME", f"What tells it to write a checkpoint and end: {', '.join(CHECKPOINT_SIGNALS)}; USR1 unless "
                 "given.", lambda text: text.upper().removeprefix("SIG"), "Ends"),
    SubmitOption("grace", "--grace", "TIME", "Time between telling it to end and killing it; 10 s unless given.", parse_seconds, "Ends"),
    SubmitOption("output_limit", "--output-limit", "SIZE", "Keep so much of its output; 100MB unless given.",
                 lambda text: round(parse_gigabytes(text) * 1e9), "Surroundings"),
    SubmitOption("env", "--env", "NAME[=VALUE]", "NAME: send only the named variables and PATH, HOME, USER, SHELL, LANG, TZ, TMPDIR, not "
                 "all. NAME=VALUE: set one. Repeatable.", str, "Surroundings", True),
    SubmitOption("cwd", "--cwd", "DIR", "Where it runs; the present folder unless given.", str, "Surroundings"),
    SubmitOption("template", "--template", "NAME", "The warm process of the node that starts it.", str, "Surroundings"),
    SubmitOption("folder", "--folder", "DIR", "The folder of the node.", str, "Surroundings"),
)  # fmt: skip
_BY_FLAG = {option.flag: option for option in OPTIONS}


def submission(given: Given, command: Sequence[str], variables: Mapping[str, str]) -> Submission:
    """Return the job that the options and the command ask for; `variables` is the environment here."""
    found: dict[str, Any] = {}
    for option in OPTIONS:
        texts = given.get(option.field, ())
        if texts and option.field not in ("array", "after", "after_any", "env", "cwd", "folder"):
            found[option.field] = _read(option, texts[-1]) if option.metavar else True
    if given.get("array"):
        found["array"], found["array_limit"] = array_numbers(given["array"][-1])
    for name in ("after", "after_any"):
        if given.get(name):
            found[name] = tuple(id_numbers(given[name]))
    cwd = os.path.abspath(os.path.expanduser(given["cwd"][-1])) if given.get("cwd") else os.getcwd()  # noqa: PTH100, PTH109, PTH111
    return Submission(tuple(command), cwd=cwd, env=_environment(given.get("env", ()), variables), **found)


def _read(option: SubmitOption, text: str) -> Any:
    try:
        return option.read(text)
    except UsageError as error:
        raise UsageError(f"{option.flag}: {str(error).partition('; hint: ')[0]}", hint=error.hint) from None


def _environment(asked: Sequence[str], variables: Mapping[str, str]) -> dict[str, str]:
    names = [each for each in asked if "=" not in each]
    kept = {*BASIC, *names} if names else set(variables)
    lacking = [name for name in names if name not in variables]
    if lacking:
        raise UsageError(f"--env {shorten(lacking[0])}: there is no such variable here", hint="NAME=VALUE sets one")
    found = {name: value for name, value in variables.items() if name in kept and name not in OWN}
    return found | dict(each.split("=", 1) for each in asked if "=" in each)


# ── submitting ──


def send(given: Given, command: Sequence[str]) -> int:
    """Submit a job and print its number, or those of an array."""
    with NodeClient((given.get("folder") or [""])[-1]) as client:
        ids = client.submit(submission(given, command, os.environ))
    sys.stdout.write(f"{ranges_text(ids)}\n")
    sys.stdout.flush()
    if sys.stdout.isatty():
        say(f"hint: gpuyard logs -f {ids[0]} shows its output, gpuyard why {ids[0]} when it starts")
    return 0


def plain_words(words: Sequence[str]) -> tuple[Given, Sequence[str]] | None:
    """Split a command line into options and the command; None: it is not plain."""
    found: dict[str, list[str]] = {}
    rest = list(words)
    while rest and rest[0].startswith("-"):
        word = rest.pop(0)
        if word == "--":
            break
        flag, equals, value = word.partition("=")
        option = _BY_FLAG.get(flag)
        if option is None or bool(equals) > bool(option.metavar) or (option.metavar and not equals and not rest):
            return None
        found.setdefault(option.field, []).append(value if equals else rest.pop(0) if option.metavar else "")
    return (found, rest) if rest else None


def submit_at_once(words: Sequence[str]) -> int | None:
    """Submit the job that plain words ask for, and return the exit code; None: the words are for the parser."""
    split = plain_words(words)
    if split is None:
        return None
    try:
        return send(*split)
    except GpuyardError as error:
        say_error(error)
        return error.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
