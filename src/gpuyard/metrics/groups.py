"""Metrics by priority, user, partition or class of jobs, and counts of how jobs ended."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TypeAlias

import numpy as np

from gpuyard.arrays import Array
from gpuyard.metrics.base import Metric, Values, aggregate, listed, resolve, values_of
from gpuyard.metrics.facts import HORIZON, LAST_SUBMIT, horizon, last_submit
from gpuyard.model.jobs import Jobs
from gpuyard.model.result import REASONS, STATUS, Result
from gpuyard.registry import unknown_name

Row: TypeAlias = dict[str, str | int | float]
Key: TypeAlias = tuple[Array, Callable[[Array], str]]  # (jobs,) group of each job, group → label

OUTCOMES: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {"done": ("done",), "killed": ("killed",), "rejected": ("rejected",), "unfinished": ("pending", "waiting", "running")}
)


def counts(result: Result) -> dict[str, int]:
    """Count `jobs`, and those `done`, `killed`, `rejected` and `unfinished`: every job is in exactly one of the four."""
    sizes = dict(zip(STATUS, np.bincount(result.table["status"], minlength=len(STATUS)).tolist(), strict=True))
    return {"jobs": len(result), **{name: sum(sizes[each] for each in statuses) for name, statuses in OUTCOMES.items()}}


def rejections(result: Result) -> dict[str, int]:
    """Count rejected jobs by reason."""
    codes, sizes = np.unique(result.table["reason"], return_counts=True)
    return {REASONS[code]: int(size) for code, size in zip(codes, sizes, strict=True) if code}


def _label(labels: tuple[str, ...]) -> Callable[[Array], str]:
    return lambda group: labels[int(group)]


GROUPINGS: Mapping[str, Callable[[Jobs], Key]] = MappingProxyType(
    {
        "priority": lambda jobs: (-jobs.priority, lambda group: f"{-group + 0.0:g}"),  # the most important first
        "user": lambda jobs: (jobs.user, _label(jobs.users)),
        "partition": lambda jobs: (jobs.partition, _label(jobs.partitions)),
        "job_class": lambda jobs: (jobs.job_class, _label(jobs.classes)),
        "qos": lambda jobs: (jobs.qos, _label(jobs.qoses)),
        "account": lambda jobs: (jobs.account, _label(jobs.accounts)),
    }
)


def measure_by(result: Result, names: str | Iterable[str], by: str) -> list[Row]:
    """Return a row per group of jobs: {by: label, jobs, done, killed, rejected, unfinished, name: number …}.

    Priorities run from the highest down, the others in the order of their labels in the workload; groups without jobs have no
    row. A metric of the cluster (utilisation, energy, the queue …) belongs to no group of jobs and is nan.
    """
    if by not in GROUPINGS:
        raise unknown_name("grouping", by, list(GROUPINGS))
    wanted = [(name, *resolve(name)) for name in listed(names)]
    group, label = GROUPINGS[by](result.workload.jobs)
    values: Values = {m.name: values_of(result, m) for _, m, _ in wanted if m.kind == "job"}
    totals = MappingProxyType({**result.totals, HORIZON: horizon(result), LAST_SUBMIT: last_submit(result)})
    rows: list[Row] = []
    for rows_of_group in _split(group):
        part = replace(result, workload=result.workload.take(rows_of_group), table=result.table[rows_of_group], totals=totals)
        row: Row = {by: label(group[rows_of_group[0]]), **counts(part)}
        for name, found, aggregation in wanted:
            row[name] = _one(found, aggregation, part, rows_of_group, values)
        rows.append(row)
    return rows


def _split(group: Array) -> Iterator[Array]:
    """Yield the positions of each group, groups and positions ascending."""
    order = np.argsort(group, kind="stable")
    bounds = np.flatnonzero(np.diff(group[order])) + 1
    return (rows for rows in np.split(order, bounds) if len(rows))


def _one(found: Metric, aggregation: str, part: Result, rows: Array, values: Values) -> float:
    if found.kind == "job":
        return aggregate(values[found.name][rows], aggregation)
    return float(values_of(part, found)) if found.grouped else np.nan
