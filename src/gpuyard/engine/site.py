"""Adds to a state what a site has beyond its nodes: jobs that may not start yet, and limits. Where there is none of it, no array grows."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from gpuyard.arrays import Array
from gpuyard.engine import state as st
from gpuyard.engine.mix import are_shared, named_partitions
from gpuyard.engine.slots import Program
from gpuyard.errors import SimulationError
from gpuyard.model.cluster import Cluster
from gpuyard.model.jobs import Jobs
from gpuyard.model.result import WAITS_FOR
from gpuyard.model.rules import conditions_in
from gpuyard.model.site.eligibility import Conditions, parse_conditions
from gpuyard.model.site.limits import DIMENSIONS, Limit

NO_RANKS = "rules that score jobs do: fcfs/fewest/easy/priority"


def has_site(jobs: Jobs, cluster: Cluster) -> bool:
    """Whether a job says when it may start, or the cluster limits anything."""
    return bool(cluster.limits) or any(conditions_in(text) for text in jobs.term_texts)


def has_limits(jobs: Jobs, cluster: Cluster) -> bool:
    """Whether anything limits what may run at once or in all: the cluster, or how many tasks of an array may run."""
    return bool(cluster.limits) or any(asked.array and asked.array_limit for asked in _said(jobs))


def takes_ranks(jobs: Jobs, cluster: Cluster) -> bool:
    """Whether rank rules can be used: nothing is limited, and no partitions share nodes or jobs."""
    return not (has_limits(jobs, cluster) or are_shared(jobs, cluster))


def with_site(s: st.State, jobs: Jobs, cluster: Cluster, program: Program) -> st.State:
    """Return a state that knows the conditions of its jobs and the limits of its cluster."""
    said = _said(jobs)
    rows = {row: said[number] for row, number in enumerate(jobs.terms.tolist()) if said[number].any}
    columns = _columns(jobs, cluster)
    if columns and program.ranks:
        raise SimulationError(f"cluster {cluster.name}: rank rules know no limits", hint=NO_RANKS)
    n = len(jobs)
    made = s.replace(why=np.zeros(n, np.int32), why_since=np.zeros(n), why_total=np.zeros(n * len(WAITS_FOR)))
    made.control["explaining"] = 1
    if rows:
        made = made.replace(**_gates(jobs, rows))
        made.control["gated"] = 1
    if columns:
        made = made.replace(**_groups(columns, n))
        made.control["limits"] = len(columns)
    return made


def _said(jobs: Jobs) -> list[Conditions]:
    """Return the conditions of each label of terms."""
    return [parse_conditions(conditions_in(text)) for text in jobs.term_texts]


def _gates(jobs: Jobs, rows: dict[int, Conditions]) -> dict[str, Array]:
    n = len(jobs)
    release = np.full(n, -math.inf)
    place = {number: row for row, number in enumerate(jobs.id.tolist())}
    edges: list[tuple[int, int]] = []
    unmet = np.zeros(n, np.int32)
    for row, asked in rows.items():
        release[row] = math.inf if asked.held else jobs.submit[row] + asked.begin
        for ids, must in ((asked.after, 1), (asked.after_any, 0)):
            edges += [(place[number], 2 * row + must) for number in ids if number in place]
    for _, follower in edges:
        unmet[follower >> 1] += 1
    edges.sort()
    due = np.flatnonzero(np.isfinite(release) & (release > jobs.submit))
    return {
        "release": release,
        "releases": due[np.lexsort((due, release[due]))].astype(np.int32),
        "unmet": unmet,
        "follower_at": np.searchsorted([leader for leader, _ in edges], np.arange(n + 1)).astype(np.int32),
        "followers": np.array([follower for _, follower in edges] or [0], np.int32),
        "failing": np.zeros(n + 1, np.int32),
    }


def _columns(jobs: Jobs, cluster: Cluster) -> list[_Column]:
    return [*_limit_columns(jobs, cluster), *_array_columns(jobs, _said(jobs))]


def with_limits_of(s: st.State, jobs: Jobs, cluster: Cluster, spent: Mapping[str, float]) -> st.State:
    """Return a state for the jobs of a snapshot, with what was spent before."""
    columns = _columns(jobs, cluster)
    if not columns:
        return s.replace(group_of=np.zeros(1, np.int32))
    made = s.replace(**_groups(columns, len(jobs)))
    made.groups["spent"] = [spent.get(name, 0.0) for _, _, names in columns for name in names]
    made.control["limits"] = len(columns)
    return made


def spent_of(s: st.State, jobs: Jobs, cluster: Cluster) -> dict[str, float]:
    """Return the GPU-seconds of runs that have ended, by the name of the group, where any has spent some."""
    if not s.control["limits"][0]:
        return {}
    known = jobs.derived.get("groups")
    if known is None or known[0] is not cluster:
        known = jobs.derived["groups"] = cluster, [name for _, _, names in _columns(jobs, cluster) for name in names]
    return {name: spent for name, spent in zip(known[1], s.groups["spent"].tolist(), strict=True) if spent > 0}


# ── limits: a column says to which group each job belongs, and a group has limits and accounts ──

_Column = tuple[Array, Array, list[str]]  # (jobs,) group or -1; (groups,) of GROUP_ROW; what the groups are called


def _limit_columns(jobs: Jobs, cluster: Cluster) -> list[_Column]:
    named = named_partitions(jobs, cluster)
    numbers = cluster.partition_numbers
    found = []
    for at, limit in enumerate(cluster.limits):
        if limit.partition:
            places = [numbers[limit.partition]] if limit.partition in numbers else []
        else:
            places = list(range(len(cluster.partitions))) if "partition" in limit.each else [-1]
        found += [_limit_column(jobs, limit, place, named, f"{at} {place}") for place in places]
    return found


def _limit_column(jobs: Jobs, limit: Limit, place: int, named: Sequence[Sequence[int]], what: str) -> _Column:
    inside = np.ones(len(jobs), bool)
    if place >= 0:
        inside = np.array([place in numbers for numbers in named], bool)[jobs.partition]
    group = np.zeros(len(jobs), np.int64)
    labels = {"user": jobs.users, "account": jobs.accounts, "qos": jobs.qoses}
    for name in DIMENSIONS[:-1]:
        wanted, column = getattr(limit, name), getattr(jobs, name)
        if wanted:
            inside &= np.array([label == wanted for label in labels[name]], bool)[column]
        if name in limit.each:
            group = group * len(labels[name]) + column
    used, first, number = np.unique(group, return_index=True, return_inverse=True)
    names = [" ".join([what, *(labels[name][getattr(jobs, name)[row]] for name in limit.each if name in labels)]) for row in first.tolist()]
    rows = np.zeros(len(used), st.GROUP_ROW)
    rows["most_jobs"], rows["most_gpus"], rows["most_submitted"] = limit.jobs, limit.gpus, limit.submitted
    rows["most_seconds"], rows["most_promised"] = 60.0 * limit.gpu_minutes, 60.0 * limit.running_gpu_minutes
    rows["home"], rows["reason"] = place, WAITS_FOR.index(limit.reason)
    return np.where(inside, number.ravel(), -1), rows, names


def _array_columns(jobs: Jobs, said: Sequence[Conditions]) -> list[_Column]:
    """Return a column for the arrays of which only so many tasks may run at once, if there are any."""
    limits: dict[int, int] = {}
    for asked in said:
        if asked.array and asked.array_limit:
            limits[asked.array] = min(limits.get(asked.array, asked.array_limit), asked.array_limit)
    if not limits:
        return []
    place = {array: number for number, array in enumerate(limits)}
    by_label = np.array([place.get(asked.array, -1) for asked in said])
    rows = np.zeros(len(limits), st.GROUP_ROW)
    for name in ("most_gpus", "most_seconds", "most_promised", "most_submitted"):
        rows[name] = math.inf
    rows["most_jobs"], rows["home"], rows["reason"] = list(limits.values()), -1, WAITS_FOR.index("array-limit")
    return [(by_label[jobs.terms], rows, [f"array {array}" for array in limits])]


def _groups(columns: list[_Column], jobs: int) -> dict[str, Any]:
    first = np.cumsum([0, *(len(rows) for _, rows, _ in columns)])
    group_of = np.full((jobs, len(columns)), -1, np.int32)
    for k, (group, _, _) in enumerate(columns):
        group_of[:, k] = np.where(group >= 0, group + first[k], -1)
    return {"groups": np.concatenate([rows for _, rows, _ in columns]), "group_of": group_of.ravel()}
