"""A workload: jobs, the hidden truth about them, and where they came from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np
import numpy.typing as npt

from gpuyard.errors import DataError, UsageError
from gpuyard.model.jobs import MAX_TIME, Array, Jobs


@dataclass(frozen=True, eq=False)
class Workload:
    """Jobs with their hidden run times. `estimate_source` says where `jobs.estimate` came from."""

    jobs: Jobs
    runtime: Array  # (jobs,) s of work on a reference GPU; hidden from every scheduler
    name: str = "workload"
    estimate_source: str = "requested"
    dropped: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))  # reason → rows
    logged_start: Array | None = None  # (jobs,) s, when the log says the job started; nan: never
    notes: tuple[str, ...] = ()  # facts a reader should see printed

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
        dropped: Mapping[str, int] | None = None,
        logged_start: npt.ArrayLike | None = None,
        notes: Sequence[str] = (),
    ) -> Workload:
        """Check and sort. Where no `estimate` is given it is the walltime, or the runtime where there is none."""
        jobs, order = Jobs.build(columns, users=users, partitions=partitions, classes=classes, gpu_types=gpu_types, where=name)
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
        made = cls(
            jobs, truth[order], name,
            dropped=MappingProxyType(dict(dropped or {})), logged_start=start, notes=tuple(notes),
        )  # fmt: skip
        if np.isnan(jobs.estimate).any():
            given = np.where(np.isnan(jobs.estimate), made._requested(), jobs.estimate)
            made = replace(made, jobs=jobs.replace(estimate=given))
        elif len(jobs) and "estimate" in columns:
            made = replace(made, estimate_source="given")
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

    def _requested(self) -> Array:
        return np.where(np.isfinite(self.jobs.walltime), self.jobs.walltime, self.runtime)

    def with_estimate(self, source: str, seed: int = 0) -> Workload:
        """The same jobs with estimates from `source`: `requested`, `exact`, or `noisy:S` (× exp(N(0, S)), S = 0.5 unless given)."""
        kind, _, argument = source.partition(":")
        if kind == "given" and not argument:
            return self
        if kind == "requested" and not argument:
            estimate = self._requested()
        elif kind == "exact" and not argument:
            estimate = self.runtime
        elif kind == "noisy":
            estimate = self.runtime * self._noise(source, argument, seed)
        else:
            raise UsageError(f"unknown estimate source {source!r}", hint="use requested, exact or noisy:S")
        return replace(self, jobs=self.jobs.replace(estimate=estimate), estimate_source=source)

    def _noise(self, source: str, argument: str, seed: int) -> Array:
        try:
            sigma = float(argument or 0.5)
        except ValueError:
            raise UsageError(f"estimate source {source!r}: {argument!r} is not a number") from None
        if not 0 <= sigma <= 10:
            raise UsageError(f"estimate source {source!r}: the spread must lie in 0..10")
        generator = np.random.default_rng([seed, 0x657374])  # a stream of its own: workloads use other ones
        return np.exp(generator.normal(0.0, sigma, len(self)))

    def head(self, count: int) -> Workload:
        """The first `count` jobs."""
        return self.take(np.arange(min(count, len(self))))

    def take(self, rows: Array) -> Workload:
        """Some of the jobs (ascending positions), with their times as they are."""
        table = self.jobs.table[rows].copy()
        table["index"] = np.arange(len(table))
        jobs = Jobs(table, self.jobs.users, self.jobs.partitions, self.jobs.classes, self.jobs.gpu_types)
        start = None if self.logged_start is None else self.logged_start[rows]
        return replace(self, jobs=jobs, runtime=self.runtime[rows], logged_start=start)
