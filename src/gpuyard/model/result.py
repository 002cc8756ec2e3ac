"""The result of a run: one row per job, a timeline, and a manifest that says how it was made."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from os import PathLike
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from gpuyard.arrays import Array, RecordRow, row_dtype
from gpuyard.errors import DataError
from gpuyard.files import from_plain, to_plain
from gpuyard.model.cluster import Cluster
from gpuyard.model.cluster_file import cluster_from_dict, cluster_to_dict
from gpuyard.model.fields import Fields
from gpuyard.model.jobs import COLUMNS, JOB, LABELS
from gpuyard.model.storage import ARRAYS, MANIFEST, read_folder, save_folder
from gpuyard.model.workload import Workload
from gpuyard.views import Displayed, above

if TYPE_CHECKING:
    from gpuyard.arrays import f8, i2, i4, u8

STATUS = ("pending", "waiting", "running", "done", "killed", "rejected")
REASONS = (
    "",
    "no such partition",
    "no such GPU type",
    "more GPUs than its partition has",
    "more cpus or memory than a node has",
    "over the partition's quota",
    "a job that had to succeed first did not",
    "over the limit on submitted jobs",
)


WAITS_FOR = (  # names of gpuyard.model.site.eligibility.REASONS for which jobs of a simulation wait
    "", "held", "begin", "after", "array-limit", "user-limit", "account-limit", "qos-limit", "partition-limit", "site-limit", "reservation",
)  # fmt: skip


class ResultRow(RecordRow):
    """The outcome of a job."""

    start: f8  # s, first start; nan: never started
    end: f8  # s; nan: never ended
    ran: f8  # s on devices, all runs
    gpu_seconds: f8  # ran × gpus
    rate: f8  # work per second in the last run
    nodes: i4  # nodes of the last run
    node: i4  # its first node; -1: never started
    preemptions: i4  # times stopped and requeued, failures included
    status: i2  # into STATUS
    reason: i2  # into REASONS


ROW = row_dtype(ResultRow)


class TimelineRow(RecordRow):
    """A stretch of time."""

    time: f8  # s, where it begins
    span: f8  # s, how much of it was simulated
    queue: f8  # jobs waiting, mean over the span
    queue_max: f8
    busy: f8  # GPUs in use, mean
    up: f8  # GPUs not out of order, mean


BIN = row_dtype(TimelineRow, align=False)


class SegmentRow(RecordRow):
    """A part of one run, on one node."""

    job: i4  # index
    node: i4
    gpus: f8
    devices: u8  # bit set of device numbers; 0: a pool or a CPU job
    start: f8
    end: f8


SEGMENT = row_dtype(SegmentRow, align=False)


class IneligibleRow(RecordRow):
    """For how long a job that was submitted could not have started for one reason, whatever was free."""

    job: i4  # index
    reason: i4  # into WAITS_FOR
    seconds: f8


INELIGIBLE = row_dtype(IneligibleRow)


FORMAT, VERSION = "gpuyard-result", 3
_F8 = np.dtype("f8")
_DTYPES = {"jobs": JOB, "runtime": _F8, "logged_start": _F8, "table": ROW, "timeline": BIN, "segments": SEGMENT,
           "ineligible": INELIGIBLE}  # fmt: skip
_OPTIONAL = frozenset({"logged_start", "ineligible"})


@dataclass(frozen=True, eq=False)
class Result(Displayed):
    """One simulated or measured run. Arrays are read-only; `totals` are run-wide sums by name."""

    workload: Workload
    cluster: Cluster
    scheduler: str  # as it is written: sjf/fewest/easy
    seed: int
    table: Array  # (jobs,) of ROW, in index order
    timeline: Array  # (bins,) of BIN
    segments: Array  # (parts,) of SEGMENT; empty unless asked for
    totals: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))  # sums over the run, by name
    manifest: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))  # how it was made
    ineligible: Array = field(default_factory=lambda: np.zeros(0, INELIGIBLE))  # of INELIGIBLE, by job and reason; empty: all always were
    derived: dict[str, Any] = field(default_factory=dict, init=False, repr=False)  # what metrics work out once, by name

    def __len__(self) -> int:
        return len(self.table)

    def same_bytes(self, other: Result) -> bool:
        """Return whether everything computed is equal; the manifest (clock times, platform) is not compared."""
        names = ("table", "timeline", "segments", "ineligible")
        arrays = [(getattr(self, name), getattr(other, name)) for name in names]
        return all(a.tobytes() == b.tobytes() for a, b in arrays) and dict(self.totals) == dict(other.totals)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Result):
            return NotImplemented
        mine, theirs = ((r.workload, r.cluster, r.scheduler, r.seed, to_plain(r.manifest, "manifest")) for r in (self, other))
        return mine == theirs and self.same_bytes(other)

    __hash__ = None  # type: ignore[assignment]

    def waits(self) -> dict[str, float]:
        """Return for how long jobs could not have started whatever was free, all together (s), by the name of the reason; longest first."""
        sums = np.bincount(self.ineligible["reason"], self.ineligible["seconds"], len(WAITS_FOR))
        return {WAITS_FOR[k]: float(sums[k]) for k in np.argsort(-sums, kind="stable") if sums[k] > 0}

    def jobs(self, kind: str = "polars") -> Any:
        """Return a frame with a row per job, in index order: what was asked for, when it ran, where, and how it ended.

        `kind` is `polars` or `pandas`. Users, partitions, nodes, status and reason are names; times are seconds from the workload's origin.
        """
        return above("frames").jobs_of(self, kind)

    def summary(self, metrics: Sequence[str] = (), *, by: str = "", kind: str = "polars") -> Any:
        """Return a frame with a row per metric, or with `by` (user, partition, job_class, priority …) a row per group of jobs."""
        return above("frames").summary_of(self, metrics, by, kind)

    def gantt(self, start: float | None = None, end: float | None = None) -> Any:
        """Draw which job held which GPUs when, with the queue and the GPUs in use below: a matplotlib figure.

        `start` and `end`, in seconds, choose the window; without them it is all, or the stretch around the longest queue where that is
        too much to see. A large run has to be told to keep it: `segments=True`.
        """
        return above("pictures").gantt(self, start, end)

    def plot_queue(self) -> Any:
        """Draw the jobs waiting and the GPUs in use over time: a matplotlib figure."""
        return above("pictures").queue(self)

    def save(self, path: str | PathLike[str]) -> None:
        """Write a folder, whole or not at all; an earlier result there is replaced, anything else is refused. About 200 bytes a job."""
        save_folder(path, _manifest(self), _arrays(self))

    @classmethod
    def load(cls, path: str | PathLike[str]) -> Result:
        """Read the result from a folder that `save` wrote; it equals what was saved."""
        data, arrays = read_folder(path, _DTYPES, _OPTIONAL)
        where, place = str(Path(path) / MANIFEST), str(Path(path) / ARRAYS)
        root = Fields(data, where)
        if root.text("format", "") != FORMAT:
            raise DataError(f"{where}: not a result", hint=f"a result has format = {FORMAT!r}")
        version = root.whole("version")
        if version != VERSION:
            raise DataError(f"{where}: version {version}; this gpuyard reads version {VERSION}")
        result = cls(
            workload=_workload(root.table("workload"), arrays, place),
            cluster=cluster_from_dict(_mapping(root, "cluster"), where=f"{where}: [cluster]"),
            scheduler=root.text("scheduler", limit=100_000),
            seed=root.whole("seed", low=-(2**63), high=2**64 - 1),
            table=_sealed(arrays["table"]),
            timeline=_sealed(arrays["timeline"]),
            segments=_sealed(arrays["segments"]),
            ineligible=_sealed(arrays.get("ineligible", np.zeros(0, INELIGIBLE))),
            totals=_totals(root, where),
            manifest=MappingProxyType(from_plain(_mapping(root, "manifest"))),
        )
        root.done()
        _check_result(result, place)
        return result


# ── on disk ──


def _manifest(result: Result) -> dict[str, Any]:
    work, cluster = result.workload, cluster_to_dict(result.cluster)
    if cluster_from_dict(cluster) != result.cluster:
        raise DataError(f"cluster {result.cluster.name}: has values that a cluster file cannot hold")
    about: dict[str, Any] = {
        "name": work.name,
        "estimate_source": work.estimate_source,
        "dropped": {reason: int(count) for reason, count in work.dropped.items()},
        "notes": list(work.notes),
    }
    if work.phases:
        about |= {"phase_starts": [float(start) for start, _ in work.phases], "phase_names": [name for _, name in work.phases]}
    return {
        "format": FORMAT,
        "version": VERSION,
        "scheduler": result.scheduler,
        "seed": int(result.seed),
        "workload": about | {key: list(getattr(work.jobs, key)) for key in LABELS.values()},
        "cluster": to_plain(cluster, "cluster"),
        "totals": to_plain(result.totals, "totals"),
        "manifest": to_plain(result.manifest, "manifest"),
    }


def _arrays(result: Result) -> dict[str, Array]:
    work = result.workload
    arrays = {"jobs": work.jobs.table, "runtime": work.runtime}
    if work.logged_start is not None:
        arrays["logged_start"] = work.logged_start
    arrays |= {"table": result.table, "timeline": result.timeline, "segments": result.segments}
    arrays |= {"ineligible": result.ineligible} if len(result.ineligible) else {}
    for name, array in arrays.items():
        if array.dtype != _DTYPES[name]:
            raise DataError(f"result: {name} has dtype {array.dtype}, not {_DTYPES[name]}")
    return arrays


def _mapping(root: Fields, key: str) -> dict[str, Any]:
    root.table(key)  # refuses anything but a table
    value = root.peek(key) if key in root else {}
    return value if isinstance(value, dict) else {}


def _totals(root: Fields, where: str) -> Mapping[str, float]:
    totals = {name: from_plain(value) for name, value in _mapping(root, "totals").items()}
    for name, value in totals.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise DataError(f"{where}: [totals]: {name[:60]!r} is not a number")
    return MappingProxyType(totals)


def _workload(fields: Fields, arrays: Mapping[str, Array], where: str) -> Workload:
    """Rebuild the workload with `Workload.build`, so that it passes every check that a reader's jobs pass."""
    dropped = fields.table("dropped")
    table, logged = arrays["jobs"], arrays.get("logged_start")
    if logged is not None and len(logged) != len(table):
        raise DataError(f"{where}: logged_start has {len(logged)} values for {len(table)} jobs")
    labels: dict[str, Any] = {key: fields.texts(key) for key in LABELS.values()}
    made = Workload.build(
        {column: table[column] for column in COLUMNS},
        arrays["runtime"],
        name=where,
        **labels,
        dropped={reason: dropped.whole(reason) for reason in dropped.names},
        logged_start=logged,
        notes=fields.texts("notes"),
    )
    if made.jobs.table.tobytes() != table.tobytes():
        raise DataError(f"{where}: the jobs are not in order of submit, or lack an estimate")
    made = replace(made, name=fields.text("name", limit=100_000), estimate_source=fields.text("estimate_source"))
    if "phase_starts" in fields:
        starts, names = fields.numbers("phase_starts"), fields.texts("phase_names")
        if len(starts) != len(names):
            raise fields.error("phase_names", f"has {len(names)} names for {len(starts)} phases")
        made = replace(made, phases=tuple(zip(starts, names, strict=True)))
    fields.done()
    return made


def _check_result(result: Result, where: str) -> None:
    """Refuse an index that points at nothing."""
    table, segments, jobs, nodes = result.table, result.segments, len(result.workload), len(result.cluster.nodes)
    if len(table) != jobs:
        raise DataError(f"{where}: {len(table)} rows for {jobs} jobs")
    bounds = (
        ("status", table["status"], 0, len(STATUS)),
        ("reason", table["reason"], 0, len(REASONS)),
        ("node", table["node"], -1, nodes),
        ("segment's job", segments["job"], 0, jobs),
        ("ineligible job", result.ineligible["job"], 0, jobs),
        ("ineligible job's reason", result.ineligible["reason"], 0, len(WAITS_FOR)),
        ("segment's node", segments["node"], 0, nodes),
    )
    for what, values, low, stop in bounds:
        bad = (values < low) | (values >= stop)
        if bad.any():
            row = int(np.argmax(bad))
            raise DataError(f"{where}: row {row + 1}: {what} = {values[row]} is not in {low}..{stop - 1}")


def _sealed(array: Array) -> Array:
    array.flags.writeable = False
    return array
