"""Jobs: the visible columns of a workload, one row per job, sorted by submit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from gpuyard.arrays import Array, RecordRow, row_dtype
from gpuyard.errors import DataError
from gpuyard.model.rules import STATED, conditions_in, parse_terms, terms_columns, terms_labels
from gpuyard.model.units import MAX_TIME

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i2, i4, i8


class JobColumns(RecordRow):
    """The columns of a job that policies see from its submission on."""

    submit: f8  # s from the workload's origin
    gpus: f8  # 0: CPU job; 0 < share < 1: part of one device; else a whole number
    estimate: f8  # s on a reference GPU, as schedulers see it
    walltime: f8  # s, the requested limit; inf: none
    deadline: f8  # s from the origin; inf: none
    cpus: f8  # cores in all
    memory: f8  # GB in all
    transfer: f8  # s on the devices before work begins
    priority: f8  # higher is more important
    user: i4  # into Jobs.users
    partition: i4  # into Jobs.partitions
    job_class: i4  # into Jobs.classes: the row of the speed table
    chunk: i4  # GPUs that must be on one node; 1: any spread
    gpu_type: i2  # into Jobs.gpu_types: "" any, "a100" or "a100|v100"
    qos: i2  # into Jobs.qoses: the requested quality of service
    account: i4  # into Jobs.accounts: the account that pays
    terms: i4  # into Jobs.term_texts: on what terms the job may be stopped, see gpuyard.model.rules
    index: i4  # position by (submit, order given): breaks every tie


class SubmittedRow(JobColumns):
    """A job as it was submitted. The columns before `id` fill a multiple of 8 bytes, so that rows have no gaps."""

    id: i8  # the job's number in its trace


JOB = row_dtype(SubmittedRow, align=False)
COLUMNS: tuple[str, ...] = tuple(JOB.names or ())
LABELS = {  # column of label numbers → attribute with the labels
    "user": "users", "partition": "partitions", "job_class": "classes", "gpu_type": "gpu_types", "qos": "qoses", "account": "accounts",
    "terms": "term_texts",
}  # fmt: skip
MAX_GPUS = 1_000_000  # per job; more is a broken trace
LEAST_SHARE = 0.001  # of a device; the tolerance of comparisons, 1e-6, must be small against it

_DEFAULTS: dict[str, float] = {"gpus": 1.0, "estimate": np.nan, "walltime": np.inf, "deadline": np.inf, "chunk": 1.0}


@dataclass(frozen=True, eq=False)
class Jobs:
    """The visible columns, as attributes: `jobs.submit`, `jobs.gpus` … (read-only arrays of shape (jobs,)).

    Storage is one record per job, so that a compiled policy that reads several columns of a job touches
    one or two cache lines. Make one with `Jobs.build`.
    """

    table: Array  # (jobs,) of JOB
    users: tuple[str, ...] = ("",)
    partitions: tuple[str, ...] = ("",)
    classes: tuple[str, ...] = ("",)
    gpu_types: tuple[str, ...] = ("",)
    qoses: tuple[str, ...] = ("",)
    accounts: tuple[str, ...] = ("",)
    term_texts: tuple[str, ...] = ("",)
    # Never copied by dataclasses.replace: views of another table under this one's name once sent the engine round and round.
    _columns: dict[str, Array] = field(default_factory=dict, init=False, repr=False)
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what others work out once, by name

    def __post_init__(self) -> None:
        if not (isinstance(self.table, np.ndarray) and self.table.ndim == 1 and self.table.dtype == JOB):
            raise DataError(
                "jobs: the table is not one row of JOB per job", hint="make jobs with Jobs.build, change them with jobs.replace"
            )

    @classmethod
    def build(
        cls,
        columns: Mapping[str, npt.ArrayLike],
        *,
        users: Sequence[str] = ("",),
        partitions: Sequence[str] = ("",),
        classes: Sequence[str] = ("",),
        gpu_types: Sequence[str] = ("",),
        qoses: Sequence[str] = ("",),
        accounts: Sequence[str] = ("",),
        term_texts: Sequence[str] = ("",),
        where: str = "jobs",
    ) -> tuple[Jobs, Array]:
        """Check, sort by submit (stable) and store the columns; return also the order, to sort hidden columns in the same way.

        A missing column gets its default; `id` defaults to 1, 2, 3 … A bad value is refused with its field and row. The columns
        `preemptible`, `checkpoint`, `checkpoint_cost`, `drain` and `restart_cost` are kept as the labels `term_texts`.
        """
        if "submit" not in columns:
            raise DataError(f"{where}: no column 'submit'")
        columns, term_texts = _with_terms(columns, term_texts, where)
        unknown = set(columns) - set(COLUMNS)
        if unknown:
            raise DataError(f"{where}: unknown column {min(unknown)!r}", hint="columns: " + ", ".join(COLUMNS))
        n = len(np.atleast_1d(np.asarray(columns["submit"])))
        table = np.zeros(n, JOB)
        table["id"] = np.arange(1, n + 1)
        for name, value in _DEFAULTS.items():
            table[name] = value
        for name, values in columns.items():
            column = np.atleast_1d(np.asarray(values))
            if column.shape != (n,):
                raise DataError(f"{where}: column {name!r} has {column.size} values, 'submit' has {n}")
            check_column(column, name, where)
            table[name] = column
        made = cls(table, tuple(users), tuple(partitions), tuple(classes), tuple(gpu_types), tuple(qoses), tuple(accounts),
                   tuple(term_texts))  # fmt: skip
        made.check(where)
        order = np.arange(n)
        if (table["submit"][1:] < table["submit"][:-1]).any():  # most logs are in order; a sort of 1 M wide rows takes 0.3 s
            order = np.argsort(table["submit"], kind="stable")
            table = table[order]
        table["index"] = np.arange(n)
        return made.with_table(table), order

    def __len__(self) -> int:
        return len(self.table)

    def __getattr__(self, name: str) -> Array:
        if name not in COLUMNS:
            raise AttributeError(f"Jobs has no column {name!r}")
        columns = self.__dict__["_columns"]
        if name not in columns:
            view = self.__dict__["table"][name]
            view.flags.writeable = False
            columns[name] = view
        return columns[name]  # type: ignore[no-any-return]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Jobs):
            return NotImplemented
        return self.labels == other.labels and self.table.tobytes() == other.table.tobytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def labels(self) -> dict[str, tuple[str, ...]]:
        """The labels by the name of their attribute: `users`, `partitions` …"""
        return {name: getattr(self, name) for name in LABELS.values()}

    @property
    def stated(self) -> dict[str, Array]:
        """The columns of STATED that some job states, (jobs,) f8 each: 1 or 0 for `preemptible`, else seconds; NaN: it does not say."""
        return terms_columns(self.term_texts, self.terms)

    def with_stated(self, **columns: npt.ArrayLike) -> Jobs:
        """Return a copy with other values in some columns of STATED."""
        texts, numbers = terms_labels({**self.stated, **columns}, len(self), "jobs")
        made = replace(self, term_texts=texts or ("",)).replace(terms=numbers)
        return made.with_conditions(self.conditions) if any(map(conditions_in, self.term_texts)) else made

    @property
    def conditions(self) -> list[str]:
        """Return for each job when it may start, as far as it says it: `held=yes`, `delay=60 after=12`, …"""
        texts = [conditions_in(text) for text in self.term_texts]
        return [texts[number] for number in self.terms.tolist()]

    def with_conditions(self, conditions: Sequence[str]) -> Jobs:
        """Return a copy with other conditions, one text for each job."""
        stops = [" ".join(part for part in text.split() if part not in conditions_in(text).split()) for text in self.term_texts]
        whole = [f"{stops[number]} {own}".strip() for number, own in zip(self.terms.tolist(), conditions, strict=True)]
        texts = sorted(set(whole)) or [""]
        for text in texts:
            parse_terms(text)
        place = {text: number for number, text in enumerate(texts)}
        return replace(self, term_texts=tuple(texts)).replace(terms=[place[text] for text in whole])

    def _label_counts(self) -> dict[str, int]:
        return {column: len(getattr(self, name)) for column, name in LABELS.items()}

    def with_table(self, table: Array) -> Jobs:
        """Return other rows with the same labels."""
        return replace(self, table=table)

    def replace(self, **columns: npt.ArrayLike) -> Jobs:
        """Return a copy with other values in some columns, in the present order; submit and index stay."""
        table = self.table.copy()
        for name, values in columns.items():
            check_column(np.atleast_1d(np.asarray(values)), name, "jobs")
            table[name] = values
        changed = self.with_table(table)
        changed.check("jobs")
        return changed

    def check(self, where: str) -> None:
        """Refuse values that no job may have, with field and row."""
        _check_table(self.table, self._label_counts(), where)


def _with_terms(
    columns: Mapping[str, npt.ArrayLike], texts: Sequence[str], where: str
) -> tuple[Mapping[str, npt.ArrayLike], Sequence[str]]:
    """Return the columns with STATED ones as labels, and the labels."""
    stated = {name: values for name, values in columns.items() if name in STATED}
    for text in texts:
        parse_terms(text)
    if not stated:
        return columns, texts
    if "terms" in columns:
        raise DataError(f"{where}: column 'terms' and column {min(stated)!r} say the same")
    labels, numbers = terms_labels(stated, len(np.atleast_1d(np.asarray(columns["submit"]))), where)
    return {name: values for name, values in columns.items() if name not in STATED} | {"terms": numbers}, labels


def check_column(values: Array, name: str, where: str) -> None:
    """Refuse values that no column may hold: text, NaN (except in estimate) and infinite times."""
    if values.dtype.kind not in "fiub":
        raise DataError(f"{where}: column {name!r} is not numeric")
    kind = JOB[name]
    if kind.kind == "i":
        limits = np.iinfo(kind)
        with np.errstate(invalid="ignore"):
            # the float nearest to the largest int64 is 2^63, which does not fit
            fits = (values == np.floor(values)) & (values >= limits.min) & (values < float(limits.max) + 1.0)
        _refuse(~fits, name, values, where, f"is not a whole number that fits into {kind.itemsize * 8} bits")
    if values.dtype.kind != "f":
        return
    if name != "estimate":
        _refuse(np.isnan(values), name, values, where, "is not a number")
    if name in ("submit", "transfer", "gpus", "cpus", "memory", "priority"):
        _refuse(np.isinf(values), name, values, where, "is infinite")


def _check_table(table: Array, labels: Mapping[str, int], where: str) -> None:
    t = table
    for name in ("submit", "walltime", "cpus", "memory", "transfer", "gpus"):
        _refuse(t[name] < 0, name, t[name], where, "is negative")
    _refuse(t["submit"] > MAX_TIME, "submit", t["submit"], where, f"is beyond {MAX_TIME:g} s")
    _refuse(t["estimate"] < 0, "estimate", t["estimate"], where, "is negative")
    gpus = t["gpus"]
    _refuse(gpus > MAX_GPUS, "gpus", gpus, where, f"is more than {MAX_GPUS:,}")
    _refuse((gpus > 0) & (gpus < LEAST_SHARE), "gpus", gpus, where, f"is a share below {LEAST_SHARE:g}")
    _refuse((gpus > 1) & (gpus != np.floor(gpus)), "gpus", gpus, where, "is neither a whole number nor a share below 1")
    _refuse((gpus == 0) & (t["cpus"] == 0) & (t["memory"] == 0), "gpus", gpus, where, "is 0 and no cpus or memory are requested")
    chunk = t["chunk"]
    _refuse(chunk < 1, "chunk", chunk, where, "is below 1")
    _refuse((gpus >= 1) & (np.mod(gpus, np.maximum(chunk, 1)) != 0), "chunk", chunk, where, "does not divide gpus")
    for name, size in labels.items():
        _refuse((t[name] < 0) | (t[name] >= size), name, t[name], where, f"has no label (there are {size})")
    ids = t["id"]
    if len(ids) and (ids[1:] <= ids[:-1]).any():  # not ascending: only then is the sort worth its time
        unique, first = np.unique(ids, return_index=True)
        if len(unique) != len(ids):
            repeated = np.setdiff1d(np.arange(len(ids)), first)
            mask = np.zeros(len(ids), bool)
            mask[repeated] = True
            _refuse(mask, "id", ids, where, "occurs twice")


def _refuse(bad: Array, name: str, values: Array, where: str, why: str) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        raise DataError(f"{where}: row {row + 1}: {name} = {values[row]!s} {why}")
