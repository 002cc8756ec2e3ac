"""A workload: jobs, the hidden truth about them, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from gpuyard.arrays import Array
from gpuyard.errors import DataError
from gpuyard.model.jobs import Jobs
from gpuyard.model.units import MAX_TIME
from gpuyard.views import Displayed, above

if TYPE_CHECKING:
    from gpuyard.model.estimator import Predictor


@dataclass(frozen=True)
class Machine:
    """A node that a trace shows, with the stated or the largest observed resources; 0 cpus or memory: not known."""

    name: str
    gpus: int = 0
    cpus: float = 0.0
    memory: float = 0.0  # GB
    gpu_type: str = ""
    partitions: tuple[str, ...] = ()  # of the jobs that ran on it


@dataclass(frozen=True, eq=False)
class Workload(Displayed):
    """Jobs with their hidden run times. `estimate_source` says where `jobs.estimate` came from.

    `requested` and `given` become `exact` where no job requests a time and the run times stand in for it.
    With a `predictor` the estimates are made in each simulation, when jobs are submitted; `jobs.estimate` is only what is believed before.
    """

    jobs: Jobs
    runtime: Array  # (jobs,) s of work on a reference GPU; hidden from every scheduler
    name: str = "workload"
    estimate_source: str = "requested"
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # reason → rows
    logged_start: Array | None = None  # (jobs,) s, when the log says the job started; nan: never
    notes: tuple[str, ...] = ()  # facts to print for the user
    machines: tuple[Machine, ...] = ()  # nodes that the trace shows
    preset: str = ""  # the cluster preset that belongs to the trace
    predictor: Predictor | None = None  # makes the estimates inside each simulation; None: they are those of the jobs
    phases: tuple[tuple[float, str], ...] = ()  # (s, regime): where a regime of arrivals begins; empty: nobody says

    def __post_init__(self) -> None:
        columns = {"runtime": self.runtime} | ({} if self.logged_start is None else {"logged_start": self.logged_start})
        for name, column in columns.items():
            if np.shape(column) != (len(self.jobs),):
                raise DataError(f"{self.name}: {name} has {np.size(column)} values for {len(self.jobs)} jobs")
        submit = self.jobs.submit
        if (submit[1:] < submit[:-1]).any():
            raise DataError(
                f"{self.name}: the jobs are not in the order of their submits", hint="make them with Workload.build, which sorts"
            )
        if self._stand_ins and self._stand_ins == len(self):
            object.__setattr__(self, "estimate_source", "exact")

    @classmethod
    def build(
        cls,
        columns: Mapping[str, npt.ArrayLike],
        runtime: npt.ArrayLike,
        *,
        name: str = "workload",
        users: Sequence[str] = ("",),
        partitions: Sequence[str] = ("",),
        classes: Sequence[str] = ("",),
        gpu_types: Sequence[str] = ("",),
        qoses: Sequence[str] = ("",),
        accounts: Sequence[str] = ("",),
        term_texts: Sequence[str] = ("",),
        dropped: Mapping[str, int] | None = None,
        logged_start: npt.ArrayLike | None = None,
        notes: Sequence[str] = (),
        machines: Sequence[Machine] = (),
        preset: str = "",
    ) -> Workload:
        """Check and sort the jobs. A missing `estimate` becomes the walltime, or the runtime if there is no walltime.

        The source of the estimates is `given` if the column `estimate` has any value, else `requested`.
        """
        jobs, order = Jobs.build(
            columns, users=users, partitions=partitions, classes=classes, gpu_types=gpu_types, qoses=qoses, accounts=accounts,
            term_texts=term_texts, where=name,
        )  # fmt: skip
        truth = np.atleast_1d(np.asarray(runtime, dtype=np.float64))
        if truth.shape != (len(jobs),):
            raise DataError(f"{name}: {truth.size} runtimes for {len(jobs)} jobs")
        bad = ~((truth >= 0) & (truth <= MAX_TIME))
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{name}: row {row + 1}: runtime = {truth[row]!s} is not a time in 0..{MAX_TIME:g} s")
        start = None if logged_start is None else np.atleast_1d(np.asarray(logged_start, dtype=np.float64))
        if start is not None:
            if start.shape != (len(jobs),):
                raise DataError(f"{name}: {start.size} logged starts for {len(jobs)} jobs")
            start = start[order]
        truth, missing = truth[order], np.isnan(jobs.estimate)
        if missing.any():
            # in place: the table was made above and is not shared yet; a checked copy of a million jobs takes 0.7 s
            jobs.table["estimate"] = np.where(missing, _requested(jobs, truth), jobs.estimate)
        return cls(
            jobs, truth, name, "requested" if missing.all() else "given",
            dropped=MappingProxyType(dict(dropped or {})), logged_start=start, notes=tuple(notes), machines=tuple(machines), preset=preset,
        )  # fmt: skip

    @classmethod
    def from_frame(cls, frame: object, *, columns: Mapping[str, str] | None = None, unit: str = "s", name: str = "frame") -> Workload:
        """Make a workload of a pandas or polars frame, or of a dictionary of columns: one row per job.

        Columns and rules are those of a table read from a file: `submit`, and `runtime` or both `start` and `end`, are needed; `columns`
        maps our names to the frame's. Users, partitions and other labels are texts. Times are dates, time deltas or numbers in `unit` (us,
        ms, s, min, h, d). Rows without submit, run time or GPUs are dropped and counted.
        """
        made: Workload = above("frames").workload_from(frame, columns or {}, unit, name)
        return made

    def __len__(self) -> int:
        return len(self.jobs)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Workload):
            return NotImplemented
        mine = (self.name, self.estimate_source, dict(self.dropped), self.notes)
        theirs = (other.name, other.estimate_source, dict(other.dropped), other.notes)
        starts = [b"" if w.logged_start is None else w.logged_start.tobytes() for w in (self, other)]
        return mine == theirs and starts[0] == starts[1] and self.jobs == other.jobs and self.runtime.tobytes() == other.runtime.tobytes()

    __hash__ = None  # type: ignore[assignment]

    @property
    def known_start(self) -> Array:
        """(jobs,) s, when the job started by the log; nan if the log does not say, or names a time before the submit."""
        start = np.full(len(self), np.nan) if self.logged_start is None else self.logged_start
        with np.errstate(invalid="ignore"):
            known: Array = np.where(start >= self.jobs.submit, start, np.nan)
        return known

    def requested(self) -> Array:
        """Return the requested time of each job, or the run time if none was requested: (jobs,) s."""
        return _requested(self.jobs, self.runtime)

    @cached_property
    def _stand_ins(self) -> int:
        """Count the jobs that request no time, so that their run times stand in for it; none under other sources of estimates."""
        if self.estimate_source not in ("requested", "given", "exact"):
            return 0
        return int((np.isinf(self.jobs.walltime) & (self.jobs.estimate == self.runtime)).sum())

    @property
    def estimates(self) -> str:
        """Say what the estimates are, for headers, tables and manifests: their source, and for how many jobs they are exact instead."""
        if not self._stand_ins or self.estimate_source == "exact":
            return self.estimate_source
        return f"{self.estimate_source}; exact for {self._stand_ins:,} of {len(self):,} jobs"

    @property
    def all_notes(self) -> tuple[str, ...]:
        """Return the notes, with one about run times that stand in for requested times."""
        if self._stand_ins and self._stand_ins == len(self):
            return (*self.notes, "no requested times: estimates are the run times")
        if not self._stand_ins or self.estimate_source == "exact":
            return self.notes
        return (*self.notes, f"{self._stand_ins:,} of {len(self):,} jobs have no requested time: their estimates are the run times")

    def with_made_estimates(self, estimate: Array) -> Workload:
        """Return the workload with the estimates (jobs,) s that a predictor has made."""
        table = self.jobs.table.copy()
        table["estimate"] = estimate
        return replace(self, jobs=self.jobs.with_table(table), predictor=None)

    def head(self, count: int) -> Workload:
        """Return the first `count` jobs."""
        return self.take(np.arange(min(count, len(self))))

    def take(self, rows: Array) -> Workload:
        """Return the jobs at ascending positions with unchanged times, and only their users."""
        table = self.jobs.table[rows].copy()
        table["index"] = np.arange(len(table))
        used, table["user"] = np.unique(table["user"], return_inverse=True)
        jobs = replace(self.jobs.with_table(table), users=tuple(self.jobs.users[k] for k in used) or ("",))
        start = None if self.logged_start is None else self.logged_start[rows]
        return replace(self, jobs=jobs, runtime=self.runtime[rows], logged_start=start)

    def pseudonyms(self) -> dict[str, str]:
        """Map each user to `user-1`, `user-2` …, in the order of their first jobs; nobody stays nobody."""
        _, first = np.unique(self.jobs.user, return_index=True)
        users = [self.jobs.users[k] for k in self.jobs.user[np.sort(first)].tolist()]
        return {user: f"user-{k + 1}" for k, user in enumerate(filter(None, users))}

    def with_users(self, names: Mapping[str, str]) -> Workload:
        """Rename the users; one without a new name loses the old one."""
        return replace(self, jobs=replace(self.jobs, users=tuple(names.get(user, "") for user in self.jobs.users)))


def _requested(jobs: Jobs, runtime: Array) -> Array:
    return np.where(np.isfinite(jobs.walltime), jobs.walltime, runtime)
