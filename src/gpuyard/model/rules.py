"""Rules of the simulated system that belong to neither the workload, the cluster nor the scheduler, and the terms of single jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpuyard.arrays import Array, RecordRow, row_dtype
from gpuyard.errors import DataError, UsageError
from gpuyard.model.site.eligibility import STATES, parse_conditions

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i8


@dataclass(frozen=True)
class Rules:
    """The rules for running jobs. `checkpoint`: seconds between checkpoints (0: progress is never lost, inf: always).

    `checkpoint_cost` and `drain` hold for jobs whose terms say that they may be stopped; the others pay for neither.
    """

    walltime_kill: bool = False  # kill jobs at the limit that they asked for
    checkpoint: float = 0.0  # s between checkpoints
    restart_cost: float = 0.0  # s on the devices, on every start after a stop
    checkpoint_cost: float = 0.0  # s that the writing of one checkpoint takes
    drain: float = 0.0  # s on the devices that a stop takes

    def __post_init__(self) -> None:
        if not self.checkpoint >= 0:
            raise UsageError(f"checkpoint = {self.checkpoint} is not an interval in seconds")
        for name in ("restart_cost", "checkpoint_cost", "drain"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise UsageError(f"{name} = {getattr(self, name)} is not a time in seconds")


# ── the terms of a job ──

NOT_SAID, MAY_STOP, MUST_RUN, MAY_STOP_ONCE = range(4)  # whether a job may be stopped, as kernels know it
ONCE_WITHIN = 900.0  # s of its run in which a rank rule may stop a job that may be stopped once: later too much would be lost
FLAGS = {"no": 0.0, "yes": 1.0, "once": 2.0}  # values of the column `preemptible`; NaN: the job does not say
STATED = ("preemptible", "checkpoint", "checkpoint_cost", "drain", "restart_cost")  # columns that a table of jobs may have


class TermsRow(RecordRow):
    """The terms of a job as kernels know them: what it says itself, and what the rules say for the rest."""

    stops: i8  # NOT_SAID, MAY_STOP or MUST_RUN
    interval: f8  # s on the devices between checkpoints; 0: nothing is lost, inf: all is
    restart: f8  # s on the devices before work goes on after a stop: restart cost and drain
    writing: f8  # part of the time on the devices that is work; the rest is spent on writing checkpoints


TERMS = row_dtype(TermsRow)


@dataclass(frozen=True)
class StopTerms:
    """On what terms a job may be stopped; NaN: as the rules say. `preemptible` None: the job does not say."""

    preemptible: bool | None = None
    checkpoint: float = math.nan  # s between checkpoints
    checkpoint_cost: float = math.nan  # s that one takes to write
    drain: float = math.nan  # s that a stop takes
    restart_cost: float = math.nan  # s that a start after a stop takes
    once: bool = False  # it may be stopped one time, and then begins again and runs to its end

    @property
    def text(self) -> str:
        """Write the terms as a label of jobs: `preemptible=yes checkpoint=600`; empty if the job says nothing."""
        numbers = {name: getattr(self, name) for name in STATED[1:]}
        said = [f"preemptible={word}" for word, value in FLAGS.items() if value == self.flag]
        return " ".join(said + [f"{name}={value!r}".removesuffix(".0") for name, value in numbers.items() if value == value])

    @property
    def flag(self) -> float:
        """The value of the column `preemptible`."""
        return math.nan if self.preemptible is None else float(self.preemptible) + self.once

    def row(self, rules: Rules) -> tuple[int, float, float, float]:
        """Return the fields of TERMS, with the rules where the job says nothing."""
        stops = NOT_SAID if self.preemptible is None else MUST_RUN if not self.preemptible else MAY_STOP_ONCE if self.once else MAY_STOP
        ours = rules if self.preemptible else Rules()
        every = _given(self.checkpoint, math.inf if self.once else rules.checkpoint)
        cost = _given(self.checkpoint_cost, ours.checkpoint_cost) if 0 < every < math.inf else 0.0
        restart = _given(self.restart_cost, rules.restart_cost) + _given(self.drain, ours.drain)
        return stops, every + cost, restart, every / (every + cost) if cost > 0 else 1.0


def _given(own: float, otherwise: float) -> float:
    return own if own == own else otherwise


@lru_cache(maxsize=4096)
def parse_terms(text: str) -> StopTerms:
    """Read what `StopTerms.text` writes; anything else is refused."""
    given: dict[str, float | bool] = {}
    parse_conditions(conditions_in(text))
    for part in text.split():
        name, _, value = part.partition("=")
        if name in STATES:
            continue
        if name not in STATED or name in given:
            raise DataError(f"terms {text[:80]!r}: {part[:40]!r} is not one of {', '.join((*STATED, *STATES))}")
        if name == "preemptible" and value in FLAGS:
            given |= {name: value != "no", "once": value == "once"}
        else:
            given[name] = _amount(name, value, text)
    return StopTerms(**given)  # type: ignore[arg-type]


def conditions_in(text: str) -> str:
    """Return the part of a job's terms that says when it may start, see `gpuyard.model.site.eligibility`."""
    return " ".join(part for part in text.split() if part.partition("=")[0] in STATES) if text else ""


def _amount(name: str, value: str, text: str) -> float:
    try:
        number = float(value) if name != "preemptible" else math.nan
    except ValueError:
        number = math.nan
    if not (0 <= number < math.inf or (name == "checkpoint" and number == math.inf)):
        what = "yes, no or once" if name == "preemptible" else "a time in seconds"
        raise DataError(f"terms {text[:80]!r}: {name} = {value[:40]!r} is not {what}")
    return number


def terms_table(texts: Sequence[str], rules: Rules) -> Array:
    """(2 × labels,) of TERMS: the terms that the labels of a workload stand for; then the same for runs that write no checkpoints.

    The latter differ only where a job may be stopped and writing costs something: nothing is spent, and nothing is kept.
    """
    said = np.array([parse_terms(text).row(rules) for text in texts], TERMS)
    silent = said.copy()
    dear = (said["writing"] < 1) & (said["stops"] == MAY_STOP)
    silent["interval"][dear], silent["writing"][dear] = math.inf, 1.0
    return np.concatenate([said, silent])


def terms_labels(columns: Mapping[str, npt.ArrayLike], count: int, where: str) -> tuple[tuple[str, ...], Array]:
    """Return the labels that stand for the STATED columns of `count` jobs, sorted, and each job's; NaN: the job does not say.

    `preemptible` is one of FLAGS or NaN.
    """
    given = np.full((count, len(STATED)), np.nan)
    for k, name in enumerate(STATED):
        if name in columns:
            column = np.atleast_1d(np.asarray(columns[name], np.float64))
            if column.shape != (count,):
                raise DataError(f"{where}: column {name!r} has {column.size} values for {count} jobs")
            given[:, k] = column
            _check_stated(name, column, where)
    distinct, place = np.unique(np.where(np.isnan(given), -1.0, given), axis=0, return_inverse=True)
    texts = [_text_of(row) for row in distinct.tolist()]
    order = sorted(range(len(texts)), key=texts.__getitem__)
    number = np.empty(len(texts), np.int32)
    number[order] = np.arange(len(texts))
    return tuple(texts[k] for k in order), number[place.ravel()]


def _check_stated(name: str, column: Array, where: str) -> None:
    known = np.isnan(column) | (np.isin(column, list(FLAGS.values())) if name == "preemptible" else column >= 0)
    bad = ~known if name in ("preemptible", "checkpoint") else ~(known & ~np.isinf(column))
    if bad.any():
        row = int(np.argmax(bad))
        what = "0, 1 or 2" if name == "preemptible" else "a time in seconds"
        raise DataError(f"{where}: row {row + 1}: {name} = {column[row]!s} is not {what}")


def _text_of(row: list[float]) -> str:
    numbers = [math.nan if value < 0 else value for value in row]
    flag, *amounts = numbers
    checkpoint, cost, drain, restart = amounts
    return StopTerms(None if math.isnan(flag) else flag > 0, checkpoint, cost, drain, restart, once=flag == FLAGS["once"]).text


def terms_columns(texts: Sequence[str], terms: Array) -> dict[str, Array]:
    """Return the STATED columns that some job states, with NaN for the others: the inverse of `terms_labels`."""
    said = [parse_terms(text) for text in texts]
    rows = np.array([[each.flag, *(getattr(each, name) for name in STATED[1:])] for each in said], np.float64)
    found = {name: rows[terms, k] for k, name in enumerate(STATED)}
    return {name: column for name, column in found.items() if not np.isnan(column).all()}
