"""Learns from the history of one cluster: how long jobs like this one took, and who has waited how long. It is rebuilt at a start.

Jobs are alike if a user gave them the same class or name, or else started the same program. A median of the last few is robust against the
run that died at once; where nothing like it has ended, the user's last two stand in for it (Tsafrir, Etsion and Feitelson 2007).
"""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePath
from typing import Any

from gpuyard.engine.rows.ranking import BURDEN_LEVELS, SLACK
from gpuyard.errors import DataError
from gpuyard.files import json_bytes, parse_json, read_bytes, write_bytes
from gpuyard.model.estimator import FIRST_GUESS, SHORTEST
from gpuyard.model.fields import Fields

LAST = 10  # run times that are kept of each kind of job
WINDOW = 200  # ratios of run time to estimate that intervals come from
MOST_KINDS = 10_000
VERSION = 1  # of what is kept
MAX_BYTES = 16_000_000
FIRST_RANGE = (0.2, 3.0)  # × the estimate, before anything is known about its errors
_INTERPRETERS = re.compile(r"(python|pypy|bash|sh|zsh|perl|ruby|node|java|torchrun|accelerate|deepspeed|mpirun|env|uv|srun)[0-9.]*")


@dataclass(frozen=True)
class Guess:
    """How long a job may take, in s: four of five jobs end between `low` and `high`."""

    expected: float
    low: float
    high: float


def kind_of(job_class: str, name: str, command: Sequence[str]) -> str:
    """Return what jobs that take similar times have in common: a class, a name without its numbers, or the program."""
    if job_class or name:
        return job_class or re.sub(r"[0-9]+", "#", name)
    program = PurePath(command[0]).name if command else ""
    if _INTERPRETERS.fullmatch(program):
        script = next((each for each in command[1:] if not each.startswith("-")), "")
        return f"{program} {PurePath(script).name}"
    return program


class HistoryEstimator:
    """Learns from jobs that have ended, and estimates those that are submitted."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], deque[float]] = {}
        self._users: dict[str, deque[float]] = {}
        self._every: deque[float] = deque(maxlen=WINDOW)
        self._ratios: deque[float] = deque(maxlen=WINDOW)

    def observe(self, user: str, kind: str, runtime: float) -> None:
        """Learn that a job has ended by itself after so many s."""
        guess = self._known(user, kind)
        if guess is not None:
            self._ratios.append(max(runtime, SHORTEST) / max(guess, SHORTEST))
        if len(self._kinds) >= MOST_KINDS:
            self._kinds.pop(next(iter(self._kinds)))
        self._kinds.setdefault((user, kind), deque(maxlen=LAST)).append(runtime)
        self._users.setdefault(user, deque(maxlen=2)).append(runtime)
        self._every.append(runtime)

    def estimate(self, user: str, kind: str, walltime: float = math.inf, said: float = 0.0) -> Guess:
        """Estimate a job; `said` is what its user expects, 0: nothing."""
        known = self._known(user, kind)
        alike = self._kinds.get((user, kind), ())
        expected = said or (known if alike else None) or (walltime if math.isfinite(walltime) else known) or FIRST_GUESS
        low, high = self._range()
        if not said and len(alike) >= 5:
            least, most = min(alike) / expected, max(alike) / expected
            low, high = max(low, least), min(high, max(most, 1.0))
        found = [max(min(expected * factor, walltime), SHORTEST) for factor in (1.0, low, high)]
        return Guess(*found)

    def as_data(self) -> dict[str, Any]:
        """Return what it knows, for JSON."""
        kinds = [[user, kind, list(times)] for (user, kind), times in self._kinds.items()]
        users = {user: list(times) for user, times in self._users.items()}
        return {"version": VERSION, "kinds": kinds, "users": users, "every": list(self._every), "ratios": list(self._ratios)}

    @classmethod
    def of_data(cls, data: Mapping[str, Any], where: str) -> HistoryEstimator:
        """Return the estimator that `as_data` described; anything else is refused."""
        made, given = cls(), Fields(data, where)
        if given.whole("version") != VERSION:
            raise given.error("version", f"is not {VERSION}")
        for entry in given.value("kinds")[-MOST_KINDS:]:
            user, kind, times = entry
            made._kinds[str(user), str(kind)] = deque(_times(times, where), maxlen=LAST)
        for user, times in given.mapping("users").items():
            made._users[user] = deque(_times(times, where), maxlen=2)
        made._every.extend(_times(given.value("every"), where))
        made._ratios.extend(_times(given.value("ratios"), where))
        return made

    def _known(self, user: str, kind: str) -> float | None:
        alike = self._kinds.get((user, kind))
        if alike:
            return _median(list(alike)[-5:])
        recent = self._users.get(user)
        if recent:
            return sum(recent) / len(recent)
        return _median(list(self._every)) if self._every else None

    def _range(self) -> tuple[float, float]:
        """Return the middle four fifths of run time over estimate."""
        if len(self._ratios) < 10:
            return FIRST_RANGE
        ordered = sorted(self._ratios)
        tenth = len(ordered) // 10
        return min(ordered[tenth], 1.0), max(ordered[-1 - tenth], 1.0)


def _times(values: object, where: str) -> list[float]:
    """Return a list of numbers from 0, or refuse it."""
    if not isinstance(values, list) or not all(isinstance(value, int | float) and 0 <= value < 1e12 for value in values):
        raise DataError(f"{where}: run times are not a list of numbers")
    return [float(value) for value in values]


def keep(estimator: HistoryEstimator, path: Path) -> None:
    """Write what it knows."""
    write_bytes(path, json_bytes(estimator.as_data()))


def recalled(path: Path) -> HistoryEstimator:
    """Return what was kept, or a new one: what is lost is learned again."""
    try:
        return HistoryEstimator.of_data(parse_json(read_bytes(path, MAX_BYTES, "run times"), str(path)), str(path))
    except (DataError, ValueError, TypeError):
        return HistoryEstimator()


class WaitAccounts:
    """Keeps what the jobs of one cluster have waited, by size, and how many they are: all of them, and those that may be stopped.

    A simulation keeps the same accounts of the burden.
    """

    def __init__(self) -> None:
        self._levels = [[0.0, 0, 0.0, 0] for _ in range(BURDEN_LEVELS)]

    def add(self, delay: float, area: float, stoppable: bool) -> None:
        """Take a job into account that has ended after `delay` s off the devices; `area` is its estimate × its GPUs, in GPU-s."""
        level = min(max(math.frexp(area)[1] - 1, 0), BURDEN_LEVELS - 1) if area < math.inf else BURDEN_LEVELS - 1
        account = self._levels[level]
        account[0] += max(delay, 0.0)
        account[1] += 1
        if stoppable:
            account[2] += max(delay, 0.0)
            account[3] += 1

    @property
    def excess(self) -> float:
        """Return by what part those that may be stopped have waited longer than jobs of their size; 0.25: a quarter."""
        theirs = usual = 0.0
        for every, count, some, among in self._levels:
            if 0 < among < count:
                theirs += some
                usual += every / count * among
        if usual > 0:
            return (theirs - SLACK) / usual - 1.0
        return math.inf if theirs > SLACK else 0.0


def _median(values: list[float]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
