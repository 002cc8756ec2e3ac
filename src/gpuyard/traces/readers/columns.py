"""Finds out which column of a table is which: as the caller says, by our names, or by the names and units that such tables usually have."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from gpuyard.errors import DataError
from gpuyard.model.rules import STATED
from gpuyard.registry import unknown_name

INSTANTS = ("submit", "start", "end", "deadline")  # numbers from the file's origin, or ISO timestamps
SPANS = ("runtime", "wait", "estimate", "walltime", "transfer")
NUMBERS = ("gpus", "cpus", "memory", "priority", "chunk")
LABEL_COLUMNS = ("user", "partition", "job_class", "gpu_type", "qos", "account")
TERMS = ("checkpoint", "checkpoint_cost", "drain", "restart_cost")  # times on which a job may be stopped; empty: as the rules say
COLUMNS = ("id", *INSTANTS, *SPANS, *NUMBERS, *LABEL_COLUMNS, *STATED, "conditions")
UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0, "d": 86400.0}  # s
_TIMES = (*INSTANTS, *SPANS, *TERMS)
_UNIT_WORDS = {
    "us": "us usec microseconds", "ms": "ms msec millis milliseconds", "s": "s sec secs second seconds", "min": "min mins minute minutes",
    "h": "h hr hrs hour hours", "d": "d day days",
}  # fmt: skip
_TIME_UNITS = {word: UNITS[unit] for unit, words in _UNIT_WORDS.items() for word in words.split()}
_MEMORY_UNITS = {"gb": 1.0, "gib": 2**30 / 1e9, "mb": 1e-3, "mib": 2**20 / 1e9, "kb": 1e-6, "kib": 2**10 / 1e9, "bytes": 1e-9}  # GB
# What tables call our columns, without case, blanks and punctuation; the first that a table has is taken.
_USUAL = {
    "id": "id jobid",
    "submit": "submit submittime submitted submittedat submission submissiontime submitat arrival arrivaltime arrivedat timesubmit"
    " createtime createdat creationtime",
    "start": "start starttime started startedat timestart",
    "end": "end endtime ended endedat timeend finish finishtime finished finishedat stoptime",
    "runtime": "runtime duration elapsed elapsedtime executiontime exectime servicetime jobduration",
    "wait": "wait waittime waitingtime waited queuewait queueingtime queuingtime pendingtime",
    "walltime": "walltime requestedtime reqtime timelimit requestedwalltime reqwalltime walltimerequested walltimelimit",
    "gpus": "gpus gpu ngpus ngpu numgpus numgpu gpunum gpucount gpusrequested requestedgpus reqgpus gpurequest numberofgpus",
    "cpus": "cpus cpu ncpus ncpu numcpus numcpu cpunum cpucount cores ncores numcores reqcpus requestedcpus",
    "memory": "memory mem",
    "user": "user userid username uid",
    "partition": "partition partitionname queue queuename",
    "gpu_type": "gputype gpumodel",
    "job_class": "jobclass class",
    "qos": "qos",
    "account": "account accountname project",
    "priority": "priority",
    "preemptible": "preemptible",
}  # fmt: skip


_Source = tuple[str, float | None]  # the table's name of a column, and its unit if that is known


@dataclass(frozen=True)
class Units:
    """Say what a number in a column stands for, in seconds or GB."""

    usual: float = 1.0  # s, of times
    own: Mapping[str, float] = field(default_factory=dict)  # by our names

    def of(self, name: str) -> float:
        return self.own.get(name, self.usual if name in _TIMES else 1.0)


@dataclass(frozen=True)
class Columns:
    """Where our columns are in a table, and in which units."""

    places: Mapping[str, int]
    units: Units
    notes: tuple[str, ...] = ()  # what was taken by its usual name


def chosen_columns(where: str, names: list[str], given: Mapping[str, str], unit: float = 1.0) -> Columns:
    """Find our columns among those of a table. `given`: ours → the table's, which may end in its unit: `duration:min`."""
    for ours in given:
        if ours not in COLUMNS:
            raise unknown_name("column", ours, COLUMNS)
    said = {ours: _with_unit(theirs, names) for ours, theirs in given.items()}
    wanted: dict[str, _Source] = {name: (name, None) for name in COLUMNS if name in names} | said
    guessed = _guessed(where, names, wanted)
    wanted |= guessed
    places = places_of(where, names, {ours: theirs for ours, (theirs, _) in wanted.items()})
    for ours in _missing(set(wanted)):
        raise DataError(f"{where}: no column for {ours!r}", hint=f"name it, {ours}=NAME; the table has: {', '.join(names)[:300]}")
    notes = (
        (f"columns by their usual names: {', '.join(f'{ours} is {theirs}' for ours, (theirs, _) in guessed.items())}",) if guessed else ()
    )
    return Columns(places, Units(unit, {ours: of for ours, (_, of) in wanted.items() if of is not None}), notes)


def places_of(where: str, names: list[str], wanted: Mapping[str, str]) -> dict[str, int]:
    """Return where the wanted columns are; refuse one that is absent or occurs twice."""
    for ours, theirs in wanted.items():
        if theirs not in names:
            error = unknown_name("column", theirs, names)
            raise DataError(f"{where}: no column {theirs!r} (for {ours!r})", hint=error.hint)
        if names.count(theirs) > 1:
            raise DataError(f"{where}: column {theirs!r} occurs twice")
    return {ours: names.index(theirs) for ours, theirs in wanted.items()}


def holds_jobs(names: Sequence[str]) -> bool:
    """Whether columns of these names say when jobs came and how long they ran."""
    return not _missing({ours for ours in COLUMNS if any(_is_usual(ours, name) for name in names)})


def _missing(has: set[str]) -> list[str]:
    """Return the columns without which nothing can be simulated."""
    submit = "submit" in has or {"start", "wait"} <= has
    runtime = "runtime" in has or ("end" in has and ("start" in has or {"submit", "wait"} <= has))
    return [name for name, there in (("submit", submit), ("runtime", runtime)) if not there]


def _with_unit(theirs: str, names: Sequence[str]) -> _Source:
    """Split `duration:min` into the column and its unit, unless a column has that whole name."""
    stem, colon, unit = theirs.rpartition(":")
    return (stem, UNITS[unit]) if colon and theirs not in names and unit in UNITS else (theirs, None)


def _guessed(where: str, names: Sequence[str], known: Mapping[str, _Source]) -> dict[str, _Source]:
    """Return the columns that have a usual name, with the unit in it."""
    taken = {theirs for theirs, _ in known.values()}
    found: dict[str, _Source] = {}
    for ours in (ours for ours in _USUAL if ours not in known):
        order = _USUAL[ours].split()
        like = sorted(
            (order.index(_plain(ours, name)[0]), at) for at, name in enumerate(names) if name not in taken and _is_usual(ours, name)
        )
        if len(like) > 1 and like[0][0] == like[1][0]:
            first, second = (names[at] for _, at in like[:2])
            raise DataError(f"{where}: {first!r} and {second!r} may both be {ours!r}", hint=f"say which, {ours}=NAME")
        if like:
            name = names[like[0][1]]
            unit = _plain(ours, name)[1]
            found[ours] = (name, (_MEMORY_UNITS if ours == "memory" else _TIME_UNITS)[unit] if unit else None)
    return found


def _is_usual(ours: str, name: str) -> bool:
    plain, unit = _plain(ours, name)
    return plain in _USUAL.get(ours, ours).split() and (ours != "memory" or bool(unit))  # what a number of memory means must be said


def _plain(ours: str, name: str) -> tuple[str, str]:
    """Return a name without case, blanks and punctuation, and the unit at its end, as in `wait (min)` or `run_time_s`."""
    units = _MEMORY_UNITS if ours == "memory" else _TIME_UNITS if ours in _TIMES else {}
    match = re.fullmatch(r"(.*[A-Za-z].*?)(?:[\s_.-]+|\s*[(\[]\s*)([a-z]+)\s*[)\]]?", name.strip().lower())
    stem, unit = (match[1], match[2]) if match and match[2] in units else (name, "")
    return re.sub(r"[\W_]+", "", stem.lower()), unit
