"""Reads what a deployment has logged over days: which jobs ended how, what the scheduler would have done, how far it differs from the site.

The lines are untrusted text: what is not as expected is left out and counted.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from gpuyard.errors import DataError, GpuyardError
from gpuyard.files import from_plain
from gpuyard.live.guards import started_waits
from gpuyard.live.log import each_line
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict
from gpuyard.model.workload import Workload

FEWEST_JOBS = 30
_NUMBERS = ("submit", "start", "ran", "gpus", "chunk", "cpus", "nodes")


@dataclass
class ShadowLog:
    """Keeps what the lines of a log say together."""

    scheduler: str = ""
    jobs: dict[tuple[str, float], Mapping[str, Any]] = field(default_factory=dict, repr=False)  # that ended, by name and submission
    cluster: Cluster | None = field(default=None, repr=False)
    cycles: int = 0
    errors: int = 0
    acted: int = 0  # cycles in which updates were sent
    broken: int = 0  # parts of lines that could not be read
    first: float = math.inf  # s since 1970
    last: float = -math.inf
    disorder: list[float] = field(default_factory=list, repr=False)  # of each cycle: the share of waiting jobs out of order
    waits: list[float] = field(default_factory=list, repr=False)  # s, of jobs that started
    leads: list[float] = field(default_factory=list, repr=False)  # s by which the scheduler named a job before it started; nan: it did not
    _named: dict[str, float] = field(default_factory=dict, repr=False)  # waiting job → when the scheduler would first have started it

    def add(self, record: Mapping[str, Any]) -> None:
        """Take a line into account."""
        try:
            now = float(record["t"])
            if not math.isfinite(now):
                raise ValueError("not a time")
        except (KeyError, TypeError, ValueError):
            self.broken += 1
            return
        self.first, self.last, self.cycles = min(self.first, now), max(self.last, now), self.cycles + 1
        if "error" in record:
            self.errors += 1
            return
        self.acted += bool(record.get("acts"))
        self.scheduler = str(record.get("scheduler", self.scheduler))[:200]
        self._add_starts(record, now)
        waiting, moved = record.get("waiting"), record.get("out_of_order")
        if isinstance(waiting, int) and isinstance(moved, int) and 0 <= moved <= waiting and waiting:
            self.disorder.append(moved / waiting)
        for job in _listed(record, "ended"):
            self._add_job(job)
        if "cluster" in record:
            try:
                self.cluster = cluster_from_dict(from_plain(record["cluster"]), where="log: cluster")
            except (GpuyardError, TypeError):
                self.broken += 1

    def _add_starts(self, record: Mapping[str, Any], now: float) -> None:
        self.waits += started_waits(record)
        for pair in _listed(record, "started"):
            name = str(pair[0]) if isinstance(pair, list) and pair else ""
            self.leads.append(now - self._named.pop(name) if name in self._named else math.nan)
        for pair in _listed(record, "would_start"):
            if isinstance(pair, list) and pair:
                self._named.setdefault(str(pair[0]), now)

    def _add_job(self, job: object) -> None:
        good = isinstance(job, dict) and all(isinstance(job.get(name), int | float) and 0 <= job[name] < 1e12 for name in _NUMBERS)
        if not good or not isinstance(job, dict) or job["start"] < job["submit"]:
            self.broken += 1
            return
        self.jobs[str(job.get("job", ""))[:80], float(job["submit"])] = job

    @property
    def days(self) -> float:
        """Days from the first line to the last."""
        return max(self.last - self.first, 0.0) / 86_400

    def workload(self) -> tuple[Workload, Cluster]:
        """Return the jobs that ended, with when they started, and the cluster; refuse a log that has too few."""
        if self.cluster is None or len(self.jobs) < FEWEST_JOBS:
            what = f"{len(self.jobs)} jobs ended while it was written; {FEWEST_JOBS} are needed" if self.cluster else "it names no cluster"
            raise DataError(f"shadow log: {what}", hint="let gpuyard deploy … --shadow run for longer: a week shows nights and weekends")
        jobs = sorted(self.jobs.values(), key=lambda job: (job["submit"], str(job["job"])))
        origin = float(jobs[0]["submit"])
        users, kinds = _numbered([str(job.get("user", ""))[:80] for job in jobs]), _numbered([_types(job, self.cluster) for job in jobs])
        homes = _numbered([_home(job, self.cluster) for job in jobs])
        columns = {
            "submit": [job["submit"] - origin for job in jobs], "gpus": [job["gpus"] for job in jobs],
            "chunk": [max(int(job["chunk"]), 1) for job in jobs], "cpus": [job["cpus"] for job in jobs],
            "walltime": [_limit(job) for job in jobs], "user": users[0], "gpu_type": kinds[0], "partition": homes[0],
        }  # fmt: skip
        made = Workload.build(
            columns, np.array([float(job["ran"]) for job in jobs]), name="shadow log", users=users[1], gpu_types=kinds[1],
            partitions=homes[1], logged_start=[job["start"] - origin for job in jobs],
        )  # fmt: skip
        return made, self.cluster


def read_shadow(log: Path) -> ShadowLog:
    """Read a log and its older files."""
    found = ShadowLog()
    for record in each_line(log):
        found.add(record)
    if not found.cycles:
        raise DataError(f"{log}: is not the log of a deployment", hint="gpuyard deploy slurm --shadow --log FILE writes one")
    return found


def _listed(record: Mapping[str, Any], name: str) -> list[object]:
    found = record.get(name)
    return found if isinstance(found, list) else []


def _numbered(values: Sequence[str]) -> tuple[list[int], tuple[str, ...]]:
    """Return the number of each value, and the values once each."""
    places = {value: k for k, value in enumerate(dict.fromkeys(values))}
    return [places[value] for value in values], tuple(places)


def _limit(job: Mapping[str, Any]) -> float:
    try:
        found = float(job.get("limit", "inf"))
    except (TypeError, ValueError):
        return math.inf
    return max(found, float(job["ran"])) if found > 0 else math.inf


def _home(job: Mapping[str, Any], cluster: Cluster) -> str:
    """Return the first of a job's partitions that the cluster has."""
    names = str(job.get("partition", "")).split(",")
    return next((name for name in names if name in cluster.partition_numbers), names[0][:80])


def _types(job: Mapping[str, Any], cluster: Cluster) -> str:
    """Return the types of nodes that a job may use: those of its GPUs, in its partitions; empty for any."""
    wanted, homes = str(job.get("type", "")), set(str(job.get("partition", "")).split(","))
    every = [kind.name for kind in cluster.types]
    apart = [(kind, *kind.partition("@")[::2]) for kind in every]
    fits = [kind for kind, plain, where in apart if wanted in ("", plain) and (not where or homes & set(where.split("+")))]
    return "" if len(fits) == len(every) else "|".join(fits) or wanted[:80]
