"""Turns a batch system's records into a Workload: which are jobs, what counts as a device, and what is dropped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from gpuyard.arrays import Array
from gpuyard.model.workload import Machine, Workload
from gpuyard.traces.checks import MAX_ID, check_values, no_usable_job
from gpuyard.traces.origin import origin_note
from gpuyard.traces.readers.batch.machines import NodeLists, Runs, machines_of
from gpuyard.traces.readers.batch.records import PENDING, RUNNING, Coded, Records

Count = Literal["auto", "gpus", "cpus", "nodes"]
Gangs = Literal["free", "as-run"]
_UNITS = {"gpus": "GPU", "cpus": "CPU core", "nodes": "node"}
_KINDS = {"cpus": "cpu", "nodes": "node"}  # device types other than GPUs


class _Sieve:
    """Keeps records and counts the others by the first reason that holds."""

    def __init__(self, size: int, dropped: dict[str, int]) -> None:
        self.kept = np.ones(size, bool)
        self.dropped = dict(dropped)

    def drop(self, reason: str, bad: Array) -> None:
        lost = int((self.kept & bad).sum())
        if lost:
            self.dropped[reason] = self.dropped.get(reason, 0) + lost
        self.kept &= ~bad


@dataclass(frozen=True)
class _Chosen:
    """The records that are jobs, and what each holds in the workload."""

    kept: Array  # positions in the records
    count: str
    gpus: Array  # (kept,) devices
    cpus: Array
    memory: Array
    nodes: Array
    lists: NodeLists


def workload_of(records: Records, *, count: Count = "auto", gangs: Gangs = "free") -> Workload:
    """Drop records that did not run or have not ended, decide what a device is, and build the workload.

    `count`: GPUs, CPU cores or whole nodes are the devices; `auto` takes GPUs where at least half of the jobs have some.
    `gangs`: `as-run` makes jobs keep as many GPUs together on a node as they had, where they can be divided evenly.
    """
    runtime = _runtime(records)
    sieve = _Sieve(len(records), records.dropped)
    _drop_steps(records, sieve)
    _drop_unfinished(records, runtime, sieve)
    _drop_repeated(records, sieve)
    chosen = _choose(records, sieve, count)
    if len(chosen.kept) == 0:
        raise no_usable_job(records.rows.path, sieve.dropped, joint="")
    return _build(records, chosen, runtime[chosen.kept], gangs, sieve.dropped)


def _runtime(records: Records) -> Array:
    """Return end − start, or the log's elapsed time where one is unknown or the clock went back."""
    span = records.end - records.start
    return np.where(np.isnan(span) | (span < 0), np.where(np.isfinite(records.elapsed), records.elapsed, span), span)


def _drop_steps(records: Records, sieve: _Sieve) -> None:
    if not records.step.any():
        return
    import polars as pl

    jobs = pl.Series(records.key[~records.step].astype(str))
    whole = pl.Series(records.key[records.step].astype(str)).str.split(".").list.first().is_in(jobs.implode())
    folded = np.zeros(len(records), bool)
    folded[records.step] = whole.to_numpy()
    sieve.drop("step rows folded into their job", folded)
    sieve.drop("step rows whose job is not in the file", records.step)


def _drop_unfinished(records: Records, runtime: Array, sieve: _Sieve) -> None:
    sieve.drop("pending", records.phase == PENDING)
    sieve.drop("still running", records.phase == RUNNING)
    sieve.drop("never started", np.isnan(records.start) | (records.unassigned & ~(runtime > 0)))
    sieve.drop("no end time", np.isnan(runtime))
    sieve.drop("end before start", runtime < 0)
    sieve.drop("no submit time", np.isnan(records.submit))


def _drop_repeated(records: Records, sieve: _Sieve) -> None:
    """Drop a run that occurs twice, as where two listings overlap."""
    import polars as pl

    kept = np.flatnonzero(sieve.kept)
    kept = kept[pl.Series(records.key[kept].astype(str)).is_duplicated().to_numpy()]  # few: the others cannot repeat
    frame = pl.DataFrame({"key": records.key[kept].astype(str), "start": records.start[kept], "end": records.end[kept]})
    again = np.zeros(len(records), bool)
    again[kept] = ~frame.select(pl.struct(pl.all()).is_first_distinct()).to_series().to_numpy()
    sieve.drop("record that occurs twice", again)


def _choose(records: Records, sieve: _Sieve, count: Count) -> _Chosen:
    usable = np.flatnonzero(sieve.kept)
    lists = NodeLists.of(records.rows.take(usable), records.node_list.take(usable))
    asked = (records.gpus, records.cpus, records.nodes, records.memory)
    gpus, cpus, nodes, memory = (np.nan_to_num(column, nan=0.0) for column in asked)
    nodes[usable] = np.maximum(nodes[usable], lists.counts)
    if count == "auto":
        count = "gpus" if len(usable) and (gpus[usable] > 0).mean() >= 0.5 else "cpus"
    if count == "gpus":
        sieve.drop("CPU job on several nodes (count=cpus keeps it)", (gpus == 0) & (nodes > 1))
        sieve.drop("no GPUs and no cores", (gpus == 0) & (cpus == 0))
    else:
        gpus, cpus, memory = cpus if count == "cpus" else nodes, np.zeros(len(records)), np.zeros(len(records))
        sieve.drop("no cores" if count == "cpus" else "no nodes", gpus == 0)
    kept = np.flatnonzero(sieve.kept)
    own = lists.take(np.searchsorted(usable, kept))
    return _Chosen(kept, count, gpus[kept], cpus[kept], memory[kept], np.maximum(nodes[kept], 1.0), own)


def _build(records: Records, chosen: _Chosen, runtime: Array, gangs: Gangs, dropped: dict[str, int]) -> Workload:
    kept, rows = chosen.kept, records.rows.take(chosen.kept)
    start = records.start[kept]
    submit = np.minimum(records.submit[kept], start)
    origin = float(submit.min())
    ids, id_notes = _ids(records, kept)
    walltime = np.where(records.walltime[kept] > 0, records.walltime[kept], np.inf)
    columns = {
        "id": ids, "submit": submit - origin, "gpus": chosen.gpus, "cpus": chosen.cpus, "memory": chosen.memory, "walltime": walltime,
        "priority": np.nan_to_num(records.priority[kept], nan=0.0), "chunk": _chunks(chosen, gangs),
    }  # fmt: skip
    check_values(rows, columns | {"runtime": runtime})
    partition = _partitions(records.partition.take(kept))
    user, qos, account = records.user.take(kept), records.qos.take(kept), records.account.take(kept)
    gpu_type = records.asked_type.take(kept) if chosen.count == "gpus" else Coded.constant(len(kept))
    codes = {"user": user, "qos": qos, "account": account, "partition": partition, "gpu_type": gpu_type}
    notes = (_count_note(records, chosen), *_time_notes(origin, records.submit[kept] > start), *id_notes, *records.notes)
    return Workload.build(
        columns | {name: column.codes for name, column in codes.items()}, runtime, name=rows.path.name, users=user.labels,
        partitions=partition.labels, qoses=qos.labels, accounts=account.labels, gpu_types=gpu_type.labels,
        dropped=dropped, logged_start=start - origin if records.waits_known else None, notes=notes,
        machines=_machines(records, chosen, runtime, partition),
    )  # fmt: skip


def _count_note(records: Records, chosen: _Chosen) -> str:
    with_gpus = int((records.gpus[chosen.kept] > 0).sum())
    return f"a device is a {_UNITS[chosen.count]} (count={chosen.count}): {with_gpus:,} of {len(chosen.kept):,} jobs had GPUs"


def _ids(records: Records, kept: Array) -> tuple[Array, tuple[str, ...]]:
    """Return the job numbers; where one occurs again (array tasks, further runs), a number beyond the largest."""
    number = records.number[kept]
    records.rows.take(kept).refuse(~(np.abs(number) < MAX_ID / 2), "job id", number, "is too large")
    ids = number.astype(np.int64)
    _, first = np.unique(ids, return_index=True)
    again = np.ones(len(ids), bool)
    again[first] = False
    ids[again] = ids.max() + 1 + np.arange(int(again.sum()))
    keys = records.key[kept].tolist()
    runs, parts = len(keys) - len(set(keys)), sum("+" in key for key in keys)
    notes = {
        f"{runs:,} records are further runs of a requeued job: each counts as a job": runs,
        f"{int(again.sum()):,} jobs share their number with another (arrays, requeues) and are numbered beyond the largest": again.any(),
        f"{parts:,} records are parts of heterogeneous jobs: each counts as a job": parts,
    }
    return ids, tuple(note for note, true in notes.items() if true)


def _time_notes(origin: float, early: Array) -> tuple[str, ...]:
    notes: tuple[str, ...] = (origin_note(round(origin)),)
    if early.any():
        notes += (f"{int(early.sum()):,} jobs start before they are submitted: their start counts as their submission",)
    return notes


def _chunks(chosen: _Chosen, gangs: Gangs) -> Array:
    each = chosen.gpus / chosen.nodes
    even = (chosen.gpus >= 1) & (each == np.floor(each))
    return np.where(even & (gangs == "as-run") & (chosen.count == "gpus"), each, 1.0)


def _partitions(partition: Coded) -> Coded:
    """Give jobs without a partition a separate one where others have one: an empty name would match none of several."""
    if len(partition.labels) < 2 or "" not in partition.labels:
        return partition
    return Coded(tuple(label or "none" for label in partition.labels), partition.codes)


def _machines(records: Records, chosen: _Chosen, runtime: Array, partition: Coded) -> tuple[Machine, ...]:
    kept, start = chosen.kept, records.start[chosen.kept]
    kind = records.ran_type.take(kept) if chosen.count == "gpus" else Coded.constant(len(kept), _KINDS[chosen.count])
    end = start if chosen.count == "nodes" else start + runtime  # a node counts once, though jobs shared it
    return machines_of(Runs(chosen.lists, chosen.nodes, start, end, chosen.gpus, chosen.cpus, chosen.memory, kind, partition))
